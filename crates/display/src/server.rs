//! The server: one thread, sockets that never block, and poll.

use crate::answer::{endless, route, switch, Answer, Route};
use crate::connection::{Came, Connection, Phase, Ticket};
use crate::draw::{npy_head, Drawn, Form, Job};
use crate::head::Request;
use crate::hub::{Hub, Place};
use crate::limits::{
    ANSWER_TIMEOUT, CATCH_UP, FILE_TIMEOUT, LINGER, MAX_CONNECTIONS, MAX_DRAWINGS, MAX_VIEWERS,
};
use crate::page::PAGE;
use crate::status::Status;
use crate::trust::{random_token, Trust};
use crate::viewer::Viewer;
use polyduct_os::clock;
use polyduct_os::poll::{poll, PollItem};
use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are read from one connection before the others have their turn.
const READ_BYTES: usize = 64 << 10;
/// Connections beyond the limit that are told so; further ones are closed without a word.
const TOLD_SO: usize = 16;
/// Connections that are accepted before those that are there have their turn.
const ACCEPT_TURN: usize = 64;
/// How long no connection is accepted after the system has refused one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Server {
    hub: Arc<Hub>,
    /// `None` when nobody is let in any more.
    listener: Option<TcpListener>,
    trust: Trust,
    jobs: Sender<Job>,
    drawn: Receiver<Drawn>,
    /// Jobs that have not come back.
    drawing: usize,
    places: Vec<Option<Connection>>,
    serial: u64,
    scratch: Vec<u8>,
    /// Who looks, or what they want to see, may have changed.
    is_dirty: bool,
    accept_after: Duration,
    /// When the last handle was gone.
    over: Option<Duration>,
}

/// What poll says of one connection.
struct Ready {
    at: usize,
    read: bool,
    write: bool,
}

impl Server {
    pub(crate) fn new(
        hub: Arc<Hub>,
        listener: TcpListener,
        trust: Trust,
        jobs: Sender<Job>,
        drawn: Receiver<Drawn>,
    ) -> Server {
        Server {
            hub,
            listener: Some(listener),
            trust,
            jobs,
            drawn,
            drawing: 0,
            places: Vec::new(),
            serial: 0,
            scratch: vec![0; READ_BYTES],
            is_dirty: false,
            accept_after: Duration::ZERO,
            over: None,
        }
    }

    /// Serves until the last handle of the display is gone, and then for as long as it takes to say so.
    pub(crate) fn serve(mut self) {
        while let Some((ready, is_waiting)) = self.wait() {
            let now = clock::now();
            if is_waiting {
                self.accept(now);
            }
            for Ready { at, read, write } in ready {
                if read {
                    self.read(at, now);
                }
                if write {
                    self.write(at, now);
                }
            }
            while let Ok(Drawn { ticket, form, bytes }) = self.drawn.try_recv() {
                self.drawing -= 1;
                if let Some(connection) = self.of(ticket) {
                    connection.handle_drawn(form, bytes, now);
                    self.write(ticket.0, now);
                }
            }
            for at in 0..self.places.len() {
                let connection = self.places[at].as_mut();
                if connection.is_some_and(|c| !c.handle_timeout(now)) {
                    self.close(at, now);
                }
            }
            self.offer(now);
            if self.over.is_none() && self.hub.lock().is_over {
                self.over = Some(now);
                self.listener = None;
            }
            if let Some(since) = self.over {
                self.end(since, now);
                if now >= since + CATCH_UP + LINGER || self.places.iter().all(Option::is_none) {
                    return;
                }
            }
        }
    }

