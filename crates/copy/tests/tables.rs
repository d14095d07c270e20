//! Tables, carried out by the kernels of every level, against the obvious way.

mod common;

use common::{all_kernels, dest, l, naive, random_table, source, Rng};
use polyduct_copy::{as_shared, execute, execute_part, CopyError, Dest, Kernels, Source};
use polyduct_layout::OpTable;
use proptest::prelude::*;

/// Compares all ways to carry out a table without conversion.
fn check(table: &OpTable, rng: &mut Rng) {
    let (src, at) = source(rng, table);
    let src = &src[at..];
    let (mut got, start) = dest(rng, (table.dst_extent() * table.elem_len()) as usize);
    let crc = naive(table, src, &mut got[start..]);
    let want = got.clone();
    let mut compare = |what: &str, f: &mut dyn FnMut(Dest<'_>)| {
        got.fill(0xa5);
        f(Dest::from(&mut got[start..]));
        assert!(got == want, "{what}: {table:?}");
    };
    for k in all_kernels() {
        compare(&format!("{k:?}"), &mut |to| k.execute(table, src.into(), to).unwrap());
        compare(&format!("crc {k:?}"), &mut |to| assert_eq!(k.execute_crc(table, src.into(), to), Ok(crc)));
        for parts in [2, 3, 7] {
            compare(&format!("{parts} parts {k:?}"), &mut |mut to| {
                for part in (0..parts).rev() {
                    k.execute_part(table, part, parts, src.into(), to.reborrow()).unwrap();
                }
            });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn random_tables_match_the_obvious_way(seed: u64, elem_len in 1u64..=24, most in 1u64..6000) {
        let mut rng = Rng(seed);
        let table = random_table(&mut rng, elem_len, most);
        check(&table, &mut rng);
    }

    #[test]
    fn random_tables_of_usual_elements_match(seed: u64, power in 0u32..5, most in 1u64..20000) {
        let mut rng = Rng(seed);
        let table = random_table(&mut rng, 1 << power, most);
        check(&table, &mut rng);
    }
}

#[test]
fn every_small_transpose_matches() {
    let mut rng = Rng(1);
    let sides = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 130];
    for elem in [1, 2, 3, 4, 8, 12, 16, 24] {
        for rows in sides {
            for cols in sides {
                let src_ld = cols as i64 + rng.pick(&[0, 0, 1, 16]);
                let dst_ld = rows as i64 + rng.pick(&[0, 0, 5, 64]);
                let mut table = OpTable::new(elem);
                table.push(0, 0, &[l(rows, src_ld, 1), l(cols, 1, dst_ld)]);
                let src = rng.bytes((table.src_extent() * elem) as usize);
                let (blank, start) = dest(&mut rng, (table.dst_extent() * elem) as usize);
                let mut want = blank.clone();
                naive(&table, &src, &mut want[start..]);
                for k in all_kernels() {
                    let mut got = blank.clone();
                    k.execute(&table, src[..].into(), (&mut got[start..]).into()).unwrap();
                    assert!(got == want, "{k:?} {table:?}");
                }
            }
        }
    }
}

#[test]
fn large_planes_match() {
    let mut rng = Rng(2);
    let planes = [
        (4, 700, 600, 710),
        (4, 512, 512, 512),
        (2, 1100, 300, 1120),
        (1, 1500, 700, 1503),
        (8, 300, 333, 333),
    ];
    for (elem, rows, cols, ld) in planes {
        let mut transpose = OpTable::new(elem);
        let src_plane = (rows * cols) as i64;
        transpose.push(3, 5, &[l(2, src_plane, ld * cols as i64), l(rows, cols as i64, 1), l(cols, 1, ld)]);
        check(&transpose, &mut rng);
        let mut block = OpTable::new(elem);
        block.push(7, 0, &[l(rows, cols as i64 + 9, cols as i64), l(cols, 1, 1)]);
        check(&block, &mut rng);
    }
}

#[test]
fn every_run_length_and_alignment_matches() {
    let mut rng = Rng(3);
    let src = rng.bytes(4096);
    for n in (0..300).chain([511, 512, 513, 1000, 1024, 1025, 1600, 2047, 2048, 3000]) {
        for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 60), (64, 63), (17, 17)] {
            for k in all_kernels() {
                for copy in [Kernels::memcpy, Kernels::hand_over] {
                    let mut got = vec![0xa5; n + 256];
                    let at = got.as_ptr().addr().wrapping_neg() % 64 + to;
                    copy(k, (&mut got[at..at + n]).into(), src[from..from + n].into()).unwrap();
                    assert_eq!(&got[at..at + n], &src[from..from + n]);
                    assert!(got[..at].iter().chain(&got[at + n..]).all(|b| *b == 0xa5));
                }
            }
        }
    }
}

