//! `/v1/reports/leaked`: holds that nobody resolved.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use super::with_policy;
use crate::support::app::*;
use crate::support::wait::wait_for;

const LEAKED: &str = "/v1/reports/leaked";

async fn hold(app: &TestApp, key: &str, tenant: &str, amount: &str, ttl_seconds: u32) -> String {
    let body = pages(amount).of(tenant).by("ada").lasting(ttl_seconds);
    app.post_keyed(RESERVATIONS, key, body).await.expect(201).text("/id").to_owned()
}

/// A service where one hold of each tenant expired, the one of `acme` first and after 2 of its 5 pages were consumed;
/// others are running, released, consumed in time, or consumed after they had expired.
async fn with_leaks() -> (TestApp, [String; 2]) {
    let app = with_policy().await;
    let of_acme = hold(&app, "leak", "acme", "5", 1).await;
    app.resolve(&of_acme, "consume", json!({ "amount": "2", "final": false })).await.expect(200);
    let late = hold(&app, "late", "acme", "1", 1).await;
    expired(&app, &[&of_acme, &late]).await;
    app.resolve(&late, "consume", json!({})).await.expect(200);
    let of_other = hold(&app, "leak", "other", "7", 1).await;
    expired(&app, &[&of_other]).await;
    hold(&app, "runs", "acme", "1", 600).await;
    for (key, end) in [("released", "release"), ("consumed", "consume")] {
        let id = hold(&app, key, "acme", "1", 600).await;
        app.resolve(&id, end, json!({})).await.expect(200);
    }
    app.drained().await;
    (app, [of_other, of_acme])
}

async fn expired(app: &TestApp, ids: &[&str]) {
    wait_for("the holds expire", Duration::from_secs(60), async || {
        for id in ids {
            (app.read(id).await.text("/status") == "expired").then_some(())?;
        }
        Some(())
    })
    .await;
    app.drained().await;
}

fn ids(body: &Value) -> Vec<&str> {
    body["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn holds_that_nobody_resolved_are_listed_the_last_to_expire_first() {
    let (app, [of_other, of_acme]) = with_leaks().await;
    let all = app.get(LEAKED).await.expect(200).body;
    assert_eq!(ids(&all), [&of_other, &of_acme], "{all}");
    let first = &all["data"][1];
    assert_eq!(
        (&first["tenant"], &first["status"], &first["final"]),
        (&json!("acme"), &json!("expired"), &json!(true))
    );
    assert_eq!(first["subjects"], json!({ "user": "ada" }));
    let line = &first["lines"][0];
    assert_eq!(
        (&line["reserved"], &line["consumed"], &line["returned"]),
        (&json!("5"), &json!("2"), &json!("3"))
    );
    let expired_at = first["resolved_at"].as_str().unwrap();
    for (filter, expected) in [
        ("tenant=acme".to_owned(), vec![&of_acme]),
        ("meter=page".to_owned(), vec![&of_other, &of_acme]),
        ("meter=unknown".to_owned(), vec![]),
        (format!("to={expired_at}"), vec![]),
        (format!("from={expired_at}"), vec![&of_other, &of_acme]),
        (format!("from={expired_at}&tenant=other"), vec![&of_other]),
    ] {
        assert_eq!(ids(&app.get(&format!("{LEAKED}?{filter}")).await.expect(200).body), expected, "{filter}");
    }
    let bound = app.make_key("finance", Some("acme")).await;
    assert_eq!(ids(&bound.get(LEAKED).await.expect(200).body), [&of_acme]);
    bound.get(&format!("{LEAKED}?tenant=other")).await.is_problem(403, "forbidden");
    app.finish().await;
}

#[tokio::test]
async fn leaked_holds_come_in_pages_and_as_a_file() {
    let (app, [of_other, of_acme]) = with_leaks().await;
    let first = app.get(&format!("{LEAKED}?limit=1")).await.expect(200).body;
    assert_eq!((ids(&first), &first["has_more"]), (vec![of_other.as_str()], &json!(true)));
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = app.get(&format!("{LEAKED}?limit=1&cursor={cursor}")).await.expect(200).body;
    assert_eq!((ids(&second), &second["has_more"]), (vec![of_acme.as_str()], &json!(false)));
    let file = app.get(&format!("{LEAKED}?format=csv")).await.expect(200);
    let lines: Vec<_> = file.body.as_str().unwrap().lines().collect();
    let titles = "id,tenant,operation,subjects,created_at,expires_at,resolved_at,meter,reserved,consumed,returned,as_of";
    assert_eq!(lines[0], titles);
    assert!(lines[1].starts_with(&format!("{of_other},other,,user:ada,2")), "{lines:?}");
    assert!(lines[2].contains(",page,5,2,3,"), "{lines:?}");
    assert_eq!(lines.len(), 3);
    app.finish().await;
}

#[rstest]
#[case("meter=a/b", "/meter")]
#[case("from=now", "/from")]
#[case("format=pdf", "/format")]
#[case("status=expired", "/status")]
#[tokio::test]
async fn a_wrong_parameter_of_leaked_holds_is_named(#[case] query: &str, #[case] named: &str) {
    let app = spawn_app().await;
    let answer = app.get(&format!("{LEAKED}?{query}")).await;
    answer.is_problem(400, "invalid_request");
    assert_eq!(answer.pointers(), [named]);
    app.finish().await;
}
