//! Recurring grants: given again in each period that opens while they last.
//!
//! What a later period gets of one is a grant of its own, a repeat of it, which begins with the period and ends with it
//! at the latest.

use std::collections::HashMap;

use diesel::prelude::*;
use diesel::sql_types::{Array, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;
use serde_json::json;

use super::columns::Milliseconds;
use super::cuts::{self, CutOf, DueCut, Voided};
use super::grant_sales::{self, BurntGrant, SoldIn};
use super::grants::{self as stored_grants, StoredGrant};
use super::prepared::sql_query;
use super::quotas::Opening;
use super::schema::{grants, period_closures, quota_periods, tenants};
use super::{Ledger, LedgerError, audit, capacities, instant, journal};
use crate::domain::amount::Decimals;
use crate::domain::grant::{GrantId, Recurrence};
use crate::domain::ids::{OutboxId, Partition, TenantId};
use crate::domain::movements::grants::grant;
use crate::domain::period::Window;

/// What has ended of the repeats of a recurring grant before its period did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepeatsEnded {
    /// Whether one is voided and what is unburnt of it is not booked yet.
    pub is_ending: bool,
    /// What was unburnt of them, where that is booked.
    pub unburnt: Option<Decimal>,
}

/// Gives the recurring grants of these periods, of one partition's tenants, which are open in the books: those that
/// began before the period and last beyond its start, each once. They count from its start on.
pub(super) async fn give(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    opened: &[Opening],
) -> Result<(), LedgerError> {
    if opened.is_empty() {
        return Ok(());
    }
    let starts = instant::all_from_ms(opened.iter().map(|one| one.period_ms.0))?;
    let find = sql_query(include_str!("sql/recurring_grants.sql"))
        .bind::<Array<Text>, _>(opened.iter().map(|one| &one.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(opened.iter().map(|one| &one.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(starts);
    let rows: Vec<Due> = find.load(connection).await?;
    if rows.is_empty() {
        return Ok(());
    }
    let recurring = stored_grants::find_all(connection, rows.iter().map(|row| row.id).collect()).await?;
    let mut repeats = Vec::with_capacity(rows.len());
    for row in rows {
        let is_its = |one: &&Opening| {
            let of_it = recurring.get(&row.id);
            one.period_ms.0 == row.period_start.0
                && of_it.is_some_and(|grant| grant.tenant == one.tenant && grant.meter == one.meter)
        };
        if let (Some(opened), Some(recurring)) = (opened.iter().find(is_its), recurring.get(&row.id)) {
            let (start_ms, end_ms) = opened.period_ms;
            repeats.push((repeat(recurring, Window { start_ms, end_ms }), opened));
        }
    }
    let begins = repeats.iter().map(|(repeat, opened)| {
        let period = Window { start_ms: opened.period_ms.0, end_ms: opened.period_ms.1 };
        stored_grants::posting(repeat, period, 1, period.start_ms, grant(period, repeat.amount))
    });
    journal::post_beside_outbox(connection, partition, begins.collect()).await?;
    let sold = repeats.iter().map(|(repeat, opened)| {
        let (start_ms, end_ms) = opened.period_ms;
        (repeat, SoldIn { period: Window { start_ms, end_ms }, at_ms: start_ms })
    });
    grant_sales::sell_repeats(connection, partition, &sold.collect::<Vec<_>>()).await?;
    for (repeat, opened) in &repeats {
        stored_grants::insert(connection, repeat, opened.decimals).await?;
        if repeat.expires_at_ms < opened.period_ms.1 {
            let due = DueCut { is_end: true, due_at_ms: repeat.expires_at_ms, after: OutboxId::default() };
            cuts::want(connection, partition, CutOf::grant(repeat, opened.period_ms.0), due).await?;
        }
    }
    Ok(())
}

#[derive(QueryableByName)]
struct Moved {
    #[diesel(sql_type = Uuid)]
    id: uuid::Uuid,
}

/// Moves the ends of what a period gets of recurring grants, where the period's own end has moved before it began.
pub(super) async fn move_repeats(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    (start_ms, end_ms): (i64, i64),
) -> Result<(), LedgerError> {
    let moved: Vec<Moved> = sql_query(include_str!("sql/move_repeats.sql"))
        .bind::<Text, _>(tenant)
        .bind::<Timestamptz, _>(instant::from_ms(start_ms)?)
        .bind::<Timestamptz, _>(instant::from_ms(end_ms)?)
        .load(connection)
        .await?;
    if moved.is_empty() {
        return Ok(());
    }
    let partition: Partition =
        tenants::table.find(tenant).select(tenants::partition).first(connection).await?;
    let moved = stored_grants::find_all(connection, moved.into_iter().map(|row| row.id).collect()).await?;
    for repeat in moved.values().filter(|repeat| repeat.expires_at_ms < end_ms) {
        let due = DueCut { is_end: true, due_at_ms: repeat.expires_at_ms, after: OutboxId::default() };
        cuts::want(connection, partition, CutOf::grant(repeat, start_ms), due).await?;
    }
    Ok(())
}

#[derive(QueryableByName)]
struct Due {
    #[diesel(sql_type = Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
}

/// What a period gets of a recurring grant.
fn repeat(recurring: &StoredGrant, period: Window) -> StoredGrant {
    StoredGrant {
        id: recurring.id.repeated_at(period.start_ms),
        effective_at_ms: period.start_ms,
        expires_at_ms: recurring.expires_at_ms.min(period.end_ms),
        period_start_ms: Some(period.start_ms),
        recurrence: Recurrence::None,
        repeats: Some(recurring.id),
        goes_on: false,
        voided_at_ms: None,
        settled_at_ms: None,
        settled_amount: None,
        ..recurring.clone()
    }
}

/// Gives a recurring grant that was just made in the later periods that are open already.
pub(super) async fn give_in_open_periods(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    recurring: &StoredGrant,
    decimals: Decimals,
) -> Result<(), LedgerError> {
    let closed = period_closures::table
        .filter(period_closures::tenant.eq(quota_periods::tenant))
        .filter(period_closures::meter.eq(quota_periods::meter))
        .filter(period_closures::period_start.eq(quota_periods::period_start));
    let later: Vec<(Milliseconds, Milliseconds)> = quota_periods::table
        .filter(quota_periods::tenant.eq(&recurring.tenant))
        .filter(quota_periods::meter.eq(&recurring.meter))
        .filter(quota_periods::period_start.gt(instant::from_ms(recurring.effective_at_ms)?))
        .filter(diesel::dsl::not(diesel::dsl::exists(closed)))
        .select((quota_periods::period_start, quota_periods::period_end))
        .load(connection)
        .await?;
    // They are open: no terms are needed.
    let opened = later.into_iter().map(|(start, end)| Opening {
        partition,
        tenant: recurring.tenant.clone(),
        meter: recurring.meter.clone(),
        decimals,
        period_ms: (start.0, end.0),
        terms: Default::default(),
        tenant_version: 0,
        is_ahead: false,
    });
    give(connection, partition, &opened.collect::<Vec<_>>()).await
}

/// Asks for the end of a recurring grant at `now_ms`: of what is given of it in periods that have not ended, and of all
/// that would be given later. What is given in a period that has ended ends with that.
pub(super) async fn void(
    connection: &mut AsyncPgConnection,
    found: StoredGrant,
    now_ms: i64,
    actor: &str,
) -> Result<Voided, LedgerError> {
    if found.voided_at_ms.is_some() {
        return Ok(Voided::Before(found));
    }
    if found.expires_at_ms <= now_ms {
        return Ok(Voided::Expired(found));
    }
    sql_query(include_str!("sql/void_recurring_grant.sql"))
        .bind::<Text, _>(&found.tenant)
        .bind::<Uuid, _>(found.id.uuid())
        .bind::<Timestamptz, _>(instant::from_ms(now_ms)?)
        .execute(connection)
        .await?;
    if found.period_start_ms.is_none() {
        cuts::want_no_more(connection, (&found.tenant, found.id), false).await?;
        cuts::end_without(connection, (&found.tenant, found.id)).await?;
        grant_sales::end_one(connection, BurntGrant::unbegun(&found, now_ms, true)).await?;
    }
    capacities::raise_versions(connection, &found.tenant, &found.meter, now_ms).await?;
    let detail = json!({ "tenant": found.tenant, "meter": found.meter });
    audit::note(connection, actor, "void", &format!("grant {}", found.id), detail).await?;
    Ok(Voided::Ending(stored_grants::find(connection, found.id).await?.unwrap_or(found)))
}

impl Ledger {
    /// A grant and its repeats, as far as they are voided and what is unburnt of them is not booked yet.
    pub async fn ending_grants(
        &self,
        tenant: &TenantId,
        id: GrantId,
    ) -> Result<Vec<StoredGrant>, LedgerError> {
        let query = || {
            let is_it = grants::id.eq(id.uuid()).or(grants::repeats.eq(id.uuid()));
            grants::table
                .filter(grants::tenant.eq(tenant))
                .filter(is_it)
                .filter(grants::voided_at.is_not_null())
                .filter(grants::settled_at.is_null())
                .order(grants::effective_at)
                .select(stored_grants::Row::as_select())
        };
        self.load(query).await?.into_iter().map(stored_grants::Row::read).collect()
    }

    /// What has ended of the repeats of these recurring grants; grants without such repeats are left out.
    pub async fn repeats_ended(
        &self,
        recurring: &[GrantId],
    ) -> Result<HashMap<GrantId, RepeatsEnded>, LedgerError> {
        let ids: Vec<uuid::Uuid> = recurring.iter().map(|id| id.uuid()).collect();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let query = || {
            let is_ending = grants::voided_at.is_not_null().and(grants::settled_at.is_null());
            grants::table
                .filter(grants::repeats.eq_any(ids.clone()))
                .filter(is_ending.or(grants::settled_amount.is_not_null()))
                .select((grants::repeats.assume_not_null(), grants::settled_amount))
        };
        let rows: Vec<(uuid::Uuid, Option<Decimal>)> = self.load(query).await?;
        let mut ended: HashMap<GrantId, RepeatsEnded> = HashMap::new();
        for (id, unburnt) in rows {
            let of_it = ended.entry(GrantId::from_uuid(id)).or_default();
            of_it.is_ending |= unburnt.is_none();
            if let Some(unburnt) = unburnt {
                of_it.unburnt = Some(of_it.unburnt.unwrap_or_default() + unburnt);
            }
        }
        Ok(ended)
    }
}
