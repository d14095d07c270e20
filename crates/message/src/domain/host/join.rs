//! The units of a host meet: the lowest gathers the others, who ask it to join.

use super::{accept, answer, bad, Answer, Ask, Joined, Peer, Who, PROTOCOL, STRANGERS};
use crate::domain::ask::{ask, out_of_turn, Patience, Watch, CROWDED, GRACE, RETRY};
use crate::domain::board::Board;
use crate::domain::gather::{Action, ConnId, Gathering, Join, Members, Process, Refusal};
use crate::domain::hosts::Processes;
use crate::handshake::Incoming;
use crate::types::Address;
use crate::MessageError;
use polyduct_os::clock;
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::process::PidFd;
use polyduct_os::socket::{Conn, Listener, Sent, DESCRIPTOR_LIMIT, MESSAGE_LIMIT};
use polyduct_os::OsError;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The lowest unit waits for the others. Where it does not go on, all who have come are told why; where units meet across
/// hosts, each hears of a loss by itself.
pub(super) fn gather(
    who: &Who<'_>,
    watch: Option<Watch<'_>>,
    listener: Listener,
) -> Result<Joined, MessageError> {
    let mut peers = BTreeMap::new();
    let joined = gather_all(who, watch, listener, &mut peers);
    let failed =
        joined.as_ref().err().filter(|e| watch.is_none() && !matches!(e, MessageError::Refused { .. }));
    if let Some(error) = failed {
        let why = Refusal::System { unit: who.unit, error: error.to_string() };
        peers.values().for_each(|peer| answer(&peer.conn, &Answer::Refused(why.clone()), &[]));
    }
    joined
}

fn gather_all(
    who: &Who<'_>,
    watch: Option<Watch<'_>>,
    listener: Listener,
    peers: &mut BTreeMap<ConnId, Peer>,
) -> Result<Joined, MessageError> {
    let me = Process::current()?;
    let patience = Patience { watch, ..Patience::new(who) };
    let (mut gathering, mut action) = Gathering::new(who.units, who.near, me);
    let (mut next, mut buffer) = (1, vec![0; MESSAGE_LIMIT]);
    loop {
        match action.take() {
            Some(Action::Refuse(conn, why)) => {
                if let Some(peer) = peers.remove(&conn) {
                    answer(&peer.conn, &Answer::Refused(why), &[]);
                }
            }
            Some(Action::Complete(members, conns)) => {
                let board = Board::create(who.units)?;
                let welcome = Answer::Welcome(members.clone());
                let processes = Handed::new(who, &members, &conns, peers)?;
                for (peer, process) in conns.iter().filter_map(|c| peers.get(c)).zip(&members[1..]) {
                    let told = processes.tell(&patience, &peer.conn, process);
                    let told =
                        told.and_then(|()| hand(&patience, &peer.conn, &welcome, &[board.segment().fd()]));
                    match told {
                        // Who is gone is noticed by all who are not.
                        Err(MessageError::System(OsError::PeerClosed)) => {}
                        told => told?,
                    }
                }
                let members = Processes::new(who.near, members, who.unit, processes.unnumbered(&me));
                return Ok(Joined { listener, board, members });
            }
            Some(Action::Fail(why, conns)) => {
                let peers = conns.iter().filter_map(|c| peers.get(c));
                peers.for_each(|p| answer(&p.conn, &Answer::Refused(why.clone()), &[]));
                return Err(MessageError::Refused { domain: who.name.to_owned(), reason: why });
            }
            None => {}
        }
        let Some(slice) = patience.slice()? else {
            action = gathering.handle_deadline(patience.waited().as_millis() as u64);
            continue;
        };
        let ids: Vec<ConnId> = peers.keys().copied().collect();
        let mut items = vec![PollItem::readable(&listener)];
        items.extend(peers.values().map(|p| PollItem::readable(&p.conn)));
        poll(&mut items, Some(slice))?;
        let ready: Vec<bool> = items.iter().map(PollItem::is_ready).collect();
        for (id, _) in ids.iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            let Some(peer) = peers.get_mut(id) else { continue };
            let new = match PROTOCOL.receive::<Ask>(&peer.conn, &mut buffer) {
                Incoming::Message(Ask::Join(join), fds) => {
                    let pid = peer.pid;
                    if !join.process.shares_numbers(&me) {
                        peer.process = fds.into_iter().next().and_then(|fd| PidFd::handed(fd).ok());
                    }
                    if gathering.lacks_one() {
                        forget_hangups(&mut gathering, peers)?;
                    }
                    gathering.handle_join(*id, pid, &join)
                }
                Incoming::Message(Ask::Link { .. } | Ask::Region { .. }, _) => {
                    Some(Action::Refuse(*id, Refusal::Malformed))
                }
                Incoming::Nothing => None,
                Incoming::Closed => {
                    gathering.handle_hangup(*id);
                    peers.remove(id);
                    None
                }
                Incoming::Bad(b) => Some(Action::Refuse(*id, bad(b))),
            };
            if matches!(new, Some(Action::Refuse(..))) {
                gathering.handle_hangup(*id);
            }
            action = new;
            if action.is_some() {
                // The others are still readable the next time round.
                break;
            }
        }
        if ready[0] {
            accept(&listener, who.unit, peers, &mut next);
            if peers.len() > STRANGERS + who.near.len() {
                let silent = peers.keys().copied().find(|&id| !gathering.has_joined(id));
                silent.into_iter().for_each(|id| drop(peers.remove(&id)));
            }
        }
    }
}

