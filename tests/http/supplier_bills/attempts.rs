//! How a bill arrives: attempts that break off, stall, are refused early, lose their instance or are overtaken.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tollgate::domain::ids::IdempotencyKey;
use tollgate::domain::supplier_bill::{BillId, BillTerms};
use tollgate::ledger::{BillBegun, NewBill};

use super::{BILLS, BY_JOB, NOW, SPAN, Used, compare, counts, ended, send_as, with_uses};
use crate::ledger::{as_owner, rows};
use crate::support::app::*;
use crate::support::wait::wait_for;

#[tokio::test]
async fn a_bill_that_breaks_off_fails_and_can_be_sent_again() {
    let app = with_uses(&[Used("acme", "10T09:00:00", 3, "a")]).await;
    let query = format!("{SPAN}&{BY_JOB}&tenant=acme");
    let head = format!(
        "POST {BILLS}?{query} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: text/csv\r\n\
         idempotency-key: off\r\ncontent-length: 1000\r\n\r\njob,pages\na,3\n",
        app.key()
    );
    let address = app.url().trim_start_matches("http://").to_owned();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    wait_for("the bill is being read", Duration::from_secs(20), async || {
        (app.get(BILLS).await.text("/data/0/status") == "loading").then_some(())
    })
    .await;
    let busy = send_as(&app, &query, "off", "job,pages\na,3\n").await;
    busy.is_problem(409, "in_use");
    drop(stream);
    wait_for("the bill has failed", Duration::from_secs(20), async || {
        (app.get(BILLS).await.text("/data/0/status") == "failed").then_some(())
    })
    .await;
    let whole = compare(&app, &query, "off", "job,pages\na,3\n").await;
    assert_eq!(counts(&whole), [1, 0, 0, 0]);
    app.finish().await;
}

/// A service that waits four seconds for a body.
async fn impatient() -> TestApp {
    let app = an_app().at(NOW).without_jobs().with("http.request_timeout_ms", 4_000);
    let app = app.with("ledger.ack_timeout_ms", 3_000).with("ledger.restore_wait_ms", 3_000).start().await;
    app.without_limits().await;
    app
}

/// The head of a bill of a megabyte, and these lines of it.
fn begun(app: &TestApp, key: &str, lines: &str) -> String {
    format!(
        "POST {BILLS}?{SPAN}&{BY_JOB}&tenant=acme HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: text/csv\r\nidempotency-key: {key}\r\ncontent-length: 1000000\r\n\r\n{lines}",
        app.key()
    )
}

