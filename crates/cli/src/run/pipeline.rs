//! The pipeline language: what `polyduct run` is given, as a value that can only be valid.
//!
//! ```text
//! pipeline = stage ( '|' stage )*
//! stage    = ( '<' file | '>' file | option )* word ( word | '<' file | '>' file )*
//! option   = NAME=value | -n COUNT | --mpi | --mpi=LAUNCHER
//! ```
//!
//! `<` belongs to the first stage, `>` to the last. Printing a [`Pipeline`] gives text that parses to the
//! same value, and that a shell would split into the same words.

use super::words::{quote, quote_always, split, Token, Word};
use std::fmt;

/// Most processes that one stage may have: they are the units of its ports.
pub const MAX_UNITS: u32 = polyduct::MAX_UNITS;
/// Most stages in a pipeline.
pub const MAX_STAGES: usize = 256;

/// A whole pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipeline {
    /// `< file`: what the first stage reads.
    pub input: Option<String>,
    /// At least one stage.
    pub stages: Vec<Stage>,
    /// `> file`: what the last stage writes.
    pub output: Option<String>,
}

/// One command of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// `-n N`: that many processes of a parallel program. None: a plain Unix program.
    pub units: Option<u32>,
    /// `--mpi`: the words of MPI's launcher, which starts the units as its ranks; never empty, and nor is the
    /// first. Only where there are units.
    pub launcher: Option<Vec<String>>,
    /// Leading `NAME=value`.
    pub env: Vec<(String, String)>,
    /// The command and its arguments; never empty, and the command itself is not the empty word.
    pub command: Vec<String>,
}

impl Stage {
    /// The command as one line, for messages.
    pub fn command_line(&self) -> String {
        self.command.iter().map(|w| quote(w)).collect::<Vec<_>>().join(" ")
    }
}

/// Why a text is no pipeline. `at` is the byte of the text where the trouble is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum PipelineError {
    #[error("this {quote} is never closed")]
    UnclosedQuote { at: usize, quote: char },
    #[error("nothing follows this backslash")]
    TrailingBackslash { at: usize },
    #[error("a null character cannot be part of a command")]
    Nul { at: usize },
    #[error("`{operator}` is not part of a pipeline; quote it, or give the line to a shell: sh -c '...'")]
    Operator { at: usize, operator: String },
    #[error("no command in this stage")]
    NoCommand { at: usize },
    #[error("the command is an empty word")]
    EmptyCommand { at: usize },
    #[error("-n needs a number of processes, such as -n 4")]
    MissingCount { at: usize },
    #[error("`{found}` is no number of processes from 1 to {MAX_UNITS}")]
    BadCount { at: usize, found: String },
    #[error("-n is given twice for this stage")]
    DuplicateCount { at: usize },
    #[error("--mpi needs a number of ranks, such as -n 4 --mpi ./solver")]
    LauncherWithoutCount { at: usize },
    #[error(
        "`{found}` is no launcher with its arguments, such as --mpi=mpirun or --mpi='mpirun --bind-to none'"
    )]
    BadLauncher { at: usize, found: String },
    #[error("--mpi is given twice for this stage")]
    DuplicateLauncher { at: usize },
    #[error("`{operator}` needs a file name")]
    MissingFile { at: usize, operator: char },
    #[error("`{operator}` is given twice")]
    DuplicateFile { at: usize, operator: char },
    #[error("only the first stage can read a file: this one already reads what the stage before it gives")]
    InputNotFirst { at: usize },
    #[error("only the last stage can write a file: this one already gives to the stage after it")]
    OutputNotLast { at: usize },
    #[error("more than {MAX_STAGES} stages")]
    TooManyStages { at: usize },
}

