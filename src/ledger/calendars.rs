//! Tenants' calendars by their dates. A change of calendar also moves the end of a period that is opened but has not
//! begun.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::policy::has_booked;
use super::schema::{balances, calendars, quota_periods, tenants};
use super::{Ledger, LedgerError, billing, instant, jobs, notices, recurring};
use crate::domain::ids::TenantId;
use crate::domain::period::{Calendars, WindowKind};

/// A tenant's calendars after a change of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalendarChange {
    /// Its tenant.
    pub tenant: TenantId,
    /// All of them. None where only the definition's calendar holds, from the beginning; then nothing may be booked
    /// that contradicts it.
    pub calendars: Option<Calendars>,
    /// The end of the period that is open now (unix ms): the next one may have been opened ahead.
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

/// Stores the calendars, once nobody is opening a period of the tenant.
pub(crate) async fn put(
    connection: &mut AsyncPgConnection,
    change: &CalendarChange,
) -> Result<(), LedgerError> {
    tenants::table.find(&change.tenant).select(tenants::id).for_update().execute(connection).await?;
    delete(connection, change.tenant.as_str()).await?;
    match &change.calendars {
        None if has_booked(connection, change.tenant.as_str()).await? => {
            Err(LedgerError::Busy(format!("{} was booked on for the first time", change.tenant)))
        }
        None => billing::look_again(connection, &change.tenant).await,
        Some(calendars) => {
            insert(connection, &change.tenant, calendars).await?;
            let end_ms = calendars.window(WindowKind::Period, change.next_start_ms).end_ms;
            move_next(connection, &change.tenant, (change.next_start_ms, end_ms)).await
        }
    }
}

/// Deletes a tenant's calendars.
pub(crate) async fn delete(connection: &mut AsyncPgConnection, tenant: &str) -> Result<(), LedgerError> {
    diesel::delete(calendars::table.filter(calendars::tenant.eq(tenant))).execute(connection).await?;
    Ok(())
}

async fn insert(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    all: &Calendars,
) -> Result<(), LedgerError> {
    let dated = all.dated();
    let rows = dated.iter().map(|each| {
        let end_ms = all.window(WindowKind::Period, each.from_ms).end_ms;
        Ok((
            calendars::tenant.eq(tenant),
            calendars::from_at.eq(instant::from_ms(each.from_ms)?),
            calendars::zone.eq(each.calendar.zone.name()),
            calendars::anchor_day.eq(i16::from(u8::from(each.calendar.anchor_day))),
            calendars::first_period_end.eq(instant::from_ms(end_ms)?),
        ))
    });
    let rows = rows.collect::<Result<Vec<_>, LedgerError>>()?;
    diesel::insert_into(calendars::table).values(rows).execute(connection).await?;
    Ok(())
}

/// Gives the period after the open one the end that the new calendars say, and has it delivered to the gate again.
async fn move_next(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    (start_ms, end_ms): (i64, i64),
) -> Result<(), LedgerError> {
    let (start, end) = (instant::from_ms(start_ms)?, instant::from_ms(end_ms)?);
    let next = balances::table.filter(balances::tenant.eq(tenant)).filter(balances::period_start.eq(start));
    diesel::update(next.filter(balances::period_end.ne(end)))
        .set(balances::period_end.eq(end))
        .execute(connection)
        .await?;
    let next = quota_periods::table
        .filter(quota_periods::tenant.eq(tenant))
        .filter(quota_periods::period_start.eq(start));
    let moved = diesel::update(next.filter(quota_periods::period_end.ne(end)))
        .set((
            quota_periods::period_end.eq(end),
            quota_periods::version.eq(quota_periods::version + 1),
            quota_periods::delivered_at.eq(None::<DateTime<Utc>>),
        ))
        .execute(connection)
        .await?;
    if moved > 0 {
        recurring::move_repeats(connection, tenant, (start_ms, end_ms)).await?;
        jobs::ring(connection, jobs::PERIODS).await?;
        notices::tell(connection, "job", jobs::PERIODS, 0).await?;
    }
    Ok(())
}
