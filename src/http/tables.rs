//! The rows of lists as rows of tables.

use super::adjustments::AdjustmentAnswer;
use super::cell::Cell;
use super::shapes::{
    BalanceRow, EntryRow, FindingRow, ReconciliationRow, ReservationAnswer, RevenueRow, RolloverRow,
    SubjectAnswer, TopRow, UsageRow,
};

/// A row of a list that can also be a file.
pub(super) trait TableRow {
    /// What the file is named, without its ending.
    const FILE: &'static str;
    /// The titles of the columns.
    const COLUMNS: &'static [&'static str];

    /// The rows of the table: at least one, each with a cell for every column.
    fn table_rows(&self) -> Vec<Vec<Cell>>;
}

impl TableRow for UsageRow {
    const FILE: &'static str = "usage";
    const COLUMNS: &'static [&'static str] = &[
        "start",
        "tenant",
        "plan",
        "meter",
        "operation",
        "subject_kind",
        "subject",
        "consumed",
        "count",
        "excess",
        "late",
        "corrections",
    ];

    fn table_rows(&self) -> Vec<Vec<Cell>> {
        let [kind, subject] = subject(self.subject.as_ref());
        vec![vec![
            Cell::text(self.start.as_ref()),
            Cell::text(self.tenant.as_ref()),
            Cell::text(self.plan.as_ref()),
            Cell::text(Some(&self.meter)),
            Cell::text(self.operation.as_ref()),
            kind,
            subject,
            Cell::number(Some(&self.consumed)),
            Cell::number(Some(self.count)),
            Cell::number(Some(&self.excess)),
            Cell::number(Some(&self.late)),
            Cell::number(Some(&self.corrections)),
        ]]
    }
}

impl TableRow for FindingRow {
    const FILE: &'static str = "reconciliation";
    const COLUMNS: &'static [&'static str] = &[
        "outcome",
        "tenant",
        "reference",
        "amount_here",
        "amount_there",
        "difference",
        "uses",
        "rows",
        "at_here",
        "at_there",
        "reservations",
        "lines",
    ];

    fn table_rows(&self) -> Vec<Vec<Cell>> {
        let lines: Vec<_> = self.lines.iter().map(u64::to_string).collect();
        let listed = |names: &[String]| Cell::text(Some(names.join(" ")).filter(|names| !names.is_empty()));
        vec![vec![
            Cell::text(Some(&self.outcome)),
            Cell::text(self.tenant.as_ref()),
            Cell::text(self.reference.as_ref()),
            Cell::number(Some(&self.amount_here)),
            Cell::number(Some(&self.amount_there)),
            Cell::number(Some(&self.difference)),
            Cell::number(Some(self.uses)),
            Cell::number(Some(self.rows)),
            Cell::text(self.at_here.as_ref()),
            Cell::text(self.at_there.as_ref()),
            listed(&self.reservations),
            listed(&lines),
        ]]
    }
}

impl TableRow for TopRow {
    const FILE: &'static str = "top";
    const COLUMNS: &'static [&'static str] = &[
        "rank",
        "tenant",
        "plan",
        "operation",
        "subject_kind",
        "subject",
        "meter",
        "consumed",
        "count",
        "corrections",
    ];

    fn table_rows(&self) -> Vec<Vec<Cell>> {
        let [kind, subject] = subject(self.subject.as_ref());
        vec![vec![
            Cell::number(Some(self.rank)),
            Cell::text(self.tenant.as_ref()),
            Cell::text(self.plan.as_ref()),
            Cell::text(self.operation.as_ref()),
            kind,
            subject,
            Cell::text(Some(&self.meter)),
            Cell::number(Some(&self.consumed)),
            Cell::number(Some(self.count)),
            Cell::number(Some(&self.corrections)),
        ]]
    }
}

