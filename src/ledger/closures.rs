//! Closed periods: what is unused lapses and overage is settled, once for each tenant, meter and period.

use std::time::Duration;

use diesel::sql_types::{Array, BigInt, Bool, Interval, Nullable, Numeric, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::columns::Milliseconds;
use super::functions::interval;
use super::{BEGIN_BOOKING, Ledger, LedgerError, cursors, instant, journal, number};
use crate::domain::entry::{PostedLine, Posting};
use crate::domain::ids::{MeterId, OutboxId, Partition, TenantId};
use crate::domain::movements::close::settle;
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
}

#[derive(QueryableByName)]
struct Standing {
    #[diesel(embed)]
    ended: Ended,
    #[diesel(sql_type = Numeric)]
    available: Decimal,
    #[diesel(sql_type = Bool)]
    waits: bool,
}

impl Ended {
    fn read(self) -> EndedPeriod {
        let period = Window { start_ms: self.period_start.0, end_ms: self.period_end.0 };
        EndedPeriod { tenant: self.tenant, meter: self.meter, period }
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

    /// Closes these periods of one partition's tenants in one transaction. Nothing of the partition is booked
    /// meanwhile. Those that are closed already stay as they are.
    pub async fn close_periods(
        &self,
        partition: Partition,
        periods: &[EndedPeriod],
        closing: Closing,
    ) -> Result<Closed, LedgerError> {
        let grace_ms = i64::try_from(closing.grace.as_millis()).unwrap_or(i64::MAX);
        let closed_at_ms = move |ended: &EndedPeriod| ended.period.end_ms.saturating_add(grace_ms);
        self.ensure_months_of(periods.iter().map(closed_at_ms)).await?;
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
                let closures: Vec<Closure> =
                    ready.into_iter().map(|row| Closure::of(row, closed_at_ms)).collect();
                if !closing.dry_run {
                    note(connection, &closures).await?;
                    let postings = closures.iter().map(|closure| closure.posting.clone()).collect();
                    journal::post_beside_outbox(connection, partition, postings).await?;
                }
                let count = |rows: usize| u64::try_from(rows).unwrap_or(u64::MAX);
                Ok(Closed { closed: count(closures.len()), waiting: count(waiting.len()) })
            }
            .boxed()
        })
        .await
    }
}

async fn read(
    connection: &mut AsyncPgConnection,
    periods: &[EndedPeriod],
    grace: Duration,
) -> Result<Vec<Standing>, LedgerError> {
    let starts = instant::all_from_ms(periods.iter().map(|ended| ended.period.start_ms))?;
    let read = sql_query(include_str!("sql/closing_balances.sql"))
        .bind::<Array<Text>, _>(periods.iter().map(|ended| &ended.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(periods.iter().map(|ended| &ended.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(starts)
        .bind::<Interval, _>(interval(grace));
    Ok(read.load(connection).await?)
}

/// The close of one period.
struct Closure {
    ended: EndedPeriod,
    closed_at_ms: i64,
    lapsed: Decimal,
    overage: Decimal,
    posting: Posting,
}

impl Closure {
    fn of(row: Standing, closed_at_ms: impl Fn(&EndedPeriod) -> i64) -> Self {
        let (available, ended) = (row.available, row.ended.read());
        let closed_at_ms = closed_at_ms(&ended);
        let (lapsed, overage) = (available.max(Decimal::ZERO), (-available).max(Decimal::ZERO));
        let posting = posting(&ended, closed_at_ms, available);
        Self { ended, closed_at_ms, lapsed, overage, posting }
    }
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
        .bind::<Array<Numeric>, _>(closures.iter().map(|closure| closure.overage).collect::<Vec<_>>());
    note.execute(connection).await?;
    Ok(())
}

/// The entries say when the period was closed, so that the books do not depend on when they were booked.
fn posting(ended: &EndedPeriod, closed_at_ms: i64, available: Decimal) -> Posting {
    let movements = settle(ended.period, available);
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
