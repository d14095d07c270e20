//! Offsets and steps beyond 2³¹ and 2³², in memories of 5 GiB of which only a few pages are touched.

mod common;

use common::{all_kernels, l};
use polyduct_copy::{Dest, Source};
use polyduct_layout::{Loop, OpTable};

const FAR: u64 = 1 << 32;
const LEN: usize = 5 << 30;

/// Fills what the tables read, so that no two places look alike, and copies by each kernel; every run must
/// have come.
fn check(elem: u64, ops: &[(u64, u64, &[Loop])]) {
    let (mut src, mut dst) = (vec![0_u8; LEN], vec![0_u8; LEN]);
    let mut table = OpTable::new(elem);
    ops.iter().for_each(|(from, to, nest)| table.push(from / elem, to / elem, nest));
    let mut bytes = 0;
    table.for_each_run(|from, _, run| {
        for at in from * elem..(from + run) * elem {
            src[at as usize] = (at * 31 + (at >> 32) * 7 + 1) as u8 | 1;
        }
    });
    for kernels in all_kernels() {
        kernels.execute(&table, Source::from(&src[..]), Dest::from(&mut dst[..])).unwrap();
        table.for_each_run(|from, to, run| {
            let (from, to, n) = ((from * elem) as usize, (to * elem) as usize, (run * elem) as usize);
            assert_eq!(src[from..from + n], dst[to..to + n], "from {from} to {to}, {kernels:?}");
            dst[to..to + n].fill(0);
            bytes += n;
        });
    }
    assert!(bytes > 0);
}

#[test]
fn runs_across_and_beyond_four_gibibytes() {
    check(1, &[(FAR - 1000, FAR / 2 - 500, &[l(3000, 1, 1)]), (77, FAR + 5, &[l(10_000, 1, 1)])]);
    check(4, &[(FAR - 64, FAR + 4096, &[l(32, 1, 1)]), (FAR + 8192, 0, &[l(4, 64, 100), l(33, 1, 1)])]);
}

#[test]
fn steps_beyond_two_gibibytes() {
    let far = FAR as i64;
    check(1, &[(10, 3, &[l(2, far + 99, far / 2 + 7), l(3, far / 16, 4096), l(200, 1, 1)])]);
    // Backwards, and a transpose whose rows lie far apart.
    check(8, &[(FAR, 8, &[l(2, -far / 8, far / 16), l(16, 1, 1)])]);
    check(4, &[(0, FAR, &[l(8, far / 32, 1), l(16, 1, 8)])]);
}
