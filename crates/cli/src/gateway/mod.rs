//! `polyduct gateway`: a process that carries the streams of programs, and what it is asked.

mod status;

use crate::text::say;
use polyduct::gateway::{command, serve, Command, GatewayAt};
use polyduct::Error;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Descriptors that a gateway has room for, where the system allows it.
const OPEN_FILES: u64 = 8192;

/// Arguments.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct GatewayArgs {
    /// Carry the streams of all programs of this host whose places say gateway=NAME, until a signal ends it. Several of
    /// one name share the lanes of each stream.
    #[arg(required = true)]
    name: Option<String>,
    /// Carry also those of programs of other hosts, which say gateway=HOST:PORT and have the same POLYDUCT_JOB_KEY. Without
    /// a host, at all addresses of this one.
    #[arg(long, value_name = "[HOST]:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Say nothing when it is there.
    #[arg(long)]
    quiet: bool,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Show what a gateway carries: connections, streams, states, buffers, rates, waits.
    Status(status::StatusArgs),
    /// Let no further step of a stream begin.
    Pause(StreamArgs),
    /// Let a stream go on.
    Resume(StreamArgs),
    /// End a stream: its program gets an error.
    Close(StreamArgs),
    /// Change how a stream is served.
    Set(SetArgs),
    /// Tell a display how its pages are to look.
    Tell(TellArgs),
}

#[derive(clap::Args)]
struct StreamArgs {
    /// The gateway: NAME, NAME/1 for the second of a name, or HOST:PORT, where it listens.
    #[arg(value_parser = one)]
    name: GatewayAt,
    /// The stream's number, as `status` shows it.
    stream: u32,
}

#[derive(clap::Args)]
struct TellArgs {
    #[command(flatten)]
    which: StreamArgs,
    /// colors=NAME, range=LO..HI, range=auto, scale=linear, scale=log or scale=symmetric.
    #[arg(required = true)]
    what: Vec<String>,
}

#[derive(clap::Args)]
struct SetArgs {
    #[command(flatten)]
    which: StreamArgs,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(clap::Args)]
#[group(required = true, multiple = true)]
struct HowArgs {
    /// Steps that it moves before it gives way to others that wait.
    #[arg(long)]
    quantum: Option<u32>,
    /// Streams of a higher priority go first.
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
}

/// Does what the arguments say; gives the exit status.
pub fn gateway(args: &GatewayArgs) -> u8 {
    let done = match (&args.what, &args.name) {
        (None, None) => Ok(true),
        (None, Some(name)) => run(name, args.listen, args.quiet),
        (Some(What::Status(args)), _) => status::status(args, &job()),
        (Some(What::Pause(args)), _) => tell(args, Command::Pause),
        (Some(What::Resume(args)), _) => tell(args, Command::Resume),
        (Some(What::Close(args)), _) => tell(args, Command::Close),
        (Some(What::Tell(args)), _) => {
            let StreamArgs { name, stream } = &args.which;
            polyduct::gateway::tell(name, &job(), *stream, &args.what).map(|()| true)
        }
        (Some(What::Set(args)), _) => {
            let quantum = args.how.quantum.map(Command::Quantum);
            let mut all = quantum.into_iter().chain(args.how.priority.map(Command::Priority));
            all.try_fold(true, |_, what| tell(&args.which, what))
        }
    };
    match done {
        Ok(printed) => u8::from(!printed),
        Err(error) => {
            say!("{error}");
            1
        }
    }
}

/// The job that gateways' names belong to, as those of pipes.
fn job() -> String {
    polyduct::job()
}

fn tell(which: &StreamArgs, what: Command) -> Result<bool, Error> {
    command(&which.name, &job(), which.stream, what).map(|()| true)
}

/// One gateway.
fn one(text: &str) -> Result<GatewayAt, String> {
    text.parse().map_err(|expected| format!("expected {expected}"))
}

/// Where a gateway listens.
fn address(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Ok((Ipv4Addr::UNSPECIFIED, port).into());
    }
    if let Some(host) = text.strip_suffix(":0") {
        // Whichever port is free.
        return address(&format!("{host}:1")).map(|addr| (addr.ip(), 0).into());
    }
    let (host, port) = polyduct::url::host_port(text).ok_or("expected HOST:PORT or :PORT")?;
    let mut found = (host.as_str(), port).to_socket_addrs().map_err(|e| format!("{host}: {e}"))?;
    found.next().ok_or_else(|| format!("{host} has no address"))
}

fn run(name: &str, listen: Option<SocketAddr>, quiet: bool) -> Result<bool, Error> {
    let over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !crate::signals::is_ignored(*signal))
    {
        // Without it the signal ends the process as it is.
        let _ = signal_hook::flag::register(signal, over.clone());
    }
    // Each connection has descriptors of its own.
    crate::open_files::make_room(OPEN_FILES);
    let ready = |member: &GatewayAt, at: Option<SocketAddr>| {
        let there = at.map(|at| match at.ip().is_unspecified() {
            true => format!(
                ", or, on other hosts, gateway=HOST:{}, where HOST is this one's name or address",
                at.port()
            ),
            false => format!(", or, on other hosts, gateway={at}"),
        });
        if !quiet {
            say!(
                "gateway {member} carries streams whose places say gateway={name}{}",
                there.unwrap_or_default()
            );
        }
    };
    serve(name, &job(), listen, ready, &|| over.load(Ordering::Relaxed)).map(|()| true)
}
