//! Light reservations from many callers at once: no limit is exceeded, and every hold is given back exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tollgate::domain::algorithms::{Parameters, concurrency};
use tollgate::domain::counter::Counter;
use tollgate::gate::{ReserveOutcome, ResolveOutcome, Totals};

use super::server::Mode;
use super::world::*;

const CALLERS: usize = 64;
const ATTEMPTS: usize = 50;
const SLOTS: i64 = 7;
const DAY: i64 = 2_000;

/// Of reservations that run at once.
fn slots() -> Counter {
    let parameters = Parameters::Concurrency(concurrency::Parameters { each: 1 });
    Counter { parameters, ..limit(b"slots---", SLOTS) }
}

/// What runs now as callers see it: never more than what the gate holds.
#[derive(Default)]
struct Running {
    now: AtomicI64,
    most: AtomicI64,
    admitted: AtomicI64,
}

impl Running {
    fn begin(&self) {
        self.admitted.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    }

    fn end(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One caller's share: every kind of end that a hold can have, most of it twice at once. Returns what it consumed.
async fn call(world: &World, running: &Running, caller: usize) -> i64 {
    let mut consumed = 0;
    for attempt in 0..ATTEMPTS {
        let key = format!("{caller}-{attempt}");
        let amount = i64::try_from(attempt % 3 + 1).unwrap();
        let hold = pages(&key, amount).under([slots(), day(DAY)]);
        if !matches!(world.reserve(&hold).await, ReserveOutcome::Admitted { .. }) {
            continue;
        }
        running.begin();
        tokio::task::yield_now().await;
        running.end();
        if attempt % 3 == 0 {
            let release = || world.release(&key, Totals::Default);
            drop(tokio::join!(release(), release()));
        } else {
            let named = total(&amount.to_string());
            drop(tokio::join!(world.consume(&key, named.clone(), true), world.consume(&key, named, true)));
            consumed += amount;
        }
    }
    consumed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_never_exceed_a_light_limit_and_strand_no_unit() {
    let world = Arc::new(World::light(Mode::Alone).await);
    let running = Arc::new(Running::default());
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (world, running) = (Arc::clone(&world), Arc::clone(&running));
            tokio::spawn(async move { call(&world, &running, caller).await })
        })
        .collect();
    let mut consumed = 0;
    for caller in callers {
        consumed += caller.await.unwrap();
    }
    let (most, admitted) = (running.most.load(Ordering::SeqCst), running.admitted.load(Ordering::SeqCst));
    assert!((1..=SLOTS).contains(&most), "{most} ran at once");
    assert!(admitted < i64::try_from(CALLERS * ATTEMPTS).unwrap(), "the limits refuse nobody");
    assert!(consumed <= DAY, "{consumed} were consumed");
    assert_eq!(world.counts(&slots()).await, (0, 0));
    assert_eq!(world.day().await, (consumed, 0), "what was consumed twice counts once");
    assert!(world.events().await.is_empty(), "none of it is told to the ledger");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_call_that_ends_a_hold_gives_it_back_and_no_later_one_does() {
    let world = Arc::new(World::light(Mode::Alone).await);
    let ends_ms = START_MS + TTL_MS;
    let mut consumed = 0;
    for round in 0..50 {
        let keys = ["consumed", "released", "extended"].map(|verb| format!("{verb}-{round}"));
        for key in &keys {
            world.hold(&pages(key, 2).under([slots(), day(DAY)])).await;
        }
        let (first, second, extended, ..) = tokio::join!(
            world.consume_at(ends_ms, &keys[0], total("1"), true),
            world.release_at(ends_ms, &keys[1], Totals::Default),
            world.extend_at(ends_ms, &keys[2], TTL_MS),
            world.sweep_once(ends_ms, 100),
            world.sweep_once(ends_ms, 100),
        );
        assert!(matches!(first, ResolveOutcome::Done { .. }), "{first:?}");
        consumed += 1;
        let is_settled = |outcome: &ResolveOutcome| {
            !matches!(outcome, ResolveOutcome::Unknown { .. } | ResolveOutcome::Cold(_))
        };
        assert!(is_settled(&second) && is_settled(&extended), "{second:?} {extended:?}");
        let runs_on = i64::from(matches!(extended, ResolveOutcome::Done { .. }));
        let reading = world.reading_at(ends_ms, &slots()).await;
        assert_eq!(reading.reserved.get(), runs_on, "round {round}");
        assert_eq!(world.day().await, (consumed, 2 * runs_on), "round {round}");
        world.sweep(ends_ms + TTL_MS).await;
        assert_eq!(
            (world.day().await, world.counts(&slots()).await),
            ((consumed, 0), (0, 0)),
            "round {round}"
        );
    }
}
