//! Plans the processes of a pipeline: each with its environment and the two ends that it reads and writes.
//!
//! Nothing is started or created here; everything that can be refused before a start is refused here.

mod check;

use super::pipeline::{Pipeline, Stage};
use super::stats::Mode;
use polyduct::Target;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// All processes of a run and what joins them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Name of the run.
    pub run: String,
    /// In the order in which they start.
    pub processes: Vec<Process>,
    /// One between each two stages.
    pub links: Vec<Connector>,
    /// The file, or the dataset in a store, that the last stage writes, if that stage is parallel.
    pub file: Option<PathBuf>,
    /// How many ordinary pipes the processes share ([`Source::Pipe`] and [`Sink::Pipe`] count from 0).
    pub os_pipes: usize,
    /// Command line of each stage, for messages.
    pub commands: Vec<String>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Stage that it belongs to, from 0. For a pump: the plain stage that it serves.
    pub stage: usize,
    /// Unit in the stage, from 0.
    pub unit: u32,
    pub role: Role,
    /// The process that starts this one, which the run then does not; see [`Role::Launcher`].
    pub launched_by: Option<usize>,
    pub command: Vec<String>,
    pub env: Vec<(String, String)>,
    pub stdin: Source,
    pub stdout: Sink,
}

/// What a process is in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// One of the units of a parallel stage.
    Unit,
    /// MPI's own, of a stage whose units are its ranks.
    Launcher,
    /// A plain Unix program.
    Plain,
    /// Carries a plain stage's output into a port.
    PumpIn,
    /// Carries what a parallel stage writes to a plain stage.
    PumpOut,
}

/// What a process finds as its standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Null,
    /// The run's own.
    Inherit,
    File(PathBuf),
    Pipe(usize),
}

/// What a process finds as its standard output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    /// The run's own, as text for people: prefixed if that was asked for.
    Log,
    /// The run's own, as the result of the pipeline: never touched.
    Result,
    File(PathBuf),
    Pipe(usize),
}

/// What lies between two stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connector {
    /// An ordinary pipe: neither stage is parallel.
    OsPipe,
    /// A pipe of polyduct.
    Port { url: String },
}

/// Why a run cannot start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PlanError {
    #[error("stage {stage}: command not found: {command}{hint}")]
    NotFound { stage: usize, command: String, hint: &'static str },
    #[error("stage {stage}: {command} cannot be executed: {source}")]
    NotExecutable { stage: usize, command: String, source: io::Error },
    #[error("cannot read {}: {source}", path.display())]
    Input { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {reason}", path.display())]
    Output { path: PathBuf, reason: String },
    #[error("{} is no kind of file that a parallel stage can open: name it PATH.npy, PATH.raw, \
        PATH.safetensors, PATH.zarr or store:DIR/NAME", path.display())]
    FileKind { path: PathBuf },
    #[error(transparent)]
    Store(polyduct::store::disk::StoreError),
    #[error("{} is both the input and the output; a plain program would read what it has just emptied", path.display())]
    SameFile { path: PathBuf },
}

impl PlanError {
    /// The exit status that a shell would give.
    pub fn status(&self) -> u8 {
        match self {
            PlanError::NotFound { .. } => 127,
            PlanError::NotExecutable { .. } => 126,
            PlanError::FileKind { .. } => 2,
            _ => 1,
        }
    }
}

/// Where the processes run: what a plan needs to know from outside.
pub struct Site<'a> {
    /// Name of this run, different from any other's.
    pub run: &'a str,
    /// The polyduct command itself, for the pumps.
    pub polyduct: &'a Path,
    /// Directory against which the files of `<` and `>` are meant.
    pub directory: &'a Path,
}

/// Variables that this command sets; inherited ones, of a run around this one, never reach a process.
pub const OWN_VARIABLES: [&str; 7] = [
    "POLYDUCT_UNIT",
    "POLYDUCT_UNITS",
    "POLYDUCT_PROGRAM",
    "POLYDUCT_DOMAIN",
    "POLYDUCT_IN",
    "POLYDUCT_OUT",
    "POLYDUCT_REPORT",
];

