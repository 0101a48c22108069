//! A credit note: the whole bill again from corrected quantities, less what was billed so far.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Bill, LineKey, RatingError, sum, too_large};
use crate::domain::money::{Currency, Money};

/// What a note changes in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteLine {
    /// Which line.
    pub key: LineKey,
    /// What was billed for it so far, by the bill and earlier notes.
    pub billed: Money,
    /// What is right.
    pub corrected: Money,
    /// The difference: below zero where too much was billed.
    pub amount: Money,
}

/// A correction of a bill: only lines that change, and their sum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditNote {
    /// The lines, in the order of the bill, then those that it did not have.
    pub lines: Vec<NoteLine>,
    /// The sum of their amounts.
    pub total: Money,
}

/// What makes `corrected` of the original bill and its earlier notes: added up, line by line, they are the right bill.
///
/// # Errors
/// The bills are in two currencies, or a sum is too large.
pub fn credit_note(
    original: &Bill,
    earlier: &[CreditNote],
    corrected: &Bill,
) -> Result<CreditNote, RatingError> {
    let currency = original.currency();
    if currency != corrected.currency() {
        return Err(RatingError::OtherCurrency(currency, corrected.currency()));
    }
    let mut places = Places::default();
    for line in original.lines() {
        places.of(currency, line.key()).add_billed(line.amount())?;
    }
    for line in earlier.iter().flat_map(|note| &note.lines) {
        places.of(currency, line.key.clone()).add_billed(line.amount)?;
    }
    for line in corrected.lines() {
        let place = places.of(currency, line.key());
        place.corrected = sum(currency, [place.corrected, line.amount()])?;
    }
    let mut lines = Vec::new();
    for place in places.in_order {
        let amount = place.corrected.checked_sub(place.billed).ok_or_else(|| too_large("a credit note"))?;
        if !amount.is_zero() {
            let Place { key, billed, corrected } = place;
            lines.push(NoteLine { key, billed, corrected, amount });
        }
    }
    let total = sum(currency, lines.iter().map(|line| line.amount))?;
    Ok(CreditNote { lines, total })
}

struct Place {
    key: LineKey,
    billed: Money,
    corrected: Money,
}

impl Place {
    fn add_billed(&mut self, amount: Money) -> Result<(), RatingError> {
        self.billed = self.billed.checked_add(amount).ok_or_else(|| too_large("a credit note"))?;
        Ok(())
    }
}

/// The lines that any of the bills and notes has, as they were first met.
#[derive(Default)]
struct Places {
    by_key: BTreeMap<LineKey, usize>,
    in_order: Vec<Place>,
}

impl Places {
    fn of(&mut self, currency: Currency, key: LineKey) -> &mut Place {
        let index = *self.by_key.entry(key.clone()).or_insert_with(|| {
            let nothing = currency.money(0);
            self.in_order.push(Place { key, billed: nothing, corrected: nothing });
            self.in_order.len() - 1
        });
        &mut self.in_order[index]
    }
}
