//! Element types and fill values as `zarr.json` writes them.

use super::{named, wrong, ZarrError};
use half::{bf16, f16};
use polyduct_layout::ElemType;
use serde_json::{json, Value};

/// Each type that has a name of its own.
const NAMES: [(ElemType, &str); 15] = [
    (ElemType::Bool, "bool"),
    (ElemType::I8, "int8"),
    (ElemType::I16, "int16"),
    (ElemType::I32, "int32"),
    (ElemType::I64, "int64"),
    (ElemType::U8, "uint8"),
    (ElemType::U16, "uint16"),
    (ElemType::U32, "uint32"),
    (ElemType::U64, "uint64"),
    (ElemType::F16, "float16"),
    (ElemType::Bf16, "bfloat16"),
    (ElemType::F32, "float32"),
    (ElemType::F64, "float64"),
    (ElemType::C64, "complex64"),
    (ElemType::C128, "complex128"),
];

/// The name of an element type. Raw bits (`r24`) have two; this is the one that zarr-python knows.
pub fn name(elem: ElemType) -> Value {
    match elem {
        ElemType::Bytes(n) => json!({"name": "raw_bytes", "configuration": {"length_bytes": n}}),
        _ => NAMES.iter().find(|n| n.0 == elem).map_or("", |n| n.1).into(),
    }
}

pub fn elem(value: Option<&Value>) -> Result<ElemType, ZarrError> {
    let fail = || wrong("data_type", "a type of numbers, or raw bits (r8, r16, …, raw_bytes)", value);
    let (name, configuration) = named("data_type", value)?;
    if let Some(found) = NAMES.iter().find(|n| n.1 == name) {
        return Ok(found.0);
    }
    let len = match (name, configuration) {
        ("raw_bytes" | "null_terminated_bytes", Some(c)) => c.get("length_bytes").and_then(Value::as_u64),
        _ => name
            .strip_prefix('r')
            .filter(|bits| bits.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|bits| bits.parse::<u64>().ok())
            .filter(|bits| bits % 8 == 0)
            .map(|bits| bits / 8),
    };
    match len.and_then(|n| u32::try_from(n).ok()) {
        Some(n) if (1..super::MAX_RAW_BYTES).contains(&n) => Ok(ElemType::Bytes(n)),
        _ => Err(fail()),
    }
}

/// The fill value of arrays that are written: zero.
pub fn zero(elem: ElemType) -> Value {
    match elem {
        ElemType::Bool => Value::Bool(false),
        ElemType::C64 | ElemType::C128 => Value::from(vec![0.0, 0.0]),
        ElemType::Bytes(n) => {
            let (digits, padding) = (n.div_ceil(3) as usize * 4, (3 - n as usize % 3) % 3);
            Value::from("A".repeat(digits - padding) + &"=".repeat(padding))
        }
        ElemType::F16 | ElemType::Bf16 | ElemType::F32 | ElemType::F64 => Value::from(0.0),
        _ => Value::from(0),
    }
}

/// The bytes of a fill value.
pub fn value(elem: ElemType, value: Option<&Value>) -> Result<Vec<u8>, ZarrError> {
    let fail = || wrong("fill_value", "a value of the data type", value);
    let found = value.ok_or_else(fail)?;
    bytes(elem, found).filter(|b| b.len() as u64 == elem.len_bytes()).ok_or_else(fail)
}

fn bytes(elem: ElemType, value: &Value) -> Option<Vec<u8>> {
    fn signed<T: TryFrom<i64>>(value: &Value) -> Option<T> {
        T::try_from(value.as_i64()?).ok()
    }
    fn unsigned<T: TryFrom<u64>>(value: &Value) -> Option<T> {
        T::try_from(value.as_u64()?).ok()
    }
    Some(match elem {
        ElemType::Bool => vec![value.as_bool()?.into()],
        ElemType::I8 => signed::<i8>(value)?.to_le_bytes().to_vec(),
        ElemType::I16 => signed::<i16>(value)?.to_le_bytes().to_vec(),
        ElemType::I32 => signed::<i32>(value)?.to_le_bytes().to_vec(),
        ElemType::I64 => signed::<i64>(value)?.to_le_bytes().to_vec(),
        ElemType::U8 => unsigned::<u8>(value)?.to_le_bytes().to_vec(),
        ElemType::U16 => unsigned::<u16>(value)?.to_le_bytes().to_vec(),
        ElemType::U32 => unsigned::<u32>(value)?.to_le_bytes().to_vec(),
        ElemType::U64 => unsigned::<u64>(value)?.to_le_bytes().to_vec(),
        ElemType::F16 => float(value, 2, |x| f16::from_f64(x).to_le_bytes().to_vec())?,
        ElemType::Bf16 => float(value, 2, |x| bf16::from_f64(x).to_le_bytes().to_vec())?,
        ElemType::F32 => float(value, 4, |x| (x as f32).to_le_bytes().to_vec())?,
        ElemType::F64 => float(value, 8, |x| x.to_le_bytes().to_vec())?,
        ElemType::C64 | ElemType::C128 => {
            let half = if elem == ElemType::C64 { ElemType::F32 } else { ElemType::F64 };
            let [re, im] = value.as_array()?.as_slice() else { return None };
            [bytes(half, re)?, bytes(half, im)?].concat()
        }
        ElemType::Bytes(_) => match value {
            Value::Array(all) => all.iter().map(unsigned::<u8>).collect::<Option<Vec<u8>>>()?,
            Value::String(text) => base64(text)?,
            _ => return None,
        },
    })
}

