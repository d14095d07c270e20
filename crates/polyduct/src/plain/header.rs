//! The header of an `.npy` stream, which tells shape and element type of plain bytes that begin with it.

use polyduct_layout::{Dataset, LayoutError};
use polyduct_store::npy::{self, NpyError};
use std::io::{self, Read};

/// First bytes of every `.npy` file.
pub const MAGIC: &[u8] = b"\x93NUMPY";

/// What a header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Shape and element type.
    pub dataset: Dataset,
    /// All of it.
    pub npy: npy::Header,
}

/// Why a header cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum HeaderError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error(".npy header: {0}")]
    Npy(#[from] NpyError),
    #[error(".npy header: {0}")]
    Dataset(#[from] LayoutError),
}

impl Header {
    /// Reads what follows the magic.
    pub fn read(input: &mut impl Read) -> Result<Header, HeaderError> {
        let mut bytes = MAGIC.to_vec();
        let mut more = |bytes: &mut Vec<u8>, to: usize| -> Result<(), HeaderError> {
            let missing = to.saturating_sub(bytes.len());
            input.take(missing as u64).read_to_end(bytes)?;
            match bytes.len() < to {
                true => Err(NpyError::Short { expected: to, found: bytes.len() }.into()),
                false => Ok(()),
            }
        };
        // A stream cannot be read ahead: the version says how long the length is, the length where the data
        // begin.
        more(&mut bytes, 10)?;
        if bytes[6] > 1 {
            more(&mut bytes, 12)?;
        }
        let (_, data) = npy::extent(&bytes)?;
        more(&mut bytes, data)?;
        let (npy, _) = npy::Header::parse(&bytes)?;
        Ok(Header { dataset: Dataset::new(&npy.shape, npy.elem)?, npy })
    }

    /// The layout of one unit that holds an array as it comes.
    pub fn layout(&self) -> String {
        let stars = vec!["*"; self.dataset.shape().len().max(1)].join(",");
        stars + if self.npy.fortran { ";order=F" } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_layout::ElemType;

    fn header(text: &str) -> Result<Header, HeaderError> {
        let mut bytes = vec![1, 0];
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        Header::read(&mut bytes.as_slice())
    }

    #[test]
    fn numpys_headers() {
        let h = header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }    \n").unwrap();
        assert_eq!((h.dataset.shape(), h.dataset.elem(), h.npy.fortran), (&[3, 4][..], ElemType::F32, false));
        let h = header("{'descr': '|u1', 'fortran_order': True, 'shape': (7,), }").unwrap();
        assert_eq!((h.dataset.shape(), h.dataset.elem(), h.npy.fortran), (&[7][..], ElemType::U8, true));
    }

    #[test]
    fn others_are_refused_and_nothing_is_read_past_the_header() {
        assert!(matches!(header("{}"), Err(HeaderError::Npy(_))));
        assert!(matches!(
            Header::read(&mut &[9, 0, 0, 0, 0, 0][..]),
            Err(HeaderError::Npy(NpyError::Version { .. }))
        ));
        assert!(matches!(
            Header::read(&mut &[2, 0, 255, 255, 255, 255][..]),
            Err(HeaderError::Npy(NpyError::TooLong { .. }))
        ));
        assert!(matches!(
            Header::read(&mut &[1, 0, 9, 0, 1][..]),
            Err(HeaderError::Npy(NpyError::Short { expected: 19, found: 11 }))
        ));
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
        let mut bytes = vec![1, 0, text.len() as u8, 0];
        bytes.extend(text.bytes().chain(*b"data"));
        let mut input = &bytes[..];
        Header::read(&mut input).unwrap();
        assert_eq!(input, b"data");
    }
}
