//! Grants that begin and end: booked when they have begun, cut at a boundary of the outbox, and settled when they have
//! ended.

use std::collections::BTreeMap;

use super::Memory;
use super::capacities::{period_of, quota_of};
use crate::domain::ids::{MeterId, OutboxId, Partition, TenantId};
use crate::ledger::{EndedPeriod, QuotaPeriod, StoredGrant};
use crate::operations::boundaries::Boundaries;
use crate::operations::damage::Work;
use crate::operations::error::{Answer, OperationError};
use crate::operations::left_partitions::LeftPartitions;
use crate::operations::policy_store::TenantEntry;

/// How many grants are read at once.
const PAGE: usize = 500;
/// How many quotas get an advance in one run, and in one transaction: the next run goes on.
const ADVANCED_MAX: usize = 20_000;
const ADVANCED_AT_ONCE: usize = 200;
/// How often a grant is begun again whose period was prepared by an older version of its tenant.
const BEGIN_TRIES: usize = 3;

/// What following the grants has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FollowedGrants {
    /// Grants that have begun and were booked.
    pub begun: u64,
    /// Grants that have ended and whose unburnt part was booked.
    pub settled: u64,
    /// Quotas that have grants ahead of the close that brings them.
    pub advanced: u64,
    /// Capacities that the gate has got.
    pub told: u64,
}

impl Memory {
    /// Books the grants of one tenant or of all that have begun, cuts those that begin or end, books what is unburnt of
    /// those that have ended, and advances those that go on after a period that has ended. Periods that were opened
    /// ahead follow policy before: what is unburnt depends on what they include. Capacities are not sent.
    pub(in crate::operations) async fn settle_grants(
        &self,
        tenant: Option<&TenantId>,
    ) -> Answer<FollowedGrants> {
        let mut left = LeftPartitions::default();
        let done = self.settle_grants_except(tenant, &mut left).await?;
        left.end(done)
    }

    /// [`Self::settle_grants`] but of partitions that are left; those of them for which a server is away are left too.
    pub(in crate::operations) async fn settle_grants_except(
        &self,
        tenant: Option<&TenantId>,
        left: &mut LeftPartitions,
    ) -> Answer<FollowedGrants> {
        self.follow_policy(tenant, left).await?;
        let now_ms = self.core.trusted_now_ms()?;
        let begun = self.begin_grants(tenant, now_ms, left).await?;
        self.cut_grants(tenant, now_ms, left).await?;
        let settled = self.settle_ended(tenant, now_ms, left).await?;
        let advanced = self.advance_grants(tenant, now_ms, left).await?;
        Ok(FollowedGrants { begun, settled, advanced, told: 0 })
    }

    /// Cuts the grants that begin or end by `now_ms`, and waits until the cuts are booked.
    async fn cut_grants(
        &self,
        tenant: Option<&TenantId>,
        now_ms: i64,
        left: &mut LeftPartitions,
    ) -> Answer<()> {
        let mut places = Vec::new();
        for (partition, instant_ms) in self.core.ledger.partitions_to_cut(tenant, now_ms).await? {
            if left.has(partition) {
                continue;
            }
            match self.core.append_boundary(partition, instant_ms).await {
                Ok(place) => places.extend(place.map(|place| (partition, place))),
                Err(error) => self.go_on_without(left, partition, error).await,
            }
        }
        for (partition, place) in places {
            if let Err(error) = self.core.progress.catch_up(partition, place).await {
                self.go_on_without(left, partition, error).await;
            }
        }
        Ok(())
    }

    /// Advances grants of one tenant or of all that go on after periods which have ended and are not closed.
    async fn advance_grants(
        &self,
        tenant: Option<&TenantId>,
        now_ms: i64,
        left: &mut LeftPartitions,
    ) -> Answer<u64> {
        let mut by_partition: BTreeMap<Partition, Vec<EndedPeriod>> = BTreeMap::new();
        for ended in self.core.ledger.periods_to_advance(tenant, now_ms, ADVANCED_MAX).await? {
            by_partition.entry(self.core.gate.partition_of(&ended.tenant)).or_default().push(ended);
        }
        let (mut advanced, boundaries) = (0, Boundaries::new(&self.core));
        for (partition, ended) in by_partition {
            let last_ms = ended.iter().map(|one| one.period.end_ms).max();
            let Some(last_ms) = last_ms.filter(|_| !left.has(partition)) else { continue };
            match boundaries.pass(partition, last_ms).await {
                Ok(Some(after)) => advanced += self.advance_in(partition, &ended, after, now_ms, left).await,
                Ok(None) => {}
                Err(error) => self.go_on_without(left, partition, error).await,
            }
        }
        Ok(advanced)
    }

