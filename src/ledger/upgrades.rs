//! Upgrade requests: one pending at most of each tenant, decided once, applied until that has succeeded.

use std::collections::HashMap;

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use serde_json::json;

use super::columns::{Milliseconds, MillisecondsIfAny};
use super::schema::upgrade_requests;
use super::{BEGIN, Ledger, LedgerError, audit, capacities, followed_periods, instant, number};
use crate::domain::ids::{PlanId, TenantId};
use crate::domain::upgrade::{UpgradeId, UpgradeState, UpgradeTerms};

/// An upgrade request as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredUpgrade {
    /// Its id.
    pub id: UpgradeId,
    /// What is asked for.
    pub terms: UpgradeTerms,
    /// What became of it.
    pub state: UpgradeState,
    /// When it was made (service time, unix ms).
    pub requested_at_ms: i64,
    /// Who made it.
    pub requested_by: String,
    /// When it was decided (service time, unix ms).
    pub decided_at_ms: Option<i64>,
    /// Who decided it.
    pub decided_by: Option<String>,
    /// From when on the plan holds, where it is approved (unix ms).
    pub effective_at_ms: Option<i64>,
    /// When the tenant got the plan (service time, unix ms).
    pub applied_at_ms: Option<i64>,
    /// Whether what the plan includes less waits for the next period.
    pub raises_only: bool,
}

/// What became of a request that was to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requested {
    /// It is made.
    Now(StoredUpgrade),
    /// It, or another one, was made before under this key.
    Before(StoredUpgrade),
    /// Another one of the tenant is pending.
    Pending(UpgradeId),
}

/// How a request is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deciding {
    /// Approved, from this instant on (unix ms); none: declined.
    pub effective_at_ms: Option<i64>,
    /// Whether what the plan includes less waits for the next period.
    pub raises_only: bool,
    /// When (service time, unix ms).
    pub now_ms: i64,
    /// By whom.
    pub actor: String,
}

/// Which requests to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpgradeFilter {
    /// Only this tenant's; none for all.
    pub tenant: Option<TenantId>,
    /// Only those of this state.
    pub state: Option<UpgradeState>,
}

/// A place in the list of requests: when it was made (unix ms), and its id.
pub type UpgradeCursor = (i64, UpgradeId);

#[derive(Queryable, Selectable)]
#[diesel(table_name = upgrade_requests, check_for_backend(Pg))]
struct Row {
    tenant: TenantId,
    id: uuid::Uuid,
    plan: String,
    reason: String,
    state: String,
    #[diesel(deserialize_as = Milliseconds)]
    requested_at: i64,
    requested_by: String,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    decided_at: Option<i64>,
    decided_by: Option<String>,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    effective_at: Option<i64>,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    applied_at: Option<i64>,
    raises_only: bool,
}

impl Row {
    fn read(self) -> Result<StoredUpgrade, LedgerError> {
        let damaged =
            |what: &str| LedgerError::Damaged(format!("the {what} of the upgrade request {}", self.id));
        let plan = PlanId::parse(&self.plan).map_err(|_| damaged("plan"))?;
        let state = UpgradeState::from_word(&self.state).ok_or_else(|| damaged("state"))?;
        Ok(StoredUpgrade {
            id: UpgradeId::from_uuid(self.id),
            terms: UpgradeTerms { tenant: self.tenant, plan, reason: self.reason },
            state,
            requested_at_ms: self.requested_at,
            requested_by: self.requested_by,
            decided_at_ms: self.decided_at,
            decided_by: self.decided_by,
            effective_at_ms: self.effective_at,
            applied_at_ms: self.applied_at,
            raises_only: self.raises_only,
        })
    }
}

impl Ledger {
    /// Makes a request, once under its id.
    pub async fn request_upgrade(
        &self,
        id: UpgradeId,
        terms: UpgradeTerms,
        now_ms: i64,
        actor: &str,
    ) -> Result<Requested, LedgerError> {
        let actor = actor.to_owned();
        self.transact(BEGIN, move |connection| {
            async move { request(connection, id, terms, now_ms, &actor).await }.boxed()
        })
        .await
    }

    /// Decides a request that is pending. Returns it as it is then, and whether this call decided it; none where there
    /// is no such request.
    pub async fn decide_upgrade(
        &self,
        id: UpgradeId,
        deciding: Deciding,
    ) -> Result<Option<(StoredUpgrade, bool)>, LedgerError> {
        self.transact(BEGIN, move |connection| async move { decide(connection, id, &deciding).await }.boxed())
            .await
    }

