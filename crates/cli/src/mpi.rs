//! `polyduct mpi`: runs MPI programs over polyduct, as they are.
//!
//! MPI's libraries send by libfabric, and libfabric takes providers from a directory. All that is done here
//! is to find out which MPI a launcher is of, and to tell it so.

use crate::config::package;
use crate::text::{print, print_json, say};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const AFTER_HELP: &str = "\
The command is MPI's own launcher with its arguments. MPICH and Open MPI are known, from PyPI or the system.

  polyduct mpi mpirun -n 4 ./a.out
  polyduct mpi --explain mpirun > settings.sh     # for batch scripts, which start programs themselves

Processes of one host share memory. Those of several use TCP, and need one secret in POLYDUCT_JOB_KEY: make it
with `openssl rand -hex 32`. With POLYDUCT_TRUSTED_NETWORK=1 what they send is not encrypted. A host with several
addresses says in POLYDUCT_ADDRESS which one the others reach.";

/// Arguments of `polyduct mpi`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct MpiArgs {
    /// Print the settings, as a shell takes them, and start nothing.
    #[arg(long)]
    explain: bool,
    /// Print them as JSON.
    #[arg(long, requires = "explain")]
    json: bool,
    /// The launcher, and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "MPIRUN")]
    command: Vec<OsString>,
}

/// Which MPI a launcher is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Library {
    #[serde(rename = "MPICH")]
    Mpich,
    #[serde(rename = "Open MPI")]
    OpenMpi,
}

/// What says of a process which rank it is, in Open MPI and in MPICH. A launcher sets the two of its own, and
/// leaves the others, which may be of a job that it was started in.
const OUTER: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE"];

/// How a process has its memory from glibc, unless somebody has said that. It keeps what it has freed: the
/// libraries copy what does not lie in one piece into memory that they ask for with each message, and its
/// pages would be cleared each time. glibc does the same by itself, with half of the second, in a process
/// that has once freed 32 MiB. And it asks for huge pages, of which the kernel copies from process to
/// process twice as fast.
const MEMORY: [(&str, &str); 3] = [
    ("MALLOC_MMAP_THRESHOLD_", "33554432"),
    ("MALLOC_TRIM_THRESHOLD_", "134217728"),
    ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"),
];

/// What a launcher is told.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    library: Library,
    version: String,
    environment: BTreeMap<&'static str, String>,
}

/// Does it; gives the exit status where nothing was started.
pub fn mpi(args: &MpiArgs) -> u8 {
    let settings = match Settings::find(&args.command[0], &[]) {
        Ok(settings) => settings,
        Err(why) => {
            say!("polyduct: {why}");
            return 1;
        }
    };
    if args.explain {
        let printed = if args.json { print_json(&settings) } else { print(&settings.script()) };
        return u8::from(!printed);
    }
    say!("polyduct: {}", settings.words(std::env::var_os("POLYDUCT_JOB_KEY").is_some()));
    let mut command = Command::new(&args.command[0]);
    command.args(settings.forwarding()).args(&args.command[1..]);
    settings.apply(&mut command);
    let error = command.exec();
    say!("polyduct: {}: {error}", args.command[0].display());
    127
}

/// The library that libfabric loads.
///
/// # Errors
/// In words: there is none.
pub fn provider() -> Result<PathBuf, String> {
    let path = package()?.join("lib/libpolyduct_fi.so");
    match path.is_file() {
        true => Ok(path),
        false => Err(format!("{} is not there: install polyduct again", path.display())),
    }
}

impl Settings {
    /// Those for a launcher that is started with these variables, which is asked what it is of.
    ///
    /// # Errors
    /// In words: it is none that is known, or its MPI cannot use libfabric; or the provider is not there.
    pub fn find(launcher: &OsStr, beside: &[(String, String)]) -> Result<Settings, String> {
        Settings::of(launcher, beside, provider()?)
    }

    /// Has a command's environment be that of the launcher: nothing there says any more that this process is
    /// a rank.
    pub fn apply(&self, command: &mut Command) {
        for name in OUTER {
            command.env_remove(name);
        }
        command.envs(&self.environment);
    }

