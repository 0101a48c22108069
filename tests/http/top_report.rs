//! `/v1/reports/top`: who used the most of a meter.

use rstest::rstest;
use serde_json::{Value, json};

use super::with_policy;
use crate::support::app::*;

const TOP: &str = "/v1/reports/top?meter=page";

/// A service where `acme` used 8 pages, of these `ben` 3 and `cleo` 5, and `other` 3 for its own `ben`.
async fn used() -> TestApp {
    let app = with_policy().await;
    for (key, tenant, user, amount) in [
        ("1", "acme", "cleo", 4),
        ("2", "acme", "cleo", 1),
        ("3", "acme", "ben", 3),
        ("4", "other", "ben", 3),
    ] {
        let body = pages(amount).of(tenant).with("subjects", json!({ "user": user }));
        app.post_keyed(USAGE, key, body).await.expect(201);
    }
    let named = json!({ "tenant": "acme", "operation": "submit", "attributes": { "pages": 1 } });
    app.post_keyed(USAGE, "5", named.with("subjects", json!({ "user": "cleo" }))).await.expect(201);
    app.drained().await;
    app
}

/// Of each row the rank, the texts at these places, what was consumed and in how many operations.
async fn ranked(caller: &Caller, query: &str, places: &[&str]) -> Vec<String> {
    let answer = caller.get(&format!("{TOP}{query}")).await.expect(200);
    assert!(answer.body["as_of"].is_string(), "{answer:?}");
    let text = |row: &Value, place: &str| row.pointer(place).unwrap().as_str().unwrap().to_owned();
    let line = |row: &Value| {
        assert_eq!(row["meter"], "page");
        let names: Vec<_> = places.iter().map(|place| text(row, place)).collect();
        format!("{} {} {} {}", row["rank"], names.join("/"), text(row, "/consumed"), row["count"])
    };
    answer.body["data"].as_array().unwrap().iter().map(line).collect()
}

#[tokio::test]
async fn consumers_are_ranked_by_what_they_used() {
    let app = used().await;
    let acme = app.make_key("finance", Some("acme")).await;
    assert_eq!(ranked(&app, "", &["/tenant"]).await, ["1 acme 9 4", "2 other 3 1"]);
    let subjects = &["/tenant", "/subject/kind", "/subject/id"];
    assert_eq!(
        ranked(&app, "&by=subject", subjects).await,
        ["1 acme/user/cleo 6 3", "2 acme/user/ben 3 1", "3 other/user/ben 3 1"],
        "equal ones by their names"
    );
    assert_eq!(ranked(&app, "&by=operation", &["/operation"]).await, ["1  11 4", "2 submit 1 1"]);
    assert_eq!(ranked(&app, "&by=plan", &["/plan"]).await, ["1 plan 12 5"]);
    assert_eq!(ranked(&app, "&by=subject&tenant=other", subjects).await, ["1 other/user/ben 3 1"]);
    assert_eq!(ranked(&acme, "", &["/tenant"]).await, ["1 acme 9 4"], "a bound key sees its tenant only");
    assert_eq!(ranked(&app, "&to=2020-01-01T00:00:00Z&from=2019-01-01T00:00:00Z", &[]).await, [""; 0]);
    app.finish().await;
}

#[tokio::test]
async fn the_ranking_goes_on_from_page_to_page_and_is_a_file() {
    let app = used().await;
    let whole = app.get(&format!("{TOP}&by=subject")).await.expect(200).body;
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    for left in (0..3).rev() {
        let page = app.get(&format!("{TOP}&by=subject&limit=1{cursor}")).await.expect(200).body;
        assert_eq!(page["has_more"], left > 0);
        rows.extend(page["data"].as_array().unwrap().iter().cloned());
        cursor = format!("&cursor={}", page["next_cursor"].as_str().unwrap_or_default());
    }
    assert_eq!(Value::Array(rows), whole["data"]);
    let first = app.get(&format!("{TOP}&by=subject&limit=2")).await.expect(200).body;
    let overtakes = pages(20).of("other").with("subjects", json!({ "user": "ben" }));
    app.post_keyed(USAGE, "6", overtakes).await.expect(201);
    app.drained().await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = ranked(&app, &format!("&by=subject&limit=2&cursor={cursor}"), &["/subject/id"]).await;
    assert_eq!(rest, [""; 0], "who has overtaken the others pushes none of them onto the next page");
    let file = app.get(&format!("{TOP}&by=subject&format=csv")).await.expect(200);
    assert_eq!(file.header("content-disposition"), "attachment; filename=\"top.csv\"");
    let lines: Vec<_> = file.body.as_str().unwrap().lines().collect();
    assert_eq!(
        lines[0],
        "rank,tenant,plan,operation,subject_kind,subject,meter,consumed,count,corrections,as_of"
    );
    assert!(lines[2].starts_with("2,acme,,,user,cleo,page,6,3,0,"), "{lines:?}");
    assert_eq!(lines.len(), 4);
    app.finish().await;
}

#[rstest]
#[case("reports/top", "/meter")]
#[case("reports/top?meter=page&by=colour", "/by")]
#[case("reports/top?meter=page&by=tenant,plan", "/by")]
#[case("reports/top?meter=a/b", "/meter")]
#[case("reports/top?meter=page&format=pdf", "/format")]
#[case("reports/top?meter=page&granularity=day", "/granularity")]
#[tokio::test]
async fn a_wrong_parameter_of_a_ranking_is_named(#[case] path: &str, #[case] named: &str) {
    let app = with_policy().await;
    let answer = app.get(&format!("/v1/{path}")).await;
    answer.is_problem(400, "invalid_request");
    assert_eq!(answer.pointers(), [named]);
    app.finish().await;
}
