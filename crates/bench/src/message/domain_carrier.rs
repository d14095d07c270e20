//! A domain's channels: what programs use.

use super::end::Carrier;
use super::error::BenchError;
use super::link_carrier::{hear, tell};
use super::tally::{words, Kind, Seen, Source, Tally, HIGH};
use polyduct_message::config::Config;
use polyduct_message::domain::{Channel, Domain, Network, Options};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::socket::{listen, local_addr};
use polyduct_message::{HandlerId, MessageError, Priority};
use polyduct_os::socket::Conn;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const HANDLER: &str = "bench";
const TIMEOUT: Duration = Duration::from_secs(30);

/// A channel that a handler answers on.
type Answers = Arc<Mutex<Option<Channel>>>;

/// A unit of a domain with channels to one other.
pub struct DomainCarrier {
    /// The domain.
    pub domain: Domain,
    peer: u32,
    handler: HandlerId,
    low: Vec<Channel>,
    high: Answers,
    tally: Arc<Tally>,
}

/// Joins a domain and installs the handler that counts. `first_fragment` in place of the usual first
/// fragment. What is of high priority is answered by the handler itself where `answers` has a channel.
fn join(
    (name, network): (&str, Option<Network>),
    (unit, units): (u32, u32),
    first_fragment: Option<u64>,
    tally: &Arc<Tally>,
    answers: &Answers,
) -> Result<(Domain, HandlerId), BenchError> {
    let far = network.is_some();
    let variable = |name: &str| {
        if far && name == "POLYDUCT_MESSAGE_NEAR" {
            return Some("0".to_owned());
        }
        let given = first_fragment.filter(|_| name == "POLYDUCT_MESSAGE_FIRST_FRAGMENT");
        given.map(|bytes| bytes.to_string()).or_else(|| std::env::var(name).ok())
    };
    let options = Options {
        config: Config::from_sources(None, variable)?,
        open_timeout: TIMEOUT,
        timeout: Some(TIMEOUT),
        network,
        ..Options::new(name, unit, units)
    };
    let domain = Domain::join(options)?;
    let number = Arc::new(AtomicU32::new(0));
    domain.handler(HANDLER, 1, {
        let (tally, answers, id) = (tally.clone(), answers.clone(), number.clone());
        let answered = AtomicU32::new(0);
        move |_, m| {
            if !tally.take(m.priority, m.args, m.payload) {
                return;
            }
            let mut channel = answers.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(channel) = &mut *channel {
                let args = words(Kind::Data, HIGH, answered.fetch_add(1, Ordering::Relaxed), 0, 0);
                // One that is not sent is missed where it is waited for.
                let _ = channel.short(HandlerId(id.load(Ordering::Relaxed)), args);
            }
        }
    })?;
    domain.synchronise()?;
    let handler = domain.lookup(HANDLER, (unit + 1) % units)?;
    number.store(handler.0, Ordering::Relaxed);
    Ok((domain, handler))
}

/// How two units reach each other by TCP: unit 0 tells the other where it listens.
fn network(conn: &Conn, unit: u32, trusted: bool) -> Result<Network, BenchError> {
    let disagree = |what| BenchError::Disagree { what };
    let key = JobKey::from_bytes([7; 32]).map_err(|_| disagree("the job's key"))?;
    if unit == 0 {
        let bound = listen((Ipv4Addr::LOCALHOST, 0).into())?;
        let root = local_addr(&bound)?;
        tell(conn, root.to_string().as_bytes(), &[])?;
        return Ok(Network { trusted, bound: Some(Arc::new(bound)), ..Network::new(root, key) });
    }
    let root = std::str::from_utf8(&hear(conn)?.0).ok().and_then(|text| text.parse().ok());
    Ok(Network { trusted, ..Network::new(root.ok_or(disagree("an address"))?, key) })
}

impl DomainCarrier {
    /// Joins as unit 0 or 1 of two, with so many channels of low priority to the other: in shared memory, or
    /// by TCP, trusted or not, to the process at the other end of a connection.
    pub fn new(
        (name, tcp): (&str, Option<(&Conn, bool)>),
        unit: u32,
        channels: usize,
        first_fragment: Option<u64>,
        source: Source,
    ) -> Result<DomainCarrier, BenchError> {
        let (tally, answers) = (Tally::new(source), Answers::default());
        let network = tcp.map(|(conn, trusted)| network(conn, unit, trusted)).transpose()?;
        let (domain, handler) = join((name, network), (unit, 2), first_fragment, &tally, &answers)?;
        let peer = 1 - unit.min(1);
        let low = (0..channels).map(|_| domain.channel(peer, Priority::Low)).collect::<Result<_, _>>()?;
        let high = domain.channel(peer, Priority::High)?;
        let carrier = DomainCarrier { domain, peer, handler, low, high: answers, tally };
        *carrier.high() = Some(high);
        if unit == 0 {
            // It asks, and so its handler does not answer: the channel is its own.
            carrier.tally.no_answers();
        }
        Ok(carrier)
    }

    /// A unit of many, with the counts of what comes to it and the number of the handler.
    pub fn of_many(
        name: &str,
        unit: u32,
        units: u32,
        source: Source,
    ) -> Result<(Domain, HandlerId, Arc<Tally>), BenchError> {
        let tally = Tally::new(source);
        let (domain, handler) = join((name, None), (unit, units), None, &tally, &Answers::default())?;
        Ok((domain, handler, tally))
    }

    /// The other unit.
    pub fn peer(&self) -> u32 {
        self.peer
    }

    fn high(&self) -> std::sync::MutexGuard<'_, Option<Channel>> {
        self.high.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Carrier for DomainCarrier {
    const STEPS: u32 = 1 << 14;

    #[inline]
    fn short(&mut self, lane: usize, args: [u32; 4]) -> Result<bool, BenchError> {
        let sent = match self.low.get_mut(lane) {
            Some(channel) => channel.short(self.handler, args),
            None => match &mut *self.high() {
                Some(channel) => channel.short(self.handler, args),
                None => return Err(BenchError::Disagree { what: "there is no such channel" }),
            },
        };
        match sent {
            Ok(()) => Ok(true),
            Err(MessageError::Full { .. }) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    #[inline]
    fn bulk(&mut self, lane: usize, args: [u32; 4], at: usize, len: usize) -> Result<(), BenchError> {
        Ok(self.low[lane].bulk(self.handler, args, self.tally.source().part(at, len))?)
    }

    fn bulk_while(
        &mut self,
        lane: usize,
        args: [u32; 4],
        at: usize,
        len: usize,
        work: &mut dyn FnMut(),
    ) -> Result<(), BenchError> {
        Ok(self.low[lane].bulk_while(self.handler, args, self.tally.source().part(at, len), work)?)
    }

    #[inline]
    fn poll(&mut self) -> Result<(), BenchError> {
        self.domain.poll();
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> Result<(), BenchError> {
        if self.domain.poll() == 0 {
            polyduct_os::sync::spin_hint();
        }
        Ok(())
    }

    #[inline]
    fn wait(&mut self, what: &'static str, mut done: impl FnMut(&Seen) -> bool) -> Result<(), BenchError> {
        let (tally, mut came) = (&self.tally, false);
        self.domain.serve_until(None, || {
            came = done(&tally.seen());
            came
        })?;
        match came {
            true => Ok(()),
            false => Err(BenchError::Silent { what, seconds: TIMEOUT.as_secs() }),
        }
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn finish(self) -> Result<(), BenchError> {
        Ok(self.domain.leave()?)
    }
}