    /// A launcher with its arguments, and those that a stage of a pipeline needs: more ranks than cores are
    /// as usual there as more units.
    pub fn of_a_stage(&self, command: &[String]) -> Vec<OsString> {
        let many = (self.library == Library::OpenMpi).then_some("--oversubscribe");
        let own = self.forwarding().into_iter().chain(many).map(OsString::from);
        let mut words = command.iter().map(OsString::from);
        words.next().into_iter().chain(own).chain(words).collect()
    }

    fn of(launcher: &OsStr, beside: &[(String, String)], provider: PathBuf) -> Result<Settings, String> {
        let shown = launcher.display();
        let also = beside.iter().map(|(name, value)| (name, value));
        let output = Command::new(launcher).arg("--version").envs(also).output();
        let output = output.map_err(|e| format!("{shown}: {e}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (library, version) = recognise(&said).ok_or_else(|| {
            let first = said.lines().next().unwrap_or("nothing");
            format!(
                "{shown} is no launcher of MPICH or Open MPI that is known here: `{shown} --version` says \
                 {first:?}; expected mpirun or mpiexec, and then its arguments"
            )
        })?;
        if let Some(device) = device_without_libfabric(&said) {
            return Err(format!(
                "{shown} belongs to {} {version}, which was built without libfabric (its device is \
                 {device}), so \
                 no setting has its messages go over polyduct; expected one whose device names ofi, as \
                 the package mpich of PyPI does",
                library.name()
            ));
        }
        let folder = provider.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
        let mut environment =
            BTreeMap::from([("FI_PROVIDER_PATH", folder), ("FI_PROVIDER", "polyduct".to_owned())]);
        let is_said =
            |name: &str| std::env::var_os(name).is_some() || beside.iter().any(|(said, _)| said == name);
        let memory = MEMORY.iter().filter(|(name, _)| !is_said(name));
        let own = library.own().iter().chain(memory);
        environment.extend(own.map(|(name, value)| (*name, (*value).to_owned())));
        Ok(Settings { library, version, environment })
    }

    /// For a shell.
    fn script(&self) -> String {
        let mut text = format!("# {} {} over polyduct\n", self.library.name(), self.version);
        text += &format!("unset {}\n", OUTER.join(" "));
        for (name, value) in &self.environment {
            text += &format!("export {name}='{}'\n", value.replace('\'', "'\\''"));
        }
        if self.library == Library::OpenMpi {
            let own: String = self.passed_on().map(|name| format!("-x {name} ")).collect();
            text += &format!("# On several hosts mpirun is also told: {own}-x POLYDUCT_JOB_KEY\n");
        }
        text
    }

    fn words(&self, has_key: bool) -> String {
        let far = match has_key {
            true => "TCP between hosts",
            false => "one host, since POLYDUCT_JOB_KEY is not set",
        };
        format!("{} {} over polyduct: shared memory, {far}", self.library.name(), self.version)
    }

    /// The variables of these that Open MPI's launcher does not pass on by itself.
    fn passed_on(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.environment.keys().copied().filter(|name| !name.starts_with("OMPI_"))
    }

    /// What has the launcher pass on to other hosts what it would not by itself.
    fn forwarding(&self) -> Vec<&'static str> {
        if self.library != Library::OpenMpi {
            return Vec::new();
        }
        let own = ["POLYDUCT_JOB_KEY", "POLYDUCT_TRUSTED_NETWORK", "POLYDUCT_ADDRESS", "POLYDUCT_NEAR"];
        let set = own.into_iter().filter(|name| std::env::var_os(name).is_some());
        self.passed_on().chain(set).flat_map(|name| ["-x", name]).collect()
    }
}

impl Library {
    fn name(self) -> &'static str {
        match self {
            Library::Mpich => "MPICH",
            Library::OpenMpi => "Open MPI",
        }
    }

    /// What has the library send everything by libfabric, also between processes of one host.
    fn own(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Library::Mpich => &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1")],
            // Its own ways to remote memory are not tried, nor complained about. Distributions' own settings
            // have it leave out what uses libfabric; these go before them.
            Library::OpenMpi => &[
                ("OMPI_MCA_pml", "cm"),
                ("OMPI_MCA_mtl", "ofi"),
                ("OMPI_MCA_btl", "ofi,self"),
                ("OMPI_MCA_osc", "^ucx,pt2pt"),
            ],
        }
    }
}

