//! The text form: what it accepts, where it refuses, and that nothing at all makes it panic.

mod common;

use common::{random_shape, random_spec, Rng};
use polyduct_layout::{Dataset, ElemType, Layout, LayoutError, MAX_BOXES_TEXT_BYTES, MAX_TEXT_BYTES};
use proptest::prelude::*;

#[test]
fn canonical_texts() {
    for (text, canonical) in [
        ("*", "*"),
        (" block , * ", "block,*"),
        ("cyclic(1),cyclic(64)", "cyclic,cyclic(64)"),
        ("cyclic(64),block@2x3;order=F", "cyclic(64),block@2x3;order=F"),
        ("*,block;halo=1,1", "*,block;halo=1,1"),
        ("block[1],*@2x3", "block[1],*@2x3"),
        ("block[0,1]@2x3", "block[0,1]@2x3"),
        ("cut(0,7,19)", "cut(0,7,19)"),
        ("block,block,block;order=2,1,0", "block,block,block;order=F"),
        ("block,block,block;order=0,1,2", "block,block,block"),
        ("block,block;order=C", "block,block"),
        ("block;order=F", "block"),
        ("block,block,*;halo=1,0:2,0;order=1,0,2", "block,block,*;order=1,0,2;halo=1,0:2,0"),
        ("block;halo=2:2", "block;halo=2"),
        ("block ; halo = 2 ~", "block;halo=2~"),
        ("block,*;halo=1:2~,0~", "block,*;halo=1:2~,0"),
        ("*;halo=0~", "*"),
        (" ... ", "..."),
        ("block,...;halo=1~,0;order=F", "block,...;order=F;halo=1~,0"),
        ("block;halo=0", "block"),
        ("boxes( 0:4,0:8 | 4:8,0:4 + 4:8,4:8 | - )", "boxes(0:4,0:8|4:8,0:4+4:8,4:8|-)"),
        ("boxes(0:4,0:8|-);order=F", "boxes(0:4,0:8|-);order=F"),
        ("digits(4x3x8;unit=1)", "digits(4x3x8;unit=1)"),
        ("digits(4x3x8;unit=1;offset=0,2)", "digits(4x3x8;unit=1)"),
        ("digits(4x3x8;unit=1;offset=2,0)", "digits(4x3x8;unit=1;offset=2,0)"),
        ("stripe(65536)", "stripe(64KiB)"),
        ("stripe( 2 MiB )", "stripe(2MiB)"),
        ("stripe(1000)", "stripe(1000)"),
    ] {
        let layout: Layout = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(layout.to_string(), canonical);
        assert_eq!(canonical.parse::<Layout>().unwrap(), layout);
    }
}

