//! Checks of meters that the gate alone counts, and of booked ones; and where a subject stands.

use serde_json::{Value, json};

use crate::support::app::*;

pub(super) const CHECK: &str = "/v1/ratelimit/check";

/// The meter `call`, which is not booked, the operations `read`, `write` (by tier) and `submit` of booked pages, and
/// `acme` under these limits.
pub(super) async fn with_limits(app: &TestApp, limits: Value) {
    app.define("meters/call", json!({ "unit": "call", "booked": false, "without_limit": "unlimited" })).await;
    app.define("meters/page", json!({ "unit": "page", "without_limit": "unlimited" })).await;
    let by_tier = json!({ "tier": { "fast": "2" } });
    for (operation, costs) in [
        ("read", json!([{ "meter": "call", "base": "1" }])),
        ("write", json!([{ "meter": "call", "base": "5", "factors": by_tier }])),
        ("submit", json!([{ "meter": "page", "weights": { "pages": "1" } }])),
        ("mixed", json!([{ "meter": "page", "base": "1" }, { "meter": "call", "base": "1" }])),
    ] {
        app.define(&format!("operations/{operation}"), json!({ "costs": costs })).await;
    }
    app.define("plans/plan", json!({ "limits": limits })).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
}

pub(super) fn minute(capacity: &str) -> Value {
    json!({ "id": "minute", "meter": "call", "algorithm": "fixed_window", "window_seconds": 60, "capacity": capacity })
}

pub(super) fn per_ip(capacity: &str) -> Value {
    minute(capacity).with("id", "ip").with("scope", "subject").with("subject_kind", "ip")
}

pub(super) fn of(operation: &str) -> Value {
    json!({ "tenant": "acme", "operation": operation })
}

pub(super) async fn started(limits: Value) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    with_limits(&app, limits).await;
    app
}

#[tokio::test]
async fn a_check_is_counted_until_the_limit_and_allowed_again_when_its_window_is_over() {
    let app = started(json!([minute("11")])).await;
    let first = app.post(CHECK, of("write")).await.expect(200);
    let told = ["allowed", "limit", "remaining", "remaining_calls", "reset_seconds", "degraded"]
        .map(|field| first.body[field].clone());
    assert_eq!(json!(told), json!([true, "11", "6", 1, 60, false]));
    assert_eq!(first.body.get("retry_after_seconds"), None);
    let headers = (first.header("ratelimit"), first.header("ratelimit-policy"));
    assert_eq!(headers, ("\"minute\";r=6;t=60", "\"minute\";q=11;w=60"));
    app.move_clock("2026-03-10T12:00:20.5Z").await;
    assert_eq!(app.post(CHECK, of("write")).await.expect(200).body["remaining_calls"], 0);
    let refused = app.post(CHECK, of("write")).await.expect(200);
    let told = ["allowed", "remaining", "retry_after_seconds"].map(|field| refused.body[field].clone());
    assert_eq!(json!(told), json!([false, "1", 40]), "{refused:?}");
    assert_eq!(refused.text("/refused_by/0/id"), "minute");
    assert_eq!(refused.header("retry-after"), "40");
    app.move_clock("2026-03-10T12:01:00Z").await;
    assert_eq!(app.post(CHECK, of("write")).await.expect(200).text("/remaining"), "6");
    app.finish().await;
}

#[tokio::test]
async fn the_older_headers_say_of_the_tightest_limit_what_the_draft_says() {
    let app = an_app()
        .at("2026-03-10T12:00:00Z")
        .with("http.ratelimit_headers_legacy", true)
        .with("http.x_ratelimit_headers", true)
        .start()
        .await;
    with_limits(&app, json!([minute("11"), day_of("100")])).await;
    let trios = |answer: &Answered| {
        let of = |trio: &str| {
            ["limit", "remaining", "reset"]
                .map(|figure| answer.header(&format!("{trio}-{figure}")).to_owned())
        };
        assert_eq!(of("ratelimit"), of("x-ratelimit"), "{answer:?}");
        of("ratelimit")
    };
    assert_eq!(trios(&app.post(CHECK, of("write")).await.expect(200)), ["11", "6", "60"]);
    app.move_clock("2026-03-10T12:00:20.5Z").await;
    app.post(CHECK, of("write")).await.expect(200);
    assert_eq!(trios(&app.post(CHECK, of("write")).await.expect(200)), ["11", "1", "40"], "refused");
    let left_of_day = (12 * 3_600 - 20).to_string();
    assert_eq!(
        trios(&app.post(RESERVATIONS, pages(40)).await.expect(201)),
        ["100", "60", left_of_day.as_str()]
    );
    let refused = app.post(RESERVATIONS, pages(61)).await.expect(429);
    assert_eq!(trios(&refused), ["100", "60", left_of_day.as_str()]);
    let used = app.use_pages("used", 10).await.expect(201);
    assert_eq!(trios(&used), ["100", "50", left_of_day.as_str()]);
    app.finish().await;
}

