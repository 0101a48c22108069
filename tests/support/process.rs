//! Services in processes of their own, which may be killed.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::services;

/// How long a service may take to start, or a call to be done.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A file that a long run of a test reads.
#[allow(clippy::disallowed_methods, reason = "how a long run is told its file")]
pub fn path_from_environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// A number that configures a long run of a test.
#[allow(clippy::disallowed_methods, reason = "how a long run is told its length and its seed")]
pub fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Says that a test tries nothing because something is not installed, also where the output of passed tests is kept
/// back.
pub fn not_tried(what: &str) {
    writeln!(std::io::stderr(), "NOT TRIED, because it is not installed here: {what}").unwrap();
}

/// The `tollgate` command as on a machine of its own: with no variable of the shell that runs the tests but those that
/// find programs and temporary files, and in a directory where nothing is.
#[allow(clippy::disallowed_methods, reason = "what the command needs of the shell is handed on by name")]
pub fn tollgate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).env_clear().current_dir(services::bare_directory());
    for name in ["PATH", "TMPDIR", "LLVM_PROFILE_FILE"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command
}

/// An embedded installation in a process of its own.
pub struct Up {
    /// The process.
    pub child: Child,
    /// Where it serves, as a URL.
    pub url: String,
}

impl Up {
    /// Its first admin key.
    pub const KEY: &str = "tg_test_0123456789abcdef0123456789abcdef0123456789abcdef";

    /// Starts one on this directory, with further arguments, and waits until it serves. Blocks.
    pub fn start(data_dir: &Path, arguments: &[&str]) -> Self {
        Self::start_logging(data_dir, arguments, Stdio::null())
    }

    /// As [`Self::start`]; its log goes there.
    pub fn start_logging(data_dir: &Path, arguments: &[&str], log: Stdio) -> Self {
        let mut child = tollgate(&["up", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data_dir)
            .args(arguments)
            .env("TOLLGATE_ADMIN_KEY", Self::KEY)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.find_map(|line| line.ok()?.strip_prefix("ready ").map(str::to_owned));
        // Its later output must be read, or the process would block.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url: ready.expect("it says ready") }
    }

    /// Asks it to end (SIGTERM).
    pub fn ask_to_end(&self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A service in a process of its own.
pub struct Service {
    child: Child,
    /// Where it serves: an address and a port.
    pub address: String,
}

impl Service {
    /// Starts what `command` makes and waits until it serves; starts it again if it ends before that. Blocks.
    pub fn start(mut command: impl FnMut() -> Command) -> Self {
        let started = Instant::now();
        loop {
            let mut child = command().stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            if let Some(address) =
                lines.find_map(|line| line.ok()?.strip_prefix("ready http://").map(str::to_owned))
            {
                return Self { child, address };
            }
            child.wait().unwrap();
            assert!(started.elapsed() < PATIENCE, "the service does not start");
        }
    }

    /// Kills it at once (SIGKILL).
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
