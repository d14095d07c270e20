//! JSON that says each thing once: what comes twice in an object is an error, and not whichever came last.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Parses a document. An integer that 64 bits do not hold is an error: it would become another number.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let Once(value) = serde_json::from_slice(bytes)?;
    match long_integer(bytes) {
        None => Ok(value),
        Some(found) => {
            let found = shorten(found);
            Err(Error::custom(format_args!("the integer {found}; 64 bits do not hold it")))
        }
    }
}

/// The first integer of a good document that has more than 64 bits.
fn long_integer(bytes: &[u8]) -> Option<&str> {
    let mut rest = bytes;
    loop {
        let start = rest.iter().position(|b| matches!(b, b'"' | b'-' | b'0'..=b'9'))?;
        rest = &rest[start..];
        if rest[0] == b'"' {
            let mut escaped = false;
            let ends = |&b: &u8| {
                let ends = b == b'"' && !escaped;
                escaped = b == b'\\' && !escaped;
                ends
            };
            let len = rest[1..].iter().position(ends)?;
            rest = &rest[len + 2..];
            continue;
        }
        let in_number = |b: &u8| b.is_ascii_digit() || b"+-.eE".contains(b);
        let (number, behind) = rest.split_at(rest.iter().position(|b| !in_number(b)).unwrap_or(rest.len()));
        let number = std::str::from_utf8(number).ok()?;
        let fits = || number.parse::<u64>().is_ok() || number.parse::<i64>().is_ok();
        if !number.contains(['.', 'e', 'E']) && !fits() {
            return Some(number);
        }
        rest = behind;
    }
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

    #[test]
    fn integers_that_64_bits_do_not_hold_are_refused() {
        let good = [
            r#"{"a": 18446744073709551615, "b": [-9223372036854775808, 1e300, -0, 3.5], "18446744073709551616": 1}"#,
            r#"["\"18446744073709551616", "\\", 99999999999999999999.5]"#,
            "18446744073709551615",
        ];
        assert!(good.iter().all(|text| parse(text.as_bytes()).is_ok()));
        let long = [
            "18446744073709551616",
            r#"{"a": ["\\", -9223372036854775809]}"#,
            r#"["\"", 1180591620717411303424]"#,
        ];
        for text in long {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("64 bits"), "{text}: {error}");
        }
    }
}
