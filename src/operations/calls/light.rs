//! Reservations and usage of meters that are not booked: the gate alone holds and counts them, and answers about them.

use std::sync::Arc;

use super::global::global_counters;
use super::reserve::Decided;
use super::{Calls, KEPT_CHANGING};
use crate::domain::amount::Units;
use crate::domain::ids::{OutboxId, ReservationId, TenantId};
use crate::domain::policy::Resolved;
use crate::domain::reservation::Body;
use crate::gate::{GateError, ReserveCall, ReserveMode, ReserveOutcome};
use crate::operations::answers::Reservation;
use crate::operations::error::{Answer, OperationError};
use crate::operations::outage::Stranded;
use crate::operations::policy_store::TenantEntry;
use crate::operations::preparation::{Prepared, counters_end_ms};
use crate::operations::requests::ReserveRequest;
use crate::telemetry::labels::Script;

impl Calls {
    /// Decides a light call in its tenant's partition: the ledger is never asked, and nothing of it waits to be booked.
    pub(super) async fn decide_light(
        &self,
        entry: &Arc<TenantEntry>,
        request: &ReserveRequest,
        mode: ReserveMode,
        mut prepared: Prepared,
        amounts: Option<Vec<Units>>,
    ) -> Answer<Decided> {
        let mut at_ms = self.core.gate_now_ms();
        let (mut recovery, mut has_recalled) = (self.memory.recovery(KEPT_CHANGING), false);
        let away = loop {
            self.admission.may_admit(true)?;
            let (resolved, body) = self.preparation.resolve(entry, request, &prepared, at_ms)?;
            self.want_shares(request, &prepared, &resolved);
            let amounts = amounts.as_deref().unwrap_or(&prepared.units);
            let call = self.light_call(entry, &prepared, (&resolved, &body), (mode, amounts), at_ms);
            match self.core.timed(Script::Hold, self.core.gate.reserve(&call)).await {
                Ok(ReserveOutcome::StaleWindow { now_ms }) => {
                    at_ms = now_ms;
                    recovery.again()?;
                }
                Ok(ReserveOutcome::Duplicate { first }) => {
                    Box::pin(self.unless_duplicate(first, request, &mut prepared)).await?;
                }
                Ok(outcome) => {
                    let is_again = !std::mem::replace(&mut has_recalled, true)
                        && self.recall_shares(request, &prepared, &call, &outcome).await;
                    if !is_again {
                        let (policy_now_ms, degraded) = (at_ms, false);
                        return Ok(Decided { prepared, resolved, body, outcome, policy_now_ms, degraded });
                    }
                }
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        break away;
                    }
                }
            }
        };
        // Limits of all tenants have room for less than is asked for: without the gate it is all or nothing.
        if amounts.is_some_and(|amounts| amounts != prepared.units) {
            return Err(away.into());
        }
        self.let_light_through(entry, request, mode, prepared, away)
    }

    fn light_call<'a>(
        &self,
        entry: &'a TenantEntry,
        prepared: &'a Prepared,
        (resolved, body): (&'a Resolved, &'a Body),
        (mode, amounts): (ReserveMode, &[Units]),
        at_ms: i64,
    ) -> ReserveCall<'a> {
        let valid = entry.windows(at_ms).valid();
        ReserveCall {
            id: prepared.id,
            partition: entry.partition,
            tenant: &entry.definition.id,
            subjects: prepared.subjects.clone(),
            mode,
            amounts: amounts.to_vec(),
            body,
            counters: &resolved.counters,
            ttl_ms: prepared.ttl_ms,
            max_life_ms: prepared.max_life_ms,
            valid: (valid.start_ms, valid.end_ms),
            subject_windows_end_ms: counters_end_ms(&resolved.counters, at_ms),
            may_be_known: false,
            ledger_asked: true,
            work: prepared.work.as_deref(),
            now_ms: self.core.script_now(),
        }
    }

    /// While the gate is away: admitted where no limit says otherwise. It leaves no record, and is not counted later.
    pub(super) fn let_light_through(
        &self,
        entry: &TenantEntry,
        request: &ReserveRequest,
        mode: ReserveMode,
        prepared: Prepared,
        away: GateError,
    ) -> Answer<Decided> {
        let now_ms = self.core.gate_now_ms();
        let globals = global_counters(entry, &prepared, now_ms)?;
        let (resolved, body) = self.preparation.resolve(entry, request, &prepared, now_ms)?;
        if mode.dry() == mode {
            return Err(away.into());
        }
        let subjects = prepared.subject_hashes();
        let work = Stranded { tenant: &request.tenant, subjects: &subjects, amounts: &prepared.units };
        let counters = resolved.counters.iter().chain(&globals);
        let Ok(_counted) = self.outage.let_through(work, counters, now_ms) else { return Err(away.into()) };
        let life_ms = if mode == ReserveMode::Usage { 0 } else { prepared.ttl_ms.min(prepared.max_life_ms) };
        let outcome = ReserveOutcome::Admitted {
            granted: prepared.units.clone(),
            expires_at_ms: now_ms.saturating_add(life_ms),
            event: OutboxId::default(),
            now_ms,
            readings: Vec::new(),
            start_after_ms: 0,
        };
        Ok(Decided { prepared, resolved, body, outcome, policy_now_ms: now_ms, degraded: true })
    }

    /// A light reservation, which nobody but the gate has.
    pub(super) async fn found_light(
        &self,
        id: ReservationId,
        bound: Option<&TenantId>,
    ) -> Answer<Reservation> {
        let peeked = self.core.gate.peek_record(id, bound, self.core.script_now()).await?;
        let record = peeked.record.ok_or_else(OperationError::no_such_reservation)?;
        Ok(Reservation::new(id, record))
    }
}

/// A light call has nothing for which the ledger could be waited for.
pub(super) fn nothing_to_wait_for() -> OperationError {
    OperationError::field("/ack", "must be `gate`: none of its meters is booked, so the ledger never has it")
}
