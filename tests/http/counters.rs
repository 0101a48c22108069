//! Counters through changes of policy: which go on.

use serde_json::{Value, json};

use crate::support::app::{TestApp, spawn_app};

/// A limit of a tenant's own.
fn own(window: &str) -> Value {
    json!({ "id": "own", "meter": "page", "window": window, "capacity": "100", "class": "quota" })
}

async fn put_tenant(app: &TestApp, tenant: &str, limits: Value) {
    app.put(&format!("/v1/admin/tenants/{tenant}"), json!({ "plan": "plan", "limits": limits })).await;
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
async fn a_tenant_made_with_a_limit_of_the_same_id_leaves_anothers_counter_alone() {
    let app = spawn_app().await;
    app.with_plan(json!([]), json!([])).await;
    put_tenant(&app, "a", json!([own("month")])).await;
    let hold = json!({ "tenant": "a", "meter": "page", "amount": "60", "ttl_seconds": 600 });
    app.post_keyed("/v1/reservations", "hold", hold).await.expect(201);
    app.post_keyed("/v1/usage", "use", json!({ "tenant": "a", "meter": "page", "amount": "30" }))
        .await
        .expect(201);
    for limits in [json!([own("month")]), json!([own("day")]), json!([own("month")]), json!([])] {
        put_tenant(&app, "b", limits).await;
        assert_eq!(figures(&app, "a", "own").await, pair("30", "60"));
    }
    let more = json!({ "tenant": "a", "meter": "page", "amount": "11" });
    app.post_keyed("/v1/usage", "more", more).await.is_problem(429, "quota_exceeded");
    app.finish().await;
}
