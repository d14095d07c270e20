//! Whatever a viewer says: it is refused, or within what the program shows, and then it has pixels for every
//! element of its window.

#![forbid(unsafe_code)]

mod driver;

use polyduct_display::client::ClientMessage;
use polyduct_display::reduce::{Reduce, Tile, MAX_PIXELS};
use polyduct_display::ViewInfo;
use polyduct_layout::ElemType;

fn target(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let want = match ClientMessage::parse(text) {
        Ok(ClientMessage::Want(want)) => want,
        Ok(ClientMessage::Ack(_) | ClientMessage::Pause | ClientMessage::Play) => return,
        Err(why) => return assert!(!why.to_string().is_empty()),
    };
    let shapes: [&[u64]; 4] = [&[], &[9], &[100, 1 << 40], &[4, 5, 6]];
    for shape in shapes {
        let view = ViewInfo { name: "u".into(), shape: shape.to_vec(), elem: ElemType::U8, owners: None };
        if want.check(&[view]).is_err() {
            continue;
        }
        let grid = want.grid().expect("a window that was checked");
        let [rows, columns] = grid.shape();
        assert!((1..=MAX_PIXELS as usize).contains(&rows) && (1..=MAX_PIXELS as usize).contains(&columns));
        assert!(want.axes.iter().zip(&want.hi).all(|(axis, hi)| *hi <= shape[*axis]));
        if rows * columns < 10_000 {
            let values = vec![0.0; rows * columns];
            assert!(Tile::from_values(&grid, Reduce::Max, grid.lo(), grid.hi(), values).is_ok());
        }
    }
}

fn main() {
    let seeds: [&[u8]; 5] = [
        br#"{"type":"ack","id":7}"#,
        br#"{"type":"pause"}"#,
        br#"{"type":"play"}"#,
        br#"{"type":"want","view":"u","axes":[0,1],"lo":[0,0],"hi":[4,5],"pixels":[480,640],"slice":3,
            "project":null,"reduce":"mean"}"#,
        br#"{"type":"want","view":"u","axes":[0],"lo":[1],"hi":[9],"pixels":[4],"slice":null,
            "project":"max","reduce":"sample"}"#,
    ];
    let words: [&[u8]; 14] = [
        b"\"type\"",
        b"\"want\"",
        b"\"axes\"",
        b"\"lo\"",
        b"\"hi\"",
        b"\"pixels\"",
        b"\"slice\"",
        b"null",
        b"1e300",
        b"-1",
        b"4097",
        b"18446744073709551615",
        b"[[[[",
        b"{\"",
    ];
    driver::run(&seeds, &words, target);
}
