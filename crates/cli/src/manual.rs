//! `polyduct completions` and `polyduct man`: what shells and `man` know of the command, from its own
//! definitions.

use crate::text;
use std::path::PathBuf;

/// Arguments of `polyduct completions`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  polyduct completions bash > ~/.local/share/bash-completion/completions/polyduct
  polyduct completions zsh > ~/.zfunc/_polyduct
  polyduct completions fish > ~/.config/fish/completions/polyduct.fish")]
pub struct CompletionsArgs {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Arguments of `polyduct man`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  polyduct man ~/.local/share/man/man1 && man polyduct-cp")]
pub struct ManArgs {
    /// A directory, which is made if need be: polyduct.1, polyduct-cp.1, ...
    dir: PathBuf,
}

/// Prints the completions for a shell; gives the exit status.
pub fn completions(args: &CompletionsArgs, command: &mut clap::Command) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "polyduct", &mut script);
    u8::from(!text::print(&String::from_utf8_lossy(&script)))
}

/// Writes the manual pages; gives the exit status.
pub fn man(args: &ManArgs, command: clap::Command) -> u8 {
    let written =
        std::fs::create_dir_all(&args.dir).and_then(|()| clap_mangen::generate_to(command, &args.dir));
    match written {
        Ok(()) => 0,
        Err(error) => {
            text::say!("polyduct: {}: {error}", args.dir.display());
            1
        }
    }
}
