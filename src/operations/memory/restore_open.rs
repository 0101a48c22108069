//! After an epoch change: restores every tenant with open holds, so that the holds expire even if nobody calls.

use std::collections::HashMap;
use std::time::Duration;

use super::Memory;
use crate::clock::Clock;
use crate::domain::ids::{Epoch, OutboxId, Partition};
use crate::gate::GateError;
use crate::ledger::{Cursor, OpenTenant};
use crate::operations::damage::Work;
use crate::operations::error::{Answer, OperationError};

const PAGE: usize = 200;
/// The pause between two restores, so that the servers are free for tenants that call: at most some hundred restores a
/// second.
const PAUSE: Duration = Duration::from_millis(3);
/// How often the cursors are read while the writer books the tails of older epochs.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long no awaited partition may make progress before the run ends and starts again.
const STANDSTILL_MAX: Duration = Duration::from_secs(30);
/// How long to wait for calls that restore their own tenants.
const GIVE_WAY_MAX: Duration = Duration::from_millis(200);

/// The number of restored tenants and subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RestoredHolds {
    /// Tenants.
    pub tenants: u64,
    /// Subjects named by holds.
    pub subjects: u64,
}

/// The epoch in force of a partition, and the place up to which it must be booked before its tenants are restored.
#[derive(Debug, Clone, Copy)]
struct Awaited {
    epoch: Epoch,
    last_id: OutboxId,
}

