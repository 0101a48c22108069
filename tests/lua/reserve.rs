use rstest::rstest;
use tollgate::domain::amount::UNITS_MAX;
use tollgate::domain::event::Change;
use tollgate::domain::ids::{Epoch, OutboxId};
use tollgate::domain::reservation::ReservationState;
use tollgate::gate::{
    CheckCapacity, Cold, CounterClass, GateError, KnownSubjects, QuotaCapacity, ReserveMode, ReserveOutcome,
    Totals, WarmState,
};

use crate::gate::server::Mode;
use crate::gate::world::*;

fn pages(key: &str, amount: i64, capacity: i64) -> Ask {
    ask(key, vec![line("ocr.page", amount)], vec![limit(b"day-----", capacity)])
}

#[rstest]
#[tokio::test]
async fn an_admitted_reserve_holds_its_amount_and_says_so_in_one_event(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ask = pages("a", 4, 10);
    let ReserveOutcome::Admitted { granted, expires_at_ms, event, now_ms, readings } =
        world.reserve(&ask).await
    else {
        panic!("not admitted")
    };
    assert_eq!(granted, all_units(&[4]));
    assert_eq!((now_ms, expires_at_ms), (START_MS, START_MS + TTL_MS));
    assert_eq!(event, OutboxId { epoch: Epoch(1), sequence: 0 });
    assert_eq!((readings[0].consumed, readings[0].reserved), (units(0), units(4)));
    assert_eq!(readings[0].capacity, Some(units(10)));
    assert_eq!(readings[0].next_hold_ends_at_ms, Some(expires_at_ms));
    let events = world.events().await;
    let Change::Reserve(record) = &events[0].change else { panic!("not a reserve") };
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].reservation, world.id("a"));
    assert_eq!(Some(record), world.record("a").await.as_ref());
    assert_eq!(record.body, world.body(&ask));
    assert_eq!(record.head.latest_expiry_ms, START_MS + 600_000);
}

#[rstest]
#[tokio::test]
async fn a_hold_never_takes_a_counter_above_its_capacity(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6, 10)).await;
    let ReserveOutcome::Refused { readings, refusing, granted_by_line, .. } =
        world.reserve(&pages("b", 5, 10)).await
    else {
        panic!("not refused")
    };
    assert_eq!((refusing, granted_by_line), (vec![0], all_units(&[4])));
    assert_eq!(readings[0].reserved, units(6));
    assert_eq!(world.record("b").await, None);
    assert_eq!(world.events().await.len(), 1);
    world.hold(&pages("c", 4, 10)).await;
}

#[rstest]
#[tokio::test]
async fn all_refusing_counters_are_named_and_none_of_the_others_moves(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let checks = vec![limit(b"hour----", 1), limit(b"day-----", 100), limit(b"month---", 2)];
    let ask = ask("a", vec![line("ocr.page", 3)], checks.clone());
    let ReserveOutcome::Refused { refusing, .. } = world.reserve(&ask).await else { panic!("not refused") };
    assert_eq!(refusing, vec![0, 2]);
    assert_eq!(world.counts(&checks[1]).await, (0, 0));
}

#[rstest]
#[tokio::test]
async fn a_counter_is_measured_once_with_the_weighted_sum_of_its_lines(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let mut budget = limit(b"budget--", 100);
    budget.place.pairs = vec![(0, 1), (1, 5)];
    let lines = |b| vec![line("a", 50), line("b", b)];
    assert!(matches!(
        world.reserve(&ask("over", lines(11), vec![budget.clone()])).await,
        ReserveOutcome::Refused { .. }
    ));
    world.hold(&ask("exact", lines(10), vec![budget.clone()])).await;
    assert_eq!(world.counts(&budget).await, (0, 100));
}

#[rstest]
#[tokio::test]
async fn best_effort_grants_line_by_line_what_is_left_after_the_lines_before(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let mut budget = limit(b"budget--", 20);
    budget.place.pairs = vec![(0, 3), (1, 2)];
    let mut best = ask("a", vec![line("a", 4), line("b", 9)], vec![budget.clone()]);
    best.mode = ReserveMode::BestEffort;
    let ReserveOutcome::Admitted { granted, .. } = world.reserve(&best).await else { panic!("not admitted") };
    assert_eq!(granted, all_units(&[4, 4]));
    assert_eq!(world.counts(&budget).await, (0, 20));
    best.key = "b".into();
    assert!(matches!(world.reserve(&best).await, ReserveOutcome::Refused { .. }), "nothing is left");
}

