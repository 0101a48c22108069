//! The safety tails that writers leave in the outboxes: one bound for the whole node, whichever writer booked the
//! events.

use std::time::Duration;

use tollgate::ledger::Ledger;
use tollgate::writer::{Writer, WriterOptions};

use super::by_hand::{Alarms, Hand, drain, options};
use crate::ledger::events::{Work, partition, tenant};
use crate::ledger::ledger;

fn writer(hand: &Hand, ledger: &Ledger, safety_tail_bytes: u64) -> Writer<Hand, Alarms> {
    let options =
        WriterOptions { safety_tail: Duration::from_secs(900), safety_tail_bytes, ..options("one") };
    Writer::new(hand.clone(), ledger.clone(), Alarms::default(), options)
}

/// Appends so many reserves of a tenant.
fn append(hand: &Hand, name: &str, jobs: std::ops::Range<u32>) {
    let tenant = tenant(name);
    for job in jobs {
        let work = Work::new(&tenant, &format!("{name}-{job}"), &[("ocr.page", 1)]).reserve();
        hand.append(partition(&tenant), 1, work);
    }
}

fn standing(hand: &Hand, name: &str) -> usize {
    hand.ids(partition(&tenant(name))).len()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bound_holds_for_all_partitions_and_the_largest_gives_way_first() {
    let (_database, ledger) = ledger().await;
    let hand = Hand::default();
    assert_ne!(partition(&tenant("hot")), partition(&tenant("quiet")));
    append(&hand, "hot", 0..60);
    append(&hand, "quiet", 0..5);
    let all = hand.bytes();
    let mut roomy = writer(&hand, &ledger, all);
    drain(&mut roomy).await;
    assert_eq!((standing(&hand, "hot"), standing(&hand, "quiet")), (60, 5));
    let mut tight = writer(&hand, &ledger, all / 3);
    append(&hand, "quiet", 5..6);
    drain(&mut tight).await;
    assert!(hand.bytes() <= all / 3 + 1_000, "{} of {all}", hand.bytes());
    assert_eq!(standing(&hand, "quiet"), 6);
    assert!(standing(&hand, "hot") >= 10, "{}", standing(&hand, "hot"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_takes_a_partition_over_counts_the_safety_tail_of_the_former_one() {
    let (_database, ledger) = ledger().await;
    let hand = Hand::default();
    for round in 0..6 {
        // Each starts from the cursor, and none books more than the bound.
        append(&hand, "hot", round * 10..(round + 1) * 10);
        let mut writer = writer(&hand, &ledger, 5_000);
        drain(&mut writer).await;
        assert!(hand.bytes() <= 6_000, "round {round}: {}", hand.bytes());
    }
    assert!(standing(&hand, "hot") < 60);
}
