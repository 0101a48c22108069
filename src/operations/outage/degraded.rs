//! While the gate is away: where limits allow it, calls are admitted without being counted; known reservations are
//! consumed and released. Every such call is parked in the ledger until the gate has it.

use super::parking::{Parks, both_away, is_busy};
use super::{Outage, Stranded};
use crate::domain::amount::Units;
use crate::domain::counter::Counter;
use crate::domain::ids::{OutboxId, ReservationId, TenantId};
use crate::domain::limit::Class;
use crate::domain::parked::{CounterLife, ParkedCall};
use crate::domain::policy::Resolved;
use crate::domain::reservation::{Body, LineUnits, Record, ReservationState};
use crate::domain::resolution::{ReservationView, Totals, Verdict};
use crate::gate::{GateError, ReserveMode, ReserveOutcome, ResolveOutcome};
use crate::ledger::{KnownReservation, NewParked, NotParked, ParkedState};
use crate::operations::answers::Reservation;
use crate::operations::error::{Answer, OperationError};
use crate::operations::policy_store::TenantEntry;
use crate::operations::preparation::{Prepared, USAGE, usage_record};
use crate::operations::requests::{Ack, ReserveRequest};
use crate::telemetry::labels::{Call, Fallback};

/// The outcome of an admission while the gate is away.
#[allow(clippy::large_enum_variant, reason = "made once a call and taken apart at once")]
enum Admission {
    /// It is parked.
    Parked,
    /// The same call was admitted before; this is its reservation.
    Known(Record),
    /// The id belongs to a call with another fingerprint; this is that call's reservation.
    KeyReused(Record),
}

/// The outcome of a consume or release.
enum Judged {
    Outcome(Box<ResolveOutcome>),
    /// Only the gate can decide it.
    Unknown,
}

/// The lifetimes of an admission's counters, in order.
pub(in crate::operations) fn lives_of(resolved: &Resolved, now_ms: i64) -> Vec<CounterLife> {
    let life = |counter: &Counter| CounterLife {
        window_end_ms: counter.ends_at_ms(now_ms),
        since_ms: counter.since_ms,
        starts_fresh: counter.class == Class::Rate,
    };
    resolved.counters.iter().map(life).collect()
}

/// Keeps only counters that the ledger can restore: of work that the gate did not see, only they can be counted later.
/// Light ones are none of these.
pub(in crate::operations) fn keep_restorable(resolved: &mut Resolved, body: &mut Body) {
    resolved.counters.retain(|counter| counter.parameters.holds_survive() && !counter.is_light);
    if let Some(rest) = &mut body.rest {
        rest.counters.retain(|place| place.parameters.holds_survive() && !place.is_light);
    }
}

impl Outage {
    /// Admits and parks a call that the gate does not measure, where the limits say so; `globals` are those that count
    /// all tenants. Usage counts at `at_ms`, which may be past.
    pub(in crate::operations) async fn admit(
        &self,
        prepared: &Prepared,
        (resolved, body): (&mut Resolved, &mut Body),
        globals: &[Counter],
        mode: ReserveMode,
        (now_ms, at_ms): (i64, i64),
        away: GateError,
    ) -> Answer<ReserveOutcome> {
        if mode.dry() == mode {
            return Err(away.into());
        }
        let subjects = prepared.subject_hashes();
        let work = Stranded { tenant: &body.tenant, subjects: &subjects, amounts: &prepared.units };
        let counters = resolved.counters.iter().chain(globals);
        let let_through = match self.let_through(work, counters, now_ms) {
            Ok(let_through) => let_through,
            Err(Fallback::Deny) => return Err(away.into()),
            Err(_) => return self.admitted_before(prepared, now_ms, away).await,
        };
        let unparked = self.being_parked(&let_through);
        if let Err(full) = self.room_to_park(Parks::Admission).await {
            self.put_back(let_through);
            return Err(full);
        }
        keep_restorable(resolved, body);
        let record = match mode {
            ReserveMode::Usage => usage_record(body, &prepared.units, OutboxId::default(), at_ms, at_ms),
            _ => held_record(body, prepared, now_ms),
        };
        let expires_at_ms = record.head.expires_at_ms;
        let lives = lives_of(resolved, at_ms);
        let admission = match self.park_admission(prepared.id, degraded(record), lives, now_ms).await {
            Ok(admission) => admission,
            Err(NotParked { error, may_be_parked }) => {
                match may_be_parked {
                    true => unparked.stays(),
                    false => self.put_back(let_through),
                }
                return Err(both_away(error));
            }
        };
        if !matches!(admission, Admission::Parked) {
            self.put_back(let_through);
        }
        Ok(match admission {
            Admission::Parked => ReserveOutcome::Admitted {
                granted: prepared.units.clone(),
                expires_at_ms,
                event: OutboxId::default(),
                now_ms,
                readings: Vec::new(),
                start_after_ms: 0,
            },
            Admission::Known(record) => ReserveOutcome::Replayed { record, readings: Vec::new(), now_ms },
            Admission::KeyReused(record) => ReserveOutcome::KeyReused { record },
        })
    }

