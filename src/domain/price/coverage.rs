//! Whether everything that costs something has a price in force, so that no use is billed as nothing by mistake.

use std::collections::BTreeSet;

use super::{Price, PriceKey, in_force};
use crate::domain::civil_date::CivilDate;
use crate::domain::ids::MeterId;
use crate::domain::money::Currency;

/// The prices of a tenant and its plan, for one period.
#[derive(Debug, Clone, Copy)]
pub struct PeriodPrices<'a> {
    /// The tenant's own.
    pub own: &'a [Price],
    /// Its plan's.
    pub plan: &'a [Price],
    /// In which currency the period is paid.
    pub currency: Currency,
    /// The day on which it starts.
    pub start: CivilDate,
}

impl<'a> PeriodPrices<'a> {
    /// What has a version in force.
    pub fn covered(&self) -> BTreeSet<PriceKey<'a>> {
        in_force(self.own, self.plan, self.currency, self.start).into_iter().map(Price::key).collect()
    }

    /// The first meter that would be free of charge by mistake: it has none of its prices in force, and had it `before`
    /// or has it in another currency. What was in force before and has no price at all any more is wanted so, unless
    /// `keeps_all`.
    pub fn gap(&self, before: &BTreeSet<PriceKey<'a>>, keeps_all: bool) -> Option<&'a MeterId> {
        let covered = self.covered();
        let all = || self.own.iter().chain(self.plan);
        let known: BTreeSet<PriceKey<'a>> = all().map(Price::key).collect();
        let begun: BTreeSet<PriceKey<'a>> =
            all().filter(|price| price.effective_from <= self.start).map(Price::key).collect();
        let lost = before.iter().filter(|key| keeps_all || known.contains(key));
        let mut expected = lost.chain(&begun);
        expected.find(|key| !covered.contains(key)).map(|key| key.meter)
    }
}

/// Whether a meter has prices, and none in force.
pub fn is_unpriced(meter: &MeterId, all: &[&Price], held: &[&Price]) -> bool {
    let names = |price: &&Price| price.meter == *meter;
    all.iter().any(names) && !held.iter().any(names)
}
