//! Redelivers the parked calls of one reservation: first its admission as it was granted, then its consumes and
//! releases, merged into one call.

use std::collections::HashSet;

use super::Outage;
use crate::domain::algorithms::Parameters;
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, TenantId};
use crate::domain::merged_change::{MergedChange, MergedKind};
use crate::domain::parked::{CounterLife, ParkedCall};
use crate::domain::rejection::Rejection;
use crate::domain::reservation::Record;
use crate::gate::{ConsumeCall, GateError, IdCheck, RecordCall, RecordOutcome, ReleaseCall, ResolveOutcome};
use crate::ledger::{LedgerError, ParkedRow};
use crate::operations::error::OperationError;
use crate::operations::memory::{Recovery, Tries};
use crate::telemetry::labels::Script;

/// The outcome of one parked call.
#[derive(Clone)]
pub(in crate::operations) enum Settled {
    /// The gate has it.
    Done,
    /// The gate will never take it.
    Conflict(String),
}

/// A change of a reservation, as the gate takes it.
enum Change<'a> {
    Consume(ConsumeCall<'a>),
    Release(ReleaseCall<'a>),
}

/// Why a redelivery stops early; it goes on later.
pub(in crate::operations) enum Halt {
    Away(GateError),
    Failed(OperationError),
    /// The gate takes the admission from this instant on (gate time, unix ms): its clock was set back since.
    TooEarly(i64),
}

impl From<OperationError> for Halt {
    fn from(error: OperationError) -> Self {
        Self::Failed(error)
    }
}

impl From<LedgerError> for Halt {
    fn from(error: LedgerError) -> Self {
        Self::Failed(error.into())
    }
}

/// What the ledger has of the reservations of a page, asked once for all of them.
pub(super) struct Asked {
    epoch: Epoch,
    booked: HashSet<ReservationId>,
}

impl Asked {
    /// The epoch in which the ledger said that it does not know this reservation.
    fn without(&self, id: ReservationId) -> Option<Epoch> {
        (!self.booked.contains(&id)).then_some(self.epoch)
    }
}

/// A consume or release that waits.
struct Waiting {
    number: i64,
    call: ParkedCall,
    taken_at_ms: i64,
}

impl Outage {
    /// Asks the ledger about the reservations of a page of a tenant, once everything from before is booked; the gate
    /// still decides about those that it knows. None where the ledger cannot say: then each asks for itself.
    pub(super) async fn ask_about(&self, tenant: &TenantId, page: &[ParkedRow]) -> Option<Asked> {
        let partition = self.core.gate.partition_of(tenant);
        // Read before the gate is asked: what it says holds in this epoch or in a later one.
        let epoch = self.core.gate.epoch(partition)?;
        let last_id = self.probe(partition, tenant).await.ok()?;
        self.catch_up_once(partition, Some(epoch), last_id).await.ok()?;
        let ids: Vec<_> = page.iter().map(|row| row.reservation).collect();
        let booked = self.core.ledger.booked_reservations(partition, &ids).await.ok()?;
        Some(Asked { epoch, booked })
    }

    /// Waits until the ledger has booked what the gate did before, unless it just had.
    async fn catch_up_once(
        &self,
        partition: Partition,
        epoch: Option<Epoch>,
        last_id: OutboxId,
    ) -> Result<(), OperationError> {
        let turn = self.parking.turn(partition);
        if !turn.has_caught_up(epoch) {
            self.core.progress.catch_up(partition, last_id).await?;
            turn.note_caught_up(epoch);
        }
        Ok(())
    }

    /// Redelivers the calls of one reservation, in order, and returns the outcome of each.
    pub(super) async fn redeliver_reservation(
        &self,
        id: ReservationId,
        rows: &[&ParkedRow],
        asked: Option<&Asked>,
    ) -> Result<Vec<(i64, Settled)>, Halt> {
        let mut settled = Vec::with_capacity(rows.len());
        let mut changes = Vec::with_capacity(rows.len());
        for row in rows {
            match ParkedCall::decode(&row.payload) {
                Ok(ParkedCall::Admit { record, lives }) => {
                    let taken = (&record, row.taken_at_ms);
                    let admitted = self.redeliver_admission(id, taken, &lives, asked).await;
                    settled.push((row.number, or_conflict(admitted)?));
                }
                Ok(call) => changes.push(Waiting { number: row.number, call, taken_at_ms: row.taken_at_ms }),
                Err(error) => settled.push((row.number, Settled::Conflict(error.to_string()))),
            }
        }
        settled.extend(self.redeliver_changes(id, &changes).await?);
        Ok(settled)
    }

    /// Delivers all changes in one call. Where the gate rejects it, delivers them one by one, so that only those in
    /// conflict are kept back.
    async fn redeliver_changes(
        &self,
        id: ReservationId,
        changes: &[Waiting],
    ) -> Result<Vec<(i64, Settled)>, Halt> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let together = self.redeliver_together(id, changes).await?;
        if changes.len() == 1 || matches!(together, Settled::Done) {
            return Ok(changes.iter().map(|change| (change.number, together.clone())).collect());
        }
        let mut settled = Vec::with_capacity(changes.len());
        for change in changes {
            settled.push((change.number, self.redeliver_together(id, std::slice::from_ref(change)).await?));
        }
        Ok(settled)
    }

    async fn redeliver_together(&self, id: ReservationId, changes: &[Waiting]) -> Result<Settled, Halt> {
        let calls: Vec<_> = changes.iter().map(|change| (&change.call, change.taken_at_ms)).collect();
        let Some(merged) = MergedChange::of(&calls) else {
            return Ok(Settled::Conflict("the calls do not name their meters".into()));
        };
        or_conflict(self.redeliver_merged(id, merged).await)
    }

    async fn redeliver_merged(&self, id: ReservationId, mut merged: MergedChange) -> Result<Settled, Halt> {
        let mut tries = Tries::of_call(KEPT_CHANGING);
        loop {
            match self.redeliver_change(id, &change_of(id, &merged)).await? {
                Some(ResolveOutcome::Done { .. } | ResolveOutcome::Replayed { .. }) => {
                    return Ok(Settled::Done);
                }
                Some(ResolveOutcome::Rejected { rejection, record })
                    if has_it(&merged, &rejection, &record) =>
                {
                    return Ok(Settled::Done);
                }
                other => match raised(&merged, other.as_ref()) {
                    Some(raised) => merged = raised,
                    None => return Ok(Settled::Conflict(conflict_of(other))),
                },
            }
            tries.again()?;
        }
    }

    async fn redeliver_admission(
        &self,
        id: ReservationId,
        (record, taken_at_ms): (&Record, i64),
        lives: &[CounterLife],
        asked: Option<&Asked>,
    ) -> Result<Settled, Halt> {
        let entry = self.core.policy.tenant(&record.body.tenant).await?;
        let mut asked = asked.and_then(|asked| asked.without(id));
        let mut recovery = self.memory.recovery(KEPT_CHANGING);
        loop {
            let lives = self.memory.lives_now(&entry, record, lives);
            let epoch = self.core.gate.epoch(id.partition());
            let is_asked = asked.is_some() && asked == epoch;
            let call = RecordCall {
                id,
                record,
                lives: &lives,
                taken_at_ms: Some(taken_at_ms),
                id_check: if is_asked { IdCheck::Asked } else { IdCheck::Ask },
                now_ms: self.core.script_now(),
            };
            match self.core.timed(Script::Record, self.core.gate.record(&call)).await {
                Ok(RecordOutcome::Done(_) | RecordOutcome::Replayed) => return Ok(Settled::Done),
                Ok(RecordOutcome::KeyReused(_)) => return Ok(Settled::Conflict(KEY_REUSED.into())),
                Ok(RecordOutcome::TooLarge) => {
                    return Ok(Settled::Conflict("a counter would be beyond the largest amount".into()));
                }
                Ok(RecordOutcome::StaleWindow { .. }) => {
                    return Err(Halt::TooEarly(begins_ms(record).unwrap_or(taken_at_ms)));
                }
                Ok(RecordOutcome::Cold(cold)) => recovery.restore_admission(&entry, &cold, record).await?,
                Ok(RecordOutcome::AskLedger { last_id }) => {
                    if let Some(settled) = self.ask_ledger(id, record, last_id, epoch).await? {
                        return Ok(settled);
                    }
                    asked = epoch;
                    recovery.again()?;
                }
                Err(error) => unless_away(&mut recovery, error).await?,
            }
        }
    }

    /// The gate does not know an admission: the ledger's row decides, once everything from before this redelivery is
    /// booked.
    async fn ask_ledger(
        &self,
        id: ReservationId,
        record: &Record,
        last_id: OutboxId,
        epoch: Option<Epoch>,
    ) -> Result<Option<Settled>, Halt> {
        self.catch_up_once(id.partition(), epoch, last_id).await?;
        let Some(row) = self.core.ledger.reservation(id).await? else { return Ok(None) };
        let is_repeat = record.body.fingerprint.repeats(&row.record.body.fingerprint);
        if row.tenant != record.body.tenant || !is_repeat {
            return Ok(Some(Settled::Conflict(KEY_REUSED.into())));
        }
        self.memory.bring_back(row).await?;
        Ok(Some(Settled::Done))
    }

    /// Drives a change to the gate's decision; none when neither gate nor ledger knows the reservation.
    async fn redeliver_change(
        &self,
        id: ReservationId,
        change: &Change<'_>,
    ) -> Result<Option<ResolveOutcome>, Halt> {
        let mut recovery = self.memory.recovery(KEPT_CHANGING);
        let by_test_clock = self.core.script_now().is_some();
        loop {
            let gate = &self.core.gate;
            let outcome = match change {
                Change::Consume(call) => {
                    self.core.timed(Script::Consume, gate.consume_parked(call, by_test_clock)).await
                }
                Change::Release(call) => {
                    self.core.timed(Script::Release, gate.release_parked(call, by_test_clock)).await
                }
            };
            match outcome {
                Ok(ResolveOutcome::Unknown { last_id }) => {
                    self.core.progress.catch_up(id.partition(), last_id).await?;
                    let Some(row) = self.core.ledger.reservation(id).await? else { return Ok(None) };
                    self.memory.bring_back(row).await?;
                    recovery.again()?;
                }
                Ok(ResolveOutcome::Cold(cold)) => recovery.restore_record(&cold).await?,
                Ok(outcome) => return Ok(Some(outcome)),
                Err(error) => unless_away(&mut recovery, error).await?,
            }
        }
    }
}

