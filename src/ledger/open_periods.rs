//! Which periods of tenants' meters are closed, and the calendars that say which one follows.

use std::collections::{BTreeSet, HashMap, HashSet};

use diesel::QueryableByName;
use diesel::sql_types::{Array, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::columns::Milliseconds;
use super::prepared::sql_query;
use super::quotas::PeriodKey;
use super::{LedgerError, billing, instant, policy};
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::open_periods::OpenPeriods;
use crate::domain::period::Calendars;
use crate::domain::tenant::TenantDefinition;

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
}

/// What is closed of these tenants' meters from these periods on. A tenant whose definition cannot be read has no
/// calendar here.
pub(crate) async fn read(
    connection: &mut AsyncPgConnection,
    asked: &BTreeSet<PeriodKey>,
    grace_ms: Option<i64>,
) -> Result<OpenPeriods, LedgerError> {
    let calendars = calendars(connection, asked.iter().map(|(tenant, ..)| tenant)).await?;
    let find = sql_query(include_str!("sql/closed_since.sql"))
        .bind::<Array<Text>, _>(asked.iter().map(|(tenant, ..)| tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(asked.iter().map(|(_, meter, _)| meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(asked.iter().map(|(.., start_ms)| *start_ms))?);
    let rows: Vec<Row> = find.load(connection).await?;
    let closed: HashSet<PeriodKey> =
        rows.into_iter().map(|row| (row.tenant, row.meter, row.period_start.0)).collect();
    let billed: BTreeSet<&TenantId> = asked.iter().map(|(tenant, ..)| tenant).collect();
    let billed_until_ms = billing::until_ms(connection, billed).await?;
    Ok(OpenPeriods { grace_ms, calendars, closed, billed_until_ms })
}

/// The calendars of these tenants. One whose definition cannot be read has none here.
pub(super) async fn calendars(
    connection: &mut AsyncPgConnection,
    tenants: impl Iterator<Item = &TenantId>,
) -> Result<HashMap<TenantId, Calendars>, LedgerError> {
    let tenants: BTreeSet<String> = tenants.map(ToString::to_string).collect();
    let mut calendars = HashMap::new();
    for stored in policy::read_tenants(connection, tenants.into_iter().collect()).await? {
        let definition = serde_json::from_value::<TenantDefinition>(stored.definition);
        if let Ok(definition) = definition {
            calendars.insert(stored.id, Calendars::of(stored.calendars, definition.calendar()));
        }
    }
    Ok(calendars)
}
