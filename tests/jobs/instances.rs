//! Two instances over the same servers: one dies, both restore, both sweep.

use std::time::{Duration, Instant};

use serde_json::json;
use tollgate::app::Role;

use crate::http::Caller;
use crate::support::app::{AppOptions, spawn_app, spawn_app_with};

const ALL: [Role; 3] = [Role::Http, Role::Writer, Role::Jobs];

#[tokio::test(flavor = "multi_thread")]
async fn when_the_instance_that_writes_is_gone_another_books_within_five_seconds() {
    let app = spawn_app_with(AppOptions { without_writer: true, ..AppOptions::default() }).await;
    app.with_plan(json!([]), json!([])).await;
    let writes = app.another_instance_with(&ALL).await;
    let use_one = async |key: String| {
        let body = json!({ "tenant": "acme", "meter": "page", "amount": "1" });
        app.post_keyed("/v1/usage", &key, body).await.expect(201);
    };
    for number in 0..20 {
        use_one(format!("before-{number}")).await;
    }
    app.drained().await;
    let takes_over = app.another_instance_with(&ALL).await;
    drop(writes);
    for number in 0..20 {
        use_one(format!("after-{number}")).await;
    }
    let began = Instant::now();
    app.drained().await;
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    let usage = app.get("/v1/tenants/acme/usage").await.expect(200);
    assert_eq!(
        (usage.text("/data/0/consumed"), &usage.body["data"][0]["count"]),
        ("40", &json!(40)),
        "{usage:?}"
    );
    takes_over.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_that_restore_a_tenant_at_once_count_nothing_twice_and_hold_its_limit() {
    let app = spawn_app().await;
    let limits = json!([{ "id": "day", "meter": "page", "window": "day", "capacity": "100" }]);
    app.with_plan(limits, json!([{ "meter": "page", "included": "1000" }])).await;
    let second = app.another_instance_with(&ALL).await;
    let callers = [Caller::admin(&app), Caller::admin(&app).at(second.url())];
    let reserve = json!({ "tenant": "acme", "meter": "page", "amount": "3", "ttl_seconds": 3600 });
    for number in 0..10 {
        callers[number % 2].post("/v1/reservations", reserve.clone()).await.expect(201);
    }
    for round in 0..3 {
        app.drained().await;
        app.redis.flush().await;
        let calls =
            (0..8).map(|number| {
                let (caller, body) = (callers[number % 2].clone(), reserve.clone());
                async move {
                    caller.post_keyed("/v1/reservations", &format!("{round}-{number}"), body).await.status
                }
            });
        let answers = futures::future::join_all(calls).await;
        assert!(answers.iter().all(|status| matches!(status, 201 | 429 | 503)), "{answers:?}");
    }
    app.drained().await;
    let quota = app.get("/v1/tenants/acme/quota").await.expect(200);
    let reserved: u32 = quota.text("/limits/0/reserved").parse().unwrap();
    assert!(reserved <= 100 && reserved.is_multiple_of(3), "{quota:?}");
    second.stop().await;
    app.finish().await;
}
