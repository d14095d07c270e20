//! The provider as programs see it, by libfabric's tables.

mod memory;
mod messages;
mod names;
mod offers;

use crate::common::{close, context, getinfo, until_told, Failed, Node, WATCHDOG};
use polyduct_fi::abi::{self, *};
use std::collections::VecDeque;
use std::ptr::{null, null_mut};
use std::time::Instant;

fn pair() -> (Node, Node, u64, u64) {
    let (a, b) = (Node::new(), Node::new());
    let (to_b, to_a) = (a.insert(&b.name()), b.insert(&a.name()));
    (a, b, to_b, to_a)
}

/// Both look at their queues so many times.
fn look(a: &mut Node, b: &mut Node, times: usize) {
    for _ in 0..times {
        a.look();
        b.look();
    }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}
/// Cuts memory into pieces of about `size` bytes, with gaps of 3, some of nothing; and where they lie.
fn cut(len: usize, size: usize) -> (Vec<std::ops::Range<usize>>, usize) {
    let (mut cuts, mut at, mut left, mut n) = (Vec::new(), 0, len, 0);
    while left > 0 {
        let now = if n % 5 == 3 { 0 } else { (size + n % 7).min(left) };
        cuts.push(at..at + now);
        (at, left, n) = (at + now + 3, left - now, n + 1);
    }
    (cuts, at)
}
