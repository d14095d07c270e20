//! One viewer: what it says comes by its websocket, and what it is shown goes out by the body that it fetches
//! beside that, which browsers read several times as fast. Bytes and the time come in, messages and pieces of
//! frames go out. No socket is known here.

use crate::client::{ClientError, ClientMessage, Want};
use crate::connection::Ticket;
use crate::frame::ViewInfo;
use crate::hub::Place;
use crate::limits::{MAX_CLIENT_BYTES, MAX_SMALL_BYTES, MAX_UNACKNOWLEDGED, PING_INTERVAL, SILENCE_TIMEOUT};
use crate::outbox::Outbox;
use crate::trust;
use crate::window::{Rate, Window};
use crate::wire;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Error, Message};

/// Bytes of tungstenite's own buffer for one viewer.
const READ_BUFFER: usize = 4 << 10;

/// What the protocol reads from and writes to.
#[derive(Debug, Default)]
struct Memory<'a> {
    input: &'a [u8],
    output: Vec<u8>,
}

impl Read for Memory<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.input.read(buf) {
            Ok(0) if !buf.is_empty() => Err(ErrorKind::WouldBlock.into()),
            other => other,
        }
    }
}

impl Write for Memory<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct Viewer {
    /// What it looks at.
    pub(crate) name: Arc<str>,
    /// What the request for its body has to bring.
    id: String,
    /// The connection of its body, once that is there.
    pub(crate) body: Option<Ticket>,
    socket: WebSocketContext,
    window: Window,
    rate: Rate,
    /// The program that it was told of (0: none yet), its views, and how often that one's state changed.
    program: u64,
    views: Arc<[ViewInfo]>,
    changes: u64,
    /// What is on its screen, for each view of which it said so.
    wants: BTreeMap<String, Want>,
    /// A want came that the newest frame may hold already.
    asked: bool,
    /// When it last said something or took something of a frame.
    alive: Duration,
    pinged: Duration,
    is_closing: bool,
    counted: (u64, u64),
}

impl Viewer {
    /// A viewer of a name with an id that nobody can guess; no byte of its websocket has come yet.
    pub(crate) fn new(name: Arc<str>, id: String, now: Duration) -> Viewer {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_message_size(Some(MAX_CLIENT_BYTES))
            .max_frame_size(Some(MAX_CLIENT_BYTES));
        Viewer {
            name,
            id,
            body: None,
            socket: WebSocketContext::new(Role::Server, Some(config)),
            window: Window::default(),
            rate: Rate::new(now),
            program: 0,
            views: Arc::new([]),
            changes: 0,
            wants: BTreeMap::new(),
            asked: false,
            alive: now,
            pinged: now,
            is_closing: false,
            counted: (0, 0),
        }
    }

    /// Nothing more comes of it than what is in its outbox.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Whether frames are made for it.
    pub(crate) fn is_looking(&self) -> bool {
        self.body.is_some() && !self.is_closing && !self.window.is_paused()
    }

    /// Whether that request is for its body, which it has not got yet.
    pub(crate) fn awaits(&self, name: &str, id: &str) -> bool {
        self.body.is_none() && !self.is_closing && *self.name == *name && trust::equal(&self.id, id)
    }

    /// Tells the viewer its id.
    pub(crate) fn greet(&mut self, out: &mut Outbox) {
        let mut memory = Memory::default();
        let greeting = json!({"type": "viewer", "id": self.id});
        let _ = self.socket.write(&mut memory, Message::text(greeting.to_string()));
        let _ = self.socket.flush(&mut memory);
        out.push_text(memory.output);
    }

    pub(crate) fn wants(&self) -> impl Iterator<Item = &Want> {
        self.wants.values()
    }

    /// When [`handle_timeout`](Viewer::handle_timeout) has something to do.
    pub(crate) fn deadline(&self) -> Duration {
        (self.alive.max(self.pinged) + PING_INTERVAL).min(self.alive + SILENCE_TIMEOUT)
    }

    /// Takes what the viewer said; says whether what it wants to see has changed.
    pub(crate) fn handle_input(&mut self, bytes: &[u8], now: Duration, out: &mut Outbox) -> bool {
        if self.is_closing {
            return false;
        }
        self.alive = now;
        let mut changed = false;
        let mut memory = Memory { input: bytes, output: Vec::new() };
        while !self.is_closing {
            match self.socket.read(&mut memory) {
                Ok(Message::Close(_)) => self.is_closing = true,
                Ok(_) if !self.rate.take(now) => {
                    self.end(CloseCode::Policy, "too many messages", &mut memory)
                }
                Ok(Message::Text(text)) => match ClientMessage::parse(&text) {
                    Ok(message) => changed |= self.handle_message(message),
                    Err(ClientError::Want(_)) => {}
                    Err(e) => self.end(CloseCode::Policy, &e.to_string(), &mut memory),
                },
                Ok(Message::Binary(_)) => self.end(CloseCode::Unsupported, "text is expected", &mut memory),
                Ok(_) => {}
                Err(Error::Io(e)) if e.kind() == ErrorKind::WouldBlock => break,
                Err(Error::Capacity(_)) => self.end(CloseCode::Size, "a message is too long", &mut memory),
                Err(_) => self.end(CloseCode::Protocol, "", &mut memory),
            }
        }
        // Pongs, and the answer to a close.
        let _ = self.socket.flush(&mut memory);
        out.push_text(memory.output);
        // Who pings and does not read what comes back.
        self.is_closing |= out.text_bytes() > MAX_SMALL_BYTES && out.texts() > 4;
        changed || self.is_closing
    }

