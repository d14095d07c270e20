//! The thread of every other unit: notices the death of unit 0 of the writers, and, once that unit has closed
//! and left, of everybody else. Where the writers wait for replacements, it brings this unit to the new unit
//! 0.

use crate::error::PipeError;
use crate::join::Joining;
use crate::serve::HOST;
use crate::wire::{FromHost, Hello, ToHost, Welcome, PROTOCOL};
use polyduct_message::meeting::{pause, Connection, Failure, Patience};
use polyduct_os::{
    poll::{poll, EventFd, PollItem},
    process::{PidFd, ProcessId},
    socket::{Conn, DESCRIPTOR_LIMIT},
    OsError,
};
use polyduct_port::UnitName;
use polyduct_slots::{fault::Fault, Slots};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How often a new unit 0 is looked for.
const RETRY: Duration = Duration::from_millis(2);

/// What a unit keeps to be able to come back to a new unit 0: what it is, and the memory of the pipe. Every
/// unit keeps all of that, so that nothing is lost while one of them lives.
pub struct Keepsake {
    socket: Vec<u8>,
    hello: Hello,
    control: OwnedFd,
    /// Those of each writer unit.
    slots: Vec<(u32, OwnedFd)>,
}

impl Keepsake {
    /// Keeps what `hello` said, what it was answered, the control segment and `slots`, completed by those of
    /// the other writers. `None` where the writers do not wait for a replacement.
    pub fn new(
        joining: &mut Joining<'_>,
        hello: &Hello,
        welcome: &Welcome,
        control: OwnedFd,
        mut slots: Vec<(u32, OwnedFd)>,
    ) -> Result<Option<Keepsake>, PipeError> {
        if !welcome.writers_wait {
            return Ok(None);
        }
        let here = |unit: &u32| slots.iter().any(|(there, _)| there == unit);
        let others: Vec<u32> = (0..welcome.writers).filter(|unit| !here(unit)).collect();
        slots.extend(others.iter().copied().zip(joining.slots(&others)?));
        let hello = Hello { rejoin: Some(welcome.clone()), ..hello.clone() };
        Ok(Some(Keepsake { socket: joining.socket(), hello, control, slots }))
    }

    /// Hands all of it over, and waits until this unit may go on.
    fn hand_over(&self, conn: &mut Connection, until: &Until<'_>) -> Result<(), Passed> {
        let send =
            |message: &ToHost, fds: &[BorrowedFd<'_>]| conn.send(message, fds, until, "the new unit 0");
        send(&ToHost::Hello(self.hello.clone()), &[self.control.as_fd()])?;
        for chunk in self.slots.chunks(DESCRIPTOR_LIMIT) {
            let units = chunk.iter().map(|(unit, _)| *unit).collect();
            let fds: Vec<_> = chunk.iter().map(|(_, slots)| slots.as_fd()).collect();
            send(&ToHost::Slots(units), &fds)?;
        }
        send(&ToHost::Ready, &[])?;
        match conn.receive(until, "the new unit 0")?.0 {
            FromHost::Go => Ok(()),
            _ => Err(Passed),
        }
    }
}

/// An attempt came to nothing.
struct Passed;

/// Waits until the port is closed, or its stream has failed.
struct Until<'a> {
    slots: &'a Slots,
    stop: &'a EventFd,
}

impl Until<'_> {
    fn is_over(&self) -> bool {
        let stopped =
            poll(&mut [PollItem::readable(self.stop)], Some(Duration::ZERO)).map_or(true, |n| n > 0);
        stopped || self.slots.fault().is_some()
    }
}

impl Patience for Until<'_> {
    type Error = Passed;

    fn left(&self, _: &str) -> Result<Duration, Passed> {
        match self.is_over() {
            true => Err(Passed),
            false => Ok(Duration::MAX),
        }
    }

    fn stop(&self) -> Option<&EventFd> {
        Some(self.stop)
    }

    fn failed(&self, _: Failure) -> Passed {
        Passed
    }
}

