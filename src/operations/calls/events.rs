//! CloudEvents: work that is done already is recorded at its own time, once, and no limit refuses it.

use std::sync::Arc;

use super::global::{GlobalAnswer, global_counters, too_large};
use super::repeat::key_reused;
use super::{Calls, KEPT_CHANGING};
use crate::domain::ids::{Epoch, OutboxId, ReservationId};
use crate::domain::parked::CounterLife;
use crate::domain::policy::Resolved;
use crate::domain::reservation::{Correction, Record};
use crate::gate::{GateError, IdCheck, RecordCall, RecordOutcome, ReserveMode, ReserveOutcome};
use crate::operations::answers::Recorded;
use crate::operations::error::{Answer, OperationError};
use crate::operations::outage::{keep_restorable, lives_of};
use crate::operations::policy_store::TenantEntry;
use crate::operations::preparation::{EVENT, Prepared, usage_record};
use crate::operations::requests::ReserveRequest;
use crate::telemetry::labels::{Call, Script};

const DAY_MS: i64 = 86_400_000;
/// An event may say that it happened so many days ago; fewer where repeats are recognised for a shorter time.
const DAYS_BACK_MAX: i64 = 35;
/// A caller's clock may be ahead by so much.
const AHEAD_MS_MAX: i64 = 5 * 60_000;

impl Calls {
    /// Records work that is done already, in the windows and the period of its own time. Counters whose window is over
    /// stay as they are.
    ///
    /// Errors: it names no work or no possible time, or its source and id were used for another event.
    pub async fn record_event(&self, request: ReserveRequest) -> Answer<Recorded> {
        let answer = self.event(&request).await;
        self.decided(Call::Event, answer, |recorded| *recorded == Recorded::Before)
    }

    /// A repeat is recognised before policy and time refuse it.
    async fn event(&self, request: &ReserveRequest) -> Answer<Recorded> {
        let entry = self.policy.tenant_or_new(&request.tenant).await?;
        match self.record_by_policy(&entry, request).await {
            Err(refusal @ OperationError::Invalid(_)) => {
                Box::pin(self.repeated(request, EVENT, refusal)).await?;
                Ok(Recorded::Before)
            }
            answer => answer,
        }
    }

    async fn record_by_policy(&self, entry: &Arc<TenantEntry>, request: &ReserveRequest) -> Answer<Recorded> {
        let now_ms = self.core.gate_now_ms();
        self.check_time(request.happened_at_ms, now_ms)?;
        let prepared = self.preparation.prepare(entry, request, EVENT)?;
        if let Some(away) = self.outage.parked_first(&request.tenant).await? {
            return Box::pin(self.park_event(entry, request, &prepared, away)).await;
        }
        if entry.may_count_globally(prepared.lines.iter().map(|line| &line.meter.id)) {
            return Box::pin(self.record_globally_first(entry, request, &prepared)).await;
        }
        self.record_at_gate(entry, request, &prepared, None).await
    }

    /// Records work that limits over all tenants may count: they count it first, and get back what was recorded before.
    async fn record_globally_first(
        &self,
        entry: &Arc<TenantEntry>,
        request: &ReserveRequest,
        prepared: &Prepared,
    ) -> Answer<Recorded> {
        self.admission.may_record()?;
        let at_ms = happened_by(request, self.core.gate_now_ms());
        match self.count_globally(entry, request, prepared, at_ms).await? {
            GlobalAnswer::Unasked => self.record_at_gate(entry, request, prepared, None).await,
            GlobalAnswer::Away(away) => self.park_event(entry, request, prepared, away).await,
            GlobalAnswer::Said(step) => {
                let recorded = self.record_at_gate(entry, request, prepared, None).await;
                self.give_back_unrecorded(prepared.id, &step, &recorded).await;
                recorded
            }
        }
    }

