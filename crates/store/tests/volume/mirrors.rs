//! Stores with as much parity as data, or more: units that have none in common may each be enough. Whoever is
//! there when it is opened, all that was acknowledged is seen, or the opening is refused.

use super::basics::{block, ID};
use super::scenario::{after, see, take, Beside, Run, Step, View};
use super::sim::{Cut, Disks, Event, Sim};
use polyduct_store::volume::planted::Bug;
use polyduct_store::volume::units::{File, HOME};
use polyduct_store::volume::{Geometry, Volume, VolumeError, BLOCK};

const PLACES: (u32, File) = (HOME, File::Served);

/// A store with the name `a`, and its object.
fn made(data: u32, parity: u32) -> (Run, Disks, View) {
    let run = Run::of(data, parity, 1);
    let mut sim = Sim::default();
    drop(Volume::create(&mut sim, ID, run.geometry, 10).unwrap());
    let mut v = run.open(&mut sim, 20).unwrap();
    let step = Step::Replace("a", 100);
    take(&mut v, step, 30, &mut Beside::default()).unwrap();
    drop(v);
    (run, sim.disks, after(&View::new(), step, 2 * run.geometry.row_blocks()))
}

/// Overwrites block 0 with only some units there.
fn overwrite(run: &Run, sim: &mut Sim, dead: &[u32], seed: u64, now: u64) -> Result<(), VolumeError> {
    sim.dead = dead.to_vec();
    let mut v = run.open(sim, now)?;
    let object = v.names()["a"].object;
    v.overwrite(object, 0, &block(seed), now)
}

#[test]
fn units_that_missed_what_others_served_do_not_serve() {
    for (data, parity, first, then) in [
        (1, 1, &[1][..], &[0][..]),
        (2, 2, &[2, 3], &[0, 1]),
        (1, 2, &[1, 2], &[0]),
        (2, 3, &[2, 4], &[0, 1, 3]),
    ] {
        let (run, disks, _) = made(data, parity);
        let mut sim = Sim::of(disks, &[]);
        overwrite(&run, &mut sim, first, 500, 100).unwrap();
        let epoch = Volume::open(&mut sim, ID, run.geometry, 110).unwrap().epoch();
        sim.history.clear();
        let error = overwrite(&run, &mut sim, then, 600, 120).unwrap_err();
        let VolumeError::Outdated { found, served, had_part } = &error else { panic!("{error}") };
        let members: Vec<u32> = (0..data + parity).filter(|unit| !first.contains(unit)).collect();
        assert_eq!((served, had_part), (&epoch, &members), "{error}");
        assert!(*found < epoch && error.to_string().contains("--give-up-newer"), "{error}");
        assert!(sim.history.is_empty(), "nothing is written by who is refused");
        // With all of them there it goes on where it was.
        sim.dead.clear();
        let mut v = run.open(&mut sim, 130).unwrap();
        assert!(*v.read(0, 0).unwrap() == block(500));
    }
}

#[test]
fn what_is_newer_can_be_given_up() {
    for (data, parity, first, then) in [(1, 1, &[1][..], &[0][..]), (2, 2, &[2, 3], &[0, 1])] {
        let (run, disks, _) = made(data, parity);
        let mut sim = Sim::of(disks, &[]);
        for seed in 500..510 {
            overwrite(&run, &mut sim, first, seed, 100).unwrap();
        }
        let (mut v, g) = (sim.clone(), run.geometry);
        v.dead = then.to_vec();
        let mut v = Volume::open_giving_up(&mut v, ID, g, 110, &|_| false).unwrap();
        let (found, served) = v.given_up().unwrap();
        assert!(found < served && v.epoch() > served, "{found} {served} {}", v.epoch());
        assert!(*v.read(0, 0).unwrap() == block(100));
        let object = v.names()["a"].object;
        v.overwrite(object, 1, &block(700), 120).unwrap();
        let disks = v.units().disks.clone();
        drop(v);
        // What was given up is stale when it comes back, though it counted further.
        let mut sim = Sim::of(disks, &[]);
        let mut v = run.open(&mut sim, 130).unwrap();
        assert_eq!(v.lost().map(|(unit, _)| unit).collect::<Vec<_>>(), then, "{data}+{parity}");
        assert_eq!(v.given_up(), None);
        assert!(*v.read(0, 0).unwrap() == block(100) && *v.read(0, 1).unwrap() == block(700));
        // Nothing is given up where nothing is newer.
        drop(v);
        assert_eq!(Volume::open_giving_up(&mut sim, ID, g, 140, &|_| false).unwrap().given_up(), None);
    }
}

