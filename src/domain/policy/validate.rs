//! Everything that is wrong with a definition among the others, as pointers into it and advice.

mod billing;
mod unfit;
mod without_gate;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use super::document::Definitions;
use crate::domain::amount::{Amount, Decimals};
use crate::domain::ban::{BANS_MAX, Ban};
use crate::domain::cost_defaults::CostDefaults;
use crate::domain::endpoint::EndpointPattern;
use crate::domain::factor::Factor;
use crate::domain::field_error::FieldError;
use crate::domain::ids::{LimitId, MeterId, OperationId, PlanId, SubjectKind};
use crate::domain::limit::{Class, Kind, Limit, Scope};
use crate::domain::limited::Limited;
use crate::domain::meter::{Meter, is_label};
use crate::domain::operation::Operation;
use crate::domain::plan::{MEASURED, PlanDefinition, Quota, QuotaMode, ROLLOVER_PERIODS_MAX};
use crate::domain::tenant::{OVERRIDES_MAX, Override, OverrideLevel, TenantDefinition};
use billing::terms;
use unfit::{unfit_for_all_tenants, unfit_for_anomaly, unfit_for_quota, unfit_for_slots};
use without_gate::unfit_without_gate;

/// The longest message and reason, in characters.
const TEXT_MAX: usize = 500;

/// Why a limit of class quota cannot be in shadow.
const OF_QUOTA_IN_SHADOW: &str = "must not be shadow for a limit of class quota, which is held against all that is \
    booked; give it the class rate";

/// Checks definitions against all others. Pointers are relative to the definition checked.
pub struct Validator<'a> {
    definitions: &'a Definitions,
    /// The definitions of each limit id that are not a tenant's own.
    shared: HashMap<&'a LimitId, Vec<&'a Limit>>,
    /// The operations of each pattern of an endpoint; an archived one matches nothing.
    patterns: HashMap<&'a EndpointPattern, Vec<&'a OperationId>>,
}

impl<'a> Validator<'a> {
    /// Validates definitions among `definitions`, which are those after the change.
    pub fn new(definitions: &'a Definitions) -> Self {
        let mut shared: HashMap<&LimitId, Vec<&Limit>> = HashMap::new();
        let in_plans = definitions.plans.values().flat_map(|plan| &plan.limits);
        for limit in definitions.limits.values().chain(in_plans) {
            shared.entry(&limit.id).or_default().push(limit);
        }
        let mut patterns: HashMap<&EndpointPattern, Vec<&OperationId>> = HashMap::new();
        for operation in definitions.operations.values().filter(|operation| !operation.archived) {
            for pattern in &operation.endpoints {
                patterns.entry(pattern).or_default().push(&operation.id);
            }
        }
        Self { definitions, shared, patterns }
    }

    /// Everything that is wrong with a meter.
    pub fn meter(&self, meter: &Meter) -> Vec<FieldError> {
        meter.errors()
    }

    /// Everything that is wrong with an operation.
    pub fn operation(&self, operation: &Operation) -> Vec<FieldError> {
        let mut errors = operation.errors(|meter| self.definitions.decimals(meter));
        for (index, cost) in operation.costs.iter().enumerate() {
            if cost.estimate.is_some() && self.is_light(&cost.meter) {
                let message =
                    format!("is learned from the books, and the meter `{}` is not booked", cost.meter);
                errors.push(FieldError::new(format!("/costs/{index}/estimate"), message));
            }
        }
        for (index, pattern) in operation.endpoints.iter().enumerate() {
            let same = self.patterns.get(pattern).filter(|_| !operation.archived);
            let others = same.into_iter().flatten().filter(|id| ***id != operation.id);
            let repeated = operation.endpoints[..index].contains(pattern).then_some(&operation.id);
            if let Some(other) = others.copied().chain(repeated).next() {
                let message = format!("is a pattern of the operation `{other}` already");
                errors.push(FieldError::new(format!("/match/{index}"), message));
            }
        }
        errors
    }

    /// Everything wrong with the cost defaults.
    pub fn cost_defaults(&self, defaults: &CostDefaults) -> Vec<FieldError> {
        defaults.errors(|meter| self.definitions.decimals(meter))
    }

