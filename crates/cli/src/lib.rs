//! The polyduct command. One file or directory per subcommand.
//!
//! A library, so that the wheel, which carries the command, too, builds it together with the Python module.
#![forbid(unsafe_code)]

mod bench;
mod config;
mod cp;
mod doctor;
mod gateway;
mod ls;
mod manual;
mod mpi;
mod open_files;
mod pump;
mod run;
mod show;
mod signals;
mod store;
#[doc(hidden)]
pub mod svg;
#[doc(hidden)]
pub mod text;

#[doc(hidden)]
pub use bench::limits;
use polyduct::layout;
#[doc(hidden)]
pub use show::unit_colour;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Moves distributed arrays between parallel programs, files and devices.
#[derive(Parser)]
#[command(name = "polyduct", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a pipeline of parallel programs: "-n 4 a | -n 3 b > out.npy".
    Run(run::RunArgs),
    /// Draw layouts, and the traffic between two: "block,*" "*,block" --shape 12x8 --units 4,3.
    Show(show::ShowArgs),
    /// Copy an array, or several with names, between files and pipes: in.npy out.raw.
    Cp(cp::CpArgs),
    /// List the arrays of a file, a set of files, a group, a store or a pipe: model.safetensors.
    Ls(ls::LsArgs),
    /// Write an array's bytes, row-major, to standard output: store:DIR/NAME, in.npy.
    Cat(pump::CatArgs),
    /// Make stores over many disks, look at them, and look after them.
    Store(store::StoreArgs),
    /// Carry streams of programs to sockets, other sites and browsers, or show what a gateway carries: north.
    Gateway(gateway::GatewayArgs),
    /// Say what this machine offers, what limits are in force, and what was left behind.
    Doctor(doctor::DoctorArgs),
    /// Run an MPI program over polyduct: mpirun -n 4 ./a.out.
    Mpi(mpi::MpiArgs),
    /// Say where the library for C and Fortran is: --cflags --libs.
    Config(config::ConfigArgs),
    /// Print what a shell needs to complete this command: bash, zsh, fish, ...
    Completions(manual::CompletionsArgs),
    /// Write the manual pages of this command into a directory.
    Man(manual::ManArgs),
    /// Carry standard input into a port.
    #[command(hide = true)]
    PumpIn(pump::PumpArgs),
    /// Carry a port to standard output.
    #[command(hide = true)]
    PumpOut(pump::PumpArgs),
    /// Say what this machine's memory, links and disk can do, and what polyduct reaches of it.
    Bench(bench::BenchArgs),
    /// One process of a measurement.
    #[command(hide = true)]
    BenchUnit(bench::UnitArgs),
    /// Start one process of a run.
    #[command(hide = true)]
    Launch(run::LaunchArgs),
    /// Be one rank of a run's MPI program.
    #[command(hide = true)]
    Rank(run::RankArgs),
    /// End the processes of a run that died.
    #[command(hide = true)]
    Keeper,
}

/// Does what the arguments of this process say; gives its exit status. Ends the process by itself where they
/// say nothing that it knows.
pub fn main() -> ExitCode {
    signals::outlive_file_limit();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(words) => return ExitCode::from(text::print_usage(&words)),
    };
    let status = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Show(args) => show::show(&args),
        Command::Cp(args) => cp::cp(args),
        Command::Ls(args) => ls::ls(&args),
        Command::Cat(args) => pump::cat(&args),
        Command::Store(args) => store::store(&args),
        Command::Gateway(args) => gateway::gateway(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Mpi(args) => mpi::mpi(&args),
        Command::Config(args) => config::config(&args),
        Command::Completions(args) => manual::completions(&args, &mut Cli::command()),
        Command::Man(args) => manual::man(&args, Cli::command()),
        Command::PumpIn(args) => pump::pump_in(&args),
        Command::PumpOut(args) => pump::pump_out(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::BenchUnit(args) => bench::unit(&args),
        Command::Launch(args) => run::launch(&args),
        Command::Rank(args) => run::rank(&args),
        Command::Keeper => run::keeper(),
    };
    ExitCode::from(status)
}
