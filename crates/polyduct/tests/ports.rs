//! The façade: one program text for pipes and files, and regrouping in one process.

use polyduct::layout::{Dataset, ElemType, Layout, Mapping};
use polyduct::message::link::key::{JobKey, Trust};
use polyduct::store::disk::{Create, Store};
use polyduct::{open, redistribute, Error, OnLoss, PipeError, PortError, Writer};
use std::time::Duration;

fn data(shape: &[u64]) -> Dataset {
    Dataset::new(shape, ElemType::U32).unwrap()
}

fn bind(layout: &str, shape: &[u64], units: u64) -> Mapping {
    layout.parse::<Layout>().unwrap().bind(&data(shape), units).unwrap()
}

/// This unit's part of a dataset whose elements are their row-major index plus 1000 times the step, for
/// matrices.
fn part(mapping: &Mapping, unit: u64, step: u32) -> Vec<u8> {
    let shape = mapping.dataset().shape();
    let mut part = vec![0; mapping.local_len_bytes(unit).unwrap() as usize];
    for i in 0..shape[0] {
        for j in 0..shape[1] {
            for place in mapping.locate(&[i, j]).unwrap().iter().filter(|p| p.unit == unit) {
                let value = (i * shape[1] + j) as u32 + 1000 * step;
                let at = 4 * place.offset_elems as usize;
                part[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
        }
    }
    part
}

/// Only pipes across hosts ask for it.
fn trust() -> Trust {
    Trust { key: JobKey::from_bytes([3; 32]).unwrap(), trusted_network: false }
}

/// The same writer for every kind of end: `steps` steps of a 10 by 6 matrix in rows.
fn write(url: &str, unit: u32, units: u32, steps: u32) -> Result<(), Error> {
    let mut out: Writer = open(url)
        .unit(unit)
        .units(units)
        .program("writer")
        .timeout(Duration::from_secs(20))
        .trust(trust())
        .write(&data(&[10, 6]), "block,*")?;
    let mapping = out.mapping().clone();
    for step in 0..steps {
        let part = part(&mapping, unit.into(), step);
        if step % 2 == 0 {
            out.write(&part)?;
        } else {
            let mut slot = out.step()?;
            slot.copy_from_slice(&part);
            slot.publish()?;
        }
    }
    out.close().map(drop)
}

/// The same reader for every kind of end, in columns.
fn read(url: &str, unit: u32, units: u32, steps: u32) -> Result<(), Error> {
    let mut input = open(url)
        .unit(unit)
        .units(units)
        .program("reader")
        .timeout(Duration::from_secs(20))
        .trust(trust())
        .read("*,block;halo=0,1")?;
    let mut got = vec![0; input.local_len_bytes()];
    for step in 0..steps {
        assert_eq!(input.read(&mut got)?, Some(step.into()));
        assert_eq!(got, part(input.mapping(), unit.into(), step), "unit {unit}, step {step}");
    }
    assert_eq!(input.read(&mut got)?, None);
    input.close().map(drop)
}

fn all(units: u32, f: impl Fn(u32) -> Result<(), Error> + Sync) {
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..units)
            .map(|u| {
                s.spawn({
                    let f = &f;
                    move || f(u)
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap().unwrap());
    });
}

/// Looks at steps where they lie, in rows, or is told in columns that they do not lie in one slot.
fn view(url: &str, layout: &str, unit: u32, units: u32, steps: u32) -> Result<(), Error> {
    let place = open(url).unit(unit).units(units).program("viewer").timeout(Duration::from_secs(20));
    let mut input = place.trust(trust()).read(layout)?;
    let mapping = input.mapping().clone();
    let mut got = vec![0; input.local_len_bytes()];
    for number in 0..steps {
        let expected = part(&mapping, unit.into(), number);
        let refused = match input.view() {
            Ok(step) => {
                let step = step.unwrap();
                assert!(layout == "block,*" && step.is_mapped() && step.number() == u64::from(number));
                assert_eq!((&step[..], step.mapping()), (&expected[..], &mapping));
                continue;
            }
            Err(e) => e,
        };
        assert!(layout != "block,*" && refused.to_string().contains("slot"), "{refused}");
        assert_eq!(input.read(&mut got)?, Some(number.into()));
        assert_eq!(got, expected);
    }
    assert!(input.view()?.is_none());
    input.close().map(drop)
}

#[test]
fn steps_are_looked_at_where_they_lie() {
    for layout in ["block,*", "*,block"] {
        let url = format!("pipe:test-view-{}-{}", std::process::id(), layout.find('b').unwrap());
        std::thread::scope(|s| {
            s.spawn(|| all(3, |u| write(&url, u, 3, 4)));
            s.spawn(|| all(3, |u| view(&url, layout, u, 3, 4)));
        });
    }
    let dir = std::env::temp_dir().join(format!("polyduct-test-view-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let _remove = Remove(dir.clone());
    let url = dir.join("a.npy").display().to_string();
    all(2, |u| write(&url, u, 2, 1));
    let mut input = open(&url).unit(0).units(1).read("*,*").unwrap();
    assert!(matches!(input.view(), Err(Error::Misuse { .. })), "a file");
}

#[test]
fn the_same_program_pipes_or_files() {
    let pid = std::process::id();
    // An address of this host that no other process takes.
    let net = format!("pipe://127.{}.{}.1:7300/facade", 1 + (pid >> 8) % 250, pid & 255);
    for url in [format!("pipe:test-facade-{pid}"), net] {
        std::thread::scope(|s| {
            s.spawn(|| all(3, |u| write(&url, u, 3, 4)));
            s.spawn(|| all(2, |u| read(&url, u, 2, 4)));
        });
    }
    let dir = std::env::temp_dir().join(format!("polyduct-test-facade-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let _remove = Remove(dir.clone());
    for (name, steps) in [("a.npy", 4), ("b.npy", 1)] {
        let url = dir.join(name).display().to_string();
        all(3, |u| write(&url, u, 3, steps));
        all(2, |u| read(&url, u, 2, steps));
    }
    let url = dir.join("c.raw").display().to_string();
    all(3, |u| write(&url, u, 3, 2));
    let bytes = std::fs::read(dir.join("c.raw")).unwrap();
    let expected: Vec<u8> =
        [0, 1].iter().flat_map(|&step| part(&bind("*,*", &[10, 6], 1), 0, step)).collect();
    assert!(bytes == expected);
}

#[test]
fn errors_of_files_name_the_file_and_who_gave_up() {
    let dir = std::env::temp_dir().join(format!("polyduct-test-facade-errors-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let _remove = Remove(dir.clone());
    let url = dir.join("a.npy").display().to_string();
    let port = |unit, units| open(&url).unit(unit).units(units).program("p");
    let error = port(0, 1).write(&data(&[4, 4]), "block").map(drop).unwrap_err();
    assert_eq!(error.to_string(), format!("{url}: the layout has 1 dimension, the dataset 2"));
    let together = std::sync::Barrier::new(2);
    all(2, |unit| {
        let mut port = port(unit, 2).write(&data(&[4, 4]), "block,*")?;
        together.wait();
        if unit == 1 {
            port.abort();
        } else {
            let error = port.close().unwrap_err();
            assert_eq!(error.to_string(), format!("{url}: unit 1 gave up; the file was not written"));
        }
        Ok(())
    });
}

#[test]
fn a_pipe_across_hosts_asks_for_a_key() {
    // No test of this program sets the variable.
    let error =
        open("pipe://localhost:7300/x").unit(0).units(1).program("p").read("*").map(drop).unwrap_err();
    assert!(matches!(error, Error::Pipe(PipeError::Key { .. })), "{error}");
    assert!(error.to_string().contains("openssl rand -hex 32"), "{error}");
}

struct Remove(std::path::PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn parts_are_regrouped_in_one_process() {
    for (src, p, dst, q) in
        [("block,*", 3, "*,block", 4), ("cyclic(2),*", 2, "block,block@2x2;order=F", 4), ("*,*", 1, "*,*", 1)]
    {
        let (from, to) = (bind(src, &[37, 23], p), bind(dst, &[37, 23], q));
        let parts: Vec<Vec<u8>> = (0..p).map(|u| part(&from, u, 0)).collect();
        let mut out: Vec<Vec<u8>> =
            (0..q).map(|u| vec![0; to.local_len_bytes(u).unwrap() as usize]).collect();
        let parts: Vec<&[u8]> = parts.iter().map(|p| &p[..]).collect();
        let mut refs: Vec<&mut [u8]> = out.iter_mut().map(|p| &mut p[..]).collect();
        redistribute(&from, &parts, &to, &mut refs).unwrap();
        for u in 0..q {
            assert_eq!(out[u as usize], part(&to, u, 0), "{src} to {dst}, unit {u}");
        }
    }
}

#[test]
fn large_parts_are_regrouped_by_several_threads() {
    let shape = [2048, 1024];
    let (from, to) = (bind("block,*", &shape, 2), bind("*,*;order=F", &shape, 1));
    let parts: Vec<Vec<u8>> = (0..2).map(|u| part(&from, u, 0)).collect();
    let parts: Vec<&[u8]> = parts.iter().map(|p| &p[..]).collect();
    let mut out = vec![0; to.local_len_bytes(0).unwrap() as usize];
    redistribute(&from, &parts, &to, &mut [&mut out]).unwrap();
    assert!(out == part(&to, 0, 0));
}

#[test]
fn parts_that_do_not_fit_are_named() {
    let m = bind("block,*", &[4, 4], 2);
    let short: &[u8] = &[0; 31];
    let (good, mut a, mut b) = ([0; 32], [0; 32], [0; 32]);
    let error = redistribute(&m, &[&good, short], &m, &mut [&mut a, &mut b]).unwrap_err();
    assert!(matches!(error, Error::PartSize { side: "source", unit: 1, expected: 32, found: 31 }), "{error}");
    assert!(matches!(redistribute(&m, &[&good], &m, &mut [&mut a, &mut b]), Err(Error::Misuse { .. })));
    let other = bind("block,*", &[4, 5], 2);
    assert!(matches!(
        redistribute(&m, &[&good, &good], &other, &mut [&mut [0; 40], &mut [0; 40]]),
        Err(Error::Layout(_))
    ));
}

#[test]
fn an_array_alone_is_described_too() {
    let dir = std::env::temp_dir().join(format!("polyduct-alone-{}", std::process::id()));
    let how = Create { units: vec![vec!["u".into()]], parity: 0, stripe: 4096 };
    Store::create(&dir.join("store"), &how).unwrap();
    for path in ["x.npy", "x.zarr", "x.safetensors", "store/x"] {
        let path = dir.join(path).display().to_string();
        let url = if path.ends_with("store/x") { format!("store:{path}") } else { path };
        let mut out = open(&url).unit(0).units(1).write(&data(&[4, 3]), "*,*").unwrap();
        out.write(&[1; 48]).unwrap();
        out.close().unwrap();
        // Whichever unit asks.
        let found = open(&url).unit(1).units(2).describe().unwrap();
        assert_eq!(found.iter().map(|array| array.dataset).collect::<Vec<_>>(), [data(&[4, 3])], "{url}");
        assert_eq!(found[0].name, if url.ends_with("safetensors") { "data" } else { "" }, "{url}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_file_takes_no_option_that_a_pipe_would_refuse() {
    let dir = std::env::temp_dir().join(format!("polyduct-options-{}", std::process::id()));
    for path in ["x.npy", "x.raw", "x.safetensors", "x.zarr", "store/x"] {
        let path = dir.join(path).display().to_string();
        let url = if path.ends_with("store/x") { format!("store:{path}") } else { path.clone() };
        let port = || open(&url).unit(0).units(1);
        for (wrong, option, words) in [
            (port().on_loss(OnLoss::Wait), "on_loss", "on_loss is wait; expected raise: "),
            (port().depth(0), "depth", "depth is 0; expected 1 to 64"),
            (port().depth(65), "depth", "depth is 65; expected 1 to 64"),
            (port().readers(9), "readers", "readers is 9; expected 1 to 8"),
        ] {
            let written = wrong.clone().write(&data(&[4]), "*").map(drop).unwrap_err();
            let read = wrong.shape(&[4]).elem(ElemType::U32).read("*").map(drop).unwrap_err();
            for e in [written, read] {
                let named = matches!(&e, Error::Port(PortError::BadOption { option: o, .. }) if *o == option);
                assert!(named && e.to_string().starts_with(&format!("{path}: {words}")), "{e}");
            }
        }
    }
    assert!(!dir.exists());
}

#[test]
fn a_unit_beyond_the_last_is_refused_before_it_meets_anybody() {
    let dir = std::env::temp_dir().join(format!("polyduct-units-{}", std::process::id()));
    for url in ["pipe:units", "pipe://127.0.0.1:1/units", "DIR/x.npy", "DIR/x.zarr", "store:DIR/s/x"] {
        let url = url.replace("DIR", &dir.display().to_string());
        for (unit, units) in [(2, 2), (5, 1)] {
            let port = || open(&url).unit(unit).units(units).program("p").trust(trust());
            let written = port().write(&data(&[4]), "*").map(drop).unwrap_err();
            let read = port().read("*").map(drop).unwrap_err();
            for e in [written, read] {
                assert_eq!(e.to_string(), format!("unit is {unit}; expected below units, {units}"), "{url}");
            }
        }
    }
    assert!(!dir.exists());
}

#[test]
fn a_port_has_a_domain_of_both_sides_and_a_file_has_none() {
    let url = format!("pipe:facade-domain-{}", std::process::id());
    let timeout = Duration::from_secs(20);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut out = open(&url).timeout(timeout).write(&data(&[10, 6]), "*,*").unwrap();
            let misuse = out.domain(polyduct::domain().name("mine")).err();
            assert!(matches!(misuse, Some(Error::Misuse { .. })), "{misuse:?}");
            let domain = out.domain(polyduct::domain()).unwrap();
            let reader = out.addresses().unwrap().readers().next().unwrap().start;
            domain.send(reader, 5, [1, 2], b"from the writer").unwrap();
            domain.barrier().unwrap();
        });
        let mut input = open(&url).program("reader").timeout(timeout).read("*,*").unwrap();
        let domain = input.domain(polyduct::domain()).unwrap();
        let mail = domain.recv(Some(input.addresses().unwrap().writers().start), Some(5)).unwrap();
        assert_eq!((mail.words, &mail.payload[..]), ([1, 2], &b"from the writer"[..]));
        domain.barrier().unwrap();
    });
    let path = std::env::temp_dir().join(format!("polyduct-domain-{}.npy", std::process::id()));
    let mut out = open(path.to_str().unwrap()).unit(0).units(1).write(&data(&[2, 2]), "*,*").unwrap();
    let misuse = out.domain(polyduct::domain()).err();
    assert!(out.addresses().is_none() && matches!(misuse, Some(Error::Misuse { .. })), "{misuse:?}");
    out.abort();
}
