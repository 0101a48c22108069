//! A change of the policy before it meets the stored policy: what it writes and deletes, and the checks that it must
//! pass.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::diff::{DefinitionKind, only};
use super::document::{Definitions, PolicyFile};
use super::validate::{Validator, repeated};
use crate::domain::ban::Ban;
use crate::domain::cost_defaults::CostDefaults;
use crate::domain::field_error::FieldError;
use crate::domain::ids::TenantId;
use crate::domain::limit::Limit;
use crate::domain::price::Price;
use crate::domain::rating::Dated;
use crate::domain::tenant::{Override, SubjectPlan, TenantDefinition};

/// What is deleted where a file does not name it: definitions of a kind, or items of a list in the file. Never tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prune {
    /// Meters that are not in the books.
    Meters,
    /// Operations.
    Operations,
    /// The cost defaults.
    CostDefaults,
    /// Limits: default ones, and those in the lists of plans and tenants.
    Limits,
    /// Plans that no tenant is on.
    Plans,
    /// Quotas of plans.
    Quotas,
    /// Subjects with a plan of their own.
    Subjects,
    /// Overrides of tenants.
    Overrides,
    /// Bans of tenants.
    Bans,
    /// Prices in the lists of plans and tenants.
    Prices,
    /// Discounts in the lists of plans and tenants.
    Discounts,
    /// Minimum commitments in the lists of plans and tenants.
    MinimumCommitments,
    /// Taxes of tenants.
    Taxes,
}

impl Prune {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Meters,
        Self::Operations,
        Self::CostDefaults,
        Self::Limits,
        Self::Plans,
        Self::Quotas,
        Self::Subjects,
        Self::Overrides,
        Self::Bans,
        Self::Prices,
        Self::Discounts,
        Self::MinimumCommitments,
        Self::Taxes,
    ];

    /// The word of the API and the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Meters => "meters",
            Self::Operations => "operations",
            Self::CostDefaults => "cost_defaults",
            Self::Limits => "limits",
            Self::Plans => "plans",
            Self::Quotas => "quotas",
            Self::Subjects => "subjects",
            Self::Overrides => "overrides",
            Self::Bans => "bans",
            Self::Prices => "prices",
            Self::Discounts => "discounts",
            Self::MinimumCommitments => "minimum_commitments",
            Self::Taxes => "taxes",
        }
    }

    fn of(kind: DefinitionKind) -> Option<Self> {
        match kind {
            DefinitionKind::Meter => Some(Self::Meters),
            DefinitionKind::Operation => Some(Self::Operations),
            DefinitionKind::CostDefaults => Some(Self::CostDefaults),
            DefinitionKind::Limit => Some(Self::Limits),
            DefinitionKind::Plan => Some(Self::Plans),
            DefinitionKind::Tenant => None,
        }
    }
}

/// A change of the policy before it meets the stored policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edit {
    file: PolicyFile,
    /// The place of each definition in the file.
    places: BTreeMap<(DefinitionKind, String), usize>,
    /// Whether it is a file: errors point into it, and its lists remove only what `prune` says. Otherwise it is one
    /// definition, which replaces the one before.
    is_file: bool,
    prune: BTreeSet<Prune>,
    delete: Option<(DefinitionKind, String)>,
}

impl Edit {
    /// Creates and replaces what `file` names. Of the kinds in `prune`, it deletes what `file` does not name.
    ///
    /// Errors: the file has a definition twice.
    pub fn apply(file: PolicyFile, prune: BTreeSet<Prune>) -> Result<Self, Vec<FieldError>> {
        let errors = repeated_ids(&file);
        if errors.is_empty() { Ok(Self { is_file: true, prune, ..Self::put(file) }) } else { Err(errors) }
    }

    /// Creates or replaces the one definition of `file`; errors point into that.
    pub fn put(file: PolicyFile) -> Self {
        Self { places: places(&file), file, ..Self::default() }
    }

    /// Deletes one definition.
    pub fn delete(kind: DefinitionKind, id: impl Into<String>) -> Self {
        Self { delete: Some((kind, id.into())), ..Self::default() }
    }

