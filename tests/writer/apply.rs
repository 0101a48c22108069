use std::sync::Arc;
use std::time::Duration;

use tollgate::domain::ids::TenantId;
use tollgate::domain::reservation::ReservationState;
use tollgate::ledger::{AwaitedEvent, Booked, Conflict, Ledger, LedgerError, VerifyOptions, verify};
use tollgate::writer::{Applied, PartitionEvents, apply, discard, retry};

use crate::ledger::events::{HOUR_MS, Work, at, outbox, partition, tenant, user};
use crate::ledger::{as_owner, ledger, rows};
use crate::support::wait::wait_for;

const BALANCES: &str = "SELECT meter, available::float8 AS a, reserved::float8 AS r, consumed::float8 AS c FROM balances ORDER BY tenant, 1";
const USAGE: &str = "SELECT meter, subject, consumed::float8 AS c, count AS n, excess::float8 AS e, late::float8 AS l FROM usage_hourly ORDER BY 1, 2";
const LOOKUPS: &str = "SELECT sum(idx_scan) >= 20 AS i, sum(seq_tup_read)::bigint AS s FROM pg_stat_user_tables WHERE relname LIKE 'reservations%'";
const ENTRIES: &str = "SELECT step, line, leg, credit, debit, amount::float8 AS a, excess, late FROM entries ORDER BY 1, 2, 3, 6";

