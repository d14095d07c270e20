//! A list of which elements are taken out anywhere, and which keeps the order of the rest.

/// No element.
const NONE: u32 = u32::MAX;

struct Node<T> {
    /// `None` in a node that is free.
    value: Option<T>,
    before: u32,
    after: u32,
}

/// A list in one piece of memory, which stays for what comes later.
pub struct List<T> {
    nodes: Vec<Node<T>>,
    first: u32,
    last: u32,
    free: u32,
    len: usize,
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List { nodes: Vec::new(), first: NONE, last: NONE, free: NONE, len: 0 }
    }
}

impl<T> List<T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Adds one behind all others.
    #[inline]
    pub fn push(&mut self, value: T) {
        let node = Node { value: Some(value), before: self.last, after: NONE };
        let at = match self.free {
            NONE => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
            free => {
                self.free = self.nodes[free as usize].after;
                self.nodes[free as usize] = node;
                free
            }
        };
        match self.last {
            NONE => self.first = at,
            last => self.nodes[last as usize].after = at,
        }
        self.last = at;
        self.len += 1;
    }

    /// The first that is so, where it is.
    #[inline]
    pub fn find(&self, mut is_so: impl FnMut(&T) -> bool) -> Option<u32> {
        let mut at = self.first;
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.value.as_ref().is_some_and(&mut is_so) {
                return Some(at);
            }
            at = node.after;
        }
        None
    }

    /// The one at a place that [`find`](List::find) gave.
    pub fn at(&mut self, at: u32) -> Option<&mut T> {
        self.nodes.get_mut(at as usize)?.value.as_mut()
    }

    /// Takes out the one at a place that [`find`](List::find) gave.
    #[inline]
    pub fn take(&mut self, at: u32) -> Option<T> {
        let node = self.nodes.get_mut(at as usize)?;
        let value = node.value.take()?;
        let (before, after) = (node.before, node.after);
        node.after = self.free;
        self.free = at;
        match before {
            NONE => self.first = after,
            before => self.nodes[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => self.nodes[after as usize].before = before,
        }
        self.len -= 1;
        Some(value)
    }

    /// Takes out the first that is so.
    #[inline]
    pub fn take_first(&mut self, is_so: impl FnMut(&T) -> bool) -> Option<T> {
        let at = self.find(is_so)?;
        self.take(at)
    }
}

/// Things by numbers that are used again: a number that was given back names nothing.
pub struct Slab<T> {
    slots: Vec<(u8, Option<T>)>,
    free: Vec<u32>,
}

/// Numbers of a slab are of so many bits; above is how often the number was used before.
const BITS: u32 = 24;

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Keeps one. `None` where there are as many as there may be.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.slots.len() < 1 << BITS => {
                self.slots.push((0, None));
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let (uses, slot) = &mut self.slots[at as usize];
        *uses = uses.wrapping_add(1);
        *slot = Some(value);
        Some(u32::from(*uses) << BITS | at)
    }

    fn slot(&mut self, number: u32) -> Option<&mut Option<T>> {
        let (uses, slot) = self.slots.get_mut((number & ((1 << BITS) - 1)) as usize)?;
        (u32::from(*uses) == number >> BITS).then_some(slot)
    }

    /// The one of a number.
    pub fn get(&mut self, number: u32) -> Option<&mut T> {
        self.slot(number)?.as_mut()
    }

    /// Gives back a number.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let value = self.slot(number)?.take()?;
        self.free.push(number & ((1 << BITS) - 1));
        Some(value)
    }

    /// All numbers of those that are so.
    pub fn numbers(&self, is_so: impl Fn(&T) -> bool) -> Vec<u32> {
        let all = (0..).zip(&self.slots);
        let so = all.filter(|(_, (_, slot))| slot.as_ref().is_some_and(&is_so));
        so.map(|(at, (uses, _))| u32::from(*uses) << BITS | at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_order_whatever_is_taken_out() {
        let (mut list, mut model) = (List::default(), Vec::new());
        let mut seed = 9_u64;
        for n in 0..20_000_u64 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let pick = seed >> 33;
            if pick % 5 < 3 && model.len() < 40 {
                list.push(n);
                model.push(n);
            } else {
                let modulus = pick % 7 + 1;
                let expected = model.iter().position(|m| m % modulus == 0).map(|at| model.remove(at));
                assert_eq!(list.take_first(|m| m % modulus == 0), expected);
            }
            assert_eq!((list.len(), list.is_empty()), (model.len(), model.is_empty()));
        }
        assert!(list.nodes.len() <= 41, "memory is used again");
    }

    #[test]
    fn a_number_that_was_given_back_names_nothing() {
        let mut slab = Slab::default();
        let a = slab.insert('a').unwrap();
        let b = slab.insert('b').unwrap();
        assert_eq!(slab.get(a).copied(), Some('a'));
        assert_eq!((slab.remove(a), slab.remove(a)), (Some('a'), None));
        let c = slab.insert('c').unwrap();
        assert_ne!(a, c);
        assert_eq!((slab.get(a).copied(), slab.get(c).copied()), (None, Some('c')));
        assert_eq!(slab.numbers(|_| true).len(), 2);
        assert_eq!(slab.remove(b), Some('b'));
    }
}
