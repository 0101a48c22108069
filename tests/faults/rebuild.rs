//! `verify --rebuild --write` mends what was damaged of the derived tables, and touches nothing else.

use std::time::Duration;

use serde_json::json;
use tollgate::ledger::{Rebuilt, VerifyOptions, rebuild, verify};

use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const FIGURES: &str = "SELECT tenant, meter, period_start, period_end, granted, available, reserved, consumed, adjusted, \
    consumed_beside_gate FROM balances ORDER BY 1, 2, 3";
const HOURS: &str = "SELECT tenant, meter, hour_at, operation, subject, consumed, count, excess, late, corrections \
    FROM usage_hourly ORDER BY 1, 2, 3, 4, 5";
const VERSIONS: &str = "SELECT tenant, meter, version FROM quota_periods ORDER BY 1, 2";

/// Two tenants with a quota that have used and hold some of it, where no job runs by itself.
async fn used() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([day_of("1000")]), json!([quota_of("900")])).await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    app.use_pages("a", 40).await.expect(201);
    app.hold(7).await;
    app.post_keyed(USAGE, "b", pages(9).of("other")).await.expect(201);
    app.drained().await;
    app
}

async fn mended(app: &TestApp) -> Rebuilt {
    let now_ms = app.app().operations.now_ms();
    let done = rebuild(&app.app().ledger, VerifyOptions::default(), now_ms, "operator").await.unwrap();
    app.app().operations.memory.send_untold_capacities().await.unwrap();
    done
}

async fn books(app: &TestApp) -> Vec<Vec<String>> {
    vec![rows(&app.database, FIGURES).await, rows(&app.database, HOURS).await]
}

async fn is_clean(app: &TestApp) -> bool {
    let options = VerifyOptions { rebuild: true, ..VerifyOptions::default() };
    verify(&app.app().ledger, options).await.unwrap().is_clean()
}

