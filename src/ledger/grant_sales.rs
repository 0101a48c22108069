//! Sales of grants that have a price: it is deferred when a grant is sold, and earned as the grant burns. What is not
//! earned when the grant ends is forfeited, or given back where it was voided.
//!
//! What has burnt of a grant in a period is known when the grant ends, or when the period is closed. So each of these
//! books it, once, in its own transaction; what is taken back later of the use before an end is earned no more. Of a
//! grant that goes on, each close books what has burnt since the one before.

mod standing;

use std::collections::{HashMap, HashSet};
use std::fmt::Display;

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Numeric, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::columns::Milliseconds;
use super::grants::StoredGrant;
use super::prepared::sql_query;
use super::schema::{grant_burns, grant_sales, tenants};
use super::{LedgerError, instant, journal};
use crate::domain::amount::Amount;
use crate::domain::entry::{PostedLine, Posting};
use crate::domain::grant::{GrantId, GrantPrice};
use crate::domain::ids::{MeterId, Partition, TenantId};
use crate::domain::meter::MONEY_PREFIX;
use crate::domain::money::Currency;
use crate::domain::movements::Movement;
use crate::domain::movements::money::{forfeit, recognise, refund, sell as sold, unearn};
use crate::domain::period::{OPENED_AHEAD_MS, Window};
use crate::domain::rating::Deferral;

pub(super) use self::standing::standing_in;

/// The step of a grant's operation that books its sale: behind all that move its units.
const SALE_STEP: u32 = 100;
/// How many sales one statement inserts.
const ROWS: usize = 500;

/// When and in which billing period a grant is sold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoldIn {
    /// The period.
    pub period: Window,
    /// The instant (unix ms).
    pub at_ms: i64,
}

/// Books the sale of a grant that is made now, where it has a price. A sandbox pays nothing.
pub(super) async fn sell(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    made: &StoredGrant,
    sale: SoldIn,
) -> Result<(), LedgerError> {
    if made.price.is_none() {
        return Ok(());
    }
    let definition: serde_json::Value =
        tenants::table.find(&made.tenant).select(tenants::definition).first(connection).await?;
    if definition["sandbox"] == true {
        return Ok(());
    }
    book(connection, partition, &[(made, sale)]).await
}

/// Books the sales of what periods, of one partition's tenants, get of recurring grants that have a price. Who is a
/// sandbox when a period may be opened at the earliest pays nothing for it, whenever it is opened.
pub(super) async fn sell_repeats(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    repeats: &[(&StoredGrant, SoldIn)],
) -> Result<(), LedgerError> {
    let with_price: Vec<_> = repeats.iter().copied().filter(|(repeat, _)| repeat.price.is_some()).collect();
    if with_price.is_empty() {
        return Ok(());
    }
    let decided_at_ms = with_price.iter().map(|(repeat, sale)| {
        // It carries when the recurring grant was made.
        sale.at_ms.saturating_sub(OPENED_AHEAD_MS).max(repeat.created_at_ms)
    });
    let sandboxes: Vec<Sandbox> = sql_query(include_str!("sql/sandboxes.sql"))
        .bind::<Array<Text>, _>(with_price.iter().map(|(repeat, _)| &repeat.tenant).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(decided_at_ms)?)
        .load(connection)
        .await?;
    let free: HashSet<i64> = sandboxes.into_iter().map(|sandbox| sandbox.place).collect();
    let paid = (1..).zip(with_price).filter(|(place, _)| !free.contains(place));
    book(connection, partition, &paid.map(|(_, one)| one).collect::<Vec<_>>()).await
}

/// Books the sales of those of these grants, of one partition's tenants, that have a price.
async fn book(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    sold_grants: &[(&StoredGrant, SoldIn)],
) -> Result<(), LedgerError> {
    let (mut rows, mut postings) = (Vec::new(), Vec::new());
    let with_price = sold_grants.iter().filter_map(|(grant, sale)| Some((*grant, grant.price?, *sale)));
    for (grant, price, SoldIn { period, at_ms }) in with_price {
        let movement = sold(period, price.amount).map_err(too_large)?;
        let of = Of { tenant: &grant.tenant, grant: grant.id, currency: price.currency };
        postings.push(of.posting(SALE_STEP, at_ms, period, movement.into_iter().collect())?);
        rows.push((
            grant_sales::tenant.eq(grant.tenant.clone()),
            grant_sales::grant_id.eq(grant.id.uuid()),
            grant_sales::meter.eq(grant.meter.clone()),
            grant_sales::amount.eq(grant.amount.decimal()),
            grant_sales::price.eq(price.amount.decimal()),
            grant_sales::currency.eq(price.currency.code()),
            grant_sales::sold_at.eq(instant::from_ms(at_ms)?),
            grant_sales::period_start.eq(instant::from_ms(period.start_ms)?),
            grant_sales::period_end.eq(instant::from_ms(period.end_ms)?),
        ));
    }
    for some in rows.chunks(ROWS) {
        diesel::insert_into(grant_sales::table).values(some.to_vec()).execute(connection).await?;
    }
    journal::post_beside_outbox(connection, partition, postings).await
}