    /// The request with this id.
    pub async fn upgrade(&self, id: UpgradeId) -> Result<Option<StoredUpgrade>, LedgerError> {
        let query =
            || upgrade_requests::table.filter(upgrade_requests::id.eq(id.uuid())).select(Row::as_select());
        self.first(query).await?.map(Row::read).transpose()
    }

    /// Requests, newest first, at most `limit`, after `after`.
    pub async fn list_upgrades(
        &self,
        filter: &UpgradeFilter,
        after: Option<UpgradeCursor>,
        limit: usize,
    ) -> Result<Vec<StoredUpgrade>, LedgerError> {
        use upgrade_requests::{id, requested_at, state, tenant};
        let after = match after {
            Some((at_ms, of_id)) => Some((instant::from_ms(at_ms)?, of_id.uuid())),
            None => None,
        };
        let query = || {
            let mut found = upgrade_requests::table.select(Row::as_select()).into_boxed();
            if let Some(of_tenant) = &filter.tenant {
                found = found.filter(tenant.eq(of_tenant));
            }
            if let Some(in_state) = filter.state {
                found = found.filter(state.eq(in_state.as_str()));
            }
            if let Some((at, of_id)) = after {
                found = found.filter(requested_at.le(at)).filter(requested_at.lt(at).or(id.lt(of_id)));
            }
            found.order((requested_at.desc(), id.desc())).limit(number::limit(limit))
        };
        self.load(query).await?.into_iter().map(Row::read).collect()
    }

    /// Approved requests whose plan holds by `now_ms` and whose tenants do not have it yet, the earliest first: those
    /// after this one (from when on it holds in unix ms, and its id).
    pub async fn due_upgrades(
        &self,
        now_ms: i64,
        after: Option<(i64, UpgradeId)>,
        limit: usize,
    ) -> Result<Vec<StoredUpgrade>, LedgerError> {
        let now = instant::from_ms(now_ms)?;
        let after = match after {
            Some((at_ms, of_id)) => Some((instant::from_ms(at_ms)?, of_id.uuid())),
            None => None,
        };
        let query = || {
            use upgrade_requests::{applied_at, effective_at, id};
            let due = upgrade_requests::table.filter(applied_at.is_null()).filter(effective_at.le(now));
            let mut due = due.into_boxed();
            if let Some((at, of_id)) = after {
                due = due.filter(effective_at.gt(at).or(effective_at.eq(at).and(id.gt(of_id))));
            }
            due.order((effective_at, id)).limit(number::limit(limit)).select(Row::as_select())
        };
        self.load(query).await?.into_iter().map(Row::read).collect()
    }

    /// The plans that these tenants are to get, each with the instant from which on it holds (unix ms).
    pub async fn plans_to_come(
        &self,
        tenants: &[TenantId],
    ) -> Result<HashMap<TenantId, (PlanId, i64)>, LedgerError> {
        let query = || {
            upgrade_requests::table
                .filter(upgrade_requests::applied_at.is_null())
                .filter(upgrade_requests::effective_at.is_not_null())
                .filter(upgrade_requests::tenant.eq_any(tenants))
                .order(upgrade_requests::effective_at)
                .select(Row::as_select())
        };
        let mut plans = HashMap::new();
        for row in self.load(query).await? {
            let StoredUpgrade { terms, effective_at_ms, .. } = row.read()?;
            plans.extend(effective_at_ms.map(|at_ms| (terms.tenant, (terms.plan, at_ms))));
        }
        Ok(plans)
    }

    /// The approved request by which a tenant is to get this plan, if there is one; of several, the earliest.
    pub async fn upgrade_to_come(&self, plan: &PlanId) -> Result<Option<StoredUpgrade>, LedgerError> {
        let query = || {
            upgrade_requests::table
                .filter(upgrade_requests::applied_at.is_null())
                .filter(upgrade_requests::effective_at.is_not_null())
                .filter(upgrade_requests::plan.eq(plan.as_str()))
                .order((upgrade_requests::effective_at, upgrade_requests::id))
                .select(Row::as_select())
        };
        self.first(query).await?.map(Row::read).transpose()
    }

