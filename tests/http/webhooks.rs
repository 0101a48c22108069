//! `/v1/admin/webhooks`: notices are delivered to receivers, signed, retried, once for each threshold and period.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::domain::webhook::WebhookId;
use tollgate::ledger::Attempted;
use tollgate::operations::Delivered;

use crate::ledger::as_owner;
use crate::support::app::*;
use crate::support::receiver::{Manner, Receiver};
use crate::support::wait::wait_for;

const WEBHOOKS: &str = "/v1/admin/webhooks";
const ALL_EVENTS: [&str; 3] = ["quota.threshold", "quota.forecast", "quota.resolved"];
const TIMEOUT_MS: u64 = 2_000;

/// A service that may call the loopback, with a quota of 100 pages for `acme`, where no job runs by itself.
async fn with_quota() -> TestApp {
    let app =
        an_app().at("2026-03-01T12:00:00Z").without_jobs().with("webhooks.allowed_networks", "127.0.0.1");
    let app = app.with("webhooks.timeout_ms", TIMEOUT_MS).start().await;
    app.with_plan(json!([]), json!([quota_of("100")])).await;
    app
}

/// Makes a webhook for these events of all tenants.
async fn webhook(app: &TestApp, url: &str, events: &[&str]) -> Value {
    app.post(WEBHOOKS, json!({ "url": url, "events": events })).await.expect(201).body
}

/// Raises what is due from what is booked.
async fn raise(app: &TestApp) {
    app.drained().await;
    app.app().ledger.raise_quota_notices(app.clock.now_ms(), 100).await.unwrap();
}

/// Uses so many pages and raises what is due.
async fn use_up(app: &TestApp, amount: u32) {
    app.use_pages(&format!("use {amount}"), amount).await.expect(201);
    raise(app).await;
}

async fn deliver(app: &TestApp) -> Delivered {
    app.app().operations.webhooks.deliver().await.unwrap()
}

fn delivered(count: u64) -> Delivered {
    Delivered { delivered: count, ..Delivered::default() }
}

fn waiting(count: u64) -> Delivered {
    Delivered { waiting: count, ..Delivered::default() }
}

fn deliveries_of(webhook: &Value) -> String {
    format!("{WEBHOOKS}/{}/deliveries", webhook["id"].as_str().unwrap())
}

