//! NumPy's `.npz`: an archive of `.npy` files.
//!
//! Members that are not compressed are read where they lie, as any file is, and are written so: where each of them
//! will lie is known before a byte is, so units write their parts at once. What surrounds them is written by the
//! library when the archive is closed. It needs a checksum of each member: the bytes are read once more for that.

use super::io::Io;
use super::source::{read_header, Source};
use super::{stretch, Options};
use crate::npy::Header;
use crate::FileError;
use flate2::read::DeflateDecoder;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// How the names of members end that are arrays.
const NPY: &str = ".npy";
/// The member that holds the values of a step, as JSON.
const VALUES: &str = "polyduct.json";
/// The longest such member that is read.
const MAX_VALUES_BYTES: u64 = 16 << 20;
/// Bytes that are read at once for a checksum, or unpacked.
const PIECE: usize = 1 << 20;
/// No more than so many bytes come out of each that is compressed.
const MAX_RATIO: u64 = 1032;
/// Members of so many bytes have longer headers.
const LARGE_BYTES: u64 = u32::MAX as u64;

/// An array that an archive holds.
pub struct Member {
    pub name: String,
    /// What it holds, unless that is nothing that polyduct moves.
    pub held: Result<(Header, Source), FileError>,
}

/// The arrays of an archive, and the values that a writer said, packed.
///
/// # Errors
/// [`FileError::BadArchive`] for what is none, is encrypted or compressed in another way than NumPy does;
/// [`FileError::BadHeader`] for a member that is no `.npy` file; [`FileError::System`].
pub fn read(
    file: &Arc<File>,
    path: &str,
    len: u64,
    options: &Options,
) -> Result<(Vec<Member>, Vec<u8>), FileError> {
    let bad = bad(path);
    let mut archive = ZipArchive::new(&**file).map_err(&bad)?;
    let (mut members, mut values) = (Vec::new(), Vec::new());
    for n in 0..archive.len() {
        options.check_interrupt(path)?;
        let entry = archive.by_index_raw(n).map_err(&bad)?;
        let name = entry.name().map_err(&bad)?.into_owned();
        let array = name.strip_suffix(NPY);
        if array.is_none() && name != VALUES {
            continue;
        }
        let refuse = |problem: String| FileError::BadArchive {
            path: path.to_owned(),
            problem: format!("member {:?} {problem}", crate::json::shorten(&name)),
        };
        let at = entry.data_start().unwrap_or(u64::MAX);
        let (packed, size, checksum) = (entry.compressed_size(), entry.size(), entry.crc32());
        if entry.encrypted() {
            return Err(refuse("is encrypted".into()));
        }
        if at.checked_add(packed).is_none_or(|end| end > len) {
            return Err(refuse("ends behind the file".into()));
        }
        let file = Arc::clone(file);
        let mut inflated = match entry.compression() {
            CompressionMethod::Stored if packed == size => None,
            CompressionMethod::Deflated if size <= packed.saturating_mul(MAX_RATIO) => {
                Some(Box::new(Inflated {
                    name: name.clone(),
                    file: file.clone(),
                    at,
                    packed,
                    size,
                    checksum,
                    bytes: None,
                }))
            }
            method => {
                return Err(refuse(format!(
                    "has {size} bytes in {packed}, {method:?}; expected them stored or deflated"
                )))
            }
        };
        let Some(array) = array else {
            if size <= MAX_VALUES_BYTES {
                let text = match &mut inflated {
                    Some(member) => member.bytes(path, options)?.to_vec(),
                    None => {
                        let mut text = vec![0; size as usize];
                        Io { file: &file, path, options }.read(&mut text, at)?;
                        text
                    }
                };
                values = super::values::from_json(&String::from_utf8_lossy(&text));
            }
            continue;
        };
        let (name, shown) = (array.to_owned(), format!("{path}, {name:?}"));
        members.push(Member { name, held: held(file, inflated, (at, size), &shown, options) });
    }
    Ok((members, values))
}

/// What a `.npy` file of `size` bytes holds that begins at an offset, or is what is unpacked.
fn held(
    file: Arc<File>,
    inflated: Option<Box<Inflated>>,
    (at, size): (u64, u64),
    path: &str,
    options: &Options,
) -> Result<(Header, Source), FileError> {
    let (header, len) = match &inflated {
        Some(member) => {
            let head = |source| FileError::BadHeader { path: path.to_owned(), source };
            Header::parse(&member.first(path)?).map_err(head)?
        }
        None => read_header(&Io { file: &file, path, options }, at, size)?,
    };
    let (data_at, component) = (len as u64, header.component());
    let expected = header.data_len().saturating_add(data_at);
    if size < expected {
        return Err(FileError::Truncated { path: path.to_owned(), expected, found: size });
    }
    let source = match inflated {
        Some(member) => Source::Inflated { member, data_at, component },
        None => Source::Whole { file, data_at: at + data_at, component },
    };
    Ok((header, source))
}

fn bad(path: &str) -> impl Fn(ZipError) -> FileError + '_ {
    move |error| match error {
        ZipError::Io(e) if e.raw_os_error().is_some() => FileError::io(path, "read", &e),
        error => FileError::BadArchive { path: path.to_owned(), problem: error.to_string() },
    }
}

