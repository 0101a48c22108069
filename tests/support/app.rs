//! A whole instance on servers of its own: the same app as the command line starts, driven over HTTP.

use std::ops::Deref;
use std::process::Command;
use std::thread;
use std::time::Duration;

use reqwest::Method;
use tollgate::app::{App, Role};
use tollgate::clock::Clock;
use tollgate::domain::ids::Partition;
use tollgate::ledger::{Ledger, VerifyOptions, verify};
use tollgate::operations::Answer;
use tollgate::settings::Settings;

pub use super::caller::*;
pub use super::calls::*;
pub use super::options::*;
use super::process::tollgate;
use super::services::{Template, TestDatabase, TestRedis};
use super::wait::wait_for;

/// How long outboxes and holds that are due are waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// What work came to, unless a server did not answer in time: then it is due again.
#[track_caller]
pub fn done<T>(answer: Answer<T>) -> Option<T> {
    match answer {
        Err(error) if error.is_server_away() => None,
        done => Some(done.expect("it is done")),
    }
}

static MIGRATED: Template = Template::new("migrated");

/// A database of this test with the schema in place.
pub async fn database() -> TestDatabase {
    MIGRATED
        .database(async |url| {
            // A runtime of their own, because the migrations block and a test's runtime may have one thread only.
            let migrating = tokio::task::spawn_blocking(move || {
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
                runtime.expect("a runtime").block_on(Ledger::migrate(&url)).expect("the migrations run");
            });
            migrating.await.expect("the migrations end");
        })
        .await
}

/// A database on a server of this test's own, with the schema in place.
pub(super) async fn own_database() -> TestDatabase {
    let database = tokio::task::spawn_blocking(TestDatabase::of_its_own).await.expect("a server");
    Ledger::migrate(&database.url).await.expect("the migrations run");
    database
}

/// A running instance.
pub struct TestApp {
    app: Option<App>,
    /// Its gate's server.
    pub redis: TestRedis,
    /// Its ledger's database.
    pub database: TestDatabase,
    /// What the settings were made of, as `("section.key", "value")`.
    given: Vec<(String, String)>,
    settings: Settings,
    roles: Vec<Role>,
    /// The clock it runs on.
    pub clock: Clock,
    admin: Caller,
    is_checked: bool,
}

impl Deref for TestApp {
    type Target = Caller;

    /// A test calls as the administrator.
    fn deref(&self) -> &Caller {
        &self.admin
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        assert!(
            self.is_checked || thread::panicking(),
            "a test ends with `finish`: all is booked, the books balance, the gate equals them; \
             where that cannot be, `leave_unbalanced` says why"
        );
    }
}

impl TestApp {
    /// Starts an instance on these servers.
    pub(super) async fn launch(
        redis: TestRedis,
        database: TestDatabase,
        given: Vec<(String, String)>,
        clock: Clock,
        roles: Vec<Role>,
        admin_key: Option<&str>,
    ) -> Self {
        // A test by the system's clock begins in no hour's last seconds: no window may turn in it.
        if !clock.is_test() {
            wait_for("the hour turns", Duration::from_secs(60), async || {
                (clock.now_ms() % 3_600_000 < 3_570_000).then_some(())
            })
            .await;
        }
        let settings = settings_of(given.clone());
        let app = App::start(&settings, clock.clone(), &roles).await.expect("the app starts");
        let made = app.operations.keys.ensure_admin_key(admin_key).await.expect("an admin key");
        let key = admin_key.map_or_else(|| made.expect("a new one"), str::to_owned);
        let admin = Caller::of(&key, app.url(), Duration::from_secs(30));
        Self { app: Some(app), redis, database, given, settings, roles, clock, admin, is_checked: false }
    }

    /// Where its metrics are.
    pub fn ops_url(&self) -> String {
        self.app().ops_url()
    }

    /// The app itself.
    pub fn app(&self) -> &App {
        self.app.as_ref().expect("the app runs")
    }

    /// The administrator's way to it.
    pub fn caller(&self) -> Caller {
        self.admin.clone()
    }

    /// Stops the instance in order and starts it again on the same servers.
    pub async fn restart(&mut self) {
        self.stop().await;
        let app = App::start(&self.settings, self.clock.clone(), &self.roles).await.expect("it starts again");
        self.admin = self.admin.at(app.url());
        self.app = Some(app);
    }

    /// Starts another instance on the same servers, which answers calls and neither books nor sweeps.
    pub async fn another_instance(&self) -> App {
        self.another_instance_with(&[Role::Http]).await
    }

    /// Starts one more instance on the same servers, with these roles.
    pub async fn another_instance_with(&self, roles: &[Role]) -> App {
        App::start(&self.settings, self.clock.clone(), roles).await.expect("one more instance")
    }

