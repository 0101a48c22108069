//! What changes of plan do to open periods of quotas: a grant of the difference, or a void of it as far as it is
//! available and nobody has paid for it, as of a cut behind the strict bound.

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Numeric, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::burnables::{self, Unwound};
use super::columns::Milliseconds;
use super::cuts::{self, CutOf};
use super::grants;
use super::prepared::sql_query;
use super::schema::{cuts as made_cuts, quota_changes, quota_periods};
use super::{BEGIN_BOOKING, Ledger, LedgerError, capacities, instant, journal, number, rolled_amounts};
use crate::domain::amount::Amount;
use crate::domain::burn::{BurnPlace, Burnable, Cut, free};
use crate::domain::entry::{PostedLine, Posting};
use crate::domain::grant::GrantId;
use crate::domain::ids::{Epoch, MeterId, OutboxId, Partition, TenantId};
use crate::domain::movements::grants::change_included;
use crate::domain::period::Window;
use crate::domain::plan_change::Moves;
use crate::domain::rollover::RolledAmount;

/// What a change of plan does to one period of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaChange {
    /// Its id: the grant's, where it raises.
    pub id: GrantId,
    /// Whose quota.
    pub tenant: TenantId,
    /// Of which meter.
    pub meter: MeterId,
    /// The period's start (unix ms).
    pub start_ms: i64,
    /// Above zero so much is granted; below zero so much is voided, as far as it is available and nobody has paid for
    /// it.
    pub amount: Decimal,
    /// What it came to; none while it is under way.
    pub changed: Option<Decimal>,
    /// When it was asked for (unix ms).
    pub asked_at_ms: i64,
}

/// What a period of a quota is to include.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedChange {
    /// The id of the change.
    pub id: GrantId,
    /// Whose quota.
    pub tenant: TenantId,
    /// Of which meter.
    pub meter: MeterId,
    /// The period's start (unix ms).
    pub start_ms: i64,
    /// How much it is to include.
    pub included: Decimal,
    /// Which ways it may move.
    pub moves: Moves,
    /// The time (unix ms).
    pub now_ms: i64,
}

/// What became of a change that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimedChange {
    /// The period is not open, or there is nothing to change.
    Nothing,
    /// It stands, done or not.
    Stands(QuotaChange),
    /// Another one is under way, and has to be done first.
    After(QuotaChange),
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = quota_changes, check_for_backend(Pg))]
struct Row {
    tenant: TenantId,
    id: uuid::Uuid,
    meter: MeterId,
    #[diesel(deserialize_as = Milliseconds)]
    period_start: i64,
    amount: Decimal,
    changed: Option<Decimal>,
    #[diesel(deserialize_as = Milliseconds)]
    asked_at: i64,
}

impl From<Row> for QuotaChange {
    fn from(row: Row) -> Self {
        Self {
            id: GrantId::from_uuid(row.id),
            tenant: row.tenant,
            meter: row.meter,
            start_ms: row.period_start,
            amount: row.amount,
            changed: row.changed,
            asked_at_ms: row.asked_at,
        }
    }
}

impl QuotaChange {
    /// Whether it takes something away.
    pub fn lowers(&self) -> bool {
        self.amount < Decimal::ZERO
    }
}

impl Ledger {
    /// Notes what a period of a quota has to change to include what is wanted, once under its id. From then on the gate
    /// gets the strict bound, where it is less.
    pub async fn claim_quota_change(&self, wanted: WantedChange) -> Result<ClaimedChange, LedgerError> {
        self.transact(BEGIN_BOOKING, move |connection| {
            async move { claim(connection, &wanted).await }.boxed()
        })
        .await
    }

    /// The change with this id.
    pub async fn quota_change(
        &self,
        tenant: &TenantId,
        id: GrantId,
    ) -> Result<Option<QuotaChange>, LedgerError> {
        let query = || quota_changes::table.find((tenant, id.uuid())).select(Row::as_select());
        Ok(self.first(query).await?.map(QuotaChange::from))
    }

