//! Of which tenants nothing is adjusted in the open period, so that most reads of a quota need no question to the
//! ledger.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moka::future::Cache;

use crate::domain::ids::TenantId;

const KNOWN_MAX: u64 = 1_000_000;
/// After a notice that was lost, an instance asks again within this time.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// The tenants of which the ledger said that nothing is adjusted, until something is.
pub(super) struct Unadjusted {
    known: Cache<TenantId, ()>,
    /// How often something was forgotten: what was read before that must not be kept after it.
    forgotten: AtomicU64,
}

impl Default for Unadjusted {
    fn default() -> Self {
        let known = Cache::builder().max_capacity(KNOWN_MAX).time_to_live(KNOWN_FOR).build();
        Self { known, forgotten: AtomicU64::new(0) }
    }
}

impl Unadjusted {
    /// Whether nothing of this tenant's open period is adjusted; not if it is not known.
    pub(super) fn knows(&self, tenant: &TenantId) -> bool {
        self.known.contains_key(tenant)
    }

    /// To be called before the ledger is asked, for [`Self::keep`].
    pub(super) fn before_reading(&self) -> u64 {
        self.forgotten.load(Ordering::Acquire)
    }

    /// Keeps that the ledger has nothing adjusted of this tenant, unless something was forgotten since `before`.
    pub(super) async fn keep(&self, tenant: &TenantId, before: u64) {
        self.known.insert(tenant.clone(), ()).await;
        if self.forgotten.load(Ordering::Acquire) != before {
            self.known.invalidate(tenant).await;
        }
    }

    /// Something of this tenant was adjusted.
    pub(super) async fn forget(&self, tenant: &TenantId) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        self.known.invalidate(tenant).await;
    }

    /// Notices may have been missed.
    pub(super) fn forget_all(&self) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        self.known.invalidate_all();
    }
}
