//! A gateway that is a process of its own: carries the streams of all programs of this host that ask it to.

use super::control::{names, say, socket, Answer, Ask, Command};
use super::work::gateway;
use super::{show, tell};
use crate::Error;
use polyduct_message::handshake::{Incoming, GATEWAY};
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::socket::{Conn, Listener, MESSAGE_LIMIT};
use polyduct_os::OsError;
use polyduct_stream::{StreamError, StreamId};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

/// Connections at a time, at most: each has a thread.
const MOST: usize = 512;
/// How long one wait takes, for the end to be seen.
const SLICE: Duration = Duration::from_millis(100);
/// How long a program may take to say what it wants.
const SAYS: Duration = Duration::from_secs(5);

/// Serves as a gateway of this name, of this job (empty for none), until `stop` says to end. `ready` is told what it is
/// called among those of its name, once it is there.
///
/// # Errors
/// [`Error::Stream`] where there are 16 of that name already, or the system refuses a socket.
pub fn serve(name: &str, job: &str, ready: impl FnOnce(&str), stop: &dyn Fn() -> bool) -> Result<(), Error> {
    let refused = |e: OsError| StreamError::Listen {
        place: format!("gateway {name}"),
        source: std::io::Error::other(e.to_string()),
    };
    show::keep();
    let mut taken = None;
    let free = names(name).find_map(|member| match Listener::bind(&socket(&member, job)) {
        Ok(listener) => Some(Ok((member, listener))),
        Err(error @ OsError::AddrInUse { .. }) => {
            taken = Some(error);
            None
        }
        Err(error) => Some(Err(error)),
    });
    let none = || Err(taken.unwrap_or(OsError::AddrInUse { name: name.to_owned() }));
    let (member, listener) = free.unwrap_or_else(none).map_err(refused)?;
    ready(&member);
    let (over, open) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    while !stop() {
        match listener.accept() {
            Ok(Some(conn)) => {
                let (over, open) = (over.clone(), open.clone());
                if open.fetch_add(1, Ordering::Relaxed) >= MOST || conn.stranger() != Ok(None) {
                    open.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let done = open.clone();
                let named = Builder::new().name("polyduct-gateway".into());
                let spawned = named.spawn(move || {
                    // Who hangs up in the middle has nobody to be told.
                    let _ = attend(&Arc::new(conn), &over);
                    done.fetch_sub(1, Ordering::Relaxed);
                });
                if spawned.is_err() {
                    open.fetch_sub(1, Ordering::Relaxed);
                }
            }
            Ok(None) => drop(poll(&mut [PollItem::readable(&listener)], Some(SLICE)).map_err(refused)?),
            // Without a descriptor the one that came was turned away.
            Err(OsError::OutOfDescriptors { .. }) => {}
            Err(error) => return Err(refused(error).into()),
        }
    }
    over.store(true, Ordering::Relaxed);
    Ok(())
}

/// Does what one connection asks.
fn attend(conn: &Arc<Conn>, over: &Arc<AtomicBool>) -> Result<(), OsError> {
    let mut buffer = vec![0; MESSAGE_LIMIT];
    let ask = loop {
        match GATEWAY.receive::<Ask>(conn, &mut buffer) {
            Incoming::Message(ask, _) => break ask,
            Incoming::Nothing => {
                if poll(&mut [PollItem::readable(conn)], Some(SAYS))? == 0 {
                    return Ok(());
                }
            }
            Incoming::Closed => return Ok(()),
            Incoming::Bad(bad) => return say(conn, &Answer::Failed(format!("not understood: {bad:?}"))),
        }
    };
    match ask {
        Ask::Status => {
            let status = serde_json::to_string(&gateway().status()).unwrap_or_default();
            say(conn, &Answer::Status(status))
        }
        Ask::Do(stream, what) => {
            let (all, id) = (gateway(), StreamId(stream));
            let done = match what {
                Command::Pause => all.pause(id),
                Command::Resume => all.resume(id),
                Command::Close => all.close(id, "closed by the gateway's control"),
                Command::Quantum(steps) => all.set_quantum(id, steps),
                Command::Priority(priority) => all.set_priority(id, priority),
            };
            say(conn, &done.map_or_else(|e| Answer::Failed(e.to_string()), |()| Answer::Done))
        }
        Ask::Tell(stream, words) => {
            let told = tell::tell(StreamId(stream), &words);
            say(conn, &told.map_or_else(Answer::Failed, |()| Answer::Done))
        }
        Ask::Carry(job) => {
            // The program's units hear of a program that dies by their pipe.
            let gone = || over.load(Ordering::Relaxed) || hung_up(conn);
            let mut reached = match job.reach(None, &gone) {
                Ok(reached) => reached,
                Err(error) => return say(conn, &Answer::Failed(error.to_string())),
            };
            let waits = conn.clone();
            reached.lease.gives_up_when(move || hung_up(&waits));
            say(conn, &Answer::Reached(job.note(&reached)))?;
            let carried = job.run(reached, over);
            say(conn, &carried.map_or_else(|e| Answer::Failed(e.to_string()), |()| Answer::Ended))
        }
    }
}

fn hung_up(conn: &Conn) -> bool {
    let mut items = [PollItem::hangup(conn)];
    poll(&mut items, Some(Duration::ZERO)).is_ok() && items[0].is_hangup()
}
