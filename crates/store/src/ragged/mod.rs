//! Where the steps of an array lie whose size changes: they follow each other in one array.
//!
//! Where the open dimension is the first, the array of all steps is theirs one behind the other along it, as CF calls
//! it a contiguous ragged array; else it is the elements of each, row-major, one behind the other, and the shape of
//! each is kept as well.
//!
//! Source: CF Conventions 1.11, section 9.3.3, contiguous ragged array representation.

mod growing;

pub use growing::{settle, Growing, Placed, Unsettled};

use crate::file::{values::MOST_STEPS, Attributes};
use polyduct_layout::Dataset;
use polyduct_port::Changes;
use serde_json::{json, Value};

/// The attribute that says where each step begins along the first dimension, and where the last ends.
pub const BEGINS: &str = "polyduct_begins";
/// The attribute with the shape of each step, where the array has their elements alone.
pub const SHAPES: &str = "polyduct_shapes";
/// The longest text of the two.
const MAX_TEXT: usize = 512 << 10;

/// Where steps lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The shape of a step, without its first dimension; `None` where steps have shapes of their own.
    row: Option<Vec<u64>>,
    /// The first index of each step, and the one behind the last.
    begins: Vec<u64>,
    shapes: Vec<Vec<u64>>,
    /// Characters of it all as text, at most.
    text: usize,
}

impl Steps {
    /// None yet, of an array whose most and whose way to change are these.
    pub fn of(most: &Dataset, open: Changes) -> Steps {
        let row = most.shape().get(1..).filter(|_| open == Changes::Dim(0)).map(<[u64]>::to_vec);
        Steps { row, begins: vec![0], shapes: Vec::new(), text: 0 }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.begins.len() as u64 - 1
    }

    /// The first index behind all.
    pub fn end(&self) -> u64 {
        self.begins.last().copied().unwrap_or(0)
    }

    /// The shape of the array that holds so many indices.
    pub fn shape_of(&self, indices: u64) -> Vec<u64> {
        [&[indices], self.row.as_deref().unwrap_or(&[])].concat()
    }

    /// How its size changes, as who reads the steps sees it.
    pub fn open(&self) -> Changes {
        if self.row.is_some() {
            Changes::Dim(0)
        } else {
            Changes::Whole
        }
    }

    /// The shape of a step, and its first index; of one that there is not, one without elements.
    pub fn get(&self, step: u64) -> (Vec<u64>, u64) {
        let at = usize::try_from(step).unwrap_or(usize::MAX - 1);
        let begin = self.begins.get(at).copied().unwrap_or(self.end());
        let end = self.begins.get(at + 1).copied().unwrap_or(begin);
        let shape = match &self.row {
            Some(_) => self.shape_of(end - begin),
            None => self.shapes.get(at).cloned().unwrap_or_else(|| vec![0; self.dims()]),
        };
        (shape, begin)
    }

    /// Dimensions of a step.
    fn dims(&self) -> usize {
        self.row.as_ref().map_or_else(|| self.shapes.first().map_or(1, Vec::len), |row| row.len() + 1)
    }

    /// The most that the steps have in each dimension.
    pub fn most(&self) -> Vec<u64> {
        let mut most = vec![0; self.dims()];
        for step in 0..self.count() {
            most.iter_mut().zip(self.get(step).0).for_each(|(most, n)| *most = n.max(*most));
        }
        if let Some(row) = &self.row {
            most[1..].copy_from_slice(row);
        }
        most
    }

    /// The shape of each.
    pub fn shapes(&self) -> Vec<Vec<u64>> {
        (0..self.count()).map(|step| self.get(step).0).collect()
    }

    /// Whether there is room for one more.
    pub fn has_room(&self) -> bool {
        self.begins.len() <= MOST_STEPS && self.text < MAX_TEXT
    }

