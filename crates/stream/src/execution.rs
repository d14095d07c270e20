//! The execution module: which transfer unit goes into which buffer, and which of its striping units next over a lane
//! (iWarp's network interface, section 5.3.2).
//!
//! At least two buffers of each stream let one be filled while another is sent. A buffer is kept until every lane has
//! confirmed its part: a lane that fails gives its units back, and the others send them, from the same buffer.

use crate::format::{Format, Su};
use std::collections::VecDeque;
use std::ops::Range;

/// A transfer unit on its way.
#[derive(Clone, Debug)]
struct Tu {
    adu: u64,
    len: u64,
    at: Range<u64>,
    filled: bool,
    /// In order.
    sus: Vec<(Su, Way)>,
    left: usize,
}

/// How far a striping unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Waits,
    On(u32),
    Done,
}

/// Who takes a striping unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deal {
    /// The lane that it is dealt to: the other end counts.
    Fixed,
    /// Whichever lane is free: each unit says where it belongs, and a slow lane carries less.
    Free,
}

/// A transfer unit and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The buffer, from 0.
    pub buffer: u32,
    /// The ADU, from 0.
    pub adu: u64,
    /// Bytes of that.
    pub adu_len: u64,
    /// Which of its bytes.
    pub at: Range<u64>,
}

/// A striping unit to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// The buffer that has its transfer unit.
    pub buffer: u32,
    /// The ADU.
    pub adu: u64,
    /// Bytes of that.
    pub adu_len: u64,
    /// Where the transfer unit, which the buffer begins with, is in the ADU.
    pub tu: Range<u64>,
    /// Which bytes of the ADU to send.
    pub at: Range<u64>,
}

/// One stream's data on their way through its buffers.
#[derive(Clone, Debug)]
pub struct Execution {
    format: Format,
    deal: Deal,
    /// By buffer.
    buffers: Vec<Option<Tu>>,
    /// Buffers in use, the oldest transfer unit first.
    order: VecDeque<u32>,
    /// ADUs that may move and whose transfer units do not all have a buffer yet: number, bytes, next unit.
    granted: VecDeque<(u64, u64, u64)>,
    /// ADUs that have not been moved whole, with how many of their units are left.
    moving: VecDeque<(u64, u64)>,
}

impl Execution {
    /// Of a stream with so many buffers: at least two are the rule.
    pub fn new(format: Format, deal: Deal, buffers: u32) -> Execution {
        Execution {
            format,
            deal,
            buffers: vec![None; buffers.max(1) as usize],
            order: VecDeque::new(),
            granted: VecDeque::new(),
            moving: VecDeque::new(),
        }
    }

    /// ADU number `adu` of `len` bytes moves, behind those before it.
    pub fn grant(&mut self, adu: u64, len: u64) {
        self.granted.push_back((adu, len, 0));
        self.moving.push_back((adu, self.format.tus(len)));
    }

    /// The next transfer unit to be brought, and a free buffer for it; `None` where there is no such pair.
    pub fn next_fill(&mut self) -> Option<Fill> {
        let (adu, len, index) = self.granted.front_mut()?;
        let buffer = self.buffers.iter().position(Option::is_none)?;
        let (adu, adu_len, at) = (*adu, *len, self.format.tu(*len, *index));
        *index += 1;
        if *index == self.format.tus(*len) {
            self.granted.pop_front();
        }
        let sus: Vec<_> = self.format.sus(at.clone()).map(|su| (su, Way::Waits)).collect();
        let left = sus.len();
        self.buffers[buffer] = Some(Tu { adu, len: adu_len, at: at.clone(), filled: false, sus, left });
        let buffer = buffer as u32;
        self.order.push_back(buffer);
        Some(Fill { buffer, adu, adu_len, at })
    }

    /// A buffer has all of its transfer unit.
    pub fn filled(&mut self, buffer: u32) {
        if let Some(Some(tu)) = self.buffers.get_mut(buffer as usize) {
            tu.filled = true;
        }
    }

