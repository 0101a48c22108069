//! Sold grants in the books of periods that are about to be closed.

use std::collections::HashMap;

use diesel::QueryableByName;
use diesel::sql_types::{Array, Nullable, Numeric, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::{BurntGrant, PriceLeft};
use crate::domain::amount::Amount;
use crate::domain::grant::GrantId;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::period::Window;
use crate::domain::rollover::{Fate, Part};
use crate::ledger::columns::Milliseconds;
use crate::ledger::prepared::sql_query;
use crate::ledger::quotas::PeriodKey;
use crate::ledger::{LedgerError, instant};

#[derive(QueryableByName)]
struct Standing {
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
    #[diesel(sql_type = Nullable<Timestamptz>)]
    voided_at: Option<Milliseconds>,
}

/// A sold grant of which something is deferred.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct SoldGrant {
    pub(in crate::ledger) id: GrantId,
    pub(in crate::ledger) amount: Decimal,
    /// When it was voided (unix ms), where it was to go on.
    pub(in crate::ledger) voided_at_ms: Option<i64>,
}

impl SoldGrant {
    /// It once a period is closed in whose books it is. What open holds take of one that ends with its period counts as
    /// burnt: it was promised before the grant ended. Of one that goes on it may return. The price of one that was
    /// voided before the close is given back as of then.
    pub(in crate::ledger) fn burnt_at_close(
        &self,
        tenant: &TenantId,
        period: Window,
        part: &Part,
        closed_ms: i64,
    ) -> BurntGrant {
        let voided_ms = self.voided_at_ms.filter(|at_ms| *at_ms < closed_ms);
        let (unburnt, left, at_ms) = match (part.fate, voided_ms) {
            (Fate::GrantGoesOn(_), _) => (part.left(), PriceLeft::Deferred, closed_ms),
            (_, Some(voided_ms)) => (part.unused, PriceLeft::GivenBack, voided_ms),
            (_, None) => (part.unused, PriceLeft::Forfeited, closed_ms),
        };
        let burnt = Amount::from_decimal(self.amount - unburnt).unwrap_or(Amount::ZERO);
        BurntGrant { tenant: tenant.clone(), id: self.id, period: Some(period), burnt, at_ms, left }
    }
}

/// The sold grants in the books of these periods of which something is deferred.
pub(in crate::ledger) async fn standing_in(
    connection: &mut AsyncPgConnection,
    periods: &[PeriodKey],
) -> Result<HashMap<PeriodKey, Vec<SoldGrant>>, LedgerError> {
    let rows: Vec<Standing> = sql_query(include_str!("../sql/sold_grants_of_periods.sql"))
        .bind::<Array<Text>, _>(periods.iter().map(|(tenant, ..)| tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(periods.iter().map(|(_, meter, _)| meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(periods.iter().map(|(.., start_ms)| *start_ms))?)
        .load(connection)
        .await?;
    let mut found: HashMap<PeriodKey, Vec<_>> = HashMap::new();
    for row in rows {
        let of_period = found.entry((row.tenant, row.meter, row.period_start.0)).or_default();
        of_period.push(SoldGrant {
            id: GrantId::from_uuid(row.id),
            amount: row.amount,
            voided_at_ms: row.voided_at.map(|at| at.0),
        });
    }
    Ok(found)
}
