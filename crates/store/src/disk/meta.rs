//! The metadata of a dataset, and the places of its steps in their object.

use super::StoreError;
use crate::npy::Descr;
use crate::ragged::Steps;
use crate::volume::{Geometry, BLOCK};
use polyduct_layout::{Dataset, ElemType};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The longest description of a dataset, attributes included.
const LIMIT: usize = 1 << 20;
/// Places where steps begin that do not follow those before them: of stores in which appending began a row
/// each time.
const MAX_SEGMENTS: usize = 1 << 14;
/// The longest name of a dataset.
const MAX_NAME: usize = 1024;

/// A dataset in a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta {
    /// Shape and element type of one step.
    pub dataset: Dataset,
    /// How many steps there are.
    pub steps: u64,
    /// What its users wrote down of it.
    pub attributes: Map<String, Value>,
    /// What NumPy takes the elements for, where they are bytes to polyduct.
    pub descr: Option<Descr>,
    /// Whether the steps are a dimension even if there is just one.
    pub stepped: bool,
    /// For steps that were written one after the other: the first of them, and the row where it begins.
    segments: Vec<(u64, u64)>,
}

/// As it is kept.
#[derive(Serialize, Deserialize)]
struct Text {
    shape: Vec<u64>,
    dtype: String,
    steps: u64,
    segments: Vec<(u64, u64)>,
    #[serde(default)]
    attributes: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    descr: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stepped: bool,
}

/// How steps fill rows: several to a row, or each some rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Bytes of one step.
    pub step_bytes: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Bytes from a step to the next in its row.
    pub stride: u64,
    /// Steps of a row.
    pub per_row: u64,
    /// Rows of a step; 1 where several share one.
    pub rows: u64,
}

impl Fill {
    /// How steps of so many bytes fill the rows of a store.
    pub fn of(geometry: Geometry, step_bytes: u64) -> Fill {
        let row_bytes = geometry.row_blocks() * BLOCK as u64;
        let stride = step_bytes.div_ceil(BLOCK as u64).max(1).saturating_mul(BLOCK as u64);
        Fill {
            step_bytes,
            row_bytes,
            stride,
            per_row: (row_bytes / stride).max(1),
            rows: step_bytes.div_ceil(row_bytes).max(1),
        }
    }
}

impl Meta {
    /// A dataset without steps.
    pub fn new(dataset: Dataset) -> Meta {
        Meta { dataset, steps: 0, attributes: Map::new(), descr: None, stepped: false, segments: Vec::new() }
    }

    /// The shape of all steps together: of exactly one step it is the array itself, unless it is
    /// [`stepped`](Meta::stepped); else the steps are the first dimension.
    pub fn shape(&self) -> Vec<u64> {
        crate::steps::shape_of(self.dataset.shape(), self.steps, self.stepped)
    }

    /// The shape of each step, where their sizes differ: the [dataset](Self::dataset) is that of all, one behind the
    /// other, and counts as one step.
    pub fn step_shapes(&self) -> Option<Vec<Vec<u64>>> {
        self.ragged().map(|ragged| ragged.shapes())
    }

    /// Where the steps lie that have sizes of their own.
    pub(crate) fn ragged(&self) -> Option<Steps> {
        Steps::noted(&self.attributes, self.dataset.shape()).filter(|_| !self.has_steps())
    }

    /// Whether the steps are a dimension of that.
    pub fn has_steps(&self) -> bool {
        crate::steps::are_a_dimension(self.steps, self.stepped)
    }

    /// Where a step begins: its row, and the byte in it.
    pub fn place(&self, fill: Fill, step: u64) -> (u64, u64) {
        let at = self.segments.partition_point(|&(first, _)| first <= step).saturating_sub(1);
        let (first, row) = self.segments.get(at).copied().unwrap_or((0, 0));
        let n = step.saturating_sub(first);
        (row.saturating_add((n / fill.per_row).saturating_mul(fill.rows)), n % fill.per_row * fill.stride)
    }

    /// Rows that the steps take.
    pub fn rows(&self, fill: Fill) -> u64 {
        match self.steps {
            0 => 0,
            n => self.place(fill, n - 1).0.saturating_add(fill.rows),
        }
    }

    /// Further steps follow those that are there. Gives the row in which they begin if that has others
    /// already, which may be read meanwhile: it is not to be written as a whole any more.
    pub fn append(&mut self, fill: Fill) -> Option<u64> {
        if self.segments.is_empty() {
            self.segments.push((0, 0));
        }
        let (row, at) = self.place(fill, self.steps);
        (at > 0).then_some(row)
    }

