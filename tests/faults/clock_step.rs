//! Redis's clock steps: a proxy changes the answer of TIME to the watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tollgate::app::{App, Role};
use tollgate::gate::ExpireReport;
use tollgate::ledger::Manner;

use super::gate_away::park_consume;
use crate::ledger::rows;
use crate::support::app::*;
use crate::support::wait::wait_for;

/// How an answer of TIME begins; ten digits of seconds follow.
const TIME: &[u8] = b"*2\r\n$10\r\n";

/// A proxy that adds `ahead_s` to the answer of TIME. Returns its URL.
async fn skewed(app: &TestApp, ahead_s: Arc<AtomicI64>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let socket = app.redis.socket();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = UnixStream::connect(&socket).await else { return };
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let ahead_s = ahead_s.clone();
            tokio::spawn(async move {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(read @ 1..) = from_server.read(&mut bytes).await {
                    skew(&mut bytes[..read], ahead_s.load(Ordering::SeqCst));
                    if to_client.write_all(&bytes[..read]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

fn skew(bytes: &mut [u8], ahead_s: i64) {
    let Some(seconds) = bytes.strip_prefix_mut(TIME).and_then(|rest| rest.get_mut(..10)) else { return };
    if let Some(now_s) = std::str::from_utf8(seconds).ok().and_then(|text| text.parse::<i64>().ok()) {
        seconds.copy_from_slice((now_s + ahead_s).to_string().as_bytes());
    }
}

trait StripPrefixMut {
    fn strip_prefix_mut(&mut self, prefix: &[u8]) -> Option<&mut [u8]>;
}

impl StripPrefixMut for [u8] {
    fn strip_prefix_mut(&mut self, prefix: &[u8]) -> Option<&mut [u8]> {
        if self.starts_with(prefix) { Some(&mut self[prefix.len()..]) } else { None }
    }
}

/// Calls the instance behind the proxy.
async fn call(app: &TestApp, at: &App, method: Method, path: &str, body: Value) -> Answered {
    let mut request = app.client().request(method, format!("{}{path}", at.url())).bearer_auth(app.key());
    if !body.is_null() {
        request = request.json(&body);
    }
    answered(request.send().await.unwrap()).await
}

/// Its metrics show that the clock is not trusted, and one alarm.
fn tells_its_doubt(at: &App) {
    let metrics = at.operations.metrics_text();
    assert!(metrics.contains("tollgate_gate_clock_trusted 0"), "{metrics}");
    assert!(metrics.contains("tollgate_alarms_total{alarm=\"clock\"} 1"), "{metrics}");
}

/// An operator accepts a clock that was in doubt.
async fn accept_time(app: &TestApp, at: &App) -> Answered {
    let accepted = call(app, at, Method::POST, "/v1/admin/gate/accept-time", Value::Null).await.expect(200);
    assert_eq!(accepted.body["was_in_doubt"], true, "{accepted:?}");
    accepted
}

async fn becomes_ready(app: &TestApp, at: &App, status: &str) -> Answered {
    wait_for("readiness follows the clock", Duration::from_secs(20), async || {
        let answer = call(app, at, Method::GET, "/readyz?verbose", Value::Null).await;
        (answer.text("/status") == status).then_some(answer.expect(200))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_step_of_redis_clock_nothing_is_admitted_until_it_agrees_again_or_an_operator_accepts_it() {
    let app = spawn_app().await;
    app.with_day_of("100").await;
    let ahead_s = Arc::new(AtomicI64::new(0));
    let redis_url = skewed(&app, ahead_s.clone()).await;
    let behind = app.another_with(&[Role::Http], &[("redis.url", redis_url)]).await;
    let pages = || pages("3");
    let hold = call(&app, &behind, Method::POST, RESERVATIONS, pages()).await.expect(201);
    let second = call(&app, &behind, Method::POST, RESERVATIONS, pages()).await.expect(201);
    becomes_ready(&app, &behind, "ok").await;

    ahead_s.store(3_600, Ordering::SeqCst);
    let degraded = becomes_ready(&app, &behind, "degraded").await;
    assert!(degraded.body.to_string().contains("Redis's clock has stepped or differs"), "{degraded:?}");
    call(&app, &behind, Method::POST, RESERVATIONS, pages()).await.is_problem(503, "gate_unavailable");
    let consume = reservation(hold.text("/id"), "consume");
    call(&app, &behind, Method::POST, &consume, json!({})).await.expect(200);
    tells_its_doubt(&behind);

    let accepted = accept_time(&app, &behind).await;
    assert!(accepted.body["difference_ms"].as_i64().unwrap() > 3_500_000, "{accepted:?}");
    becomes_ready(&app, &behind, "ok").await;

    ahead_s.store(0, Ordering::SeqCst);
    wait_for("the way back is trusted, as it agrees with this host", Duration::from_secs(20), async || {
        let answer = call(&app, &behind, Method::POST, RESERVATIONS, pages()).await;
        (answer.status == 201).then_some(())
    })
    .await;
    let release = reservation(second.text("/id"), "release");
    call(&app, &behind, Method::POST, &release, json!({})).await.expect(200);
    behind.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_starts_while_redis_clock_differs_admits_and_sweeps_nothing_until_an_operator_accepts_it()
 {
    let app = an_app().without_jobs().start().await;
    assert!(app.app().gate.trusts_time(), "in the ordinary case no call ever waits for trust");
    app.with_day_of("100").await;
    let pages = |ttl_seconds: u32| pages("3").lasting(ttl_seconds);
    let kept = app.post(RESERVATIONS, pages(600)).await.expect(201);
    let due = app.post(RESERVATIONS, pages(1)).await.expect(201);
    let state_of = async |hold: &Answered| {
        let id = app.app().operations.calls.parse_reservation_id(hold.text("/id")).unwrap();
        let found = app.app().gate.peek_record(id, None, None).await.unwrap();
        (found.now_ms, found.record.unwrap().head)
    };
    wait_for("the hold is due", Duration::from_secs(20), async || {
        let (now_ms, head) = state_of(&due).await;
        (now_ms > head.expires_at_ms + 1_000).then_some(())
    })
    .await;

    let ahead_s = Arc::new(AtomicI64::new(86_400));
    let redis_url = skewed(&app, ahead_s.clone()).await;
    let behind = app.another_with(&[Role::Http], &[("redis.url", redis_url)]).await;
    assert!(!behind.gate.trusts_time());
    becomes_ready(&app, &behind, "degraded").await;
    call(&app, &behind, Method::POST, RESERVATIONS, pages(60)).await.is_problem(503, "gate_unavailable");
    let partition = app.app().gate.partition_of(&"acme".parse().unwrap());
    assert_eq!(behind.operations.calls.expire_due(partition).await.unwrap(), ExpireReport::default());
    assert_eq!(state_of(&due).await.1.state.to_string(), "reserved");
    let consume = reservation(kept.text("/id"), "consume");
    call(&app, &behind, Method::POST, &consume, json!({})).await.expect(200);
    tells_its_doubt(&behind);

    accept_time(&app, &behind).await;
    becomes_ready(&app, &behind, "ok").await;
    assert_eq!(behind.operations.calls.expire_due(partition).await.unwrap().expired, 1);
    behind.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_started_in_doubt_trusts_redis_clock_once_it_agrees_with_the_host() {
    let app = spawn_app().await;
    app.with_day_of("100").await;
    let ahead_s = Arc::new(AtomicI64::new(-60));
    let redis_url = skewed(&app, ahead_s.clone()).await;
    let behind = app.another_with(&[Role::Http], &[("redis.url", redis_url)]).await;
    assert!(!behind.gate.trusts_time());
    let pages = || pages("3");
    call(&app, &behind, Method::POST, RESERVATIONS, pages()).await.is_problem(503, "gate_unavailable");

    ahead_s.store(0, Ordering::SeqCst);
    becomes_ready(&app, &behind, "ok").await;
    call(&app, &behind, Method::POST, RESERVATIONS, pages()).await.expect(201);
    behind.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_redelivered_while_redis_clock_is_not_trusted() {
    let app = an_app().without_jobs().start().await;
    app.with_day_of("100").await;
    let ahead_s = Arc::new(AtomicI64::new(0));
    let redis_url = skewed(&app, ahead_s.clone()).await;
    let behind = app.another_with(&[Role::Http], &[("redis.url", redis_url)]).await;
    let pages = pages("3");
    let id = app.held(pages).await;
    app.drained().await;
    park_consume(&app, &id, "2").await;
    becomes_ready(&app, &behind, "ok").await;

    ahead_s.store(3_600, Ordering::SeqCst);
    becomes_ready(&app, &behind, "degraded").await;
    behind.operations.outage.look_for_parked().await.unwrap();
    behind.operations.outage.redeliver_parked().await;
    assert_eq!(app.app().ledger.count_parked().await.unwrap().waiting, 1);
    let reservation = app.app().operations.calls.parse_reservation_id(&id).unwrap();
    let found = app.app().gate.peek_record(reservation, None, None).await.unwrap().record.unwrap();
    assert_eq!(found.head.state.to_string(), "reserved");

    ahead_s.store(0, Ordering::SeqCst);
    wait_for("the clock agrees again and the call is replayed", Duration::from_secs(20), async || {
        behind.operations.outage.redeliver_parked().await;
        (app.app().ledger.count_parked().await.unwrap().waiting == 0).then_some(())
    })
    .await;
    let read = app.read(&id).await.expect(200);
    assert_eq!((read.text("/status"), read.text("/lines/0/consumed")), ("consumed", "2"));
    behind.stop().await;
    app.finish().await;
}

#[rstest::rstest]
#[case::it_leaps_seventy_days_ahead(70 * 86_400)]
#[case::it_is_set_back_by_twenty_years(-20 * 365 * 86_400)]
#[tokio::test(flavor = "multi_thread")]
async fn jobs_open_close_and_bill_nothing_by_a_redis_clock_that_is_not_trusted(#[case] step_s: i64) {
    let app = an_app().without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    let recurring = json!({
        "tenant": "acme", "meter": "page", "amount": "10", "kind": "promotional", "recurrence": "period",
        "expires_at": "2040-01-01T00:00:00Z"
    });
    app.post_keyed("/v1/admin/grants", "recurs", recurring).await.expect(201);
    app.use_pages("warm", "1").await.expect(201);
    app.drained().await;
    let ahead_s = Arc::new(AtomicI64::new(0));
    let redis_url = skewed(&app, ahead_s.clone()).await;
    let behind = app.another_with(&[Role::Http], &[("redis.url", redis_url)]).await;
    becomes_ready(&app, &behind, "ok").await;

    ahead_s.store(step_s, Ordering::SeqCst);
    becomes_ready(&app, &behind, "degraded").await;
    behind.operations.memory.next_periods_due().await.unwrap();
    behind.operations.memory.open_next_periods().await.unwrap();
    let (manner, grace) = (Manner::default(), Duration::from_secs(3600));
    for refused in [
        behind.operations.periods.close(manner, grace).await.map(drop),
        behind.operations.grants.follow().await.map(drop),
        behind.operations.statements.issue(manner, grace).await.map(drop),
    ] {
        let refused = refused.expect_err("nothing is booked by it").to_string();
        assert!(refused.contains("not trusted"), "{refused}");
    }
    // On a month's last day the next period is opened ahead, by the host's clock.
    let of_another_time = "SELECT period_start FROM quota_periods \
        WHERE period_end <= now() OR period_start > now() + interval '2 days'";
    assert_eq!(rows(&app.database, of_another_time).await, [""; 0]);

    ahead_s.store(0, Ordering::SeqCst);
    becomes_ready(&app, &behind, "ok").await;
    call(&app, &behind, Method::POST, RESERVATIONS, pages("59")).await.expect(201);
    behind.stop().await;
    app.finish().await;
}
