//! Any text parses or is refused; what parses prints and parses to the same; binding and asking never panics.

#![forbid(unsafe_code)]

mod driver;

use polyduct_layout::{Dataset, ElemType, Layout};

fn target(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(layout) = text.parse::<Layout>() else { return };
    let printed = layout.to_string();
    assert_eq!(printed.parse::<Layout>().as_ref(), Ok(&layout), "printed as {printed:?}");
    for shape in [&[][..], &[0], &[7], &[6, 4], &[5, 1, 3], &[u64::MAX >> 3]] {
        let Ok(data) = Dataset::new(shape, ElemType::U8) else { continue };
        for units in [0, 1, 3, 4, u64::MAX] {
            let Ok(mapping) = layout.bind(&data, units) else { continue };
            let _ =
                (mapping.local_shape(0), mapping.local_len_bytes(units - 1), mapping.local_strides(units));
            let _ = mapping.locate(&vec![0; shape.len()]);
            if data.len_elems() < 100 && units < 10 {
                let _ = (mapping.check_writer(), mapping.boxes(0));
            }
        }
    }
}

fn main() {
    let seeds: [&[u8]; 9] = [
        b"block,*",
        b"cyclic(64),block@2x3;order=F",
        b"*,block;halo=1,0:2",
        b"block[1],balanced[0,2]@2x3x4",
        b"cut(0,2,5),*;order=1,0",
        b"boxes(0:3,0:4|3:6,0:2+3:6,2:4|-)",
        b"digits(2x3x4;unit=1;offset=2,0)",
        b"stripe(64KiB)",
        b"*",
    ];
    let words: [&[u8]; 22] = [
        b"block",
        b"balanced",
        b"cyclic",
        b"cyclic(3)",
        b"cut(0,",
        b"*",
        b",",
        b"@2x2",
        b";order=",
        b";halo=",
        b"boxes(",
        b"digits(",
        b"stripe(",
        b"unit=",
        b"offset=",
        b"18446744073709551615",
        b"0",
        b":",
        b"|",
        b"+",
        b"MiB",
        b" ",
    ];
    driver::run(&seeds, &words, target);
}
