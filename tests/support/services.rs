//! Private servers for the tests, never those of the machine: one Postgres for the run, whose migrated template
//! database is cloned for each test, and one Redis for each test. They end with the test process; the files of a run
//! stay for reading when a test fails, and the next run removes them.

use std::{
    fs::{self, DirBuilder, File},
    ops::{Deref, DerefMut},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use nix::sys::statvfs::{Statvfs, statvfs};
use tempfile::TempDir;
use tokio::sync::OnceCell;
use tokio_postgres::NoTls;
use tollgate::embedded::{Appendfsync, EmbeddedPostgres, EmbeddedRedis, PostgresOptions, RedisOptions};

/// A Redis for one test. Its files go with it unless the test fails.
pub struct TestRedis {
    server: EmbeddedRedis,
    directory: Option<TempDir>,
}

/// A database for one test, dropped with it unless the test fails.
pub struct TestDatabase {
    name: String,
    /// The URL for clients.
    pub url: String,
    /// Its own server, where the test needs one that it may freeze.
    server: Option<Arc<EmbeddedPostgres>>,
}

impl TestDatabase {
    /// An empty database on a server of this test's own.
    pub fn of_its_own() -> Self {
        Self::of_its_own_with(Vec::new()).0
    }

    /// The same with settings of the server's, and the file that this logs to.
    pub fn of_its_own_with(settings: Vec<(String, String)>) -> (Self, PathBuf) {
        let directory = RUN.path.join(format!("p{}", NUMBER.fetch_add(1, Ordering::SeqCst)));
        let log = directory.join("postgres.log");
        let mut options = PostgresOptions::new(directory);
        (options.durable, options.settings) = (false, settings);
        let server = EmbeddedPostgres::start(options).expect("a Postgres of the test's own");
        (Self { name: String::new(), url: server.url(), server: Some(Arc::new(server)) }, log)
    }

    /// Freezes its own server until the returned guard is dropped.
    pub fn freeze(&self) -> Frozen {
        let server = self.server.clone().expect("a server of its own");
        server.pause().expect("it is frozen");
        Frozen(Box::new(move || server.resume().expect("it goes on")))
    }
}

/// Lets a frozen server go on when dropped, also in a test that fails.
pub struct Frozen(Box<dyn Fn() + Send>);

impl Drop for Frozen {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl TestRedis {
    /// Empties it.
    pub async fn flush(&self) {
        redis::cmd("FLUSHALL").exec_async(&mut self.connection().await).await.expect("it is emptied");
    }

    /// A connection to it.
    pub async fn connection(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.url()).expect("a URL");
        client.get_multiplexed_async_connection().await.expect("a connection")
    }

    /// Freezes the server until the returned guard is dropped.
    pub fn freeze(&self) -> Frozen {
        self.server.pause().expect("it is frozen");
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.server.id()).unwrap());
        Frozen(Box::new(move || {
            // A server that was killed meanwhile need not go on.
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT);
        }))
    }
}

/// Distinguishes the databases of a run.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A directory of the run, removed on drop unless the test fails.
pub fn directory() -> TempDir {
    tempfile::Builder::new().prefix("t").tempdir_in(RUN.path.as_path()).expect("a directory for the test")
}

/// An empty directory of the run, for commands that must find nothing where they start.
pub fn bare_directory() -> PathBuf {
    let path = RUN.path.join("bare");
    fs::create_dir_all(&path).expect("a directory for the run");
    path
}

/// Starts a Redis for this test.
pub fn redis() -> TestRedis {
    // It writes before it answers, so that what was acknowledged survives a kill, though not a power cut.
    redis_with(|options| options.appendfsync = Appendfsync::No)
}

/// Starts a Redis in cluster mode (one node with every slot) for this test.
pub fn redis_cluster() -> TestRedis {
    redis_with(|options| options.cluster = true)
}

/// Starts a Redis for this test with options changed by `change`.
pub fn redis_with(change: impl FnOnce(&mut RedisOptions)) -> TestRedis {
    let directory = directory();
    let mut options = RedisOptions::new(directory.path());
    change(&mut options);
    let server = EmbeddedRedis::start(options).expect("a private Redis");
    TestRedis { server, directory: Some(directory) }
}

/// A database that is made once in a run and cloned for each test.
pub struct Template {
    name: &'static str,
    made: OnceCell<()>,
}

impl Template {
    /// Nothing is made before the first [`Self::database`]. Keep it in a static.
    pub const fn new(name: &'static str) -> Self {
        Self { name, made: OnceCell::const_new() }
    }

