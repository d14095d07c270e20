//! Runs one process of `bench disk`.

use super::pattern;
use super::unit::{now, Report, Spec};
use polyduct_layout::{Dataset, Layout, Mapping};
use polyduct_message::Domain;
use polyduct_port::Options;
use polyduct_store::disk::{StoreError, StoreReader, StoreWriter};
use polyduct_store::Expect;
use std::path::Path;
use std::time::Duration;

/// The name of the dataset.
const DATASET: &str = "data";
/// How long the others are waited for.
const WAIT: Duration = Duration::from_secs(60);

/// A unit of a program that writes or reads one step of a dataset in a store.
struct Disk {
    team: Domain,
    mapping: Mapping,
    part: Vec<u8>,
    options: polyduct_store::Options,
}

impl Disk {
    fn new(spec: &Spec, data: &Dataset, unit: u64) -> Result<Disk, String> {
        let team = polyduct::domain().join().map_err(|e| e.to_string())?;
        let mapping = spec.layout.parse::<Layout>().and_then(|l| l.bind(data, team.units().into()));
        let mapping = mapping.map_err(|e| e.to_string())?;
        let len = mapping.local_len_bytes(unit).map_err(|e| e.to_string())? as usize;
        // Not zeros: memory that nobody has touched would be given out in the time that is measured.
        let part = vec![1; len];
        let (unit, units) = (unit as u32, team.units());
        let program = std::env::var("POLYDUCT_PROGRAM").unwrap_or_default();
        let (timeout, open_timeout) = (Some(WAIT), WAIT);
        let options = Options { unit, units, program, timeout, open_timeout, ..Default::default() }.into();
        Ok(Disk { team, mapping, part, options })
    }

    /// All units begin together.
    fn start(&self) -> Result<f64, String> {
        self.team.barrier().map_err(|e| e.to_string())?;
        Ok(now())
    }
}

/// Writes a step; gives the time from when all have it open to when all have closed it, or without `commit`
/// given it up.
pub fn write(spec: &Spec, data: &Dataset, unit: u64, commit: bool) -> Result<Report, String> {
    let text = |e: StoreError| e.to_string();
    let mut disk = Disk::new(spec, data, unit)?;
    pattern::fill(&disk.mapping, unit, &mut disk.part, 0).map_err(|e| e.to_string())?;
    let dir = Path::new(&spec.pipe);
    let mut out = StoreWriter::open(dir, DATASET, data, &spec.layout, false, &disk.options).map_err(text)?;
    let start = disk.start()?;
    out.write(&disk.part).map_err(text)?;
    match commit {
        true => out.close().map(drop).map_err(text)?,
        false => out.abort(),
    }
    Ok(Report { start, end: now() })
}

/// Reads a step, and checks it.
pub fn read(spec: &Spec, data: &Dataset, unit: u64) -> Result<Report, String> {
    let text = |e: StoreError| e.to_string();
    let mut disk = Disk::new(spec, data, unit)?;
    let dir = Path::new(&spec.pipe);
    let mut input =
        StoreReader::open(dir, DATASET, &spec.layout, &Expect::default(), &disk.options).map_err(text)?;
    let start = disk.start()?;
    input.read(&mut disk.part).map_err(text)?;
    let end = now();
    pattern::check(&disk.mapping, unit, &disk.part, 0)?;
    Ok(Report { start, end })
}
