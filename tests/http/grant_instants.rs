//! Grants begin and end at their instants, by the gate's time, whenever the jobs run and the books are written.

use rstest::rstest;
use serde_json::{Value, json};
use tollgate::ledger::Voided;

use crate::jobs::statements::faults;
use crate::ledger::rows;
use crate::support::app::*;

const GRANTS: &str = "/v1/admin/grants";
/// What is unburnt of each tenant's grant, and what of its price is earned and kept.
const ENDED: &str = "SELECT g.tenant, g.settled_amount::float8 AS unburnt, b.amount::float8 AS burnt, \
    b.recognised::float8 AS earned, b.forfeited::float8 AS kept \
    FROM grants g JOIN grant_burns b ON b.tenant = g.tenant AND b.grant_id = g.id ORDER BY 1, g.priority";

/// What follows the grants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follows {
    /// A job, at each instant.
    AtOnce,
    /// A job, once something was used since.
    Later,
    /// Nothing until the end, as no job runs.
    Never,
    /// Nothing, as the ledger is away: all is booked together later.
    NeverAsTheLedgerIsAway,
}
use Follows::*;

/// Tenants `acme` and `other` with so many pages a month, on the tenth of March; jobs run only when a test asks.
async fn app(quota: Value) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota])).await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    app
}

/// Ten pages for ten euros.
fn ten(tenant: &str, until: &str) -> Value {
    json!({
        "tenant": tenant, "meter": "page", "amount": "10", "kind": "paid", "priority": 1, "expires_at": until,
        "paid_amount": "10", "currency": "EUR"
    })
}

async fn granted(app: &TestApp, body: Value) -> String {
    let key = format!("{}-{}", body["tenant"].as_str().unwrap(), body["priority"]);
    app.post_keyed(GRANTS, &key, body).await.expect(201).text("/id").to_owned()
}

async fn uses(app: &TestApp, tenant: &str, amount: u64) {
    let held = app.post(RESERVATIONS, pages(amount).of(tenant)).await.expect(201);
    app.consume(held.text("/id"), &amount.to_string()).await.expect(200);
}

/// Capacity and what remains of it, as the gate reads the tenant's quota.
async fn left(app: &TestApp, tenant: &str) -> [String; 2] {
    let quota = app.get(&format!("/v1/tenants/{tenant}/quota")).await.expect(200);
    ["granted", "remaining"].map(|name| quota.text(&format!("/quotas/0/{name}")).to_owned())
}

/// At an instant: follows the grants, and uses so many pages of both tenants.
async fn at(app: &TestApp, follows: Follows, instant: &str, used: [u64; 2]) {
    app.move_clock(instant).await;
    let follow = async || app.app().operations.grants.follow().await.unwrap();
    if follows == AtOnce {
        follow().await;
    }
    for (tenant, amount) in ["acme", "other"].into_iter().zip(used).filter(|(_, amount)| *amount > 0) {
        uses(app, tenant, amount).await;
    }
    if follows == Later {
        follow().await;
    }
}