    /// Everything that is wrong with a limit.
    pub fn limit(&self, limit: &Limit) -> Vec<FieldError> {
        let mut errors = self.limited(&limit.limited);
        if let Some(decimals) = self.decimals_of(limit) {
            let wrong = limit.capacity.to_units(decimals).err();
            errors.extend(wrong.map(|error| FieldError::new("/capacity", error.to_string())));
            errors.extend(limit.algorithm.errors(limit.capacity, decimals));
        }
        match (limit.scope, &limit.subject_kind) {
            (Scope::Subject, None) => {
                errors
                    .push(FieldError::new("/subject_kind", "must say which kind when the scope is subject"));
            }
            (Scope::Tenant | Scope::Global, Some(_)) => {
                let message = "must be left out unless the scope is subject";
                errors.push(FieldError::new("/subject_kind", message));
            }
            _ => {}
        }
        errors.extend(unfit_for_all_tenants(limit));
        errors.extend(unfit_for_anomaly(limit));
        let operations = limit.operations.as_deref();
        if operations.is_some_and(<[_]>::is_empty) {
            errors.push(FieldError::new("/operations", "must name an operation, or be left out for all"));
        }
        errors.extend(repeated("/operations", "", operations.into_iter().flatten()));
        for (index, id) in operations.into_iter().flatten().enumerate() {
            if !self.definitions.operations.contains_key(id) {
                errors.push(FieldError::new(format!("/operations/{index}"), format!("no operation `{id}`")));
            }
        }
        errors.extend(unfit_for_quota(limit));
        errors.extend(unfit_without_gate(limit, self.decimals_of(limit)));
        let light = limit.limited.meters().find(|meter| self.is_light(meter));
        if let Some(meter) = light.filter(|_| limit.class == Class::Quota) {
            let message = format!("must be rate: the meter `{meter}` is not booked");
            errors.push(FieldError::new("/class", message));
        }
        if limit.from.zip(limit.until).is_some_and(|(from, until)| from >= until) {
            errors.push(FieldError::new("/until", "must be after from"));
        }
        errors.extend(unfit_for_slots(limit));
        errors.extend(text("/message", limit.message.as_deref()));
        errors
    }

    /// Everything that is wrong with a plan.
    pub fn plan(&self, plan: &PlanDefinition) -> Vec<FieldError> {
        let mut errors = self.limits(&plan.limits);
        errors.extend(repeated("/quotas", "/meter", plan.quotas.iter().map(|quota| &quota.meter)));
        for (index, quota) in plan.quotas.iter().enumerate() {
            let at = format!("/quotas/{index}");
            errors.extend(self.quota(quota).into_iter().map(|error| error.under(&at)));
        }
        errors.extend(self.prices(&plan.prices));
        errors.extend(terms("/discounts", "/id", &plan.discounts));
        errors.extend(terms("/minimum_commitments", "/currency", &plan.minimum_commitments));
        errors
    }

    fn quota(&self, quota: &Quota) -> Vec<FieldError> {
        let Some(decimals) = self.definitions.decimals(&quota.meter) else {
            return vec![FieldError::new("/meter", format!("no meter `{}`", quota.meter))];
        };
        let mut errors = Vec::new();
        if self.is_light(&quota.meter) {
            let message = format!("the meter `{}` is not booked, so it can have no quota", quota.meter);
            errors.push(FieldError::new("/meter", message));
        }
        let optional = [
            ("/max_rollover", quota.max_rollover),
            ("/min_rollover", quota.min_rollover),
            ("/overdraft", quota.overdraft),
        ];
        let named = optional.into_iter().filter_map(|(pointer, amount)| Some((pointer, amount?)));
        for (pointer, amount) in [("/included", quota.included)].into_iter().chain(named) {
            match amount.to_units(decimals) {
                Ok(units) if quota.mode == QuotaMode::Soft && units > MEASURED => {
                    let most = MEASURED.to_amount(decimals);
                    let message = format!("must be at most {most}, because the quota only measures");
                    errors.push(FieldError::new(pointer, message));
                }
                Ok(_) => {}
                Err(error) => errors.push(FieldError::new(pointer, error.to_string())),
            }
        }
        if quota.mode != QuotaMode::Overdraft && quota.overdraft.is_some_and(|amount| !amount.is_zero()) {
            errors.push(FieldError::new("/overdraft", "is for a quota of mode `overdraft`"));
        }
        errors.extend(rollover(quota));
        let percents = quota.notices_percent.as_deref().unwrap_or_default();
        if let Some(at) = percents.iter().position(|percent| !(1..=100).contains(percent)) {
            errors.push(FieldError::new(format!("/notices_percent/{at}"), "must be 1 to 100"));
        }
        errors.extend(repeated("/notices_percent", "", percents.iter()));
        errors
    }

