//! Types of elements, as `enum polyduct_type` numbers them: the numbers that messages have for them, too.

use crate::args::{place, text};
use crate::border::call;
use crate::code::Code;
use crate::error::Failure;
use polyduct::layout::{Dataset, ElemType, LayoutError};
use std::ffi::{c_char, c_int};

const TYPES: [ElemType; 15] = [
    ElemType::Bool,
    ElemType::I8,
    ElemType::I16,
    ElemType::I32,
    ElemType::I64,
    ElemType::U8,
    ElemType::U16,
    ElemType::U32,
    ElemType::U64,
    ElemType::F16,
    ElemType::F32,
    ElemType::F64,
    ElemType::C64,
    ElemType::C128,
    ElemType::Bf16,
];

/// From here on a number is of so many bytes more.
const BYTES: c_int = 256;

/// The type of a number.
pub fn elem(number: c_int) -> Option<ElemType> {
    match number {
        1..BYTES => TYPES.get(number as usize - 1).copied(),
        _ => {
            let bytes = number.checked_sub(BYTES)?;
            u32::try_from(bytes).ok().filter(|&n| n > 0).map(ElemType::Bytes)
        }
    }
}

/// The same where there must be one.
pub fn expect(number: c_int) -> Result<ElemType, Failure> {
    let wrong = || format!("there is no element type {number}; expected one of enum polyduct_type");
    elem(number).ok_or_else(|| Failure::Own(Code::WRONG_TYPE, wrong(), Vec::new()))
}

/// The same where 0 is any.
pub fn maybe(number: c_int) -> Result<Option<ElemType>, Failure> {
    match number {
        0 => Ok(None),
        number => expect(number).map(Some),
    }
}

/// The number of a type; 0 for bytes that no number has room for.
pub fn number(elem: ElemType) -> c_int {
    match elem {
        ElemType::Bytes(n) => c_int::try_from(n).ok().and_then(|n| n.checked_add(BYTES)).unwrap_or(0),
        elem => TYPES.iter().position(|&found| found == elem).map_or(0, |at| at as c_int + 1),
    }
}

/// A dataset of a shape and a numbered type.
pub fn dataset(shape: &[u64], number: c_int) -> Result<Dataset, Failure> {
    Ok(Dataset::new(shape, expect(number)?)?)
}

/// The type of a name: what NumPy takes it for goes first.
fn parse(name: &str) -> Result<ElemType, LayoutError> {
    format!("={name}").parse().or_else(|_| name.parse())
}

/// The type of a name.
#[no_mangle]
pub unsafe extern "C" fn polyduct_type_of(name: *const c_char, to: *mut c_int) -> c_int {
    call(|| {
        // SAFETY: text of the caller's.
        let name = unsafe { text("name", name) }?;
        let (to, found) = (place("type", to)?, parse(name)?);
        // SAFETY: a number of the caller's.
        unsafe { to.write(number(found)) };
        Ok(Code::OK)
    })
}

/// Bytes of an element.
#[no_mangle]
pub extern "C" fn polyduct_type_size(number: c_int) -> usize {
    elem(number).map_or(0, |elem| elem.len_bytes() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_to_types_and_back() {
        for n in (1..=15).chain([257, 300, 1 << 20]) {
            assert_eq!(number(elem(n).unwrap()), n);
        }
        assert_eq!([0, -1, 16, 255, 256, i32::MIN].map(elem), [None; 6]);
        let names =
            ["i8", "int8", "u4", "f4", "f32", "<f8", "bfloat16", "?", "c16", "bytes(12)", "i32", "V3"];
        let types = names.map(|name| parse(name).unwrap());
        assert_eq!(types[..4], [ElemType::I64, ElemType::I8, ElemType::U32, ElemType::F32]);
        assert_eq!(types[4..8], [ElemType::F32, ElemType::F64, ElemType::Bf16, ElemType::Bool]);
        assert_eq!(types[8..], [ElemType::C128, ElemType::Bytes(12), ElemType::I32, ElemType::Bytes(3)]);
        assert!(parse("q9").is_err() && parse(">f4").is_err());
    }
}
