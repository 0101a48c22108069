//! Global limits: what is taken of them before the tenant's partition decides, and what comes back.

use rstest::rstest;
use tollgate::domain::algorithms::Parameters;
use tollgate::domain::amount::Units;
use tollgate::domain::counter::Counter;
use tollgate::domain::fingerprint::Fingerprint;
use tollgate::domain::ids::Epoch;
use tollgate::domain::limit::Kind;
use tollgate::gate::{CheckAsk, CheckOutcome, GivenBack, TakeCall, TakeMode, TakeOutcome, Taking};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::properties::gate::algorithms::{Row, rows};

/// Takes and gives back once, for the test of what scripts are sent.
pub(super) async fn take(world: &World) {
    let counters = [limit(b"global--", 10)];
    taken(take_at(world, START_MS, ("a", 1), &counters, &[1]).await);
    world.give_back(GivenBack::Call(world.id("a"))).await;
}

/// A call of this key with this meaning.
fn call<'a>(
    world: &World,
    (key, meaning): (&str, u8),
    counters: &'a [Counter],
    amounts: &'a [Units],
) -> TakeCall<'a> {
    TakeCall {
        partition: world.partition,
        id: world.id(key),
        fingerprint: Fingerprint([meaning; 16]),
        mode: TakeMode::AllOrNothing,
        amounts,
        counters,
        valid: WINDOW,
        needed_until_ms: WINDOW.1,
        keyed: true,
        max_life_ms: 60_000,
        now_ms: Some(START_MS),
    }
}

async fn take_at(
    world: &World,
    now_ms: i64,
    of: (&str, u8),
    counters: &[Counter],
    amounts: &[i64],
) -> TakeOutcome {
    let amounts = all_units(amounts);
    let call = TakeCall { now_ms: Some(now_ms), ..call(world, of, counters, &amounts) };
    world.gate.take(&call).await.unwrap()
}

/// What was granted in each line, and whether this call counted it.
fn taken(outcome: TakeOutcome) -> (Vec<i64>, bool) {
    match outcome {
        TakeOutcome::Taken { granted, is_new, .. } => {
            (granted.iter().map(|units| units.get()).collect(), is_new)
        }
        other => panic!("{other:?}"),
    }
}

impl World {
    async fn give_back(&self, given: GivenBack<'_>) {
        self.give_back_at(START_MS, given).await;
    }

    async fn give_back_at(&self, now_ms: i64, given: GivenBack<'_>) {
        self.gate.give_back(self.partition, given, Some(now_ms)).await.unwrap();
    }

    /// What a global counter has consumed at this time.
    async fn taken_at(&self, now_ms: i64, counter: &Counter) -> i64 {
        let counters = [counter.clone()];
        let look = CheckAsk {
            tenant: None,
            subjects: &[],
            amounts: &[],
            counters: &counters,
            valid: (0, i64::MAX),
            needed_until_ms: 0,
            peeks: true,
        };
        match self.gate.check(self.partition, &[look], false, Some(now_ms)).await.unwrap() {
            CheckOutcome::Decided { checks, .. } => checks[0].readings[0].consumed.get(),
            stale @ CheckOutcome::StaleWindow { .. } => panic!("{stale:?}"),
        }
    }
}

/// The ways of counting that a global limit may have.
fn window_rows() -> impl Iterator<Item = Row> {
    let is_window = |row: &Row| {
        matches!(
            row.turning,
            Parameters::Calendar(_) | Parameters::FixedWindow(_) | Parameters::SlidingCounter(_)
        )
    };
    rows().into_iter().filter(is_window)
}

#[rstest]
#[tokio::test]
async fn a_reservation_that_takes_again_takes_nothing(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    for (number, row) in window_rows().enumerate() {
        let name = *<&[u8; 8]>::try_from(format!("{number:08}").as_bytes()).unwrap();
        let counters = [Counter { parameters: row.lasting, ..limit(&name, 10) }];
        let key = row.name;
        assert_eq!(
            taken(take_at(&world, START_MS, (key, 1), &counters, &[7]).await),
            (vec![7], true),
            "{key}"
        );
        assert_eq!(
            taken(take_at(&world, START_MS, (key, 1), &counters, &[7]).await),
            (vec![7], false),
            "{key}"
        );
        assert_eq!(world.taken_at(START_MS, &counters[0]).await, 7, "{key}");
    }
}