#[rstest]
#[tokio::test]
async fn a_dry_run_says_what_would_happen_and_writes_nothing(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let mut dry = pages("a", 4, 10);
    dry.mode = ReserveMode::DryRun;
    assert!(matches!(world.reserve(&dry).await, ReserveOutcome::Allowed { .. }));
    dry.lines[0].amount = 11;
    assert!(matches!(world.reserve(&dry).await, ReserveOutcome::Refused { .. }));
    assert_eq!(world.events().await.len(), 0);
    assert_eq!(world.record("a").await, None);
    assert_eq!(world.counts(&dry.checks[0]).await, (0, 0));
}

#[rstest]
#[tokio::test]
async fn usage_counts_at_once_under_the_same_limits_and_holds_nothing(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let mut usage = pages("a", 4, 10);
    usage.mode = ReserveMode::Usage;
    world.hold(&usage).await;
    assert_eq!(world.counts(&usage.checks[0]).await, (4, 0));
    let record = world.record("a").await.unwrap();
    assert_eq!((record.units[0].held, record.units[0].consumed), (units(0), units(4)));
    assert_eq!((record.head.state, record.body.rest), (ReservationState::Consumed, None));
    let events = world.events().await;
    let Change::Usage(event) = &events[0].change else { panic!("not a usage") };
    assert_eq!(event.body, world.body(&usage), "the event carries the whole record");
    usage.key = "b".into();
    usage.lines[0].amount = 7;
    assert!(matches!(world.reserve(&usage).await, ReserveOutcome::Refused { .. }));
    assert_eq!(world.sweep(START_MS + 10 * TTL_MS).await, 0, "nothing is due");
}

#[rstest]
#[tokio::test]
async fn a_replay_answers_the_record_as_it_is_before_any_other_check(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 4, 10)).await;
    let mut again = pages("a", 4, 3);
    again.now_ms = WINDOW.1 + 5;
    let ReserveOutcome::Replayed { record, .. } = world.reserve(&again).await else { panic!("not a replay") };
    assert_eq!(record.head.expires_at_ms, START_MS + TTL_MS);
    world.consume("a", total("1"), true).await;
    let ReserveOutcome::Replayed { record, readings, .. } = world.reserve(&pages("a", 4, 10)).await else {
        panic!("not a replay")
    };
    assert_eq!(record.head.state, ReservationState::Consumed);
    assert_eq!((readings[0].consumed, readings[0].reserved), (units(1), units(0)));
    assert_eq!(world.events().await.len(), 2);
}

#[rstest]
#[tokio::test]
async fn the_same_key_with_another_meaning_is_refused_as_reused(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 4, 10)).await;
    let mut other = pages("a", 4, 10);
    other.meaning = 2;
    let ReserveOutcome::KeyReused { record } = world.reserve(&other).await else { panic!("not reused") };
    assert_eq!(record.units[0].held, units(4), "it names the first");
}

#[rstest]
#[tokio::test]
async fn a_window_that_does_not_hold_the_scripts_time_is_stale_before_anything_is_cold(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    for now_ms in [WINDOW.0 - 1, WINDOW.1] {
        let mut late = pages("a", 1, 10);
        late.now_ms = now_ms;
        assert_eq!(world.reserve(&late).await, ReserveOutcome::StaleWindow { now_ms });
    }
    assert!(matches!(world.reserve(&pages("a", 1, 10)).await, ReserveOutcome::Cold(_)));
}

#[rstest]
#[tokio::test]
async fn a_counter_moves_to_a_later_window_and_never_back(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 10, 10)).await;
    let mut next = pages("b", 10, 10);
    next.checks[0].place.window_start_ms = WINDOW.1;
    next.valid = (WINDOW.1, WINDOW.1 + 1_000_000);
    next.now_ms = WINDOW.1;
    world.hold(&next).await;
    let stale = world.reserve(&pages("c", 1, 10)).await;
    assert_eq!(stale, ReserveOutcome::StaleWindow { now_ms: START_MS });
    world.consume_at(WINDOW.1, "a", total("3"), true).await;
    let reading = world.reading_at(WINDOW.1, &next.checks[0]).await;
    assert_eq!((reading.consumed, reading.reserved), (units(0), units(10)), "the new window is untouched");
}

