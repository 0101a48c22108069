//! Comparisons with suppliers' bills: their state, and what they found. [`session`] has the work itself.

mod session;

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use rust_decimal::Decimal;
use serde_json::Value;
use uuid::Uuid;

use super::columns::{Hash, Microseconds, MillisecondsIfAny, Unsigned};
use super::functions::{clock_timestamp, interval, later};
use super::schema::{supplier_bills as bills, supplier_matches as matches};
use super::{BEGIN, Ledger, LedgerError, number};
use crate::domain::supplier_bill::finding::Sum;
use crate::domain::supplier_bill::summary::Summary;
use crate::domain::supplier_bill::{BillId, BillState, BillTerms, Finding, Outcome};
use std::time::Duration;

pub use session::BillSession;

/// How long an instance may say nothing before its work counts as lost.
const ALIVE: Duration = Duration::from_secs(60);

/// What is stored where the instance that worked on a bill is gone.
const LOST: &str = "the instance that worked on it has ended; send the bill again under the same key";

/// A comparison to begin.
#[derive(Debug, Clone)]
pub struct NewBill {
    /// Its id.
    pub id: BillId,
    /// What is compared, and how.
    pub terms: BillTerms,
    /// Who asks.
    pub created_by: String,
}

/// What became of a comparison that was to begin.
#[derive(Debug, Clone)]
pub enum BillBegun {
    /// It has begun, as this attempt.
    Now(i32),
    /// It, or another one, was begun before under this key, and has not failed.
    Before(Box<StoredBill>),
}

/// A comparison as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBill {
    /// Its id.
    pub id: BillId,
    /// How far it has come.
    pub state: BillState,
    /// What is compared, and how.
    pub terms: BillTerms,
    /// The hash of the terms.
    pub fingerprint: [u8; 32],
    /// The hash of the file, once all of it is read.
    pub body_hash: Option<Vec<u8>>,
    /// How many rows are read.
    pub row_count: u64,
    /// What it found, once it is done.
    pub summary: Option<Summary>,
    /// Why it failed.
    pub failure: Option<String>,
    /// Which state of the books was compared (unix ms).
    pub compared_at_ms: Option<i64>,
    /// When it began (the database's clock, unix µs).
    pub created_at_us: i64,
    /// Who asked for it.
    pub created_by: String,
    /// When it ended (unix ms).
    pub finished_at_ms: Option<i64>,
}

/// A place in the list of comparisons: when it began (unix µs), and its id.
pub type BillCursor = (i64, BillId);

/// A place in the list of findings: the outcome, and the number in it.
pub type MatchCursor = (Outcome, i64);

#[derive(Queryable, Selectable)]
#[diesel(table_name = bills)]
struct Row {
    id: Uuid,
    attempt: i32,
    state: String,
    terms: Value,
    #[diesel(deserialize_as = Hash)]
    fingerprint: [u8; 32],
    body_hash: Option<Vec<u8>>,
    #[diesel(deserialize_as = Unsigned)]
    row_count: u64,
    summary: Option<Value>,
    failure: Option<String>,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    compared_at: Option<i64>,
    #[diesel(deserialize_as = Microseconds)]
    created_at: i64,
    created_by: String,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    finished_at: Option<i64>,
}

impl Row {
    /// The comparison; `is_silent` if its instance has not renewed it in time.
    fn read(self, is_silent: bool) -> Result<StoredBill, LedgerError> {
        let damaged = |what: &str| LedgerError::Damaged(format!("the {what} of reconciliation {}", self.id));
        let state = BillState::from_word(&self.state).ok_or_else(|| damaged("state"))?;
        let is_lost = is_silent && state.is_running();
        let summary = self.summary.map(serde_json::from_value).transpose();
        Ok(StoredBill {
            id: BillId::from_uuid(self.id),
            state: if is_lost { BillState::Failed } else { state },
            summary: summary.map_err(|_| damaged("summary"))?,
            terms: serde_json::from_value(self.terms).map_err(|_| damaged("terms"))?,
            fingerprint: self.fingerprint,
            body_hash: self.body_hash,
            row_count: self.row_count,
            failure: if is_lost { Some(LOST.to_owned()) } else { self.failure },
            compared_at_ms: self.compared_at,
            created_at_us: self.created_at,
            created_by: self.created_by,
            finished_at_ms: self.finished_at,
        })
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = matches)]
struct MatchRow {
    outcome: String,
    number: i64,
    tenant: Option<String>,
    reference: String,
    amount_here: Decimal,
    amount_there: Decimal,
    #[diesel(deserialize_as = Unsigned)]
    uses: u64,
    #[diesel(deserialize_as = Unsigned)]
    rows_there: u64,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    at_here: Option<i64>,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    at_there: Option<i64>,
    reservations: Vec<Option<Uuid>>,
    lines: Vec<Option<i64>>,
}

