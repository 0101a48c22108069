use tollgate::domain::ids::{Epoch, Partition, ReservationId, TenantId};
use tollgate::domain::reservation::ReservationState;
use tollgate::domain::usage::{Granularity, GroupBy};
use tollgate::ledger::{
    EntryFilter, EntryPlace, Ledger, LedgerError, PartitionRow, ReservationFilter, UsageQuery,
};

use super::events::{HOUR_MS, PERIOD_END_MS, PERIOD_START_MS, Work, meter, partition, tenant, user};
use super::ledger;
use crate::support::services::TestDatabase;
use crate::writer::apply::book;

const HOUR: i64 = 3_600_000;

/// Six pieces of usage of 1.00, 2.00 … in six different hours across a midnight of Kolkata, and two of another tenant.
pub(super) async fn used() -> (TestDatabase, Ledger) {
    let (database, ledger) = ledger().await;
    let (acme, other) = (tenant("acme"), tenant("beta"));
    for (tenant, count) in [(&acme, 6), (&other, 2)] {
        let mut events = Vec::new();
        for n in 0..count {
            let who = if n % 2 == 0 { "anna" } else { "ben" };
            let lines = [("ocr.page", (n + 1) * 100), ("llm.token", 1)];
            let mut work = Work::new(tenant, &format!("job-{n}"), &lines).named(&[user(who)]);
            work.rest().hour_start_ms = HOUR_MS + (n + 5) * HOUR + HOUR / 2;
            work.record.head.born_at_ms += n;
            events.push(work.usage());
        }
        let next = ledger.cursor(partition(tenant)).await.unwrap();
        let from = if next.epoch.0 == 0 { 0 } else { next.sequence + 1 };
        book(&ledger, tenant, &format!("1-{from}"), events).await.unwrap();
    }
    (database, ledger)
}

