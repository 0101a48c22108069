//! Closed periods: open holds are carried over, what is unused rolls over or lapses and overage is settled, once for
//! each tenant, meter and period.

mod closure;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Interval, Nullable, Numeric, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use self::closure::{Closure, note};
use super::closed::{self, Closed, Closing};
use super::columns::Milliseconds;
use super::functions::interval;
use super::grant_sales::{self, BurntGrant};
use super::held_parts::HeldPart;
use super::prepared::sql_query;
use super::quotas::{PeriodKey, QuotaPeriod};
use super::rollovers::{self, Candidate, Left};
use super::{
    BEGIN_BOOKING, Ledger, LedgerError, advances, capacities, carried_holds, continued_grants, cursors,
    instant, journal, number, open_periods,
};
use crate::domain::ids::{MeterId, Partition, TenantId};
use crate::domain::period::Window;
use crate::domain::rollover::{Part, RolloverTerms};

/// A period of a tenant's meter that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedPeriod {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its meter.
    pub meter: MeterId,
    /// Its instants.
    pub period: Window,
    /// Whether something of its quota may go on to the next period, or recurs there: that has to be known then.
    pub may_go_on: bool,
    /// In how many periods after it counts what rolls over of it.
    pub rollover_periods: u8,
}

/// A period to be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosingPeriod {
    /// Which one.
    pub ended: EndedPeriod,
    /// The period after it by policy, to be opened if something goes on to it; none where the tenant no longer has
    /// such a quota.
    pub next: Option<QuotaPeriod>,
    /// When the last period ends in which counts what rolls over of it (unix ms); none where that is not known.
    pub rollover_ends_ms: Option<i64>,
}

/// A period that has ended, as it is read.
#[derive(QueryableByName)]
pub(super) struct Ended {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Timestamptz)]
    period_end: Milliseconds,
    #[diesel(sql_type = Bool)]
    may_go_on: bool,
    #[diesel(sql_type = SmallInt)]
    rollover_periods: i16,
}

/// The figures of a period that has ended.
#[derive(QueryableByName)]
pub(super) struct Standing {
    #[diesel(embed)]
    ended: Ended,
    #[diesel(sql_type = Numeric)]
    available: Decimal,
    #[diesel(sql_type = Numeric)]
    reserved: Decimal,
    #[diesel(sql_type = Numeric)]
    reserved_of_carried: Decimal,
    #[diesel(sql_type = Numeric)]
    consumed: Decimal,
    #[diesel(sql_type = Numeric)]
    rolled_in: Decimal,
    #[diesel(sql_type = Numeric)]
    included: Decimal,
    #[diesel(sql_type = Numeric)]
    max_rollover: Decimal,
    #[diesel(sql_type = Numeric)]
    min_rollover: Decimal,
    #[diesel(sql_type = Bool)]
    reroll: bool,
    #[diesel(sql_type = Bool)]
    keeps: bool,
    #[diesel(sql_type = Bool)]
    recurs: bool,
    #[diesel(sql_type = Bool)]
    preserve_overage: bool,
    #[diesel(sql_type = Bool)]
    has_quota: bool,
    /// Whether its close has to wait for anything but the close of the period before.
    #[diesel(sql_type = Bool)]
    waits_by_itself: bool,
    #[diesel(sql_type = Bool)]
    waits_for_before: bool,
}

impl Standing {
    pub(super) fn candidate(&self, periods: &[ClosingPeriod], older: Vec<HeldPart>) -> Candidate {
        let (tenant, meter, _) = self.ended.key();
        let is_it = |one: &&ClosingPeriod| one.ended.tenant == tenant && one.ended.meter == meter;
        let asked = periods.iter().find(is_it);
        Candidate {
            next: asked.and_then(|one| one.next.clone()),
            period: Window { start_ms: self.ended.period_start.0, end_ms: self.ended.period_end.0 },
            tenant,
            meter,
            included: self.included,
            terms: RolloverTerms { max: self.max_rollover, min: self.min_rollover, reroll: self.reroll },
            rollover_periods: (self.ended.rollover_periods(), asked.and_then(|one| one.rollover_ends_ms)),
            rolled_in: self.rolled_in,
            consumed: self.consumed,
            available: self.available,
            has_holds: self.has_holds(),
            keeps: self.keeps,
            recurs: self.recurs,
            preserved: if self.preserve_overage { self.overage() } else { Decimal::ZERO },
            older,
        }
    }

    pub(super) fn key(&self) -> PeriodKey {
        self.ended.key()
    }

    /// Whether its close has to wait.
    pub(super) fn waits(&self) -> bool {
        self.waits_by_itself || self.waits_for_before
    }