/// The processes of all units, to be handed to those for whom they have no number.
struct Handed(Vec<(Address, Process, PidFd)>);

impl Handed {
    /// None where all mean the same by a number.
    fn new(
        who: &Who<'_>,
        members: &Members,
        conns: &[ConnId],
        peers: &BTreeMap<ConnId, Peer>,
    ) -> Result<Handed, MessageError> {
        let Some((me, others)) = members.split_first() else { return Ok(Handed(Vec::new())) };
        if others.iter().all(|process| process.shares_numbers(me)) {
            return Ok(Handed(Vec::new()));
        }
        let mut all = vec![(who.unit, *me, PidFd::own()?)];
        for ((conn, process), &unit) in conns.iter().zip(others).zip(&who.near[1..]) {
            let Some(peer) = peers.get(conn) else { continue };
            let handed = peer.process.as_ref().map_or_else(|| peer.conn.peer_pidfd(), PidFd::try_clone);
            let lost =
                |e| MessageError::PeerLost { unit, reason: format!("its process cannot be watched: {e}") };
            all.push((unit, *process, handed.map_err(lost)?));
        }
        Ok(Handed(all))
    }

    /// Hands one unit, which runs in `process`, those that it does not know by number.
    fn tell(&self, patience: &Patience<'_>, conn: &Conn, process: &Process) -> Result<(), MessageError> {
        let unknown: Vec<_> = self.0.iter().filter(|(_, other, _)| !process.shares_numbers(other)).collect();
        for chunk in unknown.chunks(DESCRIPTOR_LIMIT) {
            let units = chunk.iter().map(|(unit, ..)| *unit).collect();
            let fds: Vec<_> = chunk.iter().map(|(.., process)| process.as_fd()).collect();
            hand(patience, conn, &Answer::Processes(units), &fds)?;
        }
        Ok(())
    }

    /// Those that have no number for the process `me`.
    fn unnumbered(self, me: &Process) -> BTreeMap<Address, PidFd> {
        let unknown = self.0.into_iter().filter(|(_, other, _)| !me.shares_numbers(other));
        unknown.map(|(unit, _, process)| (unit, process)).collect()
    }
}

/// Sends an answer with descriptors: as soon as not too many others are on their way, and there is room for it.
fn hand(
    patience: &Patience<'_>,
    conn: &Conn,
    answer: &Answer,
    fds: &[BorrowedFd<'_>],
) -> Result<(), MessageError> {
    let message = PROTOCOL.encode(answer)?;
    loop {
        let sent = message.send(conn, fds);
        if sent == Ok(Sent::Done) {
            return Ok(());
        }
        let Some(slice) = patience.slice()? else {
            return match sent {
                Err(e) => Err(e.into()),
                Ok(_) => Err(patience.over("a unit of this host to take its welcome")),
            };
        };
        match sent {
            Ok(_) => drop(poll(&mut [PollItem::writable(conn)], Some(slice))?),
            // They arrive as their receivers read.
            Err(OsError::TooManyInFlight { .. }) => std::thread::sleep(slice.min(CROWDED)),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Whoever joined and has hung up since is not counted in, though that was not noticed before the last one came.
fn forget_hangups(gathering: &mut Gathering, peers: &mut BTreeMap<ConnId, Peer>) -> Result<(), MessageError> {
    let joined: Vec<ConnId> = peers.keys().copied().filter(|&id| gathering.has_joined(id)).collect();
    let mut items: Vec<_> = joined.iter().map(|id| PollItem::readable(&peers[id].conn)).collect();
    poll(&mut items, Some(Duration::ZERO))?;
    let hung_up: Vec<bool> = items.iter().map(PollItem::is_hangup).collect();
    for (&id, _) in joined.iter().zip(hung_up).filter(|(_, hung_up)| *hung_up) {
        gathering.handle_hangup(id);
        peers.remove(&id);
    }
    Ok(())
}

/// Any other unit asks the lowest.
pub(super) fn ask_to_join(
    who: &Who<'_>,
    watch: Option<Watch<'_>>,
    first: Address,
    listener: Listener,
) -> Result<Joined, MessageError> {
    let question = Ask::Join(Join { unit: who.unit, units: who.units, process: Process::current()? });
    let own = PidFd::own()?;
    // The lowest keeps the time for all and says who is missing: the others wait a little longer for its word.
    let patience = Patience { grace: GRACE, watch, ..Patience::new(who) };
    let mut pause = RETRY.0;
    let told = loop {
        match ask(&patience, first, &question, &[own.as_fd()]) {
            // It may have closed an earlier domain of this name, which this unit has left already: asked again, it
            // listens, or its process has ended.
            Err(MessageError::PeerLost { .. }) if watch.is_none() && !patience.is_gone() => {
                if patience.slice()?.is_none() {
                    return Err(
                        patience.over(&format!("unit {first} to close its earlier domain of this name"))
                    );
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(RETRY.1);
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
                true => Ok(Joined { listener, board, members }),
                false => Err(out_of_turn(first, "a welcome without the processes that have no number here")),
            }
        }
        (Answer::Refused(reason), _) => Err(MessageError::Refused { domain: who.name.to_owned(), reason }),
        _ => Err(out_of_turn(first, "an answer to another question")),
    }
}
