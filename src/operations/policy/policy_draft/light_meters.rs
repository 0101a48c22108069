//! Meters that the gate alone counts: no books say whether one is in use.

use std::sync::Arc;

use super::Draft;
use crate::domain::field_error::FieldError;
use crate::domain::ids::MeterId;
use crate::domain::limited::Limited;
use crate::domain::meter::Meter;
use crate::domain::policy::diff::DefinitionKind;

impl Draft {
    /// The meters that are not booked and get other decimals while a limit counts them: what it has counted would
    /// become another amount.
    pub(super) fn recounted_light_meters(&self) -> Vec<FieldError> {
        let then = &self.then.definitions().meters;
        let is_recounted = |(id, old): &(&MeterId, &Arc<Meter>)| {
            let is_altered = then.get(*id).is_some_and(|new| new.decimals != old.decimals);
            is_altered && !old.booked && self.is_counted_alone(id)
        };
        let recounted = self.before.definitions().meters.iter().filter(is_recounted);
        let error = |(id, _): (&MeterId, _)| {
            let why = "is fixed while a limit counts the meter; remove the limit first, or make a new meter";
            FieldError::new("/decimals", why).under(&self.edit.pointer(DefinitionKind::Meter, id.as_str()))
        };
        recounted.map(error).collect()
    }

    /// Whether a limit counts this meter in its own units. A budget has units of its own.
    fn is_counted_alone(&self, meter: &MeterId) -> bool {
        let shared = self.before.definitions();
        let of_plans = shared.plans.values().flat_map(|plan| &plan.limits);
        let tenants = self.kept.values().filter_map(|kept| kept.read.as_ref());
        let of_tenants = tenants.flat_map(|(tenant, _)| &tenant.limits);
        let mut limits = shared.limits.values().chain(of_plans).chain(of_tenants);
        limits.any(|limit| matches!(&limit.limited, Limited::Meter(only) if only == meter))
    }
}
