//! Adjustments that lower the allowance, one beside another and beside grants that end.

use serde_json::{Value, json};

use super::adjustments::{ADJUSTMENTS, allowance, grants_left, pages_left};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;

/// Adjustments of the allowance that are carried out until they are booked, with what was booked of each.
async fn booked(app: &TestApp, ids: &[String]) -> Vec<Value> {
    for _ in 0..40 {
        app.drained().await;
        app.app().operations.adjustments.follow().await.unwrap();
        app.app().operations.grants.follow().await.unwrap();
    }
    let mut amounts = Vec::new();
    for id in ids {
        let found = app.get(&format!("{ADJUSTMENTS}/{id}")).await.expect(200).body;
        amounts.push(json!([found["status"], found["booked_amount"]]));
    }
    amounts
}

/// A tenant with a hard quota of fifty pages and one grant of this many until April.
async fn with_one_grant(amount: &str) -> TestApp {
    let app = an_app().at("2026-03-16T12:00:00Z").without_jobs().start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    let grant = json!({
        "tenant": "acme", "meter": "page", "amount": amount, "kind": "promotional", "priority": 90,
        "expires_at": "2026-04-01T00:00:00Z"
    });
    app.post_keyed("/v1/admin/grants", "g", grant).await.expect(201);
    app.drained().await;
    app
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_lower_one_grant_the_second_waits_for_the_first_and_each_takes_its_amount_once() {
    let app = with_one_grant("3000").await;
    let (clerk, _) = app.make_named_key("finance").await;
    let mut ids = Vec::new();
    for key in ["one", "two"] {
        let made = clerk.post_keyed(ADJUSTMENTS, key, allowance("-1001")).await.expect(201).body;
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    // The later one is approved first: it has taken the grant when the earlier one comes.
    for id in ids.iter().rev() {
        app.post(&format!("{ADJUSTMENTS}/{id}/approve"), json!({})).await.expect(200);
    }
    assert_eq!(booked(&app, &ids).await, [json!(["booked", "-1001"]), json!(["booked", "-1001"])]);
    assert_eq!(grants_left(&app).await, [(90, "998".to_owned())]);
    assert_eq!(pages_left(&app).await, ["0", "1048"]);
    let voids = "SELECT count(*) AS n, count(DISTINCT grant_id) AS d FROM adjustment_grants WHERE is_voided";
    assert_eq!(rows(&app.database, voids).await, ["2 2"], "what the first one granted again is the second's");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_ended_by_itself_meanwhile_is_not_counted_as_taken_away() {
    let app = with_one_grant("3000").await;
    let short = json!({
        "tenant": "acme", "meter": "page", "amount": "2000", "kind": "promotional", "priority": 95,
        "expires_at": "2026-03-16T13:00:00Z"
    });
    let short = app.post_keyed("/v1/admin/grants", "short", short).await.expect(201).text("/id").to_owned();
    let (clerk, _) = app.make_named_key("finance").await;
    let made = clerk.post_keyed(ADJUSTMENTS, "less", allowance("-1001")).await.expect(201).body;
    let id = made["id"].as_str().unwrap().to_owned();
    // A run has noted the grant and broken off; then the grant has expired.
    let note = format!("INSERT INTO adjustment_grants VALUES ('acme', '{id}', 0, '{short}', true)");
    as_owner(&app.database, &note).await.unwrap();
    app.drained().await;
    app.move_clock("2026-03-16T14:00:00Z").await;
    for _ in 0..3 {
        app.drained().await;
        app.app().operations.grants.follow().await.unwrap();
    }
    app.post(&format!("{ADJUSTMENTS}/{id}/approve"), json!({})).await.expect(200);
    assert_eq!(booked(&app, &[id]).await, [json!(["booked", "-1001"])]);
    assert_eq!(grants_left(&app).await, [(90, "1999".to_owned())]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_hundred_grants_those_that_burn_last_are_taken_and_all_of_them_are_counted() {
    let app = with_one_grant("1").await;
    let grant = |priority: u8| {
        json!({
            "tenant": "acme", "meter": "page", "amount": "1", "kind": "promotional", "priority": priority,
            "expires_at": "2026-04-01T00:00:00Z"
        })
    };
    for n in 0..505 {
        app.post_keyed("/v1/admin/grants", &format!("early {n}"), grant(10)).await.expect(201);
    }
    let mut last = Vec::new();
    for priority in [91, 92, 93] {
        let made = app.post_keyed("/v1/admin/grants", &format!("last {priority}"), grant(priority)).await;
        last.push(made.expect(201).text("/id").to_owned());
    }
    app.drained().await;
    let refused = app.post_keyed(ADJUSTMENTS, "too much", allowance("-600")).await;
    refused.is_problem(422, "validation_failed");
    assert!(refused.text("/detail").contains("509 is left of the grants"), "{refused:?}");
    let made = app.post_keyed(ADJUSTMENTS, "less", allowance("-3")).await.expect(201);
    let id = made.text("/id").to_owned();
    assert_eq!(booked(&app, std::slice::from_ref(&id)).await, [json!(["booked", "-3"])]);
    let found = app.get(&format!("{ADJUSTMENTS}/{id}")).await.expect(200).body;
    let voided = found["voided"].as_array().unwrap();
    assert!(last.iter().all(|id| voided.iter().any(|of| of == id)) && voided.len() == 3, "{found}");
    app.finish().await;
}
