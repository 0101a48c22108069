//! What a line of a statement is for, in words that people read.

use crate::domain::price::PriceModel;
use crate::domain::rating::{Line, UsageLine};

/// What a line is for.
pub(super) fn described(line: &Line) -> String {
    match line {
        Line::Usage(usage) => {
            let what = if usage.model == PriceModel::Flat { "Flat price of" } else { "Use of" };
            format!("{what} {}", named(usage))
        }
        Line::Discount { id, .. } => format!("Discount {id}"),
        Line::MinimumCommitment { commitment, .. } => format!("Up to the minimum commitment of {commitment}"),
        Line::Tax { code, .. } => format!("Tax {code}"),
    }
}

fn named(usage: &UsageLine) -> String {
    match &usage.price {
        None => usage.meter.to_string(),
        Some(price) => format!("{} ({price})", usage.meter),
    }
}