    /// As bytes, for the catalog.
    ///
    /// # Errors
    /// [`StoreError::Bad`]: longer than a catalog takes.
    pub fn to_bytes(&self, store: &str) -> Result<Vec<u8>, StoreError> {
        let text = Text {
            shape: self.dataset.shape().to_vec(),
            dtype: self.dataset.elem().to_string(),
            steps: self.steps,
            segments: self.segments.clone(),
            attributes: self.attributes.clone(),
            descr: self.descr.as_ref().map(Descr::to_string),
            stepped: self.stepped,
        };
        let bytes = serde_json::to_vec(&text).unwrap_or_default();
        match bytes.len() <= LIMIT && !bytes.is_empty() {
            true => Ok(bytes),
            false => Err(StoreError::Bad {
                store: store.to_owned(),
                what: "what is known of a dataset, its attributes included, as JSON".into(),
                found: format!("{} bytes", bytes.len()),
                expected: format!("at most {LIMIT}"),
            }),
        }
    }

    /// Out of the catalog of a store that is cut so.
    ///
    /// # Errors
    /// [`StoreError::Manifest`]: it says nothing that can be.
    pub fn parse(store: &str, name: &str, geometry: Geometry, bytes: &[u8]) -> Result<Meta, StoreError> {
        let bad = |problem: String| StoreError::Manifest {
            store: store.to_owned(),
            problem: format!("what it knows of {name:?} makes no sense: {problem}"),
        };
        if bytes.len() > LIMIT {
            return Err(bad(format!("{} bytes", bytes.len())));
        }
        let text: Text = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
        let elem: ElemType = text.dtype.parse().map_err(|e| bad(format!("{e}")))?;
        let dataset = Dataset::new(&text.shape, elem).map_err(|e| bad(e.to_string()))?;
        let descr = text.descr.map(|text| Descr::parse(&text)).transpose().map_err(|e| bad(e.to_string()))?;
        if let Some(descr) = descr.as_ref().filter(|descr| descr.elem() != Some(elem)) {
            return Err(bad(format!("{descr} for elements {elem}")));
        }
        let rises = text.segments.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1);
        let small = text.segments.len() <= MAX_SEGMENTS && text.steps < 1 << 40;
        let first = text.segments.first().is_none_or(|&first| first == (0, 0));
        let fill = Fill::of(geometry, dataset.len_bytes());
        let Text { steps, attributes, segments, stepped, .. } = text;
        let meta = Meta { dataset, steps, attributes, descr, stepped, segments };
        if !rises || !small || !first || !meta.fits(fill, geometry) {
            return Err(bad("the places of its steps".into()));
        }
        Ok(meta)
    }

    /// Whether each segment ends before the next begins, and all lie in rows that an object can have: else
    /// their blocks could not be counted.
    fn fits(&self, fill: Fill, geometry: Geometry) -> bool {
        let most = geometry.most_blocks() / geometry.row_blocks();
        let end = |step| self.place(fill, step).0.saturating_add(fill.rows);
        self.segments.windows(2).all(|w| end(w[1].0 - 1) <= w[1].1)
            && self.segments.last().is_none_or(|&(step, row)| step <= self.steps && row <= most)
            && self.rows(fill) <= most
    }
}

