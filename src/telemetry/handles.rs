//! How metrics are registered, and their handles kept: one for each value of a label, looked up once.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::labels::{Call, Label, Outcome};

const HTTP_SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Seconds with fractions.
pub(super) type Seconds = Gauge<f64, AtomicU64>;
/// A share from 0 to 1.
pub(super) type Share = Gauge<f64, AtomicU64>;
/// Requests by route and class of status.
pub(super) type Requests = Family<[(&'static str, String); 2], Histogram, fn() -> Histogram>;
/// Seconds by partition.
pub(super) type Tails = Family<[(&'static str, String); 1], Seconds>;
/// Seconds by job.
pub(super) type JobAges = Family<[Pair; 1], Seconds>;
/// Refusing limits by kind, algorithm, cause and code.
pub(super) type Refusals = Family<[Pair; 4], Counter>;
/// Scripts that have decided nothing, by script and fault.
pub(super) type Failures = Family<[Pair; 2], Counter>;
type Pair = (&'static str, &'static str);

/// A handle for each value of a label.
pub(super) struct Cells<L, M> {
    handles: Vec<M>,
    label: PhantomData<L>,
}

impl<L: Label, M> Cells<L, M> {
    fn new(handle: impl Fn(L) -> M) -> Self {
        Self { handles: L::ALL.iter().map(|&value| handle(value)).collect(), label: PhantomData }
    }

    /// Observes with the handle of a value.
    pub(super) fn with<R>(&self, value: L, observe: impl FnOnce(&M) -> R) {
        if let Some(handle) = self.handles.get(value.index()) {
            observe(handle);
        }
    }
}

/// A counter of every call and every way it may end.
pub(super) fn decisions(registry: &mut Registry) -> Vec<Cells<Outcome, Counter>> {
    let family = Family::<[Pair; 2], Counter>::default();
    registry.register("decisions", "Calls by how they ended", family.clone());
    Call::ALL
        .iter()
        .map(|&call| {
            Cells::new(|outcome| family.get_or_create_owned(&[pair(call), pair::<Outcome>(outcome)]))
        })
        .collect()
}

/// Requests by route and class of status.
pub(super) fn http_requests(registry: &mut Registry) -> Requests {
    let family = Family::new_with_constructor((|| Histogram::new(HTTP_SECONDS)) as fn() -> Histogram);
    registry.register_with_unit("http_request", "How long a request took", Unit::Seconds, family.clone());
    family
}

/// Scripts that have decided nothing, by script and fault.
pub(super) fn failures(registry: &mut Registry) -> Failures {
    let family = Failures::default();
    registry.register("gate_errors", "Scripts that have decided nothing, by why", family.clone());
    family
}

/// Refusing limits by kind, algorithm, cause and code.
pub(super) fn refusals(registry: &mut Registry) -> Refusals {
    let family = Refusals::default();
    registry.register("limits_refused", "Limits that refused a call, by why", family.clone());
    family
}

/// How many limits a metric counts by their own ids. The others are counted together.
const LIMITS_MAX: usize = 200;
/// Their label; no limit's id has a parenthesis.
const OTHERS: &str = "(others)";

/// What is counted by limit.
pub(super) struct ByLimit {
    family: Family<[(&'static str, String); 1], Counter>,
    named: Mutex<BTreeSet<String>>,
}

impl ByLimit {
    /// None yet.
    pub(super) fn new(registry: &mut Registry, name: &str, help: &str) -> Self {
        let family = Family::default();
        registry.register(name, help, Family::clone(&family));
        Self { family, named: Mutex::default() }
    }

    /// Counts one of this limit.
    pub(super) fn count(&self, limit: &str) {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = named.len() < LIMITS_MAX;
        let is_named = named.contains(limit) || (has_room && named.insert(limit.to_owned()));
        drop(named);
        let label = if is_named { limit } else { OTHERS };
        self.family.get_or_create(&[("limit", label.to_owned())]).inc();
    }
}

/// Work that shadow limits would have refused.
pub(super) fn shadow_refusals(registry: &mut Registry) -> ByLimit {
    let help = "Work that was let through and that a shadow limit would have refused";
    ByLimit::new(registry, "limits_shadow_refused", help)
}

/// One admission of so many is observed by what its limits have left.
const REMAINING_OF: u64 = 16;
/// The more is left, the less its exact share matters.
const REMAINING_PERCENT: [f64; 8] = [0.0, 1.0, 5.0, 10.0, 20.0, 50.0, 80.0, 100.0];

/// What limits have left after an admission, by algorithm.
pub(super) struct Remaining {
    family: Family<[Pair; 1], Histogram, fn() -> Histogram>,
    admissions: AtomicU64,
}

impl Remaining {
    /// None yet.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let family =
            Family::new_with_constructor((|| Histogram::new(REMAINING_PERCENT)) as fn() -> Histogram);
        let help = "What limits had left after an admission, in percent, of a sample";
        registry.register("limits_remaining_percent", help, Family::clone(&family));
        Self { family, admissions: AtomicU64::new(0) }
    }

    /// Whether it is an admission's turn.
    pub(super) fn is_turn(&self) -> bool {
        self.admissions.fetch_add(1, Ordering::Relaxed).is_multiple_of(REMAINING_OF)
    }

    /// Observes a limit.
    pub(super) fn observe(&self, algorithm: &'static str, percent: u8) {
        self.family.get_or_create(&[("algorithm", algorithm)]).observe(f64::from(percent));
    }
}

/// Calls that came much sooner than usual.
pub(super) struct Anomalies {
    pub(super) monitored: ByLimit,
    pub(super) throttled: ByLimit,
}

impl Anomalies {
    /// None yet.
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            monitored: ByLimit::new(
                registry,
                "anomalies_monitored",
                "Calls that came much sooner than usual and were admitted",
            ),
            throttled: ByLimit::new(
                registry,
                "anomalies_throttled",
                "Calls that came much sooner than usual and were refused",
            ),
        }
    }
}

/// What limits with a punishment have counted and done.
pub(super) struct Punishments {
    pub(super) violations: ByLimit,
    pub(super) bans: ByLimit,
    pub(super) under_ban: ByLimit,
    pub(super) dropped: Counter,
}

impl Punishments {
    /// None yet.
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            violations: ByLimit::new(registry, "limits_violated", "Refused calls that a limit has counted"),
            bans: ByLimit::new(registry, "limits_banned", "Bans that a limit has placed"),
            under_ban: ByLimit::new(
                registry,
                "limits_under_ban",
                "Calls refused because a limit has placed a ban",
            ),
            dropped: counter(
                registry,
                "violations_dropped",
                "Violations that were not written to the ledger",
            ),
        }
    }
}

/// A counter, at zero.
pub(super) fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}