    /// Waits for something to do; says which connections are ready, and whether one waits to be accepted.
    fn wait(&self) -> Option<(Vec<Ready>, bool)> {
        let now = clock::now();
        let pause = (now < self.accept_after).then_some(self.accept_after);
        let deadlines = self.places.iter().flatten().filter_map(Connection::deadline);
        let over = self.over.map(|since| since + CATCH_UP).map(|at| if now < at { at } else { at + LINGER });
        let first = deadlines.chain(over).chain(pause).min();
        let listener = self.listener.as_ref().filter(|_| pause.is_none());
        let mut items = vec![PollItem::readable(&self.hub.wake)];
        items.extend(listener.map(PollItem::readable));
        let before = items.len();
        let mut who = Vec::with_capacity(self.places.len());
        for (at, connection) in self.places.iter().enumerate() {
            let Some(connection) = connection else { continue };
            who.push(at);
            items.push(match connection.out.is_empty() {
                true => PollItem::readable(connection.stream()),
                false => PollItem::both(connection.stream()),
            });
        }
        if let Err(e) = poll(&mut items, first.map(|first| first.saturating_sub(now))) {
            // Only a lack of memory is left as its reason.
            tracing::error!("the display ends: {e}");
            return None;
        }
        if items[0].is_ready() {
            let _ = self.hub.wake.drain();
        }
        let ready = who.iter().zip(&items[before..]).filter(|(_, item)| item.is_ready()).map(|(at, item)| {
            Ready { at: *at, read: item.is_readable() || item.is_hangup(), write: item.is_writable() }
        });
        let is_waiting = before > 1 && items[1].is_ready();
        Some((ready.collect(), is_waiting))
    }

