//! `polyduct gateway status`.

use crate::text::{bytes, plain, print, print_json, say, seconds, table};
use polyduct::gateway::{members, status as ask, GatewayAt, State, Status, StreamStatus};
use polyduct::Error;
use std::collections::BTreeMap;
use std::io::{stdout, IsTerminal};
use std::time::{Duration, Instant};

/// Arguments.
#[derive(clap::Args)]
pub struct StatusArgs {
    /// The gateways: NAME for all of that name on this host, NAME/1 for the second of them, or HOST:PORT[,HOST:PORT,...], where
    /// they listen.
    #[arg(value_parser = all)]
    name: Which,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
    /// Show it again and again, each so many seconds.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = every)]
    watch: Option<Duration>,
}

/// Gateways that are looked at together.
#[derive(Clone)]
struct Which(Vec<GatewayAt>);

fn all(text: &str) -> Result<Which, String> {
    GatewayAt::all(text).map(Which).map_err(|expected| format!("expected {expected}"))
}

fn every(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected 0.1 to 3600 seconds".into())
}

/// Shows it; `false` where that cannot be printed.
///
/// # Errors
/// There is no such gateway.
pub fn status(args: &StatusArgs, job: &str) -> Result<bool, Error> {
    let mut before: BTreeMap<String, (Instant, Status)> = BTreeMap::new();
    let Which(all) = &args.name;
    loop {
        let (now, mut names) = (Instant::now(), members(all, job));
        if names.is_empty() {
            // It says that there is none.
            names.extend(all.first().cloned());
        }
        let (mut found, mut gone) = (Vec::new(), None);
        for one in &names {
            match ask(one, job) {
                Ok(status) => found.push((one.to_string(), status)),
                Err(error) => {
                    // Of a name, one that has ended meanwhile is not there; of a place, people hear of it.
                    if one.place().is_some() && names.len() > 1 {
                        say!("{error}");
                    }
                    gone.get_or_insert(error);
                }
            }
        }
        if let (true, Some(error)) = (found.is_empty(), gone) {
            return Err(error);
        }
        let printed = match args.json {
            true => found.iter().all(|(gateway, status)| print_json(&Member { gateway, status })),
            false => {
                let clear = if args.watch.is_some() && stdout().is_terminal() { "\x1b[H\x1b[J" } else { "" };
                let one = |(name, status): &(String, Status)| text(name, status, before.get(name), now);
                print(&format!("{clear}{}", found.iter().map(one).collect::<String>()))
            }
        };
        let Some(pause) = args.watch.filter(|_| printed) else { return Ok(printed) };
        before = found.into_iter().map(|(name, status)| (name, (now, status))).collect();
        std::thread::sleep(pause);
    }
}

/// A gateway of the name.
#[derive(serde::Serialize)]
struct Member<'a> {
    gateway: &'a str,
    #[serde(flatten)]
    status: &'a Status,
}

fn text(name: &str, status: &Status, before: Option<&(Instant, Status)>, now: Instant) -> String {
    let used = status.buffer_bytes - status.free_bytes;
    let head = format!(
        "gateway {name}: {} streams, {} of {} in buffers, {} of {} lanes\n",
        status.streams.len(),
        bytes(used),
        bytes(status.buffer_bytes),
        status.lanes - status.free_lanes,
        status.lanes
    );
    let earlier: BTreeMap<_, u64> = before
        .iter()
        .flat_map(|(_, status)| &status.streams)
        .map(|stream| (stream.stream, stream.bytes))
        .collect();
    let mut rows = vec![[
        "stream",
        "place",
        "way",
        "group",
        "connection",
        "state",
        "steps",
        "bytes",
        "rate",
        "waits",
        "lanes",
        "quantum",
        "priority",
    ]
    .map(str::to_owned)];
    for stream in &status.streams {
        let rate = match (earlier.get(&stream.stream), before) {
            (Some(earlier), Some((since, _))) => {
                let time = now.saturating_duration_since(*since).as_secs_f64();
                stream.bytes.saturating_sub(*earlier) as f64 / time.max(1e-9)
            }
            _ => stream.bytes as f64 / stream.moving.as_secs_f64().max(1e-9),
        };
        rows.push([
            stream.stream.to_string(),
            plain(&stream.name),
            if stream.direction == polyduct::stream::Direction::Transmit { "out" } else { "in" }.into(),
            named(&stream.group_name),
            named(&stream.connection_name),
            state(stream),
            stream.steps.to_string(),
            bytes(stream.bytes),
            format!("{}/s", bytes(rate as u64)),
            seconds(stream.pending.as_secs_f64()),
            stream.lanes.to_string(),
            if stream.permanent { "permanent".into() } else { stream.quantum.to_string() },
            stream.priority.to_string(),
        ]);
    }
    let right = [true, false, false, false, false, false, true, true, true, true, true, true, true];
    if status.streams.is_empty() {
        return head;
    }
    head + &table(&rows, &right)
}

fn named(name: &Option<String>) -> String {
    plain(name.as_deref().unwrap_or("-"))
}

fn state(stream: &StreamStatus) -> String {
    match stream.state {
        State::Inactive(why) => why.to_string(),
        State::Pending => "pending".into(),
        State::Active => "active".into(),
        State::Ended => "ended".into(),
        State::Failed => plain(stream.why.as_deref().unwrap_or("failed")),
    }
}
