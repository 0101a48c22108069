use rstest::rstest;
use tollgate::domain::amount::UNITS_MAX;
use tollgate::domain::counter::Counter;
use tollgate::domain::event::Change;
use tollgate::domain::ids::{Epoch, OutboxId};
use tollgate::domain::reservation::ReservationState;
use tollgate::gate::{
    Cold, GateError, KnownSubjects, QuotaCapacity, ReserveMode, ReserveOutcome, Totals, WarmState,
};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

/// So many pages of a day that has room for ten.
fn of_ten(key: &str, amount: i64) -> Ask {
    pages(key, amount).under([day(10)])
}

#[rstest]
#[tokio::test]
async fn an_admitted_reserve_holds_its_amount_and_says_so_in_one_event(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ask = of_ten("a", 4);
    let ReserveOutcome::Admitted { granted, expires_at_ms, event, now_ms, readings, .. } =
        world.reserve(&ask).await
    else {
        panic!("not admitted")
    };
    assert_eq!(granted, all_units(&[4]));
    assert_eq!((now_ms, expires_at_ms), (START_MS, START_MS + TTL_MS));
    assert_eq!(event, OutboxId { epoch: Epoch(1), sequence: 0 });
    assert_eq!((readings[0].consumed, readings[0].reserved), (units(0), units(4)));
    assert_eq!(readings[0].room, Some(6));
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
    world.hold(&of_ten("a", 6)).await;
    let ReserveOutcome::Refused { readings, refusing, granted_by_line, .. } =
        world.reserve(&of_ten("b", 5)).await
    else {
        panic!("not refused")
    };
    // The hold in its way ends with its ttl.
    assert_eq!((refusing, granted_by_line), (vec![(0, Some(TTL_MS))], all_units(&[4])));
    assert_eq!(readings[0].reserved, units(6));
    assert_eq!(world.record("b").await, None);
    assert_eq!(world.events().await.len(), 1);
    world.hold(&of_ten("c", 4)).await;
}

#[rstest]
#[tokio::test]
async fn all_refusing_counters_are_named_and_none_of_the_others_moves(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let checks = vec![limit(b"hour----", 1), day(100), limit(b"month---", 2)];
    let ask = pages("a", 3).under(checks.clone());
    assert_eq!(refusing(world.reserve(&ask).await), [0, 2]);
    assert_eq!(world.counts(&checks[1]).await, (0, 0));
}

#[rstest]
#[tokio::test]
async fn a_counter_is_measured_once_with_the_weighted_sum_of_its_lines(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let budget = weighted(&[1, 5], limit(b"budget--", 100));
    let lines = |b| vec![line("a", 50), line("b", b)];
    assert_matches!(
        world.reserve(&ask("over", lines(11), vec![budget.clone()])).await,
        ReserveOutcome::Refused { .. }
    );
    world.hold(&ask("exact", lines(10), vec![budget.clone()])).await;
    assert_eq!(world.counts(&budget).await, (0, 100));
}

#[rstest]
#[tokio::test]
async fn best_effort_grants_line_by_line_what_is_left_after_the_lines_before(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let budget = weighted(&[3, 2], limit(b"budget--", 20));
    let lines = vec![line("a", 4), line("b", 9)];
    let mut best = ask("a", lines, vec![budget.clone()]).by(ReserveMode::BestEffort);
    let ReserveOutcome::Admitted { granted, .. } = world.reserve(&best).await else { panic!("not admitted") };
    assert_eq!(granted, all_units(&[4, 4]));
    assert_eq!(world.counts(&budget).await, (0, 20));
    best.key = "b".into();
    assert_matches!(world.reserve(&best).await, ReserveOutcome::Refused { .. }, "nothing is left");
}

#[rstest]
#[tokio::test]
async fn a_dry_run_says_what_would_happen_and_writes_nothing(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let dry = |amount| of_ten("a", amount).by(ReserveMode::DryRun);
    assert_matches!(world.reserve(&dry(4)).await, ReserveOutcome::Allowed { .. });
    assert_matches!(world.reserve(&dry(11)).await, ReserveOutcome::Refused { .. });
    assert_eq!(world.events().await.len(), 0);
    assert_eq!(world.record("a").await, None);
    assert_eq!(world.day().await, (0, 0));
}

#[rstest]
#[tokio::test]
async fn usage_counts_at_once_under_the_same_limits_and_holds_nothing(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let usage = of_ten("a", 4).by(ReserveMode::Usage);
    world.hold(&usage).await;
    assert_eq!(world.day().await, (4, 0));
    let record = world.record("a").await.unwrap();
    assert_eq!((record.units[0].held, record.units[0].consumed), (units(0), units(4)));
    assert_eq!((record.head.state, record.body.rest), (ReservationState::Consumed, None));
    let events = world.events().await;
    let Change::Usage(event) = &events[0].change else { panic!("not a usage") };
    assert_eq!(event.body, world.body(&usage), "the event carries the whole record");
    let more = of_ten("b", 7).by(ReserveMode::Usage);
    assert_matches!(world.reserve(&more).await, ReserveOutcome::Refused { .. });
    assert_eq!(world.sweep(START_MS + 10 * TTL_MS).await, 0, "nothing is due");
}

