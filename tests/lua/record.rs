use rstest::rstest;
use tollgate::domain::counter::Counter;
use tollgate::domain::event::Change;
use tollgate::domain::ids::Epoch;
use tollgate::domain::limit::{Class, Kind};
use tollgate::domain::parked::CounterLife;
use tollgate::domain::rejection::Rejection;
use tollgate::domain::reservation::{
    Correction, Head, LineUnits, OnExcess, OnLate, Record, ReservationState,
};
use tollgate::gate::{IdCheck, RecordCall, RecordOutcome, ReserveMode, ResolveOutcome, WarmState};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

pub(super) const TAKEN_MS: i64 = START_MS - 5_000;

/// So many pages under a day's limit of ten, which nothing taken over heeds.
fn taken(key: &str, amount: i64) -> Ask {
    pages(key, amount).under([day(10)])
}

/// What was admitted of this ask while the gate was away.
pub(super) fn admitted(world: &World, ask: &Ask) -> Record {
    let usage = ask.mode == ReserveMode::Usage;
    let line = |line: &Line| match usage {
        true => LineUnits::new(units(0), units(line.amount)),
        false => LineUnits::new(units(line.amount), units(0)),
    };
    Record {
        head: Head {
            state: if usage { ReservationState::Consumed } else { ReservationState::Reserved },
            late: false,
            degraded: true,
            step: 1,
            epoch: Epoch(0),
            expires_at_ms: TAKEN_MS + ask.ttl_ms,
            born_at_ms: TAKEN_MS,
            latest_expiry_ms: TAKEN_MS + ask.max_life_ms,
            last_sequence: 0,
            start_after_ms: 0,
            unmoved: 0,
            correction: None,
        },
        units: ask.lines.iter().map(line).collect(),
        body: world.body(ask),
    }
}

async fn record_as(world: &World, ask: &Ask, asked: bool, starts_fresh: bool) -> RecordOutcome {
    let life = CounterLife { window_end_ms: WINDOW.1, since_ms: 0, starts_fresh };
    let lives = vec![life; ask.checks.len()];
    let record = admitted(world, ask);
    let call = RecordCall {
        id: world.id(&ask.key),
        record: &record,
        lives: &lives,
        taken_at_ms: Some(TAKEN_MS),
        id_check: if asked { IdCheck::Asked } else { IdCheck::Ask },
        now_ms: Some(ask.now_ms),
    };
    world.gate.record(&call).await.unwrap()
}

pub(super) async fn record(world: &World, ask: &Ask) -> RecordOutcome {
    record_as(world, ask, true, true).await
}

#[rstest]
#[tokio::test]
async fn an_admission_is_taken_over_at_its_time_beyond_every_limit_and_once(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ask = taken("a", 14);
    assert_matches!(record(&world, &ask).await, RecordOutcome::Done(_));
    assert_eq!(record(&world, &ask).await, RecordOutcome::Replayed);
    assert_eq!(world.day().await, (0, 14));
    let events = world.events().await;
    let Change::Reserve(told) = &events[0].change else { panic!("not a reserve") };
    assert_eq!((events.len(), events[0].gate_time_ms), (1, TAKEN_MS));
    assert_eq!(Some(told), world.record("a").await.as_ref());
    assert_eq!((told.head.degraded, told.head.born_at_ms), (true, TAKEN_MS));
    assert_eq!((told.head.expires_at_ms, told.body.clone()), (TAKEN_MS + TTL_MS, world.body(&ask)));
    let record = done(world.consume("a", total("3"), true).await);
    assert!(record.head.degraded && !record.head.late);
    assert_eq!(world.day().await, (3, 0));
}

#[rstest]
#[tokio::test]
async fn usage_taken_over_is_counted_and_leaves_a_tombstone(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ask = taken("a", 14).by(ReserveMode::Usage);
    assert_matches!(record(&world, &ask).await, RecordOutcome::Done(_));
    assert_eq!(world.day().await, (14, 0));
    let kept = world.record("a").await.unwrap();
    assert_eq!((kept.head.state, kept.head.degraded), (ReservationState::Consumed, true));
    assert!(kept.body.rest.is_none());
    let other = ask.clone().with_meaning(2);
    assert_matches!(record(&world, &other).await, RecordOutcome::KeyReused(_));
    assert_eq!(record(&world, &ask).await, RecordOutcome::Replayed);
    assert_eq!(world.events().await.len(), 1);
}

