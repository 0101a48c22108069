//! Conflicts: parked calls that the gate will never take. Shows what each of them says, and settles them as an operator
//! chooses.

use std::collections::{HashMap, HashSet};

use futures::future::join_all;
use serde_json::{Value, json};

use super::Outage;
use super::degraded::{lives_of, standing};
use crate::domain::amount::{Amount, Units};
use crate::domain::ids::{IdempotencyKey, MeterId, Partition, ReservationId, Subject};
use crate::domain::lines::WorkLines;
use crate::domain::parked::ParkedCall;
use crate::domain::reservation::Record;
use crate::domain::resolution::Totals;
use crate::ledger::{
    Conflict, ConflictedReservation, LedgerError, NewParked, ParkedConflict, Settlement, Settling,
};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::{Mode, ReserveRequest, Work};

/// How often a reservation may change while a conflict of it is being settled.
const ATTEMPTS_MAX: usize = 4;

/// How a conflict is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictChoice {
    /// Nothing of the call is booked.
    Drop,
    /// What the call says was used, and the books do not have, is recorded as usage now.
    Usage,
    /// The gate gets the call once more.
    Retry,
}

/// A conflict, as an operator sees it.
#[derive(Debug, Clone)]
pub struct ConflictView {
    /// The call.
    pub conflict: ParkedConflict,
    /// What it says was used.
    pub said: Vec<(MeterId, Amount)>,
    /// What of that is not in the books.
    pub missing: Vec<(MeterId, Amount)>,
    /// Why some of it may still be booked; `missing` is then not reliable.
    pub undecided: Option<&'static str>,
}

/// A conflict with what it is judged by.
struct Judged {
    view: ConflictView,
    seen: ConflictedReservation,
    /// The record whose subjects a usage names.
    record: Option<Record>,
}

impl Outage {
    /// The conflicts in the order in which their calls were taken, at most `limit`.
    pub async fn parked_conflicts(&self, limit: usize) -> Answer<Vec<ConflictView>> {
        let conflicts = self.core.ledger.parked_conflicts(limit).await?;
        let partitions: HashSet<_> =
            conflicts.iter().map(|conflict| conflict.reservation.partition()).collect();
        let asked = partitions
            .into_iter()
            .map(|partition| async move { (partition, self.has_booked_all(partition).await) });
        let has_booked: HashMap<_, _> = join_all(asked).await.into_iter().collect();
        let mut views = Vec::with_capacity(conflicts.len());
        for conflict in conflicts {
            let is_behind = has_booked.get(&conflict.reservation.partition()) != Some(&true);
            let mut view = self.judge(conflict).await?.view;
            if is_behind && !is_admission(&view.conflict) {
                view.undecided.get_or_insert("the books lag the gate");
            }
            views.push(view);
        }
        Ok(views)
    }

    /// Whether all that the gate did in a partition is booked, within the time that a call waits for them.
    async fn has_booked_all(&self, partition: Partition) -> bool {
        let Ok(last_id) = self.core.gate.last_event(partition).await else { return false };
        self.core.progress.catch_up(partition, last_id.unwrap_or_default()).await.is_ok()
    }

    /// Settles a conflict, once. Returns what is booked for it.
    ///
    /// Errors: there is no conflict with this number; the choice does not fit the call (the error names those that do);
    /// the books lag, or an event of the reservation waits in quarantine, so that usage could be billed twice.
    pub async fn resolve_conflict(
        &self,
        number: i64,
        choice: ConflictChoice,
        actor: &str,
        reason: &str,
    ) -> Answer<Vec<(MeterId, Amount)>> {
        for _ in 0..ATTEMPTS_MAX {
            let conflict = self.core.ledger.parked_conflict(number).await?;
            let (settlement, booked) = match choice {
                ConflictChoice::Drop => (Settlement::Drop, Vec::new()),
                ConflictChoice::Retry if is_admission(&conflict) => {
                    return Err(misfit("the gate refuses an admission again: choose drop or usage"));
                }
                ConflictChoice::Retry => (Settlement::Retry, Vec::new()),
                ConflictChoice::Usage => self.as_usage(conflict.clone()).await?,
            };
            match self.settle(conflict, settlement, &booked, actor, reason).await {
                Err(LedgerError::Conflict(Conflict::Version { .. })) => {}
                settled => return settled.map(|()| booked).map_err(OperationError::from),
            }
        }
        Err(OperationError::GateUnavailable("the reservation kept changing; repeat the command".into()))
    }

    async fn settle(
        &self,
        conflict: ParkedConflict,
        settlement: Settlement,
        booked: &[(MeterId, Amount)],
        actor: &str,
        reason: &str,
    ) -> Result<(), LedgerError> {
        let amounts: Vec<Value> = booked
            .iter()
            .map(|(meter, amount)| json!({ "meter": meter.as_str(), "amount": amount.to_string() }))
            .collect();
        let settling =
            Settling { actor: actor.to_owned(), reason: reason.to_owned(), booked: Value::Array(amounts) };
        self.core.ledger.settle_conflict(conflict, settlement, settling).await
    }

