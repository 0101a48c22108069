//! Changes of plan in the middle of a period: what a plan includes more is granted at once, and what it includes less
//! is voided where that is asked for, as far as it is available.

use rstest::rstest;
use serde_json::{Value, json};
use tollgate::domain::ids::{MeterId, TenantId};
use tollgate::domain::plan_change::{Moves, PlanChangeId};
use tollgate::domain::upgrade::Effective;
use tollgate::ledger::{ClaimedChange, QuotaChange, WantedChange};

use crate::ledger::{as_owner, rows};
use crate::support::app::*;

const MARCH_MS: i64 = 1_772_323_200_000;
const VOIDED: &str = "SELECT amount::float8 AS a, happened_at AT TIME ZONE 'UTC' AS at FROM entries \
                      WHERE class = 'grant' AND debit = 'voided' ORDER BY period_start, happened_at, amount";

/// Tenant `acme` on a plan with fifty pages a month, and three other plans beside it; in UTC, on the tenth of March,
/// where no job runs by itself.
async fn with_plans() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    for (plan, included) in [("pro", "80"), ("max", "200"), ("small", "20")] {
        app.define(&format!("plans/{plan}"), json!({ "quotas": [quota_of(included)] })).await;
    }
    app
}

async fn put(app: &TestApp, plan: &str, plan_from: Option<&str>) {
    let mut tenant = json!({ "plan": plan });
    if let Some(plan_from) = plan_from {
        tenant["plan_from"] = plan_from.into();
    }
    app.define("tenants/acme", tenant).await;
}

/// Granted and remaining pages.
async fn left(app: &TestApp) -> [String; 2] {
    let quota = app.quota().await;
    ["granted", "remaining"].map(|field| quota.text(&format!("/quotas/0/{field}")).to_owned())
}

async fn voided(app: &TestApp) -> Vec<String> {
    rows(&app.database, VOIDED).await
}

async fn follow(app: &TestApp) -> u64 {
    app.app().operations.plan_changes.follow().await.unwrap()
}

#[rstest]
#[case::a_higher_plan_holds_at_once("pro", None, ["80", "60"])]
#[case::or_if_it_says_so("pro", Some("now"), ["80", "60"])]
#[case::unless_it_says_otherwise("pro", Some("next_period"), ["50", "30"])]
#[case::a_lower_one_holds_from_the_next_period_on("small", None, ["50", "30"])]
#[case::also_if_it_says_so("small", Some("next_period"), ["50", "30"])]
#[case::unless_it_says_otherwise_too("small", Some("now"), ["20", "0"])]
#[tokio::test(flavor = "multi_thread")]
async fn a_put_of_another_plan_reaches_an_open_quota_as_it_says(
    #[case] to: &str,
    #[case] plan_from: Option<&str>,
    #[case] expected: [&str; 2],
) {
    let app = with_plans().await;
    app.use_pages("march", "20").await.expect(201);
    put(&app, to, plan_from).await;
    let stored = app.get("/v1/admin/tenants/acme").await.expect(200).body;
    assert_eq!((&stored["plan"], &stored["plan_from"]), (&json!(to), &json!(plan_from)));
    assert_eq!(left(&app).await, expected, "counters stay");
    assert_eq!((follow(&app).await, left(&app).await), (0, expected.map(String::from)), "once");
    app.move_clock("2026-04-01T00:00:00Z").await;
    app.use_pages("april", "1").await.expect(201);
    let included = if to == "pro" { "80" } else { "20" };
    assert_eq!(left(&app).await[0], included, "and the next period includes what the plan does");
    app.finish().await;
}

