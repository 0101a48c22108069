//! The loop, killed at each step and going on; on outboxes that are kept by hand and on real ones in `gate`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tollgate::domain::ids::{Epoch, Partition};
use tollgate::ledger::{AbandonedTail, Conflict, Ledger, LedgerError};
use tollgate::writer::{Alarm, FailPoint, FailPoints, PartitionEvents, Writer, WriterOptions, apply};

use super::apply::assert_proven;
use super::by_hand::{Alarms, Busy, Hand, Impatient, drain, options, writer};
use crate::ledger::events::{Work, at, partition, tenant};
use crate::ledger::{as_owner, ledger, rows};
use crate::support::services::TestDatabase;
use crate::support::wait::wait_for;

const SUMS: &str = "SELECT sum(available)::float8 AS a, sum(reserved)::float8 AS r, sum(consumed)::float8 AS c FROM balances";

/// Forty jobs of four tenants, each reserved, partly and then wholly consumed.
fn work(hand: &Hand) {
    for n in 0..40 {
        let tenant = tenant(&format!("tenant-{}", n % 4));
        let mut work = Work::new(&tenant, &format!("job-{n}"), &[("ocr.page", 600)]);
        let events = [work.reserve(), work.consume(&[100], false), work.consume(&[250], true)];
        events.into_iter().for_each(|event| hand.append(partition(&tenant), 1, event));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_step_the_writer_goes_on_to_exact_totals() {
    use FailPoint::{AfterCommit, AfterPublish, AfterRead, AfterTrim, BeforeCommit};
    for point in [AfterRead, BeforeCommit, AfterCommit, AfterPublish, AfterTrim] {
        let (database, ledger) = ledger().await;
        let (hand, alarms) = (Hand::default(), Alarms::default());
        work(&hand);
        for _ in 0..3 {
            let mut killed = writer(&hand, &ledger, &alarms);
            killed.fail_points().set(point);
            assert!(killed.pass().await.is_err(), "{point:?}");
        }
        drain(&mut writer(&hand, &ledger, &alarms)).await;
        assert_eq!(rows(&database, SUMS).await, ["-100 0 100"], "{point:?}");
        assert_proven(&ledger).await;
        assert_eq!(alarms.all(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_is_killed_again_and_again_books_everything_once() {
    let (database, ledger) = ledger().await;
    let (hand, alarms) = (Hand::default(), Alarms::default());
    work(&hand);
    for _ in 0..5 {
        let task = tokio::spawn(writer(&hand, &ledger, &alarms).run(std::future::pending()));
        tokio::task::yield_now().await;
        task.abort();
        let _ = task.await;
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(writer(&hand, &ledger, &alarms).run(async { drop(stopped.await) }));
    wait_for("everything is booked", Duration::from_secs(20), async || {
        (rows(&database, SUMS).await == ["-100 0 100"]).then_some(())
    })
    .await;
    stop.send(()).unwrap();
    task.await.unwrap();
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_share_the_work_and_book_nothing_twice() {
    let (database, ledger) = ledger().await;
    let (hand, alarms) = (Hand::default(), Alarms::default());
    work(&hand);
    // The same owner twice: leases do not part them, so that only the cursors do.
    let (mut one, mut other) = (writer(&hand, &ledger, &alarms), writer(&hand, &ledger, &alarms));
    tokio::join!(drain(&mut one), drain(&mut other));
    drain(&mut one).await;
    assert_eq!(rows(&database, SUMS).await, ["-100 0 100"]);
    assert_proven(&ledger).await;
    assert_eq!(alarms.all(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overtaken_writer_reports_no_loss_for_events_that_another_has_trimmed() {
    let (database, ledger) = ledger().await;
    let (hand, alarms) = (Hand::default(), Alarms::default());
    work(&hand);
    let (mut slow, mut quick) = (writer(&hand, &ledger, &alarms), writer(&hand, &ledger, &alarms));
    slow.pass().await.unwrap();
    drain(&mut quick).await;
    drain(&mut slow).await;
    assert_eq!(rows(&database, SUMS).await, ["-100 0 100"]);
    assert_proven(&ledger).await;
    assert_eq!(alarms.all(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_leaves_partitions_to_the_one_who_has_their_leases() {
    let (_database, ledger) = ledger().await;
    let (hand, alarms) = (Hand::default(), Alarms::default());
    work(&hand);
    let mut holder = writer(&hand, &ledger, &alarms);
    drain(&mut holder).await;
    let mut other = Writer::new(hand.clone(), ledger.clone(), alarms.clone(), options("other"));
    let acme = tenant("tenant-0");
    hand.append(partition(&acme), 1, Work::new(&acme, "late", &[("ocr.page", 1)]).reserve());
    assert_eq!(other.pass().await.unwrap().applied.events, 0);
    ledger.give_back_leases("one").await.unwrap();
    wait_for("the other takes over", Duration::from_secs(20), async || {
        (other.pass().await.unwrap().applied.events == 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outbox_is_trimmed_up_to_the_last_booked_event_which_stays() {
    let (_database, ledger) = ledger().await;
    let (hand, alarms) = (Hand::default(), Alarms::default());
    let acme = tenant("acme");
    for n in 0..5 {
        hand.append(partition(&acme), 1, Work::new(&acme, &format!("job-{n}"), &[("ocr.page", 1)]).reserve());
    }
    let mut kept = Writer::new(
        hand.clone(),
        ledger.clone(),
        alarms.clone(),
        WriterOptions { safety_tail: Duration::from_secs(900), ..options("one") },
    );
    drain(&mut kept).await;
    assert_eq!(hand.ids(partition(&acme)).len(), 5, "the safety tail stays");
    let mut writer = writer(&hand, &ledger, &alarms);
    hand.append(partition(&acme), 1, Work::new(&acme, "job-5", &[("ocr.page", 1)]).reserve());
    drain(&mut writer).await;
    assert_eq!(hand.ids(partition(&acme)), ["1-5"]);
    assert_eq!(hand.published.lock().unwrap()[&partition(&acme)], at("1-5"));
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_memory_is_reported_once_and_nothing_is_booked_before_a_new_epoch() {
    let (database, ledger) = ledger().await;
    let (hand, alarms) = (Hand::default(), Alarms::default());
    let acme = tenant("acme");
    let place = partition(&acme);
    hand.append(place, 1, Work::new(&acme, "job-0", &[("ocr.page", 100)]).reserve());
    let mut writer = writer(&hand, &ledger, &alarms);
    drain(&mut writer).await;
    // Emptied, and the same sequence numbers given again.
    hand.lose(place);
    hand.append(place, 1, Work::new(&acme, "job-1", &[("ocr.page", 100)]).reserve());
    hand.append(place, 1, Work::new(&acme, "job-2", &[("ocr.page", 100)]).reserve());
    for _ in 0..3 {
        assert_eq!(writer.pass().await.unwrap().applied.events, 0);
    }
    assert_eq!(alarms.all(), [Alarm::Amnesia { partition: place, cursor: at("1-0") }]);
    hand.append(place, 2, Work::new(&acme, "job-3", &[("ocr.page", 100)]).in_epoch(2).reserve());
    ledger.raise_epochs(&[(place, Epoch(1), Epoch(1))], "node-1").await.unwrap();
    drain(&mut writer).await;
    assert_eq!(ledger.cursor(place).await.unwrap(), at("2-0"));
    assert_eq!(
        rows(&database, SUMS).await,
        ["-2 2 0"],
        "what the lost epoch's numbers were reused for is not booked"
    );
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_memory_is_reported_although_the_ledger_did_not_answer_when_it_was_noticed() {
    let (database, ledger) = ledger().await;
    let (database, alarms, hand) = (Arc::new(database), Alarms::default(), Hand::default());
    let acme = tenant("acme");
    let place = partition(&acme);
    hand.append(place, 1, Work::new(&acme, "job-0", &[("ocr.page", 100)]).reserve());
    let mut writer = writer(&hand, &ledger, &alarms);
    drain(&mut writer).await;
    hand.lose(place);
    let of_the_pass = database.clone();
    hand.at_next_read(async move {
        as_owner(&of_the_pass, "ALTER TABLE cursors RENAME TO cursors_away").await.unwrap();
    });
    assert!(writer.pass().await.is_err());
    assert_eq!(alarms.all(), []);
    as_owner(&database, "ALTER TABLE cursors_away RENAME TO cursors").await.unwrap();
    for _ in 0..2 {
        writer.pass().await.unwrap();
    }
    assert_eq!(alarms.all(), [Alarm::Amnesia { partition: place, cursor: at("1-0") }]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_in_one_outbox_is_noticed_while_events_of_another_keep_the_writer_busy() {
    let (_database, ledger) = ledger().await;
    let (hand, watch) = (Hand::default(), Impatient::default());
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let place = partition(&acme);
    assert_ne!(place, partition(&globex));
    hand.append(place, 1, Work::new(&acme, "job-0", &[("ocr.page", 100)]).reserve());
    let busy = Busy { hand: hand.clone(), tenant: globex, jobs: AtomicU64::new(0) };
    let writer = Writer::new(busy, ledger.clone(), watch.clone(), options("one"));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(writer.run(async move { drop(stopped.await) }));
    wait_for("the first is booked", Duration::from_secs(20), async || {
        (ledger.cursor(place).await.unwrap() == at("1-0")).then_some(())
    })
    .await;
    hand.lose(place);
    wait_for("the loss is told", Duration::from_secs(20), async || {
        (watch.0.all() == [Alarm::Amnesia { partition: place, cursor: at("1-0") }]).then_some(())
    })
    .await;
    stop.send(()).unwrap();
    running.await.unwrap();
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_that_is_never_booked_is_abandoned_and_nobody_waits_for_it() {
    let (_database, ledger) = ledger().await;
    let (hand, alarms) = (Hand::default(), Alarms::default());
    let acme = tenant("acme");
    let place = partition(&acme);
    hand.append(place, 1, Work::new(&acme, "job-0", &[("ocr.page", 100)]).reserve());
    let mut writer = writer(&hand, &ledger, &alarms);
    drain(&mut writer).await;
    hand.append(place, 1, Work::new(&acme, "job-1", &[("ocr.page", 100)]).reserve());
    assert!(!ledger.cursor_row(place).await.unwrap().settles(at("1-1")), "it is still being booked");
    // The ledger went back beyond what the outbox keeps, and a new epoch without any event yet was issued.
    hand.lose_at(place, 0);
    ledger.raise_epochs(&[(place, Epoch(1), Epoch(1))], "node-1").await.unwrap();
    let mut late = Writer::new(hand.clone(), ledger.clone(), alarms.clone(), options("one"));
    late.pass().await.unwrap();
    let cursor = ledger.cursor_row(place).await.unwrap();
    assert_eq!(
        (cursor.booked, cursor.settles(at("1-1")), cursor.settles(at("2-0"))),
        (at("1-0"), true, false)
    );
    let behind = AbandonedTail { partition: place, booked: at("1-9"), epoch: Epoch(1) };
    assert_eq!(ledger.abandon_tails(&[behind]).await.unwrap(), [], "a writer that is behind decides nothing");
    late.pass().await.unwrap();
    assert_eq!(alarms.all(), [Alarm::GivenUp { partition: place, cursor: at("1-0") }], "told once");
    hand.append(place, 2, Work::new(&acme, "job-2", &[("ocr.page", 100)]).in_epoch(2).reserve());
    drain(&mut late).await;
    assert_eq!(ledger.cursor(place).await.unwrap(), at("2-0"));
    assert_proven(&ledger).await;
}

/// One event of epoch 1 is booked, the next one waits after it, and epoch 2 is issued.
async fn with_a_rest() -> (TestDatabase, Ledger, Hand, Partition) {
    let (database, ledger) = ledger().await;
    let (hand, acme) = (Hand::default(), tenant("acme"));
    let place = partition(&acme);
    hand.append(place, 1, Work::new(&acme, "job-0", &[("ocr.page", 100)]).reserve());
    drain(&mut writer(&hand, &ledger, &Alarms::default())).await;
    hand.append(place, 1, Work::new(&acme, "job-1", &[("ocr.page", 100)]).reserve());
    ledger.raise_epochs(&[(place, Epoch(1), Epoch(1))], "node-1").await.unwrap();
    (database, ledger, hand, place)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lost_tail_of_an_old_epoch_is_abandoned_even_without_events_in_the_new_one() {
    let (_database, ledger, hand, place) = with_a_rest().await;
    hand.lose_last(place);
    ledger.raise_epochs(&[(place, Epoch(2), Epoch(2))], "node-1").await.unwrap();
    let alarms = Alarms::default();
    let mut writer = writer(&hand, &ledger, &alarms);
    for adopted in [1, 2] {
        hand.adopt(place, adopted);
        writer.pass().await.unwrap();
        let cursor = ledger.cursor_row(place).await.unwrap();
        assert!(!cursor.settles(at("1-1")), "scripts may still append to epoch {adopted}");
    }
    hand.adopt(place, 3);
    for _ in 0..2 {
        writer.pass().await.unwrap();
    }
    let cursor = ledger.cursor_row(place).await.unwrap();
    assert_eq!((cursor.booked, cursor.given_up), (at("1-0"), Epoch(2)));
    assert!(cursor.settles(at("1-1")) && cursor.settles(at("2-7")) && !cursor.settles(at("3-0")));
    let acme = tenant("acme");
    hand.append(place, 3, Work::new(&acme, "job-2", &[("ocr.page", 100)]).in_epoch(3).reserve());
    drain(&mut writer).await;
    assert_eq!((ledger.cursor(place).await.unwrap(), alarms.all()), (at("3-0"), vec![]));
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_that_the_outbox_still_holds_is_booked_before_its_epoch_is_settled() {
    let (database, ledger, hand, place) = with_a_rest().await;
    hand.adopt(place, 2);
    let mut writer = writer(&hand, &ledger, &Alarms::default());
    for _ in 0..3 {
        drain(&mut writer).await;
    }
    let cursor = ledger.cursor_row(place).await.unwrap();
    assert_eq!((cursor.booked, cursor.given_up), (at("1-1"), Epoch(1)));
    assert_eq!(rows(&database, SUMS).await, ["-2 2 0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_tail_is_never_booked_even_if_another_writer_read_it_or_it_turns_up_again() {
    let (database, ledger, hand, place) = with_a_rest().await;
    let lost = hand.lose_last(place);
    hand.adopt(place, 2);
    let alarms = Alarms::default();
    writer(&hand, &ledger, &alarms).pass().await.unwrap();
    assert_eq!(ledger.cursor_row(place).await.unwrap().given_up, Epoch(1));
    let read_before =
        PartitionEvents { partition: place, booked: at("1-0"), events: vec![lost.clone()], gaps: vec![] };
    let late = apply(&ledger, vec![read_before], &Arc::new(FailPoints::default())).await;
    assert!(matches!(late, Err(LedgerError::Conflict(Conflict::CursorMoved(_)))), "{late:?}");
    hand.put_back(place, lost);
    let acme = tenant("acme");
    hand.append(place, 2, Work::new(&acme, "job-2", &[("ocr.page", 100)]).in_epoch(2).reserve());
    drain(&mut writer(&hand, &ledger, &alarms)).await;
    assert_eq!((ledger.cursor(place).await.unwrap(), alarms.all()), (at("2-0"), vec![]));
    assert_eq!(rows(&database, SUMS).await, ["-2 2 0"], "the first and the last of three");
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tail_of_an_old_epoch_is_booked_before_the_new_one() {
    let (database, ledger) = ledger().await;
    let (hand, alarms) = (Hand::default(), Alarms::default());
    let acme = tenant("acme");
    let place = partition(&acme);
    hand.append(place, 1, Work::new(&acme, "job-0", &[("ocr.page", 100)]).reserve());
    let mut writer = writer(&hand, &ledger, &alarms);
    drain(&mut writer).await;
    hand.append(place, 1, Work::new(&acme, "job-1", &[("ocr.page", 100)]).reserve());
    ledger.raise_epochs(&[(place, Epoch(1), Epoch(1))], "node-1").await.unwrap();
    hand.append(place, 2, Work::new(&acme, "job-2", &[("ocr.page", 100)]).in_epoch(2).reserve());
    for _ in 0..3 {
        drain(&mut writer).await;
    }
    assert_eq!((ledger.cursor(place).await.unwrap(), alarms.all()), (at("2-0"), vec![]));
    assert_eq!(rows(&database, SUMS).await, ["-3 3 0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_is_recorded_and_reported_and_the_partition_goes_on() {
    let (database, ledger) = ledger().await;
    let (hand, alarms) = (Hand::default(), Alarms::default());
    let acme = tenant("acme");
    let place = partition(&acme);
    for n in 0..4 {
        hand.append(place, 1, Work::new(&acme, &format!("job-{n}"), &[("ocr.page", 100)]).reserve());
    }
    hand.lose_at(place, 2);
    drain(&mut writer(&hand, &ledger, &alarms)).await;
    assert_eq!(alarms.all(), [Alarm::Gap { partition: place, after: at("1-1"), found: at("1-3") }]);
    let gaps = ledger.gaps(10).await.unwrap();
    assert_eq!((gaps.len(), gaps[0].after, gaps[0].found), (1, at("1-1"), at("1-3")));
    assert_eq!(rows(&database, SUMS).await, ["-3 3 0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_final_consume_after_a_lost_partial_one_is_booked_with_its_total() {
    let (database, ledger) = ledger().await;
    let (hand, alarms) = (Hand::default(), Alarms::default());
    let acme = tenant("acme");
    let place = partition(&acme);
    let mut work = Work::new(&acme, "job", &[("ocr.page", 600)]);
    let events = [work.reserve(), work.consume(&[100], false), work.consume(&[250], true)];
    events.into_iter().for_each(|event| hand.append(place, 1, event));
    hand.lose_at(place, 1);
    drain(&mut writer(&hand, &ledger, &alarms)).await;
    assert_eq!(rows(&database, SUMS).await, ["-2.5 0 2.5"]);
    assert_proven(&ledger).await;
}