    /// Advances the grants of a partition chunk by chunk or, where that fails, tenant by tenant.
    async fn advance_in(
        &self,
        partition: Partition,
        ended: &[EndedPeriod],
        after: OutboxId,
        now_ms: i64,
        left: &mut LeftPartitions,
    ) -> u64 {
        let mut advanced = 0;
        for chunk in ended.chunks(ADVANCED_AT_ONCE) {
            match self.advance_together(partition, chunk, after, now_ms).await {
                Ok(done) => {
                    advanced += done;
                    continue;
                }
                Err(error) if error.may_be_of_one() => {}
                Err(error) => left.leave(partition, error),
            }
            for some in chunk.chunk_by(|one, next| one.tenant == next.tenant) {
                let (Some(first), false) = (some.first(), left.has(partition)) else { return advanced };
                match self.advance_together(partition, some, after, now_ms).await {
                    Ok(done) => advanced += done,
                    Err(error) => {
                        let item = format!("tenant {}", first.tenant);
                        left.go_on(partition, error, (&self.core.damage, Work::Capacity, &item)).await;
                    }
                }
            }
        }
        advanced
    }

    async fn advance_together(
        &self,
        partition: Partition,
        ended: &[EndedPeriod],
        after: OutboxId,
        now_ms: i64,
    ) -> Answer<u64> {
        Ok(self.core.ledger.advance_grants(partition, ended, after, now_ms).await?)
    }

    /// Goes on without a partition.
    async fn go_on_without(&self, left: &mut LeftPartitions, partition: Partition, error: OperationError) {
        let item = format!("partition {partition}");
        left.go_on(partition, error, (&self.core.damage, Work::Capacity, &item)).await;
    }

    /// Books the grants of one tenant or of all that have begun by `now_ms`. Returns how many.
    pub(in crate::operations) async fn begin_grants(
        &self,
        tenant: Option<&TenantId>,
        now_ms: i64,
        left: &mut LeftPartitions,
    ) -> Answer<u64> {
        let (mut begun, mut after) = (0, None);
        loop {
            let due = self.core.ledger.grants_to_begin(tenant, now_ms, after, PAGE).await?;
            let Some(last) = due.last() else { return Ok(begun) };
            after = Some((last.effective_at_ms, last.id));
            for stored in due {
                let partition = self.core.gate.partition_of(&stored.tenant);
                if left.has(partition) {
                    continue;
                }
                let item = format!("grant {} of tenant {}", stored.id, stored.tenant);
                let booked = self.begin_grant(stored, now_ms).await;
                begun += self.counted(left, partition, &item, booked).await;
            }
        }
    }

    /// Books a grant that has begun. One whose tenant no longer has such a quota waits until it has one again, or until
    /// the end of the grant or of that period: then it never begins.
    async fn begin_grant(&self, stored: StoredGrant, now_ms: i64) -> Answer<bool> {
        let mut entry = self.core.policy.find_tenant(&stored.tenant).await?;
        for _ in 0..BEGIN_TRIES {
            let begins = entry.as_ref().and_then(|entry| {
                let period = quota_period(entry, &stored.meter, stored.effective_at_ms)?;
                Some((entry.partition, period))
            });
            let Some((partition, period)) = begins else {
                let period_of = |at_ms| entry.as_ref().map(|entry| entry.calendars.windows(at_ms).period);
                let period_end_ms =
                    period_of(stored.effective_at_ms).map_or(i64::MAX, |period| period.end_ms);
                let ended_at_ms = stored.expires_at_ms.min(period_end_ms);
                if ended_at_ms <= now_ms {
                    let ended_in = period_of(ended_at_ms);
                    self.core.ledger.forgo_grant(stored, ended_in, ended_at_ms, now_ms).await?;
                }
                return Ok(false);
            };
            let after = self.last_place(partition).await;
            match self.core.ledger.begin_grant(stored.clone(), period, now_ms, after).await {
                Ok(has_begun) => return Ok(has_begun),
                Err(refused) => entry = Some(self.core.policy.tenant_moved(refused).await?),
            }
        }
        // The tenant changes again and again: the next run begins it.
        Ok(false)
    }

