//! A private Redis and a private Postgres as child processes under one data directory: what `tollgate up` runs on,
//! and what the tests use. They are reached over Unix sockets, keep their data over restarts, and end with the
//! process that started them, however it ends.
//!
//! ```text
//! <data-dir>/lock           held while the servers run
//!            secret         the installation's secret, made once
//!            servers.json   where the running servers are
//!            redis/         append-only file, log, socket
//!            postgres/      data, log, socket (sockets move to the temporary directory where the path is too long)
//! ```
//!
//! Everything here blocks: from async code call it inside `tokio::task::spawn_blocking`.

mod data_dir;
mod error;
mod leftovers;
mod place;
mod postgres;
mod process;
mod programs;
mod redis;

use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};

use self::data_dir::{DataDir, Hold};
pub use self::{
    data_dir::Servers,
    error::EmbeddedError,
    postgres::{EmbeddedPostgres, PostgresOptions},
    redis::{Appendfsync, EmbeddedRedis, RedisOptions},
};

/// How long a server may take to end in order.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// The servers of one data directory: started by us, or found running.
#[derive(Debug)]
pub struct Embedded {
    path: PathBuf,
    servers: Servers,
    secret: SecretString,
    /// `None` when another process runs them. Dropped first to last: the directory is let go only at the end.
    owned: Option<Owned>,
}

#[derive(Debug)]
struct Owned {
    redis: EmbeddedRedis,
    postgres: EmbeddedPostgres,
    data_dir: DataDir,
}

impl Embedded {
    /// Starts both servers under `data_dir`, at the same time, and waits until they answer.
    ///
    /// # Errors
    /// Another process uses the directory, a server is not installed or does not come up, a file cannot be used.
    pub fn start(data_dir: &Path) -> Result<Self, EmbeddedError> {
        match DataDir::hold(data_dir)? {
            Hold::Ours(data_dir) => Self::start_in(data_dir),
            Hold::Others(path) => Err(EmbeddedError::InUse(path)),
        }
    }

    /// Uses the servers that already run under `data_dir`, and starts them if none do.
    ///
    /// # Errors
    /// As [`Self::start`]; also when the process that holds the directory has not announced its servers yet.
    pub fn attach_or_start(data_dir: &Path) -> Result<Self, EmbeddedError> {
        match DataDir::hold(data_dir)? {
            Hold::Ours(data_dir) => Self::start_in(data_dir),
            Hold::Others(path) => {
                let servers =
                    data_dir::announced(&path)?.ok_or_else(|| EmbeddedError::StillStarting(path.clone()))?;
                let secret = data_dir::read_secret(&path)?;
                Ok(Self { path, servers, secret, owned: None })
            }
        }
    }

    /// Where the servers that run under `data_dir` are; `None` when none run.
    ///
    /// # Errors
    /// The directory or its `servers.json` cannot be read.
    pub fn running(data_dir: &Path) -> Result<Option<Servers>, EmbeddedError> {
        // A killed run leaves an announcement of servers that are gone.
        if data_dir.exists() && data_dir::is_held(data_dir)? {
            data_dir::announced(data_dir)
        } else {
            Ok(None)
        }
    }

    /// Whether servers were ever started under `data_dir`.
    #[must_use]
    pub fn is_data_dir(data_dir: &Path) -> bool {
        data_dir::has_secret(data_dir)
    }

    /// Ends the servers in order: Postgres writes its checkpoint, Redis its file. Does nothing to servers that another
    /// process runs. Dropping without this kills them, which loses nothing that they made durable.
    ///
    /// # Errors
    /// A server could not be signalled; the other is stopped all the same.
    pub fn stop(self) -> Result<(), EmbeddedError> {
        self.stop_within(STOP_PATIENCE)
    }

    /// As [`Self::stop`]; a server that has not ended within `patience` is killed.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub fn stop_within(mut self, patience: Duration) -> Result<(), EmbeddedError> {
        let Some(owned) = &mut self.owned else { return Ok(()) };
        owned.data_dir.withdraw();
        let (redis, postgres) = (&mut owned.redis, &mut owned.postgres);
        thread::scope(|scope| {
            let stopping = scope.spawn(|| redis.stop_within(patience));
            let stopped = postgres.stop_within(patience);
            stopped.and(stopping.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    /// The canonical data directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the servers are.
    #[must_use]
    pub const fn servers(&self) -> &Servers {
        &self.servers
    }

    /// The installation's secret: 64 hexadecimal digits.
    #[must_use]
    pub const fn secret(&self) -> &SecretString {
        &self.secret
    }

    /// What settings need to use these servers, as (key, value) for [`crate::settings::Settings::of_process`].
    #[must_use]
    pub fn settings(&self) -> Vec<(String, String)> {
        [
            ("redis.url", self.servers.redis_url.as_str()),
            ("postgres.url", self.servers.postgres_url.as_str()),
            ("installation.secret", self.secret.expose_secret()),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .to_vec()
    }

    /// Whether this process started the servers, so that they end with it.
    #[must_use]
    pub const fn is_owner(&self) -> bool {
        self.owned.is_some()
    }

    fn start_in(data_dir: DataDir) -> Result<Self, EmbeddedError> {
        data_dir.withdraw();
        let secret = data_dir.secret()?;
        let path = data_dir.path().to_owned();
        let (redis, postgres) = thread::scope(|scope| {
            let redis = scope.spawn(|| EmbeddedRedis::start(RedisOptions::new(path.join("redis"))));
            let postgres = EmbeddedPostgres::start(PostgresOptions::new(path.join("postgres")));
            (redis.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), postgres)
        });
        let (redis, postgres) = (redis?, postgres?);
        let servers = Servers {
            redis_url: redis.url(),
            redis_socket: redis.socket(),
            redis_id: redis.id(),
            postgres_url: postgres.url(),
            postgres_socket_directory: postgres.socket_directory().to_owned(),
            postgres_id: postgres.id(),
            started_by: std::process::id(),
        };
        data_dir.announce(&servers)?;
        Ok(Self { path, servers, secret, owned: Some(Owned { redis, postgres, data_dir }) })
    }
}
