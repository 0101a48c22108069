//! What statements are made of: the books of a period, and the definitions that price it.

mod terms;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::sql_types::{Array, BigInt, Binary, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use self::terms::Terms;
use crate::domain::amount::Amount;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::period::{Calendars, WindowKind};
use crate::domain::rating::Used;
use crate::domain::statement::{Content, Document, DocumentHash, LateUse};
use crate::ledger::billing::DuePeriod;
use crate::ledger::columns::{Hash, Unsigned};
use crate::ledger::corrections::{self, StoredCorrection, TenantPeriod};
use crate::ledger::period_use::{self, BookedUse, late, leave_out};
use crate::ledger::statements::parsed;
use crate::ledger::{LedgerError, instant, open_periods};

/// The last document of a tenant.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) hash: DocumentHash,
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
    /// What prices the periods and those: as definitions held at their ends, then, where it is asked for, later.
    terms: HashMap<TenantPeriod, Vec<Result<Terms, String>>>,
    /// The calendars of the tenants that have corrections.
    calendars: HashMap<TenantId, Calendars>,
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
        let calendars =
            open_periods::calendars(connection, corrected.iter().map(|(tenant, _)| tenant)).await?;
        let end_of = |(tenant, start_ms): &TenantPeriod| {
            let period = calendars.get(tenant)?.window(WindowKind::Period, *start_ms);
            Some(((tenant.clone(), *start_ms), period.end_ms))
        };
        let ends = due.iter().map(|due| ((due.tenant.clone(), due.period.start_ms), due.period.end_ms));
        let ends: Vec<_> = ends.chain(corrected.iter().filter_map(end_of)).collect();
        Ok(Self {
            used: period_use::read(connection, &periods).await?,
            waiting_calls: tenants_with_waiting_calls(connection, due, grace_ms).await?,
            of_periods: corrections::of_periods(connection, &corrected).await?,
            earlier: statements_of(connection, &corrected).await?,
            terms: terms::read(connection, &ends).await?,
            calendars,
            heads: heads(connection, due).await?,
            booked_in,
        })
    }

    /// Reads also what prices this period by later versions of its definitions. Returns whether there are any.
    pub(super) async fn read_later(
        &mut self,
        connection: &mut AsyncPgConnection,
        due: &DuePeriod,
    ) -> Result<bool, LedgerError> {
        let later = terms::read_later(connection, &due.tenant, due.period).await?;
        let has_some = !later.is_empty();
        self.terms.entry((due.tenant.clone(), due.period.start_ms)).or_default().extend(later);
        Ok(has_some)
    }

    pub(super) fn waits(&self, due: &DuePeriod) -> bool {
        let key = (due.tenant.clone(), due.period.start_ms);
        self.used.get(&key).is_some_and(|booked| booked.is_open) || self.waiting_calls.contains(&due.tenant)
    }

    /// The statement of a period, unless nothing has a price or the tenant is a sandbox, and the notes that are due
    /// with it, each behind the statement that it corrects where that was omitted.
    pub(super) fn documents(&self, due: &DuePeriod, grace_ms: i64) -> Result<Vec<Document>, String> {
        let key = (due.tenant.clone(), due.period.start_ms);
        let late = self.booked_in.get(&key).map(Vec::as_slice).unwrap_or_default();
        let mut used = self.used.get(&key).map(|booked| booked.used.clone()).unwrap_or_default();
        leave_out(&mut used, late, due.begun_at_ms);
        let issued_at_ms = due.period.end_ms.saturating_add(grace_ms);
        let last = self.heads.get(&due.tenant).map_or(0, |head| head.number);
        let mut documents = Vec::new();
        let mut issue = |document: Document| {
            let number = (last + 1..).nth(documents.len()).unwrap_or_default();
            documents.push(Document { number, ..document });
            number
        };
        if let Some(statement) = self.statement(due, &used, issued_at_ms, false)? {
            issue(statement);
        }
        let corrected: BTreeSet<i64> = late.iter().map(|part| part.period_start.0).collect();
        for start_ms in corrected {
            let earlier = self.earlier.get(&(due.tenant.clone(), start_ms));
            let note = match earlier.and_then(|all| all.split_first()) {
                Some((statement, notes)) => self.note(due, statement, notes, issued_at_ms)?,
                None => {
                    let Some(omitted) = self.omitted(due, start_ms, issued_at_ms)? else { continue };
                    let number = issue(omitted.clone());
                    self.note(due, &Document { number, ..omitted }, &[], issued_at_ms)?
                }
            };
            if let Some(note) = note {
                issue(note);
            }
        }
        Ok(documents)
    }

    /// The statement of an earlier period that had none, since its tenant was archived and had not used anything, once
    /// something is known to have been used.
    fn omitted(&self, due: &DuePeriod, start_ms: i64, issued_at_ms: i64) -> Result<Option<Document>, String> {
        let late = self.late_use(due, start_ms);
        let is_used = late.values().any(|late| late.consumed.decimal() + late.adjusted != Decimal::ZERO);
        let Some(calendars) = self.calendars.get(&due.tenant).filter(|_| is_used) else { return Ok(None) };
        let earlier = DuePeriod {
            period: calendars.window(WindowKind::Period, start_ms),
            calendar: calendars.at(start_ms).clone(),
            ..due.clone()
        };
        self.statement(&earlier, &BTreeMap::new(), issued_at_ms, true)
    }

    /// The statement of a period by what held at its end; where it cannot be rated so, by the first later version by
    /// which it can.
    fn statement(
        &self,
        due: &DuePeriod,
        used: &BTreeMap<MeterId, Used>,
        issued_at_ms: i64,
        is_corrected: bool,
    ) -> Result<Option<Document>, String> {
        let key = (due.tenant.clone(), due.period.start_ms);
        let Some((at_end, later)) = self.terms.get(&key).and_then(|terms| terms.split_first()) else {
            return Err("no version of the tenant is known".into());
        };
        if at_end.as_ref().is_ok_and(|terms| terms.tenant.sandbox) {
            return Ok(None);
        }
        let by = |terms: &Result<Terms, String>| {
            let terms = terms.as_ref().map_err(Clone::clone)?;
            terms.statement(due, used.clone(), issued_at_ms, is_corrected)
        };
        by(at_end).or_else(|why| later.iter().find_map(|terms| by(terms).ok().flatten()).map(Some).ok_or(why))
    }

    /// The note that makes a statement the bill of all that is booked for its period by now; none where it is.
    fn note(
        &self,
        due: &DuePeriod,
        statement: &Document,
        notes: &[Document],
        issued_at_ms: i64,
    ) -> Result<Option<Document>, String> {
        let mut used = statement.used.clone();
        for (meter, late) in self.late_use(due, statement.period_start_ms) {
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

    /// What is booked by now for an earlier period. Where a meter has no close of it, nothing of its quota was used:
    /// all that the plan included was unused.
    fn late_use(&self, due: &DuePeriod, start_ms: i64) -> BTreeMap<MeterId, LateUse> {
        let key = (due.tenant.clone(), start_ms);
        let at_end = self.terms.get(&key).and_then(|terms| terms.as_slice().first()?.as_ref().ok());
        let mut late_use: BTreeMap<MeterId, LateUse> = BTreeMap::new();
        for part in self.of_periods.get(&key).into_iter().flatten() {
            if part.booked_in.0 <= due.period.start_ms {
                let sum = late_use.entry(part.meter.clone()).or_default();
                let part_of_it = late(part);
                sum.consumed = sum.consumed.plus(part_of_it.consumed);
                sum.adjusted += part_of_it.adjusted;
                sum.unused = match at_end {
                    Some(terms) if !part.is_closed => terms.included(&part.meter),
                    _ => Amount::from_decimal(part.unused).unwrap_or_default(),
                };
            }
        }
        late_use
    }
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