    /// The tenant's changes that are under way, the earliest first.
    pub async fn quota_changes_under_way(&self, tenant: &TenantId) -> Result<Vec<QuotaChange>, LedgerError> {
        let query = || {
            quota_changes::table
                .filter(quota_changes::tenant.eq(tenant))
                .filter(quota_changes::changed.is_null())
                .order((quota_changes::asked_at, quota_changes::id))
                .select(Row::as_select())
        };
        Ok(self.load(query).await?.into_iter().map(QuotaChange::from).collect())
    }

    /// Notes what a raise came to.
    pub async fn note_raised(&self, change: &QuotaChange, by: Decimal) -> Result<(), LedgerError> {
        let under_way = quota_changes::table
            .filter(quota_changes::tenant.eq(change.tenant.clone()))
            .filter(quota_changes::id.eq(change.id.uuid()))
            .filter(quota_changes::changed.is_null());
        self.execute(diesel::update(under_way).set(quota_changes::changed.eq(by))).await.map(drop)
    }

    /// Wants the cut of a change that lowers after `after`: the gate had the strict bound there.
    pub async fn want_lowered(&self, change: QuotaChange, after: OutboxId) -> Result<(), LedgerError> {
        let partition = self.partition_of(&change.tenant).await?;
        self.transact(BEGIN_BOOKING, move |connection| {
            async move {
                capacities::lock_tenant(connection, &change.tenant).await?;
                let of = CutOf {
                    tenant: &change.tenant,
                    id: change.id,
                    meter: &change.meter,
                    start_ms: change.start_ms,
                };
                cuts::want_end_once(connection, partition, of, after).await
            }
            .boxed()
        })
        .await
    }

    /// Changes that lower, of one tenant or of all, which are cut and not booked yet; the earliest first: those after
    /// this one (when it was asked for in unix ms, and its id).
    pub async fn lowered_to_settle(
        &self,
        tenant: Option<&TenantId>,
        after: Option<(i64, GrantId)>,
        limit: usize,
    ) -> Result<Vec<QuotaChange>, LedgerError> {
        let after = match after {
            Some((at_ms, id)) => Some((instant::from_ms(at_ms)?, id.uuid())),
            None => None,
        };
        let query = || {
            use quota_changes::{asked_at, id};
            let cut = made_cuts::table
                .filter(made_cuts::tenant.eq(quota_changes::tenant))
                .filter(made_cuts::grant_id.eq(quota_changes::id));
            let mut due = quota_changes::table
                .filter(quota_changes::changed.is_null())
                .filter(quota_changes::amount.lt(Decimal::ZERO))
                .filter(diesel::dsl::exists(cut))
                .into_boxed();
            if let Some(tenant) = tenant {
                due = due.filter(quota_changes::tenant.eq(tenant));
            }
            if let Some((at, of_id)) = after {
                due = due.filter(asked_at.gt(at).or(asked_at.eq(at).and(id.gt(of_id))));
            }
            due.order((asked_at, id)).limit(number::limit(limit)).select(Row::as_select())
        };
        Ok(self.load(query).await?.into_iter().map(QuotaChange::from).collect())
    }

    /// Books what a lowered plan takes, as of its cut: what was asked for, as far as it was available and nobody has
    /// paid for it. Raises the capacity's version. Returns whether it was not booked before.
    pub async fn settle_lowered(&self, change: QuotaChange, now_ms: i64) -> Result<bool, LedgerError> {
        self.ensure_months_of([change.asked_at_ms].into_iter()).await?;
        let partition = self.partition_of(&change.tenant).await?;
        self.book_returns_of(partition, &change.tenant, &change.meter, now_ms).await?;
        self.transact(BEGIN_BOOKING, move |connection| {
            async move { settle(connection, partition, &change, now_ms).await }.boxed()
        })
        .await
    }
}

