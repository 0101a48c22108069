//! The pool. Every wait is bounded, and what changes the books runs in a task of its own.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono::{DateTime, Utc};
use deadpool::managed::QueueMode;
use diesel::ConnectionError;
use diesel_async::pooled_connection::deadpool::{Object, Pool};
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod};
use diesel_async::{AnsiTransactionManager, AsyncPgConnection, SimpleAsyncConnection, TransactionManager};
use futures::future::{BoxFuture, ready};
use futures::{FutureExt, TryFutureExt};
use tokio::runtime::Handle;
use tokio_postgres::config::Host;

use super::at_work::{AtWork, OwnClient};
use super::decisions::Copier;
use super::functions::transaction_timestamp;
use super::months::KnownMonths;
use super::parking::ParkingQueue;
use super::silence::Silence;
use super::subjects::KnownSubjects;
use super::{Ledger, LedgerError};

/// The port where a URL names none.
const POSTGRES_PORT: u16 = 5432;

/// How to reach the ledger and how long to wait for it.
#[derive(Debug, Clone)]
pub struct LedgerOptions {
    /// A Postgres URL or key-value string; a host that starts with `/` is a directory with the server's socket.
    pub url: String,
    /// The most connections at once.
    pub pool_size: usize,
    /// The longest wait for a free connection.
    pub checkout_timeout: Duration,
    /// The longest wait for a new connection.
    pub connect_timeout: Duration,
    /// The longest a statement may take, at the server; the client gives a transaction twice as long.
    pub statement_timeout: Duration,
    /// The group role to work as (`tollgate_service`), if the user of `url` was granted one.
    pub role: Option<String>,
    /// For so long after it was resolved, an operation is recognised by its key.
    pub idempotency_horizon: Duration,
    /// How long after its end a period still takes what happened in it.
    pub close_grace: Duration,
}

/// The server and the database that a URL names, without its secrets.
pub fn address_of(url: &str) -> String {
    let Ok(config) = url.parse::<tokio_postgres::Config>() else {
        return "an address that cannot be read".to_owned();
    };
    let ports = config.get_ports().iter().copied().chain(std::iter::repeat(POSTGRES_PORT));
    let hosts = config.get_hosts().iter().zip(ports).map(|(host, port)| match host {
        Host::Tcp(name) => format!("{name}:{port}"),
        Host::Unix(directory) => directory.display().to_string(),
    });
    format!("{}/{}", hosts.collect::<Vec<_>>().join(","), config.get_dbname().unwrap_or_default())
}

/// What all handles to one ledger share, whichever connections they use.
pub(super) struct Shared {
    options: LedgerOptions,
    silence: Arc<Silence>,
    look_ups: Connections,
    /// What changes the books runs here: the runtime must outlive the worker thread that asked for it.
    pub(super) runtime: Handle,
    pub(super) partitions: OnceLock<u16>,
    pub(super) months: KnownMonths,
    pub(super) subjects: KnownSubjects,
    pub(super) decisions: tokio::sync::Mutex<Copier>,
    pub(super) to_park: ParkingQueue,
}

impl Ledger {
    /// Opens the pool and one connection, to fail at once when the ledger cannot be reached.
    ///
    /// Errors: [`LedgerError::Unavailable`] when it does not answer within the timeouts.
    pub async fn connect(options: LedgerOptions) -> Result<Self, LedgerError> {
        let runtime = Handle::current();
        let (probe, look_ups) =
            (pool(&options, 1, NEW_PLANS, &runtime)?, pool(&options, LOOK_UPS_MAX, KEPT_PLANS, &runtime)?);
        let pool = pool(&options, options.pool_size, NEW_PLANS, &runtime)?;
        let shared = Shared {
            silence: Arc::new(Silence::new(probe, runtime.clone())),
            look_ups,
            options,
            runtime,
            partitions: OnceLock::new(),
            months: KnownMonths::default(),
            subjects: KnownSubjects::default(),
            decisions: tokio::sync::Mutex::default(),
            to_park: ParkingQueue::default(),
        };
        let ledger = Self { shared: Arc::new(shared), pool };
        drop(ledger.connection().await?);
        ledger.shared.silence.prepare().await;
        Ok(ledger)
    }

