//! Upgrade requests: a tenant asks for another plan, an administrator decides, and an approved plan holds from its
//! instant on.

use serde_json::{Value, json};

use crate::ledger::{as_owner, rows};
use crate::support::app::*;

const ASK: &str = "/v1/tenants/acme/upgrade-requests";
const ADMIN: &str = "/v1/admin/upgrade-requests";

/// Tenant `acme` on a plan with fifty pages a month, and three other plans beside it; in UTC, on the tenth of March,
/// where no job runs by itself.
async fn with_plans() -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    for (plan, included) in [("pro", "80"), ("max", "200"), ("small", "5")] {
        app.define(&format!("plans/{plan}"), json!({ "quotas": [quota_of(included)] })).await;
    }
    app
}

/// Asks for this plan; the request's id.
async fn asked(app: &TestApp, plan: &str) -> String {
    app.post(ASK, json!({ "plan": plan })).await.expect(201).text("/id").to_owned()
}

async fn approve(app: &TestApp, id: &str, effective: &str) -> Value {
    app.post(&format!("{ADMIN}/{id}/approve"), json!({ "effective": effective })).await.expect(200).body
}

async fn plan(app: &TestApp) -> String {
    app.get("/v1/admin/tenants/acme").await.expect(200).text("/plan").to_owned()
}

/// Granted, consumed and remaining pages.
async fn pages_left(app: &TestApp) -> [String; 3] {
    let quota = app.quota().await;
    ["granted", "consumed", "remaining"].map(|field| quota.text(&format!("/quotas/0/{field}")).to_owned())
}