    /// What is available once what holds are charged to the next period is.
    pub(super) fn unused(&self) -> Decimal {
        (self.available + self.charged()).max(Decimal::ZERO)
    }

    /// What the open holds have pushed it over its quota: they are charged to the next period.
    fn charged(&self) -> Decimal {
        (-self.available).clamp(Decimal::ZERO, self.reserved.max(Decimal::ZERO))
    }

    /// What was used beyond it.
    pub(super) fn overage(&self) -> Decimal {
        (-self.available - self.charged()).max(Decimal::ZERO)
    }

    fn has_holds(&self) -> bool {
        self.reserved > Decimal::ZERO
    }
}

impl EndedPeriod {
    fn key(&self) -> PeriodKey {
        (self.tenant.clone(), self.meter.clone(), self.period.start_ms)
    }
}

impl Ended {
    fn key(&self) -> PeriodKey {
        (self.tenant.clone(), self.meter.clone(), self.period_start.0)
    }

    pub(super) fn read(self) -> EndedPeriod {
        let period = Window { start_ms: self.period_start.0, end_ms: self.period_end.0 };
        EndedPeriod {
            rollover_periods: self.rollover_periods(),
            tenant: self.tenant,
            meter: self.meter,
            period,
            may_go_on: self.may_go_on,
        }
    }

    fn rollover_periods(&self) -> u8 {
        u8::try_from(self.rollover_periods).unwrap_or(1)
    }
}

impl Ledger {
    /// Periods that ended by `ended_by_ms` (unix ms) and are not closed: the ones that ended first come first; at
    /// most `limit`, after `after`.
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
    /// of the partition is booked meanwhile. Those that are closed already stay as they are. Returns also the periods
    /// that stay open because something of their quota goes on after all, and their next periods were not asked for.
    pub async fn close_periods(
        &self,
        partition: Partition,
        periods: &[ClosingPeriod],
        closing: Closing,
    ) -> Result<(Closed, Vec<EndedPeriod>), LedgerError> {
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
                    return Ok((Closed { waiting, ..Closed::default() }, Vec::new()));
                }
                if !closing.dry_run {
                    // All of them before anything is booked: others lock a tenant before they book for it.
                    let tenants = periods.iter().map(|one| &one.ended.tenant);
                    capacities::lock_tenants(connection, tenants).await?;
                    let keys: Vec<_> = periods.iter().map(|one| one.ended.key()).collect();
                    carried_holds::book_in(connection, partition, &keys, closing.now_ms).await?;
                }
                let standing = read(connection, &periods, closing.grace).await?;
                let next = next_of_holds(connection, &standing).await?;
                let waits =
                    |row: &Standing| row.waits() || (row.has_holds() && !next.contains_key(&row.ended.key()));
                let (waiting, ready): (Vec<_>, Vec<_>) = standing.into_iter().partition(waits);
                let goes_on = |row: &Standing| {
                    let (tenant, meter, _) = row.ended.key();
                    let is_it = |one: &&ClosingPeriod| one.ended.tenant == tenant && one.ended.meter == meter;
                    let was_asked = periods.iter().find(is_it).is_some_and(|one| one.ended.may_go_on);
                    (row.has_holds() || row.ended.may_go_on) && row.has_quota && !was_asked
                };
                let (going_on, ready): (Vec<_>, Vec<_>) = ready.into_iter().partition(goes_on);
                let count = |rows: usize| u64::try_from(rows).unwrap_or(u64::MAX);
                let mut closed = Closed { closed: count(ready.len()), ..Closed::default() };
                closed.waiting = count(waiting.len());
                if closing.dry_run {
                    let later = waiting.iter().filter(|row| row.waits_for_before && !row.waits_by_itself);
                    closed.later = count(later.count());
                    closed.waiting -= closed.later;
                    closed.units = closed::units(connection, &periods, &ready).await?;
                } else {
                    close(connection, partition, &periods, (ready, next), closing, closed_at_ms).await?;
                }
                let asked = |row: Standing| EndedPeriod { may_go_on: true, ..row.ended.read() };
                Ok((closed, going_on.into_iter().map(asked).collect()))
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
    (ready, next): (Vec<Standing>, HashMap<PeriodKey, Window>),
    closing: Closing,
    closed_at_ms: impl Fn(&EndedPeriod) -> i64,
) -> Result<(), LedgerError> {
    let mut older = held_before(connection, &ready).await?;
    let mut older_of = |row: &Standing| older.remove(&row.ended.key()).unwrap_or_default();
    let candidates = ready.iter().map(|row| row.candidate(periods, older_of(row))).collect();
    let mut left = rollovers::prepare(connection, partition, candidates, closing.now_ms).await?;
    let burnt = burnt_sales(connection, periods, &ready, &left, &closed_at_ms).await?;
    let closed = |row: Standing| {
        let key = row.ended.key();
        Closure::of(row, left.remove(&key), next.get(&key).copied(), &closed_at_ms)
    };
    let closures: Vec<Closure> = ready.into_iter().map(closed).collect();
    note(connection, &closures).await?;
    let closed: Vec<_> = closures.iter().map(|one| (one.ended.key(), one.closed_at_ms)).collect();
    continued_grants::end_with(connection, &closed).await?;
    let ended: Vec<_> = closures.iter().map(|one| one.ended.clone()).collect();
    advances::end(connection, &ended, closing.now_ms).await?;
    let carried: Vec<_> = closures.iter().filter_map(|closure| closure.carried.clone()).collect();
    carried_holds::note(connection, &carried).await?;
    let postings = closures.into_iter().map(|closure| closure.posting).collect();
    journal::post_beside_outbox(connection, partition, postings).await?;
    grant_sales::burn(connection, partition, &burnt).await
}

