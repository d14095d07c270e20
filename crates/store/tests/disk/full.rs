//! Disks that are full in earnest: each unit on a file system of its own, of some MiB of memory, in a mount
//! namespace that is gone with its process. Where nobody may have one, files may not grow beyond a limit,
//! which units take for a full disk, too.

use super::rig::{each, options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_rig::Scratch;
use polyduct_store::disk::{nonce, Create, Store, StoreError, StoreReader, StoreWriter};
use polyduct_store::volume::{VolumeError, BLOCK};
use polyduct_store::Expect;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const PLACE: &str = "POLYDUCT_TEST_DISKS";
const MIB: u64 = 1 << 20;
/// Of each unit.
const ROOM: u64 = 12 * MIB;
const KEPT: u64 = 4 * MIB;
/// Enough to say which unit it is, and not for what a unit has of what is kept.
const SPARE: u64 = KEPT / 2;

/// Runs a test of this module in a process of its own, where `body` gets a place with small disks, `unit0` to
/// `unit2` and `spare`, or one where files are small.
fn on_small_disks(test: &str, body: impl FnOnce(&Path, bool)) {
    if let Some(place) = std::env::var_os(PLACE) {
        let place = PathBuf::from(place);
        let mut small = true;
        for (name, room) in [("unit0", ROOM), ("unit1", ROOM), ("unit2", ROOM), ("spare", SPARE)] {
            let dir = place.join(name);
            std::fs::create_dir(&dir).unwrap();
            let size = format!("size={room}");
            let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "disk"]).arg(&dir).output();
            small &= mounted.is_ok_and(|done| done.status.success());
        }
        return body(&place, small);
    }
    let scratch = Scratch::new("full");
    let may = Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "disk", "/tmp"]).output();
    let mut command = match may.is_ok_and(|done| done.status.success()) {
        true => {
            let mut command = Command::new("unshare");
            command.arg("-rm");
            command
        }
        false => {
            eprintln!("NO MOUNT NAMESPACES HERE: files that may not grow instead");
            let mut command = Command::new("sh");
            // In units of 512 bytes; who ignores the signal gets an error.
            command.args(["-c", &format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", ROOM / 512), "sh"]);
            command
        }
    };
    let me = std::env::current_exe().unwrap();
    command.arg(me).args(["--exact", &format!("full::{test}"), "--nocapture"]).env(PLACE, scratch.path());
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

fn store(dir: &Path) -> Store {
    let units = (0..3).map(|u| vec![PathBuf::from(format!("unit{u}"))]).collect();
    Store::create(dir, &Create { units, parity: 1, stripe: 64 << 10 }).unwrap()
}

/// Writes a dataset of so many bytes, by two units.
fn write(dir: &Path, name: &str, len: u64, version: u8) -> Vec<Result<(), StoreError>> {
    each(2, |unit| {
        let data = Dataset::new(&[len], ElemType::U8).unwrap();
        let mut out = StoreWriter::open(dir, name, &data, "block", false, &options(unit, 2))?;
        out.write(&vec![version; out.local_len_bytes()])?;
        out.close().map(drop)
    })
}

fn read(dir: &Path, name: &str) -> Vec<u8> {
    let mut port = StoreReader::open(dir, name, "*", &Expect::default(), &options(0, 1)).unwrap();
    let mut part = vec![0; port.local_len_bytes()];
    assert_eq!(port.read(&mut part).unwrap(), Some(0));
    part
}

fn assert_all(dir: &Path, name: &str, version: u8) {
    assert!(read(dir, name).iter().all(|&b| b == version), "{name} is not as it was");
}

fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Volume { source: VolumeError::Full(_), .. })
}

fn free(dir: &Path, unit: u32) -> u64 {
    let room = rustix::fs::statvfs(dir.join(format!("unit{unit}"))).unwrap();
    room.f_bavail * room.f_frsize
}

/// Takes all the room that a unit's disk has left.
fn fill(dir: &Path, unit: u32) -> PathBuf {
    let path = dir.join(format!("unit{unit}/filler"));
    let mut file = File::create(&path).unwrap();
    for len in [1 << 16, 4096, 1] {
        while file.write_all(&vec![1; len]).is_ok() {}
    }
    assert!(free(dir, unit) < 4096);
    path
}

