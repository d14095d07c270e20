//! What a writing unit has of each array of a file.

use super::form::{Body, Form};
use super::packed::bundle;
use super::runs::View;
use super::shape::file_mapping;
use super::slabs::Slabs;
use super::staged::Staged;
use crate::ragged::{Growing, Placed};
use crate::FileError;
use polyduct_layout::{Dataset, Layout, LayoutError, Mapping, Plan};
use polyduct_os::Errno;
use polyduct_port::{lay_out, BundleError, PortError, PortName};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// An array of a file, as one unit of the writing program has it.
pub struct Held {
    pub mapping: Mapping,
    pub plan: Arc<Plan>,
    pub view: View,
    /// Where the unit's part lies in the memory of a step.
    pub at: Range<usize>,
    /// Where the array begins in a step of the file.
    pub file_at: u64,
    /// Of one whose size changes, what is known of its steps; and where the next lies, once all units have said how
    /// much they bring of it.
    pub growing: Option<Growing>,
    pub placed: Option<Placed>,
    /// Of one of which units have short pieces, the windows in which it is written.
    pub staged: Option<Arc<Staged>>,
}

/// What arrays that are alike share.
#[derive(Clone)]
struct Kind {
    layout: Layout,
    mapping: Mapping,
    plan: Arc<Plan>,
    staged: Option<Arc<Staged>>,
}

/// An array that is written: its name, empty for the only one, what it is, and its layout.
pub type Given<'a> = (&'a str, Dataset, &'a str);

/// What unit `unit` of `units` has of each array, the bytes of all of it in memory, and the layouts as text. Arrays
/// that are alike share their plans: a model has thousands of a few kinds.
///
/// # Errors
/// [`PortError::Layout`] or [`PortError::Bundle`] for layouts that do not parse or fit; more memory than there is.
pub fn hold(
    given: &[Given<'_>],
    form: &Form,
    (unit, units): (u32, u32),
    path: &str,
) -> Result<(Vec<Held>, usize, String), FileError> {
    let mut known: HashMap<(&str, Dataset), Kind> = HashMap::new();
    let mut bound = Vec::with_capacity(given.len());
    let mut texts = String::new();
    for (n, &(name, dataset, text)) in given.iter().enumerate() {
        let named = named(path, name);
        if let Some(growing) = form.growing(n) {
            let sized = |shape: &[u64]| growing.sizes.part(shape, unit).map_err(bundle(path));
            let (mapping, _) = sized(&growing.sizes.nothing())?;
            let len = growing.sizes.most_len(unit).map_err(bundle(path))?;
            // Nobody brings anything yet.
            let nothing =
                file_mapping(mapping.dataset(), false).and_then(|file| Plan::to_reader(&file, &file, 0));
            bound.push((mapping, Arc::new(nothing.map_err(&named)?), None, len));
            continue;
        }
        let Kind { layout, mapping, plan, staged } = match known.get(&(text, dataset)) {
            Some(known) => known.clone(),
            None => {
                let layout: Layout = text.parse().map_err(&named)?;
                let mapping = layout.bind(&dataset, units.into()).map_err(&named)?;
                let planned = || -> Result<_, LayoutError> {
                    let file = match form.slabs_of(n).and_then(Slabs::boxes) {
                        Some(boxes) => boxes.mapping()?,
                        None => file_mapping(&dataset, false)?,
                    };
                    let plan = Plan::from_writer(&mapping, &file, unit.into())?;
                    // Chunks of several steps are counted when a step ends, and those of a group are not held so long.
                    let boxes = form.slabs_of(n).and_then(Slabs::boxes);
                    let is_held =
                        !matches!(form.body, Body::Group(_)) || boxes.is_none_or(|boxes| boxes.steps == 1);
                    let staged = if is_held { Staged::of(&mapping, &file, unit)? } else { None };
                    Ok((Arc::new(plan), staged))
                };
                let (plan, staged) = planned().map_err(&named)?;
                let made = Kind { layout, mapping, plan, staged };
                known.insert((text, dataset), made.clone());
                made
            }
        };
        texts += &layout.to_string();
        if given.len() > 1 {
            texts.push('|');
        }
        let len = mapping.local_len_bytes(unit.into()).map_err(&named)?;
        bound.push((mapping, plan, staged, len));
    }
    let laid = lay_out(bound.iter().map(|(.., len)| *len));
    let (places, len) = laid.ok_or_else(|| FileError::sys(path, "allocate", Errno::NOMEM))?;
    let begins = match &form.body {
        Body::Packed(packed) => packed.at.clone(),
        _ => vec![0; given.len()],
    };
    let held = bound.into_iter().zip(places).zip(begins).enumerate();
    let held = held.map(|(n, (((mapping, plan, staged, _), mut at), file_at))| {
        let growing = form.growing(n).cloned();
        if growing.is_some() {
            at.end = at.start;
        }
        Held { mapping, view: View::writing(&plan), plan, at, file_at, growing, placed: None, staged }
    });
    Ok((held.collect(), len, texts))
}

impl Held {
    /// Has the next step lie there.
    pub fn place(&mut self, placed: Placed) {
        (self.view, self.plan) = (View::writing(&placed.plan), placed.plan.clone());
        self.placed = Some(placed);
    }
}

/// A layout's error, of the array of this name.
pub fn named(path: &str, name: &str) -> impl Fn(LayoutError) -> FileError {
    let (port, name) = (PortName::File(path.to_owned()), name.to_owned());
    move |source| match name.is_empty() {
        true => FileError::layout(&port.to_string())(source),
        false => {
            let source = Box::new(BundleError::Layout { name: name.clone(), source });
            FileError::Port(PortError::Bundle { port: port.clone(), source })
        }
    }
}
