//! How long a refusal says to wait, against calls that come back then, and before.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tollgate::domain::algorithms::Parameters;
use tollgate::domain::counter::Counter;
use tollgate::gate::{ReserveMode, ReserveOutcome, Totals};

use super::algorithms::{Row, all_rows};
use crate::gate::server::Server;
use crate::gate::world::*;
use crate::properties::sized;

/// How many histories a run tries for each algorithm, and how many of running work.
const CASES: u32 = 40;
const RUNNING_CASES: u32 = 16;
/// In how many of the first the call is refused at least, for each algorithm.
const REFUSALS: u32 = 5;
/// How often a call comes back at most until all that ran has ended.
const ROUNDS_MAX: u32 = 60;
/// How often one looks before its time.
const LOOKS: i64 = 7;
const CAPACITY: i64 = 20;

/// Work that is used up at once, each so long after the last: no hold delays what is asked for last.
fn histories() -> impl Strategy<Value = (Vec<(i64, i64)>, i64)> {
    let work = (prop_oneof![0..50_i64, 0..6_000_i64], 1..9_i64);
    (proptest::collection::vec(work, 4..20), 1..=CAPACITY)
}

/// The calendar's window after the one that every counter begins in.
const NEXT_WINDOW: (i64, i64) = (WINDOW.1, 2 * WINDOW.1 - WINDOW.0);

/// What would be answered to so much then, in the calendar's window of then.
async fn dry_run(world: &World, counter: &Counter, amount: i64, now_ms: i64) -> ReserveOutcome {
    let window = if now_ms < WINDOW.1 { WINDOW } else { NEXT_WINDOW };
    let parameters = counter.window().map_or(counter.parameters, |_| in_window(window.0, window.1));
    let ask = pages("asks", amount).under([Counter { parameters, ..counter.clone() }]);
    world.reserve(&Ask { valid: window, ..ask.by(ReserveMode::DryRun).at(now_ms) }).await
}

/// Whether so much would be admitted then.
async fn is_admitted(world: &World, counter: &Counter, amount: i64, now_ms: i64) -> bool {
    matches!(dry_run(world, counter, amount, now_ms).await, ReserveOutcome::Allowed { .. })
}

/// After the wait in its answer, with nothing else going on, it is admitted, and not a millisecond earlier. Returns
/// whether it was refused at all.
async fn waits_exactly(world: &World, counter: &Counter, (works, amount): (Vec<(i64, i64)>, i64)) -> bool {
    let mut now_ms = START_MS;
    for (number, (after_ms, used)) in works.into_iter().enumerate() {
        now_ms += after_ms;
        let work = pages(&number.to_string(), used).under([counter.clone()]).by(ReserveMode::Usage);
        drop(world.reserve(&work.at(now_ms)).await);
    }
    let ReserveOutcome::Refused { refusing, .. } = dry_run(world, counter, amount, now_ms).await else {
        return false;
    };
    let wait_ms = refusing[0].1.unwrap();
    assert!(wait_ms > 0);
    assert!(is_admitted(world, counter, amount, now_ms + wait_ms).await, "{wait_ms} ms later");
    assert!(!is_admitted(world, counter, amount, now_ms + wait_ms - 1).await, "before {wait_ms} ms");
    true
}

/// Runs `history` in a new world under a counter of each algorithm, and returns the sum of what it returns for each.
fn tried<History: Strategy>(
    histories: &History,
    cases: u32,
    history: impl AsyncFn(&World, &Counter, History::Value) -> [u32; 2],
) -> Vec<(Row, [u32; 2])> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::own();
    let of_row = |row: Row| {
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let counter = Counter { parameters: row.turning, ..limit(b"counter-", CAPACITY) };
        let sum = Cell::new([0; 2]);
        let run = TestRunner::new(config).run(histories, |value| {
            let [first, second] = runtime.block_on(async {
                server.empty();
                let world = World::over(std::sync::Arc::clone(&server)).await;
                world.warm_up(Default::default()).await;
                history(&world, &counter, value).await
            });
            sum.set([sum.get()[0] + first, sum.get()[1] + second]);
            Ok(())
        });
        run.unwrap_or_else(|failure| panic!("{}: {failure}", row.name));
        (row, sum.get())
    };
    all_rows().into_iter().map(of_row).collect()
}

#[test]
fn a_refused_call_is_admitted_after_its_wait_and_not_a_millisecond_earlier() {
    let history = async |world: &World, counter: &Counter, history: (Vec<(i64, i64)>, i64)| {
        [u32::from(waits_exactly(world, counter, history).await), 0]
    };
    for (row, [refusals, _]) in tried(&histories(), CASES, history) {
        // What is used up at once takes no place where only what runs counts.
        let never = matches!(row.turning, Parameters::Concurrency(_));
        assert!(if never { refusals == 0 } else { refusals >= REFUSALS }, "{}: {refusals}", row.name);
    }
}

