//! What statements are made of: the books of a period, and the definitions that held when it ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::sql_types::{Array, BigInt, Binary, Jsonb, Nullable, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::domain::amount::Amount;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::money::Currency;
use crate::domain::plan::PlanDefinition;
use crate::domain::rating::Used;
use crate::domain::statement::{Content, Document, DocumentHash, LateUse, PricedBy, price_period};
use crate::domain::tenant::TenantDefinition;
use crate::ledger::billing::DuePeriod;
use crate::ledger::columns::{Hash, Unsigned};
use crate::ledger::corrections::{self, StoredCorrection, TenantPeriod};
use crate::ledger::period_use::{self, BookedUse, late, leave_out};
use crate::ledger::statements::parsed;
use crate::ledger::{LedgerError, instant};

/// The last document of a tenant.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) hash: DocumentHash,
}

/// What periods are billed by, as their definitions held at their ends.
struct Terms {
    tenant: TenantDefinition,
    plan: Option<PlanDefinition>,
    currency: Option<Currency>,
}

/// Everything that documents are made of.
pub(super) struct Books {
    used: HashMap<TenantPeriod, BookedUse>,
    waiting_calls: BTreeSet<TenantId>,
    /// What is booked in the periods for earlier ones.
    booked_in: HashMap<TenantPeriod, Vec<StoredCorrection>>,
    /// All that is booked for those.
    of_periods: HashMap<TenantPeriod, Vec<StoredCorrection>>,
    /// Their statements, each with its notes.
    earlier: HashMap<TenantPeriod, Vec<Document>>,
    terms: HashMap<TenantId, Result<Terms, String>>,
    pub(super) heads: HashMap<TenantId, Head>,
}

impl Books {
    pub(super) async fn read(
        connection: &mut AsyncPgConnection,
        due: &[DuePeriod],
        grace_ms: i64,
    ) -> Result<Self, LedgerError> {
        let periods: BTreeSet<TenantPeriod> =
            due.iter().map(|due| (due.tenant.clone(), due.period.start_ms)).collect();
        let booked_in = corrections::booked_in(connection, &periods).await?;
        let begun: HashMap<&TenantId, i64> = due.iter().map(|due| (&due.tenant, due.begun_at_ms)).collect();
        let corrected = booked_in.values().flatten().map(|part| (part.tenant.clone(), part.period_start.0));
        let is_billed = |(tenant, start_ms): &TenantPeriod| {
            begun.get(tenant).is_some_and(|begun_at_ms| start_ms >= begun_at_ms)
        };
        let corrected: BTreeSet<TenantPeriod> = corrected.filter(is_billed).collect();
        Ok(Self {
            used: period_use::read(connection, &periods).await?,
            waiting_calls: tenants_with_waiting_calls(connection, due, grace_ms).await?,
            of_periods: corrections::of_periods(connection, &corrected).await?,
            earlier: statements_of(connection, &corrected).await?,
            terms: terms(connection, due).await?,
            heads: heads(connection, due).await?,
            booked_in,
        })
    }

    pub(super) fn waits(&self, due: &DuePeriod) -> bool {
        let key = (due.tenant.clone(), due.period.start_ms);
        self.used.get(&key).is_some_and(|booked| booked.is_open) || self.waiting_calls.contains(&due.tenant)
    }

