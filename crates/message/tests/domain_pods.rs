//! Units of one domain in process namespaces of their own, as in the containers of a pod: each has number 1
//! there, and yet they reach each other in every way, and a death is noticed at once. Nobody's memory is
//! taken for another's.

use polyduct_message::domain::{Domain, Options};
use polyduct_message::MessageError;
use polyduct_rig::kills::say_error;
use polyduct_rig::{pods, say, tests, Unit};
use std::time::Duration;

/// Bytes that are fetched from memory where that can be read.
const LONG: usize = 3 << 20;
/// More than descriptors that go along with one message.
const UNITS: usize = 11;

fn main() {
    polyduct_rig::main(unit, tests![all_reach_all, a_death_is_noticed_wherever_it_is]);
}

/// One process: `name unit units`.
fn unit(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let time = Duration::from_secs(20);
    let options = Options {
        timeout: Some(time),
        open_timeout: time,
        ..Options::new(f[0], f[1].parse().unwrap(), f[2].parse().unwrap())
    };
    match talk(options) {
        Ok(()) => say("end"),
        Err(MessageError::PeerLost { unit, .. }) => say_error(&format!("lost {unit}")),
        Err(other) => say_error(&format!("other {other}")),
    }
}

fn talk(options: Options) -> Result<(), MessageError> {
    let (me, units) = (options.unit, options.units);
    let d = Domain::join(options)?;
    let lent = d.lend(1, vec![me as u8 + 1; LONG])?;
    d.region(2, 4096)?;
    d.synchronise()?;
    let mut copy = vec![0; LONG];
    for to in (0..units).filter(|&to| to != me) {
        d.send(to, me, [0; 2], &vec![me as u8; LONG])?;
        let mail = d.recv(Some(to), Some(to))?;
        assert!(mail.payload == vec![to as u8; LONG], "these are not the bytes that unit {to} sent");
        d.get(to, 1, 0, &mut copy)?;
        assert!(copy.iter().all(|&b| b == to as u8 + 1), "these are not the bytes of unit {to}");
        d.put(to, 2, me as usize * 8, &[me as u8; 8])?;
    }
    d.barrier()?;
    drop(lent.withdraw()?);
    say("talked");
    let _ = std::io::stdin().read_line(&mut String::new());
    d.barrier()?;
    d.leave()
}

/// All in namespaces of their own but the last two; every third has no /proc of its own namespace.
fn start(name: &str, units: usize) -> Vec<Unit> {
    let start = |unit: usize| {
        let spec = format!("test-{name}-{} {unit} {units}", std::process::id());
        match pods::alone(unit % 3 != 1) {
            Ok(command) if unit + 2 < units => Unit::start_by(command, format!("unit {unit}"), &spec),
            Err(why) => {
                eprintln!("NO PROCESS NAMESPACES HERE ({why}): processes of this one instead");
                Unit::start(format!("unit {unit}"), &spec)
            }
            _ => Unit::start(format!("unit {unit}"), &spec),
        }
    };
    (0..units).map(start).collect()
}

fn all_reach_all() {
    for units in [2, 4, UNITS] {
        let mut units = start(&format!("reach-{units}"), units);
        units.iter_mut().for_each(Unit::let_go);
        let ends: Vec<String> = units.iter_mut().map(Unit::end).collect();
        assert!(ends.iter().all(|end| end == "end"), "{ends:#?}");
    }
}

fn a_death_is_noticed_wherever_it_is() {
    for victim in 0..4 {
        let mut units = start(&format!("death-{victim}"), 4);
        for unit in &mut units {
            assert!(unit.wait_line("talked"), "{} says {:?}", unit.name, unit.last());
        }
        let mut lost = units.remove(victim);
        lost.kill();
        for unit in &mut units {
            unit.let_go();
            let last = unit.end();
            assert!(last.ends_with(&format!("lost {victim}")), "{} says {last:?}", unit.name);
        }
    }
}
