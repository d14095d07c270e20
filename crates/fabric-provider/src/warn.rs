//! What goes wrong is said on standard error: MPI's libraries show no more of it than an error number.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Lines that one process says, at most.
const LINES: u32 = 20;

/// Writes warnings and errors as lines.
struct Warnings {
    left: AtomicU32,
}

/// From now on warnings are seen.
pub fn begin() {
    // Only the first time, which is all that is needed.
    let _ = tracing::subscriber::set_global_default(Warnings { left: AtomicU32::new(LINES) });
}

/// An event as a line.
#[derive(Default)]
struct Line {
    says: String,
    of: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.says, "{value:?}"),
            name => write!(self.of, "{}{name} {value:?}", if self.of.is_empty() { ": " } else { ", " }),
        };
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let take = |left: u32| left.checked_sub(1);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        // At once, so that lines of several processes do not mix. There is nobody to tell that it fails.
        let whole = format!("polyduct: process {}: {}{}\n", std::process::id(), line.says, line.of);
        let _ = std::io::stderr().write_all(whole.as_bytes());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
