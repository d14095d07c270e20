//! Handles: numbers that look like pointers to C, and lead to what this table has under them.
//!
//! | bits | |
//! |---|---|
//! | 0 | 1: no pointer to anything of C's is odd |
//! | 1-4 | the kind |
//! | 5-28 | the place in the table |
//! | 29-52 | how often the place was taken before |
//! | 53-62 | which of the processes that were forked from each other made it |
//!
//! A fork has a table of its own: the parent's, which a thread may have been changing, is not touched, and
//! what is in it is never dropped there.

use crate::call::Call;
use crate::channel::Channel;
use crate::code::Code;
use crate::domain::Domain;
use crate::error::Failure;
use crate::layout::Layout;
use crate::listing::Listing;
use crate::mail::Message;
use crate::port::Port;
use crate::region::{Lent, Region};
use polyduct::host::process::own_pid;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A handle, as C has it.
pub type Handle = usize;

const _: () = assert!(size_of::<usize>() == 8, "handles have 64 bits");

/// What handles lead to.
#[derive(Clone)]
pub enum Object {
    Port(Arc<Port>),
    Listing(Arc<Listing>),
    Layout(Arc<Layout>),
    Domain(Arc<Domain>),
    Channel(Arc<Channel>),
    Call(Arc<Call>),
    Region(Arc<Region>),
    Lent(Arc<Lent>),
    Message(Arc<Message>),
}

/// A kind of thing that has handles.
pub trait Kind: Sized {
    /// Its number, from 1.
    const NUMBER: usize;
    /// What errors call it.
    const NAME: &'static str;
    /// As an object.
    fn wrap(this: Arc<Self>) -> Object;
    /// Back.
    fn unwrap(object: &Object) -> Option<&Arc<Self>>;
}

macro_rules! kinds {
    ($($number:literal $kind:ident $name:literal)*) => {
        $(impl Kind for $kind {
            const NUMBER: usize = $number;
            const NAME: &'static str = $name;
            fn wrap(this: Arc<Self>) -> Object {
                Object::$kind(this)
            }
            fn unwrap(object: &Object) -> Option<&Arc<Self>> {
                match object {
                    Object::$kind(this) => Some(this),
                    _ => None,
                }
            }
        })*
        const NAMES: &[(usize, &str)] = &[$(($number, $name)),*];
    };
}

kinds! {
    1 Port "port"
    2 Listing "listing"
    3 Layout "layout"
    4 Domain "domain"
    5 Channel "channel"
    6 Call "call"
    7 Region "region"
    8 Lent "lent memory"
    9 Message "message"
}

const PLACES: usize = 1 << 24;
const TAKEN: usize = 1 << 24;
const EPOCHS: usize = 1 << 10;

fn number(kind: usize, place: usize, taken: usize, epoch: usize) -> Handle {
    1 | kind << 1 | place << 5 | (taken % TAKEN) << 29 | (epoch % EPOCHS) << 53
}

struct Parts {
    kind: usize,
    place: usize,
    taken: usize,
    epoch: usize,
}

fn parts(handle: Handle) -> Option<Parts> {
    let field = |from: u32, bits: u32| handle >> from & ((1 << bits) - 1);
    let is_one = handle & 1 == 1 && handle >> 63 == 0;
    is_one.then(|| Parts {
        kind: field(1, 4),
        place: field(5, 24),
        taken: field(29, 24),
        epoch: field(53, 10),
    })
}

struct Table {
    /// The parent's, for who looks for lost memory alone.
    _parent: Option<&'static Table>,
    pid: u32,
    epoch: usize,
    places: RwLock<Places>,
}

#[derive(Default)]
struct Places {
    all: Vec<(usize, Option<Object>)>,
    free: Vec<usize>,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());

