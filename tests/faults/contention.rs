//! Many callers and many repeats at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::support::app::*;

/// A small generator, so that a failure can be repeated from its seed.
fn shuffle<T>(items: &mut [T], mut seed: u64) {
    for place in (1..items.len()).rev() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        items.swap(place, usize::try_from(seed % (place as u64 + 1)).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_partial_consumes_sent_twice_and_shuffled_end_at_the_largest_total() {
    let app = spawn_app().await;
    app.with_day_of("5000").await;
    let reserved = app.post_keyed(RESERVATIONS, "stream", pages("1000").lasting(3600)).await;
    assert_eq!(reserved.status, 201, "{reserved:?}");
    let path = format!("/v1/reservations/{}/consume", reserved.body["id"].as_str().unwrap());
    let mut totals: Vec<u64> = (1..=1000).chain(1..=1000).collect();
    shuffle(&mut totals, 0x5eed);
    let app = Arc::new(app);
    let next = Arc::new(AtomicU64::new(0));
    let totals = Arc::new(totals);
    let callers = (0..16).map(|_| {
        let (app, next, totals, path) = (app.clone(), next.clone(), totals.clone(), path.clone());
        tokio::spawn(async move {
            while let Some(total) = totals.get(usize::try_from(next.fetch_add(1, Ordering::SeqCst)).unwrap())
            {
                let answer = app.post(&path, json!({ "amount": total.to_string(), "final": false })).await;
                match answer.status {
                    200 => {}
                    422 => assert_eq!(answer.body["code"], "amount_decreased", "{answer:?}"),
                    _ => panic!("{answer:?}"),
                }
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let now = app.get(&format!("/v1/reservations/{}", reserved.body["id"].as_str().unwrap())).await;
    assert_eq!(now.body["lines"][0]["consumed"], "1000");
    assert_eq!(now.body["status"], "reserved");
    Arc::into_inner(app).unwrap().finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_callers_with_ten_thousand_attempts_never_exceed_a_limit_and_never_strand_a_unit() {
    const ATTEMPTS: u64 = 10_000;
    let app = an_app().at("2026-03-10T12:10:00Z").start().await;
    let limits = json!([
        { "id": "hour", "meter": "page", "window": "hour", "capacity": "2500" },
        { "id": "day", "meter": "page", "window": "day", "capacity": "2000" },
        { "id": "user", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "day", "capacity": "700" }
    ]);
    app.with_plan(limits, json!([quota_of("1900")])).await;
    let app = Arc::new(app);
    let next = Arc::new(AtomicU64::new(0));
    let callers = (0..64).map(|_| {
        let (app, next) = (app.clone(), next.clone());
        tokio::spawn(async move {
            let mut consumed = 0;
            loop {
                let attempt = next.fetch_add(1, Ordering::SeqCst);
                if attempt >= ATTEMPTS {
                    return consumed;
                }
                consumed += one_attempt(&app, attempt).await;
            }
        })
    });
    let mut consumed = 0;
    for caller in callers.collect::<Vec<_>>() {
        consumed += caller.await.unwrap();
    }
    let quota = app.get("/v1/tenants/acme/quota").await.body;
    let day = quota["limits"].as_array().unwrap().iter().find(|limit| limit["id"] == "day").unwrap().clone();
    assert_eq!(day["reserved"], "0", "{quota}");
    assert_eq!(day["consumed"], consumed.to_string(), "{quota}");
    assert!(consumed <= 1900, "the quota of 1900 was exceeded: {consumed}");
    Arc::into_inner(app).unwrap().finish().await;
}

/// Reserves three pages, then consumes one or two of them, or releases all; returns what was consumed.
async fn one_attempt(app: &TestApp, attempt: u64) -> u64 {
    let user = format!("user-{}", attempt % 3);
    let body = pages("3").by(user);
    // A machine under load may answer 503: a client repeats the call, which is harmless.
    let mut reserved = app.post_keyed(RESERVATIONS, &format!("attempt-{attempt}"), body.clone()).await;
    while reserved.status == 503 {
        reserved = app.post_keyed(RESERVATIONS, &format!("attempt-{attempt}"), body.clone()).await;
    }
    if reserved.status == 429 {
        assert!(!reserved.body["refused_by"].as_array().unwrap().is_empty(), "{reserved:?}");
        return 0;
    }
    assert!(matches!(reserved.status, 200 | 201), "{reserved:?}");
    for limit in reserved.body["limits"].as_array().unwrap() {
        let read = |field: &str| limit[field].as_str().unwrap().parse::<u64>().unwrap();
        assert!(read("consumed") + read("reserved") <= read("capacity"), "{limit}");
    }
    let id = reserved.body["id"].as_str().unwrap();
    let (verb, body, consumed) = match attempt % 3 {
        0 => ("release", json!({}), 0),
        1 => ("consume", json!({ "amount": "1" }), 1),
        _ => ("consume", json!({ "amount": "2" }), 2),
    };
    let path = format!("/v1/reservations/{id}/{verb}");
    let mut resolved = app.post(&path, body.clone()).await;
    while resolved.status == 503 {
        resolved = app.post(&path, body.clone()).await;
    }
    assert_eq!(resolved.status, 200, "{resolved:?}");
    assert_ne!(resolved.body["lines"], Value::Null);
    consumed
}
