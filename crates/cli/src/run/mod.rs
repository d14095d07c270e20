//! `polyduct run`: a pipeline of parallel and plain programs, started, watched and ended as one.

mod gateways;
mod launch;
mod names;
mod pipeline;
mod plan;
mod prefix;
mod rank;
mod start;
mod stats;
mod strays;
mod supervise;
mod verdict;
mod words;

pub use launch::{keeper, launch, LaunchArgs};
pub use rank::{rank, RankArgs};
pub use verdict::READER_GONE;

use crate::text::{caret, Colour};
use pipeline::Pipeline;
use plan::{Connector, Plan, Role, Sink, Site, Source};
use start::OrCannot;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const AFTER_HELP: &str = "\
Examples:
  polyduct run \"-n 4 python solve.py | -n 3 python look.py > out.npy\"
  polyduct run \"< in.npy -n 4 python a.py | -n 3 python b.py > out.npy\" --stats
  polyduct run --prefix --timeout 5m \"-n 8 ./sim --steps 100 | -n 1 ./plot\"
  polyduct run \"-n 4 python solve.py | gzip > raw.gz\"

The pipeline:
  -n N COMMAND     N processes of a parallel program, 4096 at most. Each opens \"-\" to read from
                   the stage before it and \"-\" to write to the stage after it.
  -n N --mpi COMMAND
                   N ranks of an MPI program, started by mpirun over polyduct (see polyduct mpi);
                   each rank is a unit. --mpi=mpirun.openmpi is another launcher, and arguments
                   of its own are quoted with it: --mpi='mpirun --bind-to none'.
  COMMAND          a plain Unix program, on ordinary pipes. Between it and a parallel stage the
                   bytes of the row-major array flow, step after step. What it gives is one .npy
                   array after another, or plain bytes whose shape and type the parallel stage
                   states when it opens \"-\".
  A | B            A gives to B.
  < FILE, > FILE   the first stage reads, the last stage writes. Parallel stages open the file
                   themselves, all units at once, so it is an .npy, .raw, .safetensors or .zarr.
                   A file with one dimension more than the layout has holds steps; what comes
                   from a plain program does not: each .npy array is one step.
  NAME=value       before a command: an environment variable for that stage.

Quotes and backslashes work as in the shell: 'as it is', \"with \\\" in it\", one\\ word. Nothing is
expanded: $VAR, ~ and *.npy stay as they are. For that, let your shell do it before it calls
polyduct, or give a stage a shell: sh -c 'python a.py $HOME/x'.

Each process of a parallel stage has in its environment:
  POLYDUCT_UNIT, POLYDUCT_UNITS   its number from 0, and how many there are
  POLYDUCT_IN, POLYDUCT_OUT       what \"-\" means for reading and for writing
  POLYDUCT_PROGRAM                the name of its stage in this run
  POLYDUCT_DOMAIN                 the message domain that the processes of the stage join
  POLYDUCT_JOB                    the run, which names of pipes (pipe:NAME) belong to. Set it yourself,
                                  to the same in both, for a pipe to another run or to a program outside;
                                  set to nothing, names belong to no job.
Their standard input is empty; their output passes through. A unit that ends without opening
\"-\" fails the run if others wait for it. So does an output file that is not written.

Exit status: 0 if every process succeeded, else that of the first that failed (128 plus the
number of a signal); 1 if all succeeded and the output file is not written; 124 after --timeout;
130, 143, 129 after Ctrl-C, SIGTERM, SIGHUP; 127 and 126 if a command is not there or cannot be
executed; 2 for a pipeline that makes no sense. A plain program that ends because its reader
wants no more (SIGPIPE) has not failed: `yes | head` succeeds. When the run ends, nothing of it
is left: processes that its programs started end too, daemons included.";

/// Arguments of `polyduct run`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct RunArgs {
    /// The pipeline, as one argument.
    #[arg(allow_hyphen_values = true)]
    pipeline: String,
    /// Put [stage.unit] before each line that a process prints. (Python buffers its output when it goes to a
    /// pipe: set PYTHONUNBUFFERED=1 to see lines at once.)
    #[arg(long)]
    prefix: bool,
    /// Start a gateway of this name, or so many, for the streams of the stages whose places name none; it ends with the run.
    #[arg(long, value_name = "NAME[=COUNT]", value_parser = gateways::parse)]
    gateway: Option<gateways::Gateways>,
    /// Print a table at the end: bytes, steps, rate and waits for each pipe.
    #[arg(long)]
    stats: bool,
    /// Write the same figures as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// End the run after this long: 30s, 5m, 1.5h.
    #[arg(long, value_name = "DURATION", value_parser = names::parse_limit)]
    timeout: Option<Duration>,
    /// How long processes may take to end when told to, before they are killed.
    #[arg(long, value_name = "DURATION", value_parser = names::parse_duration, default_value = "2s")]
    grace: Duration,
    /// Print what would start, and start nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Runs the pipeline; gives the exit status.
