//! Atomic operations on the registered memory of others. Its owner carries them out, one after the other.

use super::send::slice;
use super::wire::{self, Kind, Remote, COMPARES, FETCHES};
use super::{nothing, After, Counted, Engine, Op, Shared, State, What};
use crate::abi;
use polyduct_message::endpoint::{Number, Piece, SHORT_BYTES};
use polyduct_message::Head;
use std::ffi::{c_int, c_void};
use std::ops::{BitAnd, BitOr, BitXor};

/// Bytes of operands: what is there before goes back in one message.
const MOST: usize = (SHORT_BYTES - Remote::BYTES) / 2;

/// An atomic operation.
#[derive(Clone, Copy, Debug)]
pub struct AtomicWhat {
    /// On whose memory.
    pub peer: Number,
    /// Which.
    pub key: u64,
    /// From where in it.
    pub offset: u64,
    /// libfabric's number of the type.
    pub datatype: c_int,
    /// And of the operation.
    pub op: c_int,
    /// How many elements.
    pub count: usize,
    /// The operands; null for those that need none.
    pub operands: *const u8,
    /// What is compared with, where something is.
    pub compare: Option<*const u8>,
    /// Where goes what was there before.
    pub result: Option<*mut u8>,
    /// What the program gave with it.
    pub context: *mut c_void,
    /// The program wants to know when it is done.
    pub tells: bool,
}

/// Bytes of an element; `None` for a type that there is not.
pub fn size(datatype: c_int) -> Option<usize> {
    match datatype {
        0 | 1 => Some(1),
        2 | 3 => Some(2),
        4 | 5 | 8 => Some(4),
        6 | 7 | 9 | 10 => Some(8),
        11 => Some(16),
        // long double, and 128-bit integers: what processors have no form of their own for.
        _ => None,
    }
}

/// The numbers of the operations.
pub mod op {
    #![allow(missing_docs)]
    use std::ffi::c_int;
    pub const MIN: c_int = 0;
    pub const MAX: c_int = 1;
    pub const SUM: c_int = 2;
    pub const PROD: c_int = 3;
    pub const LOR: c_int = 4;
    pub const LAND: c_int = 5;
    pub const BOR: c_int = 6;
    pub const BAND: c_int = 7;
    pub const LXOR: c_int = 8;
    pub const BXOR: c_int = 9;
    pub const READ: c_int = 10;
    pub const WRITE: c_int = 11;
    pub const CSWAP: c_int = 12;
    pub const CSWAP_NE: c_int = 13;
    pub const CSWAP_LE: c_int = 14;
    pub const CSWAP_LT: c_int = 15;
    pub const CSWAP_GE: c_int = 16;
    pub const CSWAP_GT: c_int = 17;
    pub const MSWAP: c_int = 18;
}

/// How an operation is called: without an answer, for what was there, or with something to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nothing comes back.
    Plain,
    /// What was there before comes back.
    Fetches,
    /// It is compared first, too.
    Compares,
}

/// How many elements there may be of a type in an operation; `None` where it is not there in this way.
pub fn valid(datatype: c_int, op: c_int, way: Way) -> Option<usize> {
    let size = size(datatype)?;
    let (complex, real) = (matches!(datatype, 10 | 11), matches!(datatype, 8 | 9));
    let whole = !complex && !real;
    let is_there = match (op, way) {
        (op::CSWAP..=op::MSWAP, Way::Compares) => match op {
            op::CSWAP | op::CSWAP_NE => true,
            op::MSWAP => whole,
            _ => !complex,
        },
        (op::CSWAP..=op::MSWAP, _) | (_, Way::Compares) => false,
        (op::READ, Way::Plain) => false,
        (op::READ | op::WRITE | op::SUM | op::PROD, _) => true,
        (op::MIN | op::MAX, _) => !complex,
        (op::LOR | op::LAND | op::LXOR, _) => true,
        (op::BOR | op::BAND | op::BXOR, _) => whole,
        _ => false,
    };
    is_there.then_some(MOST / size)
}

