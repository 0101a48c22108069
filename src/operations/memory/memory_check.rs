//! The memory check: checks a node after an alarm, issues new epochs where memory may be lost, and only then loads the
//! scripts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::clock::Clock;
use crate::domain::ids::{Epoch, OutboxId, Partition};
use crate::gate::{BreakerState, GateError};
use crate::ledger::PartitionRow;
use crate::ledger::lease::Lease;
use crate::operations::core::Core;
use crate::operations::error::{Answer, OperationError};
use crate::telemetry::labels::Alarm;

/// No period is closed yet, so scripts may count at any time.
const NO_FLOOR_MS: i64 = 0;
const CHECK_LEASE: &str = "check/node";
/// Renewed after a third of this.
const CHECK_LEASE_DURATION: Duration = Duration::from_secs(2);
const CHECK_LEASE_RETRY: Duration = Duration::from_millis(20);
/// How long a check waits for those of other instances.
const CHECK_LEASE_WAIT: Duration = Duration::from_secs(6);
/// How long a server that was refused is not looked at again: each call would otherwise wait for a look.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// What the gate has of a partition.
struct Found {
    epoch: Option<Epoch>,
    last_id: Option<OutboxId>,
}

/// One check runs at a time; callers that met the same alarm wait for it and share its result.
pub struct MemoryCheck {
    core: Arc<Core>,
    checking: Mutex<()>,
    checks: AtomicU64,
    /// How many checks have ended, with or without success.
    ended: AtomicU64,
    /// Whether memory may be lost: an alarm was met, and no check has succeeded since.
    in_doubt: AtomicBool,
    /// When a server was refused, and why.
    refused: std::sync::Mutex<Option<(Instant, String)>>,
}

