//! One walk over uses and rows in a certain order.
//!
//! | pass | order | what it matches |
//! |---|---|---|
//! | `Reference` | scope, reference | all uses and all rows of one reference: their sums are compared |
//! | `SpareEdges` | scope, amount, time backwards | nothing: it says which uses before the span have no row to spare |
//! | `EqualAmounts` | scope, amount, time | one use and one row of the same amount: as many pairs as can be |
//! | `NearAmounts` | scope, time | one use and one row within the tolerance of amounts, the earliest first |
//! | `Edges` | scope, time | the same, also with uses that are near the span and not in it |
//! | `Sums` | scope, time | one row with several uses, or one use with several rows, where nothing else is near |
//!
//! A bill with references takes the first pass, any other the rest.
//!
//! A use near the span may have its row on the bill or not, and must not take the row of a use in it. `EqualAmounts`
//! gives each row to the earliest use. So it favours uses before the span over those in it, and those in it over those
//! after the span. Only the first is wrong. `SpareEdges` walks the other way, where uses before the span come last:
//! those that get no row there can have none without taking it from a use in the span, and `EqualAmounts` does not see
//! them. With all others it makes as many pairs of uses in the span as can be made, and leaves as many rows as can be
//! left to uses near it.

use super::finding::{Finding, Group, Unmatchable};
use super::time_passes::{EqualAmounts, NearAmounts, SpareEdges, Sums};
use super::{BillTerms, Item, Tolerance};

/// Which walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassKind {
    /// By reference.
    Reference,
    /// Which uses before the span leave every row to those in it.
    SpareEdges,
    /// By equal amounts, near in time.
    EqualAmounts,
    /// By amounts that nearly agree, near in time.
    NearAmounts,
    /// With uses around the span.
    Edges,
    /// Several with one.
    Sums,
}

/// In which order a walk wants its items. Of two items that are equal in it, uses come first, then rows by their line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By scope and reference.
    Reference,
    /// By scope, amount and time.
    Amount,
    /// By scope and amount, the latest first.
    AmountBackwards,
    /// By scope and time.
    Time,
}

impl PassKind {
    /// The most walks of one comparison.
    pub const PASSES_MAX: usize = 4;

    /// The walks of a comparison, in turn.
    pub fn of(terms: &BillTerms) -> Vec<Self> {
        if terms.columns.reference.is_some() {
            return vec![Self::Reference];
        }
        let near = terms.tolerance.is_of_amounts().then_some(Self::NearAmounts);
        let edges = (terms.tolerance.seconds > 0).then_some(Self::Edges);
        [Some(Self::EqualAmounts), near, edges, Some(Self::Sums)].into_iter().flatten().collect()
    }

    /// The walk that goes first over the same items. What that one leaves over is for the walk after this one, and this
    /// one takes all the others.
    pub fn sieve(self, terms: &BillTerms) -> Option<Self> {
        (self == Self::EqualAmounts && terms.tolerance.seconds > 0).then_some(Self::SpareEdges)
    }

    /// The order that it wants.
    pub fn order(self) -> Order {
        match self {
            Self::Reference => Order::Reference,
            Self::SpareEdges => Order::AmountBackwards,
            Self::EqualAmounts => Order::Amount,
            Self::NearAmounts | Self::Edges | Self::Sums => Order::Time,
        }
    }

    /// Begins the walk.
    pub fn begin(self, terms: &BillTerms) -> Box<dyn Pass> {
        let tolerance = terms.tolerance;
        match self {
            Self::Reference => Box::new(ByReference { tolerance, group: None }),
            Self::SpareEdges => Box::new(SpareEdges::new(tolerance, terms.from_ms)),
            Self::EqualAmounts => Box::new(EqualAmounts::new(tolerance)),
            Self::NearAmounts => Box::new(NearAmounts::new(tolerance, false)),
            Self::Edges => Box::new(NearAmounts::new(tolerance, true)),
            Self::Sums => Box::new(Sums::new(tolerance)),
        }
    }
}

/// What a walk has found since it was asked last.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What is settled.
    pub findings: Vec<Finding>,
    /// What the next walk takes. The last walk leaves nothing over.
    pub left: Vec<Item>,
}

impl Found {
    pub(super) fn settle(&mut self, group: Option<Group>, tolerance: &Tolerance) {
        self.findings.extend(group.and_then(|group| group.conclude(tolerance)));
    }
}

/// A walk over items in its order.
pub trait Pass: Send {
    /// Takes the next item.
    ///
    /// Errors: the bill cannot be compared.
    fn take(&mut self, item: Item, found: &mut Found) -> Result<(), Unmatchable>;

    /// Settles what is still held, after the last item.
    ///
    /// Errors: the bill cannot be compared.
    fn finish(&mut self, found: &mut Found) -> Result<(), Unmatchable>;
}

/// Adds up what has the same reference. What has none stays alone.
struct ByReference {
    tolerance: Tolerance,
    group: Option<Group>,
}

impl Pass for ByReference {
    fn take(&mut self, item: Item, found: &mut Found) -> Result<(), Unmatchable> {
        let belongs = |group: &&mut Group| {
            !item.reference.is_empty() && group.reference == item.reference && group.scope == item.scope
        };
        match self.group.as_mut().filter(belongs) {
            Some(group) => group.add(item),
            None => {
                let ended = self.group.replace(Group::new(item)?);
                found.settle(ended, &self.tolerance);
                Ok(())
            }
        }
    }

    fn finish(&mut self, found: &mut Found) -> Result<(), Unmatchable> {
        found.settle(self.group.take(), &self.tolerance);
        Ok(())
    }
}
