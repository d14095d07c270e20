//! Processes of this user that speak to a pipe's unit 0 without the library.

use polyduct_layout::{Dataset, ElemType};
use polyduct_message::handshake::Incoming;
use polyduct_os::process::{number_space, user_id};
use polyduct_os::socket::{Conn, MESSAGE_LIMIT};
use polyduct_pipe::wire::{Array, FromHost, Hello, Role, Takes, Wish, PROTOCOL};
use polyduct_pipe::OnLoss;
use std::time::{Duration, Instant};

pub fn name_of(pipe: &str) -> Vec<u8> {
    format!("polyduct/{}/{pipe}", user_id()).into_bytes()
}

pub fn connect(pipe: &str) -> Conn {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match Conn::connect(&name_of(pipe)) {
            Ok(conn) => return conn,
            Err(e) => assert!(Instant::now() < end, "{e}"),
        }
        std::thread::yield_now();
    }
}

/// What comes next; a hangup is `None`. The host answers within the time of a test, or it hangs.
pub fn answer(conn: &Conn) -> Option<FromHost> {
    let mut buffer = vec![0; MESSAGE_LIMIT];
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match PROTOCOL.receive(conn, &mut buffer) {
            Incoming::Message(FromHost::Noted { .. }, _) => {}
            Incoming::Message(message, _) => return Some(message),
            Incoming::Closed => return None,
            Incoming::Bad(bad) => panic!("{bad:?}"),
            Incoming::Nothing => assert!(Instant::now() < end, "no answer"),
        }
        std::thread::yield_now();
    }
}

pub const LEN: u64 = 64;

pub fn data() -> Dataset {
    Dataset::new(&[LEN], ElemType::U8).unwrap()
}

/// The only array of a pipe, of bytes.
pub fn array(len: u64) -> Array {
    Array { name: String::new(), shape: vec![len], elem: "u8".into(), layout: "block".into(), open: None }
}

pub fn hello(role: Role, unit: u32, units: u32) -> Hello {
    let program = if matches!(role, Role::Writer { .. }) { "w" } else { "r0" };
    Hello {
        program: program.into(),
        unit,
        units,
        pid: std::process::id(),
        space: number_space(),
        start_time: 0,
        on_loss: OnLoss::Raise,
        role,
        rejoin: None,
    }
}

pub fn reader(unit: u32, units: u32) -> Hello {
    hello(Role::Reader { takes: Takes::One(Wish::layout("block")) }, unit, units)
}