impl Plan {
    /// Works out the processes of `pipeline`.
    pub fn new(pipeline: &Pipeline, site: &Site) -> Plan {
        let stages = &pipeline.stages;
        let mut plan = Plan {
            run: site.run.to_owned(),
            processes: Vec::new(),
            links: Vec::new(),
            file: None,
            os_pipes: 0,
            commands: stages.iter().map(Stage::command_line).collect(),
        };
        for (k, pair) in stages.windows(2).enumerate() {
            plan.links.push(if pair.iter().all(|s| s.units.is_none()) {
                Connector::OsPipe
            } else {
                // Errors of the programs name the pipe: it says where it is, and then what tells the runs
                // apart.
                Connector::Port { url: format!("pipe:stage-{k}-to-{}.{}", k + 1, site.run) }
            });
        }
        let input = pipeline.input.as_ref().map(|f| located(f, site.directory));
        let output = pipeline.output.as_ref().map(|f| located(f, site.directory));
        let last = stages.last().filter(|s| s.units.is_some());
        let file = pipeline.output.as_ref().zip(last);
        plan.file = file.map(|(f, last)| opened(Some(last), f, site.directory).0);
        let mut carried = None;
        for (k, stage) in stages.iter().enumerate() {
            carried = match stage.units {
                Some(units) => {
                    plan.parallel(k, stage, units, site, input.as_deref(), output.as_deref());
                    None
                }
                None => plan.plain(k, stage, stages, site, carried, input.as_deref(), output.as_deref()),
            };
        }
        plan
    }

    fn parallel(
        &mut self,
        k: usize,
        stage: &Stage,
        units: u32,
        site: &Site,
        input: Option<&Path>,
        output: Option<&Path>,
    ) {
        let before = match k.checked_sub(1) {
            Some(k) => self.url(k),
            None => input.map(|p| p.display().to_string()),
        };
        let after = if k < self.links.len() { self.url(k) } else { output.map(|p| p.display().to_string()) };
        let program = format!("{}-s{k}", site.run);
        let mut common = vec![("POLYDUCT_DOMAIN".to_owned(), format!("{}-stage-{k}", site.run))];
        common.extend(before.iter().map(|url| ("POLYDUCT_IN".to_owned(), url.clone())));
        common.extend(after.iter().map(|url| ("POLYDUCT_OUT".to_owned(), url.clone())));
        let launched_by = stage.launcher.as_ref().map(|launcher| {
            let mut command = launcher.clone();
            let rank = [site.polyduct.display().to_string(), "rank".to_owned()];
            command.extend(["-n".to_owned(), units.to_string()].into_iter().chain(rank));
            command.extend(["--units".to_owned(), units.to_string(), "--".to_owned()]);
            command.extend(stage.command.iter().cloned());
            let own = stage.env.iter().cloned();
            // Which of the units it is, each rank is told by MPI.
            let program = [("POLYDUCT_PROGRAM".to_owned(), program.clone())];
            self.processes.push(Process {
                stage: k,
                unit: 0,
                role: Role::Launcher,
                launched_by: None,
                command,
                env: own.chain(program).chain(common.iter().cloned()).collect(),
                stdin: Source::Null,
                stdout: Sink::Log,
            });
            self.processes.len() - 1
        });
        for unit in 0..units {
            let mut env = stage.env.clone();
            env.extend(identity(&program, unit, units));
            env.extend(common.iter().cloned());
            self.processes.push(Process {
                stage: k,
                unit,
                role: Role::Unit,
                launched_by,
                command: stage.command.clone(),
                env,
                stdin: Source::Null,
                stdout: Sink::Log,
            });
        }
    }

