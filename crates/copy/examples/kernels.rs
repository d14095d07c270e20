//! Figures of the kernels on this machine, one thread, as ratios to libc's memcpy of the same bytes.
//!
//! `cargo run --release -p polyduct-copy --example kernels [part of a name]`
//!
//! Each case is checked against the obvious walk of its table first. Then it and memcpy take turns in warm
//! buffers (`RUNS` times, 9 by default); the figures are the ratios of the medians and of the best. `short`
//! marks a case in which both miss the aim.
//!
//! Bias: one process, anonymous 4 KiB pages, buffers that start pages; time is what the thread had of a
//! processor, not the clock's; memcpy copies the same number of source bytes between the same buffers, from
//! their starts, so that for a source with gaps it touches fewer lines.

use half::{bf16, f16};
use polyduct_copy::{Conversion, Dest, Kernels, Level, Source};
use polyduct_layout::{Loop, OpTable};
use std::hint::black_box;

/// Turns that each of the two takes.
fn runs() -> usize {
    std::env::var("RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(9)
}

fn l(count: u64, src_step: i64, dst_step: i64) -> Loop {
    Loop { count, src_step, dst_step }
}

fn table(elem_len: u64, src: u64, dst: u64, nest: &[Loop]) -> OpTable {
    let mut table = OpTable::new(elem_len);
    table.push(src, dst, nest);
    table
}

/// One dimension of a block-cyclic transfer: (source offset, destination offset, run, count, source and
/// destination step).
type Family = (u64, u64, u64, u64, i64, i64);

/// Where unit `p` of `units` with blocks of `from` meets unit `q` with blocks of `to`: found by walking, not
/// by the closed form of the planner.
fn families(n: u64, units: u64, (from, p): (u64, u64), (to, q): (u64, u64)) -> Vec<Family> {
    let local = |at: u64, block: u64| at / (block * units) * block + at % block;
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for at in (0..n).filter(|at| at / from % units == p && at / to % units == q) {
        match runs.last_mut() {
            Some((start, len)) if *start + *len == at && at % from != 0 && at % to != 0 => *len += 1,
            _ => runs.push((at, 1)),
        }
    }
    let period = (1..).map(|k| k * from * units).find(|l| l % (to * units) == 0).unwrap();
    let mut families: Vec<(u64, Family)> = Vec::new();
    for (start, len) in runs {
        let (s, d) = (local(start, from), local(start, to));
        match families.iter_mut().find(|(first, f)| first % period == start % period && f.2 == len) {
            Some((first, f)) => {
                (f.3, f.4, f.5) = (
                    f.3 + 1,
                    local(*first + period, from) as i64 - f.0 as i64,
                    local(*first + period, to) as i64 - f.1 as i64,
                )
            }
            None => families.push((start, (s, d, len, 1, 0, 0))),
        }
    }
    families.into_iter().map(|(_, f)| f).collect()
}

/// Block-cyclic 64 to 96 of an n × n array of f32 over a grid of rows × cols: a table for each pair of units.
fn block_cyclic(n: u64, rows: u64, cols: u64) -> Vec<OpTable> {
    let mut tables = Vec::new();
    for pair in 0..rows * rows * cols * cols {
        let (p, q) = (pair / (rows * cols), pair % (rows * cols));
        let mut table = OpTable::new(4);
        let width = |unit: u64, block: u64| (0..n).filter(|at| at / block % cols == unit).count() as i64;
        let (src_ld, dst_ld) = (width(p % cols, 64), width(q % cols, 96));
        for r in families(n, rows, (64, p / cols), (96, q / cols)) {
            for c in families(n, cols, (64, p % cols), (96, q % cols)) {
                let nest = [
                    l(r.3, r.4 * src_ld, r.5 * dst_ld),
                    l(r.2, src_ld, dst_ld),
                    l(c.3, c.4, c.5),
                    l(c.2, 1, 1),
                ];
                table.push(r.0 * src_ld as u64 + c.0, r.1 * dst_ld as u64 + c.1, &nest);
            }
        }
        table.sort();
        tables.push(table);
    }
    tables
}

enum Way {
    Copy,
    Crc,
    Convert(Conversion),
}

struct Case {
    name: &'static str,
    aim: f64,
    tables: Vec<OpTable>,
    way: Way,
}

impl Case {
    fn bytes(&self) -> usize {
        self.tables.iter().map(|t| t.len_bytes() as usize).sum()
    }

    fn run(&self, kernels: Kernels, src: &[u8], dst: &mut [u8]) {
        for table in &self.tables {
            let (src, dst) = (Source::from(src), Dest::from(&mut *dst));
            match self.way {
                Way::Copy => kernels.execute(table, src, dst).unwrap(),
                Way::Crc => drop(black_box(kernels.execute_crc(table, src, dst).unwrap())),
                Way::Convert(c) => kernels.execute_convert(table, c, src, dst).unwrap(),
            }
        }
    }

    fn walk(&self, src: &[u8], dst: &mut [u8]) {
        for table in &self.tables {
            let (from, to) = match self.way {
                Way::Convert(c) => (c.src_len(), c.dst_len()),
                _ => (table.elem_len(), table.elem_len()),
            };
            table.for_each_run(|s, d, run| {
                let (s, d) = ((s * from) as usize, (d * to) as usize);
                let src = &src[s..s + (run * from) as usize];
                let dst = &mut dst[d..d + (run * to) as usize];
                match self.way {
                    Way::Convert(c) => {
                        for (x, y) in src.chunks_exact(from as usize).zip(dst.chunks_exact_mut(to as usize)) {
                            convert(c, x, y);
                        }
                    }
                    _ => dst.copy_from_slice(src),
                }
            });
        }
    }
}

fn convert(conversion: Conversion, x: &[u8], y: &mut [u8]) {
    let single = || f32::from_ne_bytes(x.try_into().unwrap());
    match conversion {
        Conversion::F32ToBf16 => y.copy_from_slice(&bf16::from_f32(single()).to_ne_bytes()),
        Conversion::F32ToF16 => y.copy_from_slice(&f16::from_f32(single()).to_ne_bytes()),
        Conversion::F32ToF64 => y.copy_from_slice(&(single() as f64).to_ne_bytes()),
        Conversion::F64ToF32 => {
            y.copy_from_slice(&(f64::from_ne_bytes(x.try_into().unwrap()) as f32).to_ne_bytes())
        }
        Conversion::Bf16ToF32 => {
            y.copy_from_slice(&bf16::from_ne_bytes(x.try_into().unwrap()).to_f32().to_ne_bytes())
        }
        Conversion::F16ToF32 => {
            y.copy_from_slice(&f16::from_ne_bytes(x.try_into().unwrap()).to_f32().to_ne_bytes())
        }
    }
}

fn transpose(elem: u64, rows: u64, cols: u64) -> Vec<OpTable> {
    vec![table(elem, 0, 0, &[l(rows, cols as i64, 1), l(cols, 1, rows as i64)])]
}

/// An array of n³ elements with its dimensions in another order.
fn permute(elem: u64, n: u64, order: [usize; 3]) -> Vec<OpTable> {
    let step = |k: usize| (n as i64).pow(2 - k as u32);
    let nest: Vec<Loop> = (0..3).map(|k| l(n, step(order[k]), step(k))).collect();
    vec![table(elem, 0, 0, &nest)]
}

fn column_block(elem: u64, rows: u64, cols: u64, at: u64, width: u64) -> Vec<OpTable> {
    vec![table(elem, at, 0, &[l(rows, cols as i64, width as i64), l(width, 1, 1)])]
}

/// All column blocks of an array, one after the other.
fn column_blocks(rows: u64, cols: u64, width: u64) -> Vec<OpTable> {
    let mut table = OpTable::new(1);
    for block in 0..cols / width {
        let nest = [l(rows, cols as i64, width as i64), l(width, 1, 1)];
        table.push(block * width, block * rows * width, &nest);
    }
    vec![table]
}

fn cases() -> Vec<Case> {
    let case = |name, aim, tables| Case { name, aim, tables, way: Way::Copy };
    let to = |name, aim, c: Conversion, tables| Case { name, aim, tables, way: Way::Convert(c) };
    let run = |elem: u64, n: u64| vec![table(elem, 0, 0, &[l(n, 1, 1)])];
    vec![
        case("one run of 64 MiB", 1.0, run(1, 64 << 20)),
        case("C to F 4096² f32", 0.7, transpose(4, 4096, 4096)),
        case("C to F 4096² f64", 0.7, transpose(8, 4096, 4096)),
        case("C to F 4095x4097 f32", 0.5, transpose(4, 4095, 4097)),
        case("C to F 4096² f32, off lines", 0.7, vec![table(4, 4, 4, &[l(4096, 4096, 1), l(4096, 1, 4096)])]),
        case("C to F 8192² u8", 0.5, transpose(1, 8192, 8192)),
        case("C to F 8192x4096 f16", 0.5, transpose(2, 8192, 4096)),
        case("C to F 2048² complex f64", 0.5, transpose(16, 2048, 2048)),
        case("C to F 2048² of 12 bytes", 0.2, transpose(12, 2048, 2048)),
        case("C to F 512² f32 (cached)", 0.5, transpose(4, 512, 512)),
        case("C to F 1024² f32 (cached)", 0.5, transpose(4, 1024, 1024)),
        case("C to F 500x300 f32 (cached)", 0.5, transpose(4, 500, 300)),
        case("256³ f32, dimensions 2,1,0", 0.5, permute(4, 256, [2, 1, 0])),
        case("256³ f32, dimensions 0,2,1", 0.5, permute(4, 256, [0, 2, 1])),
        case("256³ f32, dimensions 2,0,1", 0.5, permute(4, 256, [2, 0, 1])),
        case("256³ f32, dimensions 1,0,2", 0.8, permute(4, 256, [1, 0, 2])),
        case(
            "planes to pixels 4096² x 3 u8",
            0.1,
            vec![table(1, 0, 0, &[l(3, 1 << 24, 1), l(1 << 24, 1, 3)])],
        ),
        to("f32 to bf16, one run", 1.0, Conversion::F32ToBf16, run(4, 16 << 20)),
        to("f32 to f16, one run", 1.0, Conversion::F32ToF16, run(4, 16 << 20)),
        to("f64 to f32, one run", 1.0, Conversion::F64ToF32, run(8, 8 << 20)),
        to("bf16 to f32, one run", 0.5, Conversion::Bf16ToF32, run(2, 16 << 20)),
        to("f32 to bf16, C to F 4096²", 0.5, Conversion::F32ToBf16, transpose(4, 4096, 4096)),
        to("f32 to bf16, runs of 64 floats", 0.5, Conversion::F32ToBf16, column_block(4, 65536, 256, 0, 64)),
        to("f32 to bf16, runs of 8 floats", 0.3, Conversion::F32ToBf16, column_block(4, 1 << 20, 16, 0, 8)),
        case("4096² f32 to 2048 columns", 0.95, column_block(4, 4096, 4096, 2048, 2048)),
        case("runs of 1 KiB of 2 KiB", 0.8, column_block(1, 1 << 16, 2048, 0, 1024)),
        case("runs of 512 B of 1 KiB", 0.8, column_block(1, 1 << 17, 1024, 512, 512)),
        case("runs of 100 B of 128 B", 0.7, column_block(1, 1 << 19, 128, 5, 100)),
        case("1024² bytes to columns, 512 B", 0.8, column_blocks(1024, 1024, 512)),
        case("1024² bytes to columns, 256 B", 0.8, column_blocks(1024, 1024, 256)),
        case("1024² bytes to columns, 64 B", 0.8, column_blocks(1024, 1024, 64)),
        case("64 MiB to columns, 64 B runs", 0.5, column_blocks(1 << 16, 1024, 64)),
        case("64 MiB to columns, 256 B runs", 0.8, column_blocks(1 << 16, 1024, 256)),
        case("block-cyclic 64 to 96, 1x2", 0.8, block_cyclic(4096, 1, 2)),
        case("block-cyclic 64 to 96, 2x2", 0.8, block_cyclic(4096, 2, 2)),
        case("every second f32, to dense", 0.5, vec![table(4, 0, 0, &[l(8 << 20, 2, 1)])]),
        case("dense to every second f32", 0.3, vec![table(4, 0, 0, &[l(8 << 20, 1, 2)])]),
        Case { name: "64 MiB with CRC32C", aim: 0.5, tables: run(1, 64 << 20), way: Way::Crc },
        Case {
            name: "8 KiB runs with CRC32C",
            aim: 0.5,
            tables: column_block(4, 4096, 4096, 2048, 2048),
            way: Way::Crc,
        },
    ]
}

/// Seconds that this thread has had a processor: other processes on the machine cost less of the figure this
/// way.
#[cfg(target_os = "linux")]
fn now() -> f64 {
    extern "C" {
        fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
    }
    const THREAD_CPUTIME: i32 = 3;
    let mut time = [0; 2];
    // SAFETY: the C library's function, with room for a timespec of two 64-bit words.
    unsafe { clock_gettime(THREAD_CPUTIME, &mut time) };
    time[0] as f64 + time[1] as f64 * 1e-9
}

/// Seconds by the clock on the wall.
#[cfg(not(target_os = "linux"))]
fn now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64())
}

