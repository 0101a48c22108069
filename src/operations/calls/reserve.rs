//! Reserve, and usage as a mode of it: from a parsed request to the gate's decision.

use std::sync::Arc;

use super::global::{GlobalAnswer, global_counters, reveal};
use super::light::nothing_to_wait_for;
use super::repeat::{Repeat, key_reused};
use super::reserve_answer::{answer_reserve, refusal_or_fault, said_of_dry_run};
use super::{Calls, KEPT_CHANGING};
use crate::domain::amount::Units;
use crate::domain::counter::Counter;
use crate::domain::decision::DecidedCall;
use crate::domain::ids::{Epoch, OutboxId};
use crate::domain::policy::Resolved;
use crate::domain::reservation::{Body, Record};
use crate::gate::{Gate, GateError, ReserveCall, ReserveMode, ReserveOutcome};
use crate::operations::answers::{Refusal, Reservation, Reserved};
use crate::operations::error::{Answer, OperationError};
use crate::operations::limit_status::limit_statuses;
use crate::operations::memory::{Acknowledged, Lines};
use crate::operations::outage::{Refused, Stranded};
use crate::operations::policy_store::TenantEntry;
use crate::operations::preparation::{
    Prepared, RESERVE, USAGE, key_of, refuse_banned, subject_counters_end_ms, usage_record,
};
use crate::operations::requests::{Ack, Mode, ReserveRequest};
use crate::telemetry::labels::Call;

/// The decision about a call.
#[allow(clippy::large_enum_variant, reason = "made once a call and taken apart at once")]
enum Decision {
    New(Decided),
    Repeat(Box<Repeat>),
}

/// The gate's decision about a new call, with the limits that were asked about.
pub(super) struct Decided {
    pub(super) prepared: Prepared,
    pub(super) resolved: Resolved,
    pub(super) body: Body,
    pub(super) outcome: ReserveOutcome,
    pub(super) policy_now_ms: i64,
    /// Whether it was decided while the gate is away.
    pub(super) degraded: bool,
}

impl Calls {
    /// Does work in which reserves of tenants of one partition go to the gate in one call, each decided by itself.
    pub async fn together<T>(work: impl Future<Output = T>) -> T {
        Gate::together(work).await
    }

    /// Holds amounts before work, or says why not. A repeat with the same key gets the first answer, with the current
    /// status. `dry_run` decides and writes nothing.
    pub async fn reserve(&self, request: ReserveRequest) -> Answer<Reserved> {
        let mode = match (request.dry_run, request.mode) {
            (true, Mode::AllOrNothing) => ReserveMode::DryRun,
            (true, Mode::BestEffort) => ReserveMode::DryBestEffort,
            (false, Mode::AllOrNothing) => ReserveMode::AllOrNothing,
            (false, Mode::BestEffort) => ReserveMode::BestEffort,
        };
        let decision = self.decide(&request, mode, RESERVE).await;
        self.reserved(&request, decision, (Call::Reserve, RESERVE, DecidedCall::Reserve))
    }

    /// Reserves and consumes in one call: refused like a reserve, answered like a consume.
    pub async fn record_usage(&self, request: ReserveRequest, ack: Ack) -> Answer<Reservation> {
        let answer = self.usage(&request, ack).await;
        let answer = revealed(&request, answer, |usage| reveal(&mut usage.limits));
        self.keep_usage(&request, &answer);
        self.admission_decided((Call::Usage, USAGE), &request, answer)
    }

    /// Whether it would be recorded as usage now: decides like [`Self::record_usage`] and writes nothing.
    pub async fn dry_usage(&self, request: ReserveRequest) -> Answer<Reserved> {
        let decision = self.decide(&request, ReserveMode::DryUsage, USAGE).await;
        self.reserved(&request, decision, (Call::Usage, USAGE, DecidedCall::Usage))
    }

    /// The answer of a reserve to a decision, kept and counted as that of this call.
    fn reserved(
        &self,
        request: &ReserveRequest,
        decision: Answer<Decision>,
        (call, name, kept): (Call, &str, DecidedCall),
    ) -> Answer<Reserved> {
        let answer = match decision {
            Ok(Decision::New(decided)) => answer_reserve(request, decided),
            Ok(Decision::Repeat(repeat)) => Ok(repeat.answer(request)),
            Err(error) => said_of_dry_run(request, error),
        };
        let answer = revealed(request, answer, reveal_reserved);
        self.keep_reserve(kept, request, &answer);
        self.admission_decided((call, name), request, answer)
    }

