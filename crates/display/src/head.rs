//! The head of a request, from bytes.

use crate::limits::{MAX_HEADERS, MAX_HEAD_BYTES};
use std::borrow::Cow;
use thiserror::Error;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Only the head of the answer is wanted.
    pub head_only: bool,
    /// The path, decoded, with its leading `/`.
    pub path: String,
    /// The pairs behind `?`, decoded, in order.
    pub query: Vec<(String, String)>,
    /// Whom the client believes that it talks to.
    pub host: Option<String>,
    /// The page that makes the request, as a browser says it.
    pub origin: Option<String>,
    /// The key of a websocket's handshake.
    pub websocket: Option<String>,
}

impl Request {
    /// The first value of that name behind `?`.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// Why a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeadError {
    /// It does not end within [`MAX_HEAD_BYTES`], or has more than [`MAX_HEADERS`] lines.
    #[error("the request's head has more than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} lines")]
    TooLarge,
    /// It is no HTTP, or its path is no text.
    #[error("this is no request of HTTP/1.1: {0}")]
    Malformed(&'static str),
    /// Only GET and HEAD are answered.
    #[error("only GET and HEAD are answered")]
    Method,
    /// A websocket's handshake of another version.
    #[error("a websocket of version 13 is expected")]
    Websocket,
}

impl HeadError {
    /// The status of the answer.
    pub fn status(self) -> u16 {
        match self {
            HeadError::TooLarge => 431,
            HeadError::Malformed(_) => 400,
            HeadError::Method => 405,
            HeadError::Websocket => 426,
        }
    }
}

/// Reads a head, and says how many bytes it has; `None` while its end has not come.
///
/// # Errors
/// [`HeadError`], each of which has its [status](HeadError::status).
pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, HeadError> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let within = &bytes[..bytes.len().min(MAX_HEAD_BYTES)];
    let len = match parsed.parse(within) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD_BYTES => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err(HeadError::TooLarge)
        }
        Err(_) => return Err(HeadError::Malformed("its head cannot be read")),
    };
    let head_only = match parsed.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(HeadError::Method),
    };
    let target = parsed.path.unwrap_or_default();
    if !target.starts_with('/') {
        return Err(HeadError::Malformed("its target is no path"));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = decode(path, false).ok_or(HeadError::Malformed("its path is no text"))?.into_owned();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pair = |pair| {
        let (name, value) = str::split_once(pair, '=').unwrap_or((pair, ""));
        Some((decode(name, true)?.into_owned(), decode(value, true)?.into_owned()))
    };
    let query: Option<Vec<_>> = pairs.map(pair).collect();
    let query = query.ok_or(HeadError::Malformed("its query is no text"))?;

    let all = |name: &str| {
        let of_name = parsed.headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name));
        of_name.map(|h| std::str::from_utf8(h.value).map(str::trim)).collect::<Vec<_>>()
    };
    let one = |name: &str| match all(name)[..] {
        [] => Ok(None),
        [Ok(value)] => Ok(Some(value.to_owned())),
        _ => Err(HeadError::Malformed("one of its headers is there twice, or no text")),
    };
    let has = |name: &str, word: &str| {
        let mut words = all(name).into_iter().flatten().flat_map(|v| v.split(','));
        words.any(|w| w.trim().eq_ignore_ascii_case(word))
    };
    let websocket = if !head_only && has("connection", "upgrade") && has("upgrade", "websocket") {
        let key = one("sec-websocket-key")?.filter(|key| key.len() == 24);
        if one("sec-websocket-version")?.as_deref() != Some("13") {
            return Err(HeadError::Websocket);
        }
        Some(key.ok_or(HeadError::Malformed("its websocket has no key of 24 characters"))?)
    } else {
        None
    };
    let request = Request { head_only, path, query, host: one("host")?, origin: one("origin")?, websocket };
    Ok(Some((request, len)))
}

/// Text with `%XX` (and `+` in a query) decoded; `None` when that is no UTF-8, or no digits follow.
fn decode(text: &str, query: bool) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || (rest.next()? as char).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            b'+' if query => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// A path as it stands in an address: the opposite of decoding. `/` stays.
pub fn encode(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' => out.push(byte as char),
            _ if byte.is_ascii_alphanumeric() => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WS: &str = "GET /a/ws?token=1 HTTP/1.1\r\nHost: localhost:1\r\nConnection: keep-alive, Upgrade\r\n\
        Upgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Origin: http://localhost:1\r\n\r\n";

    #[test]
    fn a_request_is_read_when_it_is_complete() {
        let text = "HEAD /a%20b/%C3%BC.png?view=u+v%26&x HTTP/1.1\r\nHoSt: [::1]:80 \r\n\r\nrest";
        for len in 0..text.len() - 4 {
            assert_eq!(parse(&text.as_bytes()[..len]), Ok(None), "{len}");
        }
        let (request, len) = parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(&text[len..], "rest");
        assert!(request.head_only && request.websocket.is_none() && request.origin.is_none());
        assert_eq!(request.path, "/a b/ü.png");
        assert_eq!((request.query("view"), request.query("x")), (Some("u v&"), Some("")));
        assert_eq!((request.query("y"), request.host.as_deref()), (None, Some("[::1]:80")));
    }

    #[test]
    fn a_handshake_is_one_with_all_that_belongs_to_it() {
        let read = |text: &str| parse(text.as_bytes()).map(|r| r.unwrap().0);
        let request = read(WS).unwrap();
        assert_eq!(request.websocket.as_deref(), Some("dGhlIHNhbXBsZSBub25jZQ=="));
        assert_eq!(request.origin.as_deref(), Some("http://localhost:1"));
        assert_eq!(read(&WS.replace("Upgrade: WebSocket", "Upgrade: h2c")).unwrap().websocket, None);
        assert_eq!(read(&WS.replace("GET", "HEAD")).unwrap().websocket, None);
        assert_eq!(read(&WS.replace("13", "12")), Err(HeadError::Websocket));
        assert_eq!(read(&WS.replace("dGhl", "")).unwrap_err().status(), 400);
        assert_eq!(read(&WS.replace("Origin", "Host")).unwrap_err().status(), 400);
    }

    #[test]
    fn what_is_no_request_is_refused_with_its_status() {
        let status = |text: &str| parse(text.as_bytes()).unwrap_err().status();
        assert_eq!(status("POST / HTTP/1.1\r\n\r\n"), 405);
        assert_eq!(status("GET http://x/ HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status("GET /%f HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status("GET /%ff HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status("GET /?%ff=1 HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status("\x16\x03\x01\x02"), 400);
        assert_eq!(status(&format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(MAX_HEAD_BYTES))), 431);
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1))), 431);
    }

    proptest! {
        #[test]
        fn bytes_never_panic_and_more_of_them_never_change_a_head(bytes: Vec<u8>, cut in 0usize..400) {
            let _ = parse(&bytes);
            let mut all = WS.as_bytes().to_vec();
            all.truncate(cut);
            all.extend(&bytes);
            if let Ok(Some((request, len))) = parse(&all) {
                prop_assert_eq!(parse(&all[..len]), Ok(Some((request, len))));
                prop_assert_eq!(parse(&all[..len - 1]), Ok(None));
            }
        }

        #[test]
        fn an_encoded_path_is_read_as_it_was(path: String) {
            let text = format!("GET /{} HTTP/1.1\r\n\r\n", encode(&path));
            prop_assert_eq!(parse(text.as_bytes()).unwrap().unwrap().0.path, format!("/{path}"));
        }
    }
}
