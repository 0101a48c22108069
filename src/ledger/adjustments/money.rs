//! Money that finance adjusts: booked in the billing period that is open, whose statement has a line for it.

use super::Booking;
use crate::domain::adjustment::{AdjustmentId, AdjustmentTerms};
use crate::domain::entry::{PostedLine, Posting};
use crate::domain::ids::MeterId;
use crate::domain::meter::MONEY_PREFIX;
use crate::domain::movements::money::adjust;
use crate::domain::period::Window;
use crate::ledger::LedgerError;
use crate::ledger::corrections::Corrections;

/// What is to be written, in this period.
pub(super) fn prepare(
    id: AdjustmentId,
    terms: &AdjustmentTerms,
    period: Window,
) -> Result<Booking, LedgerError> {
    let refused = |what: &dyn std::fmt::Display| LedgerError::Refused(format!("an amount of money: {what}"));
    let currency = terms.currency.ok_or_else(|| refused(&"it has no currency"))?;
    let amount = currency.signed_money(terms.amount.decimal()).map_err(|error| refused(&error))?;
    let movement = adjust(period, amount).map_err(|error| refused(&error))?;
    let meter = MeterId::parse(&format!("{MONEY_PREFIX}{currency}")).map_err(|error| refused(&error))?;
    let movements = movement.into_iter().collect();
    let posting = Posting {
        tenant: terms.tenant.clone(),
        operation_id: id.uuid(),
        step: 1,
        happened_at_ms: terms.happened_at_ms,
        operation: String::new(),
        hour_start_ms: period.start_ms,
        subjects: Vec::new(),
        lines: vec![PostedLine { meter, movements, first_leg: 0, begins_to_consume: false }],
    };
    let corrections = Corrections::default();
    let (amount, booked_in) = (terms.amount, period);
    Ok(Booking { amount, period: None, of_carried: None, booked_in, posting, corrections })
}
