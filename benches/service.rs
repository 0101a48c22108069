//! The service as users have it: `tollgate serve` in a process of its own, called over HTTP, with the writer booking.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Method;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tollgate::embedded::Embedded;
use tollgate::ledger::{Ledger, LedgerOptions};

use super::Options;
use super::cpu;
use super::figures::{Figure, Figures};
use super::load::{self, Caller};

const KEY: &str = "tg_bench_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const CATCH_UP_MAX: Duration = Duration::from_secs(600);
/// The largest batch that a call carries.
const BATCH: usize = 100;

/// Private servers, and the service on them.
struct Service {
    embedded: Option<Embedded>,
    child: Child,
    host: String,
    ledger: Ledger,
    _directory: tempfile::TempDir,
}

impl Service {
    async fn start(roles: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path().to_owned();
        let embedded = tokio::task::spawn_blocking(move || Embedded::start(&at))
            .await
            .unwrap()
            .expect("the servers start");
        let url = embedded.servers().postgres_url.clone();
        Ledger::migrate(&url).await.expect("the schema is made");
        let ledger = Ledger::connect(LedgerOptions {
            url,
            pool_size: 2,
            checkout_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(60),
            role: None,
        })
        .await
        .expect("the ledger answers");
        let (child, host) = serve(&embedded, roles);
        let service = Self { embedded: Some(embedded), child, host, ledger, _directory: directory };
        service.write_policy().await;
        service
    }

    fn embedded(&self) -> &Embedded {
        self.embedded.as_ref().expect("the servers run")
    }

    /// Starts the service anew with other roles.
    fn restart(&mut self, roles: &str) {
        stop(&mut self.child);
        (self.child, self.host) = serve(self.embedded(), roles);
    }

    /// Processor time so far: the service's, Redis's and Postgres's.
    fn cpu(&self) -> [u64; 3] {
        let servers = self.embedded().servers();
        [
            cpu::of_process(self.child.id()),
            cpu::of_process(servers.redis_id),
            cpu::of_tree(servers.postgres_id),
        ]
    }

    async fn write_policy(&self) {
        let mut caller = Caller::connect(&self.host, KEY).await;
        let mut put = async |path: &str, body: Value| {
            caller.must(Method::PUT, path, body.to_string(), &[200, 201]).await;
        };
        put("/v1/admin/meters/page", json!({ "unit": "page", "without_limit": "unlimited" })).await;
        let windows = ["hour", "day", "month", "week"];
        let limits = |count: usize| -> Vec<Value> {
            let one = |number: usize| json!({ "id": format!("limit-{number}"), "meter": "page", "algorithm": "calendar", "window": windows[number % 4], "capacity": "1000000000000" });
            (0..count).map(one).collect()
        };
        for count in [1, 3, 16] {
            put(&format!("/v1/admin/plans/limits-{count}"), json!({ "limits": limits(count) })).await;
        }
        let quota = json!([{ "meter": "page", "included": "1000000000000", "mode": "hard" }]);
        put("/v1/admin/plans/quota", json!({ "limits": limits(3), "quotas": quota })).await;
        for (tenant, plan) in [
            ("hot", "limits-3"),
            ("one-limit", "limits-1"),
            ("sixteen-limits", "limits-16"),
            ("with-quota", "quota"),
        ] {
            put(&format!("/v1/admin/tenants/{tenant}"), json!({ "plan": plan })).await;
        }
    }

    /// Runs a load and notes what it cost, until the ledger has all of it.
    async fn measure<W, F>(
        &self,
        name: &str,
        callers: usize,
        duration: Duration,
        per_turn: u64,
        work: W,
    ) -> Figure
    where
        W: Fn(Caller, u64) -> F + Send + Sync + 'static,
        F: Future<Output = Caller> + Send,
    {
        let before = self.cpu();
        let load = load::run(&self.host, KEY, callers, duration, work).await;
        let waited = self.caught_up().await;
        let after = self.cpu();
        eprintln!("  the ledger had everything {:.1} s after the last answer", waited.as_secs_f64());
        let total = [0, 1, 2].map(|part| after[part] - before[part]);
        let calls = load.count * per_turn;
        Figure::new(name, calls, load.took).timed(&load.times).costing(total, calls)
    }

