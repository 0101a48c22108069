//! The proof has teeth: every change made by hand is found and named.

use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::ledger::{Ledger, VerifyOptions, verify};

use super::events::{Work, partition, tenant, user};
use super::{as_owner, ledger};
use crate::support::services::TestDatabase;
use crate::writer::apply::{assert_proven, book};

async fn books() -> (TestDatabase, Ledger) {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    for n in 0..3 {
        let mut work = Work::new(&acme, &format!("job-{n}"), &[("ocr.page", 600)]).named(&[user("anna")]);
        let events = vec![work.reserve(), work.consume(&[700], n > 0)];
        book(&ledger, &acme, &format!("1-{}", n * 2), events).await.unwrap();
    }
    assert_proven(&ledger).await;
    (database, ledger)
}

/// Changes something as one who may do everything.
async fn tamper(database: &TestDatabase, statement: &str) {
    as_owner(database, &format!("SET session_replication_role = replica; {statement}")).await.unwrap();
}

/// The names of the checks that found something, with what they found.
async fn found(ledger: &Ledger, options: VerifyOptions) -> String {
    let report = verify(ledger, options).await.unwrap();
    let faulty = report.checks.iter().filter(|check| !check.faults.is_empty());
    faulty.map(|check| format!("{}: {:?}\n", check.name, check.faults)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_changed_behind_the_ledgers_back_is_found_and_named() {
    let one = "(SELECT operation_id FROM entries WHERE excess ORDER BY operation_id LIMIT 1) AND step = 2";
    for (change, names) in [
        (
            format!("UPDATE entries SET amount = amount + 1 WHERE excess AND operation_id = {one}"),
            vec!["balances follow", "reservation ", "was changed", "hourly usage follows"],
        ),
        (
            format!("DELETE FROM entries WHERE excess AND operation_id = {one}"),
            vec!["has 2 entries where 3", "reservation "],
        ),
        (format!("UPDATE entries SET operation = 'other' WHERE operation_id = {one}"), vec!["was changed"]),
        (
            format!("UPDATE entries SET booked_at = booked_at + interval '1 s' WHERE operation_id = {one}"),
            vec!["was not booked with it"],
        ),
        (
            "UPDATE balances SET consumed = consumed + 0.000000001".into(),
            vec!["balance acme ocr.page 2025-12-01", "the identity holds"],
        ),
        (
            "UPDATE balances SET consumed = consumed + 1, available = available - 1".into(),
            vec!["consumed is 22", "available is -22"],
        ),
        ("DELETE FROM balances".into(), vec!["consumed is 0, by entries 21"]),
        ("UPDATE usage_hourly SET count = count + 1 WHERE subject > 0".into(), vec!["usage acme ocr.page"]),
        ("DELETE FROM usage_hourly WHERE subject = 0".into(), vec!["usage acme ocr.page"]),
        ("DELETE FROM reservations".into(), vec!["has entries but no row"]),
        (
            "UPDATE reservations SET state = 'released' WHERE state <> 'reserved'".into(),
            vec!["the row and its record differ"],
        ),
        (
            "DELETE FROM batches WHERE number = 2".into(),
            vec!["batch 2 of chain", "which does not exist", "follows batch 1"],
        ),
        ("UPDATE batches SET previous = hash WHERE number = 2".into(), vec!["batch 2"]),
        ("UPDATE batches SET hash = previous WHERE number = 1".into(), vec!["batch 1", "batch 2"]),
        (
            "DELETE FROM batches; DELETE FROM entries; DELETE FROM balances; DELETE FROM usage_hourly".into(),
            vec!["by its entries 0 and 0"],
        ),
        ("UPDATE cursors SET sequence = 0".into(), vec!["is booked up to 1-5"]),
        ("UPDATE cursors SET epoch = 9".into(), vec!["beyond epoch 1"]),
    ] {
        let (database, ledger) = books().await;
        tamper(&database, &change).await;
        let at_once = VerifyOptions::default();
        let in_parts = VerifyOptions { snapshot_bytes: 1, ..at_once };
        let rebuilt = VerifyOptions { rebuild: true, ..at_once };
        for options in [at_once, rebuilt, in_parts] {
            let found = found(&ledger, options).await;
            for name in &names {
                assert!(found.contains(name), "{change}\n{name}\n{found}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_booked_while_the_books_are_proven_part_by_part_is_no_fault() {
    let (_database, ledger) = ledger().await;
    let done = AtomicBool::new(false);
    let bookings = async {
        for number in 0..40 {
            let newcomer = tenant(&format!("tenant-{number}"));
            let mut work = Work::new(&newcomer, "job", &[("ocr.page", 600)]);
            let last = ledger.cursor(partition(&newcomer)).await.unwrap();
            let from = if last.epoch.0 == 0 { 0 } else { last.sequence + 1 };
            let events = vec![work.reserve(), work.consume(&[100], true)];
            book(&ledger, &newcomer, &format!("1-{from}"), events).await.unwrap();
        }
        done.store(true, Ordering::Relaxed);
    };
    let proofs = async {
        while !done.load(Ordering::Relaxed) {
            for rebuild in [false, true] {
                let report = verify(&ledger, VerifyOptions { rebuild, snapshot_bytes: 1 }).await.unwrap();
                assert!(report.is_clean(), "{report:?}");
            }
        }
    };
    tokio::join!(bookings, proofs);
    let report = verify(&ledger, VerifyOptions { rebuild: false, snapshot_bytes: 1 }).await.unwrap();
    let checked: Vec<_> = report.checks.iter().map(|check| check.checked).collect();
    assert_eq!(
        checked,
        [120, 40, 40, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0, 0, 40, 0, 4],
        "each thing once: {report:?}"
    );
}