impl MatchRow {
    fn read(self) -> Result<(i64, Finding), LedgerError> {
        let outcome = Outcome::from_word(&self.outcome);
        let lines = self.lines.into_iter().flatten().map(number::unsigned);
        let finding = Finding {
            outcome: outcome.ok_or_else(|| LedgerError::Damaged("the outcome of a finding".into()))?,
            tenant: self.tenant,
            reference: self.reference,
            here: Sum {
                amount: self.amount_here.normalize(),
                count: self.uses,
                at_ms: self.at_here,
                named: self.reservations.into_iter().flatten().collect(),
            },
            there: Sum {
                amount: self.amount_there.normalize(),
                count: self.rows_there,
                at_ms: self.at_there,
                named: lines.collect::<Result<_, _>>()?,
            },
        };
        Ok((self.number, finding))
    }
}

impl Ledger {
    /// Begins a comparison under its id, or again if the one before failed or was lost.
    pub async fn begin_bill(&self, new: NewBill) -> Result<BillBegun, LedgerError> {
        let NewBill { id, terms, created_by } = new;
        let fingerprint = terms.fingerprint().to_vec();
        let tenant = terms.tenant.as_ref().map(ToString::to_string);
        let terms = serde_json::to_value(&terms).map_err(|error| LedgerError::Damaged(error.to_string()))?;
        self.transact(BEGIN, move |connection| {
            let begun = (
                bills::state.eq(BillState::Loading.as_str()),
                bills::tenant.eq(tenant),
                bills::terms.eq(terms),
                bills::fingerprint.eq(fingerprint),
                bills::body_hash.eq(None::<Vec<u8>>),
                bills::row_count.eq(0),
                bills::failure.eq(None::<String>),
                bills::created_at.eq(clock_timestamp()),
                bills::created_by.eq(created_by),
                bills::finished_at.eq(None::<DateTime<Utc>>),
                bills::alive_until.eq(later(clock_timestamp(), interval(ALIVE))),
            );
            async move {
                let insert = diesel::insert_into(bills::table)
                    .values((bills::id.eq(id.uuid()), bills::attempt.eq(1), begun.clone()))
                    .on_conflict_do_nothing();
                if insert.execute(connection).await? == 1 {
                    return Ok(BillBegun::Now(1));
                }
                let select = (Row::as_select(), bills::alive_until.lt(clock_timestamp()));
                let found = bills::table.find(id.uuid()).select(select).for_update();
                let (row, is_silent): (Row, bool) = found.first(connection).await?;
                let attempt = row.attempt + 1;
                let stored = row.read(is_silent)?;
                if stored.state != BillState::Failed {
                    return Ok(BillBegun::Before(Box::new(stored)));
                }
                let again = diesel::update(bills::table.find(id.uuid()));
                again.set((bills::attempt.eq(attempt), begun)).execute(connection).await?;
                Ok(BillBegun::Now(attempt))
            }
            .boxed()
        })
        .await
    }

    /// Notes that all rows of the bill are read. Returns whether this attempt still counts.
    pub async fn bill_loaded(
        &self,
        id: BillId,
        attempt: i32,
        row_count: u64,
        body_hash: [u8; 32],
    ) -> Result<bool, LedgerError> {
        let loaded = diesel::update(running(id, attempt)).set((
            bills::state.eq(BillState::Matching.as_str()),
            bills::row_count.eq(number::signed(row_count)),
            bills::body_hash.eq(body_hash.to_vec()),
            bills::alive_until.eq(later(clock_timestamp(), interval(ALIVE))),
        ));
        Ok(self.execute(loaded).await? == 1)
    }