/// What those of their open holds are set against that had come into these periods.
pub(super) async fn held_before(
    connection: &mut AsyncPgConnection,
    ready: &[Standing],
) -> Result<HashMap<PeriodKey, Vec<HeldPart>>, LedgerError> {
    let open = ready.iter().map(|row| (row.ended.key(), row.reserved_of_carried));
    carried_holds::still_set(connection, &open.filter(|(_, open)| *open > Decimal::ZERO).collect()).await
}

/// The sold grants in the books of these periods, each with what has burnt of it.
async fn burnt_sales(
    connection: &mut AsyncPgConnection,
    periods: &[ClosingPeriod],
    ready: &[Standing],
    left: &HashMap<PeriodKey, Left>,
    closed_at_ms: impl Fn(&EndedPeriod) -> i64,
) -> Result<Vec<BurntGrant>, LedgerError> {
    let keys: Vec<_> = ready.iter().map(|row| row.ended.key()).collect();
    let sold = grant_sales::standing_in(connection, &keys).await?;
    let is_folded = |row: &&Standing| {
        let key = row.ended.key();
        sold.contains_key(&key) && !left.contains_key(&key)
    };
    let folded = ready.iter().filter(is_folded);
    let candidates: Vec<_> = folded.map(|row| row.candidate(periods, Vec::new())).collect();
    let folded = rollovers::closing(connection, &candidates).await?;
    let keys = candidates.iter().map(|one| (one.tenant.clone(), one.meter.clone(), one.period.start_ms));
    let mut parts: HashMap<PeriodKey, Vec<Part>> =
        keys.zip(folded).map(|(key, quota)| (key, quota.parts())).collect();
    parts.extend(left.iter().map(|(key, left)| (key.clone(), left.parts.clone())));
    let mut burnt = Vec::new();
    for closed in periods {
        let EndedPeriod { tenant, period, .. } = &closed.ended;
        let key = closed.ended.key();
        let (Some(sold), Some(parts)) = (sold.get(&key), parts.get(&key)) else { continue };
        let closed_ms = closed_at_ms(&closed.ended);
        for grant in sold {
            let part = parts.iter().find(|part| part.grant == Some(grant.id));
            burnt.extend(part.map(|part| grant.burnt_at_close(tenant, *period, part, closed_ms)));
        }
    }
    Ok(burnt)
}

/// The periods to which open holds go: after theirs, the first that is not closed. None where the tenant's calendar
/// cannot be read.
async fn next_of_holds(
    connection: &mut AsyncPgConnection,
    standing: &[Standing],
) -> Result<HashMap<PeriodKey, Window>, LedgerError> {
    let held = || standing.iter().filter(|row| !row.waits() && row.has_holds());
    let asked: BTreeSet<PeriodKey> = held().map(|row| row.ended.key()).collect();
    if asked.is_empty() {
        return Ok(HashMap::new());
    }
    let mut open = open_periods::read(connection, &asked, None).await?;
    open.closed.extend(asked.iter().cloned());
    let next = held().filter_map(|row| {
        let (tenant, meter, start_ms) = row.ended.key();
        let period = Window { start_ms, end_ms: row.ended.period_end.0 };
        let next = open.stands_in(&tenant, &meter, period, period.end_ms).ok()?;
        (next != period).then_some(((tenant, meter, start_ms), next))
    });
    Ok(next.collect())
}

/// The figures of those of these periods that are not closed.
pub(super) async fn read(
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
