//! Several arrays between sites: what is offered of them, and their steps as bytes.
//!
//! A step begins with numbers, 8 bytes each, the lowest first: of each array whose size changes, in their order, the
//! size of its open dimension or else its shape; and last the bytes of the values. Then come the bytes of the arrays
//! in their order, those that are constant behind the others, and with the first step alone; and the values.

use polyduct_layout::Dataset;
use polyduct_pipe::{Given, PipeError, Reader, Writer};
use polyduct_port::values::VALUES_BYTES;
use polyduct_port::{check_names, Array, ArrayPart, BundleError, Changes};
use polyduct_stream::gateway::far::wire::{Offer, Offered};
use polyduct_stream::gateway::receive::Sink;
use polyduct_stream::{Adu, StreamError};

/// Bytes of a number.
const WORD: usize = 8;
/// How a gateway has an array that comes from another site: any layout can be had of it, and any conversion.
pub const ALL: &str = "...";

/// What the other site is told of the arrays of a program of so many units: of an open dimension what all bring
/// together.
pub fn offer(arrays: &[Array], units: u32) -> Offer {
    let one = |array: &Array| {
        let mut shape = array.dataset.shape().to_vec();
        if let Some(Changes::Dim(dim)) = array.open {
            shape.iter_mut().skip(dim as usize).take(1).for_each(|n| *n = n.saturating_mul(units.into()));
        }
        let elem = array.dataset.elem().to_string();
        Offered { name: array.name.clone(), shape, elem, open: array.open }
    };
    Offer { arrays: arrays.iter().map(one).collect() }
}

/// How large the steps are of what is offered, and what a program is given then.
///
/// # Errors
/// The first array that cannot be.
pub fn given(offer: &Offer) -> Result<(Given, Adu), BundleError> {
    let one = |Offered { name, shape, elem, open }: &Offered| {
        let named = |source| BundleError::Layout { name: name.clone(), source };
        let dataset = elem.parse().and_then(|elem| Dataset::new(shape, elem)).map_err(named)?;
        Ok(Array { name: name.clone(), dataset, layout: ALL.into(), open: *open })
    };
    let arrays = offer.arrays.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    match &arrays[..] {
        [Array { name, dataset, open: None, .. }] if name.is_empty() => {
            Ok((Given::Dataset(*dataset), Adu::Fixed(dataset.len_bytes())))
        }
        _ => {
            check_names(arrays.iter().map(|array| &array.name[..]))?;
            let words =
                arrays.iter().map(|array| words(array.open, array.dataset.shape().len())).sum::<usize>() + 1;
            let most = (words * WORD + VALUES_BYTES) as u64;
            let most = arrays.iter().fold(most, |sum, array| sum.saturating_add(array.dataset.len_bytes()));
            Ok((Given::Bundle(arrays), Adu::Changing { most }))
        }
    }
}

/// How many numbers say the size of an array in a step.
fn words(open: Option<Changes>, dims: usize) -> usize {
    match open {
        None | Some(Changes::Never) => 0,
        Some(open) => open.words(dims),
    }
}

/// In which order arrays lie in a step.
fn order(arrays: &[ArrayPart]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..arrays.len()).collect();
    order.sort_by_key(|&at| arrays[at].open == Some(Changes::Never));
    order
}

/// Waits for the next step, and reads the bytes of its one array. `None` at the end.
///
/// # Errors
/// As [`Reader::read`].
pub fn whole(reader: &mut Reader, into: &mut Vec<u8>) -> Result<Option<u64>, PipeError> {
    if reader.peek()?.is_none() {
        return Ok(None);
    }
    into.resize(reader.local_len_bytes(), 0);
    reader.read(into)
}