#[rstest]
#[tokio::test]
async fn a_hold_taken_over_after_its_time_expires_with_the_next_sweep(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let late = taken("a", 4).at(START_MS + 2 * TTL_MS);
    assert_eq!(world.sweep(late.now_ms).await, 0);
    assert_matches!(record(&world, &late).await, RecordOutcome::Done(_));
    assert_eq!(world.sweep(late.now_ms + 2 * BUCKET_MS).await, 1);
    assert_eq!(world.state("a").await, Some(ReservationState::Expired));
    assert_eq!(world.day().await, (0, 0));
}

#[rstest]
#[tokio::test]
async fn a_window_that_is_over_is_entered_no_more_and_its_hold_is_still_resolved(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    assert_matches!(record(&world, &taken("a", 4).at(WINDOW.1 + 1)).await, RecordOutcome::Done(_));
    assert_eq!(world.day().await, (0, 0));
    assert_matches!(world.consume_at(WINDOW.1 + 2, "a", total("4"), true).await, ResolveOutcome::Done { .. });
    // The window that the counter is still in moves, so that both count the hold.
    world.hold(&taken("b", 1)).await;
    assert_matches!(record(&world, &taken("c", 4).at(WINDOW.1 + 1)).await, RecordOutcome::Done(_));
    assert_eq!(world.day().await, (0, 5));
    assert_matches!(world.consume_at(WINDOW.1 + 2, "c", total("4"), true).await, ResolveOutcome::Done { .. });
    assert_matches!(record(&world, &taken("d", 1).at(WINDOW.0 - 1)).await, RecordOutcome::StaleWindow { .. });
}

#[rstest]
#[tokio::test]
async fn nothing_is_taken_over_by_a_cold_tenant_or_before_the_ledger_was_asked(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let ask = taken("a", 4).under([kept(day(10))]);
    let RecordOutcome::Cold(cold) = record_as(&world, &ask, true, false).await else { panic!("not cold") };
    assert!(cold.tenant);
    world.warm_up(Default::default()).await;
    let RecordOutcome::Cold(cold) = record_as(&world, &ask, true, false).await else { panic!("not cold") };
    assert_eq!((cold.tenant, cold.counters), (false, vec![0]));
    assert_matches!(record_as(&world, &ask, false, true).await, RecordOutcome::AskLedger { .. });
    assert_eq!(world.events().await.len(), 0);
    assert_matches!(record_as(&world, &ask, true, true).await, RecordOutcome::Done(_));
}

#[rstest]
#[tokio::test]
async fn work_of_a_past_time_is_taken_now_in_one_call_and_asks_the_ledger_only_after_a_loss(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let ask = taken("a", 14).by(ReserveMode::Usage);
    let record_now = async |world: &World, now_ms| {
        let mut record = admitted(world, &ask);
        record.head.degraded = false;
        let call = RecordCall {
            id: world.id(&ask.key),
            record: &record,
            lives: &[CounterLife { window_end_ms: WINDOW.1, since_ms: 0, starts_fresh: true }],
            taken_at_ms: None,
            id_check: IdCheck::AskAfterLoss,
            now_ms: Some(now_ms),
        };
        world.gate.record(&call).await.unwrap()
    };
    let world = World::warm(mode).await;
    assert_matches!(record_now(&world, START_MS).await, RecordOutcome::Done(_));
    assert_eq!(world.day().await, (14, 0));
    let events = world.events().await;
    assert_eq!((events[0].gate_time_ms, events[0].happened_at_ms()), (START_MS, TAKEN_MS));
    let Change::Usage(told) = &events[0].change else { panic!("no usage") };
    assert_eq!((told.head.degraded, told.head.born_at_ms), (false, TAKEN_MS));

    let lost = World::cold(mode).await;
    lost.warm_up(WarmState { ask_until_ms: START_MS + 1, ..WarmState::default() }).await;
    assert_matches!(record_now(&lost, START_MS).await, RecordOutcome::AskLedger { .. });
    assert_matches!(record_now(&lost, START_MS + 1).await, RecordOutcome::Done(_));
}

