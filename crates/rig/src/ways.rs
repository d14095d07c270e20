//! A long way between two hosts, with a rate: what `tc` does with `tbf` and `netem`; few kernels have the
//! second.
//!
//! It is two network devices (TUN), one for either host, and two threads for each direction, which carry
//! packets from one to the other. They last for as long as the process.

use crate::wan::device;
use std::fs::File;
use std::io::{Read, Write};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

/// The longest packet: long ones, since each costs two system calls here.
pub const MTU: u32 = 65_000;
/// Packets on the way in one direction, at most.
const PACKETS: usize = 1 << 14;

/// What a way is like, in either direction.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Bytes a second.
    pub rate: f64,
    /// How long a packet takes once it has left.
    pub delay: Duration,
    /// Bytes that wait to leave, at most: what comes when there are as many is lost.
    pub queue: usize,
}

impl Way {
    /// Makes the devices, in this network namespace; either may then be moved to another.
    pub fn open(self, one: &str, other: &str) {
        let ends = [one, other].map(|name| Arc::new(device(name)));
        for (from, to) in [(0, 1), (1, 0)] {
            self.carry(ends[from].clone(), ends[to].clone());
        }
    }

    fn carry(self, from: Arc<File>, to: Arc<File>) {
        let (send, packets) = mpsc::sync_channel::<(Instant, Vec<u8>)>(PACKETS);
        std::thread::spawn(move || {
            // One leaves behind the other; the time that passes between is used up.
            let mut free = Instant::now();
            let mut packet = vec![0; 1 << 16];
            while let Ok(len) = (&*from).read(&mut packet) {
                let now = Instant::now();
                free = free.max(now);
                let queued = (free - now).as_secs_f64() * self.rate;
                if queued as usize + len > self.queue {
                    continue;
                }
                free += Duration::from_secs_f64(len as f64 / self.rate);
                let _ = send.try_send((free + self.delay, packet[..len].to_vec()));
            }
        });
        std::thread::spawn(move || {
            for (due, packet) in packets {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                // A device that is down, or that a host has not been given yet, takes none.
                let _ = (&*to).write(&packet);
            }
        });
    }
}
