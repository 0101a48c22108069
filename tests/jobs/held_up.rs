//! What is damaged, refused or slow of one tenant or partition holds up the books of no other.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use tollgate::app::Role;
use tollgate::domain::ids::{Partition, TenantId};
use tollgate::ledger::{Closed, Issued, Manner};
use tollgate::operations::Answer;

use crate::jobs::statements::per_page;
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const GRACE: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(60);
const CLOSED: &str = "SELECT tenant FROM period_closures ORDER BY 1";
const BILLED: &str = "SELECT tenant FROM statements ORDER BY 1";
/// A definition as a later version may write it.
const UNREADABLE: &str = "UPDATE tenants SET definition = definition || '{\"later\": 1}' WHERE id = 'bell'";
const READABLE: &str = "UPDATE tenants SET definition = definition - 'later' WHERE id = 'bell'";

/// Has the ledger refuse this change of the table for tenant `bell`.
fn refusing(change: &str) -> String {
    format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
            IF NEW.tenant = 'bell' THEN RAISE EXCEPTION 'refused'; END IF; RETURN NEW; \
        END $$; \
        CREATE TRIGGER refuse BEFORE {change} FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
}

/// Has the ledger take everything again.
const TAKING_ALL: &str = "DROP FUNCTION refuse CASCADE";

/// Tenants `acme`, `bell` and `core` of one partition, on a plan with fifty pages a month of which ten roll over, and a
/// price for each; in UTC, at this time, where no job runs by itself.
async fn three_tenants(now: &str) -> TestApp {
    let app = an_app().at(now).with("gate.partitions", "1").without_jobs().start().await;
    app.with_plan(json!([]), json!([])).await;
    let quota = quota_of("50").with("max_rollover", "10");
    app.define("plans/plan", json!({ "quotas": [quota], "prices": [per_page("1")] })).await;
    for tenant in ["bell", "core"] {
        app.define(&format!("tenants/{tenant}"), json!({ "plan": "plan" })).await;
    }
    app
}

async fn change(app: &TestApp, statement: &str) {
    as_owner(&app.database, statement).await.unwrap();
}

async fn close(app: &TestApp) -> Answer<Closed> {
    app.app().operations.periods.close(Manner::default(), GRACE).await
}

async fn issue(app: &TestApp) -> Answer<Issued> {
    app.app().operations.statements.issue(Manner::default(), GRACE).await
}

/// Whether this work has reported tenant `bell`.
async fn is_reported(app: &TestApp, work: &str) -> bool {
    let damages = app.app().ledger.damages().await.unwrap();
    damages.iter().any(|damage| damage.work == work && damage.item.ends_with("bell"))
}

