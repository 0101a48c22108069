//! Replay: parked calls reach the gate in order, with their ids and times, once in effect whatever crashes: ids and totals make a
//! repeat harmless, and the ledger's row decides what the gate has forgotten. They are done once the books have what the gate did.

use std::time::{Duration, Instant};

use futures::StreamExt;

use super::reserve::ATTEMPTS_MAX;
use super::{Answer, OperationError, Operations};
use crate::clock::Clock;
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, TenantId};
use crate::domain::parked::{CounterLife, ParkedCall};
use crate::domain::reservation::Record;
use crate::domain::resolution::{Totals, covers};
use crate::gate::{ConsumeCall, GateError, PeekCall, RecordCall, RecordOutcome, ReleaseCall, ResolveOutcome};
use crate::ledger::{LedgerError, ParkedRow};
use crate::telemetry::labels::Script;

/// Calls read at once.
const PAGE: usize = 100;
/// Longer than a page takes; it is renewed before each.
const LEASE: Duration = Duration::from_secs(5);
/// How long a call that let others go first waits for the books to have them.
const BOOKED_FOR_CALLER: Duration = Duration::from_millis(100);
const TRY_AGAIN: Duration = Duration::from_millis(10);
const TENANTS_MAX: usize = 10_000;
const TENANTS_AT_ONCE: usize = 4;
const SETTLED_DAYS: u16 = 7;

/// What replaying came to.
enum Replayed {
    /// Nothing waits any more.
    All,
    /// The gate has everything, the books do not yet.
    Told,
    /// The gate is away.
    Away(GateError),
    /// Another instance is at it, or there was no time for all.
    NotYet,
}

/// What became of one parked call.
enum Settled {
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

/// Why a replay stops before its end; it goes on later.
enum Halt {
    Away(GateError),
    Failed(OperationError),
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

/// Up to which epoch's end the ledger has caught up since this replay began.
#[derive(Default)]
struct CaughtUp(Option<Epoch>);

impl Operations {
    /// Notes every tenant with calls that wait.
    pub async fn reload_parked(&self) -> Answer<()> {
        for tenant in self.ledger.parked_tenants(TENANTS_MAX).await? {
            self.parking.note(self.partition_of(&tenant), &tenant);
        }
        Ok(())
    }

    /// As [`Self::reload_parked`], and drops what has long been done.
    pub async fn look_for_parked(&self) -> Answer<()> {
        self.reload_parked().await?;
        self.ledger.drop_settled_parked(SETTLED_DAYS).await?;
        Ok(())
    }

    /// Replays what waits of every tenant known to have such calls; what cannot be replayed now stays.
    pub async fn replay_parked(&self) {
        let tenants = futures::stream::iter(self.parking.all());
        tenants
            .for_each_concurrent(TENANTS_AT_ONCE, |(_, tenant)| async move {
                match self.replay(&tenant, None, None).await {
                    Ok(Replayed::All | Replayed::Told | Replayed::NotYet) => {}
                    Ok(Replayed::Away(error)) => {
                        tracing::debug!(%tenant, %error, "parked calls wait for the gate")
                    }
                    Err(error) => tracing::warn!(%tenant, %error, "parked calls could not be replayed yet"),
                }
            })
            .await;
    }

    /// Lets the parked calls of a tenant go first. Says why when the gate is away.
    pub(super) async fn parked_first(&self, tenant: &TenantId) -> Answer<Option<GateError>> {
        match self.parking.noted(self.partition_of(tenant), tenant) {
            Some(_) => Box::pin(self.replay_in_time(tenant, None)).await,
            None => Ok(None),
        }
    }

    /// Lets the parked calls of a reservation go first. Says why when the gate is away.
    pub(super) async fn parked_of_first(&self, id: ReservationId) -> Answer<Option<GateError>> {
        if !self.parking.touches(id.partition()) {
            return Ok(None);
        }
        Box::pin(async move {
            match self.ledger.waiting_tenant(id).await? {
                Some(tenant) => self.replay_in_time(&tenant, Some(id)).await,
                None => Ok(None),
            }
        })
        .await
    }

    /// Replays calls of a reservation that the gate does not know, if some wait that this instance has not heard of.
    pub(super) async fn replay_unheard(&self, id: ReservationId, bound: Option<&TenantId>) -> Answer<bool> {
        let tenant = self.ledger.waiting_tenant(id).await?;
        let Some(tenant) = tenant.filter(|tenant| bound.is_none_or(|bound| bound == tenant)) else {
            return Ok(false);
        };
        self.parking.note(id.partition(), &tenant);
        match self.replay_in_time(&tenant, Some(id)).await? {
            Some(away) => Err(away.into()),
            None => Ok(true),
        }
    }

