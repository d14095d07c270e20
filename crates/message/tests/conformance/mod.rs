//! One suite for all links. A link's test file has `mod conformance;`, an adapter that is a [`Pair`], and
//! calls [`suite`].
//!
//! The two sides are driven by one thread in turns, so an adapter needs no locks: `next` drives the side it
//! asks (and may drive the other) until something happened or the deadline, in real or virtual time, has
//! passed.

#![allow(dead_code)]

use polyduct_message::{ChannelId, HandlerId, Head, Order, Priority, Token};
use polyduct_rig::Random;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// One of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The one that connected.
    A,
    /// The one that was connected to.
    B,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }
}

/// What a case needs of a pair.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Buffers that each side gives out, at most, of those returned by [`Pair::release`]. `None`: as many as
    /// asked for.
    pub buffers: Option<usize>,
    /// Messages that each side keeps of one priority before it says that it is full, at least 64 and at most
    /// this many times two.
    pub queue: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Setup { buffers: None, queue: 1024 }
    }
}

/// A message as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Came {
    pub channel: ChannelId,
    pub priority: Priority,
    pub head: Head,
    pub payload: Vec<u8>,
}

/// What a side hears of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A message came. If it had a payload, its buffer is in use until [`Pair::release`].
    Message(Came),
    /// A message sent from this side was delivered.
    Delivered(Token),
    /// A message sent from this side was refused and is kept to be sent again. A link that never refuses need
    /// not say it.
    Refused,
    /// The other side is dead. Once.
    Lost,
}

/// Whether a send was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Taken(Token),
    /// No room: nothing was taken.
    Full,
    /// The other side is lost.
    Lost,
}

/// What the status of a side says of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Messages that `next` would return without waiting, among those that have arrived.
    pub waiting: usize,
    /// Sends that are sure to be taken.
    pub sends: usize,
}

/// Two connected sides of one link.
pub trait Pair {
    /// Sends without waiting.
    fn send(
        &mut self,
        from: Side,
        channel: ChannelId,
        priority: Priority,
        order: Order,
        head: Head,
        payload: Vec<u8>,
    ) -> Sent;
    /// The next thing that one side hears of; `None` if nothing happened for `within`.
    fn next(&mut self, at: Side, within: Duration) -> Option<Happened>;
    /// Lets both sides work for a while without taking anything from them.
    fn settle(&mut self, time: Duration);
    /// Gives back one buffer.
    fn release(&mut self, at: Side);
    /// Exact counts of one priority.
    fn status(&mut self, at: Side, priority: Priority) -> Counts;
    /// Kills one side without a word.
    fn kill(&mut self, side: Side);
    /// Messages of 1 MiB that the other side may have had when the last of many is handed over: where nobody
    /// receives but in [`Pair::next`], only what is cut in the middle.
    fn taken_meanwhile(&self) -> usize {
        1
    }
}

/// Longer than anything takes, shorter than anyone's patience.
pub const WATCHDOG: Duration = Duration::from_secs(20);

/// A head that says which message of which channel it is.
pub fn head(channel: u16, number: u32) -> Head {
    Head { handler: HandlerId(7), args: [channel.into(), number, !number, number.wrapping_mul(0x9e37_79b9)] }
}