impl Engine {
    /// Begins an atomic operation. Its results are put apart where they belong in several pieces.
    ///
    /// # Errors
    /// An error number: nothing was taken.
    ///
    /// # Safety
    /// The operands are there; the memory of the result stays until the program is told.
    pub unsafe fn atomic(
        &mut self,
        shared: &mut Shared,
        what: &AtomicWhat,
        apart: Option<Box<[Piece]>>,
    ) -> Result<(), c_int> {
        let AtomicWhat { peer, datatype, op, count, operands, compare, result, context, tells, .. } = *what;
        let way = match (compare, result) {
            (Some(_), _) => Way::Compares,
            (None, Some(_)) => Way::Fetches,
            (None, None) => Way::Plain,
        };
        let most = valid(datatype, op, way).ok_or(abi::EOPNOTSUPP)?;
        if count == 0 || count > most {
            return Err(abi::EINVAL);
        }
        let len = count * size(datatype).unwrap_or(0);
        let (reads, flags) = match way {
            Way::Plain => (0, 0),
            Way::Fetches => (abi::READ, FETCHES),
            Way::Compares => (abi::READ, FETCHES | COMPARES),
        };
        let kind = abi::ATOMIC | if reads == 0 { abi::WRITE } else { reads };
        let counts = if reads == 0 { Counted::Write } else { Counted::Read };
        let after = After { done: nothing(context, kind), tells, counts, of: None };
        let mut kept: Option<Box<[u8]>> = apart.as_ref().map(|_| vec![0; len].into());
        let to = kept.as_mut().map_or(result.unwrap_or(core::ptr::null_mut()), |kept| kept.as_mut_ptr());
        let number = self.begin(
            peer,
            Op {
                to: peer,
                what: What::Atomic { to, len },
                after,
                is_begun: false,
                said: None,
                kept,
                pieces: apart,
            },
        )?;
        let head = wire::head(Kind::Atomic, flags, [number, datatype as u32 | (op as u32) << 8, 0, 0]);
        let remote = Remote { key: what.key, offset: what.offset, len: count as u64, address: 0 }.to_bytes();
        // SAFETY: the caller's.
        let (operands, compare) = unsafe {
            let operands = if op == op::READ { &[] } else { slice(operands, len) };
            (operands, compare.map_or(&[][..], |compare| slice(compare, len)))
        };
        self.say_now(shared, peer, head, &[&remote, operands, compare]);
        Ok(())
    }
}

impl State {
    /// A peer asks for an atomic operation.
    pub(super) fn atomic_here(&mut self, shared: &mut Shared, from: Number, head: &Head, bytes: &[u8]) {
        let Some((remote, operands)) = Remote::split(bytes) else { return };
        let number = head.args[0];
        let done = |error: c_int| wire::head(Kind::Done, 0, [number, error as u32, 0, 0]);
        match self.carry_out(shared, head, &remote, operands) {
            Ok(before) => {
                let fetches = head.handler.0 & FETCHES != 0;
                self.say(from, done(0), if fetches { &before } else { &[] });
                let what = if fetches { Counted::RemoteRead } else { Counted::RemoteWrite };
                let changes = (head.args[1] >> 8) as c_int != op::READ;
                self.is_changed(shared, what, changes.then_some(remote.key));
            }
            Err(error) => self.say(from, done(error), &[]),
        }
    }

    fn carry_out(
        &self,
        shared: &Shared,
        head: &Head,
        remote: &Remote,
        operands: &[u8],
    ) -> Result<Vec<u8>, c_int> {
        let (datatype, op) = ((head.args[1] & 0xff) as c_int, (head.args[1] >> 8) as c_int);
        let way = match head.handler.0 & (FETCHES | COMPARES) {
            0 => Way::Plain,
            FETCHES => Way::Fetches,
            _ => Way::Compares,
        };
        let most = valid(datatype, op, way).ok_or(abi::EOPNOTSUPP)?;
        let size = size(datatype).ok_or(abi::EOPNOTSUPP)?;
        let count = usize::try_from(remote.len).ok().filter(|&count| count <= most).ok_or(abi::EINVAL)?;
        let len = count * size;
        let access = match op {
            op::READ => abi::REMOTE_READ,
            _ if way == Way::Plain => abi::REMOTE_WRITE,
            _ => abi::REMOTE_WRITE | abi::REMOTE_READ,
        };
        let at = shared.registry.part(remote.key, remote.offset, len as u64, access)?;
        let expected = len * (usize::from(op != op::READ) + usize::from(way == Way::Compares));
        if operands.len() != expected {
            return Err(abi::EINVAL);
        }
        // SAFETY: within the registered memory, as was checked.
        let memory = unsafe { core::slice::from_raw_parts_mut(at, len) };
        let before = memory.to_vec();
        let (operands, compare) = operands.split_at(if op == op::READ { 0 } else { len });
        if op != op::READ {
            let each = memory.chunks_exact_mut(size).zip(operands.chunks_exact(size));
            for (n, (there, operand)) in each.enumerate() {
                let compare = compare.get(n * size..(n + 1) * size).unwrap_or(operand);
                apply(datatype, op, there, operand, compare);
            }
        }
        Ok(before)
    }

