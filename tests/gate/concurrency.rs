use std::sync::Arc;

use tollgate::domain::event::Change;
use tollgate::gate::{ReserveOutcome, Totals};

use super::server::Mode;
use super::world::*;

const CALLERS: usize = 64;
const ATTEMPTS: usize = 10_000;
const CAPACITY: i64 = 5_000;

/// One caller's share: every kind of end that a hold can have, some of it twice. Answers the units it was admitted and consumed.
async fn call(world: &World, caller: usize) -> i64 {
    let mut consumed = 0;
    for attempt in 0..ATTEMPTS / CALLERS {
        let key = format!("{caller}-{attempt}");
        let amount = i64::try_from(attempt % 3 + 1).unwrap();
        let checks = vec![limit(b"hour----", CAPACITY), day(CAPACITY + 1)];
        let hold = pages(&key, amount).under(checks);
        if !matches!(world.reserve(&hold).await, ReserveOutcome::Admitted { .. }) {
            continue;
        }
        match attempt % 4 {
            0 => drop(world.release(&key, Totals::Default).await),
            1 => {}
            _ => {
                let named = total(&amount.to_string());
                let (first, second) =
                    tokio::join!(world.consume(&key, named.clone(), true), world.consume(&key, named, true));
                drop((first, second));
                consumed += amount;
            }
        }
    }
    consumed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_never_exceed_a_limit_and_strand_no_unit() {
    let world = Arc::new(World::warm(Mode::Alone).await);
    let callers = (0..CALLERS).map(|caller| {
        let world = Arc::clone(&world);
        tokio::spawn(async move { call(&world, caller).await })
    });
    let mut consumed = 0;
    for caller in callers.collect::<Vec<_>>() {
        consumed += caller.await.unwrap();
    }
    let (mut used, mut peak, mut held) = (0, 0, 0);
    for event in world.events().await {
        match &event.change {
            Change::Reserve(record) => held += record.units[0].held.get(),
            Change::Consume { units, .. } => {
                used += units[0].consumed.get();
                held -= units[0].held.get();
            }
            Change::Release { units, .. } => held -= units[0].held.get(),
            other => panic!("{other:?}"),
        }
        peak = peak.max(used + held);
    }
    assert!(peak <= CAPACITY, "{peak}");
    assert_eq!(used, consumed, "what was consumed twice counts once");
    assert_eq!(world.counts(&limit(b"hour----", CAPACITY)).await, (used, held));
    world.sweep(DUE_MS).await;
    assert_eq!(world.counts(&limit(b"hour----", CAPACITY)).await, (used, 0));
    assert_eq!(world.day().await, (used, 0));
}