/// A number, its name, or its bits in hexadecimal digits, the highest first.
fn float(value: &Value, len: usize, bytes: impl Fn(f64) -> Vec<u8>) -> Option<Vec<u8>> {
    match value {
        Value::Number(n) => Some(bytes(n.as_f64()?)),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(bytes(f64::NAN)),
            "Infinity" => Some(bytes(f64::INFINITY)),
            "-Infinity" => Some(bytes(f64::NEG_INFINITY)),
            _ => {
                let digits = text.strip_prefix("0x").filter(|d| d.len() == 2 * len)?;
                let hexadecimal = digits.bytes().all(|b| b.is_ascii_hexdigit());
                let bits = u64::from_str_radix(digits, 16).ok().filter(|_| hexadecimal)?;
                Some(bits.to_le_bytes()[..len].to_vec())
            }
        },
        _ => None,
    }
}

/// The standard alphabet, padded; zarr-python writes raw bytes so.
fn base64(text: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.trim_end_matches('=').as_bytes();
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 3);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for &digit in group {
            bits = bits << 6 | ALPHABET.iter().position(|&a| a == digit)? as u32;
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_written() {
        for elem in NAMES.iter().map(|n| n.0).chain([1, 2, 3, (1 << 20) - 1].map(ElemType::Bytes)) {
            assert_eq!(super::elem(Some(&name(elem))), Ok(elem));
            assert_eq!(value(elem, Some(&zero(elem))), Ok(vec![0; elem.len_bytes() as usize]));
        }
        assert_eq!(super::elem(Some(&"r24".into())), Ok(ElemType::Bytes(3)));
        for bad in ["string", "r", "r7", "r0", "r+8", "r99999999999999999999", "numpy.datetime64"] {
            assert!(super::elem(Some(&bad.into())).is_err(), "{bad}");
        }
    }

    #[test]
    fn fill_values() {
        let of = |elem, v: Value| value(elem, Some(&v)).ok();
        assert_eq!(of(ElemType::I8, json!(-1)), Some(vec![0xFF]));
        assert_eq!(of(ElemType::U64, json!(u64::MAX)), Some(vec![0xFF; 8]));
        assert_eq!(of(ElemType::F32, json!(1)), Some(1f32.to_le_bytes().to_vec()));
        assert_eq!(of(ElemType::F16, json!("0x3c00")), Some(vec![0, 0x3c]));
        assert_eq!(of(ElemType::F64, json!("-Infinity")), Some(f64::NEG_INFINITY.to_le_bytes().to_vec()));
        assert!(f32::from_le_bytes(of(ElemType::F32, json!("NaN")).unwrap().try_into().unwrap()).is_nan());
        assert_eq!(
            of(ElemType::C64, json!([1.0, "Infinity"])),
            Some([1f32.to_le_bytes(), f32::INFINITY.to_le_bytes()].concat())
        );
        assert_eq!(of(ElemType::Bytes(2), json!([1, 255])), Some(vec![1, 255]));
        assert_eq!(of(ElemType::Bytes(4), json!("AQID/w==")), Some(vec![1, 2, 3, 255]));
        for (elem, bad) in [
            (ElemType::I8, json!(128)),
            (ElemType::U8, json!(-1)),
            (ElemType::U8, json!(1.5)),
            (ElemType::Bool, json!(0)),
            (ElemType::F32, json!("0x3f8000")),
            (ElemType::F32, json!("0x+f800000")),
            (ElemType::F32, json!(null)),
            (ElemType::C64, json!([1])),
            (ElemType::Bytes(2), json!([1])),
            (ElemType::Bytes(2), json!("AQ=")),
            (ElemType::Bytes(2), json!("é===")),
        ] {
            assert!(of(elem, bad.clone()).is_none(), "{bad}");
        }
    }

    #[test]
    fn fill_values_are_exact() {
        for (text, number) in
            [("9.969209968386869e36", 9.969209968386869e36_f64), ("1.602176634e-19", 1.602176634e-19)]
        {
            let given: Value = serde_json::from_str(text).unwrap();
            assert_eq!(value(ElemType::F64, Some(&given)).unwrap(), number.to_le_bytes(), "{text}");
        }
    }
}
