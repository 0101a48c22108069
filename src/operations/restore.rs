//! Cold: the gate does not know a tenant, a subject, a counter or a reservation, and the ledger tells it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use super::catch_up::silent;
use super::counters::counted;
use super::policy_store::TenantEntry;
use super::present::Counted;
use super::told::{is_new_quota, new_counters, warm_state};
use super::{Answer, OperationError, Operations};
use crate::clock::Clock;
use crate::domain::amount::Units;
use crate::domain::ids::{Epoch, Partition, ReservationId, Subject, TenantId};
use crate::domain::parked::CounterLife;
use crate::domain::policy::{Resolved, ResolvedLimit, ResolvedQuota};
use crate::domain::reservation::{CounterPlace, Record, SubjectHash};
use crate::gate::restore::PAGE_RECORDS_MAX;
use crate::gate::{
    Cold, ColdRecord, CounterReading, Holder, QuotaCapacity, RestorePage, RestoredCounter, WarmState,
};
use crate::ledger::{CounterAsk, RestoreAsk, TenantSnapshot};
use crate::telemetry::labels::Restored;

const GIVE_WAY_STEP: Duration = Duration::from_millis(5);

/// One restore of a tenant at a time in this instance: callers that met the same cold tenant wait for the first.
#[derive(Default)]
pub(super) struct Restores {
    running: std::sync::Mutex<HashMap<TenantId, Arc<tokio::sync::Mutex<()>>>>,
}

impl Restores {
    /// Waits, at most `wait_max`, until no call restores a tenant here.
    pub(super) async fn give_way(&self, wait_max: Duration) {
        let until = Clock::monotonic() + wait_max;
        while self.is_busy() && Clock::monotonic() < until {
            tokio::time::sleep(GIVE_WAY_STEP).await;
        }
    }

    fn is_busy(&self) -> bool {
        let running = self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        running.values().any(|lock| Arc::strong_count(lock) > 1)
    }

    /// Waits at most `wait_max` for its turn; says too whether it had to wait. Nothing when the time is over.
    async fn enter(&self, tenant: &TenantId, wait_max: Duration) -> Option<(OwnedMutexGuard<()>, bool)> {
        let lock = {
            let mut running = self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            running.retain(|_, lock| Arc::strong_count(lock) > 1);
            running.entry(tenant.clone()).or_default().clone()
        };
        if let Ok(guard) = lock.clone().try_lock_owned() {
            return Some((guard, false));
        }
        Some((tokio::time::timeout(wait_max, lock.lock_owned()).await.ok()?, true))
    }
}

impl Operations {
    /// This call's turn to restore the tenant. One that had to wait for another's restore tries its own call again
    /// first: else every caller in a crowd would read the whole tenant anew.
    pub(super) async fn enter_restore(&self, tenant: &TenantId) -> Answer<(OwnedMutexGuard<()>, bool)> {
        if !self.gate.trusts_time() {
            // Windows of a wrong time would stay at the gate when its clock is right again.
            return Err(OperationError::GateUnavailable(
                "its clock is not trusted; nothing is restored".into(),
            ));
        }
        let late =
            || OperationError::GateUnavailable("the tenant is still being restored; repeat the call".into());
        tokio::select! {
            biased;
            entered = self.restores.enter(tenant, self.options.restore_wait) => entered.ok_or_else(late),
            () = self.gate.falls_silent() => Err(silent()),
        }
    }

    /// Restores whatever a reserve found cold, so that it can be tried again.
    pub(super) async fn restore_cold(
        &self,
        entry: &Arc<TenantEntry>,
        cold: &Cold,
        resolved: &Resolved,
        subjects: &[(Subject, SubjectHash)],
        at_ms: i64,
    ) -> Answer<()> {
        let (_one_at_a_time, waited) = self.enter_restore(&entry.definition.id).await?;
        if waited && cold.tenant {
            return Ok(());
        }
        self.catch_up(entry.partition, cold.last_id).await?;
        let told = self.tell_cold(entry, cold, resolved, subjects, at_ms).await;
        self.unless_epoch_over(entry.partition, cold.epoch, told)
    }

    async fn tell_cold(
        &self,
        entry: &TenantEntry,
        cold: &Cold,
        resolved: &Resolved,
        subjects: &[(Subject, SubjectHash)],
        at_ms: i64,
    ) -> Answer<()> {
        if cold.tenant {
            self.restore_tenant(entry, cold.epoch, at_ms).await?;
        }
        for holder in &cold.holders {
            if let Some((subject, hash)) = subjects.get(usize::from(holder.saturating_sub(1))) {
                self.restore_subject(entry, cold.epoch, subject, *hash, at_ms).await?;
            }
        }
        if !cold.tenant && cold.holders.is_empty() {
            self.restore_counters(entry, cold, resolved, subjects, at_ms).await?;
        }
        Ok(())
    }

