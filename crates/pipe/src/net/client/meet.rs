//! A unit meets the others at unit 0: up to the word that all may go.

use super::rejoin::Survivor;
use super::{Client, VERDICT};
use crate::error::{PipeError, Refusal};
use crate::join::{check_patience, fresh_id, ORDER};
use crate::net::address::{wait, PipeAddress};
use crate::net::channel::Channel;
use crate::net::dial::{dial, is_passing, link};
use crate::net::hub::steps_ahead;
use crate::net::mend::Calls;
use crate::net::session::ResumableSession;
use crate::net::wire::{Ask, First, Tell};
use crate::net::Trust;
use crate::serve::{sizes, HOST};
use crate::wire::{FromHost, Role, ToHost, Welcome};
use polyduct_message::link::net::{socket::listen, socket::local_addr, LinkFault};
use polyduct_message::meeting::{GRACE, RETRY};
use polyduct_os::clock;
use polyduct_port::{OnLoss, Options, Side, UnitName};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

impl Client {
    /// Connects to unit 0 and says hello; waits until all units have come. Gives also where unit 0 listens
    /// for the domain of the port.
    pub fn join(
        place: &PipeAddress,
        trust: &Trust,
        options: &Options,
        hello: crate::wire::Hello,
        mut listens: impl FnMut(&Channel) -> Result<Option<SocketAddr>, PipeError>,
        start: Duration,
    ) -> Result<(Client, Welcome, SocketAddr), PipeError> {
        let mut pause = RETRY.0;
        loop {
            // A unit 0 that is about to leave is followed by the next one.
            let mut client = Client::come(place, trust, options, &hello, &mut listens, start)?;
            let error = match client.meet("all other units") {
                Ok(Met { message: FromHost::Welcome(welcome), pid, addr: Some(meets_at), from }) => {
                    if sizes(&welcome).is_none() {
                        return Err(client.bad("a welcome with sizes out of limits"));
                    }
                    (client.host_pid, client.from) = (pid, from);
                    client.ahead = steps_ahead(welcome.depth, welcome.policy) as usize;
                    client.keeps(&hello, &welcome);
                    client.calls.lasts = if client.is_reader {
                        client.me.side = Side::Reader(welcome.program);
                        let waits = welcome.readers_wait.get(welcome.program as usize).copied();
                        waits.unwrap_or(welcome.readers.is_empty() && hello.on_loss == OnLoss::Wait)
                    } else {
                        welcome.writers_wait
                    };
                    let meets_at = client.reachable(meets_at);
                    return Ok((client, welcome, meets_at));
                }
                Ok(_) => client.bad("no welcome"),
                Err(error) => error,
            };
            let over = matches!(error, PipeError::Refused { reason: Refusal::Over, .. });
            if !over && (client.noted || !client.hung_up) {
                return Err(error);
            }
            wait_for_next(&client.pipe, options, start, &mut pause)?;
        }
    }

    /// Whether unit 0 has left while this unit met the others.
    pub fn is_left(&self) -> bool {
        self.hung_up
    }

    /// Connects to unit 0 and says hello.
    fn come(
        place: &PipeAddress,
        trust: &Trust,
        options: &Options,
        hello: &crate::wire::Hello,
        listens: &mut impl FnMut(&Channel) -> Result<Option<SocketAddr>, PipeError>,
        start: Duration,
    ) -> Result<Client, PipeError> {
        let pipe = place.to_string();
        let addrs = place.resolve(options, start)?;
        let mut channel =
            dial(place, trust, options, start, &addrs, (HOST, false), || place.now(options, start))?;
        let (mut door, mut at) = (None, listens(&channel)?);
        if at.is_none() {
            let there = channel.local().and_then(|addr| listen(SocketAddr::new(addr.ip(), 0)));
            // Without one, its silence tells that it is gone.
            door = there.inspect_err(|error| tracing::warn!(%error, "listens nowhere")).ok();
            at = door.as_ref().and_then(|door| local_addr(door).ok());
        }
        let session = fresh_id().map_err(crate::join::system(&pipe))?;
        let is_reader = matches!(hello.role, Role::Reader { .. });
        let (pid, hello) = (std::process::id(), ToHost::Hello(hello.clone()));
        let first = First::Join { pid, session, door: at, hello, knows: None };
        channel.post(&first).map_err(link(&pipe, HOST))?;
        let addr = channel.peer().or(addrs.first().copied()).unwrap_or(addrs[0]);
        let terms = place.terms(trust, options.unit);
        let (unit, borne) = (options.unit, options.silence);
        let side = if is_reader { Side::Reader(0) } else { Side::Writer };
        let (lasts, most, revives, life, pipe_id) = (false, options.open_timeout, false, 0, [0; 16]);
        let calls = Calls { addr, unit, terms, borne, session, lasts, most, revives, life, pipe: pipe_id };
        let (begin, next, stop, notice, bye) = (VecDeque::new(), VecDeque::new(), None, None, false);
        Ok(Client {
            session: ResumableSession::new(channel),
            calls,
            mending: None,
            ended: None,
            door,
            pipe,
            options: options.clone(),
            me: UnitName { side, unit },
            start,
            host_pid: 0,
            begin,
            next,
            brought: VecDeque::new(),
            said: Vec::new(),
            stop,
            notice,
            is_reader,
            bye,
            silent: false,
            noted: false,
            hung_up: false,
            gives_up: false,
            asked: 0,
            withdraws: false,
            ahead: 0,
            absent: Vec::new(),
            moved: BTreeMap::new(),
            survivor: Survivor::at(at),
            from: 0,
        })
    }