/// What is remembered may be gone, damaged, or of another store: then it is not known, and is known again
/// after an opening.
#[test]
fn what_is_not_remembered_stops_nobody() {
    let (run, disks, _) = made(1, 1);
    type Change = fn(&mut Sim);
    let changes: [(Change, bool); 5] = [
        (|sim| drop(sim.disks.remove(&PLACES)), true),
        (|sim| drop(sim.disks.insert(PLACES, vec![7; 9000].into())), true),
        (|sim| (0..2).for_each(|slot| sim.rot(PLACES.0, PLACES.1, slot * 4096 + 20)), true),
        // The newer of the two: the older says what began then.
        (|sim| sim.rot(PLACES.0, PLACES.1, 4096 * newer(&sim.disks) + 20), false),
        // The older.
        (|sim| sim.rot(PLACES.0, PLACES.1, 4096 * (1 - newer(&sim.disks)) + 20), false),
    ];
    for (i, (change, unknown)) in changes.into_iter().enumerate() {
        let mut sim = Sim::of(disks.clone(), &[]);
        overwrite(&run, &mut sim, &[1], 500, 100).unwrap();
        change(&mut sim);
        sim.dead = vec![0];
        let opened = run.open(&mut sim.clone(), 110).err();
        assert_eq!(opened.is_none(), unknown, "{i}: {opened:?}");
        sim.dead.clear();
        let v = run.open(&mut sim, 120).unwrap();
        assert!(v.forgotten().is_some_and(|what| what.contains("anew")), "{i}");
        drop(v);
        assert_eq!(run.open(&mut sim, 130).unwrap().forgotten(), None, "{i}");
        overwrite(&run, &mut sim, &[1], 501, 140).unwrap();
        let error = overwrite(&run, &mut sim, &[0], 502, 150).unwrap_err();
        assert!(matches!(error, VolumeError::Outdated { .. }), "{i}: {error}");
    }
}

/// The slot of the newer copy.
fn newer(disks: &Disks) -> u64 {
    // Head, store, and a number that is small here.
    let seq = |slot: usize| disks[&PLACES][slot * 4096 + 32];
    u64::from(seq(1) > seq(0))
}

/// Nothing is acknowledged, or read, that is not remembered; and when it can be, all goes on.
#[test]
fn what_cannot_be_remembered_is_not_acknowledged() {
    let (run, disks, _) = made(1, 1);
    let mut sim = Sim::of(disks, &[]);
    let opened = |sim: &mut Sim| overwrite(&run, sim, &[HOME], 500, 100);
    assert!(matches!(opened(&mut sim), Err(VolumeError::Home { .. })));
    sim.dead.clear();
    let mut v = run.open(&mut sim, 110).unwrap();
    let object = v.names()["a"].object;
    v.units_mut().dead = vec![1, HOME];
    assert!(matches!(v.overwrite(object, 0, &block(500), 120), Err(VolumeError::Home { .. })));
    assert!(matches!(v.overwrite(object, 0, &block(501), 130), Err(VolumeError::Home { .. })));
    v.units_mut().dead = vec![1];
    v.overwrite(object, 0, &block(502), 140).unwrap();
    assert!(*v.read(object, 0).unwrap() == block(502));
    drop(v);
    assert!(matches!(overwrite(&run, &mut sim, &[0], 503, 150), Err(VolumeError::Outdated { .. })));
}

/// Where two sets of units always have one in common nothing is kept, and nothing asked.
#[test]
fn with_less_parity_than_data_nothing_is_kept() {
    for (data, parity) in [(1, 0), (2, 1), (3, 2)] {
        let (run, disks, _) = made(data, parity);
        assert!(!disks.contains_key(&PLACES));
        let mut sim = Sim::of(disks, &[HOME]);
        assert_eq!(run.open(&mut sim, 100).unwrap().forgotten(), None);
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % n
    }
}

#[derive(Default, Debug)]
struct Tally {
    opened: u64,
    outdated: u64,
    too_many: u64,
    healed: u64,
}

