//! `GET /v1/decisions/{id}`: why something was allowed or refused.

use std::time::Duration;

use serde_json::{Value, json};

use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const CHECK: &str = "/v1/ratelimit/check";
const A_WHILE: Duration = Duration::from_secs(20);

/// The options of an instance that samples only `acme`.
fn sampling() -> AppOptions {
    an_app().with("decisions.sample_percent", 0).with("decisions.tenants", "acme")
}

/// The options of one that samples nobody.
fn sampling_nobody() -> AppOptions {
    an_app().with("decisions.sample_percent", 0)
}

async fn explain(caller: &Caller, answer: &Answered) -> Answered {
    caller.get(&format!("/v1/decisions/{}", answer.text("/decision_id"))).await
}

/// The fields of a limit that say why it decided so.
fn figures(explained: &Answered, at: usize) -> Value {
    let limit = &explained.body["limits"][at];
    json!(["id", "level", "capacity", "consumed", "reserved", "need", "refused"].map(|field| &limit[field]))
}

async fn written(app: &TestApp) -> Vec<String> {
    rows(&app.database, "SELECT call || ' ' || outcome FROM decisions ORDER BY at, id").await
}

#[tokio::test]
async fn a_refusal_says_for_an_hour_which_limits_were_asked_what_they_had_and_what_it_needed() {
    let app = sampling_nobody().at("2026-03-10T22:30:00Z").start().await;
    let hour = json!({ "id": "hour", "meter": "page", "window": "hour", "capacity": "100", "scope": "subject", "subject_kind": "user" });
    app.with_plan(json!([day_of("5"), hour]), json!([])).await;
    app.post_keyed(USAGE, "k", pages("2").by("ada-lovelace")).await.expect(201);
    app.post(RESERVATIONS, pages("1").by("ada-lovelace")).await.expect(201);
    let refused = app.post(RESERVATIONS, pages("3").by("ada-lovelace")).await.expect(429);
    let explained = explain(&app, &refused).await.expect(200);
    let told = ["id", "tenant", "call", "outcome", "dry_run", "degraded", "at", "lines"]
        .map(|field| explained.body[field].clone());
    let id = refused.text("/decision_id");
    let lines = json!([{ "meter": "page", "amount": "3" }]);
    let at = "2026-03-10T22:30:00Z";
    assert_eq!(json!(told), json!([id, "acme", "reserve", "refused", false, false, at, lines]));
    assert_eq!(figures(&explained, 0), json!(["day", "plan", "5", "2", "1", "3", true]));
    assert_eq!(figures(&explained, 1), json!(["hour", "plan", "100", "2", "1", "3", false]));
    assert_eq!(explained.body["limits"][0]["wait_ms"], refused.body["refused_by"][0]["retry_after_ms"]);
    assert_eq!(explained.text("/limits/1/subject_kind"), "user");
    assert_eq!(explained.text("/subjects/0/kind"), "user");
    assert!(!format!("{explained:?}").contains("ada-lovelace"), "{explained:?}");
    assert!(explained.body["policy_version"].as_u64().unwrap() > 0, "{explained:?}");
    app.move_clock("2026-03-10T23:29:59.999Z").await;
    explain(&app, &refused).await.expect(200);
    app.move_clock("2026-03-10T23:30:00Z").await;
    explain(&app, &refused).await.is_problem(404, "not_found");
    app.finish().await;
}

#[tokio::test]
async fn a_refusal_says_why_also_where_no_limit_has_refused() {
    let app = sampling().at("2026-03-10T12:00:00Z").start().await;
    app.with_day_of("5").await;
    let admitted = app.post(RESERVATIONS, pages("5")).await.expect(201);
    let full = app.post(RESERVATIONS, pages("1")).await.expect(429);
    app.define("bans/spam", json!({ "tenant": "acme", "reason": "spam" })).await;
    let banned = app.post(RESERVATIONS, pages("1")).await;
    banned.is_problem(429, "banned");
    let why = |explained: &Answered| json!([explained.body["code"], explained.body["limits"][0]["cause"]]);
    assert_eq!(why(&explain(&app, &admitted).await.expect(200)), json!([null, null]));
    let explained = explain(&app, &full).await.expect(200);
    assert_eq!(why(&explained), json!([full.body["code"], "reserved"]));
    let explained = explain(&app, &banned).await.expect(200);
    assert_eq!((why(&explained), &explained.body["limits"]), (json!(["banned", null]), &json!([])));
    wait_for("it is written", A_WHILE, async || (written(&app).await.len() == 3).then_some(())).await;
    let codes = "SELECT coalesce(code, 'none') FROM decisions ORDER BY number";
    assert_eq!(rows(&app.database, codes).await, ["none", full.text("/code"), "banned"]);
    app.finish().await;
}

