//! The header of an `.npy` stream, which tells shape and element type of plain bytes that begin with it.

use crate::layout::{Dataset, LayoutError};
use std::io::{self, Read};

/// First bytes of every `.npy` file.
pub const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header that is read. NumPy's own are below 200 bytes.
const MAX_LEN: usize = 64 << 10;

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub dataset: Dataset,
    /// Column-major: the first index runs fastest.
    pub fortran: bool,
}

/// Why a header cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum HeaderError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error("version {0} of the .npy format is not known")]
    Version(u8),
    #[error("the .npy header has {0} bytes; the limit is {MAX_LEN}")]
    TooLong(usize),
    #[error("the .npy header has no {0}")]
    Lacks(&'static str),
    #[error("the .npy header: {0}")]
    Dataset(#[from] LayoutError),
}

impl Header {
    /// Reads what follows the magic.
    pub fn read(input: &mut impl Read) -> Result<Header, HeaderError> {
        let mut version = [0; 2];
        input.read_exact(&mut version)?;
        let mut len = [0; 4];
        match version[0] {
            1 => input.read_exact(&mut len[..2])?,
            2 | 3 => input.read_exact(&mut len)?,
            other => return Err(HeaderError::Version(other)),
        }
        let len = u32::from_le_bytes(len) as usize;
        if len > MAX_LEN {
            return Err(HeaderError::TooLong(len));
        }
        let mut text = vec![0; len];
        input.read_exact(&mut text)?;
        Header::parse(&String::from_utf8_lossy(&text))
    }

    /// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`
    fn parse(text: &str) -> Result<Header, HeaderError> {
        let value = |key: &'static str| {
            let at = text.find(&format!("'{key}'")).map(|at| at + key.len() + 2);
            let rest = at.and_then(|at| text[at..].trim_start().strip_prefix(':'));
            rest.map(str::trim_start).ok_or(HeaderError::Lacks(key))
        };
        let descr = value("descr")?.strip_prefix('\'').and_then(|r| r.split_once('\''));
        let (descr, _) = descr.ok_or(HeaderError::Lacks("simple descr"))?;
        let fortran = match value("fortran_order")? {
            order if order.starts_with("False") => false,
            order if order.starts_with("True") => true,
            _ => return Err(HeaderError::Lacks("fortran_order")),
        };
        let shape = value("shape")?.strip_prefix('(').and_then(|r| r.split_once(')'));
        let (shape, _) = shape.ok_or(HeaderError::Lacks("shape"))?;
        let sizes = shape.split(',').map(str::trim).filter(|s| !s.is_empty());
        let sizes: Result<Vec<u64>, _> =
            sizes.map(|s| s.parse().map_err(|_| HeaderError::Lacks("shape"))).collect();
        Ok(Header { dataset: Dataset::new(&sizes?, descr.parse()?)?, fortran })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::ElemType;

    fn header(text: &str) -> Result<Header, HeaderError> {
        let mut bytes = vec![1, 0];
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        Header::read(&mut bytes.as_slice())
    }

    #[test]
    fn numpys_headers() {
        let h = header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }    \n").unwrap();
        assert_eq!((h.dataset.shape(), h.dataset.elem(), h.fortran), (&[3, 4][..], ElemType::F32, false));
        let h = header("{'descr': '|u1', 'fortran_order': True, 'shape': (7,), }").unwrap();
        assert_eq!((h.dataset.shape(), h.dataset.elem(), h.fortran), (&[7][..], ElemType::U8, true));
    }

    #[test]
    fn others_are_refused() {
        for text in ["", "{}", "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}"] {
            assert!(matches!(header(text), Err(HeaderError::Lacks(_))), "{text}");
        }
        for (descr, shape) in
            [("<f4", "3x"), ("<f4", "-3"), (">f4", "3"), ("<q9", "3"), ("<f4", "99999999999,99999999999")]
        {
            let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
            assert!(header(&text).is_err(), "{text}");
        }
        assert!(matches!(Header::read(&mut &[9, 0, 0, 0][..]), Err(HeaderError::Version(9))));
        assert!(matches!(Header::read(&mut &[2, 0, 255, 255, 255, 255][..]), Err(HeaderError::TooLong(_))));
        assert!(matches!(Header::read(&mut &[1, 0, 9, 0, 1][..]), Err(HeaderError::Read(_))));
    }
}