/// The median and the least.
fn sum_up(mut times: Vec<f64>) -> [f64; 2] {
    times.sort_by(f64::total_cmp);
    [times[times.len() / 2], times[0]]
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let level = std::env::args().nth(2).unwrap_or_default();
    let kernels = Level::ALL.into_iter().find(|l| format!("{l:?}").to_lowercase() == level);
    let kernels = kernels.and_then(Kernels::at).unwrap_or(Kernels::detect());
    println!("{kernels:?}");
    let len = 160 << 20;
    // From the start of a page, as slots are.
    let mut src = vec![0u8; len + 4096];
    let page = src.as_ptr().addr().wrapping_neg() % 4096;
    let src = &mut src[page..page + len];
    for (i, x) in src.chunks_exact_mut(4).enumerate() {
        x.copy_from_slice(&(i as f32 * 0.37 - 1e6).to_ne_bytes());
    }
    let (mut dst, mut want) = (vec![1u8; len + 4096], vec![1u8; len]);
    let page = dst.as_ptr().addr().wrapping_neg() % 4096;
    let mut dst = &mut dst[page..page + len];
    println!(
        "{:34} {:>8} {:>9} {:>9} {:>7} {:>5} {:>9} {:>9} {:>7}",
        "", "MiB", "GB/s", "memcpy", "ratio", "aim", "best", "memcpy", "ratio"
    );
    for case in cases().into_iter().filter(|c| c.name.contains(&only)) {
        dst.fill(0x5a);
        want.fill(0x5a);
        case.walk(src, &mut want);
        case.run(kernels, src, dst);
        assert!(*dst == want, "{} is wrong", case.name);
        let bytes = case.bytes();
        let repeats = (32 << 20) / bytes.min(32 << 20);
        let (mut ours, mut base) = (Vec::new(), Vec::new());
        for _ in 0..runs() {
            let start = now();
            for _ in 0..repeats {
                black_box(&mut dst)[..bytes].copy_from_slice(&black_box(&*src)[..bytes]);
            }
            base.push(now() - start);
            let start = now();
            for _ in 0..repeats {
                case.run(kernels, black_box(&*src), black_box(&mut dst));
            }
            ours.push(now() - start);
        }
        let rate = |times| sum_up(times).map(|t| bytes as f64 * repeats as f64 / t / 1e9);
        let ([ours, our_best], [base, base_best]) = (rate(ours), rate(base));
        let mib = bytes as f64 / (1 << 20) as f64;
        let (ratio, best) = (ours / base, our_best / base_best);
        let mark = if ratio.max(best) < case.aim { "  short" } else { "" };
        let aim = case.aim;
        println!(
            "{:34} {mib:>8.1} {ours:>9.2} {base:>9.2} {ratio:>7.2} {aim:>5.2} {our_best:>9.2} \
            {base_best:>9.2} {best:>7.2}{mark}",
            case.name
        );
    }
    tiny();
}

/// The time of a table that moves eight bytes, and of one that moves four runs of eight.
fn tiny() {
    let (src, mut dst) = ([7u8; 256], [0u8; 256]);
    for (name, table) in [
        ("8 bytes", table(8, 1, 2, &[])),
        ("4 runs of 8 bytes", table(8, 1, 2, &[l(4, 3, 5)])),
        ("2 operations of 8 bytes", {
            let mut two = table(8, 1, 2, &[]);
            two.push(5, 9, &[]);
            two
        }),
    ] {
        let times = (0..runs()).map(|_| {
            let start = now();
            for _ in 0..100_000 {
                polyduct_copy::execute(black_box(&table), Source::from(&src[..]), Dest::from(&mut dst[..]))
                    .unwrap();
            }
            (now() - start) / 100_000.0 * 1e9
        });
        println!("{name:34} {:.1} ns", sum_up(times.collect())[1]);
    }
}