/// What becomes of a hold.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Kept,
    Extended,
    GivenBack,
    PartlyUsed,
    Used,
}

/// A hold.
#[derive(Debug, Clone, Copy)]
struct Work {
    after_ms: i64,
    amount: i64,
    ttl_ms: i64,
    /// So long after it was made.
    lasts_ms: i64,
    fate: Fate,
}

/// Works, some of which still run, and what is asked for last.
fn running() -> impl Strategy<Value = (Vec<Work>, i64)> {
    let fate = prop_oneof![
        3 => Just(Fate::Kept),
        1 => Just(Fate::Extended),
        1 => Just(Fate::GivenBack),
        1 => Just(Fate::PartlyUsed),
        2 => Just(Fate::Used),
    ];
    let after = prop_oneof![0..50_i64, 0..1_500_i64];
    let work = (after, 1..9_i64, 300..5_000_i64, 0..250_i64, fate);
    let work = work.prop_map(|(after_ms, amount, ttl_ms, lasts_ms, fate)| Work {
        after_ms,
        amount,
        ttl_ms,
        lasts_ms,
        fate,
    });
    (proptest::collection::vec(work, 4..12), CAPACITY / 2..=CAPACITY)
}

/// Makes the holds, as far as there is room; returns the time after that.
async fn hold_all(world: &World, counter: &Counter, works: &[Work]) -> i64 {
    let mut now_ms = START_MS;
    for (number, work) in works.iter().enumerate() {
        now_ms += work.after_ms;
        world.sweep(now_ms).await;
        let key = number.to_string();
        let ask = pages(&key, work.amount).under([counter.clone()]).lasting(work.ttl_ms);
        if !matches!(world.reserve(&ask.at(now_ms)).await, ReserveOutcome::Admitted { .. }) {
            continue;
        }
        now_ms += work.lasts_ms;
        match work.fate {
            Fate::Kept => {}
            Fate::Extended => drop(done(world.extend_at(now_ms, &key, 6_000).await)),
            Fate::GivenBack => drop(done(world.release_at(now_ms, &key, Totals::Default).await)),
            Fate::PartlyUsed => drop(done(world.consume_at(now_ms, &key, total("1"), false).await)),
            Fate::Used => drop(done(world.consume_at(now_ms, &key, Totals::Default, true).await)),
        }
    }
    now_ms
}

/// A call that comes back after each wait is admitted in the end, and the first time where what is used decides; none
/// would have been earlier, whatever has ended since. Returns how often it was refused, and how often running work was
/// in the way.
async fn comes_back(world: &World, counter: &Counter, (works, amount): (Vec<Work>, i64)) -> [u32; 2] {
    let parameters = counter.parameters;
    let drains = matches!(parameters, Parameters::LeakyBucket(_));
    let refills = matches!(parameters, Parameters::TokenBucket(_));
    let mut now_ms = hold_all(world, counter, &works).await;
    let mut found = [0; 2];
    for _ in 0..ROUNDS_MAX {
        world.sweep(now_ms).await;
        let outcome = dry_run(world, counter, amount, now_ms).await;
        let ReserveOutcome::Refused { refusing, readings, .. } = outcome else { return found };
        let (wait_ms, reading) = (refusing[0].1.unwrap(), readings[0]);
        assert!(wait_ms > 0);
        let is_held = reading.reserved.get() > 0;
        let used_up = parameters.has_windows() && amount > CAPACITY - reading.consumed.get();
        found = [found[0] + 1, found[1] + u32::from(is_held && !used_up)];
        // A bucket takes what is held as used, and may get it back; an end that has passed is none that is known.
        let is_exact = !is_held || used_up || drains;
        let is_known = reading.next_hold_ends_at_ms.is_some_and(|end_ms| end_ms > now_ms) && !refills;
        for part in (1..LOOKS).filter(|_| is_exact || is_known) {
            let at_ms = now_ms + wait_ms * part / LOOKS;
            world.sweep(at_ms).await;
            let is_early = at_ms < now_ms + wait_ms && is_admitted(world, counter, amount, at_ms).await;
            assert!(!is_early, "{wait_ms} ms from {now_ms} on are too long: {} ms help", at_ms - now_ms);
        }
        now_ms += wait_ms;
        world.sweep(now_ms).await;
        let is_in = is_admitted(world, counter, amount, now_ms).await;
        assert!(is_in || !(is_exact || refills), "{wait_ms} ms later");
    }
    panic!("still refused at {now_ms}");
}

#[test]
fn a_wait_behind_running_work_is_never_too_long_to_help() {
    let cases = sized(RUNNING_CASES);
    let mut behind_holds = 0;
    for (row, [refusals, behind]) in tried(&running(), cases, comes_back) {
        assert!(refusals >= cases / 2, "{}: {refusals}", row.name);
        behind_holds += behind;
    }
    assert!(behind_holds >= 4 * cases, "{behind_holds}");
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
