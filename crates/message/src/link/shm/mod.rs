//! Messages between two processes of one host, through memory that both have mapped.
//!
//! A pair of endpoints has one segment, made by the side that first needs it ([`Link::create`]) and handed to
//! the other ([`Link::attach`]). In each direction and of each priority there is a ring: a
//! [ring](polyduct_ring::ring) of lines, one for each record, and a ring of payload. All channels of a pair
//! share its rings, so a receiver looks at one line for each priority, however many channels there are.
//! Nothing is lost or reordered, so there are no checksums and no acknowledgements.
//!
//! # What a message costs
//!
//! | | lines touched | locked instructions | copies | system calls |
//! |---|---|---|---|---|
//! | send ≤ 32 bytes | 1 | 2 (claim; count and see a sleeper) | 1 | 0 |
//! | send ≤ `whole_bytes` | 1 + payload | 2 | 1 | 0 |
//! | longer | 1 for each fragment + payload | 2 for each fragment | 2, by two processors at once | 0 |
//! | posted | 1 | 2 | 1, by the receiver | 2 for each piece |
//! | receive | the same | 0; 1 for each quarter of the ring | 0 (seen in place), 1 for fragments | 0 |
//! | wake a sleeper | + 2 of its bell | + 3 | | 1, and 1 of the sleeper |
//!
//! The sender's own words (the place of the next record, the last known head) are in its own memory; the
//! receiver's head is read once for each quarter of the ring. Nothing allocates but the receiver's list of
//! unfinished messages, once for each channel.
//!
//! What bounds a message, and what was tried and left out, is in
//! `docs/notes/messages-through-shared-memory.md`. What of it is in use: where a whole look's worth of
//! records waits, the receiver asks for the line of the record eight further on, and a message of several
//! fragments to a receiver that waits is streamed past the caches ([`Cut`] says which).
//!
//! # Many links, and sleep
//!
//! A link of which [`Receiver::ask_for_call`] was called need not be looked at: its peer calls at the
//! endpoint's [`Bell`] when it sends next, and the request ends with that. So an endpoint looks at its few
//! busy links and at one word of its bell; a link that has long been quiet is asked to call, one that calls
//! is busy again. Before it sleeps an endpoint asks its busy links too ([`Bell::wait`]). Senders that wait
//! for room use the same bell ([`Sender::ask_for_call`]).
//!
//! The count of messages and the look for a request are one locked addition. A plain store and a barrier
//! forced on the sender by the sleeper (`membarrier`) would spare it, at the price of counts that are not
//! exact.
//!
//! # Trust
//!
//! What lies in the segment is input: loaded once, checked, then used. A peer can spoil its own messages, and
//! say nonsense, for which the link [breaks](crate::LinkError) and no other is touched. A payload seen in
//! place ([`Payload::Bytes`]) can change while it is looked at if the peer breaks the protocol.

pub mod bell;
mod cut;
pub mod gate;
mod layout;
mod link;
mod memory;
mod receiver;
pub mod record;
mod region;
mod sender;
mod share;

pub use bell::Bell;
pub use cut::Cut;
pub use gate::{Gate, Inside};
pub use layout::{AttachError, Sizes};
pub use link::Link;
pub use memory::Memory;
pub use receiver::{Incoming, Payload, Receiver};
pub use region::{copy as copy_bytes, Region, RemoteMemory};
pub use sender::{Room, SendError, Sender, Ticket};
pub use share::{Helped, Helper, Share, ShareTicket};
