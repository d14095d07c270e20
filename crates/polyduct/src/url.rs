//! Parses the names of ports and domains.

use crate::streams::{is_name, Colour, Form, GatewayAt, StreamTarget};
use crate::Error;
use polyduct_display::check_name;
use polyduct_message::link::net::config::Transport;
use polyduct_pipe::net::PipeAddress;
use polyduct_stream::format::MAX_LANES;
use polyduct_stream::{Place, Protocol, Ties};
use std::borrow::Cow;
use std::path::PathBuf;

/// The other end of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `pipe:NAME`: another program on this host.
    Pipe(String),
    /// `pipe://HOST:PORT/NAME`: programs on several hosts; the writers' unit 0 listens at HOST:PORT.
    Net(PipeAddress),
    /// `tcp://HOST:PORT`: an ordinary program, by way of a gateway.
    Stream(StreamTarget),
    /// `PATH.npy`.
    Npy(PathBuf),
    /// `PATH.npz`, NumPy's archive of several arrays, or `PATH.npz#NAME` for one of them, which can be read.
    Npz(PathBuf, Option<String>),
    /// `PATH.raw`: the bytes of the row-major array and nothing else.
    Raw(PathBuf),
    /// `store:DIR/NAME`: a dataset in a store over many disks.
    Store(PathBuf),
    /// `PATH.safetensors`, or `PATH.safetensors#NAME` for one of its tensors.
    Safetensors(PathBuf, Option<String>),
    /// `PATH.safetensors.index.json`: a set of safetensors files.
    Set(PathBuf),
    /// `PATH.zarr`, or `PATH.zarr/NAME` for an array in a group: a directory.
    Zarr(PathBuf),
}

/// What an end has a place for besides data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeps {
    /// Attributes of the whole, where it has several arrays.
    pub whole: bool,
    /// Attributes of the groups that arrays are in.
    pub groups: bool,
    /// Attributes of arrays ([`Open::attributes`](crate::Open::attributes)).
    pub attributes: bool,
    /// Names of dimensions ([`Open::dims`](crate::Open::dims)).
    pub dims: bool,
    /// What NumPy takes elements for ([`Open::descr`](crate::Open::descr)).
    pub descr: bool,
}

impl Target {
    /// Whether people look at the newest step of it; parts of a page show each.
    pub fn shows_newest(&self) -> bool {
        let Target::Stream(target) = self else { return false };
        target.place.protocol == Protocol::Display && target.part.is_none()
    }

    /// What it has a place for besides data.
    pub fn keeps(&self) -> Keeps {
        let none = Keeps::default();
        match self {
            Target::Zarr(_) => Keeps { whole: true, groups: true, attributes: true, dims: true, ..none },
            Target::Store(_) => Keeps { attributes: true, descr: true, ..none },
            Target::Safetensors(..) | Target::Set(_) => Keeps { whole: true, ..none },
            Target::Npy(_) | Target::Npz(..) => Keeps { descr: true, ..none },
            Target::Pipe(_) | Target::Net(_) | Target::Raw(_) | Target::Stream(_) => none,
        }
    }
}

/// Which way data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// From the other end.
    Read,
    /// To the other end.
    Write,
}

impl Mode {
    /// The variable in which a pipeline says what `-` means.
    pub fn variable(self) -> &'static str {
        match self {
            Mode::Read => "POLYDUCT_IN",
            Mode::Write => "POLYDUCT_OUT",
        }
    }
}

/// What would have been understood.
const EXPECTED: &str =
    "expected pipe:NAME, pipe://HOST:PORT/NAME, tcp://HOST:PORT, udp://HOST:PORT, rtp://HOST:PORT, stream://HOST:PORT/NAME, display://:PORT/NAME, window:PATH, PATH.npy, PATH.npz, PATH.raw, PATH.safetensors, \
    PATH.safetensors#NAME, PATH.safetensors.index.json, PATH.zarr, store:DIR/NAME or -";

