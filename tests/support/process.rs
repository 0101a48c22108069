//! Services in processes of their own, which may be killed, and a caller that goes on to the next one.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::{Client, Method};
use serde_json::Value;

use super::services;

/// How long a service may take to start, or a call to be done.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A number that a long run of a test is told.
#[allow(clippy::disallowed_methods, reason = "how a long run is told its length and its seed")]
pub fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
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
        // What it prints later must find a reader.
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

/// A client that goes straight to where it is sent, whatever proxy the shell names.
pub fn http_client(timeout: Duration) -> Client {
    Client::builder().no_proxy().timeout(timeout).build().unwrap()
}

/// A service in a process of its own.
pub struct Service {
    child: Child,
    /// Where it serves: an address and a port.
    pub address: String,
}

impl Service {
    /// Starts what `command` makes and waits until it serves, again where it ends before that. Blocks.
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

/// Calls services as their users would: the next one where one does not answer.
#[derive(Clone)]
pub struct Caller {
    client: Client,
    key: String,
    addresses: Arc<[String]>,
    turn: Arc<AtomicUsize>,
}

impl Caller {
    /// One that calls with this key, the first address first.
    pub fn of(key: &str, addresses: impl IntoIterator<Item = String>) -> Self {
        let client = http_client(Duration::from_secs(15));
        Self { client, key: key.into(), addresses: addresses.into_iter().collect(), turn: Arc::default() }
    }

    /// The same with another key.
    pub fn with_key(&self, key: &str) -> Self {
        Self { key: key.into(), ..self.clone() }
    }

    /// One call: the answer's status and body, or nothing where nobody answered.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Value,
    ) -> Option<(u16, Value)> {
        let turn = self.turn.load(Ordering::SeqCst);
        let url = format!("http://{}{path}", self.addresses[turn % self.addresses.len()]);
        let mut request = self.client.request(method, url).bearer_auth(&self.key);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if !body.is_null() {
            request = request.json(&body);
        }
        let Ok(answer) = request.send().await else {
            self.turn.fetch_max(turn + 1, Ordering::SeqCst);
            return None;
        };
        let status = answer.status().as_u16();
        let text = answer.text().await.ok()?;
        Some((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    /// A `GET`.
    pub async fn get(&self, path: &str) -> Option<(u16, Value)> {
        self.call(Method::GET, path, None, Value::Null).await
    }

    /// A `POST`.
    pub async fn post(&self, path: &str, body: Value) -> Option<(u16, Value)> {
        self.call(Method::POST, path, None, body).await
    }

    /// Repeats a call until it is answered as done.
    pub async fn insist(&self, method: Method, path: &str, key: Option<&str>, body: Value) -> Value {
        let mut last = None;
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            match self.call(method.clone(), path, key, body.clone()).await {
                Some((..300, answer)) => return answer,
                other => last = other.or(last),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{method} {path} was not done in {PATIENCE:?}; last {last:?}");
    }
}
