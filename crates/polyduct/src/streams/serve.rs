//! A gateway that is a process of its own: carries the streams of all programs that ask it to, of this host, and of others
//! where it listens for them.

use super::called::GatewayAt;
use super::control::{Answer, Ask, Command, Sought};
use super::talk::{self, Talk};
use super::work::{gateway, Job};
use super::{show, tell};
use crate::Error;
use polyduct_message::link::key::Trust;
use polyduct_message::link::net::acceptor::Visit;
use polyduct_message::link::net::LinkFault;
use polyduct_message::meeting::{Within, SLICE};
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::socket::Listener;
use polyduct_os::{clock, OsError};
use polyduct_stream::{StreamError, StreamId};
use std::collections::btree_map::Entry;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// Connections at a time, at most: each has a thread. So many more are told that there is no room.
const MOST: usize = 512;
/// Those of them that wait for a pipe, at most: unit 0, which says where it is, has to come in.
const WAIT: usize = MOST / 2;
/// How long one waits for that.
const FINDS: Duration = Duration::from_millis(500);
/// Pipes that can be found, at most.
const PIPES: usize = 4096;
/// The longest name of one, and of its job.
const NAME: usize = 200;
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
    /// The pipes that programs of other hosts share with gateways, by job and name.
    pipes: Mutex<Pipes>,
    /// There is one more of them.
    entered: Condvar,
}

/// What is known of pipes.
#[derive(Default)]
struct Pipes {
    /// Where each is, and its number.
    at: BTreeMap<(String, String), (SocketAddr, Option<u64>)>,
    /// Connections that wait for one.
    waiting: usize,
}

/// Serves as a gateway of this name, of this job (empty for none), until `stop` says to end, which breaks the streams that
/// it carries; also for programs of other
/// hosts that come to `listen` and know the job's key. `ready` is told what it is called among those of its name, and where
/// it listens, once it is there.
///
/// # Errors
/// [`Error::Stream`] where there are 16 of that name already, or the system refuses a socket; [`Error::Key`] for one that
/// listens and has no key.
pub fn serve(
    name: &str,
    job: &str,
    listen: Option<SocketAddr>,
    ready: impl FnOnce(&GatewayAt, Option<SocketAddr>),
    stop: &dyn Fn() -> bool,
) -> Result<(), Error> {
    let refused = |e: OsError| StreamError::Listen {
        place: format!("gateway {name}"),
        source: std::io::Error::other(e.to_string()),
    };
    show::keep();
    let key = |source| Error::Key { what: format!("gateway {name}"), source };
    let door = listen.map(|addr| Ok::<_, Error>((addr, Trust::from_env().map_err(key)?))).transpose()?;
    let (mut door, at) =
        door.map(|(addr, trust)| talk::door(addr, &trust)).transpose().map_err(refused)?.unzip();
    let mut taken = None;
    let all: GatewayAt = name.parse().map_err(|expected| Error::Misuse {
        what: format!("{name:?} is no name of a gateway: expected {expected}"),
    })?;
    let free = all.members().find_map(|member| match Listener::bind(&talk::socket(&member, job)) {
        Ok(listener) => Some(Ok((member, listener))),
        Err(error @ OsError::AddrInUse { .. }) => {
            taken = Some(error);
            None
        }
        Err(error) => Some(Err(error)),
    });
    let none = || Err(taken.unwrap_or(OsError::AddrInUse { name: name.to_owned() }));
    let (member, listener) = free.unwrap_or_else(none).map_err(refused)?;
    ready(&member, at);
    let (over, open) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let house = Arc::new(House { over, open, pipes: Mutex::default(), entered: Condvar::new() });
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
    // Their programs hear why.
    for stream in gateway().status().streams {
        let _ = gateway().close(stream.stream, &format!("gateway {member} was told to end"));
    }
    house.over.store(true, Ordering::Relaxed);
    // Receivers and programs are told.
    let end = clock::now() + LEAVES;
    while house.open.load(Ordering::Relaxed) > 0 && clock::now() < end {
        poll(&mut [], Some(LOOKS)).map_err(refused)?;
    }
    Ok(())
}

