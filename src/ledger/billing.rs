//! Up to when each tenant is billed, and which periods are due.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::columns::Milliseconds;
use super::prepared::sql_query;
use super::schema::billing;
use super::{BEGIN, Ledger, LedgerError, instant, number, policy};
use crate::domain::ids::TenantId;
use crate::domain::period::{Calendar, Calendars, Window, WindowKind};
use crate::domain::tenant::TenantDefinition;

/// A tenant's period that has ended and is not billed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuePeriod {
    /// Whose.
    pub tenant: TenantId,
    /// Which one.
    pub period: Window,
    /// The calendar that cuts it.
    pub calendar: Calendar,
    /// Up to when the tenant is billed (unix ms).
    pub billed_until_ms: i64,
    /// The start of the first period that is billed (unix ms): this one's, where none was.
    pub begun_at_ms: i64,
    /// The end of the period after it (unix ms).
    pub next_end_ms: i64,
}

/// A place in the list of due periods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuePlace {
    next_end_ms: i64,
    tenant: TenantId,
}

/// A part of the list of due periods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuePage {
    /// The periods that are due.
    pub due: Vec<DuePeriod>,
    /// Tenants of which it cannot be known, and why.
    pub unread: Vec<(TenantId, String)>,
    /// Where the next part begins; none after the last.
    pub next: Option<DuePlace>,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Timestamptz)]
    billed_until: Milliseconds,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    begun_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Timestamptz)]
    next_end: Milliseconds,
    /// For a tenant that was never billed: the start of the first period of its books that may be.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    first_booked: Option<DateTime<Utc>>,
}

impl Row {
    /// The tenant's next period to be billed. A tenant is billed from the period on in which it was made, or of
    /// which its books have something.
    fn due(self, calendars: &Calendars) -> DuePeriod {
        let first_ms = self.first_booked.map_or(i64::MAX, |at| at.timestamp_millis());
        let from_ms = match self.begun_at {
            Some(_) => self.billed_until.0,
            None => self.billed_until.0.min(first_ms),
        };
        let period = calendars.window(WindowKind::Period, from_ms);
        DuePeriod {
            tenant: self.tenant,
            period,
            calendar: calendars.at(period.start_ms).clone(),
            billed_until_ms: self.billed_until.0,
            begun_at_ms: self.begun_at.map_or(period.start_ms, |at| at.timestamp_millis()),
            next_end_ms: calendars.window(WindowKind::Period, period.end_ms).end_ms,
        }
    }
}

impl Ledger {
    /// Begins to look at tenants that would never be billed otherwise, at `now_ms` (unix ms) of the service's clock.
    /// Returns how many.
    pub async fn begin_billing(&self, now_ms: i64) -> Result<usize, LedgerError> {
        let now = instant::from_ms(now_ms)?;
        self.transact(BEGIN, move |connection| {
            async move {
                let begin = sql_query(include_str!("sql/begin_billing.sql")).bind::<Timestamptz, _>(now);
                Ok(begin.execute(connection).await?)
            }
            .boxed()
        })
        .await
    }

    /// Periods that ended by `ended_by_ms` (unix ms) and are not billed, one for each tenant, after `after`. Looks
    /// at no more than `limit` tenants.
    pub async fn periods_to_bill(
        &self,
        ended_by_ms: i64,
        after: Option<DuePlace>,
        limit: usize,
    ) -> Result<DuePage, LedgerError> {
        let ended_by = instant::from_ms(ended_by_ms)?;
        self.transact(BEGIN, move |connection| {
            async move {
                let after_end =
                    after.as_ref().map(|place| instant::from_ms(place.next_end_ms)).transpose()?;
                let read = sql_query(include_str!("sql/tenants_to_bill.sql"))
                    .bind::<Timestamptz, _>(ended_by)
                    .bind::<Nullable<Timestamptz>, _>(after_end)
                    .bind::<Nullable<Text>, _>(after.as_ref().map(|place| &place.tenant))
                    .bind::<BigInt, _>(number::limit(limit));
                let rows: Vec<Row> = read.load(connection).await?;
                let next = rows
                    .last()
                    .map(|row| DuePlace { next_end_ms: row.next_end.0, tenant: row.tenant.clone() });
                let next = next.filter(|_| rows.len() == limit);
                let (due, unread) = due(connection, rows, ended_by_ms).await?;
                Ok(DuePage { due, unread, next })
            }
            .boxed()
        })
        .await
    }
}

/// Which of these are due by their calendars, and those whose calendar cannot be known. The others are looked at again
/// when their period has ended.
async fn due(
    connection: &mut AsyncPgConnection,
    rows: Vec<Row>,
    ended_by_ms: i64,
) -> Result<(Vec<DuePeriod>, Vec<(TenantId, String)>), LedgerError> {
    let ids: Vec<String> = rows.iter().map(|row| row.tenant.to_string()).collect();
    let mut calendars = HashMap::new();
    for stored in policy::read_tenants(connection, ids).await? {
        let definition = serde_json::from_value::<TenantDefinition>(stored.definition);
        let read = definition.map(|definition| Calendars::of(stored.calendars, definition.calendar()));
        calendars.insert(stored.id, read);
    }
    let (mut all, mut unread) = (Vec::new(), Vec::new());
    for row in rows {
        match calendars.get(&row.tenant) {
            Some(Ok(calendars)) => all.push(row.due(calendars)),
            Some(Err(error)) => unread.push((row.tenant, format!("its definition cannot be read: {error}"))),
            None => unread.push((row.tenant, "it has no definition".to_owned())),
        }
    }
    let (due, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|due| due.period.end_ms <= ended_by_ms);
    set_ends(connection, &later).await?;
    Ok((due, unread))
}

