//! Grants that go on under random use, voids, ends, losses of memory and closes.

use std::time::Duration;

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tollgate::ledger::Manner;

use crate::ledger::rows;
use crate::support::app::*;

const GRACE: Duration = Duration::from_secs(3600);
const GRANTS: &str = "/v1/admin/grants";

async fn closes(app: &TestApp) {
    while app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap().closed > 0 {}
}

/// Whether a grant has ended and what is left of it is not booked: the gate has a bound then.
async fn is_ending(app: &TestApp, now: &str) -> bool {
    let ending = format!(
        "SELECT id FROM grants WHERE settled_at IS NULL AND coalesce(voided_at, expires_at) <= '{now}'::timestamptz"
    );
    !rows(&app.database, &ending).await.is_empty()
}

/// Uses pages for good, without a key. Whatever is refused is more than remains.
async fn uses(app: &TestApp, amount: i64, now: &str) {
    let answer = app.post(RESERVATIONS, pages(amount)).await;
    if answer.status == 201 {
        app.consume(answer.text("/id"), &amount.to_string()).await.expect(200);
        return;
    }
    let remaining = app.quota().await.text("/quotas/0/remaining").to_owned();
    assert!(remaining.parse::<i64>().unwrap() < amount, "{amount} of {remaining}: {answer:?}");
    assert!(answer.status == 429 || is_ending(app, now).await, "{answer:?}");
}

/// Compares what the gate may let through in the open period with the books, unless it has a bound.
async fn compare(app: &TestApp, now: &str) {
    if is_ending(app, now).await {
        return;
    }
    let quota = app.quota().await;
    let at_gate = quota.text("/quotas/0/granted");
    let capacity = format!(
        "SELECT trim_scale(capacity)::text AS c FROM quota_capacities \
         WHERE period_start <= '{now}'::timestamptz AND period_end > '{now}'::timestamptz"
    );
    // A period that nobody has used may not be open yet.
    let in_books = rows(&app.database, &capacity).await.pop().unwrap_or_else(|| "50".into());
    assert_eq!(in_books, at_gate, "at {now}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_goes_on_the_gate_has_what_the_books_have_and_lets_nothing_more_through() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    let (mut now_ms, mut ids) = (app.clock.now_ms(), Vec::new());
    let at = |ms: i64| Timestamp::from_millisecond(ms).unwrap().to_string();
    for step in 0..80 {
        match random.random_range(0..10) {
            0..2 => {
                let ends = at(now_ms + random.random_range(1..2_000) * 3_600_000);
                let body = json!({
                    "tenant": "acme", "meter": "page", "amount": random.random_range(1..40).to_string(),
                    "kind": "promotional", "priority": random.random_range(48..53), "expires_at": ends
                });
                let made = app.post_keyed(GRANTS, &step.to_string(), body).await.expect(201);
                ids.push(made.text("/id").to_owned());
            }
            2 if !ids.is_empty() => {
                let id = ids.remove(random.random_range(0..ids.len()));
                let answer = app.post(&format!("{GRANTS}/{id}/void"), json!({})).await;
                assert!(matches!(answer.status, 200 | 409), "{answer:?}");
            }
            3..5 => {
                now_ms += random.random_range(1..150) * 3_600_000;
                app.move_clock(&at(now_ms)).await;
            }
            5 if random.random_bool(0.3) => {
                app.drained().await;
                app.redis.flush().await;
            }
            _ => uses(&app, random.random_range(1..20), &at(now_ms)).await,
        }
        app.drained().await;
        if random.random_bool(0.5) {
            closes(&app).await;
        }
        app.app().operations.grants.follow().await.unwrap();
        app.drained().await;
        compare(&app, &at(now_ms)).await;
        let overdrawn = "SELECT period_start FROM balances WHERE available < 0";
        assert_eq!(rows(&app.database, overdrawn).await, [""; 0], "step {step}");
    }
    app.move_clock(&at(now_ms + 100 * 86_400_000)).await;
    app.app().operations.grants.follow().await.unwrap();
    closes(&app).await;
    let beyond = "SELECT period_start FROM balances WHERE overage <> 0";
    assert_eq!(rows(&app.database, beyond).await, [""; 0], "no unit beyond the truth");
    app.finish().await;
}
