//! The sizes of message buffers in force, and where each comes from.

use super::Finding;
use polyduct::host::memory;
use polyduct::message::config::{Config, Origin, Setting};

/// The settings of a domain of `units` units in this process.
pub fn examine(units: u32) -> Vec<Finding> {
    findings(Config::load(), units, memory::obtainable_bytes())
}

fn findings(
    config: Result<Config, impl std::fmt::Display>,
    units: u32,
    obtainable_bytes: u64,
) -> Vec<Finding> {
    let advice = "no domain of messages can be joined before this is put right";
    let mut config = match config {
        Ok(config) => config,
        Err(error) => return vec![Finding::missing("message settings", error.to_string(), advice)],
    };
    let fits = config.fit(u64::from(units.saturating_sub(1)), obtainable_bytes);
    let mut findings: Vec<Finding> = config.settings().map(|setting| finding(setting, units)).collect();
    if let Err(error) = fits {
        let advice = format!("free memory, or have fewer than {units} units on this machine");
        findings.push(Finding::warn("message rings", error.to_string(), advice));
    }
    findings
}

fn finding(setting: &Setting, units: u32) -> Finding {
    let (name, about) = (format!("message.{}", setting.name), setting.about);
    let value = setting.show(setting.bytes);
    let with = |origin: &str| format!("{value}, {origin}: {about}");
    match &setting.origin {
        Origin::Default => Finding::ok(name, with("built in")),
        Origin::File(path) => Finding::ok(name, with(&format!("from {}", path.display()))),
        Origin::Variable(variable) => Finding::ok(name, with(&format!("from {variable}"))),
        Origin::Shrunk { from } => Finding::warn(
            name,
            with(&format!("shrunk from {}", setting.show(*from))),
            format!("the rings of {units} units would take more than a quarter of the memory"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;
    use std::path::Path;

    fn load(file: &str) -> Result<Config, impl std::fmt::Display> {
        let variable = |name: &str| (name == "POLYDUCT_MESSAGE_INBOX").then(|| "1 MiB".to_owned());
        Config::from_sources(Some((Path::new("p.toml"), file)), variable)
    }

    #[test]
    fn each_setting_says_where_it_comes_from() {
        let found = findings(load("[message]\nring = '1 MiB'"), 16, 16 << 30);
        let line =
            |name: &str| found.iter().find(|f| f.name == name).map(|f| f.found.clone()).unwrap_or_default();
        assert!(line("message.ring").starts_with("1MiB, from p.toml: ring of low"));
        assert!(line("message.inbox").starts_with("1MiB, from POLYDUCT_MESSAGE_INBOX: "));
        assert!(line("message.pull_from").starts_with("256TiB, built in: "));
        assert!(line("message.near").starts_with("1, built in: "));
        assert!(found.iter().all(|f| f.state == State::Ok));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let shrunk = findings(load("[message]\nrings = '8MiB'"), 64, 1 << 30);
        let rings = shrunk.iter().find(|f| f.name == "message.rings").unwrap();
        assert_eq!(rings.state, State::Warn);
        assert!(rings.found.contains("shrunk from 8MiB"), "{}", rings.found);
        let too_many = findings(load(""), 4096, 64 << 20);
        assert!(too_many.iter().any(|f| f.name == "message rings" && f.state == State::Warn));
        let wrong = findings(load("[message]\nrin = 1"), 16, 64 << 20);
        assert_eq!((wrong.len(), wrong[0].state), (1, State::Missing));
        assert!(wrong[0].found.starts_with("p.toml: "));
    }
}