    /// The admission of the same call before, where there is no room for another.
    async fn admitted_before(
        &self,
        prepared: &Prepared,
        now_ms: i64,
        away: GateError,
    ) -> Answer<ReserveOutcome> {
        if is_busy(&self.core.ledger) {
            return Err(away.into());
        }
        let known = self.core.ledger.known_together(prepared.id).await.map_err(both_away)?;
        let record = standing(&known).map(|found| found.record).ok_or(away)?;
        Ok(match prepared.fingerprint.repeats(&record.body.fingerprint) {
            true => ReserveOutcome::Replayed { record, readings: Vec::new(), now_ms },
            false => ReserveOutcome::KeyReused { record },
        })
    }

    /// A usage that the gate does not count before it is parked.
    pub(super) fn usage_without_gate(
        &self,
        entry: &TenantEntry,
        request: &ReserveRequest,
    ) -> Answer<(ReservationId, Resolved, Record)> {
        let now_ms = self.core.gate_now_ms();
        let prepared = self.preparation.prepare(entry, request, USAGE)?;
        if prepared.is_light() {
            let message = "names meters that are not booked: such usage is never parked";
            return Err(OperationError::field("/lines", message));
        }
        let (mut resolved, mut body) = self.preparation.resolve(entry, request, &prepared, now_ms)?;
        keep_restorable(&mut resolved, &mut body);
        let record = usage_record(&body, &prepared.units, OutboxId::default(), now_ms, now_ms);
        Ok((prepared.id, resolved, degraded(record)))
    }

    /// Parks an admission for which there is room, unless the ledger has its id already.
    async fn park_admission(
        &self,
        id: ReservationId,
        record: Record,
        lives: Vec<CounterLife>,
        taken_at_ms: i64,
    ) -> Result<Admission, NotParked> {
        let tenant = record.body.tenant.clone();
        // Noted first: a call that looks before the admission is parked only finds nothing.
        let noted = tenant.clone();
        self.parking.note(id.partition(), &noted);
        let fingerprint = record.body.fingerprint;
        let parked = ParkedCall::Admit { record, lives };
        let call = call_of(&parked);
        let decide = move |known: &KnownReservation, not_before_ms| match standing(known) {
            Some(found) if fingerprint.repeats(&found.record.body.fingerprint) => {
                (None, Admission::Known(found.record))
            }
            Some(found) => (None, Admission::KeyReused(found.record)),
            None => {
                let new = NewParked {
                    tenant: tenant.clone(),
                    call: parked.name(),
                    taken_at_ms: taken_at_ms.max(not_before_ms),
                    payload: parked.encode(),
                    fingerprint: Some(fingerprint.0),
                };
                (Some(new), Admission::Parked)
            }
        };
        let admission = self.core.ledger.park(id, decide).await?;
        if matches!(admission, Admission::Parked) {
            // Noted again: a look before the admission was parked may have forgotten the tenant.
            self.parking.note(id.partition(), &noted);
            self.core.metrics.call_parked(call);
        }
        Ok(admission)
    }

