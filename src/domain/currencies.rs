//! The currencies that a tenant pays in, one after the other.

use serde::{Deserialize, Serialize};

use super::money::Currency;

/// A currency and the instant from which it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatedCurrency {
    /// The start of the first period that is paid in it (unix ms); 0 for the first.
    pub from_ms: i64,
    /// None where it was not known.
    pub currency: Option<Currency>,
}

/// A tenant's currencies by their dates; empty while it never changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Currencies(Vec<DatedCurrency>);

impl From<Vec<DatedCurrency>> for Currencies {
    fn from(mut stored: Vec<DatedCurrency>) -> Self {
        stored.sort_by_key(|dated| dated.from_ms);
        Self(stored)
    }
}

impl Currencies {
    /// The currency of a period that starts at `start_ms`; none where the definition alone says it.
    pub fn at(&self, start_ms: i64) -> Option<Currency> {
        self.0.iter().rev().find(|dated| dated.from_ms <= start_ms)?.currency
    }

    /// The currencies after a change from `before` to `after`, which holds from `from_ms` on in place of all that were
    /// to begin then or later.
    pub fn changed(&self, before: Option<Currency>, after: Option<Currency>, from_ms: i64) -> Self {
        let mut changed = self.clone();
        changed.0.retain(|dated| dated.from_ms < from_ms);
        if changed.0.is_empty() {
            changed.0.push(DatedCurrency { from_ms: 0, currency: before });
        }
        changed.0.push(DatedCurrency { from_ms, currency: after });
        changed
    }

    /// The currency at `now_ms` and those after it; none where no other follows.
    pub fn to_come(&self, now_ms: i64) -> &[DatedCurrency] {
        let begun = self.0.partition_point(|dated| dated.from_ms <= now_ms);
        let to_come = if begun == self.0.len() { None } else { self.0.get(begun.saturating_sub(1)..) };
        to_come.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_takes_the_place_of_those_to_come() {
        let code = |code: &str| Currency::parse(code).ok();
        let first = Currencies::default().changed(code("EUR"), code("USD"), 100);
        assert_eq!((first.at(99), first.at(100)), (code("EUR"), code("USD")));
        assert_eq!((first.to_come(99).len(), first.to_come(100).len()), (2, 0));
        let second = first.changed(code("USD"), code("JPY"), 100);
        assert_eq!((second.at(99), second.at(100)), (code("EUR"), code("JPY")));
        let third = second.changed(code("JPY"), code("KWD"), 200);
        assert_eq!(third.to_come(150).iter().map(|dated| dated.from_ms).collect::<Vec<_>>(), [100, 200]);
        assert_eq!(Currencies::default().at(5), None);
    }
}
