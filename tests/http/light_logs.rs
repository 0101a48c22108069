//! Sliding logs of meters that are not booked: under checks and light reservations.

use serde_json::{Value, json};

use super::ratelimit::{CHECK, of, started};
use crate::support::app::*;

fn log_of(capacity: &str) -> Value {
    json!({ "id": "log", "meter": "call", "algorithm": "sliding_log", "window_seconds": 60, "capacity": capacity })
}

#[tokio::test]
async fn a_log_lists_what_checks_counted_and_forgets_each_to_the_millisecond() {
    let app = started(json!([log_of("11")])).await;
    let remaining = async |at: &str, allowed: bool| {
        app.move_clock(at).await;
        let answer = app.post(CHECK, of("write")).await.expect(200);
        assert_eq!(answer.body["allowed"], json!(allowed), "{at}: {answer:?}");
        (answer.text("/remaining").to_owned(), answer.body["retry_after_seconds"].clone())
    };
    assert_eq!(remaining("2026-03-10T12:00:00Z", true).await, ("6".into(), Value::Null));
    assert_eq!(
        remaining("2026-03-10T12:00:00Z", true).await,
        ("1".into(), Value::Null),
        "in one millisecond"
    );
    app.move_clock("2026-03-10T12:00:20.5Z").await;
    let part = app.post(CHECK, of("read")).await.expect(200);
    assert_eq!(part.text("/remaining"), "0");
    let peeked = app.post(CHECK, of("read").with("peek", true)).await.expect(200);
    assert_eq!(peeked.body["allowed"], false);
    assert_eq!(remaining("2026-03-10T12:00:59.999Z", false).await, ("0".into(), json!(1)));
    assert_eq!(remaining("2026-03-10T12:01:00Z", true).await.0, "5", "both slid out, the third is listed");
    app.finish().await;
}

#[tokio::test]
async fn a_log_returns_what_a_light_reservation_did_not_use_and_a_full_one_refuses() {
    let app = started(json!([log_of("10").with("entries_max", 2)])).await;
    let held = app.held(json!({ "tenant": "acme", "meter": "call", "amount": "6" })).await;
    app.consume(&held, "2").await.expect(200);
    let left = app.post(CHECK, of("read").with("peek", true)).await.expect(200);
    assert_eq!(left.text("/remaining"), "8");
    app.post(CHECK, of("read")).await.expect(200);
    let full = app.post(CHECK, of("read")).await.expect(200);
    assert_eq!(full.body["allowed"], false, "two are listed: {full:?}");
    app.finish().await;
}
