//! Values of a step as a file keeps them: a JSON object.

use crate::FileError;
use polyduct_port::values::{pack, unpack, Value};
use polyduct_port::{PortError, PortName};
use serde_json::Value as Json;

/// Steps of which something can be said where that is kept as one list.
pub const MOST_STEPS: usize = 1 << 20;

/// Packed values as JSON; of none, nothing.
///
/// # Errors
/// [`PortError::BadOption`] with the value that JSON cannot have: bytes, numbers that are not finite, maps whose keys
/// are no text.
pub fn to_json(packed: &[u8], path: &str) -> Result<String, FileError> {
    let refuse = |found: String| {
        FileError::Port(PortError::BadOption {
            port: Some(PortName::File(path.to_owned())),
            option: "values",
            found,
            expected: "None, finite numbers, text, and lists and dictionaries of these by text, in a file"
                .into(),
        })
    };
    let named = unpack(packed).map_err(|e| refuse(e.to_string()))?;
    if named.is_empty() {
        return Ok(String::new());
    }
    let mut object = serde_json::Map::new();
    for (name, value) in named {
        let json = json(&value, &|what| Err(refuse(format!("{name:?} with {what}"))))?;
        object.insert(name, json);
    }
    Ok(Json::Object(object).to_string())
}

/// The values that JSON holds, packed. What another program has written there is no error: none are.
pub fn from_json(text: &str) -> Vec<u8> {
    let Ok(Json::Object(object)) = serde_json::from_str(text) else { return Vec::new() };
    pack(object.into_iter().map(|(name, json)| (name, value(json))).collect()).unwrap_or_default()
}

/// A value as JSON; `unfit` is told of what JSON cannot have, and gives what is there instead.
///
/// # Errors
/// Those of `unfit`.
pub fn json<E>(value: &Value, unfit: &impl Fn(String) -> Result<Json, E>) -> Result<Json, E> {
    let float =
        |n: f64| serde_json::Number::from_f64(n).map_or_else(|| unfit(n.to_string()), |n| Ok(n.into()));
    Ok(match value {
        Value::Nil => Json::Null,
        Value::Boolean(flag) => Json::Bool(*flag),
        Value::Integer(int) => match (int.as_i64(), int.as_u64()) {
            (Some(int), _) => int.into(),
            (None, int) => int.unwrap_or_default().into(),
        },
        Value::F32(n) => float((*n).into())?,
        Value::F64(n) => float(*n)?,
        Value::String(text) => {
            text.as_str().map_or_else(|| unfit("text that is not in UTF-8".into()), |text| Ok(text.into()))?
        }
        Value::Array(list) => Json::Array(list.iter().map(|one| json(one, unfit)).collect::<Result<_, _>>()?),
        Value::Map(map) => {
            let pair = |(key, value): &(Value, Value)| match key.as_str() {
                Some(key) => Ok((key.to_owned(), json(value, unfit)?)),
                None => Ok((key.to_string(), unfit(format!("the key {key}, which is no text"))?)),
            };
            Json::Object(map.iter().map(pair).collect::<Result<_, E>>()?)
        }
        Value::Binary(_) => unfit("bytes".into())?,
        Value::Ext(..) => unfit("a type of its own".into())?,
    })
}

fn value(json: Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(flag) => flag.into(),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => int.into(),
            (None, Some(int)) => int.into(),
            (None, None) => number.as_f64().unwrap_or(f64::NAN).into(),
        },
        Json::String(text) => text.into(),
        Json::Array(list) => Value::Array(list.into_iter().map(value).collect()),
        Json::Object(map) => {
            Value::Map(map.into_iter().map(|(key, json)| (key.into(), value(json))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_went() {
        let values = vec![
            ("a".to_owned(), Value::from(0.5)),
            ("b".to_owned(), Value::from("größe")),
            ("c".to_owned(), Value::Array(vec![Value::Nil, true.into(), u64::MAX.into(), (-3).into()])),
            ("d".to_owned(), Value::Map(vec![("k".into(), 1.into())])),
        ];
        let packed = pack(values).unwrap();
        assert_eq!(from_json(&to_json(&packed, "x").unwrap()), packed);
        assert_eq!((to_json(&[], "x").unwrap().as_str(), from_json("")), ("", vec![]));
        for (bad, what) in [
            (Value::Binary(vec![1]), "bytes"),
            (f64::NAN.into(), "NaN"),
            (Value::Array(vec![f64::INFINITY.into()]), "inf"),
            (Value::Map(vec![(1.into(), 1.into())]), "the key 1, which is no text"),
        ] {
            let packed = pack(vec![("time".to_owned(), bad)]).unwrap();
            let told = to_json(&packed, "x").unwrap_err().to_string();
            assert!(told.contains(&format!("\"time\" with {what};")), "{told}");
        }
        for other in ["[1]", "{", "7", "null"] {
            assert_eq!(from_json(other), Vec::<u8>::new());
        }
    }
}
