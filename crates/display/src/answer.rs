//! Answers to requests, and which request gets which.

use crate::draw::Form;
use crate::head::{self, Request};
use bytes::Bytes;
use std::fmt::Write;

/// Whatever the page does stays on it: nothing is loaded from elsewhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    connect-src 'self'; img-src 'self' data: blob:";

/// What a request is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The page.
    Page,
    /// The address of a name's page: where there is no other name, or the request had a slash behind it.
    Redirect(String),
    Status,
    /// A websocket of a name.
    Watch(String),
    /// What a viewer of a name is shown.
    Frames(String),
    /// The newest frame of a name.
    Newest(String, Form),
    Unknown,
}

/// Finds what a request is about among `names`. A name comes before what it would mean with its ending.
pub(crate) fn route<'a>(
    request: &Request,
    is_name: impl Fn(&str) -> bool,
    mut names: impl Iterator<Item = &'a str>,
) -> Route {
    let path = request.path.trim_start_matches('/');
    if request.websocket.is_some() {
        let name = path.strip_suffix("/ws").filter(|name| is_name(name));
        return name.map_or(Route::Unknown, |name| Route::Watch(name.into()));
    }
    if path.is_empty() {
        return match (names.next(), names.next()) {
            (Some(only), None) => Route::Redirect(only.into()),
            _ => Route::Page,
        };
    }
    if path == "status.json" {
        return Route::Status;
    }
    if is_name(path) {
        return Route::Page;
    }
    if let Some(name) = path.strip_suffix('/').filter(|name| is_name(name)) {
        return Route::Redirect(name.into());
    }
    if let Some(name) = path.strip_suffix("/frames").filter(|name| !request.head_only && is_name(name)) {
        return Route::Frames(name.into());
    }
    let forms = [(".png", Form::Png), (".npy", Form::Npy), (".json", Form::Json)];
    let newest = |(ending, form)| {
        let name = path.strip_suffix(ending).filter(|name| is_name(name))?;
        Some(Route::Newest(name.into(), form))
    };
    forms.into_iter().find_map(newest).unwrap_or(Route::Unknown)
}

/// Lines of every answer's head. An address may hold a token, which is told to nobody.
const LINES: &str = "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
    Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
    X-Frame-Options: SAMEORIGIN\r\n";

/// An answer, before it is written.
#[derive(Debug)]
pub(crate) struct Answer {
    status: u16,
    kind: &'static str,
    /// Further lines of its head.
    lines: String,
    body: Vec<Bytes>,
}

impl Answer {
    fn new(status: u16, kind: &'static str, body: Vec<Bytes>) -> Answer {
        Answer { status, kind, lines: String::new(), body }
    }

    fn line(mut self, name: &str, value: &str) -> Answer {
        // What a client sent reaches a line only encoded; nothing else has such characters.
        if !value.contains(['\r', '\n']) {
            let _ = write!(self.lines, "{name}: {value}\r\n");
        }
        self
    }

    /// A status with a sentence.
    pub(crate) fn text(status: u16, text: &str) -> Answer {
        let answer = Answer::new(status, "text/plain; charset=utf-8", vec![format!("{text}\n").into()]);
        match status {
            405 => answer.line("Allow", "GET, HEAD"),
            426 => answer.line("Upgrade", "websocket").line("Sec-WebSocket-Version", "13"),
            503 => answer.line("Retry-After", "1"),
            _ => answer,
        }
    }

    pub(crate) fn page(page: &'static str) -> Answer {
        let body = vec![Bytes::from_static(page.as_bytes())];
        Answer::new(200, "text/html; charset=utf-8", body).line("Content-Security-Policy", POLICY)
    }

    pub(crate) fn json(text: impl Into<Bytes>) -> Answer {
        Answer::new(200, "application/json", vec![text.into()])
    }

    pub(crate) fn png(bytes: Bytes) -> Answer {
        Answer::new(200, "image/png", vec![bytes])
    }

    /// A file to be saved: its head and its data.
    pub(crate) fn npy(head: Vec<u8>, data: Bytes) -> Answer {
        Answer::new(200, "application/octet-stream", vec![head.into(), data])
    }

    /// The page of a name, with the token that the request had.
    pub(crate) fn redirect(name: &str, token: Option<&str>) -> Answer {
        let token = token.map_or(String::new(), |token| format!("?token={token}"));
        Answer::text(302, "the page is there").line("Location", &format!("/{}{token}", head::encode(name)))
    }

