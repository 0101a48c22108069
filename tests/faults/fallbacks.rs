//! What limits let through while the gate is away: the cap of an emergency, and which of several limits decides.

use serde_json::{Value, json};

use super::gate_away::{both, counted, impatient, replayed};
use crate::support::app::*;
use crate::support::wait::wait_for;

const CHECK: &str = "/v1/ratelimit/check";

fn day(id: &str, on_gate_failure: &str) -> Value {
    json!({ "id": id, "meter": "page", "window": "day", "capacity": "100", "on_gate_failure": on_gate_failure })
}

fn emergency(limit: Value, capacity: &str) -> Value {
    limit.with("on_gate_failure", "emergency").with("emergency_capacity", capacity)
}

/// How often this policy has decided.
pub(super) fn decided_by(app: &TestApp, policy: &str) -> u64 {
    let name = format!("tollgate_fallback_total{{policy=\"{policy}\"}} ");
    let text = app.app().operations.metrics_text();
    text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn in_an_emergency_an_instance_admits_its_cap_and_the_gate_counts_it_later() {
    let app = impatient().start().await;
    app.with_plan(json!([emergency(day("day", ""), "5")]), json!([])).await;
    app.post_keyed(USAGE, "before", pages("10")).await.expect(201);
    let frozen = app.redis.freeze();
    let reserved = app.post_keyed(RESERVATIONS, "r", pages("3").lasting(3600)).await.expect(201);
    assert_eq!(reserved.body["degraded"], json!(true));
    let repeat = app.post_keyed(RESERVATIONS, "r", pages("3").lasting(3600)).await.expect(200);
    assert_eq!(repeat.body["replayed"], json!(true), "a repeat takes nothing more");
    app.post_keyed(USAGE, "too much", pages("3")).await.is_problem(503, "gate_unavailable");
    app.post_keyed(USAGE, "u", pages("2")).await.expect(201);
    app.post_keyed(USAGE, "one more", pages("1")).await.is_problem(503, "gate_unavailable");
    app.consume(reserved.text("/id"), "1").await.expect(200);
    app.post_keyed(USAGE, "one more", pages("1")).await.is_problem(503, "gate_unavailable");
    let decided = [decided_by(&app, "emergency"), decided_by(&app, "emergency_used_up")];
    assert_eq!(decided, [2, 4], "the repeat among them, which had no room and needed none");
    drop(frozen);
    replayed(&app).await;
    app.drained().await;
    assert_eq!(counted(&app).await, both("13", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_the_ledger_certainly_does_not_have_takes_nothing_of_a_cap() {
    let app = impatient().start().await;
    app.with_plan(json!([emergency(day("day", ""), "2")]), json!([])).await;
    let frozen = app.redis.freeze();
    app.post_keyed(USAGE, "first", pages("1")).await.expect(201);
    app.database.close().await;
    for number in 0..4 {
        let key = format!("both-away-{number}");
        app.post_keyed(USAGE, &key, pages("1")).await.is_problem(503, "gate_unavailable");
    }
    app.database.open().await;
    wait_for("the cap has room for the second", super::gate_away::PATIENCE, async || {
        (app.post_keyed(USAGE, "second", pages("1")).await.status == 201).then_some(())
    })
    .await;
    app.post_keyed(USAGE, "third", pages("1")).await.is_problem(503, "gate_unavailable");
    drop(frozen);
    replayed(&app).await;
    app.drained().await;
    assert_eq!(counted(&app).await, both("2", "0"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_limits_the_strictest_decides() {
    let app = impatient().start().await;
    let limits = json!([
        day("allows", "allow"),
        emergency(day("capped", "").with("operations", json!(["capped", "both"])), "2"),
        day("denies", "deny").with("operations", json!(["denied", "both"])),
    ]);
    app.without_limits().await;
    for operation in ["allowed", "capped", "denied", "both"] {
        let costs = json!({ "costs": [{ "meter": "page", "base": "1" }] });
        app.define(&format!("operations/{operation}"), costs).await;
    }
    app.define("plans/plan", json!({ "limits": limits })).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
    let frozen = app.redis.freeze();
    let mut call = 0;
    let mut tried = async |operation: &str| {
        call += 1;
        let body = json!({ "tenant": "acme", "operation": operation });
        app.post_keyed(USAGE, &format!("{operation}-{call}"), body).await.status
    };
    assert_eq!([tried("allowed").await, tried("denied").await, tried("both").await], [201, 503, 503]);
    let capped = [tried("capped").await, tried("capped").await, tried("capped").await];
    assert_eq!(capped, [201, 201, 503], "what was denied took nothing of the cap");
    let by = ["allow", "deny", "emergency", "emergency_used_up"].map(|policy| decided_by(&app, policy));
    assert_eq!(by, [1, 2, 2, 1]);
    drop(frozen);
    replayed(&app).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_go_by_the_caps_of_their_limits_and_of_those_that_count_all_tenants() {
    let app = impatient().start().await;
    for meter in ["call", "shared"] {
        app.define(&format!("meters/{meter}"), json!({ "unit": "call", "booked": false })).await;
        let costs = json!({ "costs": [{ "meter": meter, "base": "1" }] });
        app.define(&format!("operations/{meter}"), costs).await;
    }
    let minute = |id: &str, meter: &str| {
        json!({
            "id": id, "meter": meter, "algorithm": "token_bucket", "capacity": "100", "refill": "1",
            "per_seconds": 60
        })
    };
    let all = json!({
        "meter": "shared", "scope": "global", "algorithm": "fixed_window", "window_seconds": 3600, "capacity": "100"
    });
    app.define("limits/all", emergency(all, "1")).await;
    let limits = json!([emergency(minute("own", "call"), "3"), emergency(minute("shared", "shared"), "3")]);
    app.define("plans/plan", json!({ "limits": limits })).await;
    for tenant in ["acme", "other"] {
        app.define(&format!("tenants/{tenant}"), json!({ "plan": "plan" })).await;
    }
    let of = |tenant: &str, operation: &str| json!({ "tenant": tenant, "operation": operation });
    app.post(CHECK, of("acme", "call")).await.expect(200);
    let frozen = app.redis.freeze();
    app.post(CHECK, of("acme", "call").with("peek", true)).await.is_problem(503, "gate_unavailable");
    let both = json!({ "checks": vec![of("acme", "call"); 2], "atomic": true });
    let together = app.post(CHECK, both.clone()).await.expect(200);
    assert_eq!(together.body["results"][1]["degraded"], json!(true));
    app.post(CHECK, both).await.is_problem(503, "gate_unavailable");
    let last = app.post(CHECK, of("acme", "call")).await.expect(200);
    assert_eq!(last.body["allowed"], json!(true), "what was denied together took nothing");
    app.post(CHECK, of("acme", "call")).await.is_problem(503, "gate_unavailable");
    app.post(CHECK, of("other", "call")).await.expect(200);
    app.post(CHECK, of("acme", "shared")).await.expect(200);
    app.post(CHECK, of("other", "shared")).await.is_problem(503, "gate_unavailable");
    drop(frozen);
    wait_for("the gate answers", super::gate_away::PATIENCE, async || {
        let look = app.post(CHECK, of("acme", "call").with("peek", true)).await;
        (look.status == 200).then_some(())
    })
    .await;
    app.finish().await;
}
