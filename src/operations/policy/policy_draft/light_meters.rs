//! Meters that the gate alone counts: no books say whether one is in use.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Draft;
use crate::domain::field_error::FieldError;
use crate::domain::ids::{LimitId, MeterId, TenantId};
use crate::domain::limit::{Kind, Limit};
use crate::domain::limited::Limited;
use crate::domain::meter::Meter;
use crate::domain::policy::counter::LimitSignature;
use crate::domain::policy::diff::DefinitionKind;
use crate::domain::policy::document::Definitions;
use crate::domain::tenant::TenantDefinition;

impl Draft {
    /// The meters that are not booked and get other decimals while a limit counts them: what it has counted would
    /// become another amount.
    pub(super) fn recounted_light_meters(&self) -> Vec<FieldError> {
        let then = &self.then.definitions().meters;
        let is_recounted = |(id, old): &(&MeterId, &Arc<Meter>)| {
            let is_altered = then.get(*id).is_some_and(|new| new.decimals != old.decimals);
            is_altered && !old.booked && self.goes_on_being_counted(id)
        };
        let recounted = self.before.definitions().meters.iter().filter(is_recounted);
        let error = |(id, _): (&MeterId, _)| {
            let why = "is fixed while a limit counts the meter; remove the limit, or make a new meter";
            FieldError::new("/decimals", why).under(&self.edit.pointer(DefinitionKind::Meter, id.as_str()))
        };
        recounted.map(error).collect()
    }

    /// Whether a limit has counted this meter in its own units and goes on after the change. One that is defined or
    /// turned on later begins at zero.
    fn goes_on_being_counted(&self, meter: &MeterId) -> bool {
        let tenants = self.tenants();
        let before = |id: &TenantId| self.kept.get(id).and_then(|kept| Some(&kept.read.as_ref()?.0));
        let then = |id: &TenantId| self.edit.tenant_after(id, before(id));
        let old: Vec<_> = tenants.iter().filter_map(|id| before(id).cloned()).collect();
        let new: Vec<_> = tenants.iter().filter_map(then).collect();
        let old = self.counting(meter, self.before.definitions(), &old);
        let new = self.counting(meter, self.then.definitions(), &new);
        !old.is_disjoint(&new)
    }

    /// The limits that count this meter alone, by what their counters are of. A budget has units of its own.
    fn counting<'a>(
        &self,
        meter: &MeterId,
        shared: &'a Definitions,
        tenants: &'a [Arc<TenantDefinition>],
    ) -> BTreeSet<(&'a LimitId, LimitSignature)> {
        let overrides = tenants.iter().flat_map(|tenant| &tenant.overrides);
        let turned_on = overrides.filter(|each| each.kind.is_some_and(|kind| kind != Kind::Off));
        let turned_on: BTreeSet<&LimitId> = turned_on.map(|each| &each.limit).collect();
        let counts = |limit: &&'a Arc<Limit>| {
            matches!(&limit.limited, Limited::Meter(only) if only == meter)
                && (limit.kind != Kind::Off || turned_on.contains(&limit.id))
                && !self.has_ended(limit)
        };
        let of_plans = shared.plans.values().flat_map(|plan| &plan.limits);
        let of_tenants = tenants.iter().flat_map(|tenant| &tenant.limits);
        let limits = shared.limits.values().chain(of_plans).chain(of_tenants).filter(counts);
        limits.map(|limit| (&limit.id, LimitSignature::of_limit(limit))).collect()
    }

    /// Whether the limit is over: were it to hold again, it would begin at zero. One on all tenants would go on.
    fn has_ended(&self, limit: &Limit) -> bool {
        !limit.is_global() && limit.until.is_some_and(|until| until.ms() <= self.now_ms)
    }
}