/// A payload that differs between messages and within itself.
pub fn payload(seed: u32, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed.into());
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(random.word().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Makes pairs.
pub type Make<'a> = &'a dyn Fn(Setup) -> Box<dyn Pair>;

/// Runs every case on a new pair each.
pub fn suite(make: Make<'_>) {
    type Case = fn(Make<'_>);
    let cases: [(&str, Case); 10] = [
        ("every length arrives as it was", every_length),
        ("order holds on each channel", order_on_each_channel),
        ("no channel starves", no_channel_starves),
        ("high overtakes low", high_overtakes_low),
        ("any order delivers all once", any_order),
        ("both orders share a channel", both_orders),
        ("without buffers messages wait", refused_and_sent_again),
        ("both ways at once", both_ways),
        ("a death is heard of once", death_once),
        ("status counts exactly", status_counts),
    ];
    for (name, case) in cases {
        println!("conformance: {name}");
        case(make);
    }
}

fn must_send(
    pair: &mut dyn Pair,
    from: Side,
    channel: u16,
    priority: Priority,
    order: Order,
    number: u32,
    payload: Vec<u8>,
) -> Token {
    match pair.send(from, ChannelId(channel), priority, order, head(channel, number), payload) {
        Sent::Taken(token) => token,
        other => panic!("message {number} on channel {channel} was not taken: {other:?}"),
    }
}

/// The next message at a side; its buffer goes back at once.
fn must_come(pair: &mut dyn Pair, at: Side) -> Came {
    loop {
        match pair.next(at, WATCHDOG) {
            Some(Happened::Message(came)) => {
                if !came.payload.is_empty() {
                    pair.release(at);
                }
                return came;
            }
            Some(Happened::Lost) => panic!("{at:?} lost the other side"),
            Some(_) => {}
            None => panic!("nothing came to {at:?} within {WATCHDOG:?}"),
        }
    }
}

/// Waits until all tokens are known to be delivered, each once.
fn must_deliver(pair: &mut dyn Pair, at: Side, mut tokens: Vec<Token>) {
    while !tokens.is_empty() {
        match pair.next(at, WATCHDOG) {
            Some(Happened::Delivered(token)) => {
                let place = tokens.iter().position(|&t| t == token);
                tokens
                    .swap_remove(place.unwrap_or_else(|| panic!("{token:?} delivered twice or never sent")));
            }
            Some(Happened::Refused) => {}
            Some(other) => panic!("{other:?} instead of a delivery"),
            None => panic!("{} deliveries are missing after {WATCHDOG:?}", tokens.len()),
        }
    }
}

fn every_length(make: Make<'_>) {
    let mut pair = make(Setup::default());
    let edges = [1 << 10, 1200, 4 << 10, 8 << 10, 16 << 10, 48 << 10, 64 << 10, 128 << 10, 1 << 20];
    let mut lengths = vec![0, 1, 2, 31, 32, 63, 64, 65, 255, 256, 257];
    lengths.extend(edges.iter().flat_map(|&e| [e - 1, e, e + 1]));
    lengths.push((3 << 20) + 7);
    for (number, &len) in lengths.iter().enumerate() {
        let number = number as u32;
        let bytes = payload(number, len);
        let token = must_send(&mut *pair, Side::A, 1, Priority::Low, Order::Ordered, number, bytes.clone());
        let came = must_come(&mut *pair, Side::B);
        assert_eq!((came.channel, came.head), (ChannelId(1), head(1, number)), "length {len}");
        assert!(came.payload == bytes, "length {len}: {} bytes came, or others", came.payload.len());
        must_deliver(&mut *pair, Side::A, vec![token]);
    }
}

fn order_on_each_channel(make: Make<'_>) {
    let mut pair = make(Setup::default());
    let (channels, each) = (16u16, 40u32);
    let mut tokens = Vec::new();
    for number in 0..each {
        for channel in 0..channels {
            let len = [0, 17, 300, 5000, 70_000][(number as usize + usize::from(channel)) % 5];
            let bytes = payload(number + 1000 * u32::from(channel), len);
            tokens.push(must_send(
                &mut *pair,
                Side::A,
                channel,
                Priority::Low,
                Order::Ordered,
                number,
                bytes,
            ));
        }
    }
    let mut next = HashMap::new();
    for _ in 0..each * u32::from(channels) {
        let came = must_come(&mut *pair, Side::B);
        let number: &mut u32 = next.entry(came.channel).or_default();
        assert_eq!(came.head, head(came.channel.0, *number), "out of order");
        let expected = payload(*number + 1000 * u32::from(came.channel.0), came.payload.len());
        assert!(came.payload == expected, "wrong bytes");
        *number += 1;
    }
    must_deliver(&mut *pair, Side::A, tokens);
}

fn no_channel_starves(make: Make<'_>) {
    let mut pair = make(Setup::default());
    // One channel with a great deal, then 32 with a little.
    for number in 0..8 {
        let bytes = payload(number, 1 << 20);
        must_send(&mut *pair, Side::A, 0, Priority::Low, Order::Ordered, number, bytes);
    }
    for channel in 1..=32 {
        must_send(&mut *pair, Side::A, channel, Priority::Low, Order::Ordered, 0, payload(9, 200));
    }
    let mut great = 0;
    let mut little = 0;
    while little < 32 {
        match must_come(&mut *pair, Side::B).channel {
            ChannelId(0) => great += 1,
            _ => little += 1,
        }
    }
    assert!(great < 8, "the little channels waited for all of the great one");
    while great < 8 {
        assert_eq!(must_come(&mut *pair, Side::B).channel, ChannelId(0));
        great += 1;
    }
}

fn high_overtakes_low(make: Make<'_>) {
    let mut pair = make(Setup::default());
    for number in 0..16 {
        let bytes = payload(number, 1 << 20);
        must_send(&mut *pair, Side::A, number as u16 % 3, Priority::Low, Order::Ordered, number, bytes);
    }
    must_send(&mut *pair, Side::A, 0, Priority::High, Order::Ordered, 99, payload(99, 100));
    let mut before = 0;
    loop {
        let came = must_come(&mut *pair, Side::B);
        if came.priority == Priority::High {
            assert_eq!(came.payload, payload(99, 100));
            break;
        }
        before += 1;
    }
    // What was on its way when it was sent may arrive before it, not all the rest.
    assert!(
        before <= pair.taken_meanwhile(),
        "{before} MiB of low priority came before a message of high priority"
    );
    for _ in before..16 {
        assert_eq!(must_come(&mut *pair, Side::B).priority, Priority::Low);
    }
}

fn any_order(make: Make<'_>) {
    let mut pair = make(Setup::default());
    let mut tokens = Vec::new();
    let mut missing = BTreeMap::new();
    for number in 0..200 {
        let len = [10, 200_000, 0, 3000][number as usize % 4];
        let bytes = payload(number, len);
        tokens.push(must_send(&mut *pair, Side::A, 5, Priority::Low, Order::Any, number, bytes.clone()));
        missing.insert(number, bytes);
    }
    while !missing.is_empty() {
        let came = must_come(&mut *pair, Side::B);
        let bytes = missing.remove(&came.head.args[1]).expect("delivered once");
        assert!(came.payload == bytes, "wrong bytes");
    }
    must_deliver(&mut *pair, Side::A, tokens);
}

/// What may come in any order takes nothing of the order of what must not.
fn both_orders(make: Make<'_>) {
    let mut pair = make(Setup::default());
    let (mut tokens, mut missing, mut next) = (Vec::new(), BTreeMap::new(), 0);
    for number in 0..200 {
        let order = if number % 2 == 0 { Order::Ordered } else { Order::Any };
        let bytes = payload(number, [70_000, 3000, 0, 20, 1200][number as usize % 5]);
        tokens.push(must_send(&mut *pair, Side::A, 6, Priority::Low, order, number, bytes.clone()));
        missing.insert(number, bytes);
    }
    while !missing.is_empty() {
        let came = must_come(&mut *pair, Side::B);
        let number = came.head.args[1];
        let bytes = missing.remove(&number).expect("delivered once");
        assert!(came.payload == bytes, "wrong bytes");
        if number.is_multiple_of(2) {
            assert_eq!(number, next, "out of order");
            next += 2;
        }
    }
    must_deliver(&mut *pair, Side::A, tokens);
}

fn refused_and_sent_again(make: Make<'_>) {
    let mut pair = make(Setup { buffers: Some(2), ..Setup::default() });
    let mut tokens = Vec::new();
    for number in 0..24 {
        let len = if number % 3 == 0 { 100_000 } else { 500 };
        let bytes = payload(number, len);
        tokens.push(must_send(&mut *pair, Side::A, 2, Priority::Low, Order::Ordered, number, bytes));
    }
    // Both buffers are held back for a while: nothing more may come, and nothing may be lost.
    let mut held = Vec::new();
    while held.len() < 2 {
        match pair.next(Side::B, WATCHDOG) {
            Some(Happened::Message(came)) => held.push(came),
            Some(Happened::Lost) => panic!("lost"),
            Some(_) => {}
            None => panic!("nothing came within {WATCHDOG:?}"),
        }
    }
    if let Some(Happened::Message(came)) = pair.next(Side::B, Duration::from_millis(100)) {
        panic!("a third buffer was found for {came:?}");
    }
    pair.release(Side::B);
    pair.release(Side::B);
    for (number, came) in held.iter().enumerate() {
        assert_eq!(came.head, head(2, number as u32));
    }
    for number in 2..24 {
        let came = must_come(&mut *pair, Side::B);
        assert_eq!(came.head, head(2, number));
        let len = if number % 3 == 0 { 100_000 } else { 500 };
        assert!(came.payload == payload(number, len), "wrong bytes");
    }
    must_deliver(&mut *pair, Side::A, tokens);
}

fn both_ways(make: Make<'_>) {
    let mut pair = make(Setup::default());
    let each = 60;
    for number in 0..each {
        for side in [Side::A, Side::B] {
            let bytes = payload(number, [0, 90_000, 64][number as usize % 3]);
            must_send(&mut *pair, side, 3, Priority::Low, Order::Ordered, number, bytes);
        }
    }
    for number in 0..each {
        for side in [Side::A, Side::B] {
            let came = must_come(&mut *pair, side);
            assert_eq!(came.head, head(3, number));
            assert!(came.payload == payload(number, came.payload.len()), "wrong bytes");
        }
    }
}

fn death_once(make: Make<'_>) {
    for dead in [Side::A, Side::B] {
        let mut pair = make(Setup::default());
        must_send(&mut *pair, Side::A, 0, Priority::Low, Order::Ordered, 0, payload(0, 10));
        must_come(&mut *pair, Side::B);
        pair.kill(dead);
        let at = dead.other();
        loop {
            match pair.next(at, WATCHDOG) {
                Some(Happened::Lost) => break,
                Some(_) => {}
                None => panic!("{at:?} did not hear of the death within {WATCHDOG:?}"),
            }
        }
        let sent = pair.send(at, ChannelId(0), Priority::Low, Order::Ordered, head(0, 1), Vec::new());
        assert_eq!(sent, Sent::Lost);
        assert_eq!(pair.next(at, Duration::from_millis(50)), None, "heard of it again");
    }
}

fn status_counts(make: Make<'_>) {
    let mut pair = make(Setup { queue: 64, ..Setup::default() });
    for priority in [Priority::Low, Priority::High] {
        let sure = pair.status(Side::A, priority).sends;
        assert!((64..=128).contains(&sure), "{sure} sends are said to be sure");
        for number in 0..sure as u32 {
            let channel = (number % 4) as u16;
            must_send(&mut *pair, Side::A, channel, priority, Order::Ordered, number / 4, Vec::new());
        }
        // Whatever is refused now was not promised.
        pair.settle(Duration::from_millis(200));
        let mut waiting = pair.status(Side::B, priority).waiting;
        assert!(waiting > 0 && waiting <= sure, "{waiting} of {sure} are said to wait");
        let mut came = 0;
        while came < sure {
            must_come(&mut *pair, Side::B);
            came += 1;
            waiting = waiting.saturating_sub(1);
            if waiting > 0 {
                assert!(pair.status(Side::B, priority).waiting >= waiting, "the count fell by itself");
            }
        }
        assert_eq!(pair.status(Side::B, priority).waiting, 0);
        // When deliveries are known there is room again.
        let mut known = 0;
        while known < sure {
            match pair.next(Side::A, WATCHDOG) {
                Some(Happened::Delivered(_)) => known += 1,
                Some(_) => {}
                None => panic!("{known} of {sure} deliveries known after {WATCHDOG:?}"),
            }
        }
        assert_eq!(pair.status(Side::A, priority).sends, sure);
    }
}
