//! What an operator's dashboard reads.

use serde_json::json;

use crate::support::app::spawn_app;

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_decisions_and_name_neither_tenant_nor_subject() {
    let app = spawn_app().await;
    app.with_plan(json!([{ "id": "day", "meter": "page", "window": "day", "capacity": "5" }]), json!([]))
        .await;
    let body = json!({ "tenant": "acme", "subject": "ada-lovelace", "meter": "page", "amount": "3" });
    assert_eq!(app.post("/v1/reservations", body.clone()).await.status, 201);
    assert_eq!(app.post("/v1/reservations", body).await.status, 429);
    app.drained().await;
    let answer = app.client().get(format!("{}/metrics", app.ops_url())).send().await.unwrap();
    let text = answer.text().await.unwrap();
    for line in [
        "tollgate_decisions_total{call=\"reserve\",outcome=\"admitted\"} 1",
        "tollgate_decisions_total{call=\"reserve\",outcome=\"refused\"} 1",
        "tollgate_restores_total{kind=\"tenant\"} 1",
    ] {
        assert!(text.contains(line), "{line} is missing in:\n{text}");
    }
    assert!(!text.contains("acme") && !text.contains("ada-lovelace"), "{text}");
    app.finish().await;
}
