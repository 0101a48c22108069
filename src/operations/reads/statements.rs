//! Statements: what a tenant's period costs.

use super::Reads;
use crate::domain::ids::TenantId;
use crate::domain::period::{Window, WindowKind};
use crate::domain::rating::RatingError;
use crate::domain::statement::{Content, Document, PricedBy, StatementError, price_period};
use crate::ledger::{IssuedStatement, ListedStatement};
use crate::operations::answers::{IssuedAs, Rows, StatementDetails, StatementLine};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::StatementsRequest;

impl Reads {
    /// What the open period costs so far in the tenant's currency, from what is booked of it.
    pub async fn draft_statement(&self, tenant: TenantId) -> Answer<StatementDetails> {
        let entry = self.known(&tenant).await?;
        let as_of_ms = self.core.clock.now_ms();
        let period = entry.windows(as_of_ms).period;
        let books = &self.core.ledger;
        let found = books.period_use(entry.partition, &tenant, &entry.calendars, period.start_ms).await?;
        let calendar = entry.calendars.at(period.start_ms);
        let by = PricedBy {
            tenant: &entry.definition,
            plan: entry.plan(),
            currency: found.currency.or(entry.definition.currency),
            start: calendar.date(period.start_ms),
        };
        let priced = price_period(by, &found.used, &found.charges).map_err(|error| match error {
            StatementError::Rating(RatingError::TooLarge(_)) => OperationError::field("", error.to_string()),
            other => OperationError::Internal(other.to_string()),
        })?;
        let priced = priced.into_iter().next();
        let lines = priced.iter().flat_map(|priced| priced.bill.lines());
        Ok(StatementDetails {
            tenant,
            plan: entry.definition.plan.clone(),
            policy_version: Some(entry.policy.version),
            period,
            zone: calendar.zone.name().to_owned(),
            currency: priced.as_ref().map(|priced| priced.bill.currency()),
            lines: lines.cloned().map(StatementLine::Billed).collect(),
            total: priced.as_ref().map(|priced| priced.bill.total()),
            unpriced: priced.map(|priced| priced.unpriced).unwrap_or_default(),
            as_of_ms,
            as_of_event: Some(found.cursor),
            issued: None,
        })
    }

    /// A tenant's issued statements and notes, newest first.
    pub async fn list_statements(&self, request: StatementsRequest) -> Answer<Rows<ListedStatement>> {
        self.known(&request.tenant).await?;
        if let Some(corrects) = request.corrects {
            self.issued(&request.tenant, corrects).await?;
        }
        let below = request.page.after.as_deref().map(str::parse).transpose();
        let below = below.map_err(|_| OperationError::bad_cursor())?;
        let limit = request.page.rows_max();
        let (tenant, corrects) = (&request.tenant, request.corrects);
        let found = self.core.ledger.statements(tenant, corrects, below, limit + 1).await?;
        Ok(Rows::page(found, limit, |listed| listed.number.to_string()))
    }

    /// A tenant's statement or credit note of this number.
    pub async fn read_statement(&self, tenant: TenantId, number: u64) -> Answer<StatementDetails> {
        let entry = self.known(&tenant).await?;
        let IssuedStatement { document, hash } = self.issued(&tenant, number).await?;
        let (currency, issued_at_ms) = (document.currency, document.issued_at_ms);
        let own = Window { start_ms: document.period_start_ms, end_ms: document.period_end_ms };
        let (billed_in, notes) = match document.corrects() {
            // It was issued within the grace of its period, which is shorter than a period.
            Some(_) => {
                let next = entry.calendars.window(WindowKind::Period, issued_at_ms);
                (entry.calendars.window(WindowKind::Period, next.start_ms.saturating_sub(1)), Vec::new())
            }
            None => (own, self.core.ledger.notes_with(&tenant, number, issued_at_ms, currency).await?),
        };
        let issued = IssuedAs { number, corrects: document.corrects(), hash, billed_in, notes };
        Ok(details(document, issued))
    }

    async fn issued(&self, tenant: &TenantId, number: u64) -> Answer<IssuedStatement> {
        let found = self.core.ledger.statement(tenant, number).await?;
        found.ok_or_else(|| OperationError::NotFound(format!("{tenant} has no statement {number}")))
    }
}

fn details(document: Document, issued: IssuedAs) -> StatementDetails {
    let lines = match document.content {
        Content::Statement { lines } => lines.into_iter().map(StatementLine::Billed).collect(),
        Content::CreditNote { lines, .. } => lines.into_iter().map(StatementLine::Corrected).collect(),
    };
    StatementDetails {
        tenant: document.tenant,
        plan: document.plan,
        policy_version: None,
        period: Window { start_ms: document.period_start_ms, end_ms: document.period_end_ms },
        zone: document.zone,
        currency: Some(document.currency),
        lines,
        total: Some(document.total),
        unpriced: document.unpriced,
        as_of_ms: document.issued_at_ms,
        as_of_event: None,
        issued: Some(issued),
    }
}
