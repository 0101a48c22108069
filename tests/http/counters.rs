//! Counters through changes of policy: which go on, and what a new one counts from its first moment on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use tollgate::domain::ids::TenantId;
use tollgate::ledger::RestoreAsk;

use crate::ledger::as_owner;
use crate::support::app::*;
use crate::support::wait::wait_for;

/// In the middle of an hour, a day, a week and a month.
const NOON_MS: i64 = 1_784_118_600_000;

/// A limit of a tenant's own.
fn own(window: &str) -> Value {
    json!({ "id": "own", "meter": "page", "window": window, "capacity": "100", "class": "quota" })
}

async fn put_tenant(app: &TestApp, tenant: &str, limits: Value) {
    app.define(&format!("tenants/{tenant}"), json!({ "plan": "plan", "limits": limits })).await;
}

/// What the tenant's limit shows as consumed and reserved.
async fn figures(app: &TestApp, tenant: &str, limit: &str) -> (String, String) {
    let quota = app.get(&format!("/v1/tenants/{tenant}/quota")).await.expect(200).body;
    let limits = quota["limits"].as_array().unwrap();
    let found =
        limits.iter().find(|each| each["id"] == limit).unwrap_or_else(|| panic!("{limit} in {quota}"));
    (found["consumed"].as_str().unwrap().to_owned(), found["reserved"].as_str().unwrap().to_owned())
}

