use super::*;
use proptest::prelude::*;

fn file(version: u8, text: &str) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    match version {
        1 => bytes.extend((text.len() as u16).to_le_bytes()),
        _ => bytes.extend((text.len() as u32).to_le_bytes()),
    }
    bytes.extend(text.bytes());
    bytes
}

fn dict(descr: &str, shape: &str) -> String {
    format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n")
}

#[test]
fn what_numpy_itself_wrote() {
    // np.save of np.zeros((2, 3), "f4"), NumPy 2.2.
    let mut bytes =
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }".to_vec();
    bytes.resize(127, b' ');
    bytes.push(b'\n');
    let header =
        Header { elem: ElemType::F32, descr: None, big_endian: false, fortran: false, shape: vec![2, 3] };
    assert_eq!(Header::parse(&bytes), Ok((header.clone(), 128)));
    assert_eq!(header.print(128).unwrap(), bytes);
}

#[test]
fn every_version_and_every_type() {
    let types = [
        ("'<f4'", ElemType::F32),
        ("'<f2'", ElemType::F16),
        ("'|u1'", ElemType::U8),
        ("'|i1'", ElemType::I8),
        ("'|b1'", ElemType::Bool),
        ("'<i8'", ElemType::I64),
        ("'<u8'", ElemType::U64),
        ("'<c8'", ElemType::C64),
        ("'<c16'", ElemType::C128),
        ("'|S12'", ElemType::Bytes(12)),
        ("'|V12'", ElemType::Bytes(12)),
        ("'|V2'", ElemType::Bytes(2)),
        ("'bfloat16'", ElemType::Bf16),
        ("'>u1'", ElemType::U8),
        ("'i8'", ElemType::I64),
        ("'?'", ElemType::Bool),
    ];
    for version in 1..=3 {
        for (text, elem) in types {
            let (header, at) = Header::parse(&file(version, &dict(text, "(5,)"))).unwrap();
            assert_eq!((header.elem, header.shape.as_slice()), (elem, &[5][..]), "{text}");
            assert_eq!(at, file(version, &dict(text, "(5,)")).len());
        }
    }
}

#[test]
fn the_byte_order_is_kept_and_elements_are_made_native() {
    for (text, elem, big_endian) in
        [("'>f4'", ElemType::F32, true), ("'!i8'", ElemType::I64, true), ("'>u1'", ElemType::U8, false)]
    {
        let (header, _) = Header::parse(&file(1, &dict(text, "(2,)"))).unwrap();
        assert_eq!((header.elem, header.big_endian), (elem, big_endian), "{text}");
        let mut native = vec![0, 0, 0, 0, 0, 0, 0, 1];
        header.make_native(&mut native);
        let first = native.iter().position(|&b| b == 1);
        assert_eq!(first, Some(if big_endian { 8 - elem.len_bytes() as usize } else { 7 }));
        let len = header.len_bytes();
        assert_eq!(Header::parse(&header.print(len).unwrap()), Ok((header, len)));
    }
}

#[test]
fn what_is_not_moved_is_refused_by_name() {
    let parse = |text: &str| Header::parse(&file(1, text)).unwrap_err();
    assert!(matches!(parse(&dict("'|O'", "()")), NpyError::Elem(LayoutError::UnknownElem { .. })));
    assert!(matches!(parse(&dict("'<U5'", "()")), NpyError::Elem(LayoutError::UnknownElem { .. })));
    assert_eq!(parse(&dict("[('a', '|S4294967295', (2,))]", "()")), NpyError::Structured);
    assert!(matches!(parse(&dict("[('a', '|O')]", "()")), NpyError::Key { .. }));
    assert!(matches!(parse(&dict("7", "()")), NpyError::Key { problem: "neither a string nor fields", .. }));
    assert!(matches!(parse(&dict("'<f4'", "7")), NpyError::Key { .. }));
    assert!(matches!(parse(&dict("'<f4'", "(1, 'x')")), NpyError::Key { .. }));
    assert!(matches!(parse(&dict("'<f4'", "(1,1,1,1,1,1,1,1,1,1)")), NpyError::Dims { dims: 10, limit: 9 }));
    assert!(matches!(parse("{'descr': '<f4'}"), NpyError::Key { problem: "missing", .. }));
    assert!(matches!(parse("{'x': 1}"), NpyError::Key { problem: "not a key of this format", .. }));
    assert!(matches!(parse("{'shape': (), 'shape': ()}"), NpyError::Key { problem: "comes twice", .. }));
    assert_eq!(parse("{'descr' 1}"), NpyError::Syntax { position: 19, expected: "`:`" });
}

