//! Restores cold subjects alone: without the tenant's other holds, and only callers that need these subjects wait.

use std::collections::HashMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};

use super::Memory;
use super::told::{new_counters, warm_state};
use crate::clock::Clock;
use crate::domain::amount::Units;
use crate::domain::ids::{Epoch, OutboxId, ReservationId, Subject};
use crate::domain::policy::Resolved;
use crate::domain::reservation::{Record, SubjectHash};
use crate::gate::{KnownSubjects, SubjectFilter, WarmState};
use crate::ledger::TenantSnapshot;
use crate::operations::error::Answer;
use crate::operations::policy_store::TenantEntry;
use crate::telemetry::labels::Restored;

/// For a tenant with more subjects than this, the ledger is asked about every one that appears after a restore.
pub(super) const SUBJECTS_KNOWN_MAX: usize = 250_000;
/// How many subjects are read in one snapshot.
const READ_AT_ONCE: usize = 200;
/// How many of them are restored at once.
const TELL_AT_ONCE: usize = 16;
/// The pause between two snapshots, so that the servers are free for callers.
const PAUSE: Duration = Duration::from_millis(3);

/// Why a call needs a cold subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::operations) enum Asks {
    /// To count in its hash: it is restored with whatever the ledger has.
    Count,
    /// To count in a counter that its hash lacks, although it was restored: everything is restored again.
    Anew,
    /// To read it: where the ledger has nothing either, nothing is restored.
    Read,
}

/// A subject that a call found cold.
pub(in crate::operations) struct ColdSubject<'a> {
    pub(in crate::operations) epoch: Epoch,
    /// The place up to which the ledger must have booked before it is asked.
    pub(in crate::operations) last_id: OutboxId,
    pub(in crate::operations) subject: &'a Subject,
    pub(in crate::operations) hash: SubjectHash,
}

impl Memory {
    /// Restores one subject; returns whether it was restored, by this call or by another.
    pub(in crate::operations) async fn restore_cold_subject(
        &self,
        entry: &TenantEntry,
        cold: &ColdSubject<'_>,
        at_ms: i64,
        asks: Asks,
    ) -> Answer<bool> {
        let turn = self.take_restore_turn(&entry.definition.id, Some(cold.hash)).await?;
        if turn.waited {
            return Ok(true);
        }
        self.core.progress.catch_up(entry.partition, cold.last_id).await?;
        let told = self.restore_subject(entry, cold, at_ms, asks).await;
        self.unless_epoch_over(entry.partition, cold.epoch, true, told)
    }

    /// Restores one subject in an epoch in which the ledger has caught up, without taking a turn.
    pub(super) async fn restore_subject(
        &self,
        entry: &TenantEntry,
        cold: &ColdSubject<'_>,
        at_ms: i64,
        asks: Asks,
    ) -> Answer<bool> {
        let started = Clock::monotonic();
        let mut resolved = entry.subject_counters(cold.subject, at_ms);
        if asks == Asks::Read && is_unused(&self.snapshot(entry, &resolved, Some(cold.subject)).await?) {
            return Ok(false);
        }
        let begins = asks == Asks::Anew || !new_counters(&resolved, Some(cold.subject)).is_empty();
        if begins {
            if !self.suspend(entry, cold.epoch, Some(cold.hash)).await? {
                return Ok(true);
            }
            // Counts by the current time, because a window may have turned since the call began.
            resolved = entry.subject_counters(cold.subject, at_ms.max(self.core.gate_now_ms()));
        }
        let snapshot = self.snapshot(entry, &resolved, Some(cold.subject)).await?;
        self.tell_subject(entry, cold.epoch, cold.hash, warm_subject(&resolved, &snapshot, cold.subject))
            .await?;
        self.core.metrics.restored(Restored::Subject, started.elapsed());
        Ok(true)
    }

    async fn tell_subject(
        &self,
        entry: &TenantEntry,
        epoch: Epoch,
        hash: SubjectHash,
        warm: WarmState,
    ) -> Answer<()> {
        let tenant = &entry.definition.id;
        self.core
            .gate
            .restore_subject(entry.partition, epoch, tenant, hash, warm, self.core.script_now())
            .await?;
        Ok(())
    }

    /// Restores many subjects of a warm tenant, in an epoch in which the ledger has caught up: a bounded number for
    /// each snapshot. Units that scripts count for them meanwhile began after the tenant's restore, and stay. A failure
    /// does not stop the others; one of the errors is returned.
    pub(in crate::operations) async fn restore_subjects(
        &self,
        entry: &TenantEntry,
        epoch: Epoch,
        subjects: &[&Subject],
        at_ms: i64,
    ) -> Answer<()> {
        let mut failed = None;
        for (number, page) in subjects.chunks(READ_AT_ONCE).enumerate() {
            if number > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let started = Clock::monotonic();
            self.suspend_beginners(entry, epoch, page, at_ms).await?;
            let told = self.read_subjects(entry, page, at_ms.max(self.core.gate_now_ms())).await?;
            let telling = told.into_iter().map(|(hash, warm)| self.tell_subject(entry, epoch, hash, warm));
            let told: Vec<_> = stream::iter(telling).buffer_unordered(TELL_AT_ONCE).collect().await;
            failed = told.into_iter().find_map(Result::err).or(failed);
            let each = started.elapsed() / u32::try_from(page.len()).unwrap_or(u32::MAX).max(1);
            page.iter().for_each(|_| self.core.metrics.restored(Restored::Subject, each));
        }
        failed.map_or(Ok(()), Err)
    }

