//! Corrections that are approved and not made yet: what they bound, and what not.

use std::time::Duration;

use serde_json::json;
use tollgate::writer::discard;

use super::corrections::{carried_out, follow, granted, posted, settled};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const STATES: &str = "SELECT state FROM adjustments";
const UNBURNT: &str = "SELECT settled_amount::float8 AS a FROM grants ORDER BY 1";
const MARCH: &str = "2026-03-10T12:00:00Z";

/// Tenant `acme` with fifty pages a month and ten more until the eleventh of March, which burn first; eight are used,
/// and five are to be taken back, which is approved while the gate is away.
async fn app_where_five_are_to_be_taken_back() -> TestApp {
    let app = an_app().at(MARCH).without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    granted(&app).await;
    app.use_pages("a", 8).await.expect(201);
    app.drained().await;
    let frozen = app.redis.freeze();
    assert_eq!(posted(&app, "less", "-5", MARCH).await["status"], "approved");
    drop(frozen);
    wait_for("the gate answers", Duration::from_secs(30), async || {
        (app.quota().await.body["source"] == "gate").then_some(())
    })
    .await;
    app
}

/// The place of the last event of the tenant's partition.
async fn last_event(app: &TestApp) -> String {
    let gate = &app.app().gate;
    let partition = gate.partition_of(&"acme".parse().unwrap());
    format!("{:?}", gate.last_event(partition).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_room_a_correction_decides_is_not_refused_and_nothing_is_appended_for_it() {
    let app = app_where_five_are_to_be_taken_back().await;
    app.move_clock("2026-03-12T12:00:00Z").await;
    let mut places = Vec::new();
    for _ in 0..2 {
        app.use_pages("beyond the bound", 46).await.is_problem(503, "gate_unavailable");
        app.app().operations.grants.follow().await.unwrap();
        places.push(last_event(&app).await);
    }
    assert_eq!(places[0], places[1]);
    assert_eq!(rows(&app.database, UNBURNT).await, ["2"], "the grant ends at its instant");
    app.use_pages("within it", 1).await.expect(201);
    follow(&app).await;
    assert_eq!(rows(&app.database, UNBURNT).await, ["6"], "four of the five had burnt of it");
    app.use_pages("beyond the bound", 46).await.expect(201);
    assert_eq!(app.use_pages("too much", 5).await.status, 429, "four are left of what is included");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correction_of_one_period_bounds_nothing_in_another() {
    let app = app_where_five_are_to_be_taken_back().await;
    app.move_clock("2026-04-01T00:10:00Z").await;
    let april = json!({
        "tenant": "acme", "meter": "page", "amount": "10", "kind": "promotional", "expires_at": "2026-04-01T00:20:00Z"
    });
    app.post_keyed("/v1/admin/grants", "april", april).await.expect(201);
    app.move_clock("2026-04-01T00:30:00Z").await;
    app.use_pages("beyond the bound", 51).await.is_problem(402, "exceeds_plan");
    settled(&app, "2").await;
    assert_eq!(rows(&app.database, UNBURNT).await, ["2", "10"]);
    app.use_pages("all", 50).await.expect(201);
    assert_eq!(app.use_pages("more", 1).await.status, 429);
    follow(&app).await;
    assert_eq!(rows(&app.database, UNBURNT).await, ["7", "10"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correction_whose_event_is_discarded_is_declined_and_bounds_nothing() {
    let app = app_where_five_are_to_be_taken_back().await;
    let waits = "INSERT INTO quarantine (partition, epoch, sequence, reservation_id, tenant, event, reason) \
                 SELECT get_byte(uuid_send(gate_operation), 12), 0, 0, gate_operation, tenant, 'torn', 'a test' FROM adjustments";
    as_owner(&app.database, waits).await.unwrap();
    let ledger = &app.app().ledger;
    wait_for("its event is in quarantine", Duration::from_secs(30), async || {
        app.app().operations.adjustments.follow().await.ok();
        (ledger.count_quarantined().await.unwrap() == 2).then_some(())
    })
    .await;
    app.move_clock("2026-03-12T12:00:00Z").await;
    let mut words = Vec::new();
    for event in ledger.quarantined(false, None, 10).await.unwrap() {
        assert_eq!(rows(&app.database, STATES).await, ["approved"], "an event of it is left");
        words.push(discard(ledger, event.partition, event.outbox_id, "anna", "a test").await.unwrap());
    }
    assert!(
        words[1].starts_with("5 page of") && words[1].ends_with("the adjustment is declined"),
        "{words:?}"
    );
    assert_eq!(rows(&app.database, STATES).await, ["declined"]);
    let audit = "SELECT actor FROM audit_log WHERE action = 'decline'";
    assert_eq!(rows(&app.database, audit).await, ["anna"]);
    assert_eq!(app.app().operations.adjustments.follow().await.unwrap(), 0);
    settled(&app, "1").await;
    assert_eq!(rows(&app.database, UNBURNT).await, ["2"]);
    let again = posted(&app, "again", "1", "2026-03-12T12:00:00Z").await;
    assert_eq!(carried_out(&app, again).await["status"], "booked");
    app.leave_unbalanced("an event was discarded");
}