/// Stops the redelivery when the gate is away.
async fn unless_away(recovery: &mut Recovery<'_>, error: GateError) -> Result<(), Halt> {
    recovery.after_failure(error).await?.map_or(Ok(()), |away| Err(Halt::Away(away)))
}

fn change_of<'a>(id: ReservationId, merged: &MergedChange) -> Change<'a> {
    let (totals, now_ms) = (merged.totals.clone(), Some(merged.taken_at_ms));
    match merged.kind {
        MergedKind::Release => Change::Release(ReleaseCall { id, bound: None, incurred: totals, now_ms }),
        kind => Change::Consume(ConsumeCall {
            id,
            bound: None,
            totals,
            is_final: kind == MergedKind::Final,
            now_ms,
        }),
    }
}

/// Whether the gate rejects the call because it has it already.
fn has_it(merged: &MergedChange, rejection: &Rejection, record: &Record) -> bool {
    match rejection {
        Rejection::Expired => merged.is_in(record, true),
        Rejection::AlreadyResolved | Rejection::AmountDecreased(_) => merged.is_in(record, false),
        _ => false,
    }
}

/// The same call with its unnamed lines raised to the gate's totals: it was delivered in this form before, or is
/// delivered so now.
fn raised(merged: &MergedChange, refused: Option<&ResolveOutcome>) -> Option<MergedChange> {
    match refused? {
        ResolveOutcome::Rejected {
            rejection: Rejection::AlreadyResolved | Rejection::AmountDecreased(_),
            record,
        } => merged.raised_to(record),
        _ => None,
    }
}

