//! Any bytes are the start of an .npy file or are refused; what parses prints and parses to the same.

#![forbid(unsafe_code)]

mod driver;

use polyduct_store::npy::Header;

fn target(input: &[u8]) {
    let Ok((header, data)) = Header::parse(input) else { return };
    assert!(data <= input.len());
    if let Some(printed) = header.print(header.len_bytes()) {
        assert_eq!(Header::parse(&printed), Ok((header, printed.len())));
    }
}

fn main() {
    let seeds: [&[u8]; 3] = [
        b"\x93NUMPY\x01\x00\x40\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }     \n",
        b"\x93NUMPY\x02\x00\x3c\x00\x00\x00{'descr': '|u1', 'fortran_order': True, 'shape': (7,), }    \n",
        b"\x93NUMPY\x03\x00\x38\x00\x00\x00{'descr': '|V2', 'fortran_order': False, 'shape': (), } \n",
    ];
    let words: [&[u8]; 9] =
        [b"'descr'", b"'shape'", b"True", b"(", b")", b"'", b"99999999999999999999", b"<c16", b"\\x00"];
    driver::run(&seeds, &words, target);
}
