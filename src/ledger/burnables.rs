//! The grants of periods as what can burn, each between its cuts; and what lowered plans have taken.

use std::collections::HashMap;

use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Numeric, SmallInt, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::columns::{Milliseconds, MillisecondsIfAny};
use super::grants::{self, StoredGrant};
use super::prepared::{Statement, sql_query};
use super::quotas::PeriodKey;
use super::{LedgerError, instant, number};
use crate::domain::burn::{BurnPlace, Burnable, Cut};
use crate::domain::grant::{GrantId, GrantKind, GrantRollover, Priority, Recurrence};
use crate::domain::ids::{Epoch, MeterId, OutboxId, TenantId};
use crate::domain::period::Window;
use crate::domain::rollover::Fate;

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Numeric)]
    amount: Decimal,
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = SmallInt)]
    priority: i16,
    #[diesel(sql_type = Timestamptz)]
    effective_at: Milliseconds,
    #[diesel(sql_type = Timestamptz)]
    expires_at: Milliseconds,
    #[diesel(sql_type = Timestamptz)]
    created_at: Milliseconds,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    voided_at: MillisecondsIfAny,
    #[diesel(sql_type = Nullable<Uuid>)]
    repeats: Option<uuid::Uuid>,
    #[diesel(sql_type = Bool)]
    is_of_plan: bool,
    #[diesel(sql_type = Bool)]
    goes_on: bool,
    #[diesel(sql_type = Bool)]
    recurs: bool,
    #[diesel(sql_type = Nullable<Numeric>)]
    max_rollover: Option<Decimal>,
    #[diesel(sql_type = Numeric)]
    min_rollover: Decimal,
    #[diesel(sql_type = Array<BigInt>)]
    grow_epochs: Vec<i64>,
    #[diesel(sql_type = Array<BigInt>)]
    grow_sequences: Vec<i64>,
    #[diesel(sql_type = Array<Numeric>)]
    grow_amounts: Vec<Decimal>,
    #[diesel(sql_type = Nullable<BigInt>)]
    begin_epoch: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    begin_sequence: Option<i64>,
    #[diesel(sql_type = Nullable<Numeric>)]
    begin_consumed: Option<Decimal>,
    #[diesel(sql_type = Nullable<BigInt>)]
    end_epoch: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    end_sequence: Option<i64>,
    #[diesel(sql_type = Nullable<Numeric>)]
    end_consumed: Option<Decimal>,
    #[diesel(sql_type = Bool)]
    begin_is_at_instant: bool,
    #[diesel(sql_type = Bool)]
    end_is_at_instant: bool,
}

/// Of use that was taken back from before cuts, what counts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unwound {
    /// All of it.
    All,
    /// That of which all that follows is booked.
    Settled,
    /// What was taken back before this place.
    Before(OutboxId),
}

/// A grant as it is booked in a period.
pub(crate) struct BookedGrant {
    /// What of it can burn there.
    pub(crate) burnable: Burnable,
    /// The grant that it repeats, or its own id.
    pub(crate) made_as: GrantId,
    /// Whether it is given in each period.
    pub(crate) recurs: bool,
    /// Whether it was voided; its end may not be cut yet.
    pub(crate) is_voided: bool,
    /// What becomes of what is left of it when the period is closed, unless it is cut there.
    pub(crate) fate: Fate,
    /// How much of it goes on then.
    pub(crate) rollover: GrantRollover,
}

impl BookedGrant {
    /// Whether it counts at this instant (unix ms).
    pub(crate) fn counts_at(&self, at_ms: i64) -> bool {
        let place = self.burnable.place;
        !self.is_voided
            && self.burnable.ends.is_none()
            && self.burnable.amount > Decimal::ZERO
            && (place.effective_at_ms..place.expires_at_ms).contains(&at_ms)
    }
}

impl Row {
    fn read(self) -> Result<(PeriodKey, BookedGrant), LedgerError> {
        let damaged = |what: &str| LedgerError::Damaged(format!("the {what} of the grant {}", self.id));
        let place = BurnPlace {
            priority: u8::try_from(self.priority)
                .ok()
                .and_then(Priority::new)
                .ok_or_else(|| damaged("priority"))?,
            expires_at_ms: self.expires_at.0,
            kind: GrantKind::from_word(&self.kind).ok_or_else(|| damaged("kind"))?,
            effective_at_ms: self.effective_at.0,
            created_at_ms: self.created_at.0,
            id: Some(GrantId::from_uuid(self.id)),
        };
        let voided_at_ms = self.voided_at.0;
        // One that was made after its date counts from then on.
        let begins_at_ms = place.effective_at_ms.max(place.created_at_ms);
        let ends_at_ms = voided_at_ms.unwrap_or(place.expires_at_ms);
        // Those that an earlier version made at one boundary are at one instant: what follows from them is booked.
        let instant = |is_known: bool, at_ms: i64| if is_known { at_ms } else { 0 };
        let begins_at_ms = instant(self.begin_is_at_instant, begins_at_ms);
        let ends_at_ms = instant(self.end_is_at_instant, ends_at_ms);
        let burnable = Burnable {
            place,
            amount: self.amount,
            grows: grows(&self.grow_epochs, &self.grow_sequences, &self.grow_amounts)?,
            is_of_plan: self.is_of_plan,
            begins: cut(begins_at_ms, self.begin_epoch, self.begin_sequence, self.begin_consumed)?,
            ends: cut(ends_at_ms, self.end_epoch, self.end_sequence, self.end_consumed)?,
        };
        let made_as = GrantId::from_uuid(self.repeats.unwrap_or(self.id));
        let is_voided = voided_at_ms.is_some();
        let rollover =
            grants::rollover(self.max_rollover, self.min_rollover).ok_or_else(|| damaged("rollover"))?;
        let fate = match (self.goes_on, rollover.max) {
            (true, _) => Fate::GrantGoesOn(GrantId::from_uuid(self.id)),
            (false, Some(_)) if self.recurs => Fate::GrantRolls,
            _ => Fate::Lapses,
        };
        let booked = BookedGrant { burnable, made_as, recurs: self.recurs, is_voided, fate, rollover };
        Ok(((self.tenant, self.meter, self.period_start.0), booked))
    }
}

