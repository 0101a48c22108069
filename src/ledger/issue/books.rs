//! What statements are made of: the books of a period, and the definitions that held when it ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::sql_types::{Array, BigInt, Binary, Jsonb, Nullable, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::domain::amount::Amount;
use crate::domain::civil_date::CivilDate;
use crate::domain::grant::GrantId;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::money::{Currency, Money};
use crate::domain::plan::PlanDefinition;
use crate::domain::rating::Used;
use crate::domain::statement::{
    ChargesByCurrency, Content, Document, DocumentHash, LateUse, Priced, PricedBy, price_charges,
    price_period,
};
use crate::domain::tenant::TenantDefinition;
use crate::ledger::billing::DuePeriod;
use crate::ledger::charges::{self, Refund, Until};
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
    /// Their statements and the notes to these, in the order of their numbers; also of periods in which a grant was
    /// sold that is voided since.
    earlier: HashMap<TenantPeriod, Vec<Document>>,
    charges: HashMap<TenantId, ChargesByCurrency>,
    refunds: HashMap<TenantId, BTreeMap<GrantId, Refund>>,
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
        let ends: Vec<_> = due.iter().map(|due| (&due.tenant, due.period.end_ms)).collect();
        let refunds = charges::refunds(connection, &ends).await?;
        let refunded = refunds.iter().flat_map(|(tenant, refunds)| {
            let billed_in = refunds.values().filter_map(|refund| refund.billed_in_ms);
            billed_in.map(|start_ms| (tenant.clone(), start_ms))
        });
        let corrected: BTreeSet<TenantPeriod> = corrected.filter(is_billed).chain(refunded).collect();
        let starts: Vec<_> = due.iter().map(|due| (&due.tenant, due.period.start_ms)).collect();
        Ok(Self {
            charges: charges::read(connection, &starts, Until::Period).await?,
            refunds,
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

    /// The statements of a period, unless nothing has a price or the tenant is a sandbox, and the notes that are due
    /// with them.
    pub(super) fn documents(&self, due: &DuePeriod, grace_ms: i64) -> Result<Vec<Document>, String> {
        let key = (due.tenant.clone(), due.period.start_ms);
        let late = self.booked_in.get(&key).map(Vec::as_slice).unwrap_or_default();
        let mut used = self.used.get(&key).map(|booked| booked.used.clone()).unwrap_or_default();
        leave_out(&mut used, late, due.begun_at_ms);
        let issued_at_ms = due.period.end_ms.saturating_add(grace_ms);
        let last = self.heads.get(&due.tenant).map_or(0, |head| head.number);
        let mut documents = self.statements(due, &used, issued_at_ms)?;
        for (number, document) in (last + 1..).zip(&mut documents) {
            document.number = number;
        }
        let refunds = self.refunds.get(&due.tenant);
        let refunded =
            refunds.into_iter().flat_map(BTreeMap::values).filter_map(|refund| refund.billed_in_ms);
        let corrected: BTreeSet<i64> = late.iter().map(|part| part.period_start.0).chain(refunded).collect();
        let earlier =
            corrected.iter().filter_map(|start_ms| self.earlier.get(&(due.tenant.clone(), *start_ms)));
        let issued: Vec<Document> = earlier.flatten().chain(&documents).cloned().collect();
        for statement in issued.iter().filter(|document| document.corrects().is_none()) {
            let is_its = |document: &&Document| document.corrects() == Some(statement.number);
            let notes: Vec<Document> = issued.iter().filter(is_its).cloned().collect();
            documents.extend(self.note(due, statement, &notes, issued_at_ms)?);
        }
        for (number, document) in (last + 1..).zip(&mut documents) {
            document.number = number;
        }
        Ok(documents)
    }

    fn statements(
        &self,
        due: &DuePeriod,
        used: &BTreeMap<MeterId, Used>,
        issued_at_ms: i64,
    ) -> Result<Vec<Document>, String> {
        let terms = self.terms.get(&due.tenant).ok_or("no version of the tenant is known")?;
        let terms = terms.as_ref().map_err(Clone::clone)?;
        let calendar = &due.calendar;
        let start = calendar.date(due.period.start_ms);
        let bills = self.bills(due, terms, used, start)?;
        let is_idle = terms.tenant.archived && used.values().all(|used| used.consumed.is_zero());
        let is_owed =
            |priced: &Priced| !priced.bill.lines().is_empty() && !(is_idle && priced.charges.is_empty());
        let document = |priced: Priced| Document {
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
            charges: priced.charges,
            used: used.clone(),
            unpriced: priced.unpriced,
            total: priced.bill.total(),
            content: Content::Statement { lines: priced.bill.lines().to_vec() },
            issued_at_ms,
        };
        Ok(bills.into_iter().filter(is_owed).map(document).collect())
    }

    /// A sandbox is billed only what was sold to it before it was one.
    fn bills(
        &self,
        due: &DuePeriod,
        terms: &Terms,
        used: &BTreeMap<MeterId, Used>,
        start: CivilDate,
    ) -> Result<Vec<Priced>, String> {
        let by = PricedBy {
            tenant: &terms.tenant,
            plan: terms.plan.as_ref(),
            currency: terms.currency.or(terms.tenant.currency),
            start,
        };
        let nothing = ChargesByCurrency::new();
        let charges = self.charges.get(&due.tenant).unwrap_or(&nothing);
        let bills = if terms.tenant.sandbox {
            charges.iter().map(|(currency, charges)| price_charges(by, *currency, charges)).collect()
        } else {
            price_period(by, used, charges)
        };
        bills.map_err(|error| error.to_string())
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
        let charges = notes.last().unwrap_or(statement).charges.with_refunds(&self.refunded(due));
        let note = statement.corrected(notes, &used, &charges).map_err(|error| error.to_string())?;
        Ok(note.map(|note| Document {
            number: 0,
            used,
            charges,
            total: note.total,
            content: Content::CreditNote { corrects: statement.number, lines: note.lines },
            issued_at_ms,
            ..statement.clone()
        }))
    }

    fn refunded(&self, due: &DuePeriod) -> BTreeMap<GrantId, Money> {
        let refunds = self.refunds.get(&due.tenant).into_iter().flatten();
        refunds.map(|(grant, refund)| (*grant, refund.amount)).collect()
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
