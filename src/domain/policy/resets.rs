//! Which of a tenant's counters go on after a change of policy, and which start again at zero.

use std::collections::BTreeSet;

use super::chain::CounterIdentity;
use super::counter::{CounterKey, Resets};
use super::snapshot::Policy;
use super::tenant_policy::{Dangling, TenantPolicy, own_subjects};
use crate::domain::ids::Subject;
use crate::domain::tenant::TenantDefinition;

/// A tenant before a change: the policy, its definition, and its resets so far.
#[derive(Debug, Clone, Copy)]
pub struct TenantBefore<'a> {
    /// The policy before.
    pub policy: &'a Policy,
    /// The tenant before.
    pub tenant: &'a TenantDefinition,
    /// Its resets so far.
    pub resets: &'a Resets,
}

/// The resets to store when a tenant comes under `policy` as `tenant`: by a change of its own, of its plan, or of a
/// plan's content. A counter whose signature stays goes on, whatever else has changed; any other starts at zero at
/// `now_ms`.
///
/// A new tenant needs no resets. `policy` must already hold the generations after the change.
pub fn tenant_resets_after(
    before: TenantBefore<'_>,
    policy: &Policy,
    tenant: &TenantDefinition,
    now_ms: i64,
) -> Result<Resets, Dangling> {
    let subjects: BTreeSet<Subject> = own_subjects(before.tenant)
        .chain(own_subjects(tenant))
        .chain(before.resets.subjects().cloned())
        .collect();
    let build = |policy, tenant, resets: &Resets| {
        TenantPolicy::with_subjects(policy, tenant, resets, &subjects).map(|built| built.counters(now_ms))
    };
    let counters_before = build(before.policy, before.tenant, before.resets)?;
    let fresh_start_ms = before.resets.fresh_start_ms(now_ms);
    let mut resets = before.resets.clone();
    // Subjects fall back on the rules for all, so those are decided first.
    for of_subjects in [false, true] {
        for (key, counter) in build(policy, tenant, &resets)? {
            if key.subject.is_some() != of_subjects
                || is_new_generation(before.policy, policy, &key, &counter)
            {
                continue;
            }
            let goes_on = counters_before.get(&key).filter(|old| old.shape == counter.shape);
            let start_ms = goes_on.map_or(fresh_start_ms, |old| old.start_ms);
            if start_ms != counter.start_ms {
                resets.decide(key, start_ms, now_ms);
            }
        }
    }
    Ok(resets)
}

/// The resets to store when every counter of the tenant starts at zero at `now_ms`, because its windows change at once.
pub fn resets_of_all(
    policy: &Policy,
    tenant: &TenantDefinition,
    resets: &Resets,
    now_ms: i64,
) -> Result<Resets, Dangling> {
    let start_ms = resets.fresh_start_ms(now_ms);
    let mut all = resets.clone();
    for key in TenantPolicy::new(policy, tenant, resets)?.counters(now_ms).into_keys() {
        all.decide(key, start_ms, now_ms);
    }
    Ok(all)
}

/// Whether the change itself began a new generation: the counter is then new for every tenant, without a reset.
fn is_new_generation(before: &Policy, after: &Policy, key: &CounterKey, counter: &CounterIdentity) -> bool {
    let number = |policy: &Policy| policy.generations.get(&key.counter, counter.shape).number;
    number(before) != number(after)
}
