//! `/v1/batch`: items are independent.

use serde_json::{Value, json};

use super::with_policy;
use crate::support::app::*;

fn statuses(answer: &Answered) -> Vec<u64> {
    answer.body["results"].as_array().unwrap().iter().map(|r| r["status"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn each_item_stands_alone_and_answers_in_order() {
    let app = with_policy().await;
    let id = app.hold("10").await;
    let items = json!([
        { "call": "consume", "id": id, "idempotency_key": "1", "body": { "amount": "3", "final": false } },
        { "call": "reserve", "idempotency_key": "2", "body": pages("5") },
        { "call": "price", "idempotency_key": "3", "body": {} },
        { "call": "consume", "id": id, "idempotency_key": "4", "body": { "amount": "4" } },
        { "call": "usage", "idempotency_key": "5", "body": pages("1") },
        { "call": "usage", "body": pages("1") },
        { "call": "extend", "id": id, "idempotency_key": "6", "body": {} },
        { "call": "release", "id": "nonsense", "idempotency_key": "7", "body": {} },
        { "call": "reserve", "idempotency_key": "8", "body": { "tenant": "acme", "colour": "red" } },
        { "call": "reserve", "id": id, "idempotency_key": "9", "body": pages("1") },
        7
    ]);
    let answer = app.post("/v1/batch", json!({ "items": items })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(statuses(&answer), [200, 201, 422, 200, 201, 400, 409, 404, 422, 422, 422], "{answer:?}");
    let result = |index: usize| &answer.body["results"][index]["body"];
    assert_eq!(result(0)["status"], "reserved");
    assert_eq!(result(3)["lines"][0]["returned"], "6");
    assert_eq!(result(5)["code"], "idempotency_key_required");
    assert_eq!(result(8)["errors"][0]["pointer"], "/body/colour");
    app.finish().await;
}

#[tokio::test]
async fn a_batch_sent_again_changes_nothing() {
    let app = with_policy().await;
    let items: Vec<Value> = (0..50)
        .map(|n| json!({ "call": "usage", "idempotency_key": format!("k{n}"), "body": pages("1") }))
        .collect();
    let first = app.post("/v1/batch", json!({ "items": items })).await;
    assert!(statuses(&first).iter().all(|status| *status == 201), "{first:?}");
    let again = app.post("/v1/batch", json!({ "items": items })).await;
    assert!(statuses(&again).iter().all(|status| *status == 200), "{again:?}");
    let quota = app.get("/v1/tenants/acme/quota").await;
    assert_eq!(quota.body["limits"][0]["consumed"], "50");
    app.finish().await;
}

#[tokio::test]
async fn a_batch_has_1_to_1000_items() {
    let app = spawn_app().await;
    let item = json!({ "call": "release", "id": "x", "idempotency_key": "k", "body": {} });
    for count in [0, 1001] {
        let answer = app.post("/v1/batch", json!({ "items": vec![item.clone(); count] })).await;
        answer.is_problem(422, "validation_failed");
        assert_eq!(answer.pointers(), ["/items"]);
    }
    let answer = app.post("/v1/batch", json!({ "items": vec![item; 1000] })).await;
    assert_eq!(statuses(&answer), vec![404; 1000]);
    app.finish().await;
}

#[tokio::test]
async fn a_bound_key_acts_for_its_tenant_only() {
    let app = with_policy().await;
    let bound = app.make_key("service", Some("acme")).await;
    let mut own = pages("1");
    own.as_object_mut().unwrap().remove("tenant");
    let mut other = pages("1");
    other["tenant"] = json!("other");
    let items = json!([
        { "call": "usage", "idempotency_key": "1", "body": own },
        { "call": "usage", "idempotency_key": "2", "body": other }
    ]);
    let answer = bound.post("/v1/batch", json!({ "items": items })).await;
    assert_eq!(statuses(&answer), [201, 403], "{answer:?}");
    app.finish().await;
}

#[tokio::test]
async fn items_of_one_reservation_run_in_order_however_they_name_it() {
    let app = super::ratelimit::started(json!([super::ratelimit::minute("100")])).await;
    let bound = app.make_key("service", Some("acme")).await;
    let of_calls = json!({ "meter": "call", "amount": "1" });
    let of_pages = json!({ "meter": "page", "amount": "1" });
    let (mut items, mut expected): (Vec<Value>, Vec<u64>) = (Vec::new(), Vec::new());
    for number in 0..40 {
        let body = if number % 2 == 0 { &of_calls } else { &of_pages };
        let held = bound.post_keyed(RESERVATIONS, &format!("held-{number}"), body.clone()).await.expect(201);
        let id = held.text("/id");
        let item = |call: &str, key: &str, body: &Value| json!({ "call": call, "idempotency_key": format!("{key}-{number}"), "body": body });
        let named = body.clone().of("acme");
        items.extend([item("reserve", "new", body), item("reserve", "new", &named)]);
        items.extend([
            item("reserve", "held", &named),
            item("extend", "a", &json!({ "ttl_seconds": 90 })).with("id", id),
            item("release", "b", &json!({})).with("id", id.replace('-', "")),
            item("extend", "c", &json!({})).with("id", id.to_uppercase()),
        ]);
        expected.extend([201, 200, 200, 200, 200, 409]);
    }
    let answer = bound.post("/v1/batch", json!({ "items": items })).await.expect(200);
    assert_eq!(statuses(&answer), expected, "{answer:?}");
    for (at, result) in answer.body["results"].as_array().unwrap().iter().enumerate() {
        if at % 6 == 2 {
            assert_eq!(result["body"]["status"], "reserved", "what comes later is not done yet: {result}");
        }
    }
    app.finish().await;
}

#[tokio::test]
async fn checks_of_a_batch_are_counted_each_by_itself() {
    let app = super::ratelimit::started(json!([super::ratelimit::minute("30")])).await;
    let check = |n: usize| json!({ "call": "check", "idempotency_key": n.to_string(), "body": super::ratelimit::of("read") });
    let items: Vec<_> = (0..40).map(check).collect();
    let answer = app.post("/v1/batch", json!({ "items": items })).await;
    assert_eq!(statuses(&answer), vec![200; 40]);
    let results = answer.body["results"].as_array().unwrap().iter();
    let allowed = results.filter(|result| result["body"]["allowed"] == true).count();
    assert_eq!(allowed, 30, "{answer:?}");
    app.finish().await;
}