    async fn replay_in_time(
        &self,
        tenant: &TenantId,
        only: Option<ReservationId>,
    ) -> Answer<Option<GateError>> {
        let until = Clock::monotonic() + self.options.restore_wait;
        loop {
            match self.replay(tenant, only, Some(until)).await? {
                Replayed::All | Replayed::Told => return Ok(None),
                Replayed::Away(error) => return Ok(Some(error)),
                Replayed::NotYet if Clock::monotonic() >= until => {
                    return Err(OperationError::GateUnavailable(
                        "it is still being told what was done while it was away; repeat the call".into(),
                    ));
                }
                Replayed::NotYet => tokio::time::sleep(TRY_AGAIN).await,
            }
        }
    }

    /// Replays a tenant's calls, or those of one reservation, in order; one replay of a partition at a time, over all instances.
    async fn replay(
        &self,
        tenant: &TenantId,
        only: Option<ReservationId>,
        until: Option<Instant>,
    ) -> Answer<Replayed> {
        let partition = self.partition_of(tenant);
        match self.probe(partition, tenant).await {
            Ok(_) => {}
            Err(GateError::Alarm { partition, reason }) => self.after_alarm(partition, &reason).await?,
            Err(error) if error.is_away() => return Ok(Replayed::Away(error)),
            Err(error) => return Err(error.into()),
        }
        let turn = self.parking.turn(partition);
        let Ok(_one_at_a_time) = tokio::time::timeout(self.options.restore_wait, turn.lock()).await else {
            return Ok(Replayed::NotYet);
        };
        let note = self.parking.noted(partition, tenant);
        if self.ledger.waiting_calls(tenant, only, 0, 1).await?.is_empty() {
            self.nothing_waits(partition, tenant, only, note);
            return Ok(Replayed::All);
        }
        let owner = format!("replay/{:032x}", rand::random::<u128>());
        let replayed = self.replay_leased(partition, tenant, only, until, &owner).await;
        if let Err(error) = self.ledger.give_back_leases(&owner).await {
            tracing::debug!(%error, "the lease of a replay was not given back; it ends by itself");
        }
        if matches!(replayed, Ok(Replayed::All)) {
            self.nothing_waits(partition, tenant, only, note);
        }
        replayed
    }

    fn nothing_waits(
        &self,
        partition: Partition,
        tenant: &TenantId,
        only: Option<ReservationId>,
        note: Option<u64>,
    ) {
        if let (None, Some(note)) = (only, note) {
            self.parking.forget(partition, tenant, note);
        }
    }

    /// Whether the gate answers at all: the outbox's last id.
    async fn probe(&self, partition: Partition, tenant: &TenantId) -> Result<OutboxId, GateError> {
        let call = PeekCall { partition, tenant, subjects: &[], checks: &[], now_ms: self.script_now() };
        self.timed(Script::Peek, self.gate.peek_counters(&call)).await.map(|peeked| peeked.last_id)
    }

    async fn replay_leased(
        &self,
        partition: Partition,
        tenant: &TenantId,
        only: Option<ReservationId>,
        until: Option<Instant>,
        owner: &str,
    ) -> Answer<Replayed> {
        let lease = [format!("replay/{partition}")];
        let (mut caught_up, mut after, mut told) = (CaughtUp::default(), 0, Vec::new());
        let epoch = self.gate.epoch(partition);
        let replayed = loop {
            if until.is_some_and(|until| Clock::monotonic() >= until) {
                break Replayed::NotYet;
            }
            let leased_until = Clock::monotonic() + LEASE / 2;
            if self.ledger.take_leases(&lease, owner, LEASE).await?.is_empty() {
                break Replayed::NotYet;
            }
            let page = self.ledger.waiting_calls(tenant, only, after, PAGE).await?;
            if page.is_empty() {
                break Replayed::All;
            }
            match self.replay_page(&page, leased_until, &mut caught_up, &mut told, &mut after).await? {
                None => {}
                Some(Halt::Away(error)) => break Replayed::Away(error),
                Some(Halt::Failed(error)) => return Err(error),
            }
        };
        // A caller need not wait for the books: what is not noted as done is replayed once more, without effect.
        let patience = if until.is_some() { BOOKED_FOR_CALLER } else { self.options.restore_wait };
        if matches!(replayed, Replayed::All) && !told.is_empty() {
            if !self.is_booked_within(partition, tenant, epoch, patience).await {
                return Ok(Replayed::Told);
            }
            self.ledger.settle_parked(tenant, told).await?;
        }
        Ok(replayed)
    }

