//! Gate and ledger compared while traffic flows: no false drift, and every true one found, named and repaired once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::AsyncCommands;
use serde_json::{Value, json};
use tollgate::domain::checkpoint::ReconciliationState::{Clean, Drift, Refused, Repaired};
use tollgate::domain::ids::TenantId;
use tollgate::ledger::{Reconciliation, ReconciliationFilter};

use crate::support::app::{AppOptions, TestApp, spawn_app_with};
use crate::support::process::tollgate;
use crate::support::wait::wait_for;

/// Half an hour before a month, a day and an hour turn: what is made now counts from its windows' starts on afterwards.
const BEFORE_THE_TURN_MS: i64 = 1_769_902_200_000;

pub(super) async fn app_with(options: AppOptions) -> TestApp {
    let settings = vec![("reconciliation.interval_seconds", "0".to_owned())];
    let app = spawn_app_with(AppOptions {
        test_clock_ms: Some(BEFORE_THE_TURN_MS),
        settings: [settings, options.settings].concat(),
        ..options
    })
    .await;
    let limits = json!([
        { "id": "day", "meter": "page", "window": "day", "capacity": "1000000", "class": "quota" },
        { "id": "tokens", "meter": "token", "window": "day", "capacity": "300", "class": "quota" },
        { "id": "user", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "hour",
          "capacity": "1000000", "class": "quota" }
    ]);
    app.with_plan(limits, json!([{ "meter": "page", "included": "1000000" }])).await;
    let capped = json!({ "unit": "token", "without_limit": "unlimited", "on_excess": "cap" });
    app.put("/v1/admin/meters/token", capped).await;
    app.move_clock("2026-02-01T00:10:00Z").await;
    app
}

pub(super) fn acme() -> TenantId {
    TenantId::parse("acme").unwrap()
}

pub(super) async fn usage(app: &TestApp, key: &str, amount: u32) {
    let body = json!({ "tenant": "acme", "subject": "ada", "meter": "page", "amount": amount.to_string() });
    app.post_keyed("/v1/usage", key, body).await.expect(201);
}

/// Takes a checkpoint and waits until it is judged, and settled where `settled` says so.
async fn compared(app: &TestApp, settled: bool) -> Reconciliation {
    compared_of(app, &acme(), settled).await
}

/// As [`compared`], of any tenant.
pub(super) async fn compared_of(app: &TestApp, tenant: &TenantId, settled: bool) -> Reconciliation {
    let taken = app.app().operations.take_checkpoint(tenant).await.unwrap().expect("counters to compare");
    wait_for("the checkpoint is judged", Duration::from_secs(120), async || {
        let judged = app.app().ledger.reconciliation(&taken.tenant, taken.id, taken.place).await.unwrap()?;
        (!settled || judged.state != Drift).then_some(judged)
    })
    .await
}

