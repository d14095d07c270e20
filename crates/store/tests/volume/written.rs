//! Rows written as programs write them: encoded apart from the volume, given to the units, and made durable
//! by a commit.

use polyduct_store::volume::rows::{Bytes, BytesMut, Part, Rows};
use polyduct_store::volume::sums::stride;
use polyduct_store::volume::units::{Cause, Done, File, Request, Units};
use polyduct_store::volume::{Volume, VolumeError, BLOCK};

/// What each unit has of a row, with parity behind the data: its chunk, and the entries of it.
type Parts = Vec<(Vec<u8>, Vec<u8>)>;

/// What programs do with rows of objects that nobody changes.
pub trait WholeRows {
    /// Writes a row of an object that nobody reads yet; what is missing of it is zeros. The next commit makes
    /// it durable.
    fn write_row(&mut self, object: u64, row: u64, data: &[u8]) -> Result<(), VolumeError>;

    /// Reads a row. Gives its blocks in order, and none for those that have to be read by the volume.
    fn read_row(&mut self, object: u64, row: u64) -> Vec<Option<Box<[u8; BLOCK]>>>;
}

impl<U: Units> WholeRows for Volume<U> {
    fn write_row(&mut self, object: u64, row: u64, data: &[u8]) -> Result<(), VolumeError> {
        let g = self.geometry();
        let mut rows = self.rows(object);
        let mut parts: Parts =
            vec![(vec![0; rows.chunk_bytes()], vec![0; rows.sum_bytes()]); g.units() as usize];
        let mut places: Vec<_> = parts.iter_mut().map(|(c, s)| (&mut c[..], &mut s[..])).collect();
        rows.encode(row, Bytes::Own(data), &mut places);
        let first = row * u64::from(g.chunk_blocks());
        let mut batch = Vec::new();
        for (chunk, (blocks, sums)) in (0..).zip(parts) {
            let unit = g.unit(row, chunk);
            if !is_used(self, unit) {
                continue;
            }
            for (file, each, bytes) in
                [(File::Data(object), BLOCK, blocks), (File::Sums(object), stride(g), sums)]
            {
                batch.push(Request::Write { unit, file, at: first * each as u64, bytes });
            }
        }
        // Both files of a unit may fail, and with the first it joins no more.
        let joining: Vec<u32> = (0..g.units()).filter(|&unit| self.is_joining(unit)).collect();
        let mut full = None;
        for error in self.units_mut().run(batch).into_iter().filter_map(Result::err) {
            match error.cause {
                Cause::Full if !joining.contains(&error.unit) => full = full.or(Some(error)),
                Cause::Caller(_) => return Err(VolumeError::Refused(error)),
                Cause::Full | Cause::Disk => self.report(error),
            }
        }
        self.settle(object);
        full.map_or(Ok(()), |error| Err(VolumeError::Full(error)))
    }

    fn read_row(&mut self, object: u64, row: u64) -> Vec<Option<Box<[u8; BLOCK]>>> {
        let g = self.geometry();
        let mut rows = self.rows(object);
        let parts: Vec<_> = (0..g.units()).map(|chunk| read_part(self, &rows, object, row, chunk)).collect();
        let parts: Vec<_> =
            parts.iter().map(|part| part.as_ref().map(|(chunk, sums)| Part { chunk, sums })).collect();
        let mut bytes = vec![0; g.row_blocks() as usize * BLOCK];
        let bad = rows.decode(row, &parts, BytesMut::Own(&mut bytes));
        let (blocks, _) = bytes.as_chunks::<BLOCK>();
        let is_good = |n: u32| !bad.contains(&(n % g.chunk_blocks()));
        (0..).zip(blocks).map(|(n, block)| is_good(n).then(|| Box::new(*block))).collect()
    }
}

/// Whether a unit is written to.
fn is_used<U: Units>(v: &Volume<U>, unit: u32) -> bool {
    v.is_joining(unit) || !v.lost().any(|(lost, _)| lost == unit)
}

/// What a unit that is read has of a row: zeros behind the end of its files.
fn read_part<U: Units>(
    v: &mut Volume<U>,
    rows: &Rows,
    object: u64,
    row: u64,
    chunk: u32,
) -> Option<(Vec<u8>, Vec<u8>)> {
    let g = v.geometry();
    let unit = g.unit(row, chunk);
    if v.lost().any(|(lost, _)| lost == unit) {
        return None;
    }
    let first = row * u64::from(g.chunk_blocks());
    let read = |file, each: usize, len| Request::Read { unit, file, at: first * each as u64, len };
    let sizes = [rows.chunk_bytes(), rows.sum_bytes()];
    let batch =
        vec![read(File::Data(object), BLOCK, sizes[0]), read(File::Sums(object), stride(g), sizes[1])];
    let mut read = v.units_mut().run(batch).into_iter().zip(sizes).map(|(came, len)| match came {
        Ok(Done::Bytes(mut bytes)) => {
            bytes.resize(len, 0);
            Some(bytes)
        }
        _ => None,
    });
    Some((read.next()??, read.next()??))
}
