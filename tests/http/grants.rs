//! Grants: amounts beside what a plan includes, at the gate and in the books.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tollgate::app::Role;
use tollgate::ledger::{VerifyOptions, verify};

use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

const GRANTS: &str = "/v1/admin/grants";
const END: &str = "2026-04-01T00:00:00Z";
const NEXT_END: &str = "2026-05-01T00:00:00Z";

/// Tenant `acme` with a quota of fifty pages a month, in UTC, at this time; jobs run only when a test asks.
async fn at(now: &str) -> TestApp {
    let app = an_app().at(now).without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    app
}

/// So many pages until the end of March.
fn of_pages(amount: &str) -> Value {
    json!({ "tenant": "acme", "meter": "page", "amount": amount, "kind": "promotional", "expires_at": END })
}

async fn granted(app: &TestApp, key: &str, body: Value) -> Answered {
    app.post_keyed(GRANTS, key, body).await.expect(201)
}

/// Uses pages without a key that the ledger would be asked about.
async fn uses(app: &Caller, amount: &str) -> u16 {
    let answer = app.post(RESERVATIONS, pages(amount)).await;
    assert!(matches!(answer.status, 201 | 429), "{answer:?}");
    answer.status
}

/// Granted and remaining, as the quota is read.
async fn left(app: &TestApp) -> (String, String) {
    let quota = app.quota().await;
    (quota.text("/quotas/0/granted").to_owned(), quota.text("/quotas/0/remaining").to_owned())
}

fn pair(granted: &str, remaining: &str) -> (String, String) {
    (granted.to_owned(), remaining.to_owned())
}

const BOOKED: &str = "SELECT credit, debit, amount::float8 AS a, class, happened_at AT TIME ZONE 'UTC' AS at FROM entries \
                      WHERE class = 'grant' ORDER BY happened_at, amount DESC";