    /// Declines an approved request that can never be applied, for this reason: its tenant keeps its plan, also in the
    /// periods that are opened ahead. One that is applied stays as it is.
    pub async fn give_up_upgrade(
        &self,
        id: UpgradeId,
        why: &str,
        now_ms: i64,
        actor: &str,
    ) -> Result<(), LedgerError> {
        let (actor, why) = (actor.to_owned(), why.to_owned());
        self.transact(BEGIN, move |connection| {
            async move { give_up(connection, id, &why, now_ms, &actor).await }.boxed()
        })
        .await
    }

    /// Notes that the tenant has the plan.
    pub async fn note_upgraded(&self, id: UpgradeId, now_ms: i64) -> Result<(), LedgerError> {
        let pending = upgrade_requests::table
            .filter(upgrade_requests::id.eq(id.uuid()))
            .filter(upgrade_requests::applied_at.is_null());
        let at = instant::from_ms(now_ms)?;
        self.execute(diesel::update(pending).set(upgrade_requests::applied_at.eq(at))).await.map(drop)
    }
}

async fn request(
    connection: &mut AsyncPgConnection,
    id: UpgradeId,
    terms: UpgradeTerms,
    now_ms: i64,
    actor: &str,
) -> Result<Requested, LedgerError> {
    let is_there = capacities::lock_tenant(connection, &terms.tenant).await?;
    if let Some(stored) = find(connection, id).await? {
        return Ok(Requested::Before(stored));
    }
    if !is_there {
        return Err(capacities::no_tenant(&terms.tenant));
    }
    let pending: Option<uuid::Uuid> = upgrade_requests::table
        .filter(upgrade_requests::tenant.eq(&terms.tenant))
        .filter(upgrade_requests::state.eq(UpgradeState::Pending.as_str()))
        .select(upgrade_requests::id)
        .first(connection)
        .await
        .optional()?;
    if let Some(pending) = pending {
        return Ok(Requested::Pending(UpgradeId::from_uuid(pending)));
    }
    let values = (
        upgrade_requests::tenant.eq(&terms.tenant),
        upgrade_requests::id.eq(id.uuid()),
        upgrade_requests::plan.eq(terms.plan.as_str()),
        upgrade_requests::reason.eq(&terms.reason),
        upgrade_requests::state.eq(UpgradeState::Pending.as_str()),
        upgrade_requests::requested_at.eq(instant::from_ms(now_ms)?),
        upgrade_requests::requested_by.eq(actor),
    );
    diesel::insert_into(upgrade_requests::table).values(values).execute(connection).await?;
    let detail = json!({ "tenant": terms.tenant, "plan": terms.plan, "reason": terms.reason });
    audit::note(connection, actor, "create", &object(id), detail).await?;
    find(connection, id).await?.map(Requested::Now).ok_or_else(|| gone(id))
}

async fn decide(
    connection: &mut AsyncPgConnection,
    id: UpgradeId,
    deciding: &Deciding,
) -> Result<Option<(StoredUpgrade, bool)>, LedgerError> {
    let Some(before) = find(connection, id).await? else { return Ok(None) };
    // Who changes or deletes the tenant locks it first, too. Nobody fits a period of it meanwhile without seeing this.
    capacities::lock_tenant(connection, &before.terms.tenant).await?;
    let found = upgrade_requests::table.filter(upgrade_requests::id.eq(id.uuid()));
    let row: Option<Row> = found.select(Row::as_select()).for_update().first(connection).await.optional()?;
    let Some(stored) = row.map(Row::read).transpose()? else { return Ok(None) };
    if stored.state != UpgradeState::Pending {
        return Ok(Some((stored, false)));
    }
    let (state, action) = match deciding.effective_at_ms {
        Some(_) => (UpgradeState::Approved, "approve"),
        None => (UpgradeState::Declined, "decline"),
    };
    diesel::update(found)
        .set((
            upgrade_requests::state.eq(state.as_str()),
            upgrade_requests::decided_at.eq(instant::from_ms(deciding.now_ms)?),
            upgrade_requests::decided_by.eq(&deciding.actor),
            upgrade_requests::effective_at.eq(deciding.effective_at_ms.map(instant::from_ms).transpose()?),
            upgrade_requests::raises_only.eq(deciding.raises_only),
        ))
        .execute(connection)
        .await?;
    if let Some(effective_at_ms) = deciding.effective_at_ms {
        supersede(connection, &stored, effective_at_ms, deciding.now_ms).await?;
        followed_periods::follow_again(connection, &stored.terms.tenant, effective_at_ms).await?;
    }
    let detail = json!({ "tenant": stored.terms.tenant, "plan": stored.terms.plan });
    audit::note(connection, &deciding.actor, action, &object(id), detail).await?;
    let stored = find(connection, id).await?.ok_or_else(|| gone(id))?;
    Ok(Some((stored, true)))
}

