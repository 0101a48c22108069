//! What a tenant has left: read at the gate, or from the ledger when the gate is away.

use std::sync::Arc;

use crate::domain::ids::Subject;
use crate::domain::policy::Resolved;
use crate::domain::reservation::SubjectHash;
use crate::gate::{Cold, CounterReading, GateError, PeekCall};
use crate::operations::answers::QuotaStatus;
use crate::operations::calls::limit_status::limit_statuses;
use crate::operations::calls::reserve::ATTEMPTS_MAX;
use crate::operations::memory::restore::cold_subjects;
use crate::operations::memory::restore_subjects::Asks;
use crate::operations::policy::policy_store::TenantEntry;
use crate::operations::requests::{Ack, QuotaRequest};
use crate::operations::{Answer, OperationError, Operations};
use crate::telemetry::labels::Script;

impl Operations {
    /// Quotas and limits of a tenant (and of one subject), as they stand now.
    pub async fn read_quota(&self, request: QuotaRequest) -> Answer<QuotaStatus> {
        let found = self.policy.find_tenant(&request.tenant).await?;
        let entry = found
            .ok_or_else(|| OperationError::NotFound(format!("there is no tenant {}", request.tenant)))?;
        let subjects: Vec<_> = request
            .subject
            .iter()
            .map(|subject| (subject.clone(), self.gate.subject_hash(&request.tenant, subject)))
            .collect();
        let mut at_ms = self.clock.now_ms();
        // What waits for the gate belongs into its figures; a read answers also where it cannot get there now.
        if matches!(self.parked_first(&request.tenant).await, Ok(Some(_))) {
            return self.quota_from_ledger(&entry, request, at_ms).await;
        }
        for _ in 0..ATTEMPTS_MAX {
            let resolved = shown(&entry, request.subject.as_ref(), at_ms);
            match self.peek(&entry, &resolved, &subjects).await {
                Ok(peeked) => {
                    if !entry.windows(at_ms).valid().contains(peeked.now_ms) {
                        at_ms = peeked.now_ms;
                        continue;
                    }
                    match &peeked.cold {
                        Some(cold) => {
                            match self.restore_to_read(&entry, cold, &resolved, &subjects, at_ms).await {
                                Err(OperationError::GateUnavailable(_)) => break,
                                restored => {
                                    if !restored? {
                                        let readings = as_unused(peeked.readings);
                                        return Ok(answer(
                                            &entry,
                                            resolved,
                                            request,
                                            readings,
                                            at_ms,
                                            Ack::Gate,
                                        ));
                                    }
                                }
                            }
                        }
                        None => {
                            return Ok(answer(&entry, resolved, request, peeked.readings, at_ms, Ack::Gate));
                        }
                    }
                }
                Err(GateError::Alarm { partition, reason }) => {
                    match self.after_alarm(partition, &reason).await {
                        Err(OperationError::GateUnavailable(_)) => break,
                        checked => checked?,
                    }
                }
                Err(error) if error.is_transient() => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.quota_from_ledger(&entry, request, at_ms).await
    }

    /// Restores what a read found cold; says whether the gate was told something. A subject of which the ledger knows nothing
    /// leaves nothing behind.
    async fn restore_to_read(
        &self,
        entry: &Arc<TenantEntry>,
        cold: &Cold,
        resolved: &Resolved,
        subjects: &[(Subject, SubjectHash)],
        at_ms: i64,
    ) -> Answer<bool> {
        if cold.tenant || !cold.counters.is_empty() {
            let of_tenant = Cold { holders: Vec::new(), ..cold.clone() };
            self.restore_cold(entry, &of_tenant, resolved, subjects, at_ms).await?;
            return Ok(true);
        }
        let mut told = false;
        for cold in cold_subjects(cold, subjects) {
            told |= self.restore_cold_subject(entry, &cold, at_ms, Asks::Read).await?;
        }
        Ok(told)
    }

    /// How these counters stand at the gate.
    pub(in crate::operations) async fn peek(
        &self,
        entry: &TenantEntry,
        resolved: &Resolved,
        subjects: &[(Subject, SubjectHash)],
    ) -> Result<crate::gate::PeekedCounters, GateError> {
        let hashes: Vec<_> = subjects.iter().map(|(_, hash)| *hash).collect();
        let call = PeekCall {
            partition: entry.partition,
            tenant: &entry.definition.id,
            subjects: &hashes,
            counters: &resolved.counters,
            now_ms: self.script_now(),
        };
        self.timed(Script::Peek, self.gate.peek_counters(&call)).await
    }

    /// The same figures from the books, as far as they have come.
    async fn quota_from_ledger(
        &self,
        entry: &TenantEntry,
        request: QuotaRequest,
        at_ms: i64,
    ) -> Answer<QuotaStatus> {
        let resolved = shown(entry, request.subject.as_ref(), at_ms);
        let readings = self.readings_from_ledger(entry, &resolved, request.subject.as_ref()).await?;
        Ok(answer(entry, resolved, request, readings, at_ms, Ack::Ledger))
    }
}

/// What stands where neither the gate nor the ledger knows any use.
fn as_unused(readings: Vec<CounterReading>) -> Vec<CounterReading> {
    readings.into_iter().map(|reading| CounterReading { current: true, ..reading }).collect()
}

/// The counters that a quota read shows: the tenant's, then the subject's.
fn shown(entry: &TenantEntry, subject: Option<&Subject>, at_ms: i64) -> Resolved {
    let mut resolved = entry.tenant_counters(at_ms);
    if let Some(subject) = subject {
        resolved.counters.extend(entry.subject_counters(subject, at_ms).counters);
    }
    resolved
}

fn answer(
    entry: &TenantEntry,
    resolved: Resolved,
    request: QuotaRequest,
    mut readings: Vec<CounterReading>,
    now_ms: i64,
    source: Ack,
) -> QuotaStatus {
    // A quota is shown whether or not its figures are those of now.
    for (counter, reading) in resolved.counters.iter().zip(&mut readings) {
        reading.current |= counter.is_quota();
    }
    QuotaStatus {
        tenant: request.tenant,
        period: entry.windows(now_ms).period,
        zone: entry.calendars.at(now_ms).zone.name().to_owned(),
        source,
        as_of_ms: now_ms,
        limits: limit_statuses(resolved, request.subject.as_slice(), &readings, now_ms),
    }
}
