//! Turns a parsed request into what an admission writes: its lines, id, fingerprint and counters.

mod cost;
mod counters;
mod fingerprint;

use std::sync::Arc;

use uuid::Uuid;

pub(super) use cost::{Estimating, Line, check_work, costed_by, lines_of};
use counters::places;
pub(super) use counters::{counters_end_ms, subject_counters_end_ms};
pub(super) use fingerprint::fingerprint;

use crate::domain::amount::Units;
use crate::domain::ban::banned_for_ms;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{
    IdempotencyKey, OperationId, OutboxId, Partition, ReservationId, ReservationIds, Subject,
};
use crate::domain::meter::{HoldSeconds, WithoutLimit};
use crate::domain::policy::Resolved;
use crate::domain::policy::intervals::OperationInterval;
use crate::domain::reservation::{Body, BodyDetails, Head, LineUnits, Record, ReservationState, SubjectHash};
use crate::gate::GuardedWork;
use crate::operations::answers::{Refusal, RefusalCode};
use crate::operations::core::Core;
use crate::operations::error::{Answer, OperationError};
use crate::operations::estimates::Estimates;
use crate::operations::policy_store::TenantEntry;
use crate::operations::requests::{ReserveRequest, Work};

/// The calls that a key can belong to.
pub(super) const RESERVE: &str = "reserve";
pub(super) const USAGE: &str = "usage";
pub(super) const EVENT: &str = "event";
pub(super) const CORRECTION: &str = "correction";

/// A prepared request: costed, with its id and everything that does not change between tries.
pub(super) struct Prepared {
    pub(super) lines: Vec<Line>,
    pub(super) units: Vec<Units>,
    pub(super) operation: Option<OperationId>,
    /// The operation's least time between calls.
    interval: Option<Box<OperationInterval>>,
    /// The submission, where the operation guards it against being made twice.
    pub(super) work: Option<Box<GuardedWork>>,
    pub(super) subjects: Vec<(Subject, SubjectHash)>,
    pub(super) id: ReservationId,
    pub(super) fingerprint: Fingerprint,
    pub(super) ttl_ms: i64,
    pub(super) max_life_ms: i64,
    pub(super) metadata: String,
    /// The version of the policy that prices and limits it.
    pub(super) policy_version: u64,
}

impl Prepared {
    /// Whether the gate alone keeps it, because none of its meters is booked.
    pub(super) fn is_light(&self) -> bool {
        self.id.is_light()
    }

    /// Its subjects' hashes, in their order.
    pub(super) fn subject_hashes(&self) -> Vec<SubjectHash> {
        self.subjects.iter().map(|(_, hash)| *hash).collect()
    }
}

/// Prepares admissions by the policy in force.
pub(super) struct Preparation {
    core: Arc<Core>,
    estimates: Arc<Estimates>,
    pub(super) ids: ReservationIds,
    /// Whether meters with `without_limit = "config"` are denied to tenants without limit or quota.
    deny_without_limit: bool,
}

impl Preparation {
    /// Makes ids of this installation.
    pub(super) fn new(
        core: Arc<Core>,
        estimates: Arc<Estimates>,
        ids: ReservationIds,
        deny_without_limit: bool,
    ) -> Self {
        Self { core, estimates, ids, deny_without_limit }
    }

    /// The id of a call with a key.
    pub(super) fn keyed_id(
        &self,
        partition: Partition,
        request: &ReserveRequest,
        call: &str,
    ) -> Option<ReservationId> {
        key_of(request).map(|key| self.ids.derive(partition, &request.tenant, call, key))
    }

