//! Limits that count all tenants: they are asked first, in a partition of their own, and get back what the tenant's
//! partition does not admit.
//!
//! The two steps are not one atom. A call that ends between them, or whose give-back is lost, leaves units taken until
//! the counter's window ends; never does more get through than the limit allows.

use super::reserve::Decided;
use super::{Calls, KEPT_CHANGING};
use crate::domain::amount::{UNITS_MAX, Units};
use crate::domain::counter::{Counter, need};
use crate::domain::ids::{Epoch, ReservationId};
use crate::domain::period::Window;
use crate::domain::policy::globals::Globals;
use crate::domain::policy::resolve::put_under;
use crate::domain::reservation::{Record, ReservationState};
use crate::gate::{
    CheckAsk, CheckOutcome, CheckedCounters, CounterReading, GateError, GivenBack, ReserveMode,
    ReserveOutcome, TakeCall, TakeMode, TakeOutcome, Taking,
};
use crate::operations::answers::{LimitStatus, Recorded};
use crate::operations::error::{Answer, OperationError};
use crate::operations::policy_store::TenantEntry;
use crate::operations::preparation::{Prepared, key_of};
use crate::operations::requests::ReserveRequest;
use crate::telemetry::labels::Script;

/// What global limits said to a call.
pub(super) enum GlobalAnswer {
    /// None counts it.
    Unasked,
    /// They counted it, or have no room for it.
    Said(Box<GlobalStep>),
    /// Their partition cannot be asked.
    Away(GateError),
}

/// The first of a call's two steps.
pub(super) struct GlobalStep {
    counters: Vec<Counter>,
    readings: Vec<CounterReading>,
    /// The counters that refuse the call, by number, and for how long.
    refusing: Vec<(usize, Option<i64>)>,
    /// Per line, how much of it the tenant's partition may admit.
    granted: Vec<Units>,
    taken: Option<Taken>,
}

/// What a call goes by in the counters of global limits.
struct Taken {
    /// Whether this call counted it, and no earlier one of the same reservation.
    is_new: bool,
    /// Whether the reservation's id finds it.
    is_remembered: bool,
    /// When it was counted (unix ms).
    at_ms: i64,
    /// The epoch of the counters.
    epoch: Epoch,
}

/// Why a call must be asked about again, or cannot be counted.
enum Unasked {
    /// The windows must be computed for this time (unix ms).
    StaleWindow(i64),
    /// A counter would be beyond the largest amount.
    TooLarge,
}

impl GlobalStep {
    /// How the tenant's partition is asked, and for how much: after a refusal only for a repeat, and for what else
    /// refuses.
    pub(super) fn asks(&self, mode: ReserveMode) -> (ReserveMode, Option<Vec<Units>>) {
        match self.refusing.is_empty() {
            true => (mode, Some(self.granted.clone())),
            false => (mode.dry(), None),
        }
    }

    /// The decision of both steps.
    pub(super) fn joined(self, mut decided: Decided) -> Decided {
        let before = decided.resolved.counters.len();
        let moved = |(index, wait_ms): (usize, Option<i64>)| (index + before, wait_ms);
        let also_refusing = self.refusing.into_iter().map(moved);
        match &mut decided.outcome {
            // What was decided while the gate was away has no figures.
            ReserveOutcome::Admitted { readings, .. }
            | ReserveOutcome::Allowed { readings, .. }
            | ReserveOutcome::Replayed { readings, .. }
            | ReserveOutcome::Refused { readings, .. }
                if readings.len() == before =>
            {
                readings.extend(self.readings);
            }
            _ => return decided,
        }
        decided.resolved.counters.extend(self.counters);
        decided.outcome = match decided.outcome {
            ReserveOutcome::Refused { now_ms, readings, mut refusing, granted_by_line } => {
                refusing.extend(also_refusing);
                ReserveOutcome::Refused { now_ms, readings, refusing, granted_by_line }
            }
            ReserveOutcome::Allowed { now_ms, readings, granted, .. } if also_refusing.len() > 0 => {
                let granted_by_line = granted.iter().map(|_| Units::ZERO).collect();
                let refusing = also_refusing.collect();
                ReserveOutcome::Refused { now_ms, readings, refusing, granted_by_line }
            }
            other => other,
        };
        decided
    }