#[rstest]
#[tokio::test]
async fn what_the_last_of_several_refuses_moves_none(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    let counters = [limit(b"first---", 100), weighted(&[1, 3], limit(b"second--", 10))];
    taken(take_at(&world, START_MS, ("a", 1), &counters, &[1, 2]).await);
    let refused = take_at(&world, START_MS, ("b", 1), &counters, &[1, 1]).await;
    let TakeOutcome::Refused { refusing, readings, .. } = refused else { panic!("{refused:?}") };
    assert_eq!(refusing, [(1, Some(WINDOW.1 - START_MS))]);
    assert_eq!(readings.iter().map(|reading| reading.consumed.get()).collect::<Vec<_>>(), [1, 7]);
    let never = take_at(&world, START_MS, ("c", 1), &counters, &[0, 4]).await;
    assert!(
        matches!(never, TakeOutcome::Refused { ref refusing, .. } if *refusing == [(1, None)]),
        "{never:?}"
    );
    let gone = world.server.command(&["EXISTS", &world.key(&format!("taken:{}", world.id("b").to_hex()))]);
    assert_eq!(gone, redis::Value::Int(0), "what is refused is not remembered");
}

#[rstest]
#[tokio::test]
async fn what_was_not_admitted_comes_back_once(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    for (number, row) in window_rows().enumerate() {
        let name = *<&[u8; 8]>::try_from(format!("{number:08}").as_bytes()).unwrap();
        let counter = Counter { parameters: row.lasting, ..limit(&name, 10) };
        let (kept, key) = (format!("{} kept", row.name), row.name);
        taken(take_at(&world, START_MS, (&kept, 1), std::slice::from_ref(&counter), &[2]).await);
        taken(take_at(&world, START_MS, (key, 1), std::slice::from_ref(&counter), &[5]).await);
        for _ in 0..2 {
            world.give_back(GivenBack::Call(world.id(key))).await;
            assert_eq!(world.taken_at(START_MS, &counter).await, 2, "{key}");
        }
        let again = take_at(&world, START_MS, (key, 1), std::slice::from_ref(&counter), &[5]).await;
        assert_eq!(taken(again), (vec![5], true), "{key}");
    }
}

#[rstest]
#[tokio::test]
async fn nothing_comes_back_while_another_call_goes_by_it(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    let counters = [limit(b"global--", 10)];
    taken(take_at(&world, START_MS, ("a", 1), &counters, &[5]).await);
    taken(take_at(&world, START_MS, ("a", 1), &counters, &[5]).await);
    world.give_back(GivenBack::Call(world.id("a"))).await;
    assert_eq!(world.taken_at(START_MS, &counters[0]).await, 5, "the other may have been admitted");
    world.give_back(GivenBack::Call(world.id("a"))).await;
    assert_eq!(world.taken_at(START_MS, &counters[0]).await, 0);
}

#[rstest]
#[tokio::test]
async fn a_release_leaves_what_was_used_and_its_repeat_leaves_that_too(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let counter = weighted(&[1, 10], limit(b"budget--", 100));
    taken(take_at(&world, START_MS, ("a", 1), std::slice::from_ref(&counter), &[4, 5]).await);
    for _ in 0..2 {
        world.give_back(GivenBack::Above(world.id("a"), &all_units(&[4, 2]))).await;
        assert_eq!(world.taken_at(START_MS, &counter).await, 24);
    }
    let again = take_at(&world, START_MS, ("a", 1), std::slice::from_ref(&counter), &[4, 5]).await;
    assert_eq!(taken(again), (vec![4, 2], false), "its repeat still takes nothing");
    world.give_back(GivenBack::Above(world.id("a"), &all_units(&[9, 9]))).await;
    assert_eq!(world.taken_at(START_MS, &counter).await, 24, "what was used beyond it is not counted");
    world.give_back(GivenBack::Above(world.id("other"), &all_units(&[0]))).await;
    assert_eq!(world.taken_at(START_MS, &counter).await, 24, "one that took nothing gives nothing back");
}

