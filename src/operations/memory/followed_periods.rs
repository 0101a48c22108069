//! Periods that were opened ahead follow policy until they begin.

use std::collections::{BTreeMap, BTreeSet};

use super::Memory;
use crate::domain::ids::{MeterId, Partition, TenantId};
use crate::operations::error::{Answer, OperationError};

/// How many periods are read at once.
const PAGE: usize = 2_000;
/// How many follow in one transaction, which holds up their tenants.
const CHUNK: usize = 200;

impl Memory {
    /// Has the periods of one tenant or of all that were opened ahead follow what has changed of policy before they
    /// begin, also where they have begun since. Capacities are not sent. Returns the quotas that have changed.
    pub(in crate::operations) async fn follow_policy(
        &self,
        tenant: Option<&TenantId>,
    ) -> Answer<BTreeSet<(TenantId, MeterId)>> {
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
                    match self.core.ledger.follow_policy(partition, chunk.to_vec(), now_ms).await {
                        Ok(done) => {
                            changed.extend(done.changed);
                            self.report_unread(done.unread).await?;
                        }
                        Err(error) => {
                            self.unless_away(&format!("partition {partition}"), error.into()).await?;
                        }
                    }
                }
            }
        }
    }

    async fn report_unread(&self, tenants: BTreeSet<TenantId>) -> Answer<()> {
        for tenant in tenants {
            let why = OperationError::Internal("what it had before its next period cannot be read".into());
            self.unless_away(&format!("tenant {tenant}"), why).await?;
        }
        Ok(())
    }
}
