//! The safety tail: booked events stay in the outboxes, so that a Postgres that failed over can book them again.

use std::time::Duration;

use redis::AsyncCommands;
use serde_json::{Value, json};

use crate::support::app::*;
use crate::support::process::tollgate;
use crate::support::wait::wait_for;

/// How many events each outbox holds, the fullest first.
async fn lengths(app: &TestApp) -> Vec<usize> {
    let mut connection = app.redis.connection().await;
    let outboxes: Vec<String> = connection.keys("tg1:*:outbox").await.unwrap();
    let mut lengths: Vec<usize> = Vec::new();
    for outbox in outboxes {
        lengths.push(connection.xlen(&outbox).await.unwrap());
    }
    lengths.sort_unstable_by(|one, other| other.cmp(one));
    lengths
}

/// Books so many usages of one tenant, an event each.
async fn use_pages(app: &TestApp, count: usize) {
    let item = |number| {
        let body = pages("1");
        json!({ "call": "usage", "idempotency_key": format!("job-{number}"), "body": body })
    };
    let items: Vec<Value> = (0..count).map(item).collect();
    app.post("/v1/batch", json!({ "items": items })).await.expect(200);
    app.drained().await;
}

async fn started(options: AppOptions) -> TestApp {
    let app = options.start().await;
    app.without_limits().await;
    app
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_partition_keeps_its_whole_tail_while_the_node_has_room() {
    // The eighth part of this would hold a hundred events.
    let app = started(an_app().with("writer.safety_tail_bytes", "250000")).await;
    use_pages(&app, 400).await;
    // A pass later nothing has gone.
    app.use_pages("last", "1").await;
    app.drained().await;
    assert_eq!(lengths(&app).await[0], 401);
    app.finish().await;
}

/// What `tollgate status` says of the safety tails, by name.
async fn told_by_status(app: &TestApp) -> Vec<(String, u64)> {
    let mut command = tollgate(&["status", "--output", "json"]);
    command.envs(app.variables());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = rows.as_array().unwrap().iter();
    let tails = rows.filter(|row| row["name"].as_str().unwrap().starts_with("safety tail"));
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap());
    tails.map(|row| (row["name"].as_str().unwrap().to_owned(), number(&row["value"]))).collect()
}

/// What the metrics say of each partition's tail, in seconds.
fn told_by_metrics(app: &TestApp) -> Vec<f64> {
    let text = app.app().operations.metrics_text();
    let lines = text.lines().filter(|line| line.starts_with("tollgate_outbox_tail_seconds{"));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_metrics_tell_how_far_back_each_tail_reaches() {
    let app = started(an_app().with("writer.safety_tail_bytes", "20000")).await;
    assert_eq!(told_by_status(&app).await, [("safety tail of every partition, seconds".to_owned(), 900)]);
    use_pages(&app, 400).await;
    wait_for("the tail has given way", Duration::from_secs(20), async || {
        (lengths(&app).await[0] < 400).then_some(())
    })
    .await;
    let told = told_by_status(&app).await;
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].0.starts_with("safety tail of p") && told[0].1 < 60, "{told:?}");
    assert_eq!(told[1], ("safety tail of every other partition, seconds".to_owned(), 900));
    app.app().operations.calls.admission.show_tails().await.unwrap();
    let shown = told_by_metrics(&app);
    assert_eq!(shown.len(), usize::from(PARTITIONS));
    assert_eq!(shown.iter().filter(|seconds| **seconds < 60.0).count(), 1, "{shown:?}");
    app.finish().await;
}
