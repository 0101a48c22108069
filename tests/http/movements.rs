//! What reserve, consume, release, expire, late consume and usage book, line by line of the table of movements.

use std::time::Duration;

use serde_json::json;

use crate::support::app::*;
use crate::support::wait::wait_for;

const NOON_MS: i64 = 1_773_144_000_000;

async fn at_noon() -> TestApp {
    let app = an_app().at_ms(NOON_MS).start().await;
    app.with_plan(json!([day_of("100")]), json!([quota_of("90")])).await;
    app
}

/// The movements of an operation in order: `credit > debit amount`, and its flags.
async fn movements(app: &TestApp, id: &str) -> Vec<String> {
    app.drained().await;
    let entries = app.get(&format!("/v1/tenants/acme/entries?reservation={id}")).await.expect(200);
    let mut rows = entries.body["data"].as_array().unwrap().clone();
    rows.reverse();
    let mut movements: Vec<_> = rows
        .iter()
        .map(|row| {
            let word = |field: &str| row[field].as_str().unwrap().to_owned();
            let flags: Vec<_> = row["flags"]
                .as_array()
                .unwrap()
                .iter()
                .map(|flag| format!(" {}", flag.as_str().unwrap()))
                .collect();
            assert_eq!(word("class"), "usage", "{row}");
            (
                row["step"].as_i64(),
                format!("{} > {} {}{}", word("credit"), word("debit"), word("amount"), flags.concat()),
            )
        })
        .collect();
    movements.sort_by_key(|(step, _)| *step);
    movements.into_iter().map(|(_, movement)| movement).collect()
}

const HELD_5: &str = "available > reserved 5";

#[tokio::test]
async fn a_reserve_and_nothing_more_books_the_hold() {
    let app = at_noon().await;
    let id = app.hold("5").await;
    app.resolve(&id, "extend", json!({ "ttl_seconds": 600 })).await.expect(200);
    assert_eq!(movements(&app, &id).await, [HELD_5]);
    let quota = app.get("/v1/tenants/acme/entries?meter=page").await;
    let granted =
        quota.body["data"].as_array().unwrap().iter().find(|row| row["class"] == "grant").unwrap().clone();
    assert_eq!(
        (&granted["credit"], &granted["debit"], &granted["amount"]),
        (&json!("granted"), &json!("available"), &json!("90"))
    );
    app.finish().await;
}

#[tokio::test]
async fn a_refused_reserve_and_a_dry_run_book_nothing() {
    let app = at_noon().await;
    let id = app.hold("5").await;
    app.post(RESERVATIONS, pages("90")).await.is_problem(429, "quota_exceeded");
    app.post(RESERVATIONS, pages("5").with("dry_run", true)).await.expect(200);
    app.drained().await;
    let entries = app.get("/v1/tenants/acme/entries").await.expect(200);
    let usage: Vec<_> =
        entries.body["data"].as_array().unwrap().iter().filter(|row| row["class"] == "usage").collect();
    assert_eq!(usage.len(), 1, "{usage:?}");
    assert_eq!(usage[0]["operation_id"], id);
    app.finish().await;
}

#[tokio::test]
async fn each_consume_books_its_line_of_the_table() {
    let app = at_noon().await;
    for (consumes, booked) in [
        // final, at most the hold
        (vec![("5", true)], vec![HELD_5, "reserved > consumed 5"]),
        (vec![("3", true)], vec![HELD_5, "reserved > consumed 3", "reserved > available 2"]),
        (vec![("0", true)], vec![HELD_5, "reserved > available 5"]),
        // final, above the hold
        (vec![("7", true)], vec![HELD_5, "reserved > consumed 5", "available > consumed 2 excess"]),
        // partial
        (vec![("2", false), ("4", false)], vec![HELD_5, "reserved > consumed 2", "reserved > consumed 2"]),
        (
            vec![("2", false), ("6", false)],
            vec![HELD_5, "reserved > consumed 2", "reserved > consumed 3", "available > consumed 1 excess"],
        ),
        // partial, then final
        (
            vec![("2", false), ("3", true)],
            vec![HELD_5, "reserved > consumed 2", "reserved > consumed 1", "reserved > available 2"],
        ),
        (
            vec![("6", false), ("8", true)],
            vec![
                HELD_5,
                "reserved > consumed 5",
                "available > consumed 1 excess",
                "available > consumed 2 excess",
            ],
        ),
        (
            vec![("6", false), ("6", true)],
            vec![HELD_5, "reserved > consumed 5", "available > consumed 1 excess"],
        ),
    ] {
        let id = app.hold("5").await;
        for (amount, is_final) in &consumes {
            app.resolve(&id, "consume", json!({ "amount": amount, "final": is_final })).await.expect(200);
        }
        assert_eq!(movements(&app, &id).await, booked, "{consumes:?}");
    }
    app.finish().await;
}

