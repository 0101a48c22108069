//! What a reserve decides: best effort, dry run, stacked limits, excess over the hold, meters without limit.

use serde_json::{Value, json};
use tollgate::writer::retry;

use crate::support::app::*;

#[tokio::test]
async fn best_effort_grants_line_by_line_what_fits_and_says_what_was_asked() {
    let app = spawn_app().await;
    app.with_plan(
        json!([
            { "id": "pages", "meter": "page", "window": "day", "capacity": "10" },
            { "id": "tokens", "meter": "token", "window": "day", "capacity": "100" }
        ]),
        json!([quota_of("8")]),
    )
    .await;
    let lines = json!([{ "meter": "page", "amount": "12" }, { "meter": "token", "amount": "30" }]);
    let asked = json!({ "tenant": "acme", "lines": lines, "mode": "best_effort" });
    let tried = app.post(RESERVATIONS, asked.clone().with("dry_run", true)).await.expect(200);
    let granted = app.post_keyed(RESERVATIONS, "k", asked.clone()).await.expect(201);
    let lines = json!([
        { "meter": "page", "amount": "8", "requested": "12" },
        { "meter": "token", "amount": "30", "requested": "30" }
    ]);
    assert_eq!((&tried.body["lines"], &tried.body["allowed"]), (&lines, &json!(true)), "{tried:?}");
    assert_eq!(granted.body["lines"], lines, "{granted:?}");
    let again = app.post_keyed(RESERVATIONS, "k", asked).await.expect(200);
    assert_eq!(again.body["lines"], lines, "a replay answers the original lines");
    let nothing = app.post(RESERVATIONS, pages("1").with("mode", "best_effort")).await;
    nothing.is_problem(429, "quota_exceeded");
    app.finish().await;
}

#[tokio::test]
async fn all_lines_pass_or_nothing_moves() {
    let app = spawn_app().await;
    app.with_plan(
        json!([
            { "id": "pages", "meter": "page", "window": "day", "capacity": "10" },
            { "id": "tokens", "meter": "token", "window": "day", "capacity": "100" }
        ]),
        json!([]),
    )
    .await;
    let lines = json!([{ "meter": "page", "amount": "5" }, { "meter": "token", "amount": "101" }]);
    app.post(RESERVATIONS, json!({ "tenant": "acme", "lines": lines })).await.is_problem(402, "exceeds_plan");
    let quota = app.quota().await;
    for limit in quota.body["limits"].as_array().unwrap() {
        assert_eq!((&limit["consumed"], &limit["reserved"]), (&json!("0"), &json!("0")), "{limit}");
    }
    app.finish().await;
}