#[tokio::test]
async fn a_cost_or_a_tier_says_how_much_a_check_is() {
    let app = started(json!([minute("100")])).await;
    let left = async |body: Value| app.post(CHECK, body).await.expect(200).text("/remaining").to_owned();
    assert_eq!(left(of("read").with("cost", "7")).await, "93");
    assert_eq!(left(of("write").with("tier", "fast")).await, "83");
    assert_eq!(left(of("write").with("attributes", json!({ "tier": "fast" }))).await, "73");
    assert_eq!(left(of("read").with("peek", true)).await, "73", "a look moves nothing");
    let above = app.post(CHECK, of("read").with("cost", "101")).await.expect(200);
    assert_eq!((above.body["allowed"].clone(), above.body.get("retry_after_seconds")), (json!(false), None));
    app.finish().await;
}

#[tokio::test]
async fn a_call_of_an_endpoint_is_the_operation_whose_pattern_it_matches_best_or_has_a_default_cost() {
    let app = started(json!([minute("1000")])).await;
    let costing = |base: &str, patterns: Value| json!({ "costs": [{ "meter": "call", "base": base, "factors": { "tier": { "fast": "2" } } }], "match": patterns });
    let post = |path: &str| json!([{ "method": "POST", "path": path }]);
    app.define("operations/any", costing("3", post("/v1/**"))).await;
    app.define("operations/ocr", costing("10", post("/v1/ocr/*"))).await;
    let taken = app.put("/v1/admin/operations/other", costing("1", post("/v1/ocr/*"))).await.expect(422);
    assert!(taken.pointers().contains(&"/match/0"), "{taken:?}");
    let wrong = app.put("/v1/admin/operations/other", costing("1", post("/v1/o*"))).await.expect(422);
    assert_eq!(wrong.pointers(), ["/match/0/path"], "{wrong:?}");
    let call =
        |method: &str, endpoint: &str| json!({ "tenant": "acme", "method": method, "endpoint": endpoint });
    let mut used = 0;
    let mut costs = async |body: Value| {
        let answer = app.post(CHECK, body).await.expect(200);
        let consumed: i32 = answer.text("/limits/0/consumed").parse().unwrap();
        consumed - std::mem::replace(&mut used, consumed)
    };
    assert_eq!(costs(call("POST", "/v1/ocr/7")).await, 10);
    assert_eq!(costs(call("POST", "/v1/ocr/7").with("tier", "fast")).await, 20);
    assert_eq!(costs(call("POST", "/v1/ocr/7/pages")).await, 3);
    assert_eq!(costs(call("POST", "/v1/ocr/7").with("operation", "read")).await, 1, "a named operation wins");
    let unknown = app.post(CHECK, call("GET", "/v1/ocr/7")).await.expect(422);
    assert_eq!(unknown.pointers(), ["/method"]);
    let defaults = json!({ "meter": "call", "methods": { "GET": "2", "POST": "5" }, "other": "4" });
    app.define("cost_defaults/default", defaults.clone()).await;
    assert_eq!(costs(call("GET", "/v1/ocr/7")).await, 2);
    assert_eq!(costs(json!({ "tenant": "acme", "method": "POST" })).await, 5);
    assert_eq!(costs(call("PATCH", "/")).await, 4);
    assert_eq!(costs(call("PATCH", "/").with("cost", "9")).await, 9);
    for (body, pointer) in [
        (call("GET", "/x").with("tier", "fast"), "/tier"),
        (json!({ "tenant": "acme", "endpoint": "/v1" }), "/method"),
        (call("get", "/v1"), "/method"),
        (call("GET", "v1"), "/endpoint"),
        (call("GET", "/v1?page=2"), "/endpoint"),
    ] {
        assert_eq!(app.post(CHECK, body.clone()).await.expect(422).pointers(), [pointer], "{body}");
    }
    app.finish().await;
}

