//! Months of entries leave the books: their files, what is booked of them, and what the books say afterwards.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tollgate::ledger::Manner;
use tollgate::ledger::{
    DetachOptions, LedgerError, MonthOfEntries, VerifyOptions, check_archive, rebuild, verify,
};

use crate::http::corrections::follow;
use crate::http::events::{event, send};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::services::directory;

const GRACE: Duration = Duration::from_secs(3600);
const JULY: &str = "2026-07-01T00:00:00Z";
const LEFT: &str = "SELECT to_char(happened_at AT TIME ZONE 'UTC', 'MM') AS month, count(*) FROM entries \
    WHERE class = 'usage' GROUP BY 1 ORDER BY 1";

/// A tenant that has used pages in January and February and is in August now; everything until then is closed, billed
/// and archived.
async fn in_august() -> TestApp {
    let app = in_august_before_jobs().await;
    settle(&app, JULY).await;
    app
}

async fn in_august_before_jobs() -> TestApp {
    let app = an_app().at("2026-01-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    app.post_keyed(USAGE, "one", pages(7).by("ada")).await.expect(201);
    let open = app.hold("4").await;
    app.consume(&open, "3").await.expect(200);
    app.drained().await;
    let less = json!({
        "tenant": "acme", "meter": "page", "effect": "usage", "amount": "-1", "happened_at": "2026-01-10T12:00:00Z",
        "reason": "counted twice"
    });
    app.post_keyed("/v1/adjustments", "less", less).await.expect(201);
    follow(&app).await;
    // One that goes on over the edge of the months.
    app.move_clock("2026-01-31T23:59:50Z").await;
    let over = app.held(pages(9).by("ada").lasting(600)).await;
    app.resolve(&over, "consume", json!({ "amount": "2", "final": false })).await.expect(200);
    app.move_clock("2026-02-01T00:00:10Z").await;
    app.consume(&over, "6").await.expect(200);
    app.move_clock("2026-02-10T12:00:00Z").await;
    app.post_keyed(USAGE, "two", pages(60)).await;
    app.post_keyed(USAGE, "three", pages(5).by("ben")).await.expect(201);
    app.move_clock("2026-08-10T12:00:00Z").await;
    app.post_keyed(USAGE, "four", pages(1)).await.expect(201);
    app.drained().await;
    app
}

async fn settle(app: &TestApp, resolved_before: &str) {
    app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap();
    app.app().operations.statements.issue(Manner::default(), GRACE).await.unwrap();
    let before_ms = ms(resolved_before);
    app.app().ledger.archive_reservations(before_ms, before_ms, 100).await.unwrap();
}

fn ms(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

async fn detached(app: &TestApp, to: &Path, dry_run: bool) -> Result<Vec<MonthOfEntries>, LedgerError> {
    let options = DetachOptions {
        before: "2026-03-01".parse().unwrap(),
        kept_months: 4,
        now_ms: ms("2026-08-10T12:00:00Z"),
        directory: to.to_owned(),
        dry_run,
    };
    app.app().ledger.detach_months(&options).await
}

async fn with_two_months_detached() -> (TestApp, TempDir) {
    let (app, to) = (in_august().await, directory());
    let months = detached(&app, to.path(), false).await.unwrap();
    assert_eq!(months.len(), 2, "{months:?}");
    (app, to)
}

/// Every fault of the books, by name.
async fn faults(app: &TestApp) -> String {
    let report = verify(&app.app().ledger, VerifyOptions { rebuild: true, ..VerifyOptions::default() }).await;
    let report = report.unwrap();
    let faults = report.checks.iter().flat_map(|check| &check.faults);
    faults.map(|fault| format!("{}: {}\n", fault.what, fault.detail)).collect()
}

async fn archive_faults(app: &TestApp, to: &TempDir, month: &str) -> String {
    let check = check_archive(&app.app().ledger, &to.path().join(month)).await.unwrap();
    check.faults.iter().map(|fault| format!("{}: {}\n", fault.what, fault.detail)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn months_that_left_are_in_files_and_the_books_stay_proven() {
    let (app, to) = (in_august().await, directory());
    let before =
        rows(&app.database, "SELECT tenant, meter, period_start, consumed FROM balances ORDER BY 1, 2, 3")
            .await;
    let would = detached(&app, to.path(), true).await.unwrap();
    let said: Vec<_> =
        would.iter().map(|month| (month.month.to_string(), month.manifest.is_some())).collect();
    assert_eq!(said, [("2026-01-01".to_owned(), false), ("2026-02-01".to_owned(), false)]);
    assert_eq!(rows(&app.database, LEFT).await.len(), 3, "a dry run changes nothing");

    let may_leave = async |kept_months| {
        let months =
            app.app().ledger.months_to_detach(kept_months, ms("2026-08-10T12:00:00Z")).await.unwrap();
        months.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(may_leave(4).await, ["2026-01-01", "2026-02-01"]);
    assert_eq!(may_leave(6).await, ["2026-01-01"], "February has ended five months ago");
    let balances = app.get("/v1/reports/balances").await.expect(200).body;
    let months = detached(&app, to.path(), false).await.unwrap();
    assert!(months.iter().all(|month| month.entries > month.kept && month.kept > 0), "{months:?}");
    assert_eq!(rows(&app.database, LEFT).await, ["08 1"]);
    assert_eq!(faults(&app).await, "");
    for month in ["entries-2026-01-opening-1.json", "entries-2026-02-opening-2.json"] {
        assert_eq!(archive_faults(&app, &to, month).await, "");
    }
    let after =
        rows(&app.database, "SELECT tenant, meter, period_start, consumed FROM balances ORDER BY 1, 2, 3")
            .await;
    assert_eq!(after, before);
    assert!(detached(&app, to.path(), false).await.unwrap().is_empty(), "a second run finds nothing to do");
    assert_eq!(may_leave(4).await, [""; 0]);
    // Balances are as they were, and are read as of no instant before the last entry that left was booked.
    let then = balances["as_of"].as_str().unwrap();
    let now = app.get(&format!("/v1/reports/balances?at={then}")).await.expect(200).body;
    assert_eq!(now["data"], balances["data"]);
    let long_ago = app.get("/v1/reports/balances?at=2020-01-01T00:00:00Z").await;
    long_ago.is_problem(400, "invalid_request");
    assert!(long_ago.body["detail"].as_str().unwrap().contains("have left the books"), "{long_ago:?}");
    // Lists say from when on they are whole.
    let all = app.get("/v1/tenants/acme/entries").await.expect(200);
    assert_eq!(all.header("entries-held-from"), "2026-03-01T00:00:00Z");
    let recent = app.get("/v1/reports/entries?from=2026-03-01T00:00:00Z").await.expect(200);
    assert!(!recent.headers.contains_key("entries-held-from"), "{recent:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_corrected_of_a_month_that_left_is_booked_and_proven() {
    let (app, _to) = with_two_months_detached().await;
    let correction = json!({
        "tenant": "acme", "meter": "page", "effect": "usage", "amount": "-2", "happened_at": "2026-01-10T12:00:00Z",
        "reason": "counted twice"
    });
    app.post_keyed("/v1/adjustments", "late", correction).await.expect(201);
    assert_eq!(faults(&app).await, "");
    let january = "SELECT count(*) FROM entries WHERE happened_at < '2026-02-01' AND class = 'correction'";
    assert_eq!(rows(&app.database, january).await, ["1"]);
    app.use_pages("more", "1").await.expect(201);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fact_that_comes_once_its_month_has_left_is_booked_and_proven() {
    let app = an_app().at("2026-07-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    app.post_keyed(USAGE, "one", pages(7).by("ada")).await.expect(201);
    app.move_clock("2026-08-10T12:00:00Z").await;
    app.post_keyed(USAGE, "two", pages(1)).await.expect(201);
    app.drained().await;
    settle(&app, "2026-08-01T00:00:00Z").await;
    let to = directory();
    let options = DetachOptions {
        before: "2026-08-01".parse().unwrap(),
        kept_months: 0,
        now_ms: ms("2026-08-10T12:00:00Z"),
        directory: to.path().to_owned(),
        dry_run: false,
    };
    assert_eq!(app.app().ledger.detach_months(&options).await.unwrap().len(), 1);
    send(&app, &event("late", 3, Some("2026-07-12T09:00:00Z"))).await;
    app.drained().await;
    let late = "SELECT amount::float8 FROM entries WHERE happened_at < '2026-08-01' AND debit = 'consumed'";
    assert_eq!(rows(&app.database, late).await, ["3"]);
    assert_eq!(faults(&app).await, "");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_month_is_read_while_no_other_can_be_booked() {
    let (app, to) = (in_august().await, directory());
    let refuse = "CREATE FUNCTION refuse_under_lock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
            IF EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'entries'::regclass AND mode = 'AccessExclusiveLock') THEN \
                RAISE EXCEPTION 'all months are locked'; \
            END IF; RETURN NEW; END $$";
    as_owner(&app.database, refuse).await.unwrap();
    for table in ["opening_balances", "opening_operations", "opening_usage", "opening_chains", "openings"] {
        let trigger = format!(
            "CREATE TRIGGER refuse_under_lock BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION refuse_under_lock()"
        );
        as_owner(&app.database, &trigger).await.unwrap();
    }
    assert_eq!(detached(&app, to.path(), false).await.unwrap().len(), 2);
    assert_eq!(faults(&app).await, "");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn derived_tables_are_mended_from_what_is_booked_of_months_that_left() {
    let (app, _to) = with_two_months_detached().await;
    let broken = "UPDATE balances SET consumed = consumed + 1 WHERE period_start < '2026-02-01'; \
                  UPDATE usage_hourly SET count = count + 1 WHERE hour_at < '2026-02-01'";
    as_owner(&app.database, broken).await.unwrap();
    assert!(faults(&app).await.contains("balance acme page 2026-01-01"));
    let mended = rebuild(&app.app().ledger, VerifyOptions::default(), ms("2026-08-10T12:00:00Z"), "test")
        .await
        .unwrap();
    assert_eq!((mended.balances, mended.failed.len()), (1, 0));
    assert_eq!(faults(&app).await, "");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_line_of_a_file_is_named() {
    let (app, to) = with_two_months_detached().await;
    let path = to.path().join("entries-2026-01-opening-1.csv");
    let whole = std::fs::read_to_string(&path).unwrap();
    let changed = whole.lines().nth(2).unwrap();
    let entry: Vec<&str> = changed.split(',').take(5).collect();
    let other = changed.replacen(".000000000", ".500000000", 1);
    std::fs::write(&path, whole.replace(changed, &other)).unwrap();
    let found = archive_faults(&app, &to, "entries-2026-01-opening-1.json").await;
    let named = format!(
        "entry {} {} step {} line {} leg {} in line 3",
        entry[0], entry[1], entry[2], entry[3], entry[4]
    );
    assert!(found.starts_with(&named), "{named}\n{found}");
    assert!(found.contains("SHA-256"), "{found}");
    let missing = whole.replace(&format!("{changed}\n"), "");
    std::fs::write(&path, missing).unwrap();
    let found = archive_faults(&app, &to, "entries-2026-01-opening-1.json").await;
    assert!(found.contains("in line 3: was changed") && found.contains("left the books"), "{found}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_changed_of_an_opening_is_named() {
    let (app, _to) = with_two_months_detached().await;
    for (table, change, back, named) in [
        (
            "opening_balances",
            "SET consumed = consumed + 1",
            "SET consumed = consumed - 1",
            "balance acme page 2026-01-01",
        ),
        ("opening_usage", "SET late = late + 1", "SET late = late - 1", "usage acme page 2026-01"),
        ("opening_operations", "SET consumed = consumed + 1", "SET consumed = consumed - 1", "reservation "),
        ("opening_chains", "SET number = number + 1", "SET number = number - 1", "opening 1 of 2026-01"),
        ("openings", "SET entries = entries + 1", "SET entries = entries - 1", "opening 1 of 2026-01"),
        ("entries", "SET amount = amount + 1", "SET amount = amount - 1", "batch"),
    ] {
        let of =
            if table == "entries" { " WHERE class = 'period' AND happened_at < '2026-03-02'" } else { "" };
        let as_superuser = |set: &str| {
            format!(
                "SET session_replication_role = replica; UPDATE {table} {set}{of}; RESET session_replication_role"
            )
        };
        as_owner(&app.database, &as_superuser(change)).await.unwrap();
        let found = faults(&app).await;
        assert!(found.contains(named), "{table}: {found}");
        as_owner(&app.database, &as_superuser(back)).await.unwrap();
        assert_eq!(faults(&app).await, "", "{table}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detachment_that_breaks_off_leaves_the_books_as_they_were_and_is_repeated() {
    let (app, to) = (in_august().await, directory());
    let missing = to.path().join("missing");
    assert!(detached(&app, &missing, false).await.unwrap_err().to_string().contains("cannot be written"));
    for table in
        ["opening_balances", "opening_operations", "opening_usage", "entries", "opening_chains", "openings"]
    {
        // What is checked for entries are the rows that are brought back.
        let refuse = format!("ALTER TABLE {table} ADD CONSTRAINT broken CHECK (false) NOT VALID");
        as_owner(&app.database, &refuse).await.unwrap();
        assert!(detached(&app, to.path(), false).await.is_err(), "{table}");
        as_owner(&app.database, &format!("ALTER TABLE {table} DROP CONSTRAINT broken")).await.unwrap();
        assert_eq!(rows(&app.database, LEFT).await.len(), 3, "{table}");
        assert_eq!(faults(&app).await, "", "{table}");
    }
    assert_eq!(detached(&app, to.path(), false).await.unwrap().len(), 2);
    assert_eq!(faults(&app).await, "");
    assert_eq!(archive_faults(&app, &to, "entries-2026-01-opening-1.json").await, "");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_month_waits_for_its_periods_and_reservations_and_those_after_it_wait_too() {
    let (app, to) = (in_august_before_jobs().await, directory());
    let waits = async || {
        let months = detached(&app, to.path(), false).await.unwrap();
        assert_eq!(months.len(), 1, "{months:?}");
        months[0].waits.clone().unwrap_or_default()
    };
    assert!(waits().await.contains("is not closed"));
    app.app().operations.periods.close(Manner::default(), GRACE).await.unwrap();
    assert!(waits().await.contains("is not billed"));
    app.app().operations.statements.issue(Manner::default(), GRACE).await.unwrap();
    assert!(waits().await.contains("is not archived"));
    settle(&app, JULY).await;
    assert_eq!(detached(&app, to.path(), false).await.unwrap().len(), 2);
    app.finish().await;
}