    /// Waits until the cursors have reached the outboxes' ends.
    async fn caught_up(&self) -> Duration {
        let began = Instant::now();
        let client = redis::Client::open(self.embedded().servers().redis_url.as_str()).unwrap();
        let mut connection = client.get_connection().unwrap();
        while began.elapsed() < CATCH_UP_MAX {
            let mut waiting = 0;
            for cursor in self.ledger.cursors().await.unwrap_or_default() {
                let key = format!("tg1:{{{}}}:outbox", tollgate::gate::keys::tag(cursor.partition, 64));
                let last: redis::streams::StreamRangeReply = redis::cmd("XREVRANGE")
                    .arg(key)
                    .arg(&["+", "-", "COUNT", "1"])
                    .query(&mut connection)
                    .unwrap();
                waiting +=
                    usize::from(last.ids.first().is_some_and(|entry| entry.id != cursor.booked.to_string()));
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

fn serve(embedded: &Embedded, roles: &str) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["serve", "--roles", roles, "--listen", "127.0.0.1:0"])
        .env("TOLLGATE__REDIS__URL", &embedded.servers().redis_url)
        .env("TOLLGATE__POSTGRES__URL", &embedded.servers().postgres_url)
        .env("TOLLGATE__INSTALLATION__SECRET", embedded.secret().expose_secret())
        .env("TOLLGATE__HTTP__OPS_LISTEN", "127.0.0.1:0")
        .env("TOLLGATE__POLICY__UNKNOWN_TENANT", "limits-3")
        .env("TOLLGATE__LOGS__LEVEL", "warn")
        .env("TOLLGATE_ADMIN_KEY", KEY)
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

fn reserve_of(tenant: &str) -> String {
    format!(r#"{{"tenant":"{tenant}","lines":[{{"meter":"page","amount":"3"}}]}}"#)
}

/// The id in a reserve's answer, found without reading the rest.
fn id_of(body: &[u8]) -> String {
    let text = std::str::from_utf8(body).expect("text");
    let (_, rest) = text.split_once(r#""id":""#).expect("an id");
    rest.split('"').next().expect("an id").to_owned()
}

async fn reserve(caller: &mut Caller, tenant: &str) -> String {
    id_of(&caller.must(Method::POST, "/v1/reservations", reserve_of(tenant), &[201]).await)
}

async fn finish(caller: &mut Caller, id: &str, ack: &str) {
    let body = format!(r#"{{"amount":"2","ack":"{ack}"}}"#);
    caller.must(Method::POST, &format!("/v1/reservations/{id}/consume"), body, &[200]).await;
}

/// Spreads turns over tenants so that neighbours differ.
fn tenant_of(turn: u64, tenants: usize) -> String {
    format!("tenant-{}", (turn.wrapping_mul(7_919)) % tenants as u64)
}

/// Measures the service over HTTP.
pub async fn measure(options: &Options, figures: &mut Figures) {
    let service = Service::start("http,writer,jobs").await;
    let (callers, duration, tenants) = (options.callers, options.duration(), options.tenants);
    eprintln!("making {tenants} tenants …");
    warm_up(&service, callers, tenants).await;

    let spread = move |mut caller: Caller, turn: u64| async move {
        reserve(&mut caller, &tenant_of(turn, tenants)).await;
        caller
    };
    let name = "service: reserve, 3 limits";
    figures.add(service.measure(name, callers, duration, 1, spread).await);
    figures.add(service.measure("service: reserve, 3 limits, one caller", 1, duration, 1, spread).await);
    for (name, tenant) in
        [("1 limit", "one-limit"), ("16 limits", "sixteen-limits"), ("3 limits, quota", "with-quota")]
    {
        let one = move |mut caller: Caller, _| async move {
            reserve(&mut caller, tenant).await;
            caller
        };
        figures.add(
            service
                .measure(&format!("service: reserve, {name}, one tenant"), callers, duration, 1, one)
                .await,
        );
    }
    let pair = |ack: &'static str, tenant: Option<&'static str>| {
        move |mut caller: Caller, turn: u64| async move {
            let tenant = tenant.map_or_else(|| tenant_of(turn, tenants), str::to_owned);
            let id = reserve(&mut caller, &tenant).await;
            finish(&mut caller, &id, ack).await;
            caller
        }
    };
    figures.add(
        service.measure("service: job (reserve + consume)", callers, duration, 1, pair("gate", None)).await,
    );
    figures.add(
        service
            .measure("service: job, one hot tenant", callers, duration, 1, pair("gate", Some("hot")))
            .await,
    );
    figures
        .add(service.measure("service: job, ack: ledger", callers, duration, 1, pair("ledger", None)).await);
    let used = |ack: &'static str| {
        move |mut caller: Caller, turn: u64| async move {
            let body = format!(
                r#"{{"tenant":"{}","lines":[{{"meter":"page","amount":"3"}}],"ack":"{ack}","idempotency_key":"use-{ack}-{turn}"}}"#,
                tenant_of(turn, tenants)
            );
            caller.must(Method::POST, "/v1/usage", body, &[201]).await;
            caller
        }
    };
    figures.add(service.measure("service: usage, ack: gate", callers, duration, 1, used("gate")).await);
    figures.add(service.measure("service: usage, ack: ledger", callers, duration, 1, used("ledger")).await);
    let batch = move |mut caller: Caller, turn: u64| async move {
        let item = |number: usize| {
            let turn = turn * BATCH as u64 + number as u64;
            format!(
                r#"{{"call":"reserve","idempotency_key":"batch-{turn}","body":{}}}"#,
                reserve_of(&tenant_of(turn, tenants))
            )
        };
        let items: Vec<_> = (0..BATCH).map(item).collect();
        let answer = caller
            .must(Method::POST, "/v1/batch", format!(r#"{{"items":[{}]}}"#, items.join(",")), &[200])
            .await;
        let done = String::from_utf8_lossy(&answer).matches(r#""status":201"#).count();
        assert_eq!(done, BATCH, "every item is admitted");
        caller
    };
    figures.add(
        service
            .measure("service: reserve, batches of 100", callers.min(8), duration, BATCH as u64, batch)
            .await,
    );
    let quota = move |mut caller: Caller, turn: u64| async move {
        caller
            .must(
                Method::GET,
                &format!("/v1/tenants/{}/quota", tenant_of(turn, tenants)),
                String::new(),
                &[200],
            )
            .await;
        caller
    };
    figures.add(service.measure("service: quota read", callers, duration, 1, quota).await);

    let more = options.more_tenants;
    eprintln!("making {more} tenants …");
    warm_up(&service, callers, more).await;
    let many = move |mut caller: Caller, turn: u64| async move {
        reserve(&mut caller, &tenant_of(turn, more)).await;
        caller
    };
    figures
        .add(service.measure("service: reserve, 3 limits, many tenants", callers, duration, 1, many).await);
}

/// Each tenant's first call makes it and tells the gate about it.
async fn warm_up(service: &Service, callers: usize, tenants: usize) {
    let host: Arc<str> = service.host.as_str().into();
    let making = (0..callers).map(|first| {
        let host = host.clone();
        async move {
            let mut caller = Caller::connect(&host, KEY).await;
            for number in (first..tenants).step_by(callers) {
                let body = reserve_of(&format!("tenant-{number}"));
                // A crowd of new tenants may have to wait its turn for the ledger.
                while caller.call(Method::POST, "/v1/reservations", body.clone()).await.status != 201 {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    });
    futures::future::join_all(making).await;
    service.caught_up().await;
}

/// Measures how fast the writer books what has piled up, with nothing else going on.
pub async fn measure_drain(options: &Options, figures: &mut Figures) {
    let mut service = Service::start("http").await;
    let jobs = options.events / 2;
    eprintln!("piling up {} events …", jobs * 2);
    pile_up(&service, options.callers, jobs, options.tenants).await;
    let before = service.cpu();
    let began = Instant::now();
    service.restart("writer");
    let waited = service.caught_up().await;
    let took = began.elapsed().max(waited);
    let after = service.cpu();
    let total = [after[0], after[1] - before[1], after[2] - before[2]];
    let events = jobs as u64 * 2;
    figures.add(
        Figure::new("writer: drain of jobs, one line each, events", events, took).costing(total, events),
    );
}

async fn pile_up(service: &Service, callers: usize, jobs: usize, tenants: usize) {
    let making = (0..callers).map(|first| async move {
        let mut caller = Caller::connect(&service.host, KEY).await;
        for number in (first..jobs).step_by(callers) {
            let mut id = None;
            while id.is_none() {
                let reply = caller
                    .call(Method::POST, "/v1/reservations", reserve_of(&tenant_of(number as u64, tenants)))
                    .await;
                id = (reply.status == 201).then(|| id_of(&reply.body));
            }
            finish(&mut caller, &id.expect("an id"), "gate").await;
        }
    });
    futures::future::join_all(making).await;
}
