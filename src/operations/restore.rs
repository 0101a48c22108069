//! Cold: the gate does not know a tenant, a subject, a counter or a reservation, and the ledger tells it.

use std::collections::HashSet;
use std::sync::Arc;

use super::catch_up::silent;
use super::counters::counted;
use super::damage::Work;
use super::policy_store::TenantEntry;
use super::present::Counted;
use super::restore_subjects::{Asks, ColdSubject, SUBJECTS_KNOWN_MAX};
use super::restore_turns::Turn;
use super::told::{is_new_quota, warm_state};
use super::{Answer, OperationError, Operations};
use crate::clock::Clock;
use crate::domain::amount::Units;
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, Subject, TenantId};
use crate::domain::parked::CounterLife;
use crate::domain::policy::{Resolved, ResolvedLimit, ResolvedQuota};
use crate::domain::reservation::{CounterPlace, Record, SubjectHash};
use crate::gate::restore::PAGE_RECORDS_MAX;
use crate::gate::{Cold, ColdRecord, CounterReading, QuotaCapacity, RestorePage, RestoredCounter, WarmState};
use crate::ledger::{CounterAsk, RestoreAsk, TenantSnapshot};
use crate::telemetry::labels::Restored;

/// How many open holds that do not read are told of one by one, each time their tenant is read.
const TORN_TOLD_MAX: usize = 20;

