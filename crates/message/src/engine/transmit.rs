//! A frame on its way out: headers beside references to payloads, so that a driver can write both without
//! copying.

use bytes::Bytes;

/// One frame to send. Reused from call to call: it keeps its memory.
#[derive(Debug, Default)]
pub struct Transmit {
    pub(crate) bytes: Vec<u8>,
    /// Payload bytes and the position in `bytes` before which they belong, ascending.
    pub(crate) parts: Vec<(usize, Bytes)>,
    pub(crate) len: usize,
}

impl Transmit {
    /// Nothing to send yet.
    pub fn new() -> Transmit {
        Transmit::default()
    }

    /// Bytes of the frame.
    pub fn len_bytes(&self) -> usize {
        self.len
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.parts.clear();
        self.len = 0;
    }

    /// The frame in slices, for a gathering write.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        let mut parts = self.parts.iter();
        let mut payload: Option<&[u8]> = None;
        let mut over = false;
        std::iter::from_fn(move || loop {
            if let Some(p) = payload.take() {
                return Some(p);
            }
            if over {
                return None;
            }
            let head = match parts.next() {
                Some((position, part)) => {
                    let head = &self.bytes[at..*position];
                    at = *position;
                    payload = Some(part);
                    head
                }
                None => {
                    over = true;
                    &self.bytes[at..]
                }
            };
            if !head.is_empty() {
                return Some(head);
            }
        })
    }

    /// Appends the whole frame.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.len);
        for slice in self.slices() {
            out.extend_from_slice(slice);
        }
    }
}
