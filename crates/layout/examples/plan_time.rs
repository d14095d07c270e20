//! How long plans take: `cargo run --release -p polyduct-layout --example plan_time`.

use std::hint::black_box;
use std::time::Instant;

use polyduct_layout::{Dataset, ElemType, Layout, Plan};

fn main() -> Result<(), polyduct_layout::LayoutError> {
    println!("{:>9}  {:>9}  {:>8}  {:>6}  {:>9}  case", "plan", "tables", "partners", "ops", "bytes/max");
    for n in [100u64, 1_000, 10_000] {
        let shape = [n, n, n];
        let (a, b) = ("cyclic(3),cyclic(2),cyclic(2)@16x8x8", "cyclic(2),cyclic(3),cyclic(3)@12x8x8");
        time(&shape, (a, 1024), (b, 768))?;
    }
    time(&[4096, 4096], ("block,*", 64), ("*,block", 12))?;
    time(&[4096, 4096], ("block,block", 64), ("block,block;order=F", 12))?;
    time(&[4096, 4096], ("block,*", 4), ("block,*;halo=1,0", 8))?;
    time(&[1 << 20], ("cyclic(7)", 64), ("cyclic(1000)", 48))?;
    time(&[1 << 20, 256], ("block,*", 64), ("stripe(64KiB)", 8))?;
    time(&[4096, 4096], ("block,block", 64), ("stripe(64KiB)", 8))?;
    time(&[1 << 12, 1 << 12], ("block,*", 16), ("digits(4096x4x1024;unit=1)", 4))?;
    Ok(())
}

fn time(shape: &[u64], src: (&str, u64), dst: (&str, u64)) -> Result<(), polyduct_layout::LayoutError> {
    let data = Dataset::new(shape, ElemType::F32)?;
    let a = src.0.parse::<Layout>()?.bind(&data, src.1)?;
    let b = dst.0.parse::<Layout>()?.bind(&data, dst.1)?;
    let rounds = 300;
    let start = Instant::now();
    for i in 0..rounds {
        black_box(Plan::to_reader(&a, &b, i * 7 % dst.1)?);
    }
    let plan_time = start.elapsed() / rounds as u32;
    let start = Instant::now();
    for i in 0..rounds {
        let plan = Plan::to_reader(&a, &b, i * 7 % dst.1)?;
        black_box(plan.transfers().iter().map(|t| t.tables().count()).sum::<usize>());
        black_box(plan);
    }
    let all_time = start.elapsed() / rounds as u32;
    let plan = Plan::to_reader(&a, &b, 0)?;
    let ops: u64 = plan.transfers().iter().map(|t| t.ops()).sum();
    let most = plan.transfers().iter().map(|t| t.table_bytes()).max().unwrap_or(0);
    println!(
        "{plan_time:>9.1?}  {all_time:>9.1?}  {:>8}  {ops:>6}  {most:>9}  {shape:?} {} x{} -> {} x{}",
        plan.transfers().len(),
        src.0,
        src.1,
        dst.0,
        dst.1
    );
    Ok(())
}