impl MemoryCheck {
    /// No check yet.
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            checking: Mutex::default(),
            checks: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            in_doubt: AtomicBool::new(false),
            refused: std::sync::Mutex::default(),
        }
    }

    /// Whether the gate's memory may be lost, as far as this instance knows.
    pub(in crate::operations) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Acquire)
    }

    /// Checks every partition of the node and makes the node usable. When its memory is proven intact, only the scripts
    /// are loaded; otherwise every partition gets a new epoch first. Called at start and after an alarm.
    ///
    /// Errors: the gate or the ledger does not answer; then nothing is trusted.
    pub async fn verify_node(&self) -> Answer<()> {
        let seen = self.checks.load(Ordering::Acquire);
        let ended = self.ended.load(Ordering::Acquire);
        let _one_at_a_time = self.checking.lock().await;
        if self.checks.load(Ordering::Acquire) != seen {
            return Ok(());
        }
        if self.ended.load(Ordering::Acquire) != ended {
            // A crowd of callers that tried one after the other would wait for as many timeouts.
            return Err(OperationError::GateUnavailable("the check of its memory has just failed".into()));
        }
        if let Some(why) = self.refusal() {
            return Err(OperationError::GateUnavailable(why));
        }
        self.alone_among_instances(self.check_node()).await
    }

    /// Runs the check under a lease. Without it, two instances that check the same node would each take the other's
    /// half-raised epochs for lost memory and raise them again without end. A lease of a dead instance delays others
    /// only until it ends.
    async fn alone_among_instances(&self, check: impl Future<Output = Answer<()>>) -> Answer<()> {
        let checked = self.under_lease(check).await;
        if checked.is_ok() {
            // In this order: who meets an alarm after the second line begins a check of its own.
            self.checks.fetch_add(1, Ordering::AcqRel);
            self.in_doubt.store(false, Ordering::Release);
        }
        self.ended.fetch_add(1, Ordering::AcqRel);
        checked
    }

    async fn under_lease(&self, check: impl Future<Output = Answer<()>>) -> Answer<()> {
        let owner = self.core.instance.owner("check");
        let lease = Lease::new(self.core.ledger.clone(), CHECK_LEASE, owner, CHECK_LEASE_DURATION);
        let began = Clock::monotonic();
        while !lease.take().await? {
            // Where Postgres's clock was set back, a lease that nobody holds ends late.
            if began.elapsed() > CHECK_LEASE_WAIT {
                return Err(OperationError::GateUnavailable("other instances check its memory".into()));
            }
            if self.core.gate.breaker_state() != BreakerState::Closed {
                return Err(OperationError::GateUnavailable("it does not answer".into()));
            }
            tokio::time::sleep(CHECK_LEASE_RETRY).await;
        }
        let checked = tokio::select! {
            checked = check => checked,
            // Without the lease, two checks would each take the other's half-adopted epochs for lost memory.
            () = lease.lost() => {
                Err(OperationError::GateUnavailable("another instance checks its memory by now".into()))
            }
        };
        lease.give_back().await;
        checked
    }

    /// Begins without a check, because the gate does not answer yet: the epochs are the ledger's, no memory is trusted,
    /// and the first call that reaches the gate checks the node.
    pub(in crate::operations) async fn begin_unchecked(&self) -> Answer<()> {
        self.in_doubt.store(true, Ordering::Release);
        for row in self.core.ledger.epochs().await? {
            self.core.gate.set_epoch(row.partition, row.epoch);
        }
        self.compare_host().await;
        Ok(())
    }

    /// Compares this host's clock with Postgres's while it stands in for Redis's.
    async fn compare_host(&self) {
        let Core { gate, ledger, wall_clock, .. } = &*self.core;
        if gate.has_measured_time() {
            return;
        }
        let before_ms = wall_clock.now_ms();
        if let Ok(ledger_ms) = ledger.now_ms().await {
            gate.compare_host(ledger_ms, (before_ms, wall_clock.now_ms()));
        }
    }

    /// Checks the node where memory is in doubt though the gate answers: an instance whose calls meet no alarm any
    /// more, because another one has checked, would go on doubting.
    pub async fn check_again(&self) {
        self.compare_host().await;
        if !self.is_in_doubt() || self.core.gate.breaker_state() != BreakerState::Closed {
            return;
        }
        match self.verify_node().await {
            Ok(()) => {}
            Err(OperationError::GateUnavailable(why)) => {
                tracing::debug!(why, "the gate's memory is still in doubt");
            }
            Err(error) => tracing::error!(%error, "the gate's memory cannot be checked"),
        }
    }

    /// Why the server that answers was refused, if that was just now.
    fn refusal(&self) -> Option<String> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.as_ref().filter(|(at, _)| at.elapsed() < REFUSED_FOR).map(|(_, why)| why.clone())
    }

    /// Another server may answer by now, so it is looked at as at the start.
    async fn run_id(&self) -> Answer<String> {
        self.core.gate.meet().await.map_err(|error| match error {
            GateError::UnsafeServer(sentence) => {
                tracing::error!(sentence, "the gate is not used");
                self.refuse(&sentence);
                OperationError::GateUnavailable(sentence)
            }
            other => other.into(),
        })
    }

    async fn check_node(&self) -> Answer<()> {
        let run_id = self.run_id().await?;
        let rows = self.core.ledger.epochs().await?;
        let found = self.memory_of(&rows).await?;
        refuse_memory_of_others(&rows, &found)?;
        if rows.iter().zip(&found).all(|(row, facts)| self.kept_its_memory(row, facts, &run_id)) {
            for row in &rows {
                self.core.gate.set_epoch(row.partition, row.epoch);
                self.core.gate.note_cursor(row.partition, row.cursor);
            }
        } else {
            self.begin_epochs(&rows, &found, &run_id).await?;
        }
        self.load_scripts(&run_id).await
    }

    /// Loads the scripts, unless another server answers by now.
    async fn load_scripts(&self, run_id: &str) -> Answer<()> {
        self.core.gate.load_scripts(run_id).await?;
        if self.run_id().await? == run_id {
            return Ok(());
        }
        self.core.gate.forget_scripts();
        Err(OperationError::GateUnavailable("another server answers by now".into()))
    }

    /// Notes why the server that answers is refused.
    fn refuse(&self, why: &str) {
        let refused = Some((Instant::now(), why.to_owned()));
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }

    /// What the gate has of these partitions, in the same order. An outbox that cannot be read counts as one that has
    /// lost its events: it does not keep other partitions from being used, nor call for a new epoch at every check.
    ///
    /// Errors: the gate does not answer, or a `meta` cannot be read: no epoch could be adopted there.
    async fn memory_of(&self, rows: &[PartitionRow]) -> Answer<Vec<Found>> {
        let mut found = Vec::with_capacity(rows.len());
        for PartitionRow { partition, .. } in rows {
            let meta = self.core.gate.meta_facts(*partition).await;
            let meta = meta.map_err(|error| self.unreadable(*partition, error))?;
            let last_id = self.core.gate.last_readable_event(*partition).await?;
            found.push(Found { epoch: meta.epoch, last_id });
        }
        Ok(found)
    }

    /// Refuses a node of which the `meta` of a partition cannot be read.
    fn unreadable(&self, partition: Partition, error: GateError) -> OperationError {
        match error {
            GateError::Undecodable(what) => {
                tracing::error!(%partition, %what, "the memory of a partition is damaged: the gate is not used");
                let damaged = OperationError::DamagedMemory(partition);
                self.refuse(&damaged.to_string());
                damaged
            }
            error => error.into(),
        }
    }

    /// The newest epoch of a partition that the gate has or that this instance knows, if it is newer than the one that
    /// was issued last: the ledger has lost it.
    fn lost_by_ledger(&self, row: &PartitionRow, facts: &Found) -> Option<Epoch> {
        facts.epoch.max(self.core.gate.epoch(row.partition)).filter(|epoch| *epoch > row.epoch)
    }

    /// Begins a new epoch of each partition; `found` is what the gate has of it.
    async fn begin_epochs(&self, rows: &[PartitionRow], found: &[Found], run_id: &str) -> Answer<()> {
        // An epoch that cannot be adopted would be issued again at every check.
        if let Err(error) = self.core.gate.ask_for_writes().await {
            self.refuse(&error.to_string());
            return Err(error.into());
        }
        let mut from = Vec::with_capacity(rows.len());
        for (row, facts) in rows.iter().zip(found) {
            let lost = self.lost_by_ledger(row, facts);
            if let Some(Epoch(epoch)) = lost {
                tracing::error!(partition = %row.partition, epoch, "the ledger has lost this epoch: it is issued again");
            }
            from.push((row.partition, row.epoch, lost.unwrap_or(row.epoch)));
        }
        for (partition, issued) in self.core.ledger.raise_epochs(&from, run_id).await? {
            let adopted = self.core.gate.adopt(partition, issued, NO_FLOOR_MS, self.sweep_start()).await?;
            self.core.gate.set_epoch(partition, adopted);
        }
        self.core.metrics.epoch_changed(u64::try_from(rows.len()).unwrap_or(u64::MAX));
        if rows.iter().all(|row| row.epoch == Epoch(0)) {
            tracing::info!(
                run_id,
                partitions = rows.len(),
                "a new installation: the first epoch of every partition"
            );
        } else {
            tracing::warn!(
                run_id,
                partitions = rows.len(),
                "the gate's memory is in doubt: new epochs for every partition, tenants are restored at their next call"
            );
        }
        // The transaction that issued the epochs made the jobs due; this only wakes those that wait for them.
        if let Err(error) = self.core.ledger.wake_jobs().await {
            tracing::debug!(%error, "the jobs were not woken; they look for due work by themselves");
        }
        Ok(())
    }

    /// The time from which a memory without a sweep is swept. While Redis's clock is not trusted it is the earlier of
    /// both clocks, because holds before the later one would return late.
    fn sweep_start(&self) -> Option<i64> {
        let Core { gate, wall_clock, .. } = &*self.core;
        let earlier = || gate.redis_time_ms().min(wall_clock.now_ms());
        self.core.script_now().or_else(|| (!gate.trusts_time()).then(earlier))
    }

    /// Whether the partition kept its memory: same server process, same epoch, and an outbox that reaches at least as
    /// far as the highest known id.
    fn kept_its_memory(&self, row: &PartitionRow, facts: &Found, run_id: &str) -> bool {
        let known = row.cursor.max(self.core.gate.highest_known(row.partition));
        row.run_id == run_id
            && row.epoch != Epoch(0)
            && facts.epoch == Some(row.epoch)
            && self.lost_by_ledger(row, facts).is_none()
            && outbox_reaches(facts.last_id, known, row.epoch)
    }

    /// Handles a writer's finding: the outbox no longer holds the event booked last, at `cursor`. No other check
    /// reveals that, so a new epoch is issued whatever the node says, unless one has been issued since.
    pub async fn doubt(&self, partition: Partition, cursor: OutboxId) -> Answer<()> {
        self.in_doubt.store(true, Ordering::Release);
        let _one_at_a_time = self.checking.lock().await;
        if let Some(epoch) = self.core.gate.epoch(partition).filter(|epoch| *epoch > cursor.epoch) {
            let rows = self.core.ledger.epochs().await?;
            // One that the ledger has lost is not issued.
            if rows.iter().any(|row| row.partition == partition && row.epoch >= epoch) {
                return Ok(());
            }
        }
        self.alone_among_instances(self.renew_node(partition, cursor)).await
    }

    async fn renew_node(&self, partition: Partition, cursor: OutboxId) -> Answer<()> {
        let rows = self.core.ledger.epochs().await?;
        let found = self.memory_of(&rows).await?;
        // Where a newer epoch has begun, whether or not the ledger still has it, its events are to be booked.
        let has_begun = rows.iter().zip(&found).any(|(row, facts)| {
            row.partition == partition
                && (row.epoch > cursor.epoch || self.lost_by_ledger(row, facts).is_some())
        });
        if has_begun {
            return self.check_node().await;
        }
        let run_id = self.run_id().await?;
        self.begin_epochs(&rows, &found, &run_id).await?;
        if let Some(epoch) = self.core.gate.epoch(partition) {
            // What the old epoch still holds after the cursor is never booked, so nobody may wait for it.
            let dropped = self.core.gate.trim_outbox(partition, OutboxId { epoch, sequence: 0 }).await?;
            tracing::error!(%partition, %cursor, dropped, "events of the old epoch are dropped: they do not follow what was booked");
        }
        self.load_scripts(&run_id).await
    }

    /// Checks the node where a call met an alarm, so that the call can be retried; says why where the gate is away, or
    /// cannot be used because its memory could not be checked: then only the call knows what to do.
    ///
    /// Errors: the call failed for another reason.
    pub(in crate::operations) async fn after_failure(&self, error: GateError) -> Answer<Option<GateError>> {
        match error {
            GateError::Alarm { partition, reason } => {
                match Box::pin(self.after_alarm(partition, &reason)).await {
                    Ok(()) => Ok(None),
                    Err(OperationError::GateUnavailable(why)) => Ok(Some(GateError::Unavailable(why))),
                    Err(error) => Err(error),
                }
            }
            error if error.is_away() || matches!(error, GateError::NoEpoch(_)) => Ok(Some(error)),
            error => Err(error.into()),
        }
    }

    /// Handles an alarm that a call met: checks the node, or says that the gate cannot decide.
    pub async fn after_alarm(&self, partition: Partition, reason: &str) -> Answer<()> {
        self.in_doubt.store(true, Ordering::Release);
        if self.refusal().is_none() {
            self.core.metrics.alarm(Alarm::Memory);
            tracing::warn!(%partition, reason, "alarm: the gate may have lost memory; checking the node");
        }
        let checked = self.verify_node().await;
        if checked.is_err() {
            // Another check may have succeeded since this alarm.
            self.in_doubt.store(true, Ordering::Release);
        }
        checked.map_err(|error| match error {
            OperationError::LedgerUnavailable(why) => OperationError::GateUnavailable(format!(
                "its memory is in doubt and the ledger cannot be asked: {why}"
            )),
            unusable @ (OperationError::ForeignMemory | OperationError::DamagedMemory(_)) => {
                OperationError::GateUnavailable(unusable.to_string())
            }
            other => other,
        })
    }
}

