//! What a policy file may say, and what is seldom meant.

use std::sync::Arc;

use super::document::{Definitions, PolicyFile};
use crate::domain::field_error::FieldError;
use crate::domain::limit::{Kind, Limit};

/// The kind of subjects that are addresses.
const ADDRESS: &str = "ip";

const BY_ADDRESS_ALONE: &str = "tells callers apart by their IP address alone: many people may share one, and one \
    caller may have many; limit the same meter by another kind of subject too, such as user or api_key";

/// What a file says that is allowed and seldom right, with pointers into it. `after` is the policy with the file.
pub fn warnings(file: &PolicyFile, after: &Definitions) -> Vec<FieldError> {
    let defaults: Vec<&Arc<Limit>> = after.limits.values().collect();
    let mut warnings = by_address_alone(&file.limits, &defaults);
    for (index, plan) in file.plans.iter().enumerate() {
        let found = by_address_alone(plan.limits.as_deref().unwrap_or_default(), &defaults);
        warnings.extend(found.into_iter().map(|warning| warning.under(&format!("/plans/{index}"))));
    }
    for (index, tenant) in file.tenants.iter().enumerate() {
        let plan = tenant.plan.as_ref().and_then(|plan| after.plans.get(plan));
        let others: Vec<_> =
            plan.iter().flat_map(|plan| &plan.limits).chain(defaults.iter().copied()).collect();
        let found = by_address_alone(tenant.limits.as_deref().unwrap_or_default(), &others);
        warnings.extend(found.into_iter().map(|warning| warning.under(&format!("/tenants/{index}"))));
    }
    warnings
}

/// The limits of a list that count by address, where neither the list nor the `others` count the same work by anything
/// else that tells callers apart.
fn by_address_alone(list: &[Arc<Limit>], others: &[&Arc<Limit>]) -> Vec<FieldError> {
    let counts_otherwise =
        |limit: &Limit| list.iter().chain(others.iter().copied()).any(|other| is_beside(other, limit));
    let is_alone = |limit: &Limit| is_by_address(limit) && !counts_otherwise(limit);
    let alone = list.iter().enumerate().filter(|(_, limit)| is_alone(limit));
    let at = |index: usize| format!("/limits/{index}/subject_kind");
    alone.map(|(index, _)| FieldError::new(at(index), BY_ADDRESS_ALONE)).collect()
}

fn is_by_address(limit: &Limit) -> bool {
    limit.kind != Kind::Off && limit.subject_kind.as_ref().is_some_and(|kind| kind.as_str() == ADDRESS)
}

/// Whether a limit counts all that another does, by a kind of subjects that are no addresses.
fn is_beside(other: &Limit, limit: &Limit) -> bool {
    let tells_apart =
        other.subject_kind.as_ref().is_some_and(|kind| kind.as_str() != ADDRESS && !kind.shares_slots());
    let counts_all =
        limit.limited.meters().all(|meter| other.limited.meters().any(|counted| counted == meter));
    let is_of_all = other.operations.is_none() || other.operations == limit.operations;
    other.kind != Kind::Off && tells_apart && counts_all && is_of_all
}
