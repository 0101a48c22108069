//! Where the comparison of a tenant's subjects continues at its next visit.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::domain::ids::TenantId;

/// By tenant, the number of the last subject compared; only for tenants with more subjects than one visit compares.
#[derive(Default)]
pub(super) struct Compared(Mutex<HashMap<TenantId, i64>>);

impl Compared {
    /// The subject after which the visit starts; it is forgotten here.
    pub(super) fn resume(&self, tenant: &TenantId) -> i64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(tenant).unwrap_or_default()
    }

    /// Records that the visit ended after this subject, and that there are more.
    pub(super) fn leave_at(&self, tenant: &TenantId, number: i64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(tenant.clone(), number);
    }
}