#[test]
fn what_does_not_fit_is_refused_and_all_else_stays() {
    on_small_disks("what_does_not_fit_is_refused_and_all_else_stays", |dir, small| {
        let store = store(dir);
        write(dir, "kept", KEPT, 1).into_iter().for_each(Result::unwrap);
        let before: Vec<u64> = (0..3).map(|unit| free(dir, unit)).collect();
        for name in ["big", "kept"] {
            // One unit finds out, and the other hears of it.
            let ends = write(dir, name, 8 * ROOM, 2);
            let errors: Vec<&StoreError> = ends.iter().map(|end| end.as_ref().unwrap_err()).collect();
            assert!(errors.iter().any(|e| is_full(e) && e.to_string().contains("unit ")), "{errors:?}");
            assert_all(dir, "kept", 1);
            assert_eq!(store.datasets().unwrap().keys().collect::<Vec<_>>(), ["kept"]);
            assert_eq!(store.own().unwrap().lost().count(), 0, "a full unit is not a lost one");
        }
        if small {
            let after: Vec<u64> = (0..3).map(|unit| free(dir, unit)).collect();
            assert!(before.iter().zip(&after).all(|(b, a)| a + MIB > *b), "{before:?} {after:?}");
        }
        write(dir, "more", KEPT, 3).into_iter().for_each(Result::unwrap);
        assert_all(dir, "kept", 1);
        assert_all(dir, "more", 3);
    });
}

/// The disks are full to the last byte: of one unit, or of all. Whatever is asked for is done or refused;
/// nothing is lost, and what is there can be removed.
#[test]
fn without_any_room_nothing_is_lost() {
    on_small_disks("without_any_room_nothing_is_lost", |dir, small| {
        if !small {
            // Only a disk has no room for what is short.
            return;
        }
        let store = store(dir);
        write(dir, "kept", KEPT, 1).into_iter().for_each(Result::unwrap);
        let mut want = vec![1; KEPT as usize];
        let (mut done, mut refused) = (0, 0);
        for (round, full) in [vec![1], vec![0, 1, 2], vec![]].into_iter().enumerate() {
            let fillers: Vec<PathBuf> = full.iter().map(|&unit| fill(dir, unit)).collect();
            // Each owner more than the logs have room for.
            for i in 0..20_u64 {
                let mut owned = store.own().unwrap();
                let (entry, _) = owned.find("kept").unwrap();
                for j in 0..400 {
                    let block = (i * 97 + j * 311) % (KEPT / BLOCK as u64);
                    let byte = (i + j + round as u64 * 5) as u8;
                    match owned.overwrite(entry.object, block, &[byte; BLOCK], nonce()) {
                        Ok(()) => {
                            want[block as usize * BLOCK..][..BLOCK].fill(byte);
                            done += 1;
                        }
                        Err(VolumeError::Full(e)) => {
                            assert!(full.contains(&e.unit), "{e:?}");
                            refused += 1;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                drop(owned);
                assert!(read(dir, "kept") == want, "round {round}, after {i}");
            }
            if !full.is_empty() {
                let ends = write(dir, "new", KEPT, 2);
                assert!(ends.iter().flat_map(|e| e.as_ref().err()).any(is_full), "{ends:?}");
            }
            assert_eq!(store.own().unwrap().lost().count(), 0, "round {round}");
            assert!(read(dir, "kept") == want, "round {round}");
            fillers.iter().for_each(|filler| std::fs::remove_file(filler).unwrap());
        }
        println!("{done} blocks were overwritten, {refused} refused");
        assert!(done >= 8000 && refused > 0, "with room all are done, without it some are refused");
        write(dir, "other", KEPT, 4).into_iter().for_each(Result::unwrap);
        let fillers: Vec<PathBuf> = (0..3).map(|unit| fill(dir, unit)).collect();
        // What has a name can be removed, and so there is room again.
        store.remove(&["other"], false).unwrap();
        drop(store.own().unwrap());
        assert!((0..3).all(|unit| free(dir, unit) >= KEPT / 2), "the room of what was removed");
        fillers.iter().for_each(|filler| std::fs::remove_file(filler).unwrap());
        assert!(read(dir, "kept") == want);
    });
}

/// A unit is replaced by a directory where there is no room for it: it does not join, and the others go on.
#[test]
fn a_replacement_without_room_does_not_join() {
    on_small_disks("a_replacement_without_room_does_not_join", |dir, small| {
        let mut store = store(dir);
        write(dir, "kept", KEPT, 1).into_iter().for_each(Result::unwrap);
        if !small {
            return;
        }
        let taken = Command::new("umount").arg("-l").arg(dir.join("unit0")).output().unwrap();
        assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
        assert_all(dir, "kept", 1);
        let end = store.replace(0, Some(vec!["spare".into()]), false).and_then(|_| loop {
            let mut owned = store.own()?;
            match owned.rebuild(0, 100, nonce()) {
                Ok(progress) if progress.finished => break Ok(()),
                Ok(_) => {}
                Err(e) => break Err(owned.error(e)),
            }
        });
        let error = end.unwrap_err();
        println!("{error}");
        assert!(error.to_string().contains("unit 0"), "{error}");
        assert_all(dir, "kept", 1);
        let ends = write(dir, "small", 100, 5);
        assert!(ends.iter().all(Result::is_ok), "{ends:?}");
        assert_all(dir, "small", 5);
    });
}
