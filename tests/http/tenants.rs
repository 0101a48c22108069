//! `/v1/tenants/{tenant}`: quota, usage, entries, reservations.

use rstest::rstest;
use serde_json::json;

use super::with_policy;
use crate::support::app::*;

#[tokio::test]
async fn the_quota_shows_what_is_held_and_consumed() {
    let app = with_policy().await;
    app.hold("7").await;
    app.use_pages("k", "3").await;
    let quota = app.get("/v1/tenants/acme/quota").await;
    assert_eq!(quota.status, 200, "{quota:?}");
    let limit = &quota.body["limits"][0];
    assert_eq!(
        (&limit["consumed"], &limit["reserved"], &limit["remaining"]),
        (&json!("3"), &json!("7"), &json!("90"))
    );
    assert!(quota.body["period"]["start"].is_string() && quota.body["as_of"].is_string());
    app.finish().await;
}

#[tokio::test]
async fn usage_and_entries_come_from_the_ledger_in_pages() {
    let app = with_policy().await;
    let count = 5;
    for n in 0..count {
        app.use_pages(&format!("k{n}"), "2").await;
    }
    let usage = "/v1/tenants/acme/usage?group_by=meter";
    let rows = until(|| app.get(usage), |answer| answer.body["data"][0]["consumed"] == "10").await;
    assert_eq!(rows.body["data"][0]["count"], count);
    let mut seen = std::collections::HashSet::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/tenants/{}/entries?meter={}&limit=2{cursor}", "acme", "page");
        let page = app.get(&path).await;
        assert_eq!(page.status, 200, "{page:?}");
        for row in page.body["data"].as_array().unwrap() {
            assert!(seen.insert(row.to_string()), "a row came twice: {row}");
        }
        assert_eq!(page.body["has_more"], !page.body["next_cursor"].is_null());
        let Some(next) = page.body["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert!(seen.len() >= count);
    app.finish().await;
}

#[tokio::test]
async fn reservations_are_listed_by_status() {
    let app = with_policy().await;
    let held = app.hold("1").await;
    let released = app.hold("1").await;
    app.post(&reservation(&released, "release"), json!({})).await;
    for (status, id) in [("reserved", held), ("released", released)] {
        let path = format!("/v1/tenants/{}/reservations?status={status}", "acme");
        let rows = until(|| app.get(&path), |answer| answer.body["data"][0]["id"] == json!(id)).await;
        assert_eq!(rows.body["data"].as_array().unwrap().len(), 1);
    }
    app.finish().await;
}

#[tokio::test]
async fn a_cursor_is_bound_to_its_list() {
    let app = with_policy().await;
    for n in 0..3 {
        app.use_pages(&format!("k{n}"), "1").await;
    }
    let own = "/v1/tenants/acme/entries?limit=1";
    let page = until(|| app.get(own), |answer| answer.body["has_more"] == true).await;
    let cursor = page.body["next_cursor"].as_str().unwrap();
    let other = "/v1/tenants/other/entries?limit=1";
    let another_letter = if cursor.starts_with('A') { 'B' } else { 'A' };
    for path in [
        format!("{other}&cursor={cursor}"),
        format!("{own}&meter=x&cursor={cursor}"),
        format!("{own}&cursor={another_letter}{}", &cursor[1..]),
        format!("{own}&cursor=forged"),
    ] {
        app.get(&path).await.is_problem(400, "invalid_request");
    }
    assert_eq!(app.get(&format!("{own}&cursor={cursor}")).await.status, 200);
    app.finish().await;
}

#[rstest]
#[case("quota?colour=red")]
#[case("quota?kind=user")]
#[case("usage?granularity=week")]
#[case("usage?group_by=tenant")]
#[case("usage?zone=UTC")]
#[case("usage?from=yesterday")]
#[case("usage?from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00Z")]
#[case("entries?limit=0")]
#[case("entries?limit=1001")]
#[case("entries?limit=1&limit=2")]
#[case("entries?meter=%7B%7D")]
#[case("entries?reservation=nonsense")]
#[case("reservations?status=lost")]
#[tokio::test]
async fn a_wrong_parameter_is_400(#[case] call: &str) {
    let app = with_policy().await;
    app.get(&format!("/v1/tenants/{}/{call}", "acme")).await.is_problem(400, "invalid_request");
    app.finish().await;
}

#[rstest]
#[case("nobody-knows-it")]
#[case("%7Bp00%7D")]
#[case("-bad")]
#[tokio::test]
async fn an_unknown_tenant_in_a_path_is_404(#[case] tenant: &str) {
    let app = spawn_app().await;
    for call in ["quota", "usage", "entries", "reservations"] {
        app.get(&format!("/v1/tenants/{tenant}/{call}")).await.is_problem(404, "not_found");
    }
    app.finish().await;
}
