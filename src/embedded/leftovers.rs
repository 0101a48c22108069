//! Finds processes by their program and directory, not by a pid file: ids are reused, so a pid file alone proves
//! nothing.

use std::{fs, path::Path, process::Command, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{EmbeddedError, process::wait_until};

/// How long a leftover may take to end after each signal.
const PATIENCE: Duration = Duration::from_secs(5);

/// A custom setting by which a Postgres names its directory on its own command line.
pub(super) const DIRECTORY_SETTING: &str = "tollgate.directory=";

/// Ends every `program` that still works in `directory`: first by `signal`, then by SIGKILL.
/// `directory` must be canonical.
pub(super) fn end_all(
    server: &'static str,
    program: &str,
    directory: &Path,
    signal: Signal,
) -> Result<(), EmbeddedError> {
    for signal in [signal, Signal::SIGKILL] {
        let left = working_in(program, directory);
        if left.is_empty() {
            return Ok(());
        }
        tracing::warn!(server, directory = %directory.display(), processes = left.len(), "ending what an earlier run left");
        for pid in left {
            // A paused process cannot act on the signal.
            let _gone_already = kill(pid, signal).and_then(|()| kill(pid, Signal::SIGCONT));
        }
        wait_until(PATIENCE, || working_in(program, directory).is_empty());
    }
    match working_in(program, directory).first() {
        None => Ok(()),
        Some(pid) => {
            Err(EmbeddedError::Leftover { server, directory: directory.to_owned(), id: pid.as_raw() })
        }
    }
}

/// Every process named `program` that works in `directory` or names it on its command line.
pub(super) fn working_in(program: &str, directory: &Path) -> Vec<Pid> {
    let own = Pid::this();
    if !Path::new("/proc/self/cmdline").exists() {
        return listed_by_ps(program, directory);
    }
    all_processes().filter(|&pid| pid != own && works_in(pid, program, directory)).collect()
}

/// Every process that `ancestor` started, directly or through others.
pub(super) fn descendants(ancestor: Pid) -> Vec<Pid> {
    let parents: Vec<(Pid, Pid)> = all_processes().filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let mut family = vec![ancestor];
    let mut next = 0;
    while let Some(&member) = family.get(next) {
        family.extend(parents.iter().filter(|(_, parent)| *parent == member).map(|(pid, _)| *pid));
        next += 1;
    }
    family.split_off(1)
}

fn works_in(pid: Pid, program: &str, directory: &Path) -> bool {
    let named = fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == program);
    // The working directory also finds a server's children, but may be unreadable; the command line never is.
    named
        && (fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == directory)
            || names_directory(pid, directory))
}

fn names_directory(pid: Pid, directory: &Path) -> bool {
    let directory = directory.as_os_str().as_encoded_bytes();
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
        line.split(|&byte| byte == 0).any(|argument| {
            argument.strip_prefix(DIRECTORY_SETTING.as_bytes()).unwrap_or(argument) == directory
        })
    })
}

fn all_processes() -> impl Iterator<Item = Pid> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Pid::from_raw))
}

fn parent_of(pid: Pid) -> Option<Pid> {
    stat(pid, 1)?.parse().ok().map(Pid::from_raw)
}

/// Whether a process has not ended; one that has, but was not reaped yet, has ended.
pub(super) fn is_alive(pid: Pid) -> bool {
    stat(pid, 0).is_some_and(|state| state != "Z" && state != "X")
}

/// A field of /proc/<pid>/stat after the name: 0 is the state, 1 the parent.
fn stat(pid: Pid, field: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // `id (name) state parent …`: the name may itself hold spaces and parentheses.
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_whitespace().nth(field).map(str::to_owned)
}

/// For systems without /proc.
fn listed_by_ps(program: &str, directory: &Path) -> Vec<Pid> {
    let Ok(output) = Command::new("ps").args(["-A", "-ww", "-o", "pid=,command="]).output() else {
        return Vec::new();
    };
    let directory = directory.to_string_lossy();
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.trim_start().split_once(' '))
        .filter(|(_, command)| {
            command.split(' ').next().is_some_and(|path| path.ends_with(program))
                && command.contains(&*directory)
        })
        .filter_map(|(pid, _)| pid.parse().ok().map(Pid::from_raw))
        .collect()
}