    fn taking(&self, taken: &Taken) -> Taking {
        let (granted, counters) = (self.granted.clone(), self.counters.clone());
        Taking { epoch: taken.epoch, at_ms: taken.at_ms, unmoved: unmoved(&self.readings), granted, counters }
    }
}

/// The counters by number that did not count a call, a bit each.
fn unmoved(readings: &[CounterReading]) -> u32 {
    let shadows = readings.iter().enumerate().filter(|(_, reading)| reading.would_refuse);
    shadows.fold(0, |mask, (number, _)| mask | 1 << number.min(31))
}

impl Calls {
    /// Counts a call under the limits that count all tenants; a dry run only asks them.
    pub(super) async fn ask_global(
        &self,
        entry: &TenantEntry,
        request: &ReserveRequest,
        prepared: &Prepared,
        mode: ReserveMode,
    ) -> Answer<GlobalAnswer> {
        let mut at_ms = self.core.gate_now_ms();
        let mut recovery = self.memory.recovery(KEPT_CHANGING);
        loop {
            self.admission.may_admit(request.dry_run || prepared.is_light())?;
            let mut counters = global_counters(entry, prepared, at_ms)?;
            put_under(&mut counters, self.core.load.level());
            if counters.is_empty() {
                return Ok(GlobalAnswer::Unasked);
            }
            let asked = match mode.dry() == mode {
                true => self.look_globally(prepared, &counters, mode, at_ms).await,
                false => {
                    let most =
                        if mode.is_best_effort() { TakeMode::BestEffort } else { TakeMode::AllOrNothing };
                    let life_ms = if mode == ReserveMode::Usage { 0 } else { prepared.max_life_ms };
                    let windows = Globals::windows(at_ms).valid();
                    self.take_globally(request, prepared, &counters, (most, life_ms), windows).await
                }
            };
            match asked {
                Ok(Ok(said)) => return Ok(GlobalAnswer::Said(Box::new(GlobalStep { counters, ..said }))),
                Ok(Err(Unasked::StaleWindow(now_ms))) => {
                    at_ms = now_ms;
                    recovery.again()?;
                }
                Ok(Err(Unasked::TooLarge)) => return Err(too_large()),
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        return Ok(GlobalAnswer::Away(away));
                    }
                }
            }
        }
    }

    /// Returns what was said, or why nothing was.
    async fn take_globally(
        &self,
        request: &ReserveRequest,
        prepared: &Prepared,
        counters: &[Counter],
        (mode, max_life_ms): (TakeMode, i64),
        valid: Window,
    ) -> Result<Result<GlobalStep, Unasked>, GateError> {
        let call = TakeCall {
            partition: self.core.gate.global_partition(),
            id: prepared.id,
            fingerprint: prepared.fingerprint,
            mode,
            amounts: &prepared.units,
            counters,
            valid: (valid.start_ms, valid.end_ms),
            needed_until_ms: ends_at_ms(counters, valid.start_ms.max(self.core.gate_now_ms())),
            keyed: key_of(request).is_some(),
            max_life_ms,
            now_ms: self.core.script_now(),
        };
        let step = |readings, refusing, granted, taken| GlobalStep {
            counters: Vec::new(),
            readings,
            refusing,
            granted,
            taken,
        };
        Ok(match self.core.timed(Script::Take, self.core.gate.take(&call)).await? {
            TakeOutcome::Taken { granted, readings, is_new, is_remembered, epoch, now_ms } => {
                let taken = Taken { is_new, is_remembered, at_ms: now_ms, epoch };
                Ok(step(readings, Vec::new(), granted, Some(taken)))
            }
            TakeOutcome::Refused { readings, refusing, granted_by_line, .. } => {
                Ok(step(readings, refusing, granted_by_line, None))
            }
            TakeOutcome::TooLarge => Err(Unasked::TooLarge),
            TakeOutcome::StaleWindow { now_ms } => Err(Unasked::StaleWindow(now_ms)),
        })
    }

    async fn look_globally(
        &self,
        prepared: &Prepared,
        counters: &[Counter],
        mode: ReserveMode,
        at_ms: i64,
    ) -> Result<Result<GlobalStep, Unasked>, GateError> {
        let asks = [ask(counters, &prepared.units, at_ms, true)];
        let partition = self.core.gate.global_partition();
        let call = self.core.gate.check(partition, &asks, false, self.core.script_now());
        let mut checked = match self.core.timed(Script::Check, call).await? {
            CheckOutcome::Decided { checks, .. } => checks,
            CheckOutcome::StaleWindow { now_ms } => return Ok(Err(Unasked::StaleWindow(now_ms))),
        };
        let CheckedCounters { mut refusing, readings, .. } =
            checked.pop().ok_or(crate::domain::codec::Undecodable("an answer of check"))?;
        let granted = match mode.is_best_effort() {
            true => fit(&prepared.units, counters, &readings),
            false => prepared.units.clone(),
        };
        if mode.is_best_effort() && granted.iter().any(|units| *units > Units::ZERO) {
            refusing.clear();
        }
        Ok(Ok(GlobalStep { counters: Vec::new(), readings, refusing, granted, taken: None }))
    }

    /// Gives back what the tenant's partition has not admitted. A call that may have been admitted keeps it all.
    pub(super) async fn give_back_unadmitted(
        &self,
        id: ReservationId,
        step: &GlobalStep,
        decided: &Answer<Decided>,
    ) {
        let Some(taken) = &step.taken else { return };
        let takings;
        let given = match decided {
            Ok(Decided { outcome: ReserveOutcome::Admitted { granted, .. }, .. }) => {
                if *granted == step.granted || !taken.is_remembered {
                    return;
                }
                GivenBack::Above(id, granted)
            }
            // An earlier call of the reservation counted it, and that one was admitted.
            Ok(Decided { outcome: ReserveOutcome::Replayed { .. }, .. }) if !taken.is_new => return,
            Err(error) if may_be_admitted(error) => return,
            _ if taken.is_remembered => GivenBack::Call(id),
            _ => {
                takings = [step.taking(taken)];
                GivenBack::Takings(&takings)
            }
        };
        self.give_back(given).await;
    }

    /// Counts work that is done already, in windows of the calendar that go on since then: they have no say in it.
    pub(super) async fn count_globally(
        &self,
        entry: &TenantEntry,
        request: &ReserveRequest,
        prepared: &Prepared,
        happened_at_ms: i64,
    ) -> Answer<GlobalAnswer> {
        let mut recovery = self.memory.recovery(KEPT_CHANGING);
        loop {
            let now_ms = self.core.gate_now_ms();
            let mut counters = global_counters(entry, prepared, happened_at_ms)?;
            counters.retain(|counter| counter.window().is_some_and(|window| window.contains(now_ms)));
            let windows = counters.iter().filter_map(Counter::window);
            let Some(valid) = windows.reduce(|all, one| Window {
                start_ms: all.start_ms.max(one.start_ms),
                end_ms: all.end_ms.min(one.end_ms),
            }) else {
                return Ok(GlobalAnswer::Unasked);
            };
            let mode = (TakeMode::Counts, 0);
            match self.take_globally(request, prepared, &counters, mode, valid).await {
                Ok(Ok(said)) => return Ok(GlobalAnswer::Said(Box::new(GlobalStep { counters, ..said }))),
                Ok(Err(Unasked::StaleWindow(_))) => recovery.again()?,
                Ok(Err(Unasked::TooLarge)) => return Err(too_large()),
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        return Ok(GlobalAnswer::Away(away));
                    }
                }
            }
        }
    }

    /// Gives back what an event took that is not recorded now.
    pub(super) async fn give_back_unrecorded(
        &self,
        id: ReservationId,
        step: &GlobalStep,
        recorded: &Answer<Recorded>,
    ) {
        let keeps = match (recorded, &step.taken) {
            (Ok(Recorded::Now), _) | (_, None) => true,
            (Ok(Recorded::Before), Some(taken)) => !taken.is_new,
            (Err(error), _) => may_be_admitted(error),
        };
        if keeps {
            return;
        }
        let takings;
        let given = match &step.taken {
            // Another event under the same id is remembered, and has its own.
            Some(taken) if taken.is_new && !taken.is_remembered => {
                takings = [step.taking(taken)];
                GivenBack::Takings(&takings)
            }
            _ => GivenBack::Call(id),
        };
        self.give_back(given).await;
    }

    /// Gives back what a released reservation took and has not used.
    pub(super) async fn give_back_released(&self, id: ReservationId, record: &Record) {
        let meters = record.body.lines.iter().map(|line| &line.meter);
        let is_released = record.head.state == ReservationState::Released;
        if !is_released || !self.core.policy.current().globals().may_count(meters) {
            return;
        }
        let used: Vec<_> = record.units.iter().map(|units| units.consumed).collect();
        self.give_back(GivenBack::Above(id, &used)).await;
    }

    /// Gives units back to global limits. Where that fails, they come back with the end of the window.
    pub(super) async fn give_back(&self, given: GivenBack<'_>) {
        let partition = self.core.gate.global_partition();
        let call = self.core.gate.give_back(partition, given, self.core.script_now());
        if let Err(error) = self.core.timed(Script::GiveBack, call).await {
            tracing::warn!(%error, "units of a global limit stay taken until its window ends");
        }
    }
}

