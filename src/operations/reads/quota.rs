//! The quota that a tenant has left: read at the gate, or from the ledger while the gate is away.

use std::collections::BTreeMap;

use rust_decimal::Decimal;

use super::Reads;
use crate::domain::amount::{Amount, Units};
use crate::domain::ids::{MeterId, Subject};
use crate::domain::movements::Account;
use crate::domain::plan::MEASURED;
use crate::domain::policy::Resolved;
use crate::domain::reservation::SubjectHash;
use crate::gate::{Cold, CounterReading, PeekedCounters};
use crate::operations::answers::{GrantLeft, QuotaParts, QuotaStatus};
use crate::operations::error::{Answer, OperationError};
use crate::operations::limit_status::{LimitStatus, limit_statuses};
use crate::operations::memory::{Asks, cold_subjects};
use crate::operations::policy_store::TenantEntry;
use crate::operations::requests::{Ack, QuotaRequest};

/// How many grants of a quota are shown.
const GRANTS_MAX: usize = 100;

type Parts = BTreeMap<MeterId, QuotaParts>;
type Grants = BTreeMap<MeterId, Vec<GrantLeft>>;

impl Reads {
    /// Quotas and limits of a tenant (and of one subject), as they are now.
    pub async fn read_quota(&self, request: QuotaRequest) -> Answer<QuotaStatus> {
        let entry = self.core.policy.named_tenant(&request.tenant).await?;
        let mut at_ms = self.core.gate_now_ms();
        // Its figures include parked calls, so those are delivered first; where they cannot be, the read still
        // answers.
        if matches!(self.outage.parked_first(&request.tenant).await, Ok(Some(_))) {
            return self.quota_from_ledger(&entry, request, at_ms).await;
        }
        match self.quota_at_gate(&entry, request.subject.as_ref(), &mut at_ms).await {
            Ok((resolved, readings)) => {
                let status = answer(&entry, resolved, request, readings, at_ms, Ack::Gate);
                match self.parts(&entry, &status).await {
                    Ok((parts, grants)) => Ok(QuotaStatus { parts, grants: Some(grants), ..status }),
                    Err(_) => Ok(status),
                }
            }
            Err(OperationError::GateUnavailable(_)) => self.quota_from_ledger(&entry, request, at_ms).await,
            Err(error) => Err(error),
        }
    }

    /// The parts of each quota's capacity, for which the gate has one figure, what the gate does not count, and what is
    /// left of grants. The ledger is asked only where there can be such parts: where policy has them, where the gate
    /// has another capacity than policy, while holds of the period before may be open, and where something may be
    /// adjusted.
    async fn parts(&self, entry: &TenantEntry, status: &QuotaStatus) -> Answer<(Parts, Grants)> {
        let quotas = || status.limits.iter().filter(|limit| limit.counter.is_quota());
        let policy = self.core.policy.current();
        let has_parts = |quota: &LimitStatus| {
            let meter = &quota.counter.meter;
            let terms = entry.policy.period_terms(meter).unwrap_or_default();
            let life_seconds = policy.meter(meter).map_or(0, |meter| meter.max_life_seconds);
            let open_until_ms = status.period.start_ms.saturating_add(i64::from(life_seconds) * 1_000);
            terms.max_rollover > Units::ZERO
                || terms.overdraft > Units::ZERO
                || quota.capacity != quota.counter.capacity
                || status.as_of_ms < open_until_ms
        };
        let (tenant, at_ms) = (&entry.definition.id, status.as_of_ms);
        let (has_parts, unadjusted) = (quotas().any(has_parts), &self.core.unadjusted);
        let without =
            || (Parts::new(), quotas().map(|quota| (quota.counter.meter.clone(), Vec::new())).collect());
        if quotas().next().is_none() || (!has_parts && unadjusted.knows(tenant)) {
            return Ok(without());
        }
        let before = unadjusted.before_reading();
        let balances = self.core.ledger.balances_of(tenant, at_ms).await?;
        if balances.iter().all(|balance| balance.of(Account::Adjusted).is_zero()) {
            unadjusted.keep(tenant, before).await;
            if !has_parts {
                return Ok(without());
            }
        }
        let grants = self.core.ledger.grants_left(tenant, at_ms, GRANTS_MAX).await?;
        // A grant that goes on counts as granted in each of its periods.
        let with_grants = self.core.ledger.rolled_with_grants(tenant, at_ms).await?;
        let parts = |quota: &LimitStatus| {
            let counter = &quota.counter;
            let balance = balances.iter().find(|balance| balance.meter == counter.meter)?;
            let units = |amount: Decimal| {
                Amount::from_decimal(amount).unwrap_or_default().floor_units(counter.decimals)
            };
            let overdraft = units(balance.overdraft.unwrap_or_default());
            // What only measures has no bound, and none is shown.
            let overdraft = if overdraft >= MEASURED { Units::ZERO } else { overdraft };
            let with_grants = with_grants.get(&counter.meter).copied().unwrap_or_default();
            let parts = QuotaParts {
                rolled_in: units(balance.of(Account::RolledIn) - with_grants),
                overdraft,
                carried: units(balance.beside_gate.reserved),
                consumed_beside_gate: units(balance.consumed_beside_gate()),
                adjusted: balance.of(Account::Adjusted),
            };
            Some((counter.meter.clone(), parts))
        };
        Ok((quotas().filter_map(parts).collect(), grants))
    }

