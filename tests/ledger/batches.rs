use tollgate::domain::chain::{Chain, ChainHead};
use tollgate::ledger::chain::BatchAt;
use tollgate::ledger::{Ledger, VerifyOptions, verify};

use super::events::{Work, partition, tenant};
use super::{as_owner, ledger, rows};
use crate::support::services::TestDatabase;
use crate::writer::apply::{assert_proven, book};

const KEPT: &str = "SELECT count(*), min(number), max(number) FROM batches";

/// The row that proves a dropped one need not be a day old.
const WITHOUT_AGE: &str = "CREATE OR REPLACE FUNCTION batch_witness_age() RETURNS interval LANGUAGE sql IMMUTABLE AS $$ SELECT interval '0 s' $$";

/// As many batches of one chain, an entry in each.
async fn batches(count: usize) -> (TestDatabase, Ledger) {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    for n in 0..count {
        let work = Work::new(&acme, &format!("job-{n}"), &[("ocr.page", 1)]);
        book(&ledger, &acme, &format!("1-{n}"), vec![work.reserve()]).await.unwrap();
    }
    (database, ledger)
}

async fn chain_faults(ledger: &Ledger) -> String {
    let report = verify(ledger, VerifyOptions { rebuild: false, ..VerifyOptions::default() }).await.unwrap();
    let check = report.checks.iter().find(|check| check.name == "hash chains are intact").unwrap();
    format!("{:?}", check.faults)
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_batches_that_a_later_one_proves_are_dropped_and_what_is_changed_among_them_is_found() {
    let (database, ledger) = batches(1_003).await;
    let chain = Chain::Outbox(partition(&tenant("acme")));
    let places = [(chain, 500), (chain, 1_000), (chain, 1_002), (chain, 1_004)];
    let before = ledger.batches_at(&places).await.unwrap();
    assert!(matches!(
        before.as_slice(),
        [BatchAt::Found(_), BatchAt::Found(_), BatchAt::Found(_), BatchAt::Missing]
    ));
    for recent in ["number = 1000", "number = 1002"] {
        let error = as_owner(&database, &format!("DELETE FROM batches WHERE {recent}")).await.unwrap_err();
        assert!(error.as_db_error().unwrap().message().contains("never edited"), "{recent}: {error:?}");
    }

    assert_eq!(ledger.thin_batches(400).await.unwrap(), 0, "what proves them has not stood for a day");
    let young = as_owner(&database, "DELETE FROM batches WHERE number = 500").await.unwrap_err();
    assert!(young.as_db_error().unwrap().message().contains("never edited"), "{young:?}");
    as_owner(&database, WITHOUT_AGE).await.unwrap();
    assert_eq!(ledger.thin_batches(400).await.unwrap(), 999, "chunk by chunk");
    assert_eq!(ledger.thin_batches(400).await.unwrap(), 0);
    assert_eq!(rows(&database, KEPT).await, ["4 1000 1003"]);
    assert_proven(&ledger).await;
    let after = ledger.batches_at(&places).await.unwrap();
    assert_eq!((after[0], &after[1..]), (BatchAt::ProvenLater, &before[1..]));
    let head = ledger.chain_heads().await.unwrap();
    assert!(matches!(head.as_slice(), [(of, ChainHead { number: 1_003, rows: 1, .. })] if *of == chain));

    let replica = "SET session_replication_role = replica";
    let taken = "DELETE FROM entries WHERE batch = 500";
    let put_back = "INSERT INTO entries SELECT * FROM saved WHERE batch = 500";
    let keep =
        "CREATE TABLE saved AS SELECT * FROM entries; CREATE TABLE saved_batches AS SELECT * FROM batches";
    as_owner(&database, keep).await.unwrap();
    let again = format!("{taken}; {put_back}");
    for (change, undo, found) in [
        (
            "UPDATE entries SET amount = amount + 1 WHERE batch = 500",
            again.as_str(),
            vec!["batches 1 to 999 of chain", "was changed, or is missing"],
        ),
        (taken, put_back, vec!["batch 501 of chain", "follows batch 499", "batches 1 to 999"]),
        (
            "UPDATE entries SET batch = 501 WHERE batch = 500",
            "DELETE FROM entries WHERE batch = 501; INSERT INTO entries SELECT * FROM saved WHERE batch IN (500, 501)",
            vec!["follows batch 499", "batches 1 to 999"],
        ),
        (
            "DELETE FROM batches WHERE number = 1000",
            "INSERT INTO batches SELECT * FROM saved_batches WHERE number = 1000",
            vec!["is in batch 1000", "which does not exist", "batch 1001"],
        ),
    ] {
        as_owner(&database, &format!("{replica}; {change}")).await.unwrap();
        let faults = chain_faults(&ledger).await;
        for name in &found {
            assert!(faults.contains(*name), "{change}: {name}: {faults}");
        }
        as_owner(&database, &format!("{replica}; {undo}")).await.unwrap();
        assert_eq!(chain_faults(&ledger).await, "[]", "{undo}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_only_appended_to_its_chain() {
    let (database, ledger) = batches(3).await;
    let head = ledger.chain_heads().await.unwrap()[0].0.number();
    for number in [1_000, 5, 3, 2, 0] {
        let insert = format!(
            "INSERT INTO batches SELECT {head}, {number}, 1, hash, previous, now() FROM batches WHERE number = 1"
        );
        let error = as_owner(&database, &insert).await.unwrap_err();
        let message = error.as_db_error().unwrap().message();
        assert!(message.contains("does not follow the last one"), "{number}: {message}");
    }
    assert_proven(&ledger).await;
}