/// The counters of global limits for a prepared call at `at_ms`.
pub(super) fn global_counters(entry: &TenantEntry, prepared: &Prepared, at_ms: i64) -> Answer<Vec<Counter>> {
    let meters = prepared.lines.iter().map(|line| &line.meter.id);
    entry
        .global_counters(meters, prepared.operation.as_ref(), at_ms)
        .map_err(|error| OperationError::field("/lines", error.to_string()))
}

/// A counter would be beyond the largest amount.
pub(super) fn too_large() -> OperationError {
    OperationError::field("/lines", format!("would take a counter beyond {UNITS_MAX} of its smallest units"))
}

/// What is asked of global limits without a reservation.
pub(super) fn ask<'a>(
    counters: &'a [Counter],
    amounts: &'a [Units],
    at_ms: i64,
    peeks: bool,
) -> CheckAsk<'a> {
    let valid = Globals::windows(at_ms).valid();
    CheckAsk {
        tenant: None,
        subjects: &[],
        amounts,
        counters,
        valid: (valid.start_ms, valid.end_ms),
        needed_until_ms: ends_at_ms(counters, at_ms),
        peeks,
    }
}

/// What a check took that is to be given back.
pub(super) fn taking_of(
    counters: &[Counter],
    amounts: &[Units],
    readings: &[CounterReading],
    (epoch, at_ms): (Epoch, i64),
) -> Taking {
    let (granted, counters) = (amounts.to_vec(), counters.to_vec());
    Taking { epoch, at_ms, unmoved: unmoved(readings), granted, counters }
}

