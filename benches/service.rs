//! The service as users have it: `tollgate serve` in a process of its own on private servers.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tollgate::domain::ids::Partition;
use tollgate::embedded::Embedded;
use tollgate::gate::keys::tag;

use super::books;
use super::cpu;
use super::figures::Figure;
use super::load::{self, Caller, Load};

/// The key of an admin.
pub const KEY: &str = "tg_bench_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// How far each partition is booked.
const CURSORS: &str = "SELECT partition, epoch || '-' || sequence FROM cursors";
const CATCH_UP_MAX: Duration = Duration::from_secs(600);

/// Private servers, and the service on them.
pub struct Service {
    embedded: Option<Embedded>,
    child: Child,
    /// Where it is called.
    pub host: String,
    is_booking: bool,
    command: PathBuf,
    _directory: tempfile::TempDir,
}

impl Service {
    /// Starts the servers, and a service with these roles on them.
    pub async fn start(roles: &str) -> Self {
        Self::of_build(Path::new(env!("CARGO_BIN_EXE_tollgate")), roles).await
    }

    /// As [`Self::start`], of the build whose command this is.
    pub async fn of_build(command: &Path, roles: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path().to_owned();
        let embedded = tokio::task::spawn_blocking(move || Embedded::start(&at))
            .await
            .unwrap()
            .expect("the servers start");
        let migrated = tollgate(command, &embedded).arg("migrate").stdout(Stdio::null()).status();
        assert!(migrated.expect("tollgate starts").success(), "the schema is made");
        let (child, host) = serve(command, &embedded, roles);
        let is_booking = roles.contains("writer");
        let service = Self {
            embedded: Some(embedded),
            child,
            host,
            is_booking,
            command: command.to_owned(),
            _directory: directory,
        };
        service.write_policy().await;
        service.postgres("ALTER SYSTEM SET autovacuum = off").await;
        service.postgres("SELECT pg_reload_conf()").await;
        service
    }

    /// Vacuums and analyses, which Postgres would begin by itself in the midst of a figure.
    pub async fn vacuum(&self) {
        self.postgres("VACUUM (ANALYZE)").await;
    }

    async fn postgres(&self, statement: &str) {
        let client = books::connect(&self.embedded().servers().postgres_url).await;
        client.batch_execute(statement).await.expect("Postgres does as it is told");
    }

    /// The servers.
    pub fn embedded(&self) -> &Embedded {
        self.embedded.as_ref().expect("the servers run")
    }

    /// Starts the service again with other roles.
    pub fn restart(&mut self, roles: &str) {
        stop(&mut self.child);
        self.is_booking = roles.contains("writer");
        (self.child, self.host) = serve(&self.command, self.embedded(), roles);
    }

    /// Processor time so far: the service's, Redis's and Postgres's.
    pub fn cpu(&self) -> [u64; 3] {
        let servers = self.embedded().servers();
        [
            cpu::of_process(self.child.id()),
            cpu::of_process(servers.redis_id),
            cpu::of_tree(servers.postgres_id),
        ]
    }

    async fn write_policy(&self) {
        let mut caller = self.caller();
        let mut put = async |path: &str, body: Value| {
            caller.must("PUT", path, &body.to_string(), &[200, 201]).await;
        };
        put("/v1/admin/meters/page", json!({ "unit": "page", "without_limit": "unlimited" })).await;
        put(
            "/v1/admin/meters/call",
            json!({ "unit": "call", "booked": false, "without_limit": "unlimited" }),
        )
        .await;
        put("/v1/admin/operations/asked", json!({ "costs": [{ "meter": "call", "base": "1" }] })).await;
        let windows = ["hour", "day", "month", "week"];
        let limits = |count: usize| -> Vec<Value> {
            let one = |number: usize| json!({ "id": format!("limit-{number}"), "meter": "page", "algorithm": "calendar", "window": windows[number % 4], "capacity": "1000000000000" });
            (0..count).map(one).collect()
        };
        let of_calls = json!({ "id": "calls", "meter": "call", "class": "rate", "algorithm": "calendar", "window": "hour", "capacity": "1000000000000" });
        for count in [1, 3, 16] {
            let mut limits = limits(count);
            limits.push(of_calls.clone());
            put(&format!("/v1/admin/plans/limits-{count}"), json!({ "limits": limits })).await;
        }
        let quota = json!([{ "meter": "page", "included": "1000000000000", "mode": "hard" }]);
        put("/v1/admin/plans/quota", json!({ "limits": limits(3), "quotas": quota })).await;
        let rolls =
            json!([{ "meter": "page", "included": "1000000000000", "mode": "hard", "max_rollover": "15" }]);
        put("/v1/admin/plans/rolls", json!({ "limits": limits(3), "quotas": rolls })).await;
        for (tenant, plan) in [
            ("hot", "limits-3"),
            ("one-limit", "limits-1"),
            ("sixteen-limits", "limits-16"),
            ("with-quota", "quota"),
            ("rolls", "rolls"),
        ] {
            put(&format!("/v1/admin/tenants/{tenant}"), json!({ "plan": plan })).await;
        }
    }

