//! What a statement answers: a draft, or one that was issued.

use crate::domain::ids::{MeterId, OutboxId, PlanId, TenantId};
use crate::domain::money::{Currency, Money};
use crate::domain::period::{Calendars, Window};
use crate::domain::rating::{Line, NoteLine};
use crate::domain::statement::{BookHead, DocumentHash};
use crate::ledger::ListedStatement;

/// What a period costs: so far, or as it was issued.
#[derive(Debug, Clone)]
pub struct StatementDetails {
    /// Who pays.
    pub tenant: TenantId,
    /// The plan whose prices hold, unless the tenant has its own.
    pub plan: Option<PlanId>,
    /// The version of the policy that a draft was read under.
    pub policy_version: Option<u64>,
    /// The period.
    pub period: Window,
    /// In which zone it is cut.
    pub zone: String,
    /// The tenant's calendars, which cut its periods.
    pub calendars: Calendars,
    /// The currency; none where nothing has a price.
    pub currency: Option<Currency>,
    /// The lines, in order.
    pub lines: Vec<StatementLine>,
    /// Their sum; none without a currency.
    pub total: Option<Money>,
    /// The meters that were used and have prices, of which none holds for the period.
    pub unpriced: Vec<MeterId>,
    /// When the books were read, or from when on it holds (unix ms).
    pub as_of_ms: i64,
    /// The last event of the tenant's outbox that is in a draft.
    pub as_of_event: Option<OutboxId>,
    /// What a draft of the period costs in each other currency.
    pub other_totals: Vec<(Currency, Money)>,
    /// What it was issued as; none for a draft.
    pub issued: Option<IssuedAs>,
}

/// A line of a statement or of a credit note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatementLine {
    /// What something costs.
    Billed(Line),
    /// What a note changes.
    Corrected(NoteLine),
}

impl StatementLine {
    /// How much it is.
    pub fn amount(&self) -> Money {
        match self {
            Self::Billed(line) => line.amount(),
            Self::Corrected(line) => line.amount,
        }
    }
}

/// What makes an issued document one that is never changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedAs {
    /// Its number among the tenant's.
    pub number: u64,
    /// The number of the statement that it corrects; none for a statement.
    pub corrects: Option<u64>,
    /// The hash of it and of all before.
    pub hash: DocumentHash,
    /// The period in whose bill it is: its own, or of a note the one with whose statement it was issued.
    pub billed_in: Window,
    /// The notes to earlier statements that were issued with it, in its currency.
    pub notes: Vec<ListedStatement>,
    /// The heads of the books then.
    pub books: Vec<BookHead>,
}