    /// Everything that is wrong with a tenant; with `before`, it may stay on an archived plan.
    pub fn tenant(&self, tenant: &TenantDefinition, before: Option<&TenantDefinition>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(plan) = &tenant.plan {
            let stays = before.is_some_and(|before| before.plan.as_ref() == Some(plan));
            errors.extend(self.plan_reference("/plan", plan, stays));
        }
        errors.extend(self.limits(&tenant.limits));
        errors.extend(repeated(
            "/subjects",
            "",
            tenant.subjects.iter().map(|named| (&named.kind, &named.id)),
        ));
        for (index, named) in tenant.subjects.iter().enumerate() {
            let stays = before.is_some_and(|before| before.subjects.contains(named));
            errors.extend(self.plan_reference(&format!("/subjects/{index}/plan"), &named.plan, stays));
            errors.extend(sharing("a plan of its own", &format!("/subjects/{index}/kind"), &named.kind));
        }
        errors.extend(repeated("/overrides", "/id", tenant.overrides.iter().map(|each| &each.id)));
        if tenant.overrides.len() > OVERRIDES_MAX {
            errors.push(FieldError::new("/overrides", format!("must be at most {OVERRIDES_MAX}")));
        }
        for (index, each) in tenant.overrides.iter().enumerate() {
            let at = format!("/overrides/{index}");
            errors.extend(self.one_override(tenant, index, each).into_iter().map(|error| error.under(&at)));
        }
        errors.extend(bans(&tenant.bans));
        errors.extend(self.prices(&tenant.prices));
        errors.extend(terms("/discounts", "/id", &tenant.discounts));
        errors.extend(terms("/minimum_commitments", "/currency", &tenant.minimum_commitments));
        errors.extend(terms("/taxes", "/code", &tenant.taxes));
        errors.extend(self.currency(tenant));
        errors
    }

    fn limits(&self, limits: &[Arc<Limit>]) -> Vec<FieldError> {
        let mut errors = repeated("/limits", "/id", limits.iter().map(|limit| &limit.id));
        for (index, limit) in limits.iter().enumerate() {
            let at = format!("/limits/{index}");
            let misplaced = self.global_in_list(limit);
            errors.extend(self.limit(limit).into_iter().chain(misplaced).map(|error| error.under(&at)));
        }
        errors
    }

    /// Why a plan or a tenant cannot have this limit: one that counts all tenants is nobody's own.
    fn global_in_list(&self, limit: &Limit) -> Option<FieldError> {
        if limit.is_global() {
            let message =
                "must be tenant or subject here: a limit that counts all tenants is a default limit";
            return Some(FieldError::new("/scope", message));
        }
        let is_taken = self.definitions.limits.get(&limit.id).is_some_and(|shared| shared.is_global());
        let message = || format!("`{}` counts all tenants, so no other limit may have its id", limit.id);
        is_taken.then(|| FieldError::new("/id", message()))
    }

    fn plan_reference(&self, pointer: &str, plan: &PlanId, stays: bool) -> Option<FieldError> {
        match self.definitions.plans.get(plan) {
            None => Some(FieldError::new(pointer, format!("no plan `{plan}`"))),
            Some(found) if found.archived && !stays => Some(FieldError::new(
                pointer,
                format!("the plan `{plan}` is archived: nobody may be put on it"),
            )),
            Some(_) => None,
        }
    }

