//! A statement as a workbook: what it is of with its total, and its lines.

use super::lines;
use crate::http::cell::Cell;
use crate::http::shapes::StatementAnswer;
use crate::http::xlsx::Sheet;

/// The sheets of a statement's workbook.
pub(super) fn sheets(draft: &StatementAnswer) -> [Sheet; 2] {
    // A row for each: a cell has room for 32,767 characters.
    let each = |name: &'static str, texts: Vec<String>| {
        texts.into_iter().map(move |text| (name, Cell::text(Some(text))))
    };
    let several = each("credit_note", lines::credit_notes(draft))
        .chain(each("other_total", lines::other_totals(draft)))
        .chain(each("books", lines::books(draft)))
        .chain(each("unpriced", draft.unpriced.clone()));
    let fields = [
        ("tenant", Cell::text(Some(&draft.tenant))),
        ("status", Cell::text(Some(draft.status))),
        ("period_start", Cell::text(Some(&draft.period.start))),
        ("period_end", Cell::text(Some(&draft.period.end))),
        ("time_zone", Cell::text(Some(&draft.period.time_zone))),
        ("plan", Cell::text(draft.plan.as_ref())),
        ("currency", Cell::text(draft.currency)),
        ("total", Cell::number(Some(&draft.total))),
        ("policy_version", Cell::number(draft.policy_version)),
        ("as_of", Cell::text(draft.as_of.as_ref())),
        ("as_of_event", Cell::text(draft.as_of_event.as_ref())),
        ("document", Cell::text(Some(draft.document))),
        ("number", Cell::number(draft.number)),
        ("corrects", Cell::number(draft.corrects)),
        ("billed_in_start", Cell::text(draft.billed_in.as_ref().map(|period| &period.start))),
        ("billed_in_end", Cell::text(draft.billed_in.as_ref().map(|period| &period.end))),
        ("issued_at", Cell::text(draft.issued_at.as_ref())),
        ("hash", Cell::text(draft.hash.as_ref())),
    ];
    [
        Sheet {
            name: "Statement",
            header: vec!["field", "value"],
            rows: fields
                .into_iter()
                .chain(several)
                .map(|(name, value)| vec![Cell::text(Some(name)), value])
                .collect(),
        },
        Sheet { name: "Lines", header: lines::COLUMNS.to_vec(), rows: lines::rows(draft) },
    ]
}
