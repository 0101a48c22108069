//! What a comparison finds, and what it says of a group of uses and rows that belong together.

use rust_decimal::Decimal;
use uuid::Uuid;

use super::{Item, Source, Tolerance};

/// How many reservations and lines a finding names.
pub const NAMED_MAX: usize = 10;

/// No sum is beyond this, with room for the decimals that the books keep.
const SUM_MAX: Decimal = Decimal::from_parts(2_808_348_672, 232_830_643, 0, false, 0);

/// What is so of uses and rows that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Both sides have the same amount.
    Matched,
    /// Both sides have it, with different amounts.
    Different,
    /// On the bill, and not in the books.
    MissingHere,
    /// In the books, and not on the bill.
    MissingThere,
}

impl Outcome {
    /// All of them, in the order in which findings are listed.
    pub const ALL: [Self; 4] = [Self::Different, Self::Matched, Self::MissingHere, Self::MissingThere];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Matched => "matched",
            Self::Different => "different",
            Self::MissingHere => "missing_here",
            Self::MissingThere => "missing_there",
        }
    }

    /// The outcome with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == word)
    }
}

/// What one side has of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sum<T> {
    /// In the meter's units.
    pub amount: Decimal,
    /// Of how many items.
    pub count: u64,
    /// When the last of them was (unix ms), if that is known.
    pub at_ms: Option<i64>,
    /// The first of them, at most [`NAMED_MAX`].
    pub named: Vec<T>,
}

impl<T> Default for Sum<T> {
    fn default() -> Self {
        Self { amount: Decimal::ZERO, count: 0, at_ms: None, named: Vec::new() }
    }
}

impl<T> Sum<T> {
    fn add(&mut self, amount: Decimal, at_ms: i64, name: T) -> Result<(), Unmatchable> {
        let sum = self.amount.checked_add(amount).filter(|sum| sum.abs() <= SUM_MAX);
        self.amount = sum.ok_or(Unmatchable::TooLarge)?;
        self.count += 1;
        self.at_ms = self.at_ms.max((at_ms > 0).then_some(at_ms));
        if self.named.len() < NAMED_MAX {
            self.named.push(name);
        }
        Ok(())
    }
}

/// Uses and rows that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What is so.
    pub outcome: Outcome,
    /// Whose, if the books or the rows say it.
    pub tenant: Option<String>,
    /// What they are for; empty for none.
    pub reference: String,
    /// The uses, by reservation.
    pub here: Sum<Uuid>,
    /// The rows, by line of the file.
    pub there: Sum<u64>,
}

/// Why a bill cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unmatchable {
    /// A sum is larger than the books can keep.
    #[error("the amounts add up to more than 1000000000000000000")]
    TooLarge,
    /// Too many items are within the tolerance of each other.
    #[error(
        "too many uses and rows are within `tolerance_seconds` of each other; ask with a shorter tolerance, or by reference"
    )]
    TooMany,
}

/// Uses and rows of one finding while they are gathered.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) scope: String,
    pub(super) reference: String,
    tenant: Option<String>,
    here: Sum<Uuid>,
    there: Sum<u64>,
    has_inside: bool,
}

impl Group {
    pub(super) fn new(item: Item) -> Result<Self, Unmatchable> {
        let mut group = Self {
            scope: item.scope.clone(),
            reference: item.reference.clone(),
            tenant: (!item.scope.is_empty()).then(|| item.scope.clone()),
            here: Sum::default(),
            there: Sum::default(),
            has_inside: false,
        };
        group.add(item)?;
        Ok(group)
    }

    pub(super) fn of(items: impl IntoIterator<Item = Item>) -> Result<Option<Self>, Unmatchable> {
        let mut group: Option<Self> = None;
        for item in items {
            match &mut group {
                Some(group) => group.add(item)?,
                None => group = Some(Self::new(item)?),
            }
        }
        Ok(group)
    }

    pub(super) fn add(&mut self, item: Item) -> Result<(), Unmatchable> {
        if self.reference.is_empty() {
            self.reference = item.reference;
        }
        match item.source {
            Source::Row { line } => self.there.add(item.amount, item.at_ms, line),
            Source::Use { tenant, reservation, is_inside } => {
                self.has_inside |= is_inside;
                self.tenant.get_or_insert(tenant);
                self.here.add(item.amount, item.at_ms, reservation)
            }
        }
    }

    /// What is so of the group; none for uses outside of the span that are not on the bill. A row that charges nothing
    /// misses nothing.
    pub(super) fn conclude(self, tolerance: &Tolerance) -> Option<Finding> {
        let Self { tenant, reference, here, there, has_inside, .. } = self;
        let outcome = match (here.count, there.count) {
            (_, 0) if !has_inside => return None,
            (_, 0) => Outcome::MissingThere,
            (0, _) if there.amount.is_zero() => Outcome::Matched,
            (0, _) => Outcome::MissingHere,
            _ if tolerance.covers(here.amount, there.amount) => Outcome::Matched,
            _ => Outcome::Different,
        };
        Some(Finding { outcome, tenant, reference, here, there })
    }
}
