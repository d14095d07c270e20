//! A slow link between two TCP sockets: what goes through, each way, is held back to so many megabits a
//! second. It keeps little of it, as the queue of a link whose sender looks after it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Bytes that are carried at once.
const PIECE: usize = 8 << 10;
/// What the kernel keeps of a connection for the link, each way.
const KEPT: usize = 32 << 10;

/// Bytes a second of so many megabits.
pub fn bytes_a_second(megabits: u32) -> f64 {
    f64::from(megabits) * 1e6 / 8.0
}

/// Starts a link in front of a listener, for one connection. A client of the address speaks with that
/// listener. It ends with its connection, or the process.
pub fn slow_link(behind: SocketAddr, megabits: u32) -> std::io::Result<SocketAddr> {
    let front = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // What is accepted has it from the listener.
    socket2::SockRef::from(&front).set_recv_buffer_size(KEPT)?;
    let addr = front.local_addr()?;
    std::thread::Builder::new().spawn(move || {
        // The measuring process is told by a connection that ends.
        let Ok((near, _)) = front.accept() else { return };
        let Ok(far) = connect(behind) else { return };
        let rate = bytes_a_second(megabits);
        std::thread::scope(|s| {
            s.spawn(|| carry(&near, &far, rate));
            carry(&far, &near, rate);
        });
    })?;
    Ok(addr)
}

fn connect(behind: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(behind), socket2::Type::STREAM, None)?;
    socket.set_recv_buffer_size(KEPT)?;
    socket.connect(&behind.into())?;
    Ok(socket.into())
}

fn carry(mut from: &TcpStream, mut to: &TcpStream, rate: f64) {
    let (mut piece, mut free_at) = (vec![0; PIECE], Instant::now());
    let _ = to.set_nodelay(true);
    loop {
        let len = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => len,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        // It arrives when all of it is through.
        let now = Instant::now();
        free_at = free_at.max(now) + Duration::from_secs_f64(len as f64 / rate);
        std::thread::sleep(free_at - now);
        if to.write_all(&piece[..len]).is_err() {
            break;
        }
    }
    // The other direction ends with its own end.
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_carries_every_byte_and_no_faster() {
        let behind = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = slow_link(behind.local_addr().unwrap(), 80).unwrap();
        let sent: Vec<u8> = (0..1_000_000_u32).map(|i| (i * 7) as u8).collect();
        let begun = Instant::now();
        let got = std::thread::scope(|s| {
            s.spawn(|| TcpStream::connect(at).unwrap().write_all(&sent).unwrap());
            let mut got = Vec::new();
            behind.accept().unwrap().0.read_to_end(&mut got).unwrap();
            got
        });
        assert!(got == sent, "other bytes came");
        // A tenth of a second's worth.
        assert!(begun.elapsed() >= Duration::from_millis(95), "{:?}", begun.elapsed());
    }
}
