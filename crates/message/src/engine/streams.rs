//! The streams of a session, by their index. Any channel may be the first, the last of all too: streams are
//! made in blocks, where they are used.

use std::ops::{Index, IndexMut};

/// Streams of a block: those of four channels.
const BLOCK: usize = 16;

/// One stream for each index below 2¹⁶, in time that does not depend on how many there are.
#[derive(Debug)]
pub(crate) struct Streams<T> {
    blocks: Vec<Option<Box<[T; BLOCK]>>>,
}

impl<T: Default> Streams<T> {
    pub fn new() -> Streams<T> {
        Streams { blocks: Vec::new() }
    }

    /// A stream, if it or one beside it was [made](Streams::make) before.
    pub fn get(&self, index: usize) -> Option<&T> {
        Some(&self.blocks.get(index / BLOCK)?.as_ref()?[index % BLOCK])
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        Some(&mut self.blocks.get_mut(index / BLOCK)?.as_mut()?[index % BLOCK])
    }

    /// A stream, made now if there is none.
    pub fn make(&mut self, index: usize) -> &mut T {
        let block = index / BLOCK;
        if self.blocks.len() <= block {
            self.blocks.resize_with(block + 1, || None);
        }
        &mut self.blocks[block].get_or_insert_with(Default::default)[index % BLOCK]
    }

    /// All streams that were made, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flatten().flat_map(|block| block.iter())
    }

    /// The same with their indices, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        let made = self.blocks.iter_mut().enumerate().filter_map(|(at, block)| Some((at, block.as_mut()?)));
        made.flat_map(|(at, block)| (at * BLOCK..).zip(block.iter_mut()))
    }

    /// Their indices.
    pub fn indices(&self) -> Vec<usize> {
        let made = self.blocks.iter().enumerate().filter(|(_, block)| block.is_some());
        made.flat_map(|(at, _)| at * BLOCK..(at + 1) * BLOCK).collect()
    }

    pub fn clear(&mut self) {
        self.blocks.clear();
    }
}

impl<T: Default> Index<usize> for Streams<T> {
    type Output = T;

    /// A stream that was made before.
    #[inline]
    fn index(&self, index: usize) -> &T {
        self.get(index).expect("the stream was made")
    }
}

impl<T: Default> IndexMut<usize> for Streams<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        self.get_mut(index).expect("the stream was made")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_used_is_there() {
        let mut streams = Streams::<u32>::new();
        assert!(streams.get(0).is_none() && streams.get_mut(65_535).is_none());
        *streams.make(65_535) = 7;
        *streams.make(17) = 3;
        *streams.make(17) += 1;
        assert_eq!((streams[65_535], streams.get(17), streams.get(0)), (7, Some(&4), None));
        assert_eq!(streams.iter().sum::<u32>(), 11);
        let used: Vec<_> = streams.iter_mut().filter(|(_, stream)| **stream != 0).map(|(at, _)| at).collect();
        assert_eq!(used, [17, 65_535]);
        assert_eq!(streams.indices(), (16..32).chain(65_520..65_536).collect::<Vec<_>>());
        streams.clear();
        assert!(streams.get(17).is_none() && streams.indices().is_empty());
    }
}
