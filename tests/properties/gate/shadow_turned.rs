//! Limits that turn from shadow to hard under way, against each of them alone and hard from the start: what was made in
//! shadow is consumed, extended, given back and swept after the turn as if the limit had always refused.

use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use tollgate::domain::limit::Kind;

use super::sequences::name;
use super::*;

/// How many sequences a run tries for each algorithm, and how often until enough was met.
const CASES: u32 = 6;
const RUNS_MAX: u32 = 8;
/// How many refusals by a limit that has turned are enough, and how many changes to what it had left out before.
const REFUSALS: u32 = 12;
const CHANGES_LEFT_OUT: u32 = 8;
/// How far back a step may look, among reservations.
const LOOK_BACK: u8 = 10;
/// After how many steps the figures are compared again.
const LOOK_EVERY: usize = 3;

/// Where the counters are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// All of them with the tenant's state.
    Booked,
    /// Every second one with what the gate alone keeps.
    Mixed,
    /// All of them, and their reservations, with what the gate alone keeps.
    Light,
}

/// What may happen next: so often a reservation, so often a change to an older one.
fn happening(reserves: u32, changes: u32) -> impl Strategy<Value = Step> {
    let (id, amounts) = (|| 0..LOOK_BACK, || [0..9_i64, 0..9_i64]);
    let mode = prop_oneof![4 => Just(Mode::All), 2 => Just(Mode::Best), 1 => Just(Mode::Usage)];
    let fresh = prop_oneof![9 => Just(0), 1 => 1..LOOK_BACK];
    let reserve = (fresh, mode, [1..6_i64, 1..6_i64], 300..4_000_i64)
        .prop_map(|(id, mode, amounts, ttl_ms)| Step::Reserve { id, meaning: 0, mode, amounts, ttl_ms });
    let consume = (id(), prop::option::of(amounts()), prop::bool::weighted(0.4))
        .prop_map(|(id, totals, is_final)| Step::Consume { id, totals, is_final });
    let release =
        (id(), prop::option::of(amounts())).prop_map(|(id, incurred)| Step::Release { id, incurred });
    prop_oneof![
        reserves => reserve,
        4 * changes => consume,
        changes => release,
        changes => (id(), 500..9_000_i64).prop_map(|(id, ttl_ms)| Step::Extend { id, ttl_ms }),
        6 => (1..1_500_i64).prop_map(|ms| Step::Pass { ms }),
        3 => Just(Step::Sweep),
        1 => Just(Step::LoseMemory),
    ]
}

/// Many reservations, then many changes to them; and where the second part begins.
fn happenings() -> impl Strategy<Value = (Vec<Step>, usize)> {
    let before = prop::collection::vec(happening(20, 1), 8..16);
    let after = prop::collection::vec(happening(8, 4), 16..28);
    (before, after).prop_map(|(before, after)| {
        let (turn, mut latest) = (before.len(), LOOK_BACK);
        let steps = before.into_iter().chain(after).map(|step| name(step, &mut latest));
        (steps.collect(), turn)
    })
}

/// A counter, and the step at which it turns hard, unless it is the first; none where it always was.
type Limit = (Counter, Option<Index>);

/// Limits of which the first is by this algorithm and in shadow; the others are of whatever algorithm, and in shadow or
/// not. Those in shadow are soon full; what is always hard seldom refuses.
fn limits(first: Parameters, all: Vec<Parameters>) -> impl Strategy<Value = Vec<Limit>> {
    let weights = || prop_oneof![Just([3, 2]), Just([1, 0]), Just([0, 1]), Just([1, 1])];
    let watched = move |parameters: BoxedStrategy<Parameters>, capacity: std::ops::Range<i64>| {
        (parameters, capacity, weights(), any::<Index>()).prop_map(|(parameters, capacity, weights, turn)| {
            let mut counter = Counter::new(parameters, capacity, weights.to_vec());
            counter.is_shadow = true;
            (counter, Some(turn))
        })
    };
    let counts =
        all.iter().copied().filter(|one| !matches!(one, Parameters::Interval(_))).collect::<Vec<_>>();
    let hard = (select(counts), 60..200_i64, weights()).prop_map(|(parameters, capacity, weights)| {
        (Counter::new(parameters, capacity, weights.to_vec()), None)
    });
    let other = prop_oneof![2 => watched(select(all).boxed(), 10..40), 1 => hard];
    (watched(Just(first).boxed(), 4..14), prop::collection::vec(other, 0..4))
        .prop_map(|(first, others)| std::iter::once(first).chain(others).collect())
}

