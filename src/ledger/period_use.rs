//! What a tenant used in one period, from the books: a statement is made of it.

use std::collections::BTreeMap;

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use rust_decimal::Decimal;

use super::schema::balances;
use super::{BEGIN_LOOK_UP, Ledger, LedgerError, currencies, cursors, instant};
use crate::domain::ids::{MeterId, OutboxId, Partition, TenantId};
use crate::domain::money::Currency;
use crate::domain::movements::{Account, Accounts};
use crate::domain::rating::Used;

/// What a tenant used in one period, as of one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodUse {
    /// The last event of its partition that is in these figures.
    pub cursor: OutboxId,
    /// By meter.
    pub used: BTreeMap<MeterId, Used>,
    /// The currency of the period; none where the tenant's definition alone says it.
    pub currency: Option<Currency>,
}

impl Ledger {
    /// What a tenant used in the period that starts at `start_ms` (unix ms), in one snapshot.
    pub async fn period_use(
        &self,
        partition: Partition,
        tenant: &TenantId,
        start_ms: i64,
    ) -> Result<PeriodUse, LedgerError> {
        let tenant = tenant.to_string();
        self.transact(BEGIN_LOOK_UP, move |connection| {
            async move {
                let start = instant::from_ms(start_ms)?;
                let cursor = cursors::read(connection, partition).await?;
                let currency = currencies::at(connection, &tenant, start).await?;
                let rows: Vec<Row> = balances::table
                    .filter(balances::tenant.eq(&tenant))
                    .filter(balances::period_start.eq(start))
                    .select(Row::as_select())
                    .load(connection)
                    .await?;
                let used = rows.into_iter().map(Row::read).collect::<Result<_, _>>()?;
                Ok(PeriodUse { cursor, used, currency })
            }
            .boxed()
        })
        .await
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = balances, check_for_backend(diesel::pg::Pg))]
struct Row {
    meter: String,
    available: Decimal,
    reserved: Decimal,
    consumed: Decimal,
    overage: Decimal,
}

impl Row {
    fn read(self) -> Result<(MeterId, Used), LedgerError> {
        let damaged = || LedgerError::Damaged(format!("the balance of {}", self.meter));
        let meter = MeterId::parse(&self.meter).map_err(|_| damaged())?;
        let mut accounts = Accounts::default();
        for (account, stands) in [
            (Account::Available, self.available),
            (Account::Reserved, self.reserved),
            (Account::Consumed, self.consumed),
            (Account::Overage, self.overage),
        ] {
            accounts[account.index()] = stands;
        }
        Ok((meter, Used::of(&accounts).map_err(|_| damaged())?))
    }
}
