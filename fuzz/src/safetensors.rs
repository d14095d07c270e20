//! Any bytes are the start of a file of tensors or are refused. Tensors that are taken lie one behind the
//! other, each as long as it says; a file of one of them is read as it was printed.

#![forbid(unsafe_code)]

mod driver;

use polyduct_store::safetensors::{len_bytes_of, print, Header, MAX_NAME_BYTES};

fn target(input: &[u8]) {
    let Ok(header) = Header::parse(input) else { return };
    assert!(header.len_bytes <= input.len());
    let mut end = header.len_bytes as u64;
    for tensor in &header.tensors {
        assert_eq!(tensor.begin, end);
        end = tensor.end;
        let Ok(elem) = tensor.elem() else { continue };
        let elems: u128 = tensor.shape.iter().map(|&n| u128::from(n)).product();
        assert_eq!(elems * u128::from(elem.len_bytes()), u128::from(tensor.end - tensor.begin));
        let Some(len) = len_bytes_of(&tensor.name, elem, &tensor.shape) else { panic!("{elem} has a name") };
        let printed = print(&tensor.name, elem, &tensor.shape, len).expect("room");
        let again = Header::parse(&printed).expect("as it was printed");
        assert_eq!((again.len_bytes, again.tensors.len()), (len, 1));
        let found = &again.tensors[0];
        assert_eq!((&found.name, found.elem, &found.shape), (&tensor.name, Some(elem), &tensor.shape));
        assert!(tensor.name.len() > MAX_NAME_BYTES || len < 8 * MAX_NAME_BYTES + 4096);
    }
    assert_eq!(header.data_len(), end - header.len_bytes as u64);
}

/// A header of this text.
fn with(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn main() {
    let texts = [
        r#"{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}      "#,
        r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[],"data_offsets":[4,8]},"a":{"dtype":"BOOL","shape":[4,1],"data_offsets":[0,4]}}"#,
        r#"{"e":{"dtype":"I64","shape":[0,9],"data_offsets":[0,0]},"f":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}"#,
    ]
    .map(with);
    let seeds = [texts[0].as_slice(), &texts[1], &texts[2]];
    let words: [&[u8]; 14] = [
        b"\"dtype\":",
        b"\"shape\":[",
        b"\"data_offsets\":[0,",
        b"\"__metadata__\":{",
        b"18446744073709551615",
        b"-1",
        b"1e9",
        b"{",
        b"}",
        b"]",
        b",",
        b"\\u0000",
        b"\"w\":",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    driver::run(&seeds, &words, target);
}
