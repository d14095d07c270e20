//! Telling a pipeline what its ports did.

use crate::Target;
use polyduct_pipe::{Options, Stats};
use std::io::Write;
use std::time::Instant;

/// Where a port's counters go when it closes: a pipe that the pipeline's runner reads, named by the number of its
/// descriptor in `POLYDUCT_STATS_FD`. `open_s` is the time that the port was open. One JSON object in one line, short enough to be written whole.
pub struct Sink(Option<Line>);

struct Line {
    descriptor: u32,
    program: String,
    unit: u32,
    url: String,
    mode: &'static str,
    since: Instant,
}

impl Sink {
    /// A sink for a port; without the variable it takes nothing.
    pub fn new(target: &Target, mode: &'static str, options: &Options) -> Sink {
        let descriptor = std::env::var("POLYDUCT_STATS_FD").ok().and_then(|fd| fd.parse().ok());
        let url = match target {
            Target::Pipe(name) => format!("pipe:{name}"),
            Target::Npy(path) | Target::Raw(path) => path.display().to_string(),
        };
        let (program, unit) = (options.program.clone(), options.unit);
        Sink(descriptor.map(|descriptor| Line {
            descriptor,
            program,
            unit,
            url,
            mode,
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
        // Counters are a courtesy: a runner that no longer listens is no error of the port's.
        let path = format!("/proc/self/fd/{}", line.descriptor);
        let _ =
            std::fs::OpenOptions::new().write(true).open(path).and_then(|mut f| f.write_all(text.as_bytes()));
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