async fn follow(app: &TestApp) -> u64 {
    app.app().operations.upgrades.follow().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_plan_holds_at_once_and_grants_the_difference_once() {
    let app = with_plans().await;
    app.use_pages("all", "50").await.expect(201);
    app.use_pages("more", "1").await.is_problem(429, "quota_exceeded");
    let tenant = app.make_key("tenant", Some("acme")).await;
    let body = json!({ "plan": "pro", "reason": "more pages" });
    let made = tenant.post(ASK, body).await.expect(201).body;
    assert_eq!(
        (&made["status"], &made["plan"], &made["reason"]),
        (&json!("pending"), &json!("pro"), &json!("more pages"))
    );
    assert_eq!(plan(&app).await, "plan", "nothing changes before it is decided");
    let id = made["id"].as_str().unwrap();
    let approved = approve(&app, id, "now").await;
    assert_eq!(
        (&approved["status"], &approved["effective_at"]),
        (&json!("approved"), &json!("2026-03-10T12:00:00Z"))
    );
    assert_eq!(
        (&approved["applied_at"], &approved["replayed"]),
        (&json!("2026-03-10T12:00:00Z"), &json!(false))
    );
    assert_eq!(plan(&app).await, "pro");
    assert_eq!(pages_left(&app).await, ["80", "50", "30"], "counters stay");
    app.use_pages("more", "30").await.expect(201);
    app.use_pages("most", "1").await.is_problem(429, "quota_exceeded");
    let again = approve(&app, id, "next_period").await;
    assert_eq!((&again["effective_at"], &again["replayed"]), (&approved["effective_at"], &json!(true)));
    assert_eq!((follow(&app).await, pages_left(&app).await[0].as_str()), (0, "80"));
    app.drained().await;
    let booked =
        "SELECT credit, debit, amount::float8 AS a FROM entries WHERE class = 'grant' ORDER BY amount DESC";
    assert_eq!(rows(&app.database, booked).await, ["granted available 50", "granted available 30"]);
    app.get(&format!("{ADMIN}?status=pending")).await.expect(200);
    let own = tenant.get(&format!("{ASK}?status=approved")).await.expect(200).body;
    assert_eq!((&own["data"][0]["id"], own["data"].as_array().unwrap().len()), (&json!(id), 1));
    let audit = app.get("/v1/admin/audit?object_kind=upgrade_request").await.expect(200).body;
    let actions: Vec<_> = audit["data"].as_array().unwrap().iter().map(|row| row["action"].clone()).collect();
    assert_eq!(actions, ["approve", "create"], "{audit}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_holds_now_replaces_one_that_was_approved_for_later() {
    let app = with_plans().await;
    app.use_pages("some", "20").await.expect(201);
    approve(&app, &asked(&app, "pro").await, "next_period").await;
    approve(&app, &asked(&app, "max").await, "now").await;
    app.move_clock("2026-04-01T00:01:00Z").await;
    assert_eq!((follow(&app).await, plan(&app).await.as_str()), (0, "max"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_broke_off_before_it_noted_its_grant_grants_nothing_twice() {
    let app = with_plans().await;
    app.use_pages("some", "20").await.expect(201);
    approve(&app, &asked(&app, "max").await, "now").await;
    for undo in [
        "UPDATE quota_changes SET changed = NULL",
        "UPDATE plan_changes SET applied_at = NULL",
        "UPDATE upgrade_requests SET applied_at = NULL",
    ] {
        as_owner(&app.database, undo).await.unwrap();
    }
    assert_eq!(follow(&app).await, 1);
    assert_eq!(pages_left(&app).await, ["200", "20", "180"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_rises_twice_in_a_period_has_what_the_last_plan_includes_and_no_more() {
    let app = with_plans().await;
    app.use_pages("some", "20").await.expect(201);
    approve(&app, &asked(&app, "pro").await, "now").await;
    approve(&app, &asked(&app, "max").await, "now").await;
    assert_eq!(pages_left(&app).await, ["200", "20", "180"]);
    approve(&app, &asked(&app, "small").await, "now").await;
    assert_eq!(plan(&app).await, "small");
    assert_eq!(
        pages_left(&app).await,
        ["20", "20", "0"],
        "a lower plan that holds now takes what is available"
    );
    approve(&app, &asked(&app, "max").await, "now").await;
    assert_eq!(pages_left(&app).await, ["200", "20", "180"], "nothing is granted twice");
    app.move_clock("2026-03-31T12:00:00Z").await;
    app.app().operations.memory.open_next_periods().await.unwrap();
    app.define("plans/top", json!({ "quotas": [quota_of("300")] })).await;
    approve(&app, &asked(&app, "top").await, "now").await;
    assert_eq!(pages_left(&app).await, ["300", "20", "280"]);
    app.move_clock("2026-04-01T00:00:00Z").await;
    app.use_pages("april", "300").await.expect(201);
    app.use_pages("beyond", "1").await.is_problem(429, "quota_exceeded");
    app.app().operations.grants.follow().await.unwrap();
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_the_next_period_holds_from_its_begin_on_in_what_is_opened_ahead_too() {
    for (wanted, included) in [("max", "200"), ("small", "5")] {
        let app = with_plans().await;
        app.use_pages("march", "20").await.expect(201);
        let approved = approve(&app, &asked(&app, wanted).await, "next_period").await;
        assert_eq!(
            (&approved["effective_at"], &approved["applied_at"]),
            (&json!("2026-04-01T00:00:00Z"), &json!(null))
        );
        assert_eq!((follow(&app).await, plan(&app).await.as_str()), (0, "plan"));
        assert_eq!(pages_left(&app).await, ["50", "20", "30"]);
        app.move_clock("2026-03-31T12:00:00Z").await;
        app.app().operations.memory.open_next_periods().await.unwrap();
        app.move_clock("2026-04-01T00:00:00Z").await;
        assert_eq!((follow(&app).await, plan(&app).await.as_str()), (1, wanted));
        assert_eq!(pages_left(&app).await, [included, "0", included]);
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_without_a_date_raises_at_once_and_takes_nothing_before_the_next_period() {
    let app = with_plans().await;
    app.use_pages("march", "20").await.expect(201);
    let id = asked(&app, "small").await;
    let approved = app.post(&format!("{ADMIN}/{id}/approve"), json!({})).await.expect(200).body;
    assert_eq!(approved["applied_at"], "2026-03-10T12:00:00Z", "{approved}");
    assert_eq!(
        (plan(&app).await.as_str(), pages_left(&app).await),
        ("small", ["50", "20", "30"].map(str::to_owned))
    );
    let id = asked(&app, "max").await;
    app.post(&format!("{ADMIN}/{id}/approve"), json!({})).await.expect(200);
    assert_eq!(pages_left(&app).await, ["200", "20", "180"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_without_a_date_takes_nothing_from_who_was_put_on_the_plan_before_at_once() {
    let app = with_plans().await;
    let quotas = |pages: &str, tokens: &str| json!({ "quotas": [quota_of(pages), quota_of(tokens).with("meter", "token")] });
    app.define("plans/both", quotas("50", "10")).await;
    app.define("plans/other", quotas("5", "40")).await;
    app.define("tenants/acme", json!({ "plan": "both", "plan_from": "now" })).await;
    app.use_pages("march", "20").await.expect(201);
    app.post_keyed(USAGE, "tokens", pages("1").with("meter", "token")).await.expect(201);
    let id = asked(&app, "other").await;
    app.post(&format!("{ADMIN}/{id}/approve"), json!({})).await.expect(200);
    let tenant = app.get("/v1/admin/tenants/acme").await.expect(200).body;
    assert_eq!((&tenant["plan"], &tenant["plan_from"]), (&json!("other"), &json!(null)));
    app.drained().await;
    let voided = "SELECT meter FROM balances WHERE voided > 0";
    assert_eq!(rows(&app.database, voided).await, [""; 0], "nothing of what was paid for is taken");
    let granted = "SELECT meter, granted::float8 AS g FROM balances ORDER BY meter";
    assert_eq!(rows(&app.database, granted).await, ["page 50", "token 40"], "what is more is there at once");
    app.move_clock("2026-04-01T00:00:00Z").await;
    app.use_pages("april", "1").await.expect(201);
    assert_eq!(pages_left(&app).await, ["5", "1", "4"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_holds_now_does_so_whenever_the_plan_before_was_to_hold() {
    let app = with_plans().await;
    app.define("tenants/acme", json!({ "plan": "pro" })).await;
    app.define("tenants/acme", json!({ "plan": "plan", "plan_from": "next_period" })).await;
    app.use_pages("march", "20").await.expect(201);
    approve(&app, &asked(&app, "small").await, "now").await;
    assert_eq!(pages_left(&app).await, ["20", "20", "0"]);
    approve(&app, &asked(&app, "max").await, "now").await;
    assert_eq!(pages_left(&app).await, ["200", "20", "180"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_broke_off_is_carried_out_by_the_job() {
    let app = with_plans().await;
    app.use_pages("some", "20").await.expect(201);
    let id = asked(&app, "pro").await.parse().unwrap();
    let now_ms = app.clock.now_ms();
    let deciding = tollgate::ledger::Deciding {
        effective_at_ms: Some(now_ms),
        raises_only: false,
        now_ms,
        actor: "me".into(),
    };
    app.app().ledger.decide_upgrade(id, deciding).await.unwrap().unwrap();
    assert_eq!(plan(&app).await, "plan");
    assert_eq!((follow(&app).await, follow(&app).await, plan(&app).await.as_str()), (1, 0, "pro"));
    assert_eq!(pages_left(&app).await, ["80", "20", "60"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_is_pending_at_a_time_and_a_repeat_is_the_same_one() {
    let app = with_plans().await;
    let body = || json!({ "plan": "pro", "reason": "growth" });
    let first = app.post_keyed(ASK, "grow", body()).await.expect(201);
    let again = app.post_keyed(ASK, "grow", body()).await.expect(200);
    assert_eq!((again.text("/id"), &again.body["replayed"]), (first.text("/id"), &json!(true)));
    assert_eq!(again.header("idempotency-replayed"), "true");
    app.post_keyed(ASK, "grow", json!({ "plan": "max" })).await.is_problem(422, "idempotency_key_reused");
    app.post_keyed(ASK, "other", body()).await.is_problem(409, "in_use");
    app.post(ASK, json!({ "plan": "max" })).await.is_problem(409, "in_use");
    let decline = format!("{ADMIN}/{}/decline", first.text("/id"));
    let declined = app.post(&decline, json!({})).await.expect(200).body;
    assert_eq!((&declined["status"], &declined["effective_at"]), (&json!("declined"), &json!(null)));
    assert_eq!(app.post(&decline, json!({})).await.expect(200).body["replayed"], true);
    let approve = format!("{ADMIN}/{}/approve", first.text("/id"));
    app.post(&approve, json!({})).await.is_problem(409, "already_resolved");
    assert_eq!(plan(&app).await, "plan");
    let kept = app.post_keyed(ASK, "grow", body()).await.expect(200);
    assert_eq!(kept.text("/status"), "declined", "its key names it for ever");
    app.move_clock("2026-03-10T12:01:00Z").await;
    let next = asked(&app, "pro").await;
    let list = app.get(&format!("{ADMIN}?limit=1")).await.expect(200).body;
    assert_eq!((&list["data"][0]["id"], &list["has_more"]), (&json!(next), &json!(true)));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_another_plan_that_is_served_can_be_asked_for_and_only_of_ones_own() {
    let app = with_plans().await;
    app.define("plans/old", json!({ "quotas": [quota_of("90")], "archived": true })).await;
    for wrong in ["plan", "nothing", "old"] {
        let refused = app.post(ASK, json!({ "plan": wrong })).await;
        refused.is_problem(422, "validation_failed");
        assert_eq!(refused.pointers(), ["/plan"]);
    }
    for reason in ["x".repeat(501), "\u{2066}more".to_owned()] {
        let refused = app.post(ASK, json!({ "plan": "pro", "reason": reason })).await;
        assert_eq!(refused.pointers(), ["/reason"]);
    }
    app.post(ASK, json!({ "plan": "pro", "why": "growth" })).await.is_problem(422, "validation_failed");
    app.post("/v1/tenants/nobody/upgrade-requests", json!({ "plan": "pro" }))
        .await
        .is_problem(404, "not_found");
    let tenant = app.make_key("tenant", Some("acme")).await;
    tenant
        .post("/v1/tenants/other/upgrade-requests", json!({ "plan": "pro" }))
        .await
        .is_problem(403, "forbidden");
    let service = app.make_key("service", None).await;
    service.post(ASK, json!({ "plan": "pro" })).await.is_problem(403, "forbidden");
    let id = tenant.post(ASK, json!({ "plan": "pro" })).await.expect(201).text("/id").to_owned();
    let path = format!("{ADMIN}/{id}/approve");
    tenant.post(&path, json!({})).await.is_problem(403, "forbidden");
    app.post(&path, json!({ "effective": "tomorrow" })).await.is_problem(422, "validation_failed");
    app.post(&format!("{ADMIN}/{id}/decline"), json!({ "effective": "now" }))
        .await
        .is_problem(422, "validation_failed");
    app.define("plans/pro", json!({ "quotas": [quota_of("80")], "archived": true })).await;
    app.post(&path, json!({})).await.is_problem(422, "validation_failed");
    let pending = app.get(&format!("{ASK}?status=pending")).await.expect(200).body;
    assert_eq!(pending["data"][0]["id"], json!(id), "what could not be approved is still pending");
    app.post(&format!("{ADMIN}/7/approve"), json!({})).await.is_problem(404, "not_found");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_superseded_while_a_run_comes_to_it_is_not_carried_out() {
    let app = with_plans().await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    let path = "/v1/tenants/other/upgrade-requests";
    let of_other = app.post(path, json!({ "plan": "pro" })).await.expect(201).text("/id").to_owned();
    approve(&app, &of_other, "next_period").await;
    approve(&app, &asked(&app, "max").await, "next_period").await;
    // The run carries out the other's first; by then another approval has superseded this one.
    let meanwhile = "UPDATE upgrade_requests SET effective_at = effective_at - interval '1 hour' WHERE tenant = 'other'; \
        CREATE FUNCTION supersede() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
            UPDATE upgrade_requests SET applied_at = NEW.applied_at WHERE tenant = 'acme'; RETURN NULL; \
        END $$; \
        CREATE TRIGGER supersede AFTER UPDATE OF applied_at ON upgrade_requests FOR EACH ROW \
        WHEN (NEW.tenant = 'other') EXECUTE FUNCTION supersede()";
    as_owner(&app.database, meanwhile).await.unwrap();
    app.move_clock("2026-04-01T00:01:00Z").await;
    assert_eq!((follow(&app).await, plan(&app).await.as_str()), (1, "plan"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_a_tenant_is_to_get_is_neither_archived_nor_deleted_before_that() {
    let app = with_plans().await;
    let id = asked(&app, "max").await;
    approve(&app, &id, "next_period").await;
    let archived = || json!({ "quotas": [quota_of("200")], "archived": true });
    let refused = [app.put("/v1/admin/plans/max", archived()).await, app.delete("/v1/admin/plans/max").await];
    for answer in refused {
        answer.is_problem(409, "in_use");
        let detail = answer.text("/detail");
        assert!(
            detail.contains(&id) && detail.contains("acme gets it from 2026-04-01T00:00:00Z"),
            "{detail}"
        );
    }
    app.define("plans/max", json!({ "quotas": [quota_of("250")] })).await;
    app.define("plans/pro", json!({ "quotas": [quota_of("80")], "archived": true })).await;
    app.move_clock("2026-04-01T00:01:00Z").await;
    assert_eq!((follow(&app).await, plan(&app).await.as_str()), (1, "max"));
    app.define("plans/max", archived()).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_can_never_be_applied_is_declined_in_the_open_and_gives_no_allowance() {
    let app = with_plans().await;
    app.use_pages("march", "20").await.expect(201);
    let id = asked(&app, "max").await;
    // It is archived just before another instance stores the approval.
    app.define("plans/max", json!({ "quotas": [quota_of("200")], "archived": true })).await;
    let (now_ms, effective_at_ms) = (app.clock.now_ms(), Some(1_775_001_600_000));
    let deciding =
        tollgate::ledger::Deciding { effective_at_ms, raises_only: false, now_ms, actor: "me".into() };
    app.app().ledger.decide_upgrade(id.parse().unwrap(), deciding).await.unwrap().unwrap();
    app.move_clock("2026-03-31T12:00:00Z").await;
    app.app().operations.memory.open_next_periods().await.unwrap();
    let ahead = "SELECT included::float8 AS i FROM quota_periods ORDER BY period_start DESC LIMIT 1";
    assert_eq!(rows(&app.database, ahead).await, ["200"]);
    app.move_clock("2026-04-01T00:01:00Z").await;
    assert_eq!((follow(&app).await, plan(&app).await.as_str()), (0, "plan"));
    let listed = app.get(&format!("{ADMIN}?status=declined")).await.expect(200).body;
    let declined = &listed["data"][0];
    assert_eq!((&declined["id"], &declined["decided_by"]), (&json!(id), &json!("installation")));
    assert_eq!((&declined["effective_at"], &declined["applied_at"]), (&json!(null), &json!(null)));
    let audit = app.get("/v1/admin/audit?object_kind=upgrade_request").await.expect(200).body;
    assert_eq!(
        (&audit["data"][0]["action"], &audit["data"][0]["actor"]),
        (&json!("decline"), &json!("installation"))
    );
    assert!(audit["data"][0].to_string().contains("archived"), "{audit}");
    app.app().operations.memory.open_next_periods().await.unwrap();
    assert_eq!(pages_left(&app).await, ["50", "0", "50"], "what was opened ahead is as the old plan has it");
    assert_eq!(app.app().operations.upgrades.due().await.unwrap(), 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tenant_has_asked_for_ends_with_it_and_is_nothing_to_the_next_one_of_its_name() {
    let app = with_plans().await;
    let approved = asked(&app, "max").await;
    approve(&app, &approved, "next_period").await;
    let pending = asked(&app, "pro").await;
    app.delete("/v1/admin/tenants/acme").await.expect(204);
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    app.post(&format!("{ADMIN}/{pending}/approve"), json!({})).await.is_problem(409, "already_resolved");
    let listed = app.get(&format!("{ADMIN}?status=declined")).await.expect(200).body;
    let declined = |id: &str| {
        let rows = listed["data"].as_array().unwrap();
        rows.iter().any(|row| row["id"] == id && row["effective_at"].is_null())
    };
    assert!(declined(&approved) && declined(&pending), "{listed}");
    let audit = app.get("/v1/admin/audit?object_kind=upgrade_request&action=decline").await.expect(200).body;
    assert_eq!(audit["data"].as_array().unwrap().len(), 2, "{audit}");
    assert!(audit["data"][0].to_string().contains("its tenant is deleted"), "{audit}");
    let of_next = asked(&app, "small").await;
    app.post(&format!("{ADMIN}/{of_next}/decline"), json!({})).await.expect(200);
    app.use_pages("march", "20").await.expect(201);
    app.move_clock("2026-03-31T12:00:00Z").await;
    app.app().operations.memory.open_next_periods().await.unwrap();
    app.move_clock("2026-04-01T00:01:00Z").await;
    assert_eq!((follow(&app).await, plan(&app).await.as_str()), (0, "plan"));
    assert_eq!(pages_left(&app).await, ["50", "0", "50"]);
    app.finish().await;
}