    /// The same ledger over at most `connections` connections that nobody else uses.
    ///
    /// Errors: [`LedgerError::Unavailable`] when no pool can be made. Nothing is connected yet.
    pub fn with_connections_of_its_own(&self, connections: usize) -> Result<Self, LedgerError> {
        let pool = pool(&self.shared.options, connections, NEW_PLANS, &self.shared.runtime)?;
        Ok(Self { shared: self.shared.clone(), pool })
    }

    /// The same ledger over connections that keep the plan of every query, for look-ups by key. Planning such a query
    /// on a partitioned table takes many times as long as the look-up.
    pub(crate) fn under_kept_plans(&self) -> Self {
        Self { shared: self.shared.clone(), pool: self.shared.look_ups.clone() }
    }

    /// The ledger as it is now: whatever is read by this handle is of one instant, over a connection that nobody else
    /// uses. Once that is lost, nothing more is read: so it is where nothing is read for `left_alone`. It is to be
    /// dropped soon: what is deleted meanwhile keeps its place on the disk.
    ///
    /// Errors: as [`Self::connect`].
    pub async fn snapshot(&self, left_alone: Duration) -> Result<Self, LedgerError> {
        let options = &self.shared.options;
        let greeting = format!(
            "{}SET idle_in_transaction_session_timeout = {}; {BEGIN_SNAPSHOT}",
            greeting(options, NEW_PLANS),
            left_alone.as_millis()
        );
        let pool = pool_of(options, 1, greeting, Some(AtomicBool::new(false)), &self.shared.runtime)?;
        let snapshot = Self { shared: self.shared.clone(), pool };
        // The first question decides the instant.
        snapshot.now_ms().await?;
        Ok(snapshot)
    }

    /// What time it is, by the database's clock (unix ms); of a snapshot, when it began.
    pub async fn now_ms(&self) -> Result<i64, LedgerError> {
        let now: Option<DateTime<Utc>> = self.first(|| diesel::select(transaction_timestamp())).await?;
        Ok(now.ok_or_else(|| LedgerError::Damaged("the clock".into()))?.timestamp_millis())
    }

    /// A new connection outside the pools, for what Diesel cannot say.
    pub(super) async fn client_of_its_own(&self) -> Result<OwnClient, LedgerError> {
        let options = &self.shared.options;
        let (greeting, runtime) = (greeting(options, NEW_PLANS), &self.shared.runtime);
        let connecting = async {
            let (client, connection) = tokio_postgres::connect(&options.url, tokio_postgres::NoTls).await?;
            let looks = looks_for_its_client(connection.parameter("server_version"));
            // Its end shows at the client.
            let driver = runtime.spawn(connection.map(drop));
            let client = OwnClient::new(client, driver.abort_handle());
            if looks {
                // A server on a system where it cannot look refuses that, and is used all the same.
                let _ = client.batch_execute(LOOK_FOR_CLIENT).await;
            }
            client.batch_execute(ENGLISH_MESSAGES).await?;
            client.batch_execute(&greeting).await?;
            Ok(client)
        };
        let in_time = tokio::time::timeout(options.connect_timeout, connecting);
        match self.shared.silence.unless_silent(in_time).await? {
            Ok(connected) => {
                connected.map_err(|error: tokio_postgres::Error| LedgerError::Unavailable(error.to_string()))
            }
            Err(_) => Err(LedgerError::Unavailable("the server did not answer in time".into())),
        }
    }

    /// How many ms after it was resolved an operation is recognised by its key.
    pub(crate) fn horizon_ms(&self) -> i64 {
        i64::try_from(self.shared.options.idempotency_horizon.as_millis()).unwrap_or(i64::MAX)
    }

    /// How many ms after its end a period counts as closed.
    pub(crate) fn close_grace_ms(&self) -> i64 {
        i64::try_from(self.shared.options.close_grace.as_millis()).unwrap_or(i64::MAX)
    }