    /// The gate takes nothing that was read for an epoch that is over; whoever asked then asks again in the new one.
    fn unless_epoch_over(&self, partition: Partition, epoch: Epoch, told: Answer<()>) -> Answer<()> {
        if self.is_over(partition, epoch) { Ok(()) } else { told }
    }

    pub(super) fn is_over(&self, partition: Partition, epoch: Epoch) -> bool {
        self.gate.epoch(partition).is_some_and(|in_force| in_force > epoch)
    }

    /// Restores whatever the replay of an admission found cold.
    pub(super) async fn restore_cold_admission(
        &self,
        entry: &Arc<TenantEntry>,
        cold: &Cold,
        record: &Record,
    ) -> Answer<()> {
        let Some(rest) = &record.body.rest else { return Ok(()) };
        let mut cold = cold.clone();
        let wanted: Vec<_> = cold.counters.iter().filter_map(|index| rest.counters.get(*index)).collect();
        let mut resolved = counters_now(entry, &rest.subjects, self.gate_now_ms());
        resolved.limits.retain(|limit| wanted.iter().any(|place| is_place(limit, place)));
        resolved.quotas.retain(|quota| wanted.iter().any(|place| is_quota_place(quota, place)));
        cold.counters = (0..resolved.limits.len() + resolved.quotas.len()).collect();
        self.restore_cold(entry, &cold, &resolved, &rest.subjects, self.gate_now_ms()).await
    }

    /// Counters that no limit and no quota in force counts any more are left as they are; the others live as they were told.
    pub(super) fn lives_now(
        &self,
        entry: &TenantEntry,
        record: &Record,
        lives: &[CounterLife],
    ) -> Vec<CounterLife> {
        let Some(rest) = &record.body.rest else { return Vec::new() };
        let in_force = counters_now(entry, &rest.subjects, self.gate_now_ms());
        let known = |place: &CounterPlace| {
            in_force.limits.iter().any(|limit| is_place(limit, place))
                || in_force.quotas.iter().any(|quota| is_quota_place(quota, place))
        };
        let places = rest.counters.iter().zip(lives);
        places
            .map(|(place, life)| CounterLife {
                window_end_ms: if known(place) { life.window_end_ms } else { i64::MIN },
                ..*life
            })
            .collect()
    }

    /// Restores the tenant, and the subjects, that a consume, release or extend found cold.
    pub(super) async fn restore_cold_record(&self, id: ReservationId, cold: &ColdRecord) -> Answer<()> {
        let entry = self.policy.tenant(&cold.tenant).await?;
        let now_ms = self.gate_now_ms();
        let (_one_at_a_time, waited) = self.enter_restore(&cold.tenant).await?;
        if waited && cold.tenant_cold {
            return Ok(());
        }
        self.catch_up(id.partition(), cold.last_id).await?;
        let told = self.tell_cold_record(&entry, cold, now_ms).await;
        self.unless_epoch_over(id.partition(), cold.epoch, told)
    }

    async fn tell_cold_record(&self, entry: &TenantEntry, cold: &ColdRecord, now_ms: i64) -> Answer<()> {
        if cold.tenant_cold {
            self.restore_tenant(entry, cold.epoch, now_ms).await?;
        }
        for (subject, hash) in &cold.subjects {
            self.restore_subject(entry, cold.epoch, subject, *hash, now_ms).await?;
        }
        if !cold.counters.is_empty() {
            let in_force = entry.tenant_counters(now_ms);
            for quota in in_force
                .quotas
                .iter()
                .filter(|quota| cold.counters.iter().any(|place| place.field == quota.field))
            {
                self.restore_quota(entry, cold.epoch, quota).await?;
            }
        }
        Ok(())
    }

    /// The scripts' time: by a host's clock that lags it, a window that has just turned would be restored as the one
    /// before, and what is booked in the new one would read as nothing used.
    pub(super) fn gate_now_ms(&self) -> i64 {
        self.script_now().unwrap_or_else(|| self.gate.redis_time_ms())
    }