/// Understands the path of a standard file by its ending, and what follows it. `None` for any other.
///
/// ```
/// use polyduct::{url::file, Target};
/// let one = Target::Safetensors("m.safetensors".into(), Some("layers.0.w".into()));
/// assert_eq!(file("m.safetensors#layers.0.w"), Some(one));
/// assert_eq!(file("run/x.zarr/pressure"), Some(Target::Zarr("run/x.zarr/pressure".into())));
/// assert_eq!(file("m.safetensors.index.json"), Some(Target::Set("m.safetensors.index.json".into())));
/// assert_eq!(file("x.txt"), None);
/// ```
pub fn file(path: &str) -> Option<Target> {
    for (ending, of) in [(".safetensors", Target::Safetensors as fn(_, _) -> _), (".npz", Target::Npz)] {
        if let Some(at) = path.find(&format!("{ending}#")) {
            let (file, name) = path.split_at(at + ending.len());
            // A name may hold anything; none at all names nothing.
            let name = Some(name[1..].to_owned()).filter(|name| !name.is_empty())?;
            return Some(of(file.into(), Some(name)));
        }
    }
    if polyduct_store::file::is_index(path.as_ref()) {
        return Some(Target::Set(path.into()));
    }
    let directory = path.trim_end_matches('/');
    // A name in a group stays in the group.
    if directory.split_once(".zarr/").is_some_and(|(_, name)| name.split('/').any(|part| part == "..")) {
        return None;
    }
    let target = match directory.rsplit_once('.').map(|(_, end)| end) {
        Some("npy") => Target::Npy(path.into()),
        Some("npz") => Target::Npz(path.into(), None),
        Some("raw") => Target::Raw(path.into()),
        Some("safetensors") => Target::Safetensors(path.into(), None),
        Some("zarr") => return Some(Target::Zarr(directory.into())),
        _ if directory.contains(".zarr/") => return Some(Target::Zarr(directory.into())),
        _ => return None,
    };
    // Only a directory may be written as one.
    (directory == path).then_some(target)
}

impl Target {
    /// The path of a file or directory; `None` for a pipe, and for a dataset in a store.
    pub fn path(&self) -> Option<&std::path::Path> {
        match self {
            Target::Pipe(_) | Target::Net(_) | Target::Store(_) | Target::Stream(_) => None,
            Target::Npy(path)
            | Target::Npz(path, _)
            | Target::Raw(path)
            | Target::Safetensors(path, _)
            | Target::Set(path)
            | Target::Zarr(path) => Some(path),
        }
    }
}

