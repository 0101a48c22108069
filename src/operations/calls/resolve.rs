//! Consume, release and extend: the changes of a reservation after its reserve. They need only its id.

use super::light::nothing_to_wait_for;
use super::{Calls, KEPT_CHANGING};
use crate::domain::amount::Units;
use crate::domain::decision::DecidedCall;
use crate::domain::ids::{IdempotencyKey, OutboxId, ReservationId, TenantId};
use crate::domain::meter::HoldSeconds;
use crate::domain::parked::ParkedCall;
use crate::domain::rejection::Rejection;
use crate::domain::reservation::{Record, ReservationState};
use crate::domain::resolution::Totals;
use crate::gate::{ConsumeCall, ExtendCall, GateError, ReleaseCall, ResolveOutcome};
use crate::ledger::ReservationRow;
use crate::operations::answers::Reservation;
use crate::operations::error::{Answer, OperationError};
use crate::operations::memory::{Acknowledged, Lines};
use crate::operations::preparation::{RESERVE, USAGE, costed_by};
use crate::operations::requests::{Ack, ConsumeRequest, ExtendRequest, ReleaseRequest, Used};
use crate::telemetry::labels::{Call, Script};

const EXTEND_SECONDS_DEFAULT: u32 = 60;

/// Which of the three calls it is, with its arguments.
enum Resolving {
    Consume { totals: Totals, is_final: bool },
    Release { incurred: Totals },
    Extend { ttl_ms: i64 },
}

impl Resolving {
    fn word(&self) -> &'static str {
        match self {
            Self::Consume { .. } => "consume",
            Self::Release { .. } => "release",
            Self::Extend { .. } => "extend",
        }
    }
}

impl Calls {
    /// Moves a reservation's totals, and resolves it when final. Totals count from the start of the reservation, so
    /// that a repeat is harmless. With `Ack::Ledger` it returns once the event is booked.
    pub async fn consume(&self, request: ConsumeRequest) -> Answer<Reservation> {
        let answer = self.consume_now(request).await;
        self.keep_resolved(DecidedCall::Consume, &answer);
        self.decided(Call::Consume, answer, |answer| answer.replayed)
    }

    async fn consume_now(&self, request: ConsumeRequest) -> Answer<Reservation> {
        let is_light = request.id.is_light();
        if is_light && request.ack == Ack::Ledger {
            return Err(nothing_to_wait_for());
        }
        if !request.is_final && !is_light {
            self.admission.may_go_on_holding()?;
        }
        let totals = match request.used {
            Used::Totals(totals) => totals,
            Used::Attributes(attributes) => {
                Box::pin(self.costed_again(&attributes, request.id, request.bound.as_ref())).await?
            }
        };
        let resolving = Resolving::Consume { totals, is_final: request.is_final };
        let mut found = self.drive(request.id, request.bound.as_ref(), &resolving).await?;
        // A parked call is in the ledger already.
        if request.ack == Ack::Ledger && found.ack == Ack::Gate {
            let (step, event) = (found.record.head.step, found.record.head.last_event());
            Box::pin(self.core.progress.wait_until_booked(request.id, step, event, found.replayed)).await?;
            found.ack = Ack::Ledger;
        }
        Ok(found)
    }

    /// Gives back what was not used and charges what was used before the work was given up. An expired reservation has
    /// nothing to give back and stays as it is; what was used of it is a late consume.
    pub async fn release(&self, request: ReleaseRequest) -> Answer<Reservation> {
        let answer = self.release_now(request).await;
        self.keep_resolved(DecidedCall::Release, &answer);
        self.decided(Call::Release, answer, |answer| answer.replayed)
    }

    async fn release_now(&self, request: ReleaseRequest) -> Answer<Reservation> {
        if let Some(reason) = &request.reason {
            tracing::info!(reservation = %request.id, reason, "released");
        }
        let nothing_incurred = request.incurred == Totals::Default;
        let resolving = Resolving::Release { incurred: request.incurred };
        match self.drive(request.id, request.bound.as_ref(), &resolving).await {
            // Its expiry gave everything back already, which is what was asked for.
            Err(OperationError::Rejected(Rejection::Expired, found)) if nothing_incurred => Ok(*found),
            outcome => outcome,
        }
    }

