//! The shapes of comparisons with suppliers' bills.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::instant::rfc3339;
use crate::domain::supplier_bill::finding::Sum;
use crate::domain::supplier_bill::summary::{Share, Summary};
use crate::domain::supplier_bill::{Finding, UseReference};
use crate::operations::answers::BillDetails;

/// What one outcome adds up to.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct ShareAnswer {
    /// How many groups of uses and rows.
    findings: u64,
    /// How many uses are in them.
    uses: u64,
    /// How many rows of the bill are in them.
    rows: u64,
    /// What is booked of them.
    amount_here: String,
    /// What the bill says of them.
    amount_there: String,
}

impl From<Share> for ShareAnswer {
    fn from(share: Share) -> Self {
        let Share { findings, uses, rows, here, there } = share;
        let (amount_here, amount_there) = (here.normalize().to_string(), there.normalize().to_string());
        Self { findings, uses, rows, amount_here, amount_there }
    }
}

/// What a comparison found in all.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct BillSummary {
    /// The same on both sides.
    matched: ShareAnswer,
    /// On both sides, with different amounts.
    different: ShareAnswer,
    /// On the bill, and not in the books.
    missing_here: ShareAnswer,
    /// In the books, and not on the bill.
    missing_there: ShareAnswer,
}

impl From<Summary> for BillSummary {
    fn from(summary: Summary) -> Self {
        Self {
            matched: summary.matched.into(),
            different: summary.different.into(),
            missing_here: summary.missing_here.into(),
            missing_there: summary.missing_there.into(),
        }
    }
}

/// A comparison of the books with a supplier's bill.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct ReconciledBill {
    /// Its id.
    #[schema(format = Uuid)]
    id: String,
    /// `loading`: the bill is being read. `matching`: it is compared. `done`. `failed`: it can be sent again under the
    /// same key.
    status: String,
    /// Who charges.
    supplier: String,
    /// Only what this tenant used.
    tenant: Option<String>,
    /// What is charged for.
    meter: String,
    /// What was consumed from here on.
    from: String,
    /// And before.
    to: String,
    /// `reservation_id`, `metadata.` and a key, or `amount_and_time`.
    matched_by: String,
    /// Whether no findings are kept.
    dry_run: bool,
    /// How many rows of the bill are read.
    rows_read: u64,
    /// What it found; null before it is done.
    summary: Option<BillSummary>,
    /// Why it failed; null if it did not.
    failure: Option<String>,
    /// What was booked by then was compared.
    as_of: Option<String>,
    /// When it began.
    created_at: String,
    /// The key by which it was asked for.
    created_by: String,
    /// When it ended.
    finished_at: Option<String>,
    /// Whether this is the answer to a repeated call.
    replayed: bool,
}

impl From<BillDetails> for ReconciledBill {
    fn from(details: BillDetails) -> Self {
        let BillDetails { stored, replayed } = details;
        let terms = stored.terms;
        let matched_by = match (&terms.columns.reference, &terms.reference) {
            (None, _) => "amount_and_time".to_owned(),
            (Some(_), UseReference::Reservation) => "reservation_id".to_owned(),
            (Some(_), UseReference::Metadata(key)) => format!("metadata.{key}"),
        };
        Self {
            id: stored.id.to_string(),
            status: stored.state.as_str().to_owned(),
            supplier: terms.supplier,
            tenant: terms.tenant.map(|tenant| tenant.to_string()),
            meter: terms.meter.to_string(),
            from: rfc3339(terms.from_ms),
            to: rfc3339(terms.to_ms),
            matched_by,
            dry_run: terms.dry_run,
            rows_read: stored.row_count,
            summary: stored.summary.map(BillSummary::from),
            failure: stored.failure,
            as_of: stored.compared_at_ms.map(rfc3339),
            created_at: rfc3339(stored.created_at_us.div_euclid(1_000)),
            created_by: stored.created_by,
            finished_at: stored.finished_at_ms.map(rfc3339),
            replayed,
        }
    }
}

/// Uses and rows of the bill that belong together.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct FindingRow {
    /// `matched`, `different`, `missing_here` (only on the bill) or `missing_there` (only in the books).
    pub(in crate::http) outcome: String,
    /// Whose, if the books or the bill say it.
    pub(in crate::http) tenant: Option<String>,
    /// What they are for, if that is known.
    pub(in crate::http) reference: Option<String>,
    /// What is booked.
    pub(in crate::http) amount_here: String,
    /// What the bill says.
    pub(in crate::http) amount_there: String,
    /// What the bill says beyond what is booked; below zero if it says less.
    pub(in crate::http) difference: String,
    /// How many uses.
    pub(in crate::http) uses: u64,
    /// How many rows of the bill.
    pub(in crate::http) rows: u64,
    /// When the last use was.
    pub(in crate::http) at_here: Option<String>,
    /// The latest time on the bill.
    pub(in crate::http) at_there: Option<String>,
    /// The first ten reservations.
    pub(in crate::http) reservations: Vec<String>,
    /// The lines of the file on which the first ten rows begin.
    pub(in crate::http) lines: Vec<u64>,
}

impl From<Finding> for FindingRow {
    fn from(finding: Finding) -> Self {
        let Finding { outcome, tenant, reference, here, there } = finding;
        let time = |at_ms: Option<i64>| at_ms.map(rfc3339);
        let Sum { amount: amount_there, count: rows, at_ms: at_there, named: lines } = there;
        let difference = amount_there.saturating_sub(here.amount);
        Self {
            outcome: outcome.as_str().to_owned(),
            tenant,
            reference: Some(reference).filter(|reference| !reference.is_empty()),
            amount_here: here.amount.normalize().to_string(),
            amount_there: amount_there.normalize().to_string(),
            difference: difference.normalize().to_string(),
            uses: here.count,
            rows,
            at_here: time(here.at_ms),
            at_there: time(at_there),
            reservations: here.named.iter().map(ToString::to_string).collect(),
            lines,
        }
    }
}
