//! Steps that come one behind the other on an ordinary stream: `.npy` arrays, which say what they are, plain bytes, or
//! plain bytes with their length before each step.

mod header;

pub use header::Header;
use header::{HeaderError, MAGIC};
use std::io::{self, BufRead, Chain, Cursor, Read};

/// Why a stream cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum StreamError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("it ends within step {step}: {found} of {expected} bytes are there")]
    Partial { step: u64, found: u64, expected: u64 },
    #[error("the array of step {step} has another shape, type or order than the first")]
    Changed { step: u64 },
    #[error("{0} bytes of arrays without elements")]
    Endless(usize),
    #[error("step {step} has {found} bytes; the shape and the type give it {expected}")]
    Length { step: u64, found: u64, expected: u64 },
}

/// The steps of a stream. [`next_step`](Steps::next_step) goes to one, and [`fill`](Steps::fill) reads its
/// bytes.
pub struct Steps<R> {
    input: Chain<Cursor<Vec<u8>>, R>,
    /// Of each array; none where there are plain bytes.
    header: Option<Header>,
    /// Plain bytes have their length before each step.
    lengths: bool,
    len_bytes: u64,
    /// Steps that were gone to, and bytes of the last of them that were read.
    count: u64,
    read_bytes: u64,
}

impl<R: BufRead> Steps<R> {
    /// Reads what the stream begins with.
    ///
    /// # Errors
    /// [`StreamError::Read`], [`StreamError::Header`].
    pub fn begin(mut input: R) -> Result<Steps<R>, StreamError> {
        // The magic may come in pieces; what was read of it belongs to the data if it is none.
        let mut start = vec![0; MAGIC.len()];
        let len = read_fully(&mut input, &mut start)?;
        start.truncate(len);
        let header = match start == MAGIC {
            true => {
                start.clear();
                Some(Header::read(&mut input)?)
            }
            false => None,
        };
        let len_bytes = header.as_ref().map_or(0, |header| header.dataset.len_bytes());
        Ok(Steps {
            input: Cursor::new(start).chain(input),
            header,
            lengths: false,
            len_bytes,
            count: 0,
            read_bytes: 0,
        })
    }

    /// A stream of plain bytes, of which each step has its length before it: eight bytes, the lowest first.
    pub fn with_lengths(input: R) -> Steps<R> {
        let input = Cursor::new(Vec::new()).chain(input);
        Steps { input, header: None, lengths: true, len_bytes: 0, count: 0, read_bytes: 0 }
    }

    /// What the arrays say of themselves; `None` for plain bytes.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Says how many bytes a step has, where the stream does not.
    pub fn are_of(&mut self, len_bytes: u64) {
        self.len_bytes = len_bytes;
    }

    /// Goes to the next step, once all bytes of the one before were read; `false` at the end of the stream.
    ///
    /// # Errors
    /// Those of [`StreamError`].
    pub fn next_step(&mut self) -> Result<bool, StreamError> {
        let is_there = match &self.header {
            Some(_) if self.count == 0 => true,
            Some(header) => {
                let mut magic = [0; MAGIC.len()];
                match read_fully(&mut self.input, &mut magic)? {
                    0 => false,
                    len if magic.get(..len) == Some(MAGIC) && Header::read(&mut self.input)? == *header => {
                        true
                    }
                    _ => return Err(StreamError::Changed { step: self.count }),
                }
            }
            None if self.lengths => {
                let mut len = [0; 8];
                let (step, expected) = (self.count, self.len_bytes);
                match read_fully(&mut self.input, &mut len)? {
                    0 => false,
                    8 => match u64::from_le_bytes(len) {
                        found if found == expected => true,
                        found => return Err(StreamError::Length { step, found, expected }),
                    },
                    found => return Err(StreamError::Partial { step, found: found as u64, expected: 8 }),
                }
            }
            None => match (self.waiting()?, self.len_bytes) {
                (0, _) => false,
                (waiting, 0) => return Err(StreamError::Endless(waiting)),
                _ => true,
            },
        };
        self.count += u64::from(is_there);
        self.read_bytes = 0;
        Ok(is_there)
    }

    /// Bytes that can be read at once; none at the end of the stream.
    fn waiting(&mut self) -> io::Result<usize> {
        loop {
            match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map(<[u8]>::len),
            }
        }
    }

    /// Fills `bytes`, whole elements, with the next ones of the step, in the machine's byte order.
    ///
    /// # Errors
    /// [`StreamError::Partial`], [`StreamError::Read`].
    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<(), StreamError> {
        let found = read_fully(&mut self.input, bytes)?;
        self.read_bytes += found as u64;
        if found < bytes.len() {
            let (step, found, expected) = (self.count.saturating_sub(1), self.read_bytes, self.len_bytes);
            return Err(StreamError::Partial { step, found, expected });
        }
        if let Some(header) = &self.header {
            header.npy.make_native(bytes);
        }
        Ok(())
    }
}

/// Fills `part` unless the input ends before; gives the number of bytes read.
fn read_fully(input: &mut impl Read, part: &mut [u8]) -> io::Result<usize> {
    let mut found = 0;
    while found < part.len() {
        match input.read(&mut part[found..]) {
            Ok(0) => break,
            Ok(len) => found += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
