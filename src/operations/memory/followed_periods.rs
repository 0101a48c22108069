//! Periods that were opened ahead follow policy until they begin.

use std::collections::{BTreeMap, BTreeSet};

use super::Memory;
use crate::domain::ids::{MeterId, Partition, TenantId};
use crate::ledger::PeriodKey;
use crate::operations::damage::Work;
use crate::operations::error::{Answer, OperationError};
use crate::operations::left_partitions::LeftPartitions;

/// How many periods are read at once.
const PAGE: usize = 2_000;
/// How many follow in one transaction, which holds up their tenants.
const CHUNK: usize = 200;

type Quotas = BTreeSet<(TenantId, MeterId)>;

impl Memory {
    /// Has the periods of one tenant or of all that were opened ahead follow what has changed of policy before they
    /// begin, also where they have begun since. Capacities are not sent. Returns the quotas that have changed.
    pub(in crate::operations) async fn follow_policy(
        &self,
        tenant: Option<&TenantId>,
        left: &mut LeftPartitions,
    ) -> Answer<Quotas> {
        let now_ms = self.core.clock.now_ms();
        let (mut changed, mut after) = (BTreeSet::new(), None);
        loop {
            let page = self.core.ledger.periods_to_follow(tenant, now_ms, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(changed) };
            after = Some(last.clone());
            let mut by_partition: BTreeMap<Partition, Vec<_>> = BTreeMap::new();
            for period in page {
                by_partition.entry(self.core.gate.partition_of(&period.0)).or_default().push(period);
            }
            for (partition, periods) in by_partition {
                for chunk in periods.chunks(CHUNK) {
                    if left.has(partition) {
                        break;
                    }
                    changed.extend(self.follow_chunk(partition, chunk, now_ms, left).await);
                }
            }
        }
    }

    /// Has these periods follow policy together or, where that fails, tenant by tenant.
    async fn follow_chunk(
        &self,
        partition: Partition,
        chunk: &[PeriodKey],
        now_ms: i64,
        left: &mut LeftPartitions,
    ) -> Quotas {
        match self.follow_together(partition, chunk, now_ms).await {
            Ok(changed) => return changed,
            Err(error) if error.may_be_of_one() => {}
            Err(error) => {
                left.leave(partition, error);
                return Quotas::new();
            }
        }
        let mut changed = Quotas::new();
        for periods in chunk.chunk_by(|one, next| one.0 == next.0) {
            let (Some((tenant, ..)), false) = (periods.first(), left.has(partition)) else { break };
            match self.follow_together(partition, periods, now_ms).await {
                Ok(some) => changed.extend(some),
                Err(error) => {
                    let item = format!("tenant {tenant}");
                    left.go_on(partition, error, (&self.core.damage, Work::NextPeriod, &item)).await;
                }
            }
        }
        changed
    }

    async fn follow_together(
        &self,
        partition: Partition,
        periods: &[PeriodKey],
        now_ms: i64,
    ) -> Answer<Quotas> {
        let done = self.core.ledger.follow_policy(partition, periods.to_vec(), now_ms).await?;
        for tenant in done.unread {
            let why = OperationError::Internal("what it had before its next period cannot be read".into());
            self.core.damage.pass_over(Work::NextPeriod, &format!("tenant {tenant}"), &why).await;
        }
        Ok(done.changed)
    }
}
