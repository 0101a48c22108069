//! The same id once more, after the gate had forgotten it: whatever events arrive, and in whichever batches, nothing
//! goes to quarantine, and the work is billed once.

use tollgate::domain::reservation::ReservationState;

use super::apply::{assert_proven, book};
use crate::ledger::events::{HOUR_MS, Work, partition, tenant};
use crate::ledger::{ledger, rows};

const DAY_MS: i64 = 86_400_000;

/// What happens to a reservation after its reserve.
#[derive(Debug, Clone, Copy)]
enum Step {
    Part(i64),
    Final(i64),
    Release(i64),
    Extend,
    Expire,
}

use Step::{Expire, Extend, Final, Part, Release};

/// First lives, each resolved, and what they consumed.
const FIRST: [(&[Step], i64); 6] = [
    (&[Expire], 0),
    (&[Release(0)], 0),
    (&[Final(200)], 200),
    (&[Part(100), Expire], 100),
    (&[Expire, Final(200)], 200),
    (&[Release(150)], 150),
];

/// Second lives and what they consume.
const SECOND: [(&[Step], i64); 8] = [
    (&[], 0),
    (&[Final(200)], 200),
    (&[Final(300)], 300),
    (&[Part(100), Extend, Part(150), Final(300)], 300),
    (&[Part(100), Expire], 100),
    (&[Expire, Final(200)], 200),
    (&[Release(0)], 0),
    (&[Release(250)], 250),
];

/// The events of a life that begins so many days later; `meaning` is its request's.
fn life(id: &str, day: i64, meaning: u8, steps: &[Step]) -> Vec<Vec<u8>> {
    let mut work = Work::new(&tenant("acme"), id, &[("ocr.page", 250)]);
    work.record.body.fingerprint.0 = [meaning; 16];
    work.record.head.born_at_ms = HOUR_MS + day * DAY_MS;
    work.rest().hour_start_ms += day * DAY_MS;
    let mut events = vec![work.reserve()];
    for step in steps {
        events.push(match *step {
            Part(total) => work.consume(&[total], false),
            Final(total) => work.consume(&[total], true),
            Release(incurred) => work.release(&[incurred]),
            Extend => work.extend(5_000),
            Expire => work.expire(),
        });
    }
    for (at, event) in (0..).zip(&mut events) {
        let gate_time_ms: i64 = HOUR_MS + day * DAY_MS + at;
        event[2..10].copy_from_slice(&gate_time_ms.to_le_bytes());
    }
    events
}

/// How events are cut into batches.
const CUTS: [usize; 3] = [1, 2, 100];

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_was_admitted_again_is_billed_once_whatever_its_two_outcomes() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let mut billed = 0;
    for (meaning, cut) in [(9, CUTS[0]), (9, CUTS[1]), (9, CUTS[2]), (8, CUTS[0]), (8, CUTS[2])] {
        for (number, (first, done)) in FIRST.into_iter().enumerate() {
            for (other, (second, more)) in SECOND.into_iter().enumerate() {
                let id = format!("job-{meaning}-{cut}-{number}-{other}");
                let mut events = life(&id, 0, 9, first);
                events.extend(life(&id, 2, meaning, second));
                for batch in events.chunks(cut) {
                    let next = ledger.cursor(partition(&acme)).await.unwrap();
                    let from = format!("1-{}", if next.epoch.0 == 0 { 0 } else { next.sequence + 1 });
                    let applied = book(&ledger, &acme, &from, batch.to_vec()).await.unwrap();
                    assert_eq!(applied.quarantined, [], "{first:?} then {second:?} by {cut}");
                }
                // Another request is another job. The same one is one job, of which the larger part was done.
                billed += if meaning == 9 { done.max(more) } else { done + more };
                let sums = "SELECT (sum(consumed) * 100)::bigint AS c FROM balances";
                assert_eq!(
                    rows(&database, sums).await,
                    [billed.to_string()],
                    "{first:?} then {second:?}, meaning {meaning}, by {cut}"
                );
            }
        }
    }
    assert_proven(&ledger).await;
    assert_eq!(rows(&database, "SELECT count(*) FROM quarantine").await, ["0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_consumed_nothing_is_booked_in_its_second_life() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let events = [life("job", 0, 9, &[Expire]), life("job", 2, 9, &[])].concat();
    let applied = book(&ledger, &acme, "1-0", events).await.unwrap();
    assert_eq!((applied.repeats, applied.quarantined.len()), (0, 0), "nothing is to be given back");
    let id = Work::new(&acme, "job", &[]).id;
    let row = ledger.reservation(id).await.unwrap().unwrap();
    assert_eq!((row.state, row.record.head.born_at_ms), (ReservationState::Reserved, HOUR_MS + 2 * DAY_MS));
    let archived = "SELECT state FROM reservations_archive";
    assert_eq!(rows(&database, archived).await, ["expired"]);
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_horizon_the_same_request_is_another_job_whatever_the_outcome_of_the_first() {
    let (database, ledger) = ledger().await;
    let acme = tenant("acme");
    let mut billed = 0;
    for cut in CUTS {
        for (number, (first, done)) in FIRST.into_iter().enumerate() {
            for (other, (second, more)) in SECOND.into_iter().enumerate() {
                let id = format!("job-{cut}-{number}-{other}");
                let mut events = life(&id, 0, 9, first);
                events.extend(life(&id, 36, 9, second));
                for batch in events.chunks(cut) {
                    let next = ledger.cursor(partition(&acme)).await.unwrap();
                    let from = format!("1-{}", if next.epoch.0 == 0 { 0 } else { next.sequence + 1 });
                    let applied = book(&ledger, &acme, &from, batch.to_vec()).await.unwrap();
                    assert_eq!(
                        (applied.repeats, applied.quarantined.len()),
                        (0, 0),
                        "{first:?} then {second:?}"
                    );
                }
                billed += done + more;
                let sums = "SELECT (sum(consumed) * 100)::bigint AS c FROM balances";
                assert_eq!(rows(&database, sums).await, [billed.to_string()], "{first:?} then {second:?}");
            }
        }
    }
    assert_proven(&ledger).await;
}
