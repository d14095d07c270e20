//! What a writer unit brings of its next step: how large its parts are of arrays whose size changes, and values.

use crate::bind::{from_wire, Kinds};
use crate::wire::{firsts, words, Array, VALUES};
use polyduct_layout::LayoutError;
use polyduct_port::{fixed, ArrayPart, BundleError, Changes, Sizes, VALUES_BYTES};
use std::ops::Range;

/// Sizes and values of the next step.
pub(crate) struct Brings {
    unit: u32,
    /// The arrays as they are in the next step.
    pub arrays: Vec<ArrayPart>,
    /// Those whose size changes, and the first of their numbers.
    sizes: Vec<Option<(Sizes, usize)>>,
    /// What is said of the next step.
    pub words: Vec<u64>,
    /// Where the values lie in a slot, where there may be some.
    values: Option<Range<usize>>,
    /// Those of the next step.
    packed: Vec<u8>,
    /// What there is of each constant array, from the first step on.
    constants: Vec<(usize, Vec<u8>)>,
    /// Whether that has been kept.
    has_constants: bool,
    /// The slots in which constants lie.
    lies_in: Vec<bool>,
    /// Bytes of each array whose size changes, and of values.
    used: Vec<usize>,
}

impl Brings {
    /// Of a unit of a program that brings these arrays, bound.
    pub fn new(
        arrays: &[Array],
        bound: &Kinds<'_>,
        (unit, units): (u32, u32),
    ) -> Result<Brings, BundleError> {
        let named = arrays.iter().map(|array| (&array.name[..], array.open));
        let first = firsts(arrays);
        let mut parts = bound.parts(named, unit)?;
        let values = parts.pop_if(|part| part.name == VALUES).map(|part| part.at);
        let changing = |(at, array): (usize, &Array)| {
            let open = array.open.filter(|open| *open != Changes::Never)?;
            let named = |source: LayoutError| BundleError::Layout { name: array.name.clone(), source };
            let sizes = from_wire(array)
                .map_err(named)
                .and_then(|most| Sizes::new(&array.name, most, &array.layout, open, units));
            Some(sizes.map(|sizes| (sizes, first[at])))
        };
        let sizes: Result<Vec<_>, BundleError> =
            arrays.iter().enumerate().map(|array| changing(array).transpose()).collect();
        let words_of_all = vec![0; words(arrays)];
        let constant = |(at, part): (usize, &ArrayPart)| (part.open == Some(Changes::Never)).then_some(at);
        let constants: Vec<_> = parts.iter().enumerate().filter_map(constant).collect();
        let mut brings = Brings {
            unit,
            arrays: parts,
            sizes: sizes?,
            words: words_of_all,
            values,
            packed: Vec::new(),
            constants: constants.into_iter().map(|at| (at, Vec::new())).collect(),
            has_constants: false,
            lies_in: Vec::new(),
            used: Vec::new(),
        };
        for (part, &first) in brings.arrays.iter().zip(&first) {
            if part.open == Some(Changes::Never) {
                brings.words[first] = 1;
            }
        }
        brings.size_nothing(None);
        Ok(brings)
    }

    /// Has nothing of one array whose size changes, or of all.
    pub fn size_nothing(&mut self, one: Option<usize>) {
        for array in 0..self.arrays.len() {
            let sizes = self.sizes[array].as_ref().filter(|_| one.is_none_or(|one| one == array));
            if let Some(nothing) = sizes.map(|(sizes, _)| sizes.nothing()) {
                // Nothing is never more than was declared.
                let _ = self.size(array, &nothing);
            }
        }
    }

    /// Says how large an array is in the next step: where a dimension is open the shape of this unit's piece,
    /// else that of the whole.
    ///
    /// # Errors
    /// [`BundleError::Size`]: it is another or more than was declared. Then nothing has changed.
    pub fn size(&mut self, array: usize, shape: &[u64]) -> Result<(), BundleError> {
        let (Some(part), Some(Some((sizes, word)))) = (self.arrays.get_mut(array), self.sizes.get(array))
        else {
            return Err(fixed(self.arrays.get(array).map_or("", |part| &part.name), shape));
        };
        let (mapping, len) = sizes.part(shape, self.unit)?;
        part.mapping = mapping;
        part.at.end = part.at.start + len as usize;
        let words = sizes.words(shape);
        self.words[*word..][..words.len()].copy_from_slice(words);
        Ok(())
    }

