//! `/v1/adjustments`: corrections that finance posts, in the books, in statements and in reports.

use rstest::rstest;
use serde_json::{Value, json};

use super::events::{event, send};
use super::in_use::{connect, hold_up_the_writer, waits_for_the_lock};
use super::statements::{amounts, draft, price};
use crate::jobs::statements::{ISSUED, faults, in_march, per_page, run, statement};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::process::tollgate;

pub const ADJUSTMENTS: &str = "/v1/adjustments";
const REPORT: &str = "/v1/reports/adjustments";
const ENTRIES: &str = "SELECT to_char(period_start AT TIME ZONE 'UTC', 'YYYY-MM') AS period, credit, debit, amount::float8 AS a, \
    class, happened_at AT TIME ZONE 'UTC' AS at FROM entries WHERE 'adjusted' IN (credit, debit) ORDER BY booked_at, amount";

/// So many pages of acme, at the middle of March.
fn of_march(amount: &str) -> Value {
    json!({
        "tenant": "acme", "meter": "page", "effect": "usage", "amount": amount, "happened_at": "2026-03-15T10:20:00Z",
        "reason": "counted twice", "reference": "ticket 1"
    })
}

/// A tenant that used eighty pages in March and twenty by the second of April, where March is closed and billed.
async fn after_march(prices: Value) -> TestApp {
    let app = in_march(prices).await;
    app.define("plans/plan", json!({ "quotas": [quota_of("100").with("mode", "soft")] })).await;
    app.use_pages("march", 80).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    app.use_pages("april", 20).await.expect(201);
    app.drained().await;
    app
}

/// Consumed and remaining pages.
pub async fn pages_left(app: &TestApp) -> [String; 2] {
    let quota = app.quota().await;
    ["consumed", "remaining"].map(|field| quota.text(&format!("/quotas/0/{field}")).to_owned())
}

