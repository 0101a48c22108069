//! The books far behind the gate: what adds to the outbox waits, what frees a hold goes on.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::app::Role;

use crate::support::app::{Answered, AppOptions, TestApp, spawn_app_with};
use crate::support::wait::wait_for;

const RESERVATIONS: &str = "/v1/reservations";

fn pages() -> Value {
    json!({ "tenant": "acme", "meter": "page", "amount": "3", "ttl_seconds": 3600 })
}

/// Repeats a call that succeeds until it is refused for the backlog.
async fn until_overloaded(mut call: impl AsyncFnMut(u32) -> Answered) {
    let mut number = 0;
    let refused = wait_for("the bound is met", Duration::from_secs(20), async || {
        number += 1;
        let answer = call(number).await;
        (answer.status >= 300).then_some(answer)
    })
    .await;
    refused.is_problem(503, "overloaded");
    assert!(!refused.header("retry-after").is_empty(), "{refused:?}");
}

async fn consume(app: &TestApp, id: &str, body: Value) -> Answered {
    app.post(&format!("{RESERVATIONS}/{id}/consume"), body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_its_bounds_only_what_frees_goes_on_until_a_writer_has_caught_up() {
    let settings =
        vec![("gate.backlog_events_max", "6".to_owned()), ("gate.backlog_events_hard_max", "30".to_owned())];
    let options = AppOptions { settings, without_writer: true, without_jobs: true, ..AppOptions::default() };
    let app = spawn_app_with(options).await;
    app.with_plan(
        json!([{ "id": "day", "meter": "page", "window": "day", "capacity": "100000" }]),
        json!([]),
    )
    .await;
    let mut holds = Vec::new();
    for _ in 0..3 {
        holds.push(app.post(RESERVATIONS, pages()).await.expect(201).text("/id").to_owned());
    }
    until_overloaded(async |_| app.post(RESERVATIONS, pages()).await).await;
    let usage = json!({ "tenant": "acme", "meter": "page", "amount": "1" });
    app.post_keyed("/v1/usage", "usage", usage.clone()).await.is_problem(503, "overloaded");
    let dry = json!({ "tenant": "acme", "meter": "page", "amount": "1", "dry_run": true });
    app.post(RESERVATIONS, dry).await.expect(200);
    until_overloaded(async |number| {
        consume(&app, &holds[0], json!({ "amount": number.to_string(), "final": false })).await
    })
    .await;
    let extend = format!("{RESERVATIONS}/{}/extend", holds[0]);
    app.post(&extend, json!({ "ttl_seconds": 3_600 })).await.is_problem(503, "overloaded");
    consume(&app, &holds[0], json!({})).await.expect(200);
    app.post(&format!("{RESERVATIONS}/{}/release", holds[1]), json!({})).await.expect(200);
    app.get(&format!("{RESERVATIONS}/{}", holds[1])).await.expect(200);
    let quota = app.get("/v1/tenants/acme/quota").await.expect(200);
    assert_eq!(quota.text("/source"), "gate");
    let metrics = app.app().operations.metrics_text();
    let waiting = metrics.lines().find_map(|line| line.strip_prefix("tollgate_outbox_entries ")).unwrap();
    assert!(waiting.parse::<u32>().unwrap() >= 30, "{metrics}");

    let writer = app.another_with(&[Role::Writer], &[]).await;
    app.post_until_answered("/v1/usage", "usage", usage).await.expect(201);
    consume(&app, &holds[2], json!({ "amount": "1", "final": false })).await.expect(200);
    app.drained().await;
    writer.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_large_events_meet_the_bound_of_bytes_long_before_that_of_events() {
    let settings = vec![
        ("gate.backlog_bytes_max", "100000".to_owned()),
        ("gate.backlog_bytes_hard_max", "400000".to_owned()),
    ];
    let options = AppOptions { settings, without_writer: true, without_jobs: true, ..AppOptions::default() };
    let app = spawn_app_with(options).await;
    app.with_plan(json!([]), json!([])).await;
    // About 7 KB of metadata.
    let metadata: serde_json::Map<_, _> =
        (0..40).map(|number| (format!("field-{number}"), "x".repeat(160).into())).collect();
    let large = json!({ "tenant": "acme", "meter": "page", "amount": "1", "ttl_seconds": 3600, "metadata": metadata });
    let mut admitted = 0;
    until_overloaded(async |_| {
        admitted += 1;
        app.post(RESERVATIONS, large.clone()).await
    })
    .await;
    assert!((10..1_000).contains(&admitted), "{admitted} were admitted");
    let usage = json!({ "tenant": "acme", "meter": "page", "amount": "1" });
    app.post_keyed("/v1/usage", "usage", usage.clone()).await.is_problem(503, "overloaded");
    let metrics = app.app().operations.metrics_text();
    let waiting =
        metrics.lines().find_map(|line| line.strip_prefix("tollgate_outbox_waiting_bytes ")).unwrap();
    assert!(waiting.parse::<u64>().unwrap() >= 100_000, "{waiting}");

    let writer = app.another_with(&[Role::Writer], &[]).await;
    app.post_until_answered("/v1/usage", "usage", usage).await.expect(201);
    app.drained().await;
    writer.stop().await;
    app.finish().await;
}
