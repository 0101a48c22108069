//! Tenants' currencies by their dates: a tenant that has booked pays in another one from its next period on.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::policy::has_booked;
use super::schema::tenant_currencies;
use super::{LedgerError, instant};
use crate::domain::ids::TenantId;
use crate::domain::money::Currency;

/// A change of the currency that a tenant pays in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrencyChange {
    /// Whose.
    pub tenant: TenantId,
    /// The currency before; none where it has no prices.
    pub before: Option<Currency>,
    /// The currency after.
    pub after: Option<Currency>,
    /// The start of the first period that is paid in it (unix ms); none where all are, which nothing booked may
    /// contradict.
    pub from_ms: Option<i64>,
}

/// Stores a change, in place of one that has not begun yet.
pub(crate) async fn put(
    connection: &mut AsyncPgConnection,
    change: &CurrencyChange,
) -> Result<(), LedgerError> {
    let tenant = change.tenant.as_str();
    let Some(from_ms) = change.from_ms else {
        if has_booked(connection, tenant).await? {
            return Err(LedgerError::Busy(format!("{tenant} was booked on for the first time")));
        }
        return delete(connection, tenant).await;
    };
    let from_at = instant::from_ms(from_ms)?;
    let later = tenant_currencies::table
        .filter(tenant_currencies::tenant.eq(tenant))
        .filter(tenant_currencies::from_at.ge(from_at));
    diesel::delete(later).execute(connection).await?;
    let row = |from_at: DateTime<Utc>, currency: Option<Currency>| {
        (
            tenant_currencies::tenant.eq(tenant.to_owned()),
            tenant_currencies::from_at.eq(from_at),
            tenant_currencies::currency.eq(currency.map(Currency::code)),
        )
    };
    diesel::insert_into(tenant_currencies::table)
        .values([row(instant::from_ms(0)?, change.before), row(from_at, change.after)])
        .on_conflict_do_nothing()
        .execute(connection)
        .await?;
    Ok(())
}

/// Forgets a tenant's.
pub(crate) async fn delete(connection: &mut AsyncPgConnection, tenant: &str) -> Result<(), LedgerError> {
    let rows = tenant_currencies::table.filter(tenant_currencies::tenant.eq(tenant));
    diesel::delete(rows).execute(connection).await?;
    Ok(())
}

/// The currency of a tenant's period that starts at `start`; none where the tenant's definition alone says it.
pub(crate) async fn at(
    connection: &mut AsyncPgConnection,
    tenant: &str,
    start: DateTime<Utc>,
) -> Result<Option<Currency>, LedgerError> {
    let row: Option<Option<String>> = tenant_currencies::table
        .filter(tenant_currencies::tenant.eq(tenant))
        .filter(tenant_currencies::from_at.le(start))
        .order(tenant_currencies::from_at.desc())
        .select(tenant_currencies::currency)
        .first(connection)
        .await
        .optional()?;
    let read = |code: String| {
        Currency::parse(&code).map_err(|_| LedgerError::Damaged(format!("the currency of {tenant}")))
    };
    row.flatten().map(read).transpose()
}
