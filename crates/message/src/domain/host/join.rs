//! The units of a host meet: the lowest gathers the others, who ask it to join.

use super::{refusal, Answer, Ask, Join, Who};
use crate::domain::ask::{ask, out_of_turn, Asking, JoinTime, Watch};
use crate::domain::board::Board;
use crate::domain::host_map::Processes;
use crate::domain::process::{Members, Process};
use crate::meeting::{
    pause, ConnId, Connections, Gathering, Heard, JoinRefusal, Member, Shared, Unit, GRACE, OWN, RETRY,
};
use crate::types::Address;
use crate::MessageError;
use polyduct_os::clock;
use polyduct_os::process::PidFd;
use polyduct_os::socket::DESCRIPTOR_LIMIT;
use std::collections::BTreeMap;
use std::os::fd::AsFd;

/// The lowest unit waits for the others. Where it does not go on, all who have come are told why; where units
/// meet across hosts, each hears of a loss by itself.
pub(super) fn gather(
    who: &Who<'_>,
    watch: Option<Watch<'_>>,
    connections: &mut Connections,
) -> Result<(Board, Processes), MessageError> {
    let gathered = gather_all(who, watch, connections);
    let failed =
        gathered.as_ref().err().filter(|e| watch.is_none() && !matches!(e, MessageError::Refused { .. }));
    if let Some(error) = failed {
        let why = JoinRefusal::System { unit: Unit(who.unit), error: error.to_string() };
        for id in connections.all() {
            connections.send(id, &Answer::Refused(why.clone()), Vec::new());
        }
    }
    gathered
}

fn gather_all(
    who: &Who<'_>,
    watch: Option<Watch<'_>>,
    connections: &mut Connections,
) -> Result<(Board, Processes), MessageError> {
    let me = Process::current()?;
    let patience = JoinTime { watch, ..JoinTime::new(who) };
    let own = Member { conn: OWN, pid: me.pid, terms: me };
    let mut gathering = Gathering::new(who.units, who.near.iter().copied(), own);
    // Descriptors that units brought of their processes, which have no number here.
    let mut brought = BTreeMap::new();
    while !gathering.is_complete() {
        let Some(slice) = patience.slice()? else {
            let why = gathering.handle_deadline(patience.waited().as_millis() as u64);
            for id in gathering.conns() {
                connections.send(id, &Answer::Refused(why.clone()), Vec::new());
            }
            return Err(MessageError::refused(who.name, why));
        };
        let ready = connections.wait(Vec::new(), Some(slice))?;
        let mut ids = ready.conns.into_iter();
        // Each that comes is heard at once, so that a crowd behind it cannot push it out.
        let came = |connections: &mut Connections| {
            ready.knocked.then(|| connections.accept(refusal(who.unit))).flatten()
        };
        while let Some(id) = ids.next().or_else(|| came(connections)) {
            let refused = match connections.hear::<Ask>(id) {
                Heard::Message(Ask::Join(join), fds) => {
                    if !join.process.shares_numbers(&me) {
                        let handed = fds.into_iter().next().and_then(|fd| PidFd::handed(fd).ok());
                        brought.extend(handed.map(|process| (id, process)));
                    }
                    // A unit that joined and has hung up since is not counted in, though that was not noticed
                    // before the last one came.
                    if gathering.lacks() == 1 {
                        for gone in connections.look_at(&gathering.conns()) {
                            gathering.handle_hangup(gone);
                            connections.drop(gone);
                        }
                    }
                    let process = join.process.seen_by(&me, connections.pid(id));
                    let member = Member { conn: id, pid: process.pid, terms: process };
                    let joined = gathering.handle_join((join.unit, join.units), member, || Ok(()));
                    joined.map(|()| connections.admit(id)).err()
                }
                Heard::Message(Ask::Link { .. } | Ask::Region { .. }, _) => Some(JoinRefusal::Malformed),
                Heard::Nothing => None,
                Heard::Gone => {
                    gathering.handle_hangup(id);
                    connections.drop(id);
                    None
                }
                Heard::Bad(bad) => Some(bad.refusal(Unit(who.unit))),
            };
            if let Some(why) = refused {
                gathering.handle_hangup(id);
                connections.send(id, &Answer::Refused(why), Vec::new());
                connections.finish(id);
            }
            if gathering.is_complete() {
                // The others are heard by the thread that serves them.
                break;
            }
        }
    }
    let members: Members = gathering.terms().map(|(_, process)| *process).collect();
    let conns = gathering.conns();
    let board = Board::create(who.units)?;
    let fd = board.segment().fd().try_clone_to_owned().map_err(no_descriptor)?;
    let (board_fd, welcome) = (Shared::new(fd), Answer::Welcome(members.clone()));
    let processes = Handed::new(who, &members, &conns, (connections, brought))?;
    for (&id, process) in conns.iter().zip(&members[1..]) {
        processes.tell(connections, id, process);
        connections.send(id, &welcome, vec![board_fd.clone()]);
    }
    wait_until_taken(&patience, connections, &conns)?;
    let members = Processes::new(who.near, members, who.unit, processes.unnumbered(&me));
    Ok((board, members))
}