    /// Adds a plain stage and its pumps; gives the ordinary pipe that leads on to the next stage.
    #[allow(clippy::too_many_arguments)]
    fn plain(
        &mut self,
        k: usize,
        stage: &Stage,
        stages: &[Stage],
        site: &Site,
        carried: Option<usize>,
        input: Option<&Path>,
        output: Option<&Path>,
    ) -> Option<usize> {
        let pump = |name: &str, url: String| vec![site.polyduct.display().to_string(), name.to_owned(), url];
        // A pump's port is the pipeline's, as a unit's is.
        let pump_env = |end: &str, variable: &str, url: String| {
            let mut env = stage.env.clone();
            env.extend(identity(&format!("{}-s{k}-{end}", site.run), 0, 1));
            env.push((variable.to_owned(), url));
            env
        };
        let stdin = match (k, carried, input) {
            (_, Some(pipe), _) => Source::Pipe(pipe),
            (0, None, Some(file)) if in_store(file).is_none() => Source::File(file.to_owned()),
            (0, None, None) => Source::Inherit,
            (_, None, file) => {
                let pipe = self.new_pipe();
                let dataset = file.map(|f| f.display().to_string());
                let url = k.checked_sub(1).map_or(dataset, |k| self.url(k)).unwrap_or_default();
                self.processes.push(Process {
                    stage: k,
                    unit: 0,
                    role: Role::PumpOut,
                    launched_by: None,
                    command: pump("pump-out", url.clone()),
                    env: pump_env("in", "POLYDUCT_IN", url),
                    stdin: Source::Null,
                    stdout: Sink::Pipe(pipe),
                });
                Source::Pipe(pipe)
            }
        };
        let last = k + 1 == stages.len();
        let dataset = output.filter(|file| last && in_store(file).is_some()).map(|f| f.display().to_string());
        let leads_on = if last && dataset.is_none() { None } else { Some(self.new_pipe()) };
        let stdout = match (leads_on, output) {
            (Some(pipe), _) => Sink::Pipe(pipe),
            (None, Some(file)) => Sink::File(file.to_owned()),
            (None, None) => Sink::Result,
        };
        let command = stage.command.clone();
        self.processes.push(Process {
            stage: k,
            unit: 0,
            role: Role::Plain,
            launched_by: None,
            command,
            env: stage.env.clone(),
            stdin,
            stdout,
        });
        let (Some(pipe), Some(url)) = (leads_on, dataset.or_else(|| self.url(k))) else { return leads_on };
        self.processes.push(Process {
            stage: k,
            unit: 0,
            role: Role::PumpIn,
            launched_by: None,
            command: pump("pump-in", url.clone()),
            env: pump_env("out", "POLYDUCT_OUT", url),
            stdin: Source::Pipe(pipe),
            stdout: Sink::Log,
        });
        None
    }

    fn new_pipe(&mut self) -> usize {
        self.os_pipes += 1;
        self.os_pipes - 1
    }

    /// URL of the port after stage `k`.
    fn url(&self, k: usize) -> Option<String> {
        match self.links.get(k)? {
            Connector::Port { url } => Some(url.clone()),
            Connector::OsPipe => None,
        }
    }

    /// The processes that have ports, by the program and unit that they were named in their environment.
    pub fn by_name(&self) -> HashMap<(&str, u32), usize> {
        let name = |p: &'_ Process| p.env.iter().rposition(|(n, _)| n == "POLYDUCT_PROGRAM");
        let named = self.processes.iter().enumerate().filter(|(_, p)| p.role != Role::Launcher);
        named.filter_map(|(i, p)| Some(((p.env[name(p)?].1.as_str(), p.unit), i))).collect()
    }

    /// What a process meets others at when it opens its input or its output: nobody goes on before all have.
    /// The number of the link after a stage, or the number of links for [`Plan::file`]. Reading a file needs
    /// nobody else.
    pub fn meeting(&self, process: usize, mode: Mode) -> Option<usize> {
        let Process { stage, role, .. } = &self.processes[process];
        let k = match (role, mode) {
            (Role::Unit | Role::PumpOut, Mode::Read) => stage.checked_sub(1)?,
            (Role::Unit | Role::PumpIn, Mode::Write) => *stage,
            _ => return None,
        };
        match self.links.get(k) {
            Some(Connector::Port { .. }) => Some(k),
            Some(Connector::OsPipe) => None,
            None => self.file.as_ref().map(|_| k),
        }
    }