    /// How long one transaction may take.
    pub(crate) fn work_timeout(&self) -> Duration {
        self.shared.options.statement_timeout * 2
    }

    pub(crate) async fn connection(&self) -> Result<Object<AsyncPgConnection>, LedgerError> {
        let LedgerOptions { checkout_timeout, connect_timeout, .. } = self.shared.options;
        let free = tokio::time::timeout(checkout_timeout + connect_timeout, self.pool.get());
        match self.shared.silence.unless_silent(free).await? {
            Ok(result) => result.map_err(|error| LedgerError::Unavailable(error.to_string())),
            Err(_) => Err(LedgerError::Unavailable("no connection was free in time".into())),
        }
    }

    /// Runs reads on one connection, within the time limit. Retries once when the first connection turns out to be
    /// dead.
    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T, LedgerError>
    where
        F: for<'c> Fn(&'c mut AsyncPgConnection) -> BoxFuture<'c, Result<T, LedgerError>>,
    {
        match self.read_once(&work).await {
            Err(LedgerError::Unavailable(_)) => self.read_once(&work).await,
            result => result,
        }
    }

    async fn read_once<T, F>(&self, work: &F) -> Result<T, LedgerError>
    where
        F: for<'c> Fn(&'c mut AsyncPgConnection) -> BoxFuture<'c, Result<T, LedgerError>>,
    {
        let free = self.connection().await?;
        let mut at_work = AtWork::default();
        let done = self.in_time(work(at_work.begin(free))).await?;
        at_work.end();
        done
    }

    /// Runs `work` in one transaction in a task of its own: when the caller goes away, the transaction still ends as a
    /// whole.
    ///
    /// Errors: those of `work` (rolled back), or [`LedgerError::Unavailable`], after which it may have been committed.
    pub(crate) async fn transact<T, F>(&self, begin: &'static str, work: F) -> Result<T, LedgerError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut AsyncPgConnection) -> BoxFuture<'c, Result<T, LedgerError>>
            + Send
            + 'static,
    {
        let (ledger, work) = (self.clone(), without_its_type(work));
        // Boxed, so that all transactions are one type of task: each type would be compiled by itself.
        let transaction = async move { ledger.transact_work(begin, work).await }.boxed();
        let task = self.shared.runtime.spawn(transaction);
        typed(task.await.map_err(|error| LedgerError::Unavailable(error.to_string()))?)
    }

    /// As [`Self::transact`], in the task of the caller.
    pub(super) async fn transact_here<T, F>(&self, begin: &'static str, work: F) -> Result<T, LedgerError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut AsyncPgConnection) -> BoxFuture<'c, Result<T, LedgerError>>
            + Send
            + 'static,
    {
        typed(self.transact_work(begin, without_its_type(work)).await)
    }

    async fn transact_work(&self, begin: &'static str, work: Work) -> Result<Done, LedgerError> {
        let free = self.connection().await?;
        let mut at_work = AtWork::default();
        let done = self.in_time(in_transaction(at_work.begin(free), begin, work).boxed()).await?;
        at_work.end();
        done
    }

    /// Waits for work on a connection, within the time limit. Finished work is also a sign that the server answers.
    pub(super) async fn in_time<T>(
        &self,
        work: BoxFuture<'_, Result<T, LedgerError>>,
    ) -> Result<Result<T, LedgerError>, LedgerError> {
        match self.shared.silence.unless_silent(tokio::time::timeout(self.work_timeout(), work)).await? {
            Ok(done) => {
                if done.is_ok() {
                    self.shared.silence.heard();
                }
                Ok(done)
            }
            Err(_) => Err(LedgerError::Unavailable("the work of a connection took too long".into())),
        }
    }
}

/// What a transaction has returned, whatever its type is.
type Done = Box<dyn Any + Send>;
/// The work of a transaction, whatever it returns.
type Work =
    Box<dyn for<'c> FnOnce(&'c mut AsyncPgConnection) -> BoxFuture<'c, Result<Done, LedgerError>> + Send>;