    /// Whether the books have all that the gate did in this epoch. Only then may its memory be lost again.
    async fn is_booked_within(
        &self,
        partition: Partition,
        tenant: &TenantId,
        epoch: Option<Epoch>,
        patience: Duration,
    ) -> bool {
        let booked = async {
            let last_id = self.probe(partition, tenant).await.ok()?;
            self.catch_up(partition, last_id).await.ok()?;
            let cursor = self.ledger.cursor(partition).await.ok()?;
            let unchanged = self.gate.epoch(partition) == epoch && Some(cursor.epoch) == epoch;
            unchanged.then_some(())
        };
        matches!(tokio::time::timeout(patience, booked).await, Ok(Some(())))
    }

    /// Replays calls in order while the lease lasts, and notes which the gate has; says why it stopped early.
    async fn replay_page(
        &self,
        page: &[ParkedRow],
        leased_until: Instant,
        caught_up: &mut CaughtUp,
        told: &mut Vec<i64>,
        after: &mut i64,
    ) -> Answer<Option<Halt>> {
        for row in page {
            if Clock::monotonic() >= leased_until {
                break;
            }
            match self.replay_one(row, caught_up).await {
                Ok(Settled::Done) => told.push(row.number),
                Ok(Settled::Conflict(reason)) => self.conflict(row, &reason).await?,
                Err(halt) => return Ok(Some(halt)),
            }
            *after = row.number;
        }
        Ok(None)
    }

    async fn conflict(&self, row: &ParkedRow, reason: &str) -> Answer<()> {
        if self.ledger.refuse_parked(&row.tenant, row.number, reason).await? {
            self.metrics.parked_conflict();
            tracing::error!(tenant = %row.tenant, reservation = %row.reservation, number = row.number, reason, "a parked call conflicts with what the gate has");
        }
        Ok(())
    }

    async fn replay_one(&self, row: &ParkedRow, caught_up: &mut CaughtUp) -> Result<Settled, Halt> {
        let settled = match ParkedCall::decode(&row.payload) {
            Ok(ParkedCall::Admit { record, lives }) => {
                self.replay_admission(row.reservation, &record, &lives, caught_up).await
            }
            Ok(ParkedCall::Consume { totals, is_final }) => self.replay_consume(row, totals, is_final).await,
            Ok(ParkedCall::Release { incurred }) => self.replay_release(row, incurred).await,
            Err(error) => Ok(Settled::Conflict(error.to_string())),
        };
        match settled {
            Err(Halt::Failed(error)) if !passes(&error) => Ok(Settled::Conflict(error.to_string())),
            settled => settled,
        }
    }

    async fn replay_admission(
        &self,
        id: ReservationId,
        record: &Record,
        lives: &[CounterLife],
        caught_up: &mut CaughtUp,
    ) -> Result<Settled, Halt> {
        let entry = self.policy.tenant(&record.body.tenant).await?;
        let mut asked = None;
        for _ in 0..ATTEMPTS_MAX {
            let lives = self.lives_now(&entry, record, lives);
            let epoch = self.gate.epoch(id.partition());
            let ledger_asked = asked.is_some() && asked == epoch;
            let call = RecordCall { id, record, lives: &lives, ledger_asked, now_ms: self.script_now() };
            match self.timed(Script::Record, self.gate.record(&call)).await {
                Ok(RecordOutcome::Done | RecordOutcome::Replayed) => return Ok(Settled::Done),
                Ok(RecordOutcome::KeyReused) => return Ok(Settled::Conflict(KEY_REUSED.into())),
                Ok(RecordOutcome::TooLarge) => {
                    return Ok(Settled::Conflict("a counter would be beyond the largest amount".into()));
                }
                Ok(RecordOutcome::StaleWindow) => {
                    return Err(
                        unavailable("its clock is behind the time at which the call was taken").into()
                    );
                }
                Ok(RecordOutcome::Cold(cold)) => self.restore_cold_admission(&entry, &cold, record).await?,
                Ok(RecordOutcome::AskLedger { last_id }) => {
                    if let Some(settled) = self.ask_ledger(id, record, last_id, epoch, caught_up).await? {
                        return Ok(settled);
                    }
                    asked = epoch;
                }
                Err(error) => self.after_failure(error).await?,
            }
        }
        Err(unavailable("its state kept changing under a parked call").into())
    }

    /// The ledger's row of an admission that the gate does not know decides, once everything from before this replay is booked.
    async fn ask_ledger(
        &self,
        id: ReservationId,
        record: &Record,
        last_id: OutboxId,
        epoch: Option<Epoch>,
        caught_up: &mut CaughtUp,
    ) -> Result<Option<Settled>, Halt> {
        if caught_up.0 != epoch {
            self.catch_up(id.partition(), last_id).await?;
            caught_up.0 = epoch;
        }
        let Some(row) = self.ledger.reservation(id).await? else { return Ok(None) };
        if row.tenant != record.body.tenant || row.record.body.fingerprint != record.body.fingerprint {
            return Ok(Some(Settled::Conflict(KEY_REUSED.into())));
        }
        self.bring_back(row).await?;
        Ok(Some(Settled::Done))
    }

