//! What a line of a statement is for, in words that people read.

use crate::domain::ids::{MeterId, PriceId};
use crate::domain::price::PriceModel;
use crate::domain::rating::{Line, LineKey, NoteLine};

/// What a line is for.
pub(super) fn described(line: &Line) -> String {
    match line {
        Line::Usage(usage) => {
            let what = if usage.model == PriceModel::Flat { "Flat price of" } else { "Use of" };
            format!("{what} {}", named(&usage.meter, usage.price.as_ref()))
        }
        Line::Discount { id, .. } => format!("Discount {id}"),
        Line::MinimumCommitment { commitment, .. } => format!("Up to the minimum commitment of {commitment}"),
        Line::Grant { meter, quantity, .. } => format!("Grant of {quantity} {meter}"),
        Line::Adjustment { reason, .. } => format!("Adjustment: {reason}"),
        Line::Tax { code, .. } => format!("Tax {code}"),
    }
}

/// What a line of a credit note is for.
pub(super) fn corrected(line: &NoteLine) -> String {
    match &line.key {
        LineKey::Usage { meter, price } => format!("Correction of {}", named(meter, price.as_ref())),
        LineKey::Discount { id } => format!("Correction of discount {id}"),
        LineKey::MinimumCommitment => "Correction of the minimum commitment".to_owned(),
        LineKey::Grant { grant, meter } => format!("Void of grant {grant} of {meter}"),
        LineKey::Adjustment { id, .. } => format!("Correction of adjustment {id}"),
        LineKey::Tax { code } => format!("Correction of tax {code}"),
    }
}

fn named(meter: &MeterId, price: Option<&PriceId>) -> String {
    match price {
        None => meter.to_string(),
        Some(price) => format!("{meter} ({price})"),
    }
}