    /// Starts one more instance on the same servers, with these roles and further settings.
    pub async fn another_with(&self, roles: &[Role], more: &[(&'static str, String)]) -> App {
        let settings = settings_of(given(&self.redis, &self.database, more));
        App::start(&settings, self.clock.clone(), roles).await.expect("one more instance")
    }

    /// Stops the instance in order.
    pub async fn stop(&mut self) {
        if let Some(app) = self.app.take() {
            app.stop().await;
        }
    }

    /// Returns a function that makes commands to serve on the same servers in a process of their own, on a test clock
    /// that starts at this one's time; the function does not borrow the app.
    pub fn serving(&self, roles: &'static str, listen: String) -> impl Fn() -> Command + Send + use<> {
        let (variables, clock) = (self.variables(), self.clock.clone());
        move || {
            let now = jiff::Timestamp::from_millisecond(clock.now_ms()).expect("a time").to_string();
            let mut command =
                tollgate(&["serve", "--roles", roles, "--listen", &listen, "--test-clock", &now]);
            command.env("TOLLGATE__ENVIRONMENT", "sandbox").env("TOLLGATE__LOGS__LEVEL", "error");
            command.envs(variables.iter().cloned());
            command
        }
    }

    /// The variables by which a command works on the same servers.
    pub fn variables(&self) -> Vec<(String, String)> {
        let name = |key: &str| format!("TOLLGATE__{}", key.to_uppercase().replace('.', "__"));
        self.given.iter().map(|(key, value)| (name(key), value.clone())).collect()
    }

    /// Runs a command line against the same servers, and waits for its end.
    pub fn command(&self, arguments: &[&str]) -> std::process::Output {
        tollgate(arguments).envs(self.variables()).output().expect("the command runs")
    }

    /// Moves the test clock to this RFC 3339 time.
    pub async fn move_clock(&self, to: &str) {
        self.call(Method::PUT, "/v1/admin/clock", serde_json::json!({ "now": to })).await.expect(200);
    }

    /// Waits until the gate has every parked call and the ledger has booked everything that the outboxes hold.
    pub async fn drained(&self) {
        self.drained_within(PATIENCE).await;
    }

    /// As [`Self::drained`], after a load that has left so much that it may take this long to be booked.
    pub async fn drained_within(&self, time: Duration) {
        let app = self.app();
        wait_for("parked calls reach the gate", Duration::from_secs(60), async || {
            (app.ledger.count_parked().await.ok()?.waiting == 0).then_some(())
        })
        .await;
        wait_for("the outboxes are booked", time, async || {
            for cursor in app.ledger.cursors().await.ok()? {
                let last_id = app.gate.last_event(cursor.partition).await.ok()?;
                if !cursor.settles(last_id.unwrap_or_default()) {
                    return None;
                }
            }
            Some(())
        })
        .await;
    }

    /// Has every hold of these partitions expire that is due.
    pub async fn swept(&self, partitions: &[Partition]) {
        let (operations, mut leaps) = (&self.app().operations, Vec::new());
        for partition in partitions {
            loop {
                let swept = async || done(operations.calls.expire_due(*partition).await);
                let report = wait_for("it is swept", PATIENCE, swept).await;
                leaps.extend(report.leap.map(|leap| (*partition, leap)));
                if !report.more {
                    break;
                }
            }
        }
        let swept = async || done(operations.calls.expire_behind(&leaps).await);
        wait_for("what was passed over is swept", PATIENCE, swept).await;
    }

    /// Ends the test's use of the app: checks that everything is booked, the books balance, and the gate equals the
    /// ledger.
    pub async fn finish(mut self) {
        self.is_checked = true;
        if !self.roles.contains(&Role::Writer) {
            let books = self.another_instance_with(&[Role::Writer]).await;
            self.drained().await;
            books.stop().await;
        }
        self.drained().await;
        self.check_books().await;
        self.stop().await;
    }

    /// Ends the test's use of an app without these checks, because of `why`.
    pub fn leave_unbalanced(mut self, why: &str) {
        assert!(!why.is_empty(), "say why");
        self.is_checked = true;
    }

    /// Checks that the books balance and that the gate equals them.
    pub async fn check_books(&self) {
        let app = self.app();
        let report = verify(&app.ledger, VerifyOptions { rebuild: true, ..VerifyOptions::default() })
            .await
            .expect("verify runs");
        for check in &report.checks {
            assert!(check.faults.is_empty(), "{}: {:?}", check.name, check.faults);
        }
        let gate = app.operations.reconcile.verify_gate().await.expect("the gate is compared");
        assert!(gate.faults.is_empty(), "{:?}", gate.faults);
    }
}
