//! Measures this machine without polyduct: memory, a cache line between two cores, a connection on loopback,
//! a file.

use polyduct::host::cpu;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// Bytes of one write or read of a connection or a file.
const CHUNK: usize = 4 << 20;

/// Seconds that `threads` threads take to copy `bytes` together with the C library's memcpy, each its share;
/// the mean of `rounds`.
///
/// # Panics
/// If memcpy does not copy.
pub fn copy(threads: usize, bytes: usize, rounds: usize) -> f64 {
    let share = bytes / threads;
    // Touched before the clock starts: the first pass over new memory measures the kernel.
    let from: Vec<Vec<u8>> = (0..threads).map(|n| vec![n as u8 + 1; share]).collect();
    let mut to = vec![vec![0; share]; threads];
    to.iter_mut().for_each(|to| to.fill(0xff));
    let barrier = Barrier::new(threads + 1);
    let seconds = thread::scope(|scope| {
        for (from, to) in from.iter().zip(&mut to) {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                (0..rounds).for_each(|_| to.copy_from_slice(std::hint::black_box(from)));
                barrier.wait();
            });
        }
        barrier.wait();
        let start = Instant::now();
        barrier.wait();
        start.elapsed().as_secs_f64()
    });
    assert!(from == to, "memcpy copied");
    seconds / rounds as f64
}

/// Seconds for a cache line to go from one thread to another; each on a processor of its own if `pinned`.
pub fn line(pinned: bool) -> f64 {
    const TURNS: u64 = 100_000;
    let ball = AtomicU64::new(0);
    let cpus = cpu::allowed();
    let start = Instant::now();
    thread::scope(|scope| {
        for side in 0..2 {
            let (ball, cpu) = (&ball, cpus[side as usize % cpus.len()]);
            scope.spawn(move || {
                if pinned {
                    // Where it is not allowed, the scheduler does it well enough.
                    let _ = cpu::pin_to(cpu);
                }
                for turn in 0..TURNS {
                    while ball.load(Ordering::Acquire) != 2 * turn + side {
                        std::hint::spin_loop();
                    }
                    ball.store(2 * turn + side + 1, Ordering::Release);
                }
            });
        }
    });
    start.elapsed().as_secs_f64() / (2 * TURNS) as f64
}

/// GB/s of one TCP connection on loopback.
pub fn connection(bytes: usize) -> io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut to = TcpStream::connect(listener.local_addr()?)?;
    let (mut from, _) = listener.accept()?;
    let sender = thread::spawn(move || (0..bytes / CHUNK).try_for_each(|_| to.write_all(&vec![1; CHUNK])));
    let mut buffer = vec![0; CHUNK];
    from.read_exact(&mut buffer)?;
    let start = Instant::now();
    let mut came = 0;
    loop {
        match from.read(&mut buffer)? {
            0 => break,
            n => came += n,
        }
    }
    let rate = came as f64 / start.elapsed().as_secs_f64() / 1e9;
    sender.join().unwrap_or_else(|_| Err(io::Error::other("the sending thread panicked")))?;
    Ok(rate)
}

/// GB/s of writing a new file and making it durable, and of reading it back (from the cache, where it fits).
pub fn file(path: &Path, bytes: usize) -> io::Result<(f64, f64)> {
    let chunk = vec![7; CHUNK];
    let start = Instant::now();
    let mut file = File::create_new(path)?;
    for _ in 0..bytes / CHUNK {
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    let write = bytes as f64 / start.elapsed().as_secs_f64() / 1e9;
    let (mut file, mut chunk) = (File::open(path)?, chunk);
    let start = Instant::now();
    for _ in 0..bytes / CHUNK {
        file.read_exact(&mut chunk)?;
    }
    Ok((write, bytes as f64 / start.elapsed().as_secs_f64() / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_positive() {
        assert!(copy(2, 1 << 20, 2) > 0.0 && line(false) > 0.0 && connection(16 << 20).unwrap() > 0.0);
    }
}