/// Understands a URL. `-` is what the pipeline gave; `get` reads an environment variable.
///
/// # Errors
/// [`Error::Url`] with what would have been understood.
pub fn parse(url: &str, mode: Mode, get: impl Fn(&str) -> Option<String>) -> Result<Target, Error> {
    let bad = |why: &str| Err(Error::Url { url: url.chars().take(200).collect(), why: why.into() });
    if url == "-" {
        return match get(mode.variable()) {
            Some(given) if given != "-" => parse(&given, mode, get),
            // A stage of a run has a name, also where nothing is before or behind it.
            _ => bad(match (mode, get("POLYDUCT_PROGRAM").is_some()) {
                (Mode::Read, false) => {
                    "no pipeline gives this program its input; start it with `polyduct \
                    run`, or name a file or pipe"
                }
                (Mode::Write, false) => {
                    "no pipeline takes this program's output; start it with `polyduct \
                    run`, or name a file or pipe"
                }
                (Mode::Read, true) => {
                    "nothing gives the first stage of a pipeline its input; put `< \
                    FILE.npy` or `COMMAND |` before it"
                }
                (Mode::Write, true) => {
                    "nothing takes the output of the last stage of a pipeline; put `> \
                    FILE.npy` or `| COMMAND` behind it"
                }
            }),
        };
    }
    if let Some(name) = url.strip_prefix("pipe:") {
        return match name.strip_prefix("//") {
            None => Ok(Target::Pipe(name.to_owned())),
            Some(rest) => match place(rest) {
                Ok(place) => Ok(Target::Net(place)),
                Err((at, why)) => bad(&format!("{why} at character {}", "pipe://".len() + at)),
            },
        };
    }
    if let Some(path) = url.strip_prefix("store:") {
        return match path {
            "" => bad("expected store:DIR/NAME, a dataset in the store that is in DIR"),
            path => Ok(Target::Store(path.into())),
        };
    }
    if let Some((scheme @ ("tcp" | "udp" | "rtp" | "stream" | "display"), rest)) = url.split_once("://") {
        return match stream(scheme, rest) {
            Ok(mut target) => {
                let usual = get("POLYDUCT_GATEWAY").filter(|_| target.gateways.is_empty());
                match usual.map_or(Ok(Vec::new()), |usual| GatewayAt::all(&usual)) {
                    Ok(usual) => target.gateways.extend(usual),
                    Err(expected) => {
                        return bad(&format!("POLYDUCT_GATEWAY is set: expected {expected} in it"))
                    }
                }
                Ok(Target::Stream(target))
            }
            Err((at, why)) => bad(&format!("{why} at character {}", scheme.len() + "://".len() + at)),
        };
    }
    if let Some(path) = url.strip_prefix("window:") {
        return match path {
            "" => bad("expected window:PATH, a file that other programs map"),
            path if path.contains('?') => bad("a window has no options: expected a path without ?"),
            path => {
                let place = Place::new(Protocol::Window, None, 0);
                Ok(Target::Stream(StreamTarget { name: path.to_owned(), ..StreamTarget::new(place) }))
            }
        };
    }
    let path = match url.strip_prefix("file:") {
        Some(path) => path,
        None if url.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme)) => {
            return bad(&format!("unknown kind; {EXPECTED}"))
        }
        None => url,
    };
    match file(path) {
        Some(target) => Ok(target),
        None => bad(EXPECTED),
    }
}

/// Where a domain across hosts meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// What carries its messages.
    pub transport: Transport,
    /// The host of unit 0.
    pub host: String,
    /// Where it listens.
    pub port: u16,
}

/// Understands what may stand for a domain: `tcp://HOST:PORT` and `udp://HOST:PORT`. `None` for a name.
///
/// # Errors
/// [`Error::Url`] with what would have been understood.
pub fn meeting(text: &str) -> Result<Option<Meeting>, Error> {
    let bad = |why: String| Error::Url { url: text.chars().take(200).collect(), why };
    let Some((scheme, rest)) = text.split_once("://") else { return Ok(None) };
    let transport = match scheme {
        "tcp" => Transport::Tcp,
        "udp" => Transport::Udp,
        _ => return Err(bad("unknown kind; expected a name, tcp://HOST:PORT or udp://HOST:PORT".into())),
    };
    let wrong = |(at, why)| bad(format!("{why} at character {}", scheme.len() + "://".len() + at));
    match socket(rest).map_err(wrong)? {
        (host, port, end) if end == rest.len() => Ok(Some(Meeting { transport, host, port })),
        (_, _, end) => Err(wrong((rest[..end].chars().count(), "expected nothing more"))),
    }
}

/// Understands `HOST:PORT/NAME`. What is wrong comes with where, from 0.
fn place(text: &str) -> Result<PipeAddress, (usize, &'static str)> {
    let (host, port, end) = socket(text)?;
    match text[end..].strip_prefix('/') {
        Some(name) if !name.is_empty() => Ok(PipeAddress::new(host, port, name)),
        _ => Err((text[..end].chars().count(), "expected /NAME, the pipe's name,")),
    }
}

