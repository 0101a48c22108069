//! A whole instance on servers of its own: the same app as the command line starts, driven over HTTP.

use std::process::Command;
use std::time::Duration;

use reqwest::{Client, Method, Response};
use serde_json::Value;
use tollgate::app::{App, Role};
use tollgate::clock::Clock;
use tollgate::ledger::{Ledger, VerifyOptions, verify};
use tollgate::settings::{Inputs, Settings};

use super::process::{http_client, tollgate};
use super::services::{self, Template, TestDatabase, TestRedis};
use super::wait::wait_for;

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
async fn own_database() -> TestDatabase {
    let database = tokio::task::spawn_blocking(TestDatabase::of_its_own).await.expect("a server");
    Ledger::migrate(&database.url).await.expect("the migrations run");
    database
}

/// How a test's instance differs from the ordinary one.
#[derive(Default)]
pub struct AppOptions {
    /// Where the test clock starts, unix ms; none for the system's clock.
    pub test_clock_ms: Option<i64>,
    /// Settings as `("section.key", "value")`.
    pub settings: Vec<(&'static str, String)>,
    /// Leave the writer out.
    pub without_writer: bool,
    /// Leave the jobs out: nothing expires by itself.
    pub without_jobs: bool,
    /// Keep the ledger on a Postgres of the test's own, which it may freeze.
    pub own_postgres: bool,
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
    admin_key: String,
    client: Client,
}

/// An answer: its status and body.
#[derive(Debug)]
pub struct Answered {
    /// The status.
    pub status: u16,
    /// The body; a text where it is not JSON.
    pub body: Value,
    /// The headers.
    pub headers: reqwest::header::HeaderMap,
}

impl Answered {
    /// A header's text, empty where it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The pointers of a 422's errors.
    pub fn pointers(&self) -> Vec<&str> {
        self.body["errors"].as_array().unwrap().iter().map(|e| e["pointer"].as_str().unwrap()).collect()
    }

