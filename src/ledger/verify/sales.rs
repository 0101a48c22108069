//! Works out again what is earned of sold grants, and compares it with their sales, burns and entries.

use diesel::QueryableByName;
use diesel::sql_types::{Array, Bool, Nullable, Numeric, Text, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::TryStreamExt;
use rust_decimal::Decimal;

use super::part::Part;
use super::{Check, Fault};
use crate::domain::amount::Amount;
use crate::domain::grant::GrantPrice;
use crate::domain::money::Currency;
use crate::domain::rating::Deferral;
use crate::ledger::LedgerError;
use crate::ledger::prepared::sql_query;

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Uuid)]
    grant_id: uuid::Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    currency: Option<String>,
    #[diesel(sql_type = Nullable<Numeric>)]
    price: Option<Decimal>,
    #[diesel(sql_type = Nullable<Numeric>)]
    amount: Option<Decimal>,
    #[diesel(sql_type = Numeric)]
    refunded: Decimal,
    #[diesel(sql_type = Bool)]
    is_over: bool,
    #[diesel(sql_type = Bool)]
    is_as_granted: bool,
    #[diesel(sql_type = Bool)]
    has_ended: bool,
    #[diesel(sql_type = Bool)]
    is_closed: bool,
    #[diesel(sql_type = Nullable<Numeric>)]
    burnt_by_settlement: Option<Decimal>,
    #[diesel(sql_type = Numeric)]
    burnt: Decimal,
    #[diesel(sql_type = Numeric)]
    recognised: Decimal,
    #[diesel(sql_type = Numeric)]
    forfeited: Decimal,
    #[diesel(sql_type = Numeric)]
    booked_sold: Decimal,
    #[diesel(sql_type = Numeric)]
    booked_recognised: Decimal,
    #[diesel(sql_type = Numeric)]
    booked_forfeited: Decimal,
    #[diesel(sql_type = Numeric)]
    booked_refunded: Decimal,
    #[diesel(sql_type = Numeric)]
    booked_deferred: Decimal,
}

/// The price of every sold grant of these tenants is what was earned, forfeited, given back and is still deferred.
pub(super) async fn check(connection: &mut AsyncPgConnection, part: &Part) -> Result<Check, LedgerError> {
    let mut check = Check::of("prices of grants are earned once");
    let query =
        sql_query(include_str!("../sql/sold_grants_with_entries.sql")).bind::<Array<Text>, _>(&part.tenants);
    let mut rows = query.load_stream::<Row>(connection).await?;
    while let Some(row) = rows.try_next().await? {
        check.checked += 1;
        if let Err(detail) = row.judge() {
            check.fault(Fault::new(format!("sale of grant {} of {}", row.grant_id, row.tenant), detail));
        }
    }
    Ok(check)
}

impl Row {
    fn judge(&self) -> Result<(), String> {
        let (Some(price), Some(amount), Some(code)) = (self.price, self.amount, &self.currency) else {
            return Err(format!("{} is deferred without a sale", self.booked_deferred.normalize()));
        };
        for (says, is, what) in [
            (price, self.booked_sold, "price"),
            (self.recognised, self.booked_recognised, "earned part"),
            (self.forfeited, self.booked_forfeited, "forfeited part"),
            (self.refunded, self.booked_refunded, "part that was given back"),
            (price - self.recognised - self.forfeited - self.refunded, self.booked_deferred, "deferred part"),
        ] {
            if says != is {
                return Err(format!("its {what} is {}, by entries {}", says.normalize(), is.normalize()));
            }
        }
        if !self.is_as_granted {
            return Err("it and its grant differ".to_owned());
        }
        let earned = self.earned(price, amount, code).ok_or("its price or its burn cannot be read")?;
        if earned != self.recognised {
            let burnt = self.burnt.normalize();
            return Err(format!("{burnt} of {} have burnt, which earns {earned}", amount.normalize()));
        }
        let burnt = self.burnt_by_settlement.unwrap_or(self.burnt);
        if burnt != self.burnt {
            return Err(format!("{} have burnt, by its grant {}", self.burnt.normalize(), burnt.normalize()));
        }
        let is_over = self.booked_deferred.is_zero() && self.has_ended;
        if (self.is_over && !is_over) || (self.is_closed && !self.is_over) {
            return Err(format!("it has ended, and {} is deferred", self.booked_deferred.normalize()));
        }
        Ok(())
    }

    fn earned(&self, price: Decimal, amount: Decimal, code: &str) -> Option<Decimal> {
        let currency = Currency::parse(code).ok()?;
        let price = GrantPrice { currency, amount: currency.signed_money(price).ok()? };
        let mut deferral = Deferral::of(price, Amount::from_decimal(amount).ok()?);
        deferral.burn(Amount::from_decimal(self.burnt).ok()?).ok()?;
        Some(deferral.recognised().decimal())
    }
}
