//! `kill -9` of real units: what was there stays, nothing is left, and the survivors know who it was at once.

use crate::oracle::{npy_bytes, step_bytes, Place};
use crate::process::*;
use std::time::{Duration, Instant};

/// The limit is 0.1 s; the rest is for a machine that does other things as well.
const AT_ONCE: Duration = Duration::from_millis(500);

struct Scene {
    place: Place,
    name: &'static str,
    job: Job,
}

impl Scene {
    fn new(units: u32, layout: &'static str) -> Scene {
        Scene::of("x.npy", units, layout)
    }

    fn of(name: &'static str, units: u32, layout: &'static str) -> Scene {
        let place = Place::new();
        let path = place.file(name);
        match name {
            "x.zarr" => crate::zarr::write_old(&path),
            _ => std::fs::write(&path, "old").unwrap(),
        }
        Scene { job: Job { units, layout, path }, name, place }
    }

    fn is_old(&self) -> bool {
        let old = match self.name {
            "x.zarr" => crate::zarr::is_old(&self.job.path),
            _ => std::fs::read(&self.job.path).unwrap() == b"old",
        };
        self.place.names() == [self.name] && old
    }

    fn is_new(&self, steps: u64) -> bool {
        let data: Vec<u8> = (0..steps).flat_map(|s| step_bytes(&dataset(), s)).collect();
        let shape = if steps == 1 { vec![12, 64] } else { vec![steps, 12, 64] };
        let new = match self.name {
            "x.zarr" => {
                let found = crate::zarr::read_all(&self.job.path);
                found.is_some_and(|found| found == ("float32".into(), shape, data))
            }
            _ => std::fs::read(&self.job.path).unwrap() == npy_bytes("<f4", false, &shape, &data, 128),
        };
        self.place.names() == [self.name] && new
    }
}

/// What is written: a file, and a directory of files.
const KINDS: [&str; 2] = ["x.npy", "x.zarr"];

fn assert_lost(answer: &str, unit: u32) {
    assert!(answer.starts_with("PeerLost") && answer.contains(&format!("unit: {unit},")), "{answer}");
}

#[test]
fn processes_write_a_file_and_write_it_again() {
    for kind in KINDS {
        let scene = Scene::of(kind, 3, "*,cyclic(3)");
        let mut units = start_all(&scene.job);
        for steps in [2, 1] {
            assert_eq!(ask_all(&mut units, "open"), ["ok"; 3]);
            for _ in 0..steps {
                assert_eq!(ask_all(&mut units, "write"), ["ok"; 3]);
            }
            assert_eq!(ask_all(&mut units, "close"), ["ok"; 3]);
            assert!(scene.is_new(steps));
        }
    }
}

#[test]
fn one_dies_while_the_others_close() {
    for kind in KINDS {
        for victim in 0..3u32 {
            let scene = Scene::of(kind, 3, "block,*");
            let mut units = start_all(&scene.job);
            assert_eq!(ask_all(&mut units, "open"), ["ok"; 3]);
            assert_eq!(ask_all(&mut units, "write"), ["ok"; 3]);
            let others: Vec<u32> = (0..3).filter(|&u| u != victim).collect();
            others.iter().for_each(|&u| units[u as usize].tell("close"));
            let start = Instant::now();
            units[victim as usize].kill();
            for &u in &others {
                assert_lost(&units[u as usize].hear(), victim);
            }
            assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
            assert!(scene.is_old());
            // The error stays what it was.
            assert_lost(&units[others[0] as usize].ask("write"), victim);
            assert_lost(&units[others[1] as usize].ask("close"), victim);
        }
    }
}

#[test]
fn one_dies_between_steps() {
    for kind in KINDS {
        for victim in 0..2u32 {
            let scene = Scene::of(kind, 2, "*,block");
            let mut units = start_all(&scene.job);
            assert_eq!(ask_all(&mut units, "open"), ["ok"; 2]);
            assert_eq!(ask_all(&mut units, "write"), ["ok"; 2]);
            units[victim as usize].kill();
            assert_eq!(units[victim as usize].hear(), "dead");
            // The other may be faster than the news; it hears it when it closes at the latest.
            let other = &mut units[1 - victim as usize];
            let answer = other.ask("write");
            assert_lost(&if answer == "ok" { other.ask("close") } else { answer }, victim);
            assert!(scene.is_old());
        }
    }
}

#[test]
fn one_dies_before_all_have_come() {
    for kind in KINDS {
        let scene = Scene::of(kind, 3, "block,*");
        for victim in 0..2u32 {
            // Two want to be unit 1. When one of them is refused, the other is in; unit 2 never comes.
            let mut zero = Unit::start(&scene.job, 0);
            let mut ones = [Unit::start(&scene.job, 1), Unit::start(&scene.job, 1)];
            zero.tell("open");
            ones.iter_mut().for_each(|u| u.tell("open"));
            let refused = Unit::first(&ones[0], &ones[1]);
            assert!(ones[refused].hear().contains("Duplicate"));
            let [a, b] = ones;
            let mut units = [zero, if refused == 0 { b } else { a }];
            let start = Instant::now();
            units[victim as usize].kill();
            assert_lost(&units[1 - victim as usize].hear(), victim);
            assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
            assert!(scene.is_old());
        }
    }
}

