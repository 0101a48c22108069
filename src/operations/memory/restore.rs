//! Restores: the gate does not know a tenant, a subject, a counter or a reservation, and the ledger does.

use std::collections::HashSet;

use super::Memory;
use super::capacities::{at_gate, period_of};
use super::ended_grants::quota_period;
use super::restore_subjects::{Asks, ColdSubject, SUBJECTS_KNOWN_MAX};
use super::restore_turns::Turn;
use super::told::warm_state;
use crate::clock::Clock;
use crate::domain::counter::Counter;
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, Subject, TenantId};
use crate::domain::limit::Class;
use crate::domain::parked::CounterLife;
use crate::domain::policy::Resolved;
use crate::domain::reservation::{CounterRef, Record, SubjectHash};
use crate::gate::restore::PAGE_RECORDS_MAX;
use crate::gate::{Cold, ColdRecord, QuotaCapacity, RestorePage, WarmState};
use crate::ledger::{CounterAsk, OpenedPeriod, RestoreAsk, TenantSnapshot};
use crate::operations::damage::Work;
use crate::operations::error::{Answer, OperationError};
use crate::operations::policy_store::TenantEntry;
use crate::operations::progress::silent;
use crate::telemetry::labels::Restored;

/// How many open holds that cannot be decoded are reported one by one each time their tenant is read.
const TORN_TOLD_MAX: usize = 20;
/// How often a period is opened again that was prepared by an older version of its tenant.
const OPEN_TRIES: usize = 3;

impl Memory {
    /// This call's turn to restore the tenant, or one subject of it. A call that had to wait for another's restore
    /// retries its own work first: otherwise every caller in a crowd would read the whole tenant again.
    pub(super) async fn take_restore_turn(
        &self,
        tenant: &TenantId,
        subject: Option<SubjectHash>,
    ) -> Answer<Turn> {
        if !self.core.gate.trusts_time() {
            // Windows by a wrong time would stay at the gate after its clock is right again.
            return Err(OperationError::GateUnavailable(
                "its clock is not trusted; nothing is restored".into(),
            ));
        }
        let late =
            |_| OperationError::GateUnavailable("the tenant is still being restored; repeat the call".into());
        tokio::select! {
            biased;
            taken = tokio::time::timeout(self.core.progress.restore_wait, self.turns.take(tenant, subject)) => taken.map_err(late),
            () = self.core.gate.falls_silent() => Err(silent()),
        }
    }

    /// Restores what a reserve found cold, so that it can be retried.
    pub(in crate::operations) async fn restore_cold(
        &self,
        entry: &TenantEntry,
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

    pub(super) async fn restore_cold_tenant(
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
        self.core.progress.catch_up(entry.partition, last_id).await?;
        let told = self.restore_tenant(entry, epoch, at_ms).await;
        self.unless_epoch_over(entry.partition, epoch, (), told)
    }

    /// The gate rejects figures that were read for an epoch that is over; the caller then asks again in the new one.
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
        self.core.gate.epoch(partition).is_some_and(|in_force| in_force > epoch)
    }

    /// Restores what the redelivery of an admission found cold.
    pub(in crate::operations) async fn restore_cold_admission(
        &self,
        entry: &TenantEntry,
        cold: &Cold,
        record: &Record,
    ) -> Answer<()> {
        let Some(rest) = &record.body.rest else { return Ok(()) };
        let mut cold = cold.clone();
        let wanted: Vec<_> = cold.counters.iter().filter_map(|index| rest.counters.get(*index)).collect();
        let mut resolved = counters_now(entry, &rest.subjects, self.core.gate_now_ms());
        resolved.counters.retain(|counter| wanted.iter().any(|place| counter.is_at(place)));
        cold.counters = (0..resolved.counters.len()).collect();
        self.restore_cold(entry, &cold, &resolved, &rest.subjects, self.core.gate_now_ms()).await
    }

