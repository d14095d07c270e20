//! JSON that says each thing once: what comes twice in an object is an error, and not whichever came last.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Parses a document.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice::<Once>(bytes).map(|once| once.0)
}

/// The byte at which a document is wrong.
pub(crate) fn position(bytes: &[u8], error: &serde_json::Error) -> usize {
    let lines = bytes.split_inclusive(|&b| b == b'\n');
    let before: usize = lines.take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
    (before + error.column().saturating_sub(1)).min(bytes.len())
}

/// What is wrong with a document, without the place.
pub(crate) fn problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    shorten(&text[..end])
}

/// Text from outside, cut for a message.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(120) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Once, D::Error> {
        deserializer.deserialize_any(OnceVisitor).map(Once)
    }
}

struct OnceVisitor;

impl<'de> Visitor<'de> for OnceVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(Value::Number(n.into()))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(Value::Number(n.into()))
    }

    fn visit_f64<E>(self, n: f64) -> Result<Value, E> {
        Ok(Number::from_f64(n).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Once(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((key, Once(value))) = entries.next_entry::<String, Once>()? {
            if all.contains_key(&key) {
                return Err(A::Error::custom(format!("key {:?} comes twice", shorten(&key))));
            }
            all.insert(key, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_twice_is_refused_with_its_place() {
        let text = b"{\"a\": [1, -2, 0.5, null, true, \"x\"],\n \"b\": {\"c\": {}}}";
        assert_eq!(parse(text).unwrap(), serde_json::from_slice::<Value>(text).unwrap());
        let twice = b"{\"a\": 1,\n\"b\": {\"c\": 1, \"c\": 2}}";
        let error = parse(twice).unwrap_err();
        assert_eq!(problem(&error), "key \"c\" comes twice");
        assert!((20..30).contains(&position(twice, &error)), "{error}");
        assert!(parse(&b"[".repeat(100_000)).is_err());
    }
}
