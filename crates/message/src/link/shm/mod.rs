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
//! # What bounds a short message
//!
//! A line handed back and forth costs one transfer, since the reader gets the right to write with it. In a
//! ring the sender takes a line that the receiver has looked at, and the receiver fetches it: 30 to 37 ns
//! instead of 25 between near processors, as much as the line (1.0) between far ones, and 135 ns instead of
//! 60 between cores of one chip that share the last cache only. The rest, 20 ns of software and the moment
//! until the receiver looks, comes on top. What was tried and left out, each measured beside the ring as it
//! is:
//!
//! | | near |
//! |---|---|
//! | a line that both directions share while nothing is outstanding, 10 ns between message and answer | 1.6: the sender looks for its answer and takes the line back before it is written |
//! | fetching the next line for writing after each message, or when one comes | 0.95 to 1.05 |
//! | neither compare-exchange nor locked count in the sender (not sound) | 1.0 |
//! | `pause` between looks, 25 ns | 1.1 to 1.2 |
//! | no pause, or one in which later looks begin | 0.95 to 1.4 |
//! | one store of 64 bytes for the whole line | 0.97 to 1.0 |
//! | the shared line with looks 40 ns apart, cores of one chip | 0.5 in a bare loop, 1.0 to 1.2 with the link's software between message and answer |
//! | the same with looks 64 to 80 ns apart, in a bare loop with a claim, a whole line and a locked count | 1.3 to 1.5 lines without further software, 1.6 with 30 ns, 1.8 with 50: about what a domain needs |
//! | no look for as long as the last messages took to come, cores of one chip | 0.7 to 0.8 for the link, 1.0 to 1.2 for a domain: a look too early delays the answer, so the other looks too early next |
//! | showing the head only when nothing was found | 0.98, and who waits for it waits longer |
//! | `cldemote`: the line moved to the cache that both share, by the sender behind its store, by the receiver behind a look that found nothing or behind a message | 0.97 to 1.0; 1.2; 1.0 |
//! | `movdir64b`: the line written past all caches | 2.4 |
//!
//! # What bounds many of them
//!
//! Each line has to come from the sender's cache, and the next ones are on their way only as far as the
//! processor looks ahead past the handler. So where a whole look's worth of records waits, the receiver asks
//! for the line of the record eight further on: 30 → 55 million messages a second between cores of one chip.
//! Where less waits it does not, since a line that is not written yet would be taken from the sender.
//!
//! # What bounds a message of several fragments
//!
//! 48 KiB, cores of one chip, one fragment: the sender writes for 5.3 µs, then the receiver copies for 4.4.
//! In fragments both work at once and hold each other up, since each line goes from the receiver to the
//! sender and back: 8.3 to 9 µs in all. So the sender of a message to a receiver that waits streams past the
//! caches ([`Cut`] says which): 7.1 to 8 µs, 5.8 of them the sender's, then 0.4 until the last fragment is
//! seen and 0.3 to copy it. The same fragments written by a loop in C take 7.7 between processes. What made
//! no difference beside that: first fragments of 4 to 12 KiB, shorter ones towards the end, the next place
//! claimed before a record is shown, lines asked for before the first fragment on either side, `movdir64b`
//! (1.1), some lines streamed and the others not, the source fetched from other distances or into other
//! caches (1.0 to 1.5), two places written by turns. Nor did it help to leave the end to the receiver, which
//! reads it in the sender's memory meanwhile (`process_vm_readv`): 1.0 with a sixth of 48 KiB, 1.1 with a
//! third, 1.4 with half, since the kernel's part costs 1 to 2 µs and the receiver is late then.
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

pub use bell::Bell;
pub use cut::Cut;
pub use gate::{Gate, Inside};
pub use layout::{AttachError, Sizes};
pub use link::Link;
pub use memory::Memory;
pub use receiver::{Incoming, Payload, Receiver};
pub use region::{Region, RemoteMemory};
pub use sender::{Room, SendError, Sender, Ticket};
