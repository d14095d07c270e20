//! The codes of `enum polyduct_code`: one for each class of Python's `polyduct.errors`, with its base classes.

use std::ffi::CStr;

/// What a call returns: 0, a positive outcome, or a negative error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub i32);

impl Code {
    /// All went well.
    pub const OK: Code = Code(0);
    /// There is no further step.
    pub const END: Code = Code(1);
    /// It would have to be waited for.
    pub const NOT_YET: Code = Code(2);
    /// A lossy queue dropped the step.
    pub const DROPPED: Code = Code(3);
    /// Any error.
    pub const ERROR: Code = Code(-1);
    /// The caller asked for something that cannot be.
    pub const MISUSE: Code = Code(-2);
    /// An option has a value that it cannot have.
    pub const BAD_OPTION: Code = Code(-3);
    /// Memory of the wrong size.
    pub const WRONG_SIZE: Code = Code(-7);
    /// An element type, or a value's, that is not the one expected.
    pub const WRONG_TYPE: Code = Code(-8);
    /// A peer broke the protocol.
    pub const BAD_PEER: Code = Code(-32);
    /// The port is closed, or the domain was left.
    pub const CLOSED: Code = Code(-22);
    /// There is not enough memory.
    pub const NO_MEMORY: Code = Code(-42);
    /// A fault of the library's own.
    pub const INTERNAL: Code = Code(-99);
}

/// Code, name, base classes.
type Row = (i32, &'static CStr, &'static [&'static str]);

const OUTCOMES: [(i32, &CStr); 4] = [(0, c"OK"), (1, c"End"), (2, c"NotYet"), (3, c"Dropped")];

const CLASSES: [Row; 49] = [
    (-1, c"Error", &[]),
    (-2, c"Misuse", &["Error"]),
    (-3, c"BadOption", &["Misuse"]),
    (-4, c"BadUrl", &["Misuse"]),
    (-5, c"BadEnvironment", &["Misuse"]),
    (-6, c"LayoutError", &["Misuse"]),
    (-7, c"WrongSize", &["Misuse"]),
    (-8, c"WrongType", &["Misuse"]),
    (-9, c"BadIndex", &["Misuse"]),
    (-10, c"NoUnit", &["Misuse"]),
    (-11, c"AtOdds", &["Misuse"]),
    (-12, c"InHandler", &["Misuse"]),
    (-13, c"RegionError", &["Misuse"]),
    (-14, c"HandlerError", &["Misuse"]),
    (-15, c"UnknownHandler", &["HandlerError"]),
    (-16, c"DuplicateHandler", &["HandlerError"]),
    (-17, c"HandlerVersions", &["HandlerError"]),
    (-18, c"ConfigError", &["Misuse"]),
    (-19, c"LimitReached", &["Error"]),
    (-20, c"Full", &["Error"]),
    (-21, c"NameTaken", &["Error"]),
    (-22, c"Closed", &["Error"]),
    (-23, c"PeerLost", &["Error"]),
    (-24, c"PeerLeft", &["Error"]),
    (-25, c"PeerAborted", &["Error"]),
    (-26, c"Unreachable", &["Error"]),
    (-27, c"StreamBroken", &["Error"]),
    (-28, c"UnevenSteps", &["Error"]),
    (-29, c"ReadersGone", &["Error"]),
    (-30, c"Refused", &["Error"]),
    (-31, c"Stranger", &["Error"]),
    (-32, c"BadPeer", &["Error"]),
    (-33, c"CallError", &["Error"]),
    (-34, c"CallFailed", &["CallError"]),
    (-35, c"CallDeadline", &["CallError"]),
    (-36, c"CallCancelled", &["CallError"]),
    (-37, c"CallPeerGone", &["CallError", "PeerLost"]),
    (-38, c"TimeoutError", &["Error"]),
    (-39, c"Absent", &["Refused", "TimeoutError"]),
    (-40, c"Interrupted", &["Error"]),
    (-41, c"SystemRefused", &["Error"]),
    (-42, c"NoMemory", &["Error"]),
    (-43, c"FileError", &["Error"]),
    (-44, c"FileMissing", &["FileError"]),
    (-45, c"FileNotAllowed", &["FileError"]),
    (-46, c"StoreError", &["Error"]),
    (-47, c"BadName", &["BadOption"]),
    (-48, c"DatasetMissing", &["FileMissing", "StoreError"]),
    (-99, c"Internal", &["Error"]),
];

/// The code of a class.
pub fn of_class(name: &str) -> Code {
    let found = CLASSES.iter().find(|(_, class, _)| class.to_bytes() == name.as_bytes());
    found.map_or(Code::ERROR, |(code, ..)| Code(*code))
}

/// The name of a code; `?` for what is none.
pub fn name(code: i32) -> &'static CStr {
    let class = || CLASSES.iter().find(|row| row.0 == code).map(|row| row.1);
    let outcome = OUTCOMES.iter().find(|(outcome, _)| *outcome == code).map(|(_, name)| *name);
    outcome.or_else(class).unwrap_or(c"?")
}

/// Whether an error is one of a class.
pub fn is(code: i32, of: i32) -> bool {
    let row = |code: i32| CLASSES.iter().find(|row| row.0 == code);
    let bases = |row: &Row| row.2.iter().any(|base| is(of_class(base).0, of));
    match row(code) {
        Some(found) => code == of || bases(found),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_an_error_and_known_by_its_name() {
        for (code, class, bases) in CLASSES {
            assert_eq!((of_class(class.to_str().unwrap()), name(code)), (Code(code), class));
            assert!(is(code, -1) && is(code, code), "{class:?}");
            assert!(bases.iter().all(|base| CLASSES.iter().any(|row| row.1.to_bytes() == base.as_bytes())));
        }
        assert!(is(-39, -30) && is(-39, -38) && !is(-38, -39) && !is(0, 0) && !is(-50, -1));
        assert_eq!((name(1), name(-50), of_class("Nonsense")), (c"End", c"?", Code::ERROR));
    }
}