#[rstest]
#[tokio::test]
async fn a_replay_answers_the_record_as_it_is_before_any_other_check(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&of_ten("a", 4)).await;
    let again = pages("a", 4).under([day(3)]).at(WINDOW.1 + 5);
    assert_eq!(replayed(world.reserve(&again).await).head.expires_at_ms, START_MS + TTL_MS);
    world.consume("a", total("1"), true).await;
    let ReserveOutcome::Replayed { record, readings, .. } = world.reserve(&of_ten("a", 4)).await else {
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
    world.hold(&of_ten("a", 4)).await;
    let other = of_ten("a", 4).with_meaning(2);
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
        let late = world.reserve(&of_ten("a", 1).at(now_ms)).await;
        assert_eq!(late, ReserveOutcome::StaleWindow { now_ms });
    }
    assert_matches!(world.reserve(&of_ten("a", 1)).await, ReserveOutcome::Cold(_));
}

#[rstest]
#[tokio::test]
async fn a_counter_moves_to_a_later_window_and_never_back(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&of_ten("a", 10)).await;
    let next = of_ten("b", 10).under([from_ms(WINDOW.1, day(10))]).at(WINDOW.1);
    world.hold(&Ask { valid: (WINDOW.1, WINDOW.1 + 1_000_000), ..next.clone() }).await;
    let stale = world.reserve(&of_ten("c", 1)).await;
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
    let expected = |tenant, holders| {
        let last_id = OutboxId::default();
        Cold { epoch: Epoch(1), last_id, tenant, holders, counters: Vec::new(), only_bounds: false }
    };
    assert_eq!(cold(world.reserve(&of_ten("a", 1)).await), expected(true, vec![]));
    world.warm_up(WarmState { subjects: KnownSubjects::Everybody, ..WarmState::default() }).await;
    let subjects = vec![user("u1"), user("u2")];
    let with_user = Ask { subjects, ..pages("a", 1).under([of_subject(2, limit(b"user----", 5))]) };
    assert_eq!(cold(world.reserve(&with_user).await), expected(false, vec![2]));
    world.tell_subject(&user("u2"), WarmState::default()).await;
    world.hold(&with_user).await;
}

#[rstest]
#[tokio::test]
async fn a_missing_quota_counter_is_zero_only_if_its_window_began_after_restore_and_creation(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let within = pages("a", 1).under([kept(day(10))]);
    assert_eq!(cold(world.reserve(&within).await).counters, [0]);
    world.hold(&pages("b", 1).under([from_ms(START_MS, kept(day(10)))])).await;
    let created = from_ms(START_MS, kept(limit(b"created-", 10)));
    let created = pages("c", 1).under([Counter { since_ms: START_MS + 1, ..created }]);
    assert_eq!(cold(world.reserve(&created).await).counters, [0]);
}

#[rstest]
#[tokio::test]
async fn a_quotas_capacity_follows_its_parts_and_is_cold_past_the_last_boundary(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let reserve_at = async |now_ms, key: &str, amount| {
        world.reserve(&pages(key, amount).under([quota(b"quota---")]).at(now_ms)).await
    };
    assert_eq!(cold(reserve_at(START_MS, "a", 1).await).counters, [0]);
    let parts = vec![(START_MS - 5, units(4)), (START_MS + 100, units(9))];
    world.tell_capacity(QuotaCapacity { parts, ..capacity(b"quota---", 3, 0, START_MS + 200) }).await;
    assert_matches!(reserve_at(START_MS + 99, "b", 5).await, ReserveOutcome::Refused { .. });
    assert_eq!(admitted(reserve_at(START_MS + 100, "c", 9).await)[0].room, Some(0));
    assert_eq!(cold(reserve_at(START_MS + 200, "d", 1).await).counters, [0]);
}

#[rstest]
#[tokio::test]
async fn what_fits_under_a_bound_is_admitted_and_of_what_does_not_the_ledger_is_asked(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let parts = vec![(START_MS - 5, units(9)), (START_MS + 100, units(4)), (START_MS + 200, units(2))];
    let bounds_ms = vec![(START_MS + 100, START_MS + 200)];
    let told = QuotaCapacity { parts, bounds_ms, ..capacity(b"quota---", 3, 0, START_MS + 300) };
    world.tell_capacity(told).await;
    let asked = |now_ms, key: &str, amount| pages(key, amount).under([quota(b"quota---")]).at(now_ms);
    assert_matches!(world.reserve(&asked(START_MS, "a", 10)).await, ReserveOutcome::Refused { .. });
    assert_eq!(admitted(world.reserve(&asked(START_MS + 100, "b", 2)).await)[0].room, Some(2));
    assert_eq!(cold(world.reserve(&asked(START_MS + 100, "c", 3)).await).counters, [0]);
    let as_much_as_fits = asked(START_MS + 100, "d", 3).by(ReserveMode::BestEffort);
    assert_eq!(cold(world.reserve(&as_much_as_fits).await).counters, [0]);
    assert_matches!(world.reserve(&asked(START_MS + 200, "e", 2)).await, ReserveOutcome::Refused { .. });
}

