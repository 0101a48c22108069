//! A statement or credit note as it is kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::StatementError;
use crate::domain::adjustment::AdjustmentId;
use crate::domain::civil_date::CivilDate;
use crate::domain::grant::GrantId;
use crate::domain::ids::{MeterId, PlanId, TenantId};
use crate::domain::money::{Currency, Money};
use crate::domain::movements::Account;
use crate::domain::price::Price;
use crate::domain::rating::{
    Bill, Cart, Charges, CreditNote, Line, LineKey, NoteLine, Terms, Used, bill, credit_note,
};

/// The hash of a document and of all of the tenant's before it.
pub type DocumentHash = [u8; 32];

/// What a document says is owed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Content {
    /// The lines of a period.
    Statement {
        /// The lines, in order.
        lines: Vec<Line>,
    },
    /// What corrected quantities change of a statement and its earlier notes.
    CreditNote {
        /// The statement's number.
        corrects: u64,
        /// The lines that change.
        lines: Vec<NoteLine>,
    },
}

/// The last batch of a chain of the books, as a document names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BookHead {
    /// The number of the chain: the partition's, and 256 more for what no event of the outbox caused.
    pub chain: i16,
    /// The batch's number in the chain, from 1.
    pub number: u64,
    /// Its hash, which covers every batch before it, as hexadecimal digits.
    pub hash: String,
}

/// A statement or a credit note. Once issued it never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Who pays.
    pub tenant: TenantId,
    /// Its number among the tenant's documents, from 1.
    pub number: u64,
    /// The plan at the end of the period.
    pub plan: Option<PlanId>,
    /// The start of the period (unix ms).
    pub period_start_ms: i64,
    /// The end of the period (unix ms).
    pub period_end_ms: i64,
    /// The zone in which the period is cut.
    pub zone: String,
    /// The day on which the period starts.
    pub start: CivilDate,
    /// The currency of all amounts.
    pub currency: Currency,
    /// The prices in force.
    pub prices: Vec<Price>,
    /// The discounts, the commitment and the taxes in force. Left out where there are none, as older documents do.
    #[serde(default, skip_serializing_if = "Terms::is_empty")]
    pub terms: Terms,
    /// What was charged beside use; for a note, with all that is no longer owed of it by now. Left out like the terms.
    #[serde(default, skip_serializing_if = "Charges::is_empty")]
    pub charges: Charges,
    /// What was used; for a note, all that is known by now.
    pub used: BTreeMap<MeterId, Used>,
    /// The meters that were used and have prices, of which none holds.
    pub unpriced: Vec<MeterId>,
    /// The lines.
    #[serde(flatten)]
    pub content: Content,
    /// The sum of the lines.
    pub total: Money,
    /// From when on it holds (unix ms): the end of a period and its grace, whenever it was written.
    pub issued_at_ms: i64,
    /// The heads of the books as it was written. Left out by documents of versions that did not name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub books: Vec<BookHead>,
}

impl Document {
    /// The number of the statement that it corrects; none for a statement.
    pub fn corrects(&self) -> Option<u64> {
        match &self.content {
            Content::Statement { .. } => None,
            Content::CreditNote { corrects, .. } => Some(*corrects),
        }
    }

    /// What each of its lines is for and costs, in their order.
    fn costs(&self) -> Vec<(LineKey, Money)> {
        match &self.content {
            Content::Statement { lines } => lines.iter().map(|line| (line.key(), line.amount())).collect(),
            Content::CreditNote { lines, .. } => {
                lines.iter().map(|line| (line.key.clone(), line.amount)).collect()
            }
        }
    }

    /// What its lines cost that are booked with it, in their order, each with the account of who earns it. Sales of
    /// grants, what is given back of them, and adjustments are booked before.
    pub fn amounts(&self) -> Vec<(Account, Money)> {
        let costs = self.costs().into_iter().filter(|(key, _)| !key.is_booked_before());
        let earned = |key: &LineKey| match key {
            LineKey::Tax { .. } => Account::Tax,
            _ => Account::Revenue,
        };
        costs.map(|(key, amount)| (earned(&key), amount)).collect()
    }

    /// The grants that its lines are for.
    pub fn grants(&self) -> Vec<GrantId> {
        let grant = |(key, _)| match key {
            LineKey::Grant { grant, .. } => Some(grant),
            _ => None,
        };
        self.costs().into_iter().filter_map(grant).collect()
    }

    /// The adjustments of money that its lines are for.
    pub fn adjustments(&self) -> Vec<AdjustmentId> {
        let adjustment = |(key, _)| match key {
            LineKey::Adjustment { id, .. } => Some(id),
            _ => None,
        };
        self.costs().into_iter().filter_map(adjustment).collect()
    }

    /// The hash of the text in which it is kept, and of the document before; zeros before the first.
    pub fn hash(text: &str, previous: &DocumentHash) -> DocumentHash {
        let mut hasher = blake3::Hasher::new_derive_key("tollgate statement v1");
        hasher.update(previous);
        hasher.update(text.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// Whether it bills nothing but what was charged beside use: nothing in it has a price.
    pub fn is_of_charges(&self) -> bool {
        self.prices.is_empty() && self.terms.minimum_commitment.is_none()
    }

    /// The note that makes this statement and its `earlier` notes the bill of what was `used` and of these `charges`,
    /// by the prices and terms of the document `by`; none where they are it.
    ///
    /// # Errors
    /// It cannot be rated, or this is no statement.
    pub fn corrected(
        &self,
        earlier: &[Self],
        by: &Self,
        used: &BTreeMap<MeterId, Used>,
        charges: &Charges,
    ) -> Result<Option<CreditNote>, StatementError> {
        let Content::Statement { lines } = &self.content else { return Err(StatementError::NoStatement) };
        let original = Bill::of(self.currency, lines.clone())?;
        let earlier: Vec<CreditNote> = earlier.iter().filter_map(Self::as_note).collect();
        let note = credit_note(&original, &earlier, &by.rated(used, charges)?)?;
        Ok(Some(note).filter(|note| !note.lines.is_empty()))
    }

    /// Whether its lines and total are what its prices make of what was used. For a note: `original` is the statement
    /// that it corrects, and `earlier` are that one's notes before.
    ///
    /// # Errors
    /// It cannot be rated.
    pub fn recomputes(&self, original: Option<&Self>, earlier: &[Self]) -> Result<bool, StatementError> {
        match (&self.content, original) {
            (Content::Statement { lines }, _) => {
                let bill = self.rated(&self.used, &self.charges)?;
                Ok(bill.lines() == lines && bill.total() == self.total)
            }
            (Content::CreditNote { lines, .. }, Some(original)) => {
                let note = original.corrected(earlier, self, &self.used, &self.charges)?;
                Ok(note.is_some_and(|note| note.lines == *lines && note.total == self.total))
            }
            (Content::CreditNote { .. }, None) => Ok(false),
        }
    }

    fn rated(&self, used: &BTreeMap<MeterId, Used>, charges: &Charges) -> Result<Bill, StatementError> {
        let prices = self.prices.iter().collect();
        Ok(bill(&Cart { currency: self.currency, prices, used, terms: &self.terms, charges })?)
    }

    fn as_note(&self) -> Option<CreditNote> {
        match &self.content {
            Content::Statement { .. } => None,
            Content::CreditNote { lines, .. } => Some(CreditNote { lines: lines.clone(), total: self.total }),
        }
    }
}