#[derive(QueryableByName)]
struct Sandbox {
    #[diesel(sql_type = BigInt)]
    place: i64,
}

/// A grant that has ended, or that goes on after the close of a period.
#[derive(Debug, Clone)]
pub(super) struct BurntGrant {
    pub(super) tenant: TenantId,
    pub(super) id: GrantId,
    /// The last period in whose books it was; none where it never began.
    pub(super) period: Option<Window>,
    /// What has burnt of it in all.
    pub(super) burnt: Amount,
    /// As of when (unix ms).
    pub(super) at_ms: i64,
    pub(super) left: PriceLeft,
}

/// What becomes of the part of a grant's price that is not earned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PriceLeft {
    /// It stays deferred: the grant goes on.
    Deferred,
    /// It is forfeited: the grant has lapsed.
    Forfeited,
    /// It is given back: the grant was voided.
    GivenBack,
}

impl BurntGrant {
    /// One of which nothing has burnt, since it never began.
    pub(super) fn unbegun(stored: &StoredGrant, at_ms: i64, is_voided: bool) -> Self {
        let (tenant, id) = (stored.tenant.clone(), stored.id);
        let left = if is_voided { PriceLeft::GivenBack } else { PriceLeft::Forfeited };
        Self { tenant, id, period: None, burnt: Amount::ZERO, at_ms, left }
    }
}

#[derive(QueryableByName)]
struct Open {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Uuid)]
    grant_id: uuid::Uuid,
    #[diesel(sql_type = Numeric)]
    amount: Decimal,
    #[diesel(sql_type = Numeric)]
    price: Decimal,
    #[diesel(sql_type = Text)]
    currency: String,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Timestamptz)]
    period_end: Milliseconds,
    /// What has burnt of it in earlier periods.
    #[diesel(sql_type = Numeric)]
    burnt: Decimal,
    #[diesel(sql_type = BigInt)]
    burns: i64,
}

/// Books what was earned by now of those of these grants, of one partition's tenants, that were sold and had not ended,
/// and what becomes of the rest of their prices. What is booked already stays as it is.
pub(super) async fn burn(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    burnt: &[BurntGrant],
) -> Result<(), LedgerError> {
    if burnt.is_empty() {
        return Ok(());
    }
    let open: Vec<Open> = sql_query(include_str!("sql/open_grant_sales.sql"))
        .bind::<Array<Text>, _>(burnt.iter().map(|one| &one.tenant).collect::<Vec<_>>())
        .bind::<Array<Uuid>, _>(burnt.iter().map(|one| one.id.uuid()).collect::<Vec<_>>())
        .load(connection)
        .await?;
    let burnt: HashMap<_, _> = burnt.iter().map(|of| ((&of.tenant, of.id.uuid()), of)).collect();
    let mut postings = Vec::new();
    for one in open {
        let Some(of) = burnt.get(&(&one.tenant, one.grant_id)) else { continue };
        let Some(outcome) = one.outcome(of)? else { continue };
        outcome.write(connection, &one, of).await?;
        postings.push(outcome.posting);
    }
    journal::post_beside_outbox(connection, partition, postings).await
}

/// What becomes of a price.
struct Outcome {
    period: Window,
    burnt: Amount,
    recognised: Decimal,
    forfeited: Decimal,
    refunded: Option<Decimal>,
    posting: Posting,
}

