//! Reads that their callers give up, or take slowly, and what becomes of the connections that they were on.

use std::time::Duration;

use serde_json::json;
use tokio_postgres::Client;
use tollgate::domain::ids::IdempotencyKey;
use tollgate::domain::supplier_bill::{BillId, BillTerms};
use tollgate::domain::usage::Granularity;
use tollgate::ledger::{Ledger, LedgerError, LedgerOptions, UsageQuery};

use super::options;
use super::reads::{query, used};
use crate::support::services::TestDatabase;
use crate::support::wait::wait_for;

/// Much less than a statement may take in these tests.
const PATIENCE: Duration = Duration::from_secs(20);

async fn connect(database: &TestDatabase) -> Client {
    let (client, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The ledger over one connection, whose statements may take ten minutes.
async fn over_one_connection(database: &TestDatabase) -> Ledger {
    let statement_timeout = Duration::from_secs(600);
    Ledger::connect(LedgerOptions { pool_size: 1, statement_timeout, ..options(database) }).await.unwrap()
}

/// Waits until so many statements wait for a lock.
async fn waiting(watch: &Client, count: i64) {
    let query = "SELECT count(*) FROM pg_stat_activity \
                 WHERE datname = current_database() AND wait_event_type = 'Lock'";
    wait_for("so many statements wait", PATIENCE, async || {
        watch.query_one(query, &[]).await.unwrap().get::<_, i64>(0).eq(&count).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_its_caller_gives_up_holds_up_no_other_and_the_server_ends_it() {
    let (database, _books) = used().await;
    let ledger = over_one_connection(&database).await;
    let (holder, watch) = (connect(&database).await, connect(&database).await);
    holder.batch_execute("BEGIN; LOCK TABLE usage_hourly IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let held_up = query(None);
    tokio::select! {
        _ = ledger.usage(&held_up) => panic!("the lock holds up no read"),
        () = waiting(&watch, 1) => {}
    }
    let next = tokio::time::timeout(PATIENCE, ledger.now_ms()).await;
    next.expect("the next read has a connection that is free").unwrap();
    waiting(&watch, 0).await;
    holder.batch_execute("ROLLBACK").await.unwrap();
    ledger.usage(&held_up).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_given_up_leaves_nothing_running_at_the_server() {
    let (database, _books) = used().await;
    let ledger = over_one_connection(&database).await;
    let (holder, watch) = (connect(&database).await, connect(&database).await);
    holder.batch_execute("BEGIN; LOCK TABLE usage_hourly IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let (snapshot, held_up) = (ledger.snapshot(PATIENCE).await.unwrap(), query(None));
    tokio::select! {
        _ = snapshot.usage(&held_up) => panic!("the lock holds up no read"),
        () = waiting(&watch, 1) => {}
    }
    drop(snapshot);
    waiting(&watch, 0).await;
    holder.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_with_a_bill_that_is_given_up_leaves_nothing_running_at_the_server() {
    let (database, ledger) = used().await;
    let terms: BillTerms = serde_json::from_value(json!({
        "supplier": "s", "tenant": "acme", "meter": "ocr.page", "from_ms": 0, "to_ms": 4_000_000_000_000_i64,
        "columns": { "amount": "pages", "reference": "job", "time": null, "tenant": null }, "reference": "reservation",
        "delimiter": 44, "tolerance": { "amount": "0", "percent": "0", "seconds": 0 }, "dry_run": false
    }))
    .unwrap();
    let (id, use_lasts) = (BillId::of(&IdempotencyKey::parse("slow").unwrap()), Duration::from_secs(86_400));
    let (holder, watch) = (connect(&database).await, connect(&database).await);
    holder.batch_execute("BEGIN; LOCK TABLE entries IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let mut session = ledger.bill_session().await.unwrap();
    tokio::select! {
        _ = session.compare(id, 1, &terms, use_lasts) => panic!("the lock holds up no comparison"),
        () = waiting(&watch, 1) => {}
    }
    drop(session);
    waiting(&watch, 0).await;
    holder.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_that_have_ended_well_or_badly_leave_their_connection_to_the_next_one() {
    let (database, _books) = used().await;
    let ledger = over_one_connection(&database).await;
    let watch = connect(&database).await;
    let connections = async || {
        let query = "SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity \
                     WHERE datname = current_database() AND backend_type = 'client backend'";
        watch.query_one(query, &[]).await.unwrap().get::<_, String>(0)
    };
    let (granularity, zones) = (Some(Granularity::Day), vec![(0, "Mars/Olympus".to_owned())]);
    let mars = UsageQuery { granularity, zones, ..query(None) };
    ledger.now_ms().await.unwrap();
    let before = connections().await;
    for _ in 0..10 {
        ledger.usage(&query(None)).await.unwrap();
        let refused = ledger.usage(&mars).await;
        assert!(matches!(refused, Err(LedgerError::Refused(_))), "{refused:?}");
    }
    assert_eq!(connections().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_may_be_left_alone_for_longer_than_a_statement_may_take() {
    let (database, _books) = used().await;
    let statement_timeout = Duration::from_secs(1);
    let ledger = Ledger::connect(LedgerOptions { statement_timeout, ..options(&database) }).await.unwrap();
    let snapshot = ledger.snapshot(Duration::from_secs(600)).await.unwrap();
    let watch = connect(&database).await;
    wait_for("it is left alone for a while", PATIENCE, async || {
        let query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() \
                     AND state = 'idle in transaction' AND now() - state_change > interval '4 s'";
        watch.query_opt(query, &[]).await.unwrap().map(drop)
    })
    .await;
    snapshot.now_ms().await.unwrap();
}
