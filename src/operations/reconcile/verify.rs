//! Compares gate and ledger counter by counter: part of `tollgate verify`, also during traffic.

use std::collections::HashSet;
use std::time::Duration;

use super::Reconcile;
use super::checkpoint::{CheckpointTaken, reconciled, with_damage};
use crate::clock::Clock;
use crate::domain::amount::{Units, signed_amount};
use crate::domain::checkpoint::CHECKPOINT_SUBJECTS_MAX;
use crate::domain::counter::Counter;
use crate::domain::ids::{OutboxId, Subject, TenantId};
use crate::domain::limit::Class;
use crate::domain::policy::Resolved;
use crate::domain::reservation::SubjectHash;
use crate::gate::{CounterReading, GateError, PeekCall, RestoredCounter};
use crate::ledger::{Reconciliation, TenantCursor};
use crate::operations::error::{Answer, OperationError};
use crate::operations::policy_store::TenantEntry;

/// How long the writer may take to reach a page's checkpoints.
const JUDGED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How many subjects of a tenant are listed at once, some 10 MB: each list reads all use of their windows again.
const SUBJECTS_LISTED: usize = 50_000;
/// Where so many tenants in a row take too long for a statement, it is the ledger that is slow, for all of them.
const SLOW_IN_A_ROW: usize = 3;

/// The result of comparing the gate with the ledger.
#[derive(Debug, Default)]
pub struct GateCheck {
    /// How many counters were compared.
    pub counters: u64,
    /// Tenants that are cold at the gate: their next call restores them.
    pub cold_tenants: u64,
    /// Each difference, named.
    pub faults: Vec<String>,
    /// Tenants that could not be compared this time, and why.
    pub undecided: Vec<String>,
    /// Why nothing was compared, if so.
    pub skipped: Option<String>,
    /// How many of the last tenants took too long for a statement, one after another.
    slow_in_a_row: usize,
}

impl GateCheck {
    /// Records a tenant whose counters cannot be read as a fault, because its calls fail. It does not stop the
    /// comparison of others, nor does one of which too much would have to be read at once. An absent server does, and
    /// one that is too slow for several in a row.
    fn pass_over(&mut self, tenant: &TenantId, compared: Answer<()>) -> Answer<()> {
        let is_slow = compared.as_ref().is_err_and(OperationError::is_statement_timeout);
        self.slow_in_a_row = if is_slow { self.slow_in_a_row + 1 } else { 0 };
        match compared {
            Err(OperationError::LedgerUnavailable(why)) if self.slow_in_a_row == SLOW_IN_A_ROW => {
                let ended = format!("the comparison ended after {SLOW_IN_A_ROW} tenants in a row: {why}");
                return Err(OperationError::LedgerUnavailable(ended));
            }
            Err(error @ OperationError::Internal(_)) => self.faults.push(format!("tenant {tenant}: {error}")),
            Err(error) if error.may_be_of_one() => self.undecided.push(format!("tenant {tenant}: {error}")),
            other => return other,
        }
        Ok(())
    }
}

impl Reconcile {
    /// Compares the counters of every warm tenant, and of its subjects, with the books. Without traffic it compares
    /// figure by figure; otherwise by checkpoints of each tenant, which the writer compares as of their places.
    pub async fn verify_gate(&self) -> Answer<GateCheck> {
        if let Some(ends) = self.ends_if_booked().await?
            && let Some(check) = self.compare_all(&ends).await?
        {
            return Ok(check);
        }
        if !self.core.ledger.is_leased("writer/").await? {
            let why = "events wait in the outboxes and no writer runs";
            return Ok(GateCheck { skipped: Some(why.into()), ..GateCheck::default() });
        }
        self.compare_by_checkpoints().await
    }

    /// The ends of the outboxes, if all of them are booked to their ends.
    async fn ends_if_booked(&self) -> Answer<Option<Vec<OutboxId>>> {
        let mut ends = Vec::new();
        for cursor in self.core.ledger.cursors().await? {
            let last = self.core.gate.last_event(cursor.partition).await.map_err(|error| match error {
                GateError::Undecodable(what) => OperationError::Internal(format!(
                    "the outbox of partition {} is damaged, so that the gate cannot be compared: {what}",
                    cursor.partition
                )),
                error => error.into(),
            })?;
            let last = last.unwrap_or_default();
            if !cursor.settles(last) {
                return Ok(None);
            }
            ends.push(last);
        }
        Ok(Some(ends))
    }