fn without_its_type<T, F>(work: F) -> Work
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut AsyncPgConnection) -> BoxFuture<'c, Result<T, LedgerError>> + Send + 'static,
{
    Box::new(move |connection| work(connection).map_ok(|done| Box::new(done) as Done).boxed())
}

fn typed<T: 'static>(done: Result<Done, LedgerError>) -> Result<T, LedgerError> {
    let typed = done?.downcast::<T>();
    typed.map(|done| *done).map_err(|_| LedgerError::Damaged("what a transaction returned".into()))
}

/// Begins an ordinary transaction.
pub(crate) const BEGIN: &str = "BEGIN";
/// Begins one that books, with kept plans. Index scans are forced: a plan made while a table was small would otherwise
/// go on reading the whole table when it has grown.
pub(crate) const BEGIN_BOOKING: &str = "BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL jit = off; SET LOCAL plan_cache_mode = force_generic_plan";
/// Begins one whose reads all see the same instant.
pub(crate) const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
/// Begins a snapshot that looks up by index alone, with kept plans, as booking does.
pub(crate) const BEGIN_LOOK_UP: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL enable_seqscan = off; \
    SET LOCAL jit = off; SET LOCAL plan_cache_mode = force_generic_plan";

/// Begins reads within a transaction: each may take only this long, and a failure does not harm the transaction.
pub(crate) async fn begin_aside(
    connection: &mut AsyncPgConnection,
    statement_timeout: Duration,
) -> Result<(), LedgerError> {
    AnsiTransactionManager::begin_transaction(&mut *connection).await?;
    let timeout_ms = statement_timeout.as_millis().max(1);
    connection.batch_execute(&format!("SET LOCAL statement_timeout = {timeout_ms}")).await?;
    Ok(())
}

/// Ends such reads: the transaction is as before, and so is its time limit.
pub(crate) async fn end_aside(connection: &mut AsyncPgConnection) -> Result<(), LedgerError> {
    AnsiTransactionManager::rollback_transaction(&mut *connection).await?;
    Ok(())
}

async fn in_transaction(
    connection: &mut AsyncPgConnection,
    begin: &'static str,
    work: Work,
) -> Result<Done, LedgerError> {
    AnsiTransactionManager::begin_transaction_sql(&mut *connection, begin).await?;
    match work(&mut *connection).await {
        Ok(value) => {
            AnsiTransactionManager::commit_transaction(&mut *connection).await?;
            Ok(value)
        }
        Err(error) => {
            AnsiTransactionManager::rollback_transaction(&mut *connection).await?;
            Err(error)
        }
    }
}

pub(super) type Connections = Pool<AsyncPgConnection>;

/// Makes a pool. Connections' own tasks run in `runtime`, which must outlive the worker thread that asked for one.
fn pool(
    options: &LedgerOptions,
    size: usize,
    plans: &str,
    runtime: &Handle,
) -> Result<Connections, LedgerError> {
    pool_of(options, size, greeting(options, plans), None, runtime)
}

/// As [`pool`], with connections that are greeted so. A pool that has to be `used_once` makes one connection: another
/// one would not be in its transaction.
fn pool_of(
    options: &LedgerOptions,
    size: usize,
    greeting: String,
    used_once: Option<AtomicBool>,
    runtime: &Handle,
) -> Result<Connections, LedgerError> {
    let (connect_timeout, runtime) = (options.connect_timeout, runtime.clone());
    let mut config = ManagerConfig::default();
    config.recycling_method = RecyclingMethod::Fast;
    config.custom_setup = Box::new(move |url| {
        if used_once.as_ref().is_some_and(|used| used.swap(true, Ordering::AcqRel)) {
            let lost = ConnectionError::BadConnection("the connection of the snapshot is lost".into());
            return ready(Err(lost)).boxed();
        }
        let establishing = runtime.spawn(establish(url.to_owned(), greeting.clone(), connect_timeout));
        let stopping = |_| ConnectionError::BadConnection("the runtime is stopping".into());
        async move { establishing.await.map_err(stopping)? }.boxed()
    });
    Pool::builder(AsyncDieselConnectionManager::new_with_config(&options.url, config))
        .max_size(size.max(1))
        // The connection used last is taken first: it has parsed and planned the statements already.
        .queue_mode(QueueMode::Lifo)
        .build()
        .map_err(|error| LedgerError::Unavailable(error.to_string()))
}

