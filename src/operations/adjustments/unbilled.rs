//! Money of tenants that are never billed.

use crate::domain::adjustment::{AdjustmentEffect, AdjustmentTerms};
use crate::domain::field_error::FieldError;
use crate::operations::policy_store::TenantEntry;

/// What is wrong with money for a tenant that is never billed.
pub(super) fn unbilled(entry: &TenantEntry, terms: &AdjustmentTerms) -> Option<FieldError> {
    let is_wrong = terms.effect == AdjustmentEffect::Money && entry.definition.sandbox;
    let message = || format!("{} is a sandbox, which is not billed", terms.tenant);
    is_wrong.then(|| FieldError::new("/tenant", message()))
}