/// Understands `[HOST]:PORT[/NAME][?OPTION=VALUE&…]`; the name is that of a stream between sites.
fn stream(scheme: &str, text: &str) -> Result<StreamTarget, (usize, Cow<'static, str>)> {
    let listens = text.starts_with(':');
    // A place to listen at is that of some host.
    let whole = if listens { format!("x{text}") } else { text.to_owned() };
    let (host, port, end) =
        socket(&whole).map_err(|(at, why)| (at - usize::from(listens && at > 0), why.into()))?;
    let end = end - usize::from(listens);
    let protocol = match scheme {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "rtp" => Protocol::Rtp,
        "stream" => Protocol::Far,
        _ => Protocol::Display,
    };
    let place = Place::new(protocol, Some(&host).filter(|_| !listens).map(|host| &host[..]), port);
    let mut target = StreamTarget::new(place);
    let chars = |byte: usize| text[..byte].chars().count();
    let mut end = end;
    if matches!(protocol, Protocol::Far | Protocol::Display) {
        let name = text[end..].strip_prefix('/').map(|rest| rest.split('?').next().unwrap_or(""));
        match name {
            Some(name) if !name.is_empty() => {
                if let (Protocol::Display, Err(error)) = (protocol, check_name(name)) {
                    return Err((chars(end + 1), error.to_string().into()));
                }
                target.name = name.to_owned();
                end += 1 + name.len();
            }
            _ => return Err((chars(end), "expected /NAME, the stream's name,".into())),
        }
    }
    let Some(query) = text[end..].strip_prefix('?') else {
        return if text[end..].is_empty() {
            Ok(target)
        } else {
            Err((chars(end), "expected nothing more, or ?,".into()))
        };
    };
    let mut at = end + 1;
    for word in query.split('&') {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let before = query[..at - end - 1].split('&').map(|other| other.split('=').next());
        if !name.is_empty() && before.into_iter().any(|other| other == Some(name)) {
            return Err((chars(at), format!("{name}: expected once").into()));
        }
        let wrong = |expected: &str| {
            let found = if value.is_empty() { "nothing".into() } else { format!("{value:?}") };
            let what = format!("{name}: expected {expected}, found {found}");
            Err((chars(at + (word.len() - value.len())), what.into()))
        };
        match name {
            "form" if protocol == Protocol::Tcp => match value {
                "raw" => target.form = Form::Raw,
                "npy" => target.form = Form::Npy,
                "length" => target.form = Form::Length,
                _ => return wrong("raw, npy or length"),
            },
            "lanes" => match value.parse() {
                Ok(lanes @ 1..=MAX_LANES) => target.place.lanes = lanes,
                _ => return wrong("1 to 64"),
            },
            "su" => match value.parse() {
                Ok(su @ 512..=0x400_0000) => target.place.su = su,
                _ => return wrong("bytes of a striping unit, 512 to 67108864"),
            },
            "packet" if matches!(protocol, Protocol::Udp | Protocol::Rtp) => match value.parse() {
                Ok(packet @ 60..=65_000) => target.place.su = packet,
                _ => return wrong("bytes of data in a datagram, 60 to 65000"),
            },
            "reshuffle" => match value {
                "yes" => target.reshuffle = Some(true),
                "no" => target.reshuffle = Some(false),
                _ => return wrong("yes or no"),
            },
            "gateway" => match GatewayAt::all(value) {
                Ok(gateways) => target.gateways = gateways,
                Err(expected) => return wrong(expected),
            },
            "part" if protocol == Protocol::Display => match value {
                name if is_name(name) => target.part = Some(name.to_owned()),
                _ => return wrong(NAMES),
            },
            "colour" if protocol == Protocol::Display => match Colour::of_name(value) {
                Some(colour) => target.colour = Some(colour),
                None => return wrong("rgb or rgba"),
            },
            _ => match tie(&mut target.ties, name, value) {
                Tied::Is => {}
                Tied::Wrong(expected) => return wrong(expected),
                Tied::Unknown => {
                    let own = match protocol {
                        Protocol::Tcp => "form=, lanes=, su=, reshuffle=, ",
                        Protocol::Udp | Protocol::Rtp => "packet=, lanes=, reshuffle=, ",
                        Protocol::Far => "lanes=, su=, reshuffle=, ",
                        Protocol::Display => "part=, colour=, ",
                        Protocol::Window => "",
                    };
                    let expected = format!(
                        "expected {own}gateway=, connection=, after=, group=, members=, priority=, quantum= or permanent="
                    );
                    return Err((chars(at), expected.into()));
                }
            },
        }
        at += word.len() + 1;
    }
    let (StreamTarget { ties, part, .. }, whole) = (&target, chars(end));
    match (part, &ties.group, ties.members) {
        (None, None, Some(_)) if protocol == Protocol::Display => {
            Err((whole, "members: expected part= with it, the name of this part of the page,".into()))
        }
        (None, None, Some(_)) => Err((whole, "members: expected group= with it".into())),
        (Some(_), Some(_), _) => {
            Err((whole, "part: expected no group= with it: the parts of a page are one".into()))
        }
        (Some(_), _, None) => {
            Err((whole, "part: expected members= with it, how many parts the page has,".into()))
        }
        _ => Ok(target),
    }
}

