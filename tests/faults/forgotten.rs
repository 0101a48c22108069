//! Reservations that only the ledger knows: archived ones, and those that a parked call made or changed.

use std::time::Duration;

use serde_json::json;
use tollgate::clock::Clock;

use super::gate_away::{hold, impatient, limited, long, replayed};
use crate::support::app::*;
use crate::support::wait::wait_for;

/// Moves every resolved reservation to the archive, and empties the gate.
async fn archive(app: &TestApp) {
    app.drained().await;
    let later_ms = Clock::system().now_ms() + 1000;
    assert!(app.app().ledger.archive_reservations(later_ms, later_ms, 100).await.unwrap() > 0);
    app.redis.flush().await;
    wait_for("the gate answers again", Duration::from_secs(60), async || {
        (app.get("/v1/tenants/acme/quota").await.body["source"] == "gate").then_some(())
    })
    .await;
}

fn ids(list: &Answered) -> Vec<&str> {
    list.body["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect()
}

async fn listed(app: &TestApp, filter: &str) -> Answered {
    app.get(&format!("/v1/tenants/acme/reservations{filter}")).await.expect(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archived_reservation_reads_as_any_other_and_takes_no_change() {
    let app = impatient().start().await;
    limited(&app, "deny", json!([])).await;
    let consumed = hold(&app, "10").await;
    app.consume(&consumed, "4").await.expect(200);
    let released = hold(&app, "10").await;
    app.release(&released).await.expect(200);
    archive(&app).await;
    let open = hold(&app, "10").await;
    app.drained().await;

    let read = app.read(&consumed).await.expect(200);
    assert_eq!((read.text("/status"), read.text("/lines/0/consumed")), ("consumed", "4"), "{read:?}");
    for (verb, body) in [("consume", json!({ "amount": "4" })), ("release", json!({})), ("extend", json!({}))]
    {
        let refused = app.resolve(&consumed, verb, body).await;
        refused.is_problem(409, "already_resolved");
        assert_eq!(refused.text("/reservation/status"), "consumed", "{refused:?}");
    }
    assert_eq!(ids(&listed(&app, "").await), [&open, &released, &consumed]);
    assert_eq!(ids(&listed(&app, "?status=released").await), [&released]);

    app.define("tenants/other", json!({ "plan": "plan" })).await;
    let key =
        app.post("/v1/admin/keys", json!({ "name": "other", "role": "service", "tenant": "other" })).await;
    let path = format!("/v1/reservations/{consumed}");
    let foreign = app.with_key(Some(key.expect(201).text("/key"))).get(&path).await;
    foreign.is_problem(404, "not_found");
    app.release(&open).await.expect(200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_reservations_has_what_was_taken_while_the_gate_is_away() {
    let app = impatient().start().await;
    limited(&app, "allow", json!([])).await;
    let (held, used) = (hold(&app, "1").await, hold(&app, "2").await);
    app.drained().await;

    let frozen = app.redis.freeze();
    app.consume(&used, "1").await.expect(200);
    let waiting = app.post_keyed(RESERVATIONS, "new", long("3")).await.expect(201);
    let done = app.post_keyed(USAGE, "done", pages("5")).await.expect(201);
    let (waiting, done) = (waiting.text("/id"), done.text("/id"));
    let all = listed(&app, "").await;
    assert_eq!(ids(&all), [done, waiting, &used, &held]);
    let stands: Vec<_> = (0..4)
        .map(|row| (all.text(&format!("/data/{row}/status")), all.body["data"][row]["degraded"] == true))
        .collect();
    assert_eq!(stands, [("consumed", true), ("reserved", true), ("consumed", true), ("reserved", false)]);
    assert_eq!(ids(&listed(&app, "?status=reserved").await), [waiting, &held]);
    assert_eq!(ids(&listed(&app, "?status=consumed").await), [done, &used]);
    let first = listed(&app, "?status=consumed&limit=1").await;
    assert_eq!((ids(&first), first.body["has_more"].as_bool()), (vec![done], Some(true)));
    let next = format!("?status=consumed&limit=1&cursor={}", first.text("/next_cursor"));
    let second = listed(&app, &next).await;
    assert_eq!((ids(&second), second.body["has_more"].as_bool()), (vec![used.as_str()], Some(false)));
    drop(frozen);

    replayed(&app).await;
    app.drained().await;
    assert_eq!(ids(&listed(&app, "").await), [done, waiting, &used, &held]);
    app.release(&held).await.expect(200);
    app.release(waiting).await.expect(200);
    app.finish().await;
}