/// A gauge, at zero.
pub(super) fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    let gauge = Gauge::default();
    registry.register(name, help, gauge.clone());
    gauge
}

/// A gauge that is absent until it is set: an instance that never looks a figure up does not say that it is 0.
#[derive(Debug, Clone, Default)]
pub(super) struct LookedUp {
    gauge: Gauge,
    is_set: Arc<AtomicBool>,
}

impl LookedUp {
    /// Sets it; from now on it is there.
    pub(super) fn set(&self, value: i64) {
        self.gauge.set(value);
        self.is_set.store(true, Ordering::Release);
    }
}

impl EncodeMetric for LookedUp {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        EncodeMetric::encode(&self.gauge, encoder)
    }

    fn metric_type(&self) -> MetricType {
        EncodeMetric::metric_type(&self.gauge)
    }

    fn is_empty(&self) -> bool {
        !self.is_set.load(Ordering::Acquire)
    }
}

/// A gauge that is absent until it is set.
pub(super) fn looked_up(registry: &mut Registry, name: &str, help: &str) -> LookedUp {
    let gauge = LookedUp::default();
    registry.register(name, help, gauge.clone());
    gauge
}

/// A gauge of a share, at zero.
pub(super) fn share(registry: &mut Registry, name: &str, help: &str) -> Share {
    let gauge = Share::default();
    registry.register(name, help, gauge.clone());
    gauge
}

/// A gauge of seconds, at zero.
pub(super) fn seconds(registry: &mut Registry, name: &str, help: &str) -> Seconds {
    let gauge = Seconds::default();
    registry.register_with_unit(name, help, Unit::Seconds, gauge.clone());
    gauge
}

/// How long ago each job last succeeded; each is absent until it is set.
pub(super) fn job_ages(registry: &mut Registry) -> JobAges {
    let family = JobAges::default();
    let help = "Time since a job last succeeded, or was first planned";
    registry.register_with_unit("job_success_age", help, Unit::Seconds, family.clone());
    family
}

/// How long each partition keeps what is booked.
pub(super) fn tails(registry: &mut Registry) -> Tails {
    let family = Tails::default();
    let help = "For how long booked events are still in a partition's outbox";
    registry.register_with_unit("outbox_tail", help, Unit::Seconds, family.clone());
    family
}

/// A histogram with these bounds.
pub(super) fn histogram(registry: &mut Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    let histogram = Histogram::new(buckets.iter().copied());
    registry.register(name, help, histogram.clone());
    histogram
}

/// A counter for each value of a label.
pub(super) fn counters<L: Label>(registry: &mut Registry, name: &str, help: &str) -> Cells<L, Counter> {
    let family = Family::<[Pair; 1], Counter>::default();
    registry.register(name, help, family.clone());
    Cells::new(|value| family.get_or_create_owned(&[pair(value)]))
}

/// A gauge for each value of a label.
pub(super) fn gauges<L: Label>(registry: &mut Registry, name: &str, help: &str) -> Cells<L, Gauge> {
    let family = Family::<[Pair; 1], Gauge>::default();
    registry.register(name, help, family.clone());
    Cells::new(|value| family.get_or_create_owned(&[pair(value)]))
}

/// A histogram of seconds for each value of a label.
pub(super) fn histograms<L: Label>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    constructor: fn() -> Histogram,
) -> Cells<L, Histogram> {
    let family = Family::<[Pair; 1], Histogram, fn() -> Histogram>::new_with_constructor(constructor);
    registry.register_with_unit(name, help, Unit::Seconds, family.clone());
    Cells::new(|value| family.get_or_create_owned(&[pair(value)]))
}

/// The pair of a label.
pub(super) fn pair<L: Label>(value: L) -> Pair {
    (L::NAME, value.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_beyond_the_most_that_are_named_are_counted_together() {
        let refusals = shadow_refusals(&mut Registry::default());
        for _ in 0..2 {
            (0..LIMITS_MAX + 3).for_each(|number| refusals.count(&format!("limit-{number}")));
        }
        let of =
            |limit: &str| refusals.family.get(&[("limit", limit.to_owned())]).map(|counter| counter.get());
        assert_eq!(of("limit-0"), Some(2));
        assert_eq!((of(&format!("limit-{LIMITS_MAX}")), of(OTHERS)), (None, Some(6)));
    }
}
