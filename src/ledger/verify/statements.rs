//! Works statements and credit notes out again, and compares them with their entries and with one another.

use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Binary, Nullable, Numeric, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::TryStreamExt;
use rust_decimal::Decimal;

use super::part::Part;
use super::{Check, Fault};
use crate::domain::statement::{Document, DocumentHash};
use crate::ledger::columns::MillisecondsIfAny;
use crate::ledger::prepared::sql_query;
use crate::ledger::{LedgerError, issue};

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Nullable<BigInt>)]
    number: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    corrects: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    currency: Option<String>,
    #[diesel(sql_type = Nullable<Numeric>)]
    total: Option<Decimal>,
    #[diesel(sql_type = Nullable<Text>)]
    document: Option<String>,
    #[diesel(sql_type = Nullable<Binary>)]
    hash: Option<Vec<u8>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    period_start: MillisecondsIfAny,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    period_end: MillisecondsIfAny,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    issued_at: MillisecondsIfAny,
    /// None also where a version before issued it.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    billed_in: MillisecondsIfAny,
    #[diesel(sql_type = Nullable<Uuid>)]
    operation_id: Option<uuid::Uuid>,
    #[diesel(sql_type = Numeric)]
    receivable: Decimal,
}

/// Every document of these tenants has its number, its hash, its entries, and the lines that its prices make.
pub(super) async fn check(connection: &mut AsyncPgConnection, part: &Part) -> Result<Check, LedgerError> {
    let mut check = Check::of("statements add up");
    let query =
        sql_query(include_str!("../sql/statements_with_entries.sql")).bind::<Array<Text>, _>(&part.tenants);
    let mut rows = query.load_stream::<Row>(connection).await?;
    let mut read = Read::default();
    while let Some(row) = rows.try_next().await? {
        check.checked += 1;
        if read.tenant != row.tenant {
            read = Read { tenant: row.tenant.clone(), ..Read::default() };
        }
        let named = row.number.map_or_else(|| "money".to_owned(), |number| format!("statement {number}"));
        if let Err(detail) = read.judge(&row) {
            check.fault(Fault::new(format!("{named} of {}", row.tenant), detail));
        }
    }
    Ok(check)
}

impl Row {
    /// Whether it says what its document says. A bill has documents of its own period and of earlier ones.
    fn says(&self, document: &Document) -> bool {
        let bills_earlier = |billed_in_ms: i64| billed_in_ms >= document.period_start_ms;
        self.number.map(u64::try_from) == Some(Ok(document.number))
            && self.corrects.map(u64::try_from) == document.corrects().map(Ok)
            && document.tenant.as_str() == self.tenant
            && self.currency.as_deref() == Some(document.currency.code())
            && self.total == Some(document.total.decimal())
            && self.period_start.0 == Some(document.period_start_ms)
            && self.period_end.0 == Some(document.period_end_ms)
            && self.issued_at.0 == Some(document.issued_at_ms)
            && self.operation_id == Some(issue::operation_id(document))
            && self.billed_in.0.is_none_or(bills_earlier)
    }
}

/// The documents of one tenant that have been read.
#[derive(Default)]
struct Read {
    tenant: String,
    last: i64,
    hash: DocumentHash,
    documents: Vec<Document>,
}

impl Read {
    fn judge(&mut self, row: &Row) -> Result<(), String> {
        let (Some(number), Some(text), Some(total)) = (row.number, &row.document, row.total) else {
            return Err(format!("{} is receivable without a statement", row.receivable.normalize()));
        };
        let (before, previous) = (std::mem::replace(&mut self.last, number), self.hash);
        let stored = row.hash.as_deref().and_then(|hash| hash.try_into().ok());
        self.hash = stored.unwrap_or_default();
        let is_its = Document::hash(text, &previous) == self.hash;
        let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let corrected = document.corrects();
        let original =
            corrected.and_then(|corrects| self.documents.iter().find(|earlier| earlier.number == corrects));
        let notes: Vec<Document> = self
            .documents
            .iter()
            .filter(|earlier| corrected.is_some() && earlier.corrects() == corrected)
            .cloned()
            .collect();
        let recomputes = document.recomputes(original, &notes).map_err(|error| error.to_string())?;
        let says_the_same = row.says(&document);
        self.documents.push(document);
        for (holds, fault) in [
            (number == before + 1, "its number does not follow the one before"),
            (is_its, "its text has changed: the hash is another"),
            (says_the_same, "its row and its text differ"),
            (recomputes, "its lines are not what its prices make of what was used"),
        ] {
            if !holds {
                return Err(fault.to_owned());
            }
        }
        let receivable = row.receivable.normalize();
        if receivable != total.normalize() {
            return Err(format!("its total is {}, by entries {receivable}", total.normalize()));
        }
        Ok(())
    }
}