    /// No such thing; the text lists what there is.
    pub(crate) fn unknown<'a>(names: impl Iterator<Item = &'a str>) -> Answer {
        let mut text = String::from("there is nothing of this name here; there is:");
        let before = text.len();
        names.for_each(|name| {
            let _ = write!(text, "\n/{}", head::encode(name));
        });
        Answer::text(404, if text.len() == before { "nothing is shown here yet" } else { &text })
    }

    /// The pieces as they go out.
    pub(crate) fn pieces(self, head_only: bool) -> Vec<Bytes> {
        let reason = match self.status {
            200 => "OK",
            302 => "Found",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            426 => "Upgrade Required",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let len: usize = self.body.iter().map(Bytes::len).sum();
        let head = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {len}\r\n{LINES}{}\r\n",
            self.status, self.kind, self.lines
        );
        let body = if head_only { Vec::new() } else { self.body };
        [Bytes::from(head)].into_iter().chain(body).collect()
    }
}

/// The answer that makes a connection a websocket.
pub(crate) fn switch(key: &str) -> Bytes {
    let accept = tungstenite::handshake::derive_accept_key(key.as_bytes());
    Bytes::from(format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Accept: {accept}\r\n\r\n"
    ))
}

/// The head of an answer whose body goes on until the connection ends.
pub(crate) fn endless() -> Bytes {
    Bytes::from(format!("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n{LINES}\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, websocket: bool, names: &[&str]) -> Route {
        let request = Request {
            head_only: false,
            path: path.into(),
            query: vec![],
            host: None,
            origin: None,
            websocket: websocket.then(String::new),
        };
        route(&request, |name| names.contains(&name), names.iter().copied())
    }

    #[test]
    fn each_path_leads_somewhere() {
        assert_eq!(of("/", false, &[]), Route::Page);
        assert_eq!(of("/", false, &["a/b"]), Route::Redirect("a/b".into()));
        assert_eq!(of("/", false, &["a", "b"]), Route::Page);
        assert_eq!(of("/status.json", false, &["a"]), Route::Status);
        assert_eq!(of("/a/b", false, &["a/b"]), Route::Page);
        assert_eq!(of("/a/b/", false, &["a/b"]), Route::Redirect("a/b".into()));
        assert_eq!(of("/a//", false, &["a"]), Route::Unknown);
        assert_eq!(of("/a/b.npy", false, &["a/b"]), Route::Newest("a/b".into(), Form::Npy));
        assert_eq!(of("/a.png", false, &["a", "a.png"]), Route::Page);
        assert_eq!(of("/a.png.png", false, &["a", "a.png"]), Route::Newest("a.png".into(), Form::Png));
        assert_eq!(of("/a/ws", true, &["a"]), Route::Watch("a".into()));
        assert_eq!(of("/a/ws", false, &["a"]), Route::Unknown);
        assert_eq!(of("/a", true, &["a"]), Route::Unknown);
        assert_eq!(of("/a/frames", false, &["a"]), Route::Frames("a".into()));
        assert_eq!(of("/a/frames", false, &["a", "a/frames"]), Route::Page);
        assert_eq!(of("/a/frames", true, &["a"]), Route::Unknown);
        assert_eq!(of("/b.json", false, &["a"]), Route::Unknown);
    }

    #[test]
    fn an_answer_says_its_length_and_a_name_cannot_add_lines() {
        let all = |answer: Answer, head_only| String::from_utf8(answer.pieces(head_only).concat()).unwrap();
        let text = all(Answer::text(405, "no"), false);
        assert!(
            text.contains("\r\nContent-Length: 3\r\n") && text.contains("\r\nAllow: GET, HEAD\r\n\r\nno\n")
        );
        let text = all(Answer::redirect("a b\r\nSet-Cookie: c", Some("0")), true);
        assert!(text.contains("\r\nLocation: /a%20b%0D%0ASet-Cookie%3A%20c?token=0\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\n"));
        assert!(all(Answer::unknown(["a", "b/ü"].into_iter()), false).ends_with("\n/a\n/b/%C3%BC\n"));
    }

    #[test]
    fn the_key_of_the_standard_is_accepted_as_there() {
        let text = switch("dGhlIHNhbXBsZSBub25jZQ==");
        assert!(text.ends_with(b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"));
    }
}