/// A ledger that never issued an epoch does not take over what a gate has: it would book what another one has booked.
fn refuse_memory_of_others(rows: &[PartitionRow], found: &[Found]) -> Answer<()> {
    let is_new = |row: &PartitionRow| row.epoch == Epoch(0) && row.cursor == OutboxId::default();
    let is_used = |facts: &Found| facts.epoch.is_some() || facts.last_id.is_some();
    if rows.iter().all(is_new) && found.iter().any(is_used) {
        return Err(OperationError::ForeignMemory);
    }
    Ok(())
}

/// Whether an outbox that ends at `last` still has everything up to the known end of `epoch`. What an older epoch lacks
/// is why this one was issued. It is no reason for yet another: an idle partition would then get one at every check.
fn outbox_reaches(last: Option<OutboxId>, known: OutboxId, epoch: Epoch) -> bool {
    known.epoch < epoch || last.is_some_and(|last| last >= known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::nothing_yet(None, "0-0", true)]
    #[case::as_far_as_known(Some("2-7"), "2-7", true)]
    #[case::further(Some("2-8"), "2-7", true)]
    #[case::emptied(None, "2-7", false)]
    #[case::gone_back(Some("2-6"), "2-7", false)]
    #[case::the_old_epoch_lost_its_tail(Some("1-4"), "1-7", true)]
    #[case::the_old_epoch_was_emptied(None, "1-7", true)]
    fn what_an_older_epoch_lost_does_not_call_for_another_epoch(
        #[case] last: Option<&str>,
        #[case] known: &str,
        #[case] reaches: bool,
    ) {
        let at = |text: &str| text.parse::<OutboxId>().unwrap();
        assert_eq!(outbox_reaches(last.map(at), at(known), Epoch(2)), reaches);
    }
}