    fn accept(&mut self, now: Duration) {
        for _ in 0..ACCEPT_TURN {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((stream, _)) => self.take(stream, now),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionAborted => {}
                Err(e) => {
                    // Mostly there is no descriptor left; the one that waits would be ready at once again.
                    tracing::warn!("no connection is accepted for a moment: {e}");
                    self.accept_after = now + ACCEPT_PAUSE;
                    return;
                }
            }
        }
    }

    fn take(&mut self, stream: TcpStream, now: Duration) {
        let there = self.places.iter().flatten().count();
        let is_full = there >= MAX_CONNECTIONS;
        if is_full {
            self.hub.lock().refused += 1;
        }
        if there >= MAX_CONNECTIONS + TOLD_SO || stream.set_nonblocking(true).is_err() {
            return;
        }
        let _ = stream.set_nodelay(true);
        self.serial += 1;
        let mut connection = Connection::new(stream, self.serial, now);
        if is_full {
            connection.answer(Answer::text(503, "there are too many connections"), false, now);
        }
        let at = self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
        if at == self.places.len() {
            self.places.push(None);
        }
        self.places[at] = Some(connection);
        self.is_dirty = true;
        if is_full {
            self.write(at, now);
        }
    }

    fn of(&mut self, (at, serial): Ticket) -> Option<&mut Connection> {
        self.places.get_mut(at)?.as_mut().filter(|c| c.serial == serial)
    }

    /// Gives a connection up. With a body its viewer ends; the other way round [`show`](Server::show) sees to it.
    fn close(&mut self, at: usize, now: Duration) {
        self.is_dirty = true;
        let Some(Connection { phase: Phase::Showing { viewer: ticket }, .. }) = self.places[at].take() else {
            return;
        };
        if let Some(Connection { phase: Phase::Viewing(viewer), out, .. }) = self.of(ticket) {
            viewer.handle_end("what it is shown is read no more", out);
            self.write(ticket.0, now);
        }
    }

    fn write(&mut self, at: usize, now: Duration) {
        let Some(connection) = &mut self.places[at] else { return };
        let Ok(written) = connection.write(now) else { return self.close(at, now) };
        if let (Phase::Showing { viewer }, true) = (&connection.phase, written.frame_bytes > 0) {
            let ticket = *viewer;
            if let Some(Connection { phase: Phase::Viewing(viewer), .. }) = self.of(ticket) {
                viewer.handle_progress(now);
            }
        }
    }

    fn read(&mut self, at: usize, now: Duration) {
        let Some(connection) = &mut self.places[at] else { return };
        match connection.read(&mut self.scratch, now) {
            Came::Nothing => return self.write(at, now),
            Came::Wants => self.is_dirty = true,
            Came::End => return self.close(at, now),
            Came::Refused(e) => connection.answer(Answer::text(e.status(), &e.to_string()), false, now),
            Came::Request(request, rest) => self.request(at, &request, &rest, now),
        }
        self.write(at, now);
    }

    /// Answers a request, or makes the connection a viewer's.
    fn request(&mut self, at: usize, request: &Request, rest: &[u8], now: Duration) {
        let viewers = self.places.iter().flatten().filter(|c| c.viewer().is_some()).count();
        let answer = match self.trust.check(request) {
            Err(refusal) => Some(Answer::text(403, &refusal.to_string())),
            Ok(()) => self.answer(at, request, viewers, now),
        };
        let Some(connection) = &mut self.places[at] else { return };
        match (answer, &mut connection.phase) {
            (Some(answer), _) => connection.answer(answer, request.head_only, now),
            (None, Phase::Viewing(viewer)) => {
                self.is_dirty = true;
                if !rest.is_empty() {
                    viewer.handle_input(rest, now, &mut connection.out);
                }
            }
            (None, _) => {}
        }
    }

    /// What is answered at once; `None` when the connection is at something else now.
    fn answer(&mut self, at: usize, request: &Request, viewers: usize, now: Duration) -> Option<Answer> {
        let places = self.hub.lock();
        let is_name = |name: &str| places.all.contains_key(name);
        let names = || places.all.keys().map(|name| &**name);
        Some(match route(request, is_name, names()) {
            Route::Page => Answer::page(&PAGE),
            Route::Redirect(name) => Answer::redirect(&name, self.trust.token()),
            Route::Unknown => Answer::unknown(names()),
            Route::Status => {
                let status = Status::of(&places);
                drop(places);
                Answer::json(serde_json::to_string(&status).unwrap_or_default())
            }
            Route::Watch(_) if viewers >= MAX_VIEWERS => Answer::text(503, "there are too many viewers"),
            Route::Watch(name) => {
                drop(places);
                let Ok(id) = random_token() else {
                    return Some(Answer::text(503, "there is no randomness for an id"));
                };
                let connection = self.places[at].as_mut()?;
                let mut viewer = Viewer::new(name.into(), id, now);
                connection.out.push_text(switch(request.websocket.as_deref()?));
                viewer.greet(&mut connection.out);
                connection.phase = Phase::Viewing(Box::new(viewer));
                return None;
            }
            Route::Frames(name) => {
                drop(places);
                let id = request.query("viewer").unwrap_or_default();
                let awaits = |c: &Connection| c.viewer().is_some_and(|viewer| viewer.awaits(&name, id));
                let Some(of) = self.places.iter().position(|c| c.as_ref().is_some_and(awaits)) else {
                    return Some(Answer::text(403, "no viewer of that name and id waits for this"));
                };
                let connection = self.places[at].as_mut()?;
                connection.out.push_text(endless());
                let body = (at, connection.serial);
                let Some(Connection { phase: Phase::Viewing(viewer), serial, .. }) = &mut self.places[of]
                else {
                    return None;
                };
                viewer.body = Some(body);
                let viewer = (of, *serial);
                self.places[at].as_mut()?.phase = Phase::Showing { viewer };
                self.is_dirty = true;
                return None;
            }
            Route::Newest(name, form) => {
                let Some(published) = places.all.get(&*name).and_then(|place| place.newest.clone()) else {
                    return Some(Answer::text(503, "there is no frame yet"));
                };
                let place = name;
                drop(places);
                let wanted = request.query("view");
                let views = &published.frame.views;
                let is_it = |v: &crate::View| v.for_want.is_none() && wanted.is_none_or(|w| v.name == w);
                let view = match (views.iter().position(is_it), form) {
                    (Some(view), _) => view,
                    (None, Form::Json) => 0,
                    (None, _) => return Some(Answer::unknown(views.iter().map(|v| &*v.name))),
                };
                if form == Form::Npy {
                    let name = &views[view].name;
                    if let Some(exact) = published.exact(name) {
                        return Some(Answer::npy(npy_head(exact), exact.data.clone()));
                    }
                    let connection = self.places[at].as_mut()?;
                    let (place, view, head_only) = (place.to_string(), name.clone(), request.head_only);
                    connection.phase =
                        Phase::Awaiting { name: place, view, head_only, until: now + FILE_TIMEOUT };
                    self.is_dirty = true;
                    return None;
                }
                let connection = self.places[at].as_mut()?;
                let job = Job { ticket: (at, connection.serial), published, view, form };
                // Each holds a frame, whether or not who asked for it is still there.
                if self.drawing >= MAX_DRAWINGS || self.jobs.send(job).is_err() {
                    return Some(Answer::text(503, "too many pictures are being made"));
                }
                self.drawing += 1;
                let until = now + ANSWER_TIMEOUT;
                connection.phase = Phase::Drawing { head_only: request.head_only, until };
                return None;
            }
        })
    }

    /// Gives every viewer what is new.
    fn offer(&mut self, now: Duration) {
        let hub = self.hub.clone();
        let mut places = hub.lock();
        if self.is_dirty {
            self.count(&mut places.all);
        }
        let mut ready = Vec::new();
        for at in 0..self.places.len() {
            let Some(connection) = &mut self.places[at] else { continue };
            let was_empty = connection.out.is_empty();
            match &connection.phase {
                Phase::Awaiting { name, view, head_only, .. } => {
                    let newest = places.all.get(&**name).and_then(|place| place.newest.as_ref());
                    let Some(exact) = newest.and_then(|newest| newest.exact(view)) else { continue };
                    let (answer, head_only) = (Answer::npy(npy_head(exact), exact.data.clone()), *head_only);
                    connection.answer(answer, head_only, now);
                    self.is_dirty = true;
                }
                Phase::Showing { viewer } => {
                    let viewer = *viewer;
                    self.is_dirty |= self.show(at, viewer, &mut places.all);
                }
                _ => continue,
            }
            if was_empty && self.places[at].as_ref().is_some_and(|c| !c.out.is_empty()) {
                ready.push(at);
            }
        }
        if self.is_dirty {
            self.count(&mut places.all);
        }
        places.connections = self.places.iter().flatten().count();
        drop(places);
        ready.into_iter().for_each(|at| self.write(at, now));
    }

    /// Puts into a body what its viewer is to have, or ends it with its viewer; says whether that changes
    /// what is wanted.
    fn show(&mut self, at: usize, (of, serial): Ticket, places: &mut BTreeMap<Arc<str>, Place>) -> bool {
        if let Ok([Some(body), Some(Connection { phase: Phase::Viewing(viewer), serial: now, .. })]) =
            self.places.get_disjoint_mut([at, of])
        {
            if *now == serial && !viewer.is_closing() {
                let place = places.get_mut(&*viewer.name);
                return place.is_some_and(|place| viewer.offer(place, &mut body.out));
            }
        }
        self.places[at] = None;
        true
    }

    /// Counts who looks, and puts together what they want to see.
    fn count(&mut self, places: &mut BTreeMap<Arc<str>, Place>) {
        self.is_dirty = false;
        let mut by_name: BTreeMap<&str, Vec<&Viewer>> = BTreeMap::new();
        for viewer in self.places.iter().flatten().filter_map(Connection::viewer) {
            by_name.entry(&viewer.name).or_default().push(viewer);
        }
        for (name, place) in places {
            let viewers = by_name.get(&**name).map_or(&[][..], Vec::as_slice);
            place.viewers = viewers.len();
            let looking = || viewers.iter().filter(|v| v.is_looking());
            let awaits =
                |c: &Connection| matches!(&c.phase, Phase::Awaiting { name: of, .. } if **of == **name);
            let file = self.places.iter().flatten().any(awaits);
            if place.wants.update((looking().count(), file), looking().flat_map(|v| v.wants())) {
                place.signal_changed();
            }
        }
    }

    /// Takes leave of viewers that have all there is for them, or have had their time.
    fn end(&mut self, since: Duration, now: Duration) {
        let hub = self.hub.clone();
        for at in 0..self.places.len() {
            match &mut self.places[at] {
                Some(Connection { phase: Phase::Viewing(viewer), out, .. }) if !viewer.is_closing() => {
                    let body = viewer.body;
                    let is_caught_up = |place| viewer.is_caught_up(place);
                    let is_through =
                        body.is_none() || hub.lock().all.get(&*viewer.name).is_none_or(is_caught_up);
                    if is_through || now >= since + CATCH_UP {
                        viewer.handle_end("the display has ended", out);
                        self.write(at, now);
                        // What is in its body goes out.
                        if let Some((ticket, body)) = body.and_then(|t| Some((t, self.of(t)?))) {
                            body.finish(now);
                            self.write(ticket.0, now);
                        }
                    }
                }
                Some(Connection { phase: Phase::Head { .. }, .. }) => self.close(at, now),
                _ => {}
            }
        }
    }
}