/// Units come and go at random, owners die in openings and in changes, clocks go back; what was acknowledged
/// is there.
fn walk(run: &Run, disks: Disks, view: View, rounds: u64, seed: u64) -> Result<Tally, String> {
    let (n, mut random) = (run.geometry.units(), Random(seed));
    let (mut disks, mut known, mut now, mut tally) = (disks, vec![view], 1000_u64, Tally::default());
    for round in 0..rounds {
        let some = |random: &mut Random| (0..n).filter(|_| random.below(2) == 0).collect::<Vec<u32>>();
        let mut dead = if random.below(4) == 0 { Vec::new() } else { some(&mut random) };
        let all = dead.is_empty();
        if random.below(10) == 0 {
            dead.push(HOME);
        }
        // Clocks go back, too.
        now = if random.below(5) == 0 { now.saturating_sub(500).max(1) } else { now + 1 + random.below(300) };
        let mut sim = Sim::of(disks.clone(), &dead);
        // What may be seen from an event of the history on.
        let mut marks: Vec<(usize, Vec<View>)> = vec![(0, known.clone())];
        match run.open(&mut sim, now) {
            Ok(mut v) => {
                let views: Vec<&View> = known.iter().collect();
                let mut view =
                    see(&mut v, &views).map_err(|e| format!("round {round}, without {dead:?}: {e}"))?;
                tally.opened += 1;
                marks.push((v.units().history.len(), vec![view.clone()]));
                for i in 0..random.below(4) {
                    if random.below(4) == 0 {
                        v.units_mut().dead.push(random.below(n.into()) as u32);
                    }
                    let seed = 1000 * (round + 1) + 10 * i;
                    let step = match random.below(4) {
                        0 => Step::Replace("a", seed),
                        _ => Step::Overwrite("a", random.below(2), seed),
                    };
                    let next = after(&view, step, 2 * run.geometry.row_blocks());
                    let from = marks.len() - 1;
                    marks[from].1.push(next.clone());
                    if take(&mut v, step, now, &mut Beside::default()).is_err() {
                        break;
                    }
                    view = next;
                    marks.push((v.units().history.len(), vec![view.clone()]));
                }
            }
            Err(VolumeError::Outdated { .. }) if !all => tally.outdated += 1,
            Err(VolumeError::TooManyLost { .. }) if !all => tally.too_many += 1,
            Err(VolumeError::Home { .. }) if dead.contains(&HOME) => {}
            Err(error) => return Err(format!("round {round}, without {dead:?}: {error}")),
        }
        // It is cut short somewhere, and some of what was not synced is gone.
        let history = std::mem::take(&mut sim.history);
        let mut cut = Cut::new(disks.clone(), &history);
        let end = match random.below(3) {
            0 => history.len(),
            _ => random.below(history.len() as u64 + 1) as usize,
        };
        while cut.len < end && cut.advance() {}
        let bits = random.below(1 << 40);
        disks = cut.disks(|i, parts| if bits >> (i % 40) & 1 != 0 { parts } else { 0 });
        known = marks.into_iter().rfind(|(from, _)| *from <= end).map(|(_, views)| views).unwrap();
        if round % 8 == 7 {
            // All are brought back.
            let mut sim = Sim::of(disks.clone(), &[]);
            let mut v = run.open(&mut sim, now).map_err(|e| format!("round {round}, all are there: {e}"))?;
            let views: Vec<&View> = known.iter().collect();
            let view = see(&mut v, &views).map_err(|e| format!("round {round}, all are there: {e}"))?;
            drop(v);
            run.mend(disks.clone(), now, &view, 0).map_err(|e| format!("round {round}, healed: {e}"))?;
            let mut v = run.open(&mut sim, now).map_err(|e| e.to_string())?;
            let lost: Vec<u32> = v.lost().map(|(unit, _)| unit).collect();
            for unit in lost {
                v.replace(unit, false, now).map_err(|e| e.to_string())?;
                while !v.rebuild(unit, 100, now).map_err(|e| e.to_string())?.finished {}
                tally.healed += 1;
            }
            v.close(now).map_err(|e| e.to_string())?;
            (disks, known) = (sim.disks, vec![view]);
        }
    }
    Ok(tally)
}

#[test]
fn whoever_is_there_what_was_acknowledged_is_seen_or_nothing_is() {
    for (data, parity, rounds) in
        [(1, 1, 3000), (2, 2, 2000), (1, 2, 2000), (2, 3, 1000), (2, 1, 1000), (3, 2, 500)]
    {
        let (run, disks, view) = made(data, parity);
        let tally = walk(&run, disks, view, rounds, 0x2545_f491_4f6c_dd1d + u64::from(data)).unwrap();
        println!("{data}+{parity}: {tally:?}");
        assert!(tally.opened > rounds / 5 && tally.healed > rounds / 40, "{tally:?}");
        assert_eq!(tally.outdated > rounds / 100, parity >= data, "{tally:?}");
    }
}

