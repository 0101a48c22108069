//! Tenants' calendars by their dates, and what a change of one does to a period that is opened already but has not begun.

use diesel::sql_query;
use diesel::sql_types::{Array, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::policy::has_booked;
use super::{Ledger, LedgerError, instant, jobs, notices};
use crate::domain::ids::TenantId;
use crate::domain::period::{Calendars, WindowKind};

/// A tenant's calendars after a change of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalendarChange {
    /// Whose.
    pub tenant: TenantId,
    /// All of them; none where the definition's alone holds for ever, which nothing booked may contradict.
    pub calendars: Option<Calendars>,
    /// Where the period ends that is open now (unix ms): the next may have been opened ahead.
    pub next_start_ms: i64,
}

impl Ledger {
    /// Whether anything is booked for the tenant, or waits to be.
    pub async fn has_booked(&self, tenant: &TenantId) -> Result<bool, LedgerError> {
        self.read(|connection| {
            let tenant = tenant.to_string();
            async move { has_booked(connection, &tenant).await }.boxed()
        })
        .await
    }
}

/// Stores them, once nobody is opening a period of the tenant.
pub(crate) async fn put(
    connection: &mut AsyncPgConnection,
    change: &CalendarChange,
) -> Result<(), LedgerError> {
    let lock = sql_query("SELECT FROM tenants WHERE id = $1 FOR UPDATE");
    lock.bind::<Text, _>(change.tenant.as_str()).execute(connection).await?;
    delete(connection, change.tenant.as_str()).await?;
    match &change.calendars {
        None if has_booked(connection, change.tenant.as_str()).await? => {
            Err(LedgerError::Busy(format!("{} was booked on for the first time", change.tenant)))
        }
        None => Ok(()),
        Some(calendars) => {
            insert(connection, &change.tenant, calendars).await?;
            let end_ms = calendars.window(WindowKind::Period, change.next_start_ms).end_ms;
            move_next(connection, &change.tenant, (change.next_start_ms, end_ms)).await
        }
    }
}

/// Forgets a tenant's.
pub(crate) async fn delete(connection: &mut AsyncPgConnection, tenant: &str) -> Result<(), LedgerError> {
    let delete = sql_query("DELETE FROM calendars WHERE tenant = $1").bind::<Text, _>(tenant);
    delete.execute(connection).await?;
    Ok(())
}

async fn insert(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    calendars: &Calendars,
) -> Result<(), LedgerError> {
    let dated = calendars.dated();
    let ends = dated.iter().map(|each| calendars.window(WindowKind::Period, each.from_ms).end_ms);
    sql_query(
        "INSERT INTO calendars (tenant, from_at, zone, anchor_day, first_period_end) \
         SELECT $1, * FROM unnest($2::timestamptz[], $3::text[], $4::smallint[], $5::timestamptz[])",
    )
    .bind::<Text, _>(tenant.as_str())
    .bind::<Array<Timestamptz>, _>(instant::all_from_ms(dated.iter().map(|each| each.from_ms))?)
    .bind::<Array<Text>, _>(dated.iter().map(|each| each.calendar.zone.name()).collect::<Vec<_>>())
    .bind::<Array<SmallInt>, _>(
        dated.iter().map(|each| i16::from(u8::from(each.calendar.anchor_day))).collect::<Vec<_>>(),
    )
    .bind::<Array<Timestamptz>, _>(instant::all_from_ms(ends)?)
    .execute(connection)
    .await?;
    Ok(())
}

/// The period behind the open one ends by the calendars of now, and the gate is told of it again.
async fn move_next(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    (start_ms, end_ms): (i64, i64),
) -> Result<(), LedgerError> {
    let mut moved = 0;
    for move_end in [
        "UPDATE balances SET period_end = $3 WHERE tenant = $1 AND period_start = $2 AND period_end <> $3",
        "UPDATE quota_periods SET period_end = $3, version = version + 1, delivered_at = NULL \
         WHERE tenant = $1 AND period_start = $2 AND period_end <> $3",
    ] {
        moved = sql_query(move_end)
            .bind::<Text, _>(tenant.as_str())
            .bind::<Timestamptz, _>(instant::from_ms(start_ms)?)
            .bind::<Timestamptz, _>(instant::from_ms(end_ms)?)
            .execute(&mut *connection)
            .await?;
    }
    if moved > 0 {
        jobs::ring(connection, jobs::PERIODS).await?;
        notices::tell(connection, "job", jobs::PERIODS, 0).await?;
    }
    Ok(())
}
