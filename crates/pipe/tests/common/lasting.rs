//! Pipes across hosts, of processes, whose lost units may be replaced.

use super::kill::{name, BUNDLE, LAYOUTS};
use super::net::place;
use polyduct_pipe::net::PipeAddress;
use polyduct_rig::{Random, Unit};

/// Steps of a stream in which units are replaced.
pub const STEPS: u64 = 150;

/// A pipe whose lost units may be replaced.
pub struct Lasting {
    pub place: PipeAddress,
    pub writers: (u64, &'static str),
    pub readers: (u64, &'static str),
    pub policy: &'static str,
    pub trusted: bool,
    /// What the loss of a writer, and of a reader, means.
    pub on_loss: [&'static str; 2],
    pub open_ms: u32,
    /// Whether it carries a bundle, with sizes that change and values.
    pub bundle: bool,
}

impl Lasting {
    pub fn new(random: &mut Random, readers: u64) -> Lasting {
        Lasting {
            policy: "block",
            place: place(),
            writers: (2 + random.below(2), random.one_of(&LAYOUTS)),
            readers: (readers, random.one_of(&LAYOUTS)),
            trusted: random.below(2) == 0,
            on_loss: ["wait"; 2],
            open_ms: 20_000,
            bundle: false,
        }
    }

    /// Unit `n`, the writers first.
    pub fn start(&self, n: u64) -> Unit {
        self.start_by(n, &self.place.host, self.place.port)
    }

    /// The same, by way of another address.
    pub fn start_by(&self, n: u64, host: &str, port: u16) -> Unit {
        let (role, unit, (units, layout)) = match n.checked_sub(self.writers.0) {
            None => ("w", n, self.writers),
            Some(reader) => ("r", reader, self.readers),
        };
        let Lasting { policy, trusted, open_ms, .. } = self;
        let layout = if self.bundle { format!("{BUNDLE}{layout}") } else { layout.to_owned() };
        let on_loss = self.on_loss[usize::from(role == "r")];
        let spec = format!(
            "{role} {layout} {unit} {units} {host} {port} {policy} {trusted} {open_ms} {on_loss} {STEPS}"
        );
        Unit::start(name(role, unit), &spec)
    }

    pub fn start_all(&self) -> Vec<Unit> {
        let mut units: Vec<Unit> = (0..self.writers.0 + self.readers.0).map(|n| self.start(n)).collect();
        assert!(units.iter_mut().all(|u| u.wait_line("open")));
        units
    }
}

/// The steps that a reader has told of.
pub fn steps(unit: &Unit) -> Vec<u64> {
    unit.seen().iter().filter_map(|l| l.strip_prefix("step ")?.parse().ok()).collect()
}
