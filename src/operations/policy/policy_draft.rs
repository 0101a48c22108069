//! A change of the policy computed on what is stored: it is checked and has every row to write.

mod light_meters;
mod price_gaps;
mod proposal;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::calendars::calendar_change;
use crate::domain::currencies::Currencies;
use crate::domain::field_error::FieldError;
use crate::domain::ids::{MeterId, PlanId, TenantId};
use crate::domain::meter::Meter;
use crate::domain::money::Currency;
use crate::domain::period::{Calendars, DatedCalendar, WindowKind};
use crate::domain::policy::counter::{GenerationRow, Resets, generations_after};
use crate::domain::policy::diff::{Change, DefinitionKind, changes, digest};
use crate::domain::policy::document::Definitions;
use crate::domain::policy::edit::{Checks, Edit};
use crate::domain::policy::resets::{TenantBefore, resets_of_all, tenant_resets_after};
use crate::domain::policy::{Dangling, Policy};
use crate::domain::price::{Price, currency_of};
use crate::domain::tenant::TenantDefinition;
use crate::ledger::{
    CalendarChange, CurrencyChange, Expected, Generation, NewPlan, PolicyAction, PolicyChange,
    PolicyVersions, PolicyWrite, StoredObject, StoredTenant, TenantSince,
};
use crate::operations::error::{Answer, OperationError};
use crate::operations::policy_store::stored_json;

pub(super) use proposal::Proposal;

/// A change of the policy, computed on what is stored.
pub(in crate::operations) struct Draft {
    edit: Edit,
    actor: String,
    /// The digest of the changes that were agreed to, if any.
    agreed: Option<String>,
    now_ms: i64,
    base: PolicyVersions,
    /// The policy before and after, without tenants.
    before: Policy,
    then: Policy,
    /// The versions of the stored objects except tenants; unknown, and not needed, where only tenants change.
    versions: BTreeMap<(DefinitionKind, String), u64>,
    kept: BTreeMap<TenantId, Kept>,
    /// Those tenants for which nothing is booked.
    unbooked: BTreeSet<TenantId>,
    outcomes: BTreeMap<TenantId, Outcome>,
    fresh: Vec<GenerationRow>,
}

/// A tenant as it is stored.
struct Kept {
    version: u64,
    calendars: Vec<DatedCalendar>,
    currencies: Currencies,
    /// None where it cannot be decoded.
    read: Option<(Arc<TenantDefinition>, Resets)>,
}

/// What the change does to a tenant.
enum Outcome {
    Untouched,
    Written(PolicyChange),
    Wrong(Vec<FieldError>),
    /// The stored tenant cannot be resolved, so it stays as it is.
    Unresolved(String),
}

/// The result of a change.
pub(in crate::operations) struct Settled {
    /// What changes, without those tenants that the change does not name.
    pub(in crate::operations) changes: Vec<Change>,
    /// The definitions afterwards, without those tenants that the change does not name.
    pub(in crate::operations) definitions: Definitions,
    /// The calendars of the tenants that the change names and does not create.
    pub(in crate::operations) calendars: BTreeMap<TenantId, Calendars>,
    /// The currencies of the same tenants.
    pub(in crate::operations) currencies: BTreeMap<TenantId, Currencies>,
    /// Tenants that were skipped because what is stored of them cannot be resolved.
    pub(super) unresolved: Vec<(TenantId, String)>,
}

impl Draft {
    /// Begins with everything but tenants; the tenants that the change concerns are added afterwards.
    pub(in crate::operations) fn new(
        edit: Edit,
        actor: String,
        (base, before): (PolicyVersions, Policy),
        objects: &[StoredObject],
        now_ms: i64,
    ) -> Self {
        let then =
            Policy::new(before.version, edit.after(before.definitions()), before.generations().clone());
        let versions =
            objects.iter().map(|object| ((object.kind, object.id.clone()), object.version)).collect();
        Self {
            edit,
            actor,
            agreed: None,
            now_ms,
            base,
            before,
            then,
            versions,
            kept: BTreeMap::new(),
            unbooked: BTreeSet::new(),
            outcomes: BTreeMap::new(),
            fresh: Vec::new(),
        }
    }

