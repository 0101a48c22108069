//! Changes of the policy that meet each other, and tenants that something has spoilt.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};

use crate::support::app::*;
use crate::support::wait::wait_for;

const PATIENCE: Duration = Duration::from_secs(30);

async fn connect(app: &TestApp) -> Client {
    let (client, connection) = tokio_postgres::connect(&app.database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Keeps every change of the policy waiting where it begins to write, until it is let go.
struct Held(Client);

impl Held {
    async fn new(app: &TestApp) -> Self {
        let client = connect(app).await;
        client.batch_execute("BEGIN; UPDATE policy_version SET version = version").await.unwrap();
        Self(client)
    }

    async fn let_go(self) {
        self.0.batch_execute("ROLLBACK").await.unwrap();
    }
}

/// Waits until so many changes wait for the held one.
async fn waiting(watch: &Client, count: i64) {
    wait_for("the changes to wait for each other", PATIENCE, async || {
        let query = "SELECT count(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND wait_event_type = 'Lock'";
        watch.query_one(query, &[]).await.unwrap().get::<_, i64>(0).eq(&count).then_some(())
    })
    .await;
}

fn put(app: &TestApp, path: &str, body: Value) -> tokio::task::JoinHandle<Answered> {
    let (caller, path) = (app.caller(), path.to_owned());
    tokio::spawn(async move { caller.put(&path, body).await })
}

fn delete(app: &TestApp, path: &str) -> tokio::task::JoinHandle<Answered> {
    let (caller, path) = (app.caller(), path.to_owned());
    tokio::spawn(async move { caller.delete(&path).await })
}

#[tokio::test]
async fn two_changes_of_a_tenant_at_once_both_take_effect() {
    let app = spawn_app().await;
    app.without_limits().await;
    let watch = connect(&app).await;
    let held = Held::new(&app).await;
    let limits =
        put(&app, "/v1/admin/tenants/acme", json!({ "plan": "plan", "limits": json!([day_of("7")]) }));
    waiting(&watch, 1).await;
    let vip = json!([{ "kind": "user", "id": "vip", "plan": "plan" }]);
    let subjects = put(&app, "/v1/admin/tenants/acme", json!({ "plan": "plan", "subjects": vip }));
    waiting(&watch, 2).await;
    held.let_go().await;
    limits.await.unwrap().expect(200);
    subjects.await.unwrap().expect(200);
    let stored = app.get("/v1/admin/tenants/acme").await.expect(200);
    assert_eq!(stored.text("/limits/0/capacity"), "7", "{stored:?}");
    assert_eq!(stored.text("/subjects/0/id"), "vip", "{stored:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_tenant_made_twice_at_once_is_made_once_and_changed_once() {
    let app = spawn_app().await;
    app.without_limits().await;
    let watch = connect(&app).await;
    let held = Held::new(&app).await;
    let first = put(&app, "/v1/admin/tenants/new", json!({ "plan": "plan", "limits": json!([day_of("7")]) }));
    waiting(&watch, 1).await;
    let second = put(&app, "/v1/admin/tenants/new", json!({ "plan": "plan", "anchor_day": 3 }));
    waiting(&watch, 2).await;
    held.let_go().await;
    first.await.unwrap().expect(201);
    second.await.unwrap().expect(200);
    let stored = app.get("/v1/admin/tenants/new").await.expect(200);
    assert_eq!((stored.text("/limits/0/capacity"), &stored.body["anchor_day"]), ("7", &json!(3)));
    app.finish().await;
}

#[tokio::test]
async fn the_first_call_of_a_tenant_does_not_replace_one_that_is_being_made() {
    let app = an_app().with("policy.unknown_tenant", "plan").start().await;
    app.with_day_of("10").await;
    app.define("plans/large", json!({ "limits": json!([day_of("1000")]) })).await;
    let watch = connect(&app).await;
    let held = Held::new(&app).await;
    let made = put(&app, "/v1/admin/tenants/new", json!({ "plan": "large" }));
    waiting(&watch, 1).await;
    let caller = app.caller();
    let body = pages("50").of("new");
    let used = tokio::spawn(async move { caller.post_keyed(USAGE, "job", body).await });
    waiting(&watch, 2).await;
    held.let_go().await;
    made.await.unwrap().expect(201);
    used.await.unwrap().expect(201);
    assert_eq!(app.get("/v1/admin/tenants/new").await.expect(200).text("/plan"), "large");
    app.finish().await;
}

#[tokio::test]
async fn no_tenant_is_left_on_a_plan_that_is_gone() {
    let app = spawn_app().await;
    app.with_day_of("10").await;
    let watch = connect(&app).await;
    for (name, plan_goes_first) in [("one", true), ("two", false)] {
        let (plan, tenant) = (format!("/v1/admin/plans/{name}"), format!("/v1/admin/tenants/{name}"));
        app.put(&plan, json!({})).await;
        let held = Held::new(&app).await;
        let (going, coming);
        if plan_goes_first {
            going = delete(&app, &plan);
            waiting(&watch, 1).await;
            coming = put(&app, &tenant, json!({ "plan": name }));
        } else {
            coming = put(&app, &tenant, json!({ "plan": name }));
            waiting(&watch, 1).await;
            going = delete(&app, &plan);
        }
        waiting(&watch, 2).await;
        held.let_go().await;
        let (going, coming) = (going.await.unwrap(), coming.await.unwrap());
        if plan_goes_first {
            going.expect(204);
            coming.is_problem(422, "validation_failed");
            assert_eq!(coming.pointers(), ["/plan"]);
        } else {
            coming.expect(201);
            going.is_problem(409, "in_use");
            app.get(&format!("/v1/tenants/{name}/quota")).await.expect(200);
        }
    }
    app.define("plans/plan", json!({ "limits": json!([day_of("20")]) })).await;
    app.finish().await;
}

#[tokio::test]
async fn a_tenant_that_cannot_be_resolved_is_an_alarm_and_blocks_nobody_else() {
    let app = spawn_app().await;
    app.with_day_of("10").await;
    let spoilt = connect(&app).await;
    for (tenant, definition) in [
        ("ghost", json!({ "id": "ghost", "plan": "gone" })),
        ("unread", json!({ "id": "unread", "colour": "red" })),
    ] {
        app.define(&format!("tenants/{tenant}"), json!({ "plan": "plan" })).await;
        let update = "UPDATE tenants SET definition = $2::text::jsonb WHERE id = $1";
        spoilt.execute(update, &[&tenant, &definition.to_string()]).await.unwrap();
    }
    app.define("plans/plan", json!({ "limits": json!([day_of("20")]) })).await;
    app.define("limits/more", json!({ "meter": "page", "window": "week", "capacity": "50" })).await;
    app.define("plans/other", json!({})).await;
    app.delete("/v1/admin/plans/other").await.expect(204);
    assert_eq!(app.quota().await.text("/limits/0/capacity"), "20");
    let metrics = app.client().get(format!("{}/metrics", app.ops_url())).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    assert!(!metrics.contains("tollgate_alarms_total{alarm=\"policy\"} 0"), "nobody was told");
    assert!(metrics.contains("tollgate_alarms_total{alarm=\"policy\"}"), "{metrics}");

    for tenant in ["ghost", "unread"] {
        app.get(&format!("/v1/tenants/{tenant}/quota")).await.is_problem(500, "internal");
        app.define(&format!("tenants/{tenant}"), json!({ "plan": "plan" })).await;
        let path = format!("/v1/tenants/{tenant}/quota");
        until(|| app.get(&path), |answer| answer.status == 200).await;
    }
    app.finish().await;
}

/// Repeats a change as a client does, while the answer says that it still runs. A change that is abandoned is not
/// repeated.
async fn done<F: Future<Output = Answered>>(change: impl Fn() -> F) -> Answered {
    let still_runs =
        |answer: &Answered| answer.status == 503 && answer.text("/detail").contains("still running");
    until(change, |answer| !still_runs(answer)).await
}

#[tokio::test]
async fn a_change_of_policy_finishes_under_a_storm_of_new_tenants() {
    let app = spawn_app().await;
    app.with_day_of("10").await;
    let admin = app.caller();
    let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let storm: Vec<_> = (0..6)
        .map(|caller| {
            let (admin, stop, made) = (admin.clone(), stop.clone(), made.clone());
            tokio::spawn(async move {
                for number in 0.. {
                    let path = format!("/v1/admin/tenants/storm-{caller}-{number}");
                    let answer = done(|| admin.put(&path, json!({ "plan": "plan" }))).await;
                    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
                    made.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            })
        })
        .collect();
    let is_above = async |count| made.load(Ordering::Relaxed).gt(&count).then_some(());
    wait_for("the storm to begin", PATIENCE, async || is_above(50).await).await;
    for capacity in ["11", "12", "13"] {
        let before = made.load(Ordering::Relaxed);
        for plan in ["/v1/admin/plans/plan", "/v1/admin/plans/extra"] {
            let answer = done(|| admin.put(plan, json!({ "limits": json!([day_of(capacity)]) }))).await;
            assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        }
        let answer = done(|| admin.delete("/v1/admin/plans/extra")).await;
        assert!(matches!(answer.status, 204 | 404), "{answer:?}");
        wait_for("the storm to go on", PATIENCE, async || is_above(before).await).await;
    }
    stop.store(true, Ordering::Relaxed);
    for caller in storm {
        caller.await.unwrap();
    }
    assert_eq!(app.get("/v1/tenants/storm-0-0/quota").await.expect(200).text("/limits/0/capacity"), "13");
    app.finish().await;
}
