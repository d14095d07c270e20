//! Memory of a port's own, for parts that are mapped.

use crate::code::Code;
use crate::error::Failure;
use std::alloc::{alloc, dealloc, Layout};

/// What every element may lie at.
const LINE: usize = 64;
/// A large page. With small ones a copy of tens of MiB takes half as long again.
const LARGE: usize = 2 << 20;

/// Bytes that stay where they are as long as no more are asked for.
#[derive(Default)]
pub struct Memory(Option<Block>);

struct Block {
    at: *mut u8,
    layout: Layout,
}

// SAFETY: the bytes are the block's alone, whichever thread has it.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// `None` where there is no memory.
    fn new(len: usize) -> Option<Block> {
        let align = if len >= 2 * LARGE { LARGE } else { LINE };
        let room = len.max(1).checked_next_multiple_of(align)?;
        let layout = Layout::from_size_align(room, align).ok()?;
        // SAFETY: the layout has a byte at least.
        let at = unsafe { alloc(layout) };
        if at.is_null() {
            return None;
        }
        // SAFETY: the bytes were just got, and nobody else has them. Without large pages it has
        // small ones.
        unsafe {
            if align == LARGE {
                libc::madvise(at.cast(), room, libc::MADV_HUGEPAGE);
            }
            at.write_bytes(0, room);
        }
        Some(Block { at, layout })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it was got with this layout, and nobody borrows it any more.
        unsafe { dealloc(self.at, self.layout) };
    }
}

impl Memory {
    /// So many bytes, the same ones as before where there were as many.
    pub fn bytes(&mut self, len: usize) -> Result<&mut [u8], Failure> {
        if self.0.as_ref().is_none_or(|block| block.layout.size() < len) {
            // The old one goes first: both together would be more than is needed.
            self.0 = None;
            self.0 = Block::new(len);
        }
        let Some(block) = &self.0 else {
            let text = format!("there is no memory for a part of {len} bytes");
            return Err(Failure::Own(Code::NO_MEMORY, text, Vec::new()));
        };
        // SAFETY: the block has as many bytes, all of which have been written, and is borrowed as long as these.
        Ok(unsafe { std::slice::from_raw_parts_mut(block.at, len) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_where_it_is_and_grows() {
        let mut memory = Memory::default();
        let first = memory.bytes(100).unwrap().as_ptr() as usize;
        memory.bytes(100).unwrap().fill(7);
        let again = memory.bytes(50).unwrap();
        assert!(first.is_multiple_of(LINE) && again.as_ptr() as usize == first && again[49] == 7);
        let large = memory.bytes(5 << 20).unwrap();
        assert!(large.len() == 5 << 20 && (large.as_ptr() as usize).is_multiple_of(LARGE));
        assert!(large.iter().all(|&byte| byte == 0));
        assert!(memory.bytes(usize::MAX / 2).is_err() && memory.bytes(0).unwrap().is_empty());
    }
}