#[tokio::test]
async fn the_level_that_won_and_the_policy_of_the_decision_are_told_after_the_policy_has_changed() {
    let app = sampling().start().await;
    app.with_day_of("5").await;
    let before = app.post(RESERVATIONS, pages("1")).await.expect(201);
    let wider =
        json!({ "tenant": "acme", "level": "tenant", "limit": "day", "capacity": "30", "reason": "test" });
    app.define("overrides/wider", wider).await;
    let after = app.post(RESERVATIONS, pages("7")).await.expect(201);
    let (before, after) = (explain(&app, &before).await.expect(200), explain(&app, &after).await.expect(200));
    assert_eq!(figures(&before, 0), json!(["day", "plan", "5", "0", "1", "1", false]));
    assert_eq!(figures(&after, 0), json!(["day", "tenant", "30", "0", "8", "7", false]));
    let version = |explained: &Answered| explained.body["policy_version"].as_u64().unwrap();
    assert!(version(&before) <= version(&after));
    app.finish().await;
}

#[tokio::test]
async fn of_a_tenant_that_is_not_sampled_admissions_leave_nothing_and_refusals_only_memory() {
    let app = sampling_nobody().with("decisions.refusals_max", 2).start().await;
    app.with_day_of("5").await;
    let admitted = app.post(RESERVATIONS, pages("1")).await.expect(201);
    explain(&app, &admitted).await.is_problem(404, "not_found");
    let mut refused = Vec::new();
    for _ in 0..3 {
        refused.push(app.post(RESERVATIONS, pages("9")).await.expect(402));
    }
    let mut statuses = Vec::new();
    for answer in &refused {
        statuses.push(explain(&app, answer).await.status);
    }
    assert_eq!(statuses, [404, 200, 200], "memory holds two");
    let another = app.another_instance().await;
    let there = app.caller().at(another.url());
    explain(&there, &refused[2]).await.is_problem(404, "not_found");
    another.stop().await;
    app.app().operations.decisions.write().await;
    assert_eq!(written(&app).await, [""; 0]);
    app.finish().await;
}

#[tokio::test]
async fn of_a_sampled_tenant_every_decision_is_explained_by_every_instance_also_after_a_restart() {
    let mut app = sampling().start().await;
    app.with_day_of("20").await;
    app.define("meters/call", json!({ "unit": "call", "booked": false })).await;
    let minute = json!({ "id": "minute", "meter": "call", "algorithm": "fixed_window", "window_seconds": 60, "capacity": "1" });
    app.define("plans/plan", json!({ "limits": [day_of("20"), minute] })).await;
    app.define("operations/call", json!({ "costs": [{ "meter": "call", "base": "1" }] })).await;
    let check = json!({ "tenant": "acme", "subjects": { "user": "ada-lovelace" }, "operation": "call" });
    let reserved = app.post_keyed(RESERVATIONS, "a", pages("2").by("ada-lovelace")).await.expect(201);
    let used = app.post_keyed(USAGE, "b", pages("3").by("ada-lovelace")).await.expect(201);
    let tried = app.post(RESERVATIONS, pages("4").with("dry_run", true)).await.expect(200);
    let in_vain = app.post(RESERVATIONS, pages("40").with("dry_run", true)).await.expect(200);
    let best = app.post(RESERVATIONS, pages("19").with("mode", "best_effort")).await.expect(201);
    let refused = app.post(RESERVATIONS, pages("2")).await.expect(429);
    let allowed = app.post(CHECK, check.clone()).await.expect(200);
    let checked = app.post(CHECK, check.clone()).await.expect(200);
    let items = json!([{ "call": "usage", "idempotency_key": "c", "body": pages("1") }, { "call": "check", "idempotency_key": "d", "body": check }]);
    let batch = app.post("/v1/batch", json!({ "items": items })).await.expect(200);
    let expected = [
        (reserved.text("/decision_id"), "reserve", "admitted", "2", "2"),
        (used.text("/decision_id"), "usage", "admitted", "3", "3"),
        (tried.text("/decision_id"), "reserve", "admitted", "4", "4"),
        (in_vain.text("/decision_id"), "reserve", "refused", "40", "40"),
        (best.text("/decision_id"), "reserve", "admitted", "19", "19"),
        (refused.text("/decision_id"), "reserve", "refused", "2", "2"),
        (allowed.text("/decision_id"), "check", "admitted", "1", "1"),
        (checked.text("/decision_id"), "check", "refused", "1", "1"),
        (batch.text("/results/0/body/decision_id"), "usage", "refused", "1", "1"),
        (batch.text("/results/1/body/decision_id"), "check", "refused", "1", "1"),
    ];
    let another = app.another_instance().await;
    let there = app.caller().at(another.url());
    for (id, call, outcome, amount, need) in expected {
        let path = format!("/v1/decisions/{id}");
        let here = app.get(&path).await.expect(200);
        let told = ["/id", "/call", "/outcome", "/lines/0/amount", "/limits/0/need"].map(|at| here.text(at));
        assert_eq!(told, [id, call, outcome, amount, need]);
        let there = wait_for("it is written", A_WHILE, async || {
            Some(there.get(&path).await).filter(|answer| answer.status == 200)
        });
        assert_eq!(there.await.body, here.body);
    }
    assert_eq!(written(&app).await.len(), expected.len());
    let last = app.post(RESERVATIONS, pages("3")).await.expect(429);
    app.restart().await;
    assert_eq!(explain(&app, &last).await.expect(200).text("/outcome"), "refused");
    let all = rows(&app.database, "SELECT decisions::text FROM decisions").await.join("\n");
    assert!(!all.contains("ada-lovelace") && all.contains("user"), "{all}");
    another.stop().await;
    app.finish().await;
}

