//! What a comparison has found, in numbers.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::finding::Unmatchable;
use super::{Finding, Outcome};

/// What one outcome adds up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Share {
    /// How many findings.
    pub findings: u64,
    /// Of how many uses.
    pub uses: u64,
    /// Of how many rows.
    pub rows: u64,
    /// What is booked of them.
    #[serde(with = "rust_decimal::serde::str")]
    pub here: Decimal,
    /// What is charged for.
    #[serde(with = "rust_decimal::serde::str")]
    pub there: Decimal,
}

impl Share {
    fn add(&mut self, finding: &Finding) -> Result<(), Unmatchable> {
        self.findings += 1;
        self.uses += finding.here.count;
        self.rows += finding.there.count;
        let sum = |one: Decimal, other: Decimal| one.checked_add(other).ok_or(Unmatchable::TooLarge);
        self.here = sum(self.here, finding.here.amount)?;
        self.there = sum(self.there, finding.there.amount)?;
        Ok(())
    }
}

/// What all findings add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The same on both sides.
    pub matched: Share,
    /// With different amounts.
    pub different: Share,
    /// Only on the bill.
    pub missing_here: Share,
    /// Only in the books.
    pub missing_there: Share,
}

impl Summary {
    /// Counts one more finding.
    ///
    /// Errors: the amounts are too large.
    pub fn add(&mut self, finding: &Finding) -> Result<(), Unmatchable> {
        match finding.outcome {
            Outcome::Matched => self.matched.add(finding),
            Outcome::Different => self.different.add(finding),
            Outcome::MissingHere => self.missing_here.add(finding),
            Outcome::MissingThere => self.missing_there.add(finding),
        }
    }
}