impl Open {
    /// None where nothing more has burnt of a grant that goes on.
    fn outcome(&self, of: &BurntGrant) -> Result<Option<Outcome>, LedgerError> {
        let damaged =
            |what: &str| LedgerError::Damaged(format!("the {what} of the sale of {}", self.grant_id));
        let sold_in = Window { start_ms: self.period_start.0, end_ms: self.period_end.0 };
        let period = of.period.unwrap_or(sold_in);
        let currency = Currency::parse(&self.currency).map_err(|_| damaged("currency"))?;
        let amount = currency.signed_money(self.price).map_err(|_| damaged("price"))?;
        let units = Amount::from_decimal(self.amount).map_err(|_| damaged("amount"))?;
        let before = Amount::from_decimal(self.burnt).map_err(|_| damaged("burn"))?;
        let burnt = of.burnt.saturating_sub(before);
        if burnt.is_zero() && of.left == PriceLeft::Deferred {
            return Ok(None);
        }
        let mut deferral = Deferral::of(GrantPrice { currency, amount }, units);
        deferral.burn(before).map_err(too_large)?;
        let earned = deferral.burn(burnt).map_err(too_large)?;
        let left = deferral.left();
        let rest = match of.left {
            PriceLeft::Deferred => Ok(None),
            PriceLeft::Forfeited => forfeit(period, left),
            PriceLeft::GivenBack => refund(sold_in, left),
        };
        let movements = [recognise(period, earned), rest];
        let movements = movements.into_iter().collect::<Result<Vec<_>, _>>().map_err(too_large)?;
        let step = u32::try_from(self.burns).unwrap_or_default().saturating_add(SALE_STEP + 1);
        let posted = Of { tenant: &self.tenant, grant: of.id, currency };
        let posting = posted.posting(step, of.at_ms, period, movements.into_iter().flatten().collect())?;
        let (forfeited, refunded) = match of.left {
            PriceLeft::Deferred => (Decimal::ZERO, None),
            PriceLeft::Forfeited => (left.decimal(), None),
            PriceLeft::GivenBack => (Decimal::ZERO, Some(left.decimal())),
        };
        Ok(Some(Outcome { period, burnt, recognised: earned.decimal(), forfeited, refunded, posting }))
    }
}

impl Outcome {
    async fn write(
        &self,
        connection: &mut AsyncPgConnection,
        open: &Open,
        of: &BurntGrant,
    ) -> Result<(), LedgerError> {
        let burn = (
            grant_burns::tenant.eq(&of.tenant),
            grant_burns::grant_id.eq(open.grant_id),
            grant_burns::period_start.eq(instant::from_ms(self.period.start_ms)?),
            grant_burns::amount.eq(self.burnt.decimal()),
            grant_burns::recognised.eq(self.recognised),
            grant_burns::forfeited.eq(self.forfeited),
        );
        diesel::insert_into(grant_burns::table).values(burn).execute(connection).await?;
        if of.left == PriceLeft::Deferred {
            return Ok(());
        }
        let refunded_at = self.refunded.map(|_| instant::from_ms(of.at_ms)).transpose()?;
        diesel::update(grant_sales::table.find((&of.tenant, open.grant_id)))
            .set((
                grant_sales::is_over.eq(true),
                grant_sales::refunded.eq(self.refunded),
                grant_sales::refunded_at.eq(refunded_at),
            ))
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// A grant that had ended in this period, of which less had burnt than was booked.
pub(super) struct UnburntGrant<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) id: GrantId,
    pub(super) period: Window,
    /// By how much less.
    pub(super) amount: Amount,
    pub(super) at_ms: i64,
    pub(super) left: PriceLeft,
    pub(super) step: u32,
}

/// What is booked of a sale that is over.
#[derive(QueryableByName)]
struct Earned {
    #[diesel(sql_type = Numeric)]
    amount: Decimal,
    #[diesel(sql_type = Numeric)]
    price: Decimal,
    #[diesel(sql_type = Text)]
    currency: String,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Timestamptz)]
    period_end: Milliseconds,
    /// What has burnt of it in all.
    #[diesel(sql_type = Numeric)]
    burnt: Decimal,
}

/// What was earned of a price and is not any more.
struct Unearned {
    currency: Currency,
    amount: Decimal,
    movements: Vec<Movement>,
}

