use rstest::rstest;
use tollgate::domain::amount::UNITS_MAX;
use tollgate::domain::event::Change;
use tollgate::domain::ids::{Epoch, OutboxId, TenantId};
use tollgate::domain::rejection::Rejection;
use tollgate::domain::reservation::{LineUnits, OnExcess, OnLate, ReservationState};
use tollgate::gate::{ConsumeCall, ReserveMode, ResolveOutcome, Totals};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

/// Six pages that a consume beyond the hold and this day's limit is cut to.
fn cut(key: &str, capacity: i64) -> Ask {
    pages(key, 6).ruled(OnExcess::Cap, OnLate::Charge).under([day(capacity)])
}

fn line_units(held: i64, consumed: i64) -> Vec<LineUnits> {
    vec![LineUnits::new(units(held), units(consumed))]
}

fn kept_units(held: i64, consumed: i64, uncharged: i64) -> Vec<LineUnits> {
    vec![LineUnits { uncharged: units(uncharged), ..line_units(held, consumed)[0] }]
}

fn state_after(outcome: ResolveOutcome) -> ReservationState {
    done(outcome).head.state
}

#[rstest]
#[tokio::test]
async fn a_final_consume_returns_the_rest_and_cuts_the_record_to_a_tombstone(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ask = pages("a", 6);
    world.hold(&ask).await;
    let outcome = world.consume("a", total("2"), true).await;
    let ResolveOutcome::Done { record, previous, readings, event, .. } = outcome else { panic!("not done") };
    assert_eq!((record.units.clone(), previous), (line_units(6, 2), line_units(6, 0)));
    assert_eq!((record.head.step, event.sequence), (2, 1));
    assert_eq!((readings[0].1.consumed, readings[0].1.reserved), (units(2), units(0)));
    assert_eq!(readings[0].1.next_hold_ends_at_ms, None);
    let stored = world.record("a").await.unwrap();
    assert_eq!((stored.head, stored.body.rest), (record.head, None));
    let events = world.events().await;
    let Change::Consume { is_final, head, units } = &events[1].change else { panic!("not a consume") };
    assert!(*is_final && !head.late);
    assert_eq!((head, units), (&record.head, &record.units));
}

#[rstest]
#[case::nothing("0", 0)]
#[case::less("2", 2)]
#[case::equal("6", 6)]
#[case::more("9", 9)]
#[tokio::test]
async fn a_final_consume_counts_its_total_and_holds_nothing_any_more(
    #[case] named: &str,
    #[case] counted: i64,
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    assert_eq!(state_after(world.consume("a", total(named), true).await), ReservationState::Consumed);
    assert_eq!(world.day().await, (counted, 0));
}

#[rstest]
#[tokio::test]
async fn partial_totals_move_what_is_held_first_and_then_take_more(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    for (named, counts) in [("2", (2, 4)), ("5", (5, 1)), ("8", (8, 0)), ("9", (9, 0))] {
        assert_eq!(state_after(world.consume("a", total(named), false).await), ReservationState::Reserved);
        assert_eq!(world.day().await, counts, "{named}");
    }
    assert!(world.record("a").await.unwrap().body.rest.is_some(), "an open record stays whole");
    world.consume("a", total("9"), true).await;
    assert_eq!(world.day().await, (9, 0));
    assert_eq!(world.events().await.len(), 6);
}

#[rstest]
#[tokio::test]
async fn a_total_without_amounts_is_the_larger_of_held_and_consumed(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("held", 6)).await;
    world.consume("held", Totals::Default, true).await;
    world.hold(&pages("more", 6)).await;
    world.consume("more", total("8"), false).await;
    world.consume("more", Totals::Default, true).await;
    assert_eq!(world.day().await, (6 + 8, 0));
}

#[rstest]
#[tokio::test]
async fn a_meter_not_named_stands_as_held_when_final_and_unchanged_when_partial(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&ask("a", vec![line("in", 6), line("out", 4)], vec![])).await;
    world.consume("a", totals(&[("out", "1")]), false).await;
    let consumed = |units: &[LineUnits]| units.iter().map(|line| line.consumed.get()).collect::<Vec<_>>();
    assert_eq!(consumed(&world.record("a").await.unwrap().units), [0, 1]);
    world.consume("a", totals(&[("out", "2")]), true).await;
    assert_eq!(consumed(&world.record("a").await.unwrap().units), [6, 2]);
}

