//! Maps ownership of elements to rows and columns of cells, coarser than the array where the array is large.

use crate::layout::{LayoutError, Mapping};

/// A two-dimensional view of a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raster {
    pub rows: usize,
    pub cols: usize,
    /// First index of each row of cells, and one past the last.
    pub row_edges: Vec<u64>,
    /// First index of each column of cells, and one past the last.
    pub col_edges: Vec<u64>,
    /// Row after row.
    pub cells: Vec<Cell>,
    /// Only the array's first elements are drawn: what they show repeats.
    pub zoomed: bool,
}

/// One cell: an element, or a block of neighbours when the array is drawn smaller than it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The units that own its middle element, rising. Several for replicas and overlaps, none for a hole.
    pub owners: Vec<u64>,
    /// Other units own other elements of the cell.
    pub mixed: bool,
}

/// One plane of an array: where it lies, and the picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The indices that are held fixed, for the dimensions before the last two.
    pub fixed: Vec<u64>,
    pub raster: Raster,
}

/// Most slices that are drawn of an array with more than two dimensions.
const MAX_SLICES: u64 = 4;

/// The slices of a mapping, each of at most `max_rows` × `max_cols` cells. One for arrays of up to two
/// dimensions.
pub fn slices(mapping: &Mapping, max_rows: usize, max_cols: usize) -> Result<Vec<Slice>, LayoutError> {
    let shape = mapping.dataset().shape();
    let leading = shape.len().saturating_sub(2);
    if shape.len() <= 2 {
        let raster = Raster::of(mapping, &[], max_rows, max_cols)?;
        return Ok(vec![Slice { fixed: Vec::new(), raster }]);
    }
    let depth = shape[leading - 1];
    let count = depth.min(MAX_SLICES);
    (0..count)
        .map(|i| {
            let mut fixed = vec![0; leading];
            // The middles of `count` equal parts.
            fixed[leading - 1] = (u128::from(2 * i + 1) * u128::from(depth) / u128::from(2 * count)) as u64;
            let raster = Raster::of(mapping, &fixed, max_rows, max_cols)?;
            Ok(Slice { fixed, raster })
        })
        .collect()
}

/// Places looked at in a cell, in each direction. Spread by the golden ratio, they fall in step with no
/// period.
const PROBES: u64 = 8;

impl Raster {
    /// The whole plane or, in a direction where most cells would be mixed, as much of its beginning as shows
    /// the pattern.
    fn of(mapping: &Mapping, fixed: &[u64], max_rows: usize, max_cols: usize) -> Result<Raster, LayoutError> {
        let shape = mapping.dataset().shape();
        let mut len = match shape[fixed.len()..] {
            [] => [1, 1],
            [n] => [1, n],
            [m, n, ..] => [m, n],
        };
        let max = [max_rows, max_cols];
        let draw = |len: [u64; 2]| Raster::draw(mapping, fixed, edges(len[0], max[0]), edges(len[1], max[1]));
        let (whole, mut mixed) = draw(len)?;
        let mut zoomed: Option<Raster> = None;
        let mut zooms = [false; 2];
        loop {
            // Once it is not the whole, it may as well be clear.
            let most = whole.cells.len() / if zooms == [false, false] { 2 } else { 4 };
            let too_fine = |k: usize| mixed[k] > most && len[k] > max[k] as u64;
            let shrink = [too_fine(0), too_fine(1)];
            if shrink == [false, false] {
                break;
            }
            for k in 0..2 {
                if shrink[k] {
                    len[k] = (len[k] / 2).max(max[k] as u64);
                    zooms[k] = true;
                }
            }
            let (raster, now_mixed) = draw(len)?;
            mixed = now_mixed;
            zoomed = Some(Raster { zoomed: true, ..raster });
        }
        // The beginning of one long piece shows less than the whole, however coarse.
        Ok(match zoomed {
            Some(raster)
                if (!zooms[0] || raster.changes(raster.rows, raster.cols) > 1)
                    && (!zooms[1] || raster.changes(raster.cols, 1) > 1) =>
            {
                raster
            }
            _ => whole,
        })
    }

    /// How often the owners change along the first column or row: `count` cells, `stride` apart.
    fn changes(&self, count: usize, stride: usize) -> usize {
        (1..count).filter(|i| self.cells[i * stride].owners != self.cells[(i - 1) * stride].owners).count()
    }

