//! What programs show, between the threads that publish and the one that serves.

use crate::frame::{check_name, check_views, Frame, ViewInfo};
use crate::limits::MAX_NAMES;
use crate::wants::WantTable;
use crate::wire::{self, Published, State};
use crate::DisplayError;
use bytes::Bytes;
use polyduct_os::poll::EventFd;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Everything that is shown.
#[derive(Debug)]
pub(crate) struct Hub {
    places: Mutex<Places>,
    /// Readable when the server has something to look for.
    pub(crate) wake: EventFd,
}

#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) all: BTreeMap<Arc<str>, Place>,
    /// The last handle is gone.
    pub(crate) is_over: bool,
    /// Connections at the moment, and those that found no room.
    pub(crate) connections: usize,
    pub(crate) refused: u64,
    programs: u64,
}

/// A name, and what the newest program of that name shows.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) views: Arc<[ViewInfo]>,
    /// Which program, counted over all of this display; pages are told when it is another.
    pub(crate) program: u64,
    pub(crate) state: State,
    /// How often it changed.
    pub(crate) changes: u64,
    /// What else viewers are to know of it, and what colours are to mean there, by the part of the page.
    note: String,
    look: Map<String, Value>,
    pub(crate) hello: Bytes,
    pub(crate) state_text: Bytes,
    pub(crate) newest: Option<Arc<Published>>,
    /// Frames that were published, by all programs of this name.
    pub(crate) frames: u64,
    pub(crate) wants: WantTable,
    changed: Arc<EventFd>,
    /// Viewers, paused ones too, and what they have had.
    pub(crate) viewers: usize,
    pub(crate) shown: u64,
    pub(crate) dropped: u64,
    pub(crate) bytes: u64,
}

impl Place {
    fn tell(&mut self, state: State) {
        self.state = state;
        self.say();
    }

    fn say(&mut self) {
        self.state_text = wire::state(&self.state, &self.note, &self.look);
        self.changes += 1;
    }

    /// Tells the program that what is wanted has changed.
    pub(crate) fn signal_changed(&self) {
        if let Err(e) = self.changed.signal() {
            tracing::warn!("a program is not told what viewers want: {e}");
        }
    }
}