#[rstest]
#[tokio::test]
async fn a_repeat_has_the_effect_of_one_and_another_resolution_is_refused(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    world.consume("a", total("2"), false).await;
    assert_matches!(world.consume("a", total("2"), false).await, ResolveOutcome::Replayed { .. });
    world.consume("a", total("2"), true).await;
    assert_matches!(world.consume("a", total("2"), true).await, ResolveOutcome::Replayed { .. });
    assert_matches!(
        world.consume("a", total("3"), true).await,
        ResolveOutcome::Rejected { rejection: Rejection::AlreadyResolved, .. }
    );
    assert_matches!(
        world.consume("a", total("1"), true).await,
        ResolveOutcome::Rejected { rejection: Rejection::AlreadyResolved, .. }
    );
    assert_matches!(
        world.extend_at(START_MS, "a", TTL_MS).await,
        ResolveOutcome::Rejected { rejection: Rejection::AlreadyResolved, .. }
    );
    assert_matches!(
        world.release("a", Totals::Default).await,
        ResolveOutcome::Rejected { rejection: Rejection::AlreadyResolved, .. }
    );
    assert_eq!(world.events().await.len(), 3);
    assert_eq!(world.day().await, (2, 0));
}

#[rstest]
#[tokio::test]
async fn amounts_that_cannot_be_are_refused_in_order_and_change_nothing(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let mut two = ask("two", vec![line("in", 6), line("out", 4)], vec![day(100)]);
    two.lines[1].rule.0 = 2;
    world.hold(&two).await;
    assert_matches!(
        world.consume("two", total("1"), true).await,
        ResolveOutcome::Rejected { rejection: Rejection::AmountNeedsOneLine, .. }
    );
    let missing = world.consume("two", totals(&[("other", "1"), ("in", "0.5")]), true).await;
    assert_matches!(missing, ResolveOutcome::Rejected { rejection: Rejection::MeterNotReserved(meter), .. } if meter.as_str() == "other");
    assert_matches!(
        world.consume("two", totals(&[("out", "0.125")]), true).await,
        ResolveOutcome::Rejected { rejection: Rejection::TooPrecise(1), .. }
    );
    for huge in ["9000000000000001", "9999999999999999", "90000000000000.01"] {
        let outcome = world.consume("two", totals(&[("out", huge)]), true).await;
        assert_matches!(
            outcome,
            ResolveOutcome::Rejected { rejection: Rejection::TooLarge(1), .. },
            "{huge}"
        );
    }
    world.consume("two", totals(&[("in", "3")]), false).await;
    assert_matches!(
        world.consume("two", totals(&[("in", "2")]), true).await,
        ResolveOutcome::Rejected { rejection: Rejection::AmountDecreased(0), .. }
    );
    let exact = world.consume("two", totals(&[("in", "3"), ("out", "1.25")]), true).await;
    assert_eq!(done(exact).units[1].consumed, units(125));
    assert_eq!(world.events().await.len(), 3);
}

#[rstest]
#[tokio::test]
async fn a_total_that_would_take_its_counter_beyond_the_largest_amount_is_refused(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    world.warm_up(told(&[(b"day-----", UNITS_MAX - 10, 0)])).await;
    world.hold(&pages("a", 5).under([day(UNITS_MAX)])).await;
    assert_matches!(
        world.consume("a", total("11"), true).await,
        ResolveOutcome::Rejected { rejection: Rejection::TooLarge(0), .. }
    );
    world.consume("a", total("10"), true).await;
    assert_eq!(world.day().await, (UNITS_MAX, 0));
}

#[rstest]
#[tokio::test]
async fn cap_charges_the_hold_and_what_is_left_and_keeps_the_rest_uncharged(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&cut("a", 10)).await;
    world.hold(&pages("other", 2)).await;
    let record = done(world.consume("a", total("20"), true).await);
    assert_eq!(record.units, kept_units(6, 8, 12));
    assert_eq!(world.events().await[2].units(), record.units);
    assert_eq!(
        world.record("a").await.unwrap().units,
        record.units,
        "its tombstone knows what was asked for"
    );
    assert_matches!(world.consume("a", total("20"), true).await, ResolveOutcome::Replayed { .. });
    assert_matches!(
        world.consume("a", total("21"), true).await,
        ResolveOutcome::Rejected { rejection: Rejection::AlreadyResolved, .. }
    );
    assert_matches!(
        world.consume("a", total("7"), true).await,
        ResolveOutcome::Rejected { rejection: Rejection::AlreadyResolved, .. }
    );
    assert_eq!(world.day().await, (8, 2));
}