    /// Costs a request and gives it its id: everything that does not change between tries.
    pub(super) fn prepare(
        &self,
        entry: &TenantEntry,
        request: &ReserveRequest,
        call: &str,
    ) -> Answer<Prepared> {
        // What was used before a tenant was archived is corrected all the same.
        if call != CORRECTION {
            refuse_archived(entry)?;
        }
        let policy = self.core.policy.current();
        // Only a hold is an estimate: usage says what was used.
        let estimating =
            (call == RESERVE).then_some(Estimating { estimates: &self.estimates, tenant: &request.tenant });
        let (lines, operation) = lines_of(&policy, &request.work, estimating)?;
        refuse_unbooked(&lines, &request.work, call)?;
        let is_light = lines.iter().all(|line| !line.meter.booked);
        let default_seconds = lines.iter().map(|line| line.meter.ttl_seconds).min().unwrap_or(60);
        let ttl_seconds = request.ttl.map_or(default_seconds, HoldSeconds::get);
        let max_life = lines.iter().map(|line| line.meter.max_life_seconds).min().unwrap_or(ttl_seconds);
        if ttl_seconds > max_life {
            return Err(OperationError::field("/ttl_seconds", format!("must be 1 to {max_life} seconds")));
        }
        let fresh = || self.ids.fresh(entry.partition, self.core.clock.now_ms(), rand::random());
        let id = self.keyed_id(entry.partition, request, call).unwrap_or_else(fresh);
        let id = if is_light { self.ids.light(id) } else { id };
        let metadata = match &request.metadata {
            Some(metadata) => {
                serde_json::to_string(metadata).map_err(|e| OperationError::Internal(e.to_string()))?
            }
            None => String::new(),
        };
        let hash =
            |subject: &Subject| (subject.clone(), self.core.gate.subject_hash(&request.tenant, subject));
        let subjects: Vec<_> = request.subjects.iter().map(hash).collect();
        let work = operation.as_ref().and_then(|operation| {
            let (within, payload) =
                operation.duplicate_within_seconds.zip(request.payload_fingerprint.as_deref())?;
            let hashes = subjects.iter().map(|(_, hash)| hash);
            Some(Box::new(self.core.gate.guarded_work(
                &request.tenant,
                &operation.id,
                hashes,
                payload,
                within,
            )))
        });
        Ok(Prepared {
            units: lines.iter().map(|line| line.units).collect(),
            lines,
            interval: operation.as_ref().and_then(|operation| operation.interval()).map(Box::new),
            operation: operation.map(|operation| operation.id.clone()),
            subjects,
            work,
            id,
            // Usage holds nothing, so its fingerprint has no lifetime.
            fingerprint: fingerprint(call, request, (call == RESERVE).then_some(default_seconds)),
            ttl_ms: i64::from(ttl_seconds) * 1000,
            max_life_ms: i64::from(max_life) * 1000,
            metadata,
            policy_version: entry.policy.version,
        })
    }

    /// Whether it is work on meters that are not booked, and on no others.
    pub(super) fn is_light(&self, work: &Work) -> bool {
        let costed = lines_of(&self.core.policy.current(), work, None);
        costed.is_ok_and(|(lines, _)| lines.iter().all(|line| !line.meter.booked))
    }

    /// The counters that apply to it at `at_ms`, and the body of its record.
    pub(super) fn resolve(
        &self,
        entry: &TenantEntry,
        request: &ReserveRequest,
        prepared: &Prepared,
        at_ms: i64,
    ) -> Answer<(Resolved, Body)> {
        let (resolved, body) = self.resolve_unrefused(entry, request, prepared, at_ms)?;
        self.refuse_without_limit(&prepared.lines, &resolved, entry.policy.version)?;
        Ok((resolved.under(self.core.load.level()), body))
    }

