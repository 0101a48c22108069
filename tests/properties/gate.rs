//! The gate against its model: every answer, every counter and every event, through duplicates, clock moves and lost
//! memory.

pub(crate) mod algorithms;
mod checks;
mod plain_path;
mod reloaded;
mod scripted;
mod sequences;
mod shadow_turned;
mod token_cells;
mod waits;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};
use tollgate::domain::algorithms::Parameters;
use tollgate::domain::amount::Amount;
use tollgate::domain::event::{Change, Event};
use tollgate::domain::ids::{Epoch, MeterId};
use tollgate::domain::limit::Kind;
use tollgate::domain::rejection::Rejection;
use tollgate::domain::reservation::{LineUnits, OnExcess, OnLate, Record, ReservationState};
use tollgate::gate::{
    ReserveMode, ReserveOutcome, ResolveOutcome, RestorePage, RestoredCounter, Totals, WarmState,
};

use algorithms::{Row, all_rows, interval, rows};
use sequences::{Step, counters, mixed_counters, rules, some_in_shadow, steps};

use super::sized;
use crate::gate::server::Server;
use crate::gate::world::*;
use crate::support::model::{Answer, Counter, Mode, Model, Rule, Told};

const METERS: [&str; 2] = ["in", "out"];

/// The name of the counter at this place.
fn name_of(at: usize) -> [u8; 8] {
    format!("field-{at:02}").into_bytes().try_into().unwrap()
}

/// The real gate, which takes the same steps as the model.
struct Subject {
    world: World,
    rules: Vec<Rule>,
    checks: Vec<tollgate::domain::counter::Counter>,
    now_ms: i64,
    epoch: u64,
}

impl Subject {
    async fn new(server: Arc<Server>, is_light: bool, rules: Vec<Rule>, counters: &[Counter]) -> Self {
        server.empty();
        let world = World { is_light, ..World::over(server).await };
        if !is_light {
            world.warm_up(WarmState::default()).await;
        }
        let check = |(at, counter): (usize, &Counter)| {
            let parameters = counter.parameters;
            let kind = if counter.is_shadow { Kind::Shadow } else { Kind::Hard };
            let limit = tollgate::domain::counter::Counter {
                parameters,
                kind,
                ..limit(&name_of(at), counter.capacity)
            };
            weighted(&counter.weights, limit)
        };
        let checks = counters.iter().enumerate().map(check).collect();
        Self { world, rules, checks, now_ms: START_MS, epoch: 1 }
    }

    fn ask(&self, key: &str, meaning: u8, mode: Mode, amounts: [i64; 2], ttl_ms: i64) -> Ask {
        let line = |at: usize| Line {
            meter: METERS[at],
            amount: amounts[at],
            rule: (
                0,
                self.rules[at].on_excess,
                self.rules[at].on_late,
                u32::try_from(self.rules[at].late_within_ms / 1000).unwrap(),
            ),
        };
        let mut ask = ask(key, vec![line(0), line(1)], self.checks.clone());
        (ask.meaning, ask.ttl_ms, ask.max_life_ms, ask.now_ms) = (meaning, ttl_ms, MAX_LIFE_MS, self.now_ms);
        ask.mode = match mode {
            Mode::All => ReserveMode::AllOrNothing,
            Mode::Best => ReserveMode::BestEffort,
            Mode::Usage => ReserveMode::Usage,
        };
        ask
    }

    async fn reserve(&self, id: u8, meaning: u8, mode: Mode, amounts: [i64; 2], ttl_ms: i64) -> Answer {
        let ask = self.ask(&id.to_string(), meaning, mode, amounts, ttl_ms);
        match self.world.reserve(&ask).await {
            ReserveOutcome::Admitted { expires_at_ms, .. } => {
                let record = self.record(id).await;
                assert_eq!(record.head.expires_at_ms, expires_at_ms);
                Answer::Done(record.head.state, record.units, expires_at_ms, false)
            }
            ReserveOutcome::Replayed { record, .. } => Answer::Replayed(record.head.state, record.units),
            ReserveOutcome::Refused { refusing, .. } => {
                Answer::Refused(refusing.into_iter().map(|(index, _)| index).collect())
            }
            ReserveOutcome::KeyReused { .. } => Answer::KeyReused,
            other => panic!("{other:?}"),
        }
    }

    async fn record(&self, id: u8) -> Record {
        self.world.record(&id.to_string()).await.unwrap()
    }

    async fn consume(&self, id: u8, totals: Option<[i64; 2]>, is_final: bool) -> Answer {
        answer(self.world.consume_at(self.now_ms, &id.to_string(), by_meter(totals), is_final).await)
    }

    async fn release(&self, id: u8, incurred: Option<[i64; 2]>) -> Answer {
        answer(self.world.release_at(self.now_ms, &id.to_string(), by_meter(incurred)).await)
    }