/// Closes a connection whose work was cut off, so that nobody else gets it.
pub(super) fn discard(connection: Object<AsyncPgConnection>) {
    drop(Object::take(connection));
}

/// A statement is parsed once, but planned each time, for its values and the current size of the tables.
const NEW_PLANS: &str = "SET plan_cache_mode = force_custom_plan;";
/// A statement is planned once too. Index scans are forced, even while the tables are small.
const KEPT_PLANS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off;";
/// While a statement runs, the server looks so often whether its client is still there, and ends it where it is not.
const LOOK_FOR_CLIENT: &str = "SET client_connection_check_interval = '1s'";
/// The first version of Postgres that can look.
const LOOKS_SINCE: u32 = 14;
/// The most connections that look up with kept plans.
const LOOK_UPS_MAX: usize = 3;

/// Some failures are known by their English words (`error.rs`). Only a superuser, or a user to whom it was granted, may
/// choose the language; for others the server's own stays.
const ENGLISH_MESSAGES: &str =
    "DO $$BEGIN SET lc_messages = 'C'; EXCEPTION WHEN insufficient_privilege THEN NULL; END$$;";

fn greeting(options: &LedgerOptions, plans: &str) -> String {
    let timeout_ms = options.statement_timeout.as_millis();
    let mut greeting = format!(
        "SET statement_timeout = {timeout_ms}; SET idle_in_transaction_session_timeout = {}; {plans}",
        timeout_ms * 2
    );
    if let Some(role) = &options.role {
        greeting.push_str(&format!("SET ROLE \"{}\";", role.replace('"', "\"\"")));
    }
    greeting
}

/// Whether a server of this version can look whether its client is still there.
fn looks_for_its_client(server_version: Option<&str>) -> bool {
    let major = server_version.and_then(|version| version.split(|c: char| !c.is_ascii_digit()).next());
    major.and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= LOOKS_SINCE)
}

async fn establish(
    url: String,
    greeting: String,
    timeout: Duration,
) -> Result<AsyncPgConnection, ConnectionError> {
    let late = |_| ConnectionError::BadConnection("the server did not answer in time".into());
    tokio::time::timeout(timeout, establish_now(&url, &greeting)).await.map_err(late)?
}

async fn establish_now(url: &str, greeting: &str) -> Result<AsyncPgConnection, ConnectionError> {
    let bad = |error: tokio_postgres::Error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        ConnectionError::BadConnection(format!("{error}{cause}"))
    };
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.map_err(bad)?;
    let looks = looks_for_its_client(connection.parameter("server_version"));
    let mut connection = AsyncPgConnection::try_from_client_and_connection(client, connection).await?;
    if looks {
        // A server on a system where it cannot look refuses that, and is used all the same.
        let _ = connection.batch_execute(LOOK_FOR_CLIENT).await;
    }
    // Apart: a greeting may begin a transaction, whose isolation cannot be chosen after a block.
    for statements in [ENGLISH_MESSAGES, greeting] {
        connection.batch_execute(statements).await.map_err(ConnectionError::CouldntSetupConfiguration)?;
    }
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none(None, false)]
    #[case::nothing_of_a_number(Some("devel"), false)]
    #[case::very_old(Some("9.6.24"), false)]
    #[case::too_old(Some("13.22"), false)]
    #[case::the_first(Some("14.0"), true)]
    #[case::of_a_distribution(Some("15.18 (Debian 15.18-0+deb12u1)"), true)]
    #[case::not_released(Some("18beta1"), true)]
    fn only_a_server_that_can_is_asked_to_look_for_its_client(
        #[case] version: Option<&str>,
        #[case] looks: bool,
    ) {
        assert_eq!(looks_for_its_client(version), looks);
    }
}