impl TableRow for RolloverRow {
    const FILE: &'static str = "rollover";
    const COLUMNS: &'static [&'static str] = &[
        "tenant",
        "meter",
        "period_start",
        "period_end",
        "closed_at",
        "granted",
        "rolled_in",
        "carried_in",
        "overage",
        "adjusted",
        "consumed",
        "lapsed",
        "voided",
        "rolled_out",
        "carried_out",
        "repaid",
    ];

    fn table_rows(&self) -> Vec<Vec<Cell>> {
        let names = [&self.tenant, &self.meter, &self.period_start, &self.period_end, &self.closed_at];
        let amounts = [
            &self.granted,
            &self.rolled_in,
            &self.carried_in,
            &self.overage,
            &self.adjusted,
            &self.consumed,
            &self.lapsed,
            &self.voided,
            &self.rolled_out,
            &self.carried_out,
            &self.repaid,
        ];
        let names = names.into_iter().map(|name| Cell::text(Some(name)));
        vec![names.chain(amounts.into_iter().map(|amount| Cell::number(Some(amount)))).collect()]
    }
}

impl TableRow for BalanceRow {
    const FILE: &'static str = "balances";
    const COLUMNS: &'static [&'static str] = &[
        "tenant",
        "meter",
        "period_start",
        "period_end",
        "granted",
        "rolled_in",
        "carried_in",
        "overage",
        "adjusted",
        "available",
        "reserved",
        "consumed",
        "lapsed",
        "voided",
        "rolled_out",
        "carried_out",
        "repaid",
        "receivable",
        "revenue",
        "deferred",
        "breakage",
        "tax",
    ];

    fn table_rows(&self) -> Vec<Vec<Cell>> {
        let names =
            [Some(&self.tenant), Some(&self.meter), self.period_start.as_ref(), self.period_end.as_ref()];
        let amounts = [
            &self.granted,
            &self.rolled_in,
            &self.carried_in,
            &self.overage,
            &self.adjusted,
            &self.available,
            &self.reserved,
            &self.consumed,
            &self.lapsed,
            &self.voided,
            &self.rolled_out,
            &self.carried_out,
            &self.repaid,
            &self.receivable,
            &self.revenue,
            &self.deferred,
            &self.breakage,
            &self.tax,
        ];
        let amounts = amounts.into_iter().map(|amount| Cell::number(amount.as_ref()));
        vec![names.into_iter().map(Cell::text).chain(amounts).collect()]
    }
}

impl TableRow for AdjustmentAnswer {
    const FILE: &'static str = "adjustments";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "tenant",
        "meter",
        "effect",
        "amount",
        "booked_amount",
        "happened_at",
        "period_start",
        "booked_in",
        "corrects",
        "reason",
        "reference",
        "status",
        "posted_at",
        "posted_by",
        "decided_at",
        "decided_by",
        "booked_at",
        "currency",
        "statement",
    ];

    fn table_rows(&self) -> Vec<Vec<Cell>> {
        let given = |text: &str| Cell::text(Some(text).filter(|text| !text.is_empty()));
        vec![vec![
            Cell::text(Some(&self.id)),
            Cell::text(Some(&self.tenant)),
            Cell::text(self.meter.as_ref()),
            Cell::text(Some(self.effect)),
            Cell::number(Some(&self.amount)),
            Cell::number(self.booked_amount.as_ref()),
            Cell::text(Some(&self.happened_at)),
            Cell::text(self.period_start.as_ref()),
            Cell::text(self.booked_in.as_ref()),
            Cell::text(self.corrects.as_ref()),
            Cell::text(Some(&self.reason)),
            given(&self.reference),
            Cell::text(Some(self.status)),
            Cell::text(Some(&self.posted_at)),
            Cell::text(Some(&self.posted_by)),
            Cell::text(self.decided_at.as_ref()),
            Cell::text(self.decided_by.as_ref()),
            Cell::text(self.booked_at.as_ref()),
            Cell::text(self.currency),
            Cell::number(self.statement),
        ]]
    }
}