    /// Tells the gate a whole tenant in an epoch in which the ledger had caught up: open reservations with their due entries, then every tenant counter and quota.
    pub(super) async fn restore_tenant(&self, entry: &TenantEntry, epoch: Epoch, at_ms: i64) -> Answer<()> {
        let started = Clock::monotonic();
        self.close_epochs_before(entry.partition, epoch).await?;
        let resolved = entry.tenant_counters(at_ms);
        let tenant = &entry.definition.id;
        let mut quotas = Vec::with_capacity(resolved.quotas.len());
        for quota in &resolved.quotas {
            quotas.push(self.open_period(tenant, quota).await?);
        }
        let snapshot = self.snapshot(entry, &resolved, None).await?;
        let ask_until =
            snapshot.latest_keyed_born_at_ms.map_or(0, |born| born + self.options.keyed_memory_ms);
        let warm = WarmState {
            ask_until_ms: ask_until,
            capacities: quotas,
            ..warm_state(&resolved, &snapshot, None)
        };
        self.send_pages(entry, epoch, &snapshot.open, warm).await?;
        self.metrics.restored(Restored::Tenant, started.elapsed());
        tracing::info!(%tenant, open = snapshot.open.len(), "restored a tenant from the ledger");
        Ok(())
    }

    async fn send_pages(
        &self,
        entry: &TenantEntry,
        epoch: Epoch,
        open: &[(ReservationId, Record)],
        warm: WarmState,
    ) -> Answer<()> {
        let pages: Vec<_> = open.chunks(PAGE_RECORDS_MAX).collect();
        let (last, first) = pages.split_last().map_or((&[][..], &[][..]), |(last, first)| (*last, first));
        let page = |records, last| RestorePage {
            partition: entry.partition,
            epoch,
            tenant: &entry.definition.id,
            records,
            last,
            now_ms: self.script_now(),
        };
        for records in first {
            self.gate.restore_page(&page(records, None)).await?;
        }
        self.gate.restore_page(&page(last, Some(warm))).await?;
        Ok(())
    }

    pub(super) async fn restore_subject(
        &self,
        entry: &TenantEntry,
        epoch: Epoch,
        subject: &Subject,
        hash: SubjectHash,
        at_ms: i64,
    ) -> Answer<()> {
        let started = Clock::monotonic();
        let resolved = entry.subject_counters(subject, at_ms);
        if !new_counters(&resolved, Some(subject)).is_empty()
            && !self.suspend(entry, epoch, Some(hash)).await?
        {
            return Ok(());
        }
        let snapshot = self.snapshot(entry, &resolved, Some(subject)).await?;
        let warm = warm_state(&resolved, &snapshot, Some(subject));
        self.gate
            .restore_subject(entry.partition, epoch, &entry.definition.id, hash, warm, self.script_now())
            .await?;
        self.metrics.restored(Restored::Subject, started.elapsed());
        Ok(())
    }

    /// Tells a warm tenant or subject single counters or quota capacities that it does not have yet.
    async fn restore_counters(
        &self,
        entry: &TenantEntry,
        cold: &Cold,
        resolved: &Resolved,
        subjects: &[(Subject, SubjectHash)],
        at_ms: i64,
    ) -> Answer<()> {
        let all = counted(resolved, subjects.iter().map(|(subject, _)| subject));
        let mut told = HashSet::new();
        for index in &cold.counters {
            match all.get(*index) {
                Some(Counted::Quota(quota)) if !is_new_quota(quota) => {
                    self.restore_quota(entry, cold.epoch, quota).await?;
                }
                Some(Counted::Quota(_)) if told.insert(None) => {
                    self.begin_tenant_counters(entry, cold.epoch, at_ms).await?;
                }
                Some(Counted::Limit(limit, _)) if told.insert(limit.subject) => {
                    match limit.subject.and_then(|index| subjects.get(index)) {
                        Some((subject, hash)) => {
                            self.restore_subject(entry, cold.epoch, subject, *hash, at_ms).await?;
                        }
                        None => self.begin_tenant_counters(entry, cold.epoch, at_ms).await?,
                    }
                }
                Some(_) => {}
                None => {
                    return Err(OperationError::Internal(
                        "the gate named a counter it was not asked about".into(),
                    ));
                }
            }
        }
        Ok(())
    }

    async fn restore_quota(&self, entry: &TenantEntry, epoch: Epoch, quota: &ResolvedQuota) -> Answer<()> {
        let capacity = self.open_period(&entry.definition.id, quota).await?;
        let only = Resolved { quotas: vec![quota.clone()], ..Resolved::default() };
        let snapshot = self.snapshot(entry, &only, None).await?;
        let told = WarmState { capacities: vec![capacity], ..warm_state(&only, &snapshot, None) };
        let started = Clock::monotonic();
        let (partition, tenant) = (entry.partition, &entry.definition.id);
        self.gate
            .restore_counters(partition, epoch, tenant, Holder::Tenant, &told, self.script_now())
            .await?;
        self.metrics.restored(Restored::Counter, started.elapsed());
        Ok(())
    }