#[rstest]
#[tokio::test]
async fn a_window_that_is_over_gets_nothing_back(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    for (number, row) in window_rows().enumerate().skip(1) {
        let name = *<&[u8; 8]>::try_from(format!("{number:08}").as_bytes()).unwrap();
        let counter = Counter { parameters: row.turning, ..limit(&name, 10) };
        let (later_ms, later) = (START_MS + 45_000, format!("{} later", row.name));
        taken(take_at(&world, START_MS, (row.name, 1), std::slice::from_ref(&counter), &[5]).await);
        taken(take_at(&world, later_ms, (&later, 1), std::slice::from_ref(&counter), &[4]).await);
        world.give_back_at(later_ms, GivenBack::Call(world.id(row.name))).await;
        assert_eq!(world.taken_at(later_ms, &counter).await, 4, "{}", row.name);
    }
    let (today, tomorrow) = (limit(b"calendar", 10), in_window(WINDOW.1, WINDOW.1 + 1_000));
    taken(take_at(&world, START_MS, ("day", 1), std::slice::from_ref(&today), &[5]).await);
    let next = [Counter { parameters: tomorrow, ..today.clone() }];
    let amounts = all_units(&[4]);
    let call = call(&world, ("next", 1), &next, &amounts);
    let window = (WINDOW.1, WINDOW.1 + 1_000);
    let call = TakeCall { valid: window, needed_until_ms: window.1, now_ms: Some(WINDOW.1), ..call };
    taken(world.gate.take(&call).await.unwrap());
    let lost = [Taking {
        epoch: Epoch(1),
        at_ms: START_MS,
        unmoved: 0,
        granted: all_units(&[5]),
        counters: vec![today],
    }];
    world.give_back_at(WINDOW.1, GivenBack::Takings(&lost)).await;
    assert_eq!(world.taken_at(WINDOW.1, &next[0]).await, 4);
}

#[rstest]
#[tokio::test]
async fn a_shadow_limit_gets_back_only_what_it_counted(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    let shadow = Counter { kind: Kind::Shadow, ..limit(b"shadow--", 10) };
    let soft = Counter { kind: Kind::Soft, ..limit(b"soft----", 10) };
    let both = [shadow, soft];
    taken(take_at(&world, START_MS, ("a", 1), &both, &[8]).await);
    let outcome = take_at(&world, START_MS, ("b", 1), &both, &[8]).await;
    let TakeOutcome::Taken { readings, .. } = &outcome else { panic!("{outcome:?}") };
    assert_eq!(readings.iter().map(|reading| reading.would_refuse).collect::<Vec<_>>(), [true, false]);
    world.give_back(GivenBack::Call(world.id("b"))).await;
    assert_eq!(world.taken_at(START_MS, &both[0]).await, 8);
    assert_eq!(world.taken_at(START_MS, &both[1]).await, 8);
    let unmoved = Taking {
        epoch: Epoch(1),
        at_ms: START_MS,
        unmoved: 1,
        granted: all_units(&[3]),
        counters: both.to_vec(),
    };
    world.give_back(GivenBack::Takings(&[unmoved])).await;
    assert_eq!(world.taken_at(START_MS, &both[0]).await, 8);
    assert_eq!(world.taken_at(START_MS, &both[1]).await, 5);
}

#[rstest]
#[tokio::test]
async fn another_request_under_the_same_key_takes_its_own(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    let counters = [limit(b"global--", 10)];
    taken(take_at(&world, START_MS, ("a", 1), &counters, &[3]).await);
    let other = take_at(&world, START_MS, ("a", 2), &counters, &[4]).await;
    assert!(matches!(other, TakeOutcome::Taken { is_new: true, is_remembered: false, .. }), "{other:?}");
    assert_eq!(world.taken_at(START_MS, &counters[0]).await, 7);
    world.give_back(GivenBack::Call(world.id("a"))).await;
    assert_eq!(world.taken_at(START_MS, &counters[0]).await, 4, "the first one's stays the first one's");
}

