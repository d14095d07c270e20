//! A store that is being made, cut short at any moment: it is there when whoever made it was told so, and can
//! be made again before.

use super::basics::{block, entry, rows, ID};
use super::scenario::{Beside, Run, View};
use super::sim::{Disks, Sim};
use super::written::WholeRows;
use polyduct_store::volume::units::HOME;
use polyduct_store::volume::Volume;

/// Another store's number: who makes one again draws another.
const NEXT: [u8; 16] = *b"the one made now";

/// What of a store's making is left is removed from its units, as who makes it in directories does; what the
/// store remembers beside them stays as it is. Then it is made again.
fn again(run: &Run, disks: &Disks) -> Sim {
    let mut sim = Sim::of(disks.clone(), &[]);
    sim.disks.retain(|(unit, _), _| *unit == HOME);
    drop(Volume::create(&mut sim, NEXT, run.geometry, 5000).unwrap());
    sim
}

/// A store that was made is used, also without each of its units, and by turns.
fn use_it(run: &Run, sim: Sim, turn: u64) -> Result<(), String> {
    let g = run.geometry;
    let mut sim = Sim::of(sim.disks, &[]);
    let open = |sim: &mut Sim, now: u64| -> Result<(), String> {
        let mut v = Volume::open(sim, NEXT, g, now).map_err(|e| e.to_string())?;
        let object = v.names().get("x").ok_or("the name is gone")?.object;
        match *v.read(object, 0).map_err(|e| e.to_string())? == block(100) {
            true => Ok(()),
            false => Err("other content".to_owned()),
        }
    };
    let mut v = Volume::open(&mut sim, NEXT, g, 5100).map_err(|e| e.to_string())?;
    let object = v.new_object().unwrap();
    v.write_row(object, 0, &rows(100..100 + g.row_blocks())).map_err(|e| e.to_string())?;
    v.commit(vec![("x".into(), entry(object, g.row_blocks()))], 5200).map_err(|e| e.to_string())?;
    drop(v);
    open(&mut sim, 5300)?;
    if g.parity() > 0 {
        let lost = (turn % u64::from(g.units())) as u32;
        open(&mut Sim::of(sim.disks, &[lost]), 5400).map_err(|e| format!("unit {lost} lost: {e}"))?;
    }
    Ok(())
}

/// Goes through the cuts of making a store, and those of making it again after each of some. Gives how many
/// states that were.
fn cuts(run: Run, one_of: u64) -> u64 {
    let mut made = Sim::default();
    drop(Volume::create(&mut made, ID, run.geometry, 1000).unwrap());
    let (history, mut states) = (made.history, 0);
    let looked = run.each_cut(Disks::default(), &history, &mut |disks, cut| {
        states += 1;
        if cut.len == history.len() {
            // The process that made it was told that it is there.
            run.check(disks, &[&View::new()], &Beside::default(), states)?;
        }
        let sim = again(&run, disks);
        if states % one_of == 0 {
            let base =
                disks.iter().filter(|((unit, _), _)| *unit == HOME).map(|(k, v)| (*k, v.clone())).collect();
            run.each_cut(base, &sim.history, &mut |disks, _| {
                states += 1;
                use_it(&run, again(&run, disks), states)
            })?;
        }
        use_it(&run, sim, states)
    });
    looked.unwrap_or_else(|e| panic!("{}+{}: {e}", run.geometry.data(), run.geometry.parity()));
    states
}

#[test]
fn cuts_of_making_a_store() {
    let all = [(1, 0, 1, 10), (1, 1, 1, 30), (2, 1, 10, 100), (2, 2, 40, 900), (4, 2, 80, 1500)];
    for (data, parity, one_of, least) in all {
        let states = cuts(Run::of(data, parity, 16), one_of);
        println!("{data}+{parity}: {states} states");
        assert!(states >= least, "{data}+{parity}: {states} states");
    }
}
