//! At which ports to listen where any will do.

use polyduct_os::OsError;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

/// The variable that names them, first and last: `4100-4199`.
pub const PORTS_VARIABLE: &str = "POLYDUCT_PORTS";

/// The ports that may be listened at, where the environment says which: a firewall lets these through.
///
/// # Errors
/// [`OsError::BadName`] where it says none.
pub fn range() -> Result<Option<RangeInclusive<u16>>, OsError> {
    match std::env::var(PORTS_VARIABLE) {
        Ok(words) if !words.is_empty() => parse(&words).map(Some),
        _ => Ok(None),
    }
}

fn parse(words: &str) -> Result<RangeInclusive<u16>, OsError> {
    let ends = words.split_once('-').unwrap_or((words, words));
    match (ends.0.trim().parse::<u16>(), ends.1.trim().parse::<u16>()) {
        (Ok(first @ 1..), Ok(last)) if first <= last => Ok(first..=last),
        _ => {
            let name = format!("{PORTS_VARIABLE}={}", words.chars().take(40).collect::<String>());
            Err(OsError::BadName { name, reason: "expected the first and the last port, as in 4100-4199" })
        }
    }
}

/// Binds at `addr`; where its port is 0, at the first of `ports` that is free, if there are any to choose
/// from.
///
/// # Errors
/// Those of `bind`; [`OsError::AddrInUse`] where none of the ports is free.
pub fn bind_in<T>(
    addr: SocketAddr,
    ports: Option<RangeInclusive<u16>>,
    bind: impl Fn(SocketAddr) -> Result<T, OsError>,
) -> Result<T, OsError> {
    let Some(ports) = ports.filter(|_| addr.port() == 0) else { return bind(addr) };
    let all = format!("every port of {} in {PORTS_VARIABLE}={}-{}", addr.ip(), ports.start(), ports.end());
    for port in ports {
        match bind(SocketAddr::new(addr.ip(), port)) {
            Err(OsError::AddrInUse { .. }) => {}
            bound => return bound,
        }
    }
    Err(OsError::AddrInUse { name: all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_two_ports() {
        assert_eq!(parse("4100-4199").unwrap(), 4100..=4199);
        assert_eq!(parse("4100").unwrap(), 4100..=4100);
        for words in ["0-5", "5-4", "a-b", "4100-70000", "-", "1-2-3", ""] {
            let error = parse(words).unwrap_err().to_string();
            assert!(error.contains("as in 4100-4199"), "{words}: {error}");
        }
    }

    #[test]
    fn the_first_free_port_is_taken_and_a_port_that_is_named_stays() {
        let bind = |taken: &'static [u16]| {
            move |addr: SocketAddr| match taken.contains(&addr.port()) {
                true => Err(OsError::AddrInUse { name: addr.to_string() }),
                false => Ok(addr.port()),
            }
        };
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(bind_in(at(0), Some(4100..=4102), bind(&[4100])), Ok(4101));
        assert_eq!(bind_in(at(7), Some(4100..=4102), bind(&[])), Ok(7));
        assert_eq!(bind_in(at(0), None, bind(&[])), Ok(0));
        let error = bind_in(at(0), Some(4100..=4101), bind(&[4100, 4101])).unwrap_err().to_string();
        assert!(error.contains("every port of 127.0.0.1 in POLYDUCT_PORTS=4100-4101"), "{error}");
    }
}