/// What returned of carried holds, each part with the cut after which it came.
pub(super) fn grows(
    epochs: &[i64],
    sequences: &[i64],
    amounts: &[Decimal],
) -> Result<Vec<(OutboxId, Decimal)>, LedgerError> {
    let cuts = epochs.iter().zip(sequences).zip(amounts);
    cuts.map(|((epoch, sequence), by)| Ok((place(*epoch, *sequence)?, *by))).collect()
}

pub(super) fn place(epoch: i64, sequence: i64) -> Result<OutboxId, LedgerError> {
    Ok(OutboxId { epoch: Epoch(number::unsigned(epoch)?), sequence: number::unsigned(sequence)? })
}

fn cut(
    at_ms: i64,
    epoch: Option<i64>,
    sequence: Option<i64>,
    consumed: Option<Decimal>,
) -> Result<Option<Cut>, LedgerError> {
    let (Some(epoch), Some(sequence), Some(consumed)) = (epoch, sequence, consumed) else { return Ok(None) };
    Ok(Some(Cut { place: place(epoch, sequence)?, at_ms, consumed }))
}

/// The place of a grant in the burn order of a period: what a period gets of a recurring one ends with it.
pub(crate) fn place_of(grant: &StoredGrant, period: Window) -> BurnPlace {
    let ends_with_period = grant.recurrence == Recurrence::Period;
    let period_end_ms = if ends_with_period { period.end_ms } else { i64::MAX };
    BurnPlace {
        priority: grant.priority,
        expires_at_ms: grant.expires_at_ms.min(period_end_ms),
        kind: grant.kind,
        effective_at_ms: grant.effective_at_ms,
        created_at_ms: grant.created_at_ms,
        id: Some(grant.id),
    }
}

/// The grants that are booked in these periods of tenants' meters, by tenant, meter and the period's start.
pub(crate) async fn read(
    connection: &mut AsyncPgConnection,
    periods: &[(&TenantId, &MeterId, Window)],
    unwound: Unwound,
) -> Result<HashMap<PeriodKey, Vec<Burnable>>, LedgerError> {
    let found = read_after(connection, periods, unwound).await?;
    let burnables = |grants: Vec<BookedGrant>| grants.into_iter().map(|grant| grant.burnable).collect();
    Ok(found.into_iter().map(|(key, grants)| (key, burnables(grants))).collect())
}

/// [`read`] as the books are now, with whether each of them was voided, and goes on.
pub(crate) async fn read_booked(
    connection: &mut AsyncPgConnection,
    periods: &[(&TenantId, &MeterId, Window)],
) -> Result<HashMap<PeriodKey, Vec<BookedGrant>>, LedgerError> {
    read_after(connection, periods, Unwound::All).await
}

async fn read_after(
    connection: &mut AsyncPgConnection,
    periods: &[(&TenantId, &MeterId, Window)],
    unwound: Unwound,
) -> Result<HashMap<PeriodKey, Vec<BookedGrant>>, LedgerError> {
    let (epoch, sequence) = match unwound {
        Unwound::Before(place) => (number::signed(place.epoch.0), number::signed(place.sequence)),
        Unwound::All | Unwound::Settled => (i64::MAX, i64::MAX),
    };
    let find = of_periods(sql_query(include_str!("sql/burnables.sql")), periods)?
        .bind::<BigInt, _>(epoch)
        .bind::<BigInt, _>(sequence)
        .bind::<Bool, _>(matches!(unwound, Unwound::Settled));
    by_period(connection, find).await
}

/// The grants that a statement finds in these periods.
pub(super) async fn load(
    connection: &mut AsyncPgConnection,
    statement: Statement<'_>,
    periods: &[(&TenantId, &MeterId, Window)],
) -> Result<HashMap<PeriodKey, Vec<BookedGrant>>, LedgerError> {
    let find = of_periods(statement, periods)?;
    by_period(connection, find).await
}

fn of_periods<'a>(
    statement: Statement<'a>,
    periods: &[(&'a TenantId, &'a MeterId, Window)],
) -> Result<Statement<'a>, LedgerError> {
    Ok(statement
        .bind::<Array<Text>, _>(periods.iter().map(|(tenant, ..)| *tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(periods.iter().map(|(_, meter, _)| *meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(
            periods.iter().map(|(.., period)| period.start_ms),
        )?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(
            periods.iter().map(|(.., period)| period.end_ms),
        )?))
}

async fn by_period(
    connection: &mut AsyncPgConnection,
    find: Statement<'_>,
) -> Result<HashMap<PeriodKey, Vec<BookedGrant>>, LedgerError> {
    let rows: Vec<Row> = find.load(connection).await?;
    let mut found: HashMap<PeriodKey, Vec<BookedGrant>> = HashMap::new();
    for row in rows {
        let (key, booked) = row.read()?;
        found.entry(key).or_default().push(booked);
    }
    Ok(found)
}