    async fn usage(&self, request: &ReserveRequest, ack: Ack) -> Answer<Reservation> {
        if ack == Ack::Ledger && self.preparation.is_light(&request.work) {
            return Err(nothing_to_wait_for());
        }
        let (Repeat { id, mut record, limits, degraded }, replayed) =
            match self.decide(request, ReserveMode::Usage, USAGE).await? {
                Decision::Repeat(repeat) => (*repeat, true),
                Decision::New(decided) => (self.recorded(request, decided)?, false),
            };
        record.head.degraded |= degraded;
        // A call decided while the gate is away is in the ledger already.
        if ack == Ack::Ledger && !degraded {
            let event = record.head.last_event();
            Box::pin(self.core.progress.wait_until_booked(id, record.head.step, event, replayed)).await?;
        }
        let ack = if degraded && !id.is_light() { Ack::Ledger } else { ack };
        let resolved_at_ms = (record.head.step == 1).then_some(record.head.born_at_ms);
        Ok(Reservation { id, record, replayed, degraded, ack, limits, resolved_at_ms })
    }

    /// The usage just recorded, in the form in which a repeat finds it.
    fn recorded(&self, request: &ReserveRequest, decided: Decided) -> Answer<Repeat> {
        let Decided { prepared, resolved, body, outcome, policy_now_ms, degraded } = decided;
        let ReserveOutcome::Admitted { event, expires_at_ms, now_ms, readings, granted, start_after_ms } =
            outcome
        else {
            return Err(refusal_or_fault(&prepared, &resolved.counters, outcome, false, policy_now_ms));
        };
        let mut record = usage_record(&body, &granted, event, expires_at_ms, now_ms);
        record.head.start_after_ms = start_after_ms;
        let limits = limit_statuses(resolved, &request.subjects, &readings, policy_now_ms);
        Ok(Repeat { id: prepared.id, record, limits, degraded })
    }

    /// Decides a call. Where policy refuses it, a repeat is looked for first, because repeats come before policy.
    async fn decide(&self, request: &ReserveRequest, mode: ReserveMode, call: &str) -> Answer<Decision> {
        // A dry run writes nothing, so it does not create the tenant either.
        let entry = match request.dry_run {
            true => self.core.policy.tenant(&request.tenant).await?,
            false => self.policy.tenant_or_new(&request.tenant).await?,
        };
        match self.decide_by_policy(&entry, request, mode, call).await {
            Err(refusal @ (OperationError::Invalid(_) | OperationError::Refused(_))) => {
                let repeat = Box::pin(self.repeated(request, call, refusal)).await?;
                Ok(Decision::Repeat(Box::new(repeat)))
            }
            Ok(decided) => decision(request, decided),
            Err(error) => Err(error),
        }
    }

    async fn decide_by_policy(
        &self,
        entry: &Arc<TenantEntry>,
        request: &ReserveRequest,
        mode: ReserveMode,
        call: &str,
    ) -> Answer<Decided> {
        let prepared = self.prepare_unless_banned(entry, request, call, self.core.gate_now_ms())?;
        // No call of light work is ever parked, so none goes before it.
        if !prepared.is_light()
            && let Some(away) = self.outage.parked_first(&request.tenant).await?
        {
            return Box::pin(self.decide_without_gate(entry, request, mode, prepared, away)).await;
        }
        if entry.may_count_globally(prepared.lines.iter().map(|line| &line.meter.id)) {
            return Box::pin(self.decide_globally_first(entry, request, mode, prepared)).await;
        }
        // Not by `decide_in_partition`: every call would move what it moves.
        if prepared.is_light() {
            return Box::pin(self.decide_light(entry, request, mode, prepared, None)).await;
        }
        self.decide_at_gate(entry, request, mode, prepared, None).await
    }

    /// Decides a call that limits over all tenants may count: they are asked first, and get back what is not admitted.
    async fn decide_globally_first(
        &self,
        entry: &Arc<TenantEntry>,
        request: &ReserveRequest,
        mode: ReserveMode,
        prepared: Prepared,
    ) -> Answer<Decided> {
        match self.ask_global(entry, request, &prepared, mode).await? {
            GlobalAnswer::Unasked => self.decide_in_partition(entry, request, mode, prepared, None).await,
            GlobalAnswer::Away(away) => self.decide_without_gate(entry, request, mode, prepared, away).await,
            GlobalAnswer::Said(step) => {
                let id = prepared.id;
                let (mode, amounts) = step.asks(mode);
                let decided = self.decide_in_partition(entry, request, mode, prepared, amounts).await;
                self.give_back_unadmitted(id, &step, &decided).await;
                decided.map(|decided| step.joined(decided))
            }
        }
    }

    /// Decides a call in its tenant's partition. `amounts` are what it may admit, where that is less than what is asked
    /// for.
    async fn decide_in_partition(
        &self,
        entry: &Arc<TenantEntry>,
        request: &ReserveRequest,
        mode: ReserveMode,
        prepared: Prepared,
        amounts: Option<Vec<Units>>,
    ) -> Answer<Decided> {
        match prepared.is_light() {
            true => Box::pin(self.decide_light(entry, request, mode, prepared, amounts)).await,
            false => self.decide_at_gate(entry, request, mode, prepared, amounts).await,
        }
    }