/// Attends to a connection, in a thread of its own; one too many is told so.
fn enter(house: &Arc<House>, talk: Talk) {
    let inside = Inside(house.clone());
    let before = house.open.fetch_add(1, Ordering::Relaxed);
    if before >= 2 * MOST {
        return;
    }
    let work = move || attend(talk, &inside.0, before < MOST).is_ok();
    // Without a thread it is turned away, and who hangs up in the middle has nobody to be told.
    let _ = Builder::new().name("polyduct-gateway".into()).spawn(work);
}

/// A connection that is attended to.
struct Inside(Arc<House>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl House {
    fn pipes(&self) -> MutexGuard<'_, Pipes> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Where a pipe is, which is waited for while not too many others wait.
    fn find(&self, sought: Sought) -> Option<SocketAddr> {
        let (name, end) = ((sought.job, sought.pipe), clock::now() + FINDS);
        let is_it =
            |&&(_, number): &&(SocketAddr, Option<u64>)| sought.drawn.is_none() || number == sought.drawn;
        let mut pipes = self.pipes();
        let waits = pipes.waiting < WAIT;
        loop {
            let found = pipes.at.get(&name).filter(is_it).map(|(at, _)| *at);
            let left = end.saturating_sub(clock::now());
            if found.is_some() || !waits || left.is_zero() || self.is_over() {
                return found;
            }
            pipes.waiting += 1;
            let (mut woken, _) =
                self.entered.wait_timeout(pipes, left.min(SLICE)).unwrap_or_else(PoisonError::into_inner);
            woken.waiting -= 1;
            pipes = woken;
        }
    }

    /// Has others find a pipe while what this gives is there; nothing where there is one of that name.
    fn know(&self, sought: Sought, at: SocketAddr) -> Result<Known<'_>, String> {
        let name = (sought.job, sought.pipe);
        if name.0.len().max(name.1.len()) > NAME || at.port() == 0 || at.ip().is_unspecified() {
            return Err(format!("a pipe at {at}: expected an address that others reach, and a shorter name"));
        }
        let pipes = &mut self.pipes().at;
        if pipes.len() >= PIPES {
            return Err(format!("{PIPES} pipes are here already"));
        }
        match pipes.entry(name.clone()) {
            Entry::Vacant(free) => drop(free.insert((at, sought.drawn))),
            Entry::Occupied(_) => return Err("it is here already".into()),
        }
        self.entered.notify_all();
        Ok(Known(self, name))
    }
}

/// A pipe that can be found.
struct Known<'a>(&'a House, (String, String));

impl Drop for Known<'_> {
    fn drop(&mut self) {
        self.0.pipes().at.remove(&self.1);
    }
}