async fn claim(
    connection: &mut AsyncPgConnection,
    wanted: &WantedChange,
) -> Result<ClaimedChange, LedgerError> {
    let start = instant::from_ms(wanted.start_ms)?;
    capacities::lock_tenant(connection, &wanted.tenant).await?;
    if let Some(stands) = find(connection, &wanted.tenant, wanted.id).await? {
        return Ok(ClaimedChange::Stands(stands));
    }
    let of_period = quota_changes::table
        .filter(quota_changes::tenant.eq(&wanted.tenant))
        .filter(quota_changes::meter.eq(&wanted.meter))
        .filter(quota_changes::period_start.eq(start));
    let made: Vec<Row> = of_period.select(Row::as_select()).load(connection).await?;
    let (done, under_way): (Vec<_>, Vec<_>) =
        made.into_iter().map(QuotaChange::from).partition(|change| change.changed.is_some());
    if let Some(other) = under_way.into_iter().next() {
        return Ok(ClaimedChange::After(other));
    }
    let opened: Option<Decimal> = quota_periods::table
        .find((&wanted.tenant, &wanted.meter, start))
        .select(quota_periods::included)
        .first(connection)
        .await
        .optional()?;
    // A period that is not open is opened with what the plan includes.
    let Some(opened) = opened else { return Ok(ClaimedChange::Nothing) };
    let stands = opened + done.iter().filter_map(|change| change.changed).sum::<Decimal>();
    let amount = wanted.included - stands;
    let is_wanted = if amount > Decimal::ZERO { wanted.moves.raises } else { wanted.moves.lowers };
    if amount.is_zero() || !is_wanted {
        return Ok(ClaimedChange::Nothing);
    }
    let values = (
        quota_changes::tenant.eq(&wanted.tenant),
        quota_changes::id.eq(wanted.id.uuid()),
        quota_changes::meter.eq(&wanted.meter),
        quota_changes::period_start.eq(start),
        quota_changes::amount.eq(amount),
        quota_changes::asked_at.eq(instant::from_ms(wanted.now_ms)?),
    );
    diesel::insert_into(quota_changes::table).values(values).execute(connection).await?;
    if amount < Decimal::ZERO {
        capacities::raise_versions(connection, &wanted.tenant, &wanted.meter, wanted.now_ms).await?;
    }
    let stands = find(connection, &wanted.tenant, wanted.id).await?;
    stands
        .map(ClaimedChange::Stands)
        .ok_or_else(|| LedgerError::Damaged("a change of a quota is gone".into()))
}

/// The change with this id: a grant's, where a plan has raised a quota by it.
pub(crate) async fn find(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    id: GrantId,
) -> Result<Option<QuotaChange>, LedgerError> {
    let found = quota_changes::table.find((tenant, id.uuid())).select(Row::as_select());
    Ok(found.first::<Row>(connection).await.optional()?.map(QuotaChange::from))
}

async fn settle(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    change: &QuotaChange,
    now_ms: i64,
) -> Result<bool, LedgerError> {
    let tenant = &change.tenant;
    capacities::lock_tenant(connection, tenant).await?;
    let stands = find(connection, tenant, change.id).await?;
    if stands.is_none_or(|stands| stands.changed.is_some()) {
        return Ok(false);
    }
    // What the close of the period before brings is available as of this period's start: it has to be known first.
    if cuts::period_before_may_go_on(connection, tenant, &change.meter, change.start_ms).await?
        || cuts::returned_before(connection, tenant, change.id).await?
    {
        return Ok(false);
    }
    let Some((window, free)) = free_at_cut(connection, change).await? else { return Ok(false) };
    let damaged = |_| LedgerError::Damaged(format!("the change of a quota {}", change.id));
    let wanted = Amount::from_decimal(-change.amount).map_err(damaged)?;
    let movements = change_included(window, wanted, Amount::ZERO, free);
    let voided = wanted.decimal().min(free);
    let line = PostedLine { meter: change.meter.clone(), movements, first_leg: 0, begins_to_consume: false };
    let posting = Posting {
        tenant: tenant.clone(),
        operation_id: change.id.uuid(),
        step: 1,
        happened_at_ms: change.asked_at_ms,
        operation: String::new(),
        hour_start_ms: window.start_ms,
        subjects: Vec::new(),
        lines: vec![line],
    };
    journal::post_beside_outbox(connection, partition, vec![posting]).await?;
    diesel::update(quota_changes::table.find((tenant, change.id.uuid())))
        .set(quota_changes::changed.eq(Some(-voided)))
        .execute(connection)
        .await?;
    diesel::update(made_cuts::table.find((tenant, change.id.uuid(), true)))
        .set(made_cuts::is_settled.eq(true))
        .execute(connection)
        .await?;
    capacities::raise_versions(connection, tenant, &change.meter, now_ms).await?;
    Ok(true)
}