    /// Makes a database for this test, a clone of the template, which the first caller makes with `migrate`: it is
    /// given the template's URL and must close its connections. Every caller passes the same function.
    pub async fn database(&self, migrate: impl AsyncFnOnce(String)) -> TestDatabase {
        self.made
            .get_or_init(async || {
                execute(&format!("CREATE DATABASE {}", self.name)).await;
                migrate(postgres().url_of(self.name)).await;
            })
            .await;
        create_database(&format!("TEMPLATE {}", self.name)).await
    }
}

/// Makes an empty database for this test.
pub async fn empty_database() -> TestDatabase {
    create_database("").await
}

async fn create_database(from: &str) -> TestDatabase {
    let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::SeqCst));
    execute(&format!("CREATE DATABASE {name} {from}")).await;
    let url = postgres().url_of(&name);
    TestDatabase { name, url, server: None }
}

/// The run's Postgres. It does not force its writes to disk: a test that kills the machine needs its own.
pub fn postgres() -> &'static EmbeddedPostgres {
    static SERVER: LazyLock<EmbeddedPostgres> = LazyLock::new(|| {
        let mut options = PostgresOptions::new(RUN.path.join("postgres"));
        options.durable = false;
        options.connections_max = 500;
        EmbeddedPostgres::start(options).expect("a private Postgres")
    });
    &SERVER
}

impl Deref for TestRedis {
    type Target = EmbeddedRedis;

    fn deref(&self) -> &EmbeddedRedis {
        &self.server
    }
}

impl DerefMut for TestRedis {
    fn deref_mut(&mut self) -> &mut EmbeddedRedis {
        &mut self.server
    }
}

impl Drop for TestRedis {
    fn drop(&mut self) {
        if let Some(directory) = self.directory.take().filter(|_| thread::panicking()) {
            eprintln!("the files of this test's Redis stay in {}", directory.keep().display());
        }
    }
}

impl TestDatabase {
    /// Ends every connection to the database and lets nobody in until [`Self::open`]: to its clients Postgres is away.
    pub async fn close(&self) {
        let name = &self.name;
        execute(&format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")).await;
        execute(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"))
            .await;
    }

    /// Lets clients in again.
    pub async fn open(&self) {
        execute(&format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS true", self.name)).await;
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if self.server.is_some() {
            return;
        }
        if thread::panicking() {
            eprintln!("this test's database stays until the run ends: {}", self.url);
            return;
        }
        let drop_database = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        // A thread of its own, because the test's runtime may be the one that is dropping us.
        thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime")
                .block_on(execute(&drop_database));
        })
        .join()
        .expect("the database is dropped");
    }
}

async fn execute(statement: &str) {
    let (client, connection) =
        tokio_postgres::connect(&postgres().url_of("postgres"), NoTls).await.expect("the run's Postgres");
    let connection = tokio::spawn(connection);
    client.batch_execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    drop(client);
    connection.await.expect("the connection's task").expect("the connection ends in order");
}

/// The directory of this run.
static RUN: LazyLock<Run> = LazyLock::new(|| Run::begin().expect("a directory for the test run"));

struct Run {
    path: PathBuf,
    /// Locked for as long as the process lives: that is how another run sees that the directory is in use.
    _lock: File,
}

impl Run {
    /// Removes what ended runs left and makes a directory for this one.
    fn begin() -> std::io::Result<Self> {
        let parent = temporary().join(format!("tollgate-tests-{}", nix::unistd::Uid::effective()));
        // Postgres of a root's run belongs to another user, who has to pass.
        DirBuilder::new().recursive(true).mode(0o711).create(&parent)?;
        let gate = File::create(parent.join("lock"))?;
        gate.lock()?;
        sweep(&parent)?;
        let path = parent.join(std::process::id().to_string());
        DirBuilder::new().mode(0o711).create(&path)?;
        let lock = File::create(path.join("lock"))?;
        lock.lock()?;
        Ok(Self { path, _lock: lock })
    }
}

/// In memory where there is enough of it, unless `TMPDIR` says where: a test's database is some 700 small files, and to
/// make and remove these on a disk took a third of the run.
#[allow(clippy::disallowed_methods, reason = "the shell says where temporary files go")]
fn temporary() -> PathBuf {
    const ENOUGH_BYTES: u64 = 8 << 30;
    let memory = Path::new("/dev/shm");
    let free = |found: Statvfs| found.blocks_available() * found.fragment_size();
    let is_enough = statvfs(memory).is_ok_and(|found| free(found) >= ENOUGH_BYTES);
    if is_enough && std::env::var_os("TMPDIR").is_none() { memory.to_owned() } else { std::env::temp_dir() }
}

fn sweep(parent: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        let in_use = File::open(path.join("lock")).is_ok_and(|lock| lock.try_lock().is_err());
        if path.is_dir() && !in_use {
            fs::remove_dir_all(&path)?;
        }
    }
    Ok(())
}
