//! What stood in the accounts at an instant: the current balances without what was booked since.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Nullable, Numeric, Text, Timestamptz};
use rust_decimal::Decimal;

use super::prepared::sql_query;
use super::{Ledger, LedgerError, instant, number};
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::money::Currency;
use crate::domain::movements::{Account, move_amount};

/// What the name of the meter of an entry of money begins with; its currency follows.
const MONEY: &str = "money:";

/// Which balances to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BalanceFilter {
    /// Only this tenant's; none for all.
    pub tenant: Option<TenantId>,
    /// Only of this meter; `money:` and a currency for money.
    pub meter: Option<MeterId>,
}

/// A place in a list of balances, by tenant, meter and period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BalanceCursor {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its meter, or `money:` and its currency.
    pub meter: MeterId,
    /// When its period starts (unix ms); 0 for money, which has none.
    pub period_start_ms: i64,
}

/// The accounts of a tenant's meter in one period, or of its money in one currency over all periods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BalanceAsOf {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its meter, or `money:` and its currency.
    pub meter: MeterId,
    /// The period, as start and end (unix ms); none for money.
    pub period_ms: Option<(i64, i64)>,
    /// What stands in each account: those of units, or those of money with all decimals of the currency.
    pub accounts: BTreeMap<Account, Decimal>,
}

impl BalanceAsOf {
    /// Whether nothing stands in any account.
    pub fn is_empty(&self) -> bool {
        self.accounts.values().all(Decimal::is_zero)
    }

    /// Its place in the list.
    pub fn place(&self) -> BalanceCursor {
        let period_start_ms = self.period_ms.map(|(start_ms, _)| start_ms).unwrap_or_default();
        BalanceCursor { tenant: self.tenant.clone(), meter: self.meter.clone(), period_start_ms }
    }
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Text)]
    meter: String,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    period_start: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    period_end: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Array<Numeric>>)]
    accounts: Option<Vec<Decimal>>,
    #[diesel(sql_type = Array<Text>)]
    credits: Vec<String>,
    #[diesel(sql_type = Array<Text>)]
    debits: Vec<String>,
    #[diesel(sql_type = Array<Numeric>)]
    amounts: Vec<Decimal>,
}

impl Row {
    fn read(self) -> Result<BalanceAsOf, LedgerError> {
        let name = format!("the balance of {} {}", self.tenant, self.meter);
        let damaged = || LedgerError::Damaged(name.clone());
        let account = |word: &str| Account::from_word(word).ok_or_else(damaged);
        let currency = self.meter.strip_prefix(MONEY).map(Currency::parse).transpose();
        let currency = currency.map_err(|_| damaged())?;
        // What came later is taken off what stands now; what money came to begins with nothing.
        let (sign, mut accounts): (_, BTreeMap<_, _>) = match self.accounts {
            Some(now) => (Decimal::NEGATIVE_ONE, Account::OF_UNITS.into_iter().zip(now).collect()),
            None => (Decimal::ONE, Account::OF_MONEY.map(|account| (account, Decimal::ZERO)).into()),
        };
        for ((credit, debit), amount) in self.credits.iter().zip(&self.debits).zip(&self.amounts) {
            for (account, moved) in move_amount(account(credit)?, account(debit)?, sign * amount) {
                *accounts.get_mut(&account).ok_or_else(damaged)? += moved;
            }
        }
        for amount in accounts.values_mut() {
            *amount = match currency {
                Some(currency) => currency.signed_money(*amount).map_err(|_| damaged())?.decimal(),
                None => amount.normalize(),
            };
        }
        Ok(BalanceAsOf {
            tenant: number::tenant(&self.tenant)?,
            meter: MeterId::parse(&self.meter).map_err(|_| damaged())?,
            period_ms: self
                .period_start
                .zip(self.period_end)
                .map(|(start, end)| (start.timestamp_millis(), end.timestamp_millis())),
            accounts,
        })
    }
}

/// The instants as of which balances can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalanceSpan {
    /// The first one (unix ms); none where no entry has left the books.
    pub from_ms: Option<i64>,
    /// The last one, by the database's clock (unix ms).
    pub now_ms: i64,
}

#[derive(QueryableByName)]
struct SpanRow {
    #[diesel(sql_type = Nullable<Timestamptz>)]
    from_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Timestamptz)]
    now: DateTime<Utc>,
}

impl Ledger {
    /// The instants as of which balances can be read. What has left the books was booked up to the first one.
    pub async fn balances_span(&self) -> Result<BalanceSpan, LedgerError> {
        let rows: Vec<SpanRow> = self.load(|| sql_query(include_str!("sql/balances_span.sql"))).await?;
        let row = rows.into_iter().next().ok_or_else(|| LedgerError::Damaged("the clock".into()))?;
        // An instant within a millisecond is reached with the next one.
        let from_ms = row.from_at.map(|at| at.timestamp_millis() + 1);
        Ok(BalanceSpan { from_ms, now_ms: row.now.timestamp_millis() })
    }

    /// What stood in the accounts at an instant of that span, after all that was booked by then (unix ms): by tenant,
    /// meter and period, at most `limit` rows, after `after`. Rows with nothing in any account are among them: all
    /// that was booked of those may have come later.
    pub async fn balances_as_of(
        &self,
        filter: &BalanceFilter,
        at_ms: i64,
        after: Option<&BalanceCursor>,
        limit: usize,
    ) -> Result<Vec<BalanceAsOf>, LedgerError> {
        let at = instant::from_ms(at_ms)?;
        let place_at = after.map(|place| instant::from_ms(place.period_start_ms)).transpose()?;
        let query = || {
            sql_query(include_str!("sql/balances_as_of.sql"))
                .bind::<Timestamptz, _>(at)
                .bind::<Nullable<Text>, _>(filter.tenant.as_ref().map(TenantId::as_str))
                .bind::<Nullable<Text>, _>(filter.meter.as_ref().map(MeterId::as_str))
                .bind::<Nullable<Text>, _>(after.map(|place| place.tenant.as_str()))
                .bind::<Nullable<Text>, _>(after.map(|place| place.meter.as_str()))
                .bind::<Nullable<Timestamptz>, _>(place_at)
                .bind::<BigInt, _>(number::limit(limit))
        };
        let rows: Vec<Row> = self.load(query).await?;
        rows.into_iter().map(Row::read).collect()
    }
}
