//! A supplier's bill: how it is read, and how it is compared with what is booked.
//!
//! Both sides become [`Item`]s: a *use* is what one reservation consumed of the meter, a *row* is one of the bill. They
//! go in order through one or more passes ([`passes`]), each of which holds few items at a time, however long the bill
//! is. What a pass finds is final; what it leaves over goes to the next one.

pub mod finding;
pub mod passes;
pub mod reading;
pub mod summary;
mod time_passes;
mod waiting;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::amount::Amount;
use super::ids::{IdempotencyKey, MeterId, TenantId};
use super::uuid_id::{self, uuid_ids};
use rust_decimal::Decimal;

pub use finding::{Finding, Outcome};

/// The longest tolerance in time: a day.
pub const TOLERANCE_SECONDS_MAX: u32 = 86_400;

uuid_ids! {
    /// The id of a comparison with a bill: a hash of its key, so that a repeated call names the same one.
    BillId, "must be the id of a reconciliation";
}

impl BillId {
    /// The id under this key.
    pub fn of(key: &IdempotencyKey) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tollgate supplier bill v1");
        hasher.update(key.as_str().as_bytes());
        Self(uuid_id::of_hash(&hasher))
    }
}

/// How far a comparison has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BillState {
    /// The bill is being read.
    Loading,
    /// It is read, and compared.
    Matching,
    /// It is compared.
    Done,
    /// It could not be read or compared. It can be sent again under the same key.
    Failed,
}

impl BillState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Matching => "matching",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    /// The state with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Loading, Self::Matching, Self::Done, Self::Failed].into_iter().find(|it| it.as_str() == word)
    }

    /// Whether an instance works on it.
    pub fn is_running(self) -> bool {
        matches!(self, Self::Loading | Self::Matching)
    }
}

/// In which column of the bill what stands, by the column's title.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Columns {
    /// How much was charged for, in the meter's units.
    pub amount: String,
    /// What the row is for. Without it, rows are matched by amount and time.
    pub reference: Option<String>,
    /// When the work was done.
    pub time: Option<String>,
    /// Whose work it was.
    pub tenant: Option<String>,
}

/// What a bill's reference is here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UseReference {
    /// The id of the reservation.
    Reservation,
    /// The value of this key of the reservation's metadata.
    Metadata(String),
}

/// By what two amounts or times may differ and still be the same. Amounts are the same if either bound holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tolerance {
    /// In the meter's units.
    pub amount: Amount,
    /// In percent of what is booked.
    pub percent: Amount,
    /// Between the use and its row, and around the span; at most [`TOLERANCE_SECONDS_MAX`].
    pub seconds: u32,
}

impl Tolerance {
    /// Whether an amount on the bill counts as the one that is booked.
    pub fn covers(&self, here: Decimal, there: Decimal) -> bool {
        let Some(difference) = here.checked_sub(there).map(|difference| difference.abs()) else {
            return false;
        };
        let times = |one: Decimal, other: Decimal| one.checked_mul(other);
        let is_within_percent = || {
            let allowed = times(self.percent.decimal(), here.abs());
            times(difference, Decimal::ONE_HUNDRED).zip(allowed).is_some_and(|(is, may)| is <= may)
        };
        difference <= self.amount.decimal() || is_within_percent()
    }

    /// Whether amounts may differ at all.
    fn is_of_amounts(&self) -> bool {
        !self.amount.is_zero() || !self.percent.is_zero()
    }

    fn ms(&self) -> i64 {
        i64::from(self.seconds) * 1_000
    }
}

/// Which bill is compared with what, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BillTerms {
    /// Who sent it, for people.
    pub supplier: String,
    /// Only what this tenant used.
    pub tenant: Option<TenantId>,
    /// What it charges for.
    pub meter: MeterId,
    /// What was used from this instant on (unix ms).
    pub from_ms: i64,
    /// And before this one (unix ms).
    pub to_ms: i64,
    /// Where what stands.
    pub columns: Columns,
    /// What a reference is here.
    pub reference: UseReference,
    /// What separates the cells of a row, one byte.
    pub delimiter: u8,
    /// What counts as the same.
    pub tolerance: Tolerance,
    /// Only counts; no finding is kept.
    pub dry_run: bool,
}

impl BillTerms {
    /// A hash of all of it: another comparison has another one.
    pub fn fingerprint(&self) -> [u8; 32] {
        let text = serde_json::to_vec(self).unwrap_or_default();
        blake3::derive_key("tollgate supplier bill terms v1", &text)
    }

    /// From when on (unix ms) uses are looked at: those before the span may only be found on the bill, not missed.
    pub fn looked_at_from_ms(&self) -> i64 {
        self.from_ms.saturating_sub(self.tolerance.ms()).max(0)
    }

    /// Until when (unix ms).
    pub fn looked_at_to_ms(&self) -> i64 {
        self.to_ms.saturating_add(self.tolerance.ms())
    }
}

/// One use or one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The tenant, where the bill names it in each row; else empty. Only items of one scope are matched.
    pub scope: String,
    /// What it is for; empty for none.
    pub reference: String,
    /// In the meter's units; only a row may be below zero.
    pub amount: Decimal,
    /// When the work was done (unix ms); 0 for a row of a bill that does not say it.
    pub at_ms: i64,
    /// Which side it is of.
    pub source: Source,
}

/// Where an item comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// From the books.
    Use {
        /// Who used it.
        tenant: String,
        /// By which reservation.
        reservation: Uuid,
        /// Whether it is in the span, not only near it.
        is_inside: bool,
    },
    /// From the bill.
    Row {
        /// The line of the file on which it begins, from 1.
        line: u64,
    },
}

impl Item {
    fn is_use(&self) -> bool {
        matches!(self.source, Source::Use { .. })
    }

    /// Whether it is a use outside of the span.
    fn is_edge(&self) -> bool {
        matches!(self.source, Source::Use { is_inside: false, .. })
    }
}

#[cfg(test)]
mod tests;