/// The table of this process.
fn table() -> &'static Table {
    let pid = own_pid();
    loop {
        let found = TABLE.load(Ordering::Acquire);
        // SAFETY: a table is never freed once it was published here.
        let old = unsafe { found.as_ref() };
        if let Some(old) = old.filter(|old| old.pid == pid) {
            return old;
        }
        let epoch = old.map_or(1, |old| (old.epoch + 1) % EPOCHS);
        let new = Box::into_raw(Box::new(Table { _parent: old, pid, epoch, places: RwLock::default() }));
        if TABLE.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: it was just made here, and nobody else has seen it.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

/// Makes a handle.
pub fn give<K: Kind>(object: Arc<K>) -> Result<Handle, Failure> {
    let table = table();
    let mut places = table.places.write().unwrap_or_else(PoisonError::into_inner);
    let place = match places.free.pop() {
        Some(place) => place,
        None if places.all.len() < PLACES => {
            places.all.push((0, None));
            places.all.len() - 1
        }
        None => return Err(Failure::misuse(format!("{PLACES} handles are open: none was closed"))),
    };
    let taken = places.all[place].0;
    places.all[place].1 = Some(K::wrap(object));
    Ok(number(K::NUMBER, place, taken, table.epoch))
}

/// Where a handle leads, if it is one of this kind, and of this process.
fn check<K: Kind>(handle: Handle) -> Result<(&'static Table, Parts), Failure> {
    let name = K::NAME;
    if handle == 0 {
        return Err(Failure::misuse(format!("the {name} is NULL")));
    }
    let known = parts(handle).and_then(|parts| {
        let kind = NAMES.iter().find(|(kind, _)| *kind == parts.kind)?.1;
        Some((parts, kind))
    });
    let Some((parts, kind)) = known else {
        return Err(Failure::misuse(format!("what was given for a {name} is no handle of polyduct's")));
    };
    if parts.kind != K::NUMBER {
        return Err(Failure::misuse(format!("a {kind} was given; expected a {name}")));
    }
    let table = table();
    if parts.epoch != table.epoch {
        let text = format!("a {name} cannot be used in a fork of the process that opened it");
        return Err(Failure::misuse(text));
    }
    Ok((table, parts))
}

fn closed<K: Kind>() -> Failure {
    Failure::Own(Code::CLOSED, format!("the {} was closed", K::NAME), Vec::new())
}

/// What a handle leads to.
pub fn get<K: Kind>(handle: Handle) -> Result<Arc<K>, Failure> {
    let (table, parts) = check::<K>(handle)?;
    let places = table.places.read().unwrap_or_else(PoisonError::into_inner);
    match places.all.get(parts.place) {
        Some((taken, Some(object))) if taken % TAKEN == parts.taken => {
            K::unwrap(object).cloned().ok_or_else(closed::<K>)
        }
        _ => Err(closed::<K>()),
    }
}

/// The same, and the handle leads nowhere from now on.
pub fn take<K: Kind>(handle: Handle) -> Result<Arc<K>, Failure> {
    let (table, parts) = check::<K>(handle)?;
    let mut places = table.places.write().unwrap_or_else(PoisonError::into_inner);
    let found = match places.all.get_mut(parts.place) {
        Some((taken, object)) if *taken % TAKEN == parts.taken => object.take().inspect(|_| *taken += 1),
        _ => None,
    };
    let object = found.ok_or_else(closed::<K>)?;
    places.free.push(parts.place);
    K::unwrap(&object).cloned().ok_or_else(closed::<K>)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::border;
    use crate::error::polyduct_error_code;

    fn code(failure: Failure) -> i32 {
        border::call(|| Err(failure));
        polyduct_error_code()
    }

    #[test]
    fn a_handle_leads_to_its_own_until_it_is_taken() {
        let message = || Arc::new(Message::of(vec![1, 2, 3], None));
        let first = give(message()).unwrap();
        let second = give(message()).unwrap();
        assert!(first != second && get::<Message>(first).is_ok());
        assert!(take::<Message>(first).is_ok());
        assert_eq!(get::<Message>(first).err().map(code), Some(Code::CLOSED.0));
        assert_eq!(take::<Message>(first).err().map(code), Some(Code::CLOSED.0));
        // The place is taken again, and the old handle stays closed.
        let third = give(message()).unwrap();
        assert!(get::<Message>(third).is_ok() && get::<Message>(first).is_err());
        for wrong in [0, 2, usize::MAX, &first as *const _ as usize, first | 0x1e] {
            assert_eq!(get::<Message>(wrong).err().map(code), Some(Code::MISUSE.0), "{wrong:x}");
        }
        assert_eq!(get::<Port>(second).err().map(code), Some(Code::MISUSE.0), "of another kind");
        assert_eq!(get::<Message>(second ^ 1 << 53).err().map(code), Some(Code::MISUSE.0), "of a parent");
        take::<Message>(second).and(take::<Message>(third)).unwrap();
    }
}