pub(super) async fn redis_of(app: &TestApp) -> redis::aio::MultiplexedConnection {
    redis::Client::open(app.redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// Adds to the consumed figure of one of the tenant's (or its subject's) counters by hand.
async fn tamper(app: &TestApp, pattern: &str, by: i64) {
    let mut connection = redis_of(app).await;
    let keys: Vec<String> = connection.keys(pattern).await.unwrap();
    let fields: Vec<(Vec<u8>, Vec<u8>)> = connection.hgetall(&keys[0]).await.unwrap();
    let (name, mut value) = fields.into_iter().find(|(name, _)| name.len() == 8).unwrap();
    let consumed = i64::from_le_bytes(value[8..16].try_into().unwrap()) + by;
    value[8..16].copy_from_slice(&consumed.to_le_bytes());
    let _: () = connection.hset(&keys[0], name, value).await.unwrap();
}

async fn metric(app: &TestApp, name: &str) -> u64 {
    let text =
        app.client().get(format!("{}/metrics", app.ops_url())).send().await.unwrap().text().await.unwrap();
    let line =
        text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

pub(super) async fn all(app: &TestApp) -> Vec<Reconciliation> {
    app.app().ledger.reconciliations(&ReconciliationFilter::default(), None, 1000).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_raised_or_lowered_by_hand_is_found_named_and_repaired_once() {
    let app = app_with(AppOptions::default()).await;
    usage(&app, "a", 20).await;
    // Which subjects are active, the books say.
    app.drained().await;
    let clean = compared(&app, true).await;
    assert_eq!((clean.state, clean.counters), (Clean, 4), "{clean:?}");
    let mut repairs = 0;
    for (pattern, by) in [("tg1:*:state:acme", 7), ("tg1:*:state:acme", -9), ("tg1:*:state:acme:*", 5)] {
        tamper(&app, pattern, by).await;
        let drift = compared(&app, true).await;
        assert_eq!((drift.state, drift.differences.len()), (Repaired, 1), "{drift:?}");
        assert_eq!(drift.differences[0].delta(), (-by, 0));
        assert_eq!(drift.differences[0].counter.subject.is_some(), pattern.ends_with(":*"));
        repairs += 1;
        assert_eq!(metric(&app, "tollgate_repairs_total{outcome=\"done\"}").await, repairs);
        assert_eq!(compared(&app, true).await.state, Clean);
    }
    assert_eq!(metric(&app, "tollgate_drift_total{kind=\"consumed_more\"}").await, 2);
    assert_eq!(metric(&app, "tollgate_drift_total{kind=\"consumed_less\"}").await, 1);
    let rows =
        app.get("/v1/reports/reconciliation?state=repaired&tenant=acme&limit=2").await.expect(200).body;
    assert_eq!(rows["data"].as_array().unwrap().len(), 2, "{rows}");
    let newest = &rows["data"][0]["differences"][0];
    assert_eq!((newest["limit"].as_str(), newest["subject"]["id"].as_str()), (Some("user"), Some("ada")));
    assert_eq!(
        (newest["gate"]["consumed"].as_str(), newest["ledger"]["consumed"].as_str()),
        (Some("25"), Some("20"))
    );
    let cursor = rows["next_cursor"].as_str().unwrap();
    let path = format!("/v1/reports/reconciliation?state=repaired&tenant=acme&limit=2&cursor={cursor}");
    assert_eq!(app.get(&path).await.expect(200).body["data"].as_array().unwrap().len(), 1);
    app.get("/v1/reports/reconciliation?state=odd").await.is_problem(400, "invalid_request");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_deleted_before_it_was_booked_is_found_with_its_gap_and_repaired_once() {
    let app = app_with(AppOptions { without_writer: true, ..AppOptions::default() }).await;
    let writer = app.one_with(&[tollgate::app::Role::Writer]).await;
    usage(&app, "a", 20).await;
    app.drained().await;
    writer.stop().await;
    usage(&app, "b", 5).await;
    let mut connection = redis_of(&app).await;
    let keys: Vec<String> = connection.keys("tg1:*:outbox").await.unwrap();
    let last: redis::streams::StreamRangeReply = redis::cmd("XREVRANGE")
        .arg(&keys[0])
        .arg(&["+", "-", "COUNT", "1"])
        .query_async(&mut connection)
        .await
        .unwrap();
    redis::cmd("XDEL").arg(&keys[0]).arg(&last.ids[0].id).exec_async(&mut connection).await.unwrap();
    usage(&app, "c", 3).await;
    let taken = app.app().operations.take_checkpoint(&acme()).await.unwrap().unwrap();
    let writer = app.one_with(&[tollgate::app::Role::Writer]).await;
    let drift = wait_for("the drift is repaired", Duration::from_secs(30), async || {
        let judged = app.app().ledger.reconciliation(&acme(), taken.id, taken.place).await.unwrap()?;
        (judged.state == Repaired).then_some(judged)
    })
    .await;
    assert_eq!((drift.gaps, drift.differences.len()), (1, 3), "{drift:?}");
    assert!(drift.differences.iter().all(|difference| difference.delta() == (-5, 0)), "{drift:?}");
    assert_eq!(compared(&app, true).await.state, Clean);
    app.drained().await;
    app.check_books().await;
    writer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_that_repair_at_once_repair_once() {
    let app = app_with(AppOptions { without_jobs: true, ..AppOptions::default() }).await;
    let other = app.another_instance().await;
    usage(&app, "a", 20).await;
    tamper(&app, "tg1:*:state:acme", 7).await;
    let (one, two) = (compared(&app, false).await, compared(&app, false).await);
    assert_eq!((one.state, two.state), (Drift, Drift), "found twice before it is repaired");
    let (mine, theirs) = tokio::join!(app.app().operations.repair_drifts(), other.operations.repair_drifts());
    assert_eq!(mine.unwrap() + theirs.unwrap(), 2);
    let mut states: Vec<_> = all(&app).await.into_iter().map(|row| row.state.as_str()).collect();
    states.sort_unstable();
    assert_eq!(states, ["refused", "repaired"]);
    assert_eq!(compared(&app, false).await.state, Clean);
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_that_crashed_halfway_is_finished_by_another_and_adds_nothing() {
    let app = app_with(AppOptions { without_jobs: true, ..AppOptions::default() }).await;
    usage(&app, "a", 20).await;
    tamper(&app, "tg1:*:state:acme", 7).await;
    let drift = compared(&app, false).await;
    let operations = &app.app().operations;
    assert_eq!(operations.repair_drifts().await.unwrap(), 1);
    // As if the instance had died between the gate's answer and the row.
    let reopen =
        format!("UPDATE reconciliations SET state = 'drift' WHERE checkpoint_id = '{}'", drift.checkpoint);
    crate::ledger::as_owner(&app.database, &reopen).await.unwrap();
    assert_eq!(operations.repair_drifts().await.unwrap(), 1);
    assert_eq!(all(&app).await[0].state, Repaired);
    assert_eq!(compared(&app, false).await.state, Clean);
    assert_eq!(metric(&app, "tollgate_repairs_total{outcome=\"done\"}").await, 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_is_raised_but_not_lowered_while_events_of_its_tenant_wait_in_quarantine() {
    let app = app_with(AppOptions::default()).await;
    usage(&app, "a", 20).await;
    app.drained().await;
    let waits = "INSERT INTO quarantine (partition, epoch, sequence, tenant, event, reason) VALUES (0, 9, 9, 'acme', '', 'test')";
    crate::ledger::as_owner(&app.database, waits).await.unwrap();
    tamper(&app, "tg1:*:state:acme", 7).await;
    let refused = compared(&app, true).await;
    assert_eq!((refused.state, refused.quarantined), (Refused, 1));
    assert!(refused.detail.contains("quarantine"), "{}", refused.detail);
    tamper(&app, "tg1:*:state:acme", -10).await;
    let raised = compared(&app, true).await;
    assert_eq!((raised.state, raised.differences[0].delta()), (Repaired, (3, 0)), "{raised:?}");
    tamper(&app, "tg1:*:state:acme", 7).await;
    assert_eq!(compared(&app, true).await.state, Refused);
    crate::ledger::as_owner(&app.database, "UPDATE quarantine SET status = 'discarded'").await.unwrap();
    assert_eq!(compared(&app, true).await.state, Repaired);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lasting_refusal_is_one_row_and_one_alarm_until_it_changes() {
    let app = app_with(AppOptions::default()).await;
    usage(&app, "a", 20).await;
    app.drained().await;
    let waits = "INSERT INTO quarantine (partition, epoch, sequence, tenant, event, reason) VALUES (0, 9, 9, 'acme', '', 'test')";
    crate::ledger::as_owner(&app.database, waits).await.unwrap();
    tamper(&app, "tg1:*:state:acme", 7).await;
    for round in 0..3 {
        let refused = compared(&app, true).await;
        assert_eq!((refused.state, refused.differences.len()), (Refused, 1), "round {round}: {refused:?}");
        // Gate and books move on, and differ as before.
        usage(&app, &format!("round-{round}"), 1).await;
        app.drained().await;
    }
    assert_eq!(all(&app).await.len(), 1);
    assert_eq!(metric(&app, "tollgate_alarms_total{alarm=\"drift\"}").await, 1);
    tamper(&app, "tg1:*:state:acme", 1).await;
    assert_eq!(compared(&app, true).await.state, Refused);
    assert_eq!(all(&app).await.len(), 2);
    assert_eq!(metric(&app, "tollgate_alarms_total{alarm=\"drift\"}").await, 2);
    crate::ledger::as_owner(&app.database, "UPDATE quarantine SET status = 'discarded'").await.unwrap();
    assert_eq!(compared(&app, true).await.state, Repaired, "tried anew each time");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_counter_is_named_and_keeps_no_other_tenant_from_being_compared() {
    let settings = vec![("reconciliation.interval_seconds", "1".to_owned())];
    let app = app_with(AppOptions { settings, ..AppOptions::default() }).await;
    app.put("/v1/admin/tenants/later", json!({ "plan": "plan" })).await;
    usage(&app, "a", 20).await;
    let body = json!({ "tenant": "later", "meter": "page", "amount": "5" });
    app.post_keyed("/v1/usage", "later", body).await.expect(201);
    app.drained().await;
    let mut connection = redis_of(&app).await;
    let keys: Vec<String> = connection.keys("tg1:*:state:acme").await.unwrap();
    let fields: Vec<Vec<u8>> = connection.hkeys(&keys[0]).await.unwrap();
    let field = fields.into_iter().find(|name| name.len() == 8).unwrap();
    let _: () = connection.hset(&keys[0], &field, "torn").await.unwrap();
    tamper(&app, "tg1:*:state:later", 7).await;
    wait_for("the other tenant is compared and repaired", Duration::from_secs(30), async || {
        all(&app)
            .await
            .iter()
            .any(|row| row.tenant.as_str() == "later" && row.state == Repaired)
            .then_some(())
    })
    .await;
    wait_for("the damaged one is counted as failed", Duration::from_secs(30), async || {
        (metric(&app, "tollgate_checkpoints_total{result=\"failed\"}").await > 0).then_some(())
    })
    .await;
    let error = app.app().operations.take_checkpoint(&acme()).await.unwrap_err().to_string();
    let field = String::from_utf8(field).unwrap();
    assert!(error.contains(&format!("(field {field})")), "{error}");
    let check = app.app().operations.verify_gate().await.unwrap();
    assert_eq!((check.faults.len(), check.undecided.len()), (1, 0), "{check:?}");
    assert!(check.faults[0].contains("acme") && check.faults[0].contains(&field), "{check:?}");
    let mut verify = tollgate(&["verify"]);
    verify.envs(app.variables());
    let output = tokio::task::spawn_blocking(move || verify.output().unwrap()).await.unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let _: () = connection.del(&keys[0]).await.unwrap();
    usage(&app, "b", 2).await;
    app.drained().await;
    wait_for("the tenant is compared again", Duration::from_secs(30), async || {
        all(&app).await.iter().any(|row| row.tenant == acme() && row.state == Clean).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_that_would_take_too_long_is_refused_and_holds_up_no_booking() {
    let app = app_with(AppOptions::default()).await;
    usage(&app, "a", 20).await;
    app.drained().await;
    let (client, connection) =
        tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute("BEGIN; LOCK TABLE policy_history IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let slow = compared(&app, true).await;
    assert_eq!(slow.state, Refused, "{slow:?}");
    assert!(slow.detail.contains("longer than it may"), "{slow:?}");
    usage(&app, "b", 2).await;
    app.drained().await;
    client.batch_execute("ROLLBACK").await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
    assert_eq!(compared(&app, true).await.state, Clean);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_with_more_open_holds_than_are_read_at_once_is_compared_like_any_other() {
    let app = app_with(AppOptions { without_jobs: true, ..AppOptions::default() }).await;
    let body =
        json!({ "tenant": "acme", "subject": "ada", "meter": "page", "amount": "1", "ttl_seconds": 3600 });
    app.post("/v1/reservations", body).await.expect(201);
    app.drained().await;
    let copies = "INSERT INTO reservations SELECT (json_populate_record(r, json_build_object('id', gen_random_uuid()))).* \
                  FROM reservations r, generate_series(1, 25000) WHERE r.state = 'reserved'";
    crate::ledger::as_owner(&app.database, copies).await.unwrap();
    let many = compared(&app, false).await;
    let lacking: Vec<_> = many.differences.iter().map(|difference| difference.delta()).collect();
    assert_eq!(
        (many.state, lacking),
        (Drift, vec![(0, 25_000); 3]),
        "the tenant's, its quota's and the subject's"
    );
    let drop =
        "DELETE FROM reservations WHERE state = 'reserved' AND id <> ALL (SELECT operation_id FROM entries)";
    crate::ledger::as_owner(&app.database, drop).await.unwrap();
    assert_eq!(compared(&app, false).await.state, Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_active_subject_of_a_tenant_is_compared_and_repaired() {
    let app = app_with(AppOptions::default()).await;
    for number in 0..150 {
        let body =
            json!({ "tenant": "acme", "subject": format!("user-{number}"), "meter": "page", "amount": "2" });
        app.post_keyed("/v1/usage", &format!("of-{number}"), body).await.expect(201);
    }
    app.drained().await;
    let mut connection = redis_of(&app).await;
    let keys: Vec<String> = connection.keys("tg1:*:state:acme:*").await.unwrap();
    assert_eq!(keys.len(), 150);
    for key in &keys {
        tamper(&app, key, 3).await;
    }
    let taken = app.app().operations.take_checkpoints(&acme()).await.unwrap();
    assert_eq!(taken.len(), 3, "64 subjects a page");
    wait_for("all of them are repaired", Duration::from_secs(60), async || {
        let repaired = all(&app).await.into_iter().filter(|row| row.state == Repaired);
        (repaired.map(|row| row.differences.len()).sum::<usize>() == 150).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_ledger_told_after_a_loss_of_memory_is_compared_at_once() {
    let app = app_with(AppOptions::default()).await;
    app.move_clock("2026-02-01T12:00:00Z").await;
    let hold =
        json!({ "tenant": "acme", "subject": "ada", "meter": "page", "amount": "7", "ttl_seconds": 3600 });
    app.post("/v1/reservations", hold).await.expect(201);
    let limits =
        json!([{ "id": "new", "meter": "page", "window": "day", "capacity": "1000000", "class": "quota" }]);
    app.put("/v1/admin/plans/plan", json!({ "limits": limits, "quotas": [] })).await;
    usage(&app, "a", 2).await;
    app.move_clock("2026-02-01T12:05:00Z").await;
    assert_eq!(app.app().operations.take_checkpoint(&acme()).await.unwrap(), None, "made inside its window");
    redis::cmd("FLUSHALL").exec_async(&mut redis_of(&app).await).await.unwrap();
    let body = json!({ "tenant": "acme", "subject": "ada", "meter": "page", "amount": "1" });
    app.post_until_answered("/v1/usage", "b", body).await.expect(201);
    let judged = compared(&app, true).await;
    assert_eq!((judged.state, judged.counters), (Clean, 1), "{judged:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_has_ended_is_not_repaired_any_more() {
    let app = app_with(AppOptions { without_jobs: true, ..AppOptions::default() }).await;
    usage(&app, "a", 20).await;
    app.drained().await;
    tamper(&app, "tg1:*:state:acme:*", 7).await;
    assert_eq!(compared(&app, false).await.state, Drift);
    app.move_clock("2026-02-01T01:00:00Z").await;
    assert_eq!(app.app().operations.repair_drifts().await.unwrap(), 1);
    let row = all(&app).await.remove(0);
    assert_eq!((row.state, row.detail.as_str()), (Refused, "user: its window has ended"));
    usage(&app, "b", 3).await;
    assert_eq!(compared(&app, false).await.state, Clean);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_done_again_after_its_tombstone_is_given_back_and_is_never_a_drift() {
    let app = app_with(AppOptions::default()).await;
    let body =
        json!({ "tenant": "acme", "subject": "ada", "meter": "page", "amount": "20", "ttl_seconds": 3600 });
    let first = app.post_keyed("/v1/reservations", "job", body.clone()).await.expect(201);
    let id = first.text("/id").to_owned();
    app.post(&format!("/v1/reservations/{id}/consume"), json!({ "amount": "15" })).await.expect(200);
    usage(&app, "used", 4).await;
    let mut connection = redis_of(&app).await;
    for round in 0..6 {
        app.drained().await;
        let keys: Vec<String> = connection.keys("tg1:*:rsv:*").await.unwrap();
        let _: () = connection.del(keys).await.unwrap();
        if round % 2 == 0 {
            app.post_keyed("/v1/reservations", "job", body.clone()).await.expect(201);
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
    let again = app.post_keyed("/v1/reservations", "job", body).await.expect(201);
    app.drained().await;
    wait_for("the record is the ledger's", Duration::from_secs(30), async || {
        let found = app.get(&format!("/v1/reservations/{id}")).await.body;
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
    let app =
        app_with(AppOptions { without_writer: true, without_jobs: true, ..AppOptions::default() }).await;
    let writer = app.one_with(&[tollgate::app::Role::Writer]).await;
    usage(&app, "used", 4).await;
    app.drained().await;
    writer.stop().await;
    let mut connection = redis_of(&app).await;
    let keys: Vec<String> = connection.keys("tg1:*:rsv:*").await.unwrap();
    let _: () = connection.del(keys).await.unwrap();
    usage(&app, "used", 4).await;
    let taken = app.app().operations.take_checkpoint(&acme()).await.unwrap().unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut connection).await.unwrap();
    for cursor in app.app().ledger.cursors().await.unwrap() {
        let meta =
            connection.keys::<_, Vec<String>>(format!("tg1:{{{}*}}:meta", cursor.partition)).await.unwrap();
        let _: () = connection.hset(&meta[0], "epoch", "0").await.unwrap();
    }
    // The next instance finds the memory in doubt, and books the rest of the old epoch under the new one.
    let writer = app.one_with(&[tollgate::app::Role::Writer]).await;
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
async fn a_change_of_policy_is_no_drift() {
    let app = app_with(AppOptions::default()).await;
    app.move_clock("2026-02-01T12:00:00Z").await;
    usage(&app, "a", 20).await;
    app.put("/v1/admin/tenants/acme", json!({ "plan": "plan", "time_zone": "America/New_York" })).await;
    usage(&app, "b", 2).await;
    assert_ne!(compared(&app, true).await.state, Repaired);
    let limits =
        json!([{ "id": "new", "meter": "page", "window": "day", "capacity": "1000000", "class": "quota" }]);
    app.put("/v1/admin/plans/plan", json!({ "limits": limits, "quotas": [] })).await;
    usage(&app, "c", 2).await;
    assert_eq!(app.app().operations.take_checkpoint(&acme()).await.unwrap(), None, "made inside its window");
    app.drained().await;
    assert_eq!(metric(&app, "tollgate_drift_total{kind=\"consumed_more\"}").await, 0);
    assert_eq!(metric(&app, "tollgate_drift_total{kind=\"consumed_less\"}").await, 0);
}

/// Callers that work on until told to stop.
pub(super) struct Traffic {
    stop: Arc<AtomicBool>,
    next: Arc<AtomicU64>,
    callers: Vec<tokio::task::JoinHandle<()>>,
}

impl Traffic {
    pub(super) fn flow(app: &Arc<TestApp>, callers: u64, tenants: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let next = Arc::new(AtomicU64::new(0));
        let call = |_| {
            let (app, stop, next) = (app.clone(), stop.clone(), next.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    one_call(&app, number, &format!("tenant-{}", number % tenants)).await;
                }
            })
        };
        let callers = (0..callers).map(call).collect();
        Self { stop, next, callers }
    }

    /// How often a caller has begun.
    pub(super) fn calls(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    pub(super) async fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        for caller in self.callers {
            caller.await.unwrap();
        }
    }
}

/// One of every sort of thing that a caller does; a 503 of a busy machine is passed over.
async fn one_call(app: &TestApp, number: u64, tenant: &str) {
    let body = json!({ "tenant": tenant, "subject": format!("user-{}", number % 3), "meter": "page", "amount": "5", "ttl_seconds": 2 });
    if number % 7 == 6 {
        app.post_keyed("/v1/usage", &format!("usage-{number}"), body).await;
        return;
    }
    let body =
        if number % 14 == 1 { json!({ "tenant": tenant, "meter": "token", "amount": "1" }) } else { body };
    let reserved = app.post_keyed("/v1/reservations", &format!("job-{number}"), body).await;
    let Some(id) = reserved.body["id"].as_str() else { return };
    let say = async |verb: &str, body: Value| {
        app.post(&format!("/v1/reservations/{id}/{verb}"), body).await;
    };
    match number % 7 {
        0 => say("consume", json!({ "amount": "3" })).await,
        1 => say("consume", json!({ "amount": "9" })).await,
        2 => {
            say("consume", json!({ "amount": "2", "final": false })).await;
            say("consume", json!({ "amount": "4" })).await;
        }
        3 => say("release", json!({})).await,
        4 => say("consume", json!({ "amount": "1", "final": false })).await,
        _ => say("extend", json!({ "ttl_seconds": 4 })).await,
    }
}

pub(super) async fn with_tenants(app: &TestApp, tenants: u64) {
    for number in 0..tenants {
        app.put(&format!("/v1/admin/tenants/tenant-{number}"), json!({ "plan": "plan" })).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_full_load_and_over_the_turn_of_an_hour_no_comparison_finds_a_difference() {
    const TENANTS: u64 = 10;
    let app = app_with(AppOptions::default()).await;
    with_tenants(&app, TENANTS).await;
    app.move_clock("2026-02-01T00:59:40Z").await;
    let app = Arc::new(app);
    let traffic = Traffic::flow(&app, 32, TENANTS);
    let operations = app.app().operations.clone();
    let mut taken = 0;
    let started = std::time::Instant::now();
    while taken < 150 || (taken < 1500 && started.elapsed() < Duration::from_secs(8)) {
        for number in 0..TENANTS {
            let tenant = TenantId::parse(&format!("tenant-{number}")).unwrap();
            // A busy machine may answer late; the next checkpoint comes soon.
            taken += u64::from(matches!(operations.take_checkpoint(&tenant).await, Ok(Some(_))));
        }
        app.clock.advance_to(app.clock.now_ms() + 2_000).unwrap();
    }
    traffic.end().await;
    app.drained().await;
    let rows = all(&app).await;
    assert!(rows.iter().all(|row| row.state == Clean), "{rows:#?}");
    assert!(metric(&app, "tollgate_checkpoints_total{result=\"clean\"}").await >= taken);
    for kind in ["consumed_more", "consumed_less", "reserved_more", "reserved_less"] {
        assert_eq!(metric(&app, &format!("tollgate_drift_total{{kind=\"{kind}\"}}")).await, 0);
    }
    assert!(app.clock.now_ms() > BEFORE_THE_TURN_MS + 5_400_000, "the hour has turned");
    Arc::into_inner(app).unwrap().finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_is_clean_under_traffic_and_names_a_drift() {
    const TENANTS: u64 = 4;
    let app = app_with(AppOptions::default()).await;
    with_tenants(&app, TENANTS).await;
    usage(&app, "a", 20).await;
    let app = Arc::new(app);
    let traffic = Traffic::flow(&app, 4, TENANTS);
    let operations = app.app().operations.clone();
    let check = wait_for("all tenants are warm", Duration::from_secs(30), async || {
        let check = operations.verify_gate().await.unwrap();
        assert_eq!(check.faults, Vec::<String>::new());
        (check.cold_tenants == 0).then_some(check)
    })
    .await;
    assert!(check.counters >= 3 * TENANTS && check.skipped.is_none(), "{check:?}");
    tamper(&app, "tg1:*:state:acme", 7).await;
    let check = operations.verify_gate().await.unwrap();
    assert_eq!(check.faults.len(), 1, "{check:?}");
    assert!(check.faults[0].contains("acme"), "{check:?}");
    traffic.end().await;
    wait_for("the drift is repaired", Duration::from_secs(30), async || {
        all(&app).await.iter().all(|row| row.state != Drift).then_some(())
    })
    .await;
    Arc::into_inner(app).unwrap().finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn warm_tenants_are_compared_in_turn_without_being_asked() {
    let settings = vec![("reconciliation.interval_seconds", "1".to_owned())];
    let app = app_with(AppOptions { settings, ..AppOptions::default() }).await;
    usage(&app, "a", 20).await;
    app.drained().await;
    tamper(&app, "tg1:*:state:acme", 7).await;
    wait_for("the drift is found and repaired", Duration::from_secs(30), async || {
        let repaired = ReconciliationFilter { state: Some(Repaired), ..ReconciliationFilter::default() };
        let rows = app.app().ledger.reconciliations(&repaired, None, 10).await.unwrap();
        (!rows.is_empty()).then_some(())
    })
    .await;
    app.finish().await;
}