fn pair(consumed: &str, reserved: &str) -> (String, String) {
    (consumed.to_owned(), reserved.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_tenant_with_a_limit_of_the_same_id_leaves_another_tenants_counter_alone() {
    let app = spawn_app().await;
    app.without_limits().await;
    put_tenant(&app, "a", json!([own("month")])).await;
    let hold = pages("60").of("a").lasting(600);
    app.post_keyed(RESERVATIONS, "hold", hold).await.expect(201);
    app.post_keyed(USAGE, "use", pages("30").of("a")).await.expect(201);
    for limits in [json!([own("month")]), json!([own("day")]), json!([own("month")]), json!([])] {
        put_tenant(&app, "b", limits).await;
        assert_eq!(figures(&app, "a", "own").await, pair("30", "60"));
    }
    let more = pages("11").of("a");
    app.post_keyed(USAGE, "more", more).await.is_problem(429, "quota_exceeded");
    app.finish().await;
}

async fn app_at_noon() -> TestApp {
    let app = an_app().at_ms(NOON_MS).start().await;
    app.without_limits().await;
    app
}

/// A hold of `acme` on behalf of ada; its id.
async fn hold(app: &TestApp, key: &str, amount: &str, ttl_seconds: u32) -> String {
    app.post_keyed(RESERVATIONS, key, pages(amount).by("ada").lasting(ttl_seconds))
        .await
        .expect(201)
        .text("/id")
        .to_owned()
}

async fn consume(app: &TestApp, id: &str, amount: &str, is_final: bool) {
    let body = json!({ "amount": amount, "final": is_final });
    app.resolve(id, "consume", body).await.expect(200);
}

/// What the limit shows as consumed and reserved, the subject's where it is one.
async fn counts(app: &TestApp, limit: &str) -> (String, String) {
    let quota = app.get("/v1/tenants/acme/quota?subject=ada&kind=user").await.expect(200).body;
    assert_eq!(quota["source"], "gate");
    let limits = quota["limits"].as_array().unwrap();
    let found =
        limits.iter().find(|each| each["id"] == limit).unwrap_or_else(|| panic!("{limit} in {quota}"));
    (found["consumed"].as_str().unwrap().to_owned(), found["reserved"].as_str().unwrap().to_owned())
}

async fn expired(app: &TestApp, id: &str) {
    wait_for("the hold expires", Duration::from_secs(60), async || {
        let found = app.read(id).await;
        (found.text("/status") == "expired").then_some(())
    })
    .await;
}

async fn move_clock(app: &TestApp, to_ms: i64) {
    app.move_clock(&jiff::Timestamp::from_millisecond(to_ms).unwrap().to_string()).await;
}

/// Every way in which a limit can begin inside its window, before and after.
fn beginnings() -> Vec<(&'static str, Value, Value)> {
    let changed = |field: &str, value: Value| {
        let mut limit = own("day");
        limit[field] = value;
        json!([limit])
    };
    let mut of_users = own("day");
    of_users["scope"] = json!("subject");
    of_users["subject_kind"] = json!("user");
    // In hundredths of a page, of which a token counts one.
    let budget = |page: &str| {
        json!([{ "id": "own", "meters": { "page": page, "token": "0.01" }, "decimals": 2, "window": "day",
                 "capacity": "100", "class": "quota" }])
    };
    vec![
        ("made", json!([]), json!([own("day")])),
        ("window", json!([own("month")]), json!([own("day")])),
        ("scope", json!([own("day")]), json!([of_users.clone()])),
        ("scope back", json!([of_users]), json!([own("day")])),
        ("operations", changed("operations", json!(["ocr"])), json!([own("day")])),
        ("meter", changed("meter", json!("token")), json!([own("day")])),
        ("budget", json!([own("day")]), budget("1")),
        ("weights", budget("2"), budget("1")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_begins_inside_its_window_counts_what_is_open_then() {
    let app = app_at_noon().await;
    app.define("operations/ocr", json!({ "costs": [{ "meter": "page", "base": "1" }] })).await;
    for (name, before, after) in beginnings() {
        put_tenant(&app, "acme", before).await;
        let key = |what: &str| format!("{name}-{what}");
        let (late, used) =
            (hold(&app, &key("late"), "2", 1).await, hold(&app, &key("used"), "20", 3600).await);
        let (freed, grows) =
            (hold(&app, &key("freed"), "8", 3600).await, hold(&app, &key("grows"), "10", 3600).await);
        let left = hold(&app, &key("left"), "5", 1800).await;
        consume(&app, &grows, "4", false).await;
        let lost_at = app.clock.now_ms() + 2_000;
        move_clock(&app, lost_at).await;
        expired(&app, &late).await;
        put_tenant(&app, "acme", after).await;
        assert_eq!(counts(&app, "own").await, pair("4", "39"), "{name}");
        consume(&app, &used, "25", true).await;
        consume(&app, &grows, "6", false).await;
        assert_eq!(counts(&app, "own").await, pair("31", "17"), "{name}");
        app.resolve(&freed, "release", json!({ "incurred": "1" })).await.expect(200);
        consume(&app, &late, "2", true).await;
        assert_eq!(counts(&app, "own").await, pair("34", "9"), "{name}");
        app.post_keyed(USAGE, &key("above"), pages("58").by("ada")).await.is_problem(429, "quota_exceeded");
        move_clock(&app, lost_at + 1_800_000).await;
        expired(&app, &left).await;
        assert_eq!(counts(&app, "own").await, pair("34", "4"), "{name}");
        consume(&app, &grows, "10", true).await;
        assert_eq!(counts(&app, "own").await, pair("38", "0"), "{name}");
        app.drained().await;
        app.check_books().await;
        // The next one finds an empty day.
        put_tenant(&app, "acme", json!([])).await;
        move_clock(&app, lost_at + 86_400_000).await;
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_began_inside_its_window_is_the_same_after_a_loss_of_memory() {
    let app = app_at_noon().await;
    let (beginnings, left_out) = (beginnings().into_iter(), ["scope back", "operations", "meter"]);
    for (name, before, after) in beginnings.filter(|(name, ..)| !left_out.contains(name)) {
        put_tenant(&app, "acme", before).await;
        let (used, left) = (
            hold(&app, &format!("{name}-used"), "20", 3600).await,
            hold(&app, &format!("{name}-left"), "10", 3600).await,
        );
        put_tenant(&app, "acme", after).await;
        assert_eq!(counts(&app, "own").await, pair("0", "30"), "{name}");
        app.redis.flush().await;
        wait_for("the tenant is restored", Duration::from_secs(30), async || {
            let quota = app.get("/v1/tenants/acme/quota?subject=ada&kind=user").await;
            (quota.status == 200 && quota.body["source"] == "gate").then_some(())
        })
        .await;
        assert_eq!(counts(&app, "own").await, pair("0", "30"), "{name}");
        consume(&app, &used, "15", true).await;
        app.release(&left).await.expect(200);
        assert_eq!(counts(&app, "own").await, pair("15", "0"), "{name}");
        app.drained().await;
        app.check_books().await;
        put_tenant(&app, "acme", json!([])).await;
        move_clock(&app, app.clock.now_ms() + 86_400_000).await;
    }
    app.finish().await;
}

/// Holds that are left alone, released, consumed in part and consumed, one after the other.
async fn call_in_turn(app: &Caller, caller: u32, goes_on: &AtomicBool, calls: &AtomicU64) {
    for number in (0..).take_while(|_| goes_on.load(Ordering::Relaxed)) {
        let key = format!("{caller}-{number}");
        let body = pages("10").by("ada").lasting(if number % 5 == 0 { 1 } else { 600 });
        calls.fetch_add(1, Ordering::Relaxed);
        let held = app.post_until_answered(RESERVATIONS, &key, body).await.expect(201);
        let path = format!("/v1/reservations/{}", held.text("/id"));
        let (call, body) = match number % 5 {
            0 | 1 => continue,
            2 => ("release", json!({})),
            part => ("consume", json!({ "amount": (number % 13).to_string(), "final": part == 3 })),
        };
        app.post_until_answered(&format!("{path}/{call}"), &key, body).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_limit_under_a_storm_neither_loses_nor_doubles_units() {
    let app = Arc::new(spawn_app().await);
    app.without_limits().await;
    let of_tenant = |window: &str| json!({ "id": "own", "meter": "page", "window": window, "capacity": "1000000", "class": "quota" });
    let tenant = TenantId::parse("acme").unwrap();
    let of_users = json!({ "id": "user", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "month",
                           "capacity": "1000000", "class": "quota" });
    put_tenant(&app, "acme", json!([of_tenant("month")])).await;
    let (goes_on, calls) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let (app, goes_on, calls) = (app.caller(), goes_on.clone(), calls.clone());
            tokio::spawn(async move { call_in_turn(&app, caller, &goes_on, &calls).await })
        })
        .collect();
    for turn in 0..6 {
        let enough = calls.load(Ordering::Relaxed) + 60;
        wait_for("calls go on", Duration::from_secs(60), async || {
            (calls.load(Ordering::Relaxed) >= enough).then_some(())
        })
        .await;
        let window = if turn % 2 == 0 { "day" } else { "month" };
        let users =
            if turn % 3 == 1 { json!([of_tenant(window)]) } else { json!([of_tenant(window), of_users]) };
        put_tenant(&app, "acme", users).await;
    }
    goes_on.store(false, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    let app = Arc::into_inner(app).unwrap();
    wait_for("the short holds expire", Duration::from_secs(60), async || {
        let open = app.get("/v1/tenants/acme/reservations?status=reserved&limit=1000").await.expect(200).body;
        let soon_ms = app.clock.now_ms() + 60_000;
        let ends_ms = |hold: &Value| {
            hold["expires_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond()
        };
        let is_short = |hold: &Value| ends_ms(hold) < soon_ms;
        (!open["data"].as_array().unwrap().iter().any(is_short)).then_some(())
    })
    .await;
    app.drained().await;
    let ask = RestoreAsk { with_open: true, ..RestoreAsk::default() };
    let partition = app.app().gate.partition_of(&tenant);
    let books = app.app().ledger.read_tenant(partition, &tenant, &ask).await.unwrap();
    let held = books.open.iter().flat_map(|(_, record)| &record.units).map(|units| units.outstanding().get());
    let used = app.get("/v1/tenants/acme/usage?group_by=meter").await.expect(200);
    let truth = pair(used.text("/data/0/consumed"), &held.sum::<i64>().to_string());
    assert_eq!((counts(&app, "own").await, counts(&app, "user").await), (truth.clone(), truth));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_that_meet_a_new_counter_restore_its_tenant_once() {
    let app = Arc::new(spawn_app().await);
    app.without_limits().await;
    put_tenant(&app, "acme", json!([own("month")])).await;
    let usage = pages("1");
    app.post_keyed(USAGE, "first", usage.clone()).await.expect(201);
    let restores = || {
        let text = app.app().operations.metrics_text();
        let name = "tollgate_restores_total{kind=\"tenant\"} ";
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<u64>().unwrap()
    };
    let before = restores();
    let mut other = own("day");
    other["id"] = json!("other");
    put_tenant(&app, "acme", json!([own("month"), other])).await;
    let callers: Vec<_> = (0..80)
        .map(|caller| {
            let (app, usage) = (app.caller(), usage.clone());
            tokio::spawn(async move { app.post_keyed(USAGE, &format!("{caller}"), usage).await.status })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), 201);
    }
    assert_eq!(restores(), before + 1);
    assert_eq!(counts(&app, "other").await, pair("81", "0"));
    Arc::into_inner(app).unwrap().finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_begins_while_a_consume_waits_in_quarantine_leaves_the_reservation_consumed() {
    let app = spawn_app().await;
    app.without_limits().await;
    put_tenant(&app, "acme", json!([own("month")])).await;
    let id = app
        .post_keyed(RESERVATIONS, "hold", pages("50").lasting(600))
        .await
        .expect(201)
        .text("/id")
        .to_owned();
    app.drained().await;
    let waits = "INSERT INTO quarantine (partition, epoch, sequence, reservation_id, tenant, event, reason) \
                 SELECT partition, 0, 0, id, tenant, 'torn', 'a test' FROM reservations";
    as_owner(&app.database, waits).await.unwrap();
    let path = reservation(&id, "consume");
    let consume = json!({ "amount": "40" });
    app.post(&path, consume.clone()).await.expect(200);
    wait_for("it waits in quarantine", Duration::from_secs(60), async || {
        (app.app().ledger.count_quarantined().await.unwrap() == 2).then_some(())
    })
    .await;
    let mut other = own("day");
    other["id"] = json!("other");
    put_tenant(&app, "acme", json!([own("month"), other])).await;
    let usage = pages("1");
    app.post_keyed(USAGE, "use", usage).await.expect(201);
    assert_eq!(counts(&app, "own").await, pair("41", "0"));
    let again = app.post(&path, consume).await.expect(200);
    assert_eq!((again.text("/status"), &again.body["replayed"]), ("consumed", &json!(true)), "{again:?}");
    assert_eq!(counts(&app, "own").await, pair("41", "0"));
    app.leave_unbalanced("a consume that the gate has waits in quarantine");
}