    /// The statement of a period, unless nothing has a price or the tenant is a sandbox, and the notes that are due
    /// with it.
    pub(super) fn documents(&self, due: &DuePeriod, grace_ms: i64) -> Result<Vec<Document>, String> {
        let key = (due.tenant.clone(), due.period.start_ms);
        let late = self.booked_in.get(&key).map(Vec::as_slice).unwrap_or_default();
        let mut used = self.used.get(&key).map(|booked| booked.used.clone()).unwrap_or_default();
        leave_out(&mut used, late, due.begun_at_ms);
        let issued_at_ms = due.period.end_ms.saturating_add(grace_ms);
        let mut documents: Vec<Document> = self.statement(due, used, issued_at_ms)?.into_iter().collect();
        let corrected: BTreeSet<i64> = late.iter().map(|part| part.period_start.0).collect();
        for start_ms in corrected {
            let earlier = self.earlier.get(&(due.tenant.clone(), start_ms));
            let Some((statement, notes)) = earlier.and_then(|all| all.split_first()) else { continue };
            documents.extend(self.note(due, statement, notes, issued_at_ms)?);
        }
        let last = self.heads.get(&due.tenant).map_or(0, |head| head.number);
        for (number, document) in (last + 1..).zip(&mut documents) {
            document.number = number;
        }
        Ok(documents)
    }

    fn statement(
        &self,
        due: &DuePeriod,
        used: BTreeMap<MeterId, Used>,
        issued_at_ms: i64,
    ) -> Result<Option<Document>, String> {
        let terms = self.terms.get(&due.tenant).ok_or("no version of the tenant is known")?;
        let terms = terms.as_ref().map_err(Clone::clone)?;
        if terms.tenant.sandbox {
            return Ok(None);
        }
        let calendar = &due.calendar;
        let start = calendar.date(due.period.start_ms);
        let by = PricedBy {
            tenant: &terms.tenant,
            plan: terms.plan.as_ref(),
            currency: terms.currency.or(terms.tenant.currency),
            start,
        };
        let priced = price_period(by, &used).map_err(|error| error.to_string())?;
        let Some(priced) = priced.filter(|priced| !priced.bill.lines().is_empty()) else { return Ok(None) };
        let is_idle = terms.tenant.archived && used.values().all(|used| used.consumed.is_zero());
        let document = || Document {
            tenant: due.tenant.clone(),
            number: 0,
            plan: terms.tenant.plan.clone(),
            period_start_ms: due.period.start_ms,
            period_end_ms: due.period.end_ms,
            zone: calendar.zone.name().to_owned(),
            start,
            currency: priced.bill.currency(),
            prices: priced.prices,
            terms: priced.terms,
            used,
            unpriced: priced.unpriced,
            total: priced.bill.total(),
            content: Content::Statement { lines: priced.bill.lines().to_vec() },
            issued_at_ms,
        };
        Ok((!is_idle).then(document))
    }

    /// The note that makes a statement the bill of all that is booked for its period by now; none where it is.
    fn note(
        &self,
        due: &DuePeriod,
        statement: &Document,
        notes: &[Document],
        issued_at_ms: i64,
    ) -> Result<Option<Document>, String> {
        let key = (due.tenant.clone(), statement.period_start_ms);
        let mut late_use: BTreeMap<MeterId, LateUse> = BTreeMap::new();
        for part in self.of_periods.get(&key).into_iter().flatten() {
            if part.booked_in.0 <= due.period.start_ms {
                let sum = late_use.entry(part.meter.clone()).or_default();
                let part_of_it = late(part);
                sum.consumed = sum.consumed.plus(part_of_it.consumed);
                sum.adjusted += part_of_it.adjusted;
                sum.unused = Amount::from_decimal(part.unused).unwrap_or_default();
            }
        }
        let mut used = statement.used.clone();
        for (meter, late) in late_use {
            let of_meter = used.entry(meter).or_default();
            *of_meter = late.added_to(*of_meter);
        }
        let note = statement.corrected(notes, &used).map_err(|error| error.to_string())?;
        Ok(note.map(|note| Document {
            number: 0,
            used,
            total: note.total,
            content: Content::CreditNote { corrects: statement.number, lines: note.lines },
            issued_at_ms,
            ..statement.clone()
        }))
    }
}

#[derive(QueryableByName)]
struct TermsRow {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Jsonb)]
    definition: Value,
    #[diesel(sql_type = Nullable<Jsonb>)]
    plan: Option<Value>,
    #[diesel(sql_type = Nullable<Text>)]
    currency: Option<String>,
}