    /// Has parts of these lengths as the next step's, as far as an open dimension says what shape that is.
    pub fn fit(&mut self, lens: &[usize]) -> Result<(), BundleError> {
        for (array, &len) in (0..self.arrays.len()).zip(lens) {
            let sizes = self.sizes[array].as_ref().filter(|_| self.arrays[array].at.len() != len);
            if let Some(shape) = sizes.and_then(|(sizes, _)| sizes.shape_of(len as u64)) {
                self.size(array, &shape)?;
            }
        }
        Ok(())
    }

    /// Has these values, packed, as those of the next step.
    ///
    /// # Errors
    /// [`BundleError::Size`]: they are too large, or there is no place for values.
    pub fn set_values(&mut self, packed: &[u8]) -> Result<(), BundleError> {
        let most = if self.values.is_some() { VALUES_BYTES } else { 0 };
        if packed.len() > most {
            let (name, what) = (String::new(), "the size of the values of a step");
            let (found, expected) = (format!("{} bytes", packed.len()), format!("at most {most}"));
            return Err(BundleError::Size { name, what, found, expected });
        }
        self.packed.clear();
        // Those of unit 0 count.
        if self.unit == 0 {
            self.packed.extend_from_slice(packed);
        }
        if let Some(word) = self.words.last_mut().filter(|_| self.values.is_some()) {
            *word = self.packed.len() as u64;
        }
        Ok(())
    }

    /// Puts the values where they belong in the slot of the step.
    pub fn place_values(&self, slot: &mut [u8]) {
        let Some(at) = &self.values else { return };
        let room = slot.get_mut(at.start..).and_then(|slot| slot.get_mut(..self.packed.len()));
        room.unwrap_or_default().copy_from_slice(&self.packed);
    }

    /// Whether some arrays are constant.
    pub fn has_constants(&self) -> bool {
        !self.constants.is_empty()
    }

    /// Has the constant arrays among these parts as they are from now on, or where they are left out as they
    /// were.
    pub fn with_constants<'a>(&'a self, parts: &[&'a [u8]]) -> Vec<&'a [u8]> {
        let mut all = parts.to_vec();
        if self.has_constants {
            self.constants.iter().for_each(|(array, kept)| all[*array] = kept);
        }
        all
    }

    /// The lengths that parts may have: of a constant array none where it is known.
    pub fn fill_in(&self, lens: &mut [usize]) {
        for (array, kept) in self.constants.iter().filter(|_| self.has_constants) {
            if let Some(len) = lens.get_mut(*array).filter(|len| **len == 0) {
                *len = kept.len();
            }
        }
    }

    /// Keeps the constant arrays of the first step; `part` is where each lies.
    pub fn keep_constants<'a>(&mut self, part: impl Fn(usize) -> &'a [u8]) {
        if !self.has_constants {
            self.constants.iter_mut().for_each(|(array, kept)| *kept = part(*array).to_vec());
            self.has_constants = true;
        }
    }

    /// Whether constants lie in this slot, as they do from now on: slots are as they were left.
    pub fn lie_in(&mut self, slot: u32) -> bool {
        let slot = slot as usize;
        if self.lies_in.len() <= slot {
            self.lies_in.resize(slot + 1, false);
        }
        std::mem::replace(&mut self.lies_in[slot], self.has_constants)
    }

    /// Puts the constants where they belong in a slot.
    pub fn place_constants(&self, slot: &mut [u8]) {
        for (array, kept) in self.constants.iter().filter(|_| self.has_constants) {
            let room = slot.get_mut(self.arrays[*array].at.clone());
            room.filter(|room| room.len() == kept.len()).unwrap_or_default().copy_from_slice(kept);
        }
    }

    /// The step has been written: values belong to it alone.
    pub fn written(&mut self) {
        if !self.packed.is_empty() {
            self.packed.clear();
            self.words.last_mut().into_iter().for_each(|word| *word = 0);
        }
    }

    /// Whether anything is to be said of a step.
    pub fn has_values(&self) -> bool {
        !self.packed.is_empty()
    }

    /// Bytes of this unit's part in the next step of each array whose size changes, in the writer's order, and
    /// of the values.
    pub fn used(&mut self) -> &[usize] {
        let Brings { arrays, used, values, packed, .. } = self;
        used.clear();
        used.extend(arrays.iter().filter(|array| array.open.is_some()).map(|array| array.at.len()));
        used.extend(values.iter().map(|_| packed.len()));
        used
    }

    /// Bytes of this unit's parts in the next step.
    pub fn bytes(&self) -> u64 {
        self.arrays.iter().map(|array| array.at.len() as u64).sum()
    }
}
