//! Any text is a manifest of a store or is refused; one that is read prints and reads the same. Sealed again,
//! so that what stands behind the checksum is reached.

#![forbid(unsafe_code)]

mod driver;

use polyduct_store::disk::manifest::Manifest;
use polyduct_store::disk::{Fill, Meta};
use polyduct_store::volume::Geometry;

fn target(input: &[u8]) {
    let geometry = Geometry::new(2, 1, 4096).unwrap();
    if let Ok(meta) = Meta::parse("store", "name", geometry, input) {
        let rows = meta.rows(Fill::of(geometry, meta.dataset.len_bytes()));
        assert!(rows.checked_mul(geometry.row_blocks()).is_some());
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    let body = match text.ends_with('\n') {
        true => text.to_owned(),
        false => format!("{text}\n"),
    };
    let sealed = format!("{body}blake3 = \"{}\"\n", blake3::hash(body.as_bytes()));
    for text in [text, &sealed] {
        if let Ok(manifest) = Manifest::parse("store", text) {
            let printed = manifest.to_text().unwrap();
            assert_eq!(Manifest::parse("store", &printed), Ok(manifest));
        }
    }
}

fn main() {
    let seeds: [&[u8]; 3] = [
        b"version = 4\nid = \"00112233445566778899aabbccddeeff\"\ndata = 2\nparity = 1\nstripe = 4096\nunits \
            = [[\"a\"], [\"b\", \"c\"], [\"/d\"]]\n",
        b"version = 4\nid = \"ffffffffffffffffffffffffffffffff\"\ndata = 1\nparity = 0\nstripe = \
            1073741824\nunits = [[\"\\u00e4 \\\"\"]]\n",
        br#"{"shape":[2,3],"dtype":"f32","steps":5,"segments":[[0,0],[3,2]],"attributes":{"a":[1,null]}}"#,
    ];
    let words: [&[u8]; 8] =
        [b"version", b"units", b"[[", b"]]", b"18446744073709551615", b"-1", b"\"\\u0000\"", b"\"bytes(9)\""];
    driver::run(&seeds, &words, target);
}
