//! What surfaces call an error: the name of its class, which is that of an exception in Python and of a code in
//! C, and its attributes. The one place that says it.

use crate::Error;
use polyduct_layout::LayoutError;
use polyduct_message::domain::{directory::HandlerError, pending::CallError};
use polyduct_message::meeting::{JoinRefusal, Refusal as Refused};
use polyduct_message::{ConfigError, MessageError};
use polyduct_os::{Errno, OsError};
use polyduct_pipe::{Mismatch, PipeError, Refusal};
use polyduct_port::{BundleError, Peer, PortError, PortName, Reached, Side, UnitName};
use polyduct_store::{disk::StoreError, volume::units::Cause, volume::VolumeError, FileError};
use polyduct_stream::StreamError;
use std::fmt::Display;
use std::time::Duration;

/// Stands between the words of a call that failed and the traceback of the other unit.
pub const TRACEBACK: &str = "\n\nTraceback (most recent call last):\n";

/// An attribute of an error.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number: of a unit, of bytes, of a step.
    Int(u64),
    /// Words, a name, a path.
    Text(String),
    /// A time.
    Seconds(f64),
    /// An index, or several units.
    Ints(Vec<u64>),
}

/// The name of a class, and the attributes that an error of it has.
pub type Class = (&'static str, Vec<(&'static str, Value)>);

fn int(n: impl Into<u64>) -> Value {
    Value::Int(n.into())
}

/// The class of an error, and its attributes.
pub(crate) fn classify(error: &Error) -> Class {
    match error {
        Error::Misuse { .. } => ("Misuse", vec![]),
        Error::Environment { variable, .. } => {
            ("BadEnvironment", vec![("variable", Value::Text(variable.clone()))])
        }
        Error::Url { url, .. } => ("BadUrl", vec![("url", Value::Text(url.clone()))]),
        Error::Key { .. } => no_key(),
        Error::Layout(e) => layout(e),
        Error::Port(e) => port(e),
        Error::Pipe(e) => {
            let (class, mut attributes) = pipe(e);
            attributes.extend(e.pipe().map(|name| ("url", Value::Text(format!("pipe:{name}")))));
            (class, attributes)
        }
        Error::File(e) => file(e),
        Error::Store(e) => store(e),
        Error::Stream(e) => stream(e),
        Error::Message(e) => message(e),
        Error::PartSize { unit, expected, found, .. } => wrong_size(*unit, *expected, *found),
    }
}

fn no_key() -> Class {
    ("BadEnvironment", vec![("variable", Value::Text(polyduct_message::link::key::KEY_VARIABLE.into()))])
}

fn layout(error: &LayoutError) -> Class {
    let mut attributes = vec![("reason", Value::Text(error.reason().into()))];
    match error {
        LayoutError::Text { position, .. } => attributes.push(("position", int(*position as u64))),
        LayoutError::Hole { index, .. } => attributes.push(("index", Value::Ints(index.clone()))),
        LayoutError::Overlap { index, first, second, .. } => attributes
            .extend([("index", Value::Ints(index.clone())), ("units", Value::Ints(vec![*first, *second]))]),
        _ => {}
    }
    ("LayoutError", attributes)
}

fn wrong_size(unit: u64, expected: u64, found: u64) -> Class {
    ("WrongSize", vec![("unit", int(unit)), ("expected", int(expected)), ("found", int(found))])
}

/// Unit and, of a pipe, its side and the number of the reader program.
fn named(peer: &Peer) -> Vec<(&'static str, Value)> {
    let mut attributes = vec![("unit", int(peer.unit))];
    let side = peer.side.map(|side| match side {
        Side::Writer => ("writer", 0),
        Side::Reader(program) => ("reader", program),
    });
    if let Some((side, program)) = side {
        attributes.extend([("side", Value::Text(side.into())), ("program", int(program))]);
    }
    attributes
}