    /// Compares figure by figure; none where an event has come since the outboxes ended here.
    async fn compare_all(&self, ends: &[OutboxId]) -> Answer<Option<GateCheck>> {
        let mut check = GateCheck::default();
        let mut after: Option<TenantCursor> = None;
        loop {
            let page = self.warm_tenants(after.as_ref()).await?;
            check.cold_tenants += u64::try_from(page.cold).unwrap_or(u64::MAX);
            for tenant in &page.warm {
                let compared = self.compare(&*self.core.policy.tenant(tenant).await?, &mut check).await;
                check.pass_over(tenant, compared)?;
            }
            // After each page: what is compared once something has moved is in vain.
            if self.ends_if_booked().await?.as_deref() != Some(ends) {
                return Ok(None);
            }
            after = page.next;
            if after.is_none() {
                return Ok(Some(check));
            }
        }
    }

    async fn compare_by_checkpoints(&self) -> Answer<GateCheck> {
        let mut check = GateCheck::default();
        let mut after: Option<TenantCursor> = None;
        loop {
            let page = self.warm_tenants(after.as_ref()).await?;
            check.cold_tenants += u64::try_from(page.cold).unwrap_or(u64::MAX);
            let mut taken = Vec::with_capacity(page.warm.len());
            for tenant in &page.warm {
                let took = self.take_checkpoints(tenant).await.map(|checkpoints| taken.extend(checkpoints));
                check.pass_over(tenant, took)?;
            }
            self.report_judged(&taken, &mut check).await?;
            after = page.next;
            if after.is_none() {
                return Ok(check);
            }
        }
    }

    async fn report_judged(&self, taken: &[CheckpointTaken], check: &mut GateCheck) -> Answer<()> {
        let started = Clock::monotonic();
        let mut reported = HashSet::new();
        for checkpoint in taken {
            let judged = loop {
                let judged =
                    self.core.ledger.reconciliation(&checkpoint.tenant, checkpoint.id, checkpoint.place);
                match judged.await? {
                    Some(judged) => break Some(judged),
                    None if started.elapsed() > JUDGED_WITHIN => break None,
                    None => tokio::time::sleep(LOOK_AGAIN).await,
                }
            };
            let tenant = &checkpoint.tenant;
            match judged {
                None => check.undecided.push(format!(
                    "tenant {tenant}: the writer has not reached its checkpoint within {} s",
                    JUDGED_WITHIN.as_secs()
                )),
                // Where a later page has replaced the result of this one, the later result is found.
                Some(judged) if !reported.insert(judged.checkpoint) => {}
                Some(judged) if judged.differences.is_empty() && !judged.detail.is_empty() => {
                    check.undecided.push(format!("tenant {tenant}: {}", judged.detail));
                }
                Some(judged) => {
                    check.counters += judged.counters;
                    check.faults.extend(faults_of(&judged));
                }
            }
        }
        Ok(())
    }

    async fn compare(&self, entry: &TenantEntry, check: &mut GateCheck) -> Answer<()> {
        let at_ms = self.core.clock.now_ms();
        let resolved = entry.tenant_counters(at_ms);
        let call = PeekCall {
            partition: entry.partition,
            tenant: &entry.definition.id,
            subjects: &[],
            counters: &resolved.counters,
            light: &[],
            now_ms: self.core.script_now(),
        };
        let peeked = match self.core.gate.peek_counters(&call).await {
            Ok(peeked) => peeked,
            Err(error) => {
                let damaged = self.find_damaged(entry, &[], &resolved.counters, &error).await;
                let damaged = damaged.iter().filter_map(|number| resolved.counters.get(*number));
                let name =
                    |counter: &Counter| format!("{} (field {})", counter.name(), counter.field.as_str());
                return Err(with_damage(&error, damaged.map(name).collect()));
            }
        };
        if peeked.cold.as_ref().is_some_and(|cold| cold.tenant) {
            check.cold_tenants += 1;
            return Ok(());
        }
        let booked = self.memory.readings_from_ledger(entry, &resolved, None).await?;
        self.report(&entry.definition.id, &resolved, &peeked.readings, &booked, check);
        self.compare_subjects(entry, check).await
    }

