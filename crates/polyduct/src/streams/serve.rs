//! A gateway that is a process of its own: carries the streams of all programs that ask it to, of this host, and of others
//! where it listens for them.

use super::control::{names, Answer, Ask, Command};
use super::talk::{self, Talk};
use super::work::{gateway, Job};
use super::{show, tell};
use crate::Error;
use polyduct_message::link::key::Trust;
use polyduct_message::link::net::acceptor::Visit;
use polyduct_message::link::net::LinkFault;
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::socket::Listener;
use polyduct_os::{clock, OsError};
use polyduct_stream::{StreamError, StreamId};
use std::collections::btree_map::Entry;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// Connections at a time, at most: each has a thread.
const MOST: usize = 512;
/// How long one wait takes, for the end to be seen.
const SLICE: Duration = Duration::from_millis(100);
/// How long streams may take to end with the gateway, and how soon is looked again.
const LEAVES: Duration = Duration::from_secs(2);
const LOOKS: Duration = Duration::from_millis(5);
/// How long a program may take to say what it wants.
const SAYS: Duration = Duration::from_secs(5);

/// What the connections of a gateway have in common.
struct House {
    over: Arc<AtomicBool>,
    /// Connections that have a thread.
    open: AtomicUsize,
    /// Where the pipes are that programs of other hosts share with gateways.
    pipes: Mutex<BTreeMap<String, SocketAddr>>,
}