#[derive(QueryableByName)]
struct AtCut {
    #[diesel(sql_type = Timestamptz)]
    period_end: Milliseconds,
    #[diesel(sql_type = Numeric)]
    included: Decimal,
    #[diesel(sql_type = Numeric)]
    rolled_in: Decimal,
    #[diesel(sql_type = BigInt)]
    epoch: i64,
    #[diesel(sql_type = BigInt)]
    sequence: i64,
    #[diesel(sql_type = Numeric)]
    consumed: Decimal,
    #[diesel(sql_type = Numeric)]
    held: Decimal,
}

/// What was available as of the cut of what nobody has paid for, and its period; none while there is no cut. Grants
/// that end earlier and are not booked yet are not in it.
async fn free_at_cut(
    connection: &mut AsyncPgConnection,
    change: &QuotaChange,
) -> Result<Option<(Window, Decimal)>, LedgerError> {
    let find = sql_query(include_str!("sql/lowered_at_cut.sql"))
        .bind::<Text, _>(&change.tenant)
        .bind::<Uuid, _>(change.id.uuid());
    let Some(at): Option<AtCut> = find.get_result(connection).await.optional()? else { return Ok(None) };
    let place =
        OutboxId { epoch: Epoch(number::unsigned(at.epoch)?), sequence: number::unsigned(at.sequence)? };
    let window = Window { start_ms: change.start_ms, end_ms: at.period_end.0 };
    let period = [(&change.tenant, &change.meter, window)];
    let found = burnables::read(connection, &period, Unwound::Before(place)).await?;
    let cut = Cut { place, at_ms: change.asked_at_ms, consumed: at.consumed };
    let mut grants: Vec<Burnable> = found.into_values().flatten().map(|grant| grant.as_of(cut)).collect();
    let rolled = [(&change.tenant, &change.meter, window, at.rolled_in)];
    let rolled = rolled_amounts::read(connection, &rolled).await?;
    let rolled = rolled.values().flat_map(|rolled| RolledAmount::burnables(window, rolled));
    grants.extend(rolled.map(|rolled| rolled.as_of(cut)));
    let base = (BurnPlace::of_included((window.start_ms, window.end_ms)), at.included);
    Ok(Some((window, free(base, &grants, at.consumed, at.held))))
}

/// Whether a lowered plan was cut before a grant ended, at its cut, and is not booked: it takes what is left first.
pub(crate) async fn is_under_way(
    connection: &mut AsyncPgConnection,
    stored: &grants::StoredGrant,
    start_ms: i64,
) -> Result<bool, LedgerError> {
    let under_way = quota_changes::table
        .filter(quota_changes::tenant.eq(&stored.tenant))
        .filter(quota_changes::meter.eq(&stored.meter))
        .filter(quota_changes::period_start.eq(instant::from_ms(start_ms)?))
        .filter(quota_changes::amount.lt(Decimal::ZERO))
        .filter(quota_changes::changed.is_null());
    Ok(diesel::select(diesel::dsl::exists(under_way)).get_result(connection).await?)
}