#[tokio::test]
async fn cost_defaults_are_written_by_file_or_alone_and_name_their_faults() {
    let app = started(json!([])).await;
    let put = async |body: Value| app.put("/v1/admin/cost_defaults/default", body).await;
    for (body, pointer) in [
        (json!({ "meter": "nothing", "other": "1" }), "/meter"),
        (json!({ "meter": "call" }), "/other"),
        (json!({ "meter": "call", "other": "0" }), "/other"),
        (json!({ "meter": "call", "methods": { "get": "1" } }), "/methods/get"),
        (json!({ "meter": "call", "methods": { "GET": "0.5" } }), "/methods/GET"),
        (json!({ "meter": "call", "other": "1", "colour": "red" }), "/colour"),
    ] {
        assert_eq!(put(body.clone()).await.expect(422).pointers(), [pointer], "{body}");
    }
    app.put("/v1/admin/cost_defaults/second", json!({ "meter": "call", "other": "1" })).await.expect(422);
    let apply = async |policy: Value, prune: Value| {
        app.post("/v1/admin/policy", json!({ "policy": policy, "prune": prune })).await.expect(200)
    };
    let made = apply(json!({ "cost_defaults": { "meter": "call", "other": "1" } }), json!([])).await;
    assert_eq!((made.text("/changes/0/kind"), made.text("/changes/0/action")), ("cost_defaults", "create"));
    let stored = app.get("/v1/admin/cost_defaults/default").await.expect(200);
    assert_eq!((stored.text("/meter"), stored.text("/other")), ("call", "1"));
    app.delete("/v1/admin/meters/call").await.is_problem(409, "in_use");
    let pruned = apply(json!({}), json!(["cost_defaults"])).await;
    assert_eq!(pruned.text("/changes/0/action"), "delete");
    app.get("/v1/admin/cost_defaults/default").await.is_problem(404, "not_found");
    app.finish().await;
}

#[tokio::test]
async fn a_check_under_a_tenants_and_a_subjects_limit_moves_both_or_none() {
    let app = started(json!([minute("5"), per_ip("2")])).await;
    let from = |ip: &str| of("read").with("subjects", json!({ "ip": ip }));
    for (ip, allowed, left) in [
        ("192.0.2.1", true, "1"),
        ("192.0.2.1", true, "0"),
        ("192.0.2.1", false, "0"),
        ("192.0.2.2", true, "2"),
    ] {
        let answer = app.post(CHECK, from(ip)).await.expect(200);
        assert_eq!(
            (answer.body["allowed"].as_bool(), answer.text("/remaining")),
            (Some(allowed), left),
            "{answer:?}"
        );
    }
    let quota = app.quota().await;
    let minute = quota.body["limits"]
        .as_array()
        .unwrap()
        .iter()
        .find(|limit| limit["id"] == "minute")
        .unwrap()
        .clone();
    assert_eq!(minute["consumed"], "3", "the refused one was not counted");
    app.finish().await;
}

