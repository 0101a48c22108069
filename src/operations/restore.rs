//! Cold: the gate does not know a tenant, a subject, a counter or a reservation, and the ledger tells it.

use std::collections::HashMap;
use std::sync::Arc;

use super::policy_store::TenantEntry;
use super::present::Counted;
use super::reserve::counted;
use super::{Answer, OperationError, Operations};
use crate::domain::amount::Units;
use crate::domain::ids::{OutboxId, Partition, ReservationId, Subject, TenantId};
use crate::domain::policy::{Resolved, ResolvedLimit, ResolvedQuota};
use crate::domain::reservation::{CounterField, Record, ReservationState, SubjectHash};
use crate::gate::{Cold, RestoredCounter, RestoredQuota, TenantRestore, RESTORE_PAGE_RECORDS_MAX};
use crate::ledger::{CounterAsk, QuotaCapacity, ReservationRow, RestoreAsk, TenantSnapshot};

impl Operations {
    /// Restores whatever a reserve found cold, so that it can be tried again.
    pub(super) async fn restore_cold(
        &self,
        entry: &Arc<TenantEntry>,
        cold: &Cold,
        resolved: &Resolved,
        subjects: &[(Subject, SubjectHash)],
        at_ms: i64,
    ) -> Answer<()> {
        let _one_at_a_time = self.restores.enter(&entry.definition.id).await;
        self.catch_up(entry.partition, cold.last_id).await?;
        if cold.holders.contains(&0) {
            self.restore_tenant(entry, at_ms).await?;
        }
        for holder in cold.holders.iter().filter(|holder| **holder > 0) {
            if let Some((subject, hash)) = subjects.get(usize::from(*holder) - 1) {
                self.restore_subject(entry, subject, *hash, at_ms).await?;
            }
        }
        if cold.holders.is_empty() {
            self.restore_counters(entry, cold, resolved, subjects).await?;
        }
        Ok(())
    }

    /// Restores the tenant, and the subjects, that a consume, release or extend found cold.
    pub(super) async fn restore_cold_record(&self, id: ReservationId, cold: &Cold) -> Answer<()> {
        let Some((tenant, subjects)) = &cold.owner else {
            return Err(OperationError::Internal("a cold record without its tenant".into()));
        };
        let entry = self.policy.tenant(tenant).await?;
        let now_ms = self.clock.now_ms();
        let _one_at_a_time = self.restores.enter(tenant).await;
        self.catch_up(id.partition(), cold.last_id).await?;
        if cold.holders.contains(&0) {
            self.restore_tenant(&entry, now_ms).await?;
        }
        for holder in cold.holders.iter().filter(|holder| **holder > 0) {
            if let Some((subject, hash)) = subjects.get(usize::from(*holder) - 1) {
                self.restore_subject(&entry, subject, *hash, now_ms).await?;
            }
        }
        Ok(())
    }

    /// Waits, within bounds, until the ledger has booked everything up to `last_id`.
    pub(super) async fn catch_up(&self, partition: Partition, last_id: OutboxId) -> Answer<()> {
        let cursor = self.ledger.cursor(partition).await?;
        if cursor >= last_id || last_id == OutboxId::default() {
            return Ok(());
        }
        let reached = self.wait_for_cursor(partition, last_id);
        tokio::time::timeout(self.options.restore_wait, reached).await.map_err(|_| {
            OperationError::GateUnavailable("the ledger has not caught up with it yet; repeat the call".into())
        })
    }

    /// Tells the gate a whole tenant: open reservations with their due entries, then every tenant counter and quota.
    async fn restore_tenant(&self, entry: &TenantEntry, at_ms: i64) -> Answer<()> {
        let started = std::time::Instant::now();
        let resolved = entry.tenant_counters(at_ms);
        let tenant = &entry.definition.id;
        let mut quotas = Vec::with_capacity(resolved.quotas.len());
        for quota in &resolved.quotas {
            quotas.push((quota, self.open_period(tenant, quota).await?));
        }
        let snapshot = self.snapshot(entry, &resolved, None).await?;
        let restored = TenantRestore {
            partition: entry.partition,
            tenant,
            epoch: self.epoch_of(entry.partition)?,
            records: &snapshot.open,
            counters: restored_counters(&resolved, &snapshot, None),
            quotas: quotas.into_iter().map(|(quota, capacity)| restored_quota(quota.field, capacity)).collect(),
            ask_until_ms: snapshot.keyed_born_at_ms.map_or(0, |born| born + self.options.keyed_memory_ms),
            now_ms: self.script_now(),
        };
        self.gate.restore_tenant(&restored).await?;
        self.metrics.restored_tenant(snapshot.open.len(), started.elapsed());
        tracing::info!(%tenant, open = snapshot.open.len(), pages = snapshot.open.len() / RESTORE_PAGE_RECORDS_MAX + 1, "restored a tenant from the ledger");
        Ok(())
    }

