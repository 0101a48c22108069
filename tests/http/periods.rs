//! Turns of hour, day and month, on a test clock.

use serde_json::{Value, json};

use crate::support::app::*;

/// A service at this time, for a tenant in Berlin; nothing expires by itself.
async fn in_berlin_at(now: &str) -> TestApp {
    let app = an_app().at(now).without_jobs().start().await;
    let limits = json!([
        { "id": "hour", "meter": "page", "window": "hour", "capacity": "20" },
        { "id": "day", "meter": "page", "window": "day", "capacity": "40" },
        { "id": "month", "meter": "page", "window": "month", "capacity": "60" }
    ]);
    app.with_plan(limits, json!([quota_of("50")])).await;
    app.define("tenants/acme", json!({ "plan": "plan", "time_zone": "Europe/Berlin", "anchor_day": 1 }))
        .await;
    app
}

async fn use_pages(app: &TestApp, key: &str, amount: &str) -> u16 {
    let answer = app.use_pages(key, amount).await;
    assert!(matches!(answer.status, 201 | 429), "{answer:?}");
    answer.status
}

fn of(quota: &Value, id: &str) -> Value {
    quota["limits"].as_array().unwrap().iter().find(|limit| limit["id"] == id).unwrap().clone()
}

#[tokio::test]
async fn each_window_turns_at_its_own_boundary_of_the_tenants_zone() {
    // 23:30 in Berlin, an hour and a half before UTC's midnight.
    let app = in_berlin_at("2026-03-10T22:30:00Z").await;
    assert_eq!(use_pages(&app, "a", "20").await, 201);
    assert_eq!(use_pages(&app, "b", "1").await, 429);
    let before = app.quota().await.body;
    assert_eq!(of(&before, "hour")["resets_at"], "2026-03-10T23:00:00Z");
    assert_eq!(of(&before, "day")["resets_at"], "2026-03-10T23:00:00Z");
    assert_eq!(of(&before, "month")["resets_at"], "2026-03-31T22:00:00Z");
    app.move_clock("2026-03-10T23:00:00Z").await;
    let after = app.quota().await.body;
    let consumed = ["hour", "day", "month"].map(|id| of(&after, id)["consumed"].as_str().unwrap().to_owned());
    assert_eq!(consumed, ["0", "0", "20"]);
    assert_eq!(after["quotas"][0]["consumed"], "20");
    assert_eq!(use_pages(&app, "b", "20").await, 201);
    app.move_clock("2026-03-11T00:00:00Z").await;
    assert_eq!(use_pages(&app, "c", "11").await, 429, "the quota of 50 has 10 left");
    assert_eq!(use_pages(&app, "c", "10").await, 201);
    app.finish().await;
}

#[tokio::test]
async fn the_next_period_serves_its_quota_at_once() {
    let app = in_berlin_at("2026-03-31T21:59:59Z").await;
    let first = app.quota().await.body;
    assert_eq!(
        first["period"],
        json!({ "start": "2026-02-28T23:00:00Z", "end": "2026-03-31T22:00:00Z", "time_zone": "Europe/Berlin" })
    );
    assert_eq!(use_pages(&app, "a", "20").await, 201);
    app.move_clock("2026-03-31T22:00:00Z").await;
    let next = app.quota().await.body;
    assert_eq!(next["period"]["start"], "2026-03-31T22:00:00Z");
    assert_eq!(
        (&next["quotas"][0]["granted"], &next["quotas"][0]["consumed"], &next["quotas"][0]["remaining"]),
        (&json!("50"), &json!("0"), &json!("50")),
        "{next}"
    );
    assert_eq!(use_pages(&app, "b", "20").await, 201);
    app.drained().await;
    let entries = app.get("/v1/tenants/acme/entries").await.expect(200);
    let mut grants: Vec<_> = entries.body["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["class"] == "grant")
        .map(|row| row["period_start"].as_str().unwrap())
        .collect();
    grants.sort_unstable();
    assert_eq!(grants, ["2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"]);
    app.finish().await;
}

#[tokio::test]
async fn a_hold_over_the_turn_of_the_month_belongs_to_the_month_of_its_reserve() {
    let app = in_berlin_at("2026-03-31T21:59:30Z").await;
    let id = app.held(pages("9").lasting(3600)).await;
    app.move_clock("2026-03-31T22:00:30Z").await;
    assert_eq!(use_pages(&app, "next", "1").await, 201);
    let consumed = app.consume(&id, "4").await.expect(200);
    assert_eq!(consumed.body["limits"], json!([]), "all its windows have moved on");
    let now = app.quota().await.body;
    assert_eq!(
        (&now["quotas"][0]["consumed"], &now["quotas"][0]["reserved"]),
        (&json!("1"), &json!("0")),
        "{now}"
    );
    app.drained().await;
    let entries = app.get(&format!("/v1/tenants/acme/entries?reservation={id}")).await.expect(200);
    for row in entries.body["data"].as_array().unwrap() {
        assert_eq!(row["period_start"], "2026-02-28T23:00:00Z", "{row}");
    }
    app.finish().await;
}

#[tokio::test]
async fn the_day_of_the_clocks_change_has_twenty_three_hours() {
    // Berlin's clocks go forward on 29 March 2026.
    let app = in_berlin_at("2026-03-28T23:00:00Z").await;
    assert_eq!(of(&app.quota().await.body, "day")["resets_at"], "2026-03-29T22:00:00Z");
    app.finish().await;
}