    /// Gives the counters their lifetimes from the policy in force. Counters of no current limit or quota keep theirs.
    pub(in crate::operations) fn lives_now(
        &self,
        entry: &TenantEntry,
        record: &Record,
        lives: &[CounterLife],
    ) -> Vec<CounterLife> {
        let Some(rest) = &record.body.rest else { return Vec::new() };
        let in_force = counters_now(entry, &rest.subjects, self.core.gate_now_ms());
        let known = |place: &CounterRef| in_force.counters.iter().any(|counter| counter.is_at(place));
        let places = rest.counters.iter().zip(lives);
        places
            .map(|(place, life)| CounterLife {
                window_end_ms: if known(place) { life.window_end_ms } else { i64::MIN },
                ..*life
            })
            .collect()
    }

    /// Restores the tenant and the subjects that a consume, release or extend found cold.
    pub(in crate::operations) async fn restore_cold_record(&self, cold: &ColdRecord) -> Answer<()> {
        let entry = self.core.policy.tenant(&cold.tenant).await?;
        let now_ms = self.core.gate_now_ms();
        let ColdRecord { epoch, last_id, .. } = *cold;
        if cold.tenant_cold {
            return self.restore_cold_tenant(&entry, epoch, last_id, now_ms).await;
        }
        for (subject, hash) in &cold.subjects {
            let cold = ColdSubject { epoch, last_id, subject, hash: *hash };
            self.restore_cold_subject(&entry, &cold, now_ms, Asks::Count).await?;
        }
        let resolved = entry.tenant_counters(now_ms);
        let is_cold = |quota: &&Counter| cold.counters.iter().any(|place| place.field == quota.field);
        for quota in resolved.quotas().filter(is_cold) {
            self.restore_cold_quota(&entry, epoch, last_id, quota).await?;
        }
        Ok(())
    }

