//! How long a refusal says to wait, against calls that come back then.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tollgate::domain::counter::Counter;
use tollgate::gate::{ReserveMode, ReserveOutcome};

use super::algorithms::{Row, all_rows};
use crate::gate::server::Server;
use crate::gate::world::*;

/// How many histories a run tries for each algorithm.
const CASES: u32 = 40;
const CAPACITY: i64 = 20;

/// Work that is used up at once, each so long after the last: no hold delays what is asked for last.
fn histories() -> impl Strategy<Value = (Vec<(i64, i64)>, i64)> {
    let work = (prop_oneof![0..50_i64, 0..6_000_i64], 1..9_i64);
    (proptest::collection::vec(work, 4..20), 1..=CAPACITY)
}

/// The calendar's window after the one that every counter begins in.
const NEXT_WINDOW: (i64, i64) = (WINDOW.1, 2 * WINDOW.1 - WINDOW.0);

/// Whether so much would be admitted then, in the calendar's window of then.
async fn is_admitted(world: &World, counter: &Counter, amount: i64, now_ms: i64) -> bool {
    let window = if now_ms < WINDOW.1 { WINDOW } else { NEXT_WINDOW };
    let parameters = counter.window().map_or(counter.parameters, |_| in_window(window.0, window.1));
    let ask = pages("asks", amount).under([Counter { parameters, ..counter.clone() }]);
    let ask = Ask { valid: window, ..ask.by(ReserveMode::DryRun).at(now_ms) };
    matches!(world.reserve(&ask).await, ReserveOutcome::Allowed { .. })
}

/// After the wait in its answer, with nothing else going on, it is admitted, and not a millisecond earlier.
async fn waits_exactly(world: &World, counter: &Counter, (works, amount): (Vec<(i64, i64)>, i64)) {
    let mut now_ms = START_MS;
    for (number, (after_ms, used)) in works.into_iter().enumerate() {
        now_ms += after_ms;
        let work = pages(&number.to_string(), used).under([counter.clone()]).by(ReserveMode::Usage);
        drop(world.reserve(&work.at(now_ms)).await);
    }
    let ask = pages("asks", amount).under([counter.clone()]).by(ReserveMode::DryRun).at(now_ms);
    let ReserveOutcome::Refused { refusing, .. } = world.reserve(&ask).await else { return };
    let wait_ms = refusing[0].1.unwrap();
    assert!(wait_ms > 0);
    assert!(is_admitted(world, counter, amount, now_ms + wait_ms).await, "{wait_ms} ms later");
    assert!(!is_admitted(world, counter, amount, now_ms + wait_ms - 1).await, "before {wait_ms} ms");
}

#[test]
fn a_refused_call_is_admitted_after_its_wait_and_not_a_millisecond_earlier() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::own();
    for Row { name, turning, .. } in all_rows() {
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let counter = Counter { parameters: turning, ..limit(b"counter-", CAPACITY) };
        let run = TestRunner::new(config).run(&histories(), |history| {
            runtime.block_on(async {
                server.empty();
                let world = World::over(std::sync::Arc::clone(&server)).await;
                world.warm_up(Default::default()).await;
                waits_exactly(&world, &counter, history).await;
            });
            Ok(())
        });
        run.unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}

#[test]
fn what_is_above_the_capacity_never_fits() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for Row { name, lasting, .. } in all_rows() {
        if lasting.need(CAPACITY + 1, false) <= CAPACITY {
            continue;
        }
        let counter = Counter { parameters: lasting, ..limit(b"counter-", CAPACITY) };
        let outcome = runtime.block_on(async {
            let world = World::warm(crate::gate::server::Mode::Alone).await;
            world.reserve(&pages("too much", CAPACITY + 1).under([counter])).await
        });
        let ReserveOutcome::Refused { refusing, .. } = outcome else { panic!("{name}: {outcome:?}") };
        assert_eq!(refusing, [(0, None)], "{name}");
    }
}
