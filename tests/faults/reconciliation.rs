//! Gate and ledger compared while traffic flows: no false drift, and every true one found, named and repaired once.

mod budgets;
mod no_difference;
mod traffic;

use std::time::Duration;

use redis::AsyncCommands;
use serde_json::json;
use tollgate::domain::checkpoint::ReconciliationState::{Clean, Drift, Refused, Repaired};
use tollgate::domain::ids::{Subject, SubjectId, SubjectKind, TenantId};
use tollgate::ledger::{Reconciliation, ReconciliationFilter};

use crate::support::app::*;
use crate::support::process::tollgate;
use crate::support::wait::wait_for;

pub(super) use traffic::{Traffic, with_tenants};

/// Half an hour before a month, a day and an hour turn: what is made now counts from its windows' starts on afterwards.
const BEFORE_THE_TURN_MS: i64 = 1_769_902_200_000;

/// An instance before the turn that compares nothing unasked.
pub(super) fn before_the_turn() -> AppOptions {
    an_app().with("reconciliation.interval_seconds", 0).at_ms(BEFORE_THE_TURN_MS)
}

pub(super) async fn app_with(options: AppOptions) -> TestApp {
    let app = options.start().await;
    let limits = json!([
        { "id": "day", "meter": "page", "window": "day", "capacity": "1000000", "class": "quota" },
        { "id": "tokens", "meter": "token", "window": "day", "capacity": "300", "class": "quota" },
        { "id": "user", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "hour",
          "capacity": "1000000", "class": "quota" }
    ]);
    app.with_plan(limits, json!([quota_of("1000000")])).await;
    let capped = json!({ "unit": "token", "without_limit": "unlimited", "on_excess": "cap" });
    app.define("meters/token", capped).await;
    app.move_clock("2026-02-01T00:10:00Z").await;
    app
}

pub(super) fn acme() -> TenantId {
    TenantId::parse("acme").unwrap()
}

pub(super) async fn usage(app: &TestApp, key: &str, amount: u32) {
    app.post_keyed(USAGE, key, pages(amount).by("ada")).await.expect(201);
}

/// Takes a checkpoint and waits until it is judged, and settled where `settled` says so.
async fn compared(app: &TestApp, settled: bool) -> Reconciliation {
    compared_of(app, &acme(), settled).await
}

/// As [`compared`], of any tenant.
pub(super) async fn compared_of(app: &TestApp, tenant: &TenantId, settled: bool) -> Reconciliation {
    let taken =
        app.app().operations.reconcile.take_checkpoint(tenant).await.unwrap().expect("counters to compare");
    wait_for("the checkpoint is judged", Duration::from_secs(120), async || {
        let judged = app.app().ledger.reconciliation(&taken.tenant, taken.id, taken.place).await.unwrap()?;
        (!settled || judged.state != Drift).then_some(judged)
    })
    .await
}

