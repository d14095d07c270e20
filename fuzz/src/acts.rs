//! Inputs that are acts, one after the other. Each stands behind a mark, so that a change spoils few of those
//! that follow.

use serde::{de::DeserializeOwned, Serialize};

const MARK: u8 = 0xa5;

/// The acts of an input; what is none is passed over.
pub fn read<T: DeserializeOwned>(mut rest: &[u8]) -> Vec<T> {
    let mut acts = Vec::new();
    while let Some(at) = rest.iter().position(|&byte| byte == MARK) {
        rest = &rest[at + 1..];
        if let Ok((act, left)) = postcard::take_from_bytes(rest) {
            acts.push(act);
            rest = left;
        }
    }
    acts
}

/// Acts as an input.
pub fn write<T: Serialize>(acts: &[T]) -> Vec<u8> {
    acts.iter().flat_map(|act| postcard::to_extend(act, vec![MARK]).expect("an act")).collect()
}