/// What a name of a group, a connection, a part may be.
const NAMES: &str = "a name: 1 to 40 letters, digits, ., _ and -";

enum Tied {
    Is,
    Wrong(&'static str),
    Unknown,
}

/// Understands an option that ties a stream to others.
fn tie(ties: &mut Ties, name: &str, value: &str) -> Tied {
    let called = || Some(value).filter(|name| is_name(name)).map(str::to_owned);
    let (is, expected) = match name {
        "connection" => (called().map(|name| ties.connection = Some(name)), NAMES),
        "after" => (called().map(|name| ties.after = Some(name)), NAMES),
        "group" => (called().map(|name| ties.group = Some(name)), NAMES),
        "members" => {
            let number = value.parse().ok().filter(|members| (1..=4096).contains(members));
            (number.map(|members| ties.members = Some(members)), "1 to 4096")
        }
        "priority" => (value.parse().ok().map(|priority| ties.priority = priority), "a whole number"),
        "quantum" => {
            let steps = value.parse().ok().filter(|steps| *steps > 0);
            (steps.map(|steps| ties.quantum = steps), "at least 1 step")
        }
        "permanent" => {
            let yes = ["no", "yes"].iter().position(|word| *word == value);
            (yes.map(|yes| ties.permanent = yes == 1), "yes or no")
        }
        _ => return Tied::Unknown,
    };
    is.map_or(Tied::Wrong(expected), |()| Tied::Is)
}

/// Understands `HOST:PORT`, an IPv6 address in brackets.
pub fn host_port(text: &str) -> Option<(String, u16)> {
    socket(text).ok().filter(|(.., end)| *end == text.len()).map(|(host, port, _)| (host, port))
}

/// Understands the `HOST:PORT` at the beginning, an IPv6 address in brackets; gives both, and the byte where
/// they end. What is wrong comes with where, in characters from 0.
fn socket(text: &str) -> Result<(String, u16, usize), (usize, &'static str)> {
    let (host, after) = match text.strip_prefix('[') {
        Some(inner) => match inner.split_once(']') {
            Some((host, _)) => (host, host.len() + 2),
            None => return Err((text.chars().count(), "expected ] after an IPv6 address")),
        },
        None => match text.find([':', '/']) {
            Some(end) => (&text[..end], end),
            None => (text, text.len()),
        },
    };
    let at = |byte: usize| text[..byte].chars().count();
    if host.is_empty() {
        return Err((0, "expected a host"));
    }
    if host.chars().any(|c| c.is_whitespace() || c.is_control() || "/[]@".contains(c)) {
        return Err((0, "expected a host's name or address"));
    }
    let Some(rest) = text[after..].strip_prefix(':') else {
        return Err((at(after), "expected :PORT behind the host,"));
    };
    let digits = rest.find(['/', '?']).unwrap_or(rest.len());
    let port = rest[..digits].parse().ok().filter(|&port: &u16| port > 0);
    let plain = rest[..digits].chars().all(|c| c.is_ascii_digit());
    let Some(port) = port.filter(|_| plain) else {
        return Err((at(after + 1), "expected a port, 1 to 65535,"));
    };
    Ok((host.into(), port, after + 1 + digits))
}

fn is_scheme(s: &str) -> bool {
    s.len() > 1 && s.chars().all(|c| c.is_ascii_alphanumeric() || "+-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Target, Error> {
        parse(url, Mode::Read, |v| (v == "POLYDUCT_IN").then(|| "pipe:run-1".to_owned()))
    }

    #[test]
    fn each_kind_is_understood() {
        assert_eq!(read("pipe:a/b").unwrap(), Target::Pipe("a/b".into()));
        assert_eq!(read("-").unwrap(), Target::Pipe("run-1".into()));
        assert_eq!(read("x.npy").unwrap(), Target::Npy("x.npy".into()));
        assert_eq!(read("file:/a:b/x.raw").unwrap(), Target::Raw("/a:b/x.raw".into()));
        assert_eq!(read("./a:b.npy").unwrap(), Target::Npy("./a:b.npy".into()));
        let tensor =
            |path: &str, name: Option<&str>| Target::Safetensors(path.into(), name.map(str::to_owned));
        assert_eq!(read("m.safetensors").unwrap(), tensor("m.safetensors", None));
        assert_eq!(read("file:m.safetensors#a/b.npy").unwrap(), tensor("m.safetensors", Some("a/b.npy")));
        assert_eq!(read("a/x.zarr/").unwrap(), Target::Zarr("a/x.zarr".into()));
        assert_eq!(read("a.zarr/b").unwrap(), Target::Zarr("a.zarr/b".into()));
        assert_eq!(read("../a.zarr/b").unwrap(), Target::Zarr("../a.zarr/b".into()));
        assert!(read("a.zarr/../b").is_err() && read("a.zarr/b/../../c").is_err());
        assert_eq!(read("a.zarr/b.npy").unwrap(), Target::Npy("a.zarr/b.npy".into()));
        assert!(read("x.npy/").is_err() && read("m.safetensors#").is_err() && read("x.zarr#a").is_err());
    }

    #[test]
    fn places_on_other_hosts_are_understood() {
        let place = |host: &str, port, name: &str| Target::Net(PipeAddress::new(host, port, name));
        assert_eq!(read("pipe://node7:4100/field").unwrap(), place("node7", 4100, "field"));
        assert_eq!(read("pipe://10.0.0.1:65535/a/b").unwrap(), place("10.0.0.1", 65535, "a/b"));
        assert_eq!(read("pipe://[fe80::1]:7/x").unwrap(), place("fe80::1", 7, "x"));
    }

    #[test]
    fn domains_on_several_hosts_are_understood() {
        let at = |transport, host: &str, port| Some(Meeting { transport, host: host.into(), port });
        assert_eq!(meeting("tcp://node7:4100").unwrap(), at(Transport::Tcp, "node7", 4100));
        assert_eq!(meeting("udp://[fe80::1]:7").unwrap(), at(Transport::Udp, "fe80::1", 7));
        assert_eq!(meeting("run-1-stage-0").unwrap(), None);
        for (url, at) in [
            ("tcp://", 6),
            ("tcp://host", 10),
            ("udp://host:", 11),
            ("tcp://host:99999", 11),
            ("tcp://host:1/x", 12),
            ("udp://h:1 ", 8),
            ("tcp://[::1", 10),
        ] {
            let error = meeting(url).unwrap_err().to_string();
            assert!(error.ends_with(&format!("at character {at}")), "{error}");
        }
        let error = meeting("pipe://host:1/x").unwrap_err().to_string();
        assert!(error.contains("tcp://HOST:PORT"), "{error}");
    }

    #[test]
    fn streams_say_what_they_are_tied_to() {
        let ties = |options: &str| match read(&format!("tcp://h:1?lanes=2&{options}")) {
            Ok(Target::Stream(target)) => Ok(target.ties),
            other => Err(format!("{other:?}")),
        };
        let name = |name: &str| Some(name.to_owned());
        let all = "connection=a&after=b&group=c-1&members=4&priority=-3&quantum=2&permanent=yes";
        let (connection, after, group, members) = (name("a"), name("b"), name("c-1"), Some(4));
        let expected = Ties { connection, after, group, members, quantum: 2, priority: -3, permanent: true };
        assert_eq!(ties(all), Ok(expected));
        assert_eq!(ties("permanent=no"), Ok(Ties::default()));
        for wrong in [
            "members=3",
            "group=a/b",
            "group=",
            "quantum=0",
            "priority=x",
            "permanent=1",
            "members=0",
            "part=a",
        ] {
            let error = ties(wrong).unwrap_err();
            assert!(error.contains("expected") && error.contains("at character"), "{error}");
        }
        for (url, why) in [
            ("tcp://h:1?lanes", "lanes: expected 1 to 64, found nothing at character 15"),
            ("tcp://h:1?lanes=x", "lanes: expected 1 to 64, found \"x\" at character 16"),
            ("display://:1/x?members=2", "members: expected part= with it"),
            ("display://:1/..", "browsers change addresses"),
            ("display://:1/a//b", "browsers change addresses"),
            ("window:x?group=a", "a window has no options"),
        ] {
            let error = read(url).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let part = |options: &str| read(&format!("display://:1/page?{options}"));
        assert!(part("part=left&members=2").is_ok());
        assert!(part("colour=rgba").is_ok() && part("colour=bgr").is_err());
        assert!(part("part=left").is_err() && part("part=left&members=2&group=a").is_err());
    }

    #[test]
    fn what_is_wrong_with_a_place_is_said_with_where() {
        for (url, at) in [
            ("pipe://", 7),
            ("pipe://:1/x", 7),
            ("pipe://a b:1/x", 7),
            ("pipe://host", 11),
            ("pipe://host/x", 11),
            ("pipe://höst/x", 11),
            ("pipe://host:/x", 12),
            ("pipe://host:0/x", 12),
            ("pipe://host:65536/x", 12),
            ("pipe://host:+1/x", 12),
            ("pipe://host:1", 13),
            ("pipe://host:1/", 13),
            ("pipe://[::1", 11),
            ("pipe://[::1]/x", 12),
        ] {
            let error = read(url).unwrap_err().to_string();
            assert!(error.ends_with(&format!("at character {at}")), "{error}");
        }
    }

    #[test]
    fn the_rest_is_refused_with_a_reason() {
        for url in ["", "x", "x.png", "http://x.npy", "store:", "disk:d/x"] {
            assert!(matches!(read(url), Err(Error::Url { .. })), "{url}");
        }
        assert!(matches!(parse("-", Mode::Write, |_| None), Err(Error::Url { .. })));
        assert!(matches!(parse("-", Mode::Write, |_| Some("-".into())), Err(Error::Url { .. })));
        for (mode, alone, in_a_run) in
            [(Mode::Read, "polyduct run", "< FILE.npy"), (Mode::Write, "polyduct run", "> FILE.npy")]
        {
            let text = parse("-", mode, |_| None).unwrap_err().to_string();
            assert!(text.contains(alone) && !text.contains(in_a_run), "{text}");
            let stage = |v: &str| (v == "POLYDUCT_PROGRAM").then(|| "run-1.stage-0".to_owned());
            let text = parse("-", mode, stage).unwrap_err().to_string();
            assert!(text.contains(in_a_run) && !text.contains(alone), "{text}");
        }
    }
}
