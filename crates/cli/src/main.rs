//! The polyduct command; see the library beside it.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    polyduct_cli::main()
}
