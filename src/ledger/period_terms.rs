//! The terms of quotas' periods as the table has them: stored when a period opens, and again while it follows policy.

use diesel::QueryableByName;
use diesel::sql_types::{Array, Bool, Integer, Numeric, SmallInt, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::columns::Milliseconds;
use super::prepared::{Statement, sql_query};
use super::quotas::{Opening, PeriodKey, operation_id};
use super::{LedgerError, instant};
use crate::domain::amount::Units;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::plan::PeriodTerms;

/// A period that was not open.
#[derive(QueryableByName)]
pub(super) struct Opened {
    #[diesel(sql_type = Text)]
    pub(super) tenant: TenantId,
    #[diesel(sql_type = Text)]
    pub(super) meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    pub(super) period_end: Milliseconds,
    /// The next step of its opening: above 1 where it was open before, and withdrawn.
    #[diesel(sql_type = Integer)]
    pub(super) step: i32,
}

#[derive(QueryableByName)]
struct Fitted {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
}

/// Opens those of these periods that are not open. The first version is the period's start in seconds, so later
/// periods always have higher versions.
pub(super) async fn open(
    connection: &mut AsyncPgConnection,
    openings: &[Opening],
) -> Result<Vec<Opened>, LedgerError> {
    let id = |opening: &Opening| operation_id(&opening.tenant, &opening.meter, opening.period_ms.0);
    let insert = with_terms(sql_query(include_str!("sql/open_quota_periods.sql")), openings)?
        .bind::<Array<Bool>, _>(openings.iter().map(|opening| opening.is_ahead).collect::<Vec<_>>())
        .bind::<Array<Uuid>, _>(openings.iter().map(id).collect::<Vec<_>>());
    Ok(insert.load(connection).await?)
}

/// Gives these periods, which are open, other terms. Returns those that had others.
pub(super) async fn fit(
    connection: &mut AsyncPgConnection,
    openings: &[Opening],
) -> Result<Vec<PeriodKey>, LedgerError> {
    let update = with_terms(sql_query(include_str!("sql/fit_quota_periods.sql")), openings)?;
    let rows: Vec<Fitted> = update.load(connection).await?;
    Ok(rows.into_iter().map(|row| (row.tenant, row.meter, row.period_start.0)).collect())
}

/// A statement over what these periods open with, its first thirteen parameters.
fn with_terms<'a>(statement: Statement<'a>, openings: &'a [Opening]) -> Result<Statement<'a>, LedgerError> {
    let texts = |pick: fn(&Opening) -> &str| openings.iter().map(pick).collect::<Vec<_>>();
    let amounts = |pick: fn(&PeriodTerms) -> Units| {
        let amount = |opening: &Opening| pick(&opening.terms).to_amount(opening.decimals).decimal();
        openings.iter().map(amount).collect::<Vec<_>>()
    };
    Ok(statement
        .bind::<Array<Text>, _>(texts(|opening| opening.tenant.as_str()))
        .bind::<Array<Text>, _>(texts(|opening| opening.meter.as_str()))
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(openings.iter().map(|o| o.period_ms.0))?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(openings.iter().map(|o| o.period_ms.1))?)
        .bind::<Array<SmallInt>, _>(
            openings.iter().map(|o| i16::from(o.decimals.count())).collect::<Vec<_>>(),
        )
        .bind::<Array<Numeric>, _>(amounts(|terms| terms.included))
        .bind::<Array<Numeric>, _>(amounts(|terms| terms.max_rollover))
        .bind::<Array<Numeric>, _>(amounts(|terms| terms.overdraft))
        .bind::<Array<Text>, _>(openings.iter().map(thresholds).collect::<Vec<_>>())
        .bind::<Array<Bool>, _>(openings.iter().map(|o| o.terms.preserve_overage).collect::<Vec<_>>())
        .bind::<Array<Numeric>, _>(amounts(|terms| terms.min_rollover))
        .bind::<Array<SmallInt>, _>(
            openings.iter().map(|o| i16::from(o.terms.rollover_periods)).collect::<Vec<_>>(),
        )
        .bind::<Array<Bool>, _>(openings.iter().map(|o| o.terms.reroll).collect::<Vec<_>>()))
}

/// As an array that Postgres reads: an array of arrays has to be rectangular.
fn thresholds(opening: &Opening) -> String {
    let percents = opening.terms.thresholds.percents();
    format!("{{{}}}", percents.iter().map(i16::to_string).collect::<Vec<_>>().join(","))
}
