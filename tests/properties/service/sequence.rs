//! A sequence: everything in it that is random, made from one number.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tollgate::domain::reservation::{OnExcess, OnLate};
use tollgate::writer::FailPoint;

use crate::support::model::{Counter, Mode, Rule};

/// How many tenants call at once.
pub(super) const TENANTS: usize = 3;
const STRETCHES: usize = 3;
pub(super) const MAX_LIFE_SECONDS: u32 = 240;

/// What is killed, emptied or cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGKILL, and started again on its append-only file.
    RedisKilled,
    RedisEmptied,
    /// Nobody is let in.
    PostgresCut,
    /// SIGKILL.
    ServiceKilled,
    /// Stopped there as if killed, and another one started.
    WriterKilled(FailPoint),
}

/// A fault, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strike {
    pub(super) fault: Fault,
    pub(super) after_us: u64,
    pub(super) lasting_us: u64,
}

/// A call about the tenant's own reservations; `back` counts from the one made last.
#[derive(Debug, Clone)]
pub(super) enum Call {
    Reserve {
        mode: Mode,
        amounts: [i64; 2],
        ttl_seconds: u32,
    },
    /// A reserve or usage once more, perhaps with another meaning.
    Again {
        back: usize,
        otherwise: bool,
    },
    Consume {
        back: usize,
        totals: Option<[i64; 2]>,
        is_final: bool,
    },
    Release {
        back: usize,
        incurred: Option<[i64; 2]>,
    },
    Extend {
        back: usize,
        ttl_seconds: u32,
    },
}

/// Whether a call is sent twice although it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Twice {
    Never,
    Afterwards,
    AtOnce,
}

#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) call: Call,
    pub(super) twice: Twice,
    /// Whether it asks for `ack: ledger`.
    pub(super) from_ledger: bool,
}

/// Calls and faults at once; then the clock moves, and holds expire.
#[derive(Debug, Clone)]
pub(super) struct Stretch {
    /// Each step waits until it is booked: then nothing may be lost whatever happens to Redis, and what the ledger
    /// answers for it is exact.
    pub(super) is_careful: bool,
    /// Per tenant.
    pub(super) steps: Vec<Vec<Step>>,
    pub(super) strikes: Vec<Strike>,
    /// How far the clock moves.
    pub(super) pass_ms: i64,
    /// While holds expire.
    pub(super) strikes_at_the_end: Vec<Strike>,
}

impl Stretch {
    /// Whether Redis forgets in it.
    pub(super) fn is_forgetful(&self) -> bool {
        self.strikes.iter().any(|strike| strike.fault == Fault::RedisEmptied)
    }
}

/// The capacities of a tenant's plan.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    day: i64,
    user: Option<i64>,
    month: Option<i64>,
    /// Of both meters together.
    budget: Option<i64>,
    pub(super) quota: Option<i64>,
}

/// A limit of a plan.
struct Limit {
    name: &'static str,
    window: &'static str,
    /// Whether it counts the user and not the tenant.
    is_users: bool,
    /// How much one unit of each meter counts.
    weights: [i64; 2],
    capacity: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Sequence {
    /// Of the meters `in` and `out`.
    pub(super) rules: [Rule; 2],
    /// Per tenant.
    pub(super) plans: Vec<Plan>,
    pub(super) stretches: Vec<Stretch>,
}

impl Sequence {
    /// The sequence of this number.
    pub(super) fn of(seed: u64) -> Self {
        let random = &mut StdRng::seed_from_u64(seed);
        Self {
            rules: [rule(random), rule(random)],
            plans: (0..TENANTS).map(|_| plan(random)).collect(),
            stretches: (0..STRETCHES).map(|_| stretch(random)).collect(),
        }
    }

    /// Whether Redis forgets in it.
    pub(super) fn is_forgetful(&self) -> bool {
        self.stretches.iter().any(|stretch| {
            let mut strikes = stretch.strikes.iter().chain(&stretch.strikes_at_the_end);
            strikes.any(|strike| strike.fault == Fault::RedisEmptied)
        })
    }
}

fn rule(random: &mut StdRng) -> Rule {
    Rule {
        on_excess: [OnExcess::Record, OnExcess::Cap, OnExcess::Cap, OnExcess::Reject]
            [random.random_range(0..4)],
        on_late: if random.random_ratio(1, 8) { OnLate::Reject } else { OnLate::Charge },
        late_within_ms: random.random_range(10..90) * 1000,
    }
}

fn plan(random: &mut StdRng) -> Plan {
    let mut maybe = |most: i64| random.random_bool(0.5).then(|| random.random_range(15..most));
    let (user, month, quota) = (maybe(60), maybe(60), maybe(60));
    let budget = random.random_bool(0.5).then(|| random.random_range(120..360));
    Plan { day: random.random_range(15..60), user, month, budget, quota }
}

impl Plan {
    /// The limits, in the order in which refusals name them.
    fn limits(&self) -> Vec<Limit> {
        let limit = |name, window, is_users, weights| {
            move |capacity| Limit { name, window, is_users, weights, capacity }
        };
        let budget = self.budget.map(limit("budget", "month", false, [2, 3]));
        let day = Some(self.day).map(limit("day", "day", false, [1, 0]));
        let user = self.user.map(limit("user", "day", true, [1, 0]));
        let month = self.month.map(limit("month", "month", false, [0, 1]));
        [budget, day, user, month].into_iter().flatten().collect()
    }