#[test]
fn strided_runs_of_every_length_match() {
    let mut rng = Rng(4);
    for n in (1..140).chain([255, 256, 257, 1023, 1024, 1025, 1100, 1500]) {
        for (src_gap, dst_gap) in [(0, 5), (5, 0), (64, 64), (1, 128 - n % 64)] {
            let mut table = OpTable::new(1);
            let (s, d) = (n + src_gap, n + dst_gap);
            table.push(0, 0, &[l(4, 9 * s, 9 * d), l(9, s, d), l(n as u64, 1, 1)]);
            check(&table, &mut rng);
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_before_a_byte_moves() {
    let mut table = OpTable::new(4);
    table.push(1, 2, &[l(3, 5, 7), l(2, 1, 1)]);
    // Reads up to element 12, writes up to element 18.
    let (src, mut dst) = (vec![1u8; 52], vec![0u8; 72]);
    let short = execute(&table, src[..51].into(), (&mut dst[..]).into());
    assert_eq!(short, Err(CopyError::SourceTooShort { need_bytes: 52, have_bytes: 51 }));
    let short = execute(&table, src[..].into(), (&mut dst[..71]).into());
    assert_eq!(short, Err(CopyError::DestTooShort { need_bytes: 72, have_bytes: 71 }));
    assert!(dst.iter().all(|b| *b == 0));
    let none = execute_part(&table, 3, 3, src[..].into(), (&mut dst[..]).into());
    assert_eq!(none, Err(CopyError::NoSuchPart { part: 3, parts: 3 }));
    let mut bytes = vec![0u8; 100];
    let shared = as_shared(&mut bytes);
    assert_eq!(execute(&table, shared[..60].into(), shared[20..].into()), Err(CopyError::Overlap));
    assert_eq!(execute(&table, src[..].into(), (&mut dst[..]).into()), Ok(()));
    assert_eq!(dst.iter().map(|b| *b as usize).sum::<usize>(), 24);
    for copy in [Kernels::memcpy, Kernels::hand_over] {
        let long = copy(Kernels::detect(), (&mut dst[..10]).into(), src[..11].into());
        assert_eq!(long, Err(CopyError::DestTooShort { need_bytes: 11, have_bytes: 10 }));
        let shared = as_shared(&mut bytes);
        let same = copy(Kernels::detect(), shared[..60].into(), shared[40..100].into());
        assert_eq!(same, Err(CopyError::Overlap));
    }
}

#[test]
fn sizes_beyond_memory_are_refused() {
    let (src, mut dst) = ([0u8; 64], [0u8; 64]);
    let nests = [
        (u64::MAX, l(2, 1, 1)),
        (8, l(1 << 40, 1 << 20, 1)),
        (8, l(1 << 40, 1, 1 << 20)),
        (1 << 62, l(7, 1, 1)),
    ];
    for (elem, nest) in nests {
        let mut table = OpTable::new(elem);
        table.push(0, 0, &[nest]);
        for k in all_kernels() {
            let refused = k.execute(&table, src[..].into(), (&mut dst[..]).into());
            assert!(matches!(
                refused,
                Err(CopyError::SourceTooShort { .. } | CopyError::DestTooShort { .. })
            ));
        }
    }
}

#[test]
fn nothing_is_copied_from_nothing() {
    let mut none: [u8; 0] = [];
    for elem in [0, 1, 8, u64::MAX] {
        let mut table = OpTable::new(elem);
        table.push(5, 5, &[l(0, 1, 1), l(3, 9, 9)]);
        for k in all_kernels() {
            assert_eq!(k.execute(&table, Source::from(&[0u8; 0][..]), Dest::from(&mut none[..])), Ok(()));
            assert_eq!(k.execute_crc(&table, Source::from(&[0u8; 0][..]), Dest::from(&mut none[..])), Ok(0));
        }
    }
    // Elements of no bytes move nothing.
    let mut table = OpTable::new(0);
    table.push(0, 0, &[l(3, 2, 2)]);
    assert_eq!(execute(&table, Source::from(&[0u8; 0][..]), Dest::from(&mut none[..])), Ok(()));
}

#[test]
fn elements_larger_than_any_buffer_are_copied() {
    let mut rng = Rng(5);
    let mut table = OpTable::new(100_000);
    table.push(0, 1, &[l(2, 2, 3), l(2, 1, 1)]);
    check(&table, &mut rng);
}

#[test]
fn threads_share_a_table() {
    let mut table = OpTable::new(4);
    table.push(0, 0, &[l(300, 500, 1), l(500, 1, 300)]);
    let src = Rng(6).bytes(600_000);
    let (mut want, mut got) = (vec![0; 600_000], vec![0; 600_000]);
    naive(&table, &src, &mut want);
    let shared = as_shared(&mut got);
    std::thread::scope(|scope| {
        for part in 0..3 {
            let (table, src) = (&table, Source::from(&src[..]));
            scope.spawn(move || execute_part(table, part, 3, src, shared.into()).unwrap());
        }
    });
    assert!(got == want);
}