#[rstest]
#[tokio::test]
async fn a_keyed_call_after_a_loss_asks_the_ledger_first(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    world.warm_up(WarmState { ask_until_ms: START_MS + 10, ..WarmState::default() }).await;
    assert_matches!(world.reserve(&of_ten("a", 1)).await, ReserveOutcome::AskLedger { .. });
    world.hold(&Ask { keyed: false, ..of_ten("b", 1) }).await;
    world.hold(&Ask { ledger_asked: true, ..of_ten("c", 1) }).await;
    world.hold(&of_ten("d", 1).at(START_MS + 10)).await;
}

#[rstest]
#[tokio::test]
async fn a_keyed_call_that_a_filter_knows_asks_the_ledger_unless_the_gate_knows_it_too(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let maybe = |key: &str| Ask { may_be_known: true, ..of_ten(key, 1) };
    assert_matches!(world.reserve(&maybe("a")).await, ReserveOutcome::AskLedger { .. });
    let more_than_fits = Ask { may_be_known: true, ..of_ten("b", 11) };
    assert_matches!(world.reserve(&more_than_fits).await, ReserveOutcome::AskLedger { .. });
    world.hold(&Ask { ledger_asked: true, ..maybe("a") }).await;
    assert_matches!(world.reserve(&maybe("a")).await, ReserveOutcome::Replayed { .. });
}

#[rstest]
#[tokio::test]
async fn sums_are_exact_up_to_the_largest_amount(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    world.warm_up(told(&[(b"day-----", UNITS_MAX - 3, 0)])).await;
    assert_matches!(
        world.reserve(&pages("a", 4).under([day(UNITS_MAX)])).await,
        ReserveOutcome::Refused { .. }
    );
    world.hold(&pages("b", 3).under([day(UNITS_MAX)])).await;
    assert_eq!(world.day().await, (UNITS_MAX - 3, 3));
    let heavy = weighted(&[2], limit(b"heavy---", UNITS_MAX));
    let half = UNITS_MAX / 2;
    let call = |key: &str, amount| pages(key, amount).under([heavy.clone()]);
    assert_matches!(world.reserve(&call("c", half + 1)).await, ReserveOutcome::Refused { .. });
    assert_matches!(world.reserve(&call("d", UNITS_MAX)).await, ReserveOutcome::Refused { .. });
    world.hold(&call("e", half)).await;
}

#[rstest]
#[tokio::test]
async fn a_call_that_contradicts_itself_never_reaches_the_server(#[values(Mode::Alone)] mode: Mode) {
    let world = World::warm(mode).await;
    let twice = pages("a", 1).under([day(5), day(5)]);
    assert_matches!(world.try_reserve(&twice).await, Err(GateError::Malformed { .. }));
    let nobody = pages("a", 1).under([of_subject(1, day(5))]);
    assert_matches!(world.try_reserve(&nobody).await, Err(GateError::Malformed { .. }));
}

#[rstest]
#[tokio::test]
async fn a_counter_says_when_the_next_of_its_holds_ends_never_too_late_and_not_once_that_has_passed(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let next_end_at = async |after_ms: i64| {
        let reading = world.reading_at(START_MS + after_ms, &day(10)).await;
        reading.next_hold_ends_at_ms.map(|ends_at_ms| ends_at_ms - START_MS)
    };
    let hold_at = async |now_ms: i64, key: &str, ttl_ms: i64| {
        world.hold(&of_ten(key, 1).lasting(ttl_ms).at(START_MS + now_ms)).await;
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
    let next_end = async |now_ms: i64| world.reading_at(now_ms, &day(10)).await.next_hold_ends_at_ms;
    for (key, ttl_ms) in [("a", 10_000), ("b", 20_000)] {
        world.hold(&of_ten(key, 1).lasting(ttl_ms)).await;
    }
    let now_ms = START_MS + 10_000 + BUCKET_MS;
    assert_eq!(world.sweep(now_ms).await, 1);
    world.hold(&of_ten("c", 1).at(now_ms)).await;
    assert_eq!(next_end(now_ms).await, None, "b ends before c");
    let now_ms = now_ms + TTL_MS + BUCKET_MS;
    assert_eq!(world.sweep(now_ms).await, 2);
    world.hold(&of_ten("d", 1).at(now_ms)).await;
    assert_eq!(next_end(now_ms).await, Some(now_ms + TTL_MS));
}
