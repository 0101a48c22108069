//! `/v1/reports`: figures over all tenants.

use rstest::rstest;
use serde_json::{Value, json};

use super::with_policy;
use crate::support::app::*;

#[tokio::test]
async fn usage_is_reported_over_all_tenants_and_by_one() {
    let app = with_policy().await;
    for (tenant, amount) in [("acme", "2"), ("other", "3")] {
        let mut body = pages(amount);
        body["tenant"] = json!(tenant);
        assert_eq!(app.post_keyed(USAGE, "k", body).await.status, 201);
    }
    let finance = app.make_key("finance", None).await;
    let path = "/v1/reports/usage?group_by=tenant,meter&meter=page";
    let both = until(
        || finance.get(path),
        |answer| answer.body["data"].as_array().is_some_and(|rows| rows.len() == 2),
    )
    .await;
    let total: u64 = both.body["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["consumed"].as_str().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(total, 5);
    let one = finance.get(&format!("{path}&tenant={}", "acme")).await;
    assert_eq!(one.body["data"].as_array().unwrap().len(), 1, "{one:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_bound_finance_key_sees_its_tenant_only() {
    let app = with_policy().await;
    let bound = app.make_key("finance", Some("acme")).await;
    let other = "/v1/reports/usage?tenant=other";
    bound.get(other).await.is_problem(403, "forbidden");
    assert_eq!(bound.get("/v1/reports/usage?group_by=tenant").await.status, 200);
    bound.get("/v1/admin/tenants").await.is_problem(403, "forbidden");
    app.finish().await;
}

#[tokio::test]
async fn a_report_from_before_the_first_use_has_every_row() {
    let app = with_policy().await;
    app.use_pages("k", "2").await.expect(201);
    for path in ["/v1/reports/usage", "/v1/tenants/acme/usage", "/v1/tenants/acme/entries"] {
        for long_ago in ["0402-10-18T07:02:14-10:46", "0000-01-01T00:00:00Z", "1969-12-31T23:59:59Z"] {
            let path = format!("{path}?from={long_ago}");
            until(|| app.get(&path), |answer| answer.body["data"][0].is_object()).await.expect(200);
        }
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_are_of_whole_hours_and_by_subject_of_what_was_used_in_their_names() {
    let app = an_app().at("2026-03-10T10:45:00Z").without_jobs().start().await;
    app.without_limits().await;
    app.use_pages("nobody", "2").await.expect(201);
    let both = pages("3").with("subjects", json!({ "user": "ada", "api_key": "k1" }));
    app.post_keyed(USAGE, "both", both).await.expect(201);
    app.drained().await;
    let found = async |query: &str| -> Vec<String> {
        let usage = app.get(&format!("/v1/reports/usage?{query}")).await.expect(200).body;
        let top = app.get(&format!("/v1/reports/top?meter=page&{}", query.replace("group_by", "by"))).await;
        let figures = |body: &Value| -> Vec<String> {
            let rows = body["data"].as_array().unwrap().iter();
            rows.map(|row| row["consumed"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(figures(&usage), figures(&top.expect(200).body), "{query}");
        figures(&usage)
    };
    assert_eq!(found("group_by=tenant&from=2026-03-10T10:00:00Z&to=2026-03-10T10:01:00Z").await, ["5"]);
    assert_eq!(found("group_by=tenant&from=2026-03-10T10:01:00Z&to=2026-03-10T12:00:00Z").await, [""; 0]);
    assert_eq!(found("group_by=subject").await, ["3", "3"], "nobody's is in no row");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pages_of_figures_are_of_the_time_of_the_first_one() {
    let app = an_app().at("2026-03-31T22:30:00Z").without_jobs().start().await;
    app.without_limits().await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    app.use_pages("more", 5).await.expect(201);
    app.post_keyed(USAGE, "less", pages(3).of("other")).await.expect(201);
    app.drained().await;
    let lists = ["/v1/reports/top?meter=page&limit=1", "/v1/reports/usage?group_by=tenant&limit=1"];
    let mut firsts = Vec::new();
    for list in lists {
        firsts.push(app.get(list).await.expect(200).body);
    }
    app.move_clock("2026-04-01T01:00:00Z").await;
    app.post_keyed(USAGE, "later", pages(9).of("other")).await.expect(201);
    app.drained().await;
    for (list, first) in lists.iter().zip(&firsts) {
        let cursor = first["next_cursor"].as_str().unwrap();
        let second = app.get(&format!("{list}&cursor={cursor}")).await.expect(200).body;
        let mut rows = [first, &second].map(|page| {
            let row = &page["data"][0];
            format!("{} {}", row["tenant"].as_str().unwrap(), row["consumed"].as_str().unwrap())
        });
        rows.sort();
        assert_eq!(rows, ["acme 5", "other 3"], "{list}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_used_stays_with_the_plan_that_the_tenant_was_on_then() {
    let app = an_app().at("2026-03-10T12:00:00Z").without_jobs().start().await;
    app.without_limits().await;
    app.define("plans/large", json!({})).await.expect(201);
    app.use_pages("march", "5").await.expect(201);
    app.move_clock("2026-04-10T12:00:00Z").await;
    // A change of something else is no change of plan.
    app.define("tenants/acme", json!({ "plan": "plan", "limits": [] })).await.expect(200);
    app.use_pages("april", "2").await.expect(201);
    app.move_clock("2026-04-20T12:00:00Z").await;
    app.define("tenants/acme", json!({ "plan": "large" })).await.expect(200);
    app.move_clock("2026-05-10T12:00:00Z").await;
    app.use_pages("may", "9").await.expect(201);
    app.drained().await;
    let figures = async |path: &str| -> Vec<String> {
        let body = app.get(path).await.expect(200).body;
        let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
        let rows = body["data"].as_array().unwrap().iter();
        rows.map(|row| format!("{} {}", text(row, "plan"), text(row, "consumed"))).collect()
    };
    let usage = "/v1/reports/usage?group_by=plan&from=2026-03-01T00:00:00Z";
    assert_eq!(figures(usage).await, ["large 9", "plan 7"]);
    assert_eq!(figures(&format!("{usage}&tenant=acme")).await, ["large 9", "plan 7"]);
    assert_eq!(figures(&format!("{usage}&granularity=month")).await, ["large 9", "plan 2", "plan 5"]);
    let top = "/v1/reports/top?meter=page&by=plan&from=2026-03-01T00:00:00Z";
    assert_eq!(figures(top).await, ["large 9", "plan 7"]);
    app.finish().await;
}

#[rstest]
#[case("zone=Mars/Phobos")]
#[case("group_by=colour")]
#[case("granularity=minute")]
#[case("cursor=forged")]
#[case("from=2999-01-01T00:00:00Z")]
#[case("to=1999-01-01T00:00:00Z")]
#[tokio::test]
async fn a_wrong_parameter_is_400(#[case] query: &str) {
    let app = spawn_app().await;
    app.get(&format!("/v1/reports/usage?{query}")).await.is_problem(400, "invalid_request");
    app.finish().await;
}