    /// Moves the expiry to now + ttl if that is later, within the reservation's total life.
    pub async fn extend(&self, request: ExtendRequest) -> Answer<Reservation> {
        let answer = self.extend_now(request).await;
        self.keep_resolved(DecidedCall::Extend, &answer);
        self.decided(Call::Extend, answer, |answer| answer.replayed)
    }

    async fn extend_now(&self, request: ExtendRequest) -> Answer<Reservation> {
        let ttl_seconds = request.ttl.map_or(EXTEND_SECONDS_DEFAULT, HoldSeconds::get);
        if !request.id.is_light() {
            self.admission.may_go_on_holding()?;
        }
        let resolving = Resolving::Extend { ttl_ms: i64::from(ttl_seconds) * 1000 };
        self.drive(request.id, request.bound.as_ref(), &resolving).await
    }

    /// Parses a reservation id from outside. One that this installation did not make is not found, without a look-up.
    pub fn parse_reservation_id(&self, text: &str) -> Answer<ReservationId> {
        self.preparation.ids.parse(text).map_err(|_| OperationError::no_such_reservation())
    }

    /// What calls about one reservation have in common, by its id: that of the light one, because whether it is light
    /// is known only once a call is costed.
    pub fn common_id(&self, text: &str) -> Answer<ReservationId> {
        self.parse_reservation_id(text).map(|id| self.preparation.ids.light(id))
    }

    /// The same by the key of a reserve.
    pub fn common_id_of_reserve(&self, tenant: &TenantId, key: &IdempotencyKey) -> ReservationId {
        self.common_id_of_key(tenant, RESERVE, key)
    }

    /// The same by the key of a usage, or of a check of booked meters, which is one.
    pub fn common_id_of_usage(&self, tenant: &TenantId, key: &IdempotencyKey) -> ReservationId {
        self.common_id_of_key(tenant, USAGE, key)
    }

    fn common_id_of_key(&self, tenant: &TenantId, call: &str, key: &IdempotencyKey) -> ReservationId {
        let ids = &self.preparation.ids;
        ids.light(ids.derive(self.core.gate.partition_of(tenant), tenant, call, key))
    }

    /// A reservation in any state: from the gate, or from the ledger once the gate has forgotten it. Of a light one the
    /// ledger has never heard.
    pub async fn read_reservation(&self, id: ReservationId, bound: Option<TenantId>) -> Answer<Reservation> {
        match self.found(id, bound.as_ref()).await {
            Err(OperationError::NotFound(_)) if !id.is_light() => {
                self.found_elsewhere(id, bound.as_ref()).await
            }
            found => found,
        }
    }

    /// A reservation's record from the engine that has it, with all that an answer shows.
    pub(super) async fn found(&self, id: ReservationId, bound: Option<&TenantId>) -> Answer<Reservation> {
        if id.is_light() {
            return self.found_light(id, bound).await;
        }
        let at_gate =
            self.core.gate.peek_record(id, bound, self.core.script_now()).await.map(|peeked| peeked.record);
        if at_gate.is_err() || self.outage.parking.touches(id.partition()) {
            let parked = self.outage.with_parked(id, bound, at_gate.clone()).await?;
            if let Some(found) = parked {
                return Ok(found);
            }
        }
        let (record, resolved_at_ms) = match at_gate.unwrap_or_default() {
            Some(record) if record.head.state == ReservationState::Reserved => (record, None),
            // The record of an expired reservation is complete, without the ledger.
            Some(record) if record.body.rest.is_some() => {
                let row = self.row_in_time(id, &record).await;
                (record, row.and_then(|row| row.resolved_at_ms))
            }
            known => match (self.memory.row_of(id, bound).await, known) {
                (Ok(row), None) => (row.record, row.resolved_at_ms),
                (Ok(row), Some(known)) => {
                    let resolved_at_ms = row.resolved_at_ms.filter(|_| row.step == known.head.step);
                    (Record { body: row.record.body, ..known }, resolved_at_ms)
                }
                (Err(OperationError::NotFound(_)), Some(known)) => (known, None),
                (Err(error), _) => return Err(error),
            },
        };
        Ok(Reservation { resolved_at_ms, ..Reservation::new(id, record) })
    }

    /// A reservation that neither the gate nor the ledger's table of booked ones has: another instance may have parked
    /// it, or it is archived.
    async fn found_elsewhere(&self, id: ReservationId, bound: Option<&TenantId>) -> Answer<Reservation> {
        if let Some(parked) = self.outage.with_parked(id, bound, Ok(None)).await? {
            return Ok(parked);
        }
        let row = self.archived(id, bound).await?;
        let resolved_at_ms = row.resolved_at_ms;
        Ok(Reservation { ack: Ack::Ledger, resolved_at_ms, ..Reservation::new(id, row.record) })
    }

