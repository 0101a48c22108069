//! Reserve, and usage as a mode of it: from a parsed request to the gate's decision.

use std::sync::Arc;

use uuid::Uuid;

use super::cost::{Line, lines_of};
use super::counters::{places, subject_counters_end_ms};
use super::fingerprint;
use super::limit_status::limit_statuses;
use super::repeat::{Repeat, key_reused};
use super::reserve_answer::{answer_reserve, refusal_or_fault};
use crate::domain::amount::Units;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{IdempotencyKey, OperationId, OutboxId, ReservationId, Subject};
use crate::domain::meter::{HoldSeconds, WithoutLimit};
use crate::domain::policy::Resolved;
use crate::domain::reservation::{Body, BodyDetails, Head, LineUnits, Record, ReservationState, SubjectHash};
use crate::gate::{Gate, GateError, ReserveCall, ReserveMode, ReserveOutcome};
use crate::operations::answers::{Refusal, RefusalCode, Reservation, Reserved};
use crate::operations::memory::losses::{Acknowledged, Lines};
use crate::operations::memory::refetch::Recalled;
use crate::operations::policy::policy_store::TenantEntry;
use crate::operations::requests::{Ack, Mode, ReserveRequest};
use crate::operations::{Answer, OperationError, Operations};
use crate::telemetry::labels::{Call, Script};

/// How often a call is tried again after the gate asked for fresh windows, a restore, or a check of the node.
pub(in crate::operations) const ATTEMPTS_MAX: usize = 8;

/// The calls that a key belongs to.
const RESERVE: &str = "reserve";
pub(in crate::operations) const USAGE: &str = "usage";

/// A request made ready: costed, named, with everything that does not change between attempts.
pub(in crate::operations) struct Prepared {
    pub(in crate::operations) lines: Vec<Line>,
    pub(in crate::operations) units: Vec<Units>,
    pub(in crate::operations) operation: Option<OperationId>,
    pub(in crate::operations) subjects: Vec<(Subject, SubjectHash)>,
    pub(in crate::operations) id: ReservationId,
    pub(in crate::operations) fingerprint: Fingerprint,
    pub(in crate::operations) ttl_ms: i64,
    pub(in crate::operations) max_life_ms: i64,
    pub(in crate::operations) metadata: String,
}

/// What became of a call.
#[allow(clippy::large_enum_variant, reason = "made once a call and taken apart at once")]
enum Decision {
    New(Decided),
    Repeat(Box<Repeat>),
}

/// What the gate decided about a new call, with the limits it was asked about.
pub(in crate::operations) struct Decided {
    pub(in crate::operations) prepared: Prepared,
    pub(in crate::operations) resolved: Resolved,
    pub(in crate::operations) body: Body,
    pub(in crate::operations) outcome: ReserveOutcome,
    pub(in crate::operations) policy_now_ms: i64,
    /// Decided while the gate is away.
    pub(in crate::operations) degraded: bool,
}

impl Operations {
    /// Does work in which reserves of tenants that share a partition go to the gate in one call, each standing alone.
    pub async fn together<T>(work: impl Future<Output = T>) -> T {
        Gate::together(work).await
    }

    /// Holds amounts before work, or says why not. A repeat with the same key answers as the first time, with the
    /// status of now. `dry_run` decides and writes nothing.
    pub async fn reserve(&self, request: ReserveRequest) -> Answer<Reserved> {
        let mode = match (request.dry_run, request.mode) {
            (true, Mode::AllOrNothing) => ReserveMode::DryRun,
            (true, Mode::BestEffort) => ReserveMode::DryBestEffort,
            (false, Mode::AllOrNothing) => ReserveMode::AllOrNothing,
            (false, Mode::BestEffort) => ReserveMode::BestEffort,
        };
        let answer = match self.decide(&request, mode, RESERVE).await {
            Ok(Decision::New(decided)) => answer_reserve(&request, decided),
            Ok(Decision::Repeat(repeat)) => Ok(repeat.answer(&request)),
            Err(error) => Err(error),
        };
        self.decided(Call::Reserve, answer, |answer| answer.replayed)
    }