    fn one_override(&self, tenant: &TenantDefinition, index: usize, each: &Override) -> Vec<FieldError> {
        let mut errors = Vec::new();
        match (&each.subject, each.level) {
            (None, OverrideLevel::Subject) => {
                errors.push(FieldError::new("/subject", "must say for whom when the level is subject"));
            }
            (Some(_), OverrideLevel::Tenant | OverrideLevel::Emergency) => {
                errors.push(FieldError::new("/subject", "must be left out unless the level is subject"));
            }
            _ => {}
        }
        errors.extend(
            each.subject
                .as_ref()
                .and_then(|subject| sharing("an override of its own", "/subject/kind", &subject.kind)),
        );
        match (each.capacity, each.factor, each.kind) {
            (Some(_), Some(_), _) => {
                errors.push(FieldError::new("/capacity", "give a capacity or a factor, one of the two"));
            }
            (None, None, None) => {
                errors.push(FieldError::new("/capacity", "give a capacity, a factor or a kind"));
            }
            _ => {}
        }
        let of_shared = self.shared.get(&each.limit).into_iter().flatten().copied();
        let own = tenant.limits.iter().map(Arc::as_ref).filter(|limit| limit.id == each.limit);
        let definitions: Vec<&Limit> = own.chain(of_shared).collect();
        if definitions.is_empty() {
            errors.push(FieldError::new("/limit", format!("no limit `{}`", each.limit)));
        } else if definitions.iter().any(|limit| limit.is_global()) {
            let message = format!("the limit `{}` counts all tenants: change the limit itself", each.limit);
            errors.push(FieldError::new("/limit", message));
        } else if let Some(subject) = &each.subject
            && !definitions.iter().any(|limit| limit.subject_kind.as_ref() == Some(&subject.kind))
        {
            let message =
                format!("the limit `{}` does not count subjects of the kind `{}`", each.limit, subject.kind);
            errors.push(FieldError::new("/limit", message));
        }
        let decimals: BTreeSet<Decimals> =
            definitions.iter().filter_map(|limit| self.decimals_of(limit)).collect();
        let unfit = |decimals| each.capacity.unwrap_or_default().to_units(decimals).err();
        let unfit = decimals.into_iter().filter_map(unfit);
        errors.extend(unfit.map(|error| FieldError::new("/capacity", error.to_string())));
        if each.kind == Some(Kind::Shadow) && definitions.iter().any(|limit| limit.class == Class::Quota) {
            errors.push(FieldError::new("/kind", OF_QUOTA_IN_SHADOW));
        }
        let unfit = definitions.iter().find_map(|limit| self.unfit_override(limit, each));
        errors.extend(unfit);
        let same = |other: &&Override| {
            (other.level, &other.limit, &other.subject) == (each.level, &each.limit, &each.subject)
        };
        if let Some(earlier) = tenant.overrides[..index].iter().find(same) {
            let message =
                format!("the override `{}` changes the same limit at the same level; keep one", earlier.id);
            errors.push(FieldError::new("/limit", message));
        }
        errors.extend(text("/reason", each.reason.as_deref()));
        errors
    }

    /// The decimals in which a limit counts; none where its meter does not exist.
    fn decimals_of(&self, limit: &Limit) -> Option<Decimals> {
        limit.limited.decimals(|meter| self.definitions.decimals(meter))
    }

