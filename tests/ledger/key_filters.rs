//! Keys sealed into filters, in the order of booking.

use std::time::Instant;

use tollgate::domain::ids::ReservationId;
use tollgate::domain::key_filter::{KeyFilter, key_hash};
use tollgate::ledger::{FilterCursor, Ledger, Unbooked};

use super::events::{HOUR_MS, PARTITIONS, Work, partition, tenant};
use super::{as_owner, ledger, rows};
use crate::writer::apply::book;

const DAY_MS: i64 = 86_400_000;

fn jobs(name: &str, from: u32, count: u32) -> Vec<Work> {
    let job = |number: u32| Work::new(&tenant(name), &format!("job-{number}"), &[("ocr.page", 100)]);
    (from..from + count).map(job).collect()
}

async fn book_jobs(ledger: &Ledger, name: &str, jobs: &[Work]) {
    let next = ledger.cursor(partition(&tenant(name))).await.unwrap();
    let from = format!("1-{}", if next.epoch.0 == 0 { 0 } else { next.sequence + 1 });
    book(ledger, &tenant(name), &from, jobs.iter().map(Work::reserve).collect()).await.unwrap();
}

/// Whether the filters there are may know it.
async fn known(ledger: &Ledger, id: ReservationId) -> bool {
    let places = ledger.key_filters().await.unwrap().places;
    let filters = ledger.read_key_filters(&places).await.unwrap();
    assert_eq!(filters.len(), places.len(), "what is listed is there");
    let mut filters = filters.iter();
    filters.any(|(place, filter)| place.partition == id.partition() && filter.contains(key_hash(id)))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_booked_is_sealed_once_and_merged_without_what_is_past_its_horizon() {
    let (database, ledger) = ledger().await;
    assert_eq!(ledger.key_filters().await.unwrap().sealed_ms, None, "nothing is sealed at first");
    let (old, new) = (jobs("acme", 0, 30), jobs("acme", 30, 30));
    book_jobs(&ledger, "acme", &old).await;
    assert_eq!(ledger.seal_keys(HOUR_MS).await.unwrap(), 30);
    assert_eq!(ledger.seal_keys(HOUR_MS + 1).await.unwrap(), 0);
    let listed = ledger.key_filters().await.unwrap();
    assert_eq!(listed.sealed_ms, Some(HOUR_MS + 1));
    let acme = partition(&tenant("acme"));
    assert_eq!(
        listed.places,
        [FilterCursor { partition: acme, number: 1, is_merged: false, made_ms: HOUR_MS }]
    );
    book_jobs(&ledger, "acme", &new).await;
    assert!(!known(&ledger, new[0].id).await, "it is booked, and not sealed yet");
    ledger.seal_keys(HOUR_MS + DAY_MS).await.unwrap();
    let waiting = ledger.mergeable_keys().await.unwrap();
    assert_eq!((waiting.len(), waiting[0].stretches, waiting[0].keys, waiting[0].merged), (1, 2, 60, 0));
    assert_eq!(ledger.merge_keys(acme, HOUR_MS + DAY_MS, 0).await.unwrap(), 60);
    let stretch = FilterCursor { partition: acme, number: 1, is_merged: false, made_ms: HOUR_MS };
    let gone = ledger.read_key_filters(&[stretch]).await.unwrap();
    assert!(gone.is_empty(), "its keys are in the merged one");
    for work in old.iter().chain(&new) {
        assert!(known(&ledger, work.id).await);
    }
    assert_eq!(ledger.merge_keys(acme, HOUR_MS + 36 * DAY_MS, HOUR_MS + 1).await.unwrap(), 30);
    for work in &new {
        assert!(known(&ledger, work.id).await);
    }
    let listed = ledger.key_filters().await.unwrap();
    assert_eq!(
        listed.places,
        [FilterCursor { partition: acme, number: 2, is_merged: true, made_ms: HOUR_MS + 36 * DAY_MS }]
    );
    book_jobs(&ledger, "acme", &jobs("acme", 60, 1)).await;
    ledger.seal_keys(HOUR_MS + 2 * DAY_MS).await.unwrap();
    assert_eq!(ledger.key_filters().await.unwrap().places.len(), 2);
    assert_eq!(ledger.merge_keys(acme, HOUR_MS + 90 * DAY_MS, HOUR_MS + 80 * DAY_MS).await.unwrap(), 0);
    assert_eq!(ledger.key_filters().await.unwrap().places, [], "all are past their horizon");
    assert_eq!(rows(&database, "SELECT count(*) FROM booked_keys").await, ["0"]);
}

/// An event, moved to so many days after its job's birth.
fn on_day(day: i64, mut event: Vec<u8>) -> Vec<u8> {
    event[2..10].copy_from_slice(&(HOUR_MS + day * DAY_MS).to_le_bytes());
    event
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_job_is_sealed_again_each_time_it_is_resolved_more_than_a_day_after_its_birth() {
    let (_database, ledger) = ledger().await;
    let [mut late, mut soon, mut unkeyed] = <[Work; 3]>::try_from(jobs("acme", 0, 3)).ok().unwrap();
    unkeyed.rest().keyed = false;
    let book_all = async |events: Vec<Vec<u8>>| {
        let next = ledger.cursor(partition(&tenant("acme"))).await.unwrap();
        let from = format!("1-{}", if next.epoch.0 == 0 { 0 } else { next.sequence + 1 });
        let applied = book(&ledger, &tenant("acme"), &from, events).await.unwrap();
        assert_eq!(applied.quarantined, []);
    };
    book_all(vec![late.reserve(), soon.reserve(), unkeyed.reserve()]).await;
    assert_eq!(ledger.seal_keys(HOUR_MS).await.unwrap(), 2);
    book_all(vec![late.expire(), soon.consume(&[100], true), unkeyed.expire()]).await;
    assert_eq!(ledger.seal_keys(HOUR_MS + DAY_MS).await.unwrap(), 0, "it stands in the stretch of its birth");
    let part = on_day(6, late.consume(&[50], false));
    book_all(vec![part, on_day(6, unkeyed.consume(&[100], true))]).await;
    assert_eq!(ledger.seal_keys(HOUR_MS + 6 * DAY_MS).await.unwrap(), 1);
    book_all(vec![on_day(7, late.consume(&[100], true))]).await;
    assert_eq!(ledger.seal_keys(HOUR_MS + 7 * DAY_MS).await.unwrap(), 1);
    let acme = partition(&tenant("acme"));
    assert_eq!(ledger.merge_keys(acme, HOUR_MS + 38 * DAY_MS, HOUR_MS + 2 * DAY_MS).await.unwrap(), 2);
    assert!(known(&ledger, late.id).await && !known(&ledger, soon.id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_what_waits_in_quarantine_is_known_however_long_it_waits() {
    let (database, ledger) = ledger().await;
    let mut job = jobs("acme", 0, 1).remove(0);
    job.reserve();
    let consumed_alone = job.consume(&[100], true);
    let applied = book(&ledger, &tenant("acme"), "1-0", vec![consumed_alone]).await.unwrap();
    assert_eq!(applied.quarantined.len(), 1);
    ledger.seal_keys(HOUR_MS).await.unwrap();
    let acme = partition(&tenant("acme"));
    ledger.merge_keys(acme, HOUR_MS + 90 * DAY_MS, HOUR_MS + 50 * DAY_MS).await.unwrap();
    assert!(known(&ledger, job.id).await);
    as_owner(&database, "UPDATE quarantine SET status = 'discarded'").await.unwrap();
    ledger.merge_keys(acme, HOUR_MS + 91 * DAY_MS, HOUR_MS + 51 * DAY_MS).await.unwrap();
    assert!(!known(&ledger, job.id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_partition_and_of_quarantine_are_sealed_and_unkeyed_ones_are_not() {
    let (_database, ledger) = ledger().await;
    let names: Vec<String> = (0..40).map(|number| format!("tenant-{number}")).collect();
    let mut ids = Vec::new();
    for name in &names {
        let mut job = jobs(name, 0, 2);
        job[1].rest().keyed = false;
        ids.push((job[0].id, true));
        ids.push((job[1].id, false));
        book_jobs(&ledger, name, &job).await;
    }
    let mut broken = jobs("tenant-0", 7, 1);
    broken[0].rest().hour_start_ms = i64::MAX;
    book_jobs(&ledger, "tenant-0", &broken).await;
    ids.push((broken[0].id, true));
    ledger.seal_keys(HOUR_MS).await.unwrap();
    let listed = ledger.key_filters().await.unwrap();
    assert_eq!(listed.places.len(), usize::from(PARTITIONS), "one of each partition");
    let mut taken_for_known = 0;
    for (id, is_known) in ids {
        let known = known(&ledger, id).await;
        assert!(known || !is_known, "{id}");
        taken_for_known += u32::from(known && !is_known);
    }
    assert!(taken_for_known < 2, "{taken_for_known} of 40");
    let unbooked = ledger.unbooked_admission(broken[0].id).await.unwrap();
    assert!(matches!(unbooked, Unbooked::Quarantined(record) if record.units == broken[0].record.units));
    assert_eq!(ledger.unbooked_admission(jobs("x", 0, 1)[0].id).await.unwrap(), Unbooked::No);
    let mut orphan = jobs("tenant-1", 9, 1);
    let part = orphan[0].consume(&[1], false);
    let next = ledger.cursor(partition(&tenant("tenant-1"))).await.unwrap().sequence + 1;
    book(&ledger, &tenant("tenant-1"), &format!("1-{next}"), vec![part]).await.unwrap();
    assert_eq!(ledger.unbooked_admission(orphan[0].id).await.unwrap(), Unbooked::Unreadable);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_booked_before_there_were_filters_is_sealed_first() {
    let (database, ledger) = ledger().await;
    let job = jobs("acme", 0, 3);
    book_jobs(&ledger, "acme", &job).await;
    let folder = format!("{}/migrations/2026-11-22-140000_create_key_filters", env!("CARGO_MANIFEST_DIR"));
    for script in ["down.sql", "up.sql"] {
        let statements = std::fs::read_to_string(format!("{folder}/{script}")).unwrap();
        as_owner(&database, &statements).await.unwrap();
    }
    assert_eq!(ledger.seal_keys(HOUR_MS).await.unwrap(), 3);
    assert!(known(&ledger, job[2].id).await);
}

/// Keys as derived ids have them.
fn keys(count: u64, from: u64) -> Vec<u64> {
    let hash = |number: u64| *blake3::hash(&number.to_le_bytes()).as_bytes();
    (from..from + count).map(|number| u64::from_le_bytes(hash(number)[..8].try_into().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_end_that_was_booked_before_keys_were_sealed_again_is_sealed_by_the_migration() {
    let (database, ledger) = ledger().await;
    let [mut late, mut soon] = <[Work; 2]>::try_from(jobs("acme", 0, 2)).ok().unwrap();
    let events = vec![late.reserve(), soon.reserve(), soon.expire(), on_day(3, late.expire())];
    book(&ledger, &tenant("acme"), "1-0", events).await.unwrap();
    as_owner(&database, "DELETE FROM booked_keys").await.unwrap();
    let folder = format!("{}/migrations/2026-11-22-195500_note_late_keys", env!("CARGO_MANIFEST_DIR"));
    for script in ["down.sql", "up.sql"] {
        let statements = std::fs::read_to_string(format!("{folder}/{script}")).unwrap();
        as_owner(&database, &statements).await.unwrap();
    }
    assert_eq!(ledger.seal_keys(HOUR_MS + 3 * DAY_MS).await.unwrap(), 1);
    assert!(known(&ledger, late.id).await);
}

/// A partition of an installation with half a million keyed calls a day: 34 days merged, and every hour since.
#[test]
fn all_filters_together_take_two_bytes_a_key_and_answer_in_a_microsecond() {
    let (merged, hourly, hours) = (270_000, 330, 24);
    let mut filters = vec![KeyFilter::compact(keys(merged, 0)).unwrap()];
    for hour in 0..hours {
        filters.push(KeyFilter::sharp(keys(hourly, merged + hour * hourly)).unwrap());
    }
    let count = usize::try_from(merged + hourly * hours).unwrap();
    let bytes: usize = filters.iter().map(KeyFilter::bytes).sum();
    assert!(bytes <= 2 * count, "{bytes} bytes for {count} keys");
    let fresh = keys(100_000, 1 << 40);
    let knows = |key: &u64| filters.iter().any(|filter| filter.contains(*key));
    let asks = fresh.iter().filter(|key| knows(key)).count();
    assert!(asks * 1000 <= fresh.len() * 5, "{asks} of {} fresh keys ask", fresh.len());
    // The quickest of several rounds: the load of other processes is no cost of the filters.
    let round = |keys: &[u64]| {
        let started = Instant::now();
        let known = keys.iter().filter(|key| knows(key)).count();
        (started.elapsed(), known)
    };
    let quickest = fresh.chunks(2_000).map(|chunk| round(chunk).0).min().unwrap() / 2_000;
    println!("{bytes} bytes for {count} keys, {asks} of {} fresh ones ask, {quickest:?} a call", fresh.len());
    assert!(quickest.as_nanos() <= 1_000, "{quickest:?} a call");
}

/// An installation from before there were filters has its ids in rows of fifty thousand.
#[tokio::test(flavor = "multi_thread")]
async fn however_many_keys_a_row_has_one_transaction_seals_a_bounded_number() {
    let (database, ledger) = ledger().await;
    // Ids of one partition, which is in their thirteenth byte.
    let packed = "INSERT INTO booked_keys (ids) \
                  SELECT (SELECT string_agg(set_byte(substring(sha256(int8send(row * 50000 + n)) FROM 1 FOR 16), 12, 0), '') \
                          FROM generate_series(1, 50000) n) FROM generate_series(1, 6) row";
    as_owner(&database, packed).await.unwrap();
    assert_eq!(ledger.seal_keys(HOUR_MS).await.unwrap(), 300_000);
    let largest = "SELECT sum(length(keys) / 8) FROM key_stretches GROUP BY number ORDER BY 1 DESC LIMIT 1";
    assert_eq!(rows(&database, largest).await, ["250000"]);
    assert_eq!(rows(&database, "SELECT count(*) FROM booked_keys").await, ["0"]);
    let listed = ledger.key_filters().await.unwrap();
    assert_eq!(listed.sealed_ms, Some(HOUR_MS), "sealed once all of them are");
}