    /// The model's counters with their names, in the order in which refusals name them.
    pub(super) fn counters(&self, meters: &[String; 2]) -> Vec<(String, Counter)> {
        let counter = |weights: [i64; 2], capacity| Counter::of_calendar(capacity, weights.to_vec());
        let limits = self.limits().into_iter();
        let limits = limits.map(|limit| (limit.name.to_owned(), counter(limit.weights, limit.capacity)));
        let quota = self.quota.map(|capacity| (format!("quota:{}", meters[0]), counter([1, 0], capacity)));
        limits.chain(quota).collect()
    }

    /// As policy is written.
    pub(super) fn policy(&self, meters: &[String; 2]) -> Value {
        let limit = |limit: Limit| {
            let Limit { name, window, is_users, weights, capacity } = limit;
            let mut limit =
                json!({ "id": name, "window": window, "capacity": capacity.to_string(), "class": "quota" });
            match weights {
                [1, 0] => limit["meter"] = json!(meters[0]),
                [0, 1] => limit["meter"] = json!(meters[1]),
                _ => {
                    for (meter, weight) in meters.iter().zip(weights) {
                        limit["meters"][meter] = json!(weight.to_string());
                    }
                }
            }
            if is_users {
                (limit["scope"], limit["subject_kind"]) = (json!("subject"), json!("user"));
            }
            limit
        };
        let quotas =
            self.quota.map(|included| json!({ "meter": meters[0], "included": included.to_string() }));
        json!({
            "limits": self.limits().into_iter().map(limit).collect::<Vec<_>>(),
            "quotas": quotas.into_iter().collect::<Vec<_>>(),
        })
    }
}

fn stretch(random: &mut StdRng) -> Stretch {
    let is_careful = random.random_bool(0.5);
    let strikes_at_the_end = if random.random_bool(0.5) { strikes(random, true) } else { Vec::new() };
    Stretch {
        is_careful,
        steps: (0..TENANTS).map(|_| steps(random)).collect(),
        strikes: strikes(random, is_careful),
        pass_ms: random.random_range(1..60_000),
        strikes_at_the_end,
    }
}

/// One or two faults, of different kinds.
fn strikes(random: &mut StdRng, may_hit_redis: bool) -> Vec<Strike> {
    let mut strikes: Vec<Strike> = Vec::new();
    for _ in 0..random.random_range(1..=2) {
        let fault = fault(random, may_hit_redis);
        let kind = std::mem::discriminant(&fault);
        if strikes.iter().all(|strike| std::mem::discriminant(&strike.fault) != kind) {
            let (after_us, lasting_us) = (random.random_range(0..80_000), random.random_range(0..150_000));
            strikes.push(Strike { fault, after_us, lasting_us });
        }
    }
    strikes
}

fn fault(random: &mut StdRng, may_hit_redis: bool) -> Fault {
    use FailPoint::{AfterCommit, AfterPublish, AfterRead, AfterTrim, BeforeCommit};
    let points = [AfterRead, BeforeCommit, AfterCommit, AfterPublish, AfterTrim];
    match random.random_range(if may_hit_redis { 0..7 } else { 4..7 }) {
        0 | 1 => Fault::RedisKilled,
        2 | 3 => Fault::RedisEmptied,
        4 => Fault::PostgresCut,
        5 => Fault::ServiceKilled,
        _ => Fault::WriterKilled(points[random.random_range(0..points.len())]),
    }
}

fn steps(random: &mut StdRng) -> Vec<Step> {
    (0..random.random_range(5..12)).map(|_| step(random)).collect()
}

fn step(random: &mut StdRng) -> Step {
    let twice = match random.random_range(0..6) {
        0 => Twice::Afterwards,
        1 => Twice::AtOnce,
        _ => Twice::Never,
    };
    Step { call: call(random), twice, from_ledger: random.random_ratio(1, 3) }
}

fn call(random: &mut StdRng) -> Call {
    let back = random.random_range(0..4);
    let mut both = |most: i64| [random.random_range(0..most), random.random_range(0..most)];
    let (amounts, small, large) = (both(8).map(|amount| amount + 1), both(12), both(40));
    let totals = [None, None, Some(small), Some(small), Some(large)][random.random_range(0..5)];
    let ttl_seconds = random.random_range(5..180);
    match random.random_range(0..15) {
        0..=5 => {
            let mode = [Mode::All, Mode::All, Mode::Best, Mode::Usage][random.random_range(0..4)];
            Call::Reserve { mode, amounts, ttl_seconds }
        }
        6 => Call::Again { back, otherwise: random.random_bool(0.3) },
        7..=11 => Call::Consume { back, totals, is_final: random.random_bool(0.5) },
        12 => Call::Extend { back, ttl_seconds: ttl_seconds + 60 },
        _ => Call::Release { back, incurred: totals },
    }
}
