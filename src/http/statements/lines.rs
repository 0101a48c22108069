//! A statement as a table with a row for each line. It has no total: the rows add up to it.

use crate::http::cell::Cell;
use crate::http::shapes::{StatementAnswer, StatementLineAnswer, TierAnswer};

pub(super) const COLUMNS: [&str; 40] = [
    "tenant",
    "period_start",
    "period_end",
    "as_of",
    "currency",
    "kind",
    "meter",
    "price",
    "effective_from",
    "model",
    "charge_on",
    "quantity",
    "included",
    "charged",
    "unit",
    "package_size",
    "packages",
    "tiers",
    "minimum",
    "id",
    "percent",
    "base",
    "commitment",
    "amount",
    "plan",
    "policy_version",
    "as_of_event",
    "document",
    "number",
    "corrects",
    "issued_at",
    "billed",
    "corrected",
    "reason",
    "happened_at",
    "corrects_operation",
    "billed_in_start",
    "billed_in_end",
    "unpriced",
    "books",
];

/// The rows, in the order of the lines.
pub(super) fn rows(draft: &StatementAnswer) -> Vec<Vec<Cell>> {
    draft.lines.iter().map(|line| row(draft, line)).collect()
}

fn row(draft: &StatementAnswer, line: &StatementLineAnswer) -> Vec<Cell> {
    let tiers: Vec<_> =
        line.tiers.iter().map(|TierAnswer { quantity, unit, .. }| format!("{quantity} x {unit}")).collect();
    vec![
        Cell::text(Some(&draft.tenant)),
        Cell::text(Some(&draft.period.start)),
        Cell::text(Some(&draft.period.end)),
        Cell::text(draft.as_of.as_ref()),
        Cell::text(draft.currency),
        Cell::text(Some(line.kind)),
        Cell::text(line.meter.as_ref()),
        Cell::text(line.price.as_ref()),
        Cell::text(line.effective_from.as_ref()),
        Cell::text(line.model),
        Cell::text(line.charge_on),
        Cell::number(line.quantity.as_ref()),
        Cell::number(line.included.as_ref()),
        Cell::number(line.charged.as_ref()),
        Cell::number(line.unit.as_ref()),
        Cell::number(line.package_size.as_ref()),
        Cell::number(line.packages.as_ref()),
        Cell::text(Some(tiers.join("; ")).filter(|tiers| !tiers.is_empty())),
        Cell::number(line.minimum.as_ref()),
        Cell::text(line.id.as_ref()),
        Cell::number(line.percent.as_ref()),
        Cell::number(line.base.as_ref()),
        Cell::number(line.commitment.as_ref()),
        Cell::number(Some(&line.amount)),
        Cell::text(draft.plan.as_ref()),
        Cell::number(draft.policy_version),
        Cell::text(draft.as_of_event.as_ref()),
        Cell::text(Some(draft.document)),
        Cell::number(draft.number),
        Cell::number(draft.corrects),
        Cell::text(draft.issued_at.as_ref()),
        Cell::number(line.billed.as_ref()),
        Cell::number(line.corrected.as_ref()),
        Cell::text(line.reason.as_ref()),
        Cell::text(line.happened_at.as_ref()),
        Cell::text(line.corrects_operation.as_ref()),
        Cell::text(draft.billed_in.as_ref().map(|period| &period.start)),
        Cell::text(draft.billed_in.as_ref().map(|period| &period.end)),
        Cell::text(Some(draft.unpriced.join("; ")).filter(|unpriced| !unpriced.is_empty())),
        Cell::text(Some(books(draft).join("; ")).filter(|books| !books.is_empty())),
    ]
}

/// The last batches of the books, in words.
pub(super) fn books(draft: &StatementAnswer) -> Vec<String> {
    draft.books.iter().map(ToString::to_string).collect()
}
