//! A long way between two hosts: what goes over it comes later, or not at all, or is cut into short packets.
//! For that the kernel has queueing disciplines which few have; so each host has a network device of its own
//! (TUN), and a thread that carries its packets over the [cable](crate::hosts).

use crate::hosts::ip;
use crate::Random;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const PORT: u16 = 4789;
/// `ioctl` that makes an open `/dev/net/tun` one end of a device (`linux/if_tun.h`).
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
/// Packets that wait on the way, at most: one more is lost, as it would be.
const QUEUE: usize = 1 << 14;

/// Whether this process may have network devices.
pub fn is_possible() -> bool {
    File::options().read(true).write(true).open("/dev/net/tun").is_ok()
}

/// What a way does to packets.
#[derive(Clone, Copy, Debug)]
pub struct Wan {
    /// How long one takes, each way.
    pub delay: Duration,
    /// Of a hundred, so many are lost.
    pub lost: u64,
    /// The longest packet.
    pub mtu: u32,
}

impl Wan {
    /// Opens this host's end, which has address `inner`; the cable's addresses are `mine` and `theirs`. It
    /// lasts for as long as the process.
    pub fn open(self, mine: &str, theirs: &str, inner: &str) {
        ip("tuntap add dev wan mode tun");
        ip(&format!("addr add {inner}/24 dev wan"));
        ip(&format!("link set wan mtu {}", self.mtu));
        ip("link set wan up");
        let device = Arc::new(device("wan"));
        let cable = UdpSocket::bind((mine, PORT)).unwrap();
        let cable = Arc::new(cable);
        let to = format!("{theirs}:{PORT}");
        let on_the_way = Arc::new((Mutex::new(VecDeque::<(Instant, Vec<u8>)>::new()), Condvar::new()));
        let (read, queue) = (device.clone(), on_the_way.clone());
        std::thread::spawn(move || {
            let (mut random, mut packet) = (Random::new(u64::from(self.mtu) + self.lost), vec![0; 1 << 16]);
            while let Ok(len) = (&*read).read(&mut packet) {
                let mut waiting = queue.0.lock().unwrap();
                if random.below(100) >= self.lost && waiting.len() < QUEUE {
                    waiting.push_back((Instant::now() + self.delay, packet[..len].to_vec()));
                    queue.1.notify_one();
                }
            }
        });
        let out = cable.clone();
        std::thread::spawn(move || loop {
            let mut waiting = on_the_way.0.lock().unwrap();
            while waiting.is_empty() {
                waiting = on_the_way.1.wait(waiting).unwrap();
            }
            let (due, packet) = waiting.pop_front().unwrap();
            drop(waiting);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            // The other end may not be there yet, or any more.
            let _ = out.send_to(&packet, &to);
        });
        std::thread::spawn(move || {
            let mut packet = vec![0; 1 << 16];
            loop {
                if let Ok(len) = cable.recv(&mut packet) {
                    let _ = (&*device).write(&packet[..len]);
                }
            }
        });
    }
}

/// The end of a TUN device that its packets come from, without anything in front of them.
pub(crate) fn device(name: &str) -> File {
    let device = File::options().read(true).write(true).open("/dev/net/tun").unwrap();
    // SAFETY: all zeros is an `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open, and the kernel reads and writes one `ifreq`, which lives.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), TUNSETIFF as _, &mut request) };
    assert_eq!(done, 0, "TUNSETIFF: {}", std::io::Error::last_os_error());
    device
}
