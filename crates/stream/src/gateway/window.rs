//! A frame buffer as a file that other programs map: the newest step is always there, whole.
//!
//! The file has a [head](Head) of a page and then three frames, row-major and of the machine's byte order. Frame number n
//! (from 0) lies in place n % 3. `frames` says how many there were: the newest is frame `frames` - 1. While somebody
//! looks at frame n the gateway writes n+1 and n+2; so what was read is whole if `frames` is at most n + 2 behind it,
//! and else it is read again. In /dev/shm the file is shared memory.

use super::lanes::{Lanes, Went};
use crate::execution::Send;
use crate::StreamError;
use polyduct_os::poll::PollItem;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes before the first frame.
pub const HEAD: u64 = 4096;
/// Frames that have a place.
pub const FRAMES: u64 = 3;
const MAGIC: [u8; 8] = *b"PDWINDOW";
/// Where `state`, `frames` and `step` lie.
const STATE: u64 = 12;
const COUNT: u64 = 16;

/// What the file says of its frames. Numbers go with the lowest byte first.
///
/// | at | bytes | what |
/// |---|---|---|
/// | 0 | 8 | `PDWINDOW` |
/// | 8 | 4 | the version, 1 |
/// | 12 | 4 | 1: steps come; 2: the program has ended; 3: it was lost |
/// | 16 | 8 | `frames`: how many there were |
/// | 24 | 8 | where frame 0 begins in the file |
/// | 32 | 8 | bytes of a frame |
/// | 40 | 8 | bytes from one place to the next |
/// | 48 | 8 | how many places there are: 3 |
/// | 56 | 8 | how many dimensions an array has |
/// | 64 | 64 | its sizes, the slowest dimension first; behind them 0 |
/// | 128 | 16 | its element type as NumPy writes it, `<f4`, and behind it 0 |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The shape of a frame.
    pub shape: Vec<u64>,
    /// NumPy's name of the element type.
    pub dtype: String,
    /// Bytes of a frame.
    pub frame: u64,
}

impl Head {
    fn stride(&self) -> u64 {
        self.frame.next_multiple_of(HEAD)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEAD as usize];
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        put(0, &MAGIC);
        put(8, &1u32.to_le_bytes());
        put(STATE as usize, &1u32.to_le_bytes());
        put(24, &HEAD.to_le_bytes());
        put(32, &self.frame.to_le_bytes());
        put(40, &self.stride().to_le_bytes());
        put(48, &FRAMES.to_le_bytes());
        put(56, &(self.shape.len() as u64).to_le_bytes());
        for (at, size) in self.shape.iter().take(8).enumerate() {
            put(64 + 8 * at, &size.to_le_bytes());
        }
        let dtype = self.dtype.as_bytes();
        put(128, &dtype[..dtype.len().min(16)]);
        bytes
    }
}

/// The file as the one lane of a stream.
#[derive(Debug)]
pub struct Window {
    path: PathBuf,
    file: File,
    head: Head,
    frames: u64,
}

/// Whether a window can be made there, before it is known of what.
///
/// # Errors
/// [`StreamError::Listen`] where its folder is none, or it is a folder itself.
pub fn check(path: &Path) -> Result<(), StreamError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let source = match fs::metadata(folder) {
        Ok(_) if path.is_dir() || path.as_os_str().as_bytes().ends_with(b"/") => {
            io::ErrorKind::IsADirectory.into()
        }
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => io::ErrorKind::NotADirectory.into(),
        Err(error) => error,
    };
    Err(StreamError::Listen { place: format!("window:{}", path.display()), source })
}

impl Window {
    /// Makes the file, in place of one that is there; who has that one mapped keeps it.
    ///
    /// # Errors
    /// [`StreamError::Listen`] with what the system says.
    pub fn create(path: &Path, head: Head) -> Result<Window, StreamError> {
        let make = || -> io::Result<File> {
            // Nobody sees a file without a head.
            let mut passing = path.as_os_str().to_owned();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            passing.push(format!(".{:x}", now.as_nanos()));
            let passing = PathBuf::from(passing);
            // Whatever has that name already, a link too, is left alone.
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&passing)?;
            let made = file
                .set_len(HEAD + FRAMES * head.stride())
                .and_then(|()| file.write_all_at(&head.encode(), 0))
                .and_then(|()| fs::rename(&passing, path));
            if made.is_err() {
                let _ = fs::remove_file(&passing);
            }
            made.map(|()| file)
        };
        let listen = |source| StreamError::Listen { place: format!("window:{}", path.display()), source };
        let file = make().map_err(listen)?;
        Ok(Window { path: path.to_owned(), file, head, frames: 0 })
    }

    fn broken(&self, source: io::Error) -> StreamError {
        StreamError::Broken { place: format!("window:{}", self.path.display()), step: self.frames, source }
    }

    fn say(&self, state: u32) -> io::Result<()> {
        self.file.write_all_at(&state.to_le_bytes(), STATE)
    }
}

impl Lanes for Window {
    fn count(&self) -> u32 {
        1
    }

    fn go_on(&mut self, _: u32, send: &Send, _: &[u8], data: &[u8]) -> Result<Went, StreamError> {
        let place = HEAD + self.frames % FRAMES * self.head.stride();
        self.file.write_all_at(data, place + send.at.start).map_err(|e| self.broken(e))?;
        if send.at.end == send.adu_len {
            // The system copies eight bytes that lie so at once.
            self.frames += 1;
            self.file.write_all_at(&self.frames.to_le_bytes(), COUNT).map_err(|e| self.broken(e))?;
        }
        Ok(Went::Arrived)
    }

    fn items<'a>(&'a self, _: &dyn Fn(u32) -> bool, _: &mut Vec<PollItem<'a>>) {}

    fn finish(&mut self, _: u64, _: &dyn Fn() -> bool) -> Result<(), StreamError> {
        self.say(2).map_err(|e| self.broken(e))
    }

    fn abort(&mut self, _: &str) {
        // Who looks sees at least that no more comes.
        let _ = self.say(3);
    }
}
