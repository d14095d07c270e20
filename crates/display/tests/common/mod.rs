//! Clients over loopback, each of whose waits has an end.
#![allow(dead_code)] // each test uses some of it

use bytes::Bytes;
use polyduct_display::{Display, Frame, Options, Show, View, ViewInfo};
use polyduct_layout::ElemType;
use polyduct_os::poll::{poll, PollItem};
use serde_json::{json, Value};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime};
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Message, WebSocket};

/// Nothing that a test waits for takes so long.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn listen() -> Display {
    Display::listen(&Options::default()).unwrap()
}

pub fn info(name: &str, shape: &[u64]) -> ViewInfo {
    ViewInfo { name: name.into(), shape: shape.to_vec(), elem: ElemType::F32, owners: None }
}

pub fn enter(display: &Display, name: &str, shape: &[u64]) -> Show {
    display.enter(name, vec![info("u", shape)]).unwrap()
}

/// A frame of one view, all of whose elements are the step's number.
pub fn frame(step: u64, shape: &[u64]) -> Frame {
    let len = shape.iter().product::<u64>() as usize;
    frame_of(step, shape, (step as f32).to_le_bytes().repeat(len).into())
}

pub fn frame_of(step: u64, shape: &[u64], data: Bytes) -> Frame {
    let views = vec![View::whole("u", ElemType::F32, shape, data)];
    let mut values = serde_json::Map::new();
    values.insert("t".into(), json!(step as f64 / 4.0));
    Frame { step, time: SystemTime::now(), values, views, exact: Vec::new() }
}

pub fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Everything until the other side closes.
pub fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn read(stream: &mut TcpStream) -> Response {
        let all = read_all(stream);
        let end = all.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
        let head = String::from_utf8(all[..end].to_vec()).unwrap();
        let status = head[9..12].parse().unwrap();
        let body = all[end..].to_vec();
        Response { status, head, body }
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Sends these bytes as a request, and reads the answer.
pub fn send(to: SocketAddr, bytes: impl AsRef<[u8]>) -> Response {
    let mut stream = connect(to);
    stream.write_all(bytes.as_ref()).unwrap();
    Response::read(&mut stream)
}

pub fn get(display: &Display, path: &str) -> Response {
    send(display.socket_address(), format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
}

pub fn handshake(path: &str, more: &str) -> String {
    format!(
        "GET {path}/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}

/// The request of a viewer's body.
pub fn frames(path: &str, id: &str) -> String {
    format!("GET {path}/frames?viewer={id} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// The head of an answer alone, byte by byte, so that nothing behind it is taken.
pub fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// A browser's page, as far as the server sees it: the websocket by which it speaks, and the body of what it is
/// shown.
pub struct Page(pub WebSocket<TcpStream>, pub TcpStream);

#[derive(Debug)]
pub struct Got {
    pub head: Value,
    pub data: Vec<u8>,
}

impl Got {
    fn of(message: &[u8]) -> Got {
        let len = u32::from_le_bytes(message[..4].try_into().unwrap()) as usize;
        let head = serde_json::from_slice(&message[4..4 + len]).unwrap();
        let data = message.get((4 + len).next_multiple_of(8)..).unwrap_or_default().to_vec();
        Got { head, data }
    }

    pub fn step(&self) -> u64 {
        self.head["step"].as_u64().unwrap()
    }

    pub fn id(&self) -> u64 {
        self.head["id"].as_u64().unwrap()
    }

    /// The elements of a view.
    pub fn values(&self, view: usize) -> Vec<f32> {
        let [at, len] = ["at", "len"].map(|name| self.head["views"][view][name].as_u64().unwrap() as usize);
        let elements = self.data[at..at + len].chunks_exact(4);
        elements.map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

impl Page {
    /// The websocket alone, and the id that it is given for its body.
    pub fn speak(display: &Display, path: &str) -> (WebSocket<TcpStream>, String) {
        let mut stream = connect(display.socket_address());
        stream.write_all(handshake(path, "Origin: http://localhost\r\n").as_bytes()).unwrap();
        let head = read_head(&mut stream);
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let mut socket = WebSocket::from_raw_socket(stream, Role::Client, Some(WebSocketConfig::default()));
        let Message::Text(text) = socket.read().unwrap() else { panic!("no greeting") };
        let greeting: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(greeting["type"], "viewer");
        (socket, greeting["id"].as_str().unwrap().to_owned())
    }

    pub fn open(display: &Display, path: &str) -> Page {
        let (socket, id) = Page::speak(display, path);
        let mut body = connect(display.socket_address());
        body.write_all(frames(path, &id).as_bytes()).unwrap();
        let head = read_head(&mut body);
        assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("Content-Length"), "{head}");
        Page(socket, body)
    }

    /// Opens it, and reads what it is told first.
    pub fn look(display: &Display, path: &str) -> Page {
        let mut page = Page::open(display, path);
        assert_eq!(page.text()["type"], "hello");
        assert_eq!(page.text()["type"], "state");
        page
    }

    pub fn message(&mut self) -> Got {
        let mut len = [0; 8];
        self.1.read_exact(&mut len).unwrap();
        let mut message = vec![0; u64::from_le_bytes(len) as usize];
        self.1.read_exact(&mut message).unwrap();
        Got::of(&message)
    }

    pub fn text(&mut self) -> Value {
        let Got { head, data } = self.message();
        assert!(head["type"] != "frame" && data.is_empty(), "{head}");
        head
    }

    pub fn frame(&mut self) -> Got {
        let got = self.message();
        assert_eq!(got.head["type"], "frame");
        got
    }

    /// The next frame, whatever is told before it.
    pub fn frame_past_texts(&mut self) -> Got {
        loop {
            let got = self.message();
            if got.head["type"] == "frame" {
                return got;
            }
        }
    }

    /// Whether the body has come to its end in good order.
    pub fn is_through(&mut self) -> bool {
        read_all(&mut self.1).is_empty()
    }

    pub fn say(&mut self, message: Value) {
        self.0.send(Message::text(message.to_string())).unwrap();
    }

    pub fn ack(&mut self, got: &Got) {
        self.say(json!({"type": "ack", "id": got.id()}));
    }

    /// Reads frames and acknowledges them until that step has come.
    pub fn until(&mut self, step: u64) -> Got {
        loop {
            let got = self.frame();
            self.ack(&got);
            assert!(got.step() <= step, "step {} came, {step} was awaited", got.step());
            if got.step() == step {
                return got;
            }
        }
    }

    /// The code with which the server closes, after whatever else it sends.
    pub fn close_code(&mut self) -> u16 {
        loop {
            match self.0.read().unwrap() {
                Message::Close(Some(close)) => return close.code.into(),
                Message::Close(None) => return 1005,
                _ => {}
            }
        }
    }
}

/// Waits until the program is told that what viewers want has become so.
pub fn until_wants(show: &Show, is_it: impl Fn(&polyduct_display::Wants) -> bool) -> polyduct_display::Wants {
    loop {
        let wants = show.wants();
        if is_it(&wants) {
            return wants;
        }
        let changed = show.changed();
        let ready = poll(&mut [PollItem::readable(&changed)], Some(PATIENCE)).unwrap();
        assert_eq!(ready, 1, "wants stay {wants:?}");
    }
}
