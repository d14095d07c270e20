//! The units of a host meet: the lowest gathers the others, who ask it to join.

use super::{accept, answer, bad, Answer, Ask, Joined, Peer, Who, PROTOCOL, STRANGERS};
use crate::domain::ask::{ask, out_of_turn, Patience, Watch, GRACE, RETRY};
use crate::domain::board::Board;
use crate::domain::gather::{Action, ConnId, Gathering, Join, Refusal};
use crate::domain::hosts::Processes;
use crate::handshake::Incoming;
use crate::types::Address;
use crate::MessageError;
use polyduct_os::clock;
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::process::ProcessId;
use polyduct_os::socket::{Listener, MESSAGE_LIMIT};
use std::collections::BTreeMap;
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
    let me = ProcessId::current()?;
    let patience = Patience { watch, ..Patience::new(who) };
    let (mut gathering, mut action) = Gathering::new(who.units, who.near, (me.pid, me.start_time));
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
                let peers = conns.iter().filter_map(|c| peers.get(c));
                peers.for_each(|p| answer(&p.conn, &welcome, &[board.segment().fd()]));
                return Ok(Joined { listener, board, members: Processes::new(who.near, members) });
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
            let Some(peer) = peers.get(id) else { continue };
            let new = match PROTOCOL.receive::<Ask>(&peer.conn, &mut buffer) {
                Incoming::Message(Ask::Join(join), _) => {
                    let pid = peer.pid;
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
    let start_time = ProcessId::current()?.start_time;
    let question = Ask::Join(Join { unit: who.unit, units: who.units, start_time });
    // The lowest keeps the time for all and says who is missing: the others wait a little longer for its word.
    let patience = Patience { grace: GRACE, watch, ..Patience::new(who) };
    let mut pause = RETRY.0;
    let told = loop {
        match ask(&patience, first, &question, &[]) {
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
            Ok(Joined { listener, board, members: Processes::new(who.near, members) })
        }
        (Answer::Refused(reason), _) => Err(MessageError::Refused { domain: who.name.to_owned(), reason }),
        _ => Err(out_of_turn(first, "an answer to another question")),
    }
}