#[rstest]
#[case::what_the_ledger_refuses(refusing("UPDATE ON balances"), TAKING_ALL)]
#[case::a_definition_that_cannot_be_read(UNREADABLE.to_owned(), READABLE)]
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_cannot_be_closed_is_named_and_the_others_are_closed_and_billed(
    #[case] damage: String,
    #[case] mend: &str,
) {
    let mut app = three_tenants("2026-03-10T12:00:00Z").await;
    for tenant in ["acme", "bell", "core"] {
        app.post_keyed(USAGE, tenant, pages(5).of(tenant)).await.expect(201);
    }
    app.move_clock("2026-04-02T12:00:00Z").await;
    app.drained().await;
    change(&app, &damage).await;
    // Nothing of its policy is in memory.
    app.restart().await;
    assert_eq!(close(&app).await.unwrap(), Closed { closed: 2, failed: 1, ..Closed::default() });
    assert_eq!(rows(&app.database, CLOSED).await, ["acme", "core"]);
    assert!(is_reported(&app, "close").await);
    let issued = issue(&app).await.unwrap();
    assert_eq!((issued.statements, issued.waiting + issued.failed.len() as u64), (2, 1), "{issued:?}");
    assert_eq!(rows(&app.database, BILLED).await, ["acme", "core"]);
    assert_eq!(is_reported(&app, "statement").await, damage == UNREADABLE);

    change(&app, mend).await;
    app.restart().await;
    assert_eq!(close(&app).await.unwrap(), Closed { closed: 1, ..Closed::default() });
    assert_eq!(issue(&app).await.unwrap().statements, 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_carried_holds_cannot_return_keeps_no_other_s_from_returning() {
    let app = three_tenants("2026-03-31T23:30:00Z").await;
    let mut held = Vec::new();
    for tenant in ["acme", "bell", "core"] {
        held.push(app.held(pages(5).of(tenant).lasting(86_400)).await);
    }
    app.move_clock("2026-04-01T02:00:00Z").await;
    app.drained().await;
    assert_eq!(close(&app).await.unwrap().closed, 3);
    for id in held {
        app.release(&id).await.expect(200);
    }
    app.drained().await;
    change(&app, &refusing("UPDATE ON balances")).await;
    close(&app).await.unwrap();
    let returning = "SELECT tenant FROM carried_returns";
    assert_eq!(rows(&app.database, returning).await, ["bell"]);
    assert!(is_reported(&app, "close").await);
    change(&app, TAKING_ALL).await;
    close(&app).await.unwrap();
    assert_eq!(rows(&app.database, returning).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_next_period_or_grants_are_refused_keeps_no_other_s_as_they_were() {
    let app = three_tenants("2026-03-31T12:00:00Z").await;
    for tenant in ["acme", "bell", "core"] {
        app.post_keyed(USAGE, tenant, pages(5).of(tenant)).await.expect(201);
        let grant = json!({ "tenant": tenant, "meter": "page", "amount": "7", "kind": "promotional",
            "expires_at": "2026-05-10T00:00:00Z" });
        app.post_keyed("/v1/admin/grants", tenant, grant).await.expect(201);
    }
    app.app().operations.memory.open_next_periods().await.unwrap();
    let more = quota_of("60").with("max_rollover", "10");
    app.define("plans/plan", json!({ "quotas": [more], "prices": [per_page("1")] })).await;
    change(&app, &refusing("UPDATE ON quota_periods")).await;
    assert_eq!(app.app().operations.memory.open_next_periods().await.unwrap().followed, 2);
    let followed = "SELECT tenant FROM quota_periods WHERE included = 60 ORDER BY 1";
    assert_eq!(rows(&app.database, followed).await, ["acme", "core"]);
    assert!(is_reported(&app, "next period").await);
    change(&app, TAKING_ALL).await;

    change(&app, &refusing("INSERT ON grant_advances")).await;
    app.move_clock("2026-04-01T00:01:00Z").await;
    app.drained().await;
    assert_eq!(app.app().operations.grants.follow().await.unwrap().advanced, 2);
    let advanced = "SELECT tenant FROM grant_advances ORDER BY 1";
    assert_eq!(rows(&app.database, advanced).await, ["acme", "core"]);
    assert!(is_reported(&app, "capacity").await);
    change(&app, TAKING_ALL).await;
    assert_eq!(app.app().operations.grants.follow().await.unwrap().advanced, 1);
    assert_eq!(rows(&app.database, followed).await, ["acme", "bell", "core"]);
    app.finish().await;
}

/// A tenant of this partition of two.
fn tenant_of(partition: u16) -> String {
    let is_there = |id: &String| Partition::of(&TenantId::parse(id).unwrap(), 2).number() == partition;
    (0..).map(|n| format!("t{n}")).find(is_there).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_lags_is_left_and_named_and_the_others_are_settled_closed_and_billed() {
    let app = an_app()
        .at("2026-03-10T12:00:00Z")
        .with("gate.partitions", "2")
        .with("ledger.restore_wait_ms", "400")
        .without_writer()
        .without_jobs()
        .start()
        .await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    app.define("plans/plan", json!({ "quotas": [quota_of("50")], "prices": [per_page("1")] })).await;
    // The one that lags has its turn first.
    let (slow, quick) = (tenant_of(0), tenant_of(1));
    for tenant in [&slow, &quick] {
        app.define(&format!("tenants/{tenant}"), json!({ "plan": "plan" })).await;
        let grant = json!({ "tenant": tenant, "meter": "page", "amount": "7", "kind": "promotional",
            "expires_at": "2026-03-20T00:00:00Z" });
        app.post_keyed("/v1/admin/grants", tenant, grant).await.expect(201);
        app.post_keyed(USAGE, tenant, pages(5).of(tenant.as_str())).await.expect(201);
    }
    // Somebody has the lease of its outbox and books nothing.
    let lease = format!("writer/{}", Partition::FIRST);
    let taken = app.app().ledger.take_leases(&[lease], "nobody", Duration::from_secs(3600)).await.unwrap();
    assert_eq!(taken.len(), 1);
    let books = app.another_instance_with(&[Role::Writer]).await;
    app.move_clock("2026-04-02T12:00:00Z").await;
    let operations = &app.app().operations;
    // A busy machine may make the other one late too, for a while.
    let left = |error: String| assert!(error.contains("left to the next run: partition p00"), "{error}");
    for (job, done) in [
        ("grants", "SELECT tenant FROM grants WHERE settled_at IS NOT NULL"),
        ("close", CLOSED),
        ("statements", "SELECT tenant FROM statements WHERE tenant <> 'acme'"),
    ] {
        wait_for(job, PATIENCE, async || {
            left(match job {
                "grants" => operations.grants.follow().await.unwrap_err().to_string(),
                "close" => close(&app).await.unwrap_err().to_string(),
                _ => issue(&app).await.unwrap_err().to_string(),
            });
            (rows(&app.database, done).await == [quick.as_str()]).then_some(())
        })
        .await;
    }

    app.app().ledger.give_back_leases("nobody").await.unwrap();
    app.drained().await;
    operations.grants.follow().await.unwrap();
    assert_eq!(close(&app).await.unwrap().closed, 1);
    issue(&app).await.unwrap();
    assert!(rows(&app.database, BILLED).await.contains(&slow));
    books.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_locks_all_its_tenants_before_it_books_for_any_of_them() {
    let app = three_tenants("2026-03-31T23:30:00Z").await;
    let held = app.held(pages(5).lasting(86_400)).await;
    app.move_clock("2026-04-01T02:00:00Z").await;
    app.drained().await;
    close(&app).await.unwrap();
    // What returns is booked first, in the chain that others book in once they have locked their tenant.
    app.release(&held).await.expect(200);
    for tenant in ["bell", "core"] {
        app.post_keyed(USAGE, tenant, pages(5).of(tenant)).await.expect(201);
    }
    app.move_clock("2026-05-01T02:00:00Z").await;
    app.drained().await;
    let connected = async || {
        let connecting = tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls);
        let (client, connection) = connecting.await.unwrap();
        tokio::spawn(connection);
        client
    };
    let (other, watch) = (connected().await, connected().await);
    let chain = "BEGIN; SELECT pg_advisory_xact_lock(hashtext('tollgate other chain'), 256)";
    other.batch_execute(chain).await.unwrap();
    let operations = app.app().operations.clone();
    let closing = tokio::spawn(async move { operations.periods.close(Manner::default(), GRACE).await });
    wait_for("all tenants are locked before the chain is", PATIENCE, async || {
        let free = "SELECT id FROM tenants FOR UPDATE SKIP LOCKED";
        watch.query(free, &[]).await.unwrap().is_empty().then_some(())
    })
    .await;
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(closing.await.unwrap().unwrap().closed, 3);
    app.finish().await;
}