    /// `stage 1 (python a.py) unit 3`
    pub fn describe(&self, process: usize) -> String {
        let Process { stage, unit, role, .. } = &self.processes[process];
        let name = format!("stage {stage} ({})", self.commands[*stage]);
        match role {
            Role::Unit => format!("{name} unit {unit}"),
            Role::Launcher => format!("the launcher of {name}"),
            Role::Plain => name,
            Role::PumpIn => format!("the pump behind {name}"),
            Role::PumpOut => format!("the pump before {name}"),
        }
    }

    /// Refuses what cannot start: commands that are not there, files that cannot be opened.
    pub fn check(&self, pipeline: &Pipeline, directory: &Path) -> Result<(), PlanError> {
        let files = [(&pipeline.input, pipeline.stages.first()), (&pipeline.output, pipeline.stages.last())];
        for (file, stage) in files {
            let parallel = stage.is_some_and(|s| s.units.is_some());
            if let Some(path) = file.as_ref().and_then(|f| f.strip_prefix(STORE)) {
                // What is in it, only those who open it know.
                if let Err(e) = polyduct::store::disk::split(&directory.join(path)) {
                    return Err(PlanError::Store(e));
                }
            } else if let Some(path) = file.as_ref().filter(|f| parallel && kind(f).is_none()) {
                return Err(PlanError::FileKind { path: path.into() });
            }
        }
        for (k, stage) in pipeline.stages.iter().enumerate() {
            for command in stage.launcher.iter().flat_map(|words| words.first()).chain(stage.command.first())
            {
                check::command(k, command, &stage.env, directory)?;
            }
        }
        let is_file = |f: &&String| !f.starts_with(STORE);
        let input = pipeline.input.as_ref().filter(is_file);
        let input = input.map(|f| opened(pipeline.stages.first(), f, directory));
        if let Some((path, is_dir)) = &input {
            check::input(path, *is_dir).map_err(|source| PlanError::Input { path: path.clone(), source })?;
        }
        if let Some(file) = pipeline.output.as_ref().filter(is_file) {
            let (path, is_dir) = opened(pipeline.stages.last(), file, directory);
            let same = || Some(path.canonicalize().ok()? == input.as_ref()?.0.canonicalize().ok()?);
            let plain = pipeline.stages.last().is_some_and(|s| s.units.is_none());
            if plain && same() == Some(true) {
                return Err(PlanError::SameFile { path });
            }
            check::output(&path, is_dir).map_err(|reason| PlanError::Output { path, reason })?;
        }
        Ok(())
    }
}

/// How the URL of a dataset in a store begins.
const STORE: &str = "store:";

/// Where the file, or the dataset, of `<` or `>` is.
fn located(file: &str, directory: &Path) -> PathBuf {
    match file.strip_prefix(STORE) {
        Some(path) => format!("{STORE}{}", directory.join(path).display()).into(),
        None => directory.join(file),
    }
}

/// The path of a dataset in a store, where a file of a plan is one.
pub fn in_store(file: &Path) -> Option<&Path> {
    file.to_str()?.strip_prefix(STORE).map(Path::new)
}

/// What the façade will take a file for.
fn kind(file: &str) -> Option<Target> {
    polyduct::url::file(file)
}

/// The path of what a stage opens, without what chooses in it, and whether that is a directory.
fn opened(stage: Option<&Stage>, file: &str, directory: &Path) -> (PathBuf, bool) {
    if file.starts_with(STORE) {
        return (located(file, directory), false);
    }
    let target = stage.filter(|s| s.units.is_some()).and_then(|_| kind(file));
    let path = target.as_ref().and_then(Target::path).unwrap_or(Path::new(file));
    (directory.join(path), matches!(target, Some(Target::Zarr(_))))
}

fn identity(program: &str, unit: u32, units: u32) -> [(String, String); 3] {
    [
        ("POLYDUCT_PROGRAM".to_owned(), program.to_owned()),
        ("POLYDUCT_UNIT".to_owned(), unit.to_string()),
        ("POLYDUCT_UNITS".to_owned(), units.to_string()),
    ]
}

#[cfg(test)]
mod tests;