    /// The picture with these edges; and how many cells are mixed vertically, and horizontally.
    fn draw(
        mapping: &Mapping,
        fixed: &[u64],
        row_edges: Vec<u64>,
        col_edges: Vec<u64>,
    ) -> Result<(Raster, [usize; 2]), LayoutError> {
        let dims = mapping.dataset().shape().len() - fixed.len();
        let owners = |row: u64, col: u64| -> Result<Vec<u64>, LayoutError> {
            let mut index = fixed.to_vec();
            match dims {
                0 => {}
                1 => index.push(col),
                _ => index.extend([row, col]),
            }
            let places = mapping.locate(&index)?;
            let mut owners: Vec<u64> = places.iter().filter(|p| !p.halo).map(|p| p.unit).collect();
            owners.dedup();
            Ok(owners)
        };
        let probe = |lo: u64, hi: u64, i: u64| {
            let share = (i as f64 * 0.618_033_988_75).fract();
            lo + (((hi - lo) as f64 * share) as u64).min(hi - lo - 1)
        };
        let mut cells = Vec::new();
        let mut mixed = [0; 2];
        for rows in row_edges.windows(2) {
            for cols in col_edges.windows(2) {
                let (row, col) = (rows[0] + (rows[1] - rows[0]) / 2, cols[0] + (cols[1] - cols[0]) / 2);
                let middle = owners(row, col)?;
                let mut differs = [false; 2];
                for i in 0..PROBES {
                    if rows[1] - rows[0] > 1 && !differs[0] {
                        differs[0] = owners(probe(rows[0], rows[1], i), col)? != middle;
                    }
                    if cols[1] - cols[0] > 1 && !differs[1] {
                        differs[1] = owners(row, probe(cols[0], cols[1], i))? != middle;
                    }
                }
                mixed[0] += usize::from(differs[0]);
                mixed[1] += usize::from(differs[1]);
                cells.push(Cell { owners: middle, mixed: differs[0] || differs[1] });
            }
        }
        let (rows, cols) = (row_edges.len() - 1, col_edges.len() - 1);
        Ok((Raster { rows, cols, row_edges, col_edges, cells, zoomed: false }, mixed))
    }

    pub fn cell(&self, row: usize, col: usize) -> &Cell {
        &self.cells[row * self.cols + col]
    }

    /// True if a cell stands for one element.
    pub fn is_exact(&self) -> bool {
        let fine = |edges: &[u64]| edges.windows(2).all(|w| w[1] - w[0] == 1);
        fine(&self.row_edges) && fine(&self.col_edges)
    }

    pub fn any_mixed(&self) -> bool {
        self.cells.iter().any(|c| c.mixed)
    }

    /// For each connected region of equal cells, the cell nearest to its middle: where a label goes.
    pub fn label_cells(&self) -> Vec<bool> {
        let mut seen = vec![false; self.cells.len()];
        let mut labels = vec![false; self.cells.len()];
        for start in 0..self.cells.len() {
            if seen[start] {
                continue;
            }
            let mut region = vec![start];
            seen[start] = true;
            let mut next = 0;
            while let Some(&at) = region.get(next) {
                next += 1;
                for neighbour in self.neighbours(at) {
                    if !seen[neighbour] && self.cells[neighbour].owners == self.cells[start].owners {
                        seen[neighbour] = true;
                        region.push(neighbour);
                    }
                }
            }
            let middle = |pick: fn(usize, usize) -> usize| {
                region.iter().map(|&i| pick(i, self.cols)).sum::<usize>() / region.len()
            };
            let (row, col) = (middle(|i, cols| i / cols), middle(|i, cols| i % cols));
            let distance = |&i: &usize| (i / self.cols).abs_diff(row) * 3 + (i % self.cols).abs_diff(col);
            if let Some(best) = region.into_iter().min_by_key(distance) {
                labels[best] = true;
            }
        }
        labels
    }

    fn neighbours(&self, at: usize) -> impl Iterator<Item = usize> {
        let (row, col, rows, cols) = (at / self.cols, at % self.cols, self.rows, self.cols);
        let up = (row > 0).then(|| at - cols);
        let down = (row + 1 < rows).then_some(at + cols);
        let left = (col > 0).then(|| at - 1);
        let right = (col + 1 < cols).then_some(at + 1);
        [up, down, left, right].into_iter().flatten()
    }
}

