//! Two instances over the same servers: one dies, both restore, both sweep.

use std::time::{Duration, Instant};

use serde_json::json;
use tollgate::app::Role;

use crate::support::app::*;

const ALL: [Role; 3] = [Role::Http, Role::Writer, Role::Jobs];

#[tokio::test(flavor = "multi_thread")]
async fn when_the_instance_that_writes_is_gone_another_books_soon() {
    let app = an_app().without_writer().start().await;
    app.without_limits().await;
    let writes = app.another_instance_with(&ALL).await;
    let use_one = async |key: String| {
        app.use_pages(&key, "1").await.expect(201);
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
    assert!(began.elapsed() < Duration::from_secs(20), "it took {:?}", began.elapsed());
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
    app.with_plan(json!([day_of("100")]), json!([quota_of("1000")])).await;
    let second = app.another_instance_with(&ALL).await;
    let callers = [app.caller(), app.caller().at(second.url())];
    let reserve = pages("3").lasting(3600);
    for number in 0..10 {
        callers[number % 2].post(RESERVATIONS, reserve.clone()).await.expect(201);
    }
    for round in 0..3 {
        app.drained().await;
        app.redis.flush().await;
        let calls = (0..8).map(|number| {
            let (caller, body) = (callers[number % 2].clone(), reserve.clone());
            async move { caller.post_keyed(RESERVATIONS, &format!("{round}-{number}"), body).await.status }
        });
        let answers = futures::future::join_all(calls).await;
        assert!(answers.iter().all(|status| matches!(status, 201 | 429 | 503)), "{answers:?}");
    }
    app.drained().await;
    let quota = app.quota().await;
    let reserved: u32 = quota.text("/limits/0/reserved").parse().unwrap();
    assert!(reserved <= 100 && reserved.is_multiple_of(3), "{quota:?}");
    second.stop().await;
    app.finish().await;
}