    /// An operation on a peer's memory is done; of an atomic comes what was there before.
    pub(super) fn remote_done(&mut self, shared: &mut Shared, from: Number, head: &Head, bytes: &[u8]) {
        let [number, mut error, ..] = head.args;
        if let Some(Op { what: What::Atomic { to, len }, .. }) =
            self.ops.get(number).filter(|op| op.to == from && error == 0)
        {
            match bytes.len() == *len {
                _ if to.is_null() => {}
                // SAFETY: the program's memory, or the operation's, which is there for this.
                true => unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), *to, *len) },
                false => error = abi::EIO as u32,
            }
        }
        let is_one = |what: &What| matches!(what, What::Put { .. } | What::Atomic { .. });
        self.finish(shared, from, number, error, is_one);
    }
}

/// Whether something is true, as C sees it.
trait Truth: Copy + Default + PartialEq {
    fn is_true(self) -> bool {
        self != Self::default()
    }
    fn of(truth: bool) -> Self;
}

macro_rules! truth {
    ($one:expr; $($t:ty),*) => {$(
        impl Truth for $t {
            fn of(truth: bool) -> $t {
                if truth { $one as $t } else { <$t>::default() }
            }
        }
    )*};
}
truth!(1; i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);

/// A complex number.
#[derive(Clone, Copy, Default, PartialEq)]
struct Complex<T>(T, T);

impl<T: Truth> Truth for Complex<T> {
    fn of(truth: bool) -> Self {
        Complex(T::of(truth), T::default())
    }
}

/// What there is of all types: `None` where it is another operation.
fn general<T: Truth>(
    op: c_int,
    a: T,
    b: T,
    compare: T,
    sum: impl Fn(T, T) -> T,
    prod: impl Fn(T, T) -> T,
) -> Option<T> {
    Some(match op {
        op::SUM => sum(a, b),
        op::PROD => prod(a, b),
        op::LOR => T::of(a.is_true() || b.is_true()),
        op::LAND => T::of(a.is_true() && b.is_true()),
        op::LXOR => T::of(a.is_true() != b.is_true()),
        op::WRITE => b,
        op::CSWAP => {
            if compare == a {
                b
            } else {
                a
            }
        }
        op::CSWAP_NE => {
            if compare != a {
                b
            } else {
                a
            }
        }
        _ => return None,
    })
}

fn ordered<T: PartialOrd + Copy>(op: c_int, a: T, b: T, compare: T) -> Option<T> {
    let swaps = match op {
        op::MIN => b < a,
        op::MAX => b > a,
        op::CSWAP_LE => compare <= a,
        op::CSWAP_LT => compare < a,
        op::CSWAP_GE => compare >= a,
        op::CSWAP_GT => compare > a,
        _ => return None,
    };
    Some(if swaps { b } else { a })
}

fn bits<T: BitAnd<Output = T> + BitOr<Output = T> + BitXor<Output = T> + std::ops::Not<Output = T> + Copy>(
    op: c_int,
    a: T,
    b: T,
    mask: T,
) -> Option<T> {
    Some(match op {
        op::BOR => a | b,
        op::BAND => a & b,
        op::BXOR => a ^ b,
        op::MSWAP => (b & mask) | (a & !mask),
        _ => return None,
    })
}