/// The ledger answers again; everything is followed.
async fn followed(app: &TestApp, follows: Follows) {
    if follows == NeverAsTheLedgerIsAway {
        app.database.open().await;
    }
    app.drained().await;
    app.app().operations.grants.follow().await.unwrap();
    assert_eq!(faults(app).await, [""; 0]);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_used_from_the_instant_on_at_which_a_grant_ends_burns_nothing_of_it(
    #[values(AtOnce, Later, Never, NeverAsTheLedgerIsAway)] follows: Follows,
) {
    let app = app(quota_of("50")).await;
    for tenant in ["acme", "other"] {
        granted(&app, ten(tenant, "2026-03-20T00:00:00Z")).await;
        assert_eq!(left(&app, tenant).await, ["60", "60"]);
    }
    app.drained().await;
    if follows == NeverAsTheLedgerIsAway {
        app.database.close().await;
    }
    at(&app, follows, "2026-03-19T23:59:59.999Z", [0, 3]).await;
    at(&app, follows, "2026-03-20T00:00:00Z", [1, 0]).await;
    at(&app, follows, "2026-03-20T00:00:30Z", [7, 8]).await;
    at(&app, follows, "2026-03-20T12:00:00Z", [0, 0]).await;
    followed(&app, follows).await;
    assert_eq!(rows(&app.database, ENDED).await, ["acme 10 0 0 10", "other 7 3 3 7"]);
    assert_eq!(left(&app, "acme").await, ["50", "42"]);
    assert_eq!(left(&app, "other").await, ["53", "42"]);
    app.finish().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_began_and_ended_before_it_was_booked_has_burnt_what_was_used_in_between(
    #[values(AtOnce, Later, Never, NeverAsTheLedgerIsAway)] follows: Follows,
) {
    let app = app(quota_of("100")).await;
    for tenant in ["acme", "other"] {
        let ahead = ten(tenant, "2026-03-14T00:00:00Z").with("effective_at", "2026-03-12T00:00:00Z");
        granted(&app, ahead).await;
        assert_eq!(left(&app, tenant).await, ["100", "100"]);
    }
    app.drained().await;
    if follows == NeverAsTheLedgerIsAway {
        app.database.close().await;
    }
    at(&app, follows, "2026-03-11T12:00:00Z", [5, 5]).await;
    at(&app, follows, "2026-03-13T12:00:00Z", [30, 4]).await;
    at(&app, follows, "2026-03-15T12:00:00Z", [3, 3]).await;
    at(&app, follows, "2026-03-16T12:00:00Z", [0, 0]).await;
    followed(&app, follows).await;
    assert_eq!(rows(&app.database, ENDED).await, ["acme 0 10 10 0", "other 6 4 4 6"]);
    assert_eq!(left(&app, "acme").await, ["110", "72"]);
    assert_eq!(left(&app, "other").await, ["104", "92"]);
    assert_eq!(rows(&app.database, "SELECT count(*) FROM due_cuts").await, ["0"]);
    app.finish().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn grants_that_begin_one_after_another_while_nothing_is_used_burn_the_overage_in_that_order(
    #[values(AtOnce, Never)] follows: Follows,
) {
    let app = app(quota_of("5").with("mode", "soft")).await;
    let until = "2026-03-20T00:00:00Z";
    granted(&app, ten("acme", until).with("effective_at", "2026-03-15T00:00:00Z")).await;
    let first = ten("acme", until).with("effective_at", "2026-03-12T00:00:00Z").with("priority", 2);
    granted(&app, first).await;
    at(&app, follows, "2026-03-11T12:00:00Z", [8, 0]).await;
    for day in [12, 15, 20] {
        at(&app, follows, &format!("2026-03-{day}T00:00:00Z"), [0, 0]).await;
    }
    at(&app, follows, "2026-03-21T00:00:00Z", [1, 0]).await;
    followed(&app, follows).await;
    assert_eq!(rows(&app.database, ENDED).await, ["acme 10 0 0 10", "acme 7 3 3 7"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_void_whose_call_broke_off_ends_the_grant_where_the_gate_had_the_bound() {
    let app = app(quota_of("50")).await;
    let id = granted(&app, ten("acme", "2026-04-01T00:00:00Z")).await;
    uses(&app, "acme", 4).await;
    app.drained().await;
    let (ledger, gate) = (&app.app().ledger, &app.app().gate);
    let voided = ledger.void_grant(id.parse().unwrap(), app.clock.now_ms(), "somebody").await.unwrap();
    let Voided::Ending(stored) = voided else { panic!("{voided:?}") };
    app.app().operations.memory.send_untold_capacities().await.unwrap();
    let last_id = gate.last_event(gate.partition_of(&stored.tenant)).await.unwrap();
    ledger.want_end(stored, last_id.unwrap()).await.unwrap();
    uses(&app, "acme", 5).await;
    app.move_clock("2026-03-11T12:00:00Z").await;
    followed(&app, Later).await;
    assert_eq!(rows(&app.database, ENDED).await, ["acme 6 4 4 0"]);
    assert_eq!(left(&app, "acme").await, ["54", "45"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_ends_at_its_date_although_the_call_that_voided_it_broke_off_before_the_gate_heard_of_it() {
    let app = app(quota_of("50")).await;
    let id = granted(&app, ten("acme", "2026-03-20T00:00:00Z")).await;
    uses(&app, "acme", 4).await;
    app.drained().await;
    let voided = app.app().ledger.void_grant(id.parse().unwrap(), app.clock.now_ms(), "somebody").await;
    assert!(matches!(voided, Ok(Voided::Ending(_))), "{voided:?}");
    at(&app, Never, "2026-03-20T00:00:01Z", [5, 0]).await;
    app.move_clock("2026-03-20T12:00:00Z").await;
    followed(&app, Never).await;
    assert_eq!(rows(&app.database, ENDED).await, ["acme 6 4 4 0"]);
    assert_eq!(left(&app, "acme").await, ["54", "45"]);
    app.finish().await;
}
