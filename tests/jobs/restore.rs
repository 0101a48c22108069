use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::{Value, json};
use tollgate::operations::{OperationError, Operations};

use crate::ledger::rows;
use crate::support::app::*;
use crate::support::wait::wait_for;

const TENANTS: usize = 5;

/// Several tenants, each with a hold that names a subject.
async fn with_holds(app: &TestApp, ttl_seconds: u32) {
    let limits = json!([
        { "id": "day", "meter": "page", "window": "day", "capacity": "100" },
        { "id": "user", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "day", "capacity": "60" }
    ]);
    app.with_plan(limits, json!([quota_of("90")])).await;
    for number in 0..TENANTS {
        let tenant = format!("quiet{number}");
        app.define(&format!("tenants/{tenant}"), json!({ "plan": "plan" })).await;
        let hold = pages("7").of(tenant).by("ada").lasting(ttl_seconds);
        app.post(RESERVATIONS, hold).await.expect(201);
    }
}

/// Without a writer, the first call of a second tenant in a partition would wait for the books.
fn scattered() -> AppOptions {
    an_app().with("gate.partitions", 64)
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
    let app = an_app().without_jobs().start().await;
    with_holds(&app, 2).await;
    app.drained().await;
    app.redis.flush().await;
    // The instance without jobs meets the loss and issues the epochs; then it restores the one tenant that it is asked
    // for.
    app.get("/v1/tenants/quiet0/quota").await.expect(200);
    let worker = app.another_instance_with(&[tollgate::app::Role::Jobs]).await;
    all_expired(&app).await;
    worker.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_of_open_holds_waits_for_a_writer_that_is_behind() {
    let mut app = scattered().without_writer().without_jobs().start().await;
    with_holds(&app, 3600).await;
    // Not emptied: the outbox keeps the events that are not booked yet.
    app.redis.restart().unwrap();
    let operations = app.app().operations.clone();
    wait_for("new epochs", Duration::from_secs(30), async || {
        operations.memory.check.verify_node().await.ok()
    })
    .await;
    let restoring = tokio::spawn({
        let operations = operations.clone();
        async move { operations.memory.restore_open_holds().await }
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
    let mut app = scattered().without_writer().without_jobs().start().await;
    with_holds(&app, 3600).await;
    let writer = app.another_instance_with(&[tollgate::app::Role::Writer]).await;
    app.drained().await;
    writer.stop().await;
    // These are never booked: the restore waits for events that are lost.
    let usage = pages("1").of("quiet0");
    app.post_keyed(USAGE, "lost", usage).await.expect(201);
    app.redis.restart().unwrap();
    let operations = app.app().operations.clone();
    wait_for("new epochs", Duration::from_secs(30), async || {
        operations.memory.check.verify_node().await.ok()
    })
    .await;
    let restoring = tokio::spawn({
        let operations = operations.clone();
        async move { operations.memory.restore_open_holds().await }
    });
    app.redis.flush().await;
    // The other instance issues the epochs; the one that restores has met no alarm.
    let other = app.another_instance_with(&[]).await;
    let ended = tokio::time::timeout(Duration::from_secs(20), restoring).await.expect("it ends").unwrap();
    assert!(matches!(ended, Err(OperationError::GateUnavailable(_))), "{ended:?}");
    let writer = app.another_instance_with(&[tollgate::app::Role::Writer]).await;
    let told = operations.memory.restore_open_holds().await.unwrap();
    assert_eq!((told.tenants, told.subjects), (5, 5));
    writer.stop().await;
    other.stop().await;
    app.finish().await;
}

/// A limit of each user's own.
fn of_users() -> Value {
    json!([{ "id": "user", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "day", "capacity": "60" }])
}

/// Holds of so many subjects of one tenant, one each; returns the last one's reservation.
async fn with_holders(app: &TestApp, holders: usize) -> String {
    let named = |number: usize| pages("7").by(format!("user-{number}")).lasting(3600);
    let calls = futures::stream::iter((0..holders).map(async |number| app.held(named(number)).await));
    let ids = calls.buffered(16).collect::<Vec<_>>().await;
    app.drained().await;
    ids.last().unwrap().clone()
}

/// Restores the tenants and subjects that holds name. A restore on a connection from before the restart begins again,
/// as the job does.
async fn restore_all(operations: &Operations) {
    while let Err(failed) = operations.memory.restore_open_holds().await {
        assert!(matches!(failed, OperationError::GateUnavailable(_)), "{failed:?}");
    }
}

/// How many subjects the gate knows.
async fn subjects_known(app: &TestApp) -> usize {
    let mut gate = app.redis.connection().await;
    let known: Vec<String> =
        redis::cmd("KEYS").arg("tg1:*:state:acme:*").query_async(&mut gate).await.unwrap();
    known.len()
}

/// How soon the tenants with holds are back after a restart of Redis, and how long the slowest call of others took
/// meanwhile.
async fn come_back(app: &mut TestApp, holders: usize) -> (Duration, Duration) {
    let hold = |subject: String| pages("1").by(subject);
    app.redis.restart().unwrap();
    let operations = app.app().operations.clone();
    wait_for("new epochs", Duration::from_secs(30), async || {
        operations.memory.check.verify_node().await.ok()
    })
    .await;
    let began = Instant::now();
    let restoring = tokio::spawn({
        let operations = operations.clone();
        async move { tokio::time::timeout(Duration::from_secs(60), restore_all(&operations)).await }
    });
    let (mut slowest, mut others) = (Duration::ZERO, 0);
    while !restoring.is_finished() {
        let asked = Instant::now();
        let other = hold(uuid::Uuid::now_v7().to_string());
        while app.post(RESERVATIONS, other.clone()).await.status == 503 {}
        slowest = slowest.max(asked.elapsed());
        others += 1;
    }
    let took = began.elapsed();
    restoring.await.unwrap().expect("they are back");
    let known = subjects_known(app).await;
    assert!(known >= holders + others, "{known} of {holders} and {others}");
    (took, slowest)
}

#[tokio::test(flavor = "multi_thread")]
async fn subjects_with_holds_are_back_after_a_restart_many_at_once_with_what_they_held() {
    const HOLDERS: usize = 450;
    let mut app = an_app().without_jobs().start().await;
    app.with_plan(of_users(), json!([])).await;
    with_holders(&app, HOLDERS).await;
    come_back(&mut app, HOLDERS).await;
    for subject in [0, 199, 200, HOLDERS - 1] {
        assert_eq!(user_counts(&app, subject).await, ("0".to_owned(), "7".to_owned()), "{subject}");
    }
    app.finish().await;
}

/// What a user's limit shows as consumed and reserved.
async fn user_counts(app: &TestApp, number: usize) -> (String, String) {
    let path = format!("/v1/tenants/acme/quota?subject=user-{number}&kind=user");
    let read = app.get(&path).await.expect(200);
    assert_eq!(read.text("/source"), "gate");
    (read.text("/limits/0/consumed").to_owned(), read.text("/limits/0/reserved").to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_subjects_count_holds_from_before_their_limit_and_the_ends_of_these() {
    const HOLDERS: usize = 250;
    let mut app = an_app().without_jobs().start().await;
    app.without_limits().await;
    let last = with_holders(&app, HOLDERS).await;
    app.define("tenants/acme", json!({ "plan": "plan", "limits": of_users() })).await;
    come_back(&mut app, HOLDERS).await;
    for subject in [0, HOLDERS - 1] {
        assert_eq!(user_counts(&app, subject).await, ("0".to_owned(), "7".to_owned()), "{subject}");
    }
    app.consume(&last, "5").await.expect(200);
    assert_eq!(user_counts(&app, HOLDERS - 1).await, ("5".to_owned(), "0".to_owned()));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: run it alone, with --nocapture"]
async fn measured_five_thousand_subjects_with_holds_are_back_within_ten_seconds() {
    let mut app = an_app().without_jobs().start().await;
    app.with_plan(of_users(), json!([])).await;
    with_holders(&app, 5_000).await;
    for _ in 0..3 {
        let (took, slowest) = come_back(&mut app, 5_000).await;
        println!("5,000 subjects are back after {took:?}; the slowest call of another took {slowest:?}");
    }
    app.finish().await;
}
