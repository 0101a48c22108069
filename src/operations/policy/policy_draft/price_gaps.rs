//! What a change of prices, plans or currencies would take off the open period of a tenant.

use std::collections::{BTreeMap, BTreeSet};

use super::{Draft, Kept, Outcome, paid_in, plan_prices};
use crate::domain::civil_date::CivilDate;
use crate::domain::field_error::FieldError;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::money::Currency;
use crate::domain::period::{Calendar, Calendars, WindowKind};
use crate::domain::policy::diff::DefinitionKind;
use crate::domain::price::{PeriodPrices, Price};
use crate::domain::tenant::TenantDefinition;

/// The first zone has a day 14 hours before UTC has it.
const DAY_AHEAD_MS: i64 = 14 * 3_600_000;

/// A price that has a use that nothing would be charged for.
struct Gap {
    /// The field that is wrong in the tenant.
    field: &'static str,
    message: String,
}

/// A version of a price that a file takes away, and who may have used it.
pub(in crate::operations::policy) struct Pruned {
    /// On what.
    pub(in crate::operations::policy) meter: MeterId,
    /// Whose own price it is; none of a plan's.
    pub(in crate::operations::policy) tenant: Option<TenantId>,
    /// What is wrong where it was used.
    pub(in crate::operations::policy) error: FieldError,
}

impl Draft {
    /// The tenants whose open period would lose a price, except those for which nothing is known to be booked.
    pub(in crate::operations::policy) fn with_price_gaps(&self) -> impl Iterator<Item = TenantId> {
        self.tenants().into_iter().filter(|id| self.kept.contains_key(id) && self.price_gap(id).is_some())
    }

    /// One error for each list of prices that would leave a tenant's use without a price.
    pub(super) fn price_gaps(&self) -> Vec<FieldError> {
        let mut errors = BTreeMap::new();
        for id in self.tenants() {
            if let Some(gap) = self.price_gap(&id) {
                let error = self.pointed(&id, gap);
                errors.entry(error.pointer.clone()).or_insert(error);
            }
        }
        errors.into_values().collect()
    }

    fn pointed(&self, id: &TenantId, gap: Gap) -> FieldError {
        let writes_tenant = self.edit.writes(DefinitionKind::Tenant, id.as_str());
        let kept = self.kept.get(id).and_then(|kept| kept.read.as_ref());
        let plan = kept.and_then(|(tenant, _)| tenant.plan.as_ref());
        match plan.filter(|plan| !writes_tenant && self.edit.writes(DefinitionKind::Plan, plan.as_str())) {
            Some(plan) => FieldError::new("/prices", gap.message)
                .under(&self.edit.pointer(DefinitionKind::Plan, plan.as_str())),
            None => FieldError::new(gap.field, gap.message)
                .under(&self.edit.pointer(DefinitionKind::Tenant, id.as_str())),
        }
    }