/// Books events that follow the tenant's cursor, as `from` on.
pub async fn book(
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

/// The books prove themselves, and nothing waits.
pub async fn assert_proven(ledger: &Ledger) {
    for rebuild in [false, true] {
        let report = verify(ledger, VerifyOptions { rebuild, ..VerifyOptions::default() }).await.unwrap();
        assert!(report.is_clean(), "{report:#?}");
    }
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
    assert_eq!(
        rows(&database, ENTRIES).await,
        [
            "1 0 0 available reserved 6 false false",
            "1 1 0 available reserved 1 false false",
            "2 0 0 reserved consumed 1 false false",
            "4 0 0 reserved consumed 1 false false",
            "4 0 1 reserved available 4 false false",
            "4 1 0 reserved consumed 1 false false",
            "4 1 1 available consumed 0.5 true false",
        ]
    );
    let row = ledger.reservation(work.id).await.unwrap().unwrap();
    assert_eq!((row.step, row.last_event, row.resolved_at_ms), (4, at("1-3"), Some(HOUR_MS)));
    assert_eq!(row.record.units, work.record.units);
    assert_eq!(row.record.head.expires_at_ms, work.record.head.expires_at_ms);
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_batch_or_many_end_in_the_same_books() {
    let mut books = Vec::new();
    for together in [true, false] {
        let (database, ledger) = ledger().await;
        let acme = tenant("acme");
        let mut work = Work::new(&acme, "job-1", &[("ocr.page", 600)]).named(&[user("anna"), user("ben")]);
        let mut late = Work::new(&acme, "job-2", &[("ocr.page", 300)]);
        let mut usage = Work::new(&acme, "job-3", &[("ocr.page", 50)]).named(&[user("anna")]);
        let mut given_back = Work::new(&acme, "job-4", &[("ocr.page", 80)]);
        let events = vec![
            work.reserve(),
            late.reserve(),
            work.consume(&[100], false),
            late.expire(),
            usage.usage(),
            given_back.reserve(),
            work.consume(&[700], true),
            late.consume(&[40], true),
            given_back.release(&[30]),
        ];
        if together {
            book(&ledger, &acme, "1-0", events).await.unwrap();
        } else {
            for (sequence, event) in events.into_iter().enumerate() {
                book(&ledger, &acme, &format!("1-{sequence}"), vec![event]).await.unwrap();
            }
        }
        assert_proven(&ledger).await;
        assert_eq!(rows(&database, BALANCES).await, ["ocr.page -8.2 0 8.2"]);
        let sums = "SELECT coalesce(s.id, '') AS who, consumed::float8 AS c, count AS n, excess::float8 AS e, late::float8 AS l \
                    FROM usage_hourly u LEFT JOIN subjects s ON s.number = u.subject ORDER BY 1";
        assert_eq!(rows(&database, sums).await, [" 8.2 4 1 0.4", "anna 7.5 2 1 0", "ben 7 1 1 0"]);
        books.push(rows(&database, ENTRIES).await);
    }
    assert_eq!(books[0], books[1]);
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

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_at_once_book_a_batch_once() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let works: Vec<Work> =
        (0..50).map(|n| Work::new(&acme, &format!("job-{n}"), &[("ocr.page", 100)])).collect();
    let part = PartitionEvents {
        partition: partition(&acme),
        booked: at("0-0"),
        events: outbox(at("1-0"), works.iter().map(Work::reserve)),
        gaps: Vec::new(),
    };
    let fail_points = Arc::default();
    let (one, other) = tokio::join!(
        apply(&ledger, vec![part.clone()], &fail_points),
        apply(&ledger, vec![part.clone()], &fail_points)
    );
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    assert_eq!(rows(&database, BALANCES).await, ["ocr.page -50 50 0"]);
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_comes_again_as_a_new_event_books_nothing() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let mut work = Work::new(&acme, "job-1", &[("ocr.page", 600)]);
    let reserve = work.reserve();
    book(&ledger, &acme, "1-0", vec![reserve, work.consume(&[200], true)]).await.unwrap();
    let again = Work::new(&acme, "job-1", &[("ocr.page", 600)]);
    let applied = book(&ledger, &acme, "1-2", vec![again.reserve()]).await.unwrap();
    assert_eq!((applied.repeats, applied.entries), (1, 0));
    assert_eq!(rows(&database, "SELECT epoch, sequence FROM repeats").await, ["1 2"]);
    assert_eq!(rows(&database, BALANCES).await, ["ocr.page -2 0 2"]);
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_request_under_a_booked_id_goes_to_quarantine_with_all_that_follows_it() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let work = Work::new(&acme, "job-1", &[("ocr.page", 600)]);
    let mut other = Work::new(&acme, "job-1", &[("ocr.page", 900)]);
    other.record.body.fingerprint.0 = [8; 16];
    let innocent = Work::new(&acme, "job-2", &[("ocr.page", 100)]);
    let events = vec![work.reserve(), other.reserve(), other.consume(&[900], true), innocent.reserve()];
    let applied = book(&ledger, &acme, "1-0", events).await.unwrap();
    assert_eq!((applied.events, applied.quarantined.len()), (2, 2));
    assert_eq!(rows(&database, BALANCES).await, ["ocr.page -7 7 0"]);
    let awaited = |id, step, event| AwaitedEvent { reservation: id, step, event: at(event) };
    let asked = [
        (awaited(work.id, 1, "1-0"), Booked::Yes),
        (awaited(work.id, 2, "1-2"), Booked::Quarantined),
        (awaited(innocent.id, 1, "1-3"), Booked::Yes),
        (awaited(innocent.id, 2, "1-4"), Booked::NotYet),
    ];
    let (events, expected): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    assert_eq!(ledger.are_booked(&events).await.unwrap(), expected);
    assert!(ledger.reservation(work.id).await.unwrap().unwrap().quarantined);
    let waiting = ledger.quarantined(false, None, 10).await.unwrap();
    assert_eq!(waiting.iter().map(|event| event.outbox_id).collect::<Vec<_>>(), [at("1-1"), at("1-2")]);
    assert_proven(&ledger).await;
    let unbilled = discard(&ledger, partition(&acme), at("1-1"), "anna", "a test").await.unwrap();
    assert!(unbilled.starts_with("nothing of"), "{unbilled}");
    let missing = discard(&ledger, partition(&acme), at("1-1"), "anna", "a test").await.unwrap_err();
    assert!(matches!(missing, LedgerError::Conflict(Conflict::Missing { .. })), "{missing}");
    assert_eq!(ledger.count_quarantined().await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discard_says_what_it_leaves_unbilled_and_is_audited_with_it_and_its_reason() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let mut work = Work::new(&acme, "job-1", &[("ocr.page", 600)]);
    let events = vec![work.reserve(), work.consume(&[200], false)];
    book(&ledger, &acme, "1-0", events).await.unwrap();
    let waits = "INSERT INTO quarantine (partition, epoch, sequence, reservation_id, tenant, event, reason) \
                 SELECT partition, 0, 0, id, tenant, 'torn', 'a test' FROM reservations";
    as_owner(&database, waits).await.unwrap();
    book(&ledger, &acme, "1-2", vec![work.consume(&[500], true)]).await.unwrap();
    let torn = discard(&ledger, partition(&acme), at("0-0"), "anna", "test data").await.unwrap();
    assert!(torn.contains("cannot be read"), "{torn}");
    let unbilled = discard(&ledger, partition(&acme), at("1-2"), "anna", "billed by hand").await.unwrap();
    assert!(unbilled.starts_with("3 ocr.page of reservation"), "{unbilled}");
    let audited = "SELECT detail->>'reason' AS r, detail->>'unbilled' AS u FROM audit_log ORDER BY 1";
    assert_eq!(
        rows(&database, audited).await,
        [format!("billed by hand {unbilled}"), format!("test data {torn}")]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn events_in_quarantine_are_booked_in_order_once_they_can_be() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let mut work = Work::new(&acme, "job-1", &[("ocr.page", 600)]);
    let reserve = work.reserve();
    let (part, whole) = (work.consume(&[100], false), work.consume(&[200], true));
    // The reserve is missing: it was never booked, so the consumes wait.
    book(&ledger, &acme, "1-0", vec![part, whole]).await.unwrap();
    let retried = retry(&ledger, partition(&acme), at("1-1"), "test").await.unwrap();
    assert_eq!((retried.resolved, retried.waiting), (0, 2));
    // The lost reserve is found again, and put before the events that wait for it.
    let reserve: String = reserve.iter().map(|byte| format!("{byte:02x}")).collect();
    let found = format!(
        "UPDATE quarantine SET sequence = sequence + 10; \
         INSERT INTO quarantine (partition, epoch, sequence, reservation_id, event, reason) \
         SELECT partition, 1, 0, reservation_id, '\\x{reserve}', 'found again' FROM quarantine LIMIT 1"
    );
    crate::ledger::as_owner(&database, &found).await.unwrap();
    let retried = retry(&ledger, partition(&acme), at("1-10"), "test").await.unwrap();
    assert_eq!((retried.resolved, retried.waiting), (3, 0), "{:?}", ledger.quarantined(true, None, 10).await);
    assert_eq!(rows(&database, BALANCES).await, ["ocr.page -2 0 2"]);
    assert_eq!(ledger.reservation(work.id).await.unwrap().unwrap().state, ReservationState::Consumed);
}

const CLOSED: &str = "INSERT INTO period_closures (tenant, meter, period_start, period_end, closed_at, lapsed, overage, is_final) \
     VALUES ('acme', 'ocr.page', '2025-12-01Z', '2026-01-01Z', '2026-01-01 01:00Z', 0, 0, true)";
const BILLED: &str = "INSERT INTO billing (tenant, billed_until, begun_at, next_end) \
     VALUES ('acme', '2026-01-01Z', '2025-12-01Z', '2026-02-01Z')";

#[rstest::rstest]
#[case::closed(CLOSED)]
#[case::billed(BILLED)]
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_out_of_quarantine_leaves_a_period_as_it_was_closed_and_billed(#[case] meanwhile: &str) {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let mut work = Work::new(&acme, "job-1", &[("ocr.page", 600)]);
    let (reserve, consume) = (work.reserve(), work.consume(&[200], true));
    book(&ledger, &acme, "1-0", vec![consume]).await.unwrap();
    let reserve: String = reserve.iter().map(|byte| format!("{byte:02x}")).collect();
    let found = format!(
        "UPDATE quarantine SET sequence = sequence + 10; \
         INSERT INTO quarantine (partition, epoch, sequence, reservation_id, event, reason) \
         SELECT partition, 1, 0, reservation_id, '\\x{reserve}', 'found again' FROM quarantine LIMIT 1; \
         INSERT INTO tenants (id, partition, version, definition) VALUES ('acme', {}, 1, '{{\"id\": \"acme\"}}'); {meanwhile}",
        partition(&acme).number()
    );
    crate::ledger::as_owner(&database, &found).await.unwrap();
    let retried = retry(&ledger, partition(&acme), at("1-10"), "test").await.unwrap();
    assert_eq!((retried.resolved, retried.waiting), (2, 0), "{:?}", ledger.quarantined(true, None, 10).await);
    let months = "SELECT DISTINCT to_char(period_start AT TIME ZONE 'UTC', 'YYYY-MM') AS month FROM entries";
    assert_eq!(rows(&database, months).await, ["2026-01"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undecodable_event_goes_to_quarantine_and_the_partition_goes_on() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let good = Work::new(&acme, "job-1", &[("ocr.page", 600)]);
    let mut cut = Work::new(&acme, "job-2", &[("ocr.page", 600)]);
    let mut damaged = cut.reserve();
    damaged.truncate(60);
    let elsewhere = Work::new(&tenant("elsewhere-2"), "job-1", &[("ocr.page", 600)]);
    assert_ne!(partition(&tenant("elsewhere-2")), partition(&acme));
    let mut ancient = Work::new(&acme, "job-3", &[("ocr.page", 600)]);
    ancient.rest().hour_start_ms = i64::MAX;
    let events = vec![
        b"rubbish".to_vec(),
        Vec::new(),
        damaged,
        cut.consume(&[1], true),
        elsewhere.reserve(),
        ancient.reserve(),
        good.reserve(),
    ];
    let applied = book(&ledger, &acme, "1-0", events).await.unwrap();
    assert_eq!((applied.events, applied.quarantined.len()), (1, 6));
    assert_eq!(rows(&database, BALANCES).await, ["ocr.page -6 6 0"]);
    assert_eq!(ledger.cursor(partition(&acme)).await.unwrap(), at("1-6"));
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_ends_at_its_checkpoint_and_a_damaged_one_goes_to_quarantine_without_a_reservation() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let job = |n: u8| Work::new(&acme, &format!("job-{n}"), &[("ocr.page", 100)]).reserve();
    let damaged = [vec![1, 7], vec![0; 40]].concat();
    let applied = book(&ledger, &acme, "1-0", vec![job(1), damaged, job(2)]).await.unwrap();
    assert_eq!((applied.events, applied.quarantined.len()), (1, 1), "{applied:?}");
    assert_eq!(ledger.cursor(partition(&acme)).await.unwrap(), at("1-1"));
    assert_eq!(ledger.quarantined(false, None, 10).await.unwrap()[0].reservation, None);
    assert_eq!(rows(&database, BALANCES).await, ["ocr.page -1 1 0"]);
    book(&ledger, &acme, "1-2", vec![job(2)]).await.unwrap();
    assert_eq!(rows(&database, BALANCES).await, ["ocr.page -2 2 0"], "what follows is booked after it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_month_is_made_and_never_blamed_on_the_event() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    book(&ledger, &acme, "1-0", vec![Work::new(&acme, "job-1", &[("ocr.page", 600)]).reserve()])
        .await
        .unwrap();
    // Dropped without the writer's knowledge, which takes it for known.
    crate::ledger::as_owner(
        &database,
        "ALTER TABLE entries DETACH PARTITION entries_2025_12; DROP TABLE entries_2025_12",
    )
    .await
    .unwrap();
    let event = || vec![Work::new(&acme, "job-2", &[("ocr.page", 600)]).reserve()];
    let error = book(&ledger, &acme, "1-1", event()).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let applied = book(&ledger, &acme, "1-1", event()).await.unwrap();
    assert_eq!((applied.events, applied.quarantined.len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cap_kept_uncharged_is_kept_with_the_reservation() {
    let (_database, ledger) = ledger().await;
    let acme = tenant("acme");
    let mut work = Work::new(&acme, "job-1", &[("ocr.page", 600)]);
    book(&ledger, &acme, "1-0", vec![work.reserve(), work.consume_capped(&[650], &[70])]).await.unwrap();
    let row = ledger.reservation(work.id).await.unwrap().unwrap();
    assert_eq!(row.record.units.iter().map(|line| line.uncharged.get()).collect::<Vec<_>>(), [70]);
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reservations_are_looked_up_by_index_however_small_the_table_was_at_first() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    for number in 0..20 {
        let reserve = Work::new(&acme, &format!("job-{number}"), &[("ocr.page", 100)]).reserve();
        book(&ledger, &acme, &format!("1-{number}"), vec![reserve]).await.unwrap();
        // A table of one page is read faster as a whole, and Postgres now knows that it is one.
        as_owner(&database, "ANALYZE reservations").await.unwrap();
    }
    // Postgres publishes a connection's statistics when it ends.
    drop(ledger);
    let told = wait_for("the connections have ended", Duration::from_secs(20), async || {
        let told = rows(&database, LOOKUPS).await;
        told[0].starts_with("true").then_some(told)
    });
    assert_eq!(told.await, ["true 0"]);
}
