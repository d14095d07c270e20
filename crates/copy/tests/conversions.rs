//! Conversions of every level against the `half` crate and the language.

mod common;

use common::{all_kernels, dest, l, random_table, source, Rng};
use half::{bf16, f16};
use polyduct_copy::{Conversion, CopyError, Kernels};
use polyduct_layout::OpTable;
use proptest::prelude::*;

/// One element converted by the `half` crate or the language. What is not a number becomes quiet and keeps
/// its sign and upper bits.
fn one(conversion: Conversion, x: &[u8]) -> Vec<u8> {
    let single = |x: &[u8]| f32::from_ne_bytes(x.try_into().unwrap());
    match conversion {
        Conversion::F32ToBf16 => bf16::from_f32(single(x)).to_ne_bytes().to_vec(),
        Conversion::Bf16ToF32 => bf16::from_ne_bytes(x.try_into().unwrap()).to_f32().to_ne_bytes().to_vec(),
        Conversion::F32ToF16 => f16::from_f32(single(x)).to_ne_bytes().to_vec(),
        Conversion::F16ToF32 => f16::from_ne_bytes(x.try_into().unwrap()).to_f32().to_ne_bytes().to_vec(),
        Conversion::F64ToF32 => {
            let x = f64::from_ne_bytes(x.try_into().unwrap());
            let nan = x.to_bits() >> 32 & 0x8000_0000 | 0x7fc0_0000 | x.to_bits() >> 29 & 0x003f_ffff;
            let y = if x.is_nan() { f32::from_bits(nan as u32) } else { x as f32 };
            y.to_ne_bytes().to_vec()
        }
        Conversion::F32ToF64 => {
            let x = single(x);
            let bits = x.to_bits() as u64;
            let nan = (bits & 0x8000_0000) << 32 | 0x7ff8 << 48 | (bits & 0x003f_ffff) << 29;
            let y = if x.is_nan() { f64::from_bits(nan) } else { x as f64 };
            y.to_ne_bytes().to_vec()
        }
    }
}

/// The table carried out element by element.
fn naive(table: &OpTable, conversion: Conversion, src: &[u8], dst: &mut [u8]) {
    let (from, to) = (conversion.src_len(), conversion.dst_len());
    table.for_each_run(|s, d, run| {
        for i in 0..run {
            let at = |at: u64, size: u64| ((at + i) * size) as usize..((at + i + 1) * size) as usize;
            dst[at(d, to)].copy_from_slice(&one(conversion, &src[at(s, from)]));
        }
    });
}

fn check(table: &OpTable, conversion: Conversion, src: &[u8], rng: &mut Rng) {
    let (blank, start) = dest(rng, (table.dst_extent() * conversion.dst_len()) as usize);
    let mut want = blank.clone();
    naive(table, conversion, src, &mut want[start..]);
    let mut got = blank.clone();
    for k in all_kernels() {
        got.copy_from_slice(&blank);
        k.execute_convert(table, conversion, src.into(), (&mut got[start..]).into()).unwrap();
        let wrong = got.iter().zip(&want).position(|(g, w)| g != w);
        assert_eq!(
            wrong,
            None,
            "{conversion:?} {k:?} {}",
            format!("{table:?}").chars().take(500).collect::<String>()
        );
        got.copy_from_slice(&blank);
        for part in 0..3 {
            k.execute_convert_part(table, conversion, part, 3, src.into(), (&mut got[start..]).into())
                .unwrap();
        }
        assert!(got == want, "in parts: {conversion:?} {k:?} {table:?}");
    }
}

fn check_values(conversion: Conversion, src: &[u8]) {
    let mut table = OpTable::new(conversion.src_len());
    table.push(0, 0, &[l(src.len() as u64 / conversion.src_len(), 1, 1)]);
    check(&table, conversion, src, &mut Rng(1));
}

#[test]
fn every_16_bit_value_converts() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
    check_values(Conversion::Bf16ToF32, &all);
    check_values(Conversion::F16ToF32, &all);
}

#[test]
fn values_at_every_exponent_and_every_rounding_edge_convert() {
    let mut rng = Rng(7);
    let mut single = Vec::new();
    for sign_and_exponent in 0..512u32 {
        // Around the halves of what bfloat16 and half keep: ties, and one to either side.
        for kept in [0u32, 1, 2, 0x3f, 0x7f] {
            for low in [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                single.push(sign_and_exponent << 23 | kept << 16 | low);
            }
        }
        for kept in [0u32, 1, 2, 0x1ff, 0x3ff] {
            for low in [0u32, 1, 0x0fff, 0x1000, 0x1001, 0x1fff] {
                single.push(sign_and_exponent << 23 | kept << 13 | low);
            }
        }
        single.extend((0..40).map(|_| sign_and_exponent << 23 | rng.next() as u32 >> 9));
    }
    let bytes: Vec<u8> = single.iter().flat_map(|x| x.to_ne_bytes()).collect();
    for conversion in [Conversion::F32ToBf16, Conversion::F32ToF16, Conversion::F32ToF64] {
        check_values(conversion, &bytes);
    }
    let mut double = Vec::new();
    for sign_and_exponent in 0..4096u64 {
        for kept in [0u64, 1, 0x7f_ffff] {
            for low in [0u64, 1, 0x0fff_ffff, 0x1000_0000, 0x1000_0001] {
                double.push(sign_and_exponent << 52 | kept << 29 | low);
            }
        }
        double.extend((0..4).map(|_| sign_and_exponent << 52 | rng.next() >> 12));
    }
    let bytes: Vec<u8> = double.iter().flat_map(|x| x.to_ne_bytes()).collect();
    check_values(Conversion::F64ToF32, &bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn random_tables_convert(seed: u64, which in 0usize..6, most in 1u64..4000) {
        let mut rng = Rng(seed);
        let conversion = Conversion::ALL[which];
        let table = random_table(&mut rng, conversion.src_len(), most);
        let (src, at) = source(&mut rng, &table);
        check(&table, conversion, &src[at..], &mut rng);
    }
}

#[test]
fn a_large_transpose_converts() {
    let mut rng = Rng(8);
    for conversion in Conversion::ALL {
        let mut table = OpTable::new(conversion.src_len());
        table.push(0, 0, &[l(300, 301, 1), l(301, 1, 320)]);
        let (src, at) = source(&mut rng, &table);
        check(&table, conversion, &src[at..], &mut rng);
    }
}

#[test]
fn other_elements_are_refused() {
    let mut table = OpTable::new(8);
    table.push(0, 0, &[l(2, 1, 1)]);
    let (src, mut dst) = ([0u8; 16], [0u8; 16]);
    let refused = Kernels::detect().execute_convert(
        &table,
        Conversion::F32ToBf16,
        src[..].into(),
        (&mut dst[..]).into(),
    );
    assert_eq!(refused, Err(CopyError::ElementSize { table_bytes: 8, conversion_bytes: 4 }));
}