/// Adds to the consumed figure of one of the tenant's (or its subject's) counters by hand.
async fn tamper(app: &TestApp, pattern: &str, by: i64) {
    let mut connection = app.redis.connection().await;
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
    let app = app_with(before_the_turn()).await;
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

/// A user of acme as Redis names it.
fn hash_of(app: &TestApp, id: &str) -> String {
    let user = Subject { kind: SubjectKind::parse("user").unwrap(), id: SubjectId::parse(id).unwrap() };
    app.app().gate.subject_hash(&acme(), &user).as_str().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_traffic_verify_compares_the_counters_of_all_active_subjects_and_names_what_was_changed() {
    let app = app_with(before_the_turn()).await;
    usage(&app, "ada", 20).await;
    // More than are read at once.
    for number in 0..70 {
        let body = pages(1).by(format!("user-{number}"));
        app.post_keyed(USAGE, &format!("use-{number}"), body).await.expect(201);
    }
    let held = app.held(pages(3).by("holds").lasting(3600)).await;
    app.drained().await;
    let verify = async || app.app().operations.reconcile.verify_gate().await.unwrap();
    let clean = verify().await;
    assert_eq!((clean.counters, clean.faults.len()), (3 + 72, 0), "{clean:?}");
    for (id, figures) in [
        ("ada", "the gate has consumed 25 and reserved 0, the ledger 20 and 0"),
        ("user-69", "the gate has consumed 6 and reserved 0, the ledger 1 and 0"),
        ("holds", "the gate has consumed 5 and reserved 3, the ledger 0 and 3"),
    ] {
        let hash = hash_of(&app, id);
        let pattern = format!("tg1:*:state:acme:{hash}");
        tamper(&app, &pattern, 5).await;
        let found = verify().await;
        assert_eq!(found.faults, [format!("tenant acme user of user {hash}: {figures}")]);
        tamper(&app, &pattern, -5).await;
        assert!(verify().await.faults.is_empty());
    }
    assert!(all(&app).await.is_empty(), "nothing is written about a comparison without traffic");
    app.consume(&held, "2").await.expect(200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subjects_counter_is_compared_from_the_first_window_that_every_instance_knew_from_its_start() {
    let app = app_with(before_the_turn()).await;
    usage(&app, "before", 20).await;
    let begun = json!({ "id": "begun", "meter": "page", "scope": "subject", "subject_kind": "user",
        "window": "day", "capacity": "1000000", "class": "quota" });
    app.define("limits/begun", begun).await;
    usage(&app, "after", 5).await;
    app.drained().await;
    let check = app.app().operations.reconcile.verify_gate().await.unwrap();
    assert_eq!((check.counters, check.faults.len()), (4, 0), "{check:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_deleted_before_it_was_booked_is_found_with_its_gap_and_repaired_once() {
    let app = app_with(before_the_turn().without_writer()).await;
    let writer = app.another_instance_with(&[tollgate::app::Role::Writer]).await;
    usage(&app, "a", 20).await;
    app.drained().await;
    writer.stop().await;
    usage(&app, "b", 5).await;
    let mut connection = app.redis.connection().await;
    let keys: Vec<String> = connection.keys("tg1:*:outbox").await.unwrap();
    let last: redis::streams::StreamRangeReply = redis::cmd("XREVRANGE")
        .arg(&keys[0])
        .arg(&["+", "-", "COUNT", "1"])
        .query_async(&mut connection)
        .await
        .unwrap();
    redis::cmd("XDEL").arg(&keys[0]).arg(&last.ids[0].id).exec_async(&mut connection).await.unwrap();
    usage(&app, "c", 3).await;
    let taken = app.app().operations.reconcile.take_checkpoint(&acme()).await.unwrap().unwrap();
    let writer = app.another_instance_with(&[tollgate::app::Role::Writer]).await;
    let drift = wait_for("the drift is repaired", Duration::from_secs(30), async || {
        let judged = app.app().ledger.reconciliation(&acme(), taken.id, taken.place).await.unwrap()?;
        (judged.state == Repaired).then_some(judged)
    })
    .await;
    assert_eq!((drift.gaps, drift.differences.len()), (1, 3), "{drift:?}");
    assert!(drift.differences.iter().all(|difference| difference.delta() == (-5, 0)), "{drift:?}");
    assert_eq!(compared(&app, true).await.state, Clean);
    writer.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_that_repair_at_once_repair_once() {
    let app = app_with(before_the_turn().without_jobs()).await;
    let other = app.another_instance().await;
    usage(&app, "a", 20).await;
    tamper(&app, "tg1:*:state:acme", 7).await;
    let (one, two) = (compared(&app, false).await, compared(&app, false).await);
    assert_eq!((one.state, two.state), (Drift, Drift), "found twice before it is repaired");
    let (mine, theirs) = tokio::join!(
        app.app().operations.reconcile.repair_drifts(),
        other.operations.reconcile.repair_drifts()
    );
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
    let app = app_with(before_the_turn().without_jobs()).await;
    usage(&app, "a", 20).await;
    tamper(&app, "tg1:*:state:acme", 7).await;
    let drift = compared(&app, false).await;
    let operations = &app.app().operations;
    assert_eq!(operations.reconcile.repair_drifts().await.unwrap(), 1);
    // As if the instance had died between the gate's answer and the row.
    let reopen =
        format!("UPDATE reconciliations SET state = 'drift' WHERE checkpoint_id = '{}'", drift.checkpoint);
    crate::ledger::as_owner(&app.database, &reopen).await.unwrap();
    assert_eq!(operations.reconcile.repair_drifts().await.unwrap(), 1);
    assert_eq!(all(&app).await[0].state, Repaired);
    assert_eq!(compared(&app, false).await.state, Clean);
    assert_eq!(metric(&app, "tollgate_repairs_total{outcome=\"done\"}").await, 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_is_raised_but_not_lowered_while_events_of_its_tenant_wait_in_quarantine() {
    let app = app_with(before_the_turn()).await;
    usage(&app, "a", 20).await;
    app.drained().await;
    let waits = "INSERT INTO quarantine (partition, epoch, sequence, tenant, event, reason) VALUES (0, 9, 9, 'acme', '', 'test')";
    crate::ledger::as_owner(&app.database, waits).await.unwrap();
    tamper(&app, "tg1:*:state:acme", 7).await;
    let waits = "INSERT INTO parked (tenant, partition, reservation_id, call, taken_at, payload, delivered_in) \
        SELECT 'acme', 0, gen_random_uuid(), 'release', now(), '', epoch FROM cursors WHERE partition = 0";
    crate::ledger::as_owner(&app.database, waits).await.unwrap();
    let refused = compared(&app, true).await;
    assert_eq!((refused.state, refused.quarantined, refused.parked), (Refused, 1, 1));
    crate::ledger::as_owner(&app.database, "DELETE FROM parked").await.unwrap();
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
    let app = app_with(before_the_turn()).await;
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
    let app = app_with(before_the_turn().with("reconciliation.interval_seconds", "1")).await;
    app.define("tenants/later", json!({ "plan": "plan" })).await;
    usage(&app, "a", 20).await;
    app.post_keyed(USAGE, "later", pages("5").of("later")).await.expect(201);
    app.drained().await;
    let mut connection = app.redis.connection().await;
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
    let error = app.app().operations.reconcile.take_checkpoint(&acme()).await.unwrap_err().to_string();
    let field = String::from_utf8(field).unwrap();
    assert!(error.contains(&format!("(field {field})")), "{error}");
    let check = app.app().operations.reconcile.verify_gate().await.unwrap();
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
    let app = app_with(before_the_turn()).await;
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
    let app = app_with(before_the_turn().without_jobs()).await;
    let body = pages("1").by("ada").lasting(3600);
    app.post(RESERVATIONS, body).await.expect(201);
    app.drained().await;
    // Not through the table's trigger, which looks for each row among all before.
    let copies = "INSERT INTO reservations_open \
                  SELECT (json_populate_record(r, json_build_object('id', gen_random_uuid()))).* \
                  FROM reservations_open r, generate_series(1, 25000)";
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
    app.leave_unbalanced("holds were written into the books by hand");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_active_subject_of_a_tenant_is_compared_and_repaired() {
    let app = app_with(before_the_turn()).await;
    for number in 0..150 {
        let body = pages("2").by(format!("user-{number}"));
        app.post_keyed(USAGE, &format!("of-{number}"), body).await.expect(201);
    }
    app.drained().await;
    let mut connection = app.redis.connection().await;
    let keys: Vec<String> = connection.keys("tg1:*:state:acme:*").await.unwrap();
    assert_eq!(keys.len(), 150);
    for key in &keys {
        tamper(&app, key, 3).await;
    }
    let taken = app.app().operations.reconcile.take_checkpoints(&acme()).await.unwrap();
    assert_eq!(taken.len(), 3, "64 subjects a page");
    wait_for("all of them are repaired", Duration::from_secs(60), async || {
        let repaired = all(&app).await.into_iter().filter(|row| row.state == Repaired);
        (repaired.map(|row| row.differences.len()).sum::<usize>() == 150).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_has_ended_is_not_repaired_any_more() {
    let app = app_with(before_the_turn().without_jobs()).await;
    usage(&app, "a", 20).await;
    app.drained().await;
    tamper(&app, "tg1:*:state:acme:*", 7).await;
    assert_eq!(compared(&app, false).await.state, Drift);
    app.move_clock("2026-02-01T01:00:00Z").await;
    assert_eq!(app.app().operations.reconcile.repair_drifts().await.unwrap(), 1);
    let row = all(&app).await.remove(0);
    assert_eq!((row.state, row.detail.as_str()), (Refused, "user: its window has ended"));
    usage(&app, "b", 3).await;
    assert_eq!(compared(&app, false).await.state, Clean);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn warm_tenants_are_compared_in_turn_without_being_asked() {
    let app = app_with(before_the_turn().with("reconciliation.interval_seconds", "1")).await;
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
