//! How many calls are parked while the gate is away, and for whom places are left.

use serde_json::json;

use super::gate_away::{both, counted, hold, impatient, limited, replayed};
use crate::support::app::*;

#[tokio::test(flavor = "multi_thread")]
async fn no_more_calls_are_parked_than_may_wait() {
    let mut app = impatient().with("ledger.parked_calls_max", "2").start().await;
    limited(&app, "allow", json!([])).await;
    app.redis.kill9().unwrap();
    for key in ["a", "b"] {
        app.post_keyed(USAGE, key, pages("1")).await.expect(201);
    }
    let refused = app.post_keyed(USAGE, "c", pages("1")).await;
    assert_ne!(refused.header("retry-after"), "");
    refused.is_problem(503, "overloaded");
    app.redis.restart().unwrap();
    replayed(&app).await;
    assert_eq!(counted(&app).await, both("2", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_admitted_without_the_gate_leaves_places_to_what_was_held_before() {
    let mut app = impatient().with("ledger.parked_calls_max", "4").start().await;
    limited(&app, "allow", json!([])).await;
    let held = hold(&app, "5").await;
    app.drained().await;
    app.redis.kill9().unwrap();
    for key in ["a", "b", "c"] {
        app.post_keyed(USAGE, key, pages("1")).await.expect(201);
    }
    app.post_keyed(USAGE, "d", pages("1")).await.is_problem(503, "overloaded");
    app.consume(&held, "2").await.expect(200);
    app.redis.restart().unwrap();
    replayed(&app).await;
    assert_eq!(counted(&app).await, both("5", "0"));
    app.finish().await;
}