    /// What the call says and the books do not have, as usage now. First waits until the writer has caught up.
    async fn as_usage(&self, conflict: ParkedConflict) -> Answer<(Settlement, Vec<(MeterId, Amount)>)> {
        if !is_admission(&conflict) {
            self.core.progress.settled_epoch(conflict.reservation.partition()).await?;
        }
        let Judged { view, seen, record } = self.judge(conflict).await?;
        if view.undecided.is_some() {
            return Err(misfit(
                "an event of the reservation waits in quarantine, and what it says may be booked yet: decide it first \
                 (tollgate quarantine list), then settle this call",
            ));
        }
        if view.missing.is_empty() {
            return Err(misfit("the books have all that this call says was used: choose drop"));
        }
        let subjects = record.as_ref().map(subjects_of).unwrap_or_default();
        let (id, admission) = self.usage_for(&view.conflict, subjects, &view.missing).await?;
        Ok((Settlement::Usage { id, admission, seen: Box::new(seen) }, view.missing))
    }

    /// Judges a conflict by the books as they are.
    async fn judge(&self, conflict: ParkedConflict) -> Answer<Judged> {
        let call = ParkedCall::decode(&conflict.payload).ok();
        let seen = self.core.ledger.conflict_standing(conflict.reservation).await?;
        let known = standing(&seen.known).map(|standing| standing.record);
        let known = known.filter(|record| record.body.tenant == conflict.tenant);
        let said = call.as_ref().map(|call| said(call, known.as_ref())).unwrap_or_default();
        // An admission in conflict is different work from the reservation that has its id.
        let missing = match &known {
            Some(record) if !is_admission(&conflict) => not_in(record, &said)?,
            _ => said.clone(),
        };
        let is_undecided = seen.in_quarantine && !is_admission(&conflict);
        let undecided = is_undecided.then_some("an event of the reservation waits in quarantine");
        let record = match call {
            Some(ParkedCall::Admit { record, .. }) => Some(record),
            _ => known,
        };
        Ok(Judged { view: ConflictView { conflict, said, missing, undecided }, seen, record })
    }

    /// Usage now, under a key that only this conflict has.
    async fn usage_for(
        &self,
        conflict: &ParkedConflict,
        subjects: Vec<Subject>,
        lines: &[(MeterId, Amount)],
    ) -> Answer<(ReservationId, NewParked)> {
        let key = IdempotencyKey::parse(&format!("parked-conflict-{}", conflict.number))
            .map_err(|error| OperationError::Internal(error.to_string()))?;
        let lines = WorkLines::parse(lines.to_vec()).map_err(OperationError::Invalid)?;
        let request = ReserveRequest {
            tenant: conflict.tenant.clone(),
            subjects,
            work: Work::Lines { lines, operation: None },
            ttl: None,
            mode: Mode::AllOrNothing,
            dry_run: false,
            payload_fingerprint: None,
            metadata: None,
            key: Some(key),
            happened_at_ms: None,
            sees_all_tenants: false,
        };
        let entry = self.core.policy.tenant(&request.tenant).await?;
        let (id, resolved, record) = self.usage_without_gate(&entry, &request)?;
        let lives = lives_of(&resolved, record.head.born_at_ms);
        let admission = NewParked {
            tenant: conflict.tenant.clone(),
            call: "usage",
            taken_at_ms: record.head.born_at_ms,
            fingerprint: Some(record.body.fingerprint.0),
            payload: ParkedCall::Admit { record, lives }.encode(),
        };
        Ok((id, admission))
    }
}

fn is_admission(conflict: &ParkedConflict) -> bool {
    matches!(conflict.call.as_str(), "reserve" | "usage")
}

fn misfit(why: &str) -> OperationError {
    OperationError::field("/choice", why)
}

/// What a call says was used; a reserve has used nothing. A single amount belongs to its reservation's only line.
fn said(call: &ParkedCall, reservation: Option<&Record>) -> Vec<(MeterId, Amount)> {
    match call {
        ParkedCall::Admit { record, .. } => record
            .body
            .lines
            .iter()
            .zip(&record.units)
            .filter(|(line, units)| line.booked && units.consumed > Units::ZERO)
            .map(|(line, units)| (line.meter.clone(), units.consumed.to_amount(line.decimals)))
            .collect(),
        ParkedCall::Consume { totals, .. } | ParkedCall::Release { incurred: totals } => match totals {
            Totals::ByMeter(amounts) => {
                amounts.iter().filter(|(_, amount)| *amount > Amount::ZERO).cloned().collect()
            }
            Totals::Single(amount) => {
                let lines = reservation.map(|record| record.body.lines.as_slice()).unwrap_or_default();
                match lines {
                    [line] if *amount > Amount::ZERO => vec![(line.meter.clone(), *amount)],
                    _ => Vec::new(),
                }
            }
            Totals::Default => Vec::new(),
        },
    }
}

/// The part of these totals, of meters that are booked, that a reservation has not consumed.
fn not_in(record: &Record, said: &[(MeterId, Amount)]) -> Answer<Vec<(MeterId, Amount)>> {
    let mut missing = Vec::new();
    for (meter, amount) in said {
        let line = record.body.lines.iter().zip(&record.units).find(|(line, _)| line.meter == *meter);
        let Some((line, units)) = line else {
            missing.push((meter.clone(), *amount));
            continue;
        };
        if !line.booked {
            continue;
        }
        let said = amount
            .to_units(line.decimals)
            .map_err(|error| OperationError::Internal(format!("parked call: {error}")))?;
        let rest = said.saturating_sub(units.consumed);
        if rest > Units::ZERO {
            missing.push((meter.clone(), rest.to_amount(line.decimals)));
        }
    }
    Ok(missing)
}

fn subjects_of(record: &Record) -> Vec<Subject> {
    let rest = record.body.rest.as_ref();
    rest.map(|rest| rest.subjects.iter().map(|(subject, _)| subject.clone()).collect()).unwrap_or_default()
}