#[tokio::test]
async fn each_release_books_its_line_of_the_table() {
    let app = at_noon().await;
    for (partial, body, booked) in [
        (None, json!({}), vec![HELD_5, "reserved > available 5"]),
        (Some("2"), json!({}), vec![HELD_5, "reserved > consumed 2", "reserved > available 3"]),
        (Some("6"), json!({}), vec![HELD_5, "reserved > consumed 5", "available > consumed 1 excess"]),
        (None, json!({ "incurred": "2" }), vec![HELD_5, "reserved > consumed 2", "reserved > available 3"]),
        (
            Some("2"),
            json!({ "incurred": "4" }),
            vec![HELD_5, "reserved > consumed 2", "reserved > consumed 2", "reserved > available 1"],
        ),
        (
            None,
            json!({ "incurred": "7" }),
            vec![HELD_5, "reserved > consumed 5", "available > consumed 2 excess"],
        ),
    ] {
        let id = app.hold("5").await;
        if let Some(amount) = partial {
            app.resolve(&id, "consume", json!({ "amount": amount, "final": false })).await.expect(200);
        }
        app.resolve(&id, "release", body.clone()).await.expect(200);
        assert_eq!(movements(&app, &id).await, booked, "{partial:?} {body}");
    }
    let id = app.hold("5").await;
    app.resolve(&id, "consume", json!({ "amount": "3", "final": false })).await.expect(200);
    let less = app.resolve(&id, "release", json!({ "incurred": "2" })).await;
    less.is_problem(422, "amount_decreased");
    app.finish().await;
}

#[tokio::test]
async fn an_expiry_returns_the_hold_and_a_late_consume_is_charged_from_the_available_units() {
    let app = at_noon().await;
    let untouched = app.hold("5").await;
    let partly = app.hold("5").await;
    app.resolve(&partly, "consume", json!({ "amount": "2", "final": false })).await.expect(200);
    app.move_clock("2026-03-10T12:02:00Z").await;
    wait_for("both holds expire", Duration::from_secs(20), async || {
        let rows = app.get("/v1/tenants/acme/reservations?status=expired").await.expect(200);
        (rows.body["data"].as_array().unwrap().len() == 2).then_some(())
    })
    .await;
    assert_eq!(movements(&app, &untouched).await, [HELD_5, "reserved > available 5"]);
    assert_eq!(movements(&app, &partly).await, [HELD_5, "reserved > consumed 2", "reserved > available 3"]);
    app.resolve(&untouched, "consume", json!({ "amount": "4" })).await.expect(200);
    app.resolve(&partly, "consume", json!({ "amount": "6" })).await.expect(200);
    assert_eq!(movements(&app, &untouched).await[2..], ["available > consumed 4 late"]);
    assert_eq!(movements(&app, &partly).await[3..], ["available > consumed 4 late"]);
    let quota = app.quota().await;
    assert_eq!((quota.text("/quotas/0/consumed"), quota.text("/quotas/0/reserved")), ("10", "0"));
    let usage = app.get("/v1/tenants/acme/usage?group_by=meter").await.expect(200);
    assert_eq!((usage.text("/data/0/consumed"), usage.text("/data/0/late")), ("10", "8"), "{usage:?}");
    app.finish().await;
}

#[tokio::test]
async fn usage_books_in_one_step() {
    let app = at_noon().await;
    let used = app.post_keyed(USAGE, "k", pages("4").with("ack", "ledger")).await.expect(201);
    assert_eq!(used.text("/ack"), "ledger");
    assert_eq!(movements(&app, used.text("/id")).await, ["available > consumed 4"]);
    app.finish().await;
}
