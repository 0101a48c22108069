use rstest::rstest;
use tollgate::domain::event::Change;
use tollgate::domain::ids::Epoch;
use tollgate::domain::parked::CounterLife;
use tollgate::domain::reservation::{Head, LineUnits, Record, ReservationState};
use tollgate::gate::{CounterClass, RecordCall, RecordOutcome, ReserveMode, ResolveOutcome};

use crate::gate::server::Mode;
use crate::gate::world::*;

const TAKEN_MS: i64 = START_MS - 5_000;

fn pages(key: &str, amount: i64) -> Ask {
    ask(key, vec![line("ocr.page", amount)], vec![limit(b"day-----", 10)])
}

/// What was admitted of this ask while the gate was away.
fn admitted(world: &World, ask: &Ask) -> Record {
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
        ledger_asked: asked,
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
    let ask = pages("a", 14);
    assert_eq!(record(&world, &ask).await, RecordOutcome::Done);
    assert_eq!(record(&world, &ask).await, RecordOutcome::Replayed);
    assert_eq!(world.counts(&ask.checks[0]).await, (0, 14));
    let events = world.events().await;
    let Change::Reserve(told) = &events[0].change else { panic!("not a reserve") };
    assert_eq!((events.len(), events[0].gate_time_ms), (1, TAKEN_MS));
    assert_eq!(Some(told), world.record("a").await.as_ref());
    assert_eq!((told.head.degraded, told.head.born_at_ms), (true, TAKEN_MS));
    assert_eq!((told.head.expires_at_ms, told.body.clone()), (TAKEN_MS + TTL_MS, world.body(&ask)));
    let ResolveOutcome::Done { record, .. } = world.consume("a", total("3"), true).await else {
        panic!("not done")
    };
    assert!(record.head.degraded && !record.head.late);
    assert_eq!(world.counts(&ask.checks[0]).await, (3, 0));
}

#[rstest]
#[tokio::test]
async fn usage_taken_over_is_counted_and_leaves_a_tombstone(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let mut ask = pages("a", 14);
    ask.mode = ReserveMode::Usage;
    assert_eq!(record(&world, &ask).await, RecordOutcome::Done);
    assert_eq!(world.counts(&ask.checks[0]).await, (14, 0));
    let kept = world.record("a").await.unwrap();
    assert_eq!((kept.head.state, kept.head.degraded), (ReservationState::Consumed, true));
    assert!(kept.body.rest.is_none());
    let mut other = ask.clone();
    other.meaning = 2;
    assert_eq!(record(&world, &other).await, RecordOutcome::KeyReused);
    assert_eq!(record(&world, &ask).await, RecordOutcome::Replayed);
    assert_eq!(world.events().await.len(), 1);
}

#[rstest]
#[tokio::test]
async fn a_hold_taken_over_after_its_time_expires_with_the_next_sweep(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ask = pages("a", 4);
    let mut late = ask.clone();
    late.now_ms = START_MS + 2 * TTL_MS;
    assert_eq!(world.sweep(late.now_ms).await, 0);
    assert_eq!(record(&world, &late).await, RecordOutcome::Done);
    assert_eq!(world.sweep(late.now_ms + 2 * BUCKET_MS).await, 1);
    assert_eq!(world.state("a").await, Some(ReservationState::Expired));
    assert_eq!(world.counts(&ask.checks[0]).await, (0, 0));
}

#[rstest]
#[tokio::test]
async fn a_window_that_is_over_is_entered_no_more_and_its_hold_is_still_resolved(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let mut over = pages("a", 4);
    over.now_ms = WINDOW.1 + 1;
    assert_eq!(record(&world, &over).await, RecordOutcome::Done);
    assert_eq!(world.counts(&over.checks[0]).await, (0, 0));
    let done = world.consume_at(WINDOW.1 + 2, "a", total("4"), true).await;
    assert!(matches!(done, ResolveOutcome::Done { .. }), "{done:?}");
    // A window that the counter still stands in moves, so that both know of the hold.
    world.hold(&pages("b", 1)).await;
    let mut last = pages("c", 4);
    last.now_ms = WINDOW.1 + 1;
    assert_eq!(record(&world, &last).await, RecordOutcome::Done);
    assert_eq!(world.counts(&last.checks[0]).await, (0, 5));
    let done = world.consume_at(WINDOW.1 + 2, "c", total("4"), true).await;
    assert!(matches!(done, ResolveOutcome::Done { .. }), "{done:?}");
    let mut early = pages("d", 1);
    early.now_ms = WINDOW.0 - 1;
    assert_eq!(record(&world, &early).await, RecordOutcome::StaleWindow);
}

#[rstest]
#[tokio::test]
async fn nothing_is_taken_over_by_a_cold_tenant_or_before_the_ledger_was_asked(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let mut ask = pages("a", 4);
    ask.checks[0].class = CounterClass::Quota;
    let RecordOutcome::Cold(cold) = record_as(&world, &ask, true, false).await else { panic!("not cold") };
    assert!(cold.tenant);
    world.warm_up(Default::default()).await;
    let RecordOutcome::Cold(cold) = record_as(&world, &ask, true, false).await else { panic!("not cold") };
    assert_eq!((cold.tenant, cold.counters), (false, vec![0]));
    assert!(matches!(record_as(&world, &ask, false, true).await, RecordOutcome::AskLedger { .. }));
    assert_eq!(world.events().await.len(), 0);
    assert_eq!(record_as(&world, &ask, true, true).await, RecordOutcome::Done);
}

#[rstest]
#[tokio::test]
async fn a_counter_is_never_taken_beyond_the_largest_amount(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let largest = tollgate::domain::amount::UNITS_MAX;
    assert_eq!(record(&world, &pages("a", largest)).await, RecordOutcome::Done);
    assert_eq!(record(&world, &pages("b", 1)).await, RecordOutcome::TooLarge);
    assert_eq!(world.events().await.len(), 1);
}

#[rstest]
#[tokio::test]
async fn a_parked_consume_given_before_the_expiry_is_not_too_late(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    use tollgate::domain::reservation::{OnExcess, OnLate};
    use tollgate::gate::ConsumeCall;
    let world = World::warm(mode).await;
    let mut strict = pages("a", 4);
    strict.lines[0].rule = (0, OnExcess::Record, OnLate::Reject, 60);
    world.hold(&strict).await;
    assert_eq!(world.sweep(START_MS + TTL_MS + 2 * BUCKET_MS).await, 1);
    let consume = async |taken_ms| {
        let call = ConsumeCall {
            id: world.id("a"),
            bound: None,
            totals: total("3"),
            is_final: true,
            now_ms: Some(taken_ms),
        };
        world.gate.consume_parked(&call).await.unwrap()
    };
    assert!(matches!(consume(START_MS + TTL_MS).await, ResolveOutcome::Expired { .. }));
    let ResolveOutcome::Done { record, .. } = consume(START_MS + TTL_MS - 1).await else {
        panic!("not done")
    };
    assert!(record.head.late && record.head.degraded);
    assert_eq!(world.events().await.last().unwrap().gate_time_ms, START_MS + TTL_MS - 1);
}