/// Waits for the next step, and reads it as bytes: if it is not the `first`, without what is constant. `None` at the
/// end.
///
/// # Errors
/// As [`Reader::read`].
pub fn pack(reader: &mut Reader, first: bool, into: &mut Vec<u8>) -> Result<Option<u64>, PipeError> {
    if reader.peek()?.is_none() {
        return Ok(None);
    }
    // The only one of a pipe may have no name.
    if reader.arrays()[0].name.is_empty() {
        return whole(reader, into);
    }
    let (arrays, mut numbers, mut constant) = (reader.arrays(), Vec::new(), 0);
    for array in arrays {
        let shape = array.mapping.dataset().shape();
        match array.open {
            None => {}
            Some(Changes::Dim(dim)) => numbers.extend(shape.get(dim as usize)),
            Some(Changes::Whole) => numbers.extend(shape),
            Some(Changes::Never) => constant += array.at.len(),
        }
    }
    let head = (numbers.len() + 1) * WORD;
    into.resize(head + arrays.iter().map(|array| array.at.len()).sum::<usize>(), 0);
    let mut rest = &mut into[head..];
    let mut parts: Vec<&mut [u8]> = arrays.iter().map(|_| &mut [][..]).collect();
    for at in order(arrays) {
        (parts[at], rest) = std::mem::take(&mut rest).split_at_mut(arrays[at].at.len());
    }
    let step = reader.read_arrays(&mut parts)?;
    if !first {
        into.truncate(into.len() - constant);
    }
    let values = reader.values();
    numbers.push(values.len() as u64);
    into.extend_from_slice(values);
    for (word, number) in into.chunks_exact_mut(WORD).zip(numbers) {
        word.copy_from_slice(&number.to_le_bytes());
    }
    Ok(step)
}

/// A program that reads several arrays.
pub struct Unpacked<'a> {
    place: &'a str,
    writer: &'a mut Writer,
    /// A step as it comes.
    bytes: Vec<u8>,
}

impl<'a> Unpacked<'a> {
    /// What comes from a place goes to the program.
    pub fn new(place: &'a str, writer: &'a mut Writer) -> Unpacked<'a> {
        Unpacked { place, writer, bytes: Vec::new() }
    }

    /// Has the program see the step that is here.
    fn publish(&mut self) -> Result<(), StreamError> {
        let Unpacked { place, writer, bytes } = self;
        let program = |e: PipeError| StreamError::Program(e.into());
        let mut step = writer.step().map_err(program)?;
        let (number, count) = (step.number(), step.arrays().len());
        let wrong = |source| StreamError::Content { place: (*place).to_owned(), step: number, source };
        let other = || wrong("its bytes are no step of the arrays that were offered".into());
        let sized =
            step.arrays().iter().map(|array| words(array.open, array.mapping.dataset().shape().len()));
        let words = sized.sum::<usize>() + 1;
        let (head, mut rest) = bytes.split_at_checked(words * WORD).ok_or_else(other)?;
        let (head, _) = head.as_chunks::<WORD>();
        let mut numbers = head.iter().map(|word| u64::from_le_bytes(*word));
        for at in 0..count {
            let mut shape = step.arrays()[at].mapping.dataset().shape().to_vec();
            match step.arrays()[at].open {
                None | Some(Changes::Never) => continue,
                Some(Changes::Dim(dim)) => {
                    shape
                        .iter_mut()
                        .skip(dim as usize)
                        .take(1)
                        .zip(&mut numbers)
                        .for_each(|(n, said)| *n = said);
                }
                Some(Changes::Whole) => shape.iter_mut().zip(&mut numbers).for_each(|(n, said)| *n = said),
            }
            step.bring(at, &shape).map_err(|e| wrong(e.into()))?;
        }
        for at in order(step.arrays()) {
            let ArrayPart { at, open, .. } = &step.arrays()[at];
            if *open == Some(Changes::Never) && number > 0 {
                continue;
            }
            let (part, behind) = rest.split_at_checked(at.len()).ok_or_else(other)?;
            let at = at.clone();
            step.get_mut(at).unwrap_or_default().copy_from_slice(part);
            rest = behind;
        }
        if numbers.next() != Some(rest.len() as u64) {
            return Err(other());
        }
        step.set_values(rest).map_err(|e| wrong(e.into()))?;
        step.publish().map(drop).map_err(program)
    }
}

