//! The messages that the library itself sends, in the numbers that users do not get.
//!
//! | handler | words | payload | |
//! |---|---|---|---|
//! | `MAIL` | tag, two of the user's | the user's | for `recv` |
//! | `CALL` | method, number, two of the user's | the argument | asks for an answer |
//! | `ANSWER` | number, 0 good or 1 failed, two of the user's | the result, or words | |
//! | `CANCEL` | number | | nobody waits for that answer any more |
//! | `BARRIER` | number, round, what the sender has come to (u64) | | see [`super::barrier`] |
//! | `CAME` | what the sender has come to (u64) | | across hosts, from who is at odds with others: see [`super::CollectiveCount`] |
//! | `OFFER` | what the sender has come to (u64) | handlers of a unit, to unit 0 | see [`super::directory`] |
//! | `MEET` | the version | see `super::meet` | across hosts |
//! | `LEAVING` | the lost unit, and one, that it leaves because of; 1 if it gives up | what it has come to (u64), how that unit was lost | across hosts |
//! | `LOST` | a unit | why, in words | across hosts, from unit 0, and from units of the lost one's host |
//! | `PUT` | region, offset (u64), number | bytes | where memory cannot be reached directly; asks for an `ANSWER` |
//! | `GET` | region, offset (u64), number | length (u64), or nothing to ask for the region's | where memory cannot be reached directly; asks for an `ANSWER` |
//! | `FLUSH` | number | | behind all that a channel sent: asks for an `ANSWER`; across hosts |
//! | `AGREED` | 0 good or 1 failed | the directory, or the error | from unit 0 |

use crate::types::{HandlerId, Head};

/// A message for `recv`.
pub const MAIL: HandlerId = HandlerId(HandlerId::RESERVED);
/// A call.
pub const CALL: HandlerId = HandlerId(HandlerId::RESERVED + 1);
/// Its answer.
pub const ANSWER: HandlerId = HandlerId(HandlerId::RESERVED + 2);
/// Its caller does not want it any more.
pub const CANCEL: HandlerId = HandlerId(HandlerId::RESERVED + 3);
/// One word of a barrier.
pub const BARRIER: HandlerId = HandlerId(HandlerId::RESERVED + 4);
/// What a unit brings to a synchronise.
pub const OFFER: HandlerId = HandlerId(HandlerId::RESERVED + 5);
/// What came of it.
pub const AGREED: HandlerId = HandlerId(HandlerId::RESERVED + 6);
/// How units meet across hosts.
pub const MEET: HandlerId = HandlerId(HandlerId::RESERVED + 7);
/// A unit leaves in order.
pub const LEAVING: HandlerId = HandlerId(HandlerId::RESERVED + 8);
/// A unit is lost.
pub const LOST: HandlerId = HandlerId(HandlerId::RESERVED + 9);
/// Writes into a region.
pub const PUT: HandlerId = HandlerId(HandlerId::RESERVED + 10);
/// All that came before on this channel was handled?
pub const FLUSH: HandlerId = HandlerId(HandlerId::RESERVED + 12);
/// What collective operations a unit has come to.
pub const CAME: HandlerId = HandlerId(HandlerId::RESERVED + 13);
/// Reads from a region.
pub const GET: HandlerId = HandlerId(HandlerId::RESERVED + 11);

/// Words of why a call failed, at most so many bytes where an answer must find a place.
pub const REASON: usize = 256;

/// Whether a message finds a place however much waits for its unit. Others would wait for it for ever, and
/// there are few: what tells of ends and of collective operations, and that a call failed.
pub fn must_find_a_place(head: &Head, len: usize) -> bool {
    let failed = head.handler == ANSWER && head.args[1] != 0 && len <= REASON;
    failed || [LOST, LEAVING, BARRIER, CAME, OFFER, AGREED].contains(&head.handler)
}
