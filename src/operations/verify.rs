//! Gate against ledger, counter by counter, while nothing moves: part of `tollgate verify`.

use super::policy_store::{TenantEntry, stored_json};
use super::reserve::{checks_of, counted};
use super::{Answer, Operations};
use crate::domain::ids::Partition;
use crate::domain::policy::Resolved;
use crate::domain::tenant::TenantDefinition;
use crate::gate::{CounterReading, PeekCall};
use crate::ledger::TenantPlace;

const TENANTS_PAGE: usize = 500;

/// What comparing the gate with the ledger came to.
#[derive(Debug, Default)]
pub struct GateCheck {
    /// How many counters were compared.
    pub counters: u64,
    /// Tenants that the gate does not know right now: the ledger restores them at their next call.
    pub cold_tenants: u64,
    /// Each difference, named.
    pub faults: Vec<String>,
    /// Why nothing was compared, where nothing was.
    pub skipped: Option<String>,
}

impl Operations {
    /// Compares every warm tenant's counters with the books. Skipped while the writer has not reached the outboxes'
    /// ends: two moving figures would give false alarms.
    pub async fn verify_gate(&self) -> Answer<GateCheck> {
        if let Some(why) = self.behind().await? {
            return Ok(GateCheck { skipped: Some(why), ..GateCheck::default() });
        }
        let mut check = GateCheck::default();
        let mut after: Option<TenantPlace> = None;
        loop {
            let page = self.ledger.list_tenants(after.as_ref(), TENANTS_PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(TenantPlace { created_at_us: last.created_at_us, id: last.id.clone() });
            for stored in &page {
                let definition: TenantDefinition = stored_json(&stored.definition)?;
                let entry = self.policy.tenant(&definition.id).await?;
                self.compare(&entry, &mut check).await?;
            }
        }
        if self.behind().await?.is_some() && !check.faults.is_empty() {
            let why = "traffic flowed during the comparison; stop it, or repeat";
            return Ok(GateCheck { skipped: Some(why.into()), ..GateCheck::default() });
        }
        Ok(check)
    }

    /// Why the two cannot be compared now: an outbox whose end is not booked yet.
    async fn behind(&self) -> Answer<Option<String>> {
        for cursor in self.ledger.cursors().await? {
            let partition = cursor.partition;
            let last = self.gate.partition_facts(partition).await?.last_id.unwrap_or_default();
            if !cursor.settles(last) {
                return Ok(Some(format!(
                    "the writer is behind: {partition} is booked up to {} of {last}",
                    cursor.booked
                )));
            }
        }
        Ok(None)
    }

    async fn compare(&self, entry: &TenantEntry, check: &mut GateCheck) -> Answer<()> {
        let at_ms = self.clock.now_ms();
        let resolved = entry.tenant_counters(at_ms);
        let checks = checks_of(&resolved);
        let call = PeekCall {
            partition: entry.partition,
            tenant: &entry.definition.id,
            subjects: &[],
            checks: &checks,
            now_ms: self.script_now(),
        };
        let peeked = self.gate.peek_counters(&call).await?;
        if peeked.cold.as_ref().is_some_and(|cold| cold.tenant) {
            check.cold_tenants += 1;
            return Ok(());
        }
        let booked = self.readings_from_ledger(entry, &resolved, None).await?;
        self.report(entry, &resolved, &peeked.readings, &booked, check);
        Ok(())
    }

    fn report(
        &self,
        entry: &TenantEntry,
        resolved: &Resolved,
        at_gate: &[CounterReading],
        booked: &[CounterReading],
        check: &mut GateCheck,
    ) {
        for ((counted, gate), ledger) in counted(resolved, []).iter().zip(at_gate).zip(booked) {
            if !gate.current || counted.is_rate() {
                continue;
            }
            check.counters += 1;
            let same = gate.consumed == ledger.consumed && gate.reserved == ledger.reserved;
            if !same {
                let decimals = counted.decimals();
                let write = |units| super::present::amount(units, decimals);
                let partition: Partition = entry.partition;
                check.faults.push(format!(
                    "tenant {} {} ({partition}): the gate has consumed {} and reserved {}, the ledger {} and {}",
                    entry.definition.id,
                    counted.answer(gate, self.clock.now_ms()).id,
                    write(gate.consumed),
                    write(gate.reserved),
                    write(ledger.consumed),
                    write(ledger.reserved),
                ));
            }
        }
    }
}