    /// The next striping unit for a lane; it is on its way from now on.
    pub fn next_send(&mut self, lane: u32) -> Option<Send> {
        for &buffer in &self.order {
            let Some(tu) = self.buffers[buffer as usize].as_mut() else { continue };
            // What is dealt to a lane goes over it in order.
            if !tu.filled {
                return None;
            }
            let waits = |(su, way): &&mut (Su, Way)| {
                *way == Way::Waits && (self.deal == Deal::Free || su.lane == lane)
            };
            if let Some((su, way)) = tu.sus.iter_mut().find(waits) {
                *way = Way::On(lane);
                let (adu, adu_len, tu_at) = (tu.adu, tu.len, tu.at.clone());
                return Some(Send { buffer, adu, adu_len, tu: tu_at, at: su.at.clone() });
            }
        }
        None
    }

    /// A striping unit has arrived, as far as this end can know. One that a lane confirms twice, or that was never sent,
    /// is not counted.
    pub fn sent(&mut self, lane: u32, adu: u64, at: &Range<u64>) {
        let found = self.order.iter().enumerate().find_map(|(place, &buffer)| {
            let tu = self.buffers[buffer as usize].as_mut()?;
            let su = (tu.adu == adu).then(|| tu.sus.iter_mut().find(|(su, _)| su.at == *at))??;
            (su.1 == Way::On(lane)).then(|| {
                su.1 = Way::Done;
                tu.left -= 1;
                (place, buffer, tu.left)
            })
        });
        let Some((place, buffer, 0)) = found else { return };
        self.order.remove(place);
        self.free(buffer);
    }

    /// The other end has these bytes of these ADUs, whatever lanes they came over: units that are there in whole
    /// are done, and of those that wait the rest is sent. What lanes are in the `middle` of is confirmed later.
    pub fn here(&mut self, adus: Range<u64>, at: &Range<u64>, middle: &[Option<Send>]) {
        for buffer in std::mem::take(&mut self.order) {
            let Some(tu) = self.buffers[buffer as usize].as_mut() else { continue };
            if adus.contains(&tu.adu) {
                for (su, way) in tu.sus.iter_mut().filter(|(_, way)| *way != Way::Done) {
                    let going = |send: &Send| send.adu == tu.adu && send.at == su.at;
                    if at.start > su.at.start || middle.iter().flatten().any(going) {
                        continue;
                    }
                    if at.end >= su.at.end {
                        *way = Way::Done;
                        tu.left -= 1;
                    } else if *way == Way::Waits && tu.filled {
                        su.at.start = su.at.start.max(at.end);
                    }
                }
            }
            match tu.left {
                0 => self.free(buffer),
                _ => self.order.push_back(buffer),
            }
        }
    }

    /// All of a buffer's transfer unit is there.
    fn free(&mut self, buffer: u32) {
        let Some(tu) = self.buffers[buffer as usize].take() else { return };
        if let Some((_, left)) = self.moving.iter_mut().find(|(moving, _)| *moving == tu.adu) {
            *left -= 1;
        }
    }

    /// A lane is gone: what it had not confirmed waits again. For another lane where any may take it, else for the one
    /// that takes its place.
    pub fn lane_failed(&mut self, lane: u32) {
        let tus = self.buffers.iter_mut().flatten();
        for (_, way) in tus.flat_map(|tu| tu.sus.iter_mut()).filter(|(_, way)| *way == Way::On(lane)) {
            *way = Way::Waits;
        }
    }

    /// The next ADU that has been moved whole, in their order.
    pub fn take_moved(&mut self) -> Option<u64> {
        let &(adu, left) = self.moving.front()?;
        (left == 0).then(|| self.moving.pop_front())?;
        Some(adu)
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.moving.is_empty()
    }