impl PipelineError {
    /// The byte of the text where the trouble is.
    pub fn at(&self) -> usize {
        use PipelineError::*;
        match *self {
            UnclosedQuote { at, .. }
            | TrailingBackslash { at }
            | Nul { at }
            | Operator { at, .. }
            | NoCommand { at }
            | EmptyCommand { at }
            | MissingCount { at }
            | BadCount { at, .. }
            | DuplicateCount { at }
            | LauncherWithoutCount { at }
            | BadLauncher { at, .. }
            | DuplicateLauncher { at }
            | MissingFile { at, .. }
            | DuplicateFile { at, .. }
            | InputNotFirst { at }
            | OutputNotLast { at }
            | TooManyStages { at } => at,
        }
    }
}

/// A stage while it is read, with what belongs to the whole pipeline.
#[derive(Default)]
struct Draft {
    units: Option<u32>,
    launcher: Option<(usize, Vec<String>)>,
    env: Vec<(String, String)>,
    command: Vec<String>,
    input: Option<(usize, String)>,
    output: Option<(usize, String)>,
}

impl Pipeline {
    /// Reads a pipeline.
    pub fn parse(text: &str) -> Result<Self, PipelineError> {
        let tokens = split(text)?;
        let mut pipeline = Pipeline { input: None, stages: Vec::new(), output: None };
        let mut rest = tokens.as_slice();
        loop {
            let len = rest.iter().position(|t| matches!(t, Token::Pipe { .. }));
            let (stage, next) = rest.split_at(len.unwrap_or(rest.len()));
            let end = next.first().map_or(text.len(), position);
            let at = stage.first().map_or(end, position);
            if pipeline.stages.len() == MAX_STAGES {
                return Err(PipelineError::TooManyStages { at });
            }
            let draft = Draft::read(stage, end)?;
            if let Some((at, file)) = draft.input {
                if !pipeline.stages.is_empty() {
                    return Err(PipelineError::InputNotFirst { at });
                }
                pipeline.input = Some(file);
            }
            if let Some((at, file)) = draft.output {
                if !next.is_empty() {
                    return Err(PipelineError::OutputNotLast { at });
                }
                pipeline.output = Some(file);
            }
            let launcher = draft.launcher.map(|(_, words)| words);
            pipeline.stages.push(Stage {
                units: draft.units,
                launcher,
                env: draft.env,
                command: draft.command,
            });
            if next.is_empty() {
                return Ok(pipeline);
            }
            rest = &next[1..];
        }
    }
}

fn position(token: &Token) -> usize {
    match token {
        Token::Word(word) => word.at,
        Token::Pipe { at } | Token::Input { at } | Token::Output { at } => *at,
    }
}

impl Draft {
    /// Reads the tokens of one stage, which ends at byte `end`.
    fn read(tokens: &[Token], end: usize) -> Result<Self, PipelineError> {
        let mut draft = Draft::default();
        let mut tokens = tokens.iter();
        while let Some(token) = tokens.next() {
            match token {
                Token::Input { at } => set_file(&mut draft.input, '<', *at, tokens.next())?,
                Token::Output { at } => set_file(&mut draft.output, '>', *at, tokens.next())?,
                Token::Pipe { .. } => unreachable!("stages are split at pipes"),
                Token::Word(word) if !draft.command.is_empty() => draft.command.push(word.text.clone()),
                Token::Word(word) => {
                    if let Some((name, value)) = word.assignment() {
                        draft.env.push((name.to_owned(), value.to_owned()));
                    } else if let Some(count) = count_option(word) {
                        if draft.units.is_some() {
                            return Err(PipelineError::DuplicateCount { at: word.at });
                        }
                        draft.units = Some(match count {
                            Some(text) => parse_count(text, word.at)?,
                            None => match tokens.next() {
                                Some(Token::Word(count)) => parse_count(&count.text, count.at)?,
                                _ => return Err(PipelineError::MissingCount { at: word.at }),
                            },
                        });
                    } else if let Some(words) = launcher_option(word)? {
                        if draft.launcher.is_some() {
                            return Err(PipelineError::DuplicateLauncher { at: word.at });
                        }
                        draft.launcher = Some((word.at, words));
                    } else if word.text.is_empty() {
                        return Err(PipelineError::EmptyCommand { at: word.at });
                    } else {
                        draft.command.push(word.text.clone());
                    }
                }
            }
        }
        if draft.command.is_empty() {
            return Err(PipelineError::NoCommand { at: end });
        }
        match draft.launcher {
            Some((at, _)) if draft.units.is_none() => Err(PipelineError::LauncherWithoutCount { at }),
            _ => Ok(draft),
        }
    }
}

