//! Compares gate and ledger counter by counter: part of `tollgate verify`, also during traffic.

use std::collections::HashSet;
use std::time::Duration;

use super::Reconcile;
use super::checkpoint::{CheckpointTaken, with_damage};
use crate::clock::Clock;
use crate::domain::amount::{Units, signed_amount};
use crate::domain::counter::Counter;
use crate::domain::ids::{OutboxId, TenantId};
use crate::domain::limit::Class;
use crate::domain::policy::Resolved;
use crate::gate::{CounterReading, GateError, PeekCall};
use crate::ledger::{Reconciliation, TenantCursor};
use crate::operations::error::{Answer, OperationError};
use crate::operations::policy_store::TenantEntry;

/// How long the writer may take to reach a page's checkpoints.
const JUDGED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

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
}

impl GateCheck {
    /// Records a tenant whose counters cannot be read as a fault, because its calls fail. It does not stop the
    /// comparison of others; only an absent server does.
    fn pass_over(&mut self, tenant: &TenantId, compared: Answer<()>) -> Answer<()> {
        match compared {
            Err(error @ OperationError::Internal(_)) => self.faults.push(format!("tenant {tenant}: {error}")),
            Err(error) if !error.is_server_away() => self.undecided.push(format!("tenant {tenant}: {error}")),
            other => return other,
        }
        Ok(())
    }
}

impl Reconcile {
    /// Compares every warm tenant's counters with the books. Without traffic it compares figure by figure; otherwise by
    /// a checkpoint of each tenant, which the writer compares as of its place.
    pub async fn verify_gate(&self) -> Answer<GateCheck> {
        if let Some(ends) = self.ends_if_booked().await? {
            let check = self.compare_all().await?;
            if self.ends_if_booked().await? == Some(ends) {
                return Ok(check);
            }
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

    async fn compare_all(&self) -> Answer<GateCheck> {
        let mut check = GateCheck::default();
        let mut after: Option<TenantCursor> = None;
        loop {
            let page = self.warm_tenants(after.as_ref()).await?;
            check.cold_tenants += u64::try_from(page.cold).unwrap_or(u64::MAX);
            for tenant in &page.warm {
                let compared = self.compare(&*self.core.policy.tenant(tenant).await?, &mut check).await;
                check.pass_over(tenant, compared)?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(check);
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
        Ok(())
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
            check.counters += 1;
            if gate.consumed != ledger.consumed || gate.reserved != ledger.reserved {
                let write = |units: Units| units.to_amount(counter.decimals).to_string();
                let (at_gate, in_books) =
                    [gate, ledger].map(|reading| (write(reading.consumed), write(reading.reserved))).into();
                check.faults.push(fault(tenant, &counter.name(), &at_gate, &in_books));
            }
        }
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