    /// Whether it writes or deletes tenants and nothing else.
    pub fn is_of_tenants_only(&self) -> bool {
        let file = &self.file;
        let writes_none = file.meters.is_empty()
            && file.cost_defaults.is_none()
            && file.operations.is_empty()
            && file.limits.is_empty()
            && file.plans.is_empty();
        let deletes_none = self.delete.as_ref().is_none_or(|(kind, _)| *kind == DefinitionKind::Tenant);
        writes_none && deletes_none && self.prune.is_empty()
    }

    /// The tenants that it writes or deletes.
    pub fn tenants(&self) -> BTreeSet<TenantId> {
        let written = self.file.tenants.iter().map(|tenant| tenant.id.clone());
        let deleted = self.delete.iter().filter(|(kind, _)| *kind == DefinitionKind::Tenant);
        written.chain(deleted.filter_map(|(_, id)| TenantId::parse(id).ok())).collect()
    }

    /// All definitions after it.
    pub fn after(&self, current: &Definitions) -> Definitions {
        let mut after = self.file.clone().merge_into(current.clone());
        if let Some((kind, id)) = &self.delete {
            after.remove(*kind, id);
        }
        let is_pruned = |kind| Prune::of(kind).is_some_and(|what| self.prune.contains(&what));
        let keeps = |kind: DefinitionKind, id: &str| !is_pruned(kind) || self.writes(kind, id);
        after.meters.retain(|id, _| keeps(DefinitionKind::Meter, id.as_str()));
        after.operations.retain(|id, _| keeps(DefinitionKind::Operation, id.as_str()));
        after.cost_defaults.take_if(|_| !keeps(DefinitionKind::CostDefaults, CostDefaults::ID));
        after.limits.retain(|id, _| keeps(DefinitionKind::Limit, id.as_str()));
        after.plans.retain(|id, _| keeps(DefinitionKind::Plan, id.as_str()));
        after
    }

    /// One tenant after it.
    pub fn tenant_after(
        &self,
        id: &TenantId,
        current: Option<&Arc<TenantDefinition>>,
    ) -> Option<Arc<TenantDefinition>> {
        if self.deletes(DefinitionKind::Tenant, id.as_str()) {
            return None;
        }
        let place = self.places.get(&(DefinitionKind::Tenant, id.to_string()));
        match place.and_then(|place| self.file.tenants.get(*place)) {
            Some(document) => Some(Arc::new(document.clone().merge(current.map(Arc::as_ref)))),
            None => current.cloned(),
        }
    }

    /// Whether it deletes this definition by its id.
    pub fn deletes(&self, kind: DefinitionKind, id: &str) -> bool {
        self.delete.as_ref().is_some_and(|(of, gone)| *of == kind && gone == id)
    }

    /// Whether it has a definition of this id to write.
    pub fn writes(&self, kind: DefinitionKind, id: &str) -> bool {
        self.places.contains_key(&(kind, id.to_owned()))
    }

    /// Whether it is a file that takes away the prices that its lists do not have.
    pub fn prunes_prices(&self) -> bool {
        self.is_file && self.prune.contains(&Prune::Prices)
    }

    /// Where errors of a definition point.
    pub fn pointer(&self, kind: DefinitionKind, id: &str) -> String {
        let list = kind.list_name();
        match self.places.get(&(kind, id.to_owned())) {
            Some(_) if !self.is_file => String::new(),
            _ if kind == DefinitionKind::CostDefaults => format!("/{list}"),
            Some(place) => format!("/{list}/{place}"),
            None => format!("/{list}/{id}"),
        }
    }
}

/// The checks of a change: everything that is wrong with what it writes, and everything else that was right before it
/// and is wrong after it.
///
/// Errors point into the file (`/plans/0/limits/2/capacity`), or into the one definition written
/// (`/limits/2/capacity`); errors of other definitions have their ids (`/plans/free/limits/2/meter`).
pub struct Checks<'a> {
    edit: &'a Edit,
    before: (&'a Definitions, Validator<'a>),
    after: (&'a Definitions, Validator<'a>),
}