impl Sink for Unpacked<'_> {
    fn step(
        &mut self,
        len: u64,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let more = len.saturating_sub(self.bytes.len());
        let memory = self.bytes.try_reserve_exact(more);
        memory.map_err(|_| StreamError::System {
            what: format!("{}: no memory for {len} bytes", self.place),
        })?;
        self.bytes.resize(len, 0);
        fill(&mut self.bytes)?;
        self.publish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_port::{Options, Rule};
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::thread;

    fn array(name: &str, shape: &[u64], open: Option<Changes>) -> Offered {
        Offered { name: name.into(), shape: shape.to_vec(), elem: "u1".into(), open }
    }

    fn several() -> Offer {
        let arrays = vec![
            array("cells", &[5], Some(Changes::Never)),
            array("x", &[9, 2], Some(Changes::Dim(0))),
            array("u", &[3, 2], None),
            array("mesh", &[4, 4], Some(Changes::Whole)),
        ];
        Offer { arrays }
    }

    /// A step of [`several`]: particles, a mesh, values, and what is constant.
    fn step(x: u64, mesh: [u64; 2], values: &[u8], cells: &[u8]) -> Vec<u8> {
        let head = [x, mesh[0], mesh[1], values.len() as u64].map(u64::to_le_bytes).concat();
        let len = 2 * x + 6 + mesh[0] * mesh[1];
        let data: Vec<u8> = (0..len).map(|n| n as u8).collect();
        [&head, &data, cells, values].concat()
    }

    #[test]
    fn what_is_no_offer_is_refused() {
        for bad in [
            vec![],
            vec![array("", &[1], Some(Changes::Whole))],
            vec![array("", &[1], None), array("a", &[1], None)],
            vec![array("a", &[1], None), array("a", &[1], None)],
            vec![array("*values", &[1], None)],
            vec![array("a", &[1 << 40, 1 << 40], None)],
            vec![Offered { elem: "q9".into(), ..array("a", &[1], None) }],
        ] {
            assert!(given(&Offer { arrays: bad.clone() }).is_err(), "{bad:?}");
        }
        let (_, adu) = given(&several()).unwrap();
        assert_eq!(adu, Adu::Changing { most: 4 * 8 + 5 + 18 + 6 + 16 + VALUES_BYTES as u64 });
        let alone = Offer { arrays: vec![array("", &[7, 3], None)] };
        assert!(matches!(given(&alone), Ok((Given::Dataset(_), Adu::Fixed(21)))));
    }

    #[test]
    fn bytes_are_the_step_that_they_say_or_none() {
        let options = |program: &str| Options { program: program.into(), ..Options::default() };
        let name = format!("unpacked-{}", std::process::id());
        let (given, _) = given(&several()).unwrap();
        let (mut writer, mut reader) = thread::scope(|s| {
            let rule = Rule { pattern: "*".into(), layout: ALL.into(), ..Rule::default() };
            let reader = s.spawn(|| Reader::open_arrays(&name[..], &[rule], &options("r")).unwrap());
            let writer = Writer::open(&name[..], &given, ALL, &options("w")).unwrap();
            (writer, reader.join().unwrap())
        });
        let mut unpacked = Unpacked::new("here", &mut writer);
        let mut give = |bytes: &[u8]| {
            unpacked.step(bytes.len() as u64, &mut |slot| {
                slot.copy_from_slice(bytes);
                Ok(())
            })
        };
        let mut back = Vec::new();
        assert!(give(&step(2, [1, 1], b"", b"")).is_err(), "without what is constant");
        let first = step(2, [4, 3], b"abc", b"cells");
        give(&first).unwrap();
        pack(&mut reader, true, &mut back).unwrap().unwrap();
        assert_eq!(back, first);
        assert!(give(&first).is_err(), "what is constant comes once");
        let hear = RefCell::new(|bytes: &[u8], valid: bool| match give(bytes) {
            Ok(()) => {
                pack(&mut reader, false, &mut back).unwrap().unwrap();
                assert_eq!(back, bytes);
            }
            Err(error) => {
                assert!(!valid && matches!(error, StreamError::Content { step: 1.., .. }), "{error}");
            }
        });
        let mut runner = proptest::test_runner::TestRunner::default();
        let mesh = (0u64..5, 0u64..5);
        let change = (0usize..120, any::<u8>(), 0usize..3);
        let cases = (0u64..10, mesh, proptest::collection::vec(any::<u8>(), 0..20), change);
        let ran = runner.run(&cases, |(x, (rows, columns), values, (at, byte, how))| {
            let good = step(x, [rows, columns], &values, b"");
            hear.borrow_mut()(&good, true);
            let mut bad = good.clone();
            let at = at % bad.len();
            match how {
                0 => bad[at] = byte,
                1 => bad.truncate(at),
                _ => bad.push(byte),
            }
            hear.borrow_mut()(&bad, bad == good);
            Ok(())
        });
        ran.unwrap();
    }
}