#[tokio::test]
async fn a_replay_names_the_first_decision_which_stays_as_it_was() {
    let app = sampling().start().await;
    app.with_day_of("20").await;
    app.define("operations/submit", json!({ "costs": [{ "meter": "page", "base": "4" }] })).await;
    let check = json!({ "tenant": "acme", "subjects": { "user": "ada" }, "operation": "submit", "idempotency_key": "c" });
    let mut firsts = Vec::new();
    for (path, key, body) in
        [(RESERVATIONS, "a", pages("2")), (USAGE, "b", pages("3")), (CHECK, "c", check.clone())]
    {
        let first = app.post_keyed(path, key, body.clone()).await;
        assert!(first.status < 300, "{first:?}");
        let explained = explain(&app, &first).await.expect(200);
        app.hold("1").await;
        let again = app.post_keyed(path, key, body).await.expect(200);
        assert_eq!(again.body["decision_id"], first.body["decision_id"], "{path}");
        assert_eq!(explain(&app, &again).await.expect(200).body, explained.body);
        firsts.push(explained.text("/outcome").to_owned());
    }
    assert_eq!(firsts, ["admitted"; 3]);
    app.app().operations.decisions.write().await;
    wait_for("each decision is written once", A_WHILE, async || {
        Some(written(&app).await).filter(|rows| rows.len() == 6)
    })
    .await;
    app.finish().await;
}

#[tokio::test]
async fn a_bound_key_reads_its_own_tenants_decisions_and_learns_nothing_of_others() {
    let app = sampling().start().await;
    app.with_day_of("20").await;
    app.define("tenants/beta", json!({ "plan": "plan" })).await;
    let admitted = app.post(RESERVATIONS, pages("2")).await.expect(201);
    let refused = app.post(RESERVATIONS, pages("21")).await.expect(402);
    let (own, other) =
        (app.make_key("service", Some("acme")).await, app.make_key("service", Some("beta")).await);
    let unknown = other.get("/v1/decisions/00000000-0000-4000-8000-000000000000").await;
    unknown.is_problem(404, "not_found");
    for is_written in [false, true] {
        for decision in [&admitted, &refused] {
            explain(&own, decision).await.expect(200);
            let hidden = explain(&other, decision).await;
            hidden.is_problem(404, "not_found");
            assert_eq!(hidden.body["detail"], unknown.body["detail"], "written: {is_written}");
        }
        app.app().operations.decisions.write().await;
    }
    app.get("/v1/decisions/nonsense").await.is_problem(404, "not_found");
    explain(&app.make_key("finance", None).await, &admitted).await.expect(200);
    explain(&app.make_key("tenant", Some("acme")).await, &admitted).await.is_problem(403, "forbidden");
    app.finish().await;
}