/// Applies an operation to an element.
fn apply(datatype: c_int, op: c_int, there: &mut [u8], operand: &[u8], compare: &[u8]) {
    macro_rules! number {
        ($t:ty, $bytes:expr) => {
            <$t>::from_ne_bytes($bytes.try_into().unwrap_or_default())
        };
    }
    macro_rules! whole {
        ($t:ty) => {{
            let (a, b, c) = (number!($t, &*there), number!($t, operand), number!($t, compare));
            let found = general(op, a, b, c, <$t>::wrapping_add, <$t>::wrapping_mul);
            let found = found.or_else(|| ordered(op, a, b, c)).or_else(|| bits(op, a, b, c));
            there.copy_from_slice(&found.unwrap_or(a).to_ne_bytes());
        }};
    }
    macro_rules! real {
        ($t:ty) => {{
            let (a, b, c) = (number!($t, &*there), number!($t, operand), number!($t, compare));
            let found = general(op, a, b, c, |a, b| a + b, |a, b| a * b).or_else(|| ordered(op, a, b, c));
            there.copy_from_slice(&found.unwrap_or(a).to_ne_bytes());
        }};
    }
    macro_rules! complex {
        ($t:ty) => {{
            let half = size_of::<$t>();
            let read = |bytes: &[u8]| Complex(number!($t, &bytes[..half]), number!($t, &bytes[half..]));
            let (a, b, c) = (read(there), read(operand), read(compare));
            let sum = |Complex(a, b), Complex(c, d)| Complex(a + c, b + d);
            let prod = |Complex(a, b), Complex(c, d)| Complex(a * c - b * d, a * d + b * c);
            let Complex(re, im) = general(op, a, b, c, sum, prod).unwrap_or(a);
            there[..half].copy_from_slice(&re.to_ne_bytes());
            there[half..].copy_from_slice(&im.to_ne_bytes());
        }};
    }
    match datatype {
        0 => whole!(i8),
        1 => whole!(u8),
        2 => whole!(i16),
        3 => whole!(u16),
        4 => whole!(i32),
        5 => whole!(u32),
        6 => whole!(i64),
        7 => whole!(u64),
        8 => real!(f32),
        9 => real!(f64),
        10 => complex!(f32),
        11 => complex!(f64),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_i32(op: c_int, a: i32, b: i32, compare: i32) -> i32 {
        let mut there = a.to_ne_bytes();
        apply(4, op, &mut there, &b.to_ne_bytes(), &compare.to_ne_bytes());
        i32::from_ne_bytes(there)
    }

    #[test]
    fn operations_do_as_the_manual_says() {
        for (op, expected) in [
            (op::MIN, -3),
            (op::MAX, 12),
            (op::SUM, 9),
            (op::PROD, -36),
            (op::LOR, 1),
            (op::LAND, 1),
            (op::BOR, 12 | -3),
            (op::BAND, 12 & -3),
            (op::LXOR, 0),
            (op::BXOR, 12 ^ -3),
            (op::WRITE, -3),
            (op::CSWAP, -3),
            (op::CSWAP_NE, 12),
            (op::CSWAP_LE, -3),
            (op::CSWAP_LT, 12),
            (op::CSWAP_GE, -3),
            (op::CSWAP_GT, 12),
            (op::MSWAP, -3 & 12),
        ] {
            assert_eq!(of_i32(op, 12, -3, 12), expected, "operation {op}");
        }
        assert_eq!(of_i32(op::CSWAP, 12, -3, 11), 12);
        assert_eq!(of_i32(op::MSWAP, 0b1010, 0b0101, 0b0011), 0b1001);
        assert_eq!(of_i32(op::SUM, i32::MAX, 1, 0), i32::MIN, "it wraps");
    }

    #[test]
    fn there_is_what_makes_sense() {
        assert_eq!(valid(6, op::SUM, Way::Plain), Some(MOST / 8));
        assert_eq!(valid(6, op::READ, Way::Plain), None);
        assert_eq!(valid(6, op::READ, Way::Fetches), Some(MOST / 8));
        assert_eq!(valid(6, op::CSWAP, Way::Fetches), None);
        assert_eq!(valid(9, op::MSWAP, Way::Compares), None);
        assert_eq!(valid(11, op::MIN, Way::Plain), None);
        assert_eq!(valid(12, op::SUM, Way::Plain), None);
        assert_eq!(valid(-1, op::SUM, Way::Plain), None);
    }
}
