//! What comparing the gate with the books came to, a page at a time, newest first.

use uuid::Uuid;

use super::answers::{DifferenceAnswer, FiguresAnswer, PageAnswer, ReconciliationRow, SubjectAnswer};
use super::lists::{bad_cursor, limit_of};
use super::present::{instant, signed_amount};
use super::requests::ReconciliationsRequest;
use super::{Answer, Operations};
use crate::domain::amount::Decimals;
use crate::domain::checkpoint::{Difference, Figures};
use crate::ledger::{Reconciliation, ReconciliationFilter, ReconciliationPlace};

impl Operations {
    /// Reconciliations of the gate with the ledger: of clean ones each tenant's latest.
    pub async fn list_reconciliations(
        &self,
        request: ReconciliationsRequest,
    ) -> Answer<PageAnswer<ReconciliationRow>> {
        let filter = ReconciliationFilter { tenant: request.tenant, state: request.state };
        let after = request.page.after.as_deref().map(place).transpose()?;
        let limit = limit_of(&request.page);
        let mut rows = self.ledger.reconciliations(&filter, after, limit + 1).await?;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next =
            rows.last().filter(|_| has_more).map(|row| format!("{}:{}", row.judged_at_us, row.checkpoint));
        Ok(PageAnswer { data: rows.iter().map(row).collect(), next, as_of: None })
    }
}

fn place(text: &str) -> Answer<ReconciliationPlace> {
    let (judged, checkpoint) = text.split_once(':').ok_or_else(bad_cursor)?;
    Ok(ReconciliationPlace {
        judged_at_us: judged.parse().map_err(|_| bad_cursor())?,
        checkpoint: Uuid::parse_str(checkpoint).map_err(|_| bad_cursor())?,
    })
}

fn row(judged: &Reconciliation) -> ReconciliationRow {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    ReconciliationRow {
        id: judged.checkpoint.to_string(),
        tenant: judged.tenant.to_string(),
        taken_at: instant(judged.taken_at_ms),
        judged_at: instant(judged.judged_at_us.div_euclid(1000)),
        state: judged.state.as_str().into(),
        counters: number(judged.counters),
        differences: judged.differences.iter().map(difference).collect(),
        quarantined: number(judged.quarantined),
        gaps: number(judged.gaps),
        detail: (!judged.detail.is_empty()).then(|| judged.detail.clone()),
    }
}

fn difference(found: &Difference) -> DifferenceAnswer {
    let counter = &found.counter;
    let subject = counter.subject.as_ref();
    DifferenceAnswer {
        limit: counter.name.clone(),
        subject: subject
            .map(|subject| SubjectAnswer { kind: subject.kind.to_string(), id: subject.id.to_string() }),
        meter: counter.meter.to_string(),
        window_start: instant(counter.window_ms.0),
        window_end: instant(counter.window_ms.1),
        gate: figures(found.gate, counter.decimals),
        ledger: figures(found.books, counter.decimals),
    }
}

fn figures(figures: Figures, decimals: Decimals) -> FiguresAnswer {
    let write = |units| signed_amount(units, decimals);
    FiguresAnswer { consumed: write(figures.consumed), reserved: write(figures.reserved) }
}
