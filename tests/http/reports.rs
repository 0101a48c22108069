//! `/v1/reports`: figures over all tenants.

use rstest::rstest;
use serde_json::json;

use super::{World, until};

#[tokio::test]
async fn usage_is_reported_over_all_tenants_and_by_one() {
    let world = World::with_policy().await;
    for (tenant, amount) in [(world.tenant(), "2"), (world.other_tenant(), "3")] {
        let mut body = world.hold(amount);
        body["tenant"] = json!(tenant);
        assert_eq!(world.admin.post_keyed("/v1/usage", "k", body).await.status, 201);
    }
    let finance = world.admin.make_key("finance", None).await;
    let path = format!("/v1/reports/usage?group_by=tenant,meter&meter={}", world.meter());
    let both = until(
        || finance.get(&path),
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
    let one = finance.get(&format!("{path}&tenant={}", world.tenant())).await;
    assert_eq!(one.body["data"].as_array().unwrap().len(), 1, "{one:?}");
}

#[tokio::test]
async fn a_bound_finance_key_sees_its_tenant_only() {
    let world = World::with_policy().await;
    let bound = world.admin.make_key("finance", Some(&world.tenant())).await;
    let other = format!("/v1/reports/usage?tenant={}", world.other_tenant());
    bound.get(&other).await.is_problem(403, "forbidden");
    assert_eq!(bound.get("/v1/reports/usage?group_by=tenant").await.status, 200);
    bound.get("/v1/admin/tenants").await.is_problem(403, "forbidden");
}

#[tokio::test]
async fn a_report_from_before_there_was_anything_has_all_that_there_is() {
    let world = World::with_policy().await;
    world.admin.post_keyed("/v1/usage", "k", world.hold("2")).await.expect(201);
    let own = format!("/v1/tenants/{}", world.tenant());
    for path in ["/v1/reports/usage".to_owned(), format!("{own}/usage"), format!("{own}/entries")] {
        for long_ago in ["0402-10-18T07:02:14-10:46", "0000-01-01T00:00:00Z", "1969-12-31T23:59:59Z"] {
            let path = format!("{path}?from={long_ago}");
            until(|| world.admin.get(&path), |answer| answer.body["data"][0].is_object()).await.expect(200);
        }
    }
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
    let world = World::empty().await;
    world.admin.get(&format!("/v1/reports/usage?{query}")).await.is_problem(400, "invalid_request");
}
