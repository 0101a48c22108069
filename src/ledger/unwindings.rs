//! Use of open periods that was taken back from before a cut. What was burnt there of grants that had ended is less by
//! it: what these leave lapses, or is voided, once more.

use diesel::QueryableByName;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Numeric, SmallInt, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::burnables::Unwound;
use super::columns::Milliseconds;
use super::grant_sales::{self, UnburntGrant};
use super::prepared::sql_query;
use super::quotas::PeriodKey;
use super::schema::{grants, period_closures, unwindings};
use super::{
    BEGIN_BOOKING, Ledger, LedgerError, adjustments, capacities, continued_grants, cursors, cuts,
    grants as stored_grants, instant, journal, number,
};
use crate::domain::entry::Posting;
use crate::domain::grant::GrantId;
use crate::domain::ids::{Epoch, MeterId, OutboxId, Partition, TenantId};
use crate::domain::period::Window;

/// The step of a grant's operation that books what is unburnt of it after all: behind all that its end and its sale
/// book. Each unwinding of its quota has two: of units, and of money.
const UNWOUND_STEP: u32 = 1_000;

/// Use that was taken back, as the writer notes it.
#[derive(Debug)]
pub(crate) struct TakenBack {
    partition: Partition,
    tenant: TenantId,
    operation: uuid::Uuid,
    meter: MeterId,
    period: Window,
    amount: Decimal,
}

impl TakenBack {
    /// What this posting of the gate's correction takes back.
    pub(crate) fn of(partition: Partition, posting: &Posting) -> impl Iterator<Item = Self> + '_ {
        let movements =
            posting.lines.iter().flat_map(|line| line.movements.iter().map(move |one| (line, one)));
        movements.filter_map(move |(line, movement)| {
            let amount = movement.consumed().filter(|amount| *amount < Decimal::ZERO)?;
            Some(Self {
                partition,
                tenant: posting.tenant.clone(),
                operation: posting.operation_id,
                meter: line.meter.clone(),
                period: movement.period(),
                amount: -amount,
            })
        })
    }
}