    /// Restores a whole tenant in an epoch in which the ledger has caught up: first the open reservations with their
    /// due entries, then every tenant counter and quota.
    pub(super) async fn restore_tenant(&self, entry: &TenantEntry, epoch: Epoch, at_ms: i64) -> Answer<()> {
        let started = Clock::monotonic();
        self.core.progress.close_epochs_before(entry.partition, epoch).await?;
        let resolved = entry.tenant_counters(at_ms);
        let tenant = &entry.definition.id;
        let mut capacities = Vec::new();
        for quota in resolved.quotas() {
            capacities.push(self.open_period(entry, quota).await?.0);
        }
        let ask = self.ask(resolved.counters.iter().map(|counter| (counter, None)).collect(), None);
        let ask = RestoreAsk { subjects_max: Some(SUBJECTS_KNOWN_MAX), ..ask };
        let snapshot = self.read_books(entry, &ask).await?;
        let ask_until = snapshot.latest_at_ms.map_or(0, |latest| latest + self.key_filters.keyed_memory_ms);
        let warm = WarmState {
            ask_until_ms: ask_until,
            capacities,
            subjects: self.known_subjects(entry, snapshot.subjects.as_deref(), at_ms),
            ..warm_state(&resolved, &snapshot, None)
        };
        self.send_pages(entry, epoch, &snapshot.open, warm).await?;
        self.core.metrics.restored(Restored::Tenant, started.elapsed());
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
            now_ms: self.core.script_now(),
        };
        for records in first {
            self.core.gate.restore_page(&page(records, None)).await?;
        }
        self.core.gate.restore_page(&page(last, Some(warm))).await?;
        Ok(())
    }

    /// Restores single counters or quota capacities that a warm tenant or subject does not have yet.
    async fn restore_counters(
        &self,
        entry: &TenantEntry,
        cold: &Cold,
        resolved: &Resolved,
        subjects: &[(Subject, SubjectHash)],
        at_ms: i64,
    ) -> Answer<()> {
        let Cold { epoch, last_id, .. } = *cold;
        let mut told = HashSet::new();
        for index in &cold.counters {
            let counter = resolved.counters.get(*index).ok_or_else(|| {
                OperationError::Internal("the gate named a counter it was not asked about".into())
            })?;
            if counter.is_quota() && (cold.only_bounds || !counter.is_new()) {
                self.restore_cold_quota(entry, epoch, last_id, counter).await?;
                if cold.only_bounds {
                    self.unless_being_taken_back(entry, counter).await?;
                }
            } else if told.insert(counter.scope_index) {
                match counter.subject(subjects) {
                    Some((subject, hash)) => {
                        let cold = ColdSubject { epoch, last_id, subject, hash: *hash };
                        self.restore_cold_subject(entry, &cold, at_ms, Asks::Anew).await?;
                    }
                    None => self.begin_tenant_counters(entry, epoch, at_ms).await?,
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
        quota: &Counter,
    ) -> Answer<()> {
        let _turn = self.take_restore_turn(&entry.definition.id, None).await?;
        self.core.progress.catch_up(entry.partition, last_id).await?;
        let told = self.restore_quota(entry, epoch, quota).await;
        self.unless_epoch_over(entry.partition, epoch, (), told)
    }

    /// Errors: use of the quota is being taken back, which decides how much is left; the call would find the same bound
    /// again.
    async fn unless_being_taken_back(&self, entry: &TenantEntry, quota: &Counter) -> Answer<()> {
        let Some(period) = quota.window() else { return Ok(()) };
        let meter = &quota.meter;
        if self.core.ledger.is_use_being_taken_back(&entry.definition.id, meter, period).await? {
            let why =
                format!("use of {meter} is being corrected, which decides how much is left; repeat the call");
            return Err(OperationError::GateUnavailable(why));
        }
        Ok(())
    }

    async fn restore_quota(&self, entry: &TenantEntry, epoch: Epoch, quota: &Counter) -> Answer<()> {
        let (capacity, _) = self.open_period(entry, quota).await?;
        let only = Resolved { counters: vec![quota.clone()], ..Resolved::default() };
        let snapshot = self.snapshot(entry, &only, None).await?;
        let told = WarmState { capacities: vec![capacity], ..warm_state(&only, &snapshot, None) };
        let started = Clock::monotonic();
        let (partition, tenant) = (entry.partition, &entry.definition.id);
        self.core.gate.restore_counters(partition, epoch, tenant, &told, self.core.script_now()).await?;
        self.core.metrics.restored(Restored::Counter, started.elapsed());
        Ok(())
    }

    /// The booked figures of these counters, of the tenant or of one subject alone.
    pub(in crate::operations) async fn snapshot(
        &self,
        entry: &TenantEntry,
        resolved: &Resolved,
        subject: Option<&Subject>,
    ) -> Answer<TenantSnapshot> {
        let counters = resolved.counters.iter().map(|counter| (counter, subject)).collect();
        self.snapshot_of(entry, counters, subject.as_ref().map(std::slice::from_ref)).await
    }

    /// The same for counters of several subjects.
    pub(super) async fn snapshot_of(
        &self,
        entry: &TenantEntry,
        counters: Vec<(&Counter, Option<&Subject>)>,
        subjects: Option<&[&Subject]>,
    ) -> Answer<TenantSnapshot> {
        let ask = self.ask(counters, subjects);
        self.read_books(entry, &ask).await
    }

    /// Reads the books. An open hold whose record cannot be decoded stops nobody: it is reported, and until it ends its
    /// entries count.
    async fn read_books(&self, entry: &TenantEntry, ask: &RestoreAsk) -> Answer<TenantSnapshot> {
        let tenant = &entry.definition.id;
        let mut books = self.core.ledger.read_tenant(entry.partition, tenant, ask).await?;
        for torn in books.torn.iter().take(TORN_TOLD_MAX) {
            let item = format!("reservation {} of tenant {tenant}", torn.id);
            self.core.damage.pass_over(Work::Restore, &item, &torn.reason).await;
        }
        let now_ms = self.core.gate_now_ms();
        books.torn.retain(|torn| torn.hold.expires_at_ms > now_ms);
        Ok(books)
    }

    fn ask(&self, counters: Vec<(&Counter, Option<&Subject>)>, subjects: Option<&[&Subject]>) -> RestoreAsk {
        let (quotas, limits): (Vec<_>, Vec<_>) =
            counters.into_iter().partition(|(counter, _)| counter.is_quota());
        let quota =
            |(quota, _): (&Counter, _)| Some((quota.meter.clone(), quota.decimals, quota.window()?.start_ms));
        RestoreAsk {
            counters: limits.into_iter().filter_map(|(limit, subject)| counter_ask(limit, subject)).collect(),
            quotas: quotas.into_iter().filter_map(quota).collect(),
            with_open: true,
            open_of: subjects.map(|subjects| subjects.iter().copied().cloned().collect()),
            subjects_max: None,
            latest_since_ms: self.core.clock.now_ms() - self.key_filters.keyed_memory_ms,
        }
    }

    /// The quota's capacity for its period, which is opened if it is not open yet; opening grants the included amount.
    /// If grants have ended, what is unburnt of them is booked first, so that the capacity is more than a bound. Also
    /// returns whether the period was not open before.
    pub(super) async fn open_period(
        &self,
        entry: &TenantEntry,
        quota: &Counter,
    ) -> Answer<(QuotaCapacity, bool)> {
        let tenant = &entry.definition.id;
        let OpenedPeriod { mut capacity, is_new } = self.open_as_of_now(entry, quota).await?;
        if capacity.is_bound_at(self.core.gate_now_ms()) {
            self.settle_grants(Some(tenant)).await?;
            capacity = self.open_as_of_now(entry, quota).await?.capacity;
        }
        self.opened.note(tenant, quota);
        Ok((at_gate(quota.field, capacity), is_new))
    }

    /// Opens the quota's period by this policy; where the tenant has changed and this instance has not heard of it yet,
    /// by what holds now.
    async fn open_as_of_now(&self, entry: &TenantEntry, quota: &Counter) -> Answer<OpenedPeriod> {
        let (tenant, meter) = (&entry.definition.id, &quota.meter);
        let mut period = period_of(entry, quota);
        for _ in 0..OPEN_TRIES {
            let Some(of_policy) = &period else { break };
            let refused = match self.core.ledger.open_quota_period(tenant, meter, of_policy).await {
                Ok(opened) => return Ok(opened),
                Err(refused) => refused,
            };
            let start_ms = of_policy.period_ms.0;
            let now = self.core.policy.tenant_moved(refused).await?;
            period = quota_period(&now, meter, start_ms).filter(|now| now.period_ms.0 == start_ms);
        }
        Err(OperationError::GateUnavailable(format!("the quotas of {tenant} have just changed")))
    }
}

pub(in crate::operations) fn cold_subjects<'a>(
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

/// The numbers of the record's counters that no ledger restores: where the gate lacks one, nothing is known about it.
pub(super) fn starting_afresh(entry: &TenantEntry, record: &Record, at_ms: i64) -> Vec<u8> {
    let Some(rest) = &record.body.rest else { return Vec::new() };
    let in_force = counters_now(entry, &rest.subjects, at_ms).counters;
    let starts_afresh = |place: &CounterRef| {
        in_force.iter().any(|counter| counter.class == Class::Rate && counter.is_at(place))
    };
    let numbered = rest.counters.iter().zip(0_u8..);
    numbered.filter(|(place, _)| starts_afresh(place)).map(|(_, number)| number).collect()
}

/// Every counter in force for the tenant and these subjects.
fn counters_now(entry: &TenantEntry, subjects: &[(Subject, SubjectHash)], at_ms: i64) -> Resolved {
    let mut resolved = entry.tenant_counters(at_ms);
    for (scope_index, (subject, _)) in (1..).zip(subjects) {
        let own = entry.subject_counters(subject, at_ms).counters;
        resolved.counters.extend(own.into_iter().map(|counter| Counter { scope_index, ..counter }));
    }
    resolved
}

/// The question to the ledger about a limit's counter; none where the ledger cannot restore it: of class rate.
fn counter_ask(limit: &Counter, subject: Option<&Subject>) -> Option<CounterAsk> {
    let window = limit.booked_window()?;
    Some(CounterAsk {
        meters: limit.counted_meters(),
        subject: subject.cloned(),
        operations: limit.operations().cloned(),
        window_start_ms: window.start_ms,
        window_end_ms: window.end_ms,
    })
}