impl TermsRow {
    fn read(self) -> Result<Terms, String> {
        let currency = self.currency.map(|code| Currency::parse(&code).map_err(|error| error.to_string()));
        Ok(Terms {
            tenant: definition(self.definition)?,
            plan: self.plan.map(definition).transpose()?,
            currency: currency.transpose()?,
        })
    }
}

fn definition<T: DeserializeOwned>(stored: Value) -> Result<T, String> {
    serde_json::from_value(stored).map_err(|error| format!("a stored definition: {error}"))
}

async fn terms(
    connection: &mut AsyncPgConnection,
    due: &[DuePeriod],
) -> Result<HashMap<TenantId, Result<Terms, String>>, LedgerError> {
    let read = sql_query(include_str!("../sql/terms_at.sql"))
        .bind::<Array<Text>, _>(due.iter().map(|due| &due.tenant).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(due.iter().map(|due| due.period.start_ms))?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(due.iter().map(|due| due.period.end_ms))?);
    let rows: Vec<TermsRow> = read.load(connection).await?;
    Ok(rows.into_iter().map(|row| (row.tenant.clone(), row.read())).collect())
}

#[derive(QueryableByName)]
struct TenantRow {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
}

async fn tenants_with_waiting_calls(
    connection: &mut AsyncPgConnection,
    due: &[DuePeriod],
    grace_ms: i64,
) -> Result<BTreeSet<TenantId>, LedgerError> {
    let closed_at = due.iter().map(|due| due.period.end_ms.saturating_add(grace_ms));
    let read = sql_query(include_str!("../sql/tenants_with_waiting_calls.sql"))
        .bind::<Array<Text>, _>(due.iter().map(|due| &due.tenant).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(closed_at)?);
    let rows: Vec<TenantRow> = read.load(connection).await?;
    Ok(rows.into_iter().map(|row| row.tenant).collect())
}

#[derive(QueryableByName)]
struct HeadRow {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = BigInt, deserialize_as = Unsigned)]
    number: u64,
    #[diesel(sql_type = Binary, deserialize_as = Hash)]
    hash: DocumentHash,
}

async fn heads(
    connection: &mut AsyncPgConnection,
    due: &[DuePeriod],
) -> Result<HashMap<TenantId, Head>, LedgerError> {
    let read = sql_query(include_str!("../sql/last_statements.sql"))
        .bind::<Array<Text>, _>(due.iter().map(|due| &due.tenant).collect::<Vec<_>>());
    let rows: Vec<HeadRow> = read.load(connection).await?;
    Ok(rows.into_iter().map(|row| (row.tenant, Head { number: row.number, hash: row.hash })).collect())
}

#[derive(QueryableByName)]
struct DocumentRow {
    #[diesel(sql_type = BigInt)]
    number: i64,
    #[diesel(sql_type = Text)]
    document: String,
}

/// The statements of these periods, each followed by its notes.
async fn statements_of(
    connection: &mut AsyncPgConnection,
    periods: &BTreeSet<TenantPeriod>,
) -> Result<HashMap<TenantPeriod, Vec<Document>>, LedgerError> {
    if periods.is_empty() {
        return Ok(HashMap::new());
    }
    let starts = instant::all_from_ms(periods.iter().map(|(_, start_ms)| *start_ms))?;
    let read = sql_query(include_str!("../sql/statements_of_periods.sql"))
        .bind::<Array<Text>, _>(periods.iter().map(|(tenant, _)| tenant).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(starts);
    let rows: Vec<DocumentRow> = read.load(connection).await?;
    let mut found: HashMap<TenantPeriod, Vec<Document>> = HashMap::new();
    for row in rows {
        let document = parsed(row.number, &row.document)?;
        found.entry((document.tenant.clone(), document.period_start_ms)).or_default().push(document);
    }
    Ok(found)
}