impl<'a> Checks<'a> {
    /// The checks of a change from `before` to `after`; neither need contain the tenants.
    pub fn new(edit: &'a Edit, before: &'a Definitions, after: &'a Definitions) -> Self {
        Self { edit, before: (before, Validator::new(before)), after: (after, Validator::new(after)) }
    }

    /// Checks everything but tenants.
    pub fn shared(&self) -> Vec<FieldError> {
        let (before, after) = (self.before.0, self.after.0);
        let mut errors = self.of(DefinitionKind::Meter, &before.meters, &after.meters, Validator::meter);
        errors.extend(self.of(
            DefinitionKind::Operation,
            &before.operations,
            &after.operations,
            Validator::operation,
        ));
        let (old, new) = (only(before.cost_defaults.as_ref()), only(after.cost_defaults.as_ref()));
        errors.extend(self.of(DefinitionKind::CostDefaults, &old, &new, Validator::cost_defaults));
        errors.extend(self.of(DefinitionKind::Limit, &before.limits, &after.limits, Validator::limit));
        errors.extend(self.of(DefinitionKind::Plan, &before.plans, &after.plans, Validator::plan));
        for (id, plan) in &after.plans {
            if let Some(was) = before.plans.get(id).filter(|was| *was != plan) {
                let at = self.edit.pointer(DefinitionKind::Plan, id.as_str());
                let left_out = self
                    .left_out("limits", Prune::Limits, &was.limits, &plan.limits, |limit| {
                        limit.id.to_string()
                    })
                    .into_iter()
                    .chain(self.left_out("quotas", Prune::Quotas, &was.quotas, &plan.quotas, |quota| {
                        quota.meter.to_string()
                    }))
                    .chain(self.left_out("prices", Prune::Prices, &was.prices, &plan.prices, Price::name))
                    .chain(self.left_out_terms(&was.discounts, &plan.discounts, Prune::Discounts))
                    .chain(self.left_out_terms(
                        &was.minimum_commitments,
                        &plan.minimum_commitments,
                        Prune::MinimumCommitments,
                    ));
                errors.extend(left_out.map(|error| error.under(&at)));
            }
        }
        errors
    }

    /// What a list of a file would remove without being pruned.
    fn left_out<T>(
        &self,
        list: &str,
        what: Prune,
        before: &[T],
        after: &[T],
        name: impl Fn(&T) -> String,
    ) -> Vec<FieldError> {
        if !self.edit.is_file || self.edit.prune.contains(&what) {
            return Vec::new();
        }
        let kept: BTreeSet<String> = after.iter().map(&name).collect();
        let gone = before.iter().map(&name).filter(|name| !kept.contains(name));
        gone.map(|name| {
            let message = format!("would remove `{name}`: write it too, or prune {}", what.as_str());
            FieldError::new(format!("/{list}"), message)
        })
        .collect()
    }

    /// As [`Self::left_out`], of a list that is named as what is pruned of it.
    fn left_out_terms<T: Dated>(&self, before: &[T], after: &[T], what: Prune) -> Vec<FieldError> {
        self.left_out(what.as_str(), what, before, after, |each| {
            let (from, until) = each.days();
            let days = [from, until].map(|day| day.map_or_else(|| "..".to_owned(), |day| day.to_string()));
            format!("{} {} {}", each.name(), days[0], days[1])
        })
    }