/// A lasting failure makes the call a conflict.
fn or_conflict(settled: Result<Settled, Halt>) -> Result<Settled, Halt> {
    match settled {
        Err(Halt::Failed(error)) if !passes(&error) => Ok(Settled::Conflict(error.to_string())),
        settled => settled,
    }
}

/// When the last of an admission's windows begins.
fn begins_ms(record: &Record) -> Option<i64> {
    let counters = record.body.rest.iter().flat_map(|rest| &rest.counters);
    let begins = counters.filter_map(|counter| match &counter.parameters {
        Parameters::Calendar(calendar) => Some(calendar.window.start_ms),
        _ => None,
    });
    begins.max()
}

const KEPT_CHANGING: &str = "its state kept changing under a parked call";
const KEY_REUSED: &str = "another request under the same idempotency key came first";

/// Whether a later try may succeed.
fn passes(error: &OperationError) -> bool {
    matches!(
        error,
        OperationError::GateUnavailable(_)
            | OperationError::InQuarantine(_)
            | OperationError::LedgerUnavailable(_)
            | OperationError::LedgerTimeout
            | OperationError::Overloaded
    )
}

fn conflict_of(outcome: Option<ResolveOutcome>) -> String {
    let Some(outcome) = outcome else {
        return "neither the gate nor the ledger knows the reservation".into();
    };
    let ResolveOutcome::Rejected { rejection, record } = outcome else {
        return "the gate does not take it".into();
    };
    match rejection {
        Rejection::AlreadyResolved => format!("the reservation is already {}", record.head.state),
        Rejection::Expired => "the reservation had expired and takes no late consume".into(),
        Rejection::AmountDecreased(line) => format!("line {line} had consumed more than this call says"),
        Rejection::ExcessRejected(line) => format!("line {line} takes no more than was held"),
        Rejection::TooLarge(line) => format!("line {line} is beyond the largest amount"),
        Rejection::MeterNotReserved(meter) => format!("{meter} was not reserved"),
        Rejection::AmountNeedsOneLine | Rejection::TooPrecise(_) => "the gate does not take it".into(),
    }
}