    async fn extend(&self, id: u8, ttl_ms: i64) -> Answer {
        answer(self.world.extend_at(self.now_ms, &id.to_string(), ttl_ms).await)
    }

    /// A new epoch: everything is cold, and comes back from what the ledger would know: reservations of these keys, and
    /// these counters.
    async fn lose_memory(&mut self, keys: impl Iterator<Item = String>, counters: Vec<RestoredCounter>) {
        let (mut open, mut resolved) = (Vec::new(), Vec::new());
        for key in keys {
            if let Some(record) = self.world.record(&key).await {
                let is_open = record.head.state == ReservationState::Reserved;
                let list = if is_open { &mut open } else { &mut resolved };
                list.push((self.world.id(&key), record));
            }
        }
        self.epoch += 1;
        let (gate, partition) = (&self.world.gate, self.world.partition);
        gate.adopt(partition, Epoch(self.epoch), 0, Some(self.now_ms)).await.unwrap();
        let page = self.world.page(&open, Some(WarmState { counters, ..WarmState::default() }));
        gate.restore_page(&RestorePage { now_ms: Some(self.now_ms), ..page }).await.unwrap();
        for (id, record) in resolved {
            gate.restore_record(id, self.world.epoch(), &record, Some(self.now_ms)).await.unwrap();
        }
    }

    async fn events(&self) -> Vec<Told> {
        self.world.events().await.iter().map(|event| self.told(event)).collect()
    }

    fn told(&self, event: &Event) -> Told {
        let id = (0..IDS).find(|id| self.world.id(&id.to_string()) == event.reservation).unwrap();
        let kind = match &event.change {
            Change::Reserve(_) => "reserve",
            Change::Usage(_) => "usage",
            Change::Consume { .. } => "consume",
            Change::Release { .. } => "release",
            Change::Extend { .. } => "extend",
            Change::Expire { .. } => "expire",
        };
        (kind, id, event.units().to_vec())
    }
}

/// How many sequences a run tries.
const CASES: u32 = 200;
const MAX_LIFE_MS: i64 = 8_000;
/// More than any sequence reserves.
const IDS: u8 = 70;

fn by_meter(amounts: Option<[i64; 2]>) -> Totals {
    let Some(amounts) = amounts else { return Totals::Default };
    let named = METERS.iter().zip(amounts).map(|(meter, amount)| {
        (MeterId::parse(meter).unwrap(), Amount::from_integer(u64::try_from(amount).unwrap()))
    });
    Totals::ByMeter(named.collect())
}

/// What the ledger restores of the counter at this place, where it restores anything.
fn told_of(at: usize, parameters: Parameters, consumed: i64, reserved: i64) -> Option<RestoredCounter> {
    let window_start_ms = parameters.window().map_or(0, |window| window.start_ms);
    let told = restored_counter(&name_of(at), consumed, reserved);
    parameters.holds_survive().then_some(RestoredCounter { window_start_ms, ..told })
}

fn answer(outcome: ResolveOutcome) -> Answer {
    match outcome {
        ResolveOutcome::Done { record, .. } => {
            Answer::Done(record.head.state, record.units, record.head.expires_at_ms, record.head.late)
        }
        ResolveOutcome::Replayed { record, .. } => Answer::Replayed(record.head.state, record.units),
        ResolveOutcome::Unknown { .. } => Answer::Unknown,
        ResolveOutcome::Rejected { rejection: Rejection::AlreadyResolved, .. } => Answer::AlreadyResolved,
        ResolveOutcome::Rejected { rejection: Rejection::Expired, .. } => Answer::Expired,
        ResolveOutcome::Rejected { rejection: Rejection::AmountDecreased(line), .. } => {
            Answer::AmountDecreased(line)
        }
        ResolveOutcome::Rejected { rejection: Rejection::ExcessRejected(line), .. } => {
            Answer::ExcessRejected(line)
        }
        other => panic!("{other:?}"),
    }
}

/// The order in which one sweep meets holds is not the model's to say.
fn in_any_order_of_sweeps(mut told: Vec<Told>) -> Vec<Told> {
    let key = |told: &Told| (told.1, told.2.iter().map(|l: &LineUnits| l.held).collect::<Vec<_>>());
    for run in told.chunk_by_mut(|a, b| a.0 == "expire" && b.0 == "expire") {
        run.sort_by_key(key);
    }
    told
}

