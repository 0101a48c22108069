//! Delivers parked calls to the gate, reservation by reservation, with their ids and times. Ids and totals make
//! redelivery safe; where the gate has forgotten a reservation, the ledger's row decides. A call is settled once the
//! ledger has booked it. Until then its row says in which epoch the gate has got it, so that no instance delivers it
//! again there and no caller waits for the books.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};

use super::Outage;
use super::redelivered_calls::{Asked, Halt, Settled};
use crate::clock::Clock;
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, TenantId};
use crate::gate::{GateError, PeekCall};
use crate::ledger::ParkedRow;
use crate::ledger::lease::Lease;
use crate::operations::damage::AGAIN_AFTER;
use crate::operations::damage::Work;
use crate::operations::error::{Answer, OperationError};
use crate::telemetry::labels::Script;

/// How many calls are read at once; the other calls of their reservations come with them.
const PAGE: usize = 400;
/// How many reservations are redelivered at once: most of the time is spent waiting for the ledger and the gate.
const RESERVATIONS_AT_ONCE: usize = 16;
/// Longer than a page takes; each page takes the lease again. Calls wait this long for an instance that was killed.
const LEASE: Duration = Duration::from_secs(2);
/// How long a page waits until the ledger has caught up; afterwards each of its reservations waits for itself.
const ASK_WITHIN: Duration = Duration::from_millis(250);
/// How long a call waits for the ledger to say whether other calls of its reservation wait.
const LOOK_WITHIN: Duration = Duration::from_secs(1);
const TRY_AGAIN: Duration = Duration::from_millis(10);
/// How many tenants with waiting calls are read at once.
const TENANTS_PAGE: usize = 1_000;
const TENANTS_AT_ONCE: usize = 4;
const SETTLED_DAYS: u16 = 7;
/// After so many pages, and of so many calls at once, redelivery waits for the books.
const PAGES_UNTIL_SETTLED: usize = 5;
const SETTLED_AT_ONCE: usize = 2_000;

/// Which calls to redeliver.
#[derive(Clone, Copy)]
enum Wanted {
    /// Those of one reservation, even after a failure.
    Of(ReservationId),
    /// Those of reservations that were not skipped: a call of the tenant waits for these.
    Others,
    /// Those of reservations that were not skipped lately.
    Due,
}

/// The result of a redelivery.
enum Redelivered {
    /// The gate has everything.
    All,
    /// The gate has more than before.
    More,
    /// The gate is away.
    Away(GateError),
    /// Another call or instance is redelivering.
    NotYet,
    /// So many callers wait for it already that this one would not be answered in time.
    Crowded,
}

/// A reservation whose calls were to be redelivered.
struct Tried<'a> {
    id: ReservationId,
    rows: Vec<&'a ParkedRow>,
    /// The gate's epoch before.
    epoch: Option<Epoch>,
    /// The outcome of each call; none where the lease was over or the gate's clock was not trusted.
    redelivered: Option<Result<Vec<(i64, Settled)>, Halt>>,
}

impl Outage {
    /// Notes every tenant with calls that wait.
    pub async fn reload_parked(&self) -> Answer<()> {
        let mut last = None;
        loop {
            let tenants = self.core.ledger.parked_tenants(last.as_ref(), TENANTS_PAGE).await?;
            for tenant in &tenants {
                self.parking.note(self.core.gate.partition_of(tenant), tenant);
            }
            match tenants.into_iter().nth(TENANTS_PAGE - 1) {
                Some(tenant) => last = Some(tenant),
                None => return Ok(()),
            }
        }
    }

    /// As [`Self::reload_parked`]; also drops calls that were done long ago.
    pub async fn look_for_parked(&self) -> Answer<()> {
        self.reload_parked().await?;
        self.core.ledger.drop_settled_parked(SETTLED_DAYS).await?;
        Ok(())
    }

