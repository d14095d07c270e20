//! Brings a writer's unit into its pipe: unit 0 opens it for the others, who come to it.

use super::address::PipeAddress;
use super::channel::Channel;
use super::client::Client;
use super::listener::PipeListener;
use super::mend::Calls;
use super::senders::Senders;
use super::serve::{FarServer, Opened, Shared};
use super::Trust;
use crate::bind::check_terms;
use crate::error::PipeError;
use crate::join::{fresh_id, system};
use crate::rendezvous::Rendezvous;
use crate::serve::opening;
use crate::watch::spawn;
use crate::wire::{Hello, Welcome};
use polyduct_message::domain::Network;
use polyduct_message::link::net::socket::{listen, local_addr};
use polyduct_os::poll::EventFd;
use polyduct_port::{Options, Readers};
use polyduct_slots::Slots;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where the step protocol is: here, or with unit 0.
pub enum Control {
    Host {
        slots: Slots,
        shared: Arc<Shared>,
        thread: Option<JoinHandle<()>>,
        /// The steps before this one an earlier unit 0 has published: they are not published again.
        published: u64,
    },
    Guest(Box<Client>),
}

/// What all units were told of the pipe, and where those of its domain meet.
pub type Met = (Welcome, Network);

/// Unit 0: listens, and serves the others from a thread.
pub fn host(
    place: &PipeAddress,
    trust: &Trust,
    options: &Options,
    hello: Hello,
    start: Duration,
) -> Result<(Control, Arc<Senders>, Met), PipeError> {
    let pipe = place.to_string();
    let addr = place.own(options, start)?[0];
    let listener = PipeListener::new(addr, place, trust, options).map_err(system(&pipe))?;
    // Those who come have come when the pipe is open.
    let _entry = place.enter(listener.addr(), options, start)?;
    let bound = listen(SocketAddr::new(listener.addr().ip(), 0)).map_err(system(&pipe))?;
    let meets_at = local_addr(&bound).map_err(system(&pipe))?;
    let id = fresh_id().map_err(system(&pipe))?;
    let (rendezvous, first) =
        Rendezvous::new(id, hello, std::process::id(), Some(listener.addr()), check_terms);
    let rendezvous = rendezvous.with_a_sole_reader(options.readers == Readers::Sole);
    let wake = EventFd::new().map_err(system(&pipe))?;
    let [stop, alone, readers_over, replaced] = [const { AtomicBool::new(false) }; 4];
    let shared = Arc::new(Shared { wake, stop, alone, readers_over, replaced, absent: Mutex::default() });
    let (tell, outcome) = mpsc::channel();
    let (addr, unit, terms) = (listener.addr(), options.unit, place.terms(trust, options.unit));
    let (borne, session, most) = (options.silence, id, options.open_timeout);
    let (lasts, revives, life, pipe_id) = (false, false, 0, id);
    let calls = Calls { addr, unit, terms, borne, session, lasts, most, revives, life, pipe: pipe_id };
    let about = (options, calls);
    let server = FarServer::new(&pipe, (listener, meets_at), rendezvous, tell, shared.clone(), about);
    let thread = spawn(&pipe, move || server.run(first))?;
    match opening(&pipe, &outcome, options) {
        Ok(Opened { slots, senders, welcome, published }) => {
            let meeting = (welcome, PipeAddress::network(trust, meets_at, Some(bound)));
            Ok((Control::Host { slots, shared, thread: Some(thread), published }, senders, meeting))
        }
        Err(error) => {
            shared.stop.store(true, Ordering::Release);
            let _ = shared.wake.signal();
            let _ = thread.join();
            Err(error)
        }
    }
}

/// Another unit: listens for its readers where it is seen from unit 0.
pub fn guest(
    place: &PipeAddress,
    trust: &Trust,
    options: &Options,
    hello: Hello,
    start: Duration,
) -> Result<(Client, Arc<Senders>, JoinHandle<()>, Met), PipeError> {
    let pipe = place.to_string();
    let mut listener = None;
    let listen = |channel: &Channel| {
        let addr = channel.local().map_err(system(&pipe))?;
        let at = SocketAddr::new(addr.ip(), 0);
        let there = PipeListener::new(at, place, trust, options).map_err(system(&pipe))?;
        Ok(Some(listener.insert(there).addr()))
    };
    let (mut client, welcome, meets_at) = Client::join(place, trust, options, hello, listen, start)?;
    let senders = Senders::new(&pipe, &welcome, options.unit)?;
    let Some(listener) = listener else { return Err(client.bad("no listener")) };
    let accepting = senders.clone();
    let accepts = spawn(&pipe, move || accepting.accept(listener))?;
    match client.ready() {
        Ok(()) => Ok((client, senders, accepts, (welcome, PipeAddress::network(trust, meets_at, None)))),
        Err(e) => {
            senders.stop();
            let _ = accepts.join();
            Err(e)
        }
    }
}
