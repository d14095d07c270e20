//! Telling a pipeline what its ports do.

use crate::{url, Mode, Target};
use polyduct_port::{Options, Stats};
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::time::Instant;

/// A pipe that the pipeline's runner reads: one JSON object in one line, short enough to be written whole.
///
/// `POLYDUCT_REPORT` has its path, which names a descriptor of the runner's. One to inherit would not do:
/// many programs close what they do not know before they start another, and the number then stands for some
/// file of that program.
#[derive(Clone)]
struct Runner(PathBuf);

impl Runner {
    fn find() -> Option<Runner> {
        std::env::var_os("POLYDUCT_REPORT").map(|path| Runner(path.into()))
    }

    fn tell(&self, line: &str) {
        // A report is a courtesy: a runner that no longer listens is no error of the port's.
        if fs::metadata(&self.0).is_ok_and(|m| m.file_type().is_fifo()) {
            let pipe = fs::OpenOptions::new().write(true).open(&self.0);
            let _ = pipe.and_then(|mut pipe| pipe.write_all(line.as_bytes()));
        }
    }
}

/// The opening of a port that the pipeline gave. The runner learns of it from the first wait on, and so knows
/// who keeps others waiting when a process ends without having opened its own.
pub struct Opening(Option<(Runner, String)>);

impl Opening {
    /// Says that this process waits for the others; nothing if the pipeline did not give `target`.
    pub fn begin(target: &Target, mode: Mode) -> Opening {
        let get = |name: &str| std::env::var(name).ok();
        let given = || url::parse("-", mode, get).is_ok_and(|given| given == *target);
        let place = || Some((get("POLYDUCT_PROGRAM")?, get("POLYDUCT_UNIT")?.parse::<u32>().ok()?));
        let opening = Opening(Runner::find().filter(|_| given()).and_then(|runner| {
            let (program, unit) = place()?;
            let mode = letter(mode);
            Some((runner, format!("\"program\":{},\"unit\":{unit},\"mode\":\"{mode}\"", quoted(&program))))
        }));
        opening.tell("opening");
        opening
    }

    /// Says what came of it.
    pub fn end(self, opened: bool) {
        self.tell(if opened { "opened" } else { "failed" });
    }

    fn tell(&self, state: &str) {
        if let Some((runner, who)) = &self.0 {
            runner.tell(&format!("{{\"port\":\"{state}\",{who}}}\n"));
        }
    }
}

fn letter(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "r",
        Mode::Write => "w",
    }
}

/// Where a port's counters go when it closes. `open_s` is the time that the port was open.
pub struct Sink(Option<Line>);

struct Line {
    runner: Runner,
    program: String,
    unit: u32,
    url: String,
    mode: &'static str,
    since: Instant,
}

impl Sink {
    /// A sink for a port; without a runner it takes nothing.
    pub fn new(target: &Target, mode: Mode, options: &Options) -> Sink {
        let url = match target {
            Target::Pipe(name) => format!("pipe:{name}"),
            Target::Net(place) => format!("pipe:{place}"),
            Target::Store(path) => format!("store:{}", path.display()),
            Target::Stream(target) => target.to_string(),
            Target::Npz(path, Some(name)) | Target::Safetensors(path, Some(name)) => {
                format!("{}#{name}", path.display())
            }
            Target::Npy(path)
            | Target::Npz(path, None)
            | Target::Raw(path)
            | Target::Safetensors(path, None)
            | Target::Set(path)
            | Target::Zarr(path) => path.display().to_string(),
        };
        let (program, unit) = (options.program.clone(), options.unit);
        Sink(Runner::find().map(|runner| Line {
            runner,
            program,
            unit,
            url,
            mode: letter(mode),
            since: Instant::now(),
        }))
    }

    /// Writes the counters, the first time it is called.
    pub fn tell(&mut self, stats: &Stats) {
        let Some(line) = self.0.take() else { return };
        let text = format!(
            "{{\"program\":{},\"unit\":{},\"url\":{},\"mode\":\"{}\",\"steps\":{},\"dropped\":{},\"bytes\":{},\
             \"runs\":{},\"wait_s\":{:.6},\"copy_s\":{:.6},\"open_s\":{:.6}}}\n",
            quoted(&line.program),
            line.unit,
            quoted(&line.url),
            line.mode,
            stats.steps,
            stats.dropped,
            stats.bytes,
            stats.runs,
            stats.waited.as_secs_f64(),
            stats.copied.as_secs_f64(),
            line.since.elapsed().as_secs_f64(),
        );
        line.runner.tell(&text);
    }
}

/// A JSON string, cut to a length that keeps the line whole.
fn quoted(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars().take(500) {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    #[test]
    fn strings_are_quoted() {
        assert_eq!(super::quoted("a\"b\\c\nd"), "\"a\\\"b\\\\c\\u000ad\"");
    }
}
