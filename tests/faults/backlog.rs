//! The books lag the gate far: calls that add to the outbox wait, calls that free a hold go on.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::app::Role;

use crate::support::app::*;
use crate::support::wait::wait_for;

fn long() -> Value {
    pages("3").lasting(3600)
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

#[tokio::test(flavor = "multi_thread")]
async fn above_the_bounds_of_the_backlog_only_calls_that_free_units_go_on_until_a_writer_has_caught_up() {
    let app = an_app()
        .with("gate.backlog_events_max", "6")
        .with("gate.backlog_events_hard_max", "30")
        .without_writer()
        .without_jobs()
        .start()
        .await;
    app.with_day_of("100000").await;
    let mut holds = Vec::new();
    for _ in 0..3 {
        holds.push(app.held(long()).await);
    }
    until_overloaded(async |_| app.post(RESERVATIONS, long()).await).await;
    let usage = pages("1");
    app.post_keyed(USAGE, "usage", usage.clone()).await.is_problem(503, "overloaded");
    let dry = pages("1").with("dry_run", true);
    app.post(RESERVATIONS, dry).await.expect(200);
    until_overloaded(async |number| {
        app.resolve(&holds[0], "consume", json!({ "amount": number.to_string(), "final": false })).await
    })
    .await;
    let extend = format!("{RESERVATIONS}/{}/extend", holds[0]);
    app.post(&extend, json!({ "ttl_seconds": 3_600 })).await.is_problem(503, "overloaded");
    app.resolve(&holds[0], "consume", json!({})).await.expect(200);
    app.post(&format!("{RESERVATIONS}/{}/release", holds[1]), json!({})).await.expect(200);
    app.get(&format!("{RESERVATIONS}/{}", holds[1])).await.expect(200);
    let quota = app.quota().await;
    assert_eq!(quota.text("/source"), "gate");
    let metrics = app.app().operations.metrics_text();
    let waiting = metrics.lines().find_map(|line| line.strip_prefix("tollgate_outbox_entries ")).unwrap();
    assert!(waiting.parse::<u32>().unwrap() >= 30, "{metrics}");

    let writer = app.another_with(&[Role::Writer], &[]).await;
    app.post_until_answered(USAGE, "usage", usage).await.expect(201);
    app.resolve(&holds[2], "consume", json!({ "amount": "1", "final": false })).await.expect(200);
    app.drained().await;
    writer.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_from_before_an_outage_does_not_refuse_what_the_limits_allow_in_it() {
    let app = super::gate_away::impatient()
        .with("gate.backlog_events_max", "6")
        .with("gate.backlog_events_hard_max", "30")
        .without_writer()
        .start()
        .await;
    super::gate_away::limited(&app, "allow", json!([])).await;
    until_overloaded(async |number| app.use_pages(&format!("u{number}"), "1").await).await;
    let frozen = app.redis.freeze();
    let through = wait_for("the outage is known", super::gate_away::PATIENCE, async || {
        let answer = app.use_pages("through", "1").await;
        (answer.status == 201).then_some(answer)
    })
    .await;
    assert_eq!(through.body["degraded"], true);
    drop(frozen);
    let writer = app.another_with(&[Role::Writer], &[]).await;
    app.drained().await;
    writer.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_large_events_meet_the_bound_of_bytes_long_before_that_of_events() {
    let app = an_app()
        .with("gate.backlog_bytes_max", "100000")
        .with("gate.backlog_bytes_hard_max", "400000")
        .without_writer()
        .without_jobs()
        .start()
        .await;
    app.without_limits().await;
    // About 7 KB of metadata.
    let metadata: serde_json::Map<_, _> =
        (0..40).map(|number| (format!("field-{number}"), "x".repeat(160).into())).collect();
    let large = pages("1").lasting(3600).with("metadata", metadata);
    let mut admitted = 0;
    until_overloaded(async |_| {
        admitted += 1;
        app.post(RESERVATIONS, large.clone()).await
    })
    .await;
    assert!((10..1_000).contains(&admitted), "{admitted} were admitted");
    let usage = pages("1");
    app.post_keyed(USAGE, "usage", usage.clone()).await.is_problem(503, "overloaded");
    let metrics = app.app().operations.metrics_text();
    let waiting =
        metrics.lines().find_map(|line| line.strip_prefix("tollgate_outbox_waiting_bytes ")).unwrap();
    assert!(waiting.parse::<u64>().unwrap() >= 100_000, "{waiting}");

    let writer = app.another_with(&[Role::Writer], &[]).await;
    app.post_until_answered(USAGE, "usage", usage).await.expect(201);
    app.drained().await;
    writer.stop().await;
    app.finish().await;
}