impl TableRow for RevenueRow {
    const FILE: &'static str = "revenue";
    const COLUMNS: &'static [&'static str] = &[
        "period",
        "tenant",
        "plan",
        "meter",
        "currency",
        "billed",
        "corrected",
        "revenue",
        "documents",
        "deferred",
        "breakage",
    ];

    fn table_rows(&self) -> Vec<Vec<Cell>> {
        vec![vec![
            Cell::text(self.period.as_ref()),
            Cell::text(self.tenant.as_ref()),
            Cell::text(self.plan.as_ref()),
            Cell::text(self.meter.as_ref()),
            Cell::text(Some(self.currency)),
            Cell::number(Some(&self.billed)),
            Cell::number(Some(&self.corrected)),
            Cell::number(Some(&self.revenue)),
            Cell::number(Some(self.documents)),
            Cell::number(Some(&self.deferred)),
            Cell::number(Some(&self.breakage)),
        ]]
    }
}

/// A row for each meter of a hold.
impl TableRow for ReservationAnswer {
    const FILE: &'static str = "leaked";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "tenant",
        "operation",
        "subjects",
        "created_at",
        "expires_at",
        "resolved_at",
        "meter",
        "reserved",
        "consumed",
        "returned",
    ];

    fn table_rows(&self) -> Vec<Vec<Cell>> {
        let named = self.subjects.iter().flatten().map(|(kind, id)| format!("{kind}:{id}"));
        let subjects: Vec<_> = named.collect();
        let rows = self.lines.iter().map(|line| {
            vec![
                Cell::text(Some(&self.id)),
                Cell::text(Some(&self.tenant)),
                Cell::text(self.operation.as_ref()),
                Cell::text(Some(subjects.join(" ")).filter(|subjects| !subjects.is_empty())),
                Cell::text(Some(&self.created_at)),
                Cell::text(Some(&self.expires_at)),
                Cell::text(self.resolved_at.as_ref()),
                Cell::text(Some(&line.meter)),
                Cell::number(Some(&line.reserved)),
                Cell::number(Some(&line.consumed)),
                Cell::number(Some(&line.returned)),
            ]
        });
        rows.collect()
    }
}

impl TableRow for EntryRow {
    const FILE: &'static str = "entries";
    const COLUMNS: &'static [&'static str] = &[
        "tenant",
        "operation_id",
        "step",
        "meter",
        "period_start",
        "credit",
        "debit",
        "amount",
        "class",
        "flags",
        "happened_at",
        "booked_at",
        "operation",
        "chain",
        "batch",
    ];

    fn table_rows(&self) -> Vec<Vec<Cell>> {
        vec![vec![
            Cell::text(Some(&self.tenant)),
            Cell::text(Some(&self.operation_id)),
            Cell::number(Some(self.step)),
            Cell::text(Some(&self.meter)),
            Cell::text(Some(&self.period_start)),
            Cell::text(Some(&self.credit)),
            Cell::text(Some(&self.debit)),
            Cell::number(Some(&self.amount)),
            Cell::text(Some(&self.class)),
            Cell::text(Some(self.flags.join(" ")).filter(|flags| !flags.is_empty())),
            Cell::text(Some(&self.happened_at)),
            Cell::text(Some(&self.booked_at)),
            Cell::text(self.operation.as_ref()),
            Cell::number(Some(self.chain)),
            Cell::number(Some(self.batch)),
        ]]
    }
}

