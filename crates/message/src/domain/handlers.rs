//! The handlers of a unit: what it has installed, and what the domain has agreed on.

use super::call::Parcel;
use super::directory::{Directory, HandlerError, Installed, Kind, Offered};
use super::dispatch::{Context, Message};
use super::peer::lock;
use super::Domain;
use crate::types::{Address, HandlerId};
use crate::MessageError;
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};

/// A function that gets messages.
type Receiver = dyn Fn(&Context<'_>, Message<'_>) + Send + Sync;
/// A function that others can call.
type Function = dyn Fn(&Context<'_>, [u32; 2], &[u8]) -> Result<Parcel, String> + Send + Sync;

/// What a name stands for in this unit.
#[derive(Clone)]
pub(super) enum Handler {
    /// Gets messages.
    Message(Arc<Receiver>),
    /// Gets calls.
    Call(Arc<Function>),
}

/// The handlers by number, as those who deliver see them.
pub(super) type Table = Arc<Installed<Handler>>;

/// What this unit has installed, and the directory of the whole domain.
#[derive(Default)]
pub(super) struct Handlers {
    installed: Mutex<Table>,
    directory: Mutex<Directory>,
}

impl Handlers {
    fn install(&self, name: &str, version: u32, kind: Kind, handler: Handler) -> Result<(), MessageError> {
        // A copy of its own only where somebody delivers by the last.
        Ok(Arc::make_mut(&mut lock(&self.installed)).install(name, version, kind, handler)?)
    }

    /// What this unit brings to a synchronise.
    pub fn offer(&self) -> Vec<Offered> {
        lock(&self.installed).offer()
    }

    /// The next directory, by what all units offer.
    pub fn merge(&self, offers: &[Vec<Offered>]) -> Result<Directory, HandlerError> {
        lock(&self.directory).merge(offers)
    }

    /// All units have agreed on a directory: its numbers count from now on.
    pub fn adopt(&self, directory: Directory) {
        Arc::make_mut(&mut lock(&self.installed)).number(&directory);
        *lock(&self.directory) = directory;
    }

    /// The handlers as they are now.
    pub fn table(&self) -> Table {
        lock(&self.installed).clone()
    }

    /// The number of what a name stands for at a unit.
    pub fn lookup(&self, name: &str, unit: Address, kind: Kind) -> Result<HandlerId, HandlerError> {
        lock(&self.directory).lookup(name, unit, kind)
    }

    /// A handler by its number. It may have become known since this thread began to look at `known`, and the
    /// sender may know that: it is kept in `late` then.
    #[inline]
    pub fn find<'a>(
        &self,
        id: HandlerId,
        known: &'a Table,
        late: &'a mut Option<Handler>,
    ) -> Option<&'a Handler> {
        known.get(id).or_else(|| {
            *late = lock(&self.installed).get(id).cloned();
            late.as_ref()
        })
    }
}

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside a handler: it cannot wait for what it would itself have to receive.
pub(super) fn in_handler() -> bool {
    IN_HANDLER.get()
}

/// Runs a handler. A panic of it, which has been reported by then, ends here: whoever receives goes on, and
/// so does the link. `Err` has the panic's words.
pub(super) fn inside<T>(handler: impl FnOnce() -> T) -> Result<T, String> {
    let was_inside = IN_HANDLER.replace(true);
    let done = catch_unwind(AssertUnwindSafe(handler));
    IN_HANDLER.set(was_inside);
    done.map_err(|cause| {
        let text = cause.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| cause.downcast_ref::<String>().cloned());
        format!("it panicked: {}", text.as_deref().unwrap_or("without words"))
    })
}

impl Domain {
    /// Installs a handler for messages. The others know it after the next
    /// [`synchronise`](Domain::synchronise).
    ///
    /// It runs in the thread that polls, and must not wait: [`Context`] sends without waiting.
    ///
    /// # Errors
    /// [`MessageError::Handler`]: the name is taken, or cannot be one.
    pub fn handler(
        &self,
        name: &str,
        version: u32,
        handler: impl Fn(&Context<'_>, Message<'_>) + Send + Sync + 'static,
    ) -> Result<(), MessageError> {
        self.inner.handlers.install(name, version, Kind::Messages, Handler::Message(Arc::new(handler)))
    }

    /// Installs a function that others can [`call`](Domain::call): it gets the argument and gives the result,
    /// or says in words why there is none.
    ///
    /// # Errors
    /// As [`handler`](Domain::handler).
    pub fn function(
        &self,
        name: &str,
        version: u32,
        function: impl Fn(&Context<'_>, &[u8]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Result<(), MessageError> {
        self.function_of_parcels(name, version, move |context, _, argument| {
            function(context, argument).map(Parcel::from)
        })
    }

    /// The same for a function that also gets the two words that came with the argument, and gives two with
    /// the result.
    ///
    /// # Errors
    /// As [`handler`](Domain::handler).
    pub fn function_of_parcels(
        &self,
        name: &str,
        version: u32,
        function: impl Fn(&Context<'_>, [u32; 2], &[u8]) -> Result<Parcel, String> + Send + Sync + 'static,
    ) -> Result<(), MessageError> {
        self.inner.handlers.install(name, version, Kind::Calls, Handler::Call(Arc::new(function)))
    }

    /// The number of a handler at a unit, for [`Channel::short`](super::Channel::short) and its like.
    ///
    /// # Errors
    /// [`MessageError::Handler`]: nobody has it, or that unit does not, or it is a function, to be
    /// [called](Domain::call).
    pub fn lookup(&self, name: &str, unit: Address) -> Result<HandlerId, MessageError> {
        Ok(self.inner.handlers.lookup(name, unit, Kind::Messages)?)
    }

    /// Whether the caller is a handler, or was called by one.
    pub fn in_handler() -> bool {
        in_handler()
    }
}
