//! Apparent differences that are none: restored counters, repeats, and counters after a change of policy.

use std::time::Duration;

use redis::AsyncCommands;
use serde_json::json;
use tollgate::domain::checkpoint::ReconciliationState::{Clean, Refused, Repaired};

use super::{acme, app_with, before_the_turn, compared, metric, usage};
use crate::support::app::*;
use crate::support::wait::wait_for;

#[tokio::test(flavor = "multi_thread")]
async fn counters_restored_after_a_loss_of_memory_are_compared_at_once() {
    let app = app_with(before_the_turn()).await;
    app.move_clock("2026-02-01T12:00:00Z").await;
    let hold = pages("7").by("ada").lasting(3600);
    app.post(RESERVATIONS, hold).await.expect(201);
    let limits =
        json!([{ "id": "new", "meter": "page", "window": "day", "capacity": "1000000", "class": "quota" }]);
    app.define("plans/plan", json!({ "limits": limits, "quotas": [] })).await;
    usage(&app, "a", 2).await;
    app.move_clock("2026-02-01T12:05:00Z").await;
    assert_eq!(
        app.app().operations.reconcile.take_checkpoint(&acme()).await.unwrap(),
        None,
        "made inside its window"
    );
    app.redis.flush().await;
    let body = pages("1").by("ada");
    app.post_until_answered(USAGE, "b", body).await.expect(201);
    let judged = compared(&app, true).await;
    assert_eq!((judged.state, judged.counters), (Clean, 1), "{judged:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_done_again_after_its_tombstone_is_given_back_and_is_never_a_drift() {
    let app = app_with(before_the_turn()).await;
    // Later it would seal the keys of this test, and the ledger would be asked for them.
    wait_for("the hour's job seals the keys of before", Duration::from_secs(30), async || {
        let jobs = app.app().operations.jobs.list().await.ok()?;
        jobs.iter().any(|job| job.name == "keys" && job.next_due_ms == 1_769_907_600_000).then_some(())
    })
    .await;
    let body = pages("20").by("ada").lasting(3600);
    let first = app.post_keyed(RESERVATIONS, "job", body.clone()).await.expect(201);
    let id = first.text("/id").to_owned();
    app.consume(&id, "15").await.expect(200);
    usage(&app, "used", 4).await;
    let mut connection = app.redis.connection().await;
    for round in 0..6 {
        app.drained().await;
        let keys: Vec<String> = connection.keys("tg1:*:rsv:*").await.unwrap();
        let _: () = connection.del(keys).await.unwrap();
        if round % 2 == 0 {
            app.post_keyed(RESERVATIONS, "job", body.clone()).await.expect(201);
        } else {
            usage(&app, "used", 4).await;
        }
        assert_ne!(compared(&app, true).await.state, Repaired, "round {round}");
        wait_for("the units are given back", Duration::from_secs(30), async || {
            let quota = app.get("/v1/tenants/acme/quota").await.body;
            let figures =
                (quota["quotas"][0]["consumed"].as_str()?, quota["quotas"][0]["reserved"].as_str()?);
            (figures == ("19", "0")).then_some(())
        })
        .await;
    }
    let again = app.post_keyed(RESERVATIONS, "job", body).await.expect(201);
    app.drained().await;
    wait_for("the record is the ledger's", Duration::from_secs(30), async || {
        let found = app.read(&id).await.body;
        (found["status"] == "consumed" && found["lines"][0]["consumed"] == "15").then_some(())
    })
    .await;
    assert_eq!(again.text("/id"), id);
    assert_eq!(metric(&app, "tollgate_drift_total{kind=\"consumed_more\"}").await, 0);
    wait_for("a comparison is clean", Duration::from_secs(30), async || {
        (compared(&app, true).await.state == Clean).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_whose_epoch_ended_before_it_was_given_back_is_no_drift() {
    let app = app_with(before_the_turn().without_writer().without_jobs()).await;
    let writer = app.another_instance_with(&[tollgate::app::Role::Writer]).await;
    usage(&app, "used", 4).await;
    app.drained().await;
    writer.stop().await;
    let mut connection = app.redis.connection().await;
    let keys: Vec<String> = connection.keys("tg1:*:rsv:*").await.unwrap();
    let _: () = connection.del(keys).await.unwrap();
    usage(&app, "used", 4).await;
    let taken = app.app().operations.reconcile.take_checkpoint(&acme()).await.unwrap().unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut connection).await.unwrap();
    for cursor in app.app().ledger.cursors().await.unwrap() {
        let meta =
            connection.keys::<_, Vec<String>>(format!("tg1:{{{}*}}:meta", cursor.partition)).await.unwrap();
        let _: () = connection.hset(&meta[0], "epoch", "0").await.unwrap();
    }
    // The next instance finds the memory in doubt, and books the tail of the old epoch under the new one.
    let writer = app.another_instance_with(&[tollgate::app::Role::Writer]).await;
    let judged = wait_for("the checkpoint is judged", Duration::from_secs(30), async || {
        app.app().ledger.reconciliation(&acme(), taken.id, taken.place).await.unwrap()
    })
    .await;
    assert_eq!(judged.state, Refused, "{judged:?}");
    wait_for("the repeat is done with", Duration::from_secs(30), async || {
        app.app().ledger.repeats_to_undo(None, 10).await.unwrap().is_empty().then_some(())
    })
    .await;
    let later =
        crate::ledger::rows(&app.database, "SELECT undone_sequence IS NULL AS never FROM repeats").await;
    assert_eq!(later, ["true"], "what its epoch counted it counted to the end");
    usage(&app, "more", 1).await;
    assert_eq!(compared(&app, false).await.state, Clean);
    writer.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subject_whose_name_was_erased_is_compared_no_more() {
    let app = app_with(before_the_turn()).await;
    usage(&app, "a", 20).await;
    app.post_keyed(USAGE, "b", pages(5).by("ben")).await.expect(201);
    app.drained().await;
    let verify = async || app.app().operations.reconcile.verify_gate().await.unwrap();
    assert_eq!((verify().await.counters, compared(&app, true).await.counters), (5, 5));
    let ada = json!({ "kind": "user", "id": "ada" });
    let erased = app.post("/v1/admin/tenants/acme/erasures", ada).await.expect(200);
    assert!(erased.text("/pseudonym").starts_with("erased-"), "{erased:?}");
    app.drained().await;
    let check = verify().await;
    assert_eq!((check.counters, check.faults.len()), (4, 0), "{check:?}");
    let judged = compared(&app, true).await;
    assert_eq!((judged.state, judged.counters), (Clean, 4), "{judged:?}");
    // The same name is another subject from then on.
    usage(&app, "again", 3).await;
    app.drained().await;
    assert_eq!((verify().await.counters, compared(&app, true).await.counters), (5, 5));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_policy_is_no_drift() {
    let app = app_with(before_the_turn()).await;
    app.move_clock("2026-02-01T12:00:00Z").await;
    usage(&app, "a", 20).await;
    app.define("tenants/acme", json!({ "plan": "plan", "time_zone": "America/New_York" })).await;
    usage(&app, "b", 2).await;
    assert_ne!(compared(&app, true).await.state, Repaired);
    let limits =
        json!([{ "id": "new", "meter": "page", "window": "day", "capacity": "1000000", "class": "quota" }]);
    app.define("plans/plan", json!({ "limits": limits, "quotas": [] })).await;
    usage(&app, "c", 2).await;
    assert_eq!(
        app.app().operations.reconcile.take_checkpoint(&acme()).await.unwrap(),
        None,
        "made inside its window"
    );
    app.drained().await;
    assert_eq!(metric(&app, "tollgate_drift_total{kind=\"consumed_more\"}").await, 0);
    assert_eq!(metric(&app, "tollgate_drift_total{kind=\"consumed_less\"}").await, 0);
    app.finish().await;
}