#[rstest]
#[tokio::test]
async fn a_part_that_was_capped_is_charged_more_once_there_is_room(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&cut("a", 10)).await;
    world.hold(&pages("other", 2)).await;
    let part = async |amount: &str| match world.consume("a", total(amount), false).await {
        ResolveOutcome::Done { record, .. } => (record.units, true),
        ResolveOutcome::Replayed { record, .. } => (record.units, false),
        other => panic!("{other:?}"),
    };
    assert_eq!(part("20").await, (kept_units(6, 8, 12), true));
    assert_eq!(part("20").await, (kept_units(6, 8, 12), false));
    assert_eq!(part("21").await, (kept_units(6, 8, 13), true), "another request, and nothing is left");
    world.consume("other", total("0"), true).await;
    assert_eq!(part("21").await, (kept_units(6, 8, 13), false), "the same is answered as before");
    assert_eq!(part("22").await, (kept_units(6, 10, 12), true));
    assert_eq!(world.day().await, (10, 0));
}

#[rstest]
#[tokio::test]
async fn cap_measures_a_quota_at_the_gate_and_needs_it_told(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ask = cut("a", 0).under([quota(b"quota---")]);
    world.tell_capacity(capacity(b"quota---", 1, 10, START_MS + 5)).await;
    world.hold(&ask).await;
    let cold = world.consume_at(START_MS + 5, "a", total("20"), true).await;
    let ResolveOutcome::Cold(cold) = cold else { panic!("{cold:?}") };
    assert_eq!((cold.tenant_cold, cold.counters), (false, vec![ask.checks[0].place(true)]));
    world.tell_capacity(capacity(b"quota---", 2, 9, START_MS + 500)).await;
    assert_eq!(
        done(world.consume_at(START_MS + 5, "a", total("20"), true).await).units,
        kept_units(6, 9, 11)
    );
}

#[rstest]
#[case::a_part(total("3"), 3)]
#[case::all(total("6"), 6)]
#[case::not_named(Totals::Default, 6)]
#[tokio::test]
async fn a_total_within_the_hold_needs_no_capacity_of_a_quota(
    #[case] totals: Totals,
    #[case] consumed: i64,
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ask = cut("a", 0).under([quota(b"quota---")]);
    world.tell_capacity(capacity(b"quota---", 1, 10, START_MS + 5)).await;
    world.hold(&ask).await;
    assert_eq!(done(world.consume_at(START_MS + 5, "a", totals, true).await).units, line_units(6, consumed));
}

#[rstest]
#[tokio::test]
async fn a_window_that_is_over_caps_nothing(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&cut("a", 10)).await;
    assert_eq!(done(world.consume_at(WINDOW.1, "a", total("20"), true).await).units, line_units(6, 20));
}

#[rstest]
#[tokio::test]
async fn reject_refuses_a_total_above_the_hold_and_changes_nothing(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6).ruled(OnExcess::Reject, OnLate::Charge)).await;
    for is_final in [false, true] {
        assert_matches!(
            world.consume("a", total("7"), is_final).await,
            ResolveOutcome::Rejected { rejection: Rejection::ExcessRejected(0), .. }
        );
    }
    assert_eq!(world.day().await, (0, 6));
    assert_eq!(state_after(world.consume("a", total("6"), true).await), ReservationState::Consumed);
}

#[rstest]
#[case::named(total("4"), 4)]
#[case::not_named(Totals::Default, 6)]
#[tokio::test]
async fn a_late_consume_is_charged_once_and_flagged(
    #[case] named: Totals,
    #[case] charged: i64,
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    world.consume("a", total("1"), false).await;
    assert_eq!(world.sweep(DUE_MS).await, 1);
    assert_eq!(world.day().await, (1, 0));
    let record = done(world.consume_at(DUE_MS, "a", named.clone(), true).await);
    assert_eq!((record.head.state, record.head.late), (ReservationState::Consumed, true));
    assert_eq!(world.day().await, (charged, 0));
    let events = world.events().await;
    let Change::Consume { is_final: true, head, .. } = &events[3].change else { panic!("not final") };
    assert!(head.late);
    assert_matches!(world.consume_at(DUE_MS, "a", named, true).await, ResolveOutcome::Replayed { .. });
    assert_eq!(world.day().await, (charged, 0));
}