    fn of<Id: Ord + Borrow<str>, T>(
        &self,
        kind: DefinitionKind,
        before: &BTreeMap<Id, Arc<T>>,
        after: &BTreeMap<Id, Arc<T>>,
        check: impl Fn(&Validator<'a>, &T) -> Vec<FieldError>,
    ) -> Vec<FieldError> {
        let errors_of = |(id, definition): (&Id, &Arc<T>)| {
            let mut errors = check(&self.after.1, definition);
            if let (false, false, Some(was)) =
                (errors.is_empty(), self.edit.writes(kind, id.borrow()), before.get(id.borrow()))
            {
                let known = check(&self.before.1, was);
                errors.retain(|error| !known.contains(error));
            }
            let at = self.edit.pointer(kind, id.borrow());
            errors.into_iter().map(move |error| error.under(&at))
        };
        after.iter().flat_map(errors_of).collect()
    }

    /// Checks one tenant.
    pub fn tenant(&self, before: Option<&TenantDefinition>, after: &TenantDefinition) -> Vec<FieldError> {
        let mut errors = self.after.1.tenant(after, before);
        let id = after.id.as_str();
        if let (false, false, Some(was)) =
            (errors.is_empty(), self.edit.writes(DefinitionKind::Tenant, id), before)
        {
            let known = self.before.1.tenant(was, Some(was));
            errors.retain(|error| !known.contains(error));
        }
        if let Some(was) = before.filter(|was| *was != after) {
            let of_limits = |limit: &Arc<Limit>| limit.id.to_string();
            errors.extend(self.left_out("limits", Prune::Limits, &was.limits, &after.limits, of_limits));
            let of_subjects = |named: &SubjectPlan| format!("{}:{}", named.kind, named.id);
            errors.extend(self.left_out(
                "subjects",
                Prune::Subjects,
                &was.subjects,
                &after.subjects,
                of_subjects,
            ));
            let of_overrides = |each: &Override| each.id.to_string();
            errors.extend(self.left_out(
                "overrides",
                Prune::Overrides,
                &was.overrides,
                &after.overrides,
                of_overrides,
            ));
            errors.extend(
                self.left_out("bans", Prune::Bans, &was.bans, &after.bans, |ban: &Ban| ban.id.to_string()),
            );
            errors.extend(self.left_out("prices", Prune::Prices, &was.prices, &after.prices, Price::name));
            errors.extend(self.left_out_terms(&was.discounts, &after.discounts, Prune::Discounts));
            let (old, new) = (&was.minimum_commitments, &after.minimum_commitments);
            errors.extend(self.left_out_terms(old, new, Prune::MinimumCommitments));
            errors.extend(self.left_out_terms(&was.taxes, &after.taxes, Prune::Taxes));
        }
        let at = self.edit.pointer(DefinitionKind::Tenant, id);
        errors.into_iter().map(|error| error.under(&at)).collect()
    }

    /// Checks everything, if the definitions contain the tenants.
    pub fn all(&self) -> Vec<FieldError> {
        let mut errors = self.shared();
        for (id, tenant) in &self.after.0.tenants {
            let was = self.before.0.tenants.get(id).map(Arc::as_ref);
            errors.extend(self.tenant(was, tenant));
        }
        errors
    }
}

fn repeated_ids(file: &PolicyFile) -> Vec<FieldError> {
    let mut errors = repeated("/meters", "/id", file.meters.iter().map(|meter| &meter.id));
    errors.extend(repeated("/operations", "/id", file.operations.iter().map(|operation| &operation.id)));
    errors.extend(repeated("/limits", "/id", file.limits.iter().map(|limit| &limit.id)));
    errors.extend(repeated("/plans", "/id", file.plans.iter().map(|plan| &plan.id)));
    errors.extend(repeated("/tenants", "/id", file.tenants.iter().map(|tenant| &tenant.id)));
    errors
}

fn places(file: &PolicyFile) -> BTreeMap<(DefinitionKind, String), usize> {
    let mut places = BTreeMap::new();
    let mut note = |kind: DefinitionKind, ids: Vec<String>| {
        for (index, id) in ids.into_iter().enumerate() {
            places.entry((kind, id)).or_insert(index);
        }
    };
    note(DefinitionKind::Meter, file.meters.iter().map(|meter| meter.id.to_string()).collect());
    note(DefinitionKind::Operation, file.operations.iter().map(|each| each.id.to_string()).collect());
    let defaults = file.cost_defaults.iter().map(|_| CostDefaults::ID.to_owned());
    note(DefinitionKind::CostDefaults, defaults.collect());
    note(DefinitionKind::Limit, file.limits.iter().map(|limit| limit.id.to_string()).collect());
    note(DefinitionKind::Plan, file.plans.iter().map(|plan| plan.id.to_string()).collect());
    note(DefinitionKind::Tenant, file.tenants.iter().map(|tenant| tenant.id.to_string()).collect());
    places
}
