//! What an operator's dashboard reads.

use crate::support::app::*;

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_decisions_and_name_neither_tenant_nor_subject() {
    let app = spawn_app().await;
    app.with_day_of("5").await;
    let body = pages("3").by("ada-lovelace");
    assert_eq!(app.post(RESERVATIONS, body.clone()).await.status, 201);
    assert_eq!(app.post(RESERVATIONS, body).await.status, 429);
    app.drained().await;
    let answer = app.client().get(format!("{}/metrics", app.ops_url())).send().await.unwrap();
    let text = answer.text().await.unwrap();
    for line in [
        "tollgate_decisions_total{call=\"reserve\",outcome=\"admitted\"} 1",
        "tollgate_decisions_total{call=\"reserve\",outcome=\"refused\"} 1",
        "tollgate_limits_refused_total{algorithm=\"calendar\",cause=\"reserved\",code=\"quota_exceeded\"} 1",
        "tollgate_restores_total{kind=\"tenant\"} 1",
    ] {
        assert!(text.contains(line), "{line} is missing in:\n{text}");
    }
    assert!(!text.contains("acme") && !text.contains("ada-lovelace"), "{text}");
    app.finish().await;
}