/// A row for each difference; one without a counter where nothing differs.
impl TableRow for ReconciliationRow {
    const FILE: &'static str = "reconciliation";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "tenant",
        "taken_at",
        "judged_at",
        "state",
        "counters",
        "quarantined",
        "parked",
        "gaps",
        "detail",
        "limit",
        "subject_kind",
        "subject",
        "meter",
        "window_start",
        "window_end",
        "gate_consumed",
        "gate_reserved",
        "ledger_consumed",
        "ledger_reserved",
    ];

    fn table_rows(&self) -> Vec<Vec<Cell>> {
        let comparison = vec![
            Cell::text(Some(&self.id)),
            Cell::text(Some(&self.tenant)),
            Cell::text(Some(&self.taken_at)),
            Cell::text(Some(&self.judged_at)),
            Cell::text(Some(&self.state)),
            Cell::number(Some(self.counters)),
            Cell::number(Some(self.quarantined)),
            Cell::number(Some(self.parked)),
            Cell::number(Some(self.gaps)),
            Cell::text(self.detail.as_ref()),
        ];
        let with_difference = |difference: Vec<Cell>| {
            let mut row: Vec<Cell> = comparison.iter().cloned().chain(difference).collect();
            row.resize(Self::COLUMNS.len(), Cell::Empty);
            row
        };
        if self.differences.is_empty() {
            return vec![with_difference(Vec::new())];
        }
        let differences = self.differences.iter().map(|found| {
            let [kind, subject] = subject(found.subject.as_ref());
            vec![
                Cell::text(Some(&found.limit)),
                kind,
                subject,
                Cell::text(Some(&found.meter)),
                Cell::text(Some(&found.window_start)),
                Cell::text(Some(&found.window_end)),
                Cell::number(Some(&found.gate.consumed)),
                Cell::number(Some(&found.gate.reserved)),
                Cell::number(Some(&found.ledger.consumed)),
                Cell::number(Some(&found.ledger.reserved)),
            ]
        });
        differences.map(with_difference).collect()
    }
}

fn subject(subject: Option<&SubjectAnswer>) -> [Cell; 2] {
    [Cell::text(subject.map(|subject| &subject.kind)), Cell::text(subject.map(|subject| &subject.id))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::shapes::{DifferenceAnswer, FiguresAnswer};

    fn comparison(differences: Vec<DifferenceAnswer>) -> ReconciliationRow {
        ReconciliationRow {
            id: "c".into(),
            tenant: "acme".into(),
            taken_at: "2026-03-01T00:00:00Z".into(),
            judged_at: "2026-03-01T00:00:01Z".into(),
            state: "drift".into(),
            counters: 7,
            differences,
            quarantined: 0,
            parked: 0,
            gaps: 0,
            detail: None,
        }
    }

    fn difference(limit: &str) -> DifferenceAnswer {
        DifferenceAnswer {
            limit: limit.into(),
            subject: Some(SubjectAnswer { kind: "user".into(), id: "-u".into() }),
            meter: "page".into(),
            window_start: "2026-03-01T00:00:00Z".into(),
            window_end: "2026-04-01T00:00:00Z".into(),
            gate: FiguresAnswer { consumed: "-3".into(), reserved: "1".into() },
            ledger: FiguresAnswer { consumed: "4".into(), reserved: "2".into() },
        }
    }

    #[test]
    fn a_comparison_has_a_row_for_each_difference_and_one_without_any() {
        let found = |differences| comparison(differences).table_rows();
        let column = |name| ReconciliationRow::COLUMNS.iter().position(|title| *title == name).unwrap();
        let (clean, twice) = (found(Vec::new()), found(vec![difference("a"), difference("b")]));
        assert_eq!((clean.len(), twice.len()), (1, 2));
        for row in clean.iter().chain(&twice) {
            assert_eq!(row.len(), ReconciliationRow::COLUMNS.len());
            assert_eq!(row[column("id")], Cell::Text("c".into()));
        }
        assert_eq!(clean[0][column("limit")], Cell::Empty);
        assert_eq!(twice[1][column("limit")], Cell::Text("b".into()));
        assert_eq!(twice[1][column("subject")], Cell::Text("-u".into()));
        assert_eq!(twice[1][column("gate_consumed")], Cell::Number("-3".into()));
        assert_eq!(twice[1][column("ledger_reserved")], Cell::Number("2".into()));
    }
}