    /// The same of a call that is booked.
    async fn decide_at_gate(
        &self,
        entry: &Arc<TenantEntry>,
        request: &ReserveRequest,
        mode: ReserveMode,
        mut prepared: Prepared,
        amounts: Option<Vec<Units>>,
    ) -> Answer<Decided> {
        let mut at_ms = self.core.gate_now_ms();
        let (mut asked_in, mut has_recalled) = (Epoch::default(), false);
        let mut recovery = self.memory.recovery(KEPT_CHANGING);
        let away = loop {
            self.admission.may_admit(request.dry_run)?;
            let (resolved, body) = self.preparation.resolve(entry, request, &prepared, at_ms)?;
            self.want_shares(request, &prepared, &resolved);
            let valid = entry.windows(at_ms).valid();
            let epoch = self.core.gate.epoch(entry.partition).unwrap_or_default();
            // What the ledger said and gave back holds for the epoch in which it was asked.
            let ledger_asked = key_of(request).is_none() || asked_in != Epoch::default() && asked_in == epoch;
            let gate_call = ReserveCall {
                id: prepared.id,
                partition: entry.partition,
                tenant: &request.tenant,
                subjects: prepared.subjects.clone(),
                mode,
                amounts: amounts.clone().unwrap_or_else(|| prepared.units.clone()),
                body: &body,
                counters: &resolved.counters,
                ttl_ms: prepared.ttl_ms,
                max_life_ms: prepared.max_life_ms,
                valid: (valid.start_ms, valid.end_ms),
                subject_windows_end_ms: subject_counters_end_ms(&resolved, at_ms),
                may_be_known: !ledger_asked && self.memory.key_filters.may_know(prepared.id),
                ledger_asked,
                work: prepared.work.as_deref(),
                now_ms: self.core.script_now(),
            };
            let decided = match self.ask_to_reserve(entry, request, &prepared, &gate_call).await {
                Ok(ReserveOutcome::StaleWindow { now_ms }) => {
                    at_ms = now_ms;
                    recovery.again()?;
                    None
                }
                Ok(ReserveOutcome::Cold(cold)) => {
                    asked_in = Epoch::default();
                    recovery.restore(entry, &cold, &resolved, &prepared.subjects, at_ms).await?;
                    None
                }
                Ok(ReserveOutcome::AskLedger { last_id }) => {
                    let known = recovery.ask_ledger(prepared.id, last_id).await?;
                    asked_in = if known.is_none() { epoch } else { Epoch::default() };
                    known.map(|known| (known_as(&prepared, known.record, at_ms), known.is_parked))
                }
                Err(error) => match recovery.after_failure(error).await? {
                    Some(away) => break away,
                    None => None,
                },
                Ok(ReserveOutcome::Duplicate { first }) => {
                    Box::pin(self.unless_duplicate(first, request, &mut prepared)).await.map(|()| None)?
                }
                Ok(outcome) => {
                    if let ReserveOutcome::Admitted { event, granted, .. } = &outcome {
                        self.remember(entry, &prepared, mode, *event, granted);
                    }
                    let is_again = !std::mem::replace(&mut has_recalled, true)
                        && self.recall_shares(request, &prepared, &gate_call, &outcome).await;
                    (!is_again).then_some((outcome, false))
                }
            };
            if let Some((outcome, degraded)) = decided {
                return Ok(Decided { prepared, resolved, body, outcome, policy_now_ms: at_ms, degraded });
            }
        };
        // What is parked is admitted whole: less than all of it waits for the gate.
        if amounts.is_some_and(|amounts| amounts != prepared.units) {
            return Err(away.into());
        }
        Box::pin(self.decide_without_gate(entry, request, mode, prepared, away)).await
    }

    /// Notes of which counters of a call this instance wants shares.
    pub(super) fn want_shares(&self, request: &ReserveRequest, prepared: &Prepared, resolved: &Resolved) {
        if !request.dry_run && resolved.counters.iter().any(Counter::is_shared) {
            let subjects = prepared.subject_hashes();
            let work = Stranded { tenant: &request.tenant, subjects: &subjects, amounts: &prepared.units };
            self.outage.want_shares(work, &resolved.counters, prepared.is_light());
        }
    }