/// One step on the model.
fn on_model(model: &mut Model, now_ms: i64, step: &Step) -> Answer {
    let slice = |totals: &Option<[i64; 2]>| totals.map(Vec::from);
    match step {
        Step::Reserve { id, meaning, mode, amounts, ttl_ms } => {
            model.reserve(now_ms, *id, *meaning, *mode, amounts, *ttl_ms, MAX_LIFE_MS)
        }
        Step::Consume { id, totals, is_final } => {
            model.consume(now_ms, *id, slice(totals).as_deref(), *is_final)
        }
        Step::Release { id, incurred } => model.release(now_ms, *id, slice(incurred).as_deref()),
        Step::Extend { id, ttl_ms } => model.extend(now_ms, *id, *ttl_ms),
        Step::LoseMemory => {
            model.lose_memory();
            Answer::Nothing
        }
        Step::Pass { .. } => Answer::Nothing,
        Step::Sweep => Answer::Swept(model.sweep(now_ms).len()),
    }
}

async fn behave_alike(server: Arc<Server>, rules: Vec<Rule>, counters: Vec<Counter>, steps: Vec<Step>) {
    let mut subject = Subject::new(server, false, rules.clone(), &counters).await;
    let mut model = Model::new(rules, counters, BUCKET_MS);
    step_alike(&mut subject, &mut model, &steps).await;
    assert_eq!(in_any_order_of_sweeps(subject.events().await), in_any_order_of_sweeps(model.told));
}

/// Light reservations end at their millisecond, come to nothing with the memory, and have no event.
async fn behave_alike_light(server: Arc<Server>, rules: Vec<Rule>, counters: Vec<Counter>, steps: Vec<Step>) {
    let mut subject = Subject::new(server, true, rules.clone(), &counters).await;
    let mut model = Model::new(rules, counters, 1);
    let kept: Vec<_> = steps.into_iter().filter(|step| !matches!(step, Step::LoseMemory)).collect();
    step_alike(&mut subject, &mut model, &kept).await;
    assert!(subject.events().await.is_empty(), "none of it is told to the ledger");
}

/// Every second counter is a light one, which is restored by nobody; the others, and events, are as without these.
async fn behave_alike_mixed(server: Arc<Server>, rules: Vec<Rule>, counters: Vec<Counter>, steps: Vec<Step>) {
    let mut subject = Subject::new(server, false, rules.clone(), &counters).await;
    for check in subject.checks.iter_mut().skip(1).step_by(2) {
        check.is_light = true;
    }
    let mut model = Model::new(rules, counters, BUCKET_MS);
    let kept: Vec<_> = steps.into_iter().filter(|step| !matches!(step, Step::LoseMemory)).collect();
    step_alike(&mut subject, &mut model, &kept).await;
    assert_eq!(in_any_order_of_sweeps(subject.events().await), in_any_order_of_sweeps(model.told));
}

/// The gate and its model take the same steps, and stand alike after each.
async fn step_alike(subject: &mut Subject, model: &mut Model, steps: &[Step]) {
    for (number, step) in steps.iter().enumerate() {
        let now_ms = subject.now_ms;
        let expected = on_model(model, now_ms, step);
        let real = match step.clone() {
            Step::Reserve { id, meaning, mode, amounts, ttl_ms } => {
                subject.reserve(id, meaning, mode, amounts, ttl_ms).await
            }
            Step::Consume { id, totals, is_final } => subject.consume(id, totals, is_final).await,
            Step::Release { id, incurred } => subject.release(id, incurred).await,
            Step::Extend { id, ttl_ms } => subject.extend(id, ttl_ms).await,
            Step::Pass { ms } => {
                subject.now_ms += ms;
                Answer::Nothing
            }
            Step::Sweep => Answer::Swept(usize::try_from(subject.world.sweep(now_ms).await).unwrap()),
            Step::LoseMemory => {
                // What was made before it is older than what is restored after it.
                subject.now_ms += 1;
                let told = model.counters.iter().enumerate().filter_map(|(at, counter)| {
                    let cell = counter.at(subject.now_ms);
                    told_of(at, counter.parameters, cell.consumed, cell.reserved)
                });
                let told = told.collect();
                subject.lose_memory((0..IDS).map(|id| id.to_string()), told).await;
                Answer::Nothing
            }
        };
        assert_eq!(real, expected, "step {number}: {step:?}");
        for (check, counter) in subject.checks.iter().zip(&model.counters) {
            let reading = subject.world.reading_at(subject.now_ms, check).await;
            let cell = counter.at(subject.now_ms);
            assert_eq!(
                (reading.consumed.get(), reading.reserved.get(), reading.room),
                (cell.consumed, cell.reserved, Some(counter.room_for_new_work(subject.now_ms))),
                "step {number}: {step:?}"
            );
        }
    }
}

#[test]
fn the_gate_behaves_like_its_model_through_any_sequence_of_calls() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::own();
    for Row { name, turning, .. } in all_rows() {
        let cases = sized(if turning.window().is_some() { CASES } else { CASES / 2 });
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let sequence = (rules(), counters(turning), steps());
        let run = TestRunner::new(config).run(&sequence, |(rules, counters, steps)| {
            runtime.block_on(behave_alike(Arc::clone(&server), rules, counters, steps));
            Ok(())
        });
        run.unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}

