//! Balances per tenant, meter and period: derived from entries, moved with them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::sql_types::{Array, Nullable, Numeric, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::statement::Kept;
use super::{Ledger, LedgerError, instant};
use crate::domain::entry::Posting;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::movements::{Account, Accounts};

/// A meter's accounts in one period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterBalance {
    /// Which meter.
    pub meter: MeterId,
    /// The period, as start and end (unix ms).
    pub period_ms: (i64, i64),
    /// By [`Account::index`]; only `available` and `adjusted` can be negative.
    pub accounts: Accounts,
    /// The included amount that the quota's period was opened with; none where it was not.
    pub included: Option<Decimal>,
}

impl MeterBalance {
    /// What stands on an account.
    pub fn of(&self, account: Account) -> Decimal {
        self.accounts[account.index()]
    }
}

/// Changes of balances, by tenant, meter and period's start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BalanceChanges(BTreeMap<(TenantId, MeterId, i64), BalanceChange>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct BalanceChange {
    period_end_ms: i64,
    accounts: Accounts,
}

impl BalanceChanges {
    /// Adds what a posting moves, in whatever periods.
    pub(crate) fn add(&mut self, posting: &Posting) {
        for line in &posting.lines {
            for movement in &line.movements {
                let period = movement.period();
                let key = (posting.tenant.clone(), line.meter.clone(), period.start_ms);
                let fresh = || BalanceChange { period_end_ms: period.end_ms, accounts: Accounts::default() };
                movement.apply(&mut self.0.entry(key).or_insert_with(fresh).accounts);
            }
        }
    }
}

/// The accounts' columns, in the order of [`Account::ALL`].
pub(crate) const ACCOUNT_COLUMNS: &str = "granted, rolled_in, carried_in, overage, adjusted, available, reserved, consumed, lapsed, voided, rolled_out, carried_out, repaid";

/// Adds the changes, in order of their keys.
pub(crate) async fn add(
    mut connection: &AsyncPgConnection,
    changes: &BalanceChanges,
) -> Result<(), LedgerError> {
    if changes.0.is_empty() {
        return Ok(());
    }
    let raises: Vec<String> =
        Account::ALL.iter().map(|a| format!("{0} = b.{0} + excluded.{0}", a.as_str())).collect();
    let arrays: Vec<String> = (5..=17).map(|n| format!("${n}::numeric[]")).collect();
    let query = format!(
        "INSERT INTO balances AS b (tenant, meter, period_start, period_end, {ACCOUNT_COLUMNS}) \
         SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], {}) \
         ON CONFLICT (tenant, meter, period_start) DO UPDATE SET {}",
        arrays.join(", "),
        raises.join(", ")
    );
    let keys = || changes.0.keys();
    let mut query = sql_query(query)
        .into_boxed()
        .bind::<Array<Text>, _>(keys().map(|key| key.0.as_str()).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(keys().map(|key| key.1.as_str()).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(keys().map(|key| key.2))?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(
            changes.0.values().map(|change| change.period_end_ms),
        )?);
    for account in Account::ALL {
        let column: Vec<Decimal> =
            changes.0.values().map(|change| change.accounts[account.index()]).collect();
        query = query.bind::<Array<Numeric>, _>(column);
    }
    Kept(query).execute(&mut connection).await?;
    Ok(())
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    meter: String,
    #[diesel(sql_type = Timestamptz)]
    period_start: DateTime<Utc>,
    #[diesel(sql_type = Timestamptz)]
    period_end: DateTime<Utc>,
    #[diesel(sql_type = Array<Numeric>)]
    accounts: Vec<Decimal>,
    #[diesel(sql_type = Nullable<Numeric>)]
    included: Option<Decimal>,
}

impl Row {
    fn read(self) -> Result<MeterBalance, LedgerError> {
        let damaged = || LedgerError::Damaged(format!("the balance of {}", self.meter));
        Ok(MeterBalance {
            meter: MeterId::parse(&self.meter).map_err(|_| damaged())?,
            period_ms: (self.period_start.timestamp_millis(), self.period_end.timestamp_millis()),
            accounts: self.accounts.try_into().map_err(|_| LedgerError::Damaged("a balance".into()))?,
            included: self.included,
        })
    }
}

impl Ledger {
    /// A tenant's balances of the periods that contain the instant `at_ms` (unix ms), by meter.
    pub async fn balances_of(&self, tenant: &TenantId, at_ms: i64) -> Result<Vec<MeterBalance>, LedgerError> {
        let at = instant::from_ms(at_ms)?;
        let query = format!(
            "SELECT b.meter, b.period_start, b.period_end, ARRAY[{ACCOUNT_COLUMNS}] AS accounts, q.included \
             FROM balances b LEFT JOIN quota_periods q USING (tenant, meter, period_start) \
             WHERE b.tenant = $1 AND b.period_start <= $2 AND b.period_end > $2 ORDER BY b.meter"
        );
        let rows = self
            .read(|connection| {
                let query =
                    sql_query(query.as_str()).bind::<Text, _>(tenant.to_string()).bind::<Timestamptz, _>(at);
                async move { Ok(query.load::<Row>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().map(Row::read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::amount::Amount;
    use crate::domain::entry::PostedLine;
    use crate::domain::movements::close;
    use crate::domain::period::Window;

    #[test]
    fn a_posting_moves_the_balances_of_every_period_that_it_names() {
        let period = |start_ms: i64| Window { start_ms, end_ms: start_ms + 1_000 };
        let movements = close::carry_holds(period(0), period(1_000), Amount::from_integer(5), Decimal::ZERO);
        let meter = MeterId::parse("page").unwrap();
        let posting = Posting {
            tenant: TenantId::parse("acme").unwrap(),
            operation_id: uuid::Uuid::nil(),
            step: 1,
            happened_at_ms: 1_000,
            operation: String::new(),
            hour_start_ms: 0,
            subjects: Vec::new(),
            lines: vec![PostedLine { meter, movements, begins_to_consume: false }],
        };
        let mut changes = BalanceChanges::default();
        changes.add(&posting);
        let reserved = |change: &BalanceChange| change.accounts[Account::Reserved.index()];
        let moved: Vec<_> =
            changes.0.iter().map(|((.., start), c)| (*start, c.period_end_ms, reserved(c))).collect();
        assert_eq!(moved, [(0, 1_000, Decimal::from(-5)), (1_000, 2_000, Decimal::from(5))]);
    }
}