/// A gate under all limits at once, and one where all are hard and each call is a reservation of its own under each.
struct Pair {
    kept: Kept,
    together: Subject,
    alone: Subject,
    /// The limits that count each reservation.
    counting: BTreeMap<u8, Vec<usize>>,
    /// Whether the first limit has turned.
    has_turned: bool,
    reached: Reached,
}

/// What was met after the first limit had turned.
#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    refusals: u32,
    changes_left_out: u32,
}

impl Reached {
    fn and(self, other: Self) -> Self {
        Self {
            refusals: self.refusals + other.refusals,
            changes_left_out: self.changes_left_out + other.changes_left_out,
        }
    }

    fn is_enough(self) -> bool {
        self.refusals >= sized(REFUSALS) && self.changes_left_out >= sized(CHANGES_LEFT_OUT)
    }
}

fn key_of(id: u8, at: usize) -> String {
    format!("{id}-{at}")
}

impl Pair {
    async fn new(servers: &[Arc<Server>; 2], kept: Kept, rules: Vec<Rule>, limits: &[Limit]) -> Self {
        let [here, there] = servers.each_ref().map(Arc::clone);
        let is_light = kept == Kept::Light;
        let counters: Vec<Counter> = limits.iter().map(|(counter, _)| counter.clone()).collect();
        let mut together = Subject::new(here, is_light, rules, &counters).await;
        if kept == Kept::Mixed {
            for check in together.checks.iter_mut().step_by(2) {
                check.is_light = true;
            }
        }
        // Its totals are what the other one charged.
        let rule = Rule { on_excess: OnExcess::Record, on_late: OnLate::Charge, late_within_ms: 604_800_000 };
        let mut alone = Subject::new(there, is_light, vec![rule; 2], &[]).await;
        let hard = |check: &tollgate::domain::counter::Counter| tollgate::domain::counter::Counter {
            kind: Kind::Hard,
            ..check.clone()
        };
        alone.checks = together.checks.iter().map(hard).collect();
        Self {
            kept,
            together,
            alone,
            counting: BTreeMap::new(),
            has_turned: false,
            reached: Reached::default(),
        }
    }

    fn turn(&mut self, at: usize) {
        self.together.checks[at].kind = Kind::Hard;
        self.has_turned |= at == 0;
    }

    fn acts(&self, at: usize) -> bool {
        self.together.checks[at].kind == Kind::Hard
    }

    /// An ask under one limit alone.
    fn ask_alone(&self, id: u8, at: usize, mode: Mode, amounts: [i64; 2], ttl_ms: i64) -> Ask {
        self.alone.ask(&key_of(id, at), 0, mode, amounts, ttl_ms).under([self.alone.checks[at].clone()])
    }

    /// For each limit alone, how long the work has to stand in its queue, or how long to wait for room.
    async fn judge(&self, ask_alone: impl Fn(usize) -> Ask) -> Vec<Result<i64, Option<i64>>> {
        let mut judged = Vec::new();
        for at in 0..self.alone.checks.len() {
            judged.push(match self.alone.world.reserve(&ask_alone(at)).await {
                ReserveOutcome::Admitted { start_after_ms, .. }
                | ReserveOutcome::Allowed { start_after_ms, .. } => Ok(start_after_ms),
                ReserveOutcome::Refused { refusing, .. } => Err(refusing[0].1),
                other => panic!("{other:?}"),
            });
        }
        judged
    }

