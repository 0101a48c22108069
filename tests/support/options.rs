//! Options of a test's instance, and its start.

use tollgate::app::Role;
use tollgate::clock::Clock;
use tollgate::settings::{Inputs, Settings};

use super::app::{TestApp, database, own_database};
use super::services::{self, TestDatabase, TestRedis};

/// How many partitions a test's node has, unless it says otherwise.
pub const PARTITIONS: u16 = 8;

/// How a test's instance differs from the default.
#[derive(Default)]
pub struct AppOptions {
    /// Where the test clock starts, unix ms; none for the system's clock.
    test_clock_ms: Option<i64>,
    /// Settings as `("section.key", "value")`.
    settings: Vec<(&'static str, String)>,
    /// What it does not do.
    without: Vec<Role>,
    /// Keep the ledger on a Postgres of the test's own, which it may freeze.
    own_postgres: bool,
    /// An admin key that the ledger knows already.
    admin_key: Option<&'static str>,
}

/// The options of the default instance.
pub fn an_app() -> AppOptions {
    AppOptions::default()
}

/// Starts the default instance.
pub async fn spawn_app() -> TestApp {
    an_app().start().await
}

impl AppOptions {
    /// With this setting.
    pub fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.settings.push((key, value.to_string()));
        self
    }

    /// On a test clock that starts at this RFC 3339 time.
    pub fn at(self, now: &str) -> Self {
        let now: jiff::Timestamp = now.parse().expect("a time");
        self.at_ms(now.as_millisecond())
    }

    /// On a test clock that starts at this unix time in ms.
    pub fn at_ms(self, now_ms: i64) -> Self {
        Self { test_clock_ms: Some(now_ms), ..self }
    }

    /// Without a writer: nothing is booked.
    pub fn without_writer(self) -> Self {
        self.without(Role::Writer)
    }

    /// Without jobs: nothing expires by itself.
    pub fn without_jobs(self) -> Self {
        self.without(Role::Jobs)
    }

    /// With this one role.
    pub fn only(mut self, role: Role) -> Self {
        self.without
            .extend([Role::Http, Role::Writer, Role::Jobs].into_iter().filter(|other| *other != role));
        self
    }

    fn without(mut self, role: Role) -> Self {
        self.without.push(role);
        self
    }

    /// With the ledger on a Postgres of the test's own, which it may freeze.
    pub fn on_own_postgres(self) -> Self {
        Self { own_postgres: true, ..self }
    }

    /// With a ledger that knows this admin key already.
    pub fn known_by(self, admin_key: &'static str) -> Self {
        Self { admin_key: Some(admin_key), ..self }
    }

    /// Starts it.
    pub async fn start(self) -> TestApp {
        let database = if self.own_postgres { own_database().await } else { database().await };
        self.start_on(services::redis(), database).await
    }

    /// Starts it on these servers.
    pub async fn start_on(self, redis: TestRedis, database: TestDatabase) -> TestApp {
        let given = given(&redis, &database, &self.settings);
        let clock = self.test_clock_ms.map_or_else(Clock::system, Clock::test);
        let mut roles = vec![Role::Http, Role::Writer, Role::Jobs];
        roles.retain(|role| !self.without.contains(role));
        TestApp::launch(redis, database, given, clock, roles, self.admin_key).await
    }
}

/// The settings of a test's instance on these servers, as `("section.key", "value")`.
pub(super) fn given(
    redis: &TestRedis,
    database: &TestDatabase,
    more: &[(&'static str, String)],
) -> Vec<(String, String)> {
    let mut given = vec![
        ("redis.url".to_owned(), redis.url()),
        ("postgres.url".to_owned(), database.url.clone()),
        // A start looks at each of them, and so does an idle instance five times a second.
        ("gate.partitions".to_owned(), PARTITIONS.to_string()),
        ("postgres.pool_size".to_owned(), "6".to_owned()),
        // A comparison has a part of it; with less it would be put off on a busy machine.
        ("postgres.statement_timeout_ms".to_owned(), "120000".to_owned()),
        // The service must do everything as the role that can only add to the books.
        ("postgres.role".to_owned(), "tollgate_service".to_owned()),
        ("installation.secret".to_owned(), "0123456789abcdef0123456789abcdef0123456789abcdef".to_owned()),
        ("http.listen".to_owned(), "127.0.0.1:0".to_owned()),
        ("http.ops_listen".to_owned(), "127.0.0.1:0".to_owned()),
        ("http.workers".to_owned(), "1".to_owned()),
        ("http.shutdown_grace_ms".to_owned(), "0".to_owned()),
        // Other tests keep the machine busy.
        ("load.measured".to_owned(), "false".to_owned()),
        ("redis.response_timeout_ms".to_owned(), "2000".to_owned()),
        ("ledger.ack_timeout_ms".to_owned(), "8000".to_owned()),
        ("ledger.restore_wait_ms".to_owned(), "8000".to_owned()),
    ];
    given.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    given
}

/// The same settings, loaded.
pub(super) fn settings_of(given: Vec<(String, String)>) -> Settings {
    let read_secret = |_: &std::path::Path| Err(std::io::Error::other("tests have no secret files"));
    let inputs =
        Inputs { file: None, environment: Vec::new(), command_line: given, read_secret: &read_secret };
    Settings::load(&inputs).expect("the settings of a test")
}