    /// Redelivers the waiting calls of every tenant noted; those that cannot be redelivered now stay.
    pub async fn redeliver_parked(&self) {
        let tenants = futures::stream::iter(self.parking.all());
        tenants
            .for_each_concurrent(TENANTS_AT_ONCE, |(_, tenant)| async move {
                match self.redeliver_and_settle(&tenant).await {
                    Ok(Redelivered::All | Redelivered::More | Redelivered::NotYet | Redelivered::Crowded) => {
                    }
                    Ok(Redelivered::Away(error)) => {
                        tracing::debug!(%tenant, %error, "parked calls wait for the gate")
                    }
                    Err(error) => {
                        tracing::warn!(%tenant, %error, "parked calls could not be redelivered yet")
                    }
                }
            })
            .await;
    }

    /// Redelivers the parked calls of a tenant before a call of it. Says why when the gate is away.
    pub(in crate::operations) async fn parked_first(&self, tenant: &TenantId) -> Answer<Option<GateError>> {
        let partition = self.core.gate.partition_of(tenant);
        let (epoch, now_ms) = (self.core.gate.epoch(partition), self.core.gate_now_ms());
        match self.parking.noted(partition, tenant) {
            Some(note) if !self.parking.rests(tenant, epoch, note, now_ms) => {
                Box::pin(self.redeliver_in_time(tenant, Wanted::Others)).await
            }
            _ => Ok(None),
        }
    }

    /// Forgets the tenant if none of its parked calls waits any more. It redelivers nothing.
    pub(super) async fn look_at_parked(&self, tenant: &TenantId) -> Answer<()> {
        let partition = self.core.gate.partition_of(tenant);
        let Some(note) = self.parking.noted(partition, tenant) else { return Ok(()) };
        let now_ms = self.core.gate_now_ms();
        if self.undelivered(tenant, Wanted::Others, now_ms, 1).await?.is_empty() {
            self.nothing_else_waits(tenant, note, now_ms).await?;
        }
        Ok(())
    }

    /// Redelivers the parked calls of a reservation before a call of it. Says why when the gate is away.
    pub(in crate::operations) async fn parked_of_first(
        &self,
        id: ReservationId,
    ) -> Answer<Option<GateError>> {
        if !self.parking.touches(id.partition()) {
            return Ok(None);
        }
        Box::pin(async move {
            match tokio::time::timeout(LOOK_WITHIN, self.core.ledger.waiting_tenant(id)).await {
                Ok(Ok(Some(tenant))) => self.redeliver_in_time(&tenant, Wanted::Of(id)).await,
                Ok(Ok(None)) => Ok(None),
                Ok(Err(error)) if error.is_transient() => self.unless_noted(id, error.into()).await,
                Ok(Err(error)) => Err(error.into()),
                Err(_) => self.unless_noted(id, silent_ledger()).await,
            }
        })
        .await
    }

    /// Without the ledger, a call goes on to the gate if its tenant is not noted.
    async fn unless_noted(&self, id: ReservationId, error: OperationError) -> Answer<Option<GateError>> {
        let peeked = self.core.gate.peek_record(id, None, self.core.script_now()).await;
        let record = peeked.ok().and_then(|peeked| peeked.record);
        let noted = |tenant: &TenantId| self.parking.noted(id.partition(), tenant).is_some();
        if record.is_some_and(|record| !noted(&record.body.tenant)) { Ok(None) } else { Err(error) }
    }

    /// Redelivers calls of a reservation that the gate does not know, if some wait of which this instance has had no
    /// notice.
    pub(in crate::operations) async fn redeliver_unheard(
        &self,
        id: ReservationId,
        bound: Option<&TenantId>,
    ) -> Answer<bool> {
        let tenant = self.core.ledger.waiting_tenant(id).await?;
        let Some(tenant) = tenant.filter(|tenant| bound.is_none_or(|bound| bound == tenant)) else {
            return Ok(false);
        };
        self.parking.note(id.partition(), &tenant);
        match self.redeliver_in_time(&tenant, Wanted::Of(id)).await? {
            Some(away) => Err(away.into()),
            None => Ok(true),
        }
    }

    async fn redeliver_in_time(&self, tenant: &TenantId, wanted: Wanted) -> Answer<Option<GateError>> {
        let until = Clock::monotonic() + self.core.progress.restore_wait;
        loop {
            match self.redeliver_next(tenant, wanted, until).await? {
                Redelivered::All => return Ok(None),
                Redelivered::Away(error) => return Ok(Some(error)),
                Redelivered::Crowded => return Err(catching_up()),
                _ if Clock::monotonic() >= until => return Err(catching_up()),
                Redelivered::More => {}
                Redelivered::NotYet => tokio::time::sleep(TRY_AGAIN).await,
            }
        }
    }

