//! Each call that counts under limits over all tenants, cut at each of its requests to Redis and at each answer: no
//! counter ever says less than was admitted, a repeat takes nothing twice, and what is stranded ends with its window.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use serde_json::json;
use tollgate::app::Role;

use super::{Cut, ending};
use crate::faults::gate_away::{PATIENCE, impatient};
use crate::support::app::*;
use crate::support::wait::wait_for;

const CHECK: &str = "/v1/ratelimit/check";
/// What is in the keys of each step of a call.
const STEPS: &[&str] = &[":global", ":taken:", ":rsv:", ":light:"];
/// The room of each limit over all tenants.
const ROOM: i64 = 10;
/// What another tenant has taken before: who gives back twice takes from it.
const BEFORE: i64 = 3;
/// Two windows, after which a sliding counter has forgotten everything too.
const LATER_MS: i64 = 7_200_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Reserve,
    Usage,
    /// Of which the tenant's own limit grants less than all tenants' do.
    BestEffort,
    /// By the tenant's own limit.
    Refused,
    Release,
    Check,
    /// By a limit of the tenant's own.
    RefusedCheck,
    ChecksTogether,
}

const CALLS: [Call; 8] = [
    Call::Reserve,
    Call::Usage,
    Call::BestEffort,
    Call::Refused,
    Call::Release,
    Call::Check,
    Call::RefusedCheck,
    Call::ChecksTogether,
];

impl Call {
    fn meter(self) -> &'static str {
        if matches!(self, Self::Check | Self::RefusedCheck | Self::ChecksTogether) { "call" } else { "page" }
    }

    /// What is admitted once it is answered, and how much more may stay taken until the window ends: what no step could
    /// give back. A check has no key: sent again it is another one.
    fn counts(self) -> (i64, i64) {
        match self {
            Self::Reserve | Self::Usage => (6, 0),
            Self::BestEffort => (5, 1),
            Self::Refused | Self::Release | Self::RefusedCheck => (0, 6),
            Self::Check | Self::ChecksTogether => (3, 3),
        }
    }

    /// How many steps it has: it takes, its tenant's partition decides, and it gives back.
    fn steps(self) -> i64 {
        if matches!(self, Self::BestEffort | Self::Refused | Self::RefusedCheck) { 3 } else { 2 }
    }

    async fn send(self, caller: &Caller, key: &str, held: &str) -> Answered {
        let check = |cost: &str| json!({ "tenant": "acme", "operation": "read", "cost": cost });
        match self {
            Self::Reserve => caller.post_keyed(RESERVATIONS, key, pages(6)).await,
            Self::Usage => caller.post_keyed(USAGE, key, pages(6)).await,
            Self::BestEffort => {
                let body = pages(6).of("small").with("mode", "best_effort");
                caller.post_keyed(RESERVATIONS, key, body).await
            }
            Self::Refused => caller.post_keyed(RESERVATIONS, key, pages(6).of("small")).await,
            Self::Release => caller.post(&reservation(held, "release"), json!({})).await,
            Self::Check => caller.post(CHECK, check("3")).await,
            Self::RefusedCheck => caller.post(CHECK, check("6").of("small")).await,
            Self::ChecksTogether => {
                caller.post(CHECK, json!({ "checks": [check("2"), check("1")], "atomic": true })).await
            }
        }
    }

    /// Checks what it is answered where nothing is cut.
    fn check_answer(self, answer: &Answered) {
        let is_right = match self {
            Self::Reserve | Self::Usage => matches!(answer.status, 200 | 201),
            Self::BestEffort => matches!(answer.status, 200 | 201) && answer.text("/lines/0/amount") == "5",
            Self::Refused => answer.status == 402,
            Self::Release => answer.text("/status") == "released",
            Self::RefusedCheck => answer.body["allowed"] == false,
            Self::Check | Self::ChecksTogether => answer.body["allowed"] == true,
        };
        assert!(is_right, "{self:?}: {answer:?}");
    }
}

/// Tenants `acme` and `other` with room enough, `small` with five pages and five calls an hour, and three limits over
/// all tenants of each meter, by each of the algorithms that there are for them.
async fn with_three_algorithms() -> TestApp {
    let app = impatient().without_jobs().at("2026-03-10T12:00:00Z").start().await;
    app.without_limits().await;
    app.define("meters/call", json!({ "unit": "call", "booked": false, "without_limit": "unlimited" })).await;
    app.define("operations/read", json!({ "costs": [{ "meter": "call", "base": "1" }] })).await;
    for (plan, capacity) in [("plan", "1000"), ("small", "5")] {
        let own = ["page", "call"].map(|meter| {
            json!({
                "id": format!("own-{meter}"), "meter": meter, "algorithm": "fixed_window", "window_seconds": 3_600,
                "capacity": capacity
            })
        });
        app.define(&format!("plans/{plan}"), json!({ "limits": own })).await;
    }
    for (tenant, plan) in [("other", "plan"), ("small", "small")] {
        app.define(&format!("tenants/{tenant}"), json!({ "plan": plan })).await;
    }
    let hour = |algorithm: &str| json!({ "algorithm": algorithm, "window_seconds": 3_600 });
    for (id, window) in [
        ("calendar", json!({ "window": "hour" })),
        ("fixed", hour("fixed_window")),
        ("sliding", hour("sliding_counter")),
    ] {
        for meter in ["page", "call"] {
            let limit = window.clone().with("meter", meter).with("scope", "global");
            let limit = limit.with("capacity", ROOM.to_string());
            app.define(&format!("limits/all-{meter}-{id}"), limit).await;
        }
    }
    app
}