#[test]
fn all_die() {
    for kind in KINDS {
        let scene = Scene::of(kind, 3, "block,*");
        let mut units = start_all(&scene.job);
        assert_eq!(ask_all(&mut units, "open"), ["ok"; 3]);
        assert_eq!(ask_all(&mut units, "write"), ["ok"; 3]);
        units.iter_mut().for_each(Unit::kill);
        assert_eq!(units.iter_mut().map(Unit::hear).collect::<Vec<_>>(), ["dead"; 3]);
        drop(units);
        // A directory has a name from the beginning; the next program removes it.
        assert!(scene.is_old() || kind == "x.zarr" && crate::zarr::is_old(&scene.job.path));
        // The next run starts clean.
        let mut units = start_all(&scene.job);
        assert_eq!(ask_all(&mut units, "open"), ["ok"; 3]);
        assert_eq!(ask_all(&mut units, "write"), ["ok"; 3]);
        assert_eq!(ask_all(&mut units, "close"), ["ok"; 3]);
        assert!(scene.is_new(1));
    }
}

#[test]
fn death_at_any_moment_leaves_the_old_file_or_the_new_one() {
    // More of these: POLYDUCT_STORE_KILLS=1000.
    let kills: u64 = std::env::var("POLYDUCT_STORE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let (mut old, mut new) = (0, 0);
    for seed in 0..kills {
        let layout = if seed % 2 == 0 { "block,*" } else { "*,cyclic" };
        let scene = Scene::of(KINDS[seed as usize / 2 % 2], 3, layout);
        let mut units = start_all(&scene.job);
        assert_eq!(ask_all(&mut units, "open"), ["ok"; 3]);
        for unit in &mut units {
            ["write", "write", "close"].iter().for_each(|c| unit.tell(c));
        }
        let victim = (seed * 7 % 3) as usize;
        let moment = Duration::from_micros(crate::oracle::byte(seed, 1, 2) as u64 * 12);
        let start = Instant::now();
        while start.elapsed() < moment {
            std::hint::spin_loop();
        }
        units[victim].kill();
        let mut answers = Vec::new();
        for (u, unit) in units.iter_mut().enumerate() {
            if u == victim {
                continue;
            }
            // Three answers, the last of which tells.
            let all: Vec<String> = (0..3).map(|_| unit.hear()).collect();
            assert!(all.iter().all(|a| a == "ok" || a.contains(&format!("unit: {victim},"))), "{all:?}");
            answers.push(all[2] == "ok");
        }
        // What is there is one of the two versions, and all who are left know which.
        let is_new = scene.is_new(2);
        assert!(is_new || scene.is_old(), "{:?}", scene.place.names());
        assert!(answers.iter().all(|&ok| ok == is_new), "{is_new} {answers:?}");
        *if is_new { &mut new } else { &mut old } += 1;
    }
    eprintln!("{old} times the old file, {new} times the new one");
}

#[test]
fn a_limit_on_the_size_of_files() {
    let scene = Scene::new(1, "*,*");
    // Two blocks of 512 bytes, and an error instead of a signal.
    let wrap = ["sh", "-c", "trap '' XFSZ; ulimit -f 2; exec \"$@\"", "sh"];
    let mut unit = Unit::start_by(&scene.job, 0, &wrap, None, &std::env::current_exe().unwrap());
    assert_eq!(unit.ask("open"), "ok");
    let answer = unit.ask("write");
    assert!(answer.starts_with("System") && answer.contains("27"), "{answer}");
    assert_eq!(unit.ask("close"), answer);
    assert!(scene.is_old());
}

#[test]
fn a_directory_that_may_not_be_written() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new(1, "*,*");
    std::fs::set_permissions(scene.place.path(), PermissionsExt::from_mode(0o555)).unwrap();
    // Root may write anywhere: be somebody else, with a copy of the program that they may run.
    let root = std::fs::read_to_string("/proc/self/status").unwrap().contains("Uid:\t0\t");
    let tools = Place::new();
    std::fs::set_permissions(tools.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let exe = tools.file("unit");
    polyduct_rig::program::copy(&exe);
    let mut unit = Unit::start_by(&scene.job, 0, &[], root.then_some(65534), &exe);
    let answer = unit.ask("open");
    assert!(answer.starts_with("System") && answer.contains("write in its directory"), "{answer}");
    std::fs::set_permissions(scene.place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    assert!(scene.is_old());
}
