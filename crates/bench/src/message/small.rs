//! Short messages over TCP on loopback: how many a second by the channels of a domain, as programs send them,
//! and how long one takes by the endpoint below them, beside a bare connection.

use super::cases::play;
use super::pair::{Effort, Scene, Way};
use crate::case::{Case, Rounds, Target};
use polyduct_os::cpu;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

/// Bytes of a message of a bare connection. Ours are short messages, whose words carry twice as much.
const LEN: usize = 8;
/// Turns of a bare connection.
const TURNS: u32 = 20_000;

/// The cases.
pub fn cases(rounds: Rounds, effort: Effort) -> Vec<Case> {
    let mut cases = Vec::new();
    for (trusted, words, least) in [(true, "trusted", 2.0), (false, "encrypted", 1.0)] {
        let what = effort.play(Way::DomainTcp { trusted }, Scene::Stream, 0, 300_000, 3);
        cases.push(Case {
            name: format!("TCP, loopback, {words}, 8-byte messages a second"),
            unit: "M/s",
            baseline: "a write for each, without polyduct",
            target: Target::ValueAtLeast(least),
            run: Box::new(move || {
                rounds.of(|| Ok((1e-6 / play(&what)?.value, 1e-6 / bare(false).map_err(|e| e.to_string())?)))
            }),
        });
    }
    let what = effort.play(Way::Tcp { trusted: true }, Scene::Ping { fresh: false }, 0, 5_000, 5);
    cases.push(Case {
        name: "TCP, loopback, trusted, 8 bytes, one way".into(),
        unit: "µs",
        baseline: "a bare connection, both ends polling",
        target: Target::RatioAtMost(1.4),
        run: Box::new(move || {
            rounds.of(|| Ok((play(&what)?.value * 1e6, bare(true).map_err(|e| e.to_string())? * 1e6)))
        }),
    });
    cases
}

/// Seconds of a message one way over a connection of two threads, each on a processor of its own, that poll
/// their ends: there and back, or each with a call of its own in one direction.
fn bare(back: bool) -> io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    let cpus = cpu::allowed();
    for end in [&near, &far] {
        end.set_nodelay(true)?;
        end.set_nonblocking(true)?;
    }
    let start = Instant::now();
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| {
            // Where it is not allowed, the scheduler does it well enough.
            let _ = cpu::pin_to(cpus[1 % cpus.len()]);
            if !back {
                return take(&far, LEN * TURNS as usize);
            }
            (0..TURNS).try_for_each(|_| take(&far, LEN).and_then(|()| give(&far)))
        });
        // A thread of its own, too: processes that are started later would be kept to the same processor.
        let asks = scope.spawn(|| {
            let _ = cpu::pin_to(cpus[0]);
            (0..TURNS)
                .try_for_each(|_| give(&near).and_then(|()| if back { take(&near, LEN) } else { Ok(()) }))
        });
        [asks, answers].into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    })?;
    Ok(start.elapsed().as_secs_f64() / f64::from(TURNS) / if back { 2.0 } else { 1.0 })
}

/// Writes a message.
fn give(mut stream: &TcpStream) -> io::Result<()> {
    let mut left = LEN;
    while left > 0 {
        left -= moved(stream.write(&[1; LEN][..left]))?;
    }
    Ok(())
}

/// Reads so many bytes.
fn take(mut stream: &TcpStream, mut left: usize) -> io::Result<()> {
    let mut bytes = vec![0; left.min(64 << 10)];
    while left > 0 {
        let room = left.min(bytes.len());
        left -= moved(stream.read(&mut bytes[..room]))?;
    }
    Ok(())
}

/// How many bytes a call has moved; none where it would have to wait.
fn moved(call: io::Result<usize>) -> io::Result<usize> {
    match call {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        moved => moved,
    }
}