    /// The same of work that is done already: no plan refuses it.
    pub(super) fn resolve_unrefused(
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
            .resolve(meters.iter().copied(), &request.subjects, prepared.operation.as_ref(), at_ms, &windows)
            .and_then(|resolved| match &prepared.interval {
                Some(interval) => resolved.with_interval(interval, meters, request.subjects.len()),
                None => Ok(resolved),
            })
            .and_then(|resolved| resolved.with_anomalies(prepared.operation.as_ref()))
            .map_err(|error| OperationError::field("/lines", error.to_string()))?;
        let resolved = if prepared.is_light() { resolved } else { mark_light(resolved, &prepared.lines) };
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

    /// Treats a meter without limit or quota as configured, unlimited or denied, never as something in between.
    pub(super) fn refuse_without_limit(
        &self,
        lines: &[Line],
        resolved: &Resolved,
        policy_version: u64,
    ) -> Answer<()> {
        for line in resolved.without.iter().filter_map(|line| lines.get(*line)) {
            let denied = match line.meter.without_limit {
                WithoutLimit::Deny => true,
                WithoutLimit::Unlimited => false,
                WithoutLimit::Config => self.deny_without_limit,
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
                    asked: lines.iter().map(Line::asked).collect(),
                    policy_version,
                    refused_by: Vec::new(),
                    limits: Vec::new(),
                })));
            }
        }
        Ok(())
    }
}

/// Nothing new is done under a ban of the tenant or of a subject of the call.
pub(super) fn refuse_banned(
    entry: &TenantEntry,
    subjects: &[Subject],
    lines: &[Line],
    at_ms: i64,
) -> Result<(), Box<Refusal>> {
    let Some(retry_after_ms) = banned_for_ms(&entry.definition.bans, subjects, at_ms) else {
        return Ok(());
    };
    Err(Box::new(Refusal {
        code: RefusalCode::Banned,
        detail: "an admin has banned the tenant, or a subject of this call".into(),
        retry_after_ms,
        decision_id: Uuid::now_v7(),
        asked: lines.iter().map(Line::asked).collect(),
        policy_version: entry.policy.version,
        refused_by: Vec::new(),
        limits: Vec::new(),
    }))
}

/// Nothing new is done for a tenant that is archived.
pub(super) fn refuse_archived(entry: &TenantEntry) -> Answer<()> {
    let tenant = &entry.definition;
    if tenant.archived {
        return Err(OperationError::field("/tenant", format!("the tenant {} is archived", tenant.id)));
    }
    Ok(())
}

/// Events are for the books: they need a meter that is booked. What finance corrects is booked all of it.
fn refuse_unbooked(lines: &[Line], work: &Work, call: &str) -> Answer<()> {
    let unbooked = |line: &Line| !line.meter.booked;
    let Some(at) = lines.iter().position(unbooked) else { return Ok(()) };
    let meter = lines.get(at).map_or("", |line| line.meter.id.as_str());
    let message = match call {
        CORRECTION => format!("the meter {meter} is not booked: there is nothing of it to correct"),
        EVENT if lines.iter().all(unbooked) => {
            format!("the meter {meter} is not booked: reserve it, use it or check it, but send no events")
        }
        _ => return Ok(()),
    };
    Err(match work {
        Work::Operation { .. } => OperationError::field("/operation", message),
        Work::Lines { .. } => OperationError::field(format!("/lines/{at}/meter"), message),
    })
}

/// Of a call that is booked: the counters that count only lines that are not stand among the light ones.
fn mark_light(mut resolved: Resolved, lines: &[Line]) -> Resolved {
    let is_unbooked =
        |(line, _): &(u8, i64)| lines.get(usize::from(*line)).is_some_and(|line| !line.meter.booked);
    for counter in &mut resolved.counters {
        counter.is_light = counter.lines.iter().all(is_unbooked);
    }
    resolved
}

/// The key of what is written. A dry run writes nothing, so it has no key and is never a replay.
pub(super) fn key_of(request: &ReserveRequest) -> Option<&IdempotencyKey> {
    request.key.as_ref().filter(|_| !request.dry_run)
}

/// The record that the gate writes for a usage: consumed at once.
pub(super) fn usage_record(
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
            start_after_ms: 0,
            unmoved: 0,
            correction: None,
        },
        units: granted.iter().map(|units| LineUnits::new(Units::ZERO, *units)).collect(),
        body: body.clone(),
    }
}
