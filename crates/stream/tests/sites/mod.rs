//! Both ends of a stream in one process.

use polyduct_message::link::key::{JobKey, Trust};
use polyduct_message::meeting::Within;
use polyduct_stream::gateway::far::wire::{Offer, Offered};
use polyduct_stream::gateway::far::{FarLanes, FarSteps, Side};
use polyduct_stream::gateway::receive::Sink;
use polyduct_stream::gateway::transmit::{Source, Transmit};
use polyduct_stream::gateway::CAPACITY;
use polyduct_stream::{Adu, Direction, Format, Gateway, Place, Protocol, Share, StreamError, Ties};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

/// How long silence is borne, and nobody ever waits that long.
pub const BORNE: Duration = Duration::from_secs(30);

/// A stream of steps of one size.
pub struct Stream {
    /// Where one end listens, and where the other calls.
    pub addrs: [SocketAddr; 2],
    pub sender_listens: bool,
    pub lanes: u32,
    /// Bytes of a step, of a transfer unit and of a striping unit.
    pub sizes: [u64; 3],
}

impl Stream {
    fn side(&self, transmits: bool) -> Side {
        let [door, call] = self.addrs;
        let host = (transmits != self.sender_listens).then(|| call.ip().to_string());
        let port = if host.is_some() { call.port() } else { door.port() };
        Side {
            place: Place { lanes: self.lanes, ..Place::new(Protocol::Far, host.as_deref(), port) },
            name: "x".into(),
            transmits,
            trust: Trust { key: JobKey::from_bytes([5; 32]).unwrap(), trusted_network: false },
            borne: BORNE,
            session: if transmits { 1 } else { 2 },
            share: Share::ALL,
        }
    }

    /// Has it carry what there is, with two buffers; what comes of it at both ends.
    pub fn carry(
        &self,
        source: impl Source + Send,
        mut sink: impl Sink + Send,
    ) -> [Result<u64, StreamError>; 2] {
        let [step, tu, su] = self.sizes;
        let array = Offered { name: String::new(), shape: vec![step], elem: "u8".into(), open: None };
        let format = Format::new(Adu::Fixed(step), tu, su, self.lanes).unwrap();
        let again = || false;
        thread::scope(|s| {
            let sends = s.spawn(|| {
                let mut far = FarLanes::meet(self.side(true), Within::time(BORNE))?;
                far.offer(Offer { arrays: vec![array] }, None);
                let lease = Gateway::new(CAPACITY).enter("x", Direction::Transmit, &Ties::default())?;
                lease.ready(format, 2)?;
                Transmit::new((source, far), &lease, (format, 2), &again).run()
            });
            let receives = s.spawn(|| {
                let mut far = FarSteps::meet(self.side(false), Within::time(BORNE))?;
                far.are_of(Adu::Fixed(step));
                let lease = Gateway::new(CAPACITY).enter("x", Direction::Receive, &Ties::default())?;
                lease.ready(format, 2)?;
                let moved = far.run(&mut sink, &lease, &again);
                if moved.is_ok() {
                    far.done();
                }
                moved
            });
            [sends.join().unwrap(), receives.join().unwrap()]
        })
    }
}
