//! Limits of what runs at once, on a clock that moves only when it is set.

use serde_json::{Value, json};

use crate::support::app::*;

fn at_once(counts: &str) -> Value {
    json!({ "id": "slots", "meter": "page", "algorithm": "concurrency", "counts": counts, "capacity": "2" })
}

async fn with_slots(limit: Value) -> TestApp {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(json!([limit]), json!([])).await;
    app
}

#[tokio::test]
async fn reservations_take_a_slot_each_until_they_end() {
    let app = with_slots(at_once("reservations")).await;
    let first = app.post(RESERVATIONS, pages(500).lasting(60)).await.expect(201);
    let shown = json!({
        "id": "slots", "algorithm": "concurrency", "class": "rate", "capacity": "2", "consumed": "0", "reserved": "1", "remaining": "1",
        "resets_at": "2026-03-10T12:01:00Z",
    });
    for (field, value) in shown.as_object().unwrap() {
        assert_eq!(first.body["limits"][0][field], *value, "{field}: {first:?}");
    }
    assert_eq!(first.header("ratelimit-policy"), "\"slots\";q=2");
    let second = app.held(pages(1).lasting(90)).await;
    let refused = app.post(RESERVATIONS, pages(1)).await.expect(429);
    assert_eq!((refused.text("/code"), refused.header("retry-after")), ("rate_limited", "60"));
    assert_eq!(refused.text("/refused_by/0/cause"), "reserved");
    assert_eq!(refused.text("/refused_by/0/next_hold_ends_at"), "2026-03-10T12:01:00Z");
    app.use_pages("used", 50).await.expect(201);
    let part = json!({ "amount": "400", "final": false });
    app.resolve(first.text("/id"), "consume", part).await.expect(200);
    app.post(RESERVATIONS, pages(1)).await.expect(429);
    app.consume(first.text("/id"), "900").await.expect(200);
    app.held(pages(1).lasting(90)).await;
    app.release(&second).await.expect(200);
    app.held(pages(1).lasting(90)).await;
    app.post(RESERVATIONS, pages(1)).await.expect(429);
    app.finish().await;
}

#[tokio::test]
async fn units_at_once_are_held_whole_until_their_reservation_ends() {
    let app = with_slots(at_once("units").with("capacity", "10")).await;
    let held = app.held(pages(7).lasting(60)).await;
    app.resolve(&held, "consume", json!({ "amount": "6", "final": false })).await.expect(200);
    let refused = app.post(RESERVATIONS, pages(4)).await.expect(429);
    assert_eq!(refused.text("/refused_by/0/needed"), "4");
    let consumed = app.consume(&held, "7").await.expect(200);
    assert_eq!((consumed.text("/limits/0/reserved"), consumed.text("/limits/0/remaining")), ("0", "10"));
    app.held(pages(10)).await;
    app.post(RESERVATIONS, pages(11)).await.expect(402);
    app.finish().await;
}

#[tokio::test]
async fn after_a_loss_of_memory_what_runs_still_has_its_slot_and_gives_it_back() {
    let app = with_slots(at_once("reservations")).await;
    let held = app.held(pages(3).lasting(3600)).await;
    app.drained().await;
    app.redis.flush().await;
    app.post_until_answered(RESERVATIONS, "second", pages(3).lasting(3600)).await.expect(201);
    app.post(RESERVATIONS, pages(3)).await.expect(429);
    app.release(&held).await.expect(200);
    app.held(pages(3).lasting(3600)).await;
    app.post(RESERVATIONS, pages(3)).await.expect(429);
    app.finish().await;
}

#[tokio::test]
async fn after_a_loss_of_memory_a_subjects_slots_are_those_that_run() {
    let app = with_slots(at_once("reservations").with("scope", "subject").with("subject_kind", "user")).await;
    let held = app.held(pages(3).by("ada").lasting(3600)).await;
    let other = app.held(pages(3).by("ben").lasting(3600)).await;
    app.drained().await;
    app.redis.flush().await;
    app.post_until_answered(RESERVATIONS, "second", pages(3).by("ada").lasting(3600)).await.expect(201);
    app.post(RESERVATIONS, pages(3).by("ada")).await.expect(429);
    app.release(&other).await.expect(200);
    app.release(&held).await.expect(200);
    app.held(pages(3).by("ada").lasting(3600)).await;
    app.post(RESERVATIONS, pages(3).by("ada")).await.expect(429);
    let first = app.held(pages(3).by("ben").lasting(3600)).await;
    app.held(pages(3).by("ben").lasting(3600)).await;
    app.post(RESERVATIONS, pages(3).by("ben")).await.expect(429);
    app.release(&first).await.expect(200);
    app.finish().await;
}

#[tokio::test]
async fn a_limit_of_what_runs_at_once_is_refused_where_its_fields_do_not_fit() {
    let app = with_slots(at_once("reservations")).await;
    for (field, value, pointer, told) in [
        ("class", json!("quota"), "/class", "must be rate"),
        ("window", json!("hour"), "/window", "takes no `window`"),
        ("counts", json!("calls"), "/counts", "unknown variant"),
        ("capacity", json!("2.5"), "/capacity", "decimals"),
    ] {
        let refused =
            app.put("/v1/admin/limits/slots", at_once("reservations").with(field, value)).await.expect(422);
        assert_eq!(refused.text("/errors/0/pointer"), pointer, "{refused:?}");
        assert!(refused.text("/errors/0/message").contains(told), "{refused:?}");
    }
    app.finish().await;
}