    /// Notes that an instance still works on it, and how many rows it has read.
    pub async fn renew_bill(&self, id: BillId, attempt: i32, row_count: u64) -> Result<(), LedgerError> {
        let renewed = diesel::update(running(id, attempt)).set((
            bills::row_count.eq(number::signed(row_count)),
            bills::alive_until.eq(later(clock_timestamp(), interval(ALIVE))),
        ));
        self.execute(renewed).await.map(drop)
    }

    /// Notes that an attempt has failed, and why.
    pub async fn fail_bill(&self, id: BillId, attempt: i32, why: String) -> Result<(), LedgerError> {
        let failed = diesel::update(running(id, attempt)).set((
            bills::state.eq(BillState::Failed.as_str()),
            bills::failure.eq(why),
            bills::finished_at.eq(clock_timestamp().nullable()),
        ));
        self.execute(failed).await.map(drop)
    }

    /// The comparison with this id.
    pub async fn bill(&self, id: BillId) -> Result<Option<StoredBill>, LedgerError> {
        let query = || {
            let select = (Row::as_select(), bills::alive_until.lt(clock_timestamp()));
            bills::table.find(id.uuid()).select(select)
        };
        let found: Option<(Row, bool)> = self.first(query).await?;
        found.map(|(row, is_silent)| row.read(is_silent)).transpose()
    }

    /// Comparisons, newest first, at most `limit`, after `after`.
    pub async fn bills(
        &self,
        after: Option<BillCursor>,
        limit: usize,
    ) -> Result<Vec<StoredBill>, LedgerError> {
        let place = after.map(|(at_us, id)| {
            let at = DateTime::from_timestamp_micros(at_us);
            at.map(|at| (at, id.uuid()))
                .ok_or_else(|| LedgerError::Refused("no such place in the list".into()))
        });
        let place = place.transpose()?;
        let query = || {
            let mut page = bills::table
                .select((Row::as_select(), bills::alive_until.lt(clock_timestamp())))
                .order((bills::created_at.desc(), bills::id.desc()))
                .limit(number::limit(limit))
                .into_boxed();
            if let Some((at, id)) = place {
                let is_of_then = bills::created_at.eq(at).and(bills::id.lt(id));
                page = page.filter(bills::created_at.le(at)).filter(bills::created_at.lt(at).or(is_of_then));
            }
            page
        };
        let rows: Vec<(Row, bool)> = self.load(query).await?;
        rows.into_iter().map(|(row, is_silent)| row.read(is_silent)).collect()
    }

    /// Findings of a comparison with their numbers, by outcome in the order of [`Outcome::ALL`], at most `limit`, after
    /// `after`.
    pub async fn bill_findings(
        &self,
        id: BillId,
        outcome: Option<Outcome>,
        after: Option<MatchCursor>,
        limit: usize,
    ) -> Result<Vec<(i64, Finding)>, LedgerError> {
        let query = || {
            let mut page = matches::table
                .select(MatchRow::as_select())
                .filter(matches::bill.eq(id.uuid()))
                .order((matches::outcome, matches::number))
                .limit(number::limit(limit))
                .into_boxed();
            if let Some(outcome) = outcome {
                page = page.filter(matches::outcome.eq(outcome.as_str()));
            }
            if let Some((outcome, number)) = after {
                let is_of_it = matches::outcome.eq(outcome.as_str()).and(matches::number.gt(number));
                page = page
                    .filter(matches::outcome.ge(outcome.as_str()))
                    .filter(matches::outcome.gt(outcome.as_str()).or(is_of_it));
            }
            page
        };
        self.load::<MatchRow, _>(query).await?.into_iter().map(MatchRow::read).collect()
    }
}

/// The row of an attempt that is neither done nor failed.
#[diesel::dsl::auto_type(no_type_alias)]
fn running(id: BillId, attempt: i32) -> _ {
    let uuid: Uuid = id.uuid();
    let states: [&'static str; 2] = [BillState::Loading.as_str(), BillState::Matching.as_str()];
    bills::table
        .filter(bills::id.eq(uuid))
        .filter(bills::attempt.eq(attempt))
        .filter(bills::state.eq_any(states))
}