#[rstest::rstest]
#[case::a_balance(
    "UPDATE balances SET consumed = consumed + 3, available = available - 3 WHERE tenant = 'acme'",
    "consumed is 43.000000000, by entries 40.000000000"
)]
#[case::a_missing_balance(
    "DELETE FROM balances WHERE tenant = 'acme'",
    "balance acme page 2026-03-01T00:00:00Z"
)]
#[case::a_balance_of_nothing(
    "INSERT INTO balances (tenant, meter, period_start, period_end, granted, available) \
     VALUES ('acme', 'token', '2026-03-01Z', '2026-04-01Z', 5, 5)",
    "balance acme token 2026-03-01T00:00:00Z"
)]
#[case::hourly_usage(
    "UPDATE usage_hourly SET consumed = consumed - 1, count = 7 WHERE tenant = 'acme'",
    "is 39.000000000/7/"
)]
#[case::a_balance_that_is_marked_as_closed(
    "UPDATE balances SET is_closed = true WHERE tenant = 'acme'",
    "was marked as closed"
)]
#[case::missing_usage("DELETE FROM usage_hourly WHERE tenant = 'acme'", "by entries 40.000000000/1/")]
#[tokio::test(flavor = "multi_thread")]
async fn what_was_damaged_is_named_and_mended_and_other_tenants_are_left_alone(
    #[case] damage: &str,
    #[case] named: &str,
) {
    let app = used().await;
    let (before, versions) = (books(&app).await, rows(&app.database, VERSIONS).await);
    as_owner(&app.database, damage).await.unwrap();
    assert!(!is_clean(&app).await);
    let done = mended(&app).await;
    let differences: Vec<_> =
        done.differences.iter().map(|one| format!("{} {}", one.what, one.detail)).collect();
    assert!(differences.iter().any(|one| one.contains(named)), "{differences:?}");
    assert!(differences.iter().all(|one| one.contains("acme")), "{differences:?}");
    assert_eq!((done.failed.len(), done.balances + done.usage > 0), (0, true));
    assert!(is_clean(&app).await);
    if !damage.contains("INSERT") {
        assert_eq!(books(&app).await, before);
    }
    let raised = rows(&app.database, VERSIONS).await;
    assert_eq!(raised[1], versions[1], "the other tenant's quota has the version that it had");
    let audit = app.get("/v1/admin/audit?object_kind=books&action=rebuild").await.expect(200).body;
    assert_eq!(audit["data"].as_array().unwrap().len(), 1, "{audit}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balance_without_entries_is_missed_where_a_period_needs_it_to_be_closed_and_made_again() {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("0").with("max_rollover", "5")])).await;
    app.use_pages("a", 1).await.is_problem(402, "exceeds_plan");
    app.drained().await;
    let before = rows(&app.database, FIGURES).await;
    assert_eq!(before.len(), 1, "{before:?}");
    as_owner(&app.database, "DELETE FROM balances").await.unwrap();
    assert!(!is_clean(&app).await);
    let done = mended(&app).await;
    assert_eq!((done.balances, done.failed.len()), (1, 0));
    assert_eq!(rows(&app.database, FIGURES).await, before);
    assert!(is_clean(&app).await);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn books_without_damage_are_not_touched() {
    let app = used().await;
    let (before, versions) = (books(&app).await, rows(&app.database, VERSIONS).await);
    assert_eq!(mended(&app).await, Rebuilt::default());
    assert_eq!((books(&app).await, rows(&app.database, VERSIONS).await), (before, versions));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capacity_that_a_damaged_balance_has_told_the_gate_is_right_again() {
    let app = used().await;
    as_owner(&app.database, "UPDATE balances SET available = available - 800 WHERE tenant = 'acme'")
        .await
        .unwrap();
    let lowered = json!({
        "tenant": "acme", "meter": "page", "amount": "1", "kind": "promotional", "expires_at": "2026-04-01T00:00:00Z"
    });
    app.post_keyed("/v1/admin/grants", "tells the gate", lowered).await.expect(201);
    app.use_pages("too much", 500).await.is_problem(402, "exceeds_plan");
    assert_eq!(mended(&app).await.balances, 1);
    app.use_pages("fits", 500).await.expect(201);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_that_is_booked_while_the_books_are_mended() {
    let app = used().await;
    let calls = async {
        for call in 0..150 {
            app.use_pages(&format!("call-{call}"), 1).await.expect(201);
        }
    };
    let mending = async {
        for damage in 0..6 {
            let sql = format!("UPDATE balances SET consumed = consumed + {damage} + 1 WHERE tenant = 'acme'");
            as_owner(&app.database, &sql).await.unwrap();
            assert!(mended(&app).await.balances > 0, "{damage}");
        }
    };
    tokio::join!(calls, mending);
    app.drained().await;
    let used = "SELECT consumed::float8 AS c FROM balances WHERE tenant = 'acme' AND meter = 'page'";
    assert_eq!(rows(&app.database, used).await, ["190"]);
    app.finish().await;
}

#[rstest::rstest]
#[case::the_writer("SELECT FROM cursors FOR UPDATE")]
#[case::a_job(
    "SELECT pg_advisory_xact_lock(hashtext('tollgate other chain'), chain) FROM generate_series(256, 511) chain"
)]
#[case::a_grant("SELECT FROM tenants FOR UPDATE")]
#[tokio::test(flavor = "multi_thread")]
async fn mending_waits_for_what_is_being_booked_of_the_partition(#[case] lock: &str) {
    let app = used().await;
    as_owner(&app.database, "UPDATE balances SET consumed = consumed + 3 WHERE tenant = 'acme'")
        .await
        .unwrap();
    let (books, connection) =
        tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    books.batch_execute(&format!("BEGIN; {lock}")).await.unwrap();
    let (ledger, now_ms) = (app.app().ledger.clone(), app.app().operations.now_ms());
    let mending =
        tokio::spawn(async move { rebuild(&ledger, VerifyOptions::default(), now_ms, "operator").await });
    let waiting = "SELECT count(*) AS n FROM pg_stat_activity \
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    wait_for("mending waits", Duration::from_secs(20), async || {
        (rows(&app.database, waiting).await == ["1"]).then_some(())
    })
    .await;
    assert!(!mending.is_finished());
    books.batch_execute("COMMIT").await.unwrap();
    assert_eq!(mending.await.unwrap().unwrap().balances, 1);
    drop(books);
    driver.await.unwrap().unwrap();
    app.app().operations.memory.send_untold_capacities().await.unwrap();
    assert!(is_clean(&app).await);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_mends_from_the_command_line() {
    let app = used().await;
    as_owner(&app.database, "UPDATE balances SET consumed = consumed + 3 WHERE tenant = 'other'")
        .await
        .unwrap();
    let found = app.command(&["verify", "--rebuild"]);
    assert_eq!(found.status.code(), Some(3), "{found:?}");
    let done = app.command(&["verify", "--rebuild", "--write", "--yes"]);
    let said = String::from_utf8(done.stdout.clone()).unwrap();
    assert!(said.contains("note: mended: balance other page"), "{said}");
    assert_eq!(done.status.code(), Some(0), "{said}");
    let refused = app.command(&["verify", "--write"]);
    assert_eq!(refused.status.code(), Some(2), "it goes with --rebuild");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_cannot_be_written_is_named_and_those_beside_it_are_mended() {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().with("gate.partitions", 1).start().await;
    app.with_plan(json!([day_of("1000")]), json!([quota_of("900")])).await;
    for tenant in ["a1", "b2", "c3"] {
        app.define(&format!("tenants/{tenant}"), json!({ "plan": "plan" })).await;
        app.post_keyed(USAGE, tenant, pages(9).of(tenant)).await.expect(201);
    }
    app.drained().await;
    let before = books(&app).await;
    let damage = "UPDATE balances SET consumed = consumed + 3, available = available - 3; \
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$; \
        CREATE TRIGGER refuse BEFORE UPDATE ON balances FOR EACH ROW WHEN (OLD.tenant = 'b2') EXECUTE FUNCTION refuse()";
    as_owner(&app.database, damage).await.unwrap();
    let done = mended(&app).await;
    let failed: Vec<_> = done.failed.iter().map(|one| format!("{} {}", one.what, one.detail)).collect();
    assert_eq!((failed.len(), done.balances), (1, 2), "{failed:?}");
    assert!(failed[0].contains("tenant b2") && failed[0].contains("not this one"), "{failed:?}");
    assert_eq!(done.differences.iter().filter(|one| one.what.contains("a1")).count(), 1, "named once");
    as_owner(&app.database, "DROP TRIGGER refuse ON balances").await.unwrap();
    assert_eq!(mended(&app).await.balances, 1);
    assert_eq!(books(&app).await, before);
    app.finish().await;
}