    /// Makes the change only if it has this digest.
    pub(super) fn agree_to(&mut self, digest: String) {
        self.agreed = Some(digest);
    }

    /// The policy it was prepared on.
    pub(in crate::operations) fn base(&self) -> PolicyVersions {
        self.base
    }

    /// Whether it concerns tenants that it does not name, through their counters or what they refer to.
    pub(super) fn concerns_all_tenants(&self) -> bool {
        let (before, then) = (self.before.definitions(), self.then.definitions());
        let counts_otherwise = |(id, meter): (&MeterId, &Arc<Meter>)| {
            let differs = |then: &Arc<Meter>| (then.decimals, then.booked) != (meter.decimals, meter.booked);
            then.meters.get(id).is_none_or(differs)
        };
        before.limits != then.limits
            || before.plans != then.plans
            || before.operations.keys().any(|id| !then.operations.contains_key(id))
            || before.meters.iter().any(counts_otherwise)
    }

    /// Adds a tenant as it was read.
    pub(in crate::operations) fn keep(&mut self, stored: StoredTenant) {
        let read = stored_json(&stored.definition)
            .and_then(|definition| Ok((Arc::new(definition), stored_json(&stored.counter_resets)?)));
        let kept = Kept {
            version: stored.version,
            calendars: stored.calendars,
            currencies: stored.currencies.into(),
            read: read.ok(),
        };
        self.kept.insert(stored.id, kept);
    }

    /// The tenants that it gives another calendar or currency.
    pub(super) fn with_other_periods(&self) -> Vec<TenantId> {
        let has_other =
            |id: &TenantId| self.calendar_change(id).is_some() || self.currency_change(id).is_some();
        self.edit.tenants().into_iter().filter(has_other).collect()
    }

    /// Records that nothing is booked for this tenant, so that its calendar and currency may change at once.
    pub(super) fn note_unbooked(&mut self, tenant: TenantId) {
        self.unbooked.insert(tenant);
    }

    fn calendar_change(&self, id: &TenantId) -> Option<CalendarChange> {
        let kept = self.kept.get(id)?;
        let (old, _) = kept.read.as_ref()?;
        let new = self.edit.tenant_after(id, Some(old))?;
        let before = Calendars::of(kept.calendars.clone(), old.calendar());
        let asked = (old.calendar() != new.calendar()).then(|| new.calendar())?;
        Some(calendar_change(id, &before, asked, self.unbooked.contains(id), self.now_ms))
    }

    /// None also where it pays in none before: then the open period is paid in the one after.
    fn currency_change(&self, id: &TenantId) -> Option<CurrencyChange> {
        let kept = self.kept.get(id)?;
        let (old, _) = kept.read.as_ref()?;
        let after = self.edit.tenant_after(id, Some(old))?.currency;
        if old.currency == after {
            return None;
        }
        let change = |before, from_ms| CurrencyChange { tenant: id.clone(), before, after, from_ms };
        if self.unbooked.contains(id) {
            return Some(change(None, None));
        }
        let before = paid_in(&self.before, old)?;
        let calendars = Calendars::of(kept.calendars.clone(), old.calendar());
        let next_start_ms = calendars.window(WindowKind::Period, self.now_ms).end_ms;
        Some(change(Some(before), Some(next_start_ms)))
    }

    /// The plan that it puts a tenant on, where the tenant had another one or none.
    fn new_plan(&self, id: &TenantId) -> Option<NewPlan> {
        let (old, _) = self.kept.get(id)?.read.as_ref()?;
        let new = self.edit.tenant_after(id, Some(old))?;
        let plan = new.plan.clone().filter(|_| new.plan != old.plan)?;
        Some(NewPlan { tenant: id.clone(), plan, plan_from: new.plan_from })
    }

