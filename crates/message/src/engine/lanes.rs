//! The lanes of a session, by their index. Any channel may be the first, the last of all too: lanes are made
//! in blocks, where they are used.

use std::ops::{Index, IndexMut};

/// Lanes of a block: those of four channels.
const BLOCK: usize = 16;

/// One lane for each index below 2¹⁶, in time that does not depend on how many there are.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    blocks: Vec<Option<Box<[T; BLOCK]>>>,
}

impl<T: Default> Lanes<T> {
    pub fn new() -> Lanes<T> {
        Lanes { blocks: Vec::new() }
    }

    /// A lane, if it or one beside it was [made](Lanes::make) before.
    pub fn get(&self, index: usize) -> Option<&T> {
        Some(&self.blocks.get(index / BLOCK)?.as_ref()?[index % BLOCK])
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        Some(&mut self.blocks.get_mut(index / BLOCK)?.as_mut()?[index % BLOCK])
    }

    /// A lane, made now if there is none.
    pub fn make(&mut self, index: usize) -> &mut T {
        let block = index / BLOCK;
        if self.blocks.len() <= block {
            self.blocks.resize_with(block + 1, || None);
        }
        &mut self.blocks[block].get_or_insert_with(Default::default)[index % BLOCK]
    }

    /// All lanes that were made, in order.
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

impl<T: Default> Index<usize> for Lanes<T> {
    type Output = T;

    /// A lane that was made before.
    #[inline]
    fn index(&self, index: usize) -> &T {
        self.get(index).expect("the lane was made")
    }
}

impl<T: Default> IndexMut<usize> for Lanes<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        self.get_mut(index).expect("the lane was made")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_used_is_there() {
        let mut lanes = Lanes::<u32>::new();
        assert!(lanes.get(0).is_none() && lanes.get_mut(65_535).is_none());
        *lanes.make(65_535) = 7;
        *lanes.make(17) = 3;
        *lanes.make(17) += 1;
        assert_eq!((lanes[65_535], lanes.get(17), lanes.get(0)), (7, Some(&4), None));
        assert_eq!(lanes.iter().sum::<u32>(), 11);
        let used: Vec<_> = lanes.iter_mut().filter(|(_, lane)| **lane != 0).map(|(at, _)| at).collect();
        assert_eq!(used, [17, 65_535]);
        assert_eq!(lanes.indices(), (16..32).chain(65_520..65_536).collect::<Vec<_>>());
        lanes.clear();
        assert!(lanes.get(17).is_none() && lanes.indices().is_empty());
    }
}