#[rstest]
#[tokio::test]
async fn a_cold_tenant_and_cold_subjects_are_named_with_the_outboxs_last_id(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let none = OutboxId::default();
    let cold =
        |tenant, holders| Cold { epoch: Epoch(1), last_id: none, tenant, holders, counters: Vec::new() };
    assert_eq!(world.reserve(&pages("a", 1, 10)).await, ReserveOutcome::Cold(cold(true, vec![])));
    world.warm_up(WarmState { subjects: KnownSubjects::Everybody, ..WarmState::default() }).await;
    let mut of_user = limit(b"user----", 5);
    of_user.place.holder = 2;
    let mut with_user = ask("a", vec![line("ocr.page", 1)], vec![of_user]);
    with_user.subjects = vec![user("u1"), user("u2")];
    assert_eq!(world.reserve(&with_user).await, ReserveOutcome::Cold(cold(false, vec![2])));
    let hash = world.hash(&user("u2"));
    let warm = WarmState::default();
    world
        .gate
        .restore_subject(world.partition, Epoch(1), &world.tenant, hash, warm, Some(START_MS))
        .await
        .unwrap();
    world.hold(&with_user).await;
}

#[rstest]
#[tokio::test]
async fn a_missing_quota_counter_is_zero_only_if_its_window_began_after_restore_and_creation(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let mut check = limit(b"day-----", 10);
    check.class = CounterClass::Quota;
    let within = ask("a", vec![line("ocr.page", 1)], vec![check.clone()]);
    assert!(matches!(world.reserve(&within).await, ReserveOutcome::Cold(cold) if cold.counters == vec![0]));
    check.place.window_start_ms = START_MS;
    world.hold(&ask("b", vec![line("ocr.page", 1)], vec![check.clone()])).await;
    check.place.field = field(b"created-");
    check.since_ms = START_MS + 1;
    let created = ask("c", vec![line("ocr.page", 1)], vec![check]);
    assert!(matches!(world.reserve(&created).await, ReserveOutcome::Cold(cold) if cold.counters == vec![0]));
}

#[rstest]
#[tokio::test]
async fn a_quotas_capacity_follows_its_parts_and_is_cold_past_the_last_boundary(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let name = field(b"quota---");
    let mut quota = limit(b"quota---", 0);
    quota.capacity = CheckCapacity::Quota { field: name };
    let at = |key: &str, amount, now_ms| Ask {
        now_ms,
        ..ask(key, vec![line("ocr.page", amount)], vec![quota.clone()])
    };
    assert!(
        matches!(world.reserve(&at("a", 1, START_MS)).await, ReserveOutcome::Cold(c) if c.counters == vec![0])
    );
    let capacity = QuotaCapacity {
        field: name,
        version: 3,
        parts: vec![(START_MS - 5, units(4)), (START_MS + 100, units(9))],
        until_ms: START_MS + 200,
    };
    world.gate.set_capacity(world.partition, &world.tenant, &capacity, Some(START_MS)).await.unwrap();
    assert!(matches!(world.reserve(&at("b", 5, START_MS + 99)).await, ReserveOutcome::Refused { .. }));
    let ReserveOutcome::Admitted { readings, .. } = world.reserve(&at("c", 9, START_MS + 100)).await else {
        panic!("not admitted")
    };
    assert_eq!(readings[0].capacity, Some(units(9)));
    let past = world.reserve(&at("d", 1, START_MS + 200)).await;
    assert!(matches!(past, ReserveOutcome::Cold(cold) if cold.counters == vec![0]));
}

#[rstest]
#[tokio::test]
async fn a_keyed_call_after_a_loss_asks_the_ledger_first(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    world.warm_up(WarmState { ask_until_ms: START_MS + 10, ..WarmState::default() }).await;
    let asked = world.reserve(&pages("a", 1, 10)).await;
    assert!(matches!(asked, ReserveOutcome::AskLedger { .. }), "{asked:?}");
    world.hold(&Ask { keyed: false, ..pages("b", 1, 10) }).await;
    world.hold(&Ask { ledger_asked: true, ..pages("c", 1, 10) }).await;
    world.hold(&Ask { now_ms: START_MS + 10, ..pages("d", 1, 10) }).await;
}

#[rstest]
#[tokio::test]
async fn a_keyed_call_that_a_filter_knows_asks_the_ledger_unless_the_gate_knows_it_too(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let maybe = |key: &str| Ask { may_be_known: true, ..pages(key, 1, 10) };
    let asked = world.reserve(&maybe("a")).await;
    assert!(matches!(asked, ReserveOutcome::AskLedger { .. }), "{asked:?}");
    let more_than_fits = world.reserve(&Ask { may_be_known: true, ..pages("b", 11, 10) }).await;
    assert!(matches!(more_than_fits, ReserveOutcome::AskLedger { .. }), "before it is refused");
    world.hold(&Ask { ledger_asked: true, ..maybe("a") }).await;
    assert!(matches!(world.reserve(&maybe("a")).await, ReserveOutcome::Replayed { .. }));
}