    /// Redelivers all calls of a tenant, and settles those that are booked.
    async fn redeliver_and_settle(&self, tenant: &TenantId) -> Answer<Redelivered> {
        let partition = self.core.gate.partition_of(tenant);
        let mut pages = 0;
        loop {
            let until = Clock::monotonic() + self.core.progress.restore_wait;
            let redelivered = self.redeliver_next(tenant, Wanted::Due, until).await?;
            pages += 1;
            match redelivered {
                Redelivered::More if pages < PAGES_UNTIL_SETTLED => {}
                Redelivered::More | Redelivered::All => {
                    pages = 0;
                    match self.settle_delivered(partition, tenant).await? {
                        None => return Ok(redelivered),
                        Some(0) if matches!(redelivered, Redelivered::All) => return Ok(redelivered),
                        Some(_) => {}
                    }
                }
                redelivered => return Ok(redelivered),
            }
        }
    }

    /// Redelivers the next calls that the gate does not have, of a tenant or of one reservation. Over all instances one
    /// redelivery of a partition runs at a time, and each only for a page, so that no caller waits for all of them.
    async fn redeliver_next(&self, tenant: &TenantId, wanted: Wanted, until: Instant) -> Answer<Redelivered> {
        let partition = self.core.gate.partition_of(tenant);
        if let Some(away) = self.away(partition, tenant, wanted).await? {
            return Ok(Redelivered::Away(away));
        }
        // Only who has the turn asks the ledger, however many calls wait.
        let patience = until.saturating_duration_since(Clock::monotonic());
        let turn = self.parking.turn(partition);
        let place = turn.place();
        if place.is_none() && !matches!(wanted, Wanted::Due) {
            return Ok(Redelivered::Crowded);
        }
        let Ok(_one_at_a_time) = tokio::time::timeout(patience, turn.taken.lock()).await else {
            return Ok(Redelivered::NotYet);
        };
        let (note, now_ms) = (self.parking.noted(partition, tenant), self.core.gate_now_ms());
        if matches!(wanted, Wanted::Others) && note.is_none() {
            return Ok(Redelivered::All);
        }
        if self.undelivered(tenant, wanted, now_ms, 1).await?.is_empty() {
            if let (Wanted::Others | Wanted::Due, Some(note)) = (wanted, note) {
                self.nothing_else_waits(tenant, note, now_ms).await?;
            }
            return Ok(Redelivered::All);
        }
        let name = format!("replay/{partition}");
        let lease = Lease::new(self.core.ledger.clone(), &name, self.core.instance.owner(&name), LEASE);
        let leased_until = Clock::monotonic() + LEASE / 2;
        if !lease.take().await? {
            return Ok(Redelivered::NotYet);
        }
        let redelivered = self.redeliver_page(tenant, wanted, leased_until).await;
        lease.give_back().await;
        redelivered
    }

    /// Why the gate cannot take anything now. By an untrusted clock it would count calls in wrong windows.
    async fn away(
        &self,
        partition: Partition,
        tenant: &TenantId,
        wanted: Wanted,
    ) -> Answer<Option<GateError>> {
        if !self.core.gate.trusts_time() {
            return Ok(Some(GateError::Unavailable("its clock is not trusted".into())));
        }
        // A full memory answers what only reads, and takes what ends a hold; nothing new has to wait for that.
        if matches!(wanted, Wanted::Others) && !self.core.gate.takes_writes() {
            return Ok(Some(GateError::Unavailable("it takes no writes".into())));
        }
        match self.probe(partition, tenant).await {
            Ok(_) => Ok(None),
            Err(error) => self.memory.check.after_failure(error).await,
        }
    }

    /// Whether the gate answers at all: the outbox's last id.
    pub(super) async fn probe(&self, partition: Partition, tenant: &TenantId) -> Result<OutboxId, GateError> {
        let call = PeekCall {
            partition,
            tenant,
            subjects: &[],
            counters: &[],
            light: &[],
            now_ms: self.core.script_now(),
        };
        self.core.timed(Script::Peek, self.core.gate.peek_counters(&call)).await.map(|peeked| peeked.last_id)
    }

