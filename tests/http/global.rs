//! Limits of scope `global`: one counter over all tenants, of which no tenant sees the others' use.

use serde_json::{Value, json};

use super::events::{event, send};
use super::ratelimit::{CHECK, of, with_limits};
use crate::support::app::*;

/// The limit `fair`: so many pages of all tenants together in an hour.
fn fair(capacity: &str) -> Value {
    json!({
        "meter": "page", "scope": "global", "algorithm": "fixed_window", "window_seconds": 3_600, "capacity": capacity
    })
}

/// Tenants `acme` and `other` under these limits of their plan, and all of them under `fair`.
async fn with_fair(limits: Value, fair: Value) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(limits, json!([])).await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    app.define("limits/fair", fair).await;
    app
}

/// The limit of this id in an answer.
fn limit<'a>(answer: &'a Answered, id: &str) -> &'a Value {
    let limits = answer.body["limits"].as_array().unwrap().iter();
    limits.clone().find(|limit| limit["id"] == id).unwrap_or_else(|| panic!("no {id}: {answer:?}"))
}

/// What all tenants have used of `fair`, as the administrator sees it.
pub async fn used(app: &TestApp) -> String {
    let look = app.post(RESERVATIONS, pages(1).with("dry_run", true)).await.expect(200);
    limit(&look, "fair")["consumed"].as_str().unwrap().to_owned()
}