#[tokio::test]
async fn checks_that_are_refused_together_say_so_each() {
    let app = sampling_nobody().start().await;
    app.define("meters/call", json!({ "unit": "call", "booked": false, "without_limit": "deny" })).await;
    app.define("operations/call", json!({ "costs": [{ "meter": "call", "base": "1" }] })).await;
    app.define("operations/calls", json!({ "costs": [{ "meter": "call", "base": "9" }] })).await;
    let minute = json!({ "id": "minute", "meter": "call", "algorithm": "fixed_window", "window_seconds": 60, "capacity": "5" });
    app.define("plans/plan", json!({ "limits": [minute] })).await;
    app.define("plans/none", json!({ "limits": [] })).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    app.define("tenants/beta", json!({ "plan": "none" })).await;
    let of = |operation: &str| json!({ "tenant": "acme", "operation": operation });
    let answer = app.post(CHECK, json!({ "checks": [of("call"), of("calls")], "atomic": true })).await;
    let mut refusing = Vec::new();
    for at in 0..2 {
        let id = answer.text(&format!("/results/{at}/decision_id"));
        let explained = app.get(&format!("/v1/decisions/{id}")).await.expect(200);
        assert_eq!(explained.text("/outcome"), "refused");
        refusing.push(explained.body["limits"][0]["refused"].clone());
    }
    assert_eq!(refusing, [json!(false), json!(true)]);
    let denied = app.post(CHECK, of("call").of("beta")).await.expect(200);
    let explained = explain(&app, &denied).await.expect(200);
    let told = (explained.text("/outcome"), explained.text("/lines/0/amount"), &explained.body["limits"]);
    assert_eq!(told, ("refused", "1", &json!([])));
    app.finish().await;
}

#[tokio::test]
async fn a_decision_is_explained_while_it_is_being_written() {
    let app = sampling().start().await;
    app.with_day_of("20").await;
    let (client, connection) =
        tokio_postgres::connect(&app.database.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; LOCK TABLE decisions IN SHARE ROW EXCLUSIVE MODE").await.unwrap();
    let admitted = app.post(RESERVATIONS, pages("2")).await.expect(201);
    wait_for("it is being written", A_WHILE, async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        (rows(&app.database, waiting).await == ["1"]).then_some(())
    })
    .await;
    explain(&app, &admitted).await.expect(200);
    let later = app.post(RESERVATIONS, pages("3")).await.expect(201);
    explain(&app, &later).await.expect(200);
    client.batch_execute("COMMIT").await.unwrap();
    wait_for("both are written", A_WHILE, async || (written(&app).await.len() == 2).then_some(())).await;
    explain(&app, &admitted).await.expect(200);
    explain(&app, &later).await.expect(200);
    app.finish().await;
}

#[tokio::test]
async fn decisions_that_the_ledger_refuses_are_counted_and_stand_in_nobodys_way() {
    let app = sampling().start().await;
    app.with_day_of("20").await;
    as_owner(&app.database, "REVOKE INSERT ON decisions FROM tollgate_service").await.unwrap();
    app.hold("1").await;
    let count = async |line: &str| {
        let answer = app.client().get(format!("{}/metrics", app.ops_url())).send().await.unwrap();
        answer.text().await.unwrap().contains(line).then_some(())
    };
    wait_for("it is counted", A_WHILE, async || count("tollgate_decisions_dropped_total 1\n").await).await;
    as_owner(&app.database, "GRANT INSERT ON decisions TO tollgate_service").await.unwrap();
    app.hold("1").await;
    wait_for("the next is kept", A_WHILE, async || count("tollgate_decisions_kept_total 1\n").await).await;
    assert_eq!(written(&app).await, ["reserve admitted"]);
    app.finish().await;
}

#[tokio::test]
async fn how_a_reservation_of_a_sampled_tenant_goes_on_is_explained_too_and_a_repeat_adds_nothing() {
    let app = sampling().start().await;
    app.with_day_of("20").await;
    let id = app.hold(5).await;
    let extended = app.resolve(&id, "extend", json!({ "ttl_seconds": 600 })).await.expect(200);
    let part = app.resolve(&id, "consume", json!({ "amount": "1", "final": false })).await.expect(200);
    let all = app.consume(&id, "3").await.expect(200);
    let again = app.consume(&id, "3").await.expect(200);
    assert_eq!(again.text("/decision_id"), all.text("/decision_id"));
    app.release(&id).await.expect(409);
    for (answer, call, amount) in
        [(&extended, "extend", "0"), (&part, "consume", "1"), (&all, "consume", "3")]
    {
        let why = explain(&app, answer).await.expect(200);
        let shown = ["/call", "/outcome", "/reservation", "/lines/0/amount"].map(|at| why.text(at));
        assert_eq!(shown, [call, "admitted", id.as_str(), amount]);
    }
    app.app().operations.decisions.write().await;
    let kept = ["reserve", "extend", "consume", "consume"].map(|call| format!("{call} admitted"));
    let stored =
        rows(&app.database, "SELECT call || ' ' || outcome FROM decisions ORDER BY at, number").await;
    assert_eq!(stored, kept);
    app.finish().await;
}
