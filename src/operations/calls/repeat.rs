//! Repeats: a keyed call that was admitted before is answered with the current status, whatever policy says by now.

use super::Calls;
use super::reserve_answer::{ADMISSION_STEP, blank};
use crate::domain::ids::ReservationId;
use crate::domain::reservation::{LineRule, Record, ReservationState};
use crate::operations::answers::{Hold, Reservation, Reserved, ReservedLine, decision_of};
use crate::operations::error::{Answer, OperationError};
use crate::operations::limit_status::LimitStatus;
use crate::operations::preparation::{EVENT, Prepared, fingerprint};
use crate::operations::requests::{Mode, ReserveRequest, Work};

/// A call that was admitted before, in its current state.
pub(super) struct Repeat {
    pub(super) id: ReservationId,
    pub(super) record: Record,
    pub(super) limits: Vec<LimitStatus>,
    /// Whether the gate is away, so that this is what the ledger has.
    pub(super) degraded: bool,
}

impl Calls {
    /// Answers a keyed call that policy refuses now: as a repeat where it is one, else with the refusal.
    pub(super) async fn repeated(
        &self,
        request: &ReserveRequest,
        call: &str,
        refusal: OperationError,
    ) -> Answer<Repeat> {
        let partition = self.core.gate.partition_of(&request.tenant);
        let Some(id) = self.preparation.keyed_id(partition, request, call) else { return Err(refusal) };
        let bound = Some(&request.tenant);
        // No light call is ever in the ledger. What is refused before it is known which meters it is about may be of
        // either kind.
        let booked = match call != EVENT && self.preparation.is_light(&request.work) {
            true => Err(OperationError::no_such_reservation()),
            false => self.found(id, bound).await,
        };
        let found = match booked {
            Err(OperationError::NotFound(_)) => {
                match self.found_light(self.preparation.ids.light(id), bound).await {
                    Err(OperationError::NotFound(_)) => return Err(refusal),
                    found => found?,
                }
            }
            found => found?,
        };
        let Reservation { id, record, degraded, .. } = found;
        if !fingerprint(call, request, None).repeats(&record.body.fingerprint) {
            return Err(key_reused(id, record));
        }
        Ok(Repeat { id, record, limits: Vec::new(), degraded })
    }
}

impl Calls {
    /// What to do about work that was submitted before, as far as the gate knows: go on, where the ledger says that
    /// the first was given up. The gate forgets that before the guard's time is over, if the call had no key.
    ///
    /// Errors: the same work submitted twice, with the reservation of the first; or why that cannot be read.
    pub(super) async fn unless_duplicate(
        &self,
        first: ReservationId,
        request: &ReserveRequest,
        prepared: &mut Prepared,
    ) -> Answer<()> {
        let found = match self.found(first, Some(&request.tenant)).await {
            Ok(found) => Some(Box::new(found)),
            Err(OperationError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        let was_given_up = found.as_ref().is_some_and(|found| {
            matches!(found.record.head.state, ReservationState::Released | ReservationState::Expired)
        });
        // A second time about the same one: the gate does not go on.
        match prepared.work.as_deref_mut() {
            Some(work) if was_given_up && work.given_up != Some(first) => work.given_up = Some(first),
            _ => return Err(OperationError::Duplicate(first, found)),
        }
        Ok(())
    }
}

impl Repeat {
    /// The reserve's answer, with the current status.
    pub(super) fn answer(self, request: &ReserveRequest) -> Reserved {
        // What an operation asked for is not known: what it costs, or is estimated at, may have changed since.
        let named: &[_] = match &request.work {
            Work::Lines { lines, .. } if request.mode == Mode::BestEffort => &lines[..],
            _ => &[],
        };
        let requested = |line: &LineRule| {
            let (_, amount) = named.iter().find(|(meter, _)| *meter == line.meter)?;
            Some(amount.floor_units(line.decimals).to_amount(line.decimals))
        };
        let lines = self.record.body.lines.iter().zip(&self.record.units);
        let lines = lines.map(|(line, units)| ReservedLine {
            meter: line.meter.clone(),
            amount: units.held.to_amount(line.decimals),
            requested: requested(line),
            decimals: line.decimals,
            estimated: line.estimated,
            estimate: None,
        });
        let head = &self.record.head;
        Reserved {
            hold: Some(Hold {
                id: self.id,
                state: head.state,
                created_at_ms: head.born_at_ms,
                expires_at_ms: head.expires_at_ms,
            }),
            start_after_ms: head.start_after_ms,
            decision_id: decision_of(self.id, ADMISSION_STEP),
            lines: lines.collect(),
            replayed: true,
            degraded: self.degraded || head.degraded,
            limits: self.limits,
            ..blank(request)
        }
    }
}

/// The error for a key that was used for another request; it shows the reservation of the first.
pub(super) fn key_reused(id: ReservationId, first: Record) -> OperationError {
    OperationError::KeyReused(Box::new(Reservation::new(id, first)))
}
