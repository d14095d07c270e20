//! Any text names the other end of a port, or where a domain meets, or is refused with the place of the
//! mistake; what is understood is understood again as it is written down.

#![forbid(unsafe_code)]

mod driver;

use polyduct::stream::control::Ties;
use polyduct::stream::Protocol;
use polyduct::url::{meeting, parse, Meeting};
use polyduct::{Error, Form, Mode, StreamTarget, Target};
use polyduct_message::link::net::config::Transport;
use std::net::Ipv6Addr;

/// HOST:PORT, as it has to be written.
fn socket(host: &str, port: u16) -> String {
    assert!(!host.is_empty() && port > 0);
    let odd = |c: char| c.is_whitespace() || c.is_control() || "/[]@".contains(c);
    assert!(!host.contains(odd), "{host:?}");
    assert!(host.parse::<Ipv6Addr>().is_err() || host.contains(':'));
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

fn written(target: &Target) -> Option<String> {
    match target {
        Target::Pipe(name) => Some(format!("pipe:{name}")),
        Target::Net(place) => {
            assert!(!place.name.is_empty());
            Some(format!("pipe://{}/{}", socket(&place.host, place.port), place.name))
        }
        Target::Stream(target) => Some(stream(target)),
        Target::Safetensors(path, Some(tensor)) => Some(format!("file:{}#{tensor}", path.to_str()?)),
        file => Some(format!("file:{}", file.path()?.to_str()?)),
    }
}

fn stream(target: &StreamTarget) -> String {
    let StreamTarget { place, name, form, gateways, reshuffle, ties, part, colour } = target;
    if place.protocol == Protocol::Window {
        assert!(!name.is_empty());
        return format!("window:{name}");
    }
    let at = match &place.host {
        Some(host) => socket(host, place.port),
        None => format!(":{}", place.port),
    };
    let named = matches!(place.protocol, Protocol::Far | Protocol::Display);
    assert_eq!(named, !name.is_empty());
    let scheme = place.to_string().split_once("://").expect("a scheme").0.to_owned();
    let mut text = format!("{scheme}://{at}");
    if named {
        text += &format!("/{name}");
    }
    text += &format!("?lanes={}", place.lanes);
    match place.protocol {
        Protocol::Udp | Protocol::Rtp => text += &format!("&packet={}", place.su),
        _ => text += &format!("&su={}", place.su),
    }
    if place.protocol == Protocol::Tcp {
        text += match form {
            Form::Raw => "&form=raw",
            Form::Npy => "&form=npy",
            Form::Length => "&form=length",
        };
    }
    let all: Vec<String> = gateways.iter().map(ToString::to_string).collect();
    let gateway = Some(all.join(",")).filter(|_| !all.is_empty());
    let reshuffle = reshuffle.map(|yes| if yes { "yes" } else { "no" }.to_owned());
    let Ties { connection, after, group, members, quantum, priority, permanent } = ties;
    let members = members.map(|members| members.to_string());
    let colour = colour.map(|colour| colour.name().to_owned());
    let said = [
        ("gateway", &gateway),
        ("reshuffle", &reshuffle),
        ("part", part),
        ("colour", &colour),
        ("connection", connection),
        ("after", after),
        ("group", group),
        ("members", &members),
    ];
    for (name, value) in said.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        text += &format!("&{name}={value}");
    }
    let permanent = if *permanent { "yes" } else { "no" };
    text + &format!("&quantum={quantum}&priority={priority}&permanent={permanent}")
}

/// A refusal quotes no more than it should, and points into the text.
fn check_refusal(error: &Error, text: &str) {
    let Error::Url { url, why } = error else { panic!("{error:?}") };
    assert!(url.chars().count() <= 200 && text.starts_with(&**url), "{url:?} of {text:?}");
    assert!(!why.is_empty());
    if let Some((_, at)) = why.rsplit_once(" at character ") {
        let at: usize = at.parse().expect("a place");
        assert!(at <= text.chars().count(), "{why} of {text:?}");
    }
}

fn check_port(text: &str, given: Option<&str>) {
    for mode in [Mode::Read, Mode::Write] {
        let get = |name: &str| given.filter(|_| name == mode.variable()).map(str::to_owned);
        match parse(text, mode, get) {
            Ok(target) => {
                let Some(again) = written(&target) else { return };
                let found = parse(&again, mode, |_| None);
                assert_eq!(found.expect("as it was written"), target, "{again:?}");
            }
            Err(error) if text == "-" => check_refusal(&error, given.filter(|g| *g != "-").unwrap_or(text)),
            Err(error) => check_refusal(&error, text),
        }
    }
}

fn check_meeting(text: &str) {
    match meeting(text) {
        Ok(Some(found)) => {
            let Meeting { transport, host, port } = &found;
            let scheme = if *transport == Transport::Tcp { "tcp" } else { "udp" };
            let again = format!("{scheme}://{}", socket(host, *port));
            assert_eq!(meeting(&again).expect("as it was written"), Some(found), "{again:?}");
        }
        Ok(None) => assert!(!text.contains("://")),
        Err(error) => check_refusal(&error, text),
    }
}

/// The text, and behind a zero byte what a pipeline gave.
fn target(input: &[u8]) {
    let Ok(input) = std::str::from_utf8(input) else { return };
    let (text, given) = input.split_once('\0').map_or((input, None), |(text, given)| (text, Some(given)));
    check_port(text, given);
    check_port("-", Some(text));
    check_meeting(text);
}

fn main() {
    let seeds: [&[u8]; 18] = [
        b"pipe:run-1/a",
        b"pipe://node7:4100/field",
        b"pipe://[fe80::1]:7/a/b",
        b"file:/a:b/x.raw",
        b"./x.npy",
        b"m.safetensors#layers.0/w",
        b"run/x.zarr/a/",
        b"-\0pipe:run-1",
        b"-\0pipe://10.0.0.1:65535/x",
        b"tcp://node7:4100",
        b"udp://[::1%eth0]:65535",
        b"tcp://:9000?form=npy&lanes=3&su=4096&gateway=north",
        b"tcp://h:9000?group=g&members=4&connection=a&after=b&reshuffle=no&permanent=yes&quantum=3&priority=-2",
        b"display://:8080/cameras?gateway=north&part=left&members=4",
        b"rtp://h:1?packet=900",
        b"stream://far:4200/a/b?lanes=4",
        b"display://[::1]:8080/x?colour=rgba",
        "pipe://höst:1/ß".as_bytes(),
    ];
    let words: [&[u8]; 32] = [
        b"pipe:",
        b"//",
        b"://",
        b"tcp",
        b"udp://",
        b"file:",
        b"window:",
        b"display",
        b"stream",
        b"?",
        b"&lanes=2",
        b"=",
        b".npy",
        b".raw",
        b".safetensors",
        b".zarr",
        b".zarr/",
        b"#",
        b"[",
        b"]",
        b"]:",
        b"@",
        b":",
        b"/",
        b"0",
        b"65536",
        b"+1",
        b"\0",
        b"-",
        b" ",
        "ö".as_bytes(),
        "\u{2028}".as_bytes(),
    ];
    driver::run(&seeds, &words, target);
}