const UNTOLD: &str = "SELECT tenant FROM untold_capacities";

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_counts_at_once_at_every_instance_and_stands_in_the_books() {
    let app = at("2026-03-10T12:00:00Z").await;
    let other = app.another_instance_with(&[Role::Http]).await;
    let elsewhere = app.caller().at(other.url());
    assert_eq!((uses(&app, "50").await, uses(&elsewhere, "1").await), (201, 429));
    let made = granted(&app, "a", of_pages("10")).await;
    assert_eq!(uses(&elsewhere, "10").await, 201);
    assert_eq!((uses(&elsewhere, "1").await, uses(&app, "1").await), (429, 429));
    assert_eq!(left(&app).await, pair("60", "0"));

    for (pointer, value) in [
        ("/amount", "10"),
        ("/kind", "promotional"),
        ("/status", "active"),
        ("/recurrence", "none"),
        ("/effective_at", "2026-03-10T12:00:00Z"),
        ("/expires_at", END),
    ] {
        assert_eq!(made.text(pointer), value, "{made:?}");
    }
    assert_eq!((&made.body["priority"], &made.body["replayed"]), (&json!(50), &json!(false)));
    let read = app.get(&format!("{GRANTS}/{}", made.text("/id"))).await.expect(200);
    assert_eq!(read.body, made.body);
    assert_eq!(
        rows(&app.database, BOOKED).await,
        ["granted available 50 grant 2026-03-01T00:00:00", "granted available 10 grant 2026-03-10T12:00:00"]
    );
    assert_eq!(made.body["unburnt"], Value::Null);
    assert_eq!(rows(&app.database, UNTOLD).await, [""; 0], "the gate has it");
    app.drained().await;
    app.redis.flush().await;
    assert_eq!(left(&app).await, pair("60", "0"), "restored from the books");
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_made_once_under_its_key_however_many_ask() {
    let app = at("2026-03-10T12:00:00Z").await;
    app.post(GRANTS, of_pages("10")).await.is_problem(400, "idempotency_key_required");
    let asking = (0..4).map(|_| app.post_keyed(GRANTS, "a", of_pages("10")));
    let mut answers = futures::future::join_all(asking).await;
    answers.sort_by_key(|answer| answer.status);
    assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200, 200, 200, 201]);
    for replay in &answers[..3] {
        assert_eq!((&replay.body["replayed"], replay.header("idempotency-replayed")), (&json!(true), "true"));
        assert_eq!(replay.body["id"], answers[3].body["id"]);
    }
    let in_body = of_pages("10.0").with("idempotency_key", "a").with("priority", 50);
    assert_eq!(app.post(GRANTS, in_body).await.expect(200).body["replayed"], true);
    for (field, value) in [
        ("amount", json!("11")),
        ("kind", json!("paid")),
        ("priority", json!(1)),
        ("reason", json!("another")),
        ("meter", json!("token")),
        ("effective_at", json!("2026-03-10T12:00:00Z")),
        ("recurrence", json!("period")),
    ] {
        let other = app.post_keyed(GRANTS, "a", of_pages("10").with(field, value)).await;
        other.is_problem(422, "idempotency_key_reused");
    }
    assert_eq!(left(&app).await, pair("60", "60"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_begins_later_counts_from_that_instant_on_without_the_ledger() {
    let app = at("2026-03-10T12:00:00Z").await;
    assert_eq!(uses(&app, "50").await, 201);
    let later = of_pages("10").with("effective_at", "2026-03-20T00:00:00Z");
    let made = granted(&app, "a", later).await;
    assert_eq!(made.text("/status"), "scheduled");
    assert_eq!(left(&app).await, pair("50", "0"));
    app.drained().await;
    app.redis.flush().await;
    app.move_clock("2026-03-19T23:59:59.999Z").await;
    assert_eq!((uses(&app, "1").await, left(&app).await), (429, pair("50", "0")));
    app.database.close().await;
    app.move_clock("2026-03-20T00:00:00Z").await;
    assert_eq!((uses(&app, "10").await, uses(&app, "1").await), (201, 429));
    app.database.open().await;

    assert_eq!(rows(&app.database, BOOKED).await.len(), 1, "no job has run yet");
    app.drained().await;
    app.redis.flush().await;
    assert_eq!(left(&app).await, pair("60", "0"), "it counts before it is booked");
    let done = app.app().operations.grants.follow().await.unwrap();
    assert_eq!((done.begun, done.told), (1, 1));
    assert_eq!(app.app().operations.grants.follow().await.unwrap().begun, 0);
    assert_eq!(rows(&app.database, BOOKED).await[1], "granted available 10 grant 2026-03-20T00:00:00");
    assert_eq!((uses(&app, "1").await, left(&app).await), (429, pair("60", "0")));
    app.finish().await;
}

#[rstest::rstest]
#[case::before_it_is_open("2026-03-10T12:00:00Z")]
#[case::once_it_is_open("2026-03-31T12:00:00Z")]
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_of_the_next_period_is_there_at_the_turn_and_no_earlier(#[case] made_at: &str) {
    let app = at("2026-03-10T12:00:00Z").await;
    assert_eq!(uses(&app, "50").await, 201);
    app.move_clock(made_at).await;
    app.app().operations.memory.open_next_periods().await.unwrap();
    let next = of_pages("10").with("effective_at", END).with("expires_at", NEXT_END);
    granted(&app, "a", next).await;
    app.move_clock("2026-03-31T23:00:00Z").await;
    app.app().operations.memory.open_next_periods().await.unwrap();
    assert_eq!((uses(&app, "1").await, left(&app).await), (429, pair("50", "0")));
    app.drained().await;
    app.database.close().await;
    app.move_clock(END).await;
    assert_eq!((uses(&app, "60").await, uses(&app, "1").await), (201, 429));
    app.database.open().await;
    let followed = async || app.app().operations.grants.follow().await.ok();
    wait_for("the ledger answers again", Duration::from_secs(30), followed).await;
    let begun = "granted available 10 grant 2026-04-01T00:00:00";
    assert_eq!(rows(&app.database, BOOKED).await.iter().filter(|row| *row == begun).count(), 1);
    assert_eq!(left(&app).await, pair("60", "0"));
    app.move_clock(NEXT_END).await;
    assert_eq!(left(&app).await, pair("50", "50"), "it ends with its period");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_reaches_a_gate_that_was_away_or_had_forgotten_the_tenant() {
    let app = an_app()
        .at("2026-03-10T12:00:00Z")
        .with("redis.response_timeout_ms", "500")
        .without_jobs()
        .start()
        .await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    assert_eq!(uses(&app, "50").await, 201);
    app.drained().await;
    let frozen = app.redis.freeze();
    granted(&app, "a", of_pages("10")).await;
    drop(frozen);
    assert_eq!(rows(&app.database, UNTOLD).await, ["acme"]);
    wait_for("the gate gets it", Duration::from_secs(30), async || {
        (app.app().operations.grants.follow().await.ok()?.told == 1).then_some(())
    })
    .await;
    assert_eq!(rows(&app.database, UNTOLD).await, [""; 0]);
    assert_eq!((uses(&app, "10").await, uses(&app, "1").await), (201, 429));
    app.drained().await;
    app.redis.flush().await;
    granted(&app, "b", of_pages("5")).await;
    assert_eq!((uses(&app, "5").await, uses(&app, "1").await), (201, 429));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_grant_names_its_fields_and_changes_nothing() {
    let app = at("2026-03-10T12:00:00Z").await;
    app.define("tenants/gone", json!({ "plan": "plan", "archived": true })).await;
    let refused = async |field: &str, value: Value, pointer: &str| {
        let answer = app.post_keyed(GRANTS, "a", of_pages("10").with(field, value)).await;
        assert_eq!((answer.status, answer.pointers()), (422, vec![pointer]), "{field}: {answer:?}");
    };
    for (field, value, pointer) in [
        ("tenant", json!("nobody"), "/tenant"),
        ("tenant", json!("gone"), "/tenant"),
        ("meter", json!("token"), "/meter"),
        ("meter", json!("nothing"), "/meter"),
        ("amount", json!("0"), "/amount"),
        ("amount", json!("-1"), "/amount"),
        ("amount", json!("0.5"), "/amount"),
        ("amount", json!("9000000000000001"), "/amount"),
        ("amount", json!("9000000000000000"), "/amount"),
        ("kind", json!("gift"), "/kind"),
        ("priority", json!(101), "/priority"),
        ("effective_at", json!("2026-02-28T23:59:59Z"), "/effective_at"),
        ("effective_at", json!("soon"), "/effective_at"),
        ("expires_at", json!("2026-03-10T12:00:00Z"), "/expires_at"),
        ("expires_at", json!("never"), "/expires_at"),
        ("recurrence", json!("week"), "/recurrence"),
        ("reason", json!("x".repeat(501)), "/reason"),
        ("reason", json!("\u{200f}1/2"), "/reason"),
        ("max_rollover", json!("0.5"), "/max_rollover"),
        ("min_rollover", json!("11"), "/min_rollover"),
        ("paid_amount", json!("5"), "/currency"),
    ] {
        refused(field, value, pointer).await;
    }
    assert_eq!(rows(&app.database, "SELECT tenant FROM grants").await, [""; 0]);
    assert_eq!(left(&app).await, pair("50", "50"));
    granted(&app, "a", of_pages("8999999999999950")).await;
    let too_much = app.post_keyed(GRANTS, "b", of_pages("1")).await;
    assert_eq!((too_much.status, too_much.pointers()), (422, vec!["/amount"]), "with what is granted");
    assert_eq!(left(&app).await, pair("9000000000000000", "9000000000000000"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_was_voided_leaves_room_for_another_one_that_is_as_large() {
    let app = at("2026-03-10T12:00:00Z").await;
    let body = || of_pages("8999999999999950");
    for (key, effective_at) in [("a", "2026-03-10T12:00:00Z"), ("b", "2026-03-20T00:00:00Z")] {
        let made = granted(&app, key, body().with("effective_at", effective_at)).await;
        app.drained().await;
        app.post(&format!("{GRANTS}/{}/void", made.text("/id")), json!({})).await.expect(200);
    }
    granted(&app, "c", body()).await;
    assert_eq!(left(&app).await, pair("9000000000000000", "9000000000000000"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_are_listed_newest_first_a_page_at_a_time() {
    let app = at("2026-03-10T12:00:00Z").await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    let mut made = Vec::new();
    for number in 1..=5 {
        let tenant = if number == 3 { "other" } else { "acme" };
        app.move_clock(&format!("2026-03-10T12:0{number}:00Z")).await;
        let body = of_pages(&number.to_string()).of(tenant);
        made.push(granted(&app, &number.to_string(), body).await.text("/amount").to_owned());
    }
    made.reverse();
    let listed = async |filter: &str| {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = app.get(&format!("{GRANTS}?limit=2{filter}{cursor}")).await.expect(200);
            let rows = page.body["data"].as_array().unwrap();
            found.extend(rows.iter().map(|row| row["amount"].as_str().unwrap().to_owned()));
            if page.body["has_more"] == false {
                return found;
            }
            cursor = format!("&cursor={}", page.text("/next_cursor"));
        }
    };
    assert_eq!(listed("").await, made);
    assert_eq!(listed("&tenant=acme").await, ["5", "4", "2", "1"]);
    app.get(&format!("{GRANTS}/00000000-0000-0000-0000-000000000000")).await.is_problem(404, "not_found");
    app.get(&format!("{GRANTS}/nonsense")).await.is_problem(404, "not_found");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_with_a_grant_is_in_use() {
    let app = at("2026-03-10T12:00:00Z").await;
    granted(&app, "a", of_pages("1").with("effective_at", "2026-03-20T00:00:00Z")).await;
    app.call(Method::DELETE, "/v1/admin/tenants/acme", Value::Null).await.is_problem(409, "in_use");
    app.finish().await;
}

#[rstest::rstest]
#[case::another_amount("UPDATE grants SET amount = 11")]
#[case::another_meter("UPDATE grants SET meter = 'token'")]
#[case::no_grant("DELETE FROM grants")]
#[case::not_begun("UPDATE grants SET period_start = NULL")]
#[tokio::test(flavor = "multi_thread")]
async fn verify_names_a_grant_that_is_not_what_was_booked(#[case] tampering: &str) {
    let app = at("2026-03-10T12:00:00Z").await;
    granted(&app, "a", of_pages("10")).await;
    app.check_books().await;
    as_owner(&app.database, tampering).await.unwrap();
    let report = verify(&app.app().ledger, VerifyOptions::default()).await.unwrap();
    let faults = report.checks.iter().flat_map(|check| &check.faults);
    assert!(faults.map(|fault| &fault.what).any(|what| what.contains("acme")), "{report:?}");
    app.leave_unbalanced("its grant was changed");
}
