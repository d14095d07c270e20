//! Whatever units that write one file say to each other is read or refused, and what was read can be said
//! again. Each fault makes an error that names the file; specs that differ differ in something that can be
//! named.

#![forbid(unsafe_code)]

mod driver;

use polyduct_message::handshake::unpack;
use polyduct_message::meeting::JoinRefusal;
use polyduct_message::meeting::Unit;
use polyduct_store::file::wire::{FileFault, FromHost, Spec, ToHost};
use serde::{de::DeserializeOwned, Serialize};
use std::fmt::Debug;

fn print(message: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(message).expect("words")
}

fn read<T: DeserializeOwned + Serialize + PartialEq + Debug>(input: &[u8]) -> Option<T> {
    let message = unpack::<T>(input).ok()?;
    assert_eq!(unpack::<T>(&print(&message)).as_ref(), Ok(&message));
    Some(message)
}

fn spec() -> Spec {
    Spec { format: "npy".into(), shape: vec![8], elem: "u8".into(), layout: "block".into(), layout_hash: 7 }
}

fn target(input: &[u8]) {
    if let Some(ToHost::Hello { spec: found, .. }) = read::<ToHost>(input) {
        match spec().difference(&found) {
            Some((what, ours, theirs)) => assert!(!what.is_empty() && ours != theirs),
            None => assert_eq!(found, spec()),
        }
    }
    if let Some(FromHost::Failed(fault)) = read::<FromHost>(input) {
        let error = fault.error("x.npy", "p");
        assert!(error.to_string().starts_with("x.npy: "));
        // What goes on to others says the same, or that unit 0 gave up and why.
        let _ = FileFault::of(&error).error("x.npy", "p").to_string();
    }
}

fn main() {
    let hello = |spec| print(&ToHost::Hello { unit: 1, units: 2, program: "p".into(), spec });
    let failed = |fault| print(&FromHost::Failed(fault));
    let text = || "text".to_owned();
    let refused = |why| failed(FileFault::Refused(why));
    let seeds = [
        hello(spec()),
        hello(Spec { shape: vec![1 << 40, 3], layout: "*,block".into(), ..spec() }),
        print(&ToHost::Closed { steps: 300 }),
        print(&ToHost::Abort { reason: text() }),
        print(&FromHost::Welcome { temporary: Some(".polyduct-1.part".into()) }),
        print(&FromHost::Committed),
        refused(JoinRefusal::Lost { unit: Unit(1), pid: 7, silent_s: None }),
        refused(JoinRefusal::disagree(Unit(1), "shape", "[1]", Unit(0), "[2]")),
        refused(JoinRefusal::Missing { missing: text(), waited_ms: 900, hint: text() }),
        failed(FileFault::NoSpace { needed: 1 << 50, available: 4 }),
        failed(FileFault::System { op: text(), errno: -5 }),
        failed(FileFault::Busy),
    ];
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    let words: [&[u8]; 5] = [b"\x00", b"\x01", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80", b"\x09"];
    driver::run(&seeds, &words, target);
}