#[rstest]
#[tokio::test]
async fn sums_are_exact_up_to_the_largest_amount(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    let counter = restored_counter(b"day-----", UNITS_MAX - 3, 0);
    world.warm_up(WarmState { counters: vec![counter], ..WarmState::default() }).await;
    assert!(matches!(world.reserve(&pages("a", 4, UNITS_MAX)).await, ReserveOutcome::Refused { .. }));
    world.hold(&pages("b", 3, UNITS_MAX)).await;
    assert_eq!(world.counts(&limit(b"day-----", 1)).await, (UNITS_MAX - 3, 3));
    let mut heavy = limit(b"heavy---", UNITS_MAX);
    heavy.place.pairs = vec![(0, 2)];
    let half = UNITS_MAX / 2;
    let call = |key: &str, amount| ask(key, vec![line("ocr.page", amount)], vec![heavy.clone()]);
    assert!(matches!(world.reserve(&call("c", half + 1)).await, ReserveOutcome::Refused { .. }));
    assert!(matches!(world.reserve(&call("d", UNITS_MAX)).await, ReserveOutcome::Refused { .. }));
    world.hold(&call("e", half)).await;
}

#[rstest]
#[tokio::test]
async fn a_call_that_contradicts_itself_never_reaches_the_server(#[values(Mode::Alone)] mode: Mode) {
    let world = World::warm(mode).await;
    let twice = ask("a", vec![line("ocr.page", 1)], vec![limit(b"day-----", 5), limit(b"day-----", 5)]);
    assert!(matches!(world.try_reserve(&twice).await, Err(GateError::Malformed { .. })));
    let mut nobody = limit(b"day-----", 5);
    nobody.place.holder = 1;
    let nobody = ask("a", vec![line("ocr.page", 1)], vec![nobody]);
    assert!(matches!(world.try_reserve(&nobody).await, Err(GateError::Malformed { .. })));
}

#[rstest]
#[tokio::test]
async fn a_counter_says_when_the_next_of_its_holds_ends_never_too_late_and_not_once_that_has_passed(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let next_end_at = async |after_ms: i64| {
        let reading = world.reading_at(START_MS + after_ms, &limit(b"day-----", 10)).await;
        reading.next_hold_ends_at_ms.map(|ends_at_ms| ends_at_ms - START_MS)
    };
    let hold_at = async |now_ms: i64, key: &str, ttl_ms: i64| {
        world.hold(&Ask { ttl_ms, now_ms: START_MS + now_ms, ..pages(key, 1, 10) }).await;
    };
    for (key, ttl_ms) in [("a", 50_000), ("b", 20_000), ("c", 30_000)] {
        hold_at(0, key, ttl_ms).await;
    }
    assert_eq!(next_end_at(0).await, Some(20_000));
    world.release("c", Totals::Default).await;
    assert_eq!(next_end_at(0).await, Some(20_000));
    world.release("b", Totals::Default).await;
    assert_eq!(next_end_at(0).await, Some(20_000), "no hold ends before that");
    hold_at(0, "d", 40_000).await;
    assert_eq!(next_end_at(0).await, Some(20_000));
    assert_eq!(next_end_at(20_000).await, None, "which one is next is not known any more");
    hold_at(20_000, "e", 50_000).await;
    assert_eq!(next_end_at(20_000).await, None, "another may end before this one");
    for key in ["a", "d", "e"] {
        world.release(key, Totals::Default).await;
    }
    hold_at(20_000, "f", 50_000).await;
    assert_eq!(next_end_at(20_000).await, Some(70_000));
}

#[rstest]
#[tokio::test]
async fn an_expiry_leaves_what_it_does_not_know_of_the_holds_that_stay_and_clears_it_behind_the_last(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let next_end =
        async |now_ms: i64| world.reading_at(now_ms, &limit(b"day-----", 10)).await.next_hold_ends_at_ms;
    for (key, ttl_ms) in [("a", 10_000), ("b", 20_000)] {
        world.hold(&Ask { ttl_ms, ..pages(key, 1, 10) }).await;
    }
    let now_ms = START_MS + 10_000 + BUCKET_MS;
    assert_eq!(world.sweep(now_ms).await, 1);
    world.hold(&Ask { now_ms, ..pages("c", 1, 10) }).await;
    assert_eq!(next_end(now_ms).await, None, "b ends before c");
    let now_ms = now_ms + TTL_MS + BUCKET_MS;
    assert_eq!(world.sweep(now_ms).await, 2);
    world.hold(&Ask { now_ms, ..pages("d", 1, 10) }).await;
    assert_eq!(next_end(now_ms).await, Some(now_ms + TTL_MS));
}
