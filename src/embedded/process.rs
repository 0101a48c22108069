//! One server process: started so that it dies with us, signalled, waited for.

use std::{
    io::{self, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{OnceLock, mpsc},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{EmbeddedError, leftovers};
use crate::clock::Clock;

/// How often a condition is looked at again while waiting for a server.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long a killed process may take to be gone: longer only when the disk hangs.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// A running server, child of this process. Dropping it kills it and everything it started.
#[derive(Debug)]
pub(super) struct ServerProcess {
    name: &'static str,
    child: Child,
}

struct Order {
    command: Command,
    answer: mpsc::Sender<io::Result<Child>>,
}

impl ServerProcess {
    /// Starts `command` in a process group of its own; it gets `death_signal` when this process ends in any way.
    pub(super) fn spawn(
        name: &'static str,
        mut command: Command,
        death_signal: Signal,
    ) -> Result<Self, EmbeddedError> {
        let program = PathBuf::from(command.get_program());
        // A group of its own keeps a terminal's Ctrl-C away from the server: we stop it in order.
        command.process_group(0);
        die_with_parent(&mut command, death_signal);
        let child = spawn_from_keeper(command).map_err(|source| EmbeddedError::Run { program, source })?;
        Ok(Self { name, child })
    }

    /// The process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if the server has ended.
    pub(super) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks the server to end, waits up to `patience`, then kills it.
    pub(super) fn stop(&mut self, signal: Signal, patience: Duration) -> Result<(), EmbeddedError> {
        if self.exit_status().is_some() {
            return Ok(());
        }
        self.resume()?;
        self.signal_server(signal)?;
        if wait_until(patience, || self.exit_status().is_some()) {
            return Ok(());
        }
        tracing::warn!(server = self.name, "did not stop in time and is killed");
        self.kill()
    }

    /// Kills the server and every process that it started, at once, and waits until they are gone.
    pub(super) fn kill(&mut self) -> Result<(), EmbeddedError> {
        if self.exit_status().is_some() {
            return Ok(());
        }
        // Stopped first, so that it starts nothing between the listing and the end.
        self.signal_server(Signal::SIGSTOP)?;
        let started = leftovers::descendants(self.pid());
        for &pid in &started {
            let _gone_already = kill(pid, Signal::SIGKILL);
        }
        self.signal_server(Signal::SIGKILL)?;
        let _reaped = self.child.wait();
        // They are not our children, so they can be listed but not waited for.
        if !wait_until(KILL_PATIENCE, || !started.iter().any(|&pid| leftovers::is_alive(pid))) {
            tracing::warn!(server = self.name, "a process that it started does not end");
        }
        Ok(())
    }

    /// Pauses the server and every process that it started (SIGSTOP).
    pub(super) fn pause(&self) -> Result<(), EmbeddedError> {
        self.signal_server(Signal::SIGSTOP)?;
        for pid in leftovers::descendants(self.pid()) {
            let _gone_already = kill(pid, Signal::SIGSTOP);
        }
        Ok(())
    }

    /// Lets a paused server go on (SIGCONT); harmless for one that runs.
    pub(super) fn resume(&self) -> Result<(), EmbeddedError> {
        for pid in leftovers::descendants(self.pid()) {
            let _gone_already = kill(pid, Signal::SIGCONT);
        }
        self.signal_server(Signal::SIGCONT)
    }

    fn pid(&self) -> Pid {
        // Process ids fit i32 by definition of pid_t; the child is ours until it is reaped.
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }

    fn signal_server(&self, signal: Signal) -> Result<(), EmbeddedError> {
        kill(self.pid(), signal).map_err(|errno| EmbeddedError::Signal {
            server: self.name,
            id: self.id(),
            signal: signal.as_str(),
            source: errno.into(),
        })
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::warn!(server = self.name, %error, "could not be killed");
        }
    }
}

/// Runs a short set-up program to its end, feeding it `input`; its output goes where `command` says.
pub(super) fn run_to_end(mut command: Command, input: &str) -> Result<ExitStatus, EmbeddedError> {
    let program = PathBuf::from(command.get_program());
    command.stdin(Stdio::piped());
    die_with_parent(&mut command, Signal::SIGKILL);
    let run = || {
        let mut child = spawn_from_keeper(command)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ends early closes its input: its status and log say why.
            let _closed_early = stdin.write_all(input.as_bytes());
        }
        child.wait()
    };
    run().map_err(|source| EmbeddedError::Run { program, source })
}

/// Checks `condition` until it holds or `patience` has passed; returns whether it held.
pub(super) fn wait_until(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let started = Clock::monotonic();
    loop {
        if condition() {
            return true;
        }
        if started.elapsed() >= patience {
            return false;
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Spawns on a thread that lives as long as the process: the kernel sends the parent-death signal when the
/// *thread* that spawned ends, and a runtime's threads come and go.
fn spawn_from_keeper(command: Command) -> io::Result<Child> {
    let (answer, answered) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts servers has ended");
    keeper()?.send(Order { command, answer }).map_err(|_unsent| gone())?;
    answered.recv().map_err(|_closed| gone())?
}

fn keeper() -> io::Result<&'static mpsc::Sender<Order>> {
    static KEEPER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    if let Some(orders) = KEEPER.get() {
        return Ok(orders);
    }
    let (orders, received) = mpsc::channel::<Order>();
    thread::Builder::new().name("server-keeper".to_owned()).spawn(move || {
        for mut order in received {
            let _asker_gone = order.answer.send(order.command.spawn());
        }
    })?;
    // Two first callers may race: the loser's thread ends without having spawned anything.
    Ok(KEEPER.get_or_init(|| orders))
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "pre_exec is the only place where the parent-death signal can be set")]
fn die_with_parent(command: &mut Command, signal: Signal) {
    use nix::unistd::{getpid, getppid};

    let parent = getpid();
    // SAFETY: between fork and exec only two system calls are made, both async-signal-safe, and nothing is
    // allocated. Rust changes user and group before it runs this, and that change would clear the signal.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(signal)?;
            // The parent may have died before the signal was set; then nobody would ever send it.
            if getppid() == parent { Ok(()) } else { Err(nix::errno::Errno::ESRCH.into()) }
        });
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_command: &mut Command, _signal: Signal) {
    // Other systems have no parent-death signal: the next start ends what a killed run left.
}