async fn give_up(
    connection: &mut AsyncPgConnection,
    id: UpgradeId,
    why: &str,
    now_ms: i64,
    actor: &str,
) -> Result<(), LedgerError> {
    use upgrade_requests as row;
    let Some(before) = find(connection, id).await? else { return Ok(()) };
    capacities::lock_tenant(connection, &before.terms.tenant).await?;
    let found = row::table.filter(row::id.eq(id.uuid())).filter(row::applied_at.is_null());
    let stands: Option<Row> =
        found.select(Row::as_select()).for_update().first(connection).await.optional()?;
    let Some(stored) = stands.map(Row::read).transpose()? else { return Ok(()) };
    let Some(effective_at_ms) = stored.effective_at_ms else { return Ok(()) };
    decline_for(connection, &stored, why, now_ms, actor).await?;
    followed_periods::follow_again(connection, &stored.terms.tenant, effective_at_ms).await
}

/// Declines what a tenant that is being deleted has asked for and not got: the next one of its name has not asked for
/// it. The tenant is locked.
pub(super) async fn decline_all(
    connection: &mut AsyncPgConnection,
    tenant: &str,
    now_ms: i64,
    actor: &str,
) -> Result<(), LedgerError> {
    use upgrade_requests as row;
    let open: Vec<Row> = row::table
        .filter(row::tenant.eq(tenant))
        .filter(row::state.ne(UpgradeState::Declined.as_str()))
        .filter(row::applied_at.is_null())
        .order(row::id)
        .select(Row::as_select())
        .for_update()
        .load(connection)
        .await?;
    for found in open {
        decline_for(connection, &found.read()?, "its tenant is deleted", now_ms, actor).await?;
    }
    Ok(())
}

/// Declines a request whose row is locked; the audit log says why.
async fn decline_for(
    connection: &mut AsyncPgConnection,
    stored: &StoredUpgrade,
    why: &str,
    now_ms: i64,
    actor: &str,
) -> Result<(), LedgerError> {
    use upgrade_requests as row;
    let declined = (
        row::state.eq(UpgradeState::Declined.as_str()),
        row::decided_at.eq(instant::from_ms(now_ms)?),
        row::decided_by.eq(actor),
        row::effective_at.eq(None::<chrono::DateTime<chrono::Utc>>),
    );
    diesel::update(row::table.filter(row::id.eq(stored.id.uuid()))).set(declined).execute(connection).await?;
    let detail = json!({ "tenant": stored.terms.tenant, "plan": stored.terms.plan, "reason": why });
    audit::note(connection, actor, "decline", &object(stored.id), detail).await
}

/// Requests of the tenant that were approved before and would come after this one are carried out no more: a plan that
/// holds now replaces all of them, a later one those from its instant on.
async fn supersede(
    connection: &mut AsyncPgConnection,
    approved: &StoredUpgrade,
    effective_at_ms: i64,
    now_ms: i64,
) -> Result<(), LedgerError> {
    use upgrade_requests as row;
    let from_ms = if effective_at_ms <= now_ms { 0 } else { effective_at_ms };
    let earlier = row::table
        .filter(row::tenant.eq(&approved.terms.tenant))
        .filter(row::id.ne(approved.id.uuid()))
        .filter(row::applied_at.is_null())
        .filter(row::effective_at.ge(instant::from_ms(from_ms)?));
    diesel::update(earlier).set(row::applied_at.eq(instant::from_ms(now_ms)?)).execute(connection).await?;
    Ok(())
}

async fn find(
    connection: &mut AsyncPgConnection,
    id: UpgradeId,
) -> Result<Option<StoredUpgrade>, LedgerError> {
    let found = upgrade_requests::table.filter(upgrade_requests::id.eq(id.uuid())).select(Row::as_select());
    found.first(connection).await.optional()?.map(Row::read).transpose()
}

fn object(id: UpgradeId) -> String {
    format!("upgrade_request {id}")
}

fn gone(id: UpgradeId) -> LedgerError {
    LedgerError::Damaged(format!("the upgrade request {id} is gone"))
}
