//! Which tenants are sampled: a share that is always the same, on every instance, and those that are named.

use std::collections::BTreeSet;

use crate::domain::ids::TenantId;
use crate::domain::limit::Percent;
use crate::operations::options::DecisionsOptions;

/// Says of each tenant whether its decisions are kept. While the percentage rises, those that were sampled stay so.
pub(super) struct Sampling {
    percent: Percent,
    tenants: BTreeSet<TenantId>,
    /// Keyed, so that nobody can choose a tenant's id by whether it is sampled.
    key: [u8; 32],
}

impl Sampling {
    pub(super) fn new(options: &DecisionsOptions, secret: &[u8; 32]) -> Self {
        let key = blake3::derive_key("tollgate sampled tenants v1", secret);
        Self { percent: options.sample, tenants: options.tenants.clone(), key }
    }

    /// Whether this tenant is sampled.
    pub(super) fn has(&self, tenant: &TenantId) -> bool {
        let percent = u64::from(self.percent.get());
        percent >= 100 || (percent > 0 && self.place(tenant) < percent) || self.tenants.contains(tenant)
    }

    fn place(&self, tenant: &TenantId) -> u64 {
        let mut first = [0; 8];
        let hash = blake3::keyed_hash(&self.key, tenant.as_str().as_bytes());
        first.copy_from_slice(&hash.as_bytes()[..8]);
        u64::from_le_bytes(first) % 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(percent: u8, named: &[&str]) -> BTreeSet<usize> {
        let tenants = named.iter().map(|id| TenantId::parse(id).unwrap()).collect();
        let options = DecisionsOptions { sample: Percent::new(percent).unwrap(), tenants, refusals_max: 0 };
        let sampling = Sampling::new(&options, &[7; 32]);
        let tenant = |number: &usize| TenantId::parse(&format!("tenant-{number}")).unwrap();
        (0..2_000).filter(|number| sampling.has(&tenant(number))).collect()
    }

    #[test]
    fn a_tenant_is_sampled_by_the_share_or_by_name_and_stays_so_while_the_share_rises() {
        assert_eq!(sampled(0, &[]).len(), 0);
        assert_eq!(sampled(0, &["tenant-7"]), BTreeSet::from([7]));
        let (some, more) = (sampled(1, &[]), sampled(30, &[]));
        assert!((5..=50).contains(&some.len()) && (450..=750).contains(&more.len()), "{some:?} {more:?}");
        assert!(some.is_subset(&more));
        assert_eq!(sampled(100, &[]).len(), 2_000);
    }
}
