//! A next period that is opened ahead follows policy until it begins: what it serves and books never depends on when it
//! was opened, nor on when jobs run.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use crate::ledger::rows;
use crate::support::app::*;
use crate::support::wait::wait_for;

const GRACE: Duration = Duration::from_secs(3600);
/// What April opened with.
const TERMS: &str = "SELECT included::float8 AS i, overdraft::float8 AS o, max_rollover::float8 AS m, min_rollover::float8 AS n, \
    rollover_periods AS p, reroll AS r, preserve_overage AS k, notices_percent AS t FROM quota_periods \
    WHERE period_start = '2026-04-01Z'";
/// What is booked in April, but for what was taken back of what its opening granted.
const BOOKS: &str = "SELECT b.granted::float8 AS g, b.available::float8 AS a, b.voided::float8 AS v, s.granted::float8 AS e, s.others AS o \
    FROM balances b CROSS JOIN LATERAL (SELECT sum(CASE e.credit WHEN 'granted' THEN e.amount ELSE -e.amount END) AS granted, \
        count(*) FILTER (WHERE 'granted' NOT IN (e.credit, e.debit) OR e.happened_at <> e.period_start) AS others \
        FROM entries e WHERE e.tenant = b.tenant AND e.period_start = b.period_start AND e.class = 'grant') s \
    WHERE b.tenant = 'acme' AND b.period_start = '2026-04-01Z'";

/// What makes policy say something else.
#[derive(Debug, Clone, Copy)]
enum By {
    /// The tenant's plan.
    Tenant,
    /// What the plan says.
    Plan,
    /// A policy file that alters the plan.
    File,
    /// An approved request for a plan from the next period on.
    Request,
}

/// When the job that opens next periods runs, and what follows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    /// Before policy changes, and once more before April begins.
    Before,
    /// Before policy changes, and again only once April has begun and was used.
    Late,
    /// Only after policy has changed: then April opens with what it says.
    After,
    /// Not at all: April opens at its first use.
    Never,
}

