//! The writing port of several arrays, wherever they are written.

use crate::FileError;
use polyduct_layout::Mapping;
use polyduct_port::{ArrayPart, PortError, PortName, Sizes, Stats};
use std::ops::{Deref, DerefMut};

/// One unit's writing end of several arrays: in files, in a group of Zarr, or in a folder of a store.
///
/// All units of the program open it, write their parts, and close it; then the arrays are there under their
/// names. Dropped without having been closed, a port gives them up for all units.
pub trait WriteArrays: Send {
    /// What the port is, for errors.
    fn name(&self) -> PortName;

    /// The arrays, and where this unit's parts of them lie in the memory of a step.
    fn arrays(&self) -> &[ArrayPart];

    /// Number of the next step, from 0; in a folder that is appended to those count that were there before.
    fn next_step(&self) -> u64;

    /// Counters since opening.
    fn stats(&self) -> Stats;

    /// Has these values, [packed](polyduct_port::values), go with a step, as JSON. Those of unit 0 count.
    ///
    /// # Errors
    /// [`PortError::BadOption`] for what JSON cannot have, and for more than there is room for.
    fn set_values_of(&mut self, step: u64, packed: &[u8]) -> Result<(), FileError>;

    /// Says how large an array is in the next step, and in those after it until it is said again: where a dimension is
    /// open the shape of this unit's piece, which may be empty, else that of the whole array, which all units say
    /// alike. Before the first time it has no elements.
    ///
    /// # Errors
    /// [`PortError::Bundle`] for an array whose size does not change, another number of dimensions, or more than was
    /// declared.
    fn bring(&mut self, array: usize, shape: &[u64]) -> Result<(), FileError>;

    /// What may be said of an array whose size changes.
    fn sizes(&self, array: usize) -> Option<&Sizes>;

    /// Has parts of these lengths as the next step's, as far as an open dimension says what shape that is.
    ///
    /// # Errors
    /// As [`bring`](Self::bring).
    fn fit(&mut self, parts: &[&[u8]]) -> Result<(), FileError> {
        for (array, part) in parts.iter().enumerate() {
            let sizes = self.sizes(array).filter(|_| self.arrays()[array].at.len() != part.len());
            if let Some(shape) = sizes.and_then(|sizes| sizes.shape_of(part.len() as u64)) {
                self.bring(array, &shape)?;
            }
        }
        Ok(())
    }

    /// Writes this unit's parts of the next step, one for each of the [arrays](Self::arrays). A constant one
    /// counts with the first step, and may be empty in the others.
    ///
    /// # Errors
    /// As [`FileWriter::write`](super::FileWriter::write) and [`StoreWriter::write`](crate::disk::StoreWriter::write);
    /// for a second step of a file.
    fn write_arrays(&mut self, parts: &[&[u8]]) -> Result<(), FileError>;

    /// Writes a stretch of one of the arrays, whoever's part it is: bytes of it, row-major, from byte `at` on, of a
    /// step that has not been ended. The units together write each byte of each array and step, in any order of
    /// arrays, and then [end](Self::end_steps) all steps.
    ///
    /// # Errors
    /// [`PortError::WrongSize`] for what is not in it; then as [`write_arrays`](Self::write_arrays).
    ///
    /// # Panics
    /// Where there is no such array.
    fn write_stretch(&mut self, array: usize, step: u64, at: u64, bytes: &[u8]) -> Result<(), FileError>;

    /// The same of this unit's part of one of the arrays, for all units.
    ///
    /// # Errors
    /// [`PortError::WrongSize`]; then as [`write_arrays`](Self::write_arrays).
    ///
    /// # Panics
    /// Where there is no such array.
    fn write_array(&mut self, array: usize, step: u64, part: &[u8]) -> Result<(), FileError>;

    /// Bytes of which a [stretch](Self::write_stretch) of an array should have a whole number; `None` where only
    /// whole [parts](Self::write_array) of it can be written.
    ///
    /// # Panics
    /// Where there is no such array.
    fn stretch_unit(&self, array: usize) -> Option<u64>;

    /// Ends so many steps, of which all arrays are written.
    ///
    /// # Errors
    /// What has become of other units.
    fn end_steps(&mut self, steps: u64) -> Result<(), FileError>;

    /// Whether there is room for another step.
    ///
    /// # Errors
    /// There is not; what has become of other units.
    fn check_room(&mut self) -> Result<(), FileError>;