/// `-n`, `-np` (None: the count is the next word) or `-n4`.
fn count_option(word: &Word) -> Option<Option<&str>> {
    if !word.is_bare() {
        return None;
    }
    match word.text.as_str() {
        "-n" | "-np" => Some(None),
        text => {
            let count = text.strip_prefix("-n")?;
            count.bytes().next().filter(u8::is_ascii_digit).map(|_| Some(count))
        }
    }
}

/// What `--mpi` means where it says nothing else.
const LAUNCHER: &str = "mpirun";

/// `--mpi`, or `--mpi=` with the launcher and its arguments, which are split as the pipeline is.
fn launcher_option(word: &Word) -> Result<Option<Vec<String>>, PipelineError> {
    const OPTION: &str = "--mpi=";
    if word.is_bare() && word.text == OPTION[..OPTION.len() - 1] {
        return Ok(Some(vec![LAUNCHER.to_owned()]));
    }
    let Some(value) = word.text.strip_prefix(OPTION).filter(|_| word.bare >= OPTION.len()) else {
        return Ok(None);
    };
    let bad = || PipelineError::BadLauncher { at: word.at, found: value.to_owned() };
    let tokens = split(value).map_err(|_| bad())?;
    let texts = tokens.into_iter().map(|token| match token {
        Token::Word(word) => Ok(word.text),
        _ => Err(bad()),
    });
    let words = texts.collect::<Result<Vec<String>, _>>()?;
    match words.first() {
        Some(first) if !first.is_empty() => Ok(Some(words)),
        _ => Err(bad()),
    }
}

fn parse_count(text: &str, at: usize) -> Result<u32, PipelineError> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(count @ 1..=MAX_UNITS) if digits => Ok(count),
        _ => Err(PipelineError::BadCount { at, found: text.to_owned() }),
    }
}

fn set_file(
    slot: &mut Option<(usize, String)>,
    operator: char,
    at: usize,
    next: Option<&Token>,
) -> Result<(), PipelineError> {
    match next {
        Some(Token::Word(word)) if !word.text.is_empty() => {
            if slot.is_some() {
                return Err(PipelineError::DuplicateFile { at, operator });
            }
            *slot = Some((at, word.text.clone()));
            Ok(())
        }
        _ => Err(PipelineError::MissingFile { at, operator }),
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(units) = self.units {
            write!(f, "-n {units} ")?;
        }
        match &self.launcher {
            Some(words) if words[..] == [LAUNCHER] => write!(f, "--mpi ")?,
            Some(words) => {
                let words: Vec<_> = words.iter().map(|word| quote(word)).collect();
                write!(f, "--mpi={} ", quote(&words.join(" ")))?;
            }
            None => {}
        }
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quote(value))?;
        }
        for (i, word) in self.command.iter().enumerate() {
            // The command must not read as an option; `=` and quotes make `quote` add quotes by itself.
            let is_option = word.starts_with("-n") || word.starts_with("--mpi");
            let text = if i == 0 && is_option { quote_always(word) } else { quote(word) };
            write!(f, "{}{text}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.input {
            write!(f, "< {} ", quote(file))?;
        }
        for (i, stage) in self.stages.iter().enumerate() {
            write!(f, "{}{stage}", if i == 0 { "" } else { " | " })?;
        }
        if let Some(file) = &self.output {
            write!(f, " > {}", quote(file))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