    /// Compares the counters of class quota of the subjects with booked use in the current windows, or with open holds,
    /// as many at once as a checkpoint names.
    async fn compare_subjects(&self, entry: &TenantEntry, check: &mut GateCheck) -> Answer<()> {
        let at_ms = self.core.gate_now_ms();
        let Some(since_ms) = entry.policy.reconciled_since(at_ms, &entry.windows(at_ms)) else {
            return Ok(());
        };
        let (tenant, mut after) = (&entry.definition.id, 0);
        let kinds: Vec<_> = entry.policy.reconciled_kinds(at_ms).into_iter().collect();
        loop {
            let listing = self.core.ledger.active_subjects(tenant, &kinds, since_ms, after, SUBJECTS_LISTED);
            let listed = listing.await?;
            for page in listed.chunks(CHECKPOINT_SUBJECTS_MAX) {
                let page: Vec<&Subject> = page.iter().map(|(_, subject)| subject).collect();
                self.compare_page(entry, &page, at_ms, check).await?;
            }
            match listed.last() {
                Some((last, _)) if listed.len() == SUBJECTS_LISTED => after = *last,
                _ => return Ok(()),
            }
        }
    }

    async fn compare_page(
        &self,
        entry: &TenantEntry,
        page: &[&Subject],
        at_ms: i64,
        check: &mut GateCheck,
    ) -> Answer<()> {
        let (gate, tenant) = (&self.core.gate, &entry.definition.id);
        let hashes: Vec<_> = page.iter().map(|subject| gate.subject_hash(tenant, subject)).collect();
        let counters: Vec<Counter> = (1_u8..)
            .zip(page)
            .flat_map(|(scope_index, &subject)| {
                let own = reconciled(entry.subject_counters(subject, at_ms), Some(subject));
                own.into_iter().map(move |(_, counter)| Counter { scope_index, ..counter })
            })
            .collect();
        if counters.is_empty() {
            return Ok(());
        }
        // Read first: a restore in between only makes the comparison more careful.
        let restored = gate.restored_at_ms(entry.partition, tenant, &hashes).await?;
        let readings = self.peek_page(entry, page, &hashes, &counters).await?;
        let books = self.memory.read_subjects(entry, page, at_ms).await?;
        for (counter, reading) in counters.iter().zip(&readings) {
            let Some(place) = counter.subject_index() else { continue };
            let of_subject = (page.get(place), restored.get(place), books.get(place));
            let (Some(subject), Some(restored_at_ms), Some((hash, booked))) = of_subject else { continue };
            let told = booked.counters.iter().find(|told| is_of(told, counter));
            if let Some(told) = told.filter(|_| is_whole(counter, reading, *restored_at_ms)) {
                let name = name_of(counter, subject, *hash);
                let books = (told.consumed, told.reserved);
                compare_figures(tenant, (counter, &name), reading, books, check);
            }
        }
        Ok(())
    }

    /// The figures of these counters at the gate; none of a tenant that has become cold.
    async fn peek_page(
        &self,
        entry: &TenantEntry,
        page: &[&Subject],
        hashes: &[SubjectHash],
        counters: &[Counter],
    ) -> Answer<Vec<CounterReading>> {
        let call = PeekCall {
            partition: entry.partition,
            tenant: &entry.definition.id,
            subjects: hashes,
            counters,
            light: &[],
            now_ms: self.core.script_now(),
        };
        let error = match self.core.gate.peek_counters(&call).await {
            Ok(peeked) if peeked.cold.as_ref().is_some_and(|cold| cold.tenant) => return Ok(Vec::new()),
            Ok(peeked) => return Ok(peeked.readings),
            Err(error) => error,
        };
        let damaged = self.find_damaged(entry, hashes, counters, &error).await;
        let name = |number: &usize| {
            let counter = counters.get(*number)?;
            let place = counter.subject_index()?;
            let name = name_of(counter, page.get(place)?, *hashes.get(place)?);
            Some(format!("{name} (field {})", counter.field.as_str()))
        };
        Err(with_damage(&error, damaged.iter().filter_map(name).collect()))
    }