/// A member that is compressed: unpacked as a whole when it is first read.
pub struct Inflated {
    name: String,
    file: Arc<File>,
    at: u64,
    packed: u64,
    size: u64,
    checksum: u32,
    bytes: Option<Vec<u8>>,
}

impl Inflated {
    /// Its bytes.
    ///
    /// # Errors
    /// [`FileError::BadArchive`] for other bytes than its checksum says; [`FileError::NoMemory`].
    pub fn bytes(&mut self, path: &str, options: &Options) -> Result<&[u8], FileError> {
        let bytes = match self.bytes.take() {
            Some(bytes) => bytes,
            None => self.unpack(path, options)?,
        };
        Ok(self.bytes.insert(bytes))
    }

    /// Lets them go.
    pub fn rest(&mut self) {
        self.bytes = None;
    }

    fn unpack(&self, path: &str, options: &Options) -> Result<Vec<u8>, FileError> {
        let mut bytes = Vec::new();
        stretch::resize(&mut bytes, self.size as usize, path)?;
        let (mut from, mut checksum) = (self.decoder(), flate2::Crc::new());
        for piece in bytes.chunks_mut(PIECE) {
            options.check_interrupt(path)?;
            from.read_exact(piece).map_err(|e| self.bad(path, &e))?;
            checksum.update(piece);
        }
        match checksum.sum() == self.checksum {
            true => Ok(bytes),
            false => Err(self.bad(path, &"it is damaged: its checksum is another")),
        }
    }

    /// As many bytes of its beginning as a header may have.
    fn first(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let mut first = Vec::new();
        let limit = crate::npy::MAX_HEADER_BYTES as u64;
        self.decoder().take(limit.min(self.size)).read_to_end(&mut first).map_err(|e| self.bad(path, &e))?;
        Ok(first)
    }

    fn decoder(&self) -> DeflateDecoder<io::BufReader<At<'_>>> {
        let from = At { file: &self.file, at: self.at, end: self.at + self.packed };
        DeflateDecoder::new(io::BufReader::with_capacity(1 << 16, from))
    }

    fn bad(&self, path: &str, error: &dyn std::fmt::Display) -> FileError {
        let name = crate::json::shorten(&self.name);
        FileError::BadArchive { path: path.to_owned(), problem: format!("member {name:?}: {error}") }
    }
}

/// Some bytes of a file, one after the other.
struct At<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        let n = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// A member that is to be written: its name in the archive, where its bytes begin and how many there are.
#[derive(Clone, Debug)]
pub struct Slot {
    name: String,
    pub at: u64,
    pub len: u64,
}

impl Slot {
    /// The place of an array of so many bytes, header included, behind `end`; and where it ends itself.
    pub fn behind(end: u64, array: &str, len: u64) -> Slot {
        let name = format!("{array}{NPY}");
        let at = end.saturating_add(30 + name.len() as u64 + if len >= LARGE_BYTES { 20 } else { 0 });
        Slot { name, at, len }
    }
}

/// Writes what surrounds members whose bytes are there, and the values, if there are any.
///
/// # Errors
/// [`FileError::NoSpace`], [`FileError::System`].
pub fn finish(io: &Io<'_>, slots: &[Slot], values: &str) -> Result<(), FileError> {
    let failed = |error: ZipError| match error {
        ZipError::Io(e) => FileError::io(io.path, "write", &e),
        error => FileError::BadArchive { path: io.path.to_owned(), problem: error.to_string() },
    };
    let mut archive = ZipWriter::new(Around { file: io.file, at: 0, end: 0, slots });
    let stored = |len: u64| {
        SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(len >= LARGE_BYTES)
    };
    let mut buffer = vec![0; PIECE];
    for slot in slots {
        archive.start_file(&*slot.name, stored(slot.len)).map_err(failed)?;
        let (mut at, end) = (slot.at, slot.at + slot.len);
        while at < end {
            let piece = &mut buffer[..PIECE.min((end - at) as usize)];
            io.read(piece, at)?;
            archive.write_all(piece).map_err(|e| failed(e.into()))?;
            at += piece.len() as u64;
        }
    }
    if !values.is_empty() {
        archive.start_file(VALUES, stored(0)).map_err(failed)?;
        archive.write_all(values.as_bytes()).map_err(|e| failed(e.into()))?;
    }
    archive.finish().map(drop).map_err(failed)
}

/// The file of an archive, where the bytes of members are already.
struct Around<'a> {
    file: &'a File,
    at: u64,
    /// How far the archive goes so far.
    end: u64,
    slots: &'a [Slot],
}

impl Write for Around<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let next = self.slots.partition_point(|slot| slot.at + slot.len <= self.at);
        let n = match self.slots.get(next) {
            // In a member: it is there.
            Some(slot) if slot.at <= self.at => bytes.len().min((slot.at + slot.len - self.at) as usize),
            next => {
                let room = next.map_or(u64::MAX, |slot| slot.at - self.at);
                let n = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
                self.file.write_all_at(&bytes[..n], self.at)?;
                n
            }
        };
        self.at += n as u64;
        self.end = self.end.max(self.at);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Around<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.end.checked_add_signed(by),
        }
        .ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