/// Tenant `acme` on `plan`, with this quota and twenty pages used in March; in UTC, on the last day of March, where no
/// job runs by itself. The plan `next` has the other quotas.
async fn on(quota: &Value, next: &Value) -> TestApp {
    let app = an_app().at("2026-03-31T11:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota])).await;
    app.define("plans/next", json!({ "quotas": next })).await;
    app.use_pages("march", "20").await.expect(201);
    app.drained().await;
    app
}

async fn open_ahead(app: &TestApp) {
    app.app().operations.memory.open_next_periods().await.unwrap();
}

async fn change(app: &TestApp, by: By, next: &Value) {
    match by {
        By::Tenant => {
            app.define("tenants/acme", json!({ "plan": "next" })).await;
        }
        By::Plan => {
            app.define("plans/plan", json!({ "quotas": next })).await;
        }
        By::File => {
            let file = json!({ "policy": { "plans": [{ "id": "plan", "quotas": next }] } });
            app.post("/v1/admin/policy", file).await.expect(200);
        }
        By::Request => {
            let ask = json!({ "plan": "next" });
            let made = app.post("/v1/tenants/acme/upgrade-requests", ask).await.expect(201);
            let path = format!("/v1/admin/upgrade-requests/{}/approve", made.text("/id"));
            app.post(&path, json!({ "effective": "next_period" })).await.expect(200);
        }
    }
}

/// Has policy change at noon of the last day of March, and the jobs run as they do. Then it is April.
async fn into_april(app: &TestApp, by: By, next: &Value, runs: Runs) {
    if matches!(runs, Runs::Before | Runs::Late) {
        open_ahead(app).await;
    }
    app.move_clock("2026-03-31T12:00:00Z").await;
    change(app, by, next).await;
    if matches!(runs, Runs::Before | Runs::After) {
        app.move_clock("2026-03-31T13:00:00Z").await;
        open_ahead(app).await;
    }
    app.move_clock("2026-04-01T00:00:00Z").await;
    app.app().operations.upgrades.follow().await.unwrap();
}

/// All jobs that may have something to do, an hour after April has begun.
async fn all_jobs(app: &TestApp) {
    app.move_clock("2026-04-01T02:00:00Z").await;
    app.drained().await;
    all_jobs_now(app).await;
}

fn soft(included: &str) -> Value {
    quota_of(included).with("mode", "soft")
}

fn hard(included: &str) -> Value {
    quota_of(included)
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_mode_that_changes_before_a_period_begins_holds_in_it(
    #[values(By::Tenant, By::Plan, By::File, By::Request)] by: By,
    #[values(Runs::Before, Runs::After)] runs: Runs,
    #[values(true, false)] hardens: bool,
) {
    let (was, will_be) = if hardens { (soft("50"), hard("50")) } else { (hard("50"), soft("50")) };
    let next = json!([will_be]);
    let app = on(&was, &next).await;
    into_april(&app, by, &next, runs).await;
    app.use_pages("april", "45").await.expect(201);
    let beyond = app.use_pages("beyond", "10").await;
    assert_eq!(beyond.status, if hardens { 429 } else { 201 });
    app.finish().await;
}

#[rstest]
#[case::more(hard("50"), hard("80"), "80 0 0 0 1 false false [50,80,90,100]", "80 80 0 80 0")]
#[case::less(hard("50"), hard("20"), "20 0 0 0 1 false false [50,80,90,100]", "20 20 0 20 0")]
#[case::other_terms(
    hard("50"),
    hard("50").with("max_rollover", "9").with("min_rollover", "3").with("rollover_periods", 2).with("reroll", true)
        .with("preserve_overage", true).with("notices_percent", json!([70])).with("mode", "overdraft").with("overdraft", "5"),
    "50 5 9 3 2 true true [70]", "50 50 0 50 0"
)]
#[case::nothing(hard("50"), hard("0"), "0 0 0 0 1 false false [50,80,90,100]", "0 0 0 0 0")]
#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_quota_says_when_a_period_begins_is_what_it_opens_with(
    #[case] was: Value,
    #[case] will_be: Value,
    #[case] terms: &str,
    #[case] books: &str,
    #[values(By::Tenant, By::Plan)] by: By,
    #[values(Runs::Before, Runs::Late, Runs::Never)] runs: Runs,
) {
    let next = json!([&will_be]);
    let app = on(&was, &next).await;
    into_april(&app, by, &next, runs).await;
    app.quota().await;
    all_jobs(&app).await;
    assert_eq!(rows(&app.database, TERMS).await, [terms]);
    // Nothing is booked of what was opened with nothing.
    let is_empty = will_be["included"] == "0" && runs == Runs::Never;
    assert_eq!(rows(&app.database, BOOKS).await, if is_empty { vec![] } else { vec![books.to_owned()] });
    app.finish().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_used_of_a_quota_that_is_gone_before_a_period_begins_is_overage_of_that(
    #[values(By::Tenant, By::Plan, By::Request)] by: By,
    #[values(Runs::Before, Runs::After, Runs::Late, Runs::Never)] runs: Runs,
) {
    let app = on(&hard("50"), &json!([])).await;
    into_april(&app, by, &json!([]), runs).await;
    app.use_pages("april", "30").await.expect(201);
    all_jobs(&app).await;
    assert_eq!(rows(&app.database, TERMS).await, [""; 0], "it is not open");
    app.move_clock("2026-05-02T00:00:00Z").await;
    app.drained().await;
    app.app().operations.periods.close(Default::default(), GRACE).await.unwrap();
    let closed = "SELECT overage::float8 AS o, lapsed::float8 AS l FROM period_closures WHERE period_start = '2026-04-01Z'";
    assert_eq!(rows(&app.database, closed).await, ["30 0"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_comes_back_before_a_period_begins_opens_it_again_once() {
    let app = on(&hard("50"), &json!([])).await;
    open_ahead(&app).await;
    for (included, open) in
        [(None, vec![]), (Some("80"), vec!["80"]), (None, vec![]), (Some("30"), vec!["30"])]
    {
        let quotas = included.map_or(json!([]), |included| json!([hard(included)]));
        app.define("plans/plan", json!({ "quotas": quotas })).await;
        open_ahead(&app).await;
        open_ahead(&app).await;
        let found = "SELECT included::float8 AS i FROM quota_periods WHERE period_start = '2026-04-01Z'";
        assert_eq!(rows(&app.database, found).await, open, "{included:?}");
    }
    assert_eq!(rows(&app.database, BOOKS).await, ["30 30 0 30 0"]);
    app.move_clock("2026-04-01T00:00:00Z").await;
    app.use_pages("april", "30").await.expect(201);
    app.use_pages("beyond", "1").await.is_problem(429, "quota_exceeded");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_period_follows_grants_and_voids_also_after_the_next_one_is_gone() {
    let app = on(&hard("50"), &json!([])).await;
    open_ahead(&app).await;
    app.move_clock("2026-03-31T12:00:00Z").await;
    change(&app, By::Request, &json!([])).await;
    open_ahead(&app).await;
    assert_eq!(rows(&app.database, TERMS).await, [""; 0], "April is open no more");
    let gift = json!({
        "tenant": "acme", "meter": "page", "amount": "10", "kind": "promotional", "expires_at": "2026-04-01T00:00:00Z"
    });
    let id = app.post_keyed("/v1/admin/grants", "gift", gift).await.expect(201).text("/id").to_owned();
    app.use_pages("all and some", "35").await.expect(201);
    app.post(&format!("/v1/admin/grants/{id}/void"), json!({})).await.expect(200);
    app.drained().await;
    app.use_pages("beyond", "1").await.is_problem(429, "quota_exceeded");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_period_that_opens_before_an_approved_request_is_applied_still_follows_it() {
    let app = on(&hard("50"), &json!([])).await;
    app.move_clock("2026-03-31T12:00:00Z").await;
    change(&app, By::Request, &json!([])).await;
    app.move_clock("2026-04-01T00:00:10Z").await;
    app.use_pages("april", "30").await.expect(201);
    assert_eq!(rows(&app.database, TERMS).await.len(), 1, "by the plan that the tenant still has");
    app.app().operations.upgrades.follow().await.unwrap();
    all_jobs(&app).await;
    assert_eq!(rows(&app.database, TERMS).await, [""; 0]);
    app.use_pages("more", "30").await.expect(201);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_comes_back_after_a_period_has_begun_without_it_is_opened_at_its_first_use() {
    let app = on(&hard("50"), &json!([])).await;
    open_ahead(&app).await;
    change(&app, By::Tenant, &json!([])).await;
    app.move_clock("2026-04-05T00:00:00Z").await;
    app.define("tenants/acme", json!({ "plan": "plan", "plan_from": "next_period" })).await;
    app.use_pages("april", "50").await.expect(201);
    app.use_pages("beyond", "1").await.is_problem(429, "quota_exceeded");
    app.finish().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn what_changes_after_a_period_has_begun_is_for_the_next_one_however_late_the_change_before_is_followed(
    #[values(By::Plan, By::Tenant)] by: By,
) {
    let app = on(&hard("50"), &json!([hard("80")])).await;
    open_ahead(&app).await;
    app.move_clock("2026-03-31T23:59:59Z").await;
    match by {
        By::Tenant => put_alone(&app, "next").await,
        _ => change(&app, by, &json!([hard("80")])).await,
    }
    app.move_clock("2026-04-01T00:00:00Z").await;
    app.define("plans/plan", json!({ "quotas": [hard("10")] })).await;
    app.define("plans/next", json!({ "quotas": [soft("10")] })).await;
    app.move_clock("2026-04-20T00:00:00Z").await;
    all_jobs_now(&app).await;
    assert_eq!(rows(&app.database, TERMS).await, ["80 0 0 0 1 false false [50,80,90,100]"]);
    app.use_pages("april", "80").await.expect(201);
    app.use_pages("beyond", "1").await.is_problem(429, "quota_exceeded");
    let follows = "SELECT 1 AS n FROM quota_periods WHERE followed_version IS NOT NULL AND period_start < '2026-05-01Z'";
    assert_eq!(rows(&app.database, follows).await, [""; 0], "it follows no more");
    app.finish().await;
}

/// Puts `acme` on another plan as a call does that breaks off then: nothing follows.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_changed_before_a_period_began_is_followed_though_the_tenant_has_left_it_since() {
    let app = on(&hard("50"), &json!([hard("50")])).await;
    open_ahead(&app).await;
    // One that was just opened is looked at in any case.
    open_ahead(&app).await;
    app.move_clock("2026-03-31T23:59:59Z").await;
    change(&app, By::Plan, &json!([soft("50")])).await;
    app.move_clock("2026-04-01T00:00:10Z").await;
    put_alone(&app, "next").await;
    all_jobs_now(&app).await;
    let overdraft = "SELECT overdraft > 0 AS soft FROM quota_periods WHERE period_start = '2026-04-01Z'";
    assert_eq!(rows(&app.database, overdraft).await, ["true"]);
    app.finish().await;
}

async fn put_alone(app: &TestApp, plan: &str) {
    let kind = tollgate::domain::policy::diff::DefinitionKind::Tenant;
    let nothing = tollgate::operations::requests::Precondition::Nothing;
    let body = json!({ "plan": plan }).to_string();
    app.app().operations.policy.put_policy(kind, "acme", body.as_bytes(), nothing, "me").await.unwrap();
}

async fn all_jobs_now(app: &TestApp) {
    let operations = &app.app().operations;
    operations.grants.follow().await.unwrap();
    operations.plan_changes.follow().await.unwrap();
    open_ahead(app).await;
    operations.periods.close(Default::default(), GRACE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lower_plan_that_is_undone_before_a_period_begins_takes_nothing_of_what_pays_for_overage() {
    let quota = |included: &str| soft(included).with("preserve_overage", true);
    let app = on(&quota("50"), &json!([quota("10")])).await;
    app.use_pages("much", "70").await.expect(201);
    open_ahead(&app).await;
    for plan in ["next", "plan"] {
        app.define("tenants/acme", json!({ "plan": plan, "plan_from": "next_period" })).await;
    }
    app.move_clock("2026-04-01T00:00:00Z").await;
    all_jobs(&app).await;
    let closed = "SELECT overage::float8 AS o, paid_by_next::float8 AS p FROM period_closures";
    assert_eq!(rows(&app.database, closed).await, ["40 40"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_recurs_is_given_once_in_a_period_that_follows_policy() {
    let app = on(&hard("50"), &json!([hard("20")])).await;
    let grant = json!({ "tenant": "acme", "meter": "page", "amount": "7", "kind": "promotional", "recurrence": "period", "expires_at": "2026-08-01T00:00:00Z" });
    app.post_keyed("/v1/admin/grants", "a", grant).await.expect(201);
    open_ahead(&app).await;
    change(&app, By::Tenant, &json!([])).await;
    open_ahead(&app).await;
    app.move_clock("2026-04-01T00:00:00Z").await;
    app.use_pages("april", "27").await.expect(201);
    app.use_pages("beyond", "1").await.is_problem(429, "quota_exceeded");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_openings_and_runs_at_once_leave_what_the_last_change_says() {
    let app = on(&hard("50"), &json!([])).await;
    let operations = &app.app().operations;
    for round in 0..6 {
        let included = (10 + round).to_string();
        let quotas = if round % 3 == 1 { json!([]) } else { json!([hard(&included)]) };
        let runs = futures::future::join_all((0..3).map(|_| operations.memory.open_next_periods()));
        let grants = operations.grants.follow();
        let (_, runs, grants) =
            tokio::join!(app.define("plans/plan", json!({ "quotas": quotas })), runs, grants);
        assert!(runs.iter().all(Result::is_ok) && grants.is_ok(), "{runs:?} {grants:?}");
    }
    open_ahead(&app).await;
    assert_eq!(rows(&app.database, BOOKS).await, ["15 15 0 15 0"]);
    app.move_clock("2026-04-01T00:00:00Z").await;
    app.use_pages("april", "15").await.expect(201);
    app.use_pages("beyond", "1").await.is_problem(429, "quota_exceeded");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_plan_rings_the_job_and_the_gate_is_told_before_the_period_begins() {
    let app = an_app().at("2026-03-31T12:00:00Z").start().await;
    app.with_plan(json!([]), json!([soft("50")])).await;
    app.use_pages("march", "20").await.expect(201);
    let open = "SELECT overdraft::float8 AS o FROM quota_periods WHERE delivered_at IS NOT NULL AND period_start = '2026-04-01Z'";
    app.move_clock("2026-03-31T12:05:00Z").await;
    wait_for("April is open", Duration::from_secs(30), async || {
        (rows(&app.database, open).await.len() == 1).then_some(())
    })
    .await;
    app.define("plans/plan", json!({ "quotas": [hard("30")] })).await;
    wait_for("the gate has it", Duration::from_secs(30), async || {
        let told = rows(&app.database, "SELECT tenant FROM untold_capacities").await.is_empty();
        (told && rows(&app.database, open).await == ["0"]).then_some(())
    })
    .await;
    app.drained().await;
    app.database.close().await;
    app.move_clock("2026-04-01T00:00:00Z").await;
    // Without keys: those would be asked of the ledger.
    app.post(RESERVATIONS, pages("30")).await.expect(201);
    app.post(RESERVATIONS, pages("1")).await.is_problem(429, "quota_exceeded");
    app.database.open().await;
    app.finish().await;
}