/// Notes which of these went below a cut. Each is of the last event that is booked of its partition.
pub(crate) async fn add(mut connection: &AsyncPgConnection, taken: &[TakenBack]) -> Result<(), LedgerError> {
    if taken.is_empty() {
        return Ok(());
    }
    let starts = instant::all_from_ms(taken.iter().map(|one| one.period.start_ms))?;
    sql_query(include_str!("sql/add_unwindings.sql"))
        .bind::<Array<SmallInt>, _>(taken.iter().map(|one| one.partition).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(taken.iter().map(|one| one.tenant.clone()).collect::<Vec<_>>())
        .bind::<Array<Uuid>, _>(taken.iter().map(|one| one.operation).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(taken.iter().map(|one| one.meter.clone()).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(starts)
        .bind::<Array<Numeric>, _>(taken.iter().map(|one| one.amount).collect::<Vec<_>>())
        .execute(&mut connection)
        .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct Quota {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
}

#[derive(QueryableByName)]
struct TakingBack {
    #[diesel(sql_type = Bool)]
    is_being_taken_back: bool,
}

impl Ledger {
    /// Whether use of this quota is about to be taken back in this period, or what that leaves of grants that had ended
    /// is not booked.
    pub async fn is_use_being_taken_back(
        &self,
        tenant: &TenantId,
        meter: &MeterId,
        period: Window,
    ) -> Result<bool, LedgerError> {
        let start = instant::from_ms(period.start_ms)?;
        let query = || {
            sql_query(include_str!("sql/is_being_taken_back.sql"))
                .bind::<Text, _>(tenant)
                .bind::<Text, _>(meter)
                .bind::<Timestamptz, _>(start)
        };
        let rows: Vec<TakingBack> = self.load(query).await?;
        Ok(rows.iter().any(|row| row.is_being_taken_back))
    }

    /// Periods of quotas of which use was taken back from before a cut, and what follows is not booked; of one tenant
    /// or of all, after `after`.
    pub async fn unwound_quotas(
        &self,
        tenant: Option<&TenantId>,
        after: Option<&PeriodKey>,
        limit: usize,
    ) -> Result<Vec<PeriodKey>, LedgerError> {
        let start = after.map(|(.., start_ms)| instant::from_ms(*start_ms)).transpose()?;
        let query = || {
            sql_query(include_str!("sql/unwound_quotas.sql"))
                .bind::<Nullable<Text>, _>(tenant)
                .bind::<Nullable<Text>, _>(after.map(|(tenant, ..)| tenant))
                .bind::<Nullable<Text>, _>(after.map(|(_, meter, _)| meter))
                .bind::<Nullable<Timestamptz>, _>(start)
                .bind::<BigInt, _>(number::limit(limit))
        };
        let rows: Vec<Quota> = self.load(query).await?;
        Ok(rows.into_iter().map(|row| (row.tenant, row.meter, row.period_start.0)).collect())
    }

    /// Books what the use of a quota's period that was taken back first, and is not settled, leaves unburnt of grants
    /// that had ended. What waits for the end of a grant to be booked is left. Raises the capacity's version. Returns
    /// whether something was not settled before; there may be more then.
    pub async fn settle_unwound(&self, of: PeriodKey, now_ms: i64) -> Result<bool, LedgerError> {
        let partition = self.partition_of(&of.0).await?;
        self.transact(BEGIN_BOOKING, move |connection| {
            async move { settle_first(connection, partition, &of, now_ms).await }.boxed()
        })
        .await
    }
}

async fn settle_first(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    of: &PeriodKey,
    now_ms: i64,
) -> Result<bool, LedgerError> {
    let (tenant, meter, start_ms) = of;
    let start = instant::from_ms(*start_ms)?;
    // What is booked out of the quarantine meanwhile would be noted at the same place.
    cursors::lock(connection, &[partition]).await?;
    capacities::lock_tenant(connection, tenant).await?;
    let of_quota = unwindings::table
        .filter(unwindings::tenant.eq(tenant))
        .filter(unwindings::meter.eq(meter))
        .filter(unwindings::period_start.eq(start));
    let settled: i64 = of_quota.filter(unwindings::is_settled).count().get_result(connection).await?;
    let first: Option<(i64, i64)> = of_quota
        .filter(unwindings::is_settled.eq(false))
        .select((unwindings::epoch, unwindings::sequence))
        .order((unwindings::epoch, unwindings::sequence))
        .first(connection)
        .await
        .optional()?;
    let Some((epoch, sequence)) = first else { return Ok(false) };
    let place = OutboxId { epoch: Epoch(number::unsigned(epoch)?), sequence: number::unsigned(sequence)? };
    let Some(ended) = ended_before(connection, of, place).await? else { return Ok(false) };
    let closed = period_closures::table.find((tenant, meter, start));
    // A close waits for notes, but not that of an earlier version: nothing is booked behind it, and `verify` says so.
    let is_closed: bool = diesel::select(diesel::dsl::exists(closed)).get_result(connection).await?;
    for grant in ended.into_iter().filter(|_| !is_closed) {
        let number = u32::try_from(settled).unwrap_or(u32::MAX);
        lapse_again(connection, partition, (grant, *start_ms), place, number).await?;
    }
    let here = of_quota.filter(unwindings::epoch.eq(epoch)).filter(unwindings::sequence.eq(sequence));
    diesel::update(here).set(unwindings::is_settled.eq(true)).execute(connection).await?;
    capacities::raise_versions(connection, tenant, meter, now_ms).await?;
    Ok(true)
}

#[derive(QueryableByName)]
struct Ended {
    #[diesel(sql_type = Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Bool)]
    is_settled: bool,
}

/// The grants that had ended in a period at this place after more was consumed than was left there; none while what one
/// of them left is not booked.
async fn ended_before(
    connection: &mut AsyncPgConnection,
    (tenant, meter, start_ms): &PeriodKey,
    place: OutboxId,
) -> Result<Option<Vec<GrantId>>, LedgerError> {
    let ended: Vec<Ended> = sql_query(include_str!("sql/ends_before.sql"))
        .bind::<Text, _>(tenant)
        .bind::<Text, _>(meter)
        .bind::<Timestamptz, _>(instant::from_ms(*start_ms)?)
        .bind::<BigInt, _>(number::signed(place.epoch.0))
        .bind::<BigInt, _>(number::signed(place.sequence))
        .load(connection)
        .await?;
    let are_settled = ended.iter().all(|one| one.is_settled);
    Ok(are_settled.then(|| ended.into_iter().map(|one| GrantId::from_uuid(one.id)).collect()))
}

/// Books what is unburnt of a grant that had ended once use was taken back at this place, beyond what was booked
/// before: as of its end, whenever that is.
async fn lapse_again(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    (id, start_ms): (GrantId, i64),
    place: OutboxId,
    number: u32,
) -> Result<(), LedgerError> {
    let damaged = || LedgerError::Damaged(format!("what was taken back of the grant {id}"));
    let Some(stored) = stored_grants::find(connection, id).await? else { return Ok(()) };
    let (Some(begun_ms), Some(booked)) = (stored.period_start_ms, stored.settled_amount) else {
        return Ok(());
    };
    let standing = continued_grants::standing(connection, &stored, begun_ms).await?;
    let window = standing.period;
    let after = OutboxId { sequence: place.sequence.saturating_add(1), ..place };
    let unburnt = cuts::unburnt(connection, &stored, &standing, Unwound::Before(after)).await?;
    let unburnt = unburnt.filter(|_| window.start_ms == start_ms).ok_or_else(damaged)?;
    // Never less, but by what an earlier version took back without a note: what is booked stays then.
    let more = unburnt.saturating_sub(booked);
    if more.is_zero() {
        return Ok(());
    }
    let end = cuts::EndOf::of(&stored);
    let step = UNWOUND_STEP.saturating_add(number.saturating_mul(2));
    let movements = end.movements(window, more);
    let lapse = stored_grants::posting(&stored, window, step, end.at_ms, movements);
    journal::post_beside_outbox(connection, partition, vec![lapse]).await?;
    let of = UnburntGrant {
        tenant: &stored.tenant,
        id,
        period: window,
        amount: more,
        at_ms: end.at_ms,
        left: end.left,
        step: step.saturating_add(1),
    };
    grant_sales::unburn(connection, partition, &of).await?;
    diesel::update(grants::table.find((&stored.tenant, id.uuid())))
        .set(grants::settled_amount.eq(Some(unburnt.decimal())))
        .execute(connection)
        .await?;
    adjustments::carry_out_again(connection, &stored.tenant, id).await
}
