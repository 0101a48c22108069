//! A statement as a table with a row for each line. It has no total: the rows add up to it.

use crate::http::cell::Cell;
use crate::http::shapes::{StatementAnswer, StatementLineAnswer, TierAnswer};

pub(super) const COLUMNS: [&str; 42] = [
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
    "credit_notes",
    "other_totals",
];

/// The rows, in the order of the lines.
pub(super) fn rows(draft: &StatementAnswer) -> Vec<Vec<Cell>> {
    draft.lines.iter().map(|line| row(draft, line)).collect()
}

fn row(draft: &StatementAnswer, line: &StatementLineAnswer) -> Vec<Cell> {
    let tiers: Vec<_> =
        line.tiers.iter().map(|TierAnswer { quantity, unit, .. }| format!("{quantity} x {unit}")).collect();
    let listed = |texts: &[String]| Cell::text(Some(texts.join("; ")).filter(|texts| !texts.is_empty()));
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
        listed(&tiers),
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
        listed(&draft.unpriced),
        listed(&books(draft)),
        listed(&credit_notes(draft)),
        listed(&other_totals(draft)),
    ]
}

/// The last batches of the books, in words.
pub(super) fn books(draft: &StatementAnswer) -> Vec<String> {
    draft.books.iter().map(ToString::to_string).collect()
}

/// The credit notes that were issued with it, in words.
pub(super) fn credit_notes(draft: &StatementAnswer) -> Vec<String> {
    let currency = draft.currency.map(|currency| format!(" {currency}")).unwrap_or_default();
    let notes = draft.credit_notes.iter().map(|note| {
        let corrects = note.corrects.map(|number| format!(" to statement {number}")).unwrap_or_default();
        format!("{}{corrects}: {}{currency}", note.number, note.total)
    });
    notes.collect()
}

/// What it comes to in other currencies, in words.
pub(super) fn other_totals(draft: &StatementAnswer) -> Vec<String> {
    draft.other_totals.iter().map(|other| format!("{} {}", other.total, other.currency)).collect()
}
