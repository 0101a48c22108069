//! A Redis of the test's own: a child process on a unix socket, gone with its directory when dropped.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tollgate::domain::ids::Partition;

/// How a test's Redis runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// On its own.
    Alone,
    /// As a cluster of one node with all slots: it refuses keys of several slots in one script.
    Cluster,
}

/// Servers that all tests share: each test keeps to a partition of its own.
static SHARED: [OnceLock<Arc<Server>>; 2] = [const { OnceLock::new() }; 2];

/// Runs the server until its input closes, which the end of the test process does in any case, and clears up.
const KEEPER: &str =
    r#"redis-server "$@" & server=$!; read -r _; kill -9 "$server"; wait "$server"; rm -rf "$PWD""#;

/// A running redis-server.
pub struct Server {
    keeper: Child,
    directory: PathBuf,
    next_partition: AtomicU16,
}

impl Server {
    /// The shared one of this mode.
    pub fn shared(mode: Mode) -> Arc<Self> {
        let shared = &SHARED[usize::from(mode == Mode::Cluster)];
        Arc::clone(shared.get_or_init(|| Arc::new(Self::of(mode))))
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
        let directory = tempfile::tempdir().unwrap().keep();
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .current_dir(&directory)
            .args(["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--appendonly", "yes"])
            .args(["--appendfsync", "everysec", "--maxmemory-policy", "noeviction", "--loglevel", "warning"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { keeper, directory, next_partition: AtomicU16::new(0) };
        server.wait_until_it_answers();
        server
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("redis.sock")
    }

    /// The url under which the gate reaches it.
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// A partition that no other world on this server has.
    pub fn take_partition(&self) -> Partition {
        Partition::new(self.next_partition.fetch_add(1, Ordering::Relaxed))
            .expect("a partition for each world")
    }

    /// Forgets everything, for the next world after the last one.
    pub fn empty(&self) {
        self.command(&["FLUSHALL"]);
        self.next_partition.store(0, Ordering::Relaxed);
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
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