    /// Runs a load and notes what it cost, until the ledger has all of it; a turn of the work is `per_turn` calls.
    pub async fn measure<W, F>(&self, name: &str, load: Load, per_turn: u64, work: W) -> Figure
    where
        W: Fn(Caller, u64) -> F + Send + Sync + 'static,
        F: Future<Output = Caller> + Send,
    {
        self.vacuum().await;
        let before = self.cpu();
        let done = load::run(&self.host, KEY, load, work).await;
        let behind = self.settle().await;
        let total = self.cost_since(before);
        let calls = done.count * per_turn;
        let figure = Figure::new(name, calls, done.took).timed(&done.times).costing(total, calls);
        Figure { behind, ..figure }
    }

    /// Waits until the ledger has everything, where a writer runs; returns how long that took.
    pub async fn settle(&self) -> Option<Duration> {
        if self.is_booking { Some(self.caught_up().await) } else { None }
    }

    /// Processor time of the service, Redis and Postgres since then.
    pub fn cost_since(&self, before: [u64; 3]) -> [u64; 3] {
        let now = self.cpu();
        [0, 1, 2].map(|part| now[part] - before[part])
    }

    /// A caller with the key of an admin.
    pub fn caller(&self) -> Caller {
        Caller::new(&self.host, KEY)
    }

    /// Waits until the cursors have reached the outboxes' ends.
    pub async fn caught_up(&self) -> Duration {
        let began = Instant::now();
        let client = redis::Client::open(self.embedded().servers().redis_url.as_str()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let books = books::connect(&self.embedded().servers().postgres_url).await;
        while began.elapsed() < CATCH_UP_MAX {
            let mut waiting = 0;
            for row in books.query(CURSORS, &[]).await.expect("the cursors") {
                let (partition, booked): (i16, String) = (row.get(0), row.get(1));
                let partition = u16::try_from(partition).ok().and_then(Partition::new).expect("a partition");
                let key = format!("tg1:{{{}}}:outbox", tag(partition, 64));
                let last: redis::streams::StreamRangeReply = redis::cmd("XREVRANGE")
                    .arg(key)
                    .arg(&["+", "-", "COUNT", "1"])
                    .query(&mut connection)
                    .unwrap();
                waiting += usize::from(last.ids.first().is_some_and(|entry| entry.id != booked));
            }
            if waiting == 0 {
                return began.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the writer does not catch up");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        stop(&mut self.child);
        if let Some(embedded) = self.embedded.take() {
            // The directory goes with it: whether it ended in order makes no difference.
            let _ = embedded.stop();
        }
    }
}

/// The command, with the servers and what a bench sets.
fn tollgate(command: &Path, embedded: &Embedded) -> Command {
    let mut command = Command::new(command);
    command
        .env("TOLLGATE__REDIS__URL", &embedded.servers().redis_url)
        .env("TOLLGATE__POSTGRES__URL", &embedded.servers().postgres_url)
        .env("TOLLGATE__INSTALLATION__SECRET", embedded.secret().expose_secret())
        .env("TOLLGATE__HTTP__OPS_LISTEN", "127.0.0.1:0")
        .env("TOLLGATE__POLICY__UNKNOWN_TENANT", "limits-3")
        .env("TOLLGATE__LOGS__LEVEL", "error")
        .env("TOLLGATE_ADMIN_KEY", KEY);
    command
}

fn serve(command: &Path, embedded: &Embedded, roles: &str) -> (Child, String) {
    let mut child = tollgate(command, embedded)
        .args(["serve", "--roles", roles, "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("tollgate starts");
    if !roles.contains("http") {
        return (child, String::new());
    }
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("the ready line");
    let host = line.trim().strip_prefix("ready http://").expect("the ready line").to_owned();
    (child, host)
}

fn stop(child: &mut Child) {
    let id = nix::unistd::Pid::from_raw(child.id() as i32);
    // It may have ended by itself; then there is nothing to stop.
    let _ = nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM);
    let _ = child.wait();
}
