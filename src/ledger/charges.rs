//! What tenants are charged beside use: grants that were sold and money that was adjusted, until a statement has them,
//! and what was given back for voided grants, until a note has it.

use std::collections::{BTreeMap, HashMap};

use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Nullable, Numeric, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::columns::Milliseconds;
use super::prepared::sql_query;
use super::{LedgerError, instant, number};
use crate::domain::adjustment::AdjustmentId;
use crate::domain::amount::Amount;
use crate::domain::grant::GrantId;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::money::{Currency, Money};
use crate::domain::rating::{MoneyAdjustment, SoldGrant};
use crate::domain::statement::{ChargesByCurrency, Document};

#[derive(QueryableByName)]
struct SaleRow {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Text)]
    currency: String,
    #[diesel(sql_type = Numeric)]
    amount: Decimal,
    #[diesel(sql_type = Numeric)]
    price: Decimal,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
}

#[derive(QueryableByName)]
struct AdjustmentRow {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    meter: Option<MeterId>,
    #[diesel(sql_type = Text)]
    currency: String,
    #[diesel(sql_type = Numeric)]
    amount: Decimal,
    #[diesel(sql_type = Text)]
    reason: String,
    #[diesel(sql_type = Timestamptz)]
    happened_at: Milliseconds,
    #[diesel(sql_type = Nullable<Uuid>)]
    corrects: Option<uuid::Uuid>,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
}

/// Which charges to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// All that are on no statement.
    Period,
    /// Those of the period alone.
    OnlyPeriod,
}

/// What these tenants are charged beside use in the periods that start there (unix ms), and is on no statement.
pub(super) async fn read(
    connection: &mut AsyncPgConnection,
    periods: &[(&TenantId, i64)],
    until: Until,
) -> Result<HashMap<TenantId, ChargesByCurrency>, LedgerError> {
    let tenants: Vec<_> = periods.iter().map(|(tenant, _)| *tenant).collect();
    let starts = instant::all_from_ms(periods.iter().map(|(_, start_ms)| *start_ms))?;
    let is_asked =
        |tenant: &TenantId, at: &Milliseconds| until == Until::Period || periods.contains(&(tenant, at.0));
    let sales: Vec<SaleRow> = sql_query(include_str!("sql/sales_to_bill.sql"))
        .bind::<Array<Text>, _>(&tenants)
        .bind::<Array<Timestamptz>, _>(&starts)
        .load(connection)
        .await?;
    let adjustments: Vec<AdjustmentRow> = sql_query(include_str!("sql/adjustments_to_bill.sql"))
        .bind::<Array<Text>, _>(&tenants)
        .bind::<Array<Timestamptz>, _>(&starts)
        .load(connection)
        .await?;
    let mut found: HashMap<TenantId, ChargesByCurrency> = HashMap::new();
    for row in sales.into_iter().filter(|row| is_asked(&row.tenant, &row.period_start)) {
        let (currency, price) = money(&row.currency, row.price)?;
        let quantity = Amount::from_decimal(row.amount).map_err(|_| damaged(row.id))?;
        let grant = GrantId::from_uuid(row.id);
        let sold = SoldGrant { grant, meter: row.meter, quantity, price, refunded: None };
        found.entry(row.tenant).or_default().entry(currency).or_default().grants.push(sold);
    }
    for row in adjustments.into_iter().filter(|row| is_asked(&row.tenant, &row.period_start)) {
        let (currency, amount) = money(&row.currency, row.amount)?;
        let id = AdjustmentId::from_uuid(row.id);
        let adjusted = MoneyAdjustment {
            id,
            meter: row.meter,
            reason: row.reason,
            amount,
            happened_at_ms: Some(row.happened_at.0),
            corrects: row.corrects,
        };
        found.entry(row.tenant).or_default().entry(currency).or_default().adjustments.push(adjusted);
    }
    Ok(found)
}

fn money(code: &str, amount: Decimal) -> Result<(Currency, Money), LedgerError> {
    let unreadable = || LedgerError::Damaged(format!("the amount {amount} {code}"));
    let currency = Currency::parse(code).map_err(|_| unreadable())?;
    Ok((currency, currency.signed_money(amount).map_err(|_| unreadable())?))
}

fn damaged(id: uuid::Uuid) -> LedgerError {
    LedgerError::Damaged(format!("the sale of {id}"))
}

/// What was given back for a voided grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refund {
    pub(super) amount: Money,
    /// The start of the period whose statement has the sale (unix ms); none where no statement has it.
    pub(super) billed_in_ms: Option<i64>,
}

#[derive(QueryableByName)]
struct RefundRow {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Numeric)]
    refunded: Decimal,
    #[diesel(sql_type = Text)]
    currency: String,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    period_start: Option<chrono::DateTime<chrono::Utc>>,
}

/// What was given back to these tenants before these instants (unix ms) and is on no note.
pub(super) async fn refunds(
    connection: &mut AsyncPgConnection,
    ends: &[(&TenantId, i64)],
) -> Result<HashMap<TenantId, BTreeMap<GrantId, Refund>>, LedgerError> {
    let rows: Vec<RefundRow> = sql_query(include_str!("sql/refunds_to_bill.sql"))
        .bind::<Array<Text>, _>(ends.iter().map(|(tenant, _)| *tenant).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(ends.iter().map(|(_, end_ms)| *end_ms))?)
        .load(connection)
        .await?;
    let mut found: HashMap<TenantId, BTreeMap<GrantId, Refund>> = HashMap::new();
    for row in rows {
        let (_, amount) = money(&row.currency, row.refunded)?;
        let billed_in_ms = row.period_start.map(|at| at.timestamp_millis());
        let refund = Refund { amount, billed_in_ms };
        found.entry(row.tenant).or_default().insert(GrantId::from_uuid(row.id), refund);
    }
    Ok(found)
}

/// Notes which of them these documents have.
pub(super) async fn note(
    connection: &mut AsyncPgConnection,
    documents: &[Document],
) -> Result<(), LedgerError> {
    let (mut sold, mut refunded, mut adjusted) = (Vec::new(), Vec::new(), Vec::new());
    for document in documents {
        let row = |id: uuid::Uuid| (&document.tenant, id, number::signed(document.number));
        let grants = document.grants().into_iter().map(|grant| row(grant.uuid()));
        if document.corrects().is_some() {
            refunded.extend(grants)
        } else {
            sold.extend(grants)
        }
        adjusted.extend(document.adjustments().into_iter().map(|id| row(id.uuid())));
    }
    for (rows, note) in [
        (sold, sql_query(include_str!("sql/note_billed_sales.sql"))),
        (refunded, sql_query(include_str!("sql/note_billed_refunds.sql"))),
        (adjusted, sql_query(include_str!("sql/note_billed_adjustments.sql"))),
    ] {
        if rows.is_empty() {
            continue;
        }
        note.bind::<Array<Text>, _>(rows.iter().map(|(tenant, ..)| *tenant).collect::<Vec<_>>())
            .bind::<Array<Uuid>, _>(rows.iter().map(|(_, id, _)| *id).collect::<Vec<_>>())
            .bind::<Array<BigInt>, _>(rows.iter().map(|(.., number)| *number).collect::<Vec<_>>())
            .execute(connection)
            .await?;
    }
    Ok(())
}
