//! Who may look: a token where others than this machine's users can come, and no page from elsewhere.

use crate::head::Request;
use polyduct_os::OsError;
use rustix::rand::{getrandom, GetRandomFlags};
use std::net::{IpAddr, Ipv4Addr};
use thiserror::Error;

/// Why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("this display needs ?token=… with the token that it was started with")]
    Token,
    #[error("the Host of the request is not one of this display: use localhost or 127.0.0.1")]
    Host,
    #[error("the Origin of the request is not this display")]
    Origin,
}

/// What requests are held against.
#[derive(Debug, Clone)]
pub(crate) struct Trust {
    /// 32 hexadecimal digits.
    token: Option<String>,
    /// The host as it was given, without a port.
    bound: Option<String>,
}

impl Trust {
    pub(crate) fn new(token: Option<String>, bound: Option<String>) -> Trust {
        Trust { token, bound }
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Whether a request is answered.
    pub(crate) fn check(&self, request: &Request) -> Result<(), Refusal> {
        match &self.token {
            Some(token) => {
                if !equal(token, request.query("token").unwrap_or_default()) {
                    return Err(Refusal::Token);
                }
            }
            // Without a token a page from elsewhere could come by a name of its own that leads here.
            None => {
                if !request.host.as_deref().is_some_and(|host| self.is_ours(host)) {
                    return Err(Refusal::Host);
                }
            }
        }
        if !is_same_origin(request) {
            return Err(Refusal::Origin);
        }
        Ok(())
    }

    fn is_ours(&self, host: &str) -> bool {
        let name = without_port(host);
        let is_loopback = match name.strip_prefix('[').and_then(|n| n.strip_suffix(']')) {
            Some(v6) => v6.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
            None => name.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback()),
        };
        is_loopback
            || name.eq_ignore_ascii_case("localhost")
            || self.bound.as_deref().is_some_and(|bound| {
                name.trim_matches(['[', ']']).eq_ignore_ascii_case(bound.trim_matches(['[', ']']))
            })
    }
}

/// A port may differ where one is forwarded, so only the name counts.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

/// Browsers say where the page is from that opens a websocket or reads an answer from elsewhere; programs
/// that are none do not, and no page can make them come.
fn is_same_origin(request: &Request) -> bool {
    let Some(origin) = &request.origin else { return true };
    let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    match (host, &request.host) {
        (Some(origin), Some(host)) => origin.eq_ignore_ascii_case(host),
        _ => false,
    }
}

/// Compares in a time that tells nothing but the length.
pub(crate) fn equal(secret: &str, given: &str) -> bool {
    let differs = |acc: u8, (a, b): (u8, u8)| std::hint::black_box(acc | (a ^ b));
    secret.len() == given.len() && secret.bytes().zip(given.bytes()).fold(0, differs) == 0
}

/// 32 hexadecimal digits that nobody can guess.
pub(crate) fn random_token() -> Result<String, OsError> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        let got = rustix::io::retry_on_intr(|| getrandom(&mut bytes[filled..], GetRandomFlags::empty()));
        filled += got.map_err(|e| OsError::sys("getrandom", "a token", e))?;
    }
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

/// Whether a text is a token: 32 hexadecimal digits.
pub(crate) fn is_token(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(host: Option<&str>, origin: Option<&str>, token: Option<&str>) -> Request {
        Request {
            head_only: false,
            path: "/".into(),
            query: token.map(|t| ("token".into(), t.into())).into_iter().collect(),
            host: host.map(Into::into),
            origin: origin.map(Into::into),
            websocket: origin.map(|_| "key".into()),
        }
    }

    #[test]
    fn on_loopback_only_this_machine_is_a_host() {
        let trust = Trust::new(None, Some("desk.example".into()));
        let check = |host| trust.check(&request(host, None, None));
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.9.9.9", "[::1]:9", "desk.example:1"]
        {
            assert_eq!(check(Some(host)), Ok(()), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]", "::1", "0"]
        {
            assert_eq!(check(Some(host)), Err(Refusal::Host), "{host}");
        }
        assert_eq!(check(None), Err(Refusal::Host));
    }

    #[test]
    fn pages_of_other_hosts_are_refused() {
        let trust = Trust::new(None, None);
        let check = |origin| trust.check(&request(Some("localhost:80"), Some(origin), None));
        assert_eq!(check("http://localhost:80"), Ok(()));
        for origin in
            ["http://localhost", "http://evil.example", "null", "localhost:80", "file://localhost:80"]
        {
            assert_eq!(check(origin), Err(Refusal::Origin), "{origin}");
        }
    }

    #[test]
    fn where_a_token_is_needed_it_alone_opens() {
        let token = "0123456789abcdef0123456789abcdef";
        let trust = Trust::new(Some(token.into()), None);
        let check = |given| trust.check(&request(Some("any.example"), None, given));
        assert_eq!(check(Some(token)), Ok(()));
        for given in [None, Some(""), Some(&token[1..]), Some("0123456789abcdef0123456789abcdee")] {
            assert_eq!(check(given), Err(Refusal::Token), "{given:?}");
        }
        assert!(is_token(token) && !is_token(&token[1..]) && !is_token(&token.replace('0', "g")));
    }
}
