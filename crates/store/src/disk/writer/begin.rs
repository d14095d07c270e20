//! Opens a dataset for the units of a writing program: what they agree on, and what unit 0 finds in the
//! store.

use super::output::Wanted;
use crate::disk::meta::Meta;
use crate::disk::owned::{lies_in, Owned};
use crate::disk::turn::InUse;
use crate::disk::{Store, StoreError};
use crate::volume::sums::Stamp;
use polyduct_port::{PortError, PortName};
use serde::{Deserialize, Serialize};

/// What each unit says of a dataset when it opens.
#[derive(Serialize, Deserialize)]
pub struct Wish {
    pub name: String,
    pub shape: Vec<u64>,
    pub elem: String,
    pub layout: String,
    pub append: bool,
    pub descr: Option<String>,
}

/// What unit 0 found out.
#[derive(Serialize, Deserialize)]
pub struct Start {
    pub object: u64,
    pub stamp: Stamp,
    pub lost: Vec<u32>,
    pub joining: Vec<u32>,
    pub meta: Vec<u8>,
}

/// Whether all units want the same.
pub fn same(store: &str, wishes: &[Vec<Wish>]) -> Result<(), StoreError> {
    let Some(first) = wishes.first() else { return Ok(()) };
    for (unit, all) in (0..).zip(wishes) {
        let differs = |what: &'static str, expected: String, found: String| {
            Err(StoreError::Port(PortError::Disagree {
                port: PortName::Store(store.to_owned()),
                unit,
                what: what.into(),
                expected: expected.into(),
                found: found.into(),
            }))
        };
        if all.len() != first.len() {
            return differs("number of arrays", first.len().to_string(), all.len().to_string());
        }
        for (first, wish) in first.iter().zip(all) {
            if wish.name != first.name {
                return differs("name of an array", first.name.clone(), wish.name.clone());
            }
            if wish.shape != first.shape {
                return differs("shape", format!("{:?}", first.shape), format!("{:?}", wish.shape));
            }
            if wish.elem != first.elem {
                return differs("dtype", first.elem.clone(), wish.elem.clone());
            }
            if wish.layout != first.layout {
                return differs("layout", first.layout.clone(), wish.layout.clone());
            }
            if wish.descr != first.descr {
                let of = |wish: &Wish| wish.descr.clone().unwrap_or_else(|| wish.elem.clone());
                return differs("dtype", of(first), of(wish));
            }
            if wish.append != first.append {
                return differs("append", first.append.to_string(), wish.append.to_string());
            }
        }
    }
    Ok(())
}

/// What is held for an object: that it is in use, and that nobody else appends to it.
pub type Held = Vec<InUse>;

/// Unit 0's part of opening: of a dataset alone, or of one in a `folder`, whose others it replaces unless it
/// is appended to.
pub fn begin(
    store: &Store,
    owned: &mut Owned<'_>,
    wanted: &Wanted,
    (append, folder): (bool, Option<&str>),
) -> Result<(Start, Option<u64>, Held), StoreError> {
    let (name, dataset) = (wanted.name.as_str(), &wanted.dataset);
    let replaced = folder.filter(|_| !append);
    owned.check_free(name, |there| there == name || replaced.is_some_and(|folder| lies_in(there, folder)))?;
    let there = owned.names().get(name).map(|entry| entry.object);
    let (object, meta, held) = if append && there.is_some() {
        let (entry, meta) = owned.find(name)?;
        if meta.dataset.shape() != dataset.shape() {
            return Err(StoreError::ShapeDiffers {
                store: store.shown.clone(),
                name: name.into(),
                expected: dataset.shape().to_vec(),
                found: meta.dataset.shape().to_vec(),
            });
        }
        if meta.dataset.elem() != dataset.elem() {
            let (expected, found) = (dataset.elem(), meta.dataset.elem());
            return Err(StoreError::ElemDiffers {
                store: store.shown.clone(),
                name: name.into(),
                expected,
                found,
            });
        }
        if let (Some(found), Some(expected)) = (&wanted.descr, &meta.descr) {
            if found != expected {
                return Err(StoreError::Bad {
                    store: store.shown.clone(),
                    what: format!("NumPy's type of what is appended to {name:?}"),
                    found: found.to_string(),
                    expected: expected.to_string(),
                });
            }
        }
        let mut held = owned.append_alone(entry.object, name)?;
        held.push(store.use_object(entry.object)?);
        (entry.object, meta, held)
    } else {
        let (object, in_use) = owned.fresh()?;
        let mut meta = Meta::new(*dataset);
        meta.attributes.clone_from(&wanted.attributes);
        meta.descr.clone_from(&wanted.descr);
        meta.stepped = wanted.stepped;
        (object, meta, in_use)
    };
    let start = Start {
        object,
        stamp: owned.stamp(),
        // Units that are joining are written to.
        lost: owned.lost().map(|(unit, _)| unit).filter(|&unit| !owned.is_joining(unit)).collect(),
        joining: owned.lost().map(|(unit, _)| unit).filter(|&unit| owned.is_joining(unit)).collect(),
        meta: meta.to_bytes(&store.shown)?,
    };
    Ok((start, there, held))
}