/// Waits until all that was sent to these is on its way: who goes on may leave, and what waited would go with
/// it.
fn wait_until_taken(
    patience: &JoinTime<'_>,
    connections: &mut Connections,
    conns: &[ConnId],
) -> Result<(), MessageError> {
    while conns.iter().any(|&id| !connections.is_flushed(id)) {
        let slice =
            patience.slice()?.ok_or_else(|| patience.over("a unit of this host to take its welcome"))?;
        // A unit that asks for more is heard when all have gone on; one that is gone is noticed by all that
        // are left.
        connections.send_on(conns, slice)?;
    }
    conns.iter().for_each(|&id| connections.finish(id));
    Ok(())
}

fn no_descriptor(e: std::io::Error) -> MessageError {
    let errno = polyduct_os::Errno::from_io_error(&e).unwrap_or(polyduct_os::Errno::MFILE);
    crate::link::net::socket::sys("dup", "what all units of this host share", errno).into()
}

/// The processes of all units, to be handed to those for whom they have no number.
struct Handed(Vec<(Address, Process, PidFd)>);

impl Handed {
    /// None where all mean the same by a number.
    fn new(
        who: &Who<'_>,
        members: &Members,
        conns: &[ConnId],
        (connections, mut brought): (&Connections, BTreeMap<ConnId, PidFd>),
    ) -> Result<Handed, MessageError> {
        let Some((me, others)) = members.split_first() else { return Ok(Handed(Vec::new())) };
        if others.iter().all(|process| process.shares_numbers(me)) {
            return Ok(Handed(Vec::new()));
        }
        let mut all = vec![(who.unit, *me, PidFd::own()?)];
        for ((conn, process), &unit) in conns.iter().zip(others).zip(&who.near[1..]) {
            let Some(handed) = brought.remove(conn).or_else(|| connections.process(*conn).cloned()) else {
                let reason = "its process cannot be watched".to_owned();
                return Err(MessageError::PeerLost { unit, reason });
            };
            all.push((unit, *process, handed));
        }
        Ok(Handed(all))
    }

    /// Hands one unit, which runs in `process`, those that it does not know by number.
    fn tell(&self, connections: &mut Connections, id: ConnId, process: &Process) {
        let unknown: Vec<_> = self.0.iter().filter(|(_, other, _)| !process.shares_numbers(other)).collect();
        for chunk in unknown.chunks(DESCRIPTOR_LIMIT) {
            let units = chunk.iter().map(|(unit, ..)| *unit).collect();
            let fds = chunk.iter().map(|(.., process)| process.descriptor()).collect();
            connections.send(id, &Answer::Processes(units), fds);
        }
    }

    /// Those that have no number for the process `me`.
    fn unnumbered(self, me: &Process) -> BTreeMap<Address, PidFd> {
        let unknown = self.0.into_iter().filter(|(_, other, _)| !me.shares_numbers(other));
        unknown.map(|(unit, _, process)| (unit, process)).collect()
    }
}

/// Any other unit asks the lowest.
pub(super) fn ask_to_join(
    who: &Who<'_>,
    watch: Option<Watch<'_>>,
    first: Address,
) -> Result<(Board, Processes), MessageError> {
    let question = Ask::Join(Join { unit: who.unit, units: who.units, process: Process::current()? });
    let own = PidFd::own()?;
    // The lowest keeps the time for all and says who is missing: the others wait a little longer for its
    // word.
    let patience = JoinTime { grace: GRACE, watch, ..JoinTime::new(who) };
    let mut rest = RETRY.0;
    let told = loop {
        match ask(&patience, first, &question, &[own.as_fd()]) {
            // It may have closed an earlier domain of this name, which this unit has left already: asked
            // again, it listens, or its process has ended.
            Err(MessageError::PeerLost { .. }) if watch.is_none() && !patience.is_gone() => {
                let asking = Asking { patience: &patience, to: first };
                pause(&asking, &mut rest, &format!("unit {first} to close its earlier domain of this name"))?;
            }
            told => break told,
        }
    };
    if let (Err(MessageError::PeerLost { .. }), Some(watch)) = (&told, watch) {
        // It may have hung up because of another's loss, of which this unit hears, too.
        let end = clock::now() + GRACE;
        while clock::now() < end {
            watch()?;
            std::thread::sleep(RETRY.0);
        }
    }
    match told? {
        (Answer::Welcome(members), mut fds) if members.len() == who.near.len() && !fds.is_empty() => {
            let board = Board::attach(fds.remove(0), who.units)?;
            let members = Processes::new(who.near, members, who.unit, patience.handed.take());
            match members.are_told() {
                true => Ok((board, members)),
                false => {
                    Err(out_of_turn(first, "a welcome that lacks processes of other process namespaces"))
                }
            }
        }
        (Answer::Refused(reason), _) => Err(MessageError::refused(who.name, reason)),
        _ => Err(out_of_turn(first, "an answer to another question")),
    }
}
