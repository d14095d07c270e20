//! Whatever a unit of a store says in its superblock, its log and its catalog: with a wrong checksum, the
//! store opens and gives what was written, by the other units; with a right one, which damage does not make,
//! it opens or says why not.

#![forbid(unsafe_code)]

mod driver;

use polyduct_store::volume::rows::Bytes;
use polyduct_store::volume::units::{Cause, Done, File, Request, UnitError, Units};
use polyduct_store::volume::{Entry, Geometry, Volume, BLOCK};
use std::collections::BTreeMap;

const ID: [u8; 16] = [7; 16];
/// Bytes before a sealed value.
const HEAD: usize = 16;
/// No file becomes longer: a store that says where to write may say anything.
const LIMIT: u64 = 1 << 20;

/// Units in memory.
#[derive(Clone, Default)]
struct Memory(BTreeMap<(u32, File), Vec<u8>>);

impl Units for Memory {
    fn run(&mut self, batch: Vec<Request>) -> Vec<Result<Done, UnitError>> {
        batch.into_iter().map(|request| self.one(request)).collect()
    }
}

impl Memory {
    fn one(&mut self, request: Request) -> Result<Done, UnitError> {
        match request {
            Request::Read { unit, file, at, len } | Request::ReadBack { unit, file, at, len } => {
                let bytes = self.0.get(&(unit, file)).map_or(&[][..], |bytes| bytes);
                let from = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                let to = from.saturating_add(len).min(bytes.len());
                Ok(Done::Bytes(bytes[from..to].to_vec()))
            }
            Request::Write { unit, file, at, bytes } => {
                let end = at.saturating_add(bytes.len() as u64);
                if end > LIMIT {
                    return Err(UnitError { unit, reason: "full".into(), cause: Cause::Full });
                }
                let content = self.0.entry((unit, file)).or_default();
                content.resize(content.len().max(end as usize), 0);
                content[at as usize..end as usize].copy_from_slice(&bytes);
                Ok(Done::Yes)
            }
            Request::Log { unit, at, bytes } => self.one(Request::Write { unit, file: File::Log, at, bytes }),
            Request::Sync { .. } => Ok(Done::Yes),
            Request::List { unit } => {
                let object = |&(of, file): &(u32, File)| match file {
                    File::Data(object) | File::Sums(object) if of == unit => Some(object),
                    _ => None,
                };
                Ok(Done::Objects(self.0.keys().filter_map(object).collect()))
            }
            Request::Remove { unit, object } => {
                self.0.retain(|&(of, file), _| {
                    of != unit || ![File::Data(object), File::Sums(object)].contains(&file)
                });
                Ok(Done::Yes)
            }
        }
    }
}

fn geometry() -> Geometry {
    Geometry::new(2, 1, BLOCK as u64).unwrap()
}

/// A store of one dataset, of which a block was overwritten, as a cut leaves it.
fn store() -> Memory {
    let mut volume = Volume::create(Memory::default(), ID, geometry(), 1).unwrap();
    let object = volume.new_object().unwrap();
    let mut rows = volume.rows(object);
    let mut parts = vec![(vec![0; rows.chunk_bytes()], vec![0; rows.sum_bytes()]); 3];
    let mut places: Vec<_> = parts.iter_mut().map(|(c, s)| (&mut c[..], &mut s[..])).collect();
    rows.encode(0, Bytes::Own(&[1; 2 * BLOCK]), &mut places);
    let files = |(unit, (blocks, sums))| {
        [(File::Data(object), blocks), (File::Sums(object), sums)].map(|(file, bytes)| Request::Write {
            unit,
            file,
            at: 0,
            bytes,
        })
    };
    let written = volume.units_mut().run((0..).zip(parts).flat_map(files).collect());
    assert!(written.iter().all(Result::is_ok), "{written:?}");
    volume.settle(object, 0..1, [], &[]).unwrap();
    let entry = Entry { object, blocks: 2, about: b"about".to_vec() };
    volume.commit(vec![("name".into(), Some(entry))], 2).unwrap();
    volume.overwrite(object, 1, &[2; BLOCK], 3).unwrap();
    volume.units().clone()
}

const FILES: [File; 3] = [File::Superblock, File::Log, File::Catalog(1)];

fn sealed(kind: &[u8], value: &[u8]) -> Vec<u8> {
    let len = (value.len() as u32).to_le_bytes();
    let crc = [kind, &len, value].iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
    [kind, &len, &crc.to_le_bytes(), value].concat()
}

fn target(input: &[u8]) {
    thread_local! {
        static STORE: Memory = store();
    }
    let [first, value @ ..] = input else { return };
    let mut memory = STORE.with(Memory::clone);
    let (unit, file, right) = (u32::from(first % 3), FILES[usize::from(first / 3 % 3)], first & 0x80 == 0);
    let at = (unit, file);
    let Some(old) = memory.0.get(&at).filter(|old| old.len() > HEAD) else { return };
    let new = if right { sealed(&old[..8], value) } else { value.to_vec() };
    memory.0.insert(at, new);
    let opened = Volume::open(memory, ID, geometry(), 10);
    if !right {
        let mut volume = opened.expect("one damaged unit of three, one of them parity");
        let entry = volume.names()["name"].clone();
        assert_eq!((entry.blocks, &entry.about[..]), (2, &b"about"[..]));
        for (block, was_written) in [1, 2].into_iter().enumerate() {
            assert_eq!(
                volume.read(entry.object, block as u64).unwrap(),
                Box::new([was_written; BLOCK]),
                "block {block}"
            );
        }
        volume.close(11).unwrap();
        return;
    }
    let Ok(mut volume) = opened else { return };
    let names: Vec<Entry> = volume.names().values().cloned().collect();
    for entry in names {
        for block in 0..entry.blocks.min(4) {
            let _ = volume.read(entry.object, block);
        }
    }
    let _ = volume.close(11);
}

fn main() {
    let memory = store();
    let value = |unit: u32, n: usize| -> Option<Vec<u8>> {
        let bytes = memory.0.get(&(unit, FILES[n]))?;
        let len = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?) as usize;
        let mut seed = vec![unit as u8 + 3 * n as u8];
        seed.extend(bytes.get(HEAD..HEAD + len)?);
        Some(seed)
    };
    let seeds: Vec<Vec<u8>> =
        (0..3).flat_map(|unit| (0..3).map(move |n| (unit, n))).filter_map(|(u, n)| value(u, n)).collect();
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    driver::run(&seeds, &[b"name", b"\xff\xff\xff\xff\x0f", b"\x00\x00\x00\x00", &[7; 16]], target);
}
