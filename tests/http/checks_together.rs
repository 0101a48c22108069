//! Several checks in one call: nothing is counted before all are understood, and all together are one decision.

use serde_json::{Value, json};

use super::ratelimit::{CHECK, minute, of, started, with_limits};
use crate::support::app::*;

fn costing(amounts: &[u32]) -> Value {
    amounts.iter().map(|cost| of("read").with("cost", *cost)).collect()
}

fn together(checks: Value) -> Value {
    json!({ "checks": checks, "atomic": true })
}

fn allowed(answer: &Answered) -> Vec<bool> {
    let results = answer.body["results"].as_array().unwrap().clone();
    results.iter().map(|result| result["allowed"].as_bool().unwrap()).collect()
}

async fn used(app: &TestApp) -> String {
    app.quota().await.text("/limits/0/consumed").to_owned()
}

#[tokio::test]
async fn checks_that_their_sum_refuses_name_the_limit_and_the_wait() {
    let app = started(json!([minute("10")])).await;
    let too_much = app.post(CHECK, together(costing(&[6, 6]))).await.expect(200);
    assert_eq!(allowed(&too_much), [false, false]);
    assert_eq!(too_much.body.pointer("/results/0/refused_by"), None, "it fits");
    let refused = &too_much.body["results"][1];
    let told = ["id", "cause", "needed", "shortfall", "remaining"]
        .map(|field| refused["refused_by"][0][field].clone());
    assert_eq!(json!(told), json!(["minute", "consumed", "12", "2", "10"]), "{refused}");
    assert_eq!(refused.get("retry_after_seconds"), None, "it never fits: {refused}");
    app.post(CHECK, of("read").with("cost", "4")).await.expect(200);
    let later = app.post(CHECK, together(costing(&[4, 4]))).await.expect(200).body["results"][1].clone();
    let told = ["needed", "shortfall"].map(|field| later["refused_by"][0][field].clone());
    assert_eq!(json!(told), json!(["8", "2"]), "{later}");
    assert_eq!(later["retry_after_seconds"], 60);
    assert_eq!(used(&app).await, "4");
    app.finish().await;
}

#[tokio::test]
async fn a_check_that_cannot_be_understood_stops_all_of_them_and_is_the_one_named() {
    let app = started(json!([minute("100")])).await;
    app.define("meters/limited", json!({ "unit": "call", "booked": false })).await;
    app.define("operations/limited", json!({ "costs": [{ "meter": "limited", "base": "1" }] })).await;
    let too_many = (0..33).map(|number| minute("9").with("id", format!("{number}")).with("meter", "limited"));
    let limits = [minute("100")].into_iter().chain(too_many).collect::<Value>();
    app.define("plans/plan", json!({ "limits": limits })).await;
    let mut checks = vec![of("read"); 16];
    checks.push(of("limited"));
    let refused = app.post(CHECK, json!({ "checks": checks })).await.expect(422);
    assert_eq!(refused.pointers(), ["/checks/16/subjects"]);
    assert_eq!(used(&app).await, "0");
    app.finish().await;
}

#[tokio::test]
async fn looks_together_see_each_other_and_are_not_mixed_with_checks() {
    let app = started(json!([minute("10")])).await;
    let looks = |amounts: &[u32]| {
        amounts.iter().map(|cost| of("read").with("cost", *cost).with("peek", true)).collect()
    };
    let both = app.post(CHECK, together(looks(&[6, 6]))).await.expect(200);
    assert_eq!(allowed(&both), [false, false]);
    let both = app.post(CHECK, together(looks(&[6, 4]))).await.expect(200);
    assert_eq!(allowed(&both), [true, true]);
    assert_eq!(both.text("/results/1/remaining"), "10", "nothing was counted");
    assert_eq!(used(&app).await, "0");
    let mixed = json!([of("read"), of("read").with("peek", true)]);
    assert_eq!(app.post(CHECK, together(mixed.clone())).await.expect(422).pointers(), ["/atomic"]);
    let apart = app.post(CHECK, json!({ "checks": mixed })).await.expect(200);
    assert_eq!(allowed(&apart), [true, true]);
    app.finish().await;
}

#[tokio::test]
async fn a_refused_call_makes_no_tenant() {
    let app = an_app().with("policy.unknown_tenant", "plan").start().await;
    with_limits(&app, json!([minute("5")])).await;
    let new = |tenant: &str| of("read").of(tenant);
    let wrong = json!({ "checks": [new("newcomer"), of("nothing")] });
    assert_eq!(app.post(CHECK, wrong).await.expect(422).pointers(), ["/checks/1/operation"]);
    let of_two = together(json!([new("newcomer"), of("read")]));
    assert_eq!(app.post(CHECK, of_two).await.expect(422).pointers(), ["/atomic"]);
    app.define("tenants/old", json!({ "plan": "plan", "archived": true })).await;
    let archived = json!({ "checks": [new("newcomer"), of("read").of("old")] });
    assert_eq!(app.post(CHECK, archived).await.expect(422).pointers(), ["/checks/1/tenant"]);
    app.get("/v1/admin/tenants/newcomer").await.is_problem(404, "not_found");
    app.finish().await;
}

#[tokio::test]
async fn a_call_takes_up_to_a_hundred_checks() {
    let app = started(json!([minute("1000")])).await;
    for count in [17, 100] {
        let answer = app.post(CHECK, json!({ "checks": vec![of("read"); count] })).await.expect(200);
        assert_eq!(allowed(&answer), vec![true; count]);
    }
    assert_eq!(used(&app).await, "117");
    let refused = app.post(CHECK, json!({ "checks": vec![of("read"); 101] })).await.expect(422);
    assert_eq!(refused.pointers(), ["/checks"]);
    app.finish().await;
}

#[tokio::test]
async fn together_with_a_check_that_is_denied_nothing_is_counted() {
    let app = started(json!([minute("10")])).await;
    app.define("meters/other", json!({ "unit": "call", "booked": false, "without_limit": "deny" })).await;
    app.define("operations/denied", json!({ "costs": [{ "meter": "other", "base": "1" }] })).await;
    let answer = app.post(CHECK, together(json!([of("read"), of("denied")]))).await.expect(200);
    assert_eq!(allowed(&answer), [false, false]);
    assert_eq!(used(&app).await, "0");
    app.finish().await;
}
