//! The metrics, as OpenMetrics text. Handles are looked up once, so that observing is an atomic addition.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};

use super::booking::Booking;
use super::handles::*;
use super::labels::{
    Alarm, Asked, BreakerState, Call, Drift, Fallback, Fault, Guarded, Job, Judged, Label, Outcome, Repaired,
    Restored, Script, StatusClass,
};
use super::text_format::older;
use crate::domain::load::{LoadFactor, LoadLevel};

/// A gate call takes tenths of milliseconds; its time-out ends the scale.
const GATE_SECONDS: [f64; 14] =
    [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
const RESTORE_SECONDS: [f64; 12] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// Every metric of the service. Cheap to clone; clones count together.
#[derive(Clone)]
pub struct Metrics(Arc<Handles>);

struct Handles {
    registry: Registry,
    decisions: Vec<Cells<Outcome, Counter>>,
    refusals: Refusals,
    shadow_refusals: ByLimit,
    near: ByLimit,
    remaining: Remaining,
    punishments: Punishments,
    anomalies: Anomalies,
    gate_calls: Cells<Script, Histogram>,
    gate_failures: Failures,
    http_requests: Requests,
    booking: Booking,
    restores: Cells<Restored, Counter>,
    restore_seconds: Cells<Restored, Histogram>,
    key_asks: Cells<Asked, Counter>,
    key_filter_bytes: Gauge,
    keys_sealed: Seconds,
    breakers: Cells<Guarded, Gauge>,
    clock_trusted: Gauge,
    clock_difference: Seconds,
    alarms: Cells<Alarm, Counter>,
    checkpoints: Cells<Judged, Counter>,
    drifts: Cells<Drift, Counter>,
    repairs: Cells<Repaired, Counter>,
    epochs: Counter,
    expired: Counter,
    parked: ParkedCalls,
    prefilter_hits: Cells<Call, Counter>,
    sampled_decisions: SampledDecisions,
    policy_version: Gauge,
    job_ages: JobAges,
    load_factor: Share,
    load_level: Gauge,
}

/// Calls taken while the gate was away.
struct ParkedCalls {
    taken: Cells<Call, Counter>,
    fallbacks: Cells<Fallback, Counter>,
    conflicts: Counter,
    waiting: LookedUp,
    conflicting: LookedUp,
}

impl ParkedCalls {
    fn new(registry: &mut Registry) -> Self {
        let never_taken = "Parked calls that the gate will never take";
        let for_operators = "Parked calls in conflict, for an operator to look at";
        Self {
            taken: counters(registry, "calls_parked", "Calls taken while the gate was away"),
            fallbacks: counters(registry, "fallback", "Calls decided without the gate, by what decided"),
            conflicts: counter(registry, "parked_conflicts", never_taken),
            waiting: looked_up(registry, "parked_waiting_calls", "Parked calls that wait for the gate"),
            conflicting: looked_up(registry, "parked_conflicting_calls", for_operators),
        }
    }
}

/// Decisions of sampled tenants.
struct SampledDecisions {
    kept: Counter,
    dropped: Counter,
}

impl SampledDecisions {
    fn new(registry: &mut Registry) -> Self {
        Self {
            kept: counter(registry, "decisions_kept", "Decisions of sampled tenants written to the ledger"),
            dropped: counter(
                registry,
                "decisions_dropped",
                "Decisions of sampled tenants that could not be written",
            ),
        }
    }
}

impl Metrics {
    /// All metrics, registered and at zero; what only some instances look up is absent until they have.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("tollgate");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version that runs", build);
        Self(Arc::new(Handles {
            decisions: decisions(&mut registry),
            refusals: refusals(&mut registry),
            shadow_refusals: shadow_refusals(&mut registry),
            near: ByLimit::new(&mut registry, "limits_near", "Admitted work that has come near a limit"),
            remaining: Remaining::new(&mut registry),
            punishments: Punishments::new(&mut registry),
            anomalies: Anomalies::new(&mut registry),
            gate_calls: histograms(
                &mut registry,
                "gate_call",
                "How long a script took, as the caller saw it",
                || Histogram::new(GATE_SECONDS),
            ),
            gate_failures: failures(&mut registry),
            http_requests: http_requests(&mut registry),
            booking: Booking::new(&mut registry),
            restores: counters(&mut registry, "restores", "Restores from the ledger to the gate"),
            key_asks: counters(&mut registry, "key_asks", "Keyed calls for which the ledger was asked first"),
            key_filter_bytes: gauge(&mut registry, "key_filter_bytes", "Memory of the key filters"),
            keys_sealed: seconds(
                &mut registry,
                "keys_sealed",
                "Unix time before which all keys are in a filter",
            ),
            restore_seconds: histograms(&mut registry, "restore", "How long a restore took", || {
                Histogram::new(RESTORE_SECONDS)
            }),
            breakers: gauges(&mut registry, "breaker_state", "0 closed, 1 half open, 2 open"),
            clock_trusted: gauge(&mut registry, "gate_clock_trusted", "1 while Redis's clock is trusted"),
            clock_difference: seconds(
                &mut registry,
                "gate_clock_difference",
                "How far Redis's clock is from this host's, either way",
            ),
            alarms: counters(&mut registry, "alarms", "What an operator has to look at"),
            checkpoints: counters(&mut registry, "checkpoints", "Checkpoints compared with the books"),
            drifts: counters(&mut registry, "drift", "Figures of counters that differed from the books"),
            repairs: counters(
                &mut registry,
                "repairs",
                "Counters that differed, by the outcome of their repair",
            ),
            epochs: counter(&mut registry, "epoch_changes", "Partitions that got a new epoch"),
            expired: counter(&mut registry, "holds_expired", "Reservations that expired"),
            parked: ParkedCalls::new(&mut registry),
            prefilter_hits: counters(&mut registry, "prefilter_hits", "Calls refused without the gate"),
            sampled_decisions: SampledDecisions::new(&mut registry),
            policy_version: gauge(&mut registry, "policy_version", "The version of the policy in memory"),
            job_ages: job_ages(&mut registry),
            load_factor: share(&mut registry, "load_factor", "How busy the installation is, 0 to 1"),
            load_level: gauge(
                &mut registry,
                "load_level",
                "0 as usual, 1 limits that are scaled have three quarters of their capacity, 2 a half",
            ),
            registry,
        }))
    }

    /// Counts a call and how it ended.
    pub fn decision(&self, call: Call, outcome: Outcome) {
        if let Some(outcomes) = self.0.decisions.get(call.index()) {
            outcomes.with(outcome, |counter| counter.inc());
        }
    }

    /// Counts decisions of sampled tenants that were written to the ledger.
    pub fn decisions_kept(&self, count: u64) {
        self.0.sampled_decisions.kept.inc_by(count);
    }

    /// Counts decisions of sampled tenants that could not be written.
    pub fn decisions_dropped(&self, count: u64) {
        self.0.sampled_decisions.dropped.inc_by(count);
    }

    /// Counts a limit that refused a call: what kind of limit it is, its algorithm's name, what stands in the way, and
    /// the code of the answer.
    pub fn limit_refused(
        &self,
        kind: &'static str,
        algorithm: &'static str,
        cause: &'static str,
        code: &'static str,
    ) {
        let labels = [("kind", kind), ("algorithm", algorithm), ("cause", cause), ("code", code)];
        self.0.refusals.get_or_create(&labels).inc();
    }

    /// Counts a call to a limit of this id that punishes: a violation, also one that has placed a ban, or a call that
    /// is refused because of a ban.
    pub fn limit_punished(&self, limit: &str, is_violation: bool, is_ban: bool) {
        let Punishments { violations, bans, under_ban, .. } = &self.0.punishments;
        match (is_violation, is_ban) {
            (true, true) => {
                violations.count(limit);
                bans.count(limit);
            }
            (true, false) => violations.count(limit),
            (false, _) => under_ban.count(limit),
        }
    }

    /// Counts a call that came much sooner than usual under a limit of this id, and was admitted.
    pub fn anomaly_monitored(&self, limit: &str) {
        self.0.anomalies.monitored.count(limit);
    }

    /// Counts one that was refused.
    pub fn anomaly_throttled(&self, limit: &str) {
        self.0.anomalies.throttled.count(limit);
    }

    /// Counts violations that were not summed up for the ledger.
    pub fn violations_dropped(&self, count: u64) {
        self.0.punishments.dropped.inc_by(count);
    }

    /// Counts work that a shadow limit of this id would have refused.
    pub fn shadow_refused(&self, limit: &str) {
        self.0.shadow_refusals.count(limit);
    }

    /// Counts admitted work that has come near the limit of this id.
    pub fn near_limit(&self, limit: &str) {
        self.0.near.count(limit);
    }

    /// Whether it is the turn of an admission to be observed by what its limits have left: the first's, and then every
    /// sixteenth's.
    pub fn samples_remaining(&self) -> bool {
        self.0.remaining.is_turn()
    }

    /// Observes what a limit of this algorithm has left after an admission, in percent.
    pub fn remaining(&self, algorithm: &'static str, percent: u8) {
        self.0.remaining.observe(algorithm, percent);
    }

    /// Counts a script that has decided nothing, and why.
    pub fn gate_failed(&self, script: Script, fault: Fault) {
        self.0.gate_failures.get_or_create(&[pair(script), pair(fault)]).inc();
    }

    /// Observes how long a script took, the way there and back included.
    pub fn gate_call(&self, script: Script, took: Duration) {
        self.0.gate_calls.with(script, |histogram| histogram.observe(took.as_secs_f64()));
    }

    /// Observes a request. `route` is the pattern that matched (`/v1/reservations/{id}`), never the path itself;
    /// `None` if no route matched.
    pub fn http_request(&self, route: Option<&str>, status: u16, took: Duration) {
        let route = ("route", route.unwrap_or("unmatched").to_owned());
        let class = (StatusClass::NAME, StatusClass::of(status).text().to_owned());
        self.0.http_requests.get_or_create(&[route, class]).observe(took.as_secs_f64());
    }

    /// Sets how many events wait to be booked, how large they are, and how old the oldest is (zero if there is none).
    pub fn outbox(&self, entries: u64, bytes: u64, oldest_age: Duration) {
        self.0.booking.outbox_entries.set(saturating(entries));
        self.0.booking.outbox_bytes.set(saturating(bytes));
        self.0.booking.outbox_oldest.set(oldest_age.as_secs_f64());
    }

    /// Sets how many seconds of booked events a partition's outbox still holds.
    pub fn outbox_tail(&self, partition: &str, covered: Duration) {
        let tail = self.0.booking.outbox_tails.get_or_create(&[("partition", partition.to_owned())]);
        tail.set(covered.as_secs_f64());
    }

    /// Sets how many events the writer lags the outbox's end.
    pub fn writer_lag(&self, events: u64) {
        self.0.booking.writer_lag.set(saturating(events));
    }

    /// Observes one committed batch and counts its events as booked.
    pub fn batch_booked(&self, events: u32) {
        self.0.booking.writer_batch.observe(f64::from(events));
        self.0.booking.booked.inc_by(u64::from(events));
    }

    /// Counts events that went into quarantine.
    pub fn events_quarantined(&self, events: u64) {
        self.0.booking.quarantined.inc_by(events);
    }

    /// Sets how many events are in quarantine now.
    pub fn quarantine_open(&self, events: u64) {
        self.0.booking.quarantine_open.set(saturating(events));
    }

    /// Sets how many damaged items were passed over lately.
    pub fn damaged_items(&self, items: u64) {
        self.0.booking.damaged.set(saturating(items));
    }

    /// Counts a gap in an outbox, and the events known to be missing in it.
    pub fn gap(&self, lost_events: u64) {
        self.0.booking.gaps.inc();
        self.0.booking.lost.inc_by(lost_events);
    }

    /// Counts acknowledged events that are lost, seen by the instance that acknowledged them.
    pub fn acknowledged_lost(&self, events: u64) {
        self.0.booking.acknowledged_lost.inc_by(events);
    }

    /// Counts a restore and observes how long it took.
    pub fn restored(&self, kind: Restored, took: Duration) {
        self.0.restores.with(kind, |counter| counter.inc());
        self.0.restore_seconds.with(kind, |histogram| histogram.observe(took.as_secs_f64()));
    }

    /// Counts a keyed call that was asked of the ledger before it was admitted.
    pub fn key_asked(&self, found: Asked) {
        self.0.key_asks.with(found, |counter| counter.inc());
    }

    /// Sets the size of the key filters, and up to when all keys are in them (unix ms).
    pub fn key_filters(&self, bytes: usize, sealed_ms: Option<i64>) {
        self.0.key_filter_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        let sealed = Duration::from_millis(sealed_ms.unwrap_or_default().unsigned_abs());
        self.0.keys_sealed.set(sealed.as_secs_f64());
    }

    /// Sets the state of a server's circuit breaker.
    pub fn breaker(&self, server: Guarded, state: BreakerState) {
        let number = match state {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        };
        self.0.breakers.with(server, |gauge| gauge.set(number));
    }

    /// Sets whether Redis's clock is trusted, and how far it is from this host's.
    pub fn gate_clock(&self, trusted: bool, difference: Duration) {
        self.0.clock_trusted.set(i64::from(trusted));
        self.0.clock_difference.set(difference.as_secs_f64());
    }

    /// Counts an alarm.
    pub fn alarm(&self, alarm: Alarm) {
        self.0.alarms.with(alarm, |counter| counter.inc());
    }

    /// Counts a checkpoint that was compared with the books.
    pub fn checkpoint_judged(&self, result: Judged) {
        self.0.checkpoints.with(result, |counter| counter.inc());
    }

    /// Counts a figure of a counter that differs from the books.
    pub fn drifted(&self, kind: Drift) {
        self.0.drifts.with(kind, |counter| counter.inc());
    }

    /// Counts the outcome of a repair.
    pub fn repaired(&self, outcome: Repaired) {
        self.0.repairs.with(outcome, |counter| counter.inc());
    }

    /// Counts partitions that took a new epoch.
    pub fn epoch_changed(&self, partitions: u64) {
        self.0.epochs.inc_by(partitions);
    }

    /// Counts reservations that expired.
    pub fn holds_expired(&self, reservations: u64) {
        self.0.expired.inc_by(reservations);
    }

    /// Counts a call that was parked.
    pub fn call_parked(&self, call: Call) {
        self.0.parked.taken.with(call, |counter| counter.inc());
    }

    /// Counts a call that was refused without asking the gate, because a window is full.
    pub fn prefiltered(&self, call: Call) {
        self.0.prefilter_hits.with(call, |counter| counter.inc());
    }

    /// Counts a call or check that was decided while the gate was away.
    pub fn fell_back(&self, policy: Fallback) {
        self.0.parked.fallbacks.with(policy, |counter| counter.inc());
    }

    /// Counts a parked call that the gate will never take.
    pub fn parked_conflict(&self) {
        self.0.parked.conflicts.inc();
    }

    /// Sets how many parked calls wait, and how many conflict.
    pub fn parked(&self, waiting: u64, conflicting: u64) {
        self.0.parked.waiting.set(saturating(waiting));
        self.0.parked.conflicting.set(saturating(conflicting));
    }

    /// Sets the version of the policy in memory.
    pub fn policy_version(&self, version: i64) {
        self.0.policy_version.set(version);
    }

    /// Sets the load and the level of limits that follow it.
    pub fn load(&self, factor: LoadFactor, level: LoadLevel) {
        // As seconds of milliseconds, which is a division by 1,000.
        let share = Duration::from_millis(u64::from(factor.thousandths())).as_secs_f64();
        self.0.load_factor.set(share);
        self.0.load_level.set(i64::from(level.number()));
    }

    /// Sets how long ago a job last ended well.
    pub fn job_succeeded_before(&self, job: Job, age: Duration) {
        self.0.job_ages.get_or_create(&[pair(job)]).set(age.as_secs_f64());
    }

    /// The metrics as OpenMetrics text.
    ///
    /// # Errors
    /// Never in practice: writing to a string does not fail.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.0.registry)?;
        Ok(text)
    }

    /// The same in the older Prometheus text format (0.0.4).
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_older(&self) -> Result<String, fmt::Error> {
        self.encode().map(|text| older(&text))
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Metrics")
    }
}

fn saturating(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