    /// Reserves and consumes in one: refused like a reserve, answered like a consume.
    pub async fn record_usage(&self, request: ReserveRequest, ack: Ack) -> Answer<Reservation> {
        let answer = self.usage(request, ack).await;
        self.decided(Call::Usage, answer, |answer| answer.replayed)
    }

    async fn usage(&self, request: ReserveRequest, ack: Ack) -> Answer<Reservation> {
        let (Repeat { id, mut record, limits, degraded, .. }, replayed) =
            match self.decide(&request, ReserveMode::Usage, USAGE).await? {
                Decision::Repeat(repeat) => (*repeat, true),
                Decision::New(decided) => (self.recorded(&request, decided)?, false),
            };
        record.head.degraded |= degraded;
        // What is decided while the gate is away is in the ledger already.
        if ack == Ack::Ledger && !degraded {
            let event = record.head.last_event();
            Box::pin(self.wait_until_booked(id, record.head.step, event, replayed)).await?;
        }
        let ack = if degraded { Ack::Ledger } else { ack };
        let resolved_at_ms = (record.head.step == 1).then_some(record.head.born_at_ms);
        Ok(Reservation { id, record, replayed, degraded, ack, limits, resolved_at_ms })
    }

    /// What was just recorded, as a repeat will find it.
    fn recorded(&self, request: &ReserveRequest, decided: Decided) -> Answer<Repeat> {
        let Decided { prepared, resolved, body, outcome, policy_now_ms, degraded } = decided;
        let ReserveOutcome::Admitted { event, expires_at_ms, now_ms, readings, granted } = outcome else {
            return Err(refusal_or_fault(&prepared, &resolved.counters, outcome, false, policy_now_ms));
        };
        let record = usage_record(&body, &granted, event, expires_at_ms, now_ms);
        let limits = limit_statuses(resolved, &request.subjects, &readings, policy_now_ms);
        Ok(Repeat { id: prepared.id, record, asked: Vec::new(), limits, degraded })
    }

