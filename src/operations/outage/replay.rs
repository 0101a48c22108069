//! Replay: parked calls reach the gate reservation by reservation, with their ids and times, once in effect whatever crashes: ids and
//! totals make a repeat harmless, and the ledger's row decides what the gate has forgotten. They are done once the books have what the
//! gate did; until then this instance remembers which the gate has, in this epoch, so that no call waits for the books.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::StreamExt;

use super::replay_calls::{CaughtUp, Halt, Settled};
use crate::clock::Clock;
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, TenantId};
use crate::gate::{GateError, PeekCall};
use crate::ledger::ParkedRow;
use crate::ledger::lease::Lease;
use crate::operations::reconcile::damage::AGAIN_AFTER;
use crate::operations::{Answer, OperationError, Operations, Work};
use crate::telemetry::labels::Script;

/// Calls read at once; those of their reservations come with them.
const PAGE: usize = 100;
/// Longer than a page takes; each page takes its own. So long do calls wait for an instance that was killed at it.
const LEASE: Duration = Duration::from_secs(2);
/// How long a call waits for the ledger to say whether others of its reservation wait.
const LOOK_WITHIN: Duration = Duration::from_secs(1);
const TRY_AGAIN: Duration = Duration::from_millis(10);
const TENANTS_MAX: usize = 10_000;
const TENANTS_AT_ONCE: usize = 4;
const SETTLED_DAYS: u16 = 7;
/// With so many calls told and not settled, the books are waited for before the gate is told more.
const TOLD_MAX: usize = 1_000;

/// Which calls are to go.
#[derive(Clone, Copy)]
enum Wanted {
    /// Those of one reservation, whatever became of them before.
    Of(ReservationId),
    /// Those that were not passed over: what a call of the tenant waits for.
    Others,
    /// Those that were not passed over lately.
    Due,
}

