//! Limits on everything that others can make grow.

use std::time::Duration;

/// Connections at once; one more is answered with 503, and closed.
pub const MAX_CONNECTIONS: usize = 384;
/// Viewers, each of which has two of them: the others are short requests.
pub const MAX_VIEWERS: usize = 128;
/// Names at once. The oldest that has ended and has no viewer makes room for a new one.
pub const MAX_NAMES: usize = 256;
/// Bytes of a name.
pub const MAX_NAME_BYTES: usize = 200;
/// Views of one program.
pub const MAX_VIEWS: usize = 256;
/// Boxes of owners that pages are told for one view; beyond, they are told none.
pub const MAX_OWNER_BOXES: usize = 1 << 16;
/// Bytes of a frame's small values as JSON; a frame with more is shown without them.
pub const MAX_VALUES_BYTES: usize = 64 << 10;
/// Bytes of a request's head.
pub const MAX_HEAD_BYTES: usize = 16 << 10;
/// Header lines of a request.
pub const MAX_HEADERS: usize = 64;
/// A head is complete so long after the connection was made.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer makes progress at least so often.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long who asks for a file waits for the program's next step.
pub const FILE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a message from a viewer.
pub const MAX_CLIENT_BYTES: usize = 64 << 10;
/// Messages that a viewer may send in a second, beside those that acknowledge a frame.
pub const MAX_CLIENT_MESSAGES: u32 = 200;
/// Bytes of answers to a viewer's pings that it has not read.
pub const MAX_SMALL_BYTES: usize = 64 << 10;
/// A viewer that said nothing for so long is pinged.
pub const PING_INTERVAL: Duration = Duration::from_secs(10);
/// A viewer that neither says nor takes anything for so long is closed.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// The other side reads the end of what it was sent within so long after it, or misses it.
pub const LINGER: Duration = Duration::from_secs(1);
/// A display that ends waits so long for viewers to draw what is before the last frame.
pub const CATCH_UP: Duration = Duration::from_millis(500);
/// Frames on the way to a viewer that it has not acknowledged.
pub const MAX_UNACKNOWLEDGED: usize = 2;
/// Distinct windows that a program is asked for; who wants more gets the overview.
pub const MAX_WINDOWS: usize = 8;
/// Pixels on an edge of a `.png`; larger arrays are sampled.
pub const MAX_PNG_EDGE: usize = 2048;
/// Pictures and descriptions of frames that are asked for and not made yet; one more is answered with 503.
pub const MAX_DRAWINGS: usize = 32;