/// The ids of what refuses.
fn refused_by(answer: &Answered) -> Vec<&str> {
    let all = answer.body["refused_by"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|one| one["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn one_counter_counts_all_tenants_until_its_window_is_over() {
    let app = with_fair(json!([]), fair("10")).await;
    let first = app.post(RESERVATIONS, pages(6)).await.expect(201);
    let shown = ["scope", "level", "class", "consumed", "remaining", "window_seconds"]
        .map(|field| limit(&first, "fair")[field].clone());
    assert_eq!(json!(shown), json!(["global", "default", "rate", "6", "4", 3_600]));
    app.post_keyed(USAGE, "u", pages(3).of("other")).await.expect(201);
    app.move_clock("2026-03-10T12:20:00Z").await;
    let refused = app.post(RESERVATIONS, pages(2).of("other")).await;
    refused.is_problem(429, "rate_limited");
    assert_eq!(refused_by(&refused), ["fair"]);
    assert_eq!(refused.text("/refused_by/0/cause"), "consumed");
    refused.waits_at_least(2_400);
    app.post(RESERVATIONS, pages(11)).await.is_problem(402, "exceeds_plan");
    app.post(RESERVATIONS, pages(1).of("other")).await.expect(201);
    app.move_clock("2026-03-10T13:00:00Z").await;
    app.post(RESERVATIONS, pages(10)).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn a_window_of_the_calendar_is_one_of_utc_for_every_tenant() {
    let daily = json!({ "meter": "page", "scope": "global", "window": "day", "capacity": "10" });
    let app = with_fair(json!([day_of("100")]), daily).await;
    app.define("tenants/tokyo", json!({ "plan": "plan", "time_zone": "Asia/Tokyo" })).await;
    app.post(RESERVATIONS, pages(10).of("tokyo")).await.expect(201);
    app.move_clock("2026-03-10T23:59:59Z").await;
    let refused = app.post(RESERVATIONS, pages(1).of("tokyo")).await;
    assert_eq!(refused_by(&refused), ["fair"], "in Tokyo another day has begun");
    assert_eq!(refused.text("/refused_by/0/resets_at"), "2026-03-11T00:00:00Z");
    let look = app.post(RESERVATIONS, pages(1).of("tokyo").with("dry_run", true)).await.expect(200);
    assert_eq!(limit(&look, "day")["resets_at"], "2026-03-11T15:00:00Z");
    app.move_clock("2026-03-11T00:00:00Z").await;
    app.post(RESERVATIONS, pages(10)).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn what_the_tenants_own_limits_refuse_leaves_no_trace_in_it() {
    let app = with_fair(json!([day_of("5")]), fair("10")).await;
    let refused = app.post(RESERVATIONS, pages(6)).await;
    assert_eq!(refused_by(&refused), ["day"]);
    app.post_keyed(USAGE, "u", pages(6)).await.is_problem(402, "exceeds_plan");
    assert_eq!(used(&app).await, "0");
    app.post_keyed(RESERVATIONS, "k", pages(5)).await.expect(201);
    app.post_keyed(RESERVATIONS, "k", pages(4)).await.is_problem(422, "idempotency_key_reused");
    assert_eq!(used(&app).await, "5", "another request under the key takes nothing");
    app.post(RESERVATIONS, pages(3).of("other")).await.expect(201);
    let both = app.post(RESERVATIONS, pages(3)).await;
    assert_eq!(refused_by(&both), ["day", "fair"], "a refusal names all that refuse");
    assert_eq!(used(&app).await, "8");
    app.finish().await;
}

#[tokio::test]
async fn a_repeat_takes_nothing_and_gets_the_first_answer_though_nothing_is_left() {
    let app = with_fair(json!([]), fair("10")).await;
    let first = app.post_keyed(RESERVATIONS, "r", pages(6)).await.expect(201);
    app.post_keyed(USAGE, "u", pages(4)).await.expect(201);
    for _ in 0..2 {
        let again = app.post_keyed(RESERVATIONS, "r", pages(6)).await.expect(200);
        assert_eq!((again.text("/id"), &again.body["replayed"]), (first.text("/id"), &json!(true)));
        app.post_keyed(USAGE, "u", pages(4)).await.expect(200);
    }
    assert_eq!(used(&app).await, "10");
    // The windows are over, and what was taken in them is forgotten: a repeat still takes nothing.
    app.move_clock("2026-03-10T13:30:00Z").await;
    app.post_keyed(USAGE, "u", pages(4)).await.expect(200);
    assert_eq!(used(&app).await, "0");
    app.post_keyed(USAGE, "v", pages(10)).await.expect(201);
    app.post_keyed(USAGE, "u", pages(4)).await.expect(200);
    app.post_keyed(USAGE, "w", pages(1)).await.is_problem(429, "rate_limited");
    app.finish().await;
}

#[tokio::test]
async fn a_release_returns_what_was_not_used_and_a_consume_returns_nothing() {
    let app = with_fair(json!([]), fair("20")).await;
    let [released, consumed] = [app.hold(8).await, app.hold(8).await];
    app.resolve(&released, "release", json!({ "incurred": "3" })).await.expect(200);
    app.resolve(&released, "release", json!({ "incurred": "3" })).await.expect(200);
    assert_eq!(used(&app).await, "11");
    app.consume(&consumed, "2").await.expect(200);
    assert_eq!(used(&app).await, "11", "it is taken whole at the reserve");
    app.move_clock("2026-03-10T12:30:00Z").await;
    let later = app.held(pages(5).lasting(3_600)).await;
    app.move_clock("2026-03-10T13:10:00Z").await;
    app.use_pages("u", 4).await.expect(201);
    app.release(&later).await.expect(200);
    assert_eq!(used(&app).await, "4", "the window in which it was taken is over");
    app.finish().await;
}

#[tokio::test]
async fn a_best_effort_gets_what_all_tenants_have_left_and_returns_what_its_tenant_has_not() {
    let app = with_fair(json!([day_of("6")]), fair("10")).await;
    let best = |amount: u32| pages(amount).with("mode", "best_effort");
    let cut = app.post(RESERVATIONS, best(9)).await.expect(201);
    assert_eq!(cut.text("/lines/0/amount"), "6", "the day's");
    assert_eq!(used(&app).await, "6");
    let tried = app.post(RESERVATIONS, best(6).of("other").with("dry_run", true)).await.expect(200);
    assert_eq!((tried.text("/lines/0/amount"), &tried.body["allowed"]), ("4", &json!(true)));
    let cut = app.post_keyed(RESERVATIONS, "k", best(6).of("other")).await.expect(201);
    assert_eq!((cut.text("/lines/0/amount"), cut.text("/lines/0/requested")), ("4", "6"));
    let again = app.post_keyed(RESERVATIONS, "k", best(6).of("other")).await.expect(200);
    assert_eq!(again.text("/lines/0/amount"), "4");
    let none = app.post(RESERVATIONS, best(1).of("other")).await;
    none.is_problem(429, "rate_limited");
    assert_eq!(refused_by(&none), ["fair"]);
    assert_eq!(used(&app).await, "10");
    app.finish().await;
}

#[tokio::test]
async fn a_dry_run_counts_nothing_and_names_what_would_refuse() {
    let app = with_fair(json!([]), fair("10")).await;
    app.hold(6).await;
    let tried = app.post(RESERVATIONS, pages(5).with("dry_run", true)).await.expect(200);
    assert_eq!((&tried.body["allowed"], refused_by(&tried)), (&json!(false), vec!["fair"]));
    let tried = app.post(RESERVATIONS, pages(4).with("dry_run", true)).await.expect(200);
    assert_eq!((&tried.body["allowed"], refused_by(&tried)), (&json!(true), vec![]));
    assert_eq!(used(&app).await, "6");
    app.finish().await;
}

#[tokio::test]
async fn a_key_of_one_tenant_sees_no_figure_of_all_tenants() {
    let app = with_fair(json!([day_of("9")]), fair("10")).await;
    let bound = app.make_key("service", Some("acme")).await;
    app.post(RESERVATIONS, pages(7).of("other")).await.expect(201);
    let held = bound.post(RESERVATIONS, pages(1)).await.expect(201);
    let used_up = bound.post_keyed(USAGE, "u", pages(1)).await.expect(201);
    let refused = bound.post(RESERVATIONS, pages(2)).await;
    refused.is_problem(429, "rate_limited");
    let reason = &refused.body["refused_by"][0];
    for (answer, shown) in
        [(&held, limit(&held, "fair")), (&used_up, limit(&used_up, "fair")), (&refused, reason)]
    {
        assert_eq!(shown["capacity"], "10", "{answer:?}");
        for field in ["consumed", "reserved", "remaining"] {
            assert_eq!(shown.get(field), None, "{answer:?}");
        }
        assert!(!answer.header("ratelimit").contains("fair"), "{answer:?}");
        assert!(answer.header("ratelimit").contains("day"), "{answer:?}");
    }
    assert_eq!(reason.get("shortfall"), None);
    assert_eq!((reason["needed"].as_str(), reason["retry_after_ms"].as_i64()), (Some("2"), Some(3_600_000)));
    let told = "fair counts all tenants and has no room for 2; it resets at 2026-03-10T13:00:00Z";
    assert_eq!((refused.text("/detail"), reason["message"].as_str().unwrap()), (told, told));
    assert_eq!(held.body["warnings"], json!([]), "it is near its capacity");
    let path = format!("/v1/decisions/{}", refused.text("/decision_id"));
    let explained = bound.get(&path).await.expect(200);
    let of_fair = limit(&explained, "fair");
    assert_eq!((of_fair["refused"].as_bool(), of_fair.get("consumed")), (Some(true), None), "{explained:?}");
    let all = app.post(RESERVATIONS, pages(2)).await;
    assert_eq!((all.text("/refused_by/0/consumed"), all.text("/refused_by/0/shortfall")), ("9", "1"));
    assert!(all.header("ratelimit").contains("\"fair\";r=1"), "{all:?}");
    app.finish().await;
}

/// `acme` and `other` under these limits of light calls, and all of them under so many calls an hour.
async fn with_calls(limits: Value, capacity: &str) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    with_limits(&app, limits).await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    app.define("limits/fair", fair(capacity).with("meter", "call")).await;
    app
}

async fn calls_used(app: &TestApp) -> String {
    let look = app.post(CHECK, of("read").with("peek", true)).await.expect(200);
    limit(&look, "fair")["consumed"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn checks_of_all_tenants_are_counted_together_and_given_back_where_their_own_limits_refuse() {
    let app = with_calls(json!([super::ratelimit::minute("4")]), "6").await;
    let bound = app.make_key("service", Some("acme")).await;
    for _ in 0..3 {
        app.post(CHECK, of("read")).await.expect(200);
    }
    let refused = app.post(CHECK, of("read").with("cost", "2")).await.expect(200);
    assert_eq!((&refused.body["allowed"], refused_by(&refused)), (&json!(false), vec!["minute"]));
    assert_eq!(calls_used(&app).await, "3", "it came back");
    let allowed = app.post(CHECK, of("read").of("other").with("cost", "2")).await.expect(200);
    assert_eq!((&allowed.body["allowed"], &allowed.body["remaining_calls"]), (&json!(true), &json!(0)));
    let refused = app.post(CHECK, of("read").of("other").with("cost", "2")).await.expect(200);
    assert_eq!((refused_by(&refused), refused.body["code"].as_str()), (vec!["fair"], Some("rate_limited")));
    assert_eq!(limit(&refused, "minute")["remaining"], "2", "nothing is counted there either");
    let hidden = bound.post(CHECK, of("read").with("cost", "2")).await.expect(200);
    assert_eq!(refused_by(&hidden), ["minute", "fair"]);
    assert_eq!((limit(&hidden, "fair").get("remaining"), &hidden.body["remaining_calls"]), (None, &json!(0)));
    let several = json!([of("read"), of("read").of("other").with("cost", "2")]);
    let answer = app.post(CHECK, json!({ "checks": several })).await.expect(200);
    let allowed = |answer: &Answered, at: usize| answer.body["results"][at]["allowed"].clone();
    assert_eq!([allowed(&answer, 0), allowed(&answer, 1)], [json!(true), json!(false)]);
    assert_eq!(calls_used(&app).await, "6");
    app.finish().await;
}

#[tokio::test]
async fn checks_together_take_all_or_nothing_of_all_tenants() {
    let app = with_calls(json!([super::ratelimit::minute("5")]), "6").await;
    let together = |costs: [&str; 2]| {
        let checks: Value = costs.iter().map(|cost| of("read").with("cost", *cost)).collect();
        json!({ "checks": checks, "atomic": true })
    };
    let refused = app.post(CHECK, together(["3", "4"])).await.expect(200);
    assert_eq!(refused.body["allowed"], false, "seven of six");
    assert_eq!(calls_used(&app).await, "0");
    let refused = app.post(CHECK, together(["3", "3"])).await.expect(200);
    assert_eq!(refused.body["allowed"], false, "six of five of their own");
    assert_eq!(calls_used(&app).await, "0", "and all of it came back");
    app.post(CHECK, together(["3", "2"])).await.expect(200);
    assert_eq!(calls_used(&app).await, "5");
    app.finish().await;
}

#[tokio::test]
async fn a_call_that_only_all_tenants_limit_counts_is_decided_by_it_alone() {
    let app = with_calls(json!([]), "2").await;
    for allowed in [true, true, false] {
        let answer = app.post(CHECK, of("read")).await.expect(200);
        assert_eq!(answer.body["allowed"], allowed, "{answer:?}");
    }
    app.define("meters/call", json!({ "unit": "call", "booked": false, "without_limit": "deny" })).await;
    app.move_clock("2026-03-10T13:00:00Z").await;
    let denied = app.post(CHECK, of("read")).await.expect(200);
    assert_eq!((&denied.body["allowed"], refused_by(&denied)), (&json!(false), vec![]));
    assert_eq!(denied.body["code"], "exceeds_plan", "what bounds all tenants entitles none");
    app.finish().await;
}

#[tokio::test]
async fn checks_of_booked_meters_and_items_of_a_batch_are_counted_too() {
    let app = with_fair(json!([]), fair("10")).await;
    let costs = json!([{ "meter": "page", "weights": { "pages": "1" } }]);
    app.define("operations/submit", json!({ "costs": costs })).await;
    let check = |pages: u32| of("submit").with("attributes", json!({ "pages": pages }));
    app.post_keyed(CHECK, "c", check(3)).await.expect(200);
    let looked = app.post_keyed(CHECK, "d", check(8).with("peek", true)).await.expect(200);
    assert_eq!((&looked.body["allowed"], refused_by(&looked)), (&json!(false), vec!["fair"]));
    let refused = app.post_keyed(CHECK, "d", check(8)).await.expect(200);
    assert_eq!((&refused.body["allowed"], refused_by(&refused)), (&json!(false), vec!["fair"]));
    let items: Value = (0..10)
        .map(|n| json!({ "call": "reserve", "idempotency_key": format!("k{n}"), "body": pages(1) }))
        .collect();
    let batch = app.post("/v1/batch", json!({ "items": items })).await.expect(200);
    let results = batch.body["results"].as_array().unwrap().iter();
    let mut statuses: Vec<_> = results.map(|result| result["status"].as_u64().unwrap()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [[201; 7].as_slice(), &[429; 3]].concat());
    assert_eq!(used(&app).await, "10");
    app.finish().await;
}

#[tokio::test]
async fn an_event_counts_once_in_a_day_of_all_tenants_that_goes_on_and_is_never_refused() {
    let daily = json!({ "meter": "page", "scope": "global", "window": "day", "capacity": "10" });
    let app = with_fair(json!([]), daily).await;
    for _ in 0..2 {
        send(&app, &event("e", 12, Some("2026-03-10T09:00:00Z"))).await;
        send(&app, &event("old", 3, Some("2026-03-09T23:00:00Z"))).await;
    }
    assert_eq!(used(&app).await, "12");
    app.post(RESERVATIONS, pages(1)).await.is_problem(429, "rate_limited");
    app.finish().await;
}

#[tokio::test]
async fn another_event_under_a_used_id_takes_nothing_off_what_the_first_one_counted() {
    let daily = json!({ "meter": "page", "scope": "global", "window": "day", "capacity": "2000" });
    let app = with_fair(json!([]), daily).await;
    send(&app, &event("e", 1_000, Some("2026-03-10T09:00:00Z"))).await;
    let other = send(&app, &event("e", 1, Some("2026-03-10T09:00:00Z"))).await;
    assert_eq!(other.text("/results/0/problem/code"), "idempotency_key_reused", "{other:?}");
    assert_eq!(used(&app).await, "1000");
    app.finish().await;
}

#[tokio::test]
async fn an_event_that_no_counter_can_hold_is_refused_and_no_other_tenant_notices() {
    let daily =
        json!({ "meter": "page", "scope": "global", "window": "day", "capacity": "10", "kind": "soft" });
    let app = with_fair(json!([]), daily).await;
    let mut huge = event("huge", 1, None);
    huge["data"]["amount"] = json!("9000000000000000");
    app.post(RESERVATIONS, pages(1).of("other")).await.expect(201);
    let answer = send(&app, &huge).await;
    assert_eq!(answer.text("/results/0/status"), "rejected", "{answer:?}");
    assert_eq!(answer.text("/results/0/problem/code"), "validation_failed", "{answer:?}");
    app.post(RESERVATIONS, pages(1).of("other")).await.expect(201);
    assert_eq!(used(&app).await, "2");
    app.finish().await;
}

#[tokio::test]
async fn the_load_scales_it_where_it_asks_for_that() {
    let app = with_fair(json!([]), fair("100").with("load_scaled", true)).await;
    app.put("/v1/admin/load/workers", json!({ "factor": "0.9", "ttl_seconds": 3_600 })).await.expect(200);
    let refused =
        crate::support::wait::wait_for("the load is known", std::time::Duration::from_secs(10), async || {
            let look = app.post(RESERVATIONS, pages(60).with("dry_run", true)).await;
            (look.body["allowed"] == false).then_some(look)
        })
        .await;
    assert!(refused.text("/refused_by/0/message").contains("the load leaves it 50 of 100"), "{refused:?}");
    app.post(RESERVATIONS, pages(60)).await.is_problem(429, "rate_limited");
    app.post(RESERVATIONS, pages(50)).await.expect(201);
    app.finish().await;
}

#[tokio::test]
async fn its_kind_and_its_rollout_are_those_of_any_limit() {
    let app = with_fair(json!([]), fair("10").with("kind", "soft")).await;
    app.use_pages("a", 12).await.expect(201);
    let over = app.use_pages("b", 1).await.expect(201);
    assert_eq!(over.text("/warnings/0/code"), "over_limit");
    app.define("limits/fair", fair("10").with("kind", "shadow")).await;
    let shadowed = app.use_pages("c", 1).await.expect(201);
    assert_eq!(shadowed.text("/warnings/0/code"), "shadow_refused");
    assert_eq!(used(&app).await, "13", "it is not counted");
    app.define("limits/fair", fair("10")).await;
    app.use_pages("d", 1).await.is_problem(429, "rate_limited");
    app.define("limits/fair", fair("10").with("rollout_percent", 0)).await;
    assert_eq!(app.use_pages("d", 1).await.expect(201).body["limits"], json!([]));
    app.define("limits/fair", fair("10").with("kind", "off")).await;
    app.use_pages("e", 1).await.expect(201);
    app.define("limits/fair", fair("10")).await;
    assert_eq!(used(&app).await, "0", "off begins another counter");
    app.finish().await;
}

#[tokio::test]
async fn a_budget_counts_the_weights_of_several_meters_of_all_tenants() {
    let budget = json!({
        "meters": { "page": "1", "token": "0.5" }, "decimals": 1, "scope": "global", "algorithm": "sliding_counter",
        "window_seconds": 600, "sub_windows": 6, "capacity": "10"
    });
    let app = with_fair(json!([]), budget).await;
    let lines = json!([{ "meter": "page", "amount": "3" }, { "meter": "token", "amount": "8" }]);
    app.post(RESERVATIONS, json!({ "tenant": "other", "lines": lines })).await.expect(201);
    assert_eq!(used(&app).await, "7");
    app.post(RESERVATIONS, pages(4)).await.is_problem(429, "rate_limited");
    app.finish().await;
}

#[tokio::test]
async fn what_cannot_count_all_tenants_is_refused_with_the_field() {
    let app = with_fair(json!([day_of("5")]), fair("10")).await;
    let bucket = json!({
        "meter": "page", "scope": "global", "algorithm": "token_bucket", "refill": "1", "per_seconds": 1, "capacity": "5"
    });
    let daily = json!({ "meter": "page", "scope": "global", "window": "day", "capacity": "10" });
    for (path, body, pointer) in [
        ("limits/new", bucket, "/algorithm"),
        ("limits/new", daily.clone().with("window", "period"), "/window"),
        ("limits/new", daily.clone().with("class", "quota"), "/class"),
        ("limits/new", daily.clone().with("subject_kind", "user"), "/subject_kind"),
        (
            "limits/new",
            daily.clone().with("punishment", json!({ "memory_seconds": 60, "warn_at": 2 })),
            "/punishment",
        ),
        ("plans/plan", json!({ "limits": [daily.clone().with("id", "new")] }), "/limits/0/scope"),
        (
            "tenants/acme",
            json!({ "plan": "plan", "limits": [daily.clone().with("id", "new")] }),
            "/limits/0/scope",
        ),
        ("plans/plan", json!({ "limits": [day_of("5").with("id", "fair")] }), "/limits/0/id"),
        ("limits/day", fair("10"), "/plans/plan/limits/0/id"),
        (
            "overrides/o",
            json!({ "tenant": "acme", "level": "tenant", "limit": "fair", "capacity": "99" }),
            "/limit",
        ),
    ] {
        let answer = app.put(&format!("/v1/admin/{path}"), body).await;
        answer.is_problem(422, "validation_failed");
        assert!(answer.pointers().contains(&pointer), "{path}: {answer:?}");
    }
    app.finish().await;
}

#[tokio::test]
async fn a_call_that_no_such_limit_counts_leaves_nothing_in_their_partition() {
    let app = with_fair(json!([]), fair("10")).await;
    let tokens = json!({ "tenant": "acme", "meter": "token", "amount": "1" });
    app.post_keyed(RESERVATIONS, "k", tokens).await.expect(201);
    let client = redis::Client::open(app.redis.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let is_global = |key: &&String| key.ends_with(":global") || key.contains(":taken:");
    assert_eq!(keys.iter().find(is_global), None);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_callers_repeat_and_are_refused_it_counts_what_was_admitted() {
    let app = with_fair(json!([day_of("9")]), fair("12")).await;
    let keys = || (0..60).map(|number| format!("k{}", number % 15));
    for tenant in ["acme", "other"] {
        let calls = keys().map(|key| {
            let caller = app.caller();
            async move { caller.post_keyed(RESERVATIONS, &key, pages(1).of(tenant)).await }
        });
        let answers = futures::future::join_all(calls).await;
        assert!(answers.iter().all(|answer| [200, 201, 429].contains(&answer.status)), "{answers:?}");
        let admitted = answers.iter().filter(|answer| answer.status == 201).count();
        assert_eq!(admitted, if tenant == "acme" { 9 } else { 3 }, "{tenant}");
    }
    assert_eq!(used(&app).await, "12", "nothing is stranded, and nothing got through");
    app.finish().await;
}
