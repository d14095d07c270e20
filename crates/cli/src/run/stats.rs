//! Receives the reports of a run's ports: their opening, for the supervision; their figures at the end, for
//! the table.

use super::plan::{Connector, Plan};
use super::verdict::End;
use crate::text::{bytes, seconds};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Longest report; up to this length writes to a pipe are atomic.
const MAX_RECORD: usize = 4096;
/// Most reports that are kept. A stage may open and close ports for ever.
const MAX_RECORDS: usize = 1 << 18;

/// One line from a port.
#[derive(Debug, Clone, Deserialize, PartialEq)]
pub struct Record {
    pub program: String,
    pub unit: u32,
    pub url: String,
    pub mode: Mode,
    pub steps: u64,
    #[serde(default)]
    pub dropped: u64,
    pub bytes: u64,
    /// Time spent waiting for the other side.
    pub wait_s: f64,
    /// Time spent moving bytes.
    pub copy_s: f64,
    /// Time from open to close.
    pub open_s: f64,
}

#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
pub enum Mode {
    #[serde(rename = "r")]
    Read,
    #[serde(rename = "w")]
    Write,
}

/// One line from a process about a port that the pipeline gave it.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
pub struct Notice {
    /// As the run named it, whatever the port says of itself.
    pub program: String,
    pub unit: u32,
    pub mode: Mode,
    pub port: Port,
}

/// How far a port is.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Port {
    /// It waits for the others.
    Opening,
    Opened,
    /// The process got an error instead.
    Failed,
}

/// One line about a rank, from the process that started it.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct RankNotice {
    /// As a [`Notice`] has them.
    pub program: String,
    pub unit: u32,
    pub rank: RankState,
}

/// What became of a rank.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum RankState {
    /// With this process number.
    Started(u32),
    Ended(End),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Rank(RankNotice),
    Notice(Notice),
    Record(Record),
}

/// Gathers reports from the pipe that the processes share.
#[derive(Default)]
pub struct Collector {
    /// Whether anybody wants the records.
    keeps: bool,
    records: Vec<Record>,
    notices: Vec<Notice>,
    ranks: Vec<RankNotice>,
    rest: Vec<u8>,
    /// Lines that were no report, or too many.
    refused: u64,
}

impl Collector {
    /// With `keeps`, records are kept for a [`Report`].
    pub fn new(keeps: bool) -> Collector {
        Collector { keeps, ..Collector::default() }
    }

    /// Takes what has come by now, without waiting: no more, however fast more comes.
    pub fn read_from(&mut self, fd: &OwnedFd) {
        let mut chunk = [0; 1 << 16];
        let mut left = rustix::io::ioctl_fionread(fd).unwrap_or(0);
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
            match rustix::io::read(fd, &mut chunk[..most]) {
                Ok(len) if len > 0 => {
                    self.push(&chunk[..len]);
                    left -= len as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                _ => return,
            }
        }
    }

    /// What has been noticed since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// What has been noticed of ranks since the last call, in the order in which it happened.
    pub fn take_ranks(&mut self) -> Vec<RankNotice> {
        std::mem::take(&mut self.ranks)
    }

    fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|&b| b == b'\n') {
            if self.rest.len() + part.len() <= MAX_RECORD + 1 {
                self.rest.extend_from_slice(part);
            } else {
                // Mark the line as broken; its end is still looked for.
                self.rest.truncate(1);
            }
            if part.ends_with(b"\n") {
                match serde_json::from_slice::<Line>(&self.rest) {
                    Ok(Line::Rank(notice)) => self.ranks.push(notice),
                    Ok(Line::Notice(notice)) => self.notices.push(notice),
                    Ok(Line::Record(_)) if !self.keeps => {}
                    Ok(Line::Record(record)) if record.is_sane() && self.records.len() < MAX_RECORDS => {
                        self.records.push(record)
                    }
                    _ => self.refused += 1,
                }
                self.rest.clear();
            }
        }
    }
}

impl Record {
    fn is_sane(&self) -> bool {
        [self.wait_s, self.copy_s, self.open_s].iter().all(|s| s.is_finite() && *s >= 0.0)
    }
}

/// A run in figures.
#[derive(Debug, Serialize)]
pub struct Report {
    pub pipeline: String,
    pub status: u8,
    pub wall_s: f64,
    pub pipes: Vec<PipeReport>,
    pub processes: Vec<ProcessReport>,
    /// Reports that could not be read.
    pub refused_records: u64,
}

