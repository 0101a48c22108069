//! Closed periods: what is unused rolls over or lapses and overage is settled, once for each tenant, meter and period.

use std::time::Duration;

use diesel::sql_types::{Array, BigInt, Bool, Interval, Nullable, Numeric, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::columns::Milliseconds;
use super::functions::interval;
use super::grants::QuotaPeriod;
use super::quotas::PeriodKey;
use super::rollovers::{self, Candidate, Rollover};
use super::{BEGIN_BOOKING, Ledger, LedgerError, cursors, instant, journal, number};
use crate::domain::amount::Amount;
use crate::domain::entry::{PostedLine, Posting};
use crate::domain::ids::{MeterId, OutboxId, Partition, TenantId};
use crate::domain::movements::Movement;
use crate::domain::movements::close::{roll_over, settle};
use crate::domain::period::Window;

/// A period of a tenant's meter that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedPeriod {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its meter.
    pub meter: MeterId,
    /// Its instants.
    pub period: Window,
    /// Whether something of it may go on to the next period.
    pub may_roll_over: bool,
}

/// A period to be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosingPeriod {
    /// Which one.
    pub ended: EndedPeriod,
    /// The period after it by policy, to be opened if something rolls over into it; none where the tenant no longer has
    /// such a quota.
    pub next: Option<QuotaPeriod>,
}

/// How periods are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closing {
    /// What has to be booked of the partition before.
    pub after: OutboxId,
    /// How long after its end a period counts as open.
    pub grace: Duration,
    /// Whether to say only what would be booked.
    pub dry_run: bool,
    /// The service's time (unix ms): periods that have not ended by then are in the gate.
    pub now_ms: i64,
}

/// What a close has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Closed {
    /// Periods that are closed now.
    pub closed: u64,
    /// Periods that wait: for open holds, calls or grants.
    pub waiting: u64,
}

impl Closed {
    /// Adds what another part has done.
    pub fn add(&mut self, other: Self) {
        self.closed += other.closed;
        self.waiting += other.waiting;
    }
}

#[derive(QueryableByName)]
struct Ended {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Timestamptz)]
    period_end: Milliseconds,
    #[diesel(sql_type = Bool)]
    may_roll_over: bool,
}

#[derive(QueryableByName)]
struct Standing {
    #[diesel(embed)]
    ended: Ended,
    #[diesel(sql_type = Numeric)]
    available: Decimal,
    #[diesel(sql_type = Numeric)]
    consumed: Decimal,
    #[diesel(sql_type = Numeric)]
    rolled_in: Decimal,
    #[diesel(sql_type = Numeric)]
    included: Decimal,
    #[diesel(sql_type = Numeric)]
    max_rollover: Decimal,
    #[diesel(sql_type = Bool)]
    waits: bool,
}

impl Standing {
    fn candidate(&self, periods: &[ClosingPeriod]) -> Candidate {
        let (tenant, meter, _) = self.ended.key();
        let is_it = |one: &&ClosingPeriod| one.ended.tenant == tenant && one.ended.meter == meter;
        Candidate {
            next: periods.iter().find(is_it).and_then(|one| one.next.clone()),
            period: Window { start_ms: self.ended.period_start.0, end_ms: self.ended.period_end.0 },
            tenant,
            meter,
            included: self.included,
            max_rollover: self.max_rollover,
            rolled_in: self.rolled_in,
            consumed: self.consumed,
            available: self.available,
        }
    }
}

impl Ended {
    fn key(&self) -> PeriodKey {
        (self.tenant.clone(), self.meter.clone(), self.period_start.0)
    }

    fn read(self) -> EndedPeriod {
        let period = Window { start_ms: self.period_start.0, end_ms: self.period_end.0 };
        EndedPeriod { tenant: self.tenant, meter: self.meter, period, may_roll_over: self.may_roll_over }
    }
}

impl Ledger {
    /// Periods that ended by `ended_by_ms` (unix ms) and are not closed: the ones that ended first come first; at most
    /// `limit`, after `after`.
    pub async fn periods_to_close(
        &self,
        ended_by_ms: i64,
        after: Option<&EndedPeriod>,
        limit: usize,
    ) -> Result<Vec<EndedPeriod>, LedgerError> {
        let ended_by = instant::from_ms(ended_by_ms)?;
        let after_end = after.map(|last| instant::from_ms(last.period.end_ms)).transpose()?;
        let query = || {
            sql_query(include_str!("sql/periods_to_close.sql"))
                .bind::<Timestamptz, _>(ended_by)
                .bind::<Nullable<Timestamptz>, _>(after_end)
                .bind::<Nullable<Text>, _>(after.map(|last| &last.tenant))
                .bind::<Nullable<Text>, _>(after.map(|last| &last.meter))
                .bind::<BigInt, _>(number::limit(limit))
        };
        let rows: Vec<Ended> = self.load(query).await?;
        Ok(rows.into_iter().map(Ended::read).collect())
    }