/// Watches until stopped.
pub fn run(mut conn: Connection, me: UnitName, slots: Slots, keepsake: Option<Keepsake>, stop: Arc<EventFd>) {
    loop {
        let lost = loop {
            let mut items = vec![PollItem::readable(&*stop)];
            items.extend(conn.items());
            if poll(&mut items, None).is_err() || items[0].is_ready() {
                return;
            }
            // Unit 0 has nothing more to say: whatever comes is its end.
            slots.wake_all();
            // One that stays until nobody can need it is needed until it says that it goes.
            let leaves = || slots.is_closed(HOST) && keepsake.is_none() && slots.all_share_numbers();
            if slots.is_gone(HOST) || leaves() {
                return watch_processes(me, &slots, &stop);
            }
            // Old systems give no descriptor of a process in another namespace: its connection ends with it.
            if items[1].is_hangup() || conn.has_ended() {
                break slots.process(HOST).0;
            }
        };
        match keepsake.as_ref().map(|k| come_back(k, &slots, &stop)) {
            None => return slots.fail(Fault::Lost { unit: HOST, pid: lost }),
            Some(None) => return,
            Some(Some(new)) => conn = new,
        }
    }
}

/// Brings this unit to the replacement of unit 0. `None` when the port was closed meanwhile.
fn come_back(keepsake: &Keepsake, slots: &Slots, stop: &EventFd) -> Option<Connection> {
    let until = Until { slots, stop };
    loop {
        pause(&until, &mut RETRY.clone(), "the new unit 0").ok()?;
        let conn =
            Conn::connect(&keepsake.socket).ok().and_then(|conn| Connection::over(conn, PROTOCOL).ok());
        let Some(mut conn) = conn else { continue };
        if keepsake.hand_over(&mut conn, &until).is_ok() {
            return Some(conn);
        }
    }
}

/// Unit 0 has closed and left, so nobody collects hangups any more: watch the processes of the other units.
fn watch_processes(me: UnitName, slots: &Slots, stop: &EventFd) {
    let mut others: Vec<(UnitName, PidFd)> = Vec::new();
    // Where unit 0 had stayed for units of other process namespaces, it has seen them end.
    let matters = |u: UnitName| slots.depends_on(me.side, u.side) && slots.share_numbers(me, u);
    for unit in slots.units().filter(|&u| u != me && u != HOST && matters(u)) {
        let (pid, start_time) = slots.process(unit);
        match PidFd::of(ProcessId { pid, start_time }) {
            Ok(process) => others.push((unit, process.shared())),
            Err(_) if slots.is_closed(unit) => {}
            Err(e) if e.is_peer_gone() => return slots.fail(Fault::Lost { unit, pid }),
            // No descriptor to watch it with: what that unit owes is waited for as long as the timeout says.
            Err(error) => tracing::warn!(%unit, %error, "cannot watch"),
        }
    }
    loop {
        others.retain(|(unit, process)| !slots.is_closed(*unit) || process.is_alive());
        let mut items = vec![PollItem::readable(stop)];
        items.extend(others.iter().map(|(_, p)| PollItem::readable(p)));
        if poll(&mut items, None).is_err() || items[0].is_ready() {
            return;
        }
        for ((unit, process), _) in others.iter().zip(&items[1..]).filter(|(_, i)| i.is_ready()) {
            slots.wake_all();
            if !slots.is_closed(*unit) {
                return slots.fail(Fault::Lost { unit: *unit, pid: process.pid() });
            }
        }
    }
}

/// A thread that watches for this unit while its program does something else.
pub(crate) fn spawn(
    pipe: &str,
    f: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, PipeError> {
    std::thread::Builder::new().name("polyduct-watch".into()).spawn(f).map_err(no_thread(pipe))
}

/// The system's refusal of a thread, in terms of a pipe.
pub(crate) fn no_thread(pipe: &str) -> impl Fn(std::io::Error) -> PipeError + '_ {
    move |e| PipeError::System {
        pipe: pipe.to_owned(),
        unit: None,
        source: OsError::System {
            op: "spawn",
            what: "the watching thread".into(),
            errno: polyduct_os::Errno::from_io_error(&e).unwrap_or(polyduct_os::Errno::AGAIN),
        },
    }
}