impl Hub {
    pub(crate) fn new() -> Result<Hub, DisplayError> {
        Ok(Hub { places: Mutex::default(), wake: EventFd::new()? })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the server.
    pub(crate) fn signal(&self) {
        if let Err(e) = self.wake.signal() {
            tracing::warn!("the display's server is not woken: {e}");
        }
    }

    /// Gives a program its place; returns its number, and what is readable when wants change.
    pub(crate) fn enter(
        &self,
        name: &str,
        mut views: Vec<ViewInfo>,
    ) -> Result<(u64, Arc<EventFd>), DisplayError> {
        check_name(name)?;
        check_views(name, &mut views)?;
        let changed = Arc::new(EventFd::new()?);
        let hello = wire::hello(name, &views);
        let mut places = self.lock();
        let place = places.all.get(name);
        if place.is_some_and(|p| p.state == State::Running) {
            return Err(DisplayError::NameTaken { name: name.into() });
        }
        let is_new = place.is_none();
        if is_new && places.all.len() >= MAX_NAMES && !places.make_room() {
            return Err(DisplayError::TooManyNames { name: name.into(), limit: MAX_NAMES });
        }
        places.programs += 1;
        let program = places.programs;
        // Frames go on counting, so that none of the new program passes for one of the old.
        let old = places.all.remove(name);
        let keep = |count: fn(&Place) -> u64| old.as_ref().map_or(0, count);
        let mut place = Place {
            views: views.into(),
            program,
            state: State::Running,
            changes: keep(|p| p.changes),
            note: String::new(),
            look: old.as_ref().map(|p| p.look.clone()).unwrap_or_default(),
            hello,
            state_text: Bytes::new(),
            newest: None,
            frames: keep(|p| p.frames),
            wants: WantTable::default(),
            changed: changed.clone(),
            viewers: keep(|p| p.viewers as u64) as usize,
            shown: keep(|p| p.shown),
            dropped: keep(|p| p.dropped),
            bytes: keep(|p| p.bytes),
        };
        place.tell(State::Running);
        places.all.insert(name.into(), place);
        drop(places);
        self.signal();
        Ok((program, changed))
    }

    /// Takes a frame of a program.
    pub(crate) fn publish(&self, name: &str, program: u64, frame: Frame) -> Result<(), DisplayError> {
        let views = match self.lock().all.get(name) {
            Some(place) if place.program == program => place.views.clone(),
            _ => return Ok(()),
        };
        frame.check(name, &views)?;
        // Its number is known only under the lock, under which nothing long is done.
        let mut published = Published::new(0, frame);
        let mut places = self.lock();
        let old = match places.all.get_mut(name) {
            Some(place) if place.program == program => {
                place.frames += 1;
                published.id = place.frames;
                place.newest.replace(Arc::new(published))
            }
            _ => None,
        };
        drop(places);
        // It may be the last handle of much memory.
        drop(old);
        self.signal();
        Ok(())
    }

    /// Something that viewers are to know of a program.
    pub(crate) fn note(&self, name: &str, program: u64, what: &str) {
        let mut places = self.lock();
        let place = places.all.get_mut(name);
        if let Some(place) = place.filter(|p| p.program == program && p.state == State::Running) {
            what.clone_into(&mut place.note);
            place.say();
        }
        drop(places);
        self.signal();
    }

    /// What colours are to mean from now on, in a part of a page; whether there is such a page.
    pub(crate) fn look(&self, name: &str, part: &str, look: Map<String, Value>) -> bool {
        let mut places = self.lock();
        let Some(place) = places.all.get_mut(name) else { return false };
        match place.look.get_mut(part) {
            Some(Value::Object(before)) => before.extend(look),
            _ => drop(place.look.insert(part.to_owned(), look.into())),
        }
        place.say();
        drop(places);
        self.signal();
        true
    }

    /// A program is gone. What it says after that counts no more.
    pub(crate) fn leave(&self, name: &str, program: u64, state: State) {
        let mut places = self.lock();
        if let Some(place) =
            places.all.get_mut(name).filter(|p| p.program == program && p.state == State::Running)
        {
            place.tell(state);
        }
        drop(places);
        self.signal();
    }
}

impl Places {
    /// Forgets the oldest program that has ended and that nobody looks at.
    fn make_room(&mut self) -> bool {
        let ended = self.all.iter().filter(|(_, p)| p.state != State::Running && p.viewers == 0);
        let oldest = ended.min_by_key(|(_, p)| p.program).map(|(name, _)| name.clone());
        oldest.is_some_and(|name| self.all.remove(&name).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_layout::ElemType;

    fn views() -> Vec<ViewInfo> {
        vec![ViewInfo { name: "u".into(), shape: vec![2], elem: ElemType::U8, owners: None }]
    }

    #[test]
    fn the_oldest_that_ended_makes_room_and_who_lives_does_not() {
        let hub = Hub::new().unwrap();
        let first: Vec<u64> = (0..MAX_NAMES).map(|n| hub.enter(&n.to_string(), views()).unwrap().0).collect();
        let full = hub.enter("more", views()).unwrap_err();
        assert!(matches!(full, DisplayError::TooManyNames { limit: MAX_NAMES, .. }), "{full}");
        assert!(matches!(hub.enter("7", views()), Err(DisplayError::NameTaken { .. })));
        for n in [9, 4, 6] {
            hub.leave(&n.to_string(), first[n], State::Ended);
        }
        hub.lock().all.get_mut("4").unwrap().viewers = 1;
        hub.enter("more", views()).unwrap();
        let places = hub.lock();
        let is_there = ["4", "6", "9", "more"].map(|name| places.all.contains_key(name));
        assert_eq!((places.all.len(), is_there), (MAX_NAMES, [true, false, true, true]));
    }

    #[test]
    fn what_a_replaced_program_still_says_counts_no_more() {
        let hub = Hub::new().unwrap();
        let frame = || Frame {
            step: 1,
            time: std::time::UNIX_EPOCH,
            values: Default::default(),
            views: vec![],
            exact: Vec::new(),
        };
        let (old, _) = hub.enter("a", views()).unwrap();
        hub.publish("a", old, frame()).unwrap();
        hub.leave("a", old, State::Lost("killed".into()));
        let (new, _) = hub.enter("a", views()).unwrap();
        hub.publish("a", old, frame()).unwrap();
        hub.leave("a", old, State::Ended);
        assert!(hub.lock().all["a"].newest.is_none());
        hub.publish("a", new, frame()).unwrap();
        let places = hub.lock();
        let place = &places.all["a"];
        assert_eq!((place.newest.as_ref().map(|n| n.id), &place.state), (Some(2), &State::Running));
    }
}