    /// Records it in its tenant's partition; a correction is never parked.
    pub(super) async fn record_at_gate(
        &self,
        entry: &Arc<TenantEntry>,
        request: &ReserveRequest,
        prepared: &Prepared,
        correction: Option<Correction>,
    ) -> Answer<Recorded> {
        let mut now_ms = self.core.gate_now_ms();
        let mut asked_in = Epoch::default();
        let mut recovery = self.memory.recovery(KEPT_CHANGING);
        loop {
            self.admission.may_record()?;
            let at_ms = happened_by(request, now_ms);
            let (resolved, mut record, lives) = self.event_record(entry, request, prepared, at_ms)?;
            record.head.correction = correction;
            self.memory.open_periods_of(entry, &resolved, now_ms).await?;
            let lives = self.memory.lives_now(entry, &record, &lives);
            let epoch = self.core.gate.epoch(entry.partition).unwrap_or_default();
            // What the ledger said holds for the epoch in which it was asked.
            let ledger_asked = asked_in != Epoch::default() && asked_in == epoch;
            let call = RecordCall {
                id: prepared.id,
                record: &record,
                lives: &lives,
                taken_at_ms: None,
                id_check: self.id_check(prepared.id, at_ms, ledger_asked),
                now_ms: self.core.script_now(),
            };
            match self.core.timed(Script::Record, self.core.gate.record(&call)).await {
                Ok(RecordOutcome::Done(_)) if correction.is_some() => return Ok(Recorded::Now),
                Ok(RecordOutcome::Done(event)) => {
                    self.remember(entry, prepared, ReserveMode::Usage, event, &prepared.units);
                    self.keep_event(request, prepared.id, &record);
                    return Ok(Recorded::Now);
                }
                Ok(RecordOutcome::Replayed) => return Ok(Recorded::Before),
                Ok(RecordOutcome::KeyReused(first)) => return Err(key_reused(prepared.id, *first)),
                Ok(RecordOutcome::TooLarge) if record.head.takes_back() => return Err(not_counted()),
                Ok(RecordOutcome::TooLarge) => return Err(too_large()),
                Ok(RecordOutcome::StaleWindow { now_ms: gate_now_ms }) => {
                    now_ms = gate_now_ms;
                    recovery.again()?;
                }
                Ok(RecordOutcome::Cold(cold)) => {
                    asked_in = Epoch::default();
                    recovery.restore_admission(entry, &cold, &record).await?;
                }
                Ok(RecordOutcome::AskLedger { last_id }) => {
                    if let Some(known) = recovery.ask_ledger(prepared.id, last_id).await? {
                        return recorded_as(prepared, known.record);
                    }
                    asked_in = epoch;
                }
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        if correction.is_some() {
                            return Err(away.into());
                        }
                        return Box::pin(self.park_event(entry, request, prepared, away)).await;
                    }
                }
            }
        }
    }

    fn check_time(&self, happened_at_ms: Option<i64>, now_ms: i64) -> Answer<()> {
        let Some(happened_at_ms) = happened_at_ms else { return Ok(()) };
        let back_ms_max = (DAYS_BACK_MAX * DAY_MS).min(self.core.ledger.horizon_ms());
        let refusal = if happened_at_ms < now_ms.saturating_sub(back_ms_max) {
            let days = back_ms_max / DAY_MS;
            format!("must not be more than {days} days ago")
        } else if happened_at_ms > now_ms.saturating_add(AHEAD_MS_MAX) {
            "must not be more than five minutes ahead".into()
        } else {
            return Ok(());
        };
        Err(OperationError::field("/time", refusal))
    }

    /// Whether the ledger must be asked first: always about work from before the gate's memory.
    fn id_check(&self, id: ReservationId, at_ms: i64, ledger_asked: bool) -> IdCheck {
        let keys = &self.memory.key_filters;
        match ledger_asked {
            true => IdCheck::Asked,
            false if keys.may_know(id) || keys.is_past_memory(at_ms) => IdCheck::Ask,
            false => IdCheck::AskAfterLoss,
        }
    }

    /// The counters of work that was done at `at_ms`, its record, and the lifetimes of the counters.
    fn event_record(
        &self,
        entry: &TenantEntry,
        request: &ReserveRequest,
        prepared: &Prepared,
        at_ms: i64,
    ) -> Answer<(Resolved, Record, Vec<CounterLife>)> {
        let (mut resolved, mut body): (Resolved, _) =
            self.preparation.resolve_unrefused(entry, request, prepared, at_ms)?;
        keep_restorable(&mut resolved, &mut body);
        let record = usage_record(&body, &prepared.units, OutboxId::default(), at_ms, at_ms);
        let lives = lives_of(&resolved, at_ms);
        Ok((resolved, record, lives))
    }

    /// While the gate is away: parked where no limit says otherwise.
    async fn park_event(
        &self,
        entry: &TenantEntry,
        request: &ReserveRequest,
        prepared: &Prepared,
        away: GateError,
    ) -> Answer<Recorded> {
        let now_ms = self.core.gate_now_ms();
        let at_ms = happened_by(request, now_ms);
        let globals = global_counters(entry, prepared, at_ms)?;
        let (mut resolved, mut body) = self.preparation.resolve_unrefused(entry, request, prepared, at_ms)?;
        let counted = (&mut resolved, &mut body);
        let times = (now_ms, at_ms);
        match self.outage.admit(prepared, counted, &globals, ReserveMode::Usage, times, away).await? {
            ReserveOutcome::Replayed { .. } => Ok(Recorded::Before),
            ReserveOutcome::KeyReused { record } => Err(key_reused(prepared.id, record)),
            _ => Ok(Recorded::Now),
        }
    }
}

/// The error of a correction that would have a counter below zero.
fn not_counted() -> OperationError {
    OperationError::field("/amount", "takes back more than was counted then")
}

/// When the work counts as done: what a clock that is ahead calls later counts as now.
fn happened_by(request: &ReserveRequest, now_ms: i64) -> i64 {
    request.happened_at_ms.map_or(now_ms, |happened_at_ms| happened_at_ms.min(now_ms))
}

/// The answer where the id belongs to an admission that is not booked.
fn recorded_as(prepared: &Prepared, first: Record) -> Answer<Recorded> {
    match prepared.fingerprint.repeats(&first.body.fingerprint) {
        true => Ok(Recorded::Before),
        false => Err(key_reused(prepared.id, first)),
    }
}