    /// What the acting limits refuse alone is refused; what the others would refuse is admitted, and they say so.
    async fn reserve(&mut self, id: u8, meaning: u8, mode: Mode, amounts: [i64; 2], ttl_ms: i64) {
        let ask = self.together.ask(&id.to_string(), meaning, mode, amounts, ttl_ms);
        let outcome = self.together.world.reserve(&ask).await;
        if self.counting.contains_key(&id) {
            let is_known =
                matches!(outcome, ReserveOutcome::Replayed { .. } | ReserveOutcome::KeyReused { .. });
            assert!(is_known, "{outcome:?}");
            return;
        }
        match outcome {
            ReserveOutcome::Admitted { granted, readings, start_after_ms, .. } => {
                // A best effort is judged in shadow by what the acting limits grant, which is more than this one might.
                let granted = [granted[0].get(), granted[1].get()];
                let mode = if mode == Mode::Best { Mode::All } else { mode };
                let judged = self.judge(|at| self.ask_alone(id, at, mode, granted, ttl_ms)).await;
                let would_refuse: Vec<bool> = readings.iter().map(|reading| reading.would_refuse).collect();
                assert_eq!(would_refuse, judged.iter().map(Result::is_err).collect::<Vec<_>>(), "{judged:?}");
                let delays = (0..judged.len()).filter(|at| self.acts(*at)).map(|at| judged[at].unwrap());
                assert_eq!(start_after_ms, delays.max().unwrap_or_default());
                self.counting.insert(id, (0..judged.len()).filter(|at| judged[*at].is_ok()).collect());
            }
            ReserveOutcome::Refused { refusing, .. } => {
                let is_first = refusing.first().is_some_and(|(at, _)| *at == 0);
                self.reached.refusals += u32::from(self.has_turned && is_first);
                if mode == Mode::Best {
                    return;
                }
                let dry = |ask: Ask| Ask { mode: ask.mode.dry(), ..ask };
                let judged = self.judge(|at| dry(self.ask_alone(id, at, mode, amounts, ttl_ms))).await;
                let acting = (0..judged.len()).filter(|at| self.acts(*at));
                let expected = acting.filter_map(|at| judged[at].err().map(|wait_ms| (at, wait_ms)));
                assert_eq!(refusing, expected.collect::<Vec<_>>());
            }
            other => panic!("{other:?}"),
        }
    }

    /// What a change charges and leaves open is the same for each limit that counts the reservation.
    async fn change(&mut self, step: &Step) {
        let (now_ms, world) = (self.together.now_ms, &self.alone.world);
        let (id, answer) = match step {
            Step::Consume { id, totals, is_final } => {
                (*id, self.together.consume(*id, *totals, *is_final).await)
            }
            Step::Release { id, incurred } => (*id, self.together.release(*id, *incurred).await),
            Step::Extend { id, ttl_ms } => (*id, self.together.extend(*id, *ttl_ms).await),
            other => panic!("{other:?}"),
        };
        let Answer::Done(state, lines, expires_at_ms, late) = answer else { return };
        let figures =
            |lines: &[LineUnits]| lines.iter().map(|line| (line.held, line.consumed)).collect::<Vec<_>>();
        let charged = || by_meter(Some([lines[0].consumed.get(), lines[1].consumed.get()]));
        let counting = &self.counting[&id];
        self.reached.changes_left_out += u32::from(self.has_turned && !counting.contains(&0));
        for key in counting.iter().map(|at| key_of(id, *at)) {
            let outcome = match step {
                Step::Consume { is_final, .. } => world.consume_at(now_ms, &key, charged(), *is_final).await,
                Step::Release { .. } => world.release_at(now_ms, &key, charged()).await,
                Step::Extend { ttl_ms, .. } => world.extend_at(now_ms, &key, *ttl_ms).await,
                other => panic!("{other:?}"),
            };
            let (record, was_late) = match outcome {
                ResolveOutcome::Done { record, .. } => {
                    let was_late = record.head.late;
                    (record, was_late)
                }
                // Where a cap lets nothing more through, another total charges what was charged before.
                ResolveOutcome::Replayed { record, .. } => (record, late),
                other => panic!("{key}: {other:?}"),
            };
            assert_eq!(
                (record.head.state, figures(&record.units), record.head.expires_at_ms, was_late),
                (state, figures(&lines), expires_at_ms, late),
                "{key}"
            );
        }
    }

