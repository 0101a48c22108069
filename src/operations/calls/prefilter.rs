//! The prefilter: refuses work without asking the gate where what is consumed alone fills a window.
//!
//! What it knows is what the gate has answered within the last second, under the same version of the policy and in the
//! same epoch. Holds never count: they may come back at any time. It answers only work under a single counter, so that
//! its answer has the figures that the gate's would have.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Calls;
use super::check::Resolution;
use crate::clock::Clock;
use crate::domain::algorithms::Parameters;
use crate::domain::amount::Units;
use crate::domain::counter::{Counter, need};
use crate::domain::emergency::CounterPlace;
use crate::domain::ids::Epoch;
use crate::gate::{CheckedCounters, CounterReading, GateError, ReserveCall, ReserveMode, ReserveOutcome};
use crate::operations::outage::Stranded;
use crate::operations::policy_store::TenantEntry;
use crate::operations::preparation::{Prepared, key_of};
use crate::operations::requests::ReserveRequest;
use crate::telemetry::labels::{Call, Script};

/// The most counters that are known to be full. One more is asked of the gate.
const FULL_MAX: usize = 10_000;
/// How old may be what is known: the longest that a raise or a correction of a counter goes unnoticed.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// Full counters.
pub(super) struct Prefilter {
    is_on: bool,
    full: Mutex<HashMap<CounterPlace, Full>>,
    /// How many there are, so that without any a call takes no lock.
    count: AtomicUsize,
}

/// What the gate said of a counter that is full.
#[derive(Clone, Copy)]
struct Full {
    reading: CounterReading,
    capacity: Units,
    resets_at_ms: i64,
    under: Under,
    learnt_at: Instant,
}

/// What else may change what the gate answers.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Under {
    policy_version: u64,
    epoch: Option<Epoch>,
    /// When its window began, where a calendar says so.
    began_ms: Option<i64>,
}

/// The gate's time, as far as this instance knows it.
#[derive(Clone, Copy)]
struct Now {
    ms: i64,
    /// By how much it may be behind: who is refused must not be so after the window has ended.
    lags_at_most_ms: i64,
}

/// Whether a counter can be known to be full: it refuses and remembers nothing of it, and what it consumes leaves it
/// only at the end of a window.
fn can_be_full(counter: &Counter) -> bool {
    let has_windows = matches!(counter.parameters, Parameters::Calendar(_) | Parameters::FixedWindow(_));
    let is_steady = counter.limit().is_some_and(|limit| !limit.load_scaled && !limit.is_global());
    has_windows
        && is_steady
        && counter.kind.refuses()
        && counter.punishment().is_none()
        && !counter.is_shared()
}

impl Prefilter {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, full: Mutex::default(), count: AtomicUsize::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CounterPlace, Full>> {
        self.full.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing is known to be full.
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// What the gate would say of this work.
    fn refuses(
        &self,
        work: Stranded<'_>,
        counter: &Counter,
        under: Under,
        now: Now,
    ) -> Option<CheckedCounters> {
        if !can_be_full(counter) {
            return None;
        }
        let needs = need(&counter.lines, work.amounts);
        let full = *self.lock().get(&work.place(counter))?;
        let is_known = full.under == under
            && full.capacity == counter.refuses_above()
            && full.learnt_at.elapsed() < KNOWN_FOR
            && now.lags_at_most_ms < full.resets_at_ms.saturating_sub(now.ms);
        if !is_known || needs == 0 {
            return None;
        }
        let wait_ms = (needs <= full.capacity.get()).then_some(full.resets_at_ms - now.ms);
        let refusing = vec![(0, wait_ms)];
        Some(CheckedCounters { refusing, readings: vec![full.reading], start_after_ms: 0 })
    }

    /// Learns from what the gate has said.
    fn learn(&self, work: Stranded<'_>, counter: &Counter, under: Under, reading: CounterReading) {
        let is_full = reading.consumed >= counter.refuses_above() && reading.reserved == Units::ZERO;
        let Some(resets_at_ms) = reading.resets_at_ms.filter(|_| self.is_on && is_full) else { return };
        if !can_be_full(counter) || !reading.current {
            return;
        }
        let learnt_at = Clock::monotonic();
        let mut full = self.lock();
        if full.len() >= FULL_MAX {
            full.retain(|_, each| each.learnt_at.elapsed() < KNOWN_FOR);
        }
        if full.len() < FULL_MAX {
            let capacity = counter.refuses_above();
            full.insert(work.place(counter), Full { reading, capacity, resets_at_ms, under, learnt_at });
        }
        self.count.store(full.len(), Ordering::Relaxed);
    }
}

/// The only counter of some work.
fn only(counters: &[Counter]) -> Option<&Counter> {
    match counters {
        [counter] => Some(counter),
        _ => None,
    }
}

impl Calls {
    fn under(&self, entry: &TenantEntry, counter: &Counter) -> Under {
        Under {
            policy_version: entry.policy.version,
            epoch: self.core.gate.epoch(entry.partition),
            began_ms: counter.window().map(|window| window.start_ms),
        }
    }