    /// Adds a step of this shape.
    pub fn push(&mut self, shape: &[u64]) {
        let indices =
            if self.row.is_some() { shape.first().copied().unwrap_or(0) } else { shape.iter().product() };
        let end = self.end().saturating_add(indices);
        self.begins.push(end);
        let mut numbers = vec![end];
        if self.row.is_none() {
            self.shapes.push(shape.to_vec());
            numbers.extend(shape);
        }
        self.text += numbers.iter().map(|n| n.to_string().len() + 2).sum::<usize>();
    }

    /// Notes it among what is written down of the array.
    pub fn note(&self, attributes: &mut Attributes) {
        attributes.insert(BEGINS.into(), self.begins.clone().into());
        if self.row.is_none() {
            attributes.insert(SHAPES.into(), json!(self.shapes));
        }
    }

    /// Leaves what users wrote down of the array.
    pub fn forget(attributes: &mut Attributes) {
        attributes.remove(BEGINS);
        attributes.remove(SHAPES);
    }

    /// What attributes of an array of this shape say; `None` where they say nothing, or what is not so.
    pub fn noted(attributes: &Attributes, shape: &[u64]) -> Option<Steps> {
        let numbers = |list: &Value| list.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>();
        let begins = numbers(attributes.get(BEGINS)?)?;
        let shapes = attributes.get(SHAPES).map(|list| list.as_array()?.iter().map(numbers).collect());
        Steps::check(begins, shapes.map_or(Some(None), |shapes: Option<Vec<_>>| shapes.map(Some))?, shape)
    }

    /// As an array of numbers, its shape and its elements: what `begins` has; with shapes a row for each step, of where
    /// it begins and its shape.
    pub fn to_array(&self) -> (Vec<u64>, Vec<i64>) {
        let signed = |n: &u64| i64::try_from(*n).unwrap_or(i64::MAX);
        if self.row.is_some() {
            return (vec![self.begins.len() as u64], self.begins.iter().map(signed).collect());
        }
        let rows = self.begins.iter().zip(&self.shapes);
        let numbers =
            rows.flat_map(|(begin, shape)| std::iter::once(begin).chain(shape).map(signed)).collect();
        (vec![self.count(), self.dims() as u64 + 1], numbers)
    }

    /// What such an array says of one of this shape; `None` for what is not so.
    pub fn from_array(form: &[u64], numbers: &[i64], shape: &[u64]) -> Option<Steps> {
        let numbers: Option<Vec<u64>> = numbers.iter().map(|&n| n.try_into().ok()).collect();
        match *form {
            [_] => Steps::check(numbers?, None, shape),
            [_, columns] if columns > 1 => {
                let numbers = numbers?;
                let rows = || numbers.chunks_exact(columns as usize);
                let begins = rows().map(|row| row[0]).chain(shape.first().copied()).collect();
                Steps::check(begins, Some(rows().map(|row| row[1..].to_vec()).collect()), shape)
            }
            _ => None,
        }
    }