/// Checks a dataset's name: words with `/` between them, as of a file in folders.
///
/// # Errors
/// [`StoreError::BadName`].
pub fn check_name(store: &str, name: &str) -> Result<(), StoreError> {
    let bad = |problem| {
        let (store, name) = (store.to_owned(), name.chars().take(80).collect());
        Err(StoreError::BadName { store, name, problem })
    };
    if name.is_empty() {
        return bad("it is empty");
    }
    if name.len() > MAX_NAME {
        return bad("it is longer than 1024 bytes");
    }
    if name.chars().any(char::is_control) {
        return bad("it has control characters");
    }
    for part in name.split('/') {
        match part {
            "" => return bad("a part of it is empty"),
            "." | ".." => return bad("a part of it is . or .."),
            _ if part.len() > 255 => return bad("a part of it is longer than 255 bytes"),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry::new(2, 1, 2 * BLOCK as u64).unwrap()
    }

    fn meta(steps: u64, step_bytes: u64) -> (Meta, Fill) {
        let dataset = Dataset::new(&[step_bytes], ElemType::U8).unwrap();
        (Meta { steps, ..Meta::new(dataset) }, Fill::of(geometry(), step_bytes))
    }

    #[test]
    fn steps_share_rows_or_take_some_and_never_overlap() {
        let block = BLOCK as u64;
        for (bytes, per_row, rows) in
            [(0, 4, 1), (1, 4, 1), (block, 4, 1), (block + 1, 2, 1), (4 * block, 1, 1), (4 * block + 1, 1, 2)]
        {
            let (mut meta, fill) = meta(0, bytes);
            assert_eq!((fill.per_row, fill.rows), (per_row, rows), "{bytes}");
            let mut end = 0;
            for appended in [3, 1, 4, 2] {
                let (read_row, fresh) = (meta.append(fill), meta.rows(fill));
                for step in meta.steps..meta.steps + appended {
                    let (row, at) = meta.place(fill, step);
                    let byte = row * fill.row_bytes + at;
                    assert!(
                        byte >= end && at + bytes.min(fill.row_bytes) <= fill.row_bytes,
                        "{bytes} {step}"
                    );
                    assert!(row >= fresh || read_row == Some(row), "a row that others read");
                    end = byte + bytes;
                }
                meta.steps += appended;
            }
            // No room is left between them.
            assert_eq!((meta.rows(fill), meta.segments.len()), (10_u64.div_ceil(per_row) * rows, 1));
            let again = Meta::parse("x", "n", geometry(), &meta.to_bytes("x").unwrap()).unwrap();
            assert_eq!(again, meta);
        }
    }

    #[test]
    fn nobody_counts_how_often_it_was_appended() {
        let (mut meta, fill) = meta(0, 100);
        for step in 0..20_000 {
            meta.append(fill);
            assert_eq!(meta.place(fill, step), (step / 4, step % 4 * BLOCK as u64));
            meta.steps += 1;
        }
        assert!(meta.to_bytes("x").unwrap().len() < 200);
        // Where appending began a row each time, further steps follow the last.
        meta.segments = (0..MAX_SEGMENTS as u64).map(|n| (n, 2 * n)).collect();
        meta.steps = MAX_SEGMENTS as u64;
        for n in 1..10 {
            meta.append(fill);
            let first = 2 * (MAX_SEGMENTS as u64 - 1);
            assert_eq!(meta.place(fill, meta.steps), (first + n / 4, n % 4 * BLOCK as u64));
            meta.steps += 1;
        }
        assert_eq!(Meta::parse("x", "n", geometry(), &meta.to_bytes("x").unwrap()).unwrap(), meta);
    }

    #[test]
    fn what_numpy_takes_elements_for_is_kept() {
        let dataset = Dataset::new(&[3, 2], ElemType::Bytes(5)).unwrap();
        let plain = Meta { steps: 1, ..Meta::new(dataset) };
        let text = String::from_utf8(plain.to_bytes("x").unwrap()).unwrap();
        assert!(!text.contains("descr") && !text.contains("stepped"), "{text}");
        let descr = Descr::parse("[('a', '<f4'), ('b', '|S1')]").unwrap();
        let meta = Meta { descr: Some(descr), stepped: true, ..plain };
        assert_eq!(meta.shape(), [1, 3, 2]);
        assert_eq!(Meta::parse("x", "n", geometry(), &meta.to_bytes("x").unwrap()).unwrap(), meta);
    }

    #[test]
    fn names_that_lead_anywhere_are_refused() {
        for good in ["a", "a/b/c", "ä ö", "a.b", "..a"] {
            check_name("x", good).unwrap();
        }
        for bad in
            ["", "/", "a/", "/a", "a//b", ".", "a/../b", "a\nb", "\0", &"x".repeat(256), &"x/".repeat(600)]
        {
            assert!(matches!(check_name("x", bad), Err(StoreError::BadName { .. })), "{bad:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "",
            "{}",
            r#"{"shape":[2],"dtype":"q9","steps":1,"segments":[]}"#,
            r#"{"shape":[18446744073709551615,9],"dtype":"f64","steps":1,"segments":[]}"#,
            r#"{"shape":[2],"dtype":"bytes(2)","steps":1,"segments":[[0,0]],"descr":"'|S3'"}"#,
            r#"{"shape":[2],"dtype":"bytes(2)","steps":1,"segments":[[0,0]],"descr":"[('a', '|O')]"}"#,
            r#"{"shape":[2],"dtype":"f32","steps":1,"segments":[[0,0],[0,1]]}"#,
            r#"{"shape":[2],"dtype":"f32","steps":1,"segments":[[1,0]]}"#,
            r#"{"shape":[2],"dtype":"f32","steps":18446744073709551615,"segments":[[0,0]]}"#,
            r#"{"shape":[2],"dtype":"f32","steps":3,"segments":[[0,0],[2,1099511627775]]}"#,
            r#"{"shape":[2],"dtype":"f32","steps":3,"segments":[[0,0],[4,1]]}"#,
            r#"{"shape":[2],"dtype":"f32","steps":9,"segments":[[0,0],[5,1]]}"#,
            r#"{"shape":[1048576],"dtype":"f32","steps":1099511627775,"segments":[[0,0]]}"#,
            r#"{"shape":[1152921504606846976],"dtype":"u8","steps":1,"segments":[]}"#,
        ] {
            assert!(
                matches!(
                    Meta::parse("x", "n", geometry(), text.as_bytes()),
                    Err(StoreError::Manifest { .. })
                ),
                "{text}"
            );
        }
    }
}
