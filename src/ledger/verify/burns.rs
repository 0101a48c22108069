//! Folds again what grants had burnt when they ended, and compares it with what was booked as unburnt.

use std::collections::{BTreeSet, HashMap};

use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Nullable, Numeric, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::part::Part;
use super::{Check, Fault};
use crate::domain::burn::{Burnable, burnt_at_ends};
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::period::Window;
use crate::domain::rollover::RolledAmount;
use crate::ledger::burnables::Unwound;
use crate::ledger::columns::Milliseconds;
use crate::ledger::prepared::sql_query;
use crate::ledger::{LedgerError, burnables, number, rolled_amounts};

/// How many grants are folded at once.
const PAGE: usize = 1_000;

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Timestamptz)]
    period_end: Milliseconds,
    #[diesel(sql_type = Numeric)]
    included: Decimal,
    #[diesel(sql_type = Numeric)]
    rolled_in: Decimal,
    #[diesel(sql_type = Numeric)]
    settled_amount: Decimal,
}

/// What was booked as unburnt of every grant of these tenants that has ended inside a period follows from the cuts.
pub(super) async fn check(connection: &mut AsyncPgConnection, part: &Part) -> Result<Check, LedgerError> {
    let mut check = Check::of("every grant's burn adds up");
    let mut after: Option<(TenantId, uuid::Uuid)> = None;
    loop {
        let page = sql_query(include_str!("../sql/settled_ends.sql"))
            .bind::<Array<Text>, _>(&part.tenants)
            .bind::<Nullable<Text>, _>(after.as_ref().map(|(tenant, _)| tenant))
            .bind::<Nullable<Uuid>, _>(after.as_ref().map(|(_, id)| *id))
            .bind::<BigInt, _>(number::limit(PAGE));
        let rows: Vec<Row> = page.load(connection).await?;
        let Some(last) = rows.last() else { return Ok(check) };
        after = Some((last.tenant.clone(), last.id));
        compare(connection, &rows, &mut check).await?;
    }
}

async fn compare(
    connection: &mut AsyncPgConnection,
    rows: &[Row],
    check: &mut Check,
) -> Result<(), LedgerError> {
    let mut seen = BTreeSet::new();
    let quotas: Vec<_> = rows.iter().filter(|row| seen.insert(row.quota())).collect();
    let periods: Vec<_> = quotas.iter().map(|row| (&row.tenant, &row.meter, row.period())).collect();
    let grants = burnables::read(connection, &periods, Unwound::Settled).await?;
    let into: Vec<_> =
        quotas.iter().map(|row| (&row.tenant, &row.meter, row.period(), row.rolled_in)).collect();
    let rolled = rolled_amounts::read(connection, &into).await?;
    let unburnt: HashMap<_, HashMap<uuid::Uuid, Decimal>> = quotas
        .iter()
        .map(|row| {
            let key = (row.tenant.clone(), row.meter.clone(), row.period_start.0);
            let rolled = rolled.get(&key).map(Vec::as_slice).unwrap_or_default();
            let of_it = grants.get(&key).into_iter().flatten().cloned();
            let all: Vec<_> = of_it.chain(RolledAmount::burnables(row.period(), rolled)).collect();
            (row.quota(), row.unburnt_at_ends(&all))
        })
        .collect();
    for row in rows {
        check.checked += 1;
        let unburnt = unburnt.get(&row.quota()).and_then(|of_quota| of_quota.get(&row.id)).copied();
        if unburnt != Some(row.settled_amount) {
            let by_cuts =
                unburnt.map_or("nothing that ends".to_owned(), |unburnt| unburnt.normalize().to_string());
            let detail = format!("gave back {}, by its cuts {by_cuts}", row.settled_amount.normalize());
            check.fault(Fault::new(format!("grant {} of {} {}", row.id, row.tenant, row.meter), detail));
        }
    }
    Ok(())
}

impl Row {
    fn quota(&self) -> (&str, &str, i64) {
        (self.tenant.as_str(), self.meter.as_str(), self.period_start.0)
    }

    fn period(&self) -> Window {
        Window { start_ms: self.period_start.0, end_ms: self.period_end.0 }
    }

    /// What of the quota's grants was unburnt, of each where it ends.
    fn unburnt_at_ends(&self, all: &[Burnable]) -> HashMap<uuid::Uuid, Decimal> {
        let burnt = burnt_at_ends(self.period(), self.included, all);
        let unburnt = |own: &Burnable| {
            let amount = own.clone().as_of(own.ends?).amount;
            Some((own.place.id?.uuid(), amount - burnt.get(&own.place)?))
        };
        all.iter().filter_map(unburnt).collect()
    }
}