impl Operations {
    /// This call's turn to restore the tenant, or one subject of it. One that had to wait for another's restore tries its own
    /// call again first: else every caller in a crowd would read the whole tenant anew.
    pub(super) async fn take_restore_turn(
        &self,
        tenant: &TenantId,
        subject: Option<SubjectHash>,
    ) -> Answer<Turn> {
        if !self.gate.trusts_time() {
            // Windows of a wrong time would stay at the gate when its clock is right again.
            return Err(OperationError::GateUnavailable(
                "its clock is not trusted; nothing is restored".into(),
            ));
        }
        let late =
            |_| OperationError::GateUnavailable("the tenant is still being restored; repeat the call".into());
        tokio::select! {
            biased;
            taken = tokio::time::timeout(self.options.restore_wait, self.restores.take(tenant, subject)) => taken.map_err(late),
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
        for cold in cold_subjects(cold, subjects) {
            self.restore_cold_subject(entry, &cold, at_ms, Asks::Count).await?;
        }
        if cold.tenant {
            return self.restore_cold_tenant(entry, cold.epoch, cold.last_id, at_ms).await;
        }
        self.restore_counters(entry, cold, resolved, subjects, at_ms).await
    }

    async fn restore_cold_tenant(
        &self,
        entry: &TenantEntry,
        epoch: Epoch,
        last_id: OutboxId,
        at_ms: i64,
    ) -> Answer<()> {
        let turn = self.take_restore_turn(&entry.definition.id, None).await?;
        if turn.waited {
            return Ok(());
        }
        self.catch_up(entry.partition, last_id).await?;
        let told = self.restore_tenant(entry, epoch, at_ms).await;
        self.unless_epoch_over(entry.partition, epoch, (), told)
    }

    /// The gate takes nothing that was read for an epoch that is over; whoever asked then asks again in the new one.
    pub(super) fn unless_epoch_over<T>(
        &self,
        partition: Partition,
        epoch: Epoch,
        over: T,
        told: Answer<T>,
    ) -> Answer<T> {
        if self.is_over(partition, epoch) { Ok(over) } else { told }
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
    pub(super) async fn restore_cold_record(&self, cold: &ColdRecord) -> Answer<()> {
        let entry = self.policy.tenant(&cold.tenant).await?;
        let now_ms = self.gate_now_ms();
        let ColdRecord { epoch, last_id, .. } = *cold;
        if cold.tenant_cold {
            return self.restore_cold_tenant(&entry, epoch, last_id, now_ms).await;
        }
        for (subject, hash) in &cold.subjects {
            let cold = ColdSubject { epoch, last_id, subject, hash: *hash };
            self.restore_cold_subject(&entry, &cold, now_ms, Asks::Count).await?;
        }
        let quotas = entry.tenant_counters(now_ms).quotas;
        let cold_quotas =
            quotas.iter().filter(|quota| cold.counters.iter().any(|place| place.field == quota.field));
        for quota in cold_quotas {
            self.restore_cold_quota(&entry, epoch, last_id, quota).await?;
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
        let limits = resolved.limits.iter().map(|limit| (limit, None)).collect();
        let ask = self.ask(limits, &resolved.quotas, None);
        let ask = RestoreAsk { subjects_max: Some(SUBJECTS_KNOWN_MAX), ..ask };
        let snapshot = self.read_books(entry, &ask).await?;
        let ask_until = snapshot.latest_born_at_ms.map_or(0, |born| born + self.options.keyed_memory_ms);
        let warm = WarmState {
            ask_until_ms: ask_until,
            capacities: quotas,
            subjects: self.known_subjects(entry, snapshot.subjects.as_deref(), at_ms),
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
        let as_of = warm.as_of;
        let page = |records, last| RestorePage {
            as_of,
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

    /// Tells a warm tenant or subject single counters or quota capacities that it does not have yet.
    async fn restore_counters(
        &self,
        entry: &TenantEntry,
        cold: &Cold,
        resolved: &Resolved,
        subjects: &[(Subject, SubjectHash)],
        at_ms: i64,
    ) -> Answer<()> {
        let Cold { epoch, last_id, .. } = *cold;
        let all = counted(resolved, subjects.iter().map(|(subject, _)| subject));
        let mut told = HashSet::new();
        for index in &cold.counters {
            match all.get(*index) {
                Some(Counted::Quota(quota)) if !is_new_quota(quota) => {
                    self.restore_cold_quota(entry, epoch, last_id, quota).await?;
                }
                Some(Counted::Quota(_)) if told.insert(None) => {
                    self.begin_tenant_counters(entry, epoch, at_ms).await?;
                }
                Some(Counted::Limit(limit, _)) if told.insert(limit.subject) => {
                    match limit.subject.and_then(|index| subjects.get(index)) {
                        Some((subject, hash)) => {
                            let cold = ColdSubject { epoch, last_id, subject, hash: *hash };
                            self.restore_cold_subject(entry, &cold, at_ms, Asks::Anew).await?;
                        }
                        None => self.begin_tenant_counters(entry, epoch, at_ms).await?,
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

    async fn restore_cold_quota(
        &self,
        entry: &TenantEntry,
        epoch: Epoch,
        last_id: OutboxId,
        quota: &ResolvedQuota,
    ) -> Answer<()> {
        let _turn = self.take_restore_turn(&entry.definition.id, None).await?;
        self.catch_up(entry.partition, last_id).await?;
        let told = self.restore_quota(entry, epoch, quota).await;
        self.unless_epoch_over(entry.partition, epoch, (), told)
    }

    async fn restore_quota(&self, entry: &TenantEntry, epoch: Epoch, quota: &ResolvedQuota) -> Answer<()> {
        let capacity = self.open_period(&entry.definition.id, quota).await?;
        let only = Resolved { quotas: vec![quota.clone()], ..Resolved::default() };
        let snapshot = self.snapshot(entry, &only, None).await?;
        let told = WarmState { capacities: vec![capacity], ..warm_state(&only, &snapshot, None) };
        let started = Clock::monotonic();
        let (partition, tenant) = (entry.partition, &entry.definition.id);
        self.gate.restore_counters(partition, epoch, tenant, &told, self.script_now()).await?;
        self.metrics.restored(Restored::Counter, started.elapsed());
        Ok(())
    }

    /// The counters as the books have them, for a read while the gate is away: the tenant's limits, the subject's, the quotas.
    pub(super) async fn readings_from_ledger(
        &self,
        entry: &TenantEntry,
        resolved: &Resolved,
        subject: Option<&Subject>,
    ) -> Answer<Vec<CounterReading>> {
        let (of_subject, of_tenant) =
            resolved.limits.iter().cloned().partition::<Vec<_>, _>(|limit| limit.subject.is_some());
        let own = Resolved { limits: of_tenant, quotas: resolved.quotas.clone(), ..Resolved::default() };
        let books = self.snapshot(entry, &own, None).await?;
        let counters = warm_state(&own, &books, None).counters;
        let (limits, quotas) = counters.split_at(own.limits.len());
        let mut readings: Vec<_> = limits.iter().map(|counter| reading(counter, None)).collect();
        if !of_subject.is_empty() {
            let own = Resolved { limits: of_subject, ..Resolved::default() };
            let books = self.snapshot(entry, &own, subject).await?;
            let counters = warm_state(&own, &books, subject).counters;
            readings.extend(counters.iter().map(|counter| reading(counter, None)));
        }
        readings.extend(quotas.iter().zip(&books.quotas).map(|(counter, state)| {
            let parts = state.capacity.as_ref().and_then(|capacity| capacity.parts.last());
            reading(counter, parts.map(|(_, units)| *units))
        }));
        Ok(readings)
    }

    /// What the books say of these counters, of the tenant or of one subject alone.
    pub(super) async fn snapshot(
        &self,
        entry: &TenantEntry,
        resolved: &Resolved,
        subject: Option<&Subject>,
    ) -> Answer<TenantSnapshot> {
        let limits = resolved.limits.iter().map(|limit| (limit, subject)).collect();
        self.snapshot_of(entry, limits, &resolved.quotas, subject.as_ref().map(std::slice::from_ref)).await
    }

    /// The same of counters of several subjects.
    pub(super) async fn snapshot_of(
        &self,
        entry: &TenantEntry,
        limits: Vec<(&ResolvedLimit, Option<&Subject>)>,
        quotas: &[ResolvedQuota],
        subjects: Option<&[&Subject]>,
    ) -> Answer<TenantSnapshot> {
        let ask = self.ask(limits, quotas, subjects);
        self.read_books(entry, &ask).await
    }

    /// An open hold that does not read stands in no one's way: it is reported, and until it ends it counts by its entries.
    async fn read_books(&self, entry: &TenantEntry, ask: &RestoreAsk) -> Answer<TenantSnapshot> {
        let tenant = &entry.definition.id;
        let mut books = self.ledger.read_tenant(entry.partition, tenant, ask).await?;
        for torn in books.torn.iter().take(TORN_TOLD_MAX) {
            let item = format!("reservation {} of tenant {tenant}", torn.id);
            self.pass_over(Work::Restore, &item, &torn.reason).await;
        }
        let now_ms = self.gate_now_ms();
        books.torn.retain(|torn| torn.hold.expires_at_ms > now_ms);
        Ok(books)
    }

    fn ask(
        &self,
        limits: Vec<(&ResolvedLimit, Option<&Subject>)>,
        quotas: &[ResolvedQuota],
        subjects: Option<&[&Subject]>,
    ) -> RestoreAsk {
        RestoreAsk {
            counters: limits.into_iter().map(|(limit, subject)| counter_ask(limit, subject)).collect(),
            quotas: quotas
                .iter()
                .map(|quota| (quota.meter.clone(), quota.decimals, quota.window.start_ms))
                .collect(),
            with_open: true,
            open_of: subjects.map(|subjects| subjects.iter().copied().cloned().collect()),
            subjects_max: None,
            born_since_ms: self.clock.now_ms() - self.options.keyed_memory_ms,
        }
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

pub(super) fn cold_subjects<'a>(
    cold: &'a Cold,
    subjects: &'a [(Subject, SubjectHash)],
) -> impl Iterator<Item = ColdSubject<'a>> {
    let named = cold.holders.iter().filter_map(|holder| subjects.get(usize::from(holder.checked_sub(1)?)));
    named.map(|(subject, hash)| ColdSubject {
        epoch: cold.epoch,
        last_id: cold.last_id,
        subject,
        hash: *hash,
    })
}

/// Every counter in force for the tenant and these subjects.
fn counters_now(entry: &TenantEntry, subjects: &[(Subject, SubjectHash)], at_ms: i64) -> Resolved {
    let mut resolved = entry.tenant_counters(at_ms);
    for (number, (subject, _)) in subjects.iter().enumerate() {
        let own = entry.subject_counters(subject, at_ms).limits;
        resolved.limits.extend(own.into_iter().map(|limit| ResolvedLimit { subject: Some(number), ..limit }));
    }
    resolved
}

/// Whether the quota counts in this place now.
fn is_quota_place(quota: &ResolvedQuota, place: &CounterPlace) -> bool {
    place.holder == 0 && quota.field == place.field && quota.window.start_ms == place.window_start_ms
}

/// Whether the limit counts in this place now.
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
