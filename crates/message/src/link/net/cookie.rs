//! Cookies that a listening side gives to senders of first datagrams, and recognises without having kept
//! anything: a keyed hash of the address and the time.

use crate::link::hello::{Header, Kind};
use crate::link::key::{self, hmac};
use crate::link::noise::{Cookie, Message, Terms, COOKIE};
use crate::types::Address;
use core::time::Duration;
use polyduct_os::OsError;
use std::net::{IpAddr, SocketAddr};
use zeroize::Zeroizing;

/// A cookie counts in the window of time in which it was made, and in the next.
pub const WINDOW: Duration = Duration::from_secs(5);

/// What only who receives a question can know of it, so that nobody else answers it.
pub type Nonce = [u8; COOKIE];

/// Makes cookies and knows them again.
pub struct Cookies(Zeroizing<[u8; 32]>);

impl Cookies {
    /// With a secret of its own.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn fresh() -> Result<Cookies, OsError> {
        let mut secret = Zeroizing::new([0; 32]);
        key::random(&mut secret[..])?;
        Ok(Cookies(secret))
    }

    /// A cookie for who can be reached there now.
    pub fn make(&self, at: SocketAddr, now: Duration) -> Cookie {
        self.of(at, window(now))
    }

    /// Whether it is one for this address, and not old.
    pub fn is_good(&self, cookie: &Cookie, at: SocketAddr, now: Duration) -> bool {
        let window = window(now);
        *cookie != [0; COOKIE]
            && [Some(window), window.checked_sub(1)]
                .into_iter()
                .flatten()
                .any(|w| equal(&self.of(at, w), cookie))
    }

    fn of(&self, at: SocketAddr, window: u64) -> Cookie {
        let address = match at.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut data = [0; 26];
        data[..8].copy_from_slice(&window.to_le_bytes());
        data[8..10].copy_from_slice(&at.port().to_le_bytes());
        data[10..].copy_from_slice(&address.octets());
        let mut cookie = [0; COOKIE];
        cookie.copy_from_slice(&hmac(&self.0, &data)[..COOKIE]);
        cookie
    }
}

fn window(now: Duration) -> u64 {
    now.as_secs() / WINDOW.as_secs()
}

/// In a time that does not depend on where they differ.
fn equal(a: &Cookie, b: &Cookie) -> bool {
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// The question for a cookie: as long as its answer, so that nobody can be flooded with those.
pub(crate) fn knock(terms: &Terms, to: Address, nonce: &Nonce) -> Message {
    Message::new(terms.header(Kind::Knock, to), &[*nonce, [0; COOKIE]].concat())
}

/// The answer to a knock, or to a first message without a good cookie; `None` where it would be longer than
/// the question.
pub(crate) fn answer(asked: &Header, body: &[u8], cookie: &Cookie) -> Option<Message> {
    let nonce: &Nonce = match asked.kind {
        Kind::Knock if body.len() == 2 * COOKIE => body.first_chunk()?,
        Kind::First => nonce_of_first(body)?,
        _ => return None,
    };
    let header = Header { kind: Kind::Cookie, ..*asked };
    Some(Message::new(header, &[*nonce, *cookie].concat()))
}

/// What the answer to a first message repeats of it: a part of the secret's public half, drawn anew for each.
pub(crate) fn nonce_of_first(body: &[u8]) -> Option<&Nonce> {
    body.get(COOKIE..)?.first_chunk()
}

/// The cookie in an answer to what had this nonce.
pub(crate) fn answered(body: &[u8], nonce: &Nonce) -> Option<Cookie> {
    let (repeated, cookie) = body.split_first_chunk::<COOKIE>()?;
    let cookie = cookie.try_into().ok()?;
    (repeated == nonce).then_some(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_counts_at_its_address_and_for_seconds() {
        let (cookies, others) = (Cookies::fresh().unwrap(), Cookies::fresh().unwrap());
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (here, now) = (at("10.0.0.1:7"), Duration::from_secs(1003));
        let cookie = cookies.make(here, now);
        let good = |at, now| cookies.is_good(&cookie, at, now);
        assert!(good(here, now) && good(here, now + WINDOW) && good(at("[::ffff:10.0.0.1]:7"), now));
        assert!(!good(here, now + 2 * WINDOW) && !good(here, now - WINDOW));
        assert!(!good(at("10.0.0.1:8"), now) && !good(at("10.0.0.2:7"), now));
        assert!(!others.is_good(&cookie, here, now) && cookie != [0; COOKIE]);
        for bit in 0..8 * COOKIE {
            let mut changed = cookie;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!cookies.is_good(&changed, here, now));
        }
    }
}