    /// Consumes or releases a reservation that the ledger has, by parking the call. `away` says why the gate was not
    /// asked.
    pub(in crate::operations) async fn resolve(
        &self,
        id: ReservationId,
        bound: Option<&TenantId>,
        parked: ParkedCall,
        away: GateError,
    ) -> Answer<ResolveOutcome> {
        self.room_to_park(Parks::Resolve).await?;
        let (now_ms, bound) = (self.core.gate_now_ms(), bound.cloned());
        let call = call_of(&parked);
        let decide = move |known: &KnownReservation, not_before_ms| {
            judge(known, bound.as_ref(), &parked, now_ms.max(not_before_ms))
        };
        let parked = self.core.ledger.park(id, decide).await;
        let (judged, parked_of) = parked.map_err(|not_parked| both_away(not_parked.into()))?;
        if let Some(tenant) = parked_of {
            self.parking.note(id.partition(), &tenant);
            self.core.metrics.call_parked(call);
        }
        match judged {
            Judged::Outcome(outcome) => Ok(*outcome),
            Judged::Unknown => Err(away.into()),
        }
    }

    /// A reservation together with its parked calls that the gate does not have yet; `at_gate` is its record there.
    /// With the gate away, what the ledger has.
    pub(in crate::operations) async fn with_parked(
        &self,
        id: ReservationId,
        bound: Option<&TenantId>,
        at_gate: Result<Option<Record>, GateError>,
    ) -> Answer<Option<Reservation>> {
        let mut known = self.core.ledger.known_reservation(id).await?;
        let away = at_gate.as_ref().err().cloned();
        if away.is_none() && !known.parked.iter().any(|row| row.state == ParkedState::Waiting) {
            return Ok(None);
        }
        if let (Ok(Some(record)), Some(row)) = (at_gate, known.row.as_mut()) {
            row.record.head = record.head;
            row.record.units = record.units;
        }
        let found =
            standing(&known).filter(|found| bound.is_none_or(|bound| *bound == found.record.body.tenant));
        match (found, away) {
            (Some(found), _) => {
                let found = Reservation::new(id, found.record);
                Ok(Some(Reservation { degraded: true, ack: Ack::Ledger, ..found }))
            }
            (None, Some(away)) => Err(away.into()),
            (None, None) => Ok(None),
        }
    }

    /// A reservation's record from the engine that has it, to compute a cost again.
    pub(in crate::operations) async fn known_record(
        &self,
        id: ReservationId,
        bound: Option<&TenantId>,
    ) -> Answer<Record> {
        let mut recovery = self.memory.recovery("the gate's memory kept changing under this read");
        let at_gate = loop {
            match self.core.gate.peek_record(id, bound, self.core.script_now()).await {
                Ok(peeked) => break Ok(peeked.record),
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        break Err(away);
                    }
                }
            }
        };
        match at_gate {
            Ok(Some(record)) if record.body.rest.is_some() => Ok(record),
            at_gate if at_gate.is_err() || self.parking.touches(id.partition()) => {
                match self.with_parked(id, bound, at_gate).await? {
                    Some(found) => Ok(found.record),
                    None => Ok(self.memory.row_of(id, bound).await?.record),
                }
            }
            _ => Ok(self.memory.row_of(id, bound).await?.record),
        }
    }
}

fn degraded(mut record: Record) -> Record {
    record.head.degraded = true;
    record
}

fn held_record(body: &Body, prepared: &Prepared, now_ms: i64) -> Record {
    let expires_at_ms = now_ms.saturating_add(prepared.ttl_ms.min(prepared.max_life_ms));
    let mut record = usage_record(body, &prepared.units, OutboxId::default(), expires_at_ms, now_ms);
    record.head.state = ReservationState::Reserved;
    record.head.latest_expiry_ms = now_ms.saturating_add(prepared.max_life_ms);
    record.units = prepared.units.iter().map(|units| LineUnits::new(*units, Units::ZERO)).collect();
    record
}

