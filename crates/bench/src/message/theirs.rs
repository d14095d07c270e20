//! The peers' part of a row. A peer that cannot be had is said to be missing, in words.

use crate::peers::peer_seconds;
use std::path::{Path, PathBuf};

/// Seconds of a peer, or why it is missing; the outer error is a peer that failed.
pub type Theirs = Result<Result<f64, String>, String>;

/// The peers' script.
#[derive(Clone)]
pub struct Peers(PathBuf);

impl Peers {
    /// The peers of this script.
    pub fn new(script: &Path) -> Peers {
        Peers(script.to_owned())
    }

    /// Seconds one way of a message of `len` bytes.
    pub fn latency(&self, peer: &str, len: usize) -> Theirs {
        peer_seconds(&self.0, peer, &format!("message-latency-{len}"))
    }

    /// Seconds one way of an array of `len` bytes from Python, by mpi4py.
    pub fn array_latency(&self, len: usize, busy: bool) -> Theirs {
        let busy = if busy { "-busy" } else { "" };
        peer_seconds(&self.0, "mpi4py", &format!("array-latency-{len}{busy}"))
    }

    /// Seconds of a put and a get of so many bytes, from Python.
    pub fn array_put_get(&self, len: usize, busy: bool) -> Theirs {
        let busy = if busy { "-busy" } else { "" };
        peer_seconds(&self.0, "mpi4py", &format!("array-put-get-{len}{busy}"))
    }

    /// Seconds of each message of a stream.
    pub fn stream(&self, peer: &str, len: usize) -> Theirs {
        peer_seconds(&self.0, peer, &format!("message-rate-{len}"))
    }

    /// Seconds of so many bytes on one TCP connection.
    pub fn tcp(&self, bytes: u64) -> Theirs {
        peer_seconds(&self.0, "iperf3", &format!("tcp-stream-{bytes}"))
    }

    /// The faster of two peers' streams; that of one where the other is missing.
    pub fn faster_stream(&self, peers: [&str; 2], len: usize) -> Theirs {
        faster(peers.map(|peer| self.stream(peer, len)))
    }
}

fn faster([one, other]: [Theirs; 2]) -> Theirs {
    Ok(match (one?, other?) {
        (Ok(a), Ok(b)) => Ok(a.min(b)),
        (Ok(a), Err(_)) | (Err(_), Ok(a)) => Ok(a),
        (Err(a), Err(b)) => Err(format!("{a}; {b}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_counts_and_the_one_that_is_there() {
        let missing = |why: &str| -> Theirs { Ok(Err(why.to_owned())) };
        assert_eq!(faster([Ok(Ok(2.0)), Ok(Ok(1.0))]), Ok(Ok(1.0)));
        assert_eq!(faster([missing("a"), Ok(Ok(3.0))]), Ok(Ok(3.0)));
        assert_eq!(faster([missing("a"), missing("b")]), missing("a; b"));
        assert_eq!(faster([Err("broke".into()), missing("b")]), Err("broke".into()));
    }
}