#[test]
fn byte_strings_and_structures_are_written_as_they_were_read() {
    for (descr, elem) in [("'|S12'", 12), ("[('a', '<f4'), ('b', '|S3')]", 7), ("'>S12'", 12), ("'S12'", 12)]
    {
        let (header, _) = Header::parse(&file(1, &dict(descr, "(5,)"))).unwrap();
        assert_eq!(header.elem, ElemType::Bytes(elem));
        let kept = header.descr.as_ref().unwrap().as_str();
        assert_eq!(kept, if elem == 12 { "'|S12'" } else { descr });
        let len = header.len_bytes();
        assert_eq!(Header::parse(&header.print(len).unwrap()), Ok((header, len)));
    }
    let (header, _) = Header::parse(&file(3, &dict("[('é', '<f4')]", "(5,)"))).unwrap();
    assert_eq!(header.descr.unwrap().as_str(), "[('\\u00e9', '<f4')]");
    assert_eq!(Header::parse(&file(1, &dict("'|V12'", "()"))).unwrap().0.descr, None);
    let most = format!("[{}]", "('a', '<f4'), ".repeat(MAX_DESCR_BYTES / 14 - 1));
    let (header, _) = Header::parse(&file(2, &dict(&most, "()"))).unwrap();
    assert!(header.print(header.len_bytes()).is_some(), "the longest one fits into version 1");
}

#[test]
fn the_fixed_part() {
    assert_eq!(Header::parse(b"PK\x03\x04zip"), Err(NpyError::Magic { found: "PK\\x03\\x04zi".into() }));
    assert_eq!(Header::parse(b""), Err(NpyError::Magic { found: String::new() }));
    assert_eq!(Header::parse(b"\x93NUMPY\x01"), Err(NpyError::Short { expected: 8, found: 7 }));
    assert_eq!(Header::parse(b"\x93NUMPY\x04\x00vv"), Err(NpyError::Version { major: 4, minor: 0 }));
    assert_eq!(Header::parse(b"\x93NUMPY\x01\x00v\x00{"), Err(NpyError::Short { expected: 128, found: 11 }));
    let long = NpyError::TooLong { len: 0xFFFF_FFFF, limit: MAX_HEADER_BYTES };
    assert_eq!(Header::parse(b"\x93NUMPY\x02\x00\xff\xff\xff\xff"), Err(long));
}

#[test]
fn the_longest_header_that_can_be_needed() {
    let header = Header {
        elem: ElemType::Bytes(u32::MAX),
        descr: None,
        big_endian: false,
        fortran: false,
        shape: vec![u64::MAX; MAX_HEADER_DIMS],
    };
    let len = header.len_bytes();
    assert!(len <= 320, "{len}");
    assert_eq!(Header::parse(&header.print(len).unwrap()), Ok((header.clone(), len)));
    assert_eq!(header.print(len - 64), None);
    assert_eq!(header.print(5), None);
}

fn elem_type() -> impl Strategy<Value = ElemType> {
    use ElemType::*;
    prop_oneof![
        proptest::sample::select(vec![Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, F32, F64, C64, C128]),
        (1..u32::MAX).prop_map(Bytes),
    ]
}

proptest! {
    #[test]
    fn printing_and_parsing_are_inverse(
        elem in elem_type(),
        fortran: bool,
        order: bool,
        shape in proptest::collection::vec(any::<u64>(), 0..=MAX_HEADER_DIMS),
        more in 0usize..5,
    ) {
        let big_endian = order && crate::order::component_len(elem) > 1;
        let header = Header { elem, descr: None, big_endian, fortran, shape };
        let len = header.len_bytes() + more * 64;
        let bytes = header.print(len).unwrap();
        prop_assert_eq!(bytes.len(), len);
        prop_assert_eq!(Header::parse(&bytes), Ok((header, len)));
    }

    #[test]
    fn nothing_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        cut: proptest::sample::Index,
    ) {
        let _ = Header::parse(&bytes);
        let _ = literal::dictionary(&bytes);
        let good = Header { elem: ElemType::F64, descr: None, big_endian: false, fortran: true, shape: vec![3, 4, 5] };
        let mut bad = good.print(128).unwrap();
        for (at, byte) in edits {
            let at = at.index(bad.len());
            bad[at] = byte;
        }
        let _ = Header::parse(&bad);
        let _ = Header::parse(&bad[..cut.index(bad.len())]);
    }

    #[test]
    fn dictionary_like_text_does_not_panic(text in "[{}()\\[\\]'\":,0-9TrueFalsdcxph\\\\ ]{0,80}") {
        let _ = literal::dictionary(text.as_bytes());
    }
}
