//! Memory of slots for arrays whose size changes: as much as their steps take, and a little longer than that.

use crate::wire::Array;
use polyduct_os::segment::Segment;
use polyduct_os::OsError;
use polyduct_port::Places;
use std::ops::Range;

/// After so many steps in a slot memory goes that none of them took, if it is at least that much and half of
/// what there is: sizes that go up and down do not have memory come and go with each step.
const STEPS: u32 = 16;
const LEAST: usize = 64 << 10;

/// What of a writer unit's slots has memory, beside what always has.
pub(crate) struct Rooms {
    /// Where the arrays may lie in a slot whose size changes.
    arrays: Vec<Range<usize>>,
    /// The room of each in each slot.
    slots: Vec<Vec<Room>>,
}

/// What an array has of its place in a slot, from the start of it.
#[derive(Clone, Copy)]
struct Room {
    /// Bytes that surely have memory.
    held: usize,
    /// No memory lies beyond.
    end: usize,
    /// The most that one of the last `steps` steps took.
    most: usize,
    steps: u32,
}

impl Rooms {
    /// Of slots that may have memory anywhere, as those of a unit that this one replaces.
    pub fn new(arrays: &[Array], places: &Places, depth: u32) -> Rooms {
        let changing = arrays.iter().zip(&places.at).filter(|(array, _)| array.open.is_some());
        let arrays: Vec<_> = changing.map(|(_, at)| at.clone()).collect();
        let room = |at: &Range<usize>| Room { held: 0, end: at.len(), most: 0, steps: 0 };
        let rooms: Vec<_> = arrays.iter().map(room).collect();
        Rooms { slots: vec![rooms; depth as usize], arrays }
    }

    /// Has memory for so many bytes of each of the arrays in a slot, which begins at `base` of the segment.
    /// Where a step `begins` there, nothing of it is there yet, and memory goes that has not been used for long.
    ///
    /// # Errors
    /// [`OsError::NoMemory`]: what was there stays.
    pub fn make(
        &mut self,
        (segment, base): (&Segment, usize),
        slot: u32,
        used: &[usize],
        begins: bool,
    ) -> Result<(), OsError> {
        let Some(rooms) = self.slots.get_mut(slot as usize) else { return Ok(()) };
        for ((room, at), &used) in rooms.iter_mut().zip(&self.arrays).zip(used) {
            let (start, used) = (base + at.start, used.min(at.len()));
            if begins {
                let unused = room.unused();
                // Where the system refuses that, the memory stays.
                if !unused.is_empty() && segment.release(start + unused.start..start + unused.end).is_ok() {
                    room.end = unused.start;
                }
            }
            room.most = room.most.max(used);
            if room.held < used {
                // A little more, so that what grows step by step does not ask the system in each.
                let held = used.max(room.held + room.held / 8).min(at.len());
                room.end = room.end.max(held);
                segment.reserve(start + room.held..start + held)?;
                room.held = held;
            }
        }
        Ok(())
    }
}

impl Room {
    /// A step begins: what none of the last ones took, where that is much.
    fn unused(&mut self) -> Range<usize> {
        let Room { end, most, steps, .. } = *self;
        self.steps += 1;
        if steps < STEPS {
            return end..end;
        }
        (self.most, self.steps) = (0, 1);
        if end < most + LEAST.max(end / 2) {
            return end..end;
        }
        self.held = self.held.min(most);
        most..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::VALUES;
    use polyduct_port::Changes;
    use std::slice::from_ref;

    fn array(name: &str, open: Option<Changes>) -> Array {
        let (elem, layout) = ("u8".into(), "*".into());
        Array { name: name.into(), shape: vec![1 << 20], elem, layout, open }
    }

    fn held(segment: &Segment) -> usize {
        segment.held_bytes().unwrap() as usize
    }

    fn rooms() -> (Rooms, Segment) {
        let open = Some(Changes::Dim(0));
        let arrays = [array("a", open), array("b", None), array(VALUES, open)];
        let places = Places::of([1 << 20; 3].into_iter(), &[0, 2]).unwrap();
        assert_eq!((places.at[0].start, places.fixed), (1 << 20, 1 << 20));
        let segment = Segment::create_partly("rooms", 2 * places.len, from_ref(&(0..4096))).unwrap();
        (Rooms::new(&arrays, &places, 2), segment)
    }

    #[test]
    fn there_is_as_much_memory_as_steps_take_and_content_stays() {
        let (mut rooms, mut segment) = rooms();
        rooms.make((&segment, 0), 0, &[0, 0], true).unwrap();
        assert_eq!(held(&segment), 4096);
        rooms.make((&segment, 0), 0, &[4096, 1], true).unwrap();
        assert_eq!(held(&segment), 3 * 4096);
        segment.slice_mut((1 << 20)..(1 << 20) + 4096).unwrap().fill(7);
        rooms.make((&segment, 0), 0, &[1 << 20, 1], false).unwrap();
        assert_eq!(held(&segment), 2 * 4096 + (1 << 20));
        assert!(segment.slice((1 << 20)..(1 << 20) + 4096).unwrap().iter().all(|&byte| byte == 7));
        rooms.make((&segment, 3 << 20), 1, &[1, 0], true).unwrap();
        assert_eq!(held(&segment), 3 * 4096 + (1 << 20));
        rooms.make((&segment, 0), 2, &[1 << 20, 0], true).unwrap();
        assert_eq!(held(&segment), 3 * 4096 + (1 << 20), "no such slot");
    }

    #[test]
    fn what_many_steps_do_not_take_goes_and_comes_again() {
        let (mut rooms, segment) = rooms();
        rooms.make((&segment, 0), 0, &[1 << 20, 0], true).unwrap();
        let mut sizes = Vec::new();
        for _ in 0..2 * STEPS {
            rooms.make((&segment, 0), 0, &[10_000, 0], true).unwrap();
            sizes.push(held(&segment));
        }
        // The large step is one of the first ones, which it keeps the memory for.
        assert_eq!(sizes[STEPS as usize - 1], 4096 + (1 << 20));
        assert_eq!(*sizes.last().unwrap(), 4096 + 3 * 4096);
        rooms.make((&segment, 0), 0, &[1 << 20, 0], true).unwrap();
        assert_eq!(held(&segment), 4096 + (1 << 20));
    }

    #[test]
    fn sizes_that_go_up_and_down_keep_their_memory() {
        let (mut rooms, segment) = rooms();
        for step in 0..100 {
            let used = if step % 8 == 0 { 1 << 20 } else { 100 };
            rooms.make((&segment, 0), 0, &[used, 0], true).unwrap();
            assert_eq!(held(&segment), 4096 + (1 << 20));
        }
    }

    #[test]
    fn memory_that_another_left_is_kept_until_it_is_not_needed() {
        let (mut rooms, segment) = rooms();
        segment.reserve(1 << 20..2 << 20).unwrap();
        for _ in 0..STEPS {
            rooms.make((&segment, 0), 0, &[100, 0], true).unwrap();
            assert_eq!(held(&segment), 4096 + (1 << 20));
        }
        rooms.make((&segment, 0), 0, &[100, 0], true).unwrap();
        assert_eq!(held(&segment), 2 * 4096);
    }
}