    fn report(
        &self,
        tenant: &TenantId,
        resolved: &Resolved,
        at_gate: &[CounterReading],
        booked: &[CounterReading],
        check: &mut GateCheck,
    ) {
        for ((counter, gate), ledger) in resolved.counters.iter().zip(at_gate).zip(booked) {
            if !gate.current || counter.class == Class::Rate {
                continue;
            }
            let books = (ledger.consumed, ledger.reserved);
            compare_figures(tenant, (counter, &counter.name()), gate, books, check);
        }
    }
}

/// Whether the figures of a subject's counter can be compared: it counted from its window's start on, or was restored
/// after every instance knew it.
fn is_whole(counter: &Counter, reading: &CounterReading, restored_at_ms: i64) -> bool {
    let has_begun = counter.booked_window().is_some_and(|window| window.start_ms >= counter.since_ms);
    reading.current && (has_begun || restored_at_ms >= counter.since_ms)
}

/// Whether the books tell this of the counter's current window.
fn is_of(told: &RestoredCounter, counter: &Counter) -> bool {
    let start_ms = counter.booked_window().map(|window| window.start_ms);
    told.field == counter.field && Some(told.window_start_ms) == start_ms
}

/// The limit, and the subject by the name that it has in keys.
fn name_of(counter: &Counter, subject: &Subject, hash: SubjectHash) -> String {
    format!("{} of {} {}", counter.name(), subject.kind, hash.as_str())
}

/// Compares one counter's figures at the gate with those of the books, consumed and reserved.
fn compare_figures(
    tenant: &TenantId,
    (counter, name): (&Counter, &str),
    gate: &CounterReading,
    books: (Units, Units),
    check: &mut GateCheck,
) {
    check.counters += 1;
    let gate = (gate.consumed, gate.reserved);
    if gate != books {
        let write = |units: Units| units.to_amount(counter.decimals).to_string();
        let [gate, books] = [gate, books].map(|(consumed, reserved)| (write(consumed), write(reserved)));
        check.faults.push(fault(tenant, name, &gate, &books));
    }
}

fn faults_of(judged: &Reconciliation) -> Vec<String> {
    let differences = judged.differences.iter().map(|difference| {
        let counter = &difference.counter;
        let write = |units| signed_amount(units, counter.decimals);
        let name = match &counter.subject {
            None => counter.name.clone(),
            Some(subject) => format!("{} of {}/{}", counter.name, subject.kind, subject.id),
        };
        let (gate, books) = [difference.gate, difference.books]
            .map(|figures| (write(figures.consumed), write(figures.reserved)))
            .into();
        fault(&judged.tenant, &name, &gate, &books)
    });
    differences.collect()
}

fn fault(tenant: &TenantId, counter: &str, gate: &(String, String), books: &(String, String)) -> String {
    format!(
        "tenant {tenant} {counter}: the gate has consumed {} and reserved {}, the ledger {} and {}",
        gate.0, gate.1, books.0, books.1
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::STATEMENT_TIMEOUT;

    #[test]
    fn one_slow_tenant_is_passed_over_and_several_in_a_row_end_the_comparison() {
        let (tenant, mut check) = (TenantId::parse("acme").unwrap(), GateCheck::default());
        let slow = || Err(OperationError::LedgerUnavailable(format!("canceled by {STATEMENT_TIMEOUT}")));
        for compared in [slow(), slow(), Ok(()), slow(), slow()] {
            check.pass_over(&tenant, compared).unwrap();
        }
        assert_eq!((check.undecided.len(), check.faults.len()), (4, 0), "{check:?}");
        let ended = check.pass_over(&tenant, slow()).unwrap_err().to_string();
        assert!(ended.contains("after 3 tenants in a row"), "{ended}");
    }
}
