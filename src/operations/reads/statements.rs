//! Statements: what a tenant's period costs.

use super::Reads;
use crate::domain::ids::{MeterId, OutboxId, PlanId, TenantId};
use crate::domain::money::{Currency, Money};
use crate::domain::period::{Calendars, Window, WindowKind};
use crate::domain::rating::{Line, RatingError};
use crate::domain::statement::{Content, Document, Priced, PricedBy, StatementError, price_period};
use crate::ledger::{IssuedStatement, ListedStatement, StatementsToCome};
use crate::operations::answers::{IssuedAs, Rows, StatementDetails, StatementLine};
use crate::operations::error::{Answer, OperationError};
use crate::operations::policy_store::TenantEntry;
use crate::operations::requests::{DraftPeriod, DraftRequest, StatementsRequest};

impl Reads {
    /// What a period costs so far, in one currency, from what is booked of it.
    pub async fn draft_statement(&self, request: DraftRequest) -> Answer<StatementDetails> {
        let DraftRequest { tenant, currency, period } = request;
        let entry = self.core.policy.named_tenant(&tenant).await?;
        let mut draft = match period {
            DraftPeriod::Open => self.open_period(&tenant, &entry).await?,
            DraftPeriod::Closing => self.closing_period(&tenant, &entry).await?,
        };
        let is_asked = |bill: &DraftBill| currency.is_none_or(|asked| bill.currency == asked);
        let chosen = draft.bills.iter().position(is_asked).map(|at| draft.bills.remove(at));
        let other_totals = draft.bills.iter().map(|bill| (bill.currency, bill.total)).collect();
        let nothing = currency.map(|currency| DraftBill {
            plan: entry.definition.plan.clone(),
            currency,
            lines: Vec::new(),
            total: currency.money(0),
            unpriced: Vec::new(),
        });
        let bill = chosen.or(nothing);
        Ok(StatementDetails {
            plan: bill.as_ref().map_or_else(|| entry.definition.plan.clone(), |bill| bill.plan.clone()),
            policy_version: draft.policy_version,
            zone: entry.calendars.at(draft.period.start_ms).zone.name().to_owned(),
            calendars: entry.calendars.clone(),
            period: draft.period,
            currency: bill.as_ref().map(|bill| bill.currency),
            total: bill.as_ref().map(|bill| bill.total),
            as_of_ms: draft.as_of_ms,
            as_of_event: Some(draft.cursor),
            other_totals,
            issued: None,
            unpriced: bill.as_ref().map(|bill| bill.unpriced.clone()).unwrap_or_default(),
            lines: bill.into_iter().flat_map(|bill| bill.lines).map(StatementLine::Billed).collect(),
            tenant,
        })
    }

    /// The open period by the current policy.
    async fn open_period(&self, tenant: &TenantId, entry: &TenantEntry) -> Answer<Draft> {
        let as_of_ms = self.core.clock.now_ms();
        let period = entry.windows(as_of_ms).period;
        let books = &self.core.ledger;
        let found = books.period_use(entry.partition, tenant, &entry.calendars, period.start_ms).await?;
        let by = PricedBy {
            tenant: &entry.definition,
            plan: entry.plan(),
            currency: found.currency.or(entry.definition.currency),
            start: entry.calendars.at(period.start_ms).date(period.start_ms),
        };
        let priced = price_period(by, &found.used, &found.charges).map_err(|error| match error {
            StatementError::Rating(RatingError::TooLarge(_)) => OperationError::field("", error.to_string()),
            other => OperationError::Internal(other.to_string()),
        })?;
        let bill = |priced: Priced| DraftBill {
            plan: entry.definition.plan.clone(),
            currency: priced.bill.currency(),
            lines: priced.bill.lines().to_vec(),
            total: priced.bill.total(),
            unpriced: priced.unpriced,
        };
        let bills = priced.into_iter().map(bill).collect();
        let policy_version = Some(entry.policy.version);
        Ok(Draft { period, policy_version, bills, as_of_ms, cursor: found.cursor })
    }

    /// The first period that has ended and is not billed, by what held at its end.
    async fn closing_period(&self, tenant: &TenantId, entry: &TenantEntry) -> Answer<Draft> {
        let as_of_ms = self.core.clock.now_ms();
        let books = &self.core.ledger;
        let found = books.statements_to_come(entry.partition, tenant, &entry.calendars, as_of_ms).await?;
        let Some(StatementsToCome { cursor, period, statements }) = found else {
            return Err(OperationError::NotFound(format!(
                "every period of {tenant} that has ended is billed"
            )));
        };
        let bill = |document: Document| {
            let Content::Statement { lines } = document.content else { return None };
            let Document { plan, currency, total, unpriced, .. } = document;
            Some(DraftBill { plan, currency, lines, total, unpriced })
        };
        let statements = statements.map_err(|why| OperationError::field("", why))?;
        let bills = statements.into_iter().filter_map(bill).collect();
        Ok(Draft { period, policy_version: None, bills, as_of_ms, cursor })
    }

    /// A tenant's issued statements and notes, newest first.
    pub async fn list_statements(&self, request: StatementsRequest) -> Answer<Rows<ListedStatement>> {
        self.core.policy.named_tenant(&request.tenant).await?;
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
        let entry = self.core.policy.named_tenant(&tenant).await?;
        let IssuedStatement { document, hash, billed_in_ms } = self.issued(&tenant, number).await?;
        let (currency, issued_at_ms) = (document.currency, document.issued_at_ms);
        let window = |at_ms| entry.calendars.window(WindowKind::Period, at_ms);
        // Where it is not noted: a note was issued within the grace of that period.
        let issued_with = || match document.corrects() {
            Some(_) => window(issued_at_ms).start_ms.saturating_sub(1),
            None => document.period_start_ms,
        };
        let billed_in = window(billed_in_ms.unwrap_or_else(issued_with));
        let notes = match document.corrects() {
            Some(_) => Vec::new(),
            None => self.core.ledger.notes_with(&tenant, number, issued_at_ms, currency).await?,
        };
        let (corrects, books) = (document.corrects(), document.books.clone());
        let issued = IssuedAs { number, corrects, hash, billed_in, notes, books };
        Ok(details(document, entry.calendars.clone(), issued))
    }

    async fn issued(&self, tenant: &TenantId, number: u64) -> Answer<IssuedStatement> {
        let found = self.core.ledger.statement(tenant, number).await?;
        found.ok_or_else(|| OperationError::NotFound(format!("{tenant} has no statement {number}")))
    }
}

/// What a period costs so far.
struct Draft {
    period: Window,
    policy_version: Option<u64>,
    /// One for each currency, the tenant's own first.
    bills: Vec<DraftBill>,
    as_of_ms: i64,
    cursor: OutboxId,
}

/// What it costs in one currency.
struct DraftBill {
    plan: Option<PlanId>,
    currency: Currency,
    lines: Vec<Line>,
    total: Money,
    unpriced: Vec<MeterId>,
}

fn details(document: Document, calendars: Calendars, issued: IssuedAs) -> StatementDetails {
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
        calendars,
        currency: Some(document.currency),
        lines,
        total: Some(document.total),
        unpriced: document.unpriced,
        as_of_ms: document.issued_at_ms,
        as_of_event: None,
        other_totals: Vec::new(),
        issued: Some(issued),
    }
}