#[rstest]
#[tokio::test]
async fn a_best_effort_takes_what_is_left_and_its_repeat_gets_the_same(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let (counters, amounts) = ([limit(b"global--", 10)], all_units(&[7, 7]));
    let of_both = [Counter { lines: vec![(0, 1), (1, 1)], ..counters[0].clone() }];
    let best = |key| TakeCall { mode: TakeMode::BestEffort, ..call(&world, (key, 1), &of_both, &amounts) };
    assert_eq!(taken(world.gate.take(&best("a")).await.unwrap()), (vec![7, 3], true));
    assert_eq!(taken(world.gate.take(&best("a")).await.unwrap()), (vec![7, 3], false));
    let none = world.gate.take(&best("b")).await.unwrap();
    assert!(matches!(none, TakeOutcome::Refused { .. }), "{none:?}");
}

#[rstest]
#[tokio::test]
async fn work_that_is_done_already_is_counted_beyond_the_capacity(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let (counters, amounts) = ([limit(b"global--", 10)], all_units(&[14]));
    let done = TakeCall { mode: TakeMode::Counts, ..call(&world, ("a", 1), &counters, &amounts) };
    assert_eq!(taken(world.gate.take(&done).await.unwrap()), (vec![14], true));
    assert_eq!(world.taken_at(START_MS, &counters[0]).await, 14);
}

#[rstest]
#[tokio::test]
async fn a_taking_is_remembered_as_long_as_its_windows_and_no_longer(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let (counters, amounts) = ([limit(b"global--", 100)], all_units(&[1]));
    let key = |key: &str| world.key(&format!("taken:{}", world.id(key).to_hex()));
    let unkeyed =
        TakeCall { keyed: false, max_life_ms: 0, ..call(&world, ("usage", 1), &counters, &amounts) };
    taken(world.gate.take(&unkeyed).await.unwrap());
    assert_eq!(
        world.server.command(&["EXISTS", &key("usage")]),
        redis::Value::Int(0),
        "nobody can repeat it"
    );
    let now_ms = world.gate.redis_time_ms();
    let window = (now_ms - 1_000, now_ms + 30_000);
    let today = [Counter { parameters: in_window(window.0, window.1), ..counters[0].clone() }];
    let call = TakeCall {
        valid: window,
        needed_until_ms: window.1,
        now_ms: None,
        ..call(&world, ("a", 1), &today, &amounts)
    };
    taken(world.gate.take(&call).await.unwrap());
    let lives_ms: i64 = redis::from_redis_value(world.server.command(&["PTTL", &key("a")])).unwrap();
    assert!((1..=30_000).contains(&lives_ms), "{lives_ms}");
    taken(world.gate.take(&call).await.unwrap());
    let lives_ms: i64 = redis::from_redis_value(world.server.command(&["PTTL", &key("a")])).unwrap();
    assert!((1..=30_000).contains(&lives_ms), "{lives_ms}");
}

#[rstest]
#[tokio::test]
async fn a_retry_after_a_window_is_over_takes_in_the_next_one(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    for (number, row) in window_rows().enumerate().skip(1) {
        let name = *<&[u8; 8]>::try_from(format!("{number:08}").as_bytes()).unwrap();
        let turning = Counter { parameters: row.turning, ..limit(&name, 10) };
        let other = *<&[u8; 8]>::try_from(format!("l{number:07}").as_bytes()).unwrap();
        let lasting = Counter { parameters: row.lasting, ..limit(&other, 1_000) };
        let both = [turning.clone(), lasting.clone()];
        let (begins_ms, later_ms) = (START_MS + 10_000, START_MS + 55_000);
        let before = world.taken_at(begins_ms, &lasting).await;
        taken(take_at(&world, START_MS, (&format!("first {number}"), 1), &both, &[1]).await);
        taken(take_at(&world, begins_ms, (row.name, 1), &both, &[5]).await);
        let again = take_at(&world, later_ms, (row.name, 1), &both, &[5]).await;
        assert!(matches!(again, TakeOutcome::Taken { is_new: true, .. }), "{}: {again:?}", row.name);
        assert_eq!(world.taken_at(later_ms, &turning).await, 5, "{}", row.name);
        let counted = world.taken_at(later_ms, &lasting).await - before;
        assert_eq!(counted, 11, "{}: what lasts counts it twice rather than not at all", row.name);
    }
}

