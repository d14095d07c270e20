//! Containers of a pod: processes that share a network, and are each alone in a process namespace, where they
//! have number 1.

use std::process::Command;

/// A command that runs this program in a process namespace of its own, and ends it when it is ended itself.
/// `sees`: whether it has a /proc of that namespace, and not still the one outside. `Err`: why the system
/// lets nobody have namespaces.
pub fn alone(sees: bool) -> Result<Command, String> {
    // Root needs no user namespace for that.
    let users =
        if polyduct_os::process::user_id() == 0 { &[][..] } else { &["--user", "--map-current-user"][..] };
    let mut args = users.to_vec();
    args.extend(["--pid", "--fork", "--kill-child"]);
    if sees {
        args.push("--mount-proc");
    }
    let tried = Command::new("unshare").args(&args).arg("true").output().map_err(|e| e.to_string())?;
    if !tried.status.success() {
        return Err(String::from_utf8_lossy(&tried.stderr).trim().to_owned());
    }
    let mut command = Command::new("unshare");
    command.args(&args).arg(std::env::current_exe().unwrap());
    Ok(command)
}