    /// Suspends those with counters that began inside their window until they are restored: changes of their holds in
    /// between would be missing in those counters.
    async fn suspend_beginners(
        &self,
        entry: &TenantEntry,
        epoch: Epoch,
        subjects: &[&Subject],
        at_ms: i64,
    ) -> Answer<()> {
        let (partition, tenant) = (entry.partition, &entry.definition.id);
        let mut waiting = Vec::new();
        for subject in subjects {
            if !new_counters(&entry.subject_counters(subject, at_ms), Some(subject)).is_empty() {
                waiting.push(self.core.gate.subject_hash(tenant, subject));
            }
        }
        let suspending = waiting
            .into_iter()
            .map(|hash| self.core.gate.suspend(partition, epoch, tenant, Some(hash), self.core.script_now()));
        let last_ids: Vec<_> = stream::iter(suspending).buffer_unordered(TELL_AT_ONCE).try_collect().await?;
        match last_ids.into_iter().flatten().max() {
            Some(last_id) => self.core.progress.catch_up(partition, last_id).await,
            None => Ok(()),
        }
    }

    /// What the ledger has of each, in order, as of one instant.
    pub(in crate::operations) async fn read_subjects(
        &self,
        entry: &TenantEntry,
        subjects: &[&Subject],
        at_ms: i64,
    ) -> Answer<Vec<(SubjectHash, WarmState)>> {
        let resolved: Vec<Resolved> =
            subjects.iter().map(|subject| entry.subject_counters(subject, at_ms)).collect();
        let all = subjects.iter().zip(&resolved);
        let all = all.flat_map(|(subject, own)| own.counters.iter().map(|counter| (counter, Some(*subject))));
        let snapshot = self.snapshot_of(entry, all.collect(), Some(subjects)).await?;
        let mut open = by_subject(snapshot.open);
        let mut counters = snapshot.counters.into_iter();
        let told = subjects.iter().zip(&resolved).map(|(subject, resolved)| {
            let own = TenantSnapshot {
                cursor: snapshot.cursor,
                open: open.remove(*subject).unwrap_or_default(),
                torn: snapshot
                    .torn
                    .iter()
                    .filter(|torn| torn.hold.subjects.contains(subject))
                    .cloned()
                    .collect(),
                counters: counters.by_ref().take(booked_count(resolved)).collect(),
                quotas: Vec::new(),
                subjects: None,
                latest_at_ms: None,
            };
            let hash = self.core.gate.subject_hash(&entry.definition.id, subject);
            (hash, warm_subject(resolved, &own, subject))
        });
        Ok(told.collect())
    }

    /// The subjects that may have used something before this restore.
    pub(super) fn known_subjects(
        &self,
        entry: &TenantEntry,
        subjects: Option<&[Subject]>,
        at_ms: i64,
    ) -> KnownSubjects {
        match subjects {
            None => KnownSubjects::Everybody,
            Some([]) => KnownSubjects::Nobody,
            Some(subjects) => {
                let tenant = &entry.definition.id;
                let hashes: Vec<_> =
                    subjects.iter().map(|subject| self.core.gate.subject_hash(tenant, subject)).collect();
                let until_ms = entry.windows(at_ms).last_end_ms();
                KnownSubjects::Some { filter: SubjectFilter::of(&hashes), until_ms }
            }
        }
    }
}

fn by_subject(open: Vec<(ReservationId, Record)>) -> HashMap<Subject, Vec<(ReservationId, Record)>> {
    let mut own: HashMap<Subject, Vec<_>> = HashMap::new();
    for (id, record) in open {
        for (subject, _) in record.body.rest.iter().flat_map(|rest| &rest.subjects) {
            own.entry(subject.clone()).or_default().push((id, record.clone()));
        }
    }
    own
}

/// How many counters the ledger was asked about.
fn booked_count(resolved: &Resolved) -> usize {
    resolved.counters.iter().filter(|counter| counter.booked_window().is_some()).count()
}

fn is_unused(snapshot: &TenantSnapshot) -> bool {
    snapshot.open.is_empty()
        && snapshot.torn.is_empty()
        && snapshot.counters.iter().all(|consumed| *consumed == Units::ZERO)
}

fn warm_subject(resolved: &Resolved, snapshot: &TenantSnapshot, subject: &Subject) -> WarmState {
    let now_ms = snapshot.open.iter().map(|(_, record)| record.head.born_at_ms).max().unwrap_or_default();
    let windows = resolved.counters.iter().map(|counter| counter.ends_at_ms(now_ms));
    let holds = snapshot.open.iter().map(|(_, record)| record.head.expires_at_ms);
    WarmState {
        needed_until_ms: windows.chain(holds).max().unwrap_or_default(),
        ..warm_state(resolved, snapshot, Some(subject))
    }
}