    /// Memory for this unit's parts of a step, which keeps what is in it.
    fn memory(&mut self) -> &mut Vec<u8>;

    /// Ends the arrays and waits until all units have.
    ///
    /// # Errors
    /// As [`FileWriter::close`](super::FileWriter::close) and [`StoreWriter::close`](crate::disk::StoreWriter::close);
    /// where nothing was written.
    fn close(&mut self) -> Result<Stats, FileError>;

    /// Gives the arrays up: all other units get [`PortError::PeerAborted`] with this reason, which may be empty.
    fn abort(&mut self, reason: &str);

    /// The mapping of the first array.
    fn mapping(&self) -> &Mapping {
        &self.arrays()[0].mapping
    }

    /// Bytes of this unit's parts and what lies between them; of arrays whose size changes the most.
    fn local_len_bytes(&self) -> usize;

    /// Has these values go with the next step: see [`set_values_of`](Self::set_values_of).
    ///
    /// # Errors
    /// As there; as [`check_room`](Self::check_room).
    fn set_values(&mut self, packed: &[u8]) -> Result<(), FileError> {
        self.check_room()?;
        self.set_values_of(self.next_step(), packed)
    }

    /// Writes this unit's parts, which lie in `part` where [`arrays`](Self::arrays) say.
    ///
    /// # Errors
    /// As [`write_arrays`](Self::write_arrays).
    fn write(&mut self, part: &[u8]) -> Result<(), FileError> {
        let len = self.local_len_bytes();
        if part.len() != len {
            return Err(FileError::Port(PortError::WrongSize {
                port: self.name(),
                unit: None,
                array: Box::default(),
                expected: len as u64,
                found: part.len() as u64,
            }));
        }
        let places: Vec<_> = self.arrays().iter().map(|array| array.at.clone()).collect();
        self.write_arrays(&places.into_iter().map(|at| &part[at]).collect::<Vec<_>>())
    }
}

impl dyn WriteArrays {
    /// Gives this unit's parts of the next step to be filled and [published](ArraysStepMut::publish); their content
    /// is undefined.
    ///
    /// # Errors
    /// As [`check_room`](WriteArrays::check_room).
    pub fn step_mut(&mut self) -> Result<ArraysStepMut<'_>, FileError> {
        self.check_room()?;
        let (len, name) = (self.local_len_bytes(), self.name().to_string());
        super::stretch::resize(self.memory(), len, &name)?;
        let memory = std::mem::take(self.memory());
        Ok(ArraysStepMut { writer: self, memory })
    }
}

/// That as many parts were given as there are arrays.
///
/// # Errors
/// [`PortError::BadOption`].
pub(crate) fn check_count(port: PortName, found: usize, arrays: usize) -> Result<(), FileError> {
    if found == arrays {
        return Ok(());
    }
    Err(FileError::Port(PortError::BadOption {
        port: Some(port),
        option: "arrays",
        found: found.to_string(),
        expected: format!("one for each of the {arrays} arrays").into(),
    }))
}

/// This unit's parts of a step, to be filled in place.
pub struct ArraysStepMut<'a> {
    writer: &'a mut (dyn WriteArrays + 'static),
    memory: Vec<u8>,
}

impl ArraysStepMut<'_> {
    /// The arrays, and where this unit's parts lie.
    pub fn arrays(&self) -> &[ArrayPart] {
        self.writer.arrays()
    }

    /// Says how large an array is in the step: see [`WriteArrays::bring`].
    ///
    /// # Errors
    /// As there.
    pub fn bring(&mut self, array: usize, shape: &[u64]) -> Result<(), FileError> {
        self.writer.bring(array, shape)
    }

    /// Has these values go with the step: see [`WriteArrays::set_values`].
    ///
    /// # Errors
    /// As there.
    pub fn set_values(&mut self, packed: &[u8]) -> Result<(), FileError> {
        self.writer.set_values(packed)
    }

    /// Writes the parts.
    ///
    /// # Errors
    /// As [`WriteArrays::write_arrays`].
    pub fn publish(self) -> Result<(), FileError> {
        self.writer.write(&self.memory)
    }
}

impl Drop for ArraysStepMut<'_> {
    fn drop(&mut self) {
        *self.writer.memory() = std::mem::take(&mut self.memory);
    }
}

impl Deref for ArraysStepMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

impl DerefMut for ArraysStepMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}
