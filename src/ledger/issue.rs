//! Statements of closed periods, and notes to earlier ones, issued and booked in one transaction.

mod books;
mod to_come;

use std::collections::HashMap;
use std::time::Duration;

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;

use self::books::{Books, Head};
pub use self::to_come::StatementsToCome;
use super::billing::{self, DuePeriod};
use super::schema::statements;
use super::{BEGIN_BOOKING, Ledger, LedgerError, capacities, charges, cursors, instant, journal, number};
use crate::domain::entry::{PostedLine, Posting};
use crate::domain::ids::{MeterId, OutboxId, Partition, TenantId};
use crate::domain::meter::MONEY_PREFIX;
use crate::domain::movements::Movement;
use crate::domain::movements::money::{note_line, statement_line};
use crate::domain::period::Window;
use crate::domain::statement::Document;
use crate::domain::uuid_id;

/// How statements are issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Issuing {
    /// What has to be booked of the partition before.
    pub after: OutboxId,
    /// How long after its end a period takes facts.
    pub grace: Duration,
    /// Whether to say only what would be issued.
    pub dry_run: bool,
}

/// What was issued.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Issued {
    /// Statements.
    pub statements: u64,
    /// Credit notes.
    pub notes: u64,
    /// Periods that are billed now, with a statement or without one since nothing had a price.
    pub billed: u64,
    /// Periods that wait until all of their meters are closed.
    pub waiting: u64,
    /// Tenants whose period cannot be billed, and why.
    pub failed: Vec<(TenantId, String)>,
}

impl Issued {
    /// Adds what another part has done.
    pub fn add(&mut self, other: Self) {
        self.statements += other.statements;
        self.notes += other.notes;
        self.billed += other.billed;
        self.waiting += other.waiting;
        self.failed.extend(other.failed);
    }
}

impl Ledger {
    /// Issues the statements of these periods, of one partition's tenants, and the notes for what is booked in them for
    /// earlier ones. Each tenant is named once. Nothing of the partition is booked meanwhile. A period that cannot be
    /// billed holds up its own tenant only.
    pub async fn issue_statements(
        &self,
        partition: Partition,
        due: Vec<DuePeriod>,
        issuing: Issuing,
    ) -> Result<Issued, LedgerError> {
        let grace_ms = i64::try_from(issuing.grace.as_millis()).unwrap_or(i64::MAX);
        let issued_at = due.iter().map(|due| due.period.end_ms.saturating_add(grace_ms));
        self.ensure_months_of(issued_at).await?;
        self.transact(BEGIN_BOOKING, move |connection| {
            async move {
                let (locked, _) = cursors::lock(connection, &[partition]).await?;
                if !issuing.dry_run && !locked.iter().all(|cursor| cursor.settles(issuing.after)) {
                    return Ok(Issued { waiting: count(due.len()), ..Issued::default() });
                }
                // Who deletes a tenant locks it before its row of billing.
                capacities::keep_tenants(connection, due.iter().map(|due| &due.tenant)).await?;
                let due = billing::lock(connection, due).await?;
                issue(connection, partition, due, grace_ms, issuing.dry_run).await
            }
            .boxed()
        })
        .await
    }
}

async fn issue(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    due: Vec<DuePeriod>,
    grace_ms: i64,
    is_dry_run: bool,
) -> Result<Issued, LedgerError> {
    let mut books = Books::read(connection, &due, grace_ms).await?;
    let mut issued = Issued::default();
    let (mut documents, mut done) = (Vec::new(), Vec::new());
    for period in &due {
        if books.waits(period) {
            issued.waiting += 1;
            continue;
        }
        match documents_of(connection, &mut books, period, grace_ms).await? {
            Ok(of_tenant) => {
                issued.billed += 1;
                documents.extend(of_tenant);
                done.push(period);
            }
            Err(why) => issued.failed.push((period.tenant.clone(), why)),
        }
    }
    issued.notes = count(documents.iter().filter(|document| document.corrects().is_some()).count());
    issued.statements = count(documents.len()) - issued.notes;
    if !is_dry_run {
        write(connection, partition, &done, documents, books.heads).await?;
        billing::advance(connection, &done).await?;
    }
    Ok(issued)
}

/// The documents of a period, or why it cannot be billed. Where it cannot be rated by what held at its end, later
/// versions are tried.
async fn documents_of(
    connection: &mut AsyncPgConnection,
    books: &mut Books,
    period: &DuePeriod,
    grace_ms: i64,
) -> Result<Result<Vec<Document>, String>, LedgerError> {
    let documents = books.documents(period, grace_ms);
    if documents.is_err() && books.read_later(connection, period).await? {
        return Ok(books.documents(period, grace_ms));
    }
    Ok(documents)
}

