//! Works out what `show` was asked for: the layouts bound, their parts, the traffic between them.

use super::exchange::Exchange;
use crate::layout::{Dataset, IndexBox, Layout, LayoutError, Mapping};
use serde::Serialize;

/// Most units that can be drawn or listed.
pub const MAX_UNITS: u64 = 4096;
/// Most boxes that are listed for each unit.
const MAX_BOXES: usize = 1024;

/// All that is shown.
pub struct Model {
    pub dataset: Dataset,
    pub sides: Vec<Side>,
    /// Between the first layout and the second, if there are two.
    pub exchange: Option<Exchange>,
}

/// One layout.
pub struct Side {
    /// The text as it was typed.
    pub text: String,
    pub mapping: Mapping,
    pub parts: Vec<Part>,
}

/// What one unit holds.
#[derive(Debug, Serialize)]
pub struct Part {
    pub unit: u64,
    /// With its halo.
    pub local_shape: Vec<u64>,
    pub local_bytes: u64,
    /// What it owns, without halo.
    pub boxes: Vec<Bounds>,
    /// More boxes than are listed.
    pub boxes_cut: bool,
}

/// A half-open box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bounds {
    pub lo: Vec<u64>,
    pub hi: Vec<u64>,
}

/// A layout that was refused, and which one.
#[derive(Debug)]
pub struct RefusedLayout {
    pub text: String,
    pub error: LayoutError,
}

impl Model {
    /// Binds the layouts, one or two, to the dataset.
    pub fn new(dataset: Dataset, layouts: &[String], units: &[u64]) -> Result<Model, RefusedLayout> {
        let mut sides = Vec::new();
        for (i, text) in layouts.iter().enumerate() {
            let units = units.get(i).or(units.first()).copied().unwrap_or(1);
            let refuse = |error| RefusedLayout { text: text.clone(), error };
            sides.push(Side::new(text, &dataset, units).map_err(refuse)?);
        }
        let exchange = match &sides[..] {
            [from, to] => {
                let refuse =
                    |error| RefusedLayout { text: format!("{}  →  {}", from.text, to.text), error };
                Some(Exchange::between(&from.mapping, &to.mapping).map_err(refuse)?)
            }
            _ => None,
        };
        Ok(Model { dataset, sides, exchange })
    }
}

impl Side {
    fn new(text: &str, dataset: &Dataset, units: u64) -> Result<Side, LayoutError> {
        let mapping = text.parse::<Layout>()?.bind(dataset, units)?;
        let mut parts = Vec::new();
        for unit in 0..units {
            let mut boxes: Vec<Bounds> =
                mapping.boxes_iter(unit)?.take(MAX_BOXES + 1).map(|b| Bounds::from(&b)).collect();
            let boxes_cut = boxes.len() > MAX_BOXES;
            boxes.truncate(MAX_BOXES);
            parts.push(Part {
                unit,
                local_shape: mapping.local_shape(unit)?.to_vec(),
                local_bytes: mapping.local_len_bytes(unit)?,
                boxes,
                boxes_cut,
            });
        }
        Ok(Side { text: text.to_owned(), mapping, parts })
    }
}

impl From<&IndexBox> for Bounds {
    fn from(b: &IndexBox) -> Bounds {
        Bounds { lo: b.lo.to_vec(), hi: b.hi.to_vec() }
    }
}

impl Bounds {
    /// `0:3, 4:8`
    pub fn describe(&self) -> String {
        self.lo.iter().zip(&self.hi).map(|(lo, hi)| format!("{lo}:{hi}")).collect::<Vec<_>>().join(", ")
    }
}

/// `12×8`
pub fn times(shape: &[u64]) -> String {
    match shape {
        [] => "scalar".into(),
        shape => shape.iter().map(u64::to_string).collect::<Vec<_>>().join("×"),
    }
}

/// `unit 0`, `units 0, 2`, `units 0, 4, 8 and 13 more`
pub fn owners_text(owners: &[u64]) -> String {
    let list = |owners: &[u64]| owners.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    match owners {
        [] => "nobody".into(),
        [one] => format!("unit {one}"),
        many if many.len() <= 8 => format!("units {}", list(many)),
        many => format!("units {} and {} more", list(&many[..6]), many.len() - 6),
    }
}