    fn handle_message(&mut self, message: ClientMessage) -> bool {
        match message {
            ClientMessage::Ack(id) => {
                // There are no more of these than frames were sent, and screens are fast.
                if self.window.handle_ack(id) {
                    self.rate.give_back();
                }
                false
            }
            ClientMessage::Pause => {
                self.window.handle_pause();
                true
            }
            ClientMessage::Play => {
                self.window.handle_play();
                true
            }
            // It may be about the program before, which is nobody's fault.
            ClientMessage::Want(want) if want.check(&self.views).is_err() => false,
            ClientMessage::Want(want) => {
                self.asked = true;
                let new = Some(&want) != self.wants.get(&want.view);
                self.wants.insert(want.view.clone(), want);
                new
            }
        }
    }

    /// The viewer took something of a frame.
    pub(crate) fn handle_progress(&mut self, now: Duration) {
        self.alive = now;
    }

    /// Says `false` when the viewer has been silent for too long.
    pub(crate) fn handle_timeout(&mut self, now: Duration, out: &mut Outbox) -> bool {
        if now >= self.alive + SILENCE_TIMEOUT {
            return false;
        }
        if now >= self.alive.max(self.pinged) + PING_INTERVAL {
            self.pinged = now;
            // What is not taken now would not be taken with a ping behind it.
            if out.texts() == 0 && !self.is_closing {
                let mut memory = Memory::default();
                let _ = self.socket.write(&mut memory, Message::Ping(Default::default()));
                let _ = self.socket.flush(&mut memory);
                out.push_text(memory.output);
            }
        }
        true
    }

    /// The display goes away, or the viewer's body is gone.
    pub(crate) fn handle_end(&mut self, why: &str, out: &mut Outbox) {
        let mut memory = Memory::default();
        self.end(CloseCode::Away, why, &mut memory);
        out.push_text(memory.output);
    }

    fn end(&mut self, code: CloseCode, why: &str, memory: &mut Memory<'_>) {
        if !self.is_closing {
            let _ = self.socket.close(memory, Some(CloseFrame { code, reason: why.to_owned().into() }));
            self.is_closing = true;
        }
    }

    /// Puts into its body what the viewer is to have of its place, as far as it takes it; says whether what
    /// it wants has changed by that.
    pub(crate) fn offer(&mut self, place: &mut Place, out: &mut Outbox) -> bool {
        if self.is_closing {
            return false;
        }
        let mut changed = false;
        if self.program != place.program {
            // One after the other, so that no more than these wait however often programs come and go.
            if out.texts() > 0 {
                return false;
            }
            out.push_text(place.hello.clone());
            out.push_text(place.state_text.clone());
            (self.program, self.changes) = (place.program, place.changes);
            self.views = place.views.clone();
            self.wants.clear();
            self.window.handle_restart();
            changed = true;
        }
        self.offer_newest(place, out);
        // After the last frame, unless the viewer is not through with those before it.
        if self.changes != place.changes && out.texts() == 0 {
            out.push_text(place.state_text.clone());
            self.changes = place.changes;
        }
        changed
    }

    fn offer_newest(&mut self, place: &mut Place, out: &mut Outbox) {
        let Some(newest) = &place.newest else { return };
        let id = |view: &str| self.wants.get(view).and_then(|want| place.wants.id(want));
        if std::mem::take(&mut self.asked) {
            let mut ids = self.wants.keys().filter_map(|view| id(view));
            if ids.any(|want| newest.is_for(want)) {
                self.window.handle_want();
            }
        }
        if out.frames() < MAX_UNACKNOWLEDGED && self.window.wants(newest.id) {
            let pieces = wire::frame(newest, &newest.choose(id));
            place.bytes += pieces.iter().map(|p| p.len() as u64).sum::<u64>();
            out.push_frame(pieces);
            self.window.handle_sent(newest.id);
        }
        let counts = (self.window.shown(), self.window.dropped());
        place.shown += counts.0 - self.counted.0;
        place.dropped += counts.1 - self.counted.1;
        self.counted = counts;
    }

    /// Whether it has had all that its place has for it.
    pub(crate) fn is_caught_up(&self, place: &Place) -> bool {
        let newest = place.newest.as_ref().map_or(0, |newest| newest.id);
        self.window.is_caught_up(newest) && self.changes == place.changes
    }
}

#[cfg(test)]
mod tests;
