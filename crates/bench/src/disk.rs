//! Stores over many disks: what they write and read in a second, against what the disk can do.

use super::case::{Case, Choice, Measured, Rounds, Target};
use super::peers::{paired, peer_seconds_with};
use super::throttle;
use super::unit::{unique, Role, Spec, Team};
use clap::Args;
use polyduct_store::disk::{Create, Store, StoredArray};
use polyduct_store::volume::rows::{Bytes, Rows};
use polyduct_store::volume::sums::ObjectId;
use polyduct_store::volume::{parity, Geometry, BLOCK};
use serde::Deserialize;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Instant;

/// `bench disk`.
#[derive(Args)]
pub struct DiskArgs {
    #[command(flatten)]
    choice: Choice,
    /// Where the files go: on the disk to measure. They are removed again.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Size of a dataset, in MiB.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(8..=1 << 20))]
    size: u64,
    /// The script that runs the peers. Cases against a peer have nothing to compare with where it, or the
    /// peer, is missing.
    #[arg(long, default_value = "bench/peers/run.py")]
    peers: PathBuf,
}

pub(super) const MIB: u64 = 1 << 20;
/// Stripe unit of the stores.
pub(super) const STRIPE: u64 = MIB;
pub(super) const ROWS: &str = "block,block,*";