    /// The figures of the gate. `at_ms` moves to the gate's time where that is in other windows.
    async fn quota_at_gate(
        &self,
        entry: &TenantEntry,
        subject: Option<&Subject>,
        at_ms: &mut i64,
    ) -> Answer<(Resolved, Vec<CounterReading>)> {
        let hash = |subject: &Subject| self.core.gate.subject_hash(&entry.definition.id, subject);
        let subjects: Vec<_> = subject.iter().map(|subject| ((*subject).clone(), hash(subject))).collect();
        let mut recovery = self.memory.recovery("its counters kept changing under this read");
        loop {
            let resolved = shown(entry, subject, *at_ms).under(self.core.load.level());
            match self.memory.peek(entry, &resolved, &subjects).await {
                Ok(peeked) if !entry.windows(*at_ms).valid().contains(peeked.now_ms) => {
                    *at_ms = peeked.now_ms;
                    recovery.again()?;
                }
                Ok(PeekedCounters { cold: None, readings, .. }) => return Ok((resolved, readings)),
                Ok(PeekedCounters { cold: Some(cold), readings, .. }) => {
                    if !self.restore_to_read(entry, &cold, &resolved, &subjects, *at_ms).await? {
                        return Ok((resolved, as_unused(readings)));
                    }
                    recovery.again()?;
                }
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        return Err(away.into());
                    }
                }
            }
        }
    }

    /// Restores what a read found cold. Returns whether anything was written to the gate: a subject of which the
    /// ledger has nothing is not.
    async fn restore_to_read(
        &self,
        entry: &TenantEntry,
        cold: &Cold,
        resolved: &Resolved,
        subjects: &[(Subject, SubjectHash)],
        at_ms: i64,
    ) -> Answer<bool> {
        if cold.tenant || !cold.counters.is_empty() {
            let of_tenant = Cold { holders: Vec::new(), ..cold.clone() };
            self.memory.restore_cold(entry, &of_tenant, resolved, subjects, at_ms).await?;
            return Ok(true);
        }
        let mut told = false;
        for cold in cold_subjects(cold, subjects) {
            told |= self.memory.restore_cold_subject(entry, &cold, at_ms, Asks::Read).await?;
        }
        Ok(told)
    }

    /// The same figures from the books, as far as they are booked.
    async fn quota_from_ledger(
        &self,
        entry: &TenantEntry,
        request: QuotaRequest,
        at_ms: i64,
    ) -> Answer<QuotaStatus> {
        let resolved = shown(entry, request.subject.as_ref(), at_ms).under(self.core.load.level());
        let readings = self.memory.readings_from_ledger(entry, &resolved, request.subject.as_ref()).await?;
        let status = answer(entry, resolved, request, readings, at_ms, Ack::Ledger);
        let (parts, grants) = self.parts(entry, &status).await?;
        Ok(QuotaStatus { parts, grants: Some(grants), ..status })
    }
}

/// The readings where neither the gate nor the ledger has any use.
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
    // A quota is shown even if its figures are not current.
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
        parts: BTreeMap::new(),
        grants: None,
    }
}
