//! `polyduct config`: where the library for C and Fortran is, as compilers take it.

use crate::text::{print, print_json, say};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

const AFTER_HELP: &str = "\
Finds the header, the library and the Fortran module in the Python package that this command was installed with.

  cc simulate.c $(polyduct config --cflags --libs) -o simulate
  gfortran $(polyduct config --fortran) simulate.f90 $(polyduct config --libs) -o simulate
  PKG_CONFIG_PATH=$(polyduct config --pkg-config) pkg-config --cflags --libs polyduct

Without options all of it, a line each.";

/// Arguments of `polyduct config`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct ConfigArgs {
    /// Print what the compiler needs to find the header.
    #[arg(long)]
    cflags: bool,
    /// Print what the linker needs.
    #[arg(long)]
    libs: bool,
    /// Print the source of the Fortran module, which is compiled with the program.
    #[arg(long)]
    fortran: bool,
    /// Print the directory of polyduct.pc, for PKG_CONFIG_PATH.
    #[arg(long)]
    pkg_config: bool,
    /// Print all as JSON.
    #[arg(long)]
    json: bool,
}

/// What compilers are told.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Config {
    version: &'static str,
    cflags: String,
    libs: String,
    fortran: String,
    pkg_config: String,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Says it; gives the exit status.
pub fn config(args: &ConfigArgs) -> u8 {
    let package = match package() {
        Ok(package) => package,
        Err(why) => return fail(&why),
    };
    let config = Config::of(&package);
    if args.json {
        return u8::from(!print_json(&config));
    }
    let parts = [
        (args.cflags, &config.cflags),
        (args.libs, &config.libs),
        (args.fortran, &config.fortran),
        (args.pkg_config, &config.pkg_config),
    ];
    let asked: Vec<&str> = parts.iter().filter(|(asked, _)| *asked).map(|(_, text)| text.as_str()).collect();
    let printed = match asked.is_empty() {
        false => print(&format!("{}\n", asked.join(" "))),
        true => print(&format!(
            "version     {}\ncflags      {}\nlibs        {}\nfortran     {}\npkg-config  {}\n",
            config.version, config.cflags, config.libs, config.fortran, config.pkg_config
        )),
    };
    u8::from(!printed)
}

/// The Python package that this command was installed with.
///
/// # Errors
/// In words: it was not.
pub fn package() -> Result<PathBuf, String> {
    let exe = std::env::current_exe().and_then(fs::canonicalize);
    let exe = exe.map_err(|e| format!("cannot tell where this command is: {e}"))?;
    package_of(&exe).ok_or_else(|| {
        format!(
            "{} is not of an installed package of polyduct {VERSION}, which has the header and the libraries: \
             install it with pip",
            exe.display()
        )
    })
}

fn fail(words: &str) -> u8 {
    say!("polyduct: {words}");
    1
}

impl Config {
    fn of(package: &Path) -> Config {
        let path = |parts: &str| quoted(&package.join(parts).display().to_string());
        let lib = path("lib");
        Config {
            version: VERSION,
            cflags: format!("-I{}", path("include")),
            libs: format!("-L{lib} -lpolyduct -Wl,-rpath,{lib}"),
            fortran: path("include/polyduct.f90"),
            pkg_config: path("lib/pkgconfig"),
        }
    }
}

/// A path for a shell: what it would take for something else stands behind a backslash.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=".contains(c);
    path.chars().flat_map(|c| (!plain(c)).then_some('\\').into_iter().chain([c])).collect()
}

/// The Python package that a command belongs to: beside it where pip puts both.
fn package_of(exe: &Path) -> Option<PathBuf> {
    let prefix = exe.parent()?.parent()?;
    let mut found = Vec::new();
    for lib in ["lib", "lib64", "local/lib"] {
        let pythons = fs::read_dir(prefix.join(lib)).into_iter().flatten().flatten();
        for python in pythons.filter(|entry| entry.file_name().to_string_lossy().starts_with("python3")) {
            found.extend(["site-packages", "dist-packages"].map(|name| python.path().join(name)));
        }
    }
    // The newest Python last; `pip install --target` puts both into one directory.
    found.sort_by_key(|path| number(path));
    found.insert(0, prefix.to_owned());
    let packages = found.into_iter().rev().find(|packages| is_there(packages))?;
    // `lib64` may be another name of `lib`.
    fs::canonicalize(packages.join("polyduct")).ok()
}

/// The number behind the point of `python3.N`.
fn number(packages: &Path) -> u32 {
    let python = packages.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    python.and_then(|name| name.strip_prefix("python3.")?.parse().ok()).unwrap_or(0)
}

/// Whether the package is there, in this version.
fn is_there(packages: &Path) -> bool {
    packages.join("polyduct/include/polyduct.h").is_file()
        && packages.join(format!("polyduct-{VERSION}.dist-info")).is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(prefix: &Path, packages: &str, version: &str) -> PathBuf {
        let packages = prefix.join(packages);
        fs::create_dir_all(packages.join("polyduct/include")).unwrap();
        fs::write(packages.join("polyduct/include/polyduct.h"), "").unwrap();
        fs::create_dir_all(packages.join(format!("polyduct-{version}.dist-info"))).unwrap();
        fs::canonicalize(packages.join("polyduct")).unwrap()
    }

    #[test]
    fn the_package_of_this_version_is_found_beside_the_command() {
        let dir = polyduct_rig::Scratch::new("config");
        let (prefix, exe) = (dir.path(), dir.path().join("bin/polyduct"));
        assert_eq!(package_of(&exe), None);
        let target = install(prefix, ".", VERSION);
        assert_eq!(package_of(&exe), Some(target));
        let nine = install(prefix, "lib/python3.9/site-packages", VERSION);
        assert_eq!(package_of(&exe), Some(nine));
        let eleven = install(prefix, "lib/python3.11/site-packages", VERSION);
        install(prefix, "lib/python3.12/site-packages", "9.9.9");
        assert_eq!(package_of(&exe), Some(eleven));
    }

    #[test]
    fn paths_are_for_shells() {
        let config = Config::of(Path::new("/a b/polyduct"));
        assert_eq!(config.cflags, "-I/a\\ b/polyduct/include");
        let libs = "-L/a\\ b/polyduct/lib -lpolyduct -Wl,-rpath,/a\\ b/polyduct/lib";
        assert_eq!(config.libs, libs);
    }
}