    /// The gate's time is known from its last answer, which took no longer than one may take.
    fn now(&self) -> Now {
        let lags_at_most = self.core.gate.response_timeout().as_millis();
        Now { ms: self.core.gate_now_ms(), lags_at_most_ms: i64::try_from(lags_at_most).unwrap_or(i64::MAX) }
    }

    /// What the gate would say of checks, by number, where that is known; nothing where they are decided `together`.
    pub(super) fn prefilter_checks(
        &self,
        resolutions: &[Resolution<'_>],
        together: bool,
    ) -> Vec<Option<CheckedCounters>> {
        if together || self.prefilter.is_empty() {
            return Vec::new();
        }
        let now = self.now();
        resolutions.iter().map(|each| self.prefilter_check(each, now)).collect()
    }

    /// What was known about checks and what the gate has said of those that it was asked, from which this learns.
    pub(super) fn with_known_checks(
        &self,
        mut known: Vec<Option<CheckedCounters>>,
        resolutions: &[Resolution<'_>],
        (is_asked, said): (&[bool], Vec<CheckedCounters>),
        together: bool,
    ) -> Vec<Option<CheckedCounters>> {
        let mut said = said.into_iter();
        let mut checks = Vec::with_capacity(resolutions.len());
        for (number, (each, is_asked)) in resolutions.iter().zip(is_asked).enumerate() {
            let decided = match is_asked {
                true => said.next(),
                false => known.get_mut(number).and_then(Option::take),
            };
            if *is_asked && !together {
                self.learn_check(each, decided.as_ref());
            }
            checks.push(decided);
        }
        checks
    }

    fn prefilter_check(&self, each: &Resolution<'_>, now: Now) -> Option<CheckedCounters> {
        let counter = self.filtered_counter(each)?;
        let under = self.under(&each.check.entry, counter);
        let known = self.prefilter.refuses(each.work(), counter, under, now);
        self.prefiltered(Call::Check, known)
    }

    /// Learns from what the gate has said of a check.
    fn learn_check(&self, each: &Resolution<'_>, decided: Option<&CheckedCounters>) {
        let Some(CheckedCounters { refusing, readings, .. }) = decided else { return };
        if let ([_], [reading], Some(counter)) = (&refusing[..], &readings[..], self.filtered_counter(each)) {
            let under = self.under(&each.check.entry, counter);
            self.prefilter.learn(each.work(), counter, under, *reading);
        }
    }

    fn filtered_counter<'a>(&self, each: &'a Resolution<'_>) -> Option<&'a Counter> {
        let resolved = each.resolved.as_ref().ok()?;
        let counts = each.globals.is_empty() && !each.check.request.peeks;
        only(&resolved.counters).filter(|_| counts && self.core.gate.trusts_time())
    }

    /// What is said of a reserve: where that is known, without asking the gate. Only of one without a key: another may
    /// be a repeat.
    pub(super) async fn ask_to_reserve(
        &self,
        entry: &TenantEntry,
        request: &ReserveRequest,
        prepared: &Prepared,
        call: &ReserveCall<'_>,
    ) -> Result<ReserveOutcome, GateError> {
        let is_plain = call.mode == ReserveMode::AllOrNothing
            && key_of(request).is_none()
            && call.work.is_none()
            && self.core.gate.trusts_time();
        let counter = only(call.counters).filter(|counter| is_plain && can_be_full(counter));
        if let Some(known) =
            counter.and_then(|counter| self.prefilter_reserve(entry, prepared, call, counter))
        {
            return Ok(known);
        }
        let said = self.core.timed(Script::Reserve, self.core.gate.reserve(call)).await;
        if let (Ok(ReserveOutcome::Refused { readings, .. }), Some(counter)) = (&said, counter)
            && let [reading] = readings[..]
        {
            let subjects = prepared.subject_hashes();
            let work = Stranded { tenant: call.tenant, subjects: &subjects, amounts: &call.amounts };
            self.prefilter.learn(work, counter, self.under(entry, counter), reading);
        }
        said
    }

    fn prefilter_reserve(
        &self,
        entry: &TenantEntry,
        prepared: &Prepared,
        call: &ReserveCall<'_>,
        counter: &Counter,
    ) -> Option<ReserveOutcome> {
        if self.prefilter.is_empty() {
            return None;
        }
        let now = self.now();
        let subjects = prepared.subject_hashes();
        let work = Stranded { tenant: call.tenant, subjects: &subjects, amounts: &call.amounts };
        let known = self.prefilter.refuses(work, counter, self.under(entry, counter), now);
        let CheckedCounters { refusing, readings, .. } = self.prefiltered(Call::Reserve, known)?;
        let granted_by_line = call.amounts.iter().map(|_| Units::ZERO).collect();
        Some(ReserveOutcome::Refused { now_ms: now.ms, readings, refusing, granted_by_line })
    }

    fn prefiltered(&self, call: Call, known: Option<CheckedCounters>) -> Option<CheckedCounters> {
        if known.is_some() {
            self.core.metrics.prefiltered(call);
        }
        known
    }
}
