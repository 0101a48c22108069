//! Redis frozen under a service with many callers: every answer in time, and nothing stranded afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate::gate::BreakerState;

use crate::support::app::*;
use crate::support::wait::wait_for;

const RESPONSE_TIMEOUT: Duration = Duration::from_millis(1_000);
/// Less than another wait, so that an answer after two waits fails.
const SLACK: Duration = Duration::from_millis(800);
const CALLERS: u64 = 32;
const JOBS: u64 = 12;

/// What the callers share.
struct Race {
    app: TestApp,
    frozen: AtomicBool,
    done: AtomicU64,
    answered_frozen: AtomicU64,
    slowest_us: AtomicU64,
    /// How much later than asked this machine wakes a task at the worst: not the service's doing.
    noise_us: AtomicU64,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}

impl Race {
    fn noise(&self) -> Duration {
        Duration::from_micros(self.noise_us.load(Ordering::SeqCst))
    }

    /// Repeats a call while it is answered 503, and times those answered while Redis is frozen.
    async fn until_answered(&self, path: &str, key: &str, body: Value) -> Answered {
        loop {
            let was_frozen = self.frozen.load(Ordering::SeqCst);
            let began = Instant::now();
            let answer = self.app.post_keyed(path, key, body.clone()).await;
            if was_frozen {
                self.slowest_us.fetch_max(micros(began.elapsed()), Ordering::SeqCst);
                self.answered_frozen.fetch_add(1, Ordering::SeqCst);
            }
            if answer.status != 503 {
                return answer;
            }
            assert!(!answer.header("retry-after").is_empty(), "{answer:?}");
            answer.is_problem(503, "gate_unavailable");
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    async fn jobs(&self, caller: u64) {
        for job in 0..JOBS {
            let key = format!("job-{caller}-{job}");
            let body = pages("3").lasting(3600);
            let reserved = self.until_answered(RESERVATIONS, &key, body).await;
            assert!(matches!(reserved.status, 200 | 201), "{reserved:?}");
            let path = reservation(reserved.text("/id"), "consume");
            let consumed = self.until_answered(&path, &key, json!({ "amount": "2" })).await;
            assert_eq!(consumed.status, 200, "{consumed:?}");
            self.done.fetch_add(1, Ordering::SeqCst);
        }
    }

    async fn measure_noise(&self) {
        const NAP: Duration = Duration::from_millis(10);
        loop {
            let began = Instant::now();
            tokio::time::sleep(NAP).await;
            self.noise_us.fetch_max(micros(began.elapsed() - NAP), Ordering::SeqCst);
        }
    }
}

async fn race() -> Arc<Race> {
    let app = an_app().with("redis.response_timeout_ms", RESPONSE_TIMEOUT.as_millis()).start().await;
    app.with_plan(json!([day_of("100000")]), json!([quota_of("100000")])).await;
    Arc::new(Race {
        app,
        frozen: AtomicBool::new(false),
        done: AtomicU64::new(0),
        answered_frozen: AtomicU64::new(0),
        slowest_us: AtomicU64::new(0),
        noise_us: AtomicU64::new(0),
    })
}

async fn breaker_is(app: &TestApp, state: BreakerState) -> Duration {
    let began = Instant::now();
    wait_for("the breaker turns", Duration::from_secs(20), async || {
        (app.app().gate.breaker_state() == state).then_some(())
    })
    .await;
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_frozen_every_call_is_answered_in_time_and_afterwards_no_unit_is_stranded() {
    let race = race().await;
    let noise = tokio::spawn({
        let race = race.clone();
        async move { race.measure_noise().await }
    });
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let race = race.clone();
            tokio::spawn(async move { race.jobs(caller).await })
        })
        .collect();
    wait_for("some jobs are done", Duration::from_secs(60), async || {
        (race.done.load(Ordering::SeqCst) >= CALLERS).then_some(())
    })
    .await;

    let frozen = race.app.redis.freeze();
    race.frozen.store(true, Ordering::SeqCst);
    let opened_after = breaker_is(&race.app, BreakerState::Open).await;
    assert!(opened_after <= Duration::from_secs(5) + race.noise(), "opened after {opened_after:?}");
    wait_for("many calls are answered", Duration::from_secs(60), async || {
        (race.answered_frozen.load(Ordering::SeqCst) >= 10 * CALLERS).then_some(())
    })
    .await;
    let quota = race.app.quota().await;
    assert_eq!(quota.text("/source"), "ledger");
    let asked = Instant::now();
    let ready = race.app.get("/readyz?verbose").await.expect(200);
    assert_eq!(ready.text("/status"), "degraded", "the failure policies answer");
    assert!(asked.elapsed() < Duration::from_secs(5) + race.noise(), "{:?}", asked.elapsed());
    assert!(ready.body.to_string().contains("Redis does not answer"), "{ready:?}");
    let metrics = race.app.app().operations.metrics_text();
    assert!(metrics.contains("tollgate_breaker_state{server=\"redis\"} 2"), "{metrics}");
    race.frozen.store(false, Ordering::SeqCst);
    drop(frozen);

    breaker_is(&race.app, BreakerState::Closed).await;
    for caller in callers {
        caller.await.unwrap();
    }
    noise.abort();
    let slowest = Duration::from_micros(race.slowest_us.load(Ordering::SeqCst));
    let most = RESPONSE_TIMEOUT + SLACK + race.noise();
    assert!(slowest <= most, "the slowest answer took {slowest:?}, of {most:?}");
    let quota = race.app.quota().await;
    assert_eq!(quota.text("/quotas/0/consumed"), (2 * CALLERS * JOBS).to_string(), "{quota:?}");
    assert_eq!(quota.text("/quotas/0/reserved"), "0", "{quota:?}");
    race.app.get("/readyz").await.expect(200);
    let _ = noise.await;
    Arc::into_inner(race).unwrap().app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_calls_than_may_wait_for_redis_are_refused_at_once() {
    let app = an_app()
        .with("redis.concurrent_calls_max", "2")
        .with("redis.response_timeout_ms", "5000")
        .start()
        .await;
    app.with_day_of("100").await;
    let body = pages("1");
    app.post_until_answered(RESERVATIONS, "warm", body.clone()).await.expect(201);
    let frozen = app.redis.freeze();
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let calls = keys.map(|key| app.post_keyed(RESERVATIONS, key, body.clone()));
    let mut calls = futures::stream::FuturesUnordered::from_iter(calls);
    for _ in 0..6 {
        let refused = futures::StreamExt::next(&mut calls).await.unwrap();
        refused.is_problem(503, "overloaded");
        assert!(!refused.header("retry-after").is_empty(), "{refused:?}");
    }
    drop(frozen);
    while let Some(answer) = futures::StreamExt::next(&mut calls).await {
        answer.expect(201);
    }
    drop(calls);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_sent_elsewhere_only_when_neither_redis_nor_postgres_answers() {
    let app = an_app()
        .with("redis.response_timeout_ms", RESPONSE_TIMEOUT.as_millis())
        .on_own_postgres()
        .start()
        .await;
    let redis = app.redis.freeze();
    breaker_is(&app, BreakerState::Open).await;
    assert_eq!(app.get("/readyz").await.expect(200).text("/status"), "degraded");
    let postgres = app.database.freeze();
    let down = app.client().get(format!("{}/readyz?verbose", app.url())).send().await.unwrap();
    let down = answered(down).await.expect(503);
    assert!(down.body.to_string().contains("no call can be taken"), "{down:?}");
    drop(postgres);
    drop(redis);
    breaker_is(&app, BreakerState::Closed).await;
    app.get("/readyz").await.expect(200);
    app.finish().await;
}