    /// Finds which counters start again at zero. Every tenant that the change concerns must have been added.
    pub(super) fn raise_generations(&mut self) {
        let (mut before, mut after) = (self.before.definitions().clone(), self.then.definitions().clone());
        let read = |kept: &Kept| kept.read.as_ref().map(|(definition, _)| definition.clone());
        before.tenants = self.kept.iter().filter_map(|(id, kept)| Some((id.clone(), read(kept)?))).collect();
        let ids: BTreeSet<TenantId> = self.kept.keys().cloned().chain(self.edit.tenants()).collect();
        after.tenants = ids
            .into_iter()
            .filter_map(|id| {
                let then = self.edit.tenant_after(&id, before.tenants.get(&id))?;
                Some((id, then))
            })
            .collect();
        self.fresh = generations_after(&before, &after, self.before.generations(), self.now_ms);
        let mut generations = self.before.generations().clone();
        generations.extend(self.fresh.iter().cloned());
        self.then = Policy::new(self.before.version, after, generations);
    }

    /// The tenants that the change concerns.
    pub(in crate::operations) fn tenants(&self) -> Vec<TenantId> {
        self.kept.keys().cloned().chain(self.edit.tenants()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Computes what the change does to these tenants.
    pub(super) fn work_out(&mut self, tenants: &[TenantId]) -> Answer<()> {
        let checks = Checks::new(&self.edit, self.before.definitions(), self.then.definitions());
        let outcomes = tenants.iter().map(|id| Ok((id.clone(), self.outcome(&checks, id)?)));
        let outcomes = outcomes.collect::<Answer<Vec<_>>>()?;
        self.outcomes.extend(outcomes);
        Ok(())
    }

    fn outcome(&self, checks: &Checks<'_>, id: &TenantId) -> Answer<Outcome> {
        let kept = self.kept.get(id);
        let read = kept.and_then(|kept| kept.read.as_ref());
        let old = read.map(|(definition, _)| definition);
        let Some(new) = self.edit.tenant_after(id, old) else {
            return Ok(match kept {
                Some(kept) if self.edit.deletes(DefinitionKind::Tenant, id.as_str()) => {
                    let (id, expected) = (id.to_string(), Expected::Version(kept.version));
                    let action = PolicyAction::Delete;
                    Outcome::Written(PolicyChange { kind: DefinitionKind::Tenant, id, expected, action })
                }
                Some(_) => Outcome::Unresolved("what is stored of it cannot be decoded".into()),
                None => Outcome::Untouched,
            });
        };
        let errors = checks.tenant(old.map(Arc::as_ref), &new);
        if !errors.is_empty() {
            return Ok(Outcome::Wrong(errors));
        }
        let resets = match read {
            // A tenant that cannot be decoded, or did not exist, has no counters that could go on.
            None => Resets::default(),
            Some((old, resets)) => {
                let before = TenantBefore { policy: &self.before, tenant: old, resets };
                let then = tenant_resets_after(before, &self.then, &new, self.now_ms);
                match then.and_then(|then| self.resets_by_calendar(&new, then)) {
                    Ok(then) if then == *resets && *old == new => return Ok(Outcome::Untouched),
                    Ok(then) => then,
                    Err(_) if self.edit.writes(DefinitionKind::Tenant, id.as_str()) => resets.clone(),
                    Err(dangling) => return Ok(Outcome::Unresolved(dangling.to_string())),
                }
            }
        };
        Ok(Outcome::Written(PolicyChange {
            kind: DefinitionKind::Tenant,
            id: id.to_string(),
            expected: kept.map_or(Expected::Absent, |kept| Expected::Version(kept.version)),
            action: PolicyAction::Put {
                definition: to_json(&new)?,
                archived: new.archived,
                counter_resets: Some(to_json(&resets)?),
            },
        }))
    }

    /// Where the calendar changes at once, every counter starts again at zero, so that old windows at the gate have no
    /// effect.
    fn resets_by_calendar(&self, new: &TenantDefinition, resets: Resets) -> Result<Resets, Dangling> {
        match self.calendar_change(&new.id) {
            Some(CalendarChange { calendars: None, .. }) => {
                resets_of_all(&self.then, new, &resets, self.now_ms)
            }
            _ => Ok(resets),
        }
    }

    /// The version of a definition before the change; none where there is none.
    pub(in crate::operations) fn version(&self, kind: DefinitionKind, id: &str) -> Option<u64> {
        match kind {
            DefinitionKind::Tenant => Some(self.kept.get(id)?.version),
            _ => self.versions.get(&(kind, id.to_owned())).copied(),
        }
    }

    /// Whether anything would be written.
    pub(super) fn changes_anything(&self) -> bool {
        let is_written = |outcome: &Outcome| matches!(outcome, Outcome::Written(_));
        !self.fresh.is_empty()
            || self.before.definitions() != self.then.definitions()
            || self.outcomes.values().any(is_written)
    }

    /// Everything that is wrong with the change.
    pub(in crate::operations) fn errors(&self) -> Vec<FieldError> {
        let checks = Checks::new(&self.edit, self.before.definitions(), self.then.definitions());
        let mut errors = checks.shared();
        for outcome in self.outcomes.values() {
            if let Outcome::Wrong(wrong) = outcome {
                errors.extend(wrong.iter().cloned());
            }
        }
        errors.extend(self.price_gaps());
        errors.extend(self.recounted_light_meters());
        errors
    }

    /// The meters that must not have been used: the change deletes them, or alters what the first use fixes. Each with
    /// what is wrong otherwise.
    pub(super) fn meters_that_must_be_unused(&self) -> Vec<(MeterId, Vec<FieldError>)> {
        let (before, then) = (&self.before.definitions().meters, &self.then.definitions().meters);
        let fixed = before.iter().map(|(id, old)| {
            let errors = match then.get(id) {
                Some(new) => old.change_needs_unused(new),
                None => vec![FieldError::new("", "is in the books; set `archived` instead of deleting it")],
            };
            let at = self.edit.pointer(DefinitionKind::Meter, id.as_str());
            (id.clone(), errors.into_iter().map(|error| error.under(&at)).collect())
        });
        fixed.filter(|(_, errors): &(_, Vec<_>)| !errors.is_empty()).collect()
    }

    /// The plans that it archives or deletes: nobody can be put on them any more.
    pub(super) fn withdrawn_plans(&self) -> Vec<PlanId> {
        let then = &self.then.definitions().plans;
        let is_served = |id: &PlanId| then.get(id).is_some_and(|plan| !plan.archived);
        let before = self.before.definitions().plans.values().filter(|plan| !plan.archived);
        before.map(|plan| &plan.id).filter(|id| !is_served(id)).cloned().collect()
    }

    /// The tenants that it deletes.
    pub(super) fn deleted_tenants(&self) -> Vec<TenantId> {
        let is_deleted = |id: &TenantId| self.edit.deletes(DefinitionKind::Tenant, id.as_str());
        self.kept.keys().filter(|id| is_deleted(id)).cloned().collect()
    }

    /// The change as it is written, under the lock against other changes. `since` are the tenants that have changed
    /// meanwhile.
    pub(super) fn finish(mut self, since: Vec<TenantSince>) -> Answer<(PolicyWrite, Settled)> {
        if !since.is_empty() {
            let mut anew: Vec<TenantId> = since.iter().map(|each| each.id.clone()).collect();
            for each in since {
                self.kept.remove(&each.id);
                self.outcomes.remove(&each.id);
                each.stored.into_iter().for_each(|stored| self.keep(stored));
            }
            let fresh = std::mem::take(&mut self.fresh);
            self.raise_generations();
            if fresh != self.fresh {
                anew = self.tenants();
            }
            self.work_out(&anew)?;
        }
        let errors = self.errors();
        if !errors.is_empty() {
            return Err(OperationError::Invalid(errors));
        }
        let altered = self.meters_that_must_be_unused().into_iter().map(|(meter, _)| meter);
        let mut write = PolicyWrite {
            unused_meters: altered.filter(|id| self.then.definitions().meters.contains_key(id)).collect(),
            changes: self.shared_changes()?,
            generations: self.fresh.drain(..).map(generation_row).collect(),
            calendars: self.edit.tenants().iter().filter_map(|id| self.calendar_change(id)).collect(),
            currencies: self.edit.tenants().iter().filter_map(|id| self.currency_change(id)).collect(),
            plans: self.edit.tenants().iter().filter_map(|id| self.new_plan(id)).collect(),
            actor: std::mem::take(&mut self.actor),
            at_ms: self.now_ms,
        };
        let settled = self.settled();
        if self.agreed.is_some_and(|agreed| agreed != digest(&settled.changes)) {
            return Err(OperationError::DifferenceMoved);
        }
        let tenants = self.outcomes.into_values().filter_map(|outcome| match outcome {
            Outcome::Written(change) => Some(change),
            _ => None,
        });
        write.changes.extend(tenants);
        Ok((write, settled))
    }

    /// The result of the change, as far as it is computed.
    pub(in crate::operations) fn settled(&self) -> Settled {
        let (mut before, mut definitions) =
            (self.before.definitions().clone(), self.then.definitions().clone());
        let (mut calendars, mut currencies) = (BTreeMap::new(), BTreeMap::new());
        for id in self.edit.tenants() {
            let old = self.kept.get(&id).and_then(|kept| Some(&kept.read.as_ref()?.0));
            if let Some(tenant) = self.edit.tenant_after(&id, old) {
                if let Some(kept) = self.kept.get(&id) {
                    let changed = self.calendar_change(&id).and_then(|change| change.calendars);
                    let stay = || Calendars::of(kept.calendars.clone(), tenant.calendar());
                    calendars.insert(id.clone(), changed.unwrap_or_else(stay));
                    currencies.insert(id.clone(), self.currencies_after(&id, kept));
                }
                definitions.tenants.insert(id.clone(), tenant);
            }
            if let Some(tenant) = old {
                before.tenants.insert(id, tenant.clone());
            }
        }
        let changes = changes(&before, &definitions);
        let unresolved = self.outcomes.iter().filter_map(|(id, outcome)| match outcome {
            Outcome::Unresolved(why) => Some((id.clone(), why.clone())),
            _ => None,
        });
        Settled { changes, definitions, calendars, currencies, unresolved: unresolved.collect() }
    }

    fn currencies_after(&self, id: &TenantId, kept: &Kept) -> Currencies {
        match self.currency_change(id) {
            Some(CurrencyChange { before, after, from_ms: Some(from_ms), .. }) => {
                kept.currencies.changed(before, after, from_ms)
            }
            Some(_) => Currencies::default(),
            None => kept.currencies.clone(),
        }
    }

    /// The objects except tenants that are written, each against the version at which it was read.
    fn shared_changes(&self) -> Answer<Vec<PolicyChange>> {
        let (before, then) = (self.before.definitions(), self.then.definitions());
        let changed = changes(before, then).into_iter().map(|change| {
            let action = match then.json(change.kind, &change.id).transpose().map_err(internal)? {
                None => PolicyAction::Delete,
                Some(definition) => {
                    let archived = definition.get("archived").and_then(Value::as_bool).unwrap_or(false);
                    PolicyAction::Put { definition, archived, counter_resets: None }
                }
            };
            let version = self.version(change.kind, &change.id);
            let expected = version.map_or(Expected::Absent, Expected::Version);
            Ok(PolicyChange { kind: change.kind, id: change.id, expected, action })
        });
        changed.collect()
    }
}

/// The currency that a tenant pays in under this policy.
fn paid_in(policy: &Policy, tenant: &TenantDefinition) -> Option<Currency> {
    let prices = plan_prices(policy, tenant).iter().chain(&tenant.prices);
    currency_of(tenant.currency, prices).ok().flatten()
}

/// The prices of a tenant's plan.
fn plan_prices<'a>(policy: &'a Policy, tenant: &TenantDefinition) -> &'a [Price] {
    let plan = tenant.plan.as_ref().and_then(|plan| policy.plan(plan));
    plan.map_or(&[], |plan| &plan.prices)
}

fn generation_row(row: GenerationRow) -> Generation {
    Generation {
        limit_id: row.counter.into(),
        shape: row.shape.to_string(),
        generation: row.generation.number.into(),
        since_ms: row.generation.since_ms,
    }
}

pub(super) fn to_json<T: serde::Serialize + ?Sized>(value: &T) -> Answer<Value> {
    serde_json::to_value(value).map_err(internal)
}

pub(in crate::operations) fn internal(error: impl std::fmt::Display) -> OperationError {
    OperationError::Internal(error.to_string())
}