    /// Whether these steps fill an array of this shape.
    fn check(begins: Vec<u64>, shapes: Option<Vec<Vec<u64>>>, shape: &[u64]) -> Option<Steps> {
        let (&all, row) = shape.split_first()?;
        let fills = begins.first() == Some(&0) && begins.last() == Some(&all) && begins.is_sorted();
        if !fills || begins.len() > MOST_STEPS + 1 {
            return None;
        }
        let Some(shapes) = shapes else {
            return Some(Steps { row: Some(row.to_vec()), begins, shapes: Vec::new(), text: 0 });
        };
        let len = |shape: &Vec<u64>| shape.iter().try_fold(1u64, |len, &n| len.checked_mul(n));
        let dims = shapes.first().map_or(1, Vec::len);
        let fits =
            |(at, shape): (&[u64], &Vec<u64>)| shape.len() == dims && len(shape) == Some(at[1] - at[0]);
        let all_fit =
            row.is_empty() && shapes.len() + 1 == begins.len() && begins.windows(2).zip(&shapes).all(fits);
        all_fit.then_some(Steps { row: None, begins, shapes, text: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_layout::ElemType;
    use proptest::prelude::*;

    fn steps(open: Changes, shapes: &[Vec<u64>]) -> Steps {
        let most = Dataset::new(&[9, 3], ElemType::F32).unwrap();
        let mut steps = Steps::of(&most, open);
        shapes.iter().for_each(|shape| steps.push(shape));
        steps
    }

    proptest! {
        #[test]
        fn steps_are_read_as_they_were_noted(
            sizes in proptest::collection::vec((0u64..5, 0u64..4), 0..6), whole: bool,
        ) {
            let shapes: Vec<Vec<u64>> = sizes.iter().map(|&(a, b)| vec![a, if whole { b } else { 3 }]).collect();
            let steps = steps(if whole { Changes::Whole } else { Changes::Dim(0) }, &shapes);
            let mut begin = 0;
            for (step, shape) in shapes.iter().enumerate() {
                prop_assert_eq!(steps.get(step as u64), (shape.clone(), begin));
                begin += if whole { shape.iter().product() } else { shape[0] };
            }
            prop_assert_eq!((steps.count(), steps.end()), (shapes.len() as u64, begin));
            let array = steps.shape_of(begin);
            let mut attributes = Attributes::new();
            steps.note(&mut attributes);
            let (form, numbers) = steps.to_array();
            prop_assert_eq!(form.iter().product::<u64>(), numbers.len() as u64);
            for read in [Steps::noted(&attributes, &array), Steps::from_array(&form, &numbers, &array)] {
                let read = read.unwrap();
                prop_assert_eq!((read.count(), read.end(), read.open()), (steps.count(), steps.end(), steps.open()));
                for step in 0..steps.count() {
                    prop_assert_eq!(read.get(step), steps.get(step));
                }
            }
        }
    }

    #[test]
    fn what_is_not_so_says_nothing() {
        let noted = |text: &str, shape: &[u64]| {
            let attributes: Attributes = serde_json::from_str(text).unwrap();
            Steps::noted(&attributes, shape).is_some()
        };
        assert!(noted(r#"{"polyduct_begins": [0, 2, 5]}"#, &[5, 3]));
        for bad in [
            "{}",
            r#"{"polyduct_begins": [0, 2, 4]}"#,
            r#"{"polyduct_begins": [0, 6, 5]}"#,
            r#"{"polyduct_begins": [1, 5]}"#,
            r#"{"polyduct_begins": []}"#,
            r#"{"polyduct_begins": [0, -2, 5]}"#,
            r#"{"polyduct_begins": [0, 5], "polyduct_shapes": [[5]]}"#,
        ] {
            assert!(!noted(bad, &[5, 3]), "{bad}");
        }
        assert!(noted(r#"{"polyduct_begins": [0, 6], "polyduct_shapes": [[2, 3]]}"#, &[6]));
        for bad in ["[[2, 2]]", "[[2, 3], [0, 0]]", "[]", "[[4294967296, 4294967296]]"] {
            assert!(
                !noted(&format!(r#"{{"polyduct_begins": [0, 6], "polyduct_shapes": {bad}}}"#), &[6]),
                "{bad}"
            );
        }
        for (form, numbers) in [(&[][..], &[0][..]), (&[2, 1], &[0, 1]), (&[2], &[0, -5])] {
            assert_eq!(Steps::from_array(form, numbers, &[5]), None);
        }
    }

    #[test]
    fn steps_that_could_not_be_written_down_are_not_taken() {
        let mut steps = steps(Changes::Dim(0), &[]);
        let mut taken = 0;
        while steps.has_room() {
            steps.push(&[1 << 30, 3]);
            taken += 1;
        }
        let mut attributes = Attributes::new();
        steps.note(&mut attributes);
        let text = Value::Object(attributes).to_string();
        assert!(taken > 30_000 && text.len() < MAX_TEXT + 100, "{taken} steps, {} characters", text.len());
    }
}
