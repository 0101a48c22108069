//! Changes of a tenant's plan, and what they do to quotas whose periods are open.

use super::grant::GrantId;
use super::ids::{MeterId, TenantId};
use super::upgrade::{Effective, UpgradeId};
use super::uuid_id::{self, uuid_ids};

uuid_ids! {
    /// The id of a change of plan: a hash of the tenant's version that has it, or that of the approved request.
    PlanChangeId, "must be the id of a change of plan";
}

impl PlanChangeId {
    /// The id of the change that made this version of a tenant.
    pub fn of(tenant: &TenantId, version: u64) -> Self {
        Self(uuid_id::of_texts("tollgate plan change v1", &[tenant.as_str(), &version.to_string()]))
    }

    /// The id of the change that an approved request makes.
    pub fn of_upgrade(upgrade: UpgradeId) -> Self {
        Self(upgrade.uuid())
    }

    /// The id of what this change does to one period of a quota, once: a grant's, where it raises.
    pub fn of_quota(self, meter: &MeterId, start_ms: i64) -> GrantId {
        let names = [&self.to_string(), meter.as_str(), &start_ms.to_string()];
        GrantId::from_uuid(uuid_id::of_texts("tollgate quota change v1", &names))
    }
}

/// Which ways a change of plan moves what an open period includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moves {
    /// Up, where the plan includes more.
    pub raises: bool,
    /// Down, where it includes less.
    pub lowers: bool,
}

impl Moves {
    /// In the period in which the plan changes: a plan that includes more holds at once unless it says otherwise, and
    /// one that includes less only if it says so.
    pub fn of_open_period(plan_from: Option<Effective>) -> Self {
        Self { raises: plan_from != Some(Effective::NextPeriod), lowers: plan_from == Some(Effective::Now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_reaches_an_open_quota_at_once_where_it_includes_more_and_a_lower_one_only_if_it_says_so() {
        let moves = |plan_from| {
            let Moves { raises, lowers } = Moves::of_open_period(plan_from);
            (raises, lowers)
        };
        assert_eq!(moves(None), (true, false));
        assert_eq!(moves(Some(Effective::Now)), (true, true));
        assert_eq!(moves(Some(Effective::NextPeriod)), (false, false));
    }

    #[test]
    fn a_change_does_one_thing_to_one_period_of_a_quota() {
        let (acme, page) = (TenantId::parse("acme").unwrap(), MeterId::parse("page").unwrap());
        let change = PlanChangeId::of(&acme, 2);
        assert_eq!(change.of_quota(&page, 10), PlanChangeId::of(&acme, 2).of_quota(&page, 10));
        assert_ne!(change.of_quota(&page, 10), change.of_quota(&page, 11));
        assert_ne!(change.of_quota(&page, 10), PlanChangeId::of(&acme, 3).of_quota(&page, 10));
    }
}
