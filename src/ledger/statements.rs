//! Issued statements and credit notes, as they are kept.

use chrono::{DateTime, Utc};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use rust_decimal::Decimal;

use super::columns::{Hash, MillisecondsIfAny};
use super::schema::statements;
use super::{Ledger, LedgerError, instant, number};
use crate::domain::ids::TenantId;
use crate::domain::money::{Currency, Money};
use crate::domain::period::Window;
use crate::domain::statement::{Document, DocumentHash};

/// What a list of statements says of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedStatement {
    /// Its number among the tenant's.
    pub number: u64,
    /// The number of the statement that it corrects; none for a statement.
    pub corrects: Option<u64>,
    /// Its period.
    pub period: Window,
    /// Its currency.
    pub currency: Currency,
    /// Its total.
    pub total: Money,
    /// From when on it holds (unix ms).
    pub issued_at_ms: i64,
    /// The hash of it and of all before.
    pub hash: DocumentHash,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = statements, check_for_backend(Pg))]
struct ListedRow {
    number: i64,
    corrects: Option<i64>,
    period_start: DateTime<Utc>,
    period_end: DateTime<Utc>,
    currency: String,
    total: Decimal,
    issued_at: DateTime<Utc>,
    #[diesel(deserialize_as = Hash)]
    hash: DocumentHash,
}

impl ListedRow {
    fn read(self) -> Result<ListedStatement, LedgerError> {
        let damaged = || LedgerError::Damaged(format!("statement {}", self.number));
        let currency = Currency::parse(&self.currency).map_err(|_| damaged())?;
        Ok(ListedStatement {
            number: number::unsigned(self.number)?,
            corrects: self.corrects.map(number::unsigned).transpose()?,
            period: Window {
                start_ms: self.period_start.timestamp_millis(),
                end_ms: self.period_end.timestamp_millis(),
            },
            total: currency.signed_money(self.total).map_err(|_| damaged())?,
            currency,
            issued_at_ms: self.issued_at.timestamp_millis(),
            hash: self.hash,
        })
    }
}

/// An issued statement or credit note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedStatement {
    /// What it says.
    pub document: Document,
    /// The hash of it and of all before.
    pub hash: DocumentHash,
    /// The start of the period in whose bill it is (unix ms); none where a version before issued it.
    pub billed_in_ms: Option<i64>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = statements, check_for_backend(Pg))]
struct Row {
    number: i64,
    document: String,
    #[diesel(deserialize_as = Hash)]
    hash: DocumentHash,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    billed_in: Option<i64>,
}

impl Row {
    fn read(self) -> Result<IssuedStatement, LedgerError> {
        let document = parsed(self.number, &self.document)?;
        Ok(IssuedStatement { document, hash: self.hash, billed_in_ms: self.billed_in })
    }
}

impl Ledger {
    /// A tenant's statements and notes, newest first, at most `limit`, of numbers below `below`. With `corrects` only
    /// the notes to that statement.
    pub async fn statements(
        &self,
        tenant: &TenantId,
        corrects: Option<u64>,
        below: Option<u64>,
        limit: usize,
    ) -> Result<Vec<ListedStatement>, LedgerError> {
        let tenant = tenant.clone();
        let rows: Vec<ListedRow> = self
            .read(move |connection| {
                let tenant = tenant.clone();
                async move {
                    let mut list = statements::table
                        .select(ListedRow::as_select())
                        .filter(statements::tenant.eq(tenant))
                        .order(statements::number.desc())
                        .limit(number::limit(limit))
                        .into_boxed();
                    if let Some(below) = below {
                        list = list.filter(statements::number.lt(number::signed(below)));
                    }
                    if let Some(corrects) = corrects {
                        list = list.filter(statements::corrects.eq(number::signed(corrects)));
                    }
                    Ok(list.load(connection).await?)
                }
                .boxed()
            })
            .await?;
        rows.into_iter().map(ListedRow::read).collect()
    }

    /// The notes in this currency that were issued with a tenant's statement of this number, at that instant (unix ms),
    /// in order.
    pub async fn notes_with(
        &self,
        tenant: &TenantId,
        statement: u64,
        issued_at_ms: i64,
        currency: Currency,
    ) -> Result<Vec<ListedStatement>, LedgerError> {
        let issued_at = instant::from_ms(issued_at_ms)?;
        let query = || {
            statements::table
                .select(ListedRow::as_select())
                .filter(statements::tenant.eq(tenant))
                .filter(statements::number.gt(number::signed(statement)))
                .filter(statements::issued_at.eq(issued_at))
                .filter(statements::corrects.is_not_null())
                .filter(statements::currency.eq(currency.code()))
                .order(statements::number)
        };
        let rows: Vec<ListedRow> = self.load(query).await?;
        rows.into_iter().map(ListedRow::read).collect()
    }

    /// A tenant's statement or note of this number.
    pub async fn statement(
        &self,
        tenant: &TenantId,
        asked: u64,
    ) -> Result<Option<IssuedStatement>, LedgerError> {
        let tenant = tenant.clone();
        let row: Option<Row> = self
            .read(move |connection| {
                let tenant = tenant.clone();
                async move {
                    let find = statements::table.find((tenant, number::signed(asked)));
                    Ok(find.select(Row::as_select()).first(connection).await.optional()?)
                }
                .boxed()
            })
            .await?;
        row.map(Row::read).transpose()
    }
}

/// A document out of the text in which it is kept.
pub(super) fn parsed(number: i64, text: &str) -> Result<Document, LedgerError> {
    serde_json::from_str(text).map_err(|error| LedgerError::Damaged(format!("statement {number}: {error}")))
}
