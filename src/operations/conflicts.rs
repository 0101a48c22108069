//! Parked calls that the gate will never take: what each said, and how an operator settles it.

use serde_json::{Value, json};

use super::degraded::{lives_of, standing};
use super::requests::{Mode, ReserveRequest, Work};
use super::{Answer, OperationError, Operations};
use crate::domain::amount::{Amount, Units};
use crate::domain::ids::{IdempotencyKey, MeterId, ReservationId, Subject};
use crate::domain::parked::ParkedCall;
use crate::domain::reservation::Record;
use crate::domain::resolution::Totals;
use crate::ledger::{NewParked, ParkedConflict, Settlement, Settling};

/// How a conflict is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictChoice {
    /// Nothing of the call is booked.
    Drop,
    /// What the call said was used, and the books do not have, is recorded as usage of now.
    Usage,
    /// The gate gets the call once more.
    Retry,
}

/// A conflict, as an operator sees it.
#[derive(Debug, Clone)]
pub struct ConflictView {
    /// The call.
    pub conflict: ParkedConflict,
    /// What it said was used.
    pub said: Vec<(MeterId, Amount)>,
    /// What of that the books do not have.
    pub missing: Vec<(MeterId, Amount)>,
}

impl Operations {
    /// The conflicts in the order in which their calls were taken, at most `limit`.
    pub async fn parked_conflicts(&self, limit: usize) -> Answer<Vec<ConflictView>> {
        let mut views = Vec::new();
        for conflict in self.ledger.parked_conflicts(limit).await? {
            views.push(self.view_of(conflict).await?.0);
        }
        Ok(views)
    }

    /// Settles a conflict once. Answers what is booked for it.
    ///
    /// Errors: a conflict with this number is not there; the choice does not fit the call, with the ones that do.
    pub async fn resolve_conflict(
        &self,
        number: i64,
        choice: ConflictChoice,
        actor: &str,
        reason: &str,
    ) -> Answer<Vec<(MeterId, Amount)>> {
        let (view, known) = self.view_of(self.ledger.parked_conflict(number).await?).await?;
        let conflict = view.conflict;
        let (settlement, booked) = match choice {
            ConflictChoice::Drop => (Settlement::Drop, Vec::new()),
            ConflictChoice::Retry if is_admission(&conflict) => {
                return Err(misfit("the gate refuses an admission again: choose drop or usage"));
            }
            ConflictChoice::Retry => (Settlement::Retry, Vec::new()),
            ConflictChoice::Usage if view.missing.is_empty() => {
                return Err(misfit("the books have all that this call says was used: choose drop"));
            }
            ConflictChoice::Usage => {
                let subjects = known.as_ref().map(subjects_of).unwrap_or_default();
                let (id, admission) = self.usage_for(&conflict, subjects, &view.missing).await?;
                (Settlement::Usage(id, admission), view.missing)
            }
        };
        let amounts: Vec<Value> = booked
            .iter()
            .map(|(meter, amount)| json!({ "meter": meter.as_str(), "amount": amount.to_string() }))
            .collect();
        let settling =
            Settling { actor: actor.to_owned(), reason: reason.to_owned(), booked: Value::Array(amounts) };
        self.ledger.settle_conflict(conflict, settlement, settling).await?;
        Ok(booked)
    }

    /// The conflict, and the record of its reservation where the ledger knows it.
    async fn view_of(&self, conflict: ParkedConflict) -> Answer<(ConflictView, Option<Record>)> {
        let call = ParkedCall::decode(&conflict.payload).ok();
        let known = self.ledger.known_reservation(conflict.reservation).await?;
        let known = standing(&known).map(|standing| standing.record);
        let known = known.filter(|record| record.body.tenant == conflict.tenant);
        let said = call.as_ref().map(|call| said(call, known.as_ref())).unwrap_or_default();
        // An admission in conflict is another job than the one that has its id.
        let missing = match &known {
            Some(record) if !is_admission(&conflict) => not_in(record, &said)?,
            _ => said.clone(),
        };
        let own = match call {
            Some(ParkedCall::Admit { record, .. }) => Some(record),
            _ => known,
        };
        Ok((ConflictView { conflict, said, missing }, own))
    }

    /// Usage of now under a key that only this conflict has.
    async fn usage_for(
        &self,
        conflict: &ParkedConflict,
        subjects: Vec<Subject>,
        lines: &[(MeterId, Amount)],
    ) -> Answer<(ReservationId, NewParked)> {
        let key = IdempotencyKey::parse(&format!("parked-conflict-{}", conflict.number))
            .map_err(|error| OperationError::Internal(error.to_string()))?;
        let request = ReserveRequest {
            tenant: conflict.tenant.clone(),
            subjects,
            work: Work::Lines { lines: lines.to_vec(), operation: None },
            ttl_seconds: None,
            mode: Mode::AllOrNothing,
            dry_run: false,
            payload_fingerprint: None,
            metadata: None,
            key: Some(key),
        };
        let entry = self.policy.tenant(&request.tenant).await?;
        let (id, resolved, record) = self.usage_without_gate(&entry, &request)?;
        let lives = lives_of(&resolved);
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

/// What a call says was used; a reserve has used nothing. A single amount is that of its reservation's line.
fn said(call: &ParkedCall, reservation: Option<&Record>) -> Vec<(MeterId, Amount)> {
    match call {
        ParkedCall::Admit { record, .. } => record
            .body
            .lines
            .iter()
            .zip(&record.units)
            .filter(|(_, units)| units.consumed > Units::ZERO)
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

/// What of these totals a reservation has not consumed.
fn not_in(record: &Record, said: &[(MeterId, Amount)]) -> Answer<Vec<(MeterId, Amount)>> {
    let mut missing = Vec::new();
    for (meter, amount) in said {
        let line = record.body.lines.iter().zip(&record.units).find(|(line, _)| line.meter == *meter);
        let Some((line, units)) = line else {
            missing.push((meter.clone(), *amount));
            continue;
        };
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