    /// Asks where these writer units are.
    pub fn addresses(&mut self, units: &[u32]) -> Result<Vec<SocketAddr>, PipeError> {
        let mut addrs = Vec::with_capacity(units.len());
        for chunk in units.chunks(crate::wire::SEGMENTS_AT_ONCE) {
            self.say(&Ask::Meet(ToHost::Segments(chunk.to_vec())))?;
            for &unit in chunk {
                match self.meet("the addresses of the writers")? {
                    Met { message: FromHost::Segment(got), addr: Some(addr), .. } if got == unit => {
                        addrs.push(self.reachable(addr))
                    }
                    _ => return Err(self.bad("an address that was not asked for")),
                }
            }
        }
        Ok(addrs)
    }

    /// A writer that listens everywhere is found where unit 0 is.
    pub(super) fn reachable(&self, addr: SocketAddr) -> SocketAddr {
        match addr.ip().is_unspecified() {
            true => SocketAddr::new(self.calls.addr.ip(), addr.port()),
            false => addr,
        }
    }

    /// Says that this unit has all it needs, and waits until all have.
    pub fn ready(&mut self) -> Result<(), PipeError> {
        self.say(&Ask::Meet(ToHost::Ready))?;
        match self.meet("all other units to be ready")? {
            Met { message: FromHost::Go, .. } => {
                self.calls.revives = self.survivor.revives();
                Ok(())
            }
            _ => Err(self.bad("no go")),
        }
    }

    fn meet(&mut self, what: &str) -> Result<Met, PipeError> {
        loop {
            if let Some(met) = self.met()? {
                return Ok(met);
            }
            let waited = check_patience(&self.pipe, &self.options, self.start, GRACE, what)
                .and_then(|left| self.poll(Vec::new(), Some(left)));
            if let Err(e) = waited {
                // The others must not take this unit for dead.
                let _ = self.say(&Ask::Meet(ToHost::GiveUp));
                return Err(e);
            }
        }
    }

    /// A message of the handshake, if one has come; a refusal is an error.
    fn met(&mut self) -> Result<Option<Met>, PipeError> {
        match self.hear() {
            Ok(None) => Ok(None),
            Ok(Some(Tell::Meet(FromHost::Refused(reason), ..))) => {
                Err(PipeError::refused(&self.pipe, reason))
            }
            // Noted, so there is nothing to do but to wait.
            Ok(Some(Tell::Meet(FromHost::Noted { writers_wait }, ..))) => {
                self.noted = !writers_wait;
                Ok(None)
            }
            Ok(Some(Tell::Meet(message, pid, addr, from))) => Ok(Some(Met { message, pid, addr, from })),
            Ok(Some(Tell::Stop(halt) | Tell::Notice(halt))) => Err(self.stopped(halt.into(), 0)),
            Ok(Some(_)) => Err(self.bad("an answer before a question")),
            Err(fault) => {
                self.hung_up = is_passing(&fault);
                Err(self.gone(fault))
            }
        }
    }

    /// While this unit is busy with others: whether unit 0 still wants it.
    pub fn check_in(&mut self) -> Result<(), PipeError> {
        match self.met()? {
            None => Ok(()),
            Some(_) => Err(self.bad("an answer before a question")),
        }
    }

    /// The connection to a writer unit failed while the pipe was opening. If that unit died, unit 0 says so
    /// to all.
    pub fn failed_to_open(&mut self, unit: UnitName, fault: LinkFault) -> PipeError {
        let start = clock::now();
        while is_passing(&fault) && clock::now() - start < VERDICT {
            if let Err(e) = self.check_in() {
                return e;
            }
            let _ = self.rest(VERDICT);
        }
        link(&self.pipe, unit)(fault)
    }
}

/// Lets a while go by, for the unit 0 that comes after one that has left.
///
/// # Errors
/// The time to open the pipe is over.
pub fn wait_for_next(
    pipe: &str,
    options: &Options,
    start: Duration,
    pause: &mut Duration,
) -> Result<(), PipeError> {
    let what = format!("{HOST} to open the pipe (one had it open, and has ended it){ORDER}");
    wait(pipe, &what, options, start, pause)
}

/// A message of the handshake, with what comes with it.
struct Met {
    message: FromHost,
    pid: u32,
    addr: Option<SocketAddr>,
    from: u64,
}