#[rstest]
#[tokio::test]
async fn what_would_go_beyond_the_largest_amount_counts_nothing(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let (counters, most) = ([limit(b"global--", 10)], all_units(&[9_000_000_000_000_000]));
    let counts = |key| TakeCall { mode: TakeMode::Counts, ..call(&world, (key, 1), &counters, &most) };
    taken(world.gate.take(&counts("a")).await.unwrap());
    assert_eq!(world.gate.take(&counts("b")).await.unwrap(), TakeOutcome::TooLarge);
    assert_eq!(world.taken_at(START_MS, &counters[0]).await, 9_000_000_000_000_000);
}

#[rstest]
#[tokio::test]
async fn what_another_epoch_counted_is_not_given_back_in_this_one(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let counter = limit(b"global--", 10);
    taken(take_at(&world, START_MS, ("a", 1), std::slice::from_ref(&counter), &[5]).await);
    let of = |epoch| Taking {
        epoch: Epoch(epoch),
        at_ms: START_MS,
        unmoved: 0,
        granted: all_units(&[3]),
        counters: vec![counter.clone()],
    };
    let before = [of(0)];
    let given = world.gate.give_back(world.partition, GivenBack::Takings(&before), Some(START_MS)).await;
    assert!(given.is_err(), "{given:?}");
    assert_eq!(world.taken_at(START_MS, &counter).await, 5);
    world.give_back(GivenBack::Takings(&[of(1)])).await;
    assert_eq!(world.taken_at(START_MS, &counter).await, 2);
}

#[rstest]
#[tokio::test]
async fn another_epoch_begins_with_nothing_taken(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    let counters = [limit(b"global--", 10)];
    taken(take_at(&world, START_MS, ("a", 1), &counters, &[7]).await);
    world.adopt(2).await;
    world.gate.set_epoch(world.partition, Epoch(2));
    assert_eq!(world.taken_at(START_MS, &counters[0]).await, 0);
    world.give_back(GivenBack::Call(world.id("a"))).await;
    assert_eq!(taken(take_at(&world, START_MS, ("a", 1), &counters, &[7]).await), (vec![7], true));
    assert_eq!(world.taken_at(START_MS, &counters[0]).await, 7);
}

#[rstest]
#[tokio::test]
async fn windows_that_were_computed_for_another_time_count_nothing(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let counters = [limit(b"global--", 10)];
    let stale = take_at(&world, WINDOW.1, ("a", 1), &counters, &[7]).await;
    assert_eq!(stale, TakeOutcome::StaleWindow { now_ms: WINDOW.1 });
    assert_eq!(world.taken_at(START_MS, &counters[0]).await, 0);
}

#[tokio::test]
async fn many_calls_at_once_never_take_more_than_there_is() {
    let world = World::cold(Mode::Alone).await;
    let (counters, amounts) = ([limit(b"global--", 50)], all_units(&[1]));
    let taking = (0..100).map(|number| {
        let (world, counters, amounts) = (&world, &counters, &amounts);
        async move {
            let key = format!("k{number}");
            let outcome = world.gate.take(&call(world, (&key, 1), counters, amounts)).await.unwrap();
            matches!(outcome, TakeOutcome::Taken { .. })
        }
    });
    let taken = futures::future::join_all(taking).await.into_iter().filter(|taken| *taken).count();
    assert_eq!(taken, 50);
}
