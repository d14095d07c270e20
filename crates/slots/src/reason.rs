//! Why a unit gave up, in its own words, beside the fault that says so.
//!
//! The words of one unit alone are written for each fault word: of the first that gives up and says why. It
//! claims the place, writes, and then records its fault with a mark that the words are its own, so that who
//! finds the mark finds them whole. Units that come meanwhile leave the fault to it: should it be killed
//! before it has recorded one, its death is one. A fault without words waits for nobody.

use super::fault::Fault;
use super::geometry::{REASON_LINES, WORDS};
use super::{Slots, CLAIMED, FAULT};
use polyduct_os::sync::{Line, Ordering};

/// The most bytes that are kept of a reason, in UTF-8: the rest is cut off.
pub const MAX_REASON: usize = (REASON_LINES * WORDS - 1) * 8;

/// As much of a reason as is kept.
pub fn cut(reason: &str) -> &str {
    let mut len = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(len) {
        len -= 1;
    }
    &reason[..len]
}

impl Slots {
    /// Writes why a unit gives up, and returns whether its fault gets the mark; `None` where another unit is
    /// about to record its own. Of which [place](super::geometry::Geometry::fault) the fault is, is said.
    pub(super) fn say_why(&self, place: Option<u32>, reason: &str) -> Option<bool> {
        let words = &self.line(self.geometry.fault(place)).w;
        if reason.is_empty() || words[FAULT].load(Ordering::Acquire) != 0 {
            return Some(false);
        }
        if words[CLAIMED].swap(1, Ordering::AcqRel) != 0 {
            return None;
        }
        let bytes = cut(reason).as_bytes();
        let words = bytes.chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        });
        for (n, word) in std::iter::once(bytes.len() as u64).chain(words).enumerate() {
            self.reason_lines(place)[n / WORDS].w[n % WORDS].store(word, Ordering::Relaxed);
        }
        Some(true)
    }

    /// Why a unit gave up whose fault this is; empty where it did not say, or nothing that can be said.
    pub(super) fn reason_of(&self, fault: Fault) -> Box<str> {
        let says_why = |place: &Option<u32>| {
            let word = self.line(self.geometry.fault(*place)).w[FAULT].load(Ordering::Acquire);
            fault.says_why(word)
        };
        let place = [None, self.fault_place(fault.unit().side)].into_iter().find(says_why);
        place.and_then(|place| self.read_reason(place)).unwrap_or_default()
    }

    fn read_reason(&self, place: Option<u32>) -> Option<Box<str>> {
        let lines = self.reason_lines(place);
        let mut words = lines.iter().flat_map(|line| &line.w).map(|word| word.load(Ordering::Relaxed));
        let len = words.next().filter(|&len| len <= MAX_REASON as u64)? as usize;
        let mut bytes: Vec<u8> = words.take(len.div_ceil(8)).flat_map(u64::to_le_bytes).collect();
        bytes.truncate(len);
        String::from_utf8(bytes).ok().map(String::into_boxed_str)
    }

    fn reason_lines(&self, place: Option<u32>) -> &[Line] {
        &self.lines()[self.geometry.reason(place)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::geometry::Sizes;
    use super::super::Stop;
    use super::*;
    use polyduct_port::{Policy, Side, UnitName};
    use std::sync::Barrier;

    fn writer(unit: u32) -> UnitName {
        UnitName { side: Side::Writer, unit }
    }

    fn pipe(writers: u32, readers: &[u32], policy: Policy) -> Slots {
        Slots::on_heap(Sizes { writers, readers: readers.to_vec(), depth: 1, policy, words: 0 })
    }

    /// What the units are told of whoever gave up.
    fn told(slots: &Slots) -> (UnitName, String) {
        match slots.fault().map(|fault| slots.stop(fault)) {
            Some(Stop::Aborted { unit, reason }) => (unit, reason.into()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_reason_is_kept_as_it_is_and_one_that_is_too_long_up_to_a_whole_character() {
        let long = "x".repeat(MAX_REASON);
        let wide = format!("{}ä", "x".repeat(MAX_REASON - 1));
        let cases = [
            ("", ""),
            ("x", "x"),
            ("12345678", "12345678"),
            ("größer als ein Wort, und mit Umlauten", "größer als ein Wort, und mit Umlauten"),
            (&long, &long),
            (&format!("{long}y"), &long),
            (&wide, &wide[..MAX_REASON - 1]),
        ];
        for (said, kept) in cases {
            let slots = pipe(2, &[1], Policy::Block);
            slots.give_up(writer(1), said);
            assert_eq!(told(&slots), (writer(1), kept.to_owned()), "{} bytes", said.len());
            let heard = slots.poll_next(0, 0, 0).unwrap_err();
            assert_eq!(heard, Stop::Aborted { unit: writer(1), reason: kept.into() });
            assert_eq!(slots.poll_begin(0, 0).unwrap_err(), heard);
        }
    }

    #[test]
    fn words_that_cannot_be_are_none() {
        let cases: [(u64, u64); 4] = [
            (MAX_REASON as u64 + 1, u64::from_le_bytes(*b"too much")),
            (u64::MAX, u64::from_le_bytes(*b"too much")),
            (8, u64::MAX),
            // The first half of a character.
            (1, 0xc3),
        ];
        for (len, word) in cases {
            let slots = pipe(1, &[1], Policy::Block);
            slots.give_up(writer(0), "it was so");
            let lines = slots.reason_lines(None);
            lines[0].w[0].store(len, Ordering::Relaxed);
            lines[0].w[1].store(word, Ordering::Relaxed);
            assert_eq!(told(&slots), (writer(0), String::new()), "{len} {word:x}");
        }
        // A fault of a reader program that there is not, with a mark.
        let slots = pipe(1, &[], Policy::Latest);
        slots.line(slots.geometry.fault(None)).w[FAULT]
            .store(2 << 62 | 0x1f << 56 | 1 << 48, Ordering::Relaxed);
        assert_eq!(told(&slots).1, "");
    }

    #[test]
    fn of_several_that_give_up_at_once_one_is_heard_whole() {
        let said = |unit: u32| format!("unit {unit} says {}", unit.to_string().repeat(400));
        for round in 0..200 {
            let slots = pipe(4, &[1], Policy::Block);
            let start = Barrier::new(4);
            std::thread::scope(|scope| {
                for unit in 0..4 {
                    let (slots, start) = (&slots, &start);
                    scope.spawn(move || {
                        start.wait();
                        slots.give_up(writer(unit), &said(unit));
                    });
                }
            });
            let (unit, reason) = told(&slots);
            assert_eq!(reason, cut(&said(unit.unit)), "round {round}");
        }
    }

    #[test]
    fn who_comes_between_claim_and_fault_leaves_the_fault_to_the_first_whose_death_is_one() {
        let slots = pipe(2, &[1], Policy::Block);
        assert_eq!(slots.say_why(None, "first"), Some(true));
        slots.give_up(writer(1), "second");
        assert_eq!(slots.fault(), None);
        let lost = Fault::Lost { unit: writer(0), pid: 7 };
        slots.fail(lost);
        assert_eq!(slots.fault().map(|fault| slots.stop(fault)), Some(Stop::Fault(lost)));
    }

    #[test]
    fn a_reason_that_came_too_late_is_nobodys() {
        let slots = pipe(2, &[1], Policy::Block);
        slots.give_up(writer(1), "");
        slots.give_up(writer(0), "late");
        assert_eq!(told(&slots), (writer(1), String::new()));
    }

    #[test]
    fn programs_that_come_and_go_have_reasons_of_their_own() {
        let slots = pipe(1, &[], Policy::Latest);
        let reader = |program, unit| UnitName { side: Side::Reader(program), unit };
        let heard = |program| slots.poll_next(program, 1, 0);
        for time in 0..2 {
            for program in [0, 1] {
                slots.seat(program, 2);
                slots.enter(program);
                slots.give_up(reader(program, 0), &format!("{program}, {time}"));
            }
            for program in [0, 1] {
                let reason = format!("{program}, {time}").into();
                assert_eq!(heard(program), Err(Stop::Aborted { unit: reader(program, 0), reason }));
            }
            assert_eq!(slots.fault(), None);
            [0, 1].iter().for_each(|&program| slots.vacate(program));
        }
        slots.seat(0, 2);
        slots.enter(0);
        slots.give_up(writer(0), "the writers");
        assert_eq!(heard(0), Err(Stop::Aborted { unit: writer(0), reason: "the writers".into() }));
    }
}