    async fn archived(&self, id: ReservationId, bound: Option<&TenantId>) -> Answer<ReservationRow> {
        let row = self.core.ledger.archived_reservation(id).await?;
        row.filter(|row| bound.is_none_or(|bound| *bound == row.tenant))
            .ok_or_else(OperationError::no_such_reservation)
    }

    /// Any change of an archived reservation is refused: it is resolved for good.
    async fn refuse_archived(&self, id: ReservationId, bound: Option<&TenantId>) -> OperationError {
        match self.archived(id, bound).await {
            Ok(row) => {
                let resolved_at_ms = row.resolved_at_ms;
                let found = Reservation { resolved_at_ms, ..Reservation::new(id, row.record) };
                let rejection = match row.state {
                    ReservationState::Expired => Rejection::Expired,
                    _ => Rejection::AlreadyResolved,
                };
                OperationError::Rejected(rejection, Box::new(found))
            }
            Err(error) => error,
        }
    }

    /// Drives one call to its decision: restores what is cold, refetches what the gate has forgotten, checks the node
    /// after an alarm.
    async fn drive(
        &self,
        id: ReservationId,
        bound: Option<&TenantId>,
        resolving: &Resolving,
    ) -> Answer<Reservation> {
        let mut recovery = self.memory.recovery(KEPT_CHANGING);
        loop {
            if !id.is_light()
                && let Some(away) = self.outage.parked_of_first(id).await?
            {
                return Box::pin(self.resolve_without_gate(id, bound, resolving, away)).await;
            }
            match self.call(id, bound, resolving).await {
                Ok(ResolveOutcome::Unknown { .. }) if id.is_light() => {
                    return Err(OperationError::no_such_reservation());
                }
                Ok(ResolveOutcome::Unknown { last_id }) => {
                    Box::pin(self.recall_or_not_found(id, bound, last_id)).await?;
                    recovery.again()?;
                }
                Ok(ResolveOutcome::Cold(cold)) => recovery.restore_record(&cold).await?,
                Ok(outcome) => {
                    if !id.is_light() {
                        self.remember_resolved(id, resolving, &outcome);
                    }
                    if let (Resolving::Release { .. }, ResolveOutcome::Done { record, .. }) =
                        (resolving, &outcome)
                    {
                        Box::pin(self.give_back_released(id, record)).await;
                    }
                    return self.settled(id, outcome).await;
                }
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        return Box::pin(self.resolve_without_gate(id, bound, resolving, away)).await;
                    }
                }
            }
        }
    }

    /// Decides while the gate is away: the ledger judges a consume or release and parks it.
    async fn resolve_without_gate(
        &self,
        id: ReservationId,
        bound: Option<&TenantId>,
        resolving: &Resolving,
        away: GateError,
    ) -> Answer<Reservation> {
        if id.is_light() {
            return Err(away.into());
        }
        let parked = match resolving {
            Resolving::Consume { totals, is_final } => {
                ParkedCall::Consume { totals: totals.clone(), is_final: *is_final }
            }
            Resolving::Release { incurred } => ParkedCall::Release { incurred: incurred.clone() },
            Resolving::Extend { .. } => return Err(away.into()),
        };
        let outcome = self.outage.resolve(id, bound, parked, away).await?;
        let settled = self.settled(id, outcome).await?;
        Ok(Reservation { degraded: true, ack: Ack::Ledger, ..settled })
    }

    async fn call(
        &self,
        id: ReservationId,
        bound: Option<&TenantId>,
        resolving: &Resolving,
    ) -> Result<ResolveOutcome, GateError> {
        let now_ms = self.core.script_now();
        match resolving {
            Resolving::Consume { totals, is_final } => {
                let totals = totals.clone();
                let call = ConsumeCall { id, bound, totals, is_final: *is_final, now_ms };
                self.core.timed(Script::Consume, self.core.gate.consume(&call)).await
            }
            Resolving::Release { incurred } => {
                let call = ReleaseCall { id, bound, incurred: incurred.clone(), now_ms };
                self.core.timed(Script::Release, self.core.gate.release(&call)).await
            }
            Resolving::Extend { ttl_ms } => {
                let call = ExtendCall { id, bound, ttl_ms: *ttl_ms, now_ms };
                self.core.timed(Script::Extend, self.core.gate.extend(&call)).await
            }
        }
    }

    fn remember_resolved(&self, id: ReservationId, resolving: &Resolving, outcome: &ResolveOutcome) {
        let ResolveOutcome::Done { record, previous, event, .. } = outcome else { return };
        let lines = record.body.booked_lines().filter_map(|(line, rule)| {
            let (now, before) = (record.units.get(line)?, previous.get(line)?);
            let consumed = now.consumed.saturating_sub(before.consumed);
            Some((rule.meter.clone(), rule.decimals, Units::ZERO, consumed))
        });
        let acknowledged = Acknowledged {
            event: *event,
            tenant: record.body.tenant.clone(),
            reservation: id,
            kind: resolving.word(),
            lines: Lines::of(lines),
        };
        self.memory.losses.note(id.partition(), acknowledged);
    }

    async fn settled(&self, id: ReservationId, outcome: ResolveOutcome) -> Answer<Reservation> {
        match outcome {
            ResolveOutcome::Done { record, readings, now_ms, .. } => {
                let limits = self.moved_limits(&record, &readings, now_ms).await;
                let is_resolved =
                    matches!(record.head.state, ReservationState::Consumed | ReservationState::Released);
                let resolved_at_ms = is_resolved.then_some(now_ms);
                Ok(Reservation { limits, resolved_at_ms, ..Reservation::new(id, record) })
            }
            ResolveOutcome::Replayed { record, .. } if record.body.rest.is_none() => {
                let found = Box::pin(self.recalled(id, record)).await;
                Ok(Reservation { replayed: true, ..found })
            }
            ResolveOutcome::Replayed { record, readings, now_ms } => {
                let limits = self.moved_limits(&record, &readings, now_ms).await;
                Ok(Reservation { replayed: true, limits, ..Reservation::new(id, record) })
            }
            ResolveOutcome::Rejected { rejection, record } => {
                let is_resolved = rejection == Rejection::AlreadyResolved;
                let found = match record.body.rest {
                    None if is_resolved => Box::pin(self.recalled(id, record)).await,
                    _ => Reservation::new(id, record),
                };
                Err(OperationError::Rejected(rejection, Box::new(found)))
            }
            ResolveOutcome::Unknown { .. } | ResolveOutcome::Cold(_) => {
                Err(OperationError::Internal("the gate gave an answer that fits no request".into()))
            }
        }
    }

    /// Costs the operation again, under the policy version of the reserve.
    async fn costed_again(
        &self,
        attributes: &serde_json::Map<String, serde_json::Value>,
        id: ReservationId,
        bound: Option<&TenantId>,
    ) -> Answer<Totals> {
        let record = match id.is_light() {
            true => self.found_light(id, bound).await?.record,
            false => self.outage.known_record(id, bound).await?,
        };
        let rest = record.body.rest.as_ref();
        let Some((operation, version)) =
            rest.and_then(|rest| Some((rest.operation.clone()?, rest.policy_version)))
        else {
            return Err(OperationError::field(
                "/attributes",
                "the reservation names no operation; give `amount` or `lines`",
            ));
        };
        let policy = self.core.policy.current();
        let rule = self.core.policy.operation_at(&operation, version).await?;
        let lines = costed_by(&policy, &rule, attributes, None)?;
        let amounts =
            lines.iter().map(|line| (line.meter.id.clone(), line.units.to_amount(line.meter.decimals)));
        Ok(Totals::ByMeter(amounts.collect()))
    }

    /// Handles an id that the gate does not know: its row decides, once the ledger has caught up.
    async fn recall_or_not_found(
        &self,
        id: ReservationId,
        bound: Option<&TenantId>,
        last_id: OutboxId,
    ) -> Answer<()> {
        self.core.progress.catch_up(id.partition(), last_id).await?;
        match self.memory.row_of(id, bound).await {
            Ok(row) => self.memory.bring_back(row).await,
            // Another instance may have parked it, and its notice not have arrived here.
            Err(OperationError::NotFound(_)) if self.outage.redeliver_unheard(id, bound).await? => Ok(()),
            Err(OperationError::NotFound(_)) => Err(self.refuse_archived(id, bound).await),
            Err(error) => Err(error),
        }
    }
}
