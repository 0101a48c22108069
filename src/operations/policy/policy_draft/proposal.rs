//! A change as a proposal: what it would make of any tenant's policy.

use std::collections::HashMap;
use std::sync::Arc;

use super::Draft;
use crate::domain::decision::DecidedSubject;
use crate::domain::ids::Subject;
use crate::domain::period::Calendars;
use crate::domain::policy::counter::Resets;
use crate::domain::policy::edit::Edit;
use crate::domain::policy::{Policy, TenantPolicy};
use crate::domain::tenant::TenantDefinition;
use crate::domain::trial::Terms;
use crate::ledger::StoredTenant;
use crate::operations::error::Answer;
use crate::operations::policy_store::stored_json;

/// A change that was checked and is not made.
pub(in crate::operations::policy) struct Proposal {
    edit: Edit,
    before: Policy,
    then: Arc<Policy>,
}

impl Draft {
    /// The change as a proposal.
    pub(in crate::operations::policy) fn into_proposal(self) -> Proposal {
        Proposal { edit: self.edit, before: self.before, then: Arc::new(self.then) }
    }
}

impl Proposal {
    /// What a tenant's decisions are tried under; none where the tenant cannot be resolved, or goes. `name` says what
    /// a subject is called in decisions.
    pub(in crate::operations::policy) fn terms(
        &self,
        stored: StoredTenant,
        name: impl Fn(&Subject) -> DecidedSubject,
        denies_without_limit: bool,
    ) -> Answer<Option<Terms>> {
        let old: Arc<TenantDefinition> = Arc::new(stored_json(&stored.definition)?);
        let Some(new) = self.edit.tenant_after(&stored.id, Some(&old)) else { return Ok(None) };
        // Counters that started again are one counter here: nothing is counted before the record begins.
        let resets = Resets::default();
        let before = TenantPolicy::new(&self.before, &old, &resets);
        let then = TenantPolicy::new(&self.then, &new, &resets);
        let (Ok(before), Ok(then)) = (before, then) else { return Ok(None) };
        let own = before.own_subjects().chain(then.own_subjects());
        let subjects: HashMap<_, _> = own.map(|subject| (name(subject), subject.clone())).collect();
        let calendars = Calendars::of(stored.calendars, old.calendar());
        let policy = self.then.clone();
        Ok(Some(Terms { before, then, policy, calendars, subjects, denies_without_limit }))
    }
}
