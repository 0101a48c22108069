//! Changes of tenants' plans that quotas have to follow: noted with the change of policy, done until that has
//! succeeded.

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use super::columns::Milliseconds;
use super::schema::plan_changes;
use super::{BEGIN, Ledger, LedgerError, instant, number};
use crate::domain::ids::{PlanId, TenantId};
use crate::domain::plan_change::PlanChangeId;
use crate::domain::upgrade::Effective;

/// A change of a tenant's plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanChange {
    /// Its id.
    pub id: PlanChangeId,
    /// Whose plan.
    pub tenant: TenantId,
    /// The plan from then on.
    pub plan: PlanId,
    /// From when on quotas follow it; none: at once where it includes more.
    pub plan_from: Option<Effective>,
    /// When (service time, unix ms).
    pub changed_at_ms: i64,
    /// By whom.
    pub changed_by: String,
}

/// A plan that a change of policy puts a tenant on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPlan {
    /// Whose plan.
    pub tenant: TenantId,
    /// Which one.
    pub plan: PlanId,
    /// From when on quotas follow it.
    pub plan_from: Option<Effective>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = plan_changes, check_for_backend(Pg))]
struct Row {
    tenant: TenantId,
    id: uuid::Uuid,
    plan: String,
    plan_from: Option<String>,
    #[diesel(deserialize_as = Milliseconds)]
    changed_at: i64,
    changed_by: String,
}

impl Row {
    fn read(self) -> Result<PlanChange, LedgerError> {
        let damaged = |what: &str| LedgerError::Damaged(format!("the {what} of the plan change {}", self.id));
        let plan_from = self.plan_from.as_deref().map(Effective::from_word);
        Ok(PlanChange {
            id: PlanChangeId::from_uuid(self.id),
            plan: PlanId::parse(&self.plan).map_err(|_| damaged("plan"))?,
            plan_from: match plan_from {
                Some(known) => Some(known.ok_or_else(|| damaged("date"))?),
                None => None,
            },
            tenant: self.tenant,
            changed_at_ms: self.changed_at,
            changed_by: self.changed_by,
        })
    }
}

impl Ledger {
    /// Notes a change of plan, once under its id.
    pub async fn note_plan_change(&self, change: PlanChange) -> Result<(), LedgerError> {
        self.transact(BEGIN, move |connection| async move { note(connection, &change).await }.boxed()).await
    }

    /// Changes that quotas have not followed yet, of one tenant or of all, the earliest first: those after this one
    /// (its time in unix ms, and its id).
    pub async fn due_plan_changes(
        &self,
        tenant: Option<&TenantId>,
        after: Option<(i64, PlanChangeId)>,
        limit: usize,
    ) -> Result<Vec<PlanChange>, LedgerError> {
        let after = match after {
            Some((at_ms, id)) => Some((instant::from_ms(at_ms)?, id.uuid())),
            None => None,
        };
        let query = || {
            use plan_changes::{changed_at, id};
            let mut due = plan_changes::table.filter(plan_changes::applied_at.is_null()).into_boxed();
            if let Some((at, of_id)) = after {
                due = due.filter(changed_at.gt(at).or(changed_at.eq(at).and(id.gt(of_id))));
            }
            if let Some(tenant) = tenant {
                due = due.filter(plan_changes::tenant.eq(tenant));
            }
            due.order((plan_changes::changed_at, plan_changes::id))
                .limit(number::limit(limit))
                .select(Row::as_select())
        };
        self.load(query).await?.into_iter().map(Row::read).collect()
    }

    /// Notes that the quotas have followed a change.
    pub async fn note_plan_changed(&self, change: &PlanChange, now_ms: i64) -> Result<(), LedgerError> {
        let found = plan_changes::table.find((change.tenant.clone(), change.id.uuid()));
        let at = instant::from_ms(now_ms)?;
        self.execute(diesel::update(found).set(plan_changes::applied_at.eq(at))).await.map(drop)
    }
}

/// Notes a change of plan, once under its id.
pub(crate) async fn note(connection: &mut AsyncPgConnection, change: &PlanChange) -> Result<(), LedgerError> {
    let values = (
        plan_changes::tenant.eq(&change.tenant),
        plan_changes::id.eq(change.id.uuid()),
        plan_changes::plan.eq(change.plan.as_str()),
        plan_changes::plan_from.eq(change.plan_from.map(Effective::as_str)),
        plan_changes::changed_at.eq(instant::from_ms(change.changed_at_ms)?),
        plan_changes::changed_by.eq(&change.changed_by),
    );
    let insert = diesel::insert_into(plan_changes::table).values(values).on_conflict_do_nothing();
    insert.execute(connection).await?;
    Ok(())
}
