//! Amounts that came over from earlier periods, as they stand in each period.

use std::collections::HashMap;

use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Numeric, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::columns::Milliseconds;
use super::prepared::sql_query;
use super::quotas::PeriodKey;
use super::{LedgerError, burnables, continued_grants, instant, number};
use crate::domain::ids::{MeterId, OutboxId, TenantId};
use crate::domain::period::Window;
use crate::domain::rollover::{RolledAmount, RolledIn};

/// A tenant's meter, a period of it, and what came over into that in all.
pub(crate) type RolledInto<'a> = (&'a TenantId, &'a MeterId, Window, Decimal);

/// An amount that comes over into the period that starts at `start_ms`.
#[derive(Debug, Clone)]
pub(super) struct Arriving {
    pub(super) tenant: TenantId,
    pub(super) meter: MeterId,
    pub(super) start_ms: i64,
    pub(super) rolled_in: RolledIn,
    /// What of it was unused in the period before.
    pub(super) rolled: Decimal,
    /// Where it returned of carried holds, if it did.
    pub(super) returned_at: Option<OutboxId>,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Timestamptz)]
    ends_at: Milliseconds,
    #[diesel(sql_type = SmallInt)]
    periods_left: i16,
    #[diesel(sql_type = Numeric)]
    amount: Decimal,
    #[diesel(sql_type = Numeric)]
    rolled: Decimal,
    #[diesel(sql_type = Array<BigInt>)]
    grow_epochs: Vec<i64>,
    #[diesel(sql_type = Array<BigInt>)]
    grow_sequences: Vec<i64>,
    #[diesel(sql_type = Array<Numeric>)]
    grow_amounts: Vec<Decimal>,
}

/// What came over into these periods beside grants that go on, the amount that ends first before the others. What has
/// no row of its own was booked by versions that let nothing go on for more than one period: it ends with its period.
pub(crate) async fn read(
    connection: &mut AsyncPgConnection,
    periods: &[RolledInto<'_>],
) -> Result<HashMap<PeriodKey, Vec<RolledAmount>>, LedgerError> {
    let with_some: Vec<_> = periods.iter().filter(|(.., rolled_in)| !rolled_in.is_zero()).collect();
    let starts = instant::all_from_ms(periods.iter().map(|(_, _, period, _)| period.start_ms))?;
    let find = sql_query(include_str!("sql/rolled_amounts.sql"))
        .bind::<Array<Text>, _>(periods.iter().map(|(tenant, ..)| *tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(periods.iter().map(|(_, meter, ..)| *meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(starts);
    let rows: Vec<Row> = find.load(connection).await?;
    let mut found: HashMap<PeriodKey, Vec<RolledAmount>> = HashMap::new();
    let mut booked: HashMap<PeriodKey, Decimal> = HashMap::new();
    for row in rows {
        let key = (row.tenant, row.meter, row.period_start.0);
        *booked.entry(key.clone()).or_default() += row.rolled;
        let periods_left = u8::try_from(row.periods_left).unwrap_or_default();
        let rolled_in = RolledIn { amount: row.amount, ends_at_ms: row.ends_at.0, periods_left };
        let grows = burnables::grows(&row.grow_epochs, &row.grow_sequences, &row.grow_amounts)?;
        found.entry(key).or_default().push(RolledAmount { rolled_in, grows });
    }
    let mut without_row: Vec<_> = with_some
        .into_iter()
        .map(|(tenant, meter, period, rolled_in)| {
            let key = ((*tenant).clone(), (*meter).clone(), period.start_ms);
            let amount = *rolled_in - booked.get(&key).copied().unwrap_or_default();
            (key, period.end_ms, amount)
        })
        .collect();
    without_row.retain(|(.., amount)| *amount > Decimal::ZERO);
    let keys: Vec<PeriodKey> = without_row.iter().map(|(key, ..)| key.clone()).collect();
    let with_grants = continued_grants::rolled_into(connection, &keys).await?;
    for (key, ends_at_ms, amount) in without_row {
        let amount = amount - with_grants.get(&key).copied().unwrap_or_default();
        if amount > Decimal::ZERO {
            let rolled_in = RolledIn { amount, ends_at_ms, periods_left: 0 };
            found.entry(key).or_default().insert(0, rolled_in.into());
        }
    }
    Ok(found)
}

/// Notes what comes over, beside what is noted already.
pub(super) async fn add(
    connection: &mut AsyncPgConnection,
    arriving: &[Arriving],
) -> Result<(), LedgerError> {
    if arriving.is_empty() {
        return Ok(());
    }
    sql_query(include_str!("sql/add_rolled_amounts.sql"))
        .bind::<Array<Text>, _>(arriving.iter().map(|one| &one.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(arriving.iter().map(|one| &one.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(arriving.iter().map(|one| one.start_ms))?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(
            arriving.iter().map(|one| one.rolled_in.ends_at_ms),
        )?)
        .bind::<Array<SmallInt>, _>(
            arriving.iter().map(|one| i16::from(one.rolled_in.periods_left)).collect::<Vec<_>>(),
        )
        .bind::<Array<Numeric>, _>(arriving.iter().map(|one| one.rolled_in.amount).collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(arriving.iter().map(|one| one.rolled).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    add_returned(connection, arriving).await
}

/// Notes where those of these have returned that have.
async fn add_returned(connection: &mut AsyncPgConnection, arriving: &[Arriving]) -> Result<(), LedgerError> {
    let returned: Vec<_> = arriving.iter().filter_map(|one| Some((one, one.returned_at?))).collect();
    if returned.is_empty() {
        return Ok(());
    }
    let ends = instant::all_from_ms(returned.iter().map(|(one, _)| one.rolled_in.ends_at_ms))?;
    let epochs = returned.iter().map(|(_, place)| number::signed(place.epoch.0));
    let sequences = returned.iter().map(|(_, place)| number::signed(place.sequence));
    sql_query(include_str!("sql/add_rolled_returns.sql"))
        .bind::<Array<Text>, _>(returned.iter().map(|(one, _)| &one.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(returned.iter().map(|(one, _)| &one.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(returned.iter().map(|(one, _)| one.start_ms))?)
        .bind::<Array<Timestamptz>, _>(ends)
        .bind::<Array<BigInt>, _>(epochs.collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(sequences.collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(returned.iter().map(|(one, _)| one.rolled_in.amount).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}