/// How many sequences a run tries under several algorithms at once.
const MIXED_CASES: u32 = 60;

/// How many sequences a run tries with limits in shadow, for each algorithm.
const SHADOW_CASES: u32 = 40;

#[test]
fn the_gate_behaves_like_its_model_under_up_to_sixteen_limits_of_all_algorithms() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::own();
    let config = Config { cases: sized(MIXED_CASES), failure_persistence: None, ..Config::default() };
    let sequence = (rules(), some_in_shadow(mixed_counters()), steps());
    let run = TestRunner::new(config).run(&sequence, |(rules, counters, steps)| {
        runtime.block_on(behave_alike(Arc::clone(&server), rules, counters, steps));
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn the_gate_behaves_like_its_model_with_limits_in_shadow() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::own();
    for Row { name, turning, .. } in all_rows() {
        let config = Config { cases: sized(SHADOW_CASES), failure_persistence: None, ..Config::default() };
        let sequence = (rules(), some_in_shadow(counters(turning)), steps());
        let run = TestRunner::new(config).run(&sequence, |(rules, counters, steps)| {
            runtime.block_on(behave_alike(Arc::clone(&server), rules, counters, steps));
            Ok(())
        });
        run.unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}

/// How many sequences of light reservations a run tries, for each algorithm.
const LIGHT_CASES: u32 = 40;

#[test]
fn light_reservations_behave_like_the_model_through_any_sequence_of_calls() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::own();
    for Row { name, turning, .. } in all_rows() {
        let config = Config { cases: sized(LIGHT_CASES), failure_persistence: None, ..Config::default() };
        let sequence = (rules(), some_in_shadow(counters(turning)), steps());
        let run = TestRunner::new(config).run(&sequence, |(rules, counters, steps)| {
            runtime.block_on(behave_alike_light(Arc::clone(&server), rules, counters, steps));
            Ok(())
        });
        run.unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}

#[test]
fn booked_reservations_with_light_counters_behave_like_the_model_through_any_sequence_of_calls() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::own();
    let config = Config { cases: sized(MIXED_CASES), failure_persistence: None, ..Config::default() };
    let sequence = (rules(), some_in_shadow(mixed_counters()), steps());
    let run = TestRunner::new(config).run(&sequence, |(rules, counters, steps)| {
        runtime.block_on(behave_alike_mixed(Arc::clone(&server), rules, counters, steps));
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
}

/// What sort of answer it is, without its figures.
fn sort_of(answer: &Answer) -> String {
    match answer {
        Answer::Done(state, lines, _, late) => {
            format!("{state} late={late} capped={}", lines.iter().any(|line| line.uncharged.get() > 0))
        }
        other => format!("{other:?}").split('(').next().unwrap().to_owned(),
    }
}

#[test]
fn the_sequences_reach_every_sort_of_answer() {
    for row in all_rows() {
        let turning = row.turning;
        let mut runner = TestRunner::deterministic();
        let mut counts = BTreeMap::<String, u32>::new();
        for _ in 0..CASES {
            let sequence = (rules(), counters(turning), steps()).new_tree(&mut runner).unwrap().current();
            let (mut model, mut now_ms) = (Model::new(sequence.0, sequence.1, BUCKET_MS), START_MS);
            for step in &sequence.2 {
                let answer = on_model(&mut model, now_ms, step);
                *counts.entry(sort_of(&answer)).or_default() += 1;
                if let Step::Pass { ms } = step {
                    now_ms += ms;
                }
            }
        }
        // What a loss of memory empties is seldom full.
        assert_every_sort(&row, &counts, if turning.window().is_some() { 5 } else { 1 });
    }
}

fn assert_every_sort(row: &Row, counts: &BTreeMap<String, u32>, least: u32) {
    let name = row.name;
    let resolved = ["consumed late=false capped=false", "consumed late=false capped=true"];
    let late = [
        "consumed late=true capped=false",
        "consumed late=true capped=true",
        "expired late=true capped=false",
    ];
    let open = ["reserved late=false capped=false", "reserved late=false capped=true"];
    let rest = ["released late=false capped=false", "Replayed", "Refused", "KeyReused", "Unknown"];
    let refusals = ["AlreadyResolved", "Expired", "AmountDecreased", "ExcessRejected", "Swept"];
    let all = [&resolved[..], &late, &open, &rest, &refusals].concat();
    let is_reached = |sort: &&str| row.counts_use() || !sort.ends_with("capped=true");
    for sort in all.into_iter().filter(is_reached) {
        assert!(
            counts.get(sort).is_some_and(|count| *count >= least),
            "{name}: {sort} is too rare: {counts:#?}"
        );
    }
}
