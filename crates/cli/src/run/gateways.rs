//! Gateways of a run: processes that carry the streams of its stages, and end with it.

use super::launch::Group;
use super::plan::OWN_VARIABLES;
use super::start::{OrCannot, StartError};
use polyduct::gateway::{is_name, members, GatewayAt};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The gateway that streams go by whose places name none.
pub const GATEWAY: &str = "POLYDUCT_GATEWAY";
/// How long they may take to be there.
const PATIENCE: Duration = Duration::from_secs(10);
/// How soon is looked again.
const PAUSE: Duration = Duration::from_millis(5);

/// What `--gateway` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateways {
    /// What they are called.
    pub name: String,
    /// How many there are.
    pub count: usize,
}

/// Understands `NAME` and `NAME=COUNT`.
pub fn parse(text: &str) -> Result<Gateways, String> {
    let (name, count) = text.split_once('=').unwrap_or((text, "1"));
    if !is_name(name) {
        return Err("expected a name of 1 to 40 letters, digits, ., _ and -".into());
    }
    let count = count.parse().ok().filter(|count| (1..=16).contains(count));
    Ok(Gateways { name: name.to_owned(), count: count.ok_or("expected 1 to 16 gateways after =")? })
}

/// Starts them in the group of the run, whose end is theirs, and waits until they are there.
pub fn start(gateways: &Gateways, group: &Group, job: &str) -> Result<(), StartError> {
    let Gateways { name, count } = gateways;
    let all = [GatewayAt::Name(name.clone())];
    let before = members(&all, job).len();
    let one = |_| {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("launch").args(["--parent", &std::process::id().to_string(), "--"]);
        command.arg(std::env::current_exe()?).args(["gateway", name, "--quiet"]);
        for variable in OWN_VARIABLES {
            command.env_remove(variable);
        }
        command.env(super::start::JOB, job).stdin(Stdio::null()).stdout(Stdio::null());
        command.process_group(group.id().as_raw_nonzero().get()).spawn()
    };
    let begun = (0..*count).map(one).collect::<io::Result<Vec<Child>>>();
    let mut begun = begun.or_cannot(|| format!("start gateway {name}"))?;
    let start = Instant::now();
    while members(&all, job).len() < before + count {
        let ended = begun.iter_mut().any(|one| matches!(one.try_wait(), Ok(Some(_))));
        if ended || start.elapsed() > PATIENCE {
            let why = if ended { "it has ended" } else { "it is not there in time" };
            return Err(io::Error::other(why)).or_cannot(|| format!("start gateway {name}"));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
