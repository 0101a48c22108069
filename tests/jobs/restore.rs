use std::time::Duration;

use serde_json::json;
use tollgate::operations::OperationError;

use crate::ledger::rows;
use crate::support::app::{AppOptions, TestApp, spawn_app, spawn_app_with};
use crate::support::wait::wait_for;

const TENANTS: usize = 5;

/// Several tenants, each with a hold that names a subject.
async fn with_holds(app: &TestApp, ttl_seconds: u32) {
    let limits = json!([
        { "id": "day", "meter": "page", "window": "day", "capacity": "100" },
        { "id": "user", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "day", "capacity": "60" }
    ]);
    app.with_plan(limits, json!([{ "meter": "page", "included": "90" }])).await;
    for number in 0..TENANTS {
        let tenant = format!("quiet{number}");
        app.put(&format!("/v1/admin/tenants/{tenant}"), json!({ "plan": "plan" })).await;
        let hold = json!({ "tenant": tenant, "subject": "ada", "meter": "page", "amount": "7", "ttl_seconds": ttl_seconds });
        app.post("/v1/reservations", hold).await.expect(201);
    }
}

async fn all_expired(app: &TestApp) {
    let states = "SELECT state, count(*) AS n FROM reservations GROUP BY 1";
    wait_for("every hold has expired", Duration::from_secs(60), async || {
        (rows(&app.database, states).await == [format!("expired {TENANTS}")]).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_loss_holds_expire_although_nobody_calls() {
    let app = spawn_app().await;
    with_holds(&app, 2).await;
    app.drained().await;
    app.redis.flush().await;
    all_expired(&app).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_only_answers_calls_leaves_the_restore_to_one_with_jobs() {
    let app = spawn_app_with(AppOptions { without_jobs: true, ..AppOptions::default() }).await;
    with_holds(&app, 2).await;
    app.drained().await;
    app.redis.flush().await;
    // The instance without jobs meets the loss and issues the epochs; then it restores one tenant, as it is asked for it.
    app.get("/v1/tenants/quiet0/quota").await.expect(200);
    let worker = app.another_instance_with(&[tollgate::app::Role::Jobs]).await;
    all_expired(&app).await;
    worker.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_of_open_holds_waits_for_a_writer_that_is_behind() {
    let mut app =
        spawn_app_with(AppOptions { without_writer: true, without_jobs: true, ..AppOptions::default() })
            .await;
    with_holds(&app, 3600).await;
    // Not emptied: the outbox keeps what the ledger does not know yet.
    app.redis.restart().unwrap();
    let operations = app.app().operations.clone();
    wait_for("new epochs", Duration::from_secs(30), async || operations.verify_node().await.ok()).await;
    let restoring = tokio::spawn({
        let operations = operations.clone();
        async move { operations.restore_open_holds().await }
    });
    let early = tokio::time::timeout(Duration::from_millis(300), async {
        while !restoring.is_finished() {
            tokio::task::yield_now().await
        }
    });
    assert!(early.await.is_err(), "the ledger does not know the holds yet");
    let writer = app.another_instance_with(&[tollgate::app::Role::Writer]).await;
    let told = restoring.await.unwrap().unwrap();
    assert_eq!((told.tenants, told.subjects), (5, 5));
    writer.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_of_open_holds_ends_when_memory_is_lost_again_and_the_next_one_finds_everybody() {
    let mut app =
        spawn_app_with(AppOptions { without_writer: true, without_jobs: true, ..AppOptions::default() })
            .await;
    with_holds(&app, 3600).await;
    let writer = app.another_instance_with(&[tollgate::app::Role::Writer]).await;
    app.drained().await;
    writer.stop().await;
    // Nobody books these any more: what the restore waits for is lost with them.
    let usage = json!({ "tenant": "quiet0", "meter": "page", "amount": "1" });
    app.post_keyed("/v1/usage", "lost", usage).await.expect(201);
    app.redis.restart().unwrap();
    let operations = app.app().operations.clone();
    wait_for("new epochs", Duration::from_secs(30), async || operations.verify_node().await.ok()).await;
    let restoring = tokio::spawn({
        let operations = operations.clone();
        async move { operations.restore_open_holds().await }
    });
    app.redis.flush().await;
    // The other instance issues the epochs; the one that restores has met no alarm.
    let other = app.another_instance_with(&[]).await;
    let ended = tokio::time::timeout(Duration::from_secs(20), restoring).await.expect("it ends").unwrap();
    assert!(matches!(ended, Err(OperationError::GateUnavailable(_))), "{ended:?}");
    let writer = app.another_instance_with(&[tollgate::app::Role::Writer]).await;
    let told = operations.restore_open_holds().await.unwrap();
    assert_eq!((told.tenants, told.subjects), (5, 5));
    writer.stop().await;
    other.stop().await;
    app.finish().await;
}