#[tokio::test]
async fn a_page_of_who_holds_a_limit_ends_after_many_that_do_not_and_the_next_one_goes_on() {
    let app = spawn_app().await;
    let tokens = json!({ "id": "tokens", "meter": "token", "algorithm": "concurrency", "capacity": "9" });
    app.define("meters/token", json!({ "unit": "token" })).await;
    app.with_plan(json!([day_of("9000"), tokens]), json!([])).await;
    let holder = app.held(pages(1).with("meter", "token")).await;
    for batch in 0..3 {
        let reserve = |number| {
            let body = pages(1).lasting(3_600);
            json!({ "call": "reserve", "idempotency_key": format!("{batch}-{number}"), "body": body })
        };
        let items: Vec<_> = (0..700).map(reserve).collect();
        app.post("/v1/batch", json!({ "items": items })).await.expect(200);
    }
    app.drained().await;
    let path = "/v1/tenants/acme/reservations?status=reserved&limit_id=tokens&limit=1";
    let first = app.get(path).await.expect(200);
    assert_eq!((&first.body["data"], &first.body["has_more"]), (&json!([]), &json!(true)), "{first:?}");
    let next = app.get(&format!("{path}&cursor={}", first.text("/next_cursor"))).await.expect(200);
    assert_eq!((next.text("/data/0/id"), &next.body["has_more"]), (holder.as_str(), &json!(false)));
    app.finish().await;
}

#[tokio::test]
async fn who_holds_the_slots_of_a_limit_is_a_filter_of_the_reservations() {
    let app = spawn_app().await;
    let limits = json!([
        { "id": "slots", "meter": "page", "algorithm": "concurrency", "capacity": "10" },
        { "id": "own", "meter": "page", "algorithm": "concurrency", "capacity": "5", "scope": "subject",
            "subject_kind": "user" },
        { "id": "tokens", "meter": "token", "algorithm": "concurrency", "capacity": "9" },
    ]);
    app.define("meters/token", json!({ "unit": "token" })).await;
    app.with_plan(limits, json!([])).await;
    let (ada, ben) = (app.held(pages(1).by("ada")).await, app.held(pages(1).by("ben")).await);
    let (nobody, tokens) = (app.held(pages(1)).await, app.held(pages(1).with("meter", "token")).await);
    let done = app.held(pages(1).by("ada")).await;
    app.consume(&done, "1").await.expect(200);
    app.drained().await;
    let listed = async |filter: &str| {
        let path = format!("/v1/tenants/acme/reservations?{filter}");
        let answer = app.get(&path).await.expect(200);
        let ids =
            answer.body["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned());
        ids.collect::<std::collections::BTreeSet<_>>()
    };
    let set = |ids: &[&String]| ids.iter().map(|id| (*id).clone()).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(listed("status=reserved&limit_id=slots").await, set(&[&ada, &ben, &nobody]));
    assert_eq!(listed("status=reserved&limit_id=own").await, set(&[&ada, &ben]));
    assert_eq!(listed("status=reserved&limit_id=own&subject=ada&kind=user").await, set(&[&ada]));
    assert_eq!(listed("status=reserved&limit_id=tokens").await, set(&[&tokens]));
    assert_eq!(listed("status=reserved&limit_id=none").await, set(&[]));
    assert_eq!(listed("subject=ada&kind=user").await, set(&[&ada, &done]));
    assert_eq!(listed("meter=token").await, set(&[&tokens]));
    assert_eq!(listed("subject=ada").await, set(&[&ada, &done]));
    for wrong in ["limit_id=slots", "kind=user", "status=reserved&limit_id=-"] {
        app.get(&format!("/v1/tenants/acme/reservations?{wrong}")).await.is_problem(400, "invalid_request");
    }
    for id in [ada, ben, nobody, tokens] {
        app.release(&id).await.expect(200);
    }
    app.finish().await;
}

#[tokio::test]
async fn who_was_only_watched_by_a_limit_in_shadow_holds_none_of_its_slots_also_when_it_is_hard() {
    let watching = at_once("reservations").with("capacity", "1").with("kind", "shadow");
    let app = with_slots(watching.clone()).await;
    let counted = app.hold(1).await;
    let over = app.post(RESERVATIONS, pages(1)).await.expect(201);
    assert_eq!(over.text("/warnings/0/code"), "shadow_refused", "{over:?}");
    app.drained().await;
    for kind in ["shadow", "hard"] {
        app.define("plans/plan", json!({ "limits": [watching.clone().with("kind", kind)] })).await;
        let path = "/v1/tenants/acme/reservations?status=reserved&limit_id=slots";
        let listed = app.get(path).await.expect(200);
        let ids: Vec<_> = listed.body["data"].as_array().unwrap().iter().map(|row| &row["id"]).collect();
        assert_eq!(ids, [&json!(counted)], "{kind}: {listed:?}");
        assert_eq!(app.quota().await.text("/limits/0/reserved"), "1", "{kind}: as many as it counts");
    }
    app.release(over.text("/id")).await.expect(200);
    app.release(&counted).await.expect(200);
    app.finish().await;
}