    /// The next calls that were not delivered to the gate in this epoch.
    async fn undelivered(
        &self,
        tenant: &TenantId,
        wanted: Wanted,
        now_ms: i64,
        limit: usize,
    ) -> Answer<Vec<ParkedRow>> {
        let epoch = self.core.gate.epoch(self.core.gate.partition_of(tenant));
        let (only, without) = match wanted {
            Wanted::Of(id) => (Some(id), Vec::new()),
            Wanted::Others => (None, self.parking.passed_over(tenant, epoch, Duration::MAX, now_ms)),
            Wanted::Due => (None, self.parking.passed_over(tenant, epoch, AGAIN_AFTER, now_ms)),
        };
        Ok(self.core.ledger.waiting_calls(tenant, only, epoch, &without, limit).await?)
    }

    /// Notes that of what was noted of the tenant up to `note`, no call waited at `now_ms` that can be delivered in
    /// this epoch: other calls need not look again. Those that were delivered and are not settled may have to be in the
    /// next.
    async fn nothing_else_waits(&self, tenant: &TenantId, note: u64, now_ms: i64) -> Answer<()> {
        let partition = self.core.gate.partition_of(tenant);
        let epoch = self.core.gate.epoch(partition);
        if self.core.ledger.waiting_calls(tenant, None, None, &[], 1).await?.is_empty() {
            self.parking.forget(partition, tenant, note);
        } else {
            self.parking.rest(tenant, epoch, note, now_ms);
        }
        Ok(())
    }

    /// Redelivers a page while the lease lasts, and notes which calls the gate has got.
    async fn redeliver_page(
        &self,
        tenant: &TenantId,
        wanted: Wanted,
        leased_until: Instant,
    ) -> Answer<Redelivered> {
        let epoch = self.core.gate.epoch(self.core.gate.partition_of(tenant));
        let page = self.undelivered(tenant, wanted, self.core.gate_now_ms(), PAGE).await?;
        let asked = match wanted {
            Wanted::Of(_) => None,
            _ => tokio::time::timeout(ASK_WITHIN, self.ask_about(tenant, &page)).await.ok().flatten(),
        };
        let mut delivered = Vec::with_capacity(page.len());
        let page = (&page[..], asked.as_ref());
        let redelivered = self.redeliver_rows(tenant, wanted, page, leased_until, &mut delivered).await;
        if let Some(epoch) = epoch {
            self.core.ledger.note_delivered_calls(tenant, epoch, delivered).await?;
        }
        redelivered
    }

    /// Redelivers these calls, and adds to `delivered` those that the gate has got. Calls that wait for a decision
    /// about quarantine, or for a window that has not begun by the gate's clock, are skipped: they hold up only calls
    /// of their own reservation.
    async fn redeliver_rows(
        &self,
        tenant: &TenantId,
        wanted: Wanted,
        (page, asked): (&[ParkedRow], Option<&Asked>),
        leased_until: Instant,
        delivered: &mut Vec<i64>,
    ) -> Answer<Redelivered> {
        let each = |(id, rows)| self.redeliver_in_lease(id, rows, asked, leased_until).boxed();
        let redeliveries: Vec<BoxFuture<'_, _>> = by_reservation(page).into_iter().map(each).collect();
        let mut redeliveries = futures::stream::iter(redeliveries).buffered(RESERVATIONS_AT_ONCE);
        while let Some(Tried { id, rows, epoch, redelivered }) = redeliveries.next().await {
            match redelivered {
                None => break,
                Some(Ok(settled)) => delivered.extend(self.taken_of(&rows, settled).await?),
                Some(Err(Halt::Away(error))) => return Ok(Redelivered::Away(error)),
                Some(Err(Halt::Failed(error @ OperationError::InQuarantine(_)))) => {
                    self.parking.pass_over(tenant, epoch, id, None);
                    self.core.damage.pass_over(Work::Replay, &format!("reservation {id}"), &error).await;
                    if matches!(wanted, Wanted::Of(_)) {
                        return Err(error);
                    }
                }
                Some(Err(Halt::TooEarly(begins_ms))) => {
                    // The gate's clock may be behind what this instance takes it for.
                    let due_ms = begins_ms.max(self.core.gate_now_ms() + 1);
                    self.parking.pass_over(tenant, epoch, id, Some(due_ms));
                    tracing::debug!(%tenant, %id, begins_ms, "parked calls wait for the gate's clock");
                    if matches!(wanted, Wanted::Of(_)) {
                        return Err(set_back());
                    }
                }
                Some(Err(Halt::Failed(error))) => return Err(error),
            }
        }
        Ok(if page.is_empty() { Redelivered::All } else { Redelivered::More })
    }

