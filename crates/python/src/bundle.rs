//! Bundles as they cross from Python and back.

use crate::layout::{dataset, fail, Layout};
use crate::options::layout_of;
use polyduct::layout::ElemType;
use polyduct::{Array, ArrayPart, Expect, JobUnit, Rule};
use pyo3::prelude::*;

/// An array of a writer: its name, shape, element type and layout.
pub type ArraySpec = (String, Vec<u64>, String, Option<String>);

/// What a reader says of arrays: a name or pattern, their layout, and the shape and element type that it expects.
pub type RuleSpec = (String, Option<String>, Option<Vec<u64>>, Option<String>);

/// An array of a port: its name, its layout, and where this unit's part begins and ends.
pub type PlacedArray = (String, Layout, usize, usize);

/// The arrays that a writer brings.
pub fn given(py: Python<'_>, arrays: Vec<ArraySpec>, place: &JobUnit) -> PyResult<Vec<Array>> {
    let array = |(name, shape, elem, layout): ArraySpec| {
        let dataset = dataset(&shape, &elem).map_err(fail(py))?;
        let layout = layout_of(py, layout.as_deref(), place)?.to_owned();
        Ok(Array { name, dataset, layout })
    };
    arrays.into_iter().map(array).collect()
}

/// What a reader takes.
pub fn rules(py: Python<'_>, rules: Vec<RuleSpec>, convert: bool, place: &JobUnit) -> PyResult<Vec<Rule>> {
    let rule = |(pattern, layout, shape, elem): RuleSpec| {
        let elem = elem.map(|elem| elem.parse::<ElemType>()).transpose().map_err(fail(py))?;
        let layout = layout_of(py, layout.as_deref(), place)?.to_owned();
        // Of those that no type is said of none is converted.
        let convert = convert && elem.is_some();
        Ok(Rule { pattern, layout, expect: Expect { shape, elem, convert } })
    };
    rules.into_iter().map(rule).collect()
}

/// The arrays of an open port.
pub fn placed(arrays: &[ArrayPart]) -> Vec<PlacedArray> {
    let place = |part: &ArrayPart| (part.name.clone(), Layout::of(&part.mapping), part.at.start, part.at.end);
    arrays.iter().map(place).collect()
}