fn ends_at_ms(counters: &[Counter], at_ms: i64) -> i64 {
    counters.iter().map(|counter| counter.ends_at_ms(at_ms)).max().unwrap_or_default()
}

/// Whether the tenant's partition may have admitted a call although its answer is this.
fn may_be_admitted(error: &OperationError) -> bool {
    matches!(
        error,
        OperationError::GateUnavailable(_)
            // The gate may have admitted it before there was no room to park it.
            | OperationError::Overloaded
            | OperationError::LedgerUnavailable(_)
            | OperationError::LedgerTimeout
            | OperationError::InQuarantine(_)
            | OperationError::Internal(_)
    )
}

/// What fits of each line under these counters.
fn fit(amounts: &[Units], counters: &[Counter], readings: &[CounterReading]) -> Vec<Units> {
    let mut granted: Vec<Units> = Vec::with_capacity(amounts.len());
    for (line, asked) in amounts.iter().enumerate() {
        let mut most = asked.get();
        for (counter, reading) in counters.iter().zip(readings).filter(|(counter, _)| counter.kind.refuses())
        {
            let weight = counter.lines.iter().find(|(of, _)| usize::from(*of) == line);
            let (Some((_, weight)), Some(room)) = (weight, reading.room) else { continue };
            most = most.min(room.saturating_sub(need(&counter.lines, &granted)).div_euclid(*weight));
        }
        granted.push(Units::new(most.max(0)).unwrap_or_default());
    }
    granted
}

/// Shows a caller of all tenants the figures of limits that count all of them.
pub(super) fn reveal<'a>(limits: impl IntoIterator<Item = &'a mut LimitStatus>) {
    limits.into_iter().for_each(|limit| limit.is_hidden = false);
}