/// One pipe or file.
#[derive(Debug, Serialize)]
pub struct PipeReport {
    pub url: String,
    /// Stages on its two ends; none for a file or for what this run did not start.
    pub from_stage: Option<usize>,
    pub to_stage: Option<usize>,
    /// This and the next three are none where no port reported: all were killed.
    pub steps: Option<u64>,
    /// Steps that the port which missed most did not write or read.
    pub dropped: Option<u64>,
    pub bytes: Option<u64>,
    pub gb_per_s: Option<f64>,
    pub writers: SideReport,
    pub readers: SideReport,
}

/// All ports on one side of a pipe.
#[derive(Debug, Default, Serialize, PartialEq)]
pub struct SideReport {
    pub ports: usize,
    pub steps: u64,
    /// Of the port that missed most.
    pub dropped: u64,
    pub bytes: u64,
    /// Means over the ports.
    pub wait_s: f64,
    pub copy_s: f64,
    /// Of the port that waited longest.
    pub wait_max_s: f64,
    /// Of the port that was open longest.
    pub open_s: f64,
}

/// One process.
#[derive(Debug, Serialize)]
pub struct ProcessReport {
    pub stage: usize,
    pub unit: u32,
    pub pid: u32,
    pub command: String,
    #[serde(flatten)]
    pub end: Option<End>,
}

impl SideReport {
    fn of<'a>(records: impl Iterator<Item = &'a Record>) -> SideReport {
        let mut side = SideReport::default();
        for r in records {
            side.ports += 1;
            side.steps = side.steps.max(r.steps);
            side.dropped = side.dropped.max(r.dropped);
            side.bytes = side.bytes.saturating_add(r.bytes);
            side.wait_s += r.wait_s;
            side.copy_s += r.copy_s;
            side.wait_max_s = side.wait_max_s.max(r.wait_s);
            side.open_s = side.open_s.max(r.open_s);
        }
        if side.ports > 0 {
            side.wait_s /= side.ports as f64;
            side.copy_s /= side.ports as f64;
        }
        side
    }

    /// How many ports, and how long one waited on average.
    fn describe(&self) -> [String; 2] {
        if self.ports == 0 {
            return ["-".into(), "-".into()];
        }
        let share = if self.open_s > 0.0 { (100.0 * self.wait_s / self.open_s).min(100.0) } else { 0.0 };
        [self.ports.to_string(), format!("{} ({share:.0} %)", seconds(self.wait_s))]
    }
}

impl Report {
    /// Puts together what was gathered. `pids` and `ends` are in the order of the plan's processes.
    pub fn new(
        pipeline: String,
        plan: &Plan,
        collector: Collector,
        status: u8,
        wall: Duration,
        pids: &[u32],
        ends: impl Iterator<Item = Option<End>>,
    ) -> Report {
        let mut urls: Vec<String> = plan
            .links
            .iter()
            .filter_map(|link| match link {
                Connector::Port { url } => Some(url.clone()),
                Connector::OsPipe => None,
            })
            .collect();
        for record in &collector.records {
            if !urls.contains(&record.url) {
                urls.push(record.url.clone());
            }
        }
        let pipes = urls.into_iter().map(|url| PipeReport::new(url, plan, &collector.records)).collect();
        let processes = plan
            .processes
            .iter()
            .zip(pids)
            .zip(ends)
            .map(|((p, &pid), end)| ProcessReport {
                stage: p.stage,
                unit: p.unit,
                pid,
                command: p.command.join(" "),
                end,
            })
            .collect();
        let wall_s = wall.as_secs_f64();
        Report { pipeline, status, wall_s, pipes, processes, refused_records: collector.refused }
    }

    /// The table for people.
    pub fn table(&self) -> String {
        let head = ["pipe", "steps", "dropped", "bytes", "GB/s", "writers", "waited", "readers", "waited"];
        let mut rows = vec![head.map(String::from)];
        for pipe in &self.pipes {
            let name = match (pipe.from_stage, pipe.to_stage) {
                (Some(from), Some(to)) => format!("stage {from} → stage {to}"),
                (None, Some(to)) => format!("{} → stage {to}", pipe.url),
                (Some(from), None) => format!("stage {from} → {}", pipe.url),
                (None, None) => pipe.url.clone(),
            };
            let or_dash = |figure: Option<String>| figure.unwrap_or_else(|| "-".into());
            let rate = or_dash(pipe.gb_per_s.map(|rate| format!("{rate:.2}")));
            let ([writers, w], [readers, r]) = (pipe.writers.describe(), pipe.readers.describe());
            let [steps, dropped] = [pipe.steps, pipe.dropped].map(|n| or_dash(n.map(|n| n.to_string())));
            let moved = or_dash(pipe.bytes.map(bytes));
            rows.push([name, steps, dropped, moved, rate, writers, w, readers, r]);
        }
        let mut table = crate::text::table(&rows, &[false, true, true, true, true, true, true, true, true]);
        table.push_str(&format!("{} processes, {}\n", self.processes.len(), seconds(self.wall_s)));
        if self.refused_records > 0 {
            table.push_str(&format!("{} reports of ports could not be read\n", self.refused_records));
        }
        table
    }
}