    fn price_gap(&self, id: &TenantId) -> Option<Gap> {
        if matches!(self.outcomes.get(id), Some(Outcome::Wrong(_))) {
            return None;
        }
        let kept = self.kept.get(id);
        let old = kept.and_then(|kept| kept.read.as_ref()).map(|(tenant, _)| tenant);
        let new = self.edit.tenant_after(id, old)?;
        let old = old.map(std::convert::AsRef::as_ref);
        if old.is_some_and(|old| self.costs_the_same(old, &new)) {
            return None;
        }
        let booked = kept.zip(old).filter(|_| !self.unbooked.contains(id));
        let stored = kept.map(|kept| kept.calendars.clone()).unwrap_or_default();
        let calendars = Calendars::of(stored, old.unwrap_or(&new).calendar());
        let open = calendars.window(WindowKind::Period, self.now_ms);
        let [start, next] = [open.start_ms, open.end_ms].map(|at_ms| calendars.at(at_ms).date(at_ms));
        let after = paid_in(&self.then, &new);
        let was = booked.and_then(|(kept, old)| self.open_currency(kept, old, open.start_ms));
        let lists = (new.prices.as_slice(), plan_prices(&self.then, &new));
        let of = |currency: Currency, start: CivilDate| PeriodPrices {
            own: lists.0,
            plan: lists.1,
            currency,
            start,
        };
        let covered = booked.zip(was).map(|((_, old), currency)| {
            let (own, plan) = (old.prices.as_slice(), plan_prices(&self.before, old));
            PeriodPrices { own, plan, currency, start }.covered()
        });
        let moves = old.is_some_and(|old| old.plan != new.plan);
        let asks = old.is_none_or(|old| old.currency != new.currency);
        let currency = was.or(after)?;
        if let Some(meter) = of(currency, start).gap(&covered.unwrap_or_default(), !moves) {
            let field = match (moves, after == Some(currency) && asks && new.currency.is_some()) {
                (true, _) => "/plan",
                (false, true) => "/currency",
                (false, false) => "/prices",
            };
            let message = match after.filter(|after| *after != currency) {
                Some(_) => format!(
                    "`{id}` pays in {currency} until {next}: keep a price of `{meter}` in {currency} that holds in \
                     its open period (from {start})"
                ),
                None => without_price("open period", id, start, meter, currency),
            };
            return Some(Gap { field, message });
        }
        let later = after.filter(|after| *after != currency)?;
        let meter = of(later, next).gap(&BTreeSet::new(), false)?;
        let field = if moves { "/plan" } else { "/currency" };
        Some(Gap { field, message: without_price("next period", id, next, meter, later) })
    }

    /// Whether nothing that the tenant pays by is changed.
    fn costs_the_same(&self, old: &TenantDefinition, new: &TenantDefinition) -> bool {
        (&old.plan, &old.prices, old.currency) == (&new.plan, &new.prices, new.currency)
            && plan_prices(&self.before, old) == plan_prices(&self.then, new)
    }

    /// The currency of the period that starts at `start_ms`, by what is stored.
    fn open_currency(&self, kept: &Kept, old: &TenantDefinition, start_ms: i64) -> Option<Currency> {
        kept.currencies.at(start_ms).or_else(|| paid_in(&self.before, old))
    }

    /// The versions of prices that a file takes away and that may have been used: their day has begun somewhere.
    pub(in crate::operations::policy) fn pruned_prices(&self) -> Vec<Pruned> {
        if !self.edit.prunes_prices() {
            return Vec::new();
        }
        let today = Calendar::default().date(self.now_ms.saturating_add(DAY_AHEAD_MS));
        let (before, then) = (self.before.definitions(), self.then.definitions());
        let mut pruned = Vec::new();
        for (id, old) in &before.plans {
            if let Some(new) = then.plans.get(id) {
                let at = self.edit.pointer(DefinitionKind::Plan, id.as_str());
                pruned.extend(taken_away(&old.prices, &new.prices, today, None, &at));
            }
        }
        for id in self.edit.tenants() {
            let old = self.kept.get(&id).and_then(|kept| kept.read.as_ref()).map(|(tenant, _)| tenant);
            if let (Some(old), Some(new)) = (old, self.edit.tenant_after(&id, old)) {
                let at = self.edit.pointer(DefinitionKind::Tenant, id.as_str());
                pruned.extend(taken_away(&old.prices, &new.prices, today, Some(&id), &at));
            }
        }
        pruned
    }
}

fn taken_away(
    before: &[Price],
    after: &[Price],
    today: CivilDate,
    tenant: Option<&TenantId>,
    at: &str,
) -> Vec<Pruned> {
    let kept: BTreeSet<String> = after.iter().map(Price::name).collect();
    let gone = before.iter().filter(|price| price.effective_from <= today && !kept.contains(&price.name()));
    gone.map(|price| {
        let message = format!("would remove `{}`, which has been used: write it too", price.name());
        let error = FieldError::new("/prices", message).under(at);
        Pruned { meter: price.meter.clone(), tenant: tenant.cloned(), error }
    })
    .collect()
}

fn without_price(
    period: &str,
    tenant: &TenantId,
    start: CivilDate,
    meter: &MeterId,
    currency: Currency,
) -> String {
    format!(
        "the {period} of `{tenant}` (from {start}) would have no price for `{meter}` in {currency}: keep or write a \
         version from that day or an earlier one"
    )
}