/// The library and version that a launcher says it is of.
fn recognise(said: &str) -> Option<(Library, String)> {
    let number = |text: &str| {
        let number = text.split_whitespace().next()?;
        number.starts_with(|c: char| c.is_ascii_digit()).then(|| number.to_owned())
    };
    // The second is what it says where it is called by another name than mpirun.
    for own in ["(Open MPI)", "(OpenRTE)"] {
        if let Some((_, rest)) = said.split_once(own) {
            return Some((Library::OpenMpi, number(rest)?));
        }
    }
    if said.contains("HYDRA") {
        let (_, rest) = said.split_once("Version:")?;
        return Some((Library::Mpich, number(rest)?));
    }
    None
}

/// What MPICH sends by, where its launcher says how it was built and libfabric (`ofi`) is not in it. A device
/// that names no network is built with libfabric.
fn device_without_libfabric(said: &str) -> Option<&str> {
    let (_, rest) = said.split_once("--with-device=")?;
    let device = rest.split([' ', '\'', '\n']).next()?;
    let has_it = device == "ch4" || device.split([':', ',']).any(|part| part == "ofi");
    (!has_it).then_some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_what_they_say() {
        let open = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n";
        assert_eq!(recognise(open), Some((Library::OpenMpi, "4.1.4".into())));
        let called_otherwise = "mpirun.openmpi (OpenRTE) 4.1.4\n";
        assert_eq!(recognise(called_otherwise), Some((Library::OpenMpi, "4.1.4".into())));
        let hydra =
            "HYDRA build details:\n    Version:                                 5.0.2\n    Release Date: x\n";
        assert_eq!(recognise(hydra), Some((Library::Mpich, "5.0.2".into())));
        for other in ["", "slurm 23.02", "mpirun (Open MPI)", "HYDRA build details:"] {
            assert_eq!(recognise(other), None, "{other:?}");
        }
    }

    #[test]
    fn an_mpich_without_libfabric_is_known_by_its_device() {
        let options =
            |device: &str| format!("Configure options:    '--with-hwloc' '{device}' 'CFLAGS=-O2'\n");
        for device in ["ch4:ucx", "ch3", "ch3:nemesis"] {
            let said = options(&format!("--with-device={device}"));
            assert_eq!(device_without_libfabric(&said), Some(device));
        }
        let plain = "Configure options:  --with-device=ch4:ucx,ofi --with-pm=hydra";
        for said in [plain, &options("--with-device=ch4:ofi"), &options("--with-device=ch4"), &options("--x")]
        {
            assert_eq!(device_without_libfabric(said), None, "{said}");
        }
    }

    #[test]
    fn settings_are_what_a_shell_takes() {
        let environment = BTreeMap::from([("FI_PROVIDER_PATH", "/it's/here".to_owned())]);
        let settings = Settings { library: Library::Mpich, version: "5.0.2".into(), environment };
        assert_eq!(
            settings.script(),
            "# MPICH 5.0.2 over polyduct\n\
             unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE\n\
             export FI_PROVIDER_PATH='/it'\\''s/here'\n"
        );
        assert!(settings.words(false).ends_with("one host, since POLYDUCT_JOB_KEY is not set"));
        let mut told = Command::new("mpirun");
        settings.apply(&mut told);
        let told: BTreeMap<_, _> = told.get_envs().collect();
        assert_eq!(told[OsStr::new("FI_PROVIDER_PATH")], Some(OsStr::new("/it's/here")));
        assert!(OUTER.iter().all(|name| told[OsStr::new(name)].is_none()));
        let command = ["mpirun", "-n", "4", "a"].map(String::from);
        assert_eq!(settings.of_a_stage(&command), command.clone().map(OsString::from));
        let open = Settings { library: Library::OpenMpi, ..settings };
        let words: Vec<_> = open.of_a_stage(&command).into_iter().map(|w| w.into_string().unwrap()).collect();
        let more = words.join(" ");
        assert!(more.starts_with("mpirun -x FI_PROVIDER_PATH") && more.ends_with("--oversubscribe -n 4 a"));
    }
}
