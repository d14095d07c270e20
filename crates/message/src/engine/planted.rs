//! Bugs to plant, so that a test can show that the checks find each. Without the feature `planted` none ever
//! is.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Messages that came already are taken again.
    TakeTwice,
    /// Ordered messages are delivered as they come.
    AnyOrder,
    /// Of what was lost, only the first half is sent again.
    HalfResent,
    /// A refused message is not sent again from its start.
    RefusedNotReset,
    /// Buffers held by messages that wait for others are never taken back.
    NoEviction,
    /// A buffer taken back is never released.
    BufferLeak,
    /// Frames of a former session are accepted.
    OldSession,
    /// Checksums are not looked at.
    NoChecksum,
    /// The timer for what was lost at the end of traffic never fires.
    NoProbe,
    /// Lost frames stay counted as in flight.
    WindowLeak,
    /// Low priority is served first.
    LowFirst,
    /// Receipts that were lost are not sent again.
    ReceiptLost,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 12] = [
        Bug::TakeTwice,
        Bug::AnyOrder,
        Bug::HalfResent,
        Bug::RefusedNotReset,
        Bug::NoEviction,
        Bug::BufferLeak,
        Bug::OldSession,
        Bug::NoChecksum,
        Bug::NoProbe,
        Bug::WindowLeak,
        Bug::LowFirst,
        Bug::ReceiptLost,
    ];
}

/// The frame as its sender would have made it without a checksum.
pub(super) fn unseal<'a>(frame: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
    room.extend_from_slice(frame);
    if let [_, flags, .., _] = &mut room[..] {
        *flags &= !1;
    }
    if let Some(checksum) = room.get_mut(24..28) {
        checksum.fill(0);
    }
    room
}
