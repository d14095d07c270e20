//! Arrays that are read whose size changes: how large each is in a step, and what of the files it is.

use super::found::Held;
use super::held::named;
use super::packed::bundle;
use super::shape::{self, file_mapping};
use super::source::Source;
use crate::ragged::Steps;
use crate::FileError;
use polyduct_copy::Conversion;
use polyduct_layout::{Dataset, Dims, ElemType, IndexBox, Layout, LayoutError, Mapping, Plan, Window};
use polyduct_port::{BundleError, Changes, Expect, Rule};
use std::sync::Arc;

/// An array that a reader takes.
pub struct Sized {
    name: String,
    /// Which of those that are read, and which piece of those that come from files.
    pub array: usize,
    pub piece: usize,
    steps: Steps,
    layout: Layout,
    /// All steps, as they lie in the file.
    file: Mapping,
    elem: ElemType,
    /// Whether the file is chunks.
    chunked: bool,
    pub conversion: Option<Conversion>,
}

/// What is read of a step.
pub struct Part {
    /// As the program has it.
    pub mapping: Mapping,
    pub plan: Arc<Plan>,
    /// Bytes of the file before the source of the plan.
    pub base: u64,
    /// From the file to the step's elements one behind the other, where the plan is of those.
    pub through: Option<Arc<Plan>>,
}

impl Sized {
    /// Of what a rule chooses.
    ///
    /// # Errors
    /// Expectations that are not met, and what is no layout.
    pub fn of(
        held: &Held,
        steps: &Steps,
        (name, rule): (&str, &Rule),
        (array, piece): (usize, usize),
        path: &str,
    ) -> Result<Sized, FileError> {
        if let Some(expected) = rule.expect.shape.as_ref().filter(|shape| shape.len() != steps.most().len()) {
            let (path, expected) = (format!("{path}, array {name:?}"), expected.clone());
            return Err(FileError::ShapeDiffers { path, expected, found: steps.most() });
        }
        let elem = rule.expect.elem.unwrap_or_else(|| held.mapping.dataset().elem());
        let expect = Expect { elem: Some(elem), shape: None, ..rule.expect };
        let (file, conversion) = shape::expected(&format!("{path}, array {name:?}"), &held.mapping, &expect)?;
        Ok(Sized {
            name: name.to_owned(),
            array,
            piece,
            steps: steps.clone(),
            layout: rule.layout.parse().map_err(named(path, name))?,
            file,
            elem,
            chunked: matches!(held.source, Source::Chunks(_)),
            conversion,
        })
    }

    /// How its size changes.
    pub fn open(&self) -> Changes {
        self.steps.open()
    }

    /// What unit `unit` of `units` has of a step.
    ///
    /// # Errors
    /// [`BundleError::Layout`](polyduct_port::BundleError) where the layout does not fit it.
    pub fn part(&self, step: u64, (unit, units): (u32, u32), path: &str) -> Result<Part, FileError> {
        let named = |source| bundle(path)(BundleError::Layout { name: self.name.clone(), source });
        let (shape, begin) = self.steps.get(step);
        let make = || -> Result<Part, LayoutError> {
            let of_file = self.file.dataset().elem();
            let mapping = self.layout.bind(&Dataset::new(&shape, self.elem)?, units.into())?;
            let (unit, flat) = (u64::from(unit), self.open() == Changes::Whole);
            if !self.chunked || flat {
                let alone = file_mapping(&Dataset::new(&shape, of_file)?, false)?;
                let plan = Arc::new(Plan::to_reader(&alone, &mapping, unit)?);
                let row = self.steps.shape_of(1).iter().product::<u64>() * of_file.len_bytes();
                if !self.chunked {
                    return Ok(Part { mapping, plan, base: begin * row, through: None });
                }
                // The elements of a step are indices of one dimension in a row.
                let packed = file_mapping(&Dataset::new(&[shape.iter().product()], of_file)?, false)?;
                let window = self.window(begin, packed.dataset().shape())?;
                let through = Plan::window_to_reader(&self.file, &packed, 0, &window)?;
                return Ok(Part { mapping, plan, base: 0, through: Some(Arc::new(through)) });
            }
            let window = self.window(begin, &shape)?;
            let plan = Arc::new(Plan::window_to_reader(&self.file, &mapping, unit, &window)?);
            Ok(Part { mapping, plan, base: 0, through: None })
        };
        make().map_err(named)
    }

    /// The indices of the file from `begin` on that are the step.
    fn window(&self, begin: u64, shape: &[u64]) -> Result<Window, LayoutError> {
        let at = |first: u64| {
            let lo = Dims::from_fn(shape.len(), |dim| if dim == 0 { first } else { 0 });
            let hi = Dims::from_fn(shape.len(), |dim| lo[dim] + shape[dim]);
            IndexBox { lo, hi }
        };
        Window::new(at(begin), at(0))
    }
}