async fn set_ends(connection: &mut AsyncPgConnection, later: &[DuePeriod]) -> Result<(), LedgerError> {
    if later.is_empty() {
        return Ok(());
    }
    let seen = instant::all_from_ms(later.iter().map(|due| due.billed_until_ms))?;
    let ends = instant::all_from_ms(later.iter().map(|due| due.period.end_ms))?;
    sql_query(include_str!("sql/look_at_billing_later.sql"))
        .bind::<Array<Text>, _>(later.iter().map(|due| &due.tenant).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(seen)
        .bind::<Array<Timestamptz>, _>(ends)
        .execute(connection)
        .await?;
    Ok(())
}

/// Of these periods those that are still the next ones to be billed, with their rows locked.
pub(super) async fn lock(
    connection: &mut AsyncPgConnection,
    due: Vec<DuePeriod>,
) -> Result<Vec<DuePeriod>, LedgerError> {
    let rows: Vec<(TenantId, DateTime<Utc>)> = billing::table
        .select((billing::tenant, billing::billed_until))
        .filter(billing::tenant.eq_any(due.iter().map(|due| &due.tenant)))
        .order(billing::tenant)
        .for_update()
        .load(connection)
        .await?;
    let is_next = |due: &DuePeriod| {
        let of = |(tenant, _): &&(TenantId, _)| *tenant == due.tenant;
        rows.iter().find(of).is_some_and(|(_, until)| until.timestamp_millis() == due.billed_until_ms)
    };
    Ok(due.into_iter().filter(is_next).collect())
}

/// Notes that these periods are billed, once their documents are stored.
pub(super) async fn advance(
    connection: &mut AsyncPgConnection,
    done: &[&DuePeriod],
) -> Result<(), LedgerError> {
    let instants = |of: fn(&DuePeriod) -> i64| instant::all_from_ms(done.iter().map(|due| of(due)));
    // First, since the change of billing notes what this leaves out.
    sql_query(include_str!("sql/add_billed_periods.sql"))
        .bind::<Array<Text>, _>(done.iter().map(|due| &due.tenant).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instants(|due| due.period.end_ms)?)
        .bind::<Array<Timestamptz>, _>(instants(|due| due.period.start_ms)?)
        .execute(connection)
        .await?;
    sql_query(include_str!("sql/note_billed_periods.sql"))
        .bind::<Array<Text>, _>(done.iter().map(|due| &due.tenant).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instants(|due| due.period.end_ms)?)
        .bind::<Array<Timestamptz>, _>(instants(|due| due.begun_at_ms)?)
        .bind::<Array<Timestamptz>, _>(instants(|due| due.next_end_ms)?)
        .execute(connection)
        .await?;
    Ok(())
}

/// A tenant's first period that is not billed; none where nothing says it.
pub(super) async fn next(
    connection: &mut AsyncPgConnection,
    tenant: &str,
    calendars: &Calendars,
) -> Result<Option<DuePeriod>, LedgerError> {
    let read = sql_query(include_str!("sql/billing_of_tenant.sql")).bind::<Text, _>(tenant);
    let row: Option<Row> = read.get_result(connection).await.optional()?;
    Ok(row.map(|row| row.due(calendars)))
}

/// The start of the first period of a tenant that is billed, or will be; none where nothing says it.
pub(super) async fn begun_at_ms(
    connection: &mut AsyncPgConnection,
    tenant: &str,
    calendars: &Calendars,
) -> Result<Option<i64>, LedgerError> {
    Ok(next(connection, tenant, calendars).await?.map(|due| due.begun_at_ms))
}

/// Up to when these tenants are billed (unix ms); those that never were are left out.
pub(super) async fn until_ms(
    connection: &mut AsyncPgConnection,
    tenants: BTreeSet<&TenantId>,
) -> Result<HashMap<TenantId, i64>, LedgerError> {
    let rows: Vec<(TenantId, DateTime<Utc>)> = billing::table
        .select((billing::tenant, billing::billed_until))
        .filter(billing::tenant.eq_any(tenants))
        .filter(billing::begun_at.is_not_null())
        .load(connection)
        .await?;
    Ok(rows.into_iter().map(|(tenant, until)| (tenant, until.timestamp_millis())).collect())
}

/// Begins to look at new tenants, at an instant of the service's clock (unix ms).
pub(crate) async fn begin(
    connection: &mut AsyncPgConnection,
    tenants: impl Iterator<Item = &str>,
    at_ms: i64,
) -> Result<(), LedgerError> {
    let at = instant::from_ms(at_ms)?;
    let row = |tenant: &str| {
        (billing::tenant.eq(tenant.to_owned()), billing::billed_until.eq(at), billing::next_end.eq(at))
    };
    let rows: Vec<_> = tenants.map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let insert = diesel::insert_into(billing::table).values(rows).on_conflict_do_nothing();
    insert.execute(connection).await?;
    Ok(())
}

/// Looks at a tenant again soon: the end of its period may have changed.
pub(crate) async fn look_again(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
) -> Result<(), LedgerError> {
    let row = diesel::update(billing::table.find(tenant));
    row.set(billing::next_end.eq(billing::billed_until)).execute(connection).await?;
    Ok(())
}

/// Forgets a tenant.
pub(crate) async fn delete(connection: &mut AsyncPgConnection, tenant: &str) -> Result<(), LedgerError> {
    diesel::delete(billing::table.filter(billing::tenant.eq(tenant))).execute(connection).await?;
    Ok(())
}