#[test]
fn the_walk_finds_planted_bugs() {
    for bug in [Bug::NothingRemembered, Bug::RememberedFirst, Bug::StaleRead] {
        let (run, disks, view) = made(1, 1);
        let run = Run { bug: Some(bug), ..run };
        match walk(&run, disks, view, 4000, 0x1234_5678_9abc_def1) {
            Ok(tally) => panic!("{bug:?} is not found: {tally:?}"),
            Err(error) => println!("{bug:?}: {error}"),
        }
    }
}

/// A change that only one log has, and nobody was told of; that unit begins an epoch with it, in which nobody
/// comes to serve, and is away. What it knows of the change, which the others discard, must not stop them
/// when it is there again.
#[test]
fn a_stale_unit_that_counted_further_stops_nobody() {
    for (data, parity) in [(2, 1), (4, 2), (1, 1)] {
        let g = Geometry::new(data, parity, BLOCK as u64).unwrap();
        let (run, disks, _) = made(data, parity);
        let mut sim = Sim::of(disks, &[]);
        let mut v = run.open(&mut sim, 100).unwrap();
        let object = v.names()["a"].object;
        let before = v.units().disks.clone();
        v.overwrite(object, 0, &block(500), 100).unwrap();
        drop(v);
        let unit = g.unit(0, 0);
        let log = (unit, File::Log);
        let mut base = before;
        base.insert(log, sim.disks[&log].clone());
        let mut opening = Sim::of(base.clone(), &[]);
        drop(run.open(&mut opening, 110).unwrap());
        let mut cut = Cut::new(base, &opening.history);
        let mut states = 0;
        // From where it says so on.
        let of_epoch = |event: &Event| matches!(event, Event::Write { file: File::Superblock, .. });
        while opening.history[..cut.len].iter().all(|event| !of_epoch(event)) && cut.advance() {}
        while cut.advance() {
            // Of the others nothing arrives that need not.
            let of_unit = |i: usize| matches!(&opening.history[cut.open[i]], Event::Write { unit: u, .. } if *u == unit);
            let disks = cut.disks(|i, parts| if of_unit(i) { parts } else { 0 });
            let mut sim = Sim::of(disks, &[unit]);
            let seen = *run.open(&mut sim, 120).unwrap().read(object, 0).unwrap();
            sim.dead.clear();
            let mut v =
                run.open(&mut sim, 130).unwrap_or_else(|e| panic!("{data}+{parity}, {}: {e}", cut.len));
            assert!(*v.read(object, 0).unwrap() == seen, "{data}+{parity}, {}", cut.len);
            states += 1;
        }
        assert!(states > 5, "{states}");
    }
}

/// Two openings are cut short one after the other, when the epoch that each begins has come to one unit only.
#[test]
fn openings_that_were_cut_short_stop_nobody() {
    let again = |bug: Option<Bug>| -> Result<(), String> {
        for (data, parity) in [(2, 1), (4, 2), (1, 1)] {
            let (run, disks, view) = made(data, parity);
            let (run, mut disks) = (Run { bug, ..run }, disks);
            for round in 0..4 {
                let mut sim = Sim::of(disks.clone(), &[]);
                drop(run.open(&mut sim, 100 + round).map_err(|e| format!("{data}+{parity}, {round}: {e}"))?);
                let mut cut = Cut::new(disks, &sim.history);
                let of_epoch = |e: &Event| matches!(e, Event::Sync { file: File::Superblock, .. });
                let first = sim.history.iter().position(of_epoch).unwrap();
                while cut.len <= first && cut.advance() {}
                disks = cut.disks(|_, _| 0);
            }
            let mut sim = Sim::of(disks, &[]);
            let mut v = run.open(&mut sim, 200).map_err(|e| format!("{data}+{parity}: {e}"))?;
            see(&mut v, &[&view])?;
            assert_eq!(v.lost().count(), 0, "{data}+{parity}");
        }
        Ok(())
    };
    again(None).unwrap();
    assert!(again(Some(Bug::BeforeUnserved)).unwrap_err().contains("cannot be used"));
}