fn count(rows: usize) -> u64 {
    u64::try_from(rows).unwrap_or(u64::MAX)
}

/// Stores the documents of these periods and books their lines, in order, but for those that are booked already.
async fn write(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    periods: &[&DuePeriod],
    documents: Vec<Document>,
    mut heads: HashMap<TenantId, Head>,
) -> Result<(), LedgerError> {
    let mut postings = Vec::new();
    let mut rows = Vec::with_capacity(documents.len());
    charges::note(connection, &documents).await?;
    let billed_in: HashMap<_, _> = periods.iter().map(|due| (&due.tenant, due.period.start_ms)).collect();
    let books = journal::lock_heads(connection, partition).await?;
    for mut document in documents {
        document.books.clone_from(&books);
        let billed_in_ms = billed_in.get(&document.tenant).copied().unwrap_or(document.period_start_ms);
        let operation_id = operation_id(&document);
        postings.extend(posted(&document, operation_id)?);
        let text = serde_json::to_string(&document)
            .map_err(|error| LedgerError::Damaged(format!("a statement of {}: {error}", document.tenant)))?;
        let head = heads.entry(document.tenant.clone()).or_default();
        *head = Head { number: document.number, hash: Document::hash(&text, &head.hash) };
        rows.push((
            statements::tenant.eq(document.tenant.clone()),
            statements::number.eq(number::signed(document.number)),
            statements::corrects.eq(document.corrects().map(number::signed)),
            statements::period_start.eq(instant::from_ms(document.period_start_ms)?),
            statements::period_end.eq(instant::from_ms(document.period_end_ms)?),
            statements::currency.eq(document.currency.code()),
            statements::total.eq(document.total.decimal()),
            statements::issued_at.eq(instant::from_ms(document.issued_at_ms)?),
            statements::operation_id.eq(operation_id),
            statements::document.eq(text),
            statements::hash.eq(head.hash.to_vec()),
            statements::billed_in.eq(instant::from_ms(billed_in_ms)?),
        ));
    }
    for some in rows.chunks(ROWS) {
        diesel::insert_into(statements::table).values(some.to_vec()).execute(connection).await?;
    }
    journal::post_beside_outbox(connection, partition, postings).await
}

/// How many documents one statement inserts.
const ROWS: usize = 500;
/// How many lines are one step of the operation that books a document: entries number them in a byte.
const LINES: usize = 200;

/// The lines of a document as movements of money.
fn posted(document: &Document, operation_id: uuid::Uuid) -> Result<Vec<Posting>, LedgerError> {
    let period = Window { start_ms: document.period_start_ms, end_ms: document.period_end_ms };
    let line = if document.corrects().is_some() { note_line } else { statement_line };
    let too_large =
        |what: &dyn std::fmt::Display| LedgerError::Refused(format!("an amount of money: {what}"));
    let meter =
        MeterId::parse(&format!("{MONEY_PREFIX}{}", document.currency)).map_err(|error| too_large(&error))?;
    let mut movements = Vec::new();
    for (earned, amount) in document.amounts() {
        movements.extend(line(period, earned, amount).map_err(|error| too_large(&error))?);
    }
    let posting = |(step, lines): (u32, &[Movement])| Posting {
        tenant: document.tenant.clone(),
        operation_id,
        step,
        happened_at_ms: document.issued_at_ms,
        operation: String::new(),
        hour_start_ms: document.period_start_ms,
        subjects: Vec::new(),
        lines: lines.iter().map(|movement| posted_line(&meter, *movement)).collect(),
    };
    Ok((1..).zip(movements.chunks(LINES)).map(posting).collect())
}

fn posted_line(meter: &MeterId, movement: Movement) -> PostedLine {
    let meter = meter.clone();
    PostedLine { meter, movements: vec![movement], first_leg: 0, begins_to_consume: false }
}

/// The id is a hash of which document it is: the same one is the same operation.
pub(super) fn operation_id(document: &Document) -> uuid::Uuid {
    let mut hasher = blake3::Hasher::new_derive_key("tollgate statement operation v1");
    hasher.update(document.tenant.as_str().as_bytes());
    hasher.update(&[0]);
    hasher.update(&document.number.to_le_bytes());
    uuid_id::of_hash(&hasher)
}