    async fn restore_subject(
        &self,
        entry: &TenantEntry,
        subject: &Subject,
        hash: SubjectHash,
        at_ms: i64,
    ) -> Answer<()> {
        let resolved = entry.subject_counters(subject, at_ms);
        let snapshot = self.snapshot(entry, &resolved, Some(subject)).await?;
        let counters = restored_counters(&resolved, &snapshot, Some(subject));
        let epoch = self.epoch_of(entry.partition)?;
        self.gate
            .restore_subject(entry.partition, &entry.definition.id, hash, epoch, &counters, self.script_now())
            .await?;
        self.metrics.restored_subject();
        Ok(())
    }

    /// Tells a warm tenant or subject single counters or quota capacities that it does not have yet.
    async fn restore_counters(
        &self,
        entry: &TenantEntry,
        cold: &Cold,
        resolved: &Resolved,
        subjects: &[(Subject, SubjectHash)],
    ) -> Answer<()> {
        let all = counted(resolved);
        for index in &cold.counters {
            match all.get(*index) {
                Some(Counted::Quota(quota)) => {
                    let capacity = self.open_period(&entry.definition.id, quota).await?;
                    let only = Resolved { quotas: vec![(*quota).clone()], ..Resolved::default() };
                    let snapshot = self.snapshot(entry, &only, None).await?;
                    let counters = restored_counters(&only, &snapshot, None);
                    let quotas = [restored_quota(quota.field, capacity)];
                    self.tell_counters(entry, None, &counters, &quotas).await?;
                }
                Some(Counted::Limit(limit)) => {
                    let only = Resolved { limits: vec![(*limit).clone()], ..Resolved::default() };
                    let snapshot = self.snapshot(entry, &only, limit.subject.as_ref()).await?;
                    let counters = restored_counters(&only, &snapshot, limit.subject.as_ref());
                    let hash = limit.subject_index.and_then(|index| subjects.get(index)).map(|(_, hash)| *hash);
                    self.tell_counters(entry, hash, &counters, &[]).await?;
                }
                None => return Err(OperationError::Internal("the gate named a counter it was not asked about".into())),
            }
        }
        self.metrics.restored_counters();
        Ok(())
    }

    async fn tell_counters(
        &self,
        entry: &TenantEntry,
        subject: Option<SubjectHash>,
        counters: &[RestoredCounter],
        quotas: &[RestoredQuota],
    ) -> Answer<()> {
        let epoch = self.epoch_of(entry.partition)?;
        let tenant = &entry.definition.id;
        Ok(self.gate.restore_counters(entry.partition, tenant, subject, epoch, counters, quotas, self.script_now()).await?)
    }

    async fn snapshot(&self, entry: &TenantEntry, resolved: &Resolved, subject: Option<&Subject>) -> Answer<TenantSnapshot> {
        let ask = RestoreAsk {
            counters: resolved.limits.iter().map(|limit| counter_ask(limit, subject)).collect(),
            quotas: resolved
                .quotas
                .iter()
                .map(|quota| (quota.meter.clone(), quota.decimals, quota.window.start_ms))
                .collect(),
            with_open: true,
        };
        Ok(self.ledger.read_tenant(entry.partition, &entry.definition.id, &ask).await?)
    }

    /// The quota's capacity for its period; the period's first use grants the included amount.
    async fn open_period(&self, tenant: &TenantId, quota: &ResolvedQuota) -> Answer<QuotaCapacity> {
        let period = (quota.window.start_ms, quota.window.end_ms);
        Ok(self.ledger.open_quota_period(tenant, &quota.meter, quota.decimals, period, quota.included).await?)
    }

