//! Capacities that have changed in the books: the gate gets them at once, or as soon as it can.

use std::collections::HashMap;

use futures::future::join_all;
use futures::{StreamExt, TryStreamExt, stream};

use super::Memory;
use crate::domain::counter::Counter;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::plan::PeriodTerms;
use crate::domain::reservation::CounterField;
use crate::gate::{QuotaCapacity, RestoreOutcome};
use crate::ledger::{PeriodKey, QuotaCapacity as BookedCapacity, QuotaPeriod};
use crate::operations::damage::Work;
use crate::operations::error::{Answer, OperationError};
use crate::operations::left_partitions::LeftPartitions;
use crate::operations::policy_store::TenantEntry;

/// How many quotas are listed at once whose capacity the gate lacks, ...
const UNTOLD_PAGE: usize = 6_000;
/// ... the capacities of how many are read together, ...
const READ_AT_ONCE: usize = 500;
/// ... and how many such reads are under way.
const READS_AT_ONCE: usize = 3;
/// To how many warm tenants of a partition capacities are sent in one call: Redis is kept from others meanwhile, ...
const TOLD_TOGETHER: usize = 16;
/// ... and how many calls of each read are under way.
const TOLD_AT_ONCE: usize = 4;
/// To how many others: a cold one is restored, which takes a connection of the ledger.
const SENT_AT_ONCE: usize = 4;
/// How often a cold tenant is restored to tell it a capacity.
const TRIES: usize = 3;

/// A quota whose capacity the gate lacks, and the version that it lacks.
type Untold = (TenantId, MeterId, u64);

impl Memory {
    /// Sends the quota's capacity to the gate, as it is booked now, and notes that it has it. Nothing is sent for
    /// a period that is not open: the first call opens it.
    ///
    /// A cold tenant is restored first. A restore under way may have read the books before the change and would write
    /// the capacity of that time; once the tenant is warm, none writes any more.
    pub(in crate::operations) async fn send_capacity(
        &self,
        entry: &TenantEntry,
        meter: &MeterId,
        version: u64,
    ) -> Answer<()> {
        let tenant = &entry.definition.id;
        let Some(quota) = quota_of(entry, meter, self.core.gate_now_ms()) else {
            return Ok(self.core.ledger.note_told(tenant, meter, version).await?);
        };
        let start_ms = quota.window().map_or(0, |window| window.start_ms);
        for _ in 0..TRIES {
            let Some(booked) = self.core.ledger.quota_capacity(tenant, meter, start_ms).await? else {
                return Ok(self.core.ledger.note_told(tenant, meter, version).await?);
            };
            let told = booked.version;
            let capacity = at_gate(quota.field, booked);
            let now_ms = self.core.script_now();
            match self.core.gate.set_capacity(entry.partition, tenant, &capacity, now_ms).await? {
                RestoreOutcome::StillCold => self.warm_up(entry).await?,
                RestoreOutcome::Done | RestoreOutcome::AlreadyWarm => {
                    return Ok(self.core.ledger.note_told(tenant, meter, told).await?);
                }
            }
        }
        Err(OperationError::GateUnavailable(format!("tenant {tenant} was cold again and again")))
    }

    async fn warm_up(&self, entry: &TenantEntry) -> Answer<()> {
        let last_id = self.core.gate.last_event(entry.partition).await?.unwrap_or_default();
        let Some(epoch) = self.core.gate.epoch(entry.partition) else { return Ok(()) };
        self.restore_cold_tenant(entry, epoch, last_id, self.core.gate_now_ms()).await
    }

    /// Sends every capacity that the gate lacks. Returns how many it has now.
    pub async fn send_untold_capacities(&self) -> Answer<u64> {
        let mut left = LeftPartitions::default();
        let told = self.send_untold_except(&mut left).await?;
        left.end_run(told)
    }

    /// [`Self::send_untold_capacities`] but to partitions that are left; those of them for which a server is away are
    /// left too.
    pub(in crate::operations) async fn send_untold_except(&self, left: &mut LeftPartitions) -> Answer<u64> {
        let (mut told, mut after) = (0, None);
        loop {
            let mut page = self.core.ledger.untold_capacities(after.as_ref(), UNTOLD_PAGE).await?;
            let Some((tenant, meter, _)) = page.last() else { return Ok(told) };
            after = Some((tenant.clone(), meter.clone()));
            // Those of a partition stand together. While the gate gets some, others are read.
            page.sort_by_cached_key(|(tenant, ..)| self.core.gate.partition_of(tenant));
            let parts: Vec<_> = page.chunks(READ_AT_ONCE).map(<[_]>::to_vec).collect();
            let sending = stream::iter(parts).map(|some| self.send_to_warm(some));
            let sent: Vec<_> = sending.buffer_unordered(READS_AT_ONCE).try_collect().await?;
            for (sent, unsent) in sent {
                told += sent + self.send_each(&unsent, left).await;
            }
        }
    }