    async fn redeliver_in_lease<'a>(
        &self,
        id: ReservationId,
        rows: Vec<&'a ParkedRow>,
        asked: Option<&Asked>,
        leased_until: Instant,
    ) -> Tried<'a> {
        let goes_on = Clock::monotonic() < leased_until && self.core.gate.trusts_time();
        let epoch = self.core.gate.epoch(id.partition());
        let redelivered = match goes_on {
            true => Some(self.redeliver_reservation(id, &rows, asked).await),
            false => None,
        };
        Tried { id, rows, epoch, redelivered }
    }

    /// Which of these calls the gate has got; the others are in conflict with what it has.
    async fn taken_of(&self, rows: &[&ParkedRow], settled: Vec<(i64, Settled)>) -> Answer<Vec<i64>> {
        let mut taken = Vec::with_capacity(settled.len());
        for (number, settled) in settled {
            match settled {
                Settled::Done => taken.push(number),
                Settled::Conflict(reason) => {
                    if let Some(row) = rows.iter().find(|row| row.number == number) {
                        self.conflict(row, &reason).await?;
                    }
                }
            }
        }
        Ok(taken)
    }

    async fn conflict(&self, row: &ParkedRow, reason: &str) -> Answer<()> {
        if self.core.ledger.refuse_parked(&row.tenant, row.number, reason).await? {
            self.core.metrics.parked_conflict();
            tracing::error!(tenant = %row.tenant, reservation = %row.reservation, number = row.number, reason, "a parked call conflicts with what the gate has");
        }
        Ok(())
    }

    /// Waits, within bounds, until what was delivered to the gate is booked, and settles those calls. Returns how many;
    /// none where they are not booked yet.
    async fn settle_delivered(&self, partition: Partition, tenant: &TenantId) -> Answer<Option<usize>> {
        let Some(epoch) = self.core.gate.epoch(partition) else { return Ok(None) };
        let delivered = self.core.ledger.delivered_calls(tenant, epoch, SETTLED_AT_ONCE).await?;
        let settled = delivered.len();
        if settled == 0 {
            return Ok(Some(0));
        }
        let booked =
            tokio::time::timeout(self.core.progress.restore_wait, self.is_booked(partition, tenant, epoch));
        if !matches!(booked.await, Ok(true)) {
            return Ok(None);
        }
        self.core.ledger.settle_parked(tenant, delivered).await?;
        Ok(Some(settled))
    }

    /// Waits until all that the gate did in this epoch is booked. Only then may its memory be lost again.
    async fn is_booked(&self, partition: Partition, tenant: &TenantId, epoch: Epoch) -> bool {
        let Ok(last_id) = self.probe(partition, tenant).await else { return false };
        if self.core.progress.catch_up(partition, last_id).await.is_err() {
            return false;
        }
        let Ok(cursor) = self.core.ledger.cursor_row(partition).await else { return false };
        // An abandoned tail is not booked.
        let is_kept = cursor.given_up < epoch;
        is_kept && cursor.settles(last_id) && self.core.gate.epoch(partition) == Some(epoch)
    }
}

fn catching_up() -> OperationError {
    let message = "it is still catching up with what was done while it was away; repeat the call";
    OperationError::GateUnavailable(message.into())
}

fn set_back() -> OperationError {
    OperationError::GateUnavailable("its clock is behind the time at which the call was taken".into())
}

fn silent_ledger() -> OperationError {
    OperationError::LedgerUnavailable("it did not say in time whether calls wait".into())
}

/// Each reservation with its calls in order; the reservations in the order of their first call.
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