impl PipeReport {
    fn new(url: String, plan: &Plan, records: &[Record]) -> PipeReport {
        let side = |mode| SideReport::of(records.iter().filter(|r| r.url == url && r.mode == mode));
        let (writers, readers) = (side(Mode::Write), side(Mode::Read));
        let stage_of = |variable: &str| {
            let own = |p: &&super::plan::Process| p.env.iter().any(|(n, v)| n == variable && *v == url);
            plan.processes.iter().find(own).map(|p| p.stage)
        };
        let link = plan.links.iter().position(|l| matches!(l, Connector::Port { url: u } if *u == url));
        // Every element moves once, so the writers' count is the array's; readers may overlap.
        let main = [&writers, &readers].into_iter().find(|side| side.ports > 0);
        let seconds = writers.open_s.max(readers.open_s);
        PipeReport {
            from_stage: link.or_else(|| stage_of("POLYDUCT_OUT")),
            to_stage: link.map(|k| k + 1).or_else(|| stage_of("POLYDUCT_IN")),
            steps: main.map(|side| side.steps),
            dropped: main.map(|_| writers.dropped.max(readers.dropped)),
            bytes: main.map(|side| side.bytes),
            gb_per_s: main.map(|side| if seconds > 0.0 { side.bytes as f64 / seconds / 1e9 } else { 0.0 }),
            url,
            writers,
            readers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"program":"p","unit":1,"url":"pipe:x","mode":"w","steps":3,"dropped":1,"bytes":300,"wait_s":0.5,"copy_s":0.25,"open_s":1.0,"more":1}"#;

    #[test]
    fn records_are_input() {
        let mut c = Collector::new(true);
        for piece in format!("{LINE}\nnonsense\n{LINE}\n").as_bytes().chunks(7) {
            c.push(piece);
        }
        assert_eq!((c.records.len(), c.refused), (2, 1));
        c.push(&[b'x'; 3 * MAX_RECORD]);
        c.push(b"\n");
        c.push(LINE.replace("1.0", "-1.0").as_bytes());
        c.push(b"\n");
        assert_eq!((c.records.len(), c.refused), (2, 3));
        assert!(c.rest.is_empty());
    }

    #[test]
    fn notices_are_taken_whether_or_not_records_are_kept() {
        let mut c = Collector::new(false);
        let notice = r#"{"port":"opened","program":"run-x-s1","unit":2,"mode":"r"}"#;
        c.push(format!("{LINE}\n{notice}\n{}\n", notice.replace("opened", "ajar")).as_bytes());
        let expected = Notice { program: "run-x-s1".into(), unit: 2, mode: Mode::Read, port: Port::Opened };
        assert_eq!(c.take_notices(), [expected]);
        assert_eq!((c.take_notices(), c.records.len(), c.refused), (vec![], 0, 1));
    }

    #[test]
    fn notices_of_ranks_are_read_as_they_are_written() {
        let mut c = Collector::new(false);
        let states =
            [RankState::Started(12), RankState::Ended(End::Signal(9)), RankState::Ended(End::Exit(0))];
        let all = states.map(|rank| RankNotice { program: "run-x-s0".into(), unit: 1, rank });
        for notice in &all {
            c.push((serde_json::to_string(notice).unwrap() + "\n").as_bytes());
        }
        assert_eq!((c.take_ranks(), c.take_ranks(), c.refused), (all.to_vec(), vec![], 0));
    }

    #[test]
    fn sides_are_summed() {
        let mut c = Collector::new(true);
        c.push(format!("{LINE}\n{}\n", LINE.replace("0.5", "1.5")).as_bytes());
        let side = SideReport::of(c.records.iter());
        assert_eq!((side.ports, side.bytes, side.steps, side.dropped), (2, 600, 3, 1));
        assert_eq!((side.wait_s, side.wait_max_s, side.copy_s), (1.0, 1.5, 0.25));
    }
}