pub(super) fn query(tenant: Option<TenantId>) -> UsageQuery {
    UsageQuery {
        tenant,
        meter: Some(meter("ocr.page")),
        subject: None,
        from_ms: PERIOD_START_MS,
        to_ms: PERIOD_END_MS,
        granularity: None,
        zones: vec![(0, "Asia/Kolkata".into())],
        group_by: Vec::new(),
        after: None,
        limit: 100,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_summed_by_hour_day_and_month_of_a_zone() {
    let (_database, ledger) = used().await;
    let figures = async |granularity| {
        let page = ledger.usage(&UsageQuery { granularity, ..query(Some(tenant("acme"))) }).await.unwrap();
        page.rows
            .iter()
            .map(|row| (row.start_ms, row.consumed.normalize().to_string(), row.count))
            .collect::<Vec<_>>()
    };
    assert_eq!(figures(None).await, [(None, "21".into(), 6)]);
    assert_eq!(
        figures(Some(Granularity::Hour)).await[0],
        (Some(HOUR_MS + 10 * HOUR + HOUR / 2), "6".into(), 1)
    );
    // Midnight of Kolkata is 18:30 UTC, eight and a half hours behind the first.
    let midnight = HOUR_MS + 8 * HOUR + HOUR / 2;
    let days = [(Some(midnight), "15".into(), 3), (Some(midnight - 24 * HOUR), "6".into(), 3)];
    assert_eq!(figures(Some(Granularity::Day)).await, days);
    let month = [(Some(PERIOD_START_MS - 11 * HOUR / 2), "21".into(), 6)];
    assert_eq!(figures(Some(Granularity::Month)).await, month);
    let mars = UsageQuery {
        zones: vec![(0, "Mars/Olympus".into())],
        granularity: Some(Granularity::Day),
        ..query(None)
    };
    let unknown = ledger.usage(&mars).await;
    assert!(matches!(unknown, Err(LedgerError::Refused(_))), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_told_apart_by_tenant_operation_and_subject_page_by_page() {
    let (_database, ledger) = used().await;
    let groups = vec![GroupBy::Tenant, GroupBy::Plan, GroupBy::Operation, GroupBy::Subject];
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = ledger
            .usage(&UsageQuery { group_by: groups.clone(), after, limit: 3, ..query(None) })
            .await
            .unwrap();
        after = page.rows.last().map(|row| row.place.clone());
        found.extend(page.rows.iter().map(|row| {
            let who = row.subject.as_ref().unwrap().id.to_string();
            (
                row.tenant.as_ref().unwrap().to_string(),
                row.operation.clone().unwrap(),
                who,
                row.consumed.normalize().to_string(),
            )
        }));
        if page.rows.len() < 3 {
            break;
        }
    }
    let row = |tenant: &str, who: &str, consumed: &str| {
        (tenant.into(), "ocr.submit".into(), who.into(), consumed.into())
    };
    assert_eq!(
        found,
        [
            row("acme", "anna", "9"),
            row("acme", "ben", "12"),
            row("beta", "anna", "1"),
            row("beta", "ben", "2")
        ]
    );
    let anna = ledger
        .usage(&UsageQuery { subject: Some(user("anna")), ..query(Some(tenant("acme"))) })
        .await
        .unwrap();
    assert_eq!((anna.rows.len(), anna.rows[0].consumed.normalize().to_string()), (1, "9".into()));
    let mut hourly =
        UsageQuery { granularity: Some(Granularity::Hour), limit: 2, ..query(Some(tenant("acme"))) };
    let mut starts = Vec::new();
    for _ in 0..4 {
        let page = ledger.usage(&hourly).await.unwrap();
        starts.extend(page.rows.iter().map(|row| (row.start_ms.unwrap() - HOUR_MS) / HOUR));
        hourly.after = page.rows.last().map(|row| row.place.clone()).or(hourly.after);
    }
    assert_eq!(starts, [10, 9, 8, 7, 6, 5]);
}

/// The event, at another time.
fn at_ms(mut event: Vec<u8>, ms: i64) -> Vec<u8> {
    event[2..10].copy_from_slice(&ms.to_le_bytes());
    event
}

#[tokio::test(flavor = "multi_thread")]
async fn the_entries_of_a_reservation_are_found_however_far_apart_they_happened() {
    let (_database, ledger) = ledger().await;
    let acme = tenant("acme");
    let mut work = Work::new(&acme, "job", &[("ocr.page", 600)]);
    let filter = EntryFilter { reservation: Some(work.id), ..EntryFilter::default() };
    assert_eq!(ledger.entries_of(&acme, &filter, None, 10).await.unwrap(), []);
    let events = vec![
        work.reserve(),
        at_ms(work.consume(&[100], false), HOUR_MS + 20 * 24 * HOUR),
        // The clock was set back by half a day.
        at_ms(work.expire(), HOUR_MS + 20 * 24 * HOUR - 12 * HOUR),
        at_ms(work.consume(&[250], true), HOUR_MS + 40 * 24 * HOUR),
    ];
    let count = async |filter: &EntryFilter| ledger.entries_of(&acme, filter, None, 10).await.unwrap().len();
    for (number, (event, entries)) in events.into_iter().zip([1, 2, 3, 4]).enumerate() {
        book(&ledger, &acme, &format!("1-{number}"), vec![event]).await.unwrap();
        assert_eq!(count(&filter).await, entries, "after event {number}");
    }
    let early = EntryFilter { to_ms: Some(HOUR_MS + HOUR), ..filter.clone() };
    let late = EntryFilter { from_ms: Some(HOUR_MS + HOUR), ..filter.clone() };
    assert_eq!((count(&early).await, count(&late).await), (1, 3));
    let far_ms = HOUR_MS + 400 * 24 * HOUR;
    assert_eq!(ledger.archive_reservations(far_ms, far_ms, 10).await.unwrap(), 1);
    assert_eq!(count(&filter).await, 4, "also of an archived one");
}

/// Whose entries, and when they happened in ms, page by page.
async fn listed_entries(ledger: &Ledger, filter: &EntryFilter, page: usize) -> Vec<(String, i64)> {
    let (mut listed, mut place) = (Vec::new(), None);
    loop {
        let found = ledger.entries(None, filter, place.as_ref(), page).await.unwrap();
        place = found.last().map(|last| EntryPlace { tenant: last.entry.tenant.clone(), at: last.place() });
        let is_last = found.len() < page;
        listed.extend(found.iter().map(|found| (found.entry.tenant.to_string(), found.entry.happened_at_ms)));
        if is_last {
            return listed;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_all_tenants_are_listed_by_tenant_whatever_the_pages() {
    let (_database, ledger) = used().await;
    let filter = EntryFilter { meter: Some(meter("ocr.page")), ..EntryFilter::default() };
    let acme = (0..6).rev().map(|ms| ("acme", ms));
    let expected: Vec<_> = [("beta", 1), ("beta", 0)]
        .into_iter()
        .chain(acme)
        .map(|(tenant, ms)| (tenant.to_owned(), HOUR_MS + ms))
        .collect();
    for page in [1, 2, 3, 6, 7, 8, 100] {
        assert_eq!(listed_entries(&ledger, &filter, page).await, expected, "in pages of {page}");
    }
    let early = EntryFilter { to_ms: Some(HOUR_MS + 1), ..filter };
    assert_eq!(
        listed_entries(&ledger, &early, 1).await,
        [("beta".into(), HOUR_MS), ("acme".into(), HOUR_MS)]
    );
    let of_one = EntryFilter { reservation: Some(ReservationId::from_bytes([1; 16])), ..early };
    let refused = ledger.entries(None, &of_one, None, 1).await;
    assert!(matches!(refused, Err(LedgerError::Refused(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_booked_later_is_not_among_the_entries_of_before() {
    let (_database, ledger) = used().await;
    let asked_ms = ledger.now_ms().await.unwrap();
    let booked_by = ledger.booked_by_now().await.unwrap();
    let as_of_ms = booked_by.as_of_ms();
    assert!((asked_ms..=ledger.now_ms().await.unwrap()).contains(&as_of_ms), "by the database's clock");
    let nothing = EntryFilter { booked_by: Some(booked_by), ..EntryFilter::default() };
    let before = listed_entries(&ledger, &nothing, 3).await;
    assert_eq!(before.len(), 16);
    let acme = tenant("acme");
    let next = ledger.cursor(partition(&acme)).await.unwrap().sequence + 1;
    let mut late = Work::new(&acme, "late", &[("ocr.page", 100)]);
    // It happened before what is in the books.
    late.record.head.born_at_ms -= HOUR;
    book(&ledger, &acme, &format!("1-{next}"), vec![late.usage()]).await.unwrap();
    assert_eq!(listed_entries(&ledger, &nothing, 3).await, before);
    assert_eq!(listed_entries(&ledger, &EntryFilter::default(), 3).await.len(), 17);
    let of_acme = ledger.entries(Some(&acme), &nothing, None, 100).await.unwrap();
    assert_eq!(of_acme.len(), 12);
    assert!(of_acme.iter().all(|entry| entry.booked_at_ms <= as_of_ms), "{of_acme:?}");
    let with_late = ledger.entries(Some(&acme), &EntryFilter::default(), None, 100).await.unwrap();
    assert!(with_late.iter().map(|entry| entry.booked_at_ms).max() >= Some(as_of_ms), "{with_late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_and_reservations_are_listed_newest_first_and_only_the_tenants_own() {
    let (_database, ledger) = used().await;
    let acme = tenant("acme");
    let filter = EntryFilter { meter: Some(meter("ocr.page")), ..EntryFilter::default() };
    let (mut entries, mut place) = (Vec::new(), None);
    for _ in 0..4 {
        let page = ledger.entries_of(&acme, &filter, place, 2).await.unwrap();
        place = page.last().map(|entry| entry.place()).or(place);
        entries.extend(page);
    }
    assert_eq!(entries.len(), 6);
    assert!(entries.iter().all(|stored| stored.entry.tenant == acme));
    let places: Vec<_> = entries.iter().map(|stored| stored.place().operation_id).collect();
    let instants: Vec<_> = entries.iter().map(|stored| stored.place().happened_at_ms - HOUR_MS).collect();
    assert_eq!(instants, [5, 4, 3, 2, 1, 0], "each at its record's birth");
    let fourth = Some(ReservationId::from_bytes(places[3].into_bytes()));
    let one = EntryFilter { reservation: fourth, ..EntryFilter::default() };
    assert_eq!(ledger.entries_of(&acme, &one, None, 10).await.unwrap().len(), 2);
    assert_eq!(ledger.entries_of(&tenant("beta"), &one, None, 10).await.unwrap().len(), 0);
    let later = EntryFilter { from_ms: Some(HOUR_MS + 3), ..EntryFilter::default() };
    assert_eq!(ledger.entries_of(&acme, &later, None, 10).await.unwrap().len(), 6);

    let (mut born, mut place) = (Vec::new(), None);
    for _ in 0..4 {
        let page = ledger.reservations_of(&acme, &ReservationFilter::default(), place, 2).await.unwrap();
        place = page.last().map(|listed| listed.place).or(place);
        born.extend(page.iter().map(|listed| listed.place.born_at_ms - HOUR_MS));
    }
    assert_eq!(born, [5, 4, 3, 2, 1, 0]);
    let count = async |filter: ReservationFilter| {
        ledger.reservations_of(&acme, &filter, None, 100).await.unwrap().len()
    };
    assert_eq!(
        count(ReservationFilter { subject: Some(user("anna")), ..ReservationFilter::default() }).await,
        3
    );
    assert_eq!(
        count(ReservationFilter { subject: Some(user("nobody")), ..ReservationFilter::default() }).await,
        0
    );
    assert_eq!(
        count(ReservationFilter { state: Some(ReservationState::Reserved), ..ReservationFilter::default() })
            .await,
        0
    );
    assert_eq!(
        count(ReservationFilter { meter: Some(meter("llm.token")), ..ReservationFilter::default() }).await,
        6
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_is_issued_once_however_many_ask() {
    let (_database, ledger) = ledger().await;
    let known = ledger.epochs().await.unwrap();
    let from: Vec<_> = known.iter().map(|row| (row.partition, row.epoch, row.epoch)).collect();
    let next: Vec<_> = from.iter().map(|(partition, epoch, _)| (*partition, Epoch(epoch.0 + 1))).collect();
    let raise = |node| ledger.raise_epochs(&from, node);
    let (one, other) = tokio::join!(raise("node-2"), raise("node-3"));
    assert_eq!((one.unwrap(), other.unwrap()), (next.clone(), next.clone()));
    let issued = ledger.epochs().await.unwrap();
    assert!(["node-2", "node-3"].contains(&issued[0].run_id.as_str()));
    assert!(issued.iter().all(|row| row.run_id == issued[0].run_id), "all by one transaction: {issued:?}");
    assert_eq!(raise("node-5").await.unwrap(), next, "who comes late is told what is issued");
    let lost: Vec<_> = issued.iter().map(|row| (row.partition, row.epoch, Epoch(row.epoch.0 + 2))).collect();
    let behind = ledger.raise_epochs(&lost, "node-6").await.unwrap();
    let above = |(issued, now): (&PartitionRow, &(Partition, Epoch))| now.1.0 == issued.epoch.0 + 3;
    assert!(issued.iter().zip(&behind).all(above), "above those that the memory has: {behind:?}");
    let (row, now) = (&known[2], &ledger.epochs().await.unwrap()[2]);
    ledger.verified_on(row.partition, now.epoch, "node-4").await.unwrap();
    assert_eq!(ledger.epochs().await.unwrap().remove(2).run_id, "node-4");
}