    /// Both go on from what the ledger would tell.
    async fn lose_memory(&mut self) {
        self.pass(1);
        let (now_ms, checks) = (self.alone.now_ms, &self.alone.checks);
        let readings = self.alone.world.readings_at(now_ms, checks).await;
        let told = checks.iter().zip(readings).enumerate().filter_map(|(at, (check, reading))| {
            told_of(at, check.parameters, reading.consumed.get(), reading.reserved.get())
        });
        let told: Vec<_> = told.collect();
        let ids = self.counting.keys().map(ToString::to_string);
        self.together.lose_memory(ids, told.clone()).await;
        let keys = self.counting.iter().flat_map(|(id, counting)| counting.iter().map(|at| key_of(*id, *at)));
        self.alone.lose_memory(keys, told).await;
    }

    fn pass(&mut self, ms: i64) {
        self.together.now_ms += ms;
        self.alone.now_ms += ms;
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Reserve { id, meaning, mode, amounts, ttl_ms } => {
                self.reserve(*id, *meaning, *mode, *amounts, *ttl_ms).await;
            }
            Step::Consume { .. } | Step::Release { .. } | Step::Extend { .. } => self.change(step).await,
            Step::Pass { ms } => self.pass(*ms),
            Step::Sweep => {
                self.together.world.sweep(self.together.now_ms).await;
                self.alone.world.sweep(self.alone.now_ms).await;
            }
            // What the gate alone keeps comes back from nowhere.
            Step::LoseMemory if self.kept != Kept::Booked => {}
            Step::LoseMemory => self.lose_memory().await,
        }
    }

    async fn assert_alike(&self, what: &str) {
        let (now_ms, checks) = (self.together.now_ms, &self.alone.checks);
        let together = self.together.world.readings_at(now_ms, checks).await;
        assert_eq!(together, self.alone.world.readings_at(now_ms, checks).await, "{what}");
    }
}

/// The first limit turns at this step, the others at steps of their own.
async fn turn_and_go_on(mut pair: Pair, limits: &[Limit], steps: &[Step], first_turns: usize) -> Reached {
    for (number, step) in steps.iter().enumerate() {
        for (at, (_, turn)) in limits.iter().enumerate() {
            let turns = if at == 0 { Some(first_turns) } else { turn.map(|turn| turn.index(steps.len())) };
            if turns == Some(number) {
                pair.turn(at);
            }
        }
        pair.take(step).await;
        if (number + 1) % LOOK_EVERY == 0 || number + 1 == steps.len() {
            pair.assert_alike(&format!("step {number}: {step:?}")).await;
        }
    }
    pair.reached
}

fn turned_limits_count_as_if_always_hard(kept: Kept, rows: Vec<Row>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let servers = [Server::own(), Server::own()];
    let all: Vec<Parameters> = rows.iter().map(|row| row.turning).collect();
    for Row { name, turning, .. } in rows {
        let config = || Config { cases: sized(CASES), failure_persistence: None, ..Config::default() };
        let reached = Cell::new(Reached::default());
        let sequence = (rules(), limits(turning, all.clone()), happenings());
        let mut runs = 0;
        while runs == 0 || (runs < RUNS_MAX && !reached.get().is_enough()) {
            let run = TestRunner::new(config()).run(&sequence, |(rules, limits, (steps, turn))| {
                let more = runtime.block_on(async {
                    let pair = Pair::new(&servers, kept, rules, &limits).await;
                    turn_and_go_on(pair, &limits, &steps, turn).await
                });
                reached.set(reached.get().and(more));
                Ok(())
            });
            run.unwrap_or_else(|failure| panic!("{name}: {failure}"));
            runs += 1;
        }
        assert!(reached.get().is_enough(), "{name}: {:?}", reached.get());
    }
}

#[test]
fn limits_turned_from_shadow_to_hard_at_any_time_count_what_was_made_before_as_if_they_had_always_been_hard()
{
    turned_limits_count_as_if_always_hard(Kept::Booked, all_rows());
}

#[test]
fn light_counters_turned_from_shadow_to_hard_count_what_was_booked_before_as_if_they_had_always_been_hard() {
    turned_limits_count_as_if_always_hard(Kept::Mixed, all_rows());
}

#[test]
fn limits_turned_from_shadow_to_hard_count_light_reservations_as_if_they_had_always_been_hard() {
    turned_limits_count_as_if_always_hard(Kept::Light, all_rows());
}
