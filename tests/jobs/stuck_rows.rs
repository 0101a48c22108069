//! Rows that stay due because nothing can be done for them keep no later row waiting, however many they are.

use serde_json::json;

use crate::ledger::{as_owner, rows};
use crate::support::app::*;

/// A tenant that this version cannot read, with as many due rows of each kind as a run reads at once. They come before
/// all others.
const STUCK: &str = "INSERT INTO tenants (id, partition, version, definition) VALUES ('stuck', 0, 1, '{\"later\": 1}'); \
    CREATE VIEW stuck AS SELECT 'stuck' AS tenant, lpad(to_hex(n), 32, '0')::uuid AS id, timestamptz '2026-03-01Z' AS at \
        FROM generate_series(1, 500) n; \
    INSERT INTO upgrade_requests (tenant, id, plan, reason, state, requested_at, requested_by, decided_at, decided_by, effective_at) \
        SELECT tenant, id, 'pro', '', 'approved', at, 'asker', at, 'decider', at FROM stuck; \
    INSERT INTO adjustments (tenant, id, meter, effect, amount, happened_at, reason, reference, state, posted_at, posted_by) \
        SELECT tenant, id, 'page', 'usage', 1, at, '', '', 'approved', at, 'poster' FROM stuck; \
    INSERT INTO grants (tenant, id, meter, decimals, amount, kind, priority, effective_at, expires_at, reason, fingerprint, \
            created_at, created_by, period_start, voided_at) \
        SELECT tenant, id, 'page', 0, 1, 'promotional', 50, at, '2026-05-01Z', '', decode(repeat('00', 32), 'hex'), \
            at, 'maker', at, at FROM stuck";
/// One due row of each kind of tenant `acme`, as a process leaves them that dies.
const DUE: &str = "UPDATE upgrade_requests SET state = 'approved', decided_at = requested_at, decided_by = 'decider', \
        effective_at = requested_at WHERE tenant = 'acme'; \
    UPDATE grants SET voided_at = created_at WHERE tenant = 'acme'; \
    INSERT INTO adjustments (tenant, id, meter, effect, amount, happened_at, reason, reference, state, posted_at, posted_by) \
        SELECT tenant, id, 'page', 'allowance', 1, requested_at, '', '', 'approved', requested_at, 'poster' \
        FROM upgrade_requests WHERE tenant = 'acme'";

#[tokio::test(flavor = "multi_thread")]
async fn upgrades_adjustments_and_voids_that_are_stuck_starve_no_later_ones() {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    app.define("plans/pro", json!({ "quotas": [quota_of("80")] })).await;
    let grant = json!({ "tenant": "acme", "meter": "page", "amount": "7", "kind": "promotional",
        "expires_at": "2026-03-20T00:00:00Z" });
    let grant = app.post_keyed("/v1/admin/grants", "grant", grant).await.expect(201).text("/id").to_owned();
    app.post("/v1/tenants/acme/upgrade-requests", json!({ "plan": "pro" })).await.expect(201);
    as_owner(&app.database, STUCK).await.unwrap();
    as_owner(&app.database, DUE).await.unwrap();
    let operations = &app.app().operations;

    assert_eq!(operations.upgrades.due().await.unwrap(), 501);
    assert_eq!(operations.upgrades.follow().await.unwrap(), 1);
    assert_eq!(app.get("/v1/admin/tenants/acme").await.expect(200).text("/plan"), "pro");

    operations.grants.follow().await.unwrap();
    let voided = app.get(&format!("/v1/admin/grants/{grant}")).await.expect(200);
    assert_eq!((voided.text("/status"), voided.text("/unburnt")), ("voided", "7"));

    assert_eq!(operations.adjustments.due().await.unwrap(), 501);
    assert_eq!(operations.adjustments.follow().await.unwrap(), 1);
    let booked = "SELECT tenant FROM adjustments WHERE state = 'booked'";
    assert_eq!(rows(&app.database, booked).await, ["acme"]);
    let stuck = "SELECT count(*) FROM upgrade_requests WHERE tenant = 'stuck' AND state = 'approved'";
    assert_eq!(
        rows(&app.database, stuck).await,
        ["500"],
        "one that may be possible later is declined by nobody"
    );
    app.leave_unbalanced("grants of the tenant that cannot be read are in no books");
}
