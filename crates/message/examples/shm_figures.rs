//! What messages cost between two processes of one host, beside what the machine allows.
//!
//! `cargo run --release -p polyduct-message --example shm_figures [-- --json] [--rounds N] [NAME…]`
//!
//! Both processes follow the same script, each pinned to a processor of its own. Every figure and its limit are measured in
//! turns, many short rounds of each, so that what else the machine does falls on both alike; medians are compared.

#[path = "shm_figures/crowd.rs"]
mod crowd;
#[path = "../tests/rig/mod.rs"]
mod rig;
#[path = "shm_figures/script.rs"]
mod script;

use script::{Player, SCRIPT};

fn main() {
    if crowd::took_part() {
        return;
    }
    if let Some((_, end)) = rig::role() {
        Player::new(end, false).play(&std::env::args().skip(1).collect::<Vec<_>>());
        return;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let json = args.iter().any(|a| a == "--json");
    let rounds = args.iter().skip_while(|a| *a != "--rounds").nth(1).map_or("21", |n| n);
    let names: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|a| *a == "crowd" || SCRIPT.iter().any(|s| s.name == *a))
        .collect();
    // Before this process is pinned, which its children would inherit.
    let crowd = (names.is_empty() || names.contains(&"crowd")).then(crowd::figure);
    let mut script = vec![rounds];
    script.extend(if names.is_empty() { SCRIPT.iter().map(|s| s.name).collect() } else { names });
    let end = rig::spawn_with("play", &script, &Default::default(), 64 << 20);
    let script: Vec<String> = script.into_iter().map(String::from).collect();
    let mut figures = Player::new(end, true).play(&script);
    figures.extend(crowd);
    if json {
        let rows: Vec<String> = figures.iter().map(|f| f.json()).collect();
        println!("[{}]", rows.join(",\n "));
    } else {
        figures.iter().for_each(|f| println!("{}", f.line()));
    }
}
