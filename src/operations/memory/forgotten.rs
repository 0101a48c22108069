//! Holds that are open in the books long after their end because the sweep cannot end them: the gate does not know
//! them, or their counters wait since an interrupted restore. Nothing else would ever end them.

use std::collections::HashSet;

use super::Memory;
use super::restore_open::RestoredHolds;
use crate::domain::reservation::Record;
use crate::ledger::{OpenTenant, OverdueHold};
use crate::operations::damage::Work;
use crate::operations::error::Answer;

/// The sweep ends holds within seconds. A hold open this long after its end was forgotten, or waits for a late sweep.
const OVERDUE_MS: i64 = 60_000;
const PAGE: usize = 500;
/// The most holds that one run looks at.
const LOOKED_AT_MAX: usize = 20_000;

impl Memory {
    /// Restores forgotten holds, and their counters, so that the sweep ends them. Returns how many. A partition that
    /// cannot take them now does not stop the others.
    ///
    /// Errors: the last one of a skipped partition; the holds of the other partitions are restored.
    pub async fn tell_forgotten_holds(&self) -> Answer<u64> {
        let before_ms = self.core.gate_now_ms().saturating_sub(OVERDUE_MS).max(0);
        let (mut told, mut looked_at, mut after) = (0, 0, None);
        let (mut stuck, mut failed) = (HashSet::new(), None);
        while looked_at < LOOKED_AT_MAX && self.core.gate.trusts_time() {
            let page = self.core.ledger.overdue_holds(before_ms, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            looked_at += page.len();
            for hold in &page {
                if stuck.contains(&hold.id.partition()) {
                    continue;
                }
                match self.tell_if_forgotten(hold).await {
                    Ok(was_forgotten) => told += u64::from(was_forgotten),
                    Err(error) if error.is_server_away() => {
                        stuck.insert(hold.id.partition());
                        failed = Some(error);
                    }
                    Err(error) => {
                        self.core
                            .damage
                            .pass_over(Work::Restore, &format!("reservation {}", hold.id), &error)
                            .await;
                    }
                }
            }
        }
        failed.map_or(Ok(told), Err)
    }

    async fn tell_if_forgotten(&self, hold: &OverdueHold) -> Answer<bool> {
        if let Some(record) = self.core.gate.peek_record(hold.id, None, self.core.script_now()).await?.record
        {
            return self.tell_holders_of(hold, &record).await;
        }
        let Some(row) = self.core.ledger.reservation(hold.id).await?.filter(|row| !row.quarantined) else {
            return Ok(false);
        };
        self.bring_back(row).await?;
        Ok(true)
    }

    /// Restores the tenant and the subjects of a hold that the gate knows, where they are cold or suspended.
    async fn tell_holders_of(&self, hold: &OverdueHold, record: &Record) -> Answer<bool> {
        let subjects = record.body.rest.iter().flat_map(|rest| &rest.subjects);
        let subjects = subjects.map(|(subject, _)| subject.clone()).collect();
        let holders = [OpenTenant { tenant: hold.tenant.clone(), subjects }];
        let warm = self.warm_holders(&holders).await?;
        if warm.iter().flatten().all(|warm| *warm) {
            return Ok(false);
        }
        let epoch = self.core.progress.settled_epoch(hold.id.partition()).await?;
        for (holder, warm) in holders.iter().zip(&warm) {
            self.restore_holder(holder, epoch, warm, &mut RestoredHolds::default()).await?;
        }
        Ok(true)
    }
}