    /// What is wrong with the meters that a limit counts.
    fn limited(&self, limited: &Limited) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let at = |meter: &MeterId| match limited {
            Limited::Meter(_) => "/meter".to_owned(),
            Limited::Budget { .. } => format!("/meters/{meter}"),
        };
        let first_is_light = limited.meters().next().is_some_and(|meter| self.is_light(meter));
        for meter in limited.meters() {
            let message = match self.definitions.decimals(meter) {
                None => format!("no meter `{meter}`"),
                Some(decimals) if limited.factor(meter, decimals).is_none() => format!(
                    "its weight must be a whole number of the limit's smallest units, at least 1, for the smallest \
                     unit of `{meter}`, which has {} decimals: change the weight or `decimals`",
                    decimals.count()
                ),
                Some(_) if self.is_light(meter) != first_is_light => {
                    "must be booked as the others are, or none of them".to_owned()
                }
                Some(_) => continue,
            };
            errors.push(FieldError::new(at(meter), message));
        }
        errors
    }

    /// Whether the gate alone counts this meter.
    fn is_light(&self, meter: &MeterId) -> bool {
        self.definitions.meters.get(meter).is_some_and(|meter| !meter.booked)
    }

    /// What is wrong with the capacity that an override makes of a limit's, by how that counts.
    fn unfit_override(&self, limit: &Limit, each: &Override) -> Option<FieldError> {
        let decimals = self.decimals_of(limit)?;
        let scaled = |factor: Factor| factor.scale_down(limit.capacity.floor_units(decimals));
        let (field, capacity) = match (each.capacity, each.factor) {
            (Some(capacity), _) => ("/capacity", capacity),
            (None, factor) => ("/factor", scaled(factor?).to_amount(decimals)),
        };
        let wrong = limit.algorithm.errors(capacity, decimals).into_iter().next()?;
        let message = format!("does not fit the limit: its {} {}", &wrong.pointer[1..], wrong.message);
        Some(FieldError::new(field, message))
    }

    /// Checks an amount of a meter: the meter must exist, and its decimals must fit the amount.
    fn amount(
        &self,
        pointer: &str,
        meter_pointer: &str,
        meter: &MeterId,
        amount: Amount,
    ) -> Option<FieldError> {
        match self.definitions.decimals(meter) {
            None => Some(FieldError::new(meter_pointer, format!("no meter `{meter}`"))),
            Some(decimals) => {
                amount.to_units(decimals).err().map(|error| FieldError::new(pointer, error.to_string()))
            }
        }
    }
}

/// A subject that shares its slot with others cannot have something of its own.
fn sharing(what: &str, pointer: &str, kind: &SubjectKind) -> Option<FieldError> {
    let message = || format!("subjects of the kind `{kind}` share slots, so none can have {what}");
    kind.shares_slots().then(|| FieldError::new(pointer, message()))
}

fn bans(bans: &[Ban]) -> Vec<FieldError> {
    let mut errors = repeated("/bans", "/id", bans.iter().map(|ban| &ban.id));
    if bans.len() > BANS_MAX {
        errors.push(FieldError::new("/bans", format!("must be at most {BANS_MAX}")));
    }
    for (index, ban) in bans.iter().enumerate() {
        let kind = ban.subject.as_ref().map(|subject| &subject.kind);
        let shared = kind.and_then(|kind| sharing("a ban of its own", "/subject/kind", kind));
        let wrong = shared.into_iter().chain(text("/reason", ban.reason.as_deref()));
        errors.extend(wrong.map(|error| error.under(&format!("/bans/{index}"))));
    }
    errors
}

fn text(pointer: &str, text: Option<&str>) -> Option<FieldError> {
    let is_wrong = text.is_some_and(|text| !is_label(text, TEXT_MAX));
    is_wrong.then(|| FieldError::new(pointer, "must be 1 to 500 characters without control characters"))
}

/// What is wrong with the terms on which a quota rolls over.
fn rollover(quota: &Quota) -> Vec<FieldError> {
    let most = quota.max_rollover.unwrap_or_default();
    let mut errors = Vec::new();
    if quota.min_rollover.unwrap_or_default().decimal() > most.decimal() {
        errors.push(FieldError::new("/min_rollover", "must be at most `max_rollover`"));
    }
    match quota.rollover_periods {
        Some(periods) if !(1..=ROLLOVER_PERIODS_MAX).contains(&periods) => {
            let message = format!("must be 1 to {ROLLOVER_PERIODS_MAX}");
            errors.push(FieldError::new("/rollover_periods", message));
        }
        Some(2..) if most.is_zero() => {
            errors.push(FieldError::new("/rollover_periods", "is for a quota with `max_rollover`"));
        }
        _ => {}
    }
    if quota.reroll && most.is_zero() {
        errors.push(FieldError::new("/reroll", "is for a quota with `max_rollover`"));
    }
    errors
}

/// An error at `<list>/<index><field>` for each item that is equal to an earlier one.
pub(super) fn repeated<T: Hash + Eq>(
    list: &str,
    field: &str,
    items: impl IntoIterator<Item = T>,
) -> Vec<FieldError> {
    let mut seen = HashSet::new();
    let again =
        items.into_iter().enumerate().filter_map(|(index, item)| (!seen.insert(item)).then_some(index));
    again
        .map(|index| {
            FieldError::new(format!("{list}/{index}{field}"), "is given twice in this list; keep one")
        })
        .collect()
}
