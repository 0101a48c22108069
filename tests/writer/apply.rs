use std::sync::Arc;

use tollgate::domain::ids::TenantId;
use tollgate::ledger::{Conflict, Ledger, LedgerError};
use tollgate::writer::{Applied, PartitionEvents, apply};

use crate::ledger::events::{Work, at, outbox, partition, tenant};
use crate::ledger::{ledger, rows};

const BALANCES: &str = "SELECT meter, available::float8 AS a, reserved::float8 AS r, consumed::float8 AS c FROM balances ORDER BY 1";
const USAGE: &str = "SELECT meter, subject, consumed::float8 AS c, count AS n, excess::float8 AS e, late::float8 AS l FROM usage_hourly ORDER BY 1, 2";

async fn book(
    ledger: &Ledger,
    tenant: &TenantId,
    from: &str,
    events: Vec<Vec<u8>>,
) -> Result<Applied, LedgerError> {
    let booked = ledger.cursor(partition(tenant)).await.unwrap();
    let events = outbox(at(from), events);
    let part = PartitionEvents { partition: partition(tenant), booked, events, gaps: Vec::new() };
    apply(ledger, vec![part], &Arc::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_goes_through_the_books_to_the_unit() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let mut work = Work::new(&acme, "job-1", &[("ocr.page", 600), ("llm.token", 100)]);
    let events = vec![
        work.reserve(),
        work.consume(&[100, 0], false),
        work.extend(5_000),
        work.consume(&[200, 150], true),
    ];
    let applied = book(&ledger, &acme, "1-0", events).await.unwrap();
    assert_eq!((applied.events, applied.entries, applied.quarantined.len()), (4, 7, 0));
    assert_eq!(rows(&database, BALANCES).await, ["llm.token -1.5 0 1.5", "ocr.page -2 0 2"]);
    assert_eq!(rows(&database, USAGE).await, ["llm.token 0 1.5 1 0.5 0", "ocr.page 0 2 1 0 0"]);
    let row = ledger.reservation(work.id).await.unwrap().unwrap();
    assert_eq!((row.step, row.last_event, row.resolved_at_ms.is_some()), (4, at("1-3"), true));
    assert_eq!(row.record.units, work.record.units);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_events_cannot_be_booked_twice() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let work = Work::new(&acme, "job-1", &[("ocr.page", 600)]);
    let part = PartitionEvents {
        partition: partition(&acme),
        booked: at("0-0"),
        events: outbox(at("1-0"), [work.reserve()]),
        gaps: Vec::new(),
    };
    apply(&ledger, vec![part.clone()], &Arc::default()).await.unwrap();
    let again = apply(&ledger, vec![part], &Arc::default()).await.unwrap_err();
    assert!(matches!(again, LedgerError::Conflict(Conflict::CursorMoved(_))), "{again}");
    assert_eq!(rows(&database, BALANCES).await, ["ocr.page -6 6 0"]);
}