    /// A repeat comes before policy: what that refuses is looked for first.
    async fn decide(&self, request: &ReserveRequest, mode: ReserveMode, call: &str) -> Answer<Decision> {
        // A dry run writes nothing, so it does not make the tenant either.
        let entry = match request.dry_run {
            true => self.policy.tenant(&request.tenant).await?,
            false => self.tenant_or_new(&request.tenant).await?,
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
        let prepared = self.prepare(entry, request, call)?;
        let mut at_ms = self.clock.now_ms();
        let mut ledger_asked = key_of(request).is_none();
        if let Some(away) = self.parked_first(&request.tenant).await? {
            return Box::pin(self.decide_without_gate(entry, request, mode, prepared, away)).await;
        }
        for _ in 0..ATTEMPTS_MAX {
            self.may_admit(request.dry_run)?;
            let (resolved, body) = self.resolve(entry, request, &prepared, at_ms)?;
            let valid = entry.windows(at_ms).valid();
            let gate_call = ReserveCall {
                id: prepared.id,
                partition: entry.partition,
                tenant: &request.tenant,
                subjects: prepared.subjects.clone(),
                mode,
                amounts: prepared.units.clone(),
                body: &body,
                counters: &resolved.counters,
                ttl_ms: prepared.ttl_ms,
                max_life_ms: prepared.max_life_ms,
                valid: (valid.start_ms, valid.end_ms),
                subject_windows_end_ms: subject_counters_end_ms(&resolved, at_ms),
                may_be_known: !ledger_asked && self.may_know(prepared.id),
                ledger_asked,
                now_ms: self.script_now(),
            };
            match self.timed(Script::Reserve, self.gate.reserve(&gate_call)).await {
                Ok(ReserveOutcome::StaleWindow { now_ms }) => at_ms = now_ms,
                Ok(ReserveOutcome::Cold(cold)) => {
                    // What was brought back of this call went with the epoch that has ended.
                    ledger_asked = key_of(request).is_none();
                    Box::pin(self.restore_cold(entry, &cold, &resolved, &prepared.subjects, at_ms)).await?;
                }
                Ok(ReserveOutcome::AskLedger { last_id }) => {
                    match Box::pin(self.recall(prepared.id, last_id)).await? {
                        None => ledger_asked = true,
                        Some(Recalled { record, is_parked }) => {
                            let outcome = known_as(&prepared, record, at_ms);
                            let policy_now_ms = at_ms;
                            return Ok(Decided {
                                prepared,
                                resolved,
                                body,
                                outcome,
                                policy_now_ms,
                                degraded: is_parked,
                            });
                        }
                    }
                }
                Err(GateError::Alarm { partition, reason }) => {
                    Box::pin(self.after_alarm(partition, &reason)).await?;
                }
                Err(error) if error.is_away() => {
                    return Box::pin(self.decide_without_gate(entry, request, mode, prepared, error)).await;
                }
                Err(error) => return Err(error.into()),
                Ok(outcome) => {
                    if let ReserveOutcome::Admitted { event, granted, .. } = &outcome {
                        self.remember(entry, &prepared, mode, *event, granted);
                    }
                    let policy_now_ms = at_ms;
                    return Ok(Decided { prepared, resolved, body, outcome, policy_now_ms, degraded: false });
                }
            }
        }
        Err(OperationError::GateUnavailable("its state kept changing under this call; repeat it".into()))
    }

    fn remember(
        &self,
        entry: &TenantEntry,
        prepared: &Prepared,
        mode: ReserveMode,
        event: OutboxId,
        granted: &[Units],
    ) {
        let is_usage = mode == ReserveMode::Usage;
        let lines = prepared.lines.iter().zip(granted).map(|(line, units)| {
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
        self.remembered.note(entry.partition, acknowledged);
    }

    pub(in crate::operations) fn prepare(
        &self,
        entry: &TenantEntry,
        request: &ReserveRequest,
        call: &str,
    ) -> Answer<Prepared> {
        if entry.definition.archived {
            return Err(OperationError::field(
                "/tenant",
                format!("the tenant {} is archived", request.tenant),
            ));
        }
        let policy = self.policy.current();
        let (lines, operation) = lines_of(&policy, &request.work)?;
        let default_seconds = lines.iter().map(|line| line.meter.ttl_seconds).min().unwrap_or(60);
        let ttl_seconds = request.ttl.map_or(default_seconds, HoldSeconds::get);
        let max_life = lines.iter().map(|line| line.meter.max_life_seconds).min().unwrap_or(ttl_seconds);
        if ttl_seconds > max_life {
            return Err(OperationError::field("/ttl_seconds", format!("must be 1 to {max_life} seconds")));
        }
        let id = match key_of(request) {
            Some(key) => self.ids.derive(entry.partition, &request.tenant, call, key),
            None => self.ids.fresh(entry.partition, self.clock.now_ms(), rand::random()),
        };
        let metadata = match &request.metadata {
            Some(metadata) => {
                serde_json::to_string(metadata).map_err(|e| OperationError::Internal(e.to_string()))?
            }
            None => String::new(),
        };
        Ok(Prepared {
            units: lines.iter().map(|line| line.units).collect(),
            lines,
            operation,
            subjects: request
                .subjects
                .iter()
                .map(|subject| (subject.clone(), self.gate.subject_hash(&request.tenant, subject)))
                .collect(),
            id,
            // Usage holds nothing, so that its meaning has no life.
            fingerprint: fingerprint::fingerprint(
                call,
                request,
                (call == RESERVE).then_some(default_seconds),
            ),
            ttl_ms: i64::from(ttl_seconds) * 1000,
            max_life_ms: i64::from(max_life) * 1000,
            metadata,
        })
    }

    pub(in crate::operations) fn resolve(
        &self,
        entry: &TenantEntry,
        request: &ReserveRequest,
        prepared: &Prepared,
        at_ms: i64,
    ) -> Answer<(Resolved, Body)> {
        let windows = entry.windows(at_ms);
        let meters: Vec<_> = prepared.lines.iter().map(|line| &line.meter.id).collect();
        let resolved = entry
            .policy
            .resolve(meters, &request.subjects, prepared.operation.as_ref(), at_ms, &windows)
            .map_err(|error| OperationError::field("/lines", error.to_string()))?;
        self.refuse_without_limit(prepared, &resolved)?;
        let body = Body {
            fingerprint: prepared.fingerprint,
            tenant: request.tenant.clone(),
            lines: prepared.lines.iter().map(Line::rule).collect(),
            rest: Some(BodyDetails {
                subjects: prepared.subjects.clone(),
                counters: places(prepared, &resolved),
                keyed: key_of(request).is_some(),
                operation: prepared.operation.clone(),
                policy_version: entry.policy.version,
                period_ms: (windows.period.start_ms, windows.period.end_ms),
                hour_start_ms: windows.hour.start_ms,
                metadata: prepared.metadata.clone(),
            }),
        };
        Ok((resolved, body))
    }

    /// A meter without limit or quota is unlimited or denied as configured, never by accident.
    fn refuse_without_limit(&self, prepared: &Prepared, resolved: &Resolved) -> Answer<()> {
        for line in resolved.without.iter().filter_map(|line| prepared.lines.get(*line)) {
            let denied = match line.meter.without_limit {
                WithoutLimit::Deny => true,
                WithoutLimit::Unlimited => false,
                WithoutLimit::Config => self.options.deny_without_limit,
            };
            if denied {
                let meter = &line.meter.id;
                return Err(OperationError::Refused(Box::new(Refusal {
                    code: RefusalCode::ExceedsPlan,
                    detail: format!(
                        "the tenant's plan has neither a limit nor a quota for {meter}, and such meters are denied"
                    ),
                    retry_after_ms: None,
                    decision_id: Uuid::now_v7(),
                    refused_by: Vec::new(),
                    limits: Vec::new(),
                })));
            }
        }
        Ok(())
    }
}

/// Parts what was decided anew from what was admitted before.
fn decision(request: &ReserveRequest, decided: Decided) -> Answer<Decision> {
    match decided.outcome {
        ReserveOutcome::Replayed { mut record, readings, .. } => {
            let Decided { prepared, resolved, body, policy_now_ms, degraded, .. } = decided;
            // A tombstone leaves out what the same request says again.
            record.body.rest = record.body.rest.or(body.rest);
            let limits = limit_statuses(resolved, &request.subjects, &readings, policy_now_ms);
            let asked = prepared.lines.iter().map(|line| (line.meter.id.clone(), line.amount())).collect();
            let repeat = Repeat { id: prepared.id, record, asked, limits, degraded };
            Ok(Decision::Repeat(Box::new(repeat)))
        }
        ReserveOutcome::KeyReused { record } => Err(key_reused(decided.prepared.id, record)),
        _ => Ok(Decision::New(decided)),
    }
}

/// The key that names what is written; a dry run writes nothing, so that nothing it is asked with is a replay.
pub(super) fn key_of(request: &ReserveRequest) -> Option<&IdempotencyKey> {
    request.key.as_ref().filter(|_| !request.dry_run)
}

/// What a call comes to whose key was used for an admission that is not booked.
fn known_as(prepared: &Prepared, record: Record, now_ms: i64) -> ReserveOutcome {
    if prepared.fingerprint.repeats(&record.body.fingerprint) {
        ReserveOutcome::Replayed { record, readings: Vec::new(), now_ms }
    } else {
        ReserveOutcome::KeyReused { record }
    }
}

/// A usage as the gate writes it down: consumed at once.
pub(in crate::operations) fn usage_record(
    body: &Body,
    granted: &[Units],
    event: OutboxId,
    expires_at_ms: i64,
    now_ms: i64,
) -> Record {
    Record {
        head: Head {
            state: ReservationState::Consumed,
            late: false,
            degraded: false,
            step: 1,
            epoch: event.epoch,
            expires_at_ms,
            born_at_ms: now_ms,
            latest_expiry_ms: expires_at_ms,
            last_sequence: event.sequence,
        },
        units: granted.iter().map(|units| LineUnits::new(Units::ZERO, *units)).collect(),
        body: body.clone(),
    }
}