    /// A text of the body, by pointer; empty where it is absent.
    pub fn text(&self, pointer: &str) -> &str {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Checks the status, and hands the answer on.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// Checks that this is a problem document with this status and code.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.body["code"].as_str().unwrap_or("")), (status, code), "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        assert_eq!(self.body["status"], status);
        assert_eq!(self.body["type"], format!("/problems/{code}"));
        assert_eq!(self.body["request_id"], self.header("x-request-id"));
    }
}

/// Starts an ordinary instance.
pub async fn spawn_app() -> TestApp {
    spawn_app_with(AppOptions::default()).await
}

/// Starts an instance with options.
pub async fn spawn_app_with(options: AppOptions) -> TestApp {
    let redis = services::redis();
    let database = if options.own_postgres { own_database().await } else { database().await };
    let given = given(&redis, &database, &options.settings);
    let settings = settings_of(given.clone());
    let clock = options.test_clock_ms.map_or_else(Clock::system, Clock::test);
    let mut roles = vec![Role::Http, Role::Writer, Role::Jobs];
    roles.retain(|role| {
        !(options.without_writer && *role == Role::Writer || options.without_jobs && *role == Role::Jobs)
    });
    let app = App::start(&settings, clock.clone(), &roles).await.expect("the app starts");
    let key = app.operations.ensure_admin_key(None).await.expect("an admin key").expect("a new one");
    let client = http_client(Duration::from_secs(30));
    TestApp { app: Some(app), redis, database, given, settings, roles, clock, admin_key: key, client }
}

fn given(
    redis: &TestRedis,
    database: &TestDatabase,
    more: &[(&'static str, String)],
) -> Vec<(String, String)> {
    let mut given = vec![
        ("redis.url".to_owned(), redis.url()),
        ("postgres.url".to_owned(), database.url.clone()),
        ("postgres.pool_size".to_owned(), "6".to_owned()),
        // Whatever the service does, it must be able to do it as the role that may only add to the books.
        ("postgres.role".to_owned(), "tollgate_service".to_owned()),
        ("installation.secret".to_owned(), "0123456789abcdef0123456789abcdef0123456789abcdef".to_owned()),
        ("http.listen".to_owned(), "127.0.0.1:0".to_owned()),
        ("http.ops_listen".to_owned(), "127.0.0.1:0".to_owned()),
        ("http.workers".to_owned(), "1".to_owned()),
        ("http.shutdown_grace_ms".to_owned(), "0".to_owned()),
        ("redis.response_timeout_ms".to_owned(), "2000".to_owned()),
        ("ledger.ack_timeout_ms".to_owned(), "8000".to_owned()),
        ("ledger.restore_wait_ms".to_owned(), "8000".to_owned()),
    ];
    given.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    given
}

fn settings_of(given: Vec<(String, String)>) -> Settings {
    let read_secret = |_: &std::path::Path| Err(std::io::Error::other("tests have no secret files"));
    let inputs =
        Inputs { file: None, environment: Vec::new(), command_line: given, read_secret: &read_secret };
    Settings::load(&inputs).expect("the settings of a test")
}

impl TestApp {
    /// Where it serves.
    pub fn url(&self) -> String {
        self.app().url()
    }

    /// Where its metrics are.
    pub fn ops_url(&self) -> String {
        self.app().ops_url()
    }

    /// A key that may do everything.
    pub fn admin_key(&self) -> &str {
        &self.admin_key
    }

    /// The HTTP client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The app itself.
    pub fn app(&self) -> &App {
        self.app.as_ref().expect("the app runs")
    }

    /// Calls with a key and, unless it is null, a JSON body.
    pub async fn call_as(&self, key: &str, method: Method, path: &str, body: Value) -> Answered {
        let mut request = self.client.request(method, format!("{}{path}", self.url())).bearer_auth(key);
        if !body.is_null() {
            request = request.json(&body);
        }
        answered(request.send().await.expect("the app answers")).await
    }

    /// Calls as admin.
    pub async fn call(&self, method: Method, path: &str, body: Value) -> Answered {
        self.call_as(&self.admin_key, method, path, body).await
    }

    /// `GET` as admin.
    pub async fn get(&self, path: &str) -> Answered {
        self.call(Method::GET, path, Value::Null).await
    }

    /// `POST` as admin.
    pub async fn post(&self, path: &str, body: Value) -> Answered {
        self.call(Method::POST, path, body).await
    }

    /// `POST` as admin under an idempotency key.
    pub async fn post_keyed(&self, path: &str, key: &str, body: Value) -> Answered {
        let request = self.client.post(format!("{}{path}", self.url())).bearer_auth(&self.admin_key);
        answered(request.header("Idempotency-Key", key).json(&body).send().await.expect("the app answers"))
            .await
    }

    /// `PUT` as admin; it must succeed.
    pub async fn put(&self, path: &str, body: Value) -> Answered {
        let answer = self.call(Method::PUT, path, body).await;
        assert!(matches!(answer.status, 200 | 201), "{path}: {answer:?}");
        answer
    }

    /// Writes a small policy: meters `page` and `token`, the given limits and quotas on plan `plan`, tenant `acme` on it.
    pub async fn with_plan(&self, limits: Value, quotas: Value) {
        for meter in ["page", "token"] {
            self.put(
                &format!("/v1/admin/meters/{meter}"),
                serde_json::json!({ "unit": meter, "without_limit": "unlimited" }),
            )
            .await;
        }
        self.put("/v1/admin/plans/plan", serde_json::json!({ "limits": limits, "quotas": quotas })).await;
        self.put("/v1/admin/tenants/acme", serde_json::json!({ "plan": "plan" })).await;
    }

    /// Stops the instance in order and starts it again on the same servers.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.app =
            Some(App::start(&self.settings, self.clock.clone(), &self.roles).await.expect("it starts again"));
    }

    /// Starts one more instance on the same servers: it answers calls, and neither books nor sweeps.
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

    /// Repeats a call as a client does while the answer is 503.
    pub async fn post_until_answered(&self, path: &str, key: &str, body: Value) -> Answered {
        loop {
            let answer = self.post_keyed(path, key, body.clone()).await;
            if answer.status != 503 {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Makes commands that serve on the same servers in a process of its own, by a test clock that starts where this one is
    /// by then; the answer needs nothing of this.
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
        let app = self.app();
        wait_for("parked calls reach the gate", Duration::from_secs(60), async || {
            (app.ledger.count_parked().await.ok()?.waiting == 0).then_some(())
        })
        .await;
        wait_for("the outboxes are booked", Duration::from_secs(20), async || {
            for cursor in app.ledger.cursors().await.ok()? {
                let facts = app.gate.partition_facts(cursor.partition).await.ok()?;
                if !cursor.settles(facts.last_id.unwrap_or_default()) {
                    return None;
                }
            }
            Some(())
        })
        .await;
    }

    /// Ends the test's use of the app: everything is booked, the books balance, gate equals ledger.
    pub async fn finish(mut self) {
        self.drained().await;
        self.check_books().await;
        if let Some(app) = self.app.take() {
            app.stop().await;
        }
    }

    /// The books balance, and the gate equals them.
    pub async fn check_books(&self) {
        let app = self.app();
        let report = verify(&app.ledger, VerifyOptions { rebuild: true }).await.expect("verify runs");
        for check in &report.checks {
            assert!(check.faults.is_empty(), "{}: {:?}", check.name, check.faults);
        }
        let gate = app.operations.verify_gate().await.expect("the gate is compared");
        assert!(gate.faults.is_empty(), "{:?}", gate.faults);
    }
}

/// Reads an answer to its end.
pub async fn answered(response: Response) -> Answered {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let text = response.text().await.expect("a body");
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Answered { status, body, headers }
}