/// What was included, used, and held; what the lower plan includes; what is voided, and what then remains.
#[rstest]
#[case::all_of_it_is_available("50", "10", "0", "30", "10")]
#[case::what_is_used_is_not("50", "35", "0", "15", "0")]
#[case::nor_what_is_held("50", "10", "25", "15", "0")]
#[case::nothing_is_left("50", "50", "0", "0", "0")]
#[tokio::test(flavor = "multi_thread")]
async fn a_lower_plan_voids_the_difference_as_far_as_it_is_available(
    #[case] was: &str,
    #[case] used: &str,
    #[case] held: &str,
    #[case] taken: &str,
    #[case] remaining: &str,
) {
    let app = with_plans().await;
    assert_eq!(was, "50");
    app.use_pages("march", used).await.expect(201);
    let hold = match held {
        "0" => None,
        held => Some(app.hold(held).await),
    };
    put(&app, "small", Some("now")).await;
    assert_eq!(left(&app).await[1], remaining);
    let entries = if taken == "0" { vec![] } else { vec![format!("{taken} 2026-03-10T12:00:00")] };
    assert_eq!(voided(&app).await, entries);
    app.use_pages("more", (remaining.parse::<i64>().unwrap() + 1).to_string())
        .await
        .is_problem(429, "quota_exceeded");
    app.drained().await;
    app.redis.flush().await;
    assert_eq!(left(&app).await[1], remaining, "restored from the books");
    if let Some(hold) = hold {
        app.release(&hold).await.expect(200);
        assert_eq!(left(&app).await[1], held, "what is given back later is there again");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_up_and_down_and_up_again_gets_nothing_twice() {
    let app = with_plans().await;
    app.use_pages("some", "20").await.expect(201);
    for (plan, expected) in
        [("max", ["200", "180"]), ("small", ["20", "0"]), ("max", ["200", "180"]), ("pro", ["80", "60"])]
    {
        put(&app, plan, Some("now")).await;
        assert_eq!(left(&app).await, expected, "{plan}");
    }
    app.use_pages("more", "50").await.expect(201);
    put(&app, "small", Some("now")).await;
    assert_eq!(left(&app).await, ["70", "0"], "ten of the sixty were left");
    put(&app, "small", Some("next_period")).await;
    put(&app, "pro", Some("now")).await;
    assert_eq!(left(&app).await, ["80", "10"], "as if it had never gone down");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plan_includes_more_is_taken_back_by_another_plan_alone() {
    let app = with_plans().await;
    app.use_pages("some", "20").await.expect(201);
    put(&app, "pro", None).await;
    let grants = app.get("/v1/admin/grants?tenant=acme").await.expect(200).body;
    let raise = grants["data"][0]["id"].as_str().unwrap().to_owned();
    let void = app.post(&format!("/v1/admin/grants/{raise}/void"), json!({})).await;
    void.is_problem(409, "in_use");
    let less = json!({
        "tenant": "acme", "meter": "page", "effect": "allowance", "amount": "-1", "reason": "a mistake",
        "happened_at": "2026-03-10T12:00:00Z"
    });
    let refused = app.post_keyed("/v1/adjustments", "less", less).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!((refused.pointers(), left(&app).await), (vec!["/amount"], ["80", "60"].map(String::from)));
    put(&app, "small", Some("now")).await;
    put(&app, "pro", Some("now")).await;
    assert_eq!(left(&app).await, ["80", "60"], "no difference is taken or granted twice");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lower_plan_takes_what_plans_gave_before_what_was_granted_and_nothing_of_it_rolls_over() {
    let app = with_plans().await;
    let rolls = |included: &str| json!({ "quotas": [quota_of(included).with("max_rollover", "500")] });
    for (plan, included) in [("plan", "50"), ("max", "200"), ("small", "20")] {
        app.define(&format!("plans/{plan}"), rolls(included)).await;
    }
    let grant = json!({ "tenant": "acme", "meter": "page", "amount": "30", "kind": "paid", "expires_at": "2026-04-01T00:00:00Z" });
    let id = app.post_keyed("/v1/admin/grants", "a", grant).await.expect(201).text("/id").to_owned();
    app.use_pages("some", "5").await.expect(201);
    put(&app, "max", None).await;
    assert_eq!(left(&app).await, ["230", "225"]);
    put(&app, "small", Some("now")).await;
    assert_eq!(
        (left(&app).await, voided(&app).await),
        (["50", "45"].map(String::from), vec!["180 2026-03-10T12:00:00".into()])
    );
    let grants = app.quota().await.body["quotas"][0]["grants"].clone();
    assert_eq!((&grants[0]["id"], &grants[0]["remaining"]), (&json!(id), &json!("30")), "{grants}");
    app.move_clock("2026-04-01T01:00:00Z").await;
    app.app()
        .operations
        .periods
        .close(Default::default(), std::time::Duration::from_secs(3600))
        .await
        .unwrap();
    let closed = "SELECT rolled::float8 AS r, lapsed::float8 AS l, overage::float8 AS o FROM period_closures";
    assert_eq!(
        rows(&app.database, closed).await,
        ["15 30 0"],
        "of the twenty five were used; the grant lapses"
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_used_after_a_lower_plan_is_overage_on_the_statement() {
    let app = with_plans().await;
    let priced = |included: &str| {
        let price = json!({ "meter": "page", "model": "per_unit", "unit": "1", "currency": "EUR", "charge_on": "overage", "effective_from": "2026-01-01" });
        json!({ "quotas": [quota_of(included).with("mode", "soft")], "prices": [price] })
    };
    for (plan, included) in [("plan", "50"), ("small", "20")] {
        app.define(&format!("plans/{plan}"), priced(included)).await;
    }
    app.use_pages("some", "30").await.expect(201);
    put(&app, "small", Some("now")).await;
    app.use_pages("more", "7").await.expect(201);
    app.drained().await;
    let draft = app.get("/v1/tenants/acme/statements/draft").await.expect(200);
    assert_eq!(draft.text("/total"), "7.00", "what was used before stays free: {draft:?}");
    assert_eq!(voided(&app).await, ["20 2026-03-10T12:00:00"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_next_period_that_is_opened_already_follows_any_change_of_plan() {
    for plan_from in [None, Some("now"), Some("next_period")] {
        let app = with_plans().await;
        app.use_pages("march", "10").await.expect(201);
        app.move_clock("2026-03-31T12:00:00Z").await;
        app.app().operations.memory.open_next_periods().await.unwrap();
        for (plan, april) in [("pro", "80"), ("small", "20"), ("max", "200"), ("small", "20")] {
            put(&app, plan, plan_from).await;
            let opened = "SELECT available::float8 AS a FROM balances WHERE period_start = '2026-04-01Z'";
            assert_eq!(rows(&app.database, opened).await, [april], "{plan_from:?} {plan}");
        }
        app.move_clock("2026-04-01T00:00:00Z").await;
        app.app().operations.grants.follow().await.unwrap();
        assert_eq!(left(&app).await, ["20", "20"], "{plan_from:?}");
        app.use_pages("april", "20").await.expect(201);
        app.use_pages("beyond", "1").await.is_problem(429, "quota_exceeded");
        app.finish().await;
    }
}

/// Puts `acme` on another plan as another instance does of which this one has not heard yet.
async fn put_unheard(app: &TestApp, plan: &str) {
    let put = format!(
        "UPDATE tenants SET version = version + 1, definition = jsonb_set(definition, '{{plan}}', '\"{plan}\"')"
    );
    as_owner(&app.database, &put).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_period_is_opened_by_the_plan_that_holds_also_where_an_instance_has_not_heard_of_it_yet() {
    let app = with_plans().await;
    // So that this instance knows the tenant, and no period of it is open.
    app.post("/v1/tenants/acme/upgrade-requests", json!({ "plan": "plan" })).await.expect(422);
    put_unheard(&app, "pro").await;
    app.use_pages("first", "60").await.expect(201);
    assert_eq!(left(&app).await, ["80", "20"], "by its first use");
    app.move_clock("2026-04-10T00:00:00Z").await;
    put_unheard(&app, "max").await;
    let grant = json!({ "tenant": "acme", "meter": "page", "amount": "5", "kind": "promotional", "expires_at": "2026-05-01T00:00:00Z" });
    app.post_keyed("/v1/admin/grants", "a", grant).await.expect(201);
    assert_eq!(left(&app).await, ["205", "205"], "by a grant");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_next_period_is_opened_by_the_plan_that_holds_or_not_at_all() {
    let app = with_plans().await;
    let quota = |included: &str| json!({ "quotas": [quota_of(included).with("max_rollover", "500")] });
    for (plan, included) in [("plan", "50"), ("pro", "80")] {
        app.define(&format!("plans/{plan}"), quota(included)).await;
    }
    app.use_pages("march", "40").await.expect(201);
    app.move_clock("2026-03-31T12:00:00Z").await;
    put_unheard(&app, "pro").await;
    let operations = &app.app().operations;
    assert_eq!(operations.memory.open_next_periods().await.unwrap().opened, 0, "a later run opens it");
    app.move_clock("2026-04-02T00:00:00Z").await;
    app.drained().await;
    let grace = std::time::Duration::from_secs(3600);
    let closed = operations.periods.close(Default::default(), grace).await.unwrap();
    assert_eq!((closed.closed, closed.waiting), (1, 0));
    let april = "SELECT included::float8 AS i FROM quota_periods WHERE period_start = '2026-04-01Z'";
    assert_eq!(rows(&app.database, april).await, ["80"], "by a close");
    assert_eq!(left(&app).await, ["80", "90"], "ten came over");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_file_says_from_when_on_a_plan_holds_too() {
    let app = with_plans().await;
    app.use_pages("march", "10").await.expect(201);
    let file = |plan: &str, from: &str| json!({ "policy": { "tenants": [{ "id": "acme", "plan": plan, "plan_from": from }] } });
    app.post("/v1/admin/policy", file("small", "now")).await.expect(200);
    assert_eq!(left(&app).await, ["20", "10"]);
    app.post("/v1/admin/policy", file("pro", "next_period")).await.expect(200);
    assert_eq!(left(&app).await, ["20", "10"]);
    let wrong = app.post("/v1/admin/policy", file("pro", "tomorrow")).await;
    wrong.is_problem(422, "validation_failed");
    assert_eq!(wrong.pointers(), ["/policy/tenants/0/plan_from"]);
    app.define("plans/pro", json!({ "quotas": [quota_of("90")] })).await;
    assert_eq!(left(&app).await, ["20", "10"], "what a plan includes itself changes with the next period");
    app.finish().await;
}

/// Notes the change to `small` as a call does that breaks off then.
async fn begun(app: &TestApp) -> QuotaChange {
    let tenant = TenantId::parse("acme").unwrap();
    let found = "SELECT id FROM plan_changes";
    let id = PlanChangeId::from_uuid(rows(&app.database, found).await[0].parse().unwrap());
    let meter = MeterId::parse("page").unwrap();
    let wanted = WantedChange {
        id: id.of_quota(&meter, MARCH_MS),
        tenant,
        meter,
        start_ms: MARCH_MS,
        included: 20.into(),
        moves: Moves::of_open_period(Some(Effective::Now)),
        now_ms: app.clock.now_ms(),
    };
    match app.app().ledger.claim_quota_change(wanted).await.unwrap() {
        ClaimedChange::Stands(change) => change,
        other => panic!("{other:?}"),
    }
}

/// Puts `acme` on the lower plan by the policy alone: nothing has followed yet.
async fn lowered_by_policy(app: &TestApp) {
    let body = json!({ "plan": "small", "plan_from": "now" }).to_string();
    let kind = tollgate::domain::policy::diff::DefinitionKind::Tenant;
    let nothing = tollgate::operations::requests::Precondition::Nothing;
    app.app().operations.policy.put_policy(kind, "acme", body.as_bytes(), nothing, "me").await.unwrap();
}

#[rstest]
#[case::before_anything_is_noted(0)]
#[case::once_it_is_noted(1)]
#[case::once_the_gate_has_the_bound(2)]
#[case::once_the_cut_is_wanted(3)]
#[case::once_it_is_cut(4)]
#[case::once_it_is_booked(5)]
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_breaks_off_at_any_step_is_finished_by_the_job_and_the_gate_admits_no_more_meanwhile(
    #[case] steps: usize,
) {
    let app = with_plans().await;
    app.use_pages("march", "10").await.expect(201);
    app.drained().await;
    lowered_by_policy(&app).await;
    let (operations, ledger) = (&app.app().operations, &app.app().ledger);
    if steps > 0 {
        let change = begun(&app).await;
        if steps > 1 {
            operations.memory.send_untold_capacities().await.unwrap();
            assert_eq!(left(&app).await, ["20", "10"], "the strict bound");
            assert_ne!(app.use_pages("beyond", "11").await.status, 201);
        }
        if steps > 2 {
            ledger.want_lowered(change.clone(), Default::default()).await.unwrap();
        }
        if steps > 3 {
            app.app()
                .gate
                .append_boundary(app.app().gate.partition_of(&change.tenant), 0, Some(app.clock.now_ms()))
                .await
                .unwrap();
            app.drained().await;
        }
        if steps > 4 {
            assert!(ledger.settle_lowered(change.clone(), app.clock.now_ms()).await.unwrap());
            assert!(!ledger.settle_lowered(change, app.clock.now_ms()).await.unwrap(), "once");
        }
    }
    assert_eq!((follow(&app).await, follow(&app).await), (1, 0));
    assert_eq!((left(&app).await, voided(&app).await.len()), (["20", "10"].map(String::from), 1));
    assert_eq!(app.use_pages("all", "10").await.status, 201);
    app.use_pages("beyond", "1").await.is_problem(429, "quota_exceeded");
    operations.grants.follow().await.unwrap();
    assert_eq!(rows(&app.database, "SELECT tenant FROM untold_capacities").await, [""; 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_lowered_plans_that_have_to_wait_holds_up_no_later_one() {
    let app = with_plans().await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    app.use_pages("march", "10").await.expect(201);
    // Nothing is known about that period, so that none of them can be booked.
    let waiting = "WITH waiting AS (             INSERT INTO quota_changes (tenant, id, meter, period_start, amount, asked_at)             SELECT 'other', gen_random_uuid(), 'page', '2025-01-01Z', -1, '2026-03-01Z' FROM generate_series(1, 500)             RETURNING *         ) INSERT INTO cuts (tenant, grant_id, is_end, meter, period_start, epoch, sequence, consumed, consumed_of_carried, is_settled)         SELECT tenant, id, true, meter, period_start, 1, 1, 0, 0, false FROM waiting";
    as_owner(&app.database, waiting).await.unwrap();
    lowered_by_policy(&app).await;
    let change = begun(&app).await;
    app.app().ledger.want_lowered(change, Default::default()).await.unwrap();
    app.app().operations.grants.follow().await.unwrap();
    assert_eq!(voided(&app).await, ["30 2026-03-10T12:00:00"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raise_that_breaks_off_is_finished_by_the_job_with_the_grant_that_was_made() {
    let app = with_plans().await;
    app.use_pages("some", "20").await.expect(201);
    put(&app, "max", None).await;
    for undo in ["UPDATE quota_changes SET changed = NULL", "UPDATE plan_changes SET applied_at = NULL"] {
        as_owner(&app.database, undo).await.unwrap();
    }
    put(&app, "pro", Some("now")).await;
    assert_eq!(left(&app).await, ["80", "60"], "what was under way is done first");
    assert_eq!(follow(&app).await, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_gate_is_away_a_change_is_noted_and_the_job_carries_it_out() {
    let app = with_plans().await;
    app.use_pages("some", "10").await.expect(201);
    app.drained().await;
    let frozen = app.redis.freeze();
    put(&app, "small", Some("now")).await;
    drop(frozen);
    app.app().operations.memory.check.verify_node().await.ok();
    crate::support::wait::wait_for("the change is done", std::time::Duration::from_secs(20), async || {
        app.app().operations.plan_changes.follow().await.ok()?;
        let done = rows(&app.database, "SELECT id FROM plan_changes WHERE applied_at IS NULL").await;
        done.is_empty().then_some(())
    })
    .await;
    assert_eq!(left(&app).await, ["20", "10"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lower_plan_in_the_hour_of_grace_waits_for_what_the_close_brings() {
    let app = with_plans().await;
    for (plan, included) in [("plan", "50"), ("small", "20")] {
        let quota = quota_of(included).with("max_rollover", "500");
        app.define(&format!("plans/{plan}"), json!({ "quotas": [quota] })).await;
    }
    app.use_pages("march", "10").await.expect(201);
    app.move_clock("2026-04-01T00:10:00Z").await;
    app.use_pages("april", "45").await.expect(201);
    put(&app, "small", Some("now")).await;
    assert_eq!((voided(&app).await.len(), follow(&app).await), (0, 0), "it is not known what is available");
    app.move_clock("2026-04-01T01:00:00Z").await;
    app.app()
        .operations
        .periods
        .close(Default::default(), std::time::Duration::from_secs(3600))
        .await
        .unwrap();
    assert_eq!(follow(&app).await, 1);
    assert_eq!(voided(&app).await, ["30 2026-04-01T00:10:00"], "five of April and what came over");
    let quota: Value = app.quota().await.body;
    assert_eq!(quota["quotas"][0]["remaining"], "15", "{quota}");
    app.finish().await;
}