/// What any port may say.
fn port(error: &PortError) -> Class {
    let (class, mut attributes) = match error {
        PortError::Layout { source, .. } => layout(source),
        PortError::Bundle { source, .. } => match &**source {
            BundleError::Layout { source, .. } => layout(source),
            _ => ("BadOption", vec![("option", Value::Text("arrays".into()))]),
        },
        PortError::BadOption { option, .. } => ("BadOption", vec![("option", Value::Text((*option).into()))]),
        PortError::WrongSize { unit, expected, found, .. } => {
            let size = [("expected", int(*expected)), ("found", int(*found))];
            ("WrongSize", unit.map(|unit| ("unit", int(unit))).into_iter().chain(size).collect())
        }
        PortError::Closed { .. } => ("Closed", vec![]),
        PortError::PeerLost { peer, pid, .. } => {
            let mut attributes = named(peer);
            attributes.push(("pid", int(*pid)));
            ("PeerLost", attributes)
        }
        PortError::PeerAborted { peer, reason, .. } => {
            let mut attributes = named(peer);
            attributes.push(("reason", Value::Text(reason.clone())));
            ("PeerAborted", attributes)
        }
        PortError::UnevenSteps { peer, closed_after, came, .. } => {
            let mut attributes = named(peer);
            attributes.push(("closed_after", int(*closed_after)));
            if let Reached::ToStep(step) = came {
                attributes.push(("step", int(*step)));
            }
            ("UnevenSteps", attributes)
        }
        PortError::Disagree { unit, .. } => refusal("disagree", vec![("unit", int(*unit))]),
        PortError::BadPeer { .. } => ("BadPeer", vec![]),
        PortError::Timeout { waited, unit, .. } => {
            let waited = ("waited", Value::Seconds(waited.as_secs_f64()));
            ("TimeoutError", [waited].into_iter().chain(this(unit)).collect())
        }
        PortError::Interrupted { unit, .. } => ("Interrupted", this(unit)),
        _ => ("Error", vec![]),
    };
    match error.port() {
        Some(PortName::Pipe(name)) => attributes.push(("url", Value::Text(format!("pipe:{name}")))),
        Some(PortName::Stream(place)) => attributes.push(("place", Value::Text(place.clone()))),
        _ => {}
    }
    (class, attributes)
}

fn pipe(error: &PipeError) -> Class {
    match error {
        PipeError::NameTaken { pid, .. } => ("NameTaken", vec![("pid", int(*pid))]),
        PipeError::ReadersGone { step, .. } => ("ReadersGone", vec![("step", int(*step))]),
        PipeError::Refused { port, reason } => {
            let (class, mut attributes) = pipe_refused(reason);
            if let PortName::Stream(place) = &**port {
                attributes.push(("place", Value::Text(place.clone())));
            }
            (class, attributes)
        }
        PipeError::Key { .. } => no_key(),
        PipeError::Domain { source, .. } => message(source),
        PipeError::Stranger { .. } | PipeError::Link { .. } => ("Stranger", vec![]),
        PipeError::NoDirectory { .. } => ("Unreachable", vec![]),
        PipeError::System { source, unit, .. } => {
            let (class, mut attributes) = system(source);
            attributes.extend(this(unit));
            (class, attributes)
        }
        _ => ("Error", vec![]),
    }
}

/// Which unit an error is of. Its reader program is not known before all have met.
fn this(unit: &Option<UnitName>) -> Vec<(&'static str, Value)> {
    let mut attributes = unit.map(|unit| named(&unit.into())).unwrap_or_default();
    attributes.retain(|(name, _)| *name != "program");
    attributes
}

/// Units do not meet. `place` says which unit is meant; `terms`, what does not fit.
fn refused<P: Display, T: Display>(
    reason: &Refused<P, T>,
    place: impl Fn(&P) -> Vec<(&'static str, Value)>,
    terms: impl Fn(&T) -> (&'static str, Vec<(&'static str, Value)>),
) -> Class {
    let process = |unit: &P, pid: u32| {
        let mut attributes = place(unit);
        attributes.push(("pid", int(pid)));
        attributes
    };
    let (name, attributes) = match reason {
        Refused::Version { .. } => ("version", vec![]),
        Refused::Malformed => ("malformed", vec![]),
        Refused::UnitRange { unit, .. } => ("unit_range", vec![("unit", int(*unit))]),
        Refused::Disagree { unit, .. } => ("disagree", place(unit)),
        Refused::Duplicate { unit, pid, .. } => ("duplicate", process(unit, *pid)),
        Refused::NotAMember { unit, pid } => ("not_a_member", process(unit, *pid)),
        Refused::Missing { waited_ms, .. } => {
            let waited = Duration::from_millis(*waited_ms).as_secs_f64();
            let (_, attributes) = refusal("missing", vec![("waited", Value::Seconds(waited))]);
            return ("Absent", attributes);
        }
        Refused::Lost { unit, pid, .. } => ("lost", process(unit, *pid)),
        Refused::Replaced { unit } => ("replaced", place(unit)),
        Refused::Over => ("over", vec![]),
        Refused::System { unit, .. } => ("system", place(unit)),
        Refused::Terms(why) => terms(why),
    };
    refusal(name, attributes)
}