/// Does what is asked over one connection.
fn attend(mut talk: Talk, house: &Arc<House>, has_room: bool) -> Result<(), LinkFault> {
    let gone = talk.watch()?;
    let over = || house.is_over();
    loop {
        let Some(ask) = talk.hear::<Ask>(Within { most: SAYS, gives_up: &over })? else { return Ok(()) };
        if !has_room {
            return talk.say(&Answer::Full);
        }
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
            Ask::Find(sought) => Answer::At(house.find(sought)),
            Ask::Enter(sought, at) => match house.know(sought, at) {
                Err(why) => Answer::Failed(why),
                Ok(_known) => {
                    talk.say(&Answer::Done)?;
                    // It says nothing more: until it hangs up.
                    let within = Within { most: Duration::MAX, gives_up: &over };
                    return talk.hear::<Ask>(within).map(drop);
                }
            },
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
        let here = |addr: SocketAddr| GatewayAt::Place(addr.ip().to_string(), addr.port());
        job.meets = job.meets.and_then(|(_, drawn)| talk.own().map(|addr| (here(addr), drawn)));
    }
    if let Err(error) = job.check() {
        return talk.say(&Answer::Failed(error.to_string()));
    }
    // The program's units hear of a program that dies by their pipe.
    let gives_up = || house.is_over() || gone();
    let mut reached = match job.reach(None, &gives_up) {
        Ok(reached) => reached,
        Err(error) => return talk.say(&Answer::Failed(error.to_string())),
    };
    reached.lease.gives_up_when(gone);
    talk.say(&Answer::Reached(job.note(&reached)))?;
    let carried = job.run(reached, &house.over);
    talk.say(&carried.map_or_else(|e| Answer::Failed(e.to_string()), |()| Answer::Ended))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A gateway of this process, until it is dropped.
    struct There(GatewayAt, Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

    impl There {
        fn new(name: &str) -> There {
            let name = format!("{name}-{}", std::process::id());
            let (stop, (there, ready)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
            let (stopped, called) = (stop.clone(), name.clone());
            let thread = std::thread::spawn(move || {
                let ready = |_: &GatewayAt, _| there.send(()).unwrap();
                serve(&called, "", None, ready, &|| stopped.load(Ordering::Relaxed)).unwrap();
            });
            ready.recv().unwrap();
            There(name.parse().unwrap(), stop, Some(thread))
        }

        fn ask(&self, ask: &Ask, most: u64) -> Option<(Talk, Answer)> {
            let (talk, answer) =
                Talk::ask(&self.0, "", None, ask, Within::time(Duration::from_secs(most))).ok()?;
            Some((talk, answer?))
        }
    }

    impl Drop for There {
        fn drop(&mut self) {
            self.1.store(true, Ordering::Relaxed);
            self.2.take().into_iter().for_each(|thread| thread.join().unwrap());
        }
    }

    fn sought(pipe: &str, drawn: Option<u64>) -> Sought {
        Sought { job: String::new(), pipe: pipe.into(), drawn }
    }

    #[test]
    fn more_units_than_connections_find_their_pipe_and_unit_0_comes_in() {
        let (there, at) = (There::new("many"), SocketAddr::from(([127, 0, 0, 1], 7)));
        let asked = AtomicUsize::new(0);
        std::thread::scope(|s| {
            let finds = || loop {
                let (_, answer) = there.ask(&Ask::Find(sought("p", None)), 60)?;
                asked.fetch_add(1, Ordering::Relaxed);
                match answer {
                    Answer::At(None) => {}
                    Answer::At(found) => return found,
                    _ => return None,
                }
            };
            let units: Vec<_> = (0..MOST + 100).map(|_| s.spawn(finds)).collect();
            // Some have asked in vain, and so the others are there.
            while asked.load(Ordering::Relaxed) < MOST {
                std::thread::yield_now();
            }
            let (entry, done) = there.ask(&Ask::Enter(sought("p", Some(3)), at), 60).unwrap();
            assert!(matches!(done, Answer::Done), "{done:?}");
            assert!(units.into_iter().all(|unit| unit.join().unwrap() == Some(at)));
            drop(entry);
        });
    }

    #[test]
    fn one_too_many_hears_that_there_is_no_room_and_comes_in_later() {
        let there = There::new("full");
        let connect = || Talk::open(&there.0, "", None, Within::time(Duration::from_secs(9))).ok();
        // They say nothing, for which they have a while.
        let mut silent: Vec<Talk> = Vec::new();
        while silent.len() < MOST {
            silent.extend(connect());
        }
        let Some(mut one) = connect() else { panic!("it is not heard") };
        one.say(&Ask::Status).unwrap();
        let answer = one.hear::<Answer>(Within::time(Duration::from_secs(9))).unwrap();
        assert!(matches!(answer, Some(Answer::Full)), "{answer:?}");
        assert!(matches!(there.ask(&Ask::Status, 60), Some((_, Answer::Status(_)))));
    }

    #[test]
    fn a_pipe_has_one_place_and_who_knows_its_number_finds_no_other() {
        let (there, at) = (There::new("number"), SocketAddr::from(([127, 0, 0, 1], 7)));
        let (entry, _) = there.ask(&Ask::Enter(sought("p", Some(3)), at), 9).unwrap();
        let find = |drawn| there.ask(&Ask::Find(sought("p", drawn)), 9).unwrap().1;
        assert!(matches!(find(None), Answer::At(Some(found)) if found == at));
        assert!(matches!(find(Some(3)), Answer::At(Some(found)) if found == at));
        assert!(matches!(find(Some(4)), Answer::At(None)));
        let enter =
            |pipe: &str, at: SocketAddr| there.ask(&Ask::Enter(sought(pipe, Some(4)), at), 9).unwrap().1;
        assert!(matches!(enter("p", at), Answer::Failed(_)));
        for (pipe, at) in [("q", "0.0.0.0:7"), ("q", "127.0.0.1:0"), (&"q".repeat(NAME + 1), "127.0.0.1:7")] {
            assert!(matches!(enter(pipe, at.parse().unwrap()), Answer::Failed(_)), "{at}");
        }
        drop(entry);
        while !matches!(find(None), Answer::At(None)) {}
    }
}