    /// A keyed call that the gate does not know, of a tenant that had keyed calls before a loss: if the ledger has the
    /// reservation, the gate gets it back.
    pub(super) async fn recall(&self, id: ReservationId, last_id: OutboxId) -> Answer<()> {
        self.catch_up(id.partition(), last_id).await?;
        match self.ledger.reservation(id).await? {
            Some(row) => self.bring_back(row).await,
            None => Ok(()),
        }
    }

    /// Tells the gate one reservation that the ledger knows: a resolved one alone, an open one with its tenant.
    pub(super) async fn bring_back(&self, row: ReservationRow) -> Answer<()> {
        let epoch = self.epoch_of(row.id.partition())?;
        if row.record.head.state == ReservationState::Reserved {
            let entry = self.policy.tenant(&row.tenant).await?;
            let _one_at_a_time = self.restores.enter(&row.tenant).await;
            return self.restore_tenant(&entry, self.clock.now_ms()).await;
        }
        Ok(self.gate.restore_record(row.id, &row.record, epoch, self.script_now()).await?)
    }

    fn epoch_of(&self, partition: Partition) -> Answer<crate::domain::ids::Epoch> {
        self.gate
            .epoch(partition)
            .ok_or_else(|| OperationError::GateUnavailable("its partition has no epoch yet; repeat the call".into()))
    }
}

fn counter_ask(limit: &ResolvedLimit, subject: Option<&Subject>) -> CounterAsk {
    CounterAsk {
        meters: vec![(limit.meter.clone(), limit.decimals, 1)],
        subject: subject.cloned(),
        operations: limit.operations.clone(),
        window_start_ms: limit.window.start_ms,
        window_end_ms: limit.window.end_ms,
    }
}

fn restored_quota(field: CounterField, capacity: QuotaCapacity) -> RestoredQuota {
    RestoredQuota { field, version: capacity.version, parts: capacity.parts, until_ms: capacity.until_ms }
}

/// Absolute counters of the snapshot: consumed as booked, reserved as the open reservations hold it.
fn restored_counters(resolved: &Resolved, snapshot: &TenantSnapshot, subject: Option<&Subject>) -> Vec<RestoredCounter> {
    let held = held_by_field(&snapshot.open, subject);
    let reserved = |field: CounterField, start_ms: i64| {
        held.get(&(field, start_ms)).copied().unwrap_or_default()
    };
    let limits = resolved.limits.iter().zip(&snapshot.counters).map(|(limit, consumed)| {
        let (reserved, next_end_ms) = reserved(limit.field, limit.window.start_ms);
        RestoredCounter { field: limit.field, window_start_ms: limit.window.start_ms, consumed: *consumed, reserved, next_end_ms }
    });
    let quotas = resolved.quotas.iter().zip(&snapshot.quotas).map(|(quota, consumed)| {
        let (reserved, next_end_ms) = reserved(quota.field, quota.window.start_ms);
        RestoredCounter { field: quota.field, window_start_ms: quota.window.start_ms, consumed: *consumed, reserved, next_end_ms }
    });
    limits.chain(quotas).collect()
}

type Held = HashMap<(CounterField, i64), (Units, i64)>;

/// What open reservations hold in each counter window of the tenant (or of one subject), and when the first hold ends.
fn held_by_field(open: &[(ReservationId, Record)], subject: Option<&Subject>) -> Held {
    let mut held = Held::new();
    for (_, record) in open {
        let Some(rest) = &record.body.rest else { continue };
        let holder = match subject {
            None => Some(0),
            Some(subject) => rest.subjects.iter().position(|(named, _)| named == subject).map(|index| index + 1),
        };
        for place in rest.counters.iter().filter(|place| Some(usize::from(place.holder)) == holder) {
            let weighted = place.pairs.iter().filter_map(|(line, weight)| {
                let units = record.units.get(usize::from(*line))?.outstanding();
                units.get().checked_mul(*weight).and_then(Units::new)
            });
            let sum = weighted.fold(Units::ZERO, |sum, units| sum.checked_add(units).unwrap_or(sum));
            let slot = held.entry((place.field, place.window_start_ms)).or_insert((Units::ZERO, i64::MAX));
            slot.0 = slot.0.checked_add(sum).unwrap_or(slot.0);
            slot.1 = slot.1.min(record.head.expires_at_ms);
        }
    }
    held
}
