//! One connection: a socket, what it is at, and what waits to be written.

use crate::answer::Answer;
use crate::draw::Form;
use crate::head::{self, HeadError, Request};
use crate::limits::{ANSWER_TIMEOUT, HEAD_TIMEOUT, LINGER, MAX_HEAD_BYTES};
use crate::outbox::{Outbox, Written};
use crate::viewer::Viewer;
use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// A connection's place, and its [serial number](Connection::serial).
pub(crate) type Ticket = (usize, u64);

/// What a connection is at.
pub(crate) enum Phase {
    /// The head of its request comes.
    Head { bytes: Vec<u8>, until: Duration },
    /// The answer is being made.
    Drawing { head_only: bool, until: Duration },
    /// A view as it is comes with the program's next step.
    Awaiting { name: String, view: String, head_only: bool, until: Duration },
    /// The answer goes out.
    Answering { until: Duration },
    /// All is written; the other side reads the rest and closes.
    Lingering { until: Duration },
    /// It is a websocket, by which a viewer says what it wants.
    Viewing(Box<Viewer>),
    /// What is shown to the viewer of that websocket goes out.
    Showing { viewer: Ticket },
}

pub(crate) struct Connection {
    stream: TcpStream,
    /// Tells it from others that had its place before.
    pub(crate) serial: u64,
    pub(crate) phase: Phase,
    pub(crate) out: Outbox,
}

/// What a turn of reading brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// Nothing to act upon.
    Nothing,
    /// What the viewer wants to see has changed.
    Wants,
    /// A request, and what came behind its head.
    Request(Box<Request>, Vec<u8>),
    /// A request that is answered with why it is none.
    Refused(HeadError),
    /// The other side is gone.
    End,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, serial: u64, now: Duration) -> Connection {
        let phase = Phase::Head { bytes: Vec::new(), until: now + HEAD_TIMEOUT };
        Connection { stream, serial, phase, out: Outbox::default() }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn viewer(&self) -> Option<&Viewer> {
        match &self.phase {
            Phase::Viewing(viewer) => Some(viewer),
            _ => None,
        }
    }

    /// When [`handle_timeout`](Connection::handle_timeout) has something to do.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Head { until, .. } | Phase::Drawing { until, .. } | Phase::Awaiting { until, .. } => {
                Some(*until)
            }
            Phase::Answering { until } | Phase::Lingering { until } => Some(*until),
            Phase::Viewing(viewer) => Some(viewer.deadline()),
            Phase::Showing { .. } => None,
        }
    }

    /// Says `false` when the connection is to be given up.
    pub(crate) fn handle_timeout(&mut self, now: Duration) -> bool {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return true;
        }
        match &mut self.phase {
            Phase::Head { .. } => {
                self.answer(Answer::text(408, "the request did not come to its end in time"), false, now);
                true
            }
            Phase::Awaiting { head_only, .. } => {
                let head_only = *head_only;
                self.answer(Answer::text(504, "the program has made no step in time"), head_only, now);
                true
            }
            Phase::Viewing(viewer) => viewer.handle_timeout(now, &mut self.out),
            _ => false,
        }
    }

    /// Puts an answer out.
    pub(crate) fn answer(&mut self, answer: Answer, head_only: bool, now: Duration) {
        self.out.push_frame(answer.pieces(head_only));
        self.finish(now);
    }

    /// Nothing more is put out.
    pub(crate) fn finish(&mut self, now: Duration) {
        self.phase = Phase::Answering { until: now + ANSWER_TIMEOUT };
    }

    /// The drawn answer has come.
    pub(crate) fn handle_drawn(&mut self, form: Form, bytes: bytes::Bytes, now: Duration) {
        if let Phase::Drawing { head_only, .. } = self.phase {
            let answer = match form {
                Form::Png => Answer::png(bytes),
                Form::Npy | Form::Json => Answer::json(bytes),
            };
            self.answer(answer, head_only, now);
        }
    }

    /// Reads once what there is, as far as `scratch` has room.
    pub(crate) fn read(&mut self, scratch: &mut [u8], now: Duration) -> Came {
        let read = loop {
            match self.stream.read(scratch) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let came = match read {
            Ok(0) => return Came::End,
            Ok(n) => &scratch[..n],
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Came::Nothing,
            Err(_) => return Came::End,
        };
        match &mut self.phase {
            Phase::Head { bytes, .. } => {
                // The end is looked for where it can be; a byte at a time costs no more than all at once.
                let before = bytes.len().saturating_sub(3);
                bytes.extend_from_slice(came);
                let may_end = bytes[before..].windows(2).any(|w| w == b"\n\n" || w == b"\n\r");
                // What is no HTTP is told at its first bytes.
                if !may_end && before > 0 && bytes.len() < MAX_HEAD_BYTES {
                    return Came::Nothing;
                }
                match head::parse(bytes) {
                    Ok(None) => Came::Nothing,
                    Ok(Some((request, len))) => Came::Request(Box::new(request), bytes.split_off(len)),
                    Err(e) => Came::Refused(e),
                }
            }
            Phase::Viewing(viewer) => match viewer.handle_input(came, now, &mut self.out) {
                true => Came::Wants,
                false => Came::Nothing,
            },
            // Whatever it says, it is not listened to.
            Phase::Drawing { .. }
            | Phase::Awaiting { .. }
            | Phase::Answering { .. }
            | Phase::Lingering { .. }
            | Phase::Showing { .. } => Came::Nothing,
        }
    }

    /// Writes what the other side takes; returns how much.
    ///
    /// # Errors
    /// Those of the socket: the connection is of no more use.
    pub(crate) fn write(&mut self, now: Duration) -> io::Result<Written> {
        let written = self.out.write_to(&mut self.stream)?;
        if let (Phase::Answering { until }, true) = (&mut self.phase, written.bytes > 0) {
            *until = now + ANSWER_TIMEOUT;
        }
        let is_last = match &self.phase {
            Phase::Answering { .. } => true,
            Phase::Viewing(viewer) => viewer.is_closing(),
            _ => false,
        };
        if is_last && self.out.is_empty() {
            // Closing at once would take away what the other side has not read yet.
            self.stream.shutdown(Shutdown::Write)?;
            self.phase = Phase::Lingering { until: now + LINGER };
        }
        Ok(written)
    }
}