#[rstest]
#[tokio::test]
async fn a_late_part_leaves_the_whole_record_and_is_remembered_anew(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let two = vec![line("in", 6), line("out", 4)];
    world.hold(&ask("a", two, vec![day(100)])).await;
    assert_eq!(world.sweep(DUE_MS).await, 1);
    let key = world.record_key("a");
    world.server.command(&["PEXPIRE", &key, "1000000"]);
    let record = done(world.consume_at(DUE_MS, "a", totals(&[("in", "2")]), false).await);
    assert_eq!((record.head.state, record.head.late), (ReservationState::Expired, true));
    assert_eq!(record.units[1].consumed, units(0), "a meter that is not named stays as it is");
    let kept = world.record("a").await.unwrap();
    assert_eq!((&kept.head, &kept.units, kept.body.rest.is_some()), (&record.head, &record.units, true));
    assert_matches!(world.server.command(&["PTTL", &key]), redis::Value::Int(left_ms) if left_ms > 1_000_000);
    let Change::Consume { is_final: false, head, .. } = &world.events().await[2].change else {
        panic!("not a part")
    };
    assert_eq!(head, &record.head);
    let record = done(world.consume_at(DUE_MS, "a", totals(&[("in", "3")]), true).await);
    assert_eq!((record.head.state, record.units[1].consumed), (ReservationState::Consumed, units(4)));
}

#[rstest]
#[tokio::test]
async fn a_late_consume_is_refused_where_the_meter_says_so_or_too_much_later(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("never", 6).ruled(OnExcess::Record, OnLate::Reject)).await;
    world.hold(&pages("a-while", 6).ruled(OnExcess::Record, OnLate::Charge)).await;
    let expired = START_MS + TTL_MS;
    world.sweep(DUE_MS).await;
    assert_matches!(
        world.consume_at(DUE_MS, "never", total("1"), true).await,
        ResolveOutcome::Rejected { rejection: Rejection::Expired, .. }
    );
    assert_matches!(
        world.consume_at(expired + 100_001, "a-while", total("1"), true).await,
        ResolveOutcome::Rejected { rejection: Rejection::Expired, .. }
    );
    let outcome = world.consume_at(expired + 100_000, "a-while", total("1"), true).await;
    assert_eq!(state_after(outcome), ReservationState::Consumed);
}

#[rstest]
#[tokio::test]
async fn a_late_capped_consume_fits_what_its_hold_gave_back_again(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&cut("a", 10)).await;
    world.sweep(DUE_MS).await;
    world.hold(&pages("other", 3).at(DUE_MS)).await;
    assert_eq!(done(world.consume_at(DUE_MS, "a", total("20"), true).await).units, kept_units(6, 7, 13));
}

#[rstest]
#[tokio::test]
async fn what_is_past_its_expiry_and_not_swept_is_consumed_as_in_time(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let record = done(world.consume_at(START_MS + 2 * TTL_MS, "a", total("9"), true).await);
    assert!(!record.head.late);
    assert_eq!(world.sweep(START_MS + 3 * TTL_MS).await, 0);
}

#[rstest]
#[tokio::test]
async fn an_unknown_reservation_and_another_tenants_look_the_same(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 6)).await;
    let stranger = TenantId::parse("stranger").unwrap();
    let call = |key, bound| ConsumeCall { bound, ..world.consume_call(START_MS, key, total("9"), true) };
    let others = world.gate.consume(&call("a", Some(&stranger))).await.unwrap();
    let unknown = world.gate.consume(&call("nothing", None)).await.unwrap();
    assert_eq!(others, ResolveOutcome::Unknown { last_id: OutboxId { epoch: Epoch(1), sequence: 0 } });
    assert_eq!(others, unknown);
    let own = world.gate.consume(&call("a", Some(&world.tenant))).await.unwrap();
    assert_eq!(state_after(own), ReservationState::Consumed);
}

#[rstest]
#[tokio::test]
async fn a_weighted_counter_moves_by_the_weight_of_each_line(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let budget = weighted(&[2, 5], limit(b"budget--", 100));
    world.hold(&ask("a", vec![line("in", 6), line("out", 4)], vec![budget.clone()])).await;
    assert_eq!(world.counts(&budget).await, (0, 32));
    world.consume("a", totals(&[("in", "3")]), false).await;
    assert_eq!(world.counts(&budget).await, (6, 26));
    world.consume("a", totals(&[("in", "7"), ("out", "1")]), true).await;
    assert_eq!(world.counts(&budget).await, (19, 0));
}

#[rstest]
#[tokio::test]
async fn consumed_usage_repeats_or_is_resolved_already(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    world.hold(&pages("a", 3).by(ReserveMode::Usage)).await;
    assert_matches!(world.consume("a", total("3"), true).await, ResolveOutcome::Replayed { .. });
    assert_matches!(world.consume("a", Totals::Default, true).await, ResolveOutcome::Replayed { .. });
    assert_matches!(
        world.consume("a", total("4"), true).await,
        ResolveOutcome::Rejected { rejection: Rejection::AlreadyResolved, .. }
    );
}
