//! Events that come while the gate is away: parked where limits allow it, and sent again by their senders otherwise.

use std::collections::HashSet;

use serde_json::{Value, json};
use tollgate::domain::instant::rfc3339;

use super::gate_away::{PATIENCE, both, counted, impatient, limited, replayed};
use crate::http::events::{ACCEPTED, DUPLICATE, REUSED, event, outcomes, send, send_batch};
use crate::ledger::rows;
use crate::support::app::TestApp;
use crate::support::wait::wait_for;

/// An hour ago and five weeks less a day ago.
fn two_times(app: &TestApp) -> [String; 2] {
    [1, 34 * 24].map(|hours| rfc3339(app.clock.now_ms() - hours * 3_600_000))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_its_limits_allow_is_parked_with_its_time_and_counted_once() {
    let mut app = impatient().start().await;
    limited(&app, "allow", json!([])).await;
    app.use_pages("before", 1).await.expect(201);
    let [_, long_ago] = two_times(&app);
    let known = event("known", 5, None);
    assert_eq!(outcomes(&send(&app, &known).await), [ACCEPTED]);
    app.drained().await;
    app.redis.kill9().unwrap();

    let events = [known, event("now", 200, None), event("long ago", 9, Some(&long_ago))];
    assert_eq!(outcomes(&send_batch(&app, &events).await), [DUPLICATE, ACCEPTED, ACCEPTED]);
    assert_eq!(outcomes(&send_batch(&app, &events).await), [DUPLICATE; 3]);
    let other = event("now", 201, None);
    assert_eq!(outcomes(&send(&app, &other).await), [REUSED]);

    app.redis.restart().unwrap();
    replayed(&app).await;
    assert_eq!(counted(&app).await, both("206", "0"), "the window of what is long ago is over");
    assert_eq!(outcomes(&send_batch(&app, &events).await), [DUPLICATE; 3]);
    app.drained().await;
    let told = "SELECT amount::bigint::text, (now() - happened_at > interval '33 days')::text, degraded::text \
                FROM entries WHERE amount IN (9, 200) ORDER BY happened_at";
    let told = rows(&app.database, told).await;
    assert_eq!(told, ["9 true true", "200 false true"]);
    // It was resolved when it was taken, long after it happened.
    let resolved = "SELECT count(*)::text FROM reservations WHERE resolved_at > born_at + interval '33 days' \
                    AND resolved_at > now() - interval '1 day'";
    assert_eq!(rows(&app.database, resolved).await, ["1"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_under_a_limit_that_denies_is_sent_again_once_the_gate_answers() {
    let mut app = impatient().start().await;
    limited(&app, "deny", json!([])).await;
    let [an_hour_ago, _] = two_times(&app);
    let events = [event("now", 2, None), event("past", 3, Some(&an_hour_ago))];
    app.redis.kill9().unwrap();
    let away = send_batch(&app, &events).await;
    assert_eq!(outcomes(&away), [("rejected", "gate_unavailable"); 2], "{away:?}");
    let problem: &Value = &away.body["results"][0]["problem"];
    assert_eq!((&problem["status"], problem["retry_after_ms"].is_u64()), (&json!(503), true), "{problem}");
    app.redis.restart().unwrap();
    wait_for("the events are taken", PATIENCE, async || {
        let answer = send_batch(&app, &events).await;
        let all = outcomes(&answer);
        all.iter().all(|outcome| matches!(*outcome, ACCEPTED | DUPLICATE)).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_page_by_page_has_each_reservation_once_where_an_event_of_long_ago_is_parked() {
    let mut app = impatient().start().await;
    limited(&app, "allow", json!([])).await;
    for name in ["one", "two", "three"] {
        app.use_pages(name, 1).await.expect(201);
    }
    app.drained().await;
    app.redis.kill9().unwrap();
    let [_, long_ago] = two_times(&app);
    assert_eq!(outcomes(&send(&app, &event("long ago", 9, Some(&long_ago))).await), [ACCEPTED]);

    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = app.get(&format!("/v1/tenants/acme/reservations?limit=1{cursor}")).await.expect(200);
        ids.extend(page.body["data"].as_array().unwrap().iter().map(|row| row["id"].clone()));
        let Some(next) = page.body["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    let different: HashSet<_> = ids.iter().map(ToString::to_string).collect();
    assert_eq!((ids.len(), different.len()), (4, 4), "{ids:?}");
    app.redis.restart().unwrap();
    app.finish().await;
}