    /// Closes these periods of one partition's tenants in one transaction; each tenant's meter is named once. Nothing
    /// of the partition is booked meanwhile. Those that are closed already stay as they are.
    pub async fn close_periods(
        &self,
        partition: Partition,
        periods: &[ClosingPeriod],
        closing: Closing,
    ) -> Result<Closed, LedgerError> {
        let grace_ms = i64::try_from(closing.grace.as_millis()).unwrap_or(i64::MAX);
        let closed_at_ms = move |ended: &EndedPeriod| ended.period.end_ms.saturating_add(grace_ms);
        let booked_at = periods.iter().flat_map(|one| [one.ended.period.end_ms, closed_at_ms(&one.ended)]);
        self.ensure_months_of(booked_at).await?;
        let periods = periods.to_vec();
        self.transact(BEGIN_BOOKING, move |connection| {
            async move {
                let (locked, _) = cursors::lock(connection, &[partition]).await?;
                if !locked.iter().all(|cursor| cursor.settles(closing.after)) {
                    let waiting = u64::try_from(periods.len()).unwrap_or(u64::MAX);
                    return Ok(Closed { waiting, ..Closed::default() });
                }
                let (waiting, ready): (Vec<_>, Vec<_>) =
                    read(connection, &periods, closing.grace).await?.into_iter().partition(|row| row.waits);
                let count = |rows: usize| u64::try_from(rows).unwrap_or(u64::MAX);
                let closed = Closed { closed: count(ready.len()), waiting: count(waiting.len()) };
                if !closing.dry_run {
                    close(connection, partition, &periods, ready, closing, closed_at_ms).await?;
                }
                Ok(closed)
            }
            .boxed()
        })
        .await
    }
}

async fn close(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    periods: &[ClosingPeriod],
    ready: Vec<Standing>,
    closing: Closing,
    closed_at_ms: impl Fn(&EndedPeriod) -> i64,
) -> Result<(), LedgerError> {
    let candidates = ready.iter().map(|row| row.candidate(periods)).collect();
    let mut rollovers = rollovers::prepare(connection, partition, candidates, closing.now_ms).await?;
    let closures: Vec<Closure> = ready
        .into_iter()
        .map(|row| {
            let rollover = rollovers.remove(&row.ended.key());
            Closure::of(row, rollover, &closed_at_ms)
        })
        .collect();
    note(connection, &closures).await?;
    let postings = closures.iter().map(|closure| closure.posting.clone()).collect();
    journal::post_beside_outbox(connection, partition, postings).await
}

async fn read(
    connection: &mut AsyncPgConnection,
    periods: &[ClosingPeriod],
    grace: Duration,
) -> Result<Vec<Standing>, LedgerError> {
    let ended = || periods.iter().map(|one| &one.ended);
    let starts = instant::all_from_ms(ended().map(|ended| ended.period.start_ms))?;
    let read = sql_query(include_str!("sql/closing_balances.sql"))
        .bind::<Array<Text>, _>(ended().map(|ended| &ended.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(ended().map(|ended| &ended.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(starts)
        .bind::<Interval, _>(interval(grace));
    Ok(read.load(connection).await?)
}

/// The close of one period.
struct Closure {
    ended: EndedPeriod,
    closed_at_ms: i64,
    rolled: Decimal,
    lapsed: Decimal,
    overage: Decimal,
    posting: Posting,
}

impl Closure {
    fn of(row: Standing, rollover: Option<Rollover>, closed_at_ms: impl Fn(&EndedPeriod) -> i64) -> Self {
        let (available, ended) = (row.available, row.ended.read());
        let closed_at_ms = closed_at_ms(&ended);
        let rolled = rollover.map_or(Decimal::ZERO, |(amount, _)| amount.decimal());
        let movements = match rollover {
            Some((amount, next)) => roll_over(ended.period, next, unused(available), |_| amount),
            None => settle(ended.period, available),
        };
        Self {
            closed_at_ms,
            rolled,
            lapsed: unused(available).decimal() - rolled,
            overage: (-available).max(Decimal::ZERO),
            posting: posting(&ended, closed_at_ms, movements),
            ended,
        }
    }
}

fn unused(available: Decimal) -> Amount {
    Amount::from_decimal(available).unwrap_or(Amount::ZERO)
}

async fn note(connection: &mut AsyncPgConnection, closures: &[Closure]) -> Result<(), LedgerError> {
    let periods = || closures.iter().map(|closure| closure.ended.period);
    let note = sql_query(include_str!("sql/note_closures.sql"))
        .bind::<Array<Text>, _>(closures.iter().map(|closure| &closure.ended.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(closures.iter().map(|closure| &closure.ended.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(periods().map(|period| period.start_ms))?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(periods().map(|period| period.end_ms))?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(closures.iter().map(|one| one.closed_at_ms))?)
        .bind::<Array<Numeric>, _>(closures.iter().map(|closure| closure.lapsed).collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(closures.iter().map(|closure| closure.overage).collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(closures.iter().map(|closure| closure.rolled).collect::<Vec<_>>());
    note.execute(connection).await?;
    Ok(())
}

/// The entries say when the period was closed, so that the books do not depend on when they were booked.
fn posting(ended: &EndedPeriod, closed_at_ms: i64, movements: Vec<Movement>) -> Posting {
    let line = PostedLine { meter: ended.meter.clone(), movements, begins_to_consume: false };
    Posting {
        tenant: ended.tenant.clone(),
        operation_id: operation_id(ended),
        step: 1,
        happened_at_ms: closed_at_ms,
        operation: String::new(),
        hour_start_ms: ended.period.start_ms,
        subjects: Vec::new(),
        lines: vec![line],
    }
}

/// The id is a hash of what is closed: the same close is the same operation.
fn operation_id(ended: &EndedPeriod) -> uuid::Uuid {
    let mut hasher = blake3::Hasher::new_derive_key("tollgate period closure v1");
    for part in [ended.tenant.as_str(), ended.meter.as_str()] {
        hasher.update(part.as_bytes());
        hasher.update(&[0]);
    }
    hasher.update(&ended.period.start_ms.to_le_bytes());
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}
