//! Servers killed, emptied, stopped, frozen and swapped under load. A short storm in every run of the tests; a long one
//! by `make storm`, which sets how many faults there are, makes outages as long as they are promised to be survived,
//! and prints the seed that repeats the random choices.

mod comparisons;
mod failover;
mod killed_jobs;
mod load;
mod month;
mod replays;
mod servers_away;
mod two_services;

use std::process::{Command, Output};

use reqwest::Method;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::embedded::{Appendfsync, EmbeddedPostgres, EmbeddedRedis, PostgresOptions, RedisOptions};
use tollgate::ledger::Ledger;

use crate::support::caller::Callers;
use crate::support::process::{PATIENCE, Service, from_environment, tollgate};
use crate::support::services::directory;
use crate::support::wait::wait_for;

const KEY: &str = "tg_test_0123456789abcdef0123456789abcdef0123456789abcdef";
const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef";

/// How many faults of each kind; a long storm says it.
fn rounds() -> Option<u64> {
    from_environment("TOLLGATE_STORM_ROUNDS")
}

/// The first in a long storm, the second in an ordinary run of the tests.
fn sized<T>(long: T, short: T) -> T {
    if rounds().is_some() { long } else { short }
}

/// Services in processes of their own, on servers of their own.
struct Storm {
    redis: EmbeddedRedis,
    /// Where the services find Redis, if not at its own address.
    redis_url: Option<String>,
    postgres: EmbeddedPostgres,
    settings: Vec<(&'static str, String)>,
    /// When the services' test clock starts, if they have one.
    test_clock: Option<&'static str>,
    service: Option<Service>,
    directory: TempDir,
}

impl Storm {
    /// Starts the servers and a service with these settings, as `("SECTION__KEY", value)`.
    async fn begin(settings: Vec<(&'static str, String)>) -> Self {
        let mut storm = Self::servers(settings).await;
        storm.service = Some(storm.serve("127.0.0.1:0").await);
        storm
    }

    /// The servers alone.
    async fn servers(settings: Vec<(&'static str, String)>) -> Self {
        let directory = directory();
        let at = directory.path().to_owned();
        let (redis, postgres) = tokio::task::spawn_blocking(move || {
            // It writes before it answers, so that what was acknowledged survives a kill, though not a power cut.
            let options =
                RedisOptions { appendfsync: Appendfsync::No, ..RedisOptions::new(at.join("redis")) };
            let redis = EmbeddedRedis::start(options).expect("a Redis");
            (redis, EmbeddedPostgres::start(PostgresOptions::new(at.join("postgres"))).expect("a Postgres"))
        })
        .await
        .unwrap();
        Ledger::migrate(&postgres.url()).await.unwrap();
        Self { redis, redis_url: None, postgres, settings, test_clock: None, service: None, directory }
    }

    fn command(&self) -> Command {
        let mut command = tollgate(&[]);
        command
            .env("TOLLGATE__REDIS__URL", self.redis_url.clone().unwrap_or_else(|| self.redis.url()))
            .env("TOLLGATE__POSTGRES__URL", self.postgres.url())
            .env("TOLLGATE__POSTGRES__ROLE", "tollgate_service")
            .env("TOLLGATE__INSTALLATION__SECRET", SECRET)
            .env("TOLLGATE__HTTP__OPS_LISTEN", "127.0.0.1:0")
            .env("TOLLGATE__LOGS__LEVEL", "error")
            .env("TOLLGATE_ADMIN_KEY", KEY);
        command.envs(self.settings.iter().map(|(name, value)| (format!("TOLLGATE__{name}"), value)));
        command
    }

    /// Starts a service there.
    async fn serve(&self, listen: &str) -> Service {
        Service::start(|| {
            let mut command = self.command();
            command.args(["serve", "--listen", listen]);
            if let Some(start) = self.test_clock {
                command.args(["--test-clock", start]).env("TOLLGATE__ENVIRONMENT", "sandbox");
            }
            command
        })
    }

    fn address(&self) -> &str {
        &self.service.as_ref().expect("a service runs").address
    }

    fn caller(&self) -> Callers {
        Callers::of(KEY, [self.address().to_owned()])
    }

    async fn put(&self, path: &str, body: Value) {
        self.caller().insist(Method::PUT, path, None, body).await;
    }

    async fn booked(&self, meter: &str) -> Decimal {
        let path = "/v1/reports/usage?group_by=meter";
        let report = self.caller().insist(Method::GET, path, None, Value::Null).await;
        let rows = report["data"].as_array().unwrap();
        let row = rows.iter().find(|row| row["meter"] == meter);
        row.map_or(Decimal::ZERO, |row| row["consumed"].as_str().unwrap().parse().unwrap())
    }

    async fn books_hold(&self, meter: &str, expected: u64) {
        wait_for("the ledger has everything", PATIENCE, async || {
            (self.booked(meter).await >= Decimal::from(expected)).then_some(())
        })
        .await;
        assert_eq!(self.booked(meter).await, Decimal::from(expected), "{meter}");
    }

    /// What a query answers: one text per row, the columns joined by spaces.
    async fn rows(&self, query: &str) -> Vec<String> {
        crate::ledger::rows_at(&self.postgres.url(), query).await
    }

    /// Makes every one of these tenants known to the gate, then: the books are whole and each tenant's counters, at
    /// least so many, equal them.
    async fn verify(&self, tenants: &[String], counters: usize) {
        for tenant in tenants {
            self.warm(tenant).await;
        }
        let output = self.command().args(["verify", "--output", "json"]).output().unwrap();
        assert_done(&output);
        let checks: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = checks.as_array().unwrap();
        let gate = checks.iter().find(|check| check["check"] == "gate equals ledger").unwrap();
        let checked = usize::try_from(gate["checked"].as_u64().unwrap()).unwrap();
        assert_eq!(gate["result"], "ok", "{gate}");
        assert!(checked >= tenants.len() * counters, "some tenant was not compared: {gate}");
        eprintln!("verified: {checked} counters of {} tenants", tenants.len());
    }

    async fn warm(&self, tenant: &str) {
        let path = format!("/v1/tenants/{tenant}/quota");
        let caller = self.caller();
        wait_for("the gate knows the tenant", PATIENCE, async || {
            let (status, quota) = caller.get(&path).await?;
            (status == 200 && quota["source"] == "gate").then_some(())
        })
        .await;
    }
}

#[track_caller]
fn assert_done(output: &Output) {
    assert!(output.status.success(), "{}", said(output));
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// A plan that admits everything, whose limit and quota of each meter are counted all the same.
fn wide(meters: &[&str]) -> Value {
    let day = |meter: &&str| json!({ "id": format!("day-{}", meter.replace('.', "-")), "meter": meter, "window": "day", "capacity": "1000000000000" });
    let quota = |meter: &&str| json!({ "meter": meter, "included": "1000000000000" });
    json!({
        "limits": meters.iter().map(day).collect::<Vec<_>>(),
        "quotas": meters.iter().map(quota).collect::<Vec<_>>(),
    })
}
