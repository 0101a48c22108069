//! A Redis of the test's own: a child process on a unix socket, gone with its directory when dropped.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// How a test's Redis runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// On its own.
    Alone,
    /// As a cluster of one node with all slots: it refuses keys of several slots in one script.
    Cluster,
}

/// Servers that tests share while any of them runs: each keeps to a partition of its own.
static SHARED: [Mutex<Weak<Server>>; 2] = [const { Mutex::new(Weak::new()) }; 2];

/// A running redis-server.
pub struct Server {
    child: Child,
    directory: tempfile::TempDir,
}

impl Server {
    /// The shared one of this mode.
    pub fn shared(mode: Mode) -> Arc<Self> {
        let mut shared = SHARED[usize::from(mode == Mode::Cluster)].lock().unwrap();
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::of(mode));
        *shared = Arc::downgrade(&server);
        server
    }

    /// Starts one in this mode.
    pub fn of(mode: Mode) -> Self {
        if mode == Mode::Alone {
            return Self::start(&[]);
        }
        let server = Self::start(&["--cluster-enabled", "yes"]);
        server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        let give_up = Instant::now() + Duration::from_secs(20);
        let is_ready = |info: redis::Value| format!("{info:?}").contains("cluster_state:ok");
        while !is_ready(server.command(&["CLUSTER", "INFO"])) {
            assert!(Instant::now() < give_up, "the cluster of one node does not get ready");
            std::thread::yield_now();
        }
        server
    }

    /// Starts one that keeps an append-only file and never evicts, with these further options.
    pub fn start(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let child = Command::new("redis-server")
            .current_dir(directory.path())
            .args(["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--appendonly", "yes"])
            .args(["--appendfsync", "everysec", "--maxmemory-policy", "noeviction", "--loglevel", "warning"])
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, directory };
        server.wait_until_it_answers();
        server
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    /// The url under which the gate reaches it.
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// A blocking connection for looking inside.
    pub fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// Runs one plain command.
    pub fn command(&self, words: &[&str]) -> redis::Value {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.connection()).unwrap()
    }

    fn wait_until_it_answers(&self) {
        let give_up = Instant::now() + Duration::from_secs(20);
        let client = redis::Client::open(self.url()).unwrap();
        let answers = || redis::cmd("PING").query::<String>(&mut client.get_connection()?);
        while answers().is_err() {
            assert!(Instant::now() < give_up, "redis-server does not answer");
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
