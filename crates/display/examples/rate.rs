//! How fast frames reach viewers over loopback: `cargo run --release -p polyduct-display --example rate`.
//!
//! Viewers acknowledge each frame as soon as it has come and look at none of its elements, so this is what
//! the server can do, and no browser. Beside it stands what plain sockets and one thread carry on this machine.

use bytes::Bytes;
use polyduct_display::{Display, Frame, Options, View, ViewInfo};
use polyduct_layout::ElemType;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant, SystemTime};

const SHAPE: [u64; 2] = [1080, 1920];
const BYTES: usize = 1080 * 1920 * 4;
const TIME: Duration = Duration::from_secs(3);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What comes before an empty line.
fn head(stream: &mut TcpStream) -> Result<(), Failure> {
    let mut end = Vec::new();
    while !end.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        end.push(byte[0]);
    }
    Ok(())
}

/// Reads one message into `buffer`, and gives the frame's number.
fn read(body: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<Option<u64>, Failure> {
    let mut len = [0; 8];
    body.read_exact(&mut len)?;
    buffer.resize(u64::from_le_bytes(len) as usize, 0);
    body.read_exact(buffer)?;
    let json = u32::from_le_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]) as usize;
    let head: serde_json::Value = serde_json::from_slice(&buffer[4..4 + json])?;
    Ok(head["id"].as_u64())
}

/// How many frames a viewer gets within the time.
fn view(display: &Display) -> Result<u64, Failure> {
    let mut stream = TcpStream::connect(display.socket_address())?;
    stream.set_nodelay(true)?;
    write!(
        stream,
        "GET /a/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )?;
    head(&mut stream)?;
    // A short text: two bytes, and so many.
    let mut short = [0; 2];
    stream.read_exact(&mut short)?;
    let mut greeting = vec![0; usize::from(short[1])];
    stream.read_exact(&mut greeting)?;
    let greeting: serde_json::Value = serde_json::from_slice(&greeting)?;
    let id = greeting["id"].as_str().ok_or("no id")?;
    let mut body = TcpStream::connect(display.socket_address())?;
    write!(body, "GET /a/frames?viewer={id} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    head(&mut body)?;
    let (start, mut frames, mut buffer) = (Instant::now(), 0, Vec::new());
    while start.elapsed() < TIME {
        let Some(id) = read(&mut body, &mut buffer)? else { continue };
        frames += 1;
        let text = format!("{{\"type\":\"ack\",\"id\":{id}}}");
        let mut message = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
        message.extend(text.bytes());
        stream.write_all(&message)?;
    }
    Ok(frames)
}

/// What a plain socket carries, in GB/s.
fn plain() -> Result<f64, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut to = TcpStream::connect(listener.local_addr()?)?;
    let (mut from, _) = listener.accept()?;
    let reader = std::thread::spawn(move || {
        let (start, mut buffer, mut total) = (Instant::now(), vec![0; BYTES], 0);
        while from.read_exact(&mut buffer).is_ok() {
            total += buffer.len();
        }
        total as f64 / start.elapsed().as_secs_f64() / 1e9
    });
    let (start, data) = (Instant::now(), vec![1; BYTES]);
    while start.elapsed() < TIME {
        to.write_all(&data)?;
    }
    drop(to);
    reader.join().map_err(|_| "the reader panicked".into())
}

fn main() -> Result<(), Failure> {
    println!("a plain socket: {:.2} GB/s", plain()?);
    for viewers in [1, 2, 4] {
        let display = Display::listen(&Options::default())?;
        let info = ViewInfo { name: "u".into(), shape: SHAPE.to_vec(), elem: ElemType::F32, owners: None };
        let show = display.enter("a", vec![info])?;
        let data = Bytes::from(vec![1; BYTES]);
        let all: Vec<_> = (0..viewers)
            .map(|_| {
                let display = display.clone();
                std::thread::spawn(move || view(&display))
            })
            .collect();
        let (mut step, mut longest, mut sum) = (0u32, Duration::ZERO, Duration::ZERO);
        while !all.iter().all(|viewer| viewer.is_finished()) {
            let views = vec![View::whole("u", ElemType::F32, &SHAPE, data.clone())];
            let frame = Frame {
                step: step.into(),
                time: SystemTime::now(),
                values: Default::default(),
                views,
                exact: Vec::new(),
            };
            let start = Instant::now();
            show.publish(frame)?;
            longest = longest.max(start.elapsed());
            sum += start.elapsed();
            step += 1;
            std::thread::sleep(Duration::from_millis(2)); // a simulation that makes 500 frames a second
        }
        let mut frames = 0;
        for viewer in all {
            frames += viewer.join().map_err(|_| "a viewer panicked")??;
        }
        let each = frames as f64 / TIME.as_secs_f64() / viewers as f64;
        println!(
            "{viewers} viewers of 1080p f32: {each:.0} frames/s each, {:.2} GB/s in all; publish {:.1?} on \
            the mean, {longest:.1?} at most",
            each * viewers as f64 * BYTES as f64 / 1e9,
            sum / step,
        );
    }
    Ok(())
}