#[tokio::test]
async fn a_sender_of_a_bill_that_stalls_has_its_answer_in_time() {
    let app = impatient().await;
    let head = begun(&app, "stalled", "job,pages\na,3\n");
    let answer = tokio::time::timeout(Duration::from_secs(15), app.send_raw(head.as_bytes())).await;
    assert!(answer.as_ref().is_ok_and(|line| line.starts_with("HTTP/1.1 408")), "{answer:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_sender_that_trickles_on_after_its_bill_is_refused_has_its_answer_in_time() {
    let app = impatient().await;
    let head = begun(&app, "trickled", "nothing,here\n");
    let stream = tokio::net::TcpStream::connect(app.url().trim_start_matches("http://")).await.unwrap();
    let (reads, mut writes) = stream.into_split();
    let trickling = tokio::spawn(async move {
        writes.write_all(head.as_bytes()).await.unwrap();
        let mut beat = tokio::time::interval(Duration::from_millis(50));
        while writes.write_all(b"x").await.is_ok() {
            beat.tick().await;
        }
    });
    let mut line = String::new();
    let mut reads = BufReader::new(reads);
    let read = tokio::time::timeout(Duration::from_secs(15), reads.read_line(&mut line)).await;
    assert!(read.is_ok() && line.starts_with("HTTP/1.1 422"), "{line}");
    trickling.abort();
    app.finish().await;
}

#[tokio::test]
async fn while_the_gate_is_away_a_bill_is_refused_before_it_is_sent() {
    let mut app = impatient().await;
    app.redis.kill9().unwrap();
    // Nothing of the bill follows its head.
    let refused = app.send_raw(begun(&app, "away", "").as_bytes()).await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert_eq!(app.get(BILLS).await.expect(200).body["data"], json!([]), "it is no comparison");
    app.redis.restart().unwrap();
    let query = format!("{SPAN}&{BY_JOB}&tenant=acme");
    let taken = until_answered(|| send_as(&app, &query, "away", "job,pages\na,1\n")).await;
    assert_eq!(counts(&ended(&app, taken.text("/id")).await), [0, 0, 1, 0]);
    app.finish().await;
}

#[tokio::test]
async fn a_bill_whose_instance_is_gone_counts_as_failed_and_can_be_sent_again() {
    let app = with_uses(&[Used("acme", "10T09:00:00", 3, "a")]).await;
    let query = format!("{SPAN}&{BY_JOB}&tenant=acme");
    let done = compare(&app, &query, "lost", "job,pages\na,3\n").await;
    // As an instance leaves it that is killed in the middle: nothing but the row says that there was a bill.
    let lose = "UPDATE supplier_bills SET state = 'matching', summary = NULL, finished_at = NULL, alive_until = now() - interval '1 s'; \
        DELETE FROM supplier_matches";
    as_owner(&app.database, lose).await.unwrap();
    let found = app.get(&format!("{BILLS}/{}", done.text("/id"))).await.expect(200);
    assert_eq!((found.text("/status"), found.body["summary"].is_null()), ("failed", true), "{found:?}");
    assert!(found.text("/failure").contains("send the bill again"), "{found:?}");
    let again = compare(&app, &query, "lost", "job,pages\na,4\n").await;
    assert_eq!(counts(&again), [0, 1, 0, 0]);
    assert_eq!(again.text("/id"), done.text("/id"));
    app.finish().await;
}

#[tokio::test]
async fn an_attempt_that_ends_after_a_later_one_has_begun_stores_nothing() {
    let app = with_uses(&[Used("acme", "10T09:00:00", 3, "a")]).await;
    let terms: BillTerms = serde_json::from_value(json!({
        "supplier": "s", "tenant": "acme", "meter": "page", "from_ms": 0, "to_ms": 4_000_000_000_000_i64,
        "columns": { "amount": "pages", "reference": "job", "time": null, "tenant": null }, "reference": { "metadata": "job" },
        "delimiter": 44, "tolerance": { "amount": "0", "percent": "0", "seconds": 0 }, "dry_run": false
    }))
    .unwrap();
    let (ledger, id) = (&app.app().ledger, BillId::of(&IdempotencyKey::parse("slow").unwrap()));
    let begin = || async {
        ledger.begin_bill(NewBill { id, terms: terms.clone(), created_by: "me".into() }).await.unwrap()
    };
    assert!(matches!(begin().await, BillBegun::Now(1)));
    assert!(ledger.bill_loaded(id, 1, 0, [0; 32]).await.unwrap());
    assert!(matches!(begin().await, BillBegun::Before(_)), "the first one is at work");
    as_owner(&app.database, "UPDATE supplier_bills SET alive_until = now() - interval '1 s'").await.unwrap();
    assert!(matches!(begin().await, BillBegun::Now(2)));
    let mut session = ledger.bill_session().await.unwrap();
    assert!(
        !session.compare(id, 1, &terms, Duration::from_secs(86_400)).await.unwrap(),
        "it has been overtaken"
    );
    assert_eq!(rows(&app.database, "SELECT reference FROM supplier_matches").await, Vec::<String>::new());
    assert!(ledger.bill_loaded(id, 2, 0, [0; 32]).await.unwrap());
    let mut session = ledger.bill_session().await.unwrap();
    assert!(session.compare(id, 2, &terms, Duration::from_secs(86_400)).await.unwrap());
    assert_eq!(rows(&app.database, "SELECT reference FROM supplier_matches").await, ["a"]);
    app.finish().await;
}