    /// The counters as the books have them, for a read while the gate is away.
    pub(super) async fn readings_from_ledger(
        &self,
        entry: &TenantEntry,
        resolved: &Resolved,
        subject: Option<&Subject>,
    ) -> Answer<Vec<CounterReading>> {
        let mut readings = Vec::new();
        for limit in &resolved.limits {
            let of = limit.subject.and(subject);
            let only = Resolved { limits: vec![limit.clone()], ..Resolved::default() };
            let snapshot = self.snapshot(entry, &only, of).await?;
            readings.extend(
                warm_state(&only, &snapshot, of).counters.first().map(|counter| reading(counter, None)),
            );
        }
        for quota in &resolved.quotas {
            let only = Resolved { quotas: vec![quota.clone()], ..Resolved::default() };
            let snapshot = self.snapshot(entry, &only, None).await?;
            let capacity = snapshot.quotas.first().and_then(|state| state.capacity.as_ref());
            let capacity = capacity.and_then(|capacity| capacity.parts.last()).map(|(_, units)| *units);
            readings.extend(
                warm_state(&only, &snapshot, None).counters.first().map(|counter| reading(counter, capacity)),
            );
        }
        Ok(readings)
    }

    async fn snapshot(
        &self,
        entry: &TenantEntry,
        resolved: &Resolved,
        subject: Option<&Subject>,
    ) -> Answer<TenantSnapshot> {
        let ask = RestoreAsk {
            counters: resolved.limits.iter().map(|limit| counter_ask(limit, subject)).collect(),
            quotas: resolved
                .quotas
                .iter()
                .map(|quota| (quota.meter.clone(), quota.decimals, quota.window.start_ms))
                .collect(),
            with_open: true,
            keyed_since_ms: self.clock.now_ms() - self.options.keyed_memory_ms,
        };
        Ok(self.ledger.read_tenant(entry.partition, &entry.definition.id, &ask).await?)
    }

    /// The quota's capacity for its period; the period's first use grants the included amount.
    async fn open_period(&self, tenant: &TenantId, quota: &ResolvedQuota) -> Answer<QuotaCapacity> {
        let period = (quota.window.start_ms, quota.window.end_ms);
        let opened = self
            .ledger
            .open_quota_period(tenant, &quota.meter, quota.decimals, period, quota.included)
            .await?;
        Ok(QuotaCapacity {
            field: quota.field,
            version: opened.version,
            parts: opened.parts,
            until_ms: opened.until_ms,
        })
    }
}

/// Whether the limit counts in this place now.
/// Every counter in force for the tenant and these subjects.
fn counters_now(entry: &TenantEntry, subjects: &[(Subject, SubjectHash)], at_ms: i64) -> Resolved {
    let mut resolved = entry.tenant_counters(at_ms);
    for (number, (subject, _)) in subjects.iter().enumerate() {
        let own = entry.subject_counters(subject, at_ms).limits;
        resolved.limits.extend(own.into_iter().map(|limit| ResolvedLimit { subject: Some(number), ..limit }));
    }
    resolved
}

fn is_quota_place(quota: &ResolvedQuota, place: &CounterPlace) -> bool {
    place.holder == 0 && quota.field == place.field && quota.window.start_ms == place.window_start_ms
}

fn is_place(limit: &ResolvedLimit, place: &CounterPlace) -> bool {
    let holder = limit.subject.map_or(0, |number| number + 1);
    limit.field == place.field
        && limit.window.start_ms == place.window_start_ms
        && usize::from(place.holder) == holder
}

fn reading(counter: &RestoredCounter, capacity: Option<Units>) -> CounterReading {
    CounterReading {
        consumed: counter.consumed,
        reserved: counter.reserved,
        capacity,
        next_hold_ends_at_ms: counter.next_hold_ends_at_ms,
        current: true,
    }
}

fn counter_ask(limit: &ResolvedLimit, subject: Option<&Subject>) -> CounterAsk {
    CounterAsk {
        meters: vec![(limit.limit.meter.clone(), limit.decimals, 1)],
        subject: subject.cloned(),
        operations: limit.limit.operations.clone(),
        window_start_ms: limit.window.start_ms,
        window_end_ms: limit.window.end_ms,
    }
}
