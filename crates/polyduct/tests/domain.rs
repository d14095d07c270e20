//! The façade: the same program text joins a domain on one host and across hosts.

use polyduct::message::domain::Reach;
use polyduct::message::link::key::{JobKey, Trust};
use polyduct::message::{Domain, MessageError};
use polyduct::{domain, Error, Join};
use polyduct_rig::free_address;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The setting that keeps units of one host from sharing memory in a domain across hosts.
const NEAR: &str = "POLYDUCT_MESSAGE_NEAR";

fn trust() -> Trust {
    Trust { key: JobKey::from_bytes([3; 32]).unwrap(), trusted_network: false }
}

/// A URL at a free port.
fn fresh(kind: &str) -> String {
    format!("{kind}://{}", free_address())
}

fn unit(name: &str, unit: u32, units: u32) -> Join {
    let patience = Duration::from_secs(30);
    domain().name(name).unit(unit).units(units).trust(trust()).open_timeout(patience).timeout(patience)
}

/// One text for all kinds of domain.
fn ring(d: &Domain) -> Result<(), Error> {
    let (right, left) = ((d.unit() + 1) % d.units(), (d.unit() + d.units() - 1) % d.units());
    let word = |unit: u32| format!("from {unit}").into_bytes();
    d.function("add", 1, |_, bytes| Ok(vec![bytes.iter().sum()]))?;
    d.synchronise()?;
    d.send(right, 5, [1, 2], &word(d.unit()))?;
    let mail = d.recv(Some(left), Some(5))?;
    assert_eq!((mail.words, mail.payload), ([1, 2], word(left)));
    assert_eq!(d.call(right, "add", &[1, 2, 4], None)?.wait()?, [7]);

    let mine = d.region(9, 64)?;
    d.barrier()?;
    assert_eq!(d.region_len(right, 9)?, 64);
    d.put(right, 9, 8, &[d.unit() as u8; 4])?;
    d.barrier()?;
    let (mut here, mut there) = ([0; 4], [0; 4]);
    mine.read(8, &mut here)?;
    d.get(right, 9, 8, &mut there)?;
    assert_eq!((here, there), ([left as u8; 4], [d.unit() as u8; 4]));
    let near = d.reach(right)? == Reach::Near;
    assert_eq!(near, !d.name().starts_with("port-") || std::env::var(NEAR).is_err());
    assert_eq!(d.is_on_one_host(), near);
    assert_eq!(d.region_of(right, 9).is_ok(), near);
    assert_eq!(d.pid(right)?, near.then(std::process::id));
    d.barrier()?;
    d.leave().unwrap();
    Ok(())
}

#[test]
fn one_text_on_one_host_and_across() {
    for name in [format!("facade-{}", std::process::id()), fresh("tcp"), fresh("udp")] {
        thread::scope(|scope| {
            let name = &name;
            let units: Vec<_> =
                (0..3).map(|k| scope.spawn(move || ring(&unit(name, k, 3).join()?))).collect();
            for one in units {
                one.join().unwrap().unwrap_or_else(|e| panic!("{name}: {e}"));
            }
        });
    }
}

#[test]
fn the_same_text_where_all_use_the_network() {
    // The environment is a process's own.
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["one_text_on_one_host_and_across", "--exact"]).env(NEAR, "0");
    let done = again.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

#[test]
fn nobody_at_the_place_is_said_in_time() {
    for kind in ["tcp", "udp"] {
        let short = Duration::from_millis(50);
        let joined = unit(&fresh(kind), 1, 2).open_timeout(short).join();
        let Err(Error::Message(error)) = joined else { panic!("{kind}: joined nobody") };
        assert!(matches!(&*error, MessageError::Timeout { what, .. } if what.contains("unit 0")), "{error}");
        let Err(Error::Message(error)) = unit(&fresh(kind), 0, 2).open_timeout(short).join() else {
            panic!("{kind}: joined nobody")
        };
        assert!(matches!(&*error, MessageError::Refused { .. }) && error.to_string().contains("unit 1"));
    }
}

#[test]
fn what_is_no_place_is_refused_before_anything_is_done() {
    let Err(error) = unit("tcp://node7:port", 0, 1).join() else { panic!("joined") };
    assert!(matches!(error, Error::Url { .. }), "{error}");
    assert!(error.to_string().ends_with("at character 12"), "{error}");
    let Err(error) = unit("udp://no such host:1", 0, 1).join() else { panic!("joined") };
    assert!(matches!(error, Error::Url { .. }), "{error}");
    let brief = Duration::from_millis(200);
    let Err(error) = unit("tcp://host.invalid:4100", 1, 2).open_timeout(brief).join() else {
        panic!("joined")
    };
    assert!(error.to_string().contains("no host is known"), "{error}");
}
