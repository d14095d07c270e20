//! Says whether MPI programs can be run over polyduct.

use super::Finding;
use crate::mpi::provider;
use std::process::Command;

/// A program that does nothing, into which the provider is loaded.
const NOTHING: &str = "/bin/true";

pub fn examine() -> Finding {
    let path = match provider() {
        Ok(path) => path,
        Err(why) => return Finding::warn("MPI", "no provider for libfabric", why),
    };
    // The loader says what keeps it from that.
    let loaded = Command::new(NOTHING).env("LD_PRELOAD", &path).output();
    let words = match &loaded {
        Ok(output) if output.status.success() && output.stderr.is_empty() => {
            return Finding::ok("MPI", "the provider for libfabric loads (polyduct mpi mpirun …)")
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(e) => e.to_string(),
    };
    let advice = "install polyduct again for this system; everything but `polyduct mpi` works without it";
    Finding::warn("MPI", format!("{} does not load: {words}", path.display()), advice)
}
