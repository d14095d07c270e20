//! The command `polyduct`, as the wheel carries it.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    polyduct_cli::main()
}