impl Earned {
    /// What was earned by the last units that are booked as burnt: it goes where the rest of the price went.
    fn unearned(&self, of: &UnburntGrant<'_>) -> Result<Unearned, LedgerError> {
        let damaged = |what: &str| LedgerError::Damaged(format!("the {what} of the sale of {}", of.id));
        let sold_in = Window { start_ms: self.period_start.0, end_ms: self.period_end.0 };
        let currency = Currency::parse(&self.currency).map_err(|_| damaged("currency"))?;
        let amount = currency.signed_money(self.price).map_err(|_| damaged("price"))?;
        let units = Amount::from_decimal(self.amount).map_err(|_| damaged("amount"))?;
        let left = Amount::from_decimal(self.burnt - of.amount.decimal()).map_err(|_| damaged("burn"))?;
        let mut deferral = Deferral::of(GrantPrice { currency, amount }, units);
        deferral.burn(left).map_err(too_large)?;
        let unearned = deferral.burn(of.amount).map_err(too_large)?;
        let rest = match of.left {
            PriceLeft::Deferred => Ok(None),
            PriceLeft::Forfeited => forfeit(of.period, unearned),
            PriceLeft::GivenBack => refund(sold_in, unearned),
        };
        let movements = [unearn(of.period, unearned), rest].into_iter().collect::<Result<Vec<_>, _>>();
        let movements = movements.map_err(too_large)?.into_iter().flatten().collect();
        Ok(Unearned { currency, amount: unearned.decimal(), movements })
    }
}

/// Takes back what was earned of a grant that was sold and has ended, as far as it has not burnt after all: it becomes
/// what the rest of the price is.
pub(super) async fn unburn(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    of: &UnburntGrant<'_>,
) -> Result<(), LedgerError> {
    let earned: Option<Earned> = sql_query(include_str!("sql/earned_grant_sale.sql"))
        .bind::<Text, _>(of.tenant)
        .bind::<Uuid, _>(of.id.uuid())
        .get_result(connection)
        .await
        .optional()?;
    let Some(earned) = earned else { return Ok(()) };
    let Unearned { currency, amount, movements } = earned.unearned(of)?;
    let (forfeited, refunded) = match of.left {
        PriceLeft::GivenBack => (Decimal::ZERO, amount),
        PriceLeft::Forfeited => (amount, Decimal::ZERO),
        PriceLeft::Deferred => (Decimal::ZERO, Decimal::ZERO),
    };
    let burn = grant_burns::table.find((of.tenant, of.id.uuid(), instant::from_ms(of.period.start_ms)?));
    diesel::update(burn)
        .set((
            grant_burns::amount.eq(grant_burns::amount - of.amount.decimal()),
            grant_burns::recognised.eq(grant_burns::recognised - amount),
            grant_burns::forfeited.eq(grant_burns::forfeited + forfeited),
        ))
        .execute(connection)
        .await?;
    diesel::update(grant_sales::table.find((of.tenant, of.id.uuid())))
        .set(grant_sales::refunded.eq(grant_sales::refunded + refunded))
        .execute(connection)
        .await?;
    let posted = Of { tenant: of.tenant, grant: of.id, currency };
    let posting = posted.posting(of.step, of.at_ms, of.period, movements)?;
    journal::post_beside_outbox(connection, partition, vec![posting]).await
}

/// [`burn`] of one grant that has ended, whose partition is not known.
pub(super) async fn end_one(
    connection: &mut AsyncPgConnection,
    ended: BurntGrant,
) -> Result<(), LedgerError> {
    let partition: Partition =
        tenants::table.find(&ended.tenant).select(tenants::partition).first(connection).await?;
    burn(connection, partition, &[ended]).await
}

/// Whose money moves.
struct Of<'a> {
    tenant: &'a TenantId,
    grant: GrantId,
    currency: Currency,
}

impl Of<'_> {
    fn posting(
        &self,
        step: u32,
        happened_at_ms: i64,
        period: Window,
        movements: Vec<Movement>,
    ) -> Result<Posting, LedgerError> {
        let meter = MeterId::parse(&format!("{MONEY_PREFIX}{}", self.currency)).map_err(too_large)?;
        let line = PostedLine { meter, movements, first_leg: 0, begins_to_consume: false };
        Ok(Posting {
            tenant: self.tenant.clone(),
            operation_id: self.grant.uuid(),
            step,
            happened_at_ms,
            operation: String::new(),
            hour_start_ms: period.start_ms,
            subjects: Vec::new(),
            lines: vec![line],
        })
    }
}

fn too_large(what: impl Display) -> LedgerError {
    LedgerError::Refused(format!("an amount of money: {what}"))
}