/// Serves as a gateway of this name, of this job (empty for none), until `stop` says to end, which breaks the streams that
/// it carries; also for programs of other
/// hosts that come to `listen` and know the job's key. `ready` is told what it is called among those of its name, once it
/// is there.
///
/// # Errors
/// [`Error::Stream`] where there are 16 of that name already, or the system refuses a socket; [`Error::Key`] for one that
/// listens and has no key.
pub fn serve(
    name: &str,
    job: &str,
    listen: Option<SocketAddr>,
    ready: impl FnOnce(&str),
    stop: &dyn Fn() -> bool,
) -> Result<(), Error> {
    let refused = |e: OsError| StreamError::Listen {
        place: format!("gateway {name}"),
        source: std::io::Error::other(e.to_string()),
    };
    show::keep();
    let key = |source| Error::Key { url: format!("gateway {name}"), source };
    let door = listen.map(|addr| Ok::<_, Error>((addr, Trust::from_env().map_err(key)?))).transpose()?;
    let mut door = door.map(|(addr, trust)| talk::door(addr, &trust)).transpose().map_err(refused)?;
    let mut taken = None;
    let free = names(name).find_map(|member| match Listener::bind(&talk::socket(&member, job)) {
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
    let (over, open) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let house = Arc::new(House { over, open, pipes: Mutex::default() });
    while !stop() {
        match listener.accept() {
            Ok(Some(conn)) if conn.stranger() == Ok(None) => enter(&house, Talk::of(conn)),
            // Of another user.
            Ok(Some(_)) => {}
            Ok(None) => {
                let mut items = vec![PollItem::readable(&listener)];
                items.extend(door.iter().map(PollItem::readable));
                poll(&mut items, Some(SLICE)).map(drop).map_err(refused)?;
            }
            // Without a descriptor the one that came was turned away.
            Err(OsError::OutOfDescriptors { .. }) => {}
            Err(error) => return Err(refused(error).into()),
        }
        let mut told = |visit: Visit| match visit {
            Visit::Arrival(arrival) => enter(&house, talk::came(arrival.stream, arrival.established)),
            // Who does not know the key is told so, and does nothing here.
            Visit::TurnedAway(..) => {}
        };
        door.as_mut().map_or(Ok(()), |door| door.serve(clock::now(), &mut told)).map_err(refused)?;
    }
    house.over.store(true, Ordering::Relaxed);
    // Receivers and programs are told.
    let end = clock::now() + LEAVES;
    while house.open.load(Ordering::Relaxed) > 0 && clock::now() < end {
        poll(&mut [], Some(LOOKS)).map_err(refused)?;
    }
    Ok(())
}

/// Attends to a connection, in a thread of its own; to one too many not at all.
fn enter(house: &Arc<House>, talk: Talk) {
    if house.open.fetch_add(1, Ordering::Relaxed) >= MOST {
        house.open.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let inside = Inside(house.clone());
    // Without a thread it is turned away, and who hangs up in the middle has nobody to be told.
    let _ = Builder::new().name("polyduct-gateway".into()).spawn(move || attend(talk, &inside.0).is_ok());
}

/// A connection that is attended to.
struct Inside(Arc<House>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl House {
    fn pipes(&self) -> MutexGuard<'_, BTreeMap<String, SocketAddr>> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pipe that can be found.
struct Known<'a>(&'a House, String);

impl Drop for Known<'_> {
    fn drop(&mut self) {
        self.0.pipes().remove(&self.1);
    }
}

/// Does what is asked over one connection.
fn attend(mut talk: Talk, house: &Arc<House>) -> Result<(), LinkFault> {
    let gone = talk.watch()?;
    let over = || house.over.load(Ordering::Relaxed);
    let pipes = || house.pipes();
    loop {
        let Some(ask) = talk.hear::<Ask>(Some(SAYS), &over)? else { return Ok(()) };
        let answer = match ask {
            Ask::Status => Answer::Status(serde_json::to_string(&gateway().status()).unwrap_or_default()),
            Ask::Do(stream, what) => {
                let (all, id) = (gateway(), StreamId(stream));
                let done = match what {
                    Command::Pause => all.pause(id),
                    Command::Resume => all.resume(id),
                    Command::Close => all.close(id, "closed by the gateway's control"),
                    Command::Quantum(steps) => all.set_quantum(id, steps),
                    Command::Priority(priority) => all.set_priority(id, priority),
                };
                done.map_or_else(|e| Answer::Failed(e.to_string()), |()| Answer::Done)
            }
            Ask::Tell(stream, words) => {
                let told = tell::tell(StreamId(stream), &words);
                told.map_or_else(Answer::Failed, |()| Answer::Done)
            }
            Ask::Find(pipe) => Answer::At(pipes().get(&pipe).copied()),
            Ask::Enter(pipe, at) => {
                match pipes().entry(pipe.clone()) {
                    Entry::Vacant(free) => drop(free.insert(at)),
                    Entry::Occupied(_) => return talk.say(&Answer::Failed("it is there".into())),
                }
                let _known = Known(house, pipe);
                talk.say(&Answer::Done)?;
                // It says nothing more: until it hangs up.
                return talk.hear::<Ask>(None, &over).map(drop);
            }
            Ask::Carry(job) => return carry(talk, *job, house, gone),
        };
        talk.say(&answer)?;
    }
}

/// Carries a stream.
fn carry(
    mut talk: Talk,
    mut job: Job,
    house: &House,
    gone: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<(), LinkFault> {
    if job.share.index == 0 {
        // Where it is that says where the pipe is, it knows best itself.
        job.meets = job.meets.and_then(|_| talk.own()).map(|addr| addr.to_string());
    }
    if let Err(error) = job.check() {
        return talk.say(&Answer::Failed(error.to_string()));
    }
    // The program's units hear of a program that dies by their pipe.
    let gives_up = || house.over.load(Ordering::Relaxed) || gone();
    let mut reached = match job.reach(None, &gives_up) {
        Ok(reached) => reached,
        Err(error) => return talk.say(&Answer::Failed(error.to_string())),
    };
    reached.lease.gives_up_when(gone);
    talk.say(&Answer::Reached(job.note(&reached)))?;
    let carried = job.run(reached, &house.over);
    talk.say(&carried.map_or_else(|e| Answer::Failed(e.to_string()), |()| Answer::Ended))
}
