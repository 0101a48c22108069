//! After an epoch change: every tenant with open holds is restored, so that these expire although nobody calls.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{Answer, OperationError, Operations};
use crate::domain::ids::Partition;
use crate::ledger::{Cursor, OpenHolder};

const PAGE: usize = 200;
/// Between two restores, so that tenants who call find the servers free: at most some hundred a second.
const PAUSE: Duration = Duration::from_millis(3);
/// How often the writer is looked after while it books the rests of older epochs.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long calls that restore a tenant of their own are let go first.
const GIVE_WAY_MAX: Duration = Duration::from_millis(200);

/// What was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RestoredHolds {
    /// Tenants.
    pub tenants: u64,
    /// Subjects named by holds.
    pub subjects: u64,
}

impl Operations {
    /// Restores every tenant, and every subject, that a hold of an older epoch names and the gate does not know: partition
    /// by partition, as the writer has booked what older epochs left there. What fails does not keep the others waiting.
    pub async fn restore_open_holds(&self) -> Answer<RestoredHolds> {
        self.know_epochs().await?;
        let mut rests = HashMap::new();
        for partition in Partition::all(self.partitions()) {
            let last_id = self.gate.partition_facts(partition).await?.last_id.unwrap_or_default();
            rests.insert(partition, last_id);
        }
        let mut told = RestoredHolds::default();
        let mut failed = None;
        while !rests.is_empty() {
            let cursors = self.ledger.cursors().await?;
            let is_booked = |cursor: &Cursor| {
                rests.get(&cursor.partition).is_some_and(|last_id| cursor.settles(*last_id))
            };
            let booked: HashSet<_> =
                cursors.iter().filter(|cursor| is_booked(cursor)).map(|cursor| cursor.partition).collect();
            if booked.is_empty() {
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
            rests.retain(|partition, _| !booked.contains(partition));
            failed = self.restore_holds_of(&booked, &mut told).await?.or(failed);
        }
        failed.map_or(Ok(told), Err)
    }

    /// Goes through the holders of these partitions; answers the last failure, if there was one.
    async fn restore_holds_of(
        &self,
        partitions: &HashSet<Partition>,
        told: &mut RestoredHolds,
    ) -> Answer<Option<OperationError>> {
        let (mut after, mut failed) = (None, None);
        loop {
            let mut page = self.ledger.holders_of_older_epochs(after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(failed) };
            after = Some(last.tenant.clone());
            page.retain(|holder| partitions.contains(&self.gate.partition_of(&holder.tenant)));
            let warm = self.warm_holders(&page).await?;
            for (holder, warm) in page.iter().zip(warm) {
                if let Err(error) = self.restore_holder(holder, &warm, told).await {
                    tracing::warn!(tenant = %holder.tenant, %error, "a tenant with open holds could not be restored yet");
                    failed = Some(error);
                }
            }
        }
    }

    /// Another instance may have issued epochs that no call of this one has met yet.
    async fn know_epochs(&self) -> Answer<()> {
        let rows = self.ledger.epochs().await?;
        if rows.iter().any(|row| self.gate.epoch(row.partition) != Some(row.epoch)) {
            self.verify_node().await?;
        }
        Ok(())
    }

    /// For each holder whether its tenant, and each of its subjects, is warm.
    async fn warm_holders(&self, holders: &[OpenHolder]) -> Answer<Vec<Vec<bool>>> {
        let mut asked = Vec::new();
        for holder in holders {
            let partition = self.gate.partition_of(&holder.tenant);
            asked.push((partition, &holder.tenant, None));
            let hashes =
                holder.subjects.iter().map(|subject| self.gate.subject_hash(&holder.tenant, subject));
            asked.extend(hashes.map(|hash| (partition, &holder.tenant, Some(hash))));
        }
        let mut answers = self.gate.are_warm(&asked).await?.into_iter();
        Ok(holders.iter().map(|holder| answers.by_ref().take(1 + holder.subjects.len()).collect()).collect())
    }

    async fn restore_holder(
        &self,
        holder: &OpenHolder,
        warm: &[bool],
        told: &mut RestoredHolds,
    ) -> Answer<()> {
        let Some((tenant_warm, subjects_warm)) = warm.split_first() else { return Ok(()) };
        if warm.iter().all(|warm| *warm) {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
        self.restores.give_way(GIVE_WAY_MAX).await;
        let entry = self.policy.tenant(&holder.tenant).await?;
        let (_one_at_a_time, waited) = self.enter_restore(&holder.tenant).await?;
        let now_ms = self.gate_now_ms();
        if !tenant_warm && !waited {
            self.restore_tenant(&entry, now_ms).await?;
            told.tenants += 1;
        }
        let cold = holder.subjects.iter().zip(subjects_warm).filter(|(_, warm)| !**warm);
        for (subject, _) in cold {
            let hash = self.gate.subject_hash(&holder.tenant, subject);
            self.restore_subject(&entry, subject, hash, now_ms).await?;
            told.subjects += 1;
        }
        Ok(())
    }
}
