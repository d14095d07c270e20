//! Values as they cross: what is read is written again as it was.

use serde::{de::DeserializeOwned, Serialize};

/// The bytes of a value.
pub fn say<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("words")
}

/// Any bytes are no value, or one that is the same when it is written and read again.
pub fn read<T: DeserializeOwned + Serialize>(bytes: &[u8]) {
    let Ok(value) = postcard::from_bytes::<T>(bytes) else { return };
    let again = say(&value);
    assert!(postcard::from_bytes::<T>(&again).is_ok_and(|value| say(&value) == again));
}
