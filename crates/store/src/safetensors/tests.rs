use super::*;
use proptest::prelude::*;

/// A header of this text, unpadded.
fn with(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn parse(text: &str) -> Result<Header, SafetensorsError> {
    Header::parse(&with(text))
}

fn tensor(name: &str, dtype: &str, shape: &str, offsets: &str) -> String {
    format!("\"{name}\": {{\"dtype\": \"{dtype}\", \"shape\": {shape}, \"data_offsets\": {offsets}}}")
}

#[test]
fn several_tensors_in_the_order_of_their_data() {
    let text = format!(
        "{{\"__metadata__\": {{\"format\": \"pt\"}}, {}, {}, {}}}",
        tensor("b", "F32", "[2, 3]", "[4, 28]"),
        tensor("a", "BF16", "[2]", "[0, 4]"),
        tensor("c", "F8_E4M3", "[5]", "[28, 33]"),
    );
    let header = parse(&text).unwrap();
    let at = header.len_bytes as u64;
    let found: Vec<_> = header.tensors.iter().map(|t| (t.name.as_str(), t.elem, t.begin - at)).collect();
    assert_eq!(found, [("a", Some(ElemType::Bf16), 0), ("b", Some(ElemType::F32), 4), ("c", None, 28)]);
    assert_eq!((header.data_len(), header.tensors[1].shape.as_slice()), (33, &[2, 3][..]));
    assert!(matches!(header.tensors[2].elem(), Err(SafetensorsError::Dtype { .. })));
    assert_eq!(parse("{}").unwrap().data_len(), 0);
    assert_eq!(parse("{}   ").unwrap().tensors, []);
}

#[test]
fn what_is_wrong_is_named() {
    use SafetensorsError::*;
    let offsets = |name: &str, begin, end, expected| Offsets { name: name.into(), begin, end, expected };
    let a = tensor("a", "U8", "[4]", "[0, 4]");
    for (text, error) in [
        (format!("{{{a}, {}}}", tensor("b", "U8", "[4]", "[2, 6]")), offsets("b", 2, 6, 4)),
        (format!("{{{a}, {}}}", tensor("b", "U8", "[4]", "[5, 9]")), offsets("b", 5, 9, 4)),
        (format!("{{{}}}", tensor("b", "U8", "[4]", "[4, 0]")), offsets("b", 4, 0, 0)),
        (
            format!("{{{}}}", tensor("b", "F9", "[4]", "[0, 18446744073709551615]")),
            offsets("b", 0, u64::MAX, 0),
        ),
        (format!("{{{a}, {a}}}"), Duplicate { name: "a".into() }),
        (
            format!("{{{}}}", tensor("b", "F32", "[4]", "[0, 4]")),
            Size { name: "b".into(), dtype: "F32".into(), expected: 16, found: 4 },
        ),
        (
            format!("{{{}}}", tensor("b", "F32", "[4294967296, 4294967296]", "[0, 4]")),
            Size { name: "b".into(), dtype: "F32".into(), expected: u64::MAX, found: 4 },
        ),
        (" {}".into(), Syntax { position: 8, problem: "expected `{`".into() }),
    ] {
        assert_eq!(parse(&text), Err(error), "{text}");
    }
    for text in [
        "",
        "{",
        "[]",
        "{} x",
        "{\"a\": 1}",
        "{\"__metadata__\": {}, \"__metadata__\": {}}",
        "{\"__metadata__\": {\"a\": 1}}",
        "{\"a\": {\"dtype\": \"U8\", \"shape\": [1]}}",
        "{\"a\": {\"dtype\": \"U8\", \"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}}",
        "{\"a\": {\"dtype\": \"U8\", \"shape\": [-1], \"data_offsets\": [0, 1]}}",
        "{\"a\": {\"dtype\": \"U8\", \"shape\": [1.0], \"data_offsets\": [0, 1]}}",
        "{\"a\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1, 2]}}",
        "{\"a\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1], \"x\": 0}}",
    ] {
        match parse(text) {
            Err(Syntax { position, .. }) => assert!((8..=8 + text.len()).contains(&position), "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    assert_eq!(Header::parse(b"\x02\0\0"), Err(Short { expected: 8, found: 3 }));
    assert_eq!(Header::parse(b"\x04\0\0\0\0\0\0\0{}"), Err(Short { expected: 12, found: 10 }));
    let huge = u64::MAX.to_le_bytes();
    assert_eq!(Header::parse(&huge), Err(TooLong { len: u64::MAX, limit: MAX_HEADER_BYTES }));
}

proptest! {
    #[test]
    fn what_is_printed_parses(
        name in "\\PC{1,20}", elem in 0..NAMES.len(), shape in proptest::collection::vec(0u64..1 << 40, 0..2), more in 0usize..3,
    ) {
        prop_assume!(name != METADATA);
        let elem = NAMES[elem].0;
        let len = len_bytes_of(&name, elem, &shape).unwrap() + more * 64;
        let bytes = print(&name, elem, &shape, len).unwrap();
        prop_assert_eq!(bytes.len(), len);
        let header = Header::parse(&bytes).unwrap();
        let begin = len as u64;
        let end = begin + len_bytes(elem, &shape);
        let dtype = dtype(elem).unwrap().to_owned();
        let tensor = Tensor { name, dtype, elem: Some(elem), shape, begin, end };
        prop_assert_eq!(header, Header { tensors: vec![tensor], len_bytes: len, ..Header::default() });
    }

    #[test]
    fn nothing_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        cut: proptest::sample::Index,
    ) {
        let _ = Header::parse(&bytes);
        let mut bad = print("data", ElemType::F64, &[3, 4], 128).unwrap();
        for (at, byte) in edits {
            let at = at.index(bad.len());
            bad[at] = byte;
        }
        let _ = Header::parse(&bad);
        let _ = Header::parse(&bad[..cut.index(bad.len())]);
    }
}