async fn posted(app: &TestApp, key: &str, body: Value) -> Value {
    app.post_keyed(ADJUSTMENTS, key, body).await.expect(201).body
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_of_a_closed_period_is_corrected_in_the_open_one_apart_from_its_allowance_and_billed_by_a_note()
{
    let app = after_march(json!([per_page("1")])).await;
    let less = posted(&app, "less", of_march("-30")).await;
    for (field, expected) in [
        ("status", "booked"),
        ("amount", "-30"),
        ("booked_amount", "-30"),
        ("period_start", "2026-03-01T00:00:00Z"),
        ("booked_in", "2026-04-01T00:00:00Z"),
        ("happened_at", "2026-03-15T10:20:00Z"),
        ("reference", "ticket 1"),
    ] {
        assert_eq!(less[field], expected, "{field}: {less}");
    }
    posted(&app, "more", of_march("5")).await;
    let booked = [
        "2026-04 consumed adjusted 30 correction 2026-03-15T10:20:00",
        "2026-04 adjusted consumed 5 correction 2026-03-15T10:20:00",
    ];
    assert_eq!(rows(&app.database, ENTRIES).await, booked);
    assert_eq!(pages_left(&app).await, ["20", "80"], "the allowance of April is untouched");
    assert_eq!(app.quota().await.text("/quotas/0/adjusted"), "-25");
    assert_eq!(amounts(&draft(&app).await), ["20.00"], "March is not billed with April");
    let usage = "/v1/tenants/acme/usage?granularity=hour&from=2026-03-15T00:00:00Z&to=2026-03-16T00:00:00Z";
    let hour = app.get(usage).await.expect(200).body;
    assert_eq!(
        (&hour["data"][0]["start"], &hour["data"][0]["consumed"], &hour["data"][0]["corrections"]),
        (&json!("2026-03-15T10:00:00Z"), &json!("0"), &json!("-25"))
    );
    let top = app.get("/v1/reports/top?meter=page&from=2026-03-01T00:00:00Z").await.expect(200).body;
    let ranked = &top["data"][0];
    assert_eq!((&ranked["consumed"], &ranked["corrections"]), (&json!("100"), &json!("-25")));
    app.move_clock("2026-05-02T12:00:00Z").await;
    let issued = run(&app).await;
    assert_eq!((issued.statements, issued.notes), (1, 1));
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 80", "2 2026-04 20", "3 1 2026-03 -25"]);
    let line = json!([{ "kind": "usage", "meter": "page", "billed": "80.00", "corrected": "55.00", "amount": "-25.00" }]);
    assert_eq!(statement(&app, 3).await["lines"], line);
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_just_came_late_for_a_closed_period_may_be_taken_back_before_it_is_booked() {
    let app = after_march(json!([])).await;
    let holder = hold_up_the_writer(&app).await;
    let (answer, ()) = tokio::join!(app.post_keyed(ADJUSTMENTS, "less", of_march("-90")), async {
        waits_for_the_lock(&connect(&app).await, "cursors").await;
        send(&app, &event("late", 15, Some("2026-03-20T10:00:00Z"))).await.expect(202);
        holder.batch_execute("ROLLBACK").await.unwrap();
    });
    assert_eq!(answer.expect(201).text("/status"), "booked");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_open_period_may_be_corrected_below_its_own_use_and_nothing_of_it_is_lost_at_its_close() {
    let app = after_march(json!([per_page("1")])).await;
    posted(&app, "all", of_march("-80")).await;
    app.post_keyed(ADJUSTMENTS, "one too many", of_march("-1")).await.is_problem(422, "validation_failed");
    send(&app, &event("late", 3, Some("2026-03-20T10:00:00Z"))).await;
    app.drained().await;
    posted(&app, "what came late too", of_march("-3")).await;
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 80", "2 2026-04 20", "3 1 2026-03 -80"]);
    let closed = "SELECT lapsed::float8 AS l, rolled::float8 AS r, overage::float8 AS o FROM period_closures \
        WHERE period_start >= '2026-04-01' AND meter = 'page'";
    // The three late pages burn the quota of April, where they stand.
    assert_eq!(
        rows(&app.database, closed).await,
        ["77 0 0"],
        "by what was used of the quota, not by what is adjusted"
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_taken_back_of_overage_is_credited_first() {
    let beyond = price(json!({ "model": "per_unit", "unit": "1", "charge_on": "overage" }));
    let app = in_march(json!([beyond])).await;
    app.define("plans/plan", json!({ "quotas": [quota_of("50").with("mode", "soft")] })).await;
    app.use_pages("march", 60).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    run(&app).await;
    posted(&app, "less", of_march("-4")).await;
    app.use_pages("april", 55).await.expect(201);
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    posted(&app, "much less", of_march("-20")).await;
    app.move_clock("2026-06-02T12:00:00Z").await;
    run(&app).await;
    let issued = ["1 2026-03 10", "2 2026-04 5", "3 1 2026-03 -4", "4 2026-05 0", "5 1 2026-03 -6"];
    assert_eq!(rows(&app.database, ISSUED).await, issued);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_one_is_booked_once_another_person_approves_it() {
    let app = after_march(json!([per_page("1")])).await;
    let (clerk, clerk_id) = app.make_named_key("finance").await;
    let (chief, chief_id) = app.make_named_key("finance").await;
    let large = clerk.post_keyed(ADJUSTMENTS, "k", of_march("1000.5")).await;
    large.is_problem(422, "validation_failed");
    assert_eq!(large.pointers(), ["/amount"], "pages are whole");
    let made = clerk.post_keyed(ADJUSTMENTS, "k", of_march("1001")).await.expect(201).body;
    assert_eq!(
        (&made["status"], &made["booked_at"], &made["posted_by"]),
        (&json!("pending"), &json!(null), &json!(clerk_id))
    );
    assert_eq!(rows(&app.database, ENTRIES).await, [""; 0], "nothing is booked yet");
    let path = format!("{ADJUSTMENTS}/{}", made["id"].as_str().unwrap());
    let own = clerk.post(&format!("{path}/approve"), json!({})).await;
    own.is_problem(403, "forbidden");
    assert!(own.text("/detail").contains("another person"), "{own:?}");
    let approved = chief.post(&format!("{path}/approve"), json!({})).await.expect(200).body;
    assert_eq!((&approved["status"], &approved["decided_by"]), (&json!("booked"), &json!(chief_id)));
    let again = chief.post(&format!("{path}/approve"), json!({})).await.expect(200).body;
    assert_eq!((&again["replayed"], &again["booked_at"]), (&json!(true), &approved["booked_at"]));
    assert_eq!(rows(&app.database, ENTRIES).await.len(), 1);
    chief.post(&format!("{path}/decline"), json!({})).await.is_problem(409, "already_resolved");
    let other = clerk.post_keyed(ADJUSTMENTS, "other", of_march("2000")).await.expect(201).body;
    let path = format!("{ADJUSTMENTS}/{}", other["id"].as_str().unwrap());
    let declined = clerk.post(&format!("{path}/decline"), json!({})).await.expect(200).body;
    assert_eq!(declined["status"], "declined", "who posted it may take it back");
    chief.post(&format!("{path}/approve"), json!({})).await.is_problem(409, "already_resolved");
    let audit = app.get("/v1/admin/audit?object_kind=adjustment").await.expect(200).body;
    let actions: Vec<_> = audit["data"].as_array().unwrap().iter().map(|row| row["action"].clone()).collect();
    assert_eq!(actions, ["decline", "create", "approve", "create"], "{audit}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_posts_one_adjustment_and_finance_and_administrators_do() {
    let app = after_march(json!([])).await;
    app.post(ADJUSTMENTS, of_march("-1")).await.is_problem(400, "idempotency_key_required");
    let first = posted(&app, "k", of_march("-1")).await;
    let again = app.post_keyed(ADJUSTMENTS, "k", of_march("-1")).await.expect(200).body;
    assert_eq!((&again["id"], &again["replayed"]), (&first["id"], &json!(true)));
    app.post_keyed(ADJUSTMENTS, "k", of_march("-2")).await.is_problem(422, "idempotency_key_reused");
    assert_eq!(rows(&app.database, ENTRIES).await.len(), 1);
    for role in ["service", "tenant"] {
        let tenant = Some("acme").filter(|_| role == "tenant");
        let key = app.make_key(role, tenant).await;
        key.post_keyed(ADJUSTMENTS, "x", of_march("-1")).await.is_problem(403, "forbidden");
        key.get(ADJUSTMENTS).await.is_problem(403, "forbidden");
    }
    let found = app.get(&format!("{ADJUSTMENTS}/{}", first["id"].as_str().unwrap())).await.expect(200).body;
    assert_eq!(found["id"], first["id"]);
    for unknown in ["x", "00000000-0000-0000-0000-000000000000"] {
        app.get(&format!("{ADJUSTMENTS}/{unknown}")).await.is_problem(404, "not_found");
    }
    app.finish().await;
}

#[rstest]
#[case::no_amount("/amount", json!({ "amount": "0" }))]
#[case::no_number("/amount", json!({ "amount": "1e3" }))]
#[case::no_meter("/meter", json!({ "meter": "none" }))]
#[case::no_tenant("/tenant", json!({ "tenant": "nobody" }))]
#[case::no_reason("/reason", json!({ "reason": "" }))]
#[case::a_reason_that_turns_what_follows_it("/reason", json!({ "reason": "less \u{202e}00.51" }))]
#[case::a_reference_that_turns_what_follows_it("/reference", json!({ "reference": "\u{2067}4711" }))]
#[case::no_effect("/effect", json!({ "effect": "favour" }))]
#[case::to_come("/happened_at", json!({ "happened_at": "2026-04-03T00:00:00Z" }))]
#[case::of_an_hour_of_the_open_period_without_use("/amount", json!({ "happened_at": "2026-04-01T10:00:00Z" }))]
#[case::of_nothing("/corrects", json!({ "corrects": "00000000-0000-0000-0000-000000000000" }))]
#[case::below_zero("/amount", json!({ "amount": "-81" }))]
#[case::unknown_field("/why", json!({ "why": "x" }))]
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_booked_is_refused_and_named(#[case] named: &str, #[case] change: Value) {
    let app = after_march(json!([])).await;
    let mut body = of_march("-1");
    for (field, value) in change.as_object().unwrap() {
        body[field] = value.clone();
    }
    let refused = app.post_keyed(ADJUSTMENTS, "k", body).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!(refused.pointers(), [named], "{refused:?}");
    assert_eq!(rows(&app.database, "SELECT id FROM adjustments").await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_with_history_posts_its_opening_balances_and_no_statement_bills_them() {
    let app = in_march(json!([per_page("1")])).await;
    let mut opening = of_march("700");
    opening["happened_at"] = json!("2024-06-30T12:00:00Z");
    opening["reason"] = json!("opening balance");
    let booked = posted(&app, "opening-page", opening).await;
    assert_eq!(
        (&booked["period_start"], &booked["booked_in"]),
        (&json!("2024-06-01T00:00:00Z"), &json!("2026-03-01T00:00:00Z"))
    );
    app.use_pages("march", 7).await.expect(201);
    app.drained().await;
    assert_eq!(amounts(&draft(&app).await), ["7.00"]);
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    assert_eq!(rows(&app.database, ISSUED).await, ["1 2026-03 7", "2 2026-04 0"]);
    let used = app.get("/v1/tenants/acme/usage?from=2024-01-01T00:00:00Z").await.expect(200).body;
    assert_eq!((&used["data"][0]["consumed"], &used["data"][0]["corrections"]), (&json!("7"), &json!("700")));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adjustments_are_listed_by_filters_in_pages_and_reported_as_files() {
    let app = after_march(json!([])).await;
    for (key, amount) in [("a", "-1"), ("b", "2"), ("c", "3000")] {
        posted(&app, key, of_march(amount)).await;
    }
    let amounts = |body: &Value| -> Vec<String> {
        body["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["amount"].as_str().unwrap().to_owned())
            .collect()
    };
    for path in [ADJUSTMENTS, REPORT] {
        let all = app.get(path).await.expect(200).body;
        assert_eq!(all["data"].as_array().unwrap().len(), 3);
        let pending =
            app.get(&format!("{path}?status=pending&tenant=acme&meter=page&effect=usage")).await.expect(200);
        assert_eq!(amounts(&pending.body), ["3000"]);
        let page = app.get(&format!("{path}?limit=2")).await.expect(200);
        let next = page.text("/next_cursor").to_owned();
        let rest = app.get(&format!("{path}?limit=2&cursor={next}")).await.expect(200).body;
        assert_eq!([amounts(&page.body), amounts(&rest)].concat(), amounts(&all));
        assert_eq!(
            amounts(&app.get(&format!("{path}?to=2026-04-01T00:00:00Z")).await.expect(200).body),
            [""; 0]
        );
        app.get(&format!("{path}?status=done")).await.is_problem(400, "invalid_request");
    }
    let file = app.get(&format!("{REPORT}?format=csv&status=pending")).await.expect(200);
    let lines: Vec<_> = file.body.as_str().unwrap().lines().collect();
    assert!(lines[0].starts_with("id,tenant,meter,effect,amount,booked_amount,happened_at,"), "{lines:?}");
    assert!(
        lines[1].contains(",acme,page,usage,3000,,2026-03-15T10:20:00Z,,,,counted twice,ticket 1,pending,"),
        "{lines:?}"
    );
    app.get(&format!("{REPORT}?format=xlsx")).await.expect(200);
    let bound = app.make_key("finance", Some("acme")).await;
    assert_eq!(bound.get(REPORT).await.expect(200).body["data"].as_array().unwrap().len(), 3);
    bound.get(&format!("{REPORT}?tenant=other")).await.is_problem(403, "forbidden");
    bound.get(ADJUSTMENTS).await.is_problem(403, "forbidden");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_changed_of_adjustments_is_found_and_named() {
    let app = after_march(json!([per_page("1")])).await;
    posted(&app, "less", of_march("-30")).await;
    assert_eq!(faults(&app).await, [""; 0]);
    for (change, undo, named) in [
        (
            "UPDATE adjustments SET booked_amount = -29",
            "UPDATE adjustments SET booked_amount = -30",
            "is booked with -29.000000000, by 1 entries -30",
        ),
        (
            "UPDATE corrections SET adjusted = adjusted + 1",
            "UPDATE corrections SET adjusted = adjusted - 1",
            "are 0.000000000 and -29.000000000 adjusted, by entries 0 and -30.000000000",
        ),
        (
            "UPDATE usage_hourly SET corrections = corrections + 1",
            "UPDATE usage_hourly SET corrections = corrections - 1",
            "hourly usage follows from entries",
        ),
        (
            "UPDATE balances SET adjusted = adjusted + 1",
            "UPDATE balances SET adjusted = adjusted - 1",
            "balances follow from entries",
        ),
    ] {
        as_owner(&app.database, change).await.unwrap();
        let found = faults(&app).await;
        assert!(found.iter().any(|fault| fault.contains(named)), "{change}: {found:?}");
        as_owner(&app.database, undo).await.unwrap();
    }
    assert_eq!(faults(&app).await, [""; 0]);
    app.finish().await;
}

/// So many pages of the current allowance.
pub fn allowance(amount: &str) -> Value {
    let mut body = of_march(amount);
    body["effect"] = json!("allowance");
    body
}

/// A tenant with a hard quota of fifty pages and two grants: twenty pages that burn before the quota, and thirty that
/// burn after it.
async fn with_grants() -> TestApp {
    let app = an_app().at("2026-03-16T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    for (key, amount, priority) in [("first", "20", 10), ("last", "30", 90)] {
        let grant = json!({
            "tenant": "acme", "meter": "page", "amount": amount, "kind": "promotional", "priority": priority,
            "expires_at": "2026-04-01T00:00:00Z"
        });
        app.post_keyed("/v1/admin/grants", key, grant).await.expect(201);
    }
    app.drained().await;
    app
}

/// What is left of each grant, by its priority.
pub async fn grants_left(app: &TestApp) -> Vec<(i64, String)> {
    let quota = app.quota().await;
    let grants = quota.body["quotas"][0]["grants"].as_array().unwrap().clone();
    grants
        .iter()
        .map(|grant| (grant["priority"].as_i64().unwrap(), grant["remaining"].as_str().unwrap().to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn more_allowance_is_a_grant_until_the_period_ends_that_names_the_adjustment() {
    let app = with_grants().await;
    app.use_pages("all", 100).await.expect(201);
    app.use_pages("more", 1).await.is_problem(429, "quota_exceeded");
    let booked = posted(&app, "more", allowance("5")).await;
    assert_eq!((&booked["status"], &booked["booked_amount"]), (&json!("booked"), &json!("5")));
    app.use_pages("more", 5).await.expect(201);
    app.use_pages("beyond", 1).await.is_problem(429, "quota_exceeded");
    let grant =
        app.get(&format!("/v1/admin/grants/{}", booked["granted"][0].as_str().unwrap())).await.expect(200);
    assert_eq!((grant.text("/amount"), grant.text("/expires_at")), ("5", "2026-04-01T00:00:00Z"));
    let reason = format!("adjustment {}: counted twice", booked["id"].as_str().unwrap());
    assert_eq!(grant.text("/reason"), reason);
    app.post_keyed(ADJUSTMENTS, "more", allowance("5")).await.expect(200);
    app.use_pages("still beyond", 1).await.is_problem(429, "quota_exceeded");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn less_allowance_voids_grants_against_the_burn_order_and_grants_again_what_was_beyond_it() {
    let app = with_grants().await;
    app.use_pages("some", 5).await.expect(201);
    app.drained().await;
    assert_eq!(grants_left(&app).await, [(10, "15".to_owned()), (90, "30".to_owned())]);
    let refused = app.post_keyed(ADJUSTMENTS, "too much", allowance("-46")).await;
    refused.is_problem(422, "validation_failed");
    assert!(refused.text("/detail").contains("45 is left of the grants"), "{refused:?}");
    let mut booked = posted(&app, "less", allowance("-40")).await;
    let id = booked["id"].as_str().unwrap().to_owned();
    for _ in 0..20 {
        if booked["status"] == "booked" {
            break;
        }
        app.drained().await;
        app.app().operations.adjustments.follow().await.unwrap();
        app.app().operations.grants.follow().await.unwrap();
        booked = app.get(&format!("{ADJUSTMENTS}/{id}")).await.expect(200).body;
    }
    assert_eq!((&booked["status"], &booked["booked_amount"]), (&json!("booked"), &json!("-40")), "{booked}");
    assert_eq!(
        (booked["voided"].as_array().unwrap().len(), booked["granted"].as_array().unwrap().len()),
        (2, 1)
    );
    app.drained().await;
    assert_eq!(grants_left(&app).await, [(10, "5".to_owned())], "on the terms of the one that had it");
    assert_eq!(pages_left(&app).await, ["5", "55"]);
    app.use_pages("rest", 55).await.expect(201);
    app.use_pages("beyond", 1).await.is_problem(429, "quota_exceeded");
    app.app().operations.adjustments.follow().await.unwrap();
    assert_eq!(app.get(&format!("{ADJUSTMENTS}/{id}")).await.expect(200).body, booked, "once");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allowance_needs_a_quota_and_what_is_posted_is_read_in_a_terminal() {
    let app = with_grants().await;
    let mut tokens = allowance("5");
    tokens["meter"] = json!("token");
    let refused = app.post_keyed(ADJUSTMENTS, "tokens", tokens).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!(refused.pointers(), ["/meter"]);
    posted(&app, "large", allowance("1001")).await;
    let listed = app.get(&format!("{REPORT}?effect=allowance&status=pending")).await.expect(200).body;
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    let mut command =
        tollgate(&["report", "adjustments", "--status", "pending", "--meter", "page", "--output", "csv"]);
    command.args(["--url", app.url()]).env("TOLLGATE_ADMIN_KEY", app.key());
    let read = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let table = String::from_utf8(read.stdout).unwrap();
    assert!(table.lines().nth(1).is_some_and(|row| row.contains(",acme,page,allowance,1001,")), "{table}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_adjusted_burns_nothing_of_the_period_in_which_it_is_booked() {
    let app = in_march(json!([])).await;
    let quota = quota_of("100").with("mode", "soft").with("max_rollover", "50");
    app.define("plans/plan", json!({ "quotas": [quota] })).await;
    app.use_pages("march", 80).await.expect(201);
    app.move_clock("2026-04-02T12:00:00Z").await;
    app.use_pages("april", 20).await.expect(201);
    run(&app).await;
    let grant = json!({
        "tenant": "acme", "meter": "page", "amount": "30", "kind": "promotional", "priority": 90,
        "expires_at": "2026-05-01T00:00:00Z"
    });
    let grant = app.post_keyed("/v1/admin/grants", "g", grant).await.expect(201);
    app.drained().await;
    let before = (pages_left(&app).await, grants_left(&app).await);
    assert_eq!(before, (["20".to_owned(), "130".to_owned()], vec![(90, "30".to_owned())]));
    posted(&app, "more", of_march("125")).await;
    assert_eq!((pages_left(&app).await, grants_left(&app).await), before);
    app.post(&format!("/v1/admin/grants/{}/void", grant.text("/id")), json!({})).await.expect(200);
    app.drained().await;
    app.app().operations.grants.follow().await.unwrap();
    app.drained().await;
    app.app().operations.grants.follow().await.unwrap();
    let voided = app.get(&format!("/v1/admin/grants/{}", grant.text("/id"))).await.expect(200);
    assert_eq!(voided.text("/unburnt"), "30");
    app.app().ledger.raise_quota_notices(app.app().operations.now_ms(), 100).await.unwrap();
    let april = "SELECT percent FROM quota_notices WHERE period_start >= '2026-04-01'";
    assert_eq!(rows(&app.database, april).await, [""; 0]);
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    let closed = "SELECT rolled::float8 AS r, lapsed::float8 AS l FROM period_closures \
        WHERE period_start >= '2026-04-01' AND meter = 'page'";
    assert_eq!(rows(&app.database, closed).await, ["50 50"]);
    app.finish().await;
}