/// Cuts `len` indices into at most `max` cells that differ by one index at most.
fn edges(len: u64, max: usize) -> Vec<u64> {
    let cells = len.min(max as u64);
    (0..=cells).map(|i| (u128::from(len) * u128::from(i) / u128::from(cells.max(1))) as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Dataset, ElemType, Layout};

    fn mapping(text: &str, shape: &[u64], units: u64) -> Mapping {
        let data = Dataset::new(shape, ElemType::F32).unwrap();
        text.parse::<Layout>().unwrap().bind(&data, units).unwrap()
    }

    fn picture(text: &str, shape: &[u64], units: u64, max: usize) -> Vec<String> {
        let slice = slices(&mapping(text, shape, units), max, max).unwrap().remove(0);
        let cell = |c: &Cell| c.owners.iter().map(u64::to_string).collect::<String>();
        slice.raster.cells.chunks(slice.raster.cols).map(|row| row.iter().map(cell).collect()).collect()
    }

    #[test]
    fn small_arrays_are_drawn_element_by_element() {
        assert_eq!(picture("block,*", &[4, 3], 2, 9), ["000", "000", "111", "111"]);
        assert_eq!(picture("cyclic", &[5], 2, 9), ["01010"]);
        assert_eq!(picture("block[1],*@2x2", &[2, 1], 4, 9), ["02", "13"]);
        assert_eq!(picture("block,*;halo=1,0", &[4, 1], 2, 9), ["0", "0", "1", "1"], "a halo owns nothing");
    }

    #[test]
    fn large_arrays_are_drawn_coarse() {
        let map = mapping("block,block@2x2", &[1 << 40, 1 << 20], 4);
        let raster = slices(&map, 4, 4).unwrap().remove(0).raster;
        assert_eq!((raster.rows, raster.cols, raster.is_exact(), raster.any_mixed()), (4, 4, false, false));
        assert_eq!(picture("block,block@2x2", &[1 << 40, 1 << 20], 4, 2), ["01", "23"]);
        assert!(slices(&mapping("balanced,*", &[100, 1], 3), 10, 10).unwrap()[0].raster.any_mixed());
    }

    #[test]
    fn fine_patterns_are_drawn_from_their_beginning() {
        let raster = slices(&mapping("cyclic(2),block", &[1000, 1000], 4), 10, 10).unwrap().remove(0).raster;
        assert!(raster.zoomed && !raster.any_mixed());
        assert_eq!(raster.col_edges[10], 1000);
        assert!(raster.row_edges[10] < 20, "{:?}", raster.row_edges);
        let raster = slices(&mapping("cyclic(64),*", &[1 << 20, 4], 2), 24, 24).unwrap().remove(0).raster;
        let shown = raster.row_edges[24];
        assert!((256..2048).contains(&shown), "a few blocks: {shown} rows");
        let raster = slices(&mapping("block", &[1000], 40), 10, 10).unwrap().remove(0).raster;
        assert!(raster.zoomed && raster.changes(10, 1) > 1, "many pieces, but none of them short");
    }

    #[test]
    fn empty_arrays_have_no_cells() {
        let raster = slices(&mapping("block,*", &[0, 5], 2), 9, 9).unwrap().remove(0).raster;
        assert_eq!((raster.rows, raster.cells.len()), (0, 0));
        assert!(slices(&mapping("block,*,*", &[0, 5, 5], 2), 9, 9).unwrap().is_empty());
    }

    #[test]
    fn deep_arrays_are_drawn_in_slices() {
        let slices = slices(&mapping("block,*,*", &[8, 2, 2], 4), 9, 9).unwrap();
        let fixed: Vec<_> = slices.iter().map(|s| s.fixed[0]).collect();
        assert_eq!(fixed, [1, 3, 5, 7]);
        assert_eq!(slices[2].raster.cell(0, 0).owners, [2]);
    }

    #[test]
    fn each_region_has_one_label() {
        let raster = slices(&mapping("block,block@2x2", &[6, 6], 4), 9, 9).unwrap().remove(0).raster;
        let labels = raster.label_cells();
        let at: Vec<usize> = (0..36).filter(|&i| labels[i]).collect();
        assert_eq!(at, [7, 10, 25, 28]);
    }
}