#[test]
fn errors_say_where_and_what() {
    for (text, at, expected) in [
        ("", 0, "`*`, `block`"),
        ("blok", 0, "`*`, `block`"),
        ("block,", 6, "`*`, `block`"),
        ("block ;", 7, "`order=` or `halo=`"),
        ("block x", 6, "`,`, `@`, `;`"),
        ("block*", 5, "`,`, `@`, `;`"),
        ("*[0]", 1, "`,`, `@`, `;`"),
        ("cyclic(0)", 7, "a block size of at least 1"),
        ("cyclic(x)", 7, "a block size of at least 1"),
        ("cyclic(2", 8, "`)`"),
        ("cyclic(99999999999999999999)", 7, "a number below 2^63"),
        ("cyclic(9223372036854775808)", 7, "a number below 2^63"),
        ("cut()", 4, "an index"),
        ("cut(1,2)", 4, "0, where"),
        ("cut(0,5,4)", 8, "an index not below"),
        ("cut(0,5", 7, "`,` or `)`"),
        ("block@", 6, "a grid size"),
        ("block@2x0", 8, "a grid size"),
        ("block@1x1x1x1x1x1x1x1x1", 22, "at most 8 grid axes"),
        ("block[8]", 6, "the number of a grid axis"),
        ("block[0,0]", 8, "the number of a grid axis"),
        ("block[]", 6, "the number of a grid axis"),
        ("block[0", 7, "`,` or `]`"),
        ("*,*,*,*,*,*,*,*,*", 16, "at most 8 dimensions"),
        ("block;order=X", 12, "`C`, `F`"),
        ("block,*;order=0", 15, "`,` and the remaining"),
        ("block,*;order=0,0", 16, "`C`, `F`, or each"),
        ("block,*;order=0,2", 16, "`C`, `F`, or each"),
        ("block;order=C;order=C", 14, "`order=` or `halo=`, each once"),
        ("block;halo=", 11, "a halo width"),
        ("block,*;halo=1", 14, "`,` and a halo width"),
        ("block;halo=1,1", 12, "`,`, `@`, `;`"),
        ("block;halo=1:", 13, "a halo width"),
        ("cyclic,*;halo=1~,0", 14, "0, as a cyclic"),
        ("block;halo=~", 11, "a halo width"),
        ("block,..", 8, "`...`"),
        ("...,block,...", 10, "`...` only once"),
        ("block,...;order=1,0", 16, "`C` or `F`"),
        ("...[0]", 3, "`,`, `@`, `;`"),
        ("cyclic,*;halo=1,0", 14, "0, as a cyclic"),
        ("boxes", 5, "`(`"),
        ("boxes()", 6, "a box"),
        ("boxes(0:1", 9, "`,`, `+`, `|` or `)`"),
        ("boxes(0)", 7, "`:`"),
        ("boxes(3:2)", 8, "an end not below"),
        ("boxes(0:1,0:1|0:1)", 17, "`,`, as the first box"),
        ("boxes(0:1|0:1,0:1)", 13, "a box with as many"),
        ("boxes(0:1+-)", 10, "a box"),
        ("boxes(0:1+1:2);order=C", 15, "no `order=`"),
        ("boxes(0:1);halo=1", 11, "`order=`"),
        ("boxes(0:1)x", 10, "`;order=` or the end"),
        ("digits(4x0)", 9, "a radix"),
        ("digits(4;unit=1)", 14, "the number of a digit"),
        ("digits(4x2;unit=1;offset=1)", 25, "all digits"),
        ("digits(4x2x2;unit=1;offset=0)", 27, "all digits"),
        ("digits(4x2;offset=0,1;unit=1)", 22, "`unit=` and then"),
        ("digits(4x2;unit=1) ;", 19, "the end of the text"),
        ("digits(4x2", 10, "`x`, `;` or `)`"),
        ("stripe(0)", 7, "a stripe unit"),
        ("stripe(4KB)", 8, "`KiB`, `MiB` or `)`"),
        ("stripe(9223372036854775807MiB)", 7, "a stripe unit below"),
        ("block,\u{fc}", 6, "`*`, `block`"),
    ] {
        match text.parse::<Layout>() {
            Err(LayoutError::Text { position, expected: e, found }) => {
                assert_eq!(position, at, "{text}: expected {e}, found {found}");
                assert!(e.starts_with(expected), "{text}: {e}");
                assert!(
                    text[at..].starts_with(found.trim_end_matches('…')) || found == "the end of the text"
                );
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn long_texts_are_refused_and_long_boxes_are_not() {
    let long = format!("block{}", " ".repeat(MAX_TEXT_BYTES));
    assert_eq!(
        long.parse::<Layout>(),
        Err(LayoutError::TextTooLong { len: long.len(), limit: MAX_TEXT_BYTES })
    );
    let boxes =
        format!("boxes({})", (0..200_000).map(|i| format!("{i}:{}", i + 1)).collect::<Vec<_>>().join("|"));
    assert!(boxes.len() > MAX_TEXT_BYTES);
    let layout: Layout = boxes.parse().unwrap();
    assert_eq!(layout.to_string(), boxes);
    let map = layout.bind(&Dataset::new(&[200_000], ElemType::U8).unwrap(), 200_000).unwrap();
    map.check_writer().unwrap();
    assert_eq!(map.locate(&[123_456]).unwrap()[0].unit, 123_456);
    let boxes = format!("boxes({}-)", " ".repeat(MAX_BOXES_TEXT_BYTES));
    assert!(matches!(boxes.parse::<Layout>(), Err(LayoutError::TextTooLong { .. })));
}

#[test]
fn element_types() {
    for (text, canonical) in [
        ("bool ? b1 |b1", "bool"),
        ("i8 i1 int8 |i1", "i8"),
        ("i64 int64 <i8 =i8", "i64"),
        ("u8 u1 uint8 |u1 >u1", "u8"),
        ("u64 uint64 <u8", "u64"),
        ("f16 f2 float16 <f2", "f16"),
        ("bf16 bfloat16", "bf16"),
        ("f32 f4 float32 <f4", "f32"),
        ("f64 f8 float64 <f8", "f64"),
        ("c64 c8 complex64 <c8", "c64"),
        ("c128 c16 complex128", "c128"),
        ("S12 V12 |S12 |V12 bytes(12)", "bytes(12)"),
    ] {
        for t in text.split(' ') {
            let e: ElemType = t.parse().unwrap_or_else(|e| panic!("{t}: {e}"));
            assert_eq!(e.to_string(), canonical, "{t}");
            assert_eq!(e.to_string().parse::<ElemType>().unwrap(), e);
        }
    }
    for t in [">f4", ">i8", "!u2", ">c16"] {
        assert_eq!(t.parse::<ElemType>(), Err(LayoutError::BigEndian { text: t.into() }));
    }
    for t in [
        "",
        "<",
        "f3",
        "S0",
        "S",
        "S+1",
        "bytes(0)",
        "bytes()",
        "<bytes(3)",
        "V99999999999",
        "float",
        "\u{fc}",
    ] {
        assert_eq!(t.parse::<ElemType>(), Err(LayoutError::UnknownElem { text: t.into() }), "{t}");
    }
}

#[test]
fn mutated_texts_never_panic_and_what_parses_prints() {
    let alphabet = b"*block,cyl()@x;=:0123456789[]|+-digtsrepuoKMB halnF\xc3\xbc";
    for seed in 0..20_000 {
        let mut rng = Rng(seed);
        let shape = random_shape(&mut rng, 4, 60);
        let mut text = random_spec(&mut rng, &shape, false).text().to_owned().into_bytes();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(text.len() as u64 + 1) as usize;
            match rng.below(3) {
                0 => text.insert(at, rng.pick(alphabet)),
                1 if at < text.len() => drop(text.remove(at)),
                _ if at < text.len() => text[at] = rng.pick(alphabet),
                _ => {}
            }
        }
        let text = String::from_utf8_lossy(&text);
        if let Ok(layout) = text.parse::<Layout>() {
            assert_eq!(layout.to_string().parse::<Layout>().as_ref(), Ok(&layout), "{text}");
            if let Ok(map) = layout.bind(&Dataset::new(&shape, ElemType::F32).unwrap(), 1 + rng.below(6)) {
                let _ = map.check_writer();
                let _ = map.boxes(0).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn any_text_parses_or_is_refused(text in "\\PC{0,60}") {
        if let Ok(layout) = text.parse::<Layout>() {
            prop_assert_eq!(layout.to_string().parse::<Layout>(), Ok(layout));
        }
        let _ = text.parse::<ElemType>();
    }

    #[test]
    fn any_tokens_parse_or_are_refused(
        words in prop::collection::vec(prop::sample::select(vec![
            "*", "block", "cyclic", "balanced", "cut", "boxes", "digits", "stripe", "(", ")", "[", "]", ",", ";", "@", "x",
            "=", ":", "~", "...", "|", "+", "-", "order", "halo", "unit", "offset", "0", "1", "2", "9223372036854775807", "KiB", "F",
        ]), 0..24),
        shape in prop::collection::vec(0u64..5, 0..5),
        units in 0u64..9,
    ) {
        if let Ok(layout) = words.concat().parse::<Layout>() {
            prop_assert_eq!(&layout.to_string().parse::<Layout>().unwrap(), &layout);
            let data = Dataset::new(&shape, ElemType::F64).unwrap();
            if let Ok(map) = layout.bind(&data, units) {
                for u in 0..units {
                    let _ = (map.local_len_bytes(u).unwrap(), map.boxes_with_halo(u));
                }
            }
        }
    }
}
