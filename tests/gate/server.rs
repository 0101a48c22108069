//! A Redis for tests of the gate: shared by all that keep to a partition, or a test's own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tollgate::domain::ids::Partition;

use crate::support::services::{self, TestRedis};

/// How a test's Redis runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// On its own.
    Alone,
    /// As a cluster of one node with all slots: it refuses keys of several slots in one script.
    Cluster,
}

/// Servers that tests share: each world keeps to a partition of its own.
static SHARED: [Mutex<Option<Arc<Server>>>; 2] = [const { Mutex::new(None) }; 2];

/// A server with so many partitions taken is shared no more; what is left is for those who have it already.
const SHARED_PARTITIONS: u16 = 128;

/// A running redis-server and its partitions that are taken.
pub struct Server {
    redis: TestRedis,
    next_partition: AtomicU16,
}

impl Server {
    /// The shared one of this mode.
    pub fn shared(mode: Mode) -> Arc<Self> {
        // A test that failed to start one leaves none.
        let mut shared =
            SHARED[usize::from(mode == Mode::Cluster)].lock().unwrap_or_else(PoisonError::into_inner);
        let has_room =
            |server: &&Arc<Self>| server.next_partition.load(Ordering::Relaxed) < SHARED_PARTITIONS;
        if let Some(server) = shared.as_ref().filter(has_room) {
            return Arc::clone(server);
        }
        let redis = services::redis_with(|options| options.cluster = mode == Mode::Cluster);
        let server = Arc::new(Self { redis, next_partition: AtomicU16::new(0) });
        *shared = Some(Arc::clone(&server));
        server
    }

    /// One of the test's own.
    pub fn own() -> Arc<Self> {
        Arc::new(Self::own_with(&[]))
    }

    /// One of the test's own with these settings of redis.conf.
    pub fn own_with(settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let redis = services::redis_with(|options| options.settings.extend(settings));
        Self { redis, next_partition: AtomicU16::new(0) }
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.redis.socket()
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

    /// Ends it in order, and starts it again on the same data and socket. Blocks.
    pub fn restart(&mut self) {
        self.redis.restart().unwrap();
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
}
