//! What is looked at before anything starts: that commands are there, and that files can be opened.

use super::PlanError;
use std::io;
use std::path::{Path, PathBuf};

/// Whether a command is there and can be executed.
pub fn command(
    stage: usize,
    command: &str,
    env: &[(String, String)],
    directory: &Path,
) -> Result<(), PlanError> {
    let own_path = env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, v)| v.clone().into());
    let candidates: Vec<PathBuf> = if command.contains('/') {
        vec![directory.join(command)]
    } else {
        let path = own_path.or_else(|| std::env::var_os("PATH")).unwrap_or_else(|| "/bin:/usr/bin".into());
        std::env::split_paths(&path).map(|dir| directory.join(dir).join(command)).collect()
    };
    let mut refused = None;
    for candidate in candidates {
        if candidate.is_dir() {
            refused.get_or_insert(io::Error::from(io::ErrorKind::IsADirectory));
            continue;
        }
        match rustix::fs::access(&candidate, rustix::fs::Access::EXEC_OK) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
            Err(e) => {
                refused.get_or_insert(e.into());
            }
        }
    }
    let command = command.to_owned();
    // A directory on PATH that happens to have the command's name is not what was meant.
    match refused.filter(|e| command.contains('/') || e.kind() != io::ErrorKind::IsADirectory) {
        Some(source) => Err(PlanError::NotExecutable { stage, command, source }),
        None if command.starts_with('$') || command.starts_with('~') => Err(PlanError::NotFound {
            stage,
            command,
            hint: " (nothing is expanded in a pipeline: see --help)",
        }),
        None => Err(PlanError::NotFound { stage, command, hint: "" }),
    }
}

/// Whether a file can be read.
pub fn input(path: &Path, is_dir: bool) -> io::Result<()> {
    match (path.metadata()?.is_dir(), is_dir) {
        (true, false) => return Err(io::ErrorKind::IsADirectory.into()),
        (false, true) => return Err(io::ErrorKind::NotADirectory.into()),
        _ => {}
    }
    Ok(rustix::fs::access(path, rustix::fs::Access::READ_OK)?)
}

/// Whether a file can be written.
pub fn output(path: &Path, is_dir: bool) -> Result<(), String> {
    let access = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK);
    match (path.is_dir(), is_dir) {
        (true, false) => return Err("it is a directory".into()),
        (false, true) if path.exists() => return Err("it is not a directory".into()),
        _ => {}
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    match directory.metadata() {
        Err(e) => Err(format!("{}: {}", directory.display(), e)),
        Ok(m) if !m.is_dir() => Err(format!("{} is no directory", directory.display())),
        Ok(_) if path.exists() => access(path).map_err(|e| io::Error::from(e).to_string()),
        Ok(_) => access(directory).map_err(|e| format!("{}: {}", directory.display(), io::Error::from(e))),
    }
}