pub fn run(args: &RunArgs) -> u8 {
    let pipeline = match Pipeline::parse(&args.pipeline) {
        Ok(pipeline) => pipeline,
        Err(error) => {
            crate::text::say!("polyduct: {error}\n{}", caret(&args.pipeline, error.at()));
            return 2;
        }
    };
    match prepare(&pipeline) {
        Ok((plan, directory)) => {
            if let Err(error) = plan.check(&pipeline, &directory) {
                crate::text::say!("polyduct: {error}");
                return error.status();
            }
            if args.dry_run {
                // A reader that has gone needs no more.
                let _ = io::stdout().write_all(describe(&plan).as_bytes());
                return 0;
            }
            execute(args, &pipeline, &plan).unwrap_or_else(|error| {
                crate::text::say!("polyduct: {error}");
                1
            })
        }
        Err(error) => {
            crate::text::say!("polyduct: cannot prepare the run: {error}");
            1
        }
    }
}

fn prepare(pipeline: &Pipeline) -> io::Result<(Plan, PathBuf)> {
    let directory = std::env::current_dir()?;
    let polyduct = std::env::current_exe()?;
    let mut random = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let run = format!("run-{:016x}", u64::from_le_bytes(random));
    let plan = Plan::new(pipeline, &Site { run: &run, polyduct: &polyduct, directory: &directory });
    Ok((plan, directory))
}

fn execute(args: &RunArgs, pipeline: &Pipeline, plan: &Plan) -> Result<u8, Box<dyn std::error::Error>> {
    let wants_figures = args.stats || args.json.is_some();
    // Before signals are caught: a launcher that does not answer is given up by them.
    let manner = start::Manner::of(plan, args.prefix, args.gateway.clone())?;
    // Before the first process: a signal between its start and ours would leave it behind.
    let mut signals = supervise::Signals::catch().or_cannot(|| "watch for signals".into())?;
    // Nobody wants to hear after a long run that its figures have no place.
    let mut json = args.json.as_deref().map(open_json).transpose()?;
    let begin = Instant::now();
    let file = supervise::OutputFile::before(plan);
    let mut started = start::start(plan, &manner)?;
    let colour = Colour::Auto.on(&io::stdout());
    let printer = prefix::Printer::start(plan, std::mem::take(&mut started.outputs), colour)
        .or_cannot(|| "print what the processes write".into())?;
    let pids: Vec<u32> =
        started.children.iter().map(|c| c.as_ref().map_or(0, |running| running.child.id())).collect();
    let mut collector = stats::Collector::new(wants_figures);
    let mut supervisor = verdict::Supervisor::new(plan, &pids, args.grace, args.timeout, begin);
    supervise::supervise(plan, &mut started, &mut signals, &mut supervisor, &mut collector, &file)?;
    let wall = begin.elapsed();
    drop(started);
    let unwritten = printer.finish();
    let mut verdict = supervisor.verdict();
    if let Some(error) = unwritten {
        crate::text::say!(
            "polyduct: standard output: {error}; what a process wrote there after that is lost"
        );
        verdict.status = verdict.status.max(1);
    }
    if let Some(message) = &verdict.message {
        crate::text::say!("polyduct: {message}");
    }
    if wants_figures {
        let text = pipeline.to_string();
        let pids: Vec<u32> = supervisor.pids().collect();
        let report =
            stats::Report::new(text, plan, collector, verdict.status, wall, &pids, supervisor.ends());
        if args.stats {
            crate::text::to_stderr(format_args!("{}", report.table()));
        }
        if let Some(json) = &mut json {
            let text = serde_json::to_string_pretty(&report)? + "\n";
            json.write_all(text.as_bytes()).map_err(|e| format!("cannot write the figures: {e}"))?;
        }
    }
    Ok(verdict.status)
}

/// Where `--json` goes.
fn open_json(path: &Path) -> Result<Box<dyn Write>, String> {
    Ok(match path == Path::new("-") {
        true => Box::new(io::stdout()),
        false => Box::new(File::create(path).map_err(|e| format!("cannot write {}: {e}", path.display()))?),
    })
}

/// What `--dry-run` prints.
fn describe(plan: &Plan) -> String {
    let mut text = String::new();
    for process in &plan.processes {
        let who = match process.role {
            Role::Unit => format!("{}.{}", process.stage, process.unit),
            Role::Launcher => format!("{} mpi", process.stage),
            Role::Plain => format!("{}", process.stage),
            Role::PumpIn | Role::PumpOut => format!("{} pump", process.stage),
        };
        let env: String = process.env.iter().map(|(n, v)| format!(" {n}={}", words::quote(v))).collect();
        let command: String = process.command.iter().map(|w| format!(" {}", words::quote(w))).collect();
        let stdin = match &process.stdin {
            Source::Null | Source::Inherit => String::new(),
            Source::File(path) => format!(" < {}", words::quote(&path.display().to_string())),
            Source::Pipe(k) => format!(" <&pipe{k}"),
        };
        let stdout = match &process.stdout {
            Sink::Log | Sink::Result => String::new(),
            Sink::File(path) => format!(" > {}", words::quote(&path.display().to_string())),
            Sink::Pipe(k) => format!(" >&pipe{k}"),
        };
        text += &format!("[{who}]{env}{command}{stdin}{stdout}\n");
    }
    for (k, link) in plan.links.iter().enumerate() {
        let what = match link {
            Connector::OsPipe => "an ordinary pipe",
            Connector::Port { url } => url,
        };
        text += &format!("stage {k} -> stage {}: {what}\n", k + 1);
    }
    text
}
