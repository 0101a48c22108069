//! Calls that are parked while their period is closed: whichever comes first, gate times and the books agree.

use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;
use tollgate::domain::ids::ReservationId;
use tollgate::domain::parked::ParkedCall;
use tollgate::domain::resolution::Totals;
use tollgate::ledger::{Closed, KnownReservation, Manner, NewParked};

use super::gate_away::{PATIENCE, impatient, limited};
use crate::jobs::statements::{ISSUED, per_page};
use crate::ledger::rows;
use crate::support::app::*;
use crate::support::wait::wait_for;

const GRACE: Duration = Duration::from_secs(3600);
const TAKEN: &str = "SELECT taken_at AT TIME ZONE 'UTC' AS at FROM parked";
const WAITS_FOR_LOCK: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Tenant `acme` with a hold of twenty pages from March, a tenth of a second before that is closed.
async fn before_the_close() -> (TestApp, String) {
    let app = impatient().with("postgres.statement_timeout_ms", "120000").at("2026-03-31T23:30:00Z");
    let app = app.without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    let id = app.held(pages("20").lasting(86_400)).await;
    app.move_clock("2026-04-01T00:59:59.900Z").await;
    app.drained().await;
    (app, id)
}

async fn close(app: &TestApp) -> Closed {
    app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap()
}

/// Waits until the gate has the parked call and its event is booked.
async fn delivered(app: &TestApp) {
    wait_for("the parked call is delivered", PATIENCE, async || {
        app.app().operations.outage.look_for_parked().await.ok()?;
        app.app().operations.outage.redeliver_parked().await;
        (app.app().ledger.count_parked().await.unwrap().waiting == 0).then_some(())
    })
    .await;
    app.drained().await;
}

async fn somebody_waits(app: &TestApp) {
    wait_for("somebody waits for a lock", PATIENCE, async || {
        (rows(&app.database, WAITS_FOR_LOCK).await == ["1"]).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_parked_after_the_close_was_taken_then_at_the_earliest() {
    let (app, id) = before_the_close().await;
    let (high, low) = id.parse::<uuid::Uuid>().unwrap().as_u64_pair();
    let key = i64::from_le_bytes((high ^ low).to_le_bytes());
    let (client, connection) =
        tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({key})")).await.unwrap();
    let frozen = app.redis.freeze();
    let (caller, path) = (app.caller(), reservation(&id, "consume"));
    // Its caller may have left before it is parked.
    let consuming = tokio::spawn(async move { caller.post(&path, json!({ "amount": "15" })).await });
    somebody_waits(&app).await;
    drop(frozen);
    wait_for("the gate answers", PATIENCE, async || {
        (app.get("/v1/tenants/acme/quota").await.body["source"] == "gate").then_some(())
    })
    .await;
    app.move_clock("2026-04-01T01:00:00Z").await;
    assert_eq!(close(&app).await.closed, 1);
    client.batch_execute("ROLLBACK").await.unwrap();
    consuming.await.unwrap();
    wait_for("the call is parked", PATIENCE, async || {
        (rows(&app.database, TAKEN).await == ["2026-04-01T01:00:00"]).then_some(())
    })
    .await;
    delivered(&app).await;
    let consumed = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, amount::float8 AS a, carried, \
        happened_at AT TIME ZONE 'UTC' AS at FROM entries WHERE debit = 'consumed'";
    assert_eq!(rows(&app.database, consumed).await, ["04 15 true 2026-04-01T01:00:00"]);
    close(&app).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_close_is_made_later_while_calls_are_being_parked_and_until_they_are_delivered() {
    let (app, id) = before_the_close().await;
    let id = ReservationId::from_bytes(id.parse::<uuid::Uuid>().unwrap().into_bytes());
    app.move_clock("2026-04-01T01:00:00Z").await;
    let (go_on, held_up) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel::<i64>();
    let payload = ParkedCall::Consume { totals: Totals::Default, is_final: true }.encode();
    let ledger = app.app().ledger.clone();
    let parking = tokio::spawn(async move {
        let decide = move |known: &KnownReservation, not_before_ms| {
            let _ = begun.send(not_before_ms);
            let _ = held_up.recv();
            let tenant = known.row.as_ref().unwrap().tenant.clone();
            let taken_at_ms = 1_775_005_199_900;
            let call = NewParked {
                tenant,
                call: "consume",
                taken_at_ms,
                payload: payload.clone(),
                fingerprint: None,
            };
            (Some(call), ())
        };
        ledger.park(id, decide).await
    });
    let before = tokio::task::spawn_blocking(move || has_begun.recv().unwrap()).await.unwrap();
    assert_eq!(before, i64::MIN, "nothing is closed");
    assert_eq!(
        close(&app).await,
        Closed { waiting: 1, ..Closed::default() },
        "it does not wait for whoever hangs"
    );
    app.use_pages("meanwhile", "1").await.expect(201);
    app.drained().await;
    go_on.send(()).unwrap();
    parking.await.unwrap().unwrap();
    assert_eq!(close(&app).await, Closed { waiting: 1, ..Closed::default() });
    assert_eq!(rows(&app.database, TAKEN).await, ["2026-04-01T00:59:59.9"]);
    delivered(&app).await;
    assert_eq!(close(&app).await, Closed { closed: 1, ..Closed::default() });
    let consumed = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'MM') AS month, amount::float8 AS a, carried FROM entries \
        WHERE debit = 'consumed'";
    assert_eq!(rows(&app.database, consumed).await, ["04 1 false", "03 20 false"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_waits_for_a_parked_call_of_its_period_also_where_nothing_else_was_used() {
    let app = impatient().at("2026-03-31T23:59:59Z").without_jobs().start().await;
    limited(&app, "allow", json!([])).await;
    app.define("plans/plan", json!({ "prices": [per_page("1")] })).await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    let issue = async || app.app().operations.statements.issue(Manner::default(), GRACE).await.unwrap();
    assert_eq!(issue().await.statements, 0);
    let frozen = app.redis.freeze();
    assert_eq!(app.use_pages("late", 7).await.expect(201).body["degraded"], true);
    drop(frozen);
    wait_for("the gate answers", PATIENCE, async || {
        (app.get("/v1/tenants/other/quota").await.body["source"] == "gate").then_some(())
    })
    .await;
    app.move_clock("2026-04-01T01:00:00Z").await;
    let issued = issue().await;
    assert_eq!((issued.statements, issued.waiting), (1, 1), "that of the other tenant: {issued:?}");
    assert_eq!(rows(&app.database, ISSUED).await, [""; 0]);
    let passed =
        "SELECT DISTINCT passed_at AT TIME ZONE 'UTC' AS at FROM cursors WHERE passed_at IS NOT NULL";
    assert_eq!(
        rows(&app.database, passed).await,
        ["2026-04-01T01:00:00"],
        "no other call of March is parked any more"
    );
    delivered(&app).await;
    assert_eq!(issue().await.statements, 0, "its meter is not closed yet");
    assert_eq!(close(&app).await.closed, 1);
    assert_eq!(issue().await.statements, 1);
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 7"]);
    app.finish().await;
}