impl Memory {
    /// Restores every tenant and subject that is cold and named by a hold of an older epoch. Each partition's turn
    /// comes once the writer has booked the tails of its older epochs. A failure does not stop the others.
    ///
    /// Errors: `GateUnavailable` when an epoch ended meanwhile or the writer made no progress; what is restored stays
    /// restored.
    pub async fn restore_open_holds(&self) -> Answer<RestoredHolds> {
        let mut awaited = self.await_rests().await?;
        let mut told = RestoredHolds::default();
        let mut failed = None;
        let mut moved_at = Clock::monotonic();
        while !awaited.is_empty() {
            self.check_epochs(&awaited).await?;
            let settled = self.take_settled(&mut awaited).await?;
            if settled.is_empty() {
                if moved_at.elapsed() >= STANDSTILL_MAX {
                    return Err(unavailable("the ledger does not book what older epochs left in it"));
                }
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
            failed = self.restore_holds_of(&settled, &mut told).await?.or(failed);
            moved_at = Clock::monotonic();
        }
        failed.map_or(Ok(told), Err)
    }

    /// For each partition the epoch in force, and the end of its outbox in it.
    async fn await_rests(&self) -> Answer<HashMap<Partition, Awaited>> {
        self.know_epochs().await?;
        let mut awaited = HashMap::new();
        for partition in self.core.gate.partitions() {
            let epoch = self.core.gate.epoch(partition).ok_or(GateError::NoEpoch(partition))?;
            let last_id = match self.core.gate.last_event(partition).await {
                Err(GateError::Undecodable(what)) => {
                    self.core.damage.pass_over(Work::Restore, &format!("outbox of {partition}"), &what).await;
                    continue;
                }
                last => last?.unwrap_or_default(),
            };
            awaited.insert(partition, Awaited { epoch, last_id });
        }
        Ok(awaited)
    }

    /// Fails when an epoch has ended, because what was read in it does not hold in the next one.
    async fn check_epochs(&self, awaited: &HashMap<Partition, Awaited>) -> Answer<()> {
        self.know_epochs().await?;
        let is_over = |(partition, awaited): (&Partition, &Awaited)| {
            self.core.gate.epoch(*partition).is_none_or(|epoch| epoch != awaited.epoch)
        };
        if awaited.iter().any(is_over) {
            return Err(unavailable("its memory was lost while open holds were being restored"));
        }
        Ok(())
    }

    /// Takes out the partitions whose awaited events are all booked or abandoned, with their epochs.
    async fn take_settled(
        &self,
        awaited: &mut HashMap<Partition, Awaited>,
    ) -> Answer<HashMap<Partition, Epoch>> {
        let cursors = self.core.ledger.cursors().await?;
        let settled = |cursor: &Cursor| {
            let here = awaited.get(&cursor.partition)?;
            cursor.settles(here.last_id).then_some((cursor.partition, here.epoch))
        };
        let settled: HashMap<_, _> = cursors.iter().filter_map(settled).collect();
        awaited.retain(|partition, _| !settled.contains_key(partition));
        Ok(settled)
    }

    /// Restores the tenants with open holds in these partitions; returns the last failure, if any.
    async fn restore_holds_of(
        &self,
        settled: &HashMap<Partition, Epoch>,
        told: &mut RestoredHolds,
    ) -> Answer<Option<OperationError>> {
        let partitions: Vec<_> = settled.keys().copied().collect();
        let (mut after, mut failed) = (None, None);
        loop {
            let page = self.core.ledger.holders_of_older_epochs(&partitions, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(failed) };
            after = Some(last.tenant.clone());
            let warm = self.warm_holders(&page).await?;
            for (holder, warm) in page.iter().zip(warm) {
                let Some(epoch) = settled.get(&self.core.gate.partition_of(&holder.tenant)) else { continue };
                if let Err(error) = self.restore_holder(holder, *epoch, &warm, told).await {
                    if error.is_server_away() {
                        tracing::warn!(tenant = %holder.tenant, %error, "a tenant with open holds could not be restored yet");
                    } else {
                        self.core
                            .damage
                            .pass_over(Work::Restore, &format!("tenant {}", holder.tenant), &error)
                            .await;
                    }
                    failed = Some(error);
                }
            }
        }
    }

    /// Learns epochs that other instances have issued and no call of this one has met yet.
    async fn know_epochs(&self) -> Answer<()> {
        let rows = self.core.ledger.epochs().await?;
        if rows.iter().any(|row| self.core.gate.epoch(row.partition) != Some(row.epoch)) {
            self.check.verify_node().await?;
        }
        Ok(())
    }

    /// For each tenant whether it, and each of its subjects, is warm.
    pub(super) async fn warm_holders(&self, holders: &[OpenTenant]) -> Answer<Vec<Vec<bool>>> {
        let mut asked = Vec::new();
        for holder in holders {
            let partition = self.core.gate.partition_of(&holder.tenant);
            asked.push((partition, &holder.tenant, None));
            let hashes =
                holder.subjects.iter().map(|subject| self.core.gate.subject_hash(&holder.tenant, subject));
            asked.extend(hashes.map(|hash| (partition, &holder.tenant, Some(hash))));
        }
        let mut answers = self.core.gate.are_warm(&asked).await?.into_iter();
        Ok(holders.iter().map(|holder| answers.by_ref().take(1 + holder.subjects.len()).collect()).collect())
    }

    pub(super) async fn restore_holder(
        &self,
        holder: &OpenTenant,
        epoch: Epoch,
        warm: &[bool],
        told: &mut RestoredHolds,
    ) -> Answer<()> {
        let Some((tenant_warm, subjects_warm)) = warm.split_first() else { return Ok(()) };
        if warm.iter().all(|warm| *warm) {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
        self.turns.give_way(GIVE_WAY_MAX).await;
        let entry = self.core.policy.tenant(&holder.tenant).await?;
        let now_ms = self.core.gate_now_ms();
        if !tenant_warm {
            let turn = self.take_restore_turn(&holder.tenant, None).await?;
            if !turn.waited {
                self.restore_tenant(&entry, epoch, now_ms).await?;
                told.tenants += 1;
            }
        }
        let cold = holder.subjects.iter().zip(subjects_warm).filter(|(_, warm)| !**warm);
        let cold: Vec<_> = cold.map(|(subject, _)| subject).collect();
        self.restore_subjects(&entry, epoch, &cold, now_ms).await?;
        told.subjects += u64::try_from(cold.len()).unwrap_or(u64::MAX);
        Ok(())
    }
}

fn unavailable(why: &str) -> OperationError {
    OperationError::GateUnavailable(why.to_owned())
}