#[tokio::test]
async fn a_refused_best_effort_waits_until_a_part_can_be_granted() {
    let app = an_app().at("2026-03-10T12:10:00Z").start().await;
    let limits = json!([
        { "id": "hour", "meter": "page", "window": "hour", "capacity": "10" },
        { "id": "month", "meter": "page", "window": "month", "capacity": "15" },
        { "id": "none", "meter": "token", "window": "month", "capacity": "0" }
    ]);
    app.with_plan(limits, json!([])).await;
    let ask = |lines| json!({ "tenant": "acme", "lines": lines, "mode": "best_effort" });
    let (page, token) =
        (json!({ "meter": "page", "amount": "20" }), json!({ "meter": "token", "amount": "1" }));
    let part = app.post(RESERVATIONS, ask(json!([page]))).await.expect(201);
    assert_eq!(part.text("/lines/0/amount"), "10");
    let all = pages("20");
    app.post(RESERVATIONS, all).await.is_problem(402, "exceeds_plan");
    let held = app.post(RESERVATIONS, ask(json!([page]))).await;
    held.is_problem(429, "quota_exceeded");
    assert_eq!(held.text("/refused_by/0/cause"), "reserved", "{held:?}");
    assert_eq!((held.text("/refused_by/0/needed"), held.text("/refused_by/0/shortfall")), ("20", "20"));
    assert!(held.body["retry_after_ms"].as_i64().unwrap() <= 60_000, "the hold ends by then: {held:?}");
    let path = reservation(part.text("/id"), "consume");
    app.post(&path, json!({})).await.expect(200);
    let used = app.post(RESERVATIONS, ask(json!([page, token]))).await;
    used.is_problem(429, "quota_exceeded");
    assert_eq!(used.text("/refused_by/0/cause"), "consumed", "{used:?}");
    assert!(
        used.body["retry_after_ms"].as_i64().unwrap() <= 3_600_000,
        "the month has room for a part: {used:?}"
    );
    app.post(RESERVATIONS, ask(json!([token]))).await.is_problem(402, "exceeds_plan");
    let mut dry = ask(json!([page]));
    dry["dry_run"] = json!(true);
    let dry = app.post(RESERVATIONS, dry).await.expect(200);
    assert_eq!((&dry.body["allowed"], dry.text("/refused_by/0/id")), (&json!(false), "hour"), "{dry:?}");
    let waits = |answer: &Answered| answer.body["refused_by"][0]["retry_after_ms"].as_i64();
    let real = waits(&app.post(RESERVATIONS, ask(json!([page]))).await);
    assert!(waits(&dry).is_some_and(|dry| (dry - real.unwrap()).abs() < 60_000), "{dry:?} but {real:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_refusal_names_every_limit_that_refuses_and_waits_for_the_longest() {
    let app = an_app().at("2026-03-10T12:10:00Z").start().await;
    let limits = json!([
        { "id": "hour", "meter": "page", "window": "hour", "capacity": "10" },
        { "id": "month", "meter": "page", "window": "month", "capacity": "10", "message": "ask your sales contact" },
        { "id": "roomy", "meter": "page", "window": "day", "capacity": "1000" }
    ]);
    app.with_plan(limits, json!([quota_of("10")])).await;
    app.use_pages("k", "4").await.expect(201);
    app.hold("4").await;
    let refused = app.post(RESERVATIONS, pages("5")).await;
    refused.is_problem(429, "quota_exceeded");
    let by: Vec<_> = refused.body["refused_by"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect();
    assert_eq!(by, ["hour", "month", "quota:page"], "{refused:?}");
    for one in refused.body["refused_by"].as_array().unwrap() {
        // Six are not consumed, and two of these are not held either: only running work prevents the reserve.
        assert_eq!(
            (&one["cause"], &one["needed"], &one["shortfall"]),
            (&json!("reserved"), &json!("5"), &json!("3")),
            "{one}"
        );
        assert!(one["next_hold_ends_at"].is_string(), "{one}");
    }
    assert_eq!(refused.text("/refused_by/1/message"), "ask your sales contact");
    let longest = refused.body["refused_by"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["retry_after_ms"].as_i64())
        .max();
    assert_eq!(refused.body["retry_after_ms"].as_i64(), longest);
    refused.waits_at_least(refused.body["retry_after_seconds"].as_i64().unwrap());
    app.post(RESERVATIONS, pages("7")).await.is_problem(429, "quota_exceeded");
    app.finish().await;
}

#[tokio::test]
async fn thirty_two_limits_stack_on_one_request_and_one_more_is_refused() {
    const WINDOWS: [&str; 4] = ["hour", "day", "week", "month"];
    let app = spawn_app().await;
    let limits = |count: usize| -> Vec<Value> {
        (0..count).map(|n| json!({ "id": format!("l{n}"), "meter": "page", "window": WINDOWS[n % 4], "capacity": (100 + n).to_string() })).collect()
    };
    app.with_plan(json!(limits(32)), json!([])).await;
    let reserved = app.post(RESERVATIONS, pages("7")).await.expect(201);
    let shown = reserved.body["limits"].as_array().unwrap();
    assert_eq!(shown.len(), 32);
    assert!(shown.iter().all(|limit| limit["reserved"] == "7"), "{shown:?}");
    let done = app.consume(reserved.text("/id"), "3").await.expect(200);
    assert!(
        done.body["limits"]
            .as_array()
            .unwrap()
            .iter()
            .all(|limit| limit["consumed"] == "3" && limit["reserved"] == "0")
    );
    app.define("plans/plan", json!({ "limits": limits(33) })).await;
    let refused = app.post(RESERVATIONS, pages("1")).await;
    refused.is_problem(422, "validation_failed");
    app.finish().await;
}

#[tokio::test]
async fn what_exceeds_the_hold_is_recorded_capped_or_rejected_as_the_meter_says() {
    let app = spawn_app().await;
    app.with_day_of("10").await;
    let meter =
        |on_excess: &str| json!({ "unit": "page", "without_limit": "unlimited", "on_excess": on_excess });
    // Recorded in full and flagged, also above the limit.
    let id = app.hold("4").await;
    let recorded = app.consume(&id, "6").await.expect(200);
    assert_eq!((recorded.text("/lines/0/consumed"), recorded.text("/lines/0/excess")), ("6", "2"));
    assert_eq!(recorded.text("/warnings/0/code"), "excess", "{recorded:?}");
    // Rejected: nothing changes, and the hold can still be consumed.
    app.define("meters/page", meter("reject")).await;
    let id = app.hold("2").await;
    let path = reservation(&id, "consume");
    app.post(&path, json!({ "amount": "3" })).await.is_problem(422, "validation_failed");
    app.post(&path, json!({ "amount": "2" })).await.expect(200);
    // Capped at the hold and the units left: 8 of 10 are consumed, 1 is held, 1 is left.
    app.define("meters/page", meter("cap")).await;
    let id = app.hold("1").await;
    let path = reservation(&id, "consume");
    let capped = app.post(&path, json!({ "amount": "7" })).await.expect(200);
    assert_eq!(
        (capped.text("/lines/0/consumed"), capped.text("/lines/0/uncharged")),
        ("2", "5"),
        "{capped:?}"
    );
    let again = app.post(&path, json!({ "amount": "7" })).await.expect(200);
    assert_eq!((again.text("/lines/0/consumed"), &again.body["replayed"]), ("2", &json!(true)), "{again:?}");
    let quota = app.quota().await;
    assert_eq!(quota.text("/limits/0/consumed"), "10");
    app.finish().await;
}

#[tokio::test]
async fn an_operation_costs_its_weights_times_its_factors_within_its_clamp() {
    let app = spawn_app().await;
    app.with_day_of("100000").await;
    let costs = json!([{ "meter": "page", "base": "0", "weights": { "pages": "1" }, "factors": { "handwriting": "2", "tier": { "fast": "1.5" } }, "min": "1", "max": "100", "round": "up" }]);
    app.define("operations/submit", json!({ "costs": costs })).await;
    for (attributes, cost) in [
        (json!({ "pages": 3 }), "3"),
        (json!({ "pages": 3, "handwriting": true }), "6"),
        (json!({ "pages": 3, "tier": "fast" }), "5"),
        (json!({ "pages": "3", "tier": "fast", "handwriting": true }), "9"),
        (json!({}), "1"),
        (json!({ "pages": 5000 }), "100"),
    ] {
        let body = json!({ "tenant": "acme", "operation": "submit", "attributes": attributes });
        let reserved = app.post(RESERVATIONS, body).await.expect(201);
        assert_eq!(reserved.text("/lines/0/amount"), cost, "{attributes}");
    }
    let unknown = json!({ "tenant": "acme", "operation": "submit", "attributes": { "colour": 1 } });
    assert_eq!(app.post(RESERVATIONS, unknown).await.expect(422).pointers(), ["/attributes/colour"]);
    // Costed again by the rule at the reserve, not by the current one.
    let body = json!({ "tenant": "acme", "operation": "submit", "attributes": { "pages": 4 } });
    let id = app.held(body).await;
    app.define("operations/submit", json!({ "costs": [{ "meter": "page", "weights": { "pages": "10" } }] }))
        .await;
    let consumed = app.resolve(&id, "consume", json!({ "attributes": { "pages": 2 } })).await.expect(200);
    assert_eq!((consumed.text("/lines/0/consumed"), consumed.text("/lines/0/returned")), ("2", "2"));
    app.finish().await;
}

#[tokio::test]
async fn decimals_are_exact_and_more_of_them_than_the_meter_has_are_refused() {
    let app = spawn_app().await;
    app.without_limits().await;
    app.define("meters/second", json!({ "unit": "second", "decimals": 3, "without_limit": "unlimited" }))
        .await;
    app.define(
        "plans/plan",
        json!({ "limits": [{ "id": "day", "meter": "second", "window": "day", "capacity": "0.3" }] }),
    )
    .await;
    for key in ["a", "b", "c"] {
        app.post_keyed(USAGE, key, json!({ "tenant": "acme", "meter": "second", "amount": "0.1" }))
            .await
            .expect(201);
    }
    let quota = app.quota().await;
    assert_eq!((quota.text("/limits/0/consumed"), quota.text("/limits/0/remaining")), ("0.3", "0"));
    app.post(RESERVATIONS, json!({ "tenant": "acme", "meter": "second", "amount": "0.001" }))
        .await
        .is_problem(429, "quota_exceeded");
    app.post(RESERVATIONS, json!({ "tenant": "acme", "meter": "second", "amount": "0.0001" }))
        .await
        .is_problem(422, "validation_failed");
    app.finish().await;
}

#[tokio::test]
async fn a_meter_without_limit_follows_its_own_setting_or_the_configuration() {
    for configured in ["unlimited", "deny"] {
        let app = an_app().with("policy.without_limit", configured).start().await;
        app.without_limits().await;
        for (without_limit, admitted) in
            [("unlimited", true), ("deny", false), ("config", configured == "unlimited")]
        {
            app.define("meters/page", json!({ "unit": "page", "without_limit": without_limit })).await;
            let answer = app.post(RESERVATIONS, pages("1")).await;
            if admitted {
                answer.expect(201);
            } else {
                answer.is_problem(402, "exceeds_plan");
            }
        }
        app.finish().await;
    }
}

#[tokio::test]
async fn an_unknown_tenant_is_made_on_the_configured_plan_at_its_first_use() {
    let app = an_app().with("policy.unknown_tenant", "plan").start().await;
    app.with_day_of("5").await;
    let reserved = app.post(RESERVATIONS, pages("2").with("tenant", "newcomer")).await.expect(201);
    assert_eq!((reserved.text("/limits/0/level"), reserved.text("/limits/0/remaining")), ("plan", "3"));
    let made = app.get("/v1/admin/tenants/newcomer").await.expect(200);
    assert_eq!(made.text("/plan"), "plan");
    app.finish().await;
}

#[tokio::test]
async fn a_consume_acknowledged_by_the_ledger_is_in_the_books_and_without_a_writer_says_that_the_gate_has_it()
{
    let app = spawn_app().await;
    app.with_day_of("100").await;
    let id = app.hold("5").await;
    let consumed = app.resolve(&id, "consume", json!({ "amount": "3", "ack": "ledger" })).await.expect(200);
    assert_eq!(consumed.text("/ack"), "ledger");
    let entries = app.get(&format!("/v1/tenants/acme/entries?reservation={id}")).await.expect(200);
    assert_eq!(entries.body["data"].as_array().unwrap().len(), 3, "{entries:?}");
    app.finish().await;

    let app = an_app().with("ledger.ack_timeout_ms", "300").without_writer().start().await;
    app.with_day_of("100").await;
    let id = app.hold("5").await;
    for _ in 0..2 {
        let late = app.resolve(&id, "consume", json!({ "amount": "3", "ack": "ledger" })).await;
        late.is_problem(503, "ledger_timeout");
        assert_eq!(late.text("/applied"), "gate", "{late:?}");
    }
    let read = app.read(&id).await.expect(200);
    assert_eq!((read.text("/status"), read.text("/lines/0/consumed")), ("consumed", "3"));
    app.finish().await;
}

#[tokio::test]
async fn an_event_in_quarantine_is_not_acknowledged_by_the_ledger_until_it_is_booked() {
    let app = spawn_app().await;
    app.with_day_of("100").await;
    let id = app.hold("5").await;
    app.drained().await;
    // Another reservation is booked in its place, so that its next event cannot be booked.
    let alter = |state: &str| format!("UPDATE reservations SET id = {state} WHERE tenant = 'acme'");
    let away = "'00000000-0000-0000-0000-000000000000'";
    crate::ledger::as_owner(&app.database, &alter(away)).await.unwrap();
    let path = reservation(&id, "consume");
    let consume = json!({ "amount": "3", "ack": "ledger" });
    for _ in 0..2 {
        let waits = app.post(&path, consume.clone()).await;
        waits.is_problem(503, "ledger_timeout");
        assert_eq!(waits.text("/applied"), "gate", "{waits:?}");
    }
    crate::ledger::as_owner(&app.database, &alter(&format!("'{id}'"))).await.unwrap();
    let [waiting] = &app.app().ledger.quarantined(false, None, 10).await.unwrap()[..] else {
        panic!("one waits")
    };
    let retried = retry(&app.app().ledger, waiting.partition, waiting.outbox_id, "test").await.unwrap();
    assert_eq!((retried.resolved, retried.waiting), (1, 0));
    let booked = app.post(&path, consume).await.expect(200);
    assert_eq!((booked.text("/ack"), &booked.body["replayed"]), ("ledger", &json!(true)), "{booked:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_dry_run_is_never_a_replay_and_takes_no_key() {
    let app = spawn_app().await;
    app.with_day_of("10").await;
    app.post_keyed(RESERVATIONS, "k", pages("4").with("dry_run", true)).await.expect(200);
    let reserved = app.post_keyed(RESERVATIONS, "k", pages("4")).await.expect(201);
    app.use_pages("k", "1").await.expect(201);
    for (path, amount) in [(RESERVATIONS, "4"), (RESERVATIONS, "5"), (USAGE, "1"), (USAGE, "5")] {
        let again = app.post_keyed(path, "k", pages(amount).with("dry_run", true)).await.expect(200);
        assert_eq!((&again.body["allowed"], again.body.get("id")), (&json!(true), None), "{again:?}");
        assert_eq!((again.text("/lines/0/amount"), again.text("/limits/0/reserved")), (amount, "4"));
        assert_eq!(again.header("idempotency-replayed"), "");
    }
    assert_eq!(
        app.post_keyed(RESERVATIONS, "k", pages("4")).await.expect(200).body["id"],
        reserved.body["id"]
    );
    app.finish().await;
}

#[tokio::test]
async fn usage_is_not_recorded_in_part() {
    let app = spawn_app().await;
    app.with_day_of("10").await;
    for body in [pages("4"), pages("4").with("dry_run", true)] {
        let refused = app.post_keyed(USAGE, "k", body.with("mode", "best_effort")).await;
        refused.is_problem(422, "validation_failed");
        assert_eq!(refused.pointers(), ["/mode"]);
    }
    app.finish().await;
}

#[tokio::test]
async fn a_refusal_by_a_limit_of_class_rate_says_rate_limited_and_by_both_classes_quota_exceeded() {
    let app = an_app().at("2026-03-10T12:10:00Z").start().await;
    let limits = json!([
        { "id": "hourly", "meter": "page", "window": "hour", "capacity": "5", "class": "rate" },
        { "id": "daily", "meter": "page", "window": "day", "capacity": "8" }
    ]);
    app.with_plan(limits, json!([])).await;
    app.hold("4").await;
    let refused = app.post(RESERVATIONS, pages("3")).await;
    refused.is_problem(429, "rate_limited");
    assert_eq!(refused.text("/refused_by/0/class"), "rate");
    app.post(RESERVATIONS, pages("5")).await.is_problem(429, "quota_exceeded");
    app.post(RESERVATIONS, pages("6")).await.is_problem(402, "exceeds_plan");
    app.finish().await;
}