    async fn replay_consume(&self, row: &ParkedRow, totals: Totals, is_final: bool) -> Result<Settled, Halt> {
        let call = ConsumeCall {
            id: row.reservation,
            bound: None,
            totals: totals.clone(),
            is_final,
            now_ms: Some(row.taken_at_ms),
        };
        Ok(match self.replay_change(row.reservation, &Change::Consume(call)).await? {
            Some(ResolveOutcome::Done { .. } | ResolveOutcome::Replayed { .. }) => Settled::Done,
            // A later total that came first has this one in it.
            Some(
                ResolveOutcome::AlreadyResolved { record }
                | ResolveOutcome::AmountDecreased { record, .. }
                | ResolveOutcome::Expired { record },
            ) if !is_final && covers(&record, &totals) => Settled::Done,
            other => Settled::Conflict(conflict_of(other)),
        })
    }

    async fn replay_release(&self, row: &ParkedRow, incurred: Totals) -> Result<Settled, Halt> {
        let nothing_incurred = matches!(incurred, Totals::Default);
        let call = ReleaseCall { id: row.reservation, bound: None, incurred, now_ms: Some(row.taken_at_ms) };
        Ok(match self.replay_change(row.reservation, &Change::Release(call)).await? {
            Some(ResolveOutcome::Done { .. } | ResolveOutcome::Replayed { .. }) => Settled::Done,
            // Its expiry gave everything back already.
            Some(ResolveOutcome::Expired { .. }) if nothing_incurred => Settled::Done,
            other => Settled::Conflict(conflict_of(other)),
        })
    }

    /// Drives a change to the gate's decision; nothing when neither gate nor ledger knows the reservation.
    async fn replay_change(
        &self,
        id: ReservationId,
        change: &Change<'_>,
    ) -> Result<Option<ResolveOutcome>, Halt> {
        for _ in 0..ATTEMPTS_MAX {
            let outcome = match change {
                Change::Consume(call) => self.timed(Script::Consume, self.gate.consume_parked(call)).await,
                Change::Release(call) => self.timed(Script::Release, self.gate.release_parked(call)).await,
            };
            match outcome {
                Ok(ResolveOutcome::Unknown { last_id }) => {
                    self.catch_up(id.partition(), last_id).await?;
                    let Some(row) = self.ledger.reservation(id).await? else { return Ok(None) };
                    self.bring_back(row).await?;
                }
                Ok(ResolveOutcome::Cold(cold)) => self.restore_cold_record(id, &cold).await?,
                Ok(outcome) => return Ok(Some(outcome)),
                Err(error) => self.after_failure(error).await?,
            }
        }
        Err(unavailable("its state kept changing under a parked call").into())
    }

    /// Checks the node after an alarm; any other failure ends the attempt.
    async fn after_failure(&self, error: GateError) -> Result<(), Halt> {
        match error {
            GateError::Alarm { partition, reason } => Ok(self.after_alarm(partition, &reason).await?),
            error if error.is_away() => Err(Halt::Away(error)),
            error => Err(Halt::Failed(error.into())),
        }
    }
}

const KEY_REUSED: &str = "another request under the same idempotency key came first";

fn unavailable(why: &str) -> OperationError {
    OperationError::GateUnavailable(why.into())
}

/// Whether the same may succeed later.
fn passes(error: &OperationError) -> bool {
    matches!(
        error,
        OperationError::GateUnavailable(_)
            | OperationError::LedgerUnavailable(_)
            | OperationError::LedgerTimeout
            | OperationError::Overloaded
    )
}

fn conflict_of(outcome: Option<ResolveOutcome>) -> String {
    match outcome {
        None => "neither the gate nor the ledger knows the reservation".into(),
        Some(ResolveOutcome::AlreadyResolved { record }) => {
            format!("the reservation is already {}", record.head.state)
        }
        Some(ResolveOutcome::Expired { .. }) => {
            "the reservation had expired and takes no late consume".into()
        }
        Some(ResolveOutcome::AmountDecreased { line, .. }) => {
            format!("line {line} had consumed more than this call says")
        }
        Some(ResolveOutcome::ExcessRejected { line, .. }) => {
            format!("line {line} takes no more than was held")
        }
        Some(ResolveOutcome::TooLarge { line, .. }) => format!("line {line} is beyond the largest amount"),
        Some(ResolveOutcome::MeterNotReserved { meter }) => format!("{meter} was not reserved"),
        Some(_) => "the gate does not take it".into(),
    }
}