    /// Gives back shares of counters that refuse a call, unless it is a dry run. Returns whether there were any.
    pub(super) async fn recall_shares(
        &self,
        request: &ReserveRequest,
        prepared: &Prepared,
        call: &ReserveCall<'_>,
        outcome: &ReserveOutcome,
    ) -> bool {
        let ReserveOutcome::Refused { refusing, readings, .. } = outcome else { return false };
        let any_part = call.mode == ReserveMode::BestEffort;
        let refused = Refused { counters: call.counters, readings, refusing, any_part };
        if request.dry_run || !refused.may_fit_without_shares(&call.amounts) {
            return false;
        }
        Box::pin(async {
            let subjects = prepared.subject_hashes();
            let work = Stranded { tenant: &request.tenant, subjects: &subjects, amounts: &call.amounts };
            self.outage.recall_shares(work, refused).await
        })
        .await
    }

    fn prepare_unless_banned(
        &self,
        entry: &TenantEntry,
        request: &ReserveRequest,
        call: &str,
        at_ms: i64,
    ) -> Answer<Prepared> {
        let prepared = self.preparation.prepare(entry, request, call)?;
        refuse_banned(entry, &request.subjects, &prepared.lines, at_ms).map_err(OperationError::Refused)?;
        Ok(prepared)
    }

    /// Decides while the gate is away: admitted where no limit says otherwise.
    async fn decide_without_gate(
        &self,
        entry: &TenantEntry,
        request: &ReserveRequest,
        mode: ReserveMode,
        prepared: Prepared,
        away: GateError,
    ) -> Answer<Decided> {
        if prepared.is_light() {
            return self.let_light_through(entry, request, mode, prepared, away);
        }
        let policy_now_ms = self.core.gate_now_ms();
        let globals = global_counters(entry, &prepared, policy_now_ms)?;
        let (mut resolved, mut body) = self.preparation.resolve(entry, request, &prepared, policy_now_ms)?;
        let counted = (&mut resolved, &mut body);
        let times = (policy_now_ms, policy_now_ms);
        let outcome = self.outage.admit(&prepared, counted, &globals, mode, times, away).await?;
        Ok(Decided { prepared, resolved, body, outcome, policy_now_ms, degraded: true })
    }

    pub(super) fn remember(
        &self,
        entry: &TenantEntry,
        prepared: &Prepared,
        mode: ReserveMode,
        event: OutboxId,
        granted: &[Units],
    ) {
        let is_usage = mode == ReserveMode::Usage;
        let booked = prepared.lines.iter().zip(granted).filter(|(line, _)| line.meter.booked);
        let lines = booked.map(|(line, units)| {
            let (held, consumed) = if is_usage { (Units::ZERO, *units) } else { (*units, Units::ZERO) };
            (line.meter.id.clone(), line.meter.decimals, held, consumed)
        });
        let acknowledged = Acknowledged {
            event,
            tenant: entry.definition.id.clone(),
            reservation: prepared.id,
            kind: if is_usage { "usage" } else { "reserve" },
            lines: Lines::of(lines),
        };
        self.memory.losses.note(entry.partition, acknowledged);
    }
}

/// Shows the figures of limits over all tenants to a caller who may see them.
fn revealed<T>(request: &ReserveRequest, mut answer: Answer<T>, show: impl FnOnce(&mut T)) -> Answer<T> {
    if request.sees_all_tenants {
        match &mut answer {
            Ok(answer) => show(answer),
            Err(OperationError::Refused(refusal)) => reveal_refusal(refusal),
            Err(_) => {}
        }
    }
    answer
}

fn reveal_reserved(reserved: &mut Reserved) {
    reveal(&mut reserved.limits);
    reveal(reserved.refused_by.iter_mut().map(|refused| &mut refused.limit));
}

fn reveal_refusal(refusal: &mut Refusal) {
    reveal(&mut refusal.limits);
    reveal(refusal.refused_by.iter_mut().map(|refused| &mut refused.limit));
}

/// Separates new decisions from repeats.
fn decision(request: &ReserveRequest, decided: Decided) -> Answer<Decision> {
    match decided.outcome {
        ReserveOutcome::Replayed { mut record, readings, .. } => {
            let Decided { prepared, resolved, body, policy_now_ms, degraded, .. } = decided;
            // A tombstone lacks these details; the same request has them again.
            record.body.rest = record.body.rest.or(body.rest);
            let limits = limit_statuses(resolved, &request.subjects, &readings, policy_now_ms);
            let repeat = Repeat { id: prepared.id, record, limits, degraded };
            Ok(Decision::Repeat(Box::new(repeat)))
        }
        ReserveOutcome::KeyReused { record } => Err(key_reused(decided.prepared.id, record)),
        _ => Ok(Decision::New(decided)),
    }
}

/// The outcome of a call whose key was used for an admission that is not booked.
fn known_as(prepared: &Prepared, record: Record, now_ms: i64) -> ReserveOutcome {
    if prepared.fingerprint.repeats(&record.body.fingerprint) {
        ReserveOutcome::Replayed { record, readings: Vec::new(), now_ms }
    } else {
        ReserveOutcome::KeyReused { record }
    }
}