/// What replaying came to.
enum Replayed {
    /// The gate has everything.
    All,
    /// The gate has more than before.
    More,
    /// The gate is away.
    Away(GateError),
    /// Another call or instance is at it.
    NotYet,
}

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
                match self.replay_and_settle(&tenant).await {
                    Ok(Replayed::All | Replayed::More | Replayed::NotYet) => {}
                    Ok(Replayed::Away(error)) => {
                        tracing::debug!(%tenant, %error, "parked calls wait for the gate")
                    }
                    Err(error) => tracing::warn!(%tenant, %error, "parked calls could not be replayed yet"),
                }
            })
            .await;
    }

    /// Lets the parked calls of a tenant go first. Says why when the gate is away.
    pub(in crate::operations) async fn parked_first(&self, tenant: &TenantId) -> Answer<Option<GateError>> {
        let partition = self.partition_of(tenant);
        let epoch = self.gate.epoch(partition);
        match self.parking.noted(partition, tenant) {
            Some(note) if !self.parking.rests(tenant, epoch, note) => {
                Box::pin(self.replay_in_time(tenant, Wanted::Others)).await
            }
            _ => Ok(None),
        }
    }

    /// Lets the parked calls of a reservation go first. Says why when the gate is away.
    pub(in crate::operations) async fn parked_of_first(
        &self,
        id: ReservationId,
    ) -> Answer<Option<GateError>> {
        if !self.parking.touches(id.partition()) {
            return Ok(None);
        }
        Box::pin(async move {
            match tokio::time::timeout(LOOK_WITHIN, self.ledger.waiting_tenant(id)).await {
                Ok(Ok(Some(tenant))) => self.replay_in_time(&tenant, Wanted::Of(id)).await,
                Ok(Ok(None)) => Ok(None),
                Ok(Err(error)) if error.is_transient() => self.unless_noted(id, error.into()).await,
                Ok(Err(error)) => Err(error.into()),
                Err(_) => self.unless_noted(id, silent_ledger()).await,
            }
        })
        .await
    }

    /// Without the ledger, a reservation of a tenant that is not known to have calls that wait goes on to the gate.
    async fn unless_noted(&self, id: ReservationId, error: OperationError) -> Answer<Option<GateError>> {
        let peeked = self.gate.peek_record(id, None, self.script_now()).await;
        let record = peeked.ok().and_then(|peeked| peeked.record);
        let noted = |tenant: &TenantId| self.parking.noted(id.partition(), tenant).is_some();
        if record.is_some_and(|record| !noted(&record.body.tenant)) { Ok(None) } else { Err(error) }
    }

    /// Replays calls of a reservation that the gate does not know, if some wait that this instance has not heard of.
    pub(in crate::operations) async fn replay_unheard(
        &self,
        id: ReservationId,
        bound: Option<&TenantId>,
    ) -> Answer<bool> {
        let tenant = self.ledger.waiting_tenant(id).await?;
        let Some(tenant) = tenant.filter(|tenant| bound.is_none_or(|bound| bound == tenant)) else {
            return Ok(false);
        };
        self.parking.note(id.partition(), &tenant);
        match self.replay_in_time(&tenant, Wanted::Of(id)).await? {
            Some(away) => Err(away.into()),
            None => Ok(true),
        }
    }

    async fn replay_in_time(&self, tenant: &TenantId, wanted: Wanted) -> Answer<Option<GateError>> {
        let until = Clock::monotonic() + self.options.restore_wait;
        let mut caught_up = CaughtUp::default();
        loop {
            match self.replay_next(tenant, wanted, until, &mut caught_up).await? {
                Replayed::All => return Ok(None),
                Replayed::Away(error) => return Ok(Some(error)),
                _ if Clock::monotonic() >= until => {
                    return Err(OperationError::GateUnavailable(
                        "it is still being told what was done while it was away; repeat the call".into(),
                    ));
                }
                Replayed::More => {}
                Replayed::NotYet => tokio::time::sleep(TRY_AGAIN).await,
            }
        }
    }

    /// Replays all calls of a tenant, and notes as done what the books have.
    async fn replay_and_settle(&self, tenant: &TenantId) -> Answer<Replayed> {
        let partition = self.partition_of(tenant);
        let mut caught_up = CaughtUp::default();
        loop {
            let until = Clock::monotonic() + self.options.restore_wait;
            let replayed = self.replay_next(tenant, Wanted::Due, until, &mut caught_up).await?;
            let told = self.parking.told(tenant, self.gate.epoch(partition)).len();
            match replayed {
                Replayed::More if told < TOLD_MAX => {}
                Replayed::More | Replayed::All if told > 0 => {
                    if !self.settle_told(partition, tenant).await? {
                        return Ok(replayed);
                    }
                }
                replayed => return Ok(replayed),
            }
        }
    }

    /// Replays the next calls that the gate does not have, of a tenant or of one reservation; one replay of a partition at a time, over all
    /// instances, and each for a page only, so that nobody waits for the whole.
    async fn replay_next(
        &self,
        tenant: &TenantId,
        wanted: Wanted,
        until: Instant,
        caught_up: &mut CaughtUp,
    ) -> Answer<Replayed> {
        let partition = self.partition_of(tenant);
        if let Some(away) = self.away(partition, tenant).await? {
            return Ok(Replayed::Away(away));
        }
        let note = self.parking.noted(partition, tenant);
        if self.untold(tenant, wanted, 1).await?.is_empty() {
            if let (Wanted::Others | Wanted::Due, Some(note)) = (wanted, note) {
                self.nothing_else_waits(tenant, note).await?;
            }
            return Ok(Replayed::All);
        }
        let patience = until.saturating_duration_since(Clock::monotonic());
        let turn = self.parking.turn(partition);
        let Ok(_one_at_a_time) = tokio::time::timeout(patience, turn.lock()).await else {
            return Ok(Replayed::NotYet);
        };
        let name = format!("replay/{partition}");
        let lease = Lease::new(self.ledger.clone(), &name, self.instance.owner(&name), LEASE);
        let leased_until = Clock::monotonic() + LEASE / 2;
        if !lease.take().await? {
            return Ok(Replayed::NotYet);
        }
        let replayed = self.replay_page(tenant, wanted, leased_until, caught_up).await;
        lease.give_back().await;
        replayed
    }

    /// Why the gate cannot be told anything now. By a clock that is not trusted it would take calls into the wrong windows.
    async fn away(&self, partition: Partition, tenant: &TenantId) -> Answer<Option<GateError>> {
        if !self.gate.trusts_time() {
            return Ok(Some(GateError::Unavailable("its clock is not trusted".into())));
        }
        match self.probe(partition, tenant).await {
            Ok(_) => Ok(None),
            Err(GateError::Alarm { partition, reason }) => {
                self.after_alarm(partition, &reason).await?;
                Ok(None)
            }
            Err(error) if error.is_away() => Ok(Some(error)),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the gate answers at all: the outbox's last id.
    async fn probe(&self, partition: Partition, tenant: &TenantId) -> Result<OutboxId, GateError> {
        let call = PeekCall { partition, tenant, subjects: &[], counters: &[], now_ms: self.script_now() };
        self.timed(Script::Peek, self.gate.peek_counters(&call)).await.map(|peeked| peeked.last_id)
    }

    /// The next calls that the gate was not told in this epoch.
    async fn untold(&self, tenant: &TenantId, wanted: Wanted, limit: usize) -> Answer<Vec<ParkedRow>> {
        let epoch = self.gate.epoch(self.partition_of(tenant));
        let (only, without) = match wanted {
            Wanted::Of(id) => (Some(id), Vec::new()),
            Wanted::Others => (None, self.parking.passed_over(tenant, epoch, Duration::MAX)),
            Wanted::Due => (None, self.parking.passed_over(tenant, epoch, AGAIN_AFTER)),
        };
        let told = self.parking.told(tenant, epoch);
        Ok(self.ledger.waiting_calls(tenant, only, told, &without, limit).await?)
    }

    /// Of what was noted of the tenant up to `note` at most what is passed over waits: calls of others need not look again.
    async fn nothing_else_waits(&self, tenant: &TenantId, note: u64) -> Answer<()> {
        let partition = self.partition_of(tenant);
        let epoch = self.gate.epoch(partition);
        let told = self.parking.told(tenant, epoch);
        if self.parking.passed_over(tenant, epoch, Duration::MAX).is_empty()
            || self.ledger.waiting_calls(tenant, None, told, &[], 1).await?.is_empty()
        {
            self.parking.forget(partition, tenant, note);
        } else {
            self.parking.rest(tenant, epoch, note);
        }
        Ok(())
    }

    /// Replays a page while the lease lasts, and remembers which calls the gate has. What waits for a decision about quarantine is
    /// passed over: it holds up nothing but calls of its own reservation.
    async fn replay_page(
        &self,
        tenant: &TenantId,
        wanted: Wanted,
        leased_until: Instant,
        caught_up: &mut CaughtUp,
    ) -> Answer<Replayed> {
        let page = self.untold(tenant, wanted, PAGE).await?;
        for (id, rows) in by_reservation(&page) {
            if Clock::monotonic() >= leased_until {
                break;
            }
            if !self.gate.trusts_time() {
                return Ok(Replayed::NotYet);
            }
            let epoch = self.gate.epoch(id.partition());
            match self.replay_reservation(id, &rows, caught_up).await {
                Ok(settled) => self.remember_told(tenant, epoch, &rows, settled).await?,
                Err(Halt::Away(error)) => return Ok(Replayed::Away(error)),
                Err(Halt::Failed(error @ OperationError::InQuarantine(_))) => {
                    self.parking.pass_over(tenant, epoch, id);
                    self.pass_over(Work::Replay, &format!("reservation {id}"), &error).await;
                    if matches!(wanted, Wanted::Of(_)) {
                        return Err(error);
                    }
                }
                Err(Halt::Failed(error)) => return Err(error),
            }
        }
        Ok(if page.is_empty() { Replayed::All } else { Replayed::More })
    }

    async fn remember_told(
        &self,
        tenant: &TenantId,
        epoch: Option<Epoch>,
        rows: &[&ParkedRow],
        settled: Vec<(i64, Settled)>,
    ) -> Answer<()> {
        let mut told = Vec::with_capacity(settled.len());
        for (number, settled) in settled {
            match settled {
                Settled::Done => told.push(number),
                Settled::Conflict(reason) => {
                    if let Some(row) = rows.iter().find(|row| row.number == number) {
                        self.conflict(row, &reason).await?;
                    }
                }
            }
        }
        // What was told before the gate lost its memory is told again.
        if self.gate.epoch(self.partition_of(tenant)) == epoch {
            self.parking.note_told(tenant, epoch, told);
        }
        Ok(())
    }

    async fn conflict(&self, row: &ParkedRow, reason: &str) -> Answer<()> {
        if self.ledger.refuse_parked(&row.tenant, row.number, reason).await? {
            self.metrics.parked_conflict();
            tracing::error!(tenant = %row.tenant, reservation = %row.reservation, number = row.number, reason, "a parked call conflicts with what the gate has");
        }
        Ok(())
    }

    /// Waits, within bounds, until the books have what the gate was told, and notes that as done. Says whether they have.
    async fn settle_told(&self, partition: Partition, tenant: &TenantId) -> Answer<bool> {
        let epoch = self.gate.epoch(partition);
        let told = self.parking.told(tenant, epoch);
        let booked =
            tokio::time::timeout(self.options.restore_wait, self.is_booked(partition, tenant, epoch));
        if !matches!(booked.await, Ok(true)) {
            return Ok(false);
        }
        self.ledger.settle_parked(tenant, told.clone()).await?;
        self.parking.settled(tenant, &told);
        Ok(true)
    }

    /// Waits until the books have all that the gate did in this epoch. Only then may its memory be lost again.
    async fn is_booked(&self, partition: Partition, tenant: &TenantId, epoch: Option<Epoch>) -> bool {
        let Ok(last_id) = self.probe(partition, tenant).await else { return false };
        if self.catch_up(partition, last_id).await.is_err() {
            return false;
        }
        let Ok(cursor) = self.ledger.cursor_row(partition).await else { return false };
        // A rest that was given up is not booked.
        let is_kept = epoch.is_some_and(|epoch| cursor.given_up < epoch);
        is_kept && cursor.settles(last_id) && self.gate.epoch(partition) == epoch
    }
}

fn silent_ledger() -> OperationError {
    OperationError::LedgerUnavailable("it did not say in time whether calls wait".into())
}

/// Each reservation with its calls in order; the reservations in the order of their first.
fn by_reservation(page: &[ParkedRow]) -> Vec<(ReservationId, Vec<&ParkedRow>)> {
    let mut places = HashMap::new();
    let mut groups: Vec<(ReservationId, Vec<&ParkedRow>)> = Vec::new();
    for row in page {
        let place = *places.entry(row.reservation).or_insert_with(|| {
            groups.push((row.reservation, Vec::new()));
            groups.len() - 1
        });
        if let Some((_, rows)) = groups.get_mut(place) {
            rows.push(row);
        }
    }
    groups
}