/// The deliveries of a webhook, newest first.
async fn deliveries(app: &TestApp, webhook: &Value) -> Vec<Value> {
    let list = app.get(&deliveries_of(webhook)).await.expect(200).body;
    list["data"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_threshold_arrives_once_in_its_period_signed_by_the_rules_of_standard_webhooks() {
    let app = with_quota().await;
    let receiver = Receiver::start().await;
    let made = webhook(&app, &receiver.url("127.0.0.1"), &ALL_EVENTS).await;
    let secret = made["secret"].as_str().unwrap();
    use_up(&app, 60).await;
    assert_eq!(deliver(&app).await, delivered(1));
    raise(&app).await;
    use_up(&app, 1).await;
    assert_eq!(deliver(&app).await, delivered(0), "it was raised before, and delivered");
    let received = receiver.received();
    assert_eq!(received.len(), 1);
    assert!(received[0].is_signed_with(secret));
    assert!(!received[0].forged().is_signed_with(secret), "another body");
    let other = webhook(&app, &receiver.url("127.0.0.1"), &ALL_EVENTS).await;
    assert!(!received[0].is_signed_with(other["secret"].as_str().unwrap()), "another webhook");
    let expected = json!({
        "type": "quota.threshold", "timestamp": "2026-03-01T12:00:00Z",
        "data": {
            "tenant": "acme", "kind": "threshold", "meter": "page", "percent": 50,
            "period_start": "2026-03-01T00:00:00Z", "period_end": "2026-04-01T00:00:00Z",
            "consumed": "60", "allowance": "100", "raised_at": "2026-03-01T12:00:00Z"
        }
    });
    assert_eq!(received[0].body(), expected);
    let row = deliveries(&app, &made).await.remove(0);
    assert_eq!(
        (row["id"].as_str().unwrap(), &row["status"]),
        (received[0].id().as_str(), &json!("delivered"))
    );
    assert_eq!(
        (&row["attempts"], &row["last_status"], &row["next_attempt_at"]),
        (&json!(1), &json!(204), &Value::Null)
    );
    app.move_clock("2026-04-01T12:00:00Z").await;
    app.use_pages("april", 60).await.expect(201);
    raise(&app).await;
    assert_eq!(
        deliver(&app).await,
        delivered(4),
        "the next period has its own and the last one has ended, for both"
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notice_that_holds_no_longer_is_delivered_as_resolved_and_each_receiver_gets_what_it_named() {
    let app = with_quota().await;
    let receivers = [Receiver::start().await, Receiver::start().await, Receiver::start().await];
    let urls = [0, 1, 2].map(|at: usize| receivers[at].url("127.0.0.1"));
    webhook(&app, &urls[0], &["quota.resolved"]).await;
    app.define("tenants/other", json!({ "id": "other", "plan": "plan" })).await;
    let of_other = json!({ "url": urls[1], "events": ALL_EVENTS, "tenant": "other" });
    assert_eq!(app.post(WEBHOOKS, of_other).await.expect(201).body["tenant"], "other");
    webhook(&app, &urls[2], &["quota.forecast", "quota.threshold"]).await;
    use_up(&app, 60).await;
    app.move_clock("2026-03-06T00:00:00Z").await;
    raise(&app).await;
    let grant = json!({
        "tenant": "acme", "meter": "page", "amount": "1000", "kind": "promotional", "expires_at": "2026-04-01T00:00:00Z"
    });
    app.post_keyed("/v1/admin/grants", "more", grant).await.expect(201);
    raise(&app).await;
    assert_eq!(deliver(&app).await, delivered(3));
    let words = |at: usize| -> BTreeSet<String> {
        let word = |body: Value| {
            format!("{} {}", body["type"].as_str().unwrap(), body["data"]["kind"].as_str().unwrap())
        };
        receivers[at].received().iter().map(|one| word(one.body())).collect()
    };
    assert_eq!(words(0), ["quota.resolved threshold".to_owned()].into(), "what ends at once is one delivery");
    assert_eq!(words(1), BTreeSet::new());
    assert_eq!(words(2), ["quota.forecast forecast", "quota.threshold threshold"].map(str::to_owned).into());
    let resolved = receivers[0].received()[0].body();
    assert_eq!(
        (&resolved["timestamp"], &resolved["data"]["resolved_at"]),
        (&json!("2026-03-06T00:00:00Z"), &resolved["timestamp"])
    );
    let both = json!([{ "kind": "forecast" }, { "kind": "threshold", "percent": 50 }]);
    assert_eq!(resolved["data"]["resolves"], both);
    let raised = receivers[2].received()[0].body();
    assert!(raised["data"].get("resolved_at").is_none(), "that is in a delivery of its own: {raised}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thresholds_that_end_at_once_are_one_delivery_of_the_lowest_and_late_ones_say_that_they_are_over() {
    let app = with_quota().await;
    let receiver = Receiver::start().await;
    webhook(&app, &receiver.url("127.0.0.1"), &ALL_EVENTS).await;
    use_up(&app, 85).await;
    assert_eq!(deliver(&app).await, delivered(2));
    app.use_pages("late", 10).await.expect(201);
    app.move_clock("2026-04-01T00:01:00Z").await;
    raise(&app).await;
    assert_eq!(deliver(&app).await, delivered(2), "90 % of March, and the end of its other two");
    let said: BTreeSet<_> = receiver.received()[2..].iter().map(|one| one.body().to_string()).collect();
    let at = json!("2026-04-01T00:01:00Z");
    let march = |percent: u8, consumed: &str, raised_at: &str| {
        json!({
            "tenant": "acme", "kind": "threshold", "meter": "page", "percent": percent,
            "period_start": "2026-03-01T00:00:00Z", "period_end": "2026-04-01T00:00:00Z", "consumed": consumed,
            "allowance": "100", "raised_at": raised_at, "resolved_at": at
        })
    };
    let ended = json!([{ "kind": "threshold", "percent": 50 }, { "kind": "threshold", "percent": 80 }]);
    let resolved = march(50, "85", "2026-03-01T12:00:00Z").with("resolves", ended);
    let expected = [
        json!({ "type": "quota.resolved", "timestamp": at, "data": resolved }),
        json!({ "type": "quota.threshold", "timestamp": at, "data": march(90, "95", "2026-04-01T00:01:00Z") }),
    ];
    assert_eq!(said, expected.map(|one| one.to_string()).into());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_retried_for_a_day_with_longer_waits_under_one_id_and_can_be_replayed() {
    let app = with_quota().await;
    let receiver = Receiver::start().await;
    let made = webhook(&app, &receiver.url("127.0.0.1"), &ALL_EVENTS).await;
    receiver.answers(Manner::Status(500));
    use_up(&app, 60).await;
    assert_eq!(deliver(&app).await, waiting(1));
    assert_eq!(deliver(&app).await, waiting(0), "not before its time");
    let first = deliveries(&app, &made).await.remove(0);
    assert_eq!((&first["status"], &first["last_status"]), (&json!("waiting"), &json!(500)));
    assert_eq!(first["last_error"], "it did not accept the delivery");
    let at = |row: &Value| row["next_attempt_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let (mut waits, mut now, mut attempts) = (Vec::new(), "2026-03-01T12:00:00Z".parse().unwrap(), 1);
    loop {
        let row = deliveries(&app, &made).await.remove(0);
        assert_eq!(row["attempts"], attempts);
        if row["status"] == "failed" {
            break;
        }
        waits.push(at(&row).duration_since(now).as_secs());
        now = at(&row);
        app.move_clock(row["next_attempt_at"].as_str().unwrap()).await;
        attempts += 1;
        let done = deliver(&app).await;
        assert_eq!(done.waiting + done.failed, 1, "{done:?}");
    }
    assert_eq!(now.to_string(), "2026-03-02T12:00:00Z", "the last attempt is made when the day is over");
    assert!(
        (10..=12).contains(&waits[0]) && (20..=24).contains(&waits[1]) && waits[12] >= 3_600,
        "{waits:?}"
    );
    receiver.answers(Manner::Status(200));
    app.move_clock("2026-03-03T12:00:00Z").await;
    assert_eq!(deliver(&app).await, delivered(0), "it was given up");
    let id = first["id"].as_str().unwrap();
    let replayed =
        app.post(&format!("{}/{id}/replay", deliveries_of(&made)), json!({})).await.expect(200).body;
    assert_eq!((&replayed["status"], &replayed["attempts"]), (&json!("waiting"), &json!(0)));
    assert_eq!(deliver(&app).await, delivered(1));
    let received = receiver.received();
    assert_eq!(received.len(), attempts + 1);
    assert!(received.iter().all(|one| one.id() == id && one.body() == received[0].body()));
    let audit = app.get("/v1/admin/audit?object_kind=webhook_delivery&action=replay").await.expect(200).body;
    assert_eq!(audit["data"][0]["object_id"], id);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_is_not_lost_when_the_last_attempt_ends_after_it() {
    let app = with_quota().await;
    let receiver = Receiver::start().await;
    let made = webhook(&app, &receiver.url("127.0.0.1"), &ALL_EVENTS).await;
    use_up(&app, 60).await;
    let id = WebhookId::from_uuid(made["id"].as_str().unwrap().parse().unwrap());
    let (ledger, now_ms) = (app.app().ledger.clone(), app.clock.now_ms());
    let claimed = ledger.claim_delivery(id, now_ms, Duration::from_secs(60)).await.unwrap().unwrap();
    let of_it = format!("{}/{}/replay", deliveries_of(&made), claimed.id);
    app.post(&of_it, json!({})).await.expect(200);
    let failed = Attempted { at_ms: now_ms, status: Some(500), error: Some("no".into()), again: None };
    assert!(!ledger.book_attempt(&claimed, &failed).await.unwrap(), "the replay has ended its claim");
    assert_eq!(deliveries(&app, &made).await[0]["status"], "waiting");
    assert_eq!(deliver(&app).await, delivered(1));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_that_raise_and_deliver_at_once_send_each_notice_once() {
    let app = with_quota().await;
    let receiver = Receiver::start().await;
    webhook(&app, &receiver.url("127.0.0.1"), &ALL_EVENTS).await;
    for tenant in 0..12 {
        app.define(&format!("tenants/t{tenant}"), json!({ "plan": "plan" })).await;
        app.post_keyed(USAGE, "much", pages("95").of(format!("t{tenant}"))).await.expect(201);
    }
    let second = app.another_instance().await;
    app.drained().await;
    let raising = [app.app(), &second].map(|one| one.ledger.raise_quota_notices(app.clock.now_ms(), 100));
    let raised: u64 =
        futures::future::join_all(raising).await.into_iter().map(|done| done.unwrap().raised).sum();
    assert_eq!(raised, 36);
    let (one, other) =
        futures::join!(app.app().operations.webhooks.deliver(), second.operations.webhooks.deliver());
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one.delivered + other.delivered, 36, "{one:?} {other:?}");
    let received = receiver.received();
    let ids: BTreeSet<_> = received.iter().map(|one| one.id()).collect();
    assert_eq!((received.len(), ids.len()), (36, 36));
    second.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_instance_had_claimed_when_it_died_is_sent_by_another_once_the_claim_ends() {
    let app = with_quota().await;
    let receiver = Receiver::start().await;
    let made = webhook(&app, &receiver.url("127.0.0.1"), &ALL_EVENTS).await;
    let id = WebhookId::from_uuid(made["id"].as_str().unwrap().parse().unwrap());
    use_up(&app, 85).await;
    let ledger = &app.app().ledger;
    let now_ms = app.clock.now_ms();
    let held = ledger.claim_delivery(id, now_ms, Duration::from_secs(60)).await.unwrap().unwrap();
    let dead = ledger.claim_delivery(id, now_ms, Duration::ZERO).await.unwrap().unwrap();
    assert_ne!(held.id, dead.id);
    assert_eq!(deliver(&app).await, delivered(1), "the other one is still held");
    assert_eq!(receiver.received()[0].id(), dead.id.to_string());
    let late = tollgate::ledger::Attempted {
        at_ms: now_ms,
        status: None,
        error: Some("late".to_owned()),
        again: Some((now_ms, now_ms)),
    };
    assert!(!ledger.book_attempt(&dead, &late).await.unwrap(), "its claim has ended");
    let rows = deliveries(&app, &made).await;
    let states: BTreeSet<_> = rows.iter().map(|row| row["status"].as_str().unwrap()).collect();
    assert_eq!(states, BTreeSet::from(["delivered", "waiting"]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_refused_when_a_webhook_is_made_and_when_it_is_called() {
    let app = an_app().at("2026-03-01T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("100")])).await;
    let receiver = Receiver::start().await;
    for url in [
        "https://127.0.0.1/",
        "https://10.1.2.3/",
        "https://[::1]/",
        "https://169.254.169.254/",
        "http://example.com/",
    ] {
        let refused = app.post(WEBHOOKS, json!({ "url": url, "events": ["quota.threshold"] })).await;
        refused.is_problem(422, "validation_failed");
        assert_eq!(refused.pointers(), ["/url"], "{url}");
    }
    let secure = receiver.url("localhost").replace("http:", "https:");
    let made = webhook(&app, &secure, &ALL_EVENTS).await;
    use_up(&app, 60).await;
    assert_eq!(deliver(&app).await, waiting(1));
    let row = deliveries(&app, &made).await.remove(0);
    let error = row["last_error"].as_str().unwrap();
    assert!(
        error.ends_with("is not a public address, and `webhooks.allowed_networks` does not contain it"),
        "{error}"
    );
    assert_eq!(row["last_status"], Value::Null);
    assert!(receiver.received().is_empty());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_a_failure_and_is_not_followed() {
    let app = with_quota().await;
    let receiver = Receiver::start().await;
    let made = webhook(&app, &receiver.url("127.0.0.1"), &ALL_EVENTS).await;
    receiver.answers(Manner::Redirect);
    use_up(&app, 60).await;
    assert_eq!(deliver(&app).await, waiting(1));
    let row = deliveries(&app, &made).await.remove(0);
    assert_eq!(
        (&row["last_status"], &row["last_error"]),
        (&json!(307), &json!("it redirects, which is not followed"))
    );
    let paths: Vec<_> = receiver.received().into_iter().map(|one| one.path).collect();
    assert_eq!(paths, ["/hooks"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_does_not_answer_holds_up_no_other() {
    let app = with_quota().await;
    let (silent, well) = (Receiver::start().await, Receiver::start().await);
    let of_silent = webhook(&app, &silent.url("127.0.0.1"), &ALL_EVENTS).await;
    webhook(&app, &well.url("127.0.0.1"), &ALL_EVENTS).await;
    silent.answers(Manner::Silence);
    for tenant in 0..8 {
        app.define(&format!("tenants/t{tenant}"), json!({ "plan": "plan" })).await;
        app.post_keyed(USAGE, "much", pages("60").of(format!("t{tenant}"))).await.expect(201);
    }
    raise(&app).await;
    let done = deliver(&app).await;
    assert_eq!((done.delivered, well.received().len()), (8, 8));
    assert!((1..=2).contains(&done.waiting), "it is left alone until the next run: {done:?}");
    let rows = deliveries(&app, &of_silent).await;
    let tried: Vec<_> = rows.iter().filter(|row| row["attempts"] == 1).collect();
    assert_eq!(tried.len() as u64, done.waiting);
    assert!(
        tried.iter().all(|row| row["last_error"] == format!("no answer within {TIMEOUT_MS} ms")),
        "{tried:?}"
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_cannot_be_read_holds_up_no_other_and_one_stored_with_a_longer_address_is_served() {
    let app = with_quota().await;
    let (well, far) = (Receiver::start().await, Receiver::start().await);
    let torn = webhook(&app, "https://example.com/hooks", &ALL_EVENTS).await;
    let unknown = webhook(&app, "https://example.com/hooks", &ALL_EVENTS).await;
    let good = webhook(&app, &well.url("127.0.0.1"), &ALL_EVENTS).await;
    let long = webhook(&app, &far.url("127.0.0.1"), &ALL_EVENTS).await;
    let id = |made: &Value| made["id"].as_str().unwrap().to_owned();
    let stored = format!(
        "UPDATE webhooks SET url = 'x' WHERE id = '{}'; \
         UPDATE webhooks SET events = array_append(events, 'quota.new') WHERE id = '{}'; \
         UPDATE webhooks SET url = url || '?d=' || repeat('%C3%BC', 400) WHERE id = '{}'",
        id(&torn),
        id(&unknown),
        id(&long)
    );
    as_owner(&app.database, &stored).await.unwrap();
    use_up(&app, 60).await;
    assert_eq!(deliver(&app).await, delivered(2));
    assert_eq!((well.received().len(), far.received().len()), (1, 1));
    let (mut listed, mut path) = (Vec::new(), format!("{WEBHOOKS}?limit=1"));
    loop {
        let page = app.get(&path).await.expect(200).body;
        listed.extend(page["data"].as_array().unwrap().iter().map(id));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("{WEBHOOKS}?limit=1&cursor={cursor}");
    }
    assert_eq!(listed, [id(&long), id(&good)]);
    let damages = app.app().ledger.damages().await.unwrap();
    for unread in [&torn, &unknown] {
        let item = format!("webhook {}", id(unread));
        assert!(damages.iter().any(|damage| damage.work == "delivery" && damage.item == item), "{damages:?}");
        assert_eq!(app.delete(&format!("{WEBHOOKS}/{}", id(unread))).await.status, 204);
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_go_with_their_webhook_and_with_their_notice() {
    let app = with_quota().await;
    let receiver = Receiver::start().await;
    let made = webhook(&app, &receiver.url("127.0.0.1"), &ALL_EVENTS).await;
    let kept = webhook(&app, &receiver.url("127.0.0.1"), &ALL_EVENTS).await;
    use_up(&app, 95).await;
    let page = app.get(&format!("{}?limit=2&status=waiting", deliveries_of(&made))).await.expect(200).body;
    let rest = format!(
        "{}?limit=2&status=waiting&cursor={}",
        deliveries_of(&made),
        page["next_cursor"].as_str().unwrap()
    );
    let rest = app.get(&rest).await.expect(200).body;
    let counts = [&page, &rest].map(|list| list["data"].as_array().unwrap().len());
    assert_eq!((counts, &rest["has_more"]), ([2, 1], &json!(false)));
    let path = format!("{WEBHOOKS}/{}", made["id"].as_str().unwrap());
    assert_eq!(app.delete(&path).await.status, 204);
    app.delete(&path).await.is_problem(404, "not_found");
    app.get(&deliveries_of(&made)).await.is_problem(404, "not_found");
    assert_eq!(deliver(&app).await, delivered(3), "only the other one is notified");
    assert_eq!(app.app().ledger.drop_quota_notices(0, 100).await.unwrap(), 3);
    assert!(deliveries(&app, &kept).await.is_empty());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_shows_its_secret_once_and_bad_ones_name_their_fields() {
    let app = with_quota().await;
    let good = json!({ "url": "https://example.com/hooks", "events": ["quota.resolved"] });
    for (field, value, pointer) in [
        ("url", json!("example.com"), "/url"),
        ("url", json!("ftp://example.com/"), "/url"),
        ("url", json!("https://me:secret@example.com/"), "/url"),
        ("url", json!(format!("https://example.com/hook?d={}", "ü".repeat(400))), "/url"),
        ("events", json!([]), "/events"),
        ("events", json!(["quota.forecast", "quota.forecast"]), "/events/1"),
        ("events", json!(["quota.half"]), "/events/0"),
        ("tenant", json!("nobody"), "/tenant"),
        ("colour", json!("red"), "/colour"),
    ] {
        let refused = app.post(WEBHOOKS, good.clone().with(field, value)).await;
        assert_eq!((refused.status, refused.pointers()), (422, vec![pointer]), "{refused:?}");
    }
    let made = app.post(WEBHOOKS, good.clone()).await.expect(201).body;
    assert!(made["secret"].as_str().unwrap().starts_with("whsec_"));
    let path = format!("{WEBHOOKS}/{}", made["id"].as_str().unwrap());
    let read = app.get(&path).await.expect(200).body;
    assert!(
        read.get("secret").is_none() && read["url"] == good["url"] && read["events"] == good["events"],
        "{read}"
    );
    let second = app.post(WEBHOOKS, good).await.expect(201).body;
    assert_ne!(second["secret"], made["secret"]);
    let list = app.get(&format!("{WEBHOOKS}?limit=1")).await.expect(200).body;
    assert_eq!((&list["data"][0]["id"], &list["has_more"]), (&second["id"], &json!(true)));
    assert!(list["data"][0].get("secret").is_none());
    let rest = format!("{WEBHOOKS}?cursor={}", list["next_cursor"].as_str().unwrap());
    assert_eq!(app.get(&rest).await.expect(200).body["data"][0]["id"], made["id"]);
    let nowhere = format!("{}/{}/replay", deliveries_of(&made), uuid::Uuid::nil());
    app.post(&nowhere, json!({})).await.is_problem(404, "not_found");
    app.get(&format!("{WEBHOOKS}/nothing")).await.is_problem(404, "not_found");
    let finance = app.make_key("finance", None).await;
    finance.get(&path).await.expect(200);
    finance.delete(&path).await.is_problem(403, "forbidden");
    let audit = app.get("/v1/admin/audit?object_kind=webhook").await.expect(200).body.to_string();
    assert!(audit.contains("https://example.com/hooks") && !audit.contains("whsec_"), "{audit}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_delivers_and_says_what_it_did() {
    let app = an_app().with("webhooks.allowed_networks", "127.0.0.1").start().await;
    app.with_plan(json!([]), json!([quota_of("100")])).await;
    let receiver = Receiver::start().await;
    let made = webhook(&app, &receiver.url("127.0.0.1"), &["quota.threshold"]).await;
    use_up(&app, 60).await;
    wait_for("the job delivers by itself", Duration::from_secs(30), async || {
        (!receiver.received().is_empty()).then_some(())
    })
    .await;
    receiver.answers(Manner::Status(503));
    use_up(&app, 25).await;
    let output =
        app.command(&["job", "run", "webhooks", "--output", "json", "--url", app.url(), "--key", app.key()]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    wait_for("it has been tried", Duration::from_secs(30), async || {
        let row = deliveries(&app, &made).await.remove(0);
        (row["last_status"] == 503 && row["status"] == "waiting").then_some(())
    })
    .await;
    app.finish().await;
}