/// A folder of its own on the disk, gone with the measurement.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new(dir: &Path) -> Result<Scratch, String> {
        let path = dir.join(format!(".polyduct-{}", unique()));
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Scratch(path))
    }

    fn store(&self, data: u32, parity: u32) -> Result<PathBuf, String> {
        let dir = self.0.join(format!("store-{data}-{parity}"));
        if !dir.exists() {
            let units = (0..data + parity).map(|u| vec![PathBuf::from(format!("unit{u}"))]).collect();
            Store::create(&dir, &Create { units, parity, stripe: STRIPE }).map_err(|e| e.to_string())?;
        }
        Ok(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What is measured, and where.
#[derive(Clone)]
pub(super) struct Bench {
    pub(super) dir: PathBuf,
    pub(super) mib: u64,
}

impl Bench {
    pub(super) fn bytes(&self) -> f64 {
        (self.mib * MIB) as f64
    }

    /// Seconds that a program of some units takes to write or read a dataset of a store.
    pub(super) fn seconds(&self, store: &Path, role: Role, layout: &str, units: u32) -> Result<f64, String> {
        // 64 planes of f32.
        run(store, role, (&[64, 64, self.mib * MIB / 4 / 64 / 64], "f32"), layout, units)
    }

    /// Seconds to write, or to read, blocks of three dimensions in a new store of 4 units: planes of 1 MiB of
    /// i32.
    fn blocks(&self, role: Role, layout: &str, units: u32) -> Result<f64, String> {
        let scratch = Scratch::new(&self.dir)?;
        let store = scratch.store(4, 0)?;
        let seconds = |role| run(&store, role, (&[self.mib, 512, 512], "i32"), layout, units);
        let written = seconds(Role::DiskWrite)?;
        // Reading goes past the system's cache, so that there is nothing to drop from it but checksums, a
        // 500th of the bytes. It also says whether what was written is right.
        let read = seconds(Role::DiskRead)?;
        Ok(if role == Role::DiskWrite { written } else { read })
    }

    /// GB/s of both ways in a new store.
    fn both(&self, data: u32, parity: u32, layout: &str, units: u32) -> Result<(f64, f64), String> {
        let scratch = Scratch::new(&self.dir)?;
        let store = scratch.store(data, parity)?;
        let rate = |role| Ok::<f64, String>(self.bytes() / self.seconds(&store, role, layout, units)? / 1e9);
        Ok((rate(Role::DiskWrite)?, rate(Role::DiskRead)?))
    }

    /// Seconds of a write that is committed, and of one that is not, in new stores.
    fn commit(&self) -> Result<(f64, f64), String> {
        let seconds = |role| -> Result<f64, String> {
            let scratch = Scratch::new(&self.dir)?;
            let store = scratch.store(4, 1)?;
            let took = self.seconds(&store, role, ROWS, 4)?;
            if role == Role::DiskWrite {
                // Whether it is right. Without a commit there is nothing to read.
                self.seconds(&store, Role::DiskRead, ROWS, 4)?;
            }
            Ok(took)
        };
        Ok((seconds(Role::DiskWrite)?, seconds(Role::DiskWriteUncommitted)?))
    }

    /// GB/s of fio on one file, past the cache; `None` without fio.
    fn fio(&self, what: &str) -> Result<Option<f64>, String> {
        #[derive(Deserialize)]
        struct Side {
            bw_bytes: f64,
        }
        #[derive(Deserialize)]
        struct Job {
            read: Side,
            write: Side,
        }
        #[derive(Deserialize)]
        struct Report {
            jobs: Vec<Job>,
        }
        let scratch = Scratch::new(&self.dir)?;
        let out = Command::new("fio")
            .args([
                "--name=limit",
                "--bs=1M",
                "--iodepth=16",
                "--ioengine=libaio",
                "--direct=1",
                "--end_fsync=1",
            ])
            .args(["--output-format=json", &format!("--rw={what}"), &format!("--size={}M", self.mib)])
            .arg(format!("--directory={}", scratch.0.display()))
            .output();
        let out = match out {
            Ok(out) => out,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(format!("fio: {e}")),
        };
        let report: Report = serde_json::from_slice(&out.stdout)
            .map_err(|e| format!("fio: {e}: {}", String::from_utf8_lossy(&out.stderr)))?;
        let job = report.jobs.first().ok_or("fio says nothing")?;
        Ok(Some(if what == "read" { job.read.bw_bytes } else { job.write.bw_bytes } / 1e9))
    }
}

/// Seconds of a program of some units, from the call of write or read to its end; a write's end is a durable
/// commit.
fn run(
    store: &Path,
    role: Role,
    (shape, elem): (&[u64], &str),
    layout: &str,
    units: u32,
) -> Result<f64, String> {
    let spec = Spec {
        pipe: store.display().to_string(),
        role,
        shape: shape.to_vec(),
        elem: elem.into(),
        layout: layout.into(),
        warm: 0,
        steps: 1,
        at: 0.0,
    };
    Team(vec![(spec, units)]).run()
}

const NO_FIO: &str = "fio is not there (Debian's package fio)";

/// Carries out `polyduct-bench disk`.
pub fn disk(args: &DiskArgs) -> u8 {
    let bench = Bench { dir: args.dir.clone(), mib: args.size };
    let rounds = args.choice.rounds();
    let mut cases = cases(rounds, &bench);
    cases.extend(collective(rounds, &bench, &args.peers));
    cases.extend(throttle::cases(rounds, &args.dir));
    args.choice.measure(cases, "disk")
}

fn case(
    name: &str,
    (unit, baseline): (&'static str, &'static str),
    target: Target,
    run: impl Fn() -> Result<Measured, String> + 'static,
) -> Case {
    Case { name: name.into(), unit, baseline, target, run: Box::new(run) }
}

fn cases(rounds: Rounds, bench: &Bench) -> Vec<Case> {
    let mut cases = Vec::new();
    // Both ways are measured together, and told apart.
    for (way, what) in [("write", 0), ("read", 1)] {
        let pick = move |(write, read): (f64, f64)| if what == 0 { write } else { read };
        let b = bench.clone();
        cases.push(case(
            &format!("{way}, 4 units, 4 processes"),
            ("GB/s", "fio, direct"),
            Target::RatioAtLeast(0.85),
            move || {
                if b.fio(way)?.is_none() {
                    return Ok(Measured::Missing(NO_FIO.into()));
                }
                rounds.of(|| {
                    let limit = b.fio(way)?.unwrap_or(f64::NAN);
                    Ok((pick(b.both(4, 0, ROWS, 4)?), limit))
                })
            },
        ));
        for (name, layout, units) in [("column blocks", "*,*,block", 4), ("8 processes", ROWS, 8)] {
            let b = bench.clone();
            cases.push(case(
                &format!("{way}, 4 units, {name}"),
                ("s", "row blocks, 4 processes"),
                Target::RatioAtMost(1.25),
                move || {
                    rounds.of(|| {
                        let base = pick(b.both(4, 0, ROWS, 4)?);
                        let this = pick(b.both(4, 0, layout, units)?);
                        Ok((b.bytes() / 1e9 / this, b.bytes() / 1e9 / base))
                    })
                },
            ));
        }
    }
    let b = bench.clone();
    cases.push(case(
        "write, 4+1, whole stripes",
        ("GB/s", "4 units, no parity"),
        Target::RatioAtLeast(0.72),
        move || rounds.of(|| Ok((b.both(4, 1, ROWS, 4)?.0, b.both(4, 0, ROWS, 4)?.0))),
    ));
    let b = bench.clone();
    cases.push(case(
        "read, 4+1, one unit lost",
        ("GB/s", "all units there"),
        Target::RatioAtLeast(0.6),
        move || {
            rounds.of(|| {
                let scratch = Scratch::new(&b.dir)?;
                let store = scratch.store(4, 1)?;
                b.seconds(&store, Role::DiskWrite, ROWS, 4)?;
                let healthy = b.seconds(&store, Role::DiskRead, ROWS, 4)?;
                std::fs::rename(store.join("unit1"), store.join("away")).map_err(|e| e.to_string())?;
                let degraded = b.seconds(&store, Role::DiskRead, ROWS, 4)?;
                Ok((b.bytes() / degraded / 1e9, b.bytes() / healthy / 1e9))
            })
        },
    ));
    let b = bench.clone();
    cases.push(case("write, 4+1, committed", ("s", "without"), Target::RatioAtMost(1.1), move || {
        rounds.of(|| b.commit())
    }));
    for (name, data, parity, least) in [("XOR 8+1", 8, 1, 0.5), ("Reed-Solomon 8+2", 8, 2, 0.25)] {
        cases.push(case(
            &format!("{name}, one core"),
            ("GB/s", "memcpy"),
            Target::RatioAtLeast(least),
            move || rounds.of(|| encoding(data, parity)),
        ));
    }
    let b = bench.clone();
    cases.push(case(
        "overwrite of 4 KiB, 4+1, durable",
        ("µs", "4 KiB appended and fdatasync"),
        Target::RatioAtMost(2.0),
        move || rounds.of(|| overwriting(&b)),
    ));
    cases
}

/// One new file or dataset by all processes at once, from 3-D blocks, against MPI's. Both sides have opened
/// it when the clock starts, and a write is over when it is closed and durable.
fn collective(rounds: Rounds, bench: &Bench, script: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for (way, role, at_least) in [("write", Role::DiskWrite, 3.0), ("read", Role::DiskRead, 1.5)] {
        // The grids are MPI_Dims_create's.
        for (units, grid) in [(4, "2x2x1"), (8, "2x2x2")] {
            for (peer, baseline) in [("openmpi", "Open MPI 5"), ("mpich", "MPICH 5")] {
                let (b, script) = (bench.clone(), script.to_owned());
                cases.push(case(
                    &format!("{way} of 3-D blocks, {units} processes, against {peer}"),
                    ("GB/s", baseline),
                    Target::RatioAtLeast(at_least),
                    move || {
                        let case = format!("file-{way}-{}x512x512-i32-n{units}", b.mib);
                        let more = ["--repeat", "3", "--timeout", "600", "--dir"].map(OsStr::new);
                        let more = [&more[..], &[b.dir.as_os_str()]].concat();
                        paired(
                            rounds,
                            |seconds| b.bytes() / seconds / 1e9,
                            || b.blocks(role, &format!("block,block,block@{grid}"), units),
                            || peer_seconds_with(&script, peer, &case, &more),
                        )
                    },
                ));
            }
        }
    }
    cases
}

/// GB/s of data encoded by one core, and of memcpy.
fn encoding(data: u32, parity: u32) -> Result<(f64, f64), String> {
    const TIMES: u64 = 16;
    thread_local! {
        static MEMORY: Rc<RefCell<(Vec<u8>, Vec<u8>)>> = Rc::default();
    }
    let g = Geometry::new(data, parity, 256 << 10).map_err(|e| e.to_string())?;
    let mut rows = Rows::new(g, ObjectId::default(), 1);
    let row = g.row_blocks() as usize * BLOCK;
    MEMORY.with(|memory| {
        let (from, to) = &mut *memory.borrow_mut();
        if from.len() != row * TIMES as usize {
            from.clear();
            from.extend((0..row * TIMES as usize).map(|i| (i * 31 / 7 % 253) as u8));
        }
        to.resize(row * TIMES as usize, 9);
        let start = Instant::now();
        // The C library's, as in the other tables.
        std::hint::black_box(&mut to[..]).copy_from_slice(std::hint::black_box(from));
        let memcpy = start.elapsed();
        let (chunk, sums) = (rows.chunk_bytes(), rows.sum_bytes());
        let mut parts: Vec<(Vec<u8>, Vec<u8>)> =
            (0..g.units()).map(|_| (vec![1; chunk * TIMES as usize], vec![1; sums])).collect();
        let start = Instant::now();
        for n in 0..TIMES {
            let at = n as usize * chunk;
            let mut refs: Vec<_> =
                parts.iter_mut().map(|(c, s)| (&mut c[at..at + chunk], &mut s[..])).collect();
            rows.encode(n, Bytes::Own(&from[n as usize * row..][..row]), &mut refs);
        }
        let encoded = start.elapsed();
        // Of the first row: each word by itself, as small writes have it.
        for at in (0..chunk).step_by(BLOCK) {
            let block = |bytes: &[u8]| -> [u8; BLOCK] { std::array::from_fn(|i| bytes[at + i]) };
            let words: Vec<[u8; BLOCK]> = (0..data as usize).map(|c| block(&from[c * chunk..])).collect();
            let parity = parity::encode(g, &words.iter().collect::<Vec<_>>());
            let expected = words.iter().chain(parity.iter().map(|block| &**block));
            if !expected.zip(&parts).all(|(expected, (found, _))| *expected == block(found)) {
                return Err("the row came out changed".into());
            }
        }
        let rate = |t: std::time::Duration| (row as u64 * TIMES) as f64 / t.as_secs_f64() / 1e9;
        Ok((rate(encoded), rate(memcpy)))
    })
}

/// µs of a small write that is safe, and of the least that a disk can do for one.
fn overwriting(bench: &Bench) -> Result<(f64, f64), String> {
    const TIMES: usize = 1000;
    let scratch = Scratch::new(&bench.dir)?;
    let mut file = File::create(scratch.0.join("appended")).map_err(|e| e.to_string())?;
    let mut append = || -> std::io::Result<f64> {
        let start = Instant::now();
        file.write_all(&[3; BLOCK])?;
        file.sync_data()?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    };
    let limit = (0..TIMES).map(|_| append()).collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    let dir = scratch.store(4, 1)?;
    bench.seconds(&dir, Role::DiskWrite, ROWS, 1)?;
    // As programs do it: a box of an array, durable when the call returns.
    let array = StoredArray::open(&dir, "data").map_err(|e| e.to_string())?;
    let shape = array.dataset().shape().to_vec();
    let per_row = shape[2] * 4 / BLOCK as u64;
    let mut times = Vec::new();
    for i in 0..TIMES as u64 {
        let block = i * 2_654_435_761 % (shape[0] * shape[1] * per_row);
        let (row, at) = (block / per_row, block % per_row * BLOCK as u64 / 4);
        let lo = [row / shape[1], row % shape[1], at];
        let hi = [lo[0] + 1, lo[1] + 1, at + BLOCK as u64 / 4];
        let start = Instant::now();
        array.write_box(0..1, &lo, &hi, &[i as u8; BLOCK]).map_err(|e| e.to_string())?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
        let mut read = [0; BLOCK];
        array.read_box(0..1, &lo, &hi, &mut read).map_err(|e| e.to_string())?;
        if read != [i as u8; BLOCK] {
            return Err(format!("block {block} came back changed"));
        }
    }
    Ok((super::case::median(times), super::case::median(limit)))
}