    /// The place of the outbox's last event. A grant that begins now is cut after it: the writer may not have reached
    /// earlier boundaries yet, and would otherwise cut the grant there. The first place while the gate is away, when
    /// nothing is appended.
    pub(in crate::operations) async fn last_place(&self, partition: Partition) -> OutboxId {
        self.core.gate.last_event(partition).await.ok().flatten().unwrap_or_default()
    }

    async fn settle_ended(
        &self,
        tenant: Option<&TenantId>,
        now_ms: i64,
        left: &mut LeftPartitions,
    ) -> Answer<u64> {
        // What a lowered plan takes is known before what is left of grants that end later.
        self.settle_lowered(tenant, now_ms, left).await?;
        let settled = self.settle_at_cuts(tenant, now_ms, left).await?;
        Ok(settled + self.settle_unwound(tenant, now_ms, left).await?)
    }

    /// Books what is unburnt of grants at the cuts where they have ended. Returns of how many.
    async fn settle_at_cuts(
        &self,
        tenant: Option<&TenantId>,
        now_ms: i64,
        left: &mut LeftPartitions,
    ) -> Answer<u64> {
        let (mut settled, mut after) = (0, None);
        loop {
            let due = self.core.ledger.grants_to_settle(tenant, after.as_ref(), PAGE).await?;
            let Some(last) = due.last() else { return Ok(settled) };
            after = Some(last.clone());
            for (tenant, id) in due {
                let partition = self.core.gate.partition_of(&tenant);
                if left.has(partition) {
                    continue;
                }
                let item = format!("grant {id} of tenant {tenant}");
                let booked = self.core.ledger.settle_grant(tenant, id, now_ms).await;
                let booked = booked.map_err(OperationError::from);
                settled += self.counted(left, partition, &item, booked).await;
            }
        }
    }

    /// Books what use that was taken back leaves of grants that had ended: after what had ended before it, and before
    /// what has ended after it. Returns how often something was booked.
    async fn settle_unwound(
        &self,
        tenant: Option<&TenantId>,
        now_ms: i64,
        left: &mut LeftPartitions,
    ) -> Answer<u64> {
        let (mut settled, mut after) = (0, None);
        loop {
            let due = self.core.ledger.unwound_quotas(tenant, after.as_ref(), PAGE).await?;
            let Some(last) = due.last() else { return Ok(settled) };
            after = Some(last.clone());
            for quota in due {
                let partition = self.core.gate.partition_of(&quota.0);
                if left.has(partition) {
                    continue;
                }
                let item = format!("use of {} that was taken back of tenant {}", quota.1, quota.0);
                loop {
                    let booked = self.core.ledger.settle_unwound(quota.clone(), now_ms).await;
                    let booked = booked.map_err(OperationError::from);
                    if self.counted(left, partition, &item, booked).await == 0 {
                        break;
                    }
                    settled += 1 + self.settle_at_cuts(Some(&quota.0), now_ms, left).await?;
                }
            }
        }
    }

    /// Books what lowered plans take. Those that wait for an earlier close are tried again by the next run.
    async fn settle_lowered(
        &self,
        tenant: Option<&TenantId>,
        now_ms: i64,
        left: &mut LeftPartitions,
    ) -> Answer<()> {
        let mut after = None;
        loop {
            let due = self.core.ledger.lowered_to_settle(tenant, after, PAGE).await?;
            let Some(last) = due.last() else { return Ok(()) };
            after = Some((last.asked_at_ms, last.id));
            for change in due {
                let partition = self.core.gate.partition_of(&change.tenant);
                if left.has(partition) {
                    continue;
                }
                let item = format!("lowered quota {} of tenant {}", change.id, change.tenant);
                let booked = self.core.ledger.settle_lowered(change, now_ms).await;
                let booked = booked.map_err(OperationError::from);
                self.counted(left, partition, &item, booked).await;
            }
        }
    }

    /// Counts what was done of an item; goes on without one that was not.
    async fn counted(
        &self,
        left: &mut LeftPartitions,
        partition: Partition,
        item: &str,
        done: Answer<impl Into<u64> + Send>,
    ) -> u64 {
        match done {
            Ok(done) => done.into(),
            Err(error) => {
                left.go_on(partition, error, (&self.core.damage, Work::Capacity, item)).await;
                0
            }
        }
    }
}

/// The quota's period around `at_ms`, as policy has it now.
pub(in crate::operations) fn quota_period(
    entry: &TenantEntry,
    meter: &MeterId,
    at_ms: i64,
) -> Option<QuotaPeriod> {
    quota_of(entry, meter, at_ms).and_then(|quota| period_of(entry, &quota))
}