/// Units of a pipe do not meet.
fn pipe_refused(reason: &Refusal) -> Class {
    let place = |unit: &UnitName| named(&(*unit).into());
    refused(reason, place, |why| match why {
        Mismatch::Dataset { .. } | Mismatch::Conversion { .. } => ("dataset", vec![]),
        Mismatch::TooManyPrograms { .. } | Mismatch::Full { .. } => ("too_many_programs", vec![]),
        Mismatch::Layout { unit, .. } => ("layout", place(unit)),
        Mismatch::NoDataset => ("no_dataset", vec![]),
        Mismatch::Arrays { .. } | Mismatch::Described { .. } => ("arrays", vec![]),
        Mismatch::Segment { unit, .. } => ("segment", place(unit)),
    })
}

/// Units of one program do not meet: those of a domain, or of a file.
fn join_refused(reason: &JoinRefusal) -> Class {
    refused(reason, |unit| vec![("unit", int(unit.0))], |none| match *none {})
}

fn refusal(reason: &str, mut attributes: Vec<(&'static str, Value)>) -> Class {
    attributes.push(("reason", Value::Text(reason.into())));
    ("Refused", attributes)
}

fn message(error: &MessageError) -> Class {
    let of_unit = |unit: u32| ("unit", int(unit));
    match error {
        MessageError::NoUnit { to, units } => ("NoUnit", vec![of_unit(*to), ("units", int(*units))]),
        MessageError::BadName { .. } => ("BadOption", vec![("option", Value::Text("name".into()))]),
        MessageError::ToSelf { .. } | MessageError::NoMessage { .. } => ("Misuse", vec![]),
        MessageError::InHandler => ("InHandler", vec![]),
        // Python says the name instead of the number, and so the reason alone.
        MessageError::Region { reason, .. } => ("RegionError", vec![("reason", Value::Text(reason.clone()))]),
        MessageError::Call(e) => call(e),
        MessageError::Config(e) => config(e),
        MessageError::Handler(e) => handler(e),
        MessageError::Limit { what, limit, found } => {
            let what = Value::Text((*what).into());
            ("LimitReached", vec![("what", what), ("limit", int(*limit)), ("found", int(*found))])
        }
        MessageError::NameTaken { unit, .. } => ("NameTaken", vec![of_unit(*unit)]),
        MessageError::Full { to } => ("Full", vec![of_unit(*to)]),
        MessageError::PeerLost { unit, .. } => ("PeerLost", vec![of_unit(*unit)]),
        MessageError::PeerLeft { unit } => ("PeerLeft", vec![of_unit(*unit)]),
        MessageError::AtOdds { unit, .. } => ("AtOdds", vec![of_unit(*unit)]),
        MessageError::BadPeer { unit, .. } => ("BadPeer", vec![of_unit(*unit)]),
        MessageError::Refused { reason, .. } => join_refused(reason),
        MessageError::Stranger { .. } | MessageError::TurnedAway { .. } => ("Stranger", vec![]),
        MessageError::Timeout { waited, .. } => {
            ("TimeoutError", vec![("waited", Value::Seconds(waited.as_secs_f64()))])
        }
        MessageError::Interrupted => ("Interrupted", vec![]),
        MessageError::System(e) => system(e),
        _ => ("Error", vec![]),
    }
}

/// Of a stream: `Unreachable`, `StreamBroken`, or what the control interface refused.
fn stream(e: &StreamError) -> Class {
    match e {
        StreamError::Connect { place, .. } | StreamError::Listen { place, .. } => {
            ("Unreachable", vec![("place", Value::Text(place.clone()))])
        }
        StreamError::Closed { place, step }
        | StreamError::Broken { place, step, .. }
        | StreamError::Stalled { place, step, .. }
        | StreamError::Content { place, step, .. } => {
            ("StreamBroken", vec![("place", Value::Text(place.clone())), ("step", int(*step))])
        }
        StreamError::NoGateway { place, .. }
        | StreamError::NoGatewayThere { place, .. }
        | StreamError::Told { place, reached: false, .. } => {
            ("Unreachable", vec![("place", Value::Text(place.clone()))])
        }
        StreamError::Lost { place, .. } | StreamError::Told { place, .. } => {
            ("StreamBroken", vec![("place", Value::Text(place.clone()))])
        }
        _ => ("StreamBroken", vec![]),
    }
}

fn call(error: &CallError) -> Class {
    let of = |class, unit: &u32, name: &str| {
        (class, vec![("unit", int(*unit)), ("name", Value::Text(name.to_owned()))])
    };
    match error {
        CallError::Failed { unit, name, error } => {
            let (class, mut attributes) = of("CallFailed", unit, name);
            let (words, traceback) = error.split_once(TRACEBACK).unwrap_or((error, ""));
            attributes.push(("error", Value::Text(words.into())));
            if !traceback.is_empty() {
                attributes.push(("traceback", Value::Text(format!("{}{traceback}", TRACEBACK.trim_start()))));
            }
            (class, attributes)
        }
        CallError::Deadline { unit, name, waited } => {
            let (class, mut attributes) = of("CallDeadline", unit, name);
            attributes.push(("waited", Value::Seconds(waited.as_secs_f64())));
            (class, attributes)
        }
        CallError::Cancelled { unit, name } => of("CallCancelled", unit, name),
        CallError::PeerGone { unit, name } => of("CallPeerGone", unit, name),
        _ => ("CallError", vec![]),
    }
}

fn handler(error: &HandlerError) -> Class {
    let of = |class, name: &str| (class, vec![("name", Value::Text(name.to_owned()))]);
    match error {
        HandlerError::Unknown { name } => of("UnknownHandler", name),
        HandlerError::NotThere { name, unit } => {
            let (class, mut attributes) = of("UnknownHandler", name);
            attributes.push(("unit", int(*unit)));
            (class, attributes)
        }
        HandlerError::Duplicate { name } => of("DuplicateHandler", name),
        HandlerError::Versions { name, first, first_unit, second, second_unit } => {
            let (class, mut attributes) = of("HandlerVersions", name);
            attributes.extend([
                ("first", int(*first)),
                ("first_unit", int(*first_unit)),
                ("second", int(*second)),
                ("second_unit", int(*second_unit)),
            ]);
            (class, attributes)
        }
        HandlerError::BadName { name }
        | HandlerError::WrongKind { name, .. }
        | HandlerError::Kinds { name, .. } => of("HandlerError", name),
        _ => ("HandlerError", vec![]),
    }
}

fn config(error: &ConfigError) -> Class {
    let reason = |name: &str| ("reason", Value::Text(name.into()));
    let place = |place: &str| ("place", Value::Text(place.into()));
    let attributes = match error {
        ConfigError::Unreadable { path, .. } => {
            vec![reason("unreadable"), place(&path.display().to_string())]
        }
        ConfigError::Unknown { place: at, .. } => vec![reason("unknown"), place(at)],
        ConfigError::BadValue { place: at, .. } => vec![reason("bad_value"), place(at)],
        ConfigError::TooBig { .. } => vec![reason("too_big")],
        _ => vec![],
    };
    ("ConfigError", attributes)
}

fn system(error: &OsError) -> Class {
    match error {
        OsError::NoMemory { .. } => ("NoMemory", vec![]),
        _ => {
            let errno = error.errno().map(number);
            ("SystemRefused", errno.into_iter().collect())
        }
    }
}

fn file(error: &FileError) -> Class {
    let of_file = |path: &str, reason: &str| of_path("FileError", path, reason);
    match error {
        FileError::Busy { .. } => ("NameTaken", vec![]),
        FileError::Refused { reason, .. } => join_refused(reason),
        FileError::Stranger { .. } => ("Stranger", vec![]),
        FileError::Os { source: OsError::NoMemory { .. }, .. } => ("NoMemory", vec![]),
        FileError::BadPath { path, .. } => of_file(path, "bad_path"),
        FileError::NeedsDataset { path, .. } => of_file(path, "needs_dataset"),
        FileError::ShapeDiffers { path, .. } => of_file(path, "shape_differs"),
        FileError::ElemDiffers { path, .. } => of_file(path, "elem_differs"),
        FileError::NoSpace { path, .. } => of_errno("FileError", path, "no_space", Some(Errno::NOSPC)),
        FileError::System { path, errno, .. } => of_errno("FileError", path, "system", Some(*errno)),
        FileError::Os { path, source } => of_errno("FileError", path, "system", source.errno()),
        FileError::NoForm { path, .. } => of_file(path, "no_form"),
        FileError::NoTensor { path, .. } => of_file(path, "no_tensor"),
        FileError::BadHeader { path, .. }
        | FileError::BadArchive { path, .. }
        | FileError::BadSafetensors { path, .. }
        | FileError::BadZarr { path, .. } => of_file(path, "bad_header"),
        FileError::Truncated { path, .. } => of_file(path, "truncated"),
        FileError::BadLength { path, .. } => of_file(path, "bad_length"),
        FileError::Plan { path, .. } => of_file(path, "plan"),
        _ => ("FileError", vec![]),
    }
}

/// What is wrong with a file or a store, and its path: the `filename` of every OSError.
fn of_path(class: &'static str, path: &str, reason: &str) -> Class {
    (class, vec![("reason", Value::Text(reason.into())), ("filename", Value::Text(path.into()))])
}

/// The same of what the system refused: of a class of its own where Python has one.
fn of_errno(other: &'static str, path: &str, reason: &str, errno: Option<Errno>) -> Class {
    let class = match errno {
        Some(Errno::NOENT) => "FileMissing",
        Some(Errno::ACCESS | Errno::PERM) => "FileNotAllowed",
        _ => other,
    };
    let (class, mut attributes) = of_path(class, path, reason);
    attributes.extend(errno.map(number));
    (class, attributes)
}

fn store(error: &StoreError) -> Class {
    let of_store = |store: &str, reason: &str| of_path("StoreError", store, reason);
    match error {
        StoreError::BadName { .. } => ("BadName", vec![("option", Value::Text("name".into()))]),
        StoreError::Bad { .. } => ("Misuse", vec![]),
        StoreError::NotThere { store, .. } => missing("DatasetMissing", store, "not_there"),
        StoreError::NoStore { store, .. } => missing("FileMissing", store, "no_store"),
        StoreError::Exists { store, .. } => of_store(store, "exists"),
        StoreError::ShapeDiffers { store, .. } => of_store(store, "shape_differs"),
        StoreError::ElemDiffers { store, .. } => of_store(store, "elem_differs"),
        StoreError::Manifest { store, .. } => of_store(store, "manifest"),
        StoreError::Volume { store, source } => volume(store, source),
        StoreError::Message { source, .. } => message(source),
        StoreError::Busy { waited, .. } => {
            ("TimeoutError", vec![("waited", Value::Seconds(waited.as_secs_f64()))])
        }
        StoreError::System { store, errno, .. } => of_errno("StoreError", store, "system", Some(*errno)),
        StoreError::Os { source: OsError::NoMemory { .. }, .. } => ("NoMemory", vec![]),
        StoreError::Os { store, source } => of_errno("StoreError", store, "system", source.errno()),
        StoreError::Plan { store, .. } => of_store(store, "plan"),
        _ => ("StoreError", vec![]),
    }
}

fn missing(class: &'static str, path: &str, reason: &str) -> Class {
    let (_, attributes) = of_errno(class, path, reason, Some(Errno::NOENT));
    (class, attributes)
}

fn volume(store: &str, error: &VolumeError) -> Class {
    let reason = match error {
        VolumeError::Geometry { .. } => return ("Misuse", vec![]),
        VolumeError::Full(_) => return of_errno("StoreError", store, "no_space", Some(Errno::NOSPC)),
        VolumeError::Refused(error) => {
            let errno = match error.cause {
                Cause::Caller(errno) => Some(Errno::from_raw_os_error(errno)),
                _ => None,
            };
            return of_errno("StoreError", store, "system", errno);
        }
        VolumeError::TooManyLost { .. } => "too_many_lost",
        VolumeError::Outdated { .. } => "outdated",
        VolumeError::Forked(_) => "forked",
        VolumeError::Home { .. } => "system",
        VolumeError::Damaged { .. } => "damaged",
        VolumeError::NotThere { .. } => "not_there",
        VolumeError::Limit { .. } => "limit",
        VolumeError::NotJoined { .. } | VolumeError::InUse { .. } => "not_joined",
        VolumeError::Foreign { .. } => "foreign",
    };
    of_path("StoreError", store, reason)
}

fn number(errno: Errno) -> (&'static str, Value) {
    ("errno", int(errno.raw_os_error().unsigned_abs()))
}