    /// How many buffers hold data.
    pub fn used(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Adu;
    use polyduct_rig::Random;

    fn format(adu: Adu, lanes: u32) -> Format {
        Format::new(adu, 40, 16, lanes).unwrap()
    }

    /// Moves ADUs of these sizes over lanes that confirm in any order, and fail now and then; gives what the other end
    /// has, which must be every byte.
    fn carry(seed: u64, lens: &[u64], lanes: u32, deal: Deal, buffers: u32) {
        let most = lens.iter().copied().max().unwrap_or(0);
        let mut ex = Execution::new(format(Adu::Changing { most }, lanes), deal, buffers);
        let mut random = Random::new(seed);
        lens.iter().enumerate().for_each(|(adu, &len)| ex.grant(adu as u64, len));
        let mut there: Vec<Vec<u32>> = lens.iter().map(|&len| vec![0; len as usize]).collect();
        let mut on: Vec<VecDeque<Send>> = vec![VecDeque::new(); lanes as usize];
        let mut moved = 0;
        for _ in 0..100_000 {
            if random.below(2) == 0 {
                ex.next_fill().into_iter().for_each(|fill| ex.filled(fill.buffer));
            }
            assert!(ex.used() <= buffers as usize);
            let lane = random.below(u64::from(lanes)) as u32;
            let own = &mut on[lane as usize];
            match random.below(8) {
                0..4 => own.extend(ex.next_send(lane)),
                4..7 => {
                    if let Some(send) = own.pop_front() {
                        let bytes =
                            &mut there[send.adu as usize][send.at.start as usize..send.at.end as usize];
                        bytes.iter_mut().for_each(|n| *n += 1);
                        ex.sent(lane, send.adu, &send.at);
                        ex.sent(lane, send.adu, &send.at);
                    }
                }
                _ => {
                    // Of what was on its way some is there, and part of the next, of which nobody says so yet.
                    let whole = random.below(own.len() as u64 + 1) as usize;
                    let mut here = Vec::new();
                    for (n, send) in own.drain(..).enumerate().filter(|_| deal == Deal::Free) {
                        let len = send.at.end - send.at.start;
                        let come = if n < whole { len } else { random.below(len.max(1)) };
                        if n > whole || (come == 0 && len > 0) {
                            break;
                        }
                        let at = send.at.start..send.at.start + come;
                        let bytes = &mut there[send.adu as usize][at.start as usize..at.end as usize];
                        bytes.iter_mut().for_each(|n| *n += 1);
                        here.push((send.adu, at));
                    }
                    own.clear();
                    ex.lane_failed(lane);
                    here.into_iter().for_each(|(adu, at)| ex.here(adu..adu + 1, &at, &[]));
                    if random.below(4) == 0 {
                        ex.here(0..moved, &(0..u64::MAX), &[]);
                    }
                }
            }
            while let Some(adu) = ex.take_moved() {
                assert_eq!(adu, moved, "in order");
                assert!(there[adu as usize].iter().all(|&n| n == 1), "whole");
                moved += 1;
            }
            if ex.is_idle() {
                break;
            }
        }
        assert_eq!(moved, lens.len() as u64, "seed {seed}");
    }

    #[test]
    fn every_byte_arrives_once_whatever_lanes_do() {
        for seed in 0..60 {
            for deal in [Deal::Fixed, Deal::Free] {
                carry(seed, &[100, 0, 1, 55, 400, 16], 1 + seed as u32 % 4, deal, 2 + seed as u32 % 3);
            }
        }
    }

    #[test]
    fn one_buffer_is_filled_while_the_other_is_sent() {
        let mut ex = Execution::new(format(Adu::Fixed(100), 1), Deal::Fixed, 2);
        ex.grant(0, 100);
        let first = ex.next_fill().unwrap();
        assert_eq!((first.buffer, first.at.clone()), (0, 0..40));
        assert_eq!(ex.next_send(0), None, "it is not full");
        let second = ex.next_fill().unwrap();
        assert_eq!((second.buffer, second.at), (1, 40..80));
        assert_eq!(ex.next_fill(), None, "there are two buffers");
        ex.filled(1);
        assert_eq!(ex.next_send(0), None, "the first goes first");
        ex.filled(0);
        for at in [0..16, 16..32, 32..40] {
            assert_eq!(ex.next_send(0).unwrap().at, at);
            ex.sent(0, 0, &at);
        }
        assert_eq!(ex.next_fill().unwrap().buffer, 0);
        assert_eq!(ex.next_send(0).unwrap().at, 40..56);
    }
}