    /// Sends these to the tenants that are warm, all read and noted at once. Returns how many the gate has now, and
    /// those that are left.
    async fn send_to_warm(&self, untold: Vec<Untold>) -> Answer<(u64, Vec<Untold>)> {
        self.core.policy.read_ahead(untold.iter().map(|(tenant, ..)| tenant)).await;
        let (now_ms, mut quotas) = (self.core.gate_now_ms(), HashMap::new());
        for (tenant, meter, _) in &untold {
            let entry = self.core.policy.find_tenant(tenant).await.ok().flatten();
            if let Some(quota) = entry.and_then(|entry| quota_of(&entry, meter, now_ms)) {
                let start_ms = quota.window().map_or(0, |window| window.start_ms);
                quotas.insert((tenant.clone(), meter.clone(), start_ms), quota.field);
            }
        }
        // What cannot be read together is read one by one, so that the others go on.
        let booked = self.core.ledger.quota_capacities(quotas.keys().cloned().collect()).await;
        let capacity = |(key, booked): (PeriodKey, BookedCapacity)| {
            let field = quotas.get(&key).copied();
            field.map(|field| ((key.0, key.1), at_gate(field, booked)))
        };
        let mut capacities: HashMap<_, _> =
            booked.unwrap_or_default().into_iter().filter_map(capacity).collect();
        let (mut told, mut left, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for untold in untold {
            match capacities.remove(&(untold.0.clone(), untold.1.clone())) {
                Some(capacity) => changed.push((untold, capacity)),
                None => left.push(untold),
            }
        }
        let partition_of = |(untold, _): &(Untold, _)| self.core.gate.partition_of(&untold.0);
        let of_partitions = changed.chunk_by(|one, next| partition_of(one) == partition_of(next));
        let calls: Vec<_> =
            of_partitions.flat_map(|some| some.chunks(TOLD_TOGETHER)).map(<[_]>::to_vec).collect();
        let sending = stream::iter(calls).map(|some| self.send_together(some));
        let mut sending = sending.buffer_unordered(TOLD_AT_ONCE);
        while let Some((sent, unsent)) = sending.next().await {
            told.extend(sent);
            left.extend(unsent);
        }
        // In one order, so that two transactions never wait for each other.
        told.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        self.core.ledger.note_all_told(&told).await?;
        Ok((u64::try_from(told.len()).unwrap_or(u64::MAX), left))
    }

    /// Sends capacities to warm tenants of one partition in one call. Returns the versions that the gate has now, and
    /// what is left to do: all of it where one of them cannot be written.
    async fn send_together(&self, capacities: Vec<(Untold, QuotaCapacity)>) -> (Vec<Untold>, Vec<Untold>) {
        let (mut sent, mut left) = (Vec::new(), Vec::new());
        let Some(((tenant, ..), _)) = capacities.first() else { return (sent, left) };
        let partition = self.core.gate.partition_of(tenant);
        let named: Vec<_> = capacities.iter().map(|((tenant, ..), capacity)| (tenant, capacity)).collect();
        let outcomes = self.core.gate.set_capacities(partition, &named, self.core.script_now()).await;
        let outcomes = outcomes.unwrap_or_else(|_| vec![RestoreOutcome::StillCold; capacities.len()]);
        for ((untold, capacity), outcome) in capacities.into_iter().zip(outcomes) {
            match outcome {
                RestoreOutcome::StillCold => left.push(untold),
                RestoreOutcome::Done | RestoreOutcome::AlreadyWarm => {
                    sent.push((untold.0, untold.1, capacity.version));
                }
            }
        }
        (sent, left)
    }

    /// Sends these one by one, a few tenants at once. Returns how many the gate has now.
    async fn send_each(&self, untold: &[Untold], left: &mut LeftPartitions) -> u64 {
        let mut told = 0;
        for some in untold.chunks(SENT_AT_ONCE) {
            let may_be_sent = |(tenant, ..): &&Untold| !left.has(self.core.gate.partition_of(tenant));
            let some: Vec<_> = some.iter().filter(may_be_sent).collect();
            let sending = some.into_iter().map(async |(tenant, meter, version)| {
                (tenant, self.send_untold(tenant, meter, *version).await)
            });
            for (tenant, sent) in join_all(sending).await {
                match sent {
                    Ok(()) => told += 1,
                    Err(error) => {
                        let (partition, item) =
                            (self.core.gate.partition_of(tenant), format!("tenant {tenant}"));
                        left.go_on(partition, error, (&self.core.damage, Work::Capacity, &item)).await;
                    }
                }
            }
        }
        told
    }

    async fn send_untold(&self, tenant: &TenantId, meter: &MeterId, version: u64) -> Answer<()> {
        match self.core.policy.find_tenant(tenant).await? {
            Some(entry) => self.send_capacity(&entry, meter, version).await,
            None => Ok(self.core.ledger.note_told(tenant, meter, version).await?),
        }
    }
}

/// A capacity as the gate stores it.
pub(super) fn at_gate(field: CounterField, booked: BookedCapacity) -> QuotaCapacity {
    let BookedCapacity { version, parts, bounds_ms, until_ms } = booked;
    QuotaCapacity { field, version, parts, bounds_ms, until_ms }
}

/// The quota's own period, as policy has it now.
pub(super) fn period_of(entry: &TenantEntry, quota: &Counter) -> Option<QuotaPeriod> {
    let window = quota.window()?;
    let of_policy = entry.policy.period_terms(&quota.meter).unwrap_or_default();
    Some(QuotaPeriod {
        decimals: quota.decimals,
        period_ms: (window.start_ms, window.end_ms),
        terms: PeriodTerms { included: quota.capacity, ..of_policy },
        tenant_version: entry.version,
    })
}

/// The tenant's quota of this meter, in the period of `at_ms`.
pub(super) fn quota_of(entry: &TenantEntry, meter: &MeterId, at_ms: i64) -> Option<Counter> {
    // Computed apart: the entry keeps the current windows.
    entry.policy.quota_counter(meter, at_ms, &entry.calendars.windows(at_ms))
}
