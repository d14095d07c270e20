//! Values of a step: a name for each, and numbers, text, bytes, lists and maps of these; as MessagePack, a
//! map of names. What a writer says of its arrays beside them: a time, units, a list of cells.

use rmpv::decode::{read_value_with_max_depth, Error};
pub use rmpv::Value;

/// Bytes of the values of a step, at most.
pub const VALUES_BYTES: usize = 1 << 20;
/// How deep lists and maps may lie in each other.
pub const VALUES_DEPTH: usize = 64;

/// Why values cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValuesError {
    /// They are too many, or too long.
    #[error("the values of a step have {found} bytes; expected at most {VALUES_BYTES}")]
    TooLarge {
        /// Their bytes.
        found: usize,
    },
    /// The bytes are no map of names in MessagePack, or one that lies too deep.
    #[error("the values of a step are no map of names in MessagePack, or lie deeper than {VALUES_DEPTH}")]
    Malformed,
}

/// The bytes of these values.
///
/// # Errors
/// [`ValuesError::TooLarge`].
pub fn pack(values: Vec<(String, Value)>) -> Result<Vec<u8>, ValuesError> {
    if values.is_empty() {
        return Ok(Vec::new());
    }
    let map = values.into_iter().map(|(name, value)| (Value::from(name), value)).collect();
    let mut bytes = Vec::new();
    // Memory takes all that is written there.
    rmpv::encode::write_value(&mut bytes, &Value::Map(map)).map_err(|_| ValuesError::Malformed)?;
    match bytes.len() {
        found if found > VALUES_BYTES => Err(ValuesError::TooLarge { found }),
        _ => Ok(bytes),
    }
}

/// The values that lie in these bytes; of none, none.
///
/// # Errors
/// [`ValuesError::Malformed`], for any bytes that [`pack`] does not give.
pub fn unpack(mut bytes: &[u8]) -> Result<Vec<(String, Value)>, ValuesError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let read: Result<Value, Error> = read_value_with_max_depth(&mut bytes, VALUES_DEPTH);
    let Ok(Value::Map(map)) = read else { return Err(ValuesError::Malformed) };
    let named = |(name, value): (Value, Value)| Some((name.as_str()?.to_owned(), value));
    let values: Option<Vec<_>> = map.into_iter().map(named).collect();
    values.filter(|_| bytes.is_empty()).ok_or(ValuesError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_went() {
        let values = vec![
            ("time".to_owned(), Value::from(0.1)),
            ("step".to_owned(), Value::from(-7)),
            ("größe".to_owned(), Value::from("text")),
            ("raw".to_owned(), Value::Binary(vec![0, 255])),
            ("cells".to_owned(), Value::Array(vec![Value::Nil, true.into(), u64::MAX.into()])),
            ("map".to_owned(), Value::Map(vec![(1.into(), "one".into())])),
        ];
        assert_eq!(unpack(&pack(values.clone()).unwrap()), Ok(values));
        assert_eq!((pack(vec![]), unpack(&[])), (Ok(vec![]), Ok(vec![])));
    }

    #[test]
    fn what_is_too_large_or_no_map_is_refused() {
        let large = vec![("x".to_owned(), Value::Binary(vec![0; VALUES_BYTES]))];
        assert!(matches!(pack(large), Err(ValuesError::TooLarge { .. })));
        let good = pack(vec![("x".into(), 1.into())]).unwrap();
        let behind = [&good[..], &[0]].concat();
        let deep = [&[0x81, 0xa1, b'x'][..], &[0x91; 100], &[0]].concat();
        for bad in [&good[..good.len() - 1], &behind, &[7], &[0x81, 1, 1], &[0xdf, 255, 255, 255, 255], &deep]
        {
            assert_eq!(unpack(bad), Err(ValuesError::Malformed), "{bad:?}");
        }
    }
}