/// What is taken of each limit over all tenants of this meter.
async fn taken(app: &TestApp, meter: &str) -> Vec<i64> {
    let look = match meter {
        "page" => app.post(RESERVATIONS, pages(1).with("dry_run", true)).await.expect(200),
        _ => {
            let look = json!({ "tenant": "acme", "operation": "read", "peek": true });
            app.post(CHECK, look).await.expect(200)
        }
    };
    let limits = look.body["limits"].as_array().unwrap().iter().filter(|limit| limit["scope"] == "global");
    let taken: Vec<_> = limits.map(|limit| limit["consumed"].as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(taken.len(), 3, "{look:?}");
    taken
}

/// Whether another tenant is admitted with so much.
async fn other_takes(app: &TestApp, meter: &str, amount: i64) -> bool {
    if meter == "page" {
        return app.post(RESERVATIONS, pages(amount).of("other")).await.status == 201;
    }
    let check = json!({ "tenant": "other", "operation": "read", "cost": amount.to_string() });
    app.post(CHECK, check).await.expect(200).body["allowed"] == true
}

/// A hold of six pages that is booked, so that its release is parked while the gate is away.
async fn booked_hold(app: &TestApp) -> String {
    let id = app.hold(6).await;
    app.drained().await;
    id
}

/// Waits until the gate has every parked call; no job redelivers them here.
async fn redelivered(app: &TestApp) {
    let outage = &app.app().operations.outage;
    outage.look_for_parked().await.unwrap();
    wait_for("parked calls reach the gate", PATIENCE, async || {
        outage.redeliver_parked().await;
        (app.app().ledger.count_parked().await.unwrap().waiting == 0).then_some(())
    })
    .await;
}

/// Makes the call by a way that ends at its `number`-th request, or at the answer to that, and again by a whole one;
/// then holds the counters against what was admitted. Returns whether it had so many requests.
async fn cut_at(app: &TestApp, behind: &Caller, cut: &Cut, call: Call, number: i64) -> bool {
    let (meter, (admitted, more)) = (call.meter(), call.counts());
    let loses_answer = cut.loses_answer.load(Ordering::SeqCst);
    let at = format!("{call:?}, {} {number}", if loses_answer { "answer" } else { "request" });
    assert!(other_takes(app, meter, BEFORE).await, "{at}");
    let held = if call == Call::Release { booked_hold(app).await } else { String::new() };
    cut.left.store(number, Ordering::SeqCst);
    let first = call.send(behind, &at, &held).await;
    let is_cut = cut.left.swap(i64::MAX, Ordering::SeqCst) < 1;
    if first.status != 503 {
        call.check_answer(&first);
    }
    assert!(is_cut || first.status != 503, "{at}: {first:?}");
    call.check_answer(&until_answered(|| call.send(app, &at, &held)).await);
    redelivered(app).await;
    let found = taken(app, meter).await;
    let expected = BEFORE + admitted..=BEFORE + admitted + more;
    assert!(found.iter().all(|taken| expected.contains(taken)), "{at}: {found:?} instead of {expected:?}");
    let rest = ROOM - found.iter().max().unwrap();
    assert!(rest == 0 || other_takes(app, meter, rest).await, "{at}: {rest} are left of {found:?}");
    assert!(!other_takes(app, meter, 1).await, "{at}: more than there is room for");
    app.clock.advance_to(app.clock.now_ms() + LATER_MS).unwrap();
    assert_eq!(taken(app, meter).await, [0_i64; 3], "{at}: the windows are over");
    assert!(other_takes(app, meter, ROOM).await, "{at}: all of it fits");
    app.clock.advance_to(app.clock.now_ms() + LATER_MS).unwrap();
    wait_for("the cut one reaches Redis again", PATIENCE, async || {
        let look = behind.post(RESERVATIONS, pages(1).with("dry_run", true)).await;
        (look.status == 200).then_some(())
    })
    .await;
    is_cut
}

#[tokio::test(flavor = "multi_thread")]
async fn wherever_a_call_is_cut_nothing_is_stranded_beyond_its_window_and_no_more_gets_through() {
    let app = with_three_algorithms().await;
    let cut = Arc::new(Cut {
        needles: STEPS,
        left: AtomicI64::new(i64::MAX),
        loses_answer: AtomicBool::new(false),
        is_lasting: false,
    });
    let url = ending(&app, cut.clone()).await;
    let instance = app.another_with(&[Role::Http], &[("redis.url", url)]).await;
    let behind = app.caller().at(instance.url());
    for call in CALLS {
        for loses_answer in [false, true] {
            cut.loses_answer.store(loses_answer, Ordering::SeqCst);
            let mut number = 1;
            while cut_at(&app, &behind, &cut, call, number).await {
                number += 1;
            }
            assert!(number > call.steps(), "{call:?} was cut at {} of its steps", number - 1);
        }
    }
    instance.stop().await;
    app.finish().await;
}
