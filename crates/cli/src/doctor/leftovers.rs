//! Lists what lies around under polyduct's name, and the pipes that are open now.

use super::Finding;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// How pipes name their sockets, which vanish with their owner.
const SOCKETS: &str = "@polyduct/";
/// Most names that are printed.
const SHOWN: usize = 8;

pub fn examine() -> Vec<Finding> {
    let mut findings = vec![files()];
    let sockets = fs::read_to_string("/proc/net/unix").map(|text| sockets(&text)).unwrap_or_default();
    findings.push(open_pipes(sockets));
    findings
}

/// Files of this user. Slots have no names, so there is nothing to find unless something went wrong.
fn files() -> Finding {
    let uid = rustix::process::geteuid().as_raw();
    let mut found: Vec<PathBuf> = Vec::new();
    for directory in ["/dev/shm", "/tmp"] {
        let Ok(entries) = fs::read_dir(directory) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let ours = match directory {
                "/tmp" => name.to_string_lossy().starts_with("polyduct"),
                _ => name.to_string_lossy().contains("polyduct"),
            };
            if ours && entry.metadata().is_ok_and(|m| m.uid() == uid) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    if found.is_empty() {
        return Finding::ok("leftovers", "none");
    }
    let names = |sep: &str| {
        let list: Vec<String> = found.iter().take(SHOWN).map(|p| p.display().to_string()).collect();
        let more = found.len().saturating_sub(SHOWN);
        list.join(sep) + &if more > 0 { format!("{sep}and {more} more") } else { String::new() }
    };
    let advice = "not polyduct's own work, or a crash's: remove them if no program of yours uses them";
    Finding::warn("leftovers", names(", "), advice)
}

/// Name and inode of each of our sockets in the kernel's list.
fn sockets(text: &str) -> Vec<(String, u64)> {
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let inode = words.nth(6)?.parse().ok()?;
        let name = words.next()?.strip_prefix(SOCKETS)?;
        Some((name.trim_end_matches('@').to_owned(), inode))
    };
    let mut found: Vec<(String, u64)> = text.lines().filter_map(parse).collect();
    found.sort();
    // A listener and its connections carry one name.
    found.dedup_by(|a, b| a.0 == b.0);
    found
}

fn open_pipes(sockets: Vec<(String, u64)>) -> Finding {
    if sockets.is_empty() {
        return Finding::ok("open pipes", "none");
    }
    let owners = owners(&sockets);
    let list: Vec<String> = sockets
        .iter()
        .take(SHOWN)
        .map(|(name, inode)| match owners.iter().find(|(i, _)| i == inode) {
            Some((_, owner)) => format!("{name} ({owner})"),
            None => name.clone(),
        })
        .collect();
    let more = sockets.len().saturating_sub(SHOWN);
    Finding::ok(
        "open pipes",
        list.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() },
    )
}

/// Which process holds each socket, where we may look.
fn owners(sockets: &[(String, u64)]) -> Vec<(u64, String)> {
    let mut owners = Vec::new();
    let Ok(processes) = fs::read_dir("/proc") else { return owners };
    for process in processes.flatten() {
        let Ok(pid) = process.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        for file in files.flatten() {
            let Ok(target) = fs::read_link(file.path()) else { continue };
            let target = target.to_string_lossy();
            let inode =
                target.strip_prefix("socket:[").and_then(|t| t.strip_suffix(']')?.parse::<u64>().ok());
            let Some(inode) = inode.filter(|i| sockets.iter().any(|(_, own)| own == i)) else { continue };
            let command = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            owners.push((inode, format!("pid {pid} {}", command.trim())));
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_found_in_the_kernels_list() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    0000: 00000002 00000000 00010000 0005 01 20163 @polyduct/1000/run-ab-0\n\
                    0000: 00000003 00000000 00000000 0005 03 20170 @polyduct/1000/run-ab-0\n\
                    0000: 00000002 00000000 00010000 0001 01 20164 /run/polyduct/x\n\
                    0000: 00000003 00000000 00000000 0001 03 20165\n";
        assert_eq!(sockets(text), [("1000/run-ab-0".to_owned(), 20163)]);
    }

    #[test]
    fn an_open_socket_is_found_with_its_owner() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let name = format!("polyduct/test/{}", std::process::id());
        let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let finding = examine().pop().unwrap();
        let expected = format!("test/{0} (pid {0} ", std::process::id());
        assert!(finding.found.contains(&expected), "{finding:?}");
    }
}