fn call_of(parked: &ParkedCall) -> Call {
    match parked.name() {
        "usage" => Call::Usage,
        "reserve" => Call::Reserve,
        "consume" => Call::Consume,
        _ => Call::Release,
    }
}

/// A reservation's state by the ledger: its booked row or parked admission, then its parked calls in order. Calls that
/// the row contains already change nothing.
pub(in crate::operations) fn standing(known: &KnownReservation) -> Option<ReservationView> {
    let row = known.row.as_ref();
    let mut found = row.map(|row| ReservationView { record: row.record.clone() });
    for parked in &known.parked {
        let Ok(call) = ParkedCall::decode(&parked.payload) else { continue };
        match (&found, call) {
            (None, ParkedCall::Admit { record, .. }) => {
                found = Some(ReservationView { record });
            }
            (None, _) | (Some(_), ParkedCall::Admit { .. }) => {}
            (Some(before), call) => {
                if let Verdict::Changed(after) = verdict(before, &call, parked.taken_at_ms) {
                    found = Some(after);
                }
            }
        }
    }
    found
}

fn verdict(before: &ReservationView, call: &ParkedCall, taken_at_ms: i64) -> Verdict {
    match call {
        ParkedCall::Consume { totals, is_final } => before.consume(totals, *is_final, taken_at_ms),
        ParkedCall::Release { incurred } => before.release(incurred, taken_at_ms),
        ParkedCall::Admit { .. } => Verdict::Replayed,
    }
}

type Decision = (Option<NewParked>, (Judged, Option<TenantId>));

fn judge(known: &KnownReservation, bound: Option<&TenantId>, call: &ParkedCall, now_ms: i64) -> Decision {
    let found = standing(known).filter(|found| bound.is_none_or(|bound| *bound == found.record.body.tenant));
    let Some(before) = found else { return (None, (Judged::Unknown, None)) };
    let tenant = before.record.body.tenant.clone();
    match verdict(&before, call, now_ms) {
        Verdict::Changed(after) => {
            let new = NewParked {
                tenant: tenant.clone(),
                call: call.name(),
                taken_at_ms: now_ms,
                payload: stated(&before, call).encode(),
                fingerprint: None,
            };
            (Some(new), (outcome(done(before, after, now_ms)), Some(tenant)))
        }
        Verdict::Replayed => {
            let record = before.record;
            (None, (outcome(ResolveOutcome::Replayed { record, readings: Vec::new(), now_ms }), None))
        }
        Verdict::Rejected(rejection) => {
            let record = before.record;
            (None, (outcome(ResolveOutcome::Rejected { rejection, record }), None))
        }
        Verdict::Undecided => (None, (Judged::Unknown, None)),
    }
}

/// A change as it was judged. Lines that a release does not name keep what is consumed so far, as at the gate.
fn stated(before: &ReservationView, call: &ParkedCall) -> ParkedCall {
    match call {
        ParkedCall::Consume { totals, is_final } => {
            ParkedCall::Consume { totals: before.stated(totals, *is_final), is_final: *is_final }
        }
        ParkedCall::Release { incurred: Totals::Single(amount) } => {
            let lines = before.record.body.lines.iter();
            let incurred = Totals::ByMeter(lines.map(|rule| (rule.meter.clone(), *amount)).collect());
            ParkedCall::Release { incurred }
        }
        call => call.clone(),
    }
}

fn outcome(outcome: ResolveOutcome) -> Judged {
    Judged::Outcome(Box::new(outcome))
}

fn done(before: ReservationView, after: ReservationView, now_ms: i64) -> ResolveOutcome {
    ResolveOutcome::Done {
        record: after.record,
        previous: before.record.units,
        event: OutboxId::default(),
        readings: Vec::new(),
        now_ms,
    }
}