#[tokio::test]
async fn where_a_subject_stands_is_read_and_leaves_nothing_behind() {
    let app = started(json!([minute("5"), per_ip("2")])).await;
    app.post(CHECK, of("read").with("subjects", json!({ "ip": "192.0.2.1" }))).await.expect(200);
    let keys = || {
        let all: Vec<String> = redis::cmd("KEYS")
            .arg("*")
            .query(&mut redis::Client::open(app.redis.url()).unwrap().get_connection().unwrap())
            .unwrap();
        all.len()
    };
    let status = async |subject: &str| {
        let path = format!("/v1/ratelimit/status/{subject}?tenant=acme&kind=ip");
        app.get(&path).await.expect(200)
    };
    let known = status("192.0.2.1").await;
    let before = keys();
    let left = |answer: &Answered| {
        let limits = answer.body["limits"].as_array().unwrap().clone();
        limits.iter().map(|limit| (limit["id"].clone(), limit["remaining"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(left(&known), [(json!("minute"), json!("4")), (json!("ip"), json!("1"))]);
    assert_eq!(
        (known.text("/subject/kind"), known.text("/subject/id"), known.text("/source")),
        ("ip", "192.0.2.1", "gate")
    );
    let unknown = status("192.0.2.9").await;
    assert_eq!(left(&unknown), [(json!("minute"), json!("4")), (json!("ip"), json!("2"))]);
    assert_eq!(keys(), before);
    app.get("/v1/ratelimit/status/ada").await.is_problem(400, "invalid_request");
    app.get("/v1/ratelimit/status/ada?tenant=nobody").await.is_problem(404, "not_found");
    app.finish().await;
}

#[tokio::test]
async fn however_many_limits_a_meter_has_that_is_not_booked_all_of_them_are_read() {
    let limits = (0..300).map(|number| minute("5").with("id", format!("minute-{number}")));
    let of_user = per_ip("3").with("id", "user").with("subject_kind", "user");
    let app = started(limits.chain([of_user, day_of("10")]).collect()).await;
    app.use_pages("one", 4).await.expect(201);
    let status = app.get("/v1/ratelimit/status/ada?tenant=acme").await.expect(200);
    let limits = status.body["limits"].as_array().unwrap();
    assert_eq!(limits.len(), 302);
    let left = |id: &str| limits.iter().find(|limit| limit["id"] == id).unwrap()["remaining"].clone();
    assert_eq!(["minute-0", "minute-299", "user", "day"].map(left), ["5", "5", "3", "6"]);
    app.finish().await;
}

#[tokio::test]
async fn on_a_booked_meter_a_check_is_a_usage_and_needs_a_key() {
    let app = started(json!([day_of("10")])).await;
    let pages = |count: u32| of("submit").with("attributes", json!({ "pages": count }));
    app.post(CHECK, pages(6)).await.is_problem(400, "idempotency_key_required");
    for _ in 0..2 {
        let allowed = app.post_keyed(CHECK, "once", pages(6)).await.expect(200);
        assert_eq!((allowed.body["allowed"].as_bool(), allowed.text("/remaining")), (Some(true), "4"));
        assert_eq!(allowed.body["remaining_calls"], 0);
    }
    let refused = app.post_keyed(CHECK, "twice", pages(6)).await.expect(200);
    assert_eq!((refused.body["allowed"].as_bool(), refused.text("/refused_by/0/id")), (Some(false), "day"));
    let look = app.post(CHECK, pages(4).with("peek", true)).await.expect(200);
    assert_eq!(
        (look.body["allowed"].as_bool(), look.body["remaining_calls"].as_i64()),
        (Some(true), Some(1))
    );
    let look = app.post(CHECK, pages(5).with("peek", true)).await.expect(200);
    assert_eq!((look.body["allowed"].as_bool(), look.text("/code")), (Some(false), "quota_exceeded"));
    let look = app.post(CHECK, pages(11).with("peek", true)).await.expect(200);
    assert_eq!((look.body["allowed"].as_bool(), look.text("/code")), (Some(false), "exceeds_plan"));
    app.post_keyed(CHECK, "once", pages(7)).await.is_problem(422, "idempotency_key_reused");
    app.drained().await;
    let usage = app.get("/v1/tenants/acme/usage").await.expect(200);
    assert_eq!(usage.text("/data/0/consumed"), "6", "{usage:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_meter_that_is_not_booked_has_limits_of_class_rate_and_no_quota() {
    let app = started(json!([minute("5")])).await;
    let day = json!({ "id": "day", "meter": "call", "window": "day", "capacity": "5" });
    let refused = app.put("/v1/admin/limits/day", day.clone()).await.expect(422);
    assert_eq!(refused.pointers(), ["/class"]);
    app.define("limits/day", day.with("class", "rate")).await;
    let quotas = json!([{ "meter": "call", "included": "5" }]);
    let refused = app.put("/v1/admin/plans/plan", json!({ "quotas": quotas })).await.expect(422);
    assert_eq!(refused.pointers(), ["/quotas/0/meter"]);
    let prices = json!([
        { "meter": "call", "model": "per_unit", "currency": "EUR", "effective_from": "2026-01-01", "unit": "1" }
    ]);
    let refused = app.put("/v1/admin/plans/plan", json!({ "prices": prices })).await.expect(422);
    assert!(refused.pointers().contains(&"/prices/0/meter"), "{refused:?}");
    app.define("limits/pages", json!({ "id": "pages", "meter": "page", "window": "day", "capacity": "5" }))
        .await;
    let refused = app
        .put(
            "/v1/admin/meters/page",
            json!({ "unit": "page", "booked": false, "without_limit": "unlimited" }),
        )
        .await
        .expect(422);
    assert_eq!(refused.pointers(), ["/limits/pages/class"], "what would become wrong is named");
    app.delete("/v1/admin/limits/pages").await.expect(204);
    app.use_pages("one", 1).await.expect(201);
    let refused = app
        .put(
            "/v1/admin/meters/page",
            json!({ "unit": "page", "booked": false, "without_limit": "unlimited" }),
        )
        .await
        .expect(422);
    assert_eq!(refused.pointers(), ["/booked"], "it is in the books");
    app.finish().await;
}

#[tokio::test]
async fn a_check_holds_nothing_so_a_limit_of_what_runs_at_once_lets_it_through() {
    let slots = json!({ "id": "slots", "meter": "call", "algorithm": "concurrency", "capacity": "1" });
    let app = started(json!([slots.clone(), minute("2")])).await;
    let call = json!({ "tenant": "acme", "meter": "call", "amount": "1" });
    app.held(call.clone()).await;
    let refused = app.post(RESERVATIONS, call).await.expect(429);
    assert_eq!(refused.text("/refused_by/0/id"), "slots", "the only slot is taken");
    let allowed = app.post(CHECK, of("read")).await.expect(200);
    let told = ["allowed", "remaining", "remaining_calls"].map(|field| allowed.body[field].clone());
    assert_eq!(json!(told), json!([true, "0", 0]), "{allowed:?}");
    assert_eq!(allowed.body["limits"].as_array().map(Vec::len), Some(1), "{allowed:?}");
    let refused = app.post(CHECK, of("read")).await.expect(200);
    let told = (&refused.body["allowed"], refused.text("/refused_by/0/id"));
    assert_eq!(told, (&json!(false), "minute"), "{refused:?}");
    app.define("plans/plan", json!({ "limits": [slots] })).await;
    let allowed = app.post(CHECK, of("read").with("cost", 9)).await.expect(200);
    assert_eq!((&allowed.body["allowed"], &allowed.body["limits"]), (&json!(true), &json!([])));
    app.finish().await;
}

#[tokio::test]
async fn whom_a_limit_of_what_runs_at_once_has_banned_may_not_check() {
    let punishment = json!({ "memory_seconds": 3600, "ban_at": 1, "ban_seconds": 60, "max_ban_seconds": 60 });
    let slots = json!({ "id": "slots", "meter": "call", "algorithm": "concurrency", "capacity": "1" });
    let app = started(json!([slots.with("punishment", punishment)])).await;
    let call = json!({ "tenant": "acme", "meter": "call", "amount": "1" });
    app.post(CHECK, of("read")).await.expect(200);
    app.held(call.clone()).await;
    let allowed = app.post(CHECK, of("read")).await.expect(200);
    assert_eq!(allowed.body["allowed"], true, "{allowed:?}");
    app.post(RESERVATIONS, call).await.is_problem(429, "rate_limited");
    let banned = app.post(CHECK, of("read")).await.expect(200);
    assert_eq!((&banned.body["allowed"], banned.text("/code")), (&json!(false), "banned"), "{banned:?}");
    app.move_clock("2026-03-10T12:01:00Z").await;
    let allowed = app.post(CHECK, of("read")).await.expect(200);
    assert_eq!(allowed.body["allowed"], true, "{allowed:?}");
    app.finish().await;
}

#[tokio::test]
async fn several_checks_are_decided_in_order_or_all_or_none() {
    let app = started(json!([minute("10")])).await;
    let checks =
        |amounts: &[u32]| -> Value { amounts.iter().map(|cost| of("read").with("cost", *cost)).collect() };
    let allowed = |answer: &Answered| {
        let results = answer.body["results"].as_array().unwrap().clone();
        results.iter().map(|result| result["allowed"].as_bool().unwrap()).collect::<Vec<_>>()
    };
    let each = app.post(CHECK, json!({ "checks": checks(&[4, 7, 4]) })).await.expect(200);
    assert_eq!((allowed(&each), each.body["allowed"].as_bool()), (vec![true, false, true], Some(false)));
    let none = app.post(CHECK, json!({ "checks": checks(&[1, 2]), "atomic": true })).await.expect(200);
    assert_eq!(allowed(&none), [false, false], "{none:?}");
    assert_eq!(none.text("/results/0/remaining"), "2", "the one that fits was not counted");
    let both = app.post(CHECK, json!({ "checks": checks(&[1, 1]), "atomic": true })).await.expect(200);
    assert_eq!((allowed(&both), both.text("/results/1/remaining")), (vec![true, true], "0"));
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    let of_two = json!([of("read"), of("read").of("other")]);
    let refused = app.post(CHECK, json!({ "checks": of_two, "atomic": true })).await.expect(422);
    assert_eq!(refused.pointers(), ["/atomic"]);
    let two = app.post(CHECK, json!({ "checks": of_two })).await.expect(200);
    assert_eq!(allowed(&two), [false, true], "each tenant by its own");
    let refused = app.post(CHECK, json!({ "checks": [of("read"), of("nothing")] })).await.expect(422);
    assert_eq!(refused.pointers(), ["/checks/1/operation"]);
    let booked = json!([of("submit").with("attributes", json!({ "pages": 1 })).with("idempotency_key", "k")]);
    let refused = app.post(CHECK, json!({ "checks": booked, "atomic": true })).await.expect(422);
    assert_eq!(refused.pointers(), ["/atomic"]);
    let refused = app.post(CHECK, json!({ "checks": [] })).await.expect(422);
    assert_eq!(refused.pointers(), ["/checks"]);
    app.finish().await;
}

#[tokio::test]
async fn a_batch_takes_checks_too() {
    let app = started(json!([minute("3")])).await;
    let item =
        |key: &str| json!({ "call": "check", "idempotency_key": key, "body": of("read").with("cost", 2) });
    let answer = app.post("/v1/batch", json!({ "items": [item("a"), item("b")] })).await.expect(200);
    let mut allowed: Vec<_> = answer.body["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["body"]["allowed"].as_bool().unwrap())
        .collect();
    allowed.sort();
    assert_eq!(allowed, [false, true], "{answer:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_check_that_is_wrong_names_its_fields() {
    let app = started(json!([minute("5")])).await;
    for (body, pointer) in [
        (json!({}), "/tenant"),
        (json!({ "tenant": "acme" }), "/operation"),
        (of("read").with("tenant", "nobody"), "/tenant"),
        (of("nothing"), "/operation"),
        (of("read").with("cost", "0"), "/cost"),
        (of("read").with("cost", "0.5"), "/cost"),
        (of("read").with("cost", "-1"), "/cost"),
        (of("mixed").with("cost", "1"), "/cost"),
        (of("write").with("cost", "1").with("tier", "fast"), "/tier"),
        (of("write").with("tier", "slow"), "/tier"),
        (of("read").with("tier", "fast"), "/tier"),
        (of("read").with("tier", "fast").with("attributes", json!({ "tier": "fast" })), "/tier"),
        (of("read").with("subject", "a").with("subjects", json!({})), "/subject"),
        (of("read").with("colour", "red"), "/colour"),
        (of("read").with("peek", "yes"), "/peek"),
    ] {
        let refused = app.post(CHECK, body.clone()).await.expect(422);
        assert_eq!(refused.pointers(), [pointer], "{body}: {refused:?}");
    }
    app.finish().await;
}

#[tokio::test]
async fn a_bound_key_checks_its_own_tenant_only() {
    let app = started(json!([minute("5")])).await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    let bound = app.make_key("service", Some("acme")).await;
    bound.post(CHECK, json!({ "operation": "read" })).await.expect(200);
    bound.post(CHECK, of("read").of("other")).await.is_problem(403, "forbidden");
    bound.post(CHECK, json!({ "checks": [of("read").of("other")] })).await.is_problem(403, "forbidden");
    assert_eq!(bound.get("/v1/ratelimit/status/ada").await.expect(200).text("/limits/0/remaining"), "4");
    bound.get("/v1/ratelimit/status/ada?tenant=other").await.is_problem(403, "forbidden");
    app.finish().await;
}

#[tokio::test]
async fn without_any_limit_a_meter_says_whether_a_check_is_allowed() {
    let app = started(json!([])).await;
    let free = app.post(CHECK, of("read")).await.expect(200);
    assert_eq!((free.body["allowed"].as_bool(), free.body.get("limit")), (Some(true), None));
    app.define("meters/call", json!({ "unit": "call", "booked": false, "without_limit": "deny" })).await;
    let denied = app.post(CHECK, of("read")).await.expect(200);
    assert_eq!(
        (denied.body["allowed"].as_bool(), denied.body.get("retry_after_seconds")),
        (Some(false), None)
    );
    app.finish().await;
}