#[rstest]
#[tokio::test]
async fn a_counter_is_never_taken_beyond_the_largest_amount(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let largest = tollgate::domain::amount::UNITS_MAX;
    assert_matches!(record(&world, &taken("a", largest)).await, RecordOutcome::Done(_));
    assert_eq!(record(&world, &taken("b", 1)).await, RecordOutcome::TooLarge);
    assert_eq!(world.events().await.len(), 1);
}

/// What the gate says to a correction by so many pages under this counter.
pub(super) async fn correct(
    world: &World,
    (key, amount): (&str, i64),
    correction: Correction,
    counter: Counter,
) -> RecordOutcome {
    let starts_fresh = counter.class == Class::Rate;
    let ask = pages(key, amount).by(ReserveMode::Usage).under([counter]);
    let mut record = admitted(world, &ask);
    (record.head.degraded, record.head.correction) = (false, Some(correction));
    let call = RecordCall {
        id: world.id(key),
        record: &record,
        lives: &[CounterLife { window_end_ms: WINDOW.1, since_ms: 0, starts_fresh }],
        taken_at_ms: None,
        id_check: IdCheck::Asked,
        now_ms: Some(START_MS),
    };
    world.gate.record(&call).await.unwrap()
}

#[rstest]
#[tokio::test]
async fn a_correction_moves_what_is_consumed_once_and_never_below_zero(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&taken("work", 8).by(ReserveMode::Usage)).await;
    for outcome in ["now", "again"] {
        let less = correct(&world, ("less", 3), Correction::Less, kept(day(10))).await;
        assert_eq!(matches!(less, RecordOutcome::Done(_)), outcome == "now", "{less:?}");
        assert_eq!(world.day().await, (5, 0), "{outcome}");
    }
    let stored = world.record("less").await.unwrap();
    assert_eq!((stored.head.correction, stored.units[0].consumed), (Some(Correction::Less), units(3)));
    assert_matches!(
        correct(&world, ("more", 9), Correction::More, kept(day(10))).await,
        RecordOutcome::Done(_)
    );
    assert_eq!(world.day().await, (14, 0), "beyond its limit");
    let too_much = correct(&world, ("too much", 15), Correction::Less, kept(day(10))).await;
    assert_eq!((too_much, world.day().await), (RecordOutcome::TooLarge, (14, 0)));
    let events = world.events().await;
    let corrections: Vec<_> = events.iter().map(|event| event.head().correction).collect();
    assert_eq!(corrections, [None, Some(Correction::Less), Some(Correction::More)]);
}

#[tokio::test]
async fn a_limit_that_no_ledger_restores_is_corrected_down_to_nothing() {
    let world = World::warm(Mode::Alone).await;
    let shadow = Counter { kind: Kind::Shadow, ..day(10) };
    for key in ["counted", "left out"] {
        world.hold(&pages(key, 8).by(ReserveMode::Usage).under([shadow.clone()])).await;
    }
    assert_eq!(world.day().await, (8, 0));
    assert_matches!(correct(&world, ("less", 12), Correction::Less, shadow).await, RecordOutcome::Done(_));
    assert_eq!(world.day().await, (0, 0));
}

#[rstest]
#[tokio::test]
async fn a_parked_consume_given_before_the_expiry_is_not_too_late(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    world.hold(&taken("a", 4).ruled(OnExcess::Record, OnLate::Reject)).await;
    assert_eq!(world.sweep(START_MS + TTL_MS + 2 * BUCKET_MS).await, 1);
    let consume = async |taken_ms| {
        let call = world.consume_call(taken_ms, "a", total("3"), true);
        world.gate.consume_parked(&call, true).await.unwrap()
    };
    assert_matches!(
        consume(START_MS + TTL_MS).await,
        ResolveOutcome::Rejected { rejection: Rejection::Expired, .. }
    );
    let record = done(consume(START_MS + TTL_MS - 1).await);
    assert!(record.head.late && record.head.degraded);
    assert_eq!(world.events().await.last().unwrap().gate_time_ms, START_MS + TTL_MS - 1);
}
