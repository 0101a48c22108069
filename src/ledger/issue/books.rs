//! What statements are made of: the books of a period, and the definitions that price it.

mod terms;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Binary, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use self::terms::Terms;
use crate::domain::amount::Amount;
use crate::domain::carried_use::paid_before;
use crate::domain::grant::GrantId;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::money::Money;
use crate::domain::period::{Calendars, WindowKind};
use crate::domain::rating::Used;
use crate::domain::statement::{ChargesByCurrency, Content, Document, DocumentHash, LateUse};
use crate::ledger::billing::DuePeriod;
use crate::ledger::charges::{self, Refund, Until};
use crate::ledger::columns::{Hash, Unsigned};
use crate::ledger::corrections::{self, StoredCorrection, TenantPeriod};
use crate::ledger::period_use::{self, BookedUse, leave_out};
use crate::ledger::prepared::sql_query;
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
    /// Their statements and the notes to these, in the order of their numbers; also of periods in which a grant was
    /// sold that is voided since.
    earlier: HashMap<TenantPeriod, Vec<Document>>,
    charges: HashMap<TenantId, ChargesByCurrency>,
    refunds: HashMap<TenantId, BTreeMap<GrantId, Refund>>,
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
        let of_earlier = booked_in.values().flatten().filter(|part| !part.is_of_its_own());
        let corrected = of_earlier.map(|part| (part.tenant.clone(), part.period_start.0));
        let is_billed = |(tenant, start_ms): &TenantPeriod| {
            begun.get(tenant).is_some_and(|begun_at_ms| start_ms >= begun_at_ms)
        };
        let period_ends: Vec<_> = due.iter().map(|due| (&due.tenant, due.period.end_ms)).collect();
        let refunds = charges::refunds(connection, &period_ends).await?;
        let refunded = refunds.iter().flat_map(|(tenant, refunds)| {
            let billed_in = refunds.values().filter_map(|refund| refund.billed_in_ms);
            billed_in.map(|start_ms| (tenant.clone(), start_ms))
        });
        let corrected: BTreeSet<TenantPeriod> = corrected.filter(is_billed).chain(refunded).collect();
        let calendars =
            open_periods::calendars(connection, corrected.iter().map(|(tenant, _)| tenant)).await?;
        let end_of = |(tenant, start_ms): &TenantPeriod| {
            let period = calendars.get(tenant)?.window(WindowKind::Period, *start_ms);
            Some(((tenant.clone(), *start_ms), period.end_ms))
        };
        let ends = due.iter().map(|due| ((due.tenant.clone(), due.period.start_ms), due.period.end_ms));
        let ends: Vec<_> = ends.chain(corrected.iter().filter_map(end_of)).collect();
        let period_starts: Vec<_> = due.iter().map(|due| (&due.tenant, due.period.start_ms)).collect();
        Ok(Self {
            charges: charges::read(connection, &period_starts, Until::Period).await?,
            refunds,
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

    /// The statements of a period, unless nothing has a price or the tenant is a sandbox, those of earlier periods that
    /// were omitted, and the notes that are due with them. Where an earlier period has a statement of what was charged
    /// alone, a note to it bills the use, so that it has one in each currency.
    pub(super) fn documents(&self, due: &DuePeriod, grace_ms: i64) -> Result<Vec<Document>, String> {
        let key = (due.tenant.clone(), due.period.start_ms);
        let late = self.booked_in.get(&key).map(Vec::as_slice).unwrap_or_default();
        let mut booked = self.used.get(&key).cloned().unwrap_or_default();
        leave_out(&mut booked.used, late, due.begun_at_ms);
        booked.add_own(late, due.begun_at_ms);
        let issued_at_ms = due.period.end_ms.saturating_add(grace_ms);
        let nothing = ChargesByCurrency::new();
        let charges = self.charges.get(&due.tenant).unwrap_or(&nothing);
        let mut documents = self.statements(due, &booked.used, charges, issued_at_ms)?;
        let refunds = self.refunds.get(&due.tenant);
        let refunded =
            refunds.into_iter().flat_map(BTreeMap::values).filter_map(|refund| refund.billed_in_ms);
        let of_earlier = late.iter().filter(|part| !part.is_of_its_own()).map(|part| part.period_start.0);
        let corrected: BTreeSet<i64> = of_earlier.chain(refunded).collect();
        let (mut issued, mut by_use) = (Vec::new(), Vec::new());
        for start_ms in corrected {
            let earlier = self.earlier.get(&(due.tenant.clone(), start_ms)).map_or(&[][..], Vec::as_slice);
            issued.extend_from_slice(earlier);
            if earlier.iter().all(Document::is_of_charges) {
                let is_issued =
                    |omitted: &Document| earlier.iter().any(|document| document.currency == omitted.currency);
                let omitted = self.omitted(due, start_ms, issued_at_ms)?;
                let (noted, new): (Vec<_>, Vec<_>) = omitted.into_iter().partition(is_issued);
                by_use.extend(noted);
                documents.extend(new);
            }
        }
        self.number(due, &mut documents);
        issued.extend_from_slice(&documents);
        for statement in issued.iter().filter(|document| document.corrects().is_none()) {
            let is_its = |document: &&Document| document.corrects() == Some(statement.number);
            let notes: Vec<Document> = issued.iter().filter(is_its).cloned().collect();
            let is_same = |omitted: &&Document| {
                omitted.period_start_ms == statement.period_start_ms && omitted.currency == statement.currency
            };
            let by = by_use.iter().find(is_same);
            documents.extend(self.note(due, (statement, notes.as_slice(), by), issued_at_ms)?);
        }
        self.number(due, &mut documents);
        Ok(documents)
    }

    /// Numbers documents after the tenant's last one.
    fn number(&self, due: &DuePeriod, documents: &mut [Document]) {
        let last = self.heads.get(&due.tenant).map_or(0, |head| head.number);
        for (number, document) in (last + 1..).zip(documents) {
            document.number = number;
        }
    }

    /// The statements of an earlier period that had none of its use, since its tenant was archived and had not used
    /// anything, once something is known to have been used.
    fn omitted(&self, due: &DuePeriod, start_ms: i64, issued_at_ms: i64) -> Result<Vec<Document>, String> {
        let late = self.late_use(due, start_ms);
        let is_used = late.values().any(|late| late.consumed.decimal() + late.adjusted != Decimal::ZERO);
        let Some(calendars) = self.calendars.get(&due.tenant).filter(|_| is_used) else {
            return Ok(Vec::new());
        };
        let earlier = DuePeriod {
            period: calendars.window(WindowKind::Period, start_ms),
            calendar: calendars.at(start_ms).clone(),
            ..due.clone()
        };
        self.by_terms(&earlier, |terms| terms.omitted(&earlier, issued_at_ms))
    }

    fn statements(
        &self,
        due: &DuePeriod,
        used: &BTreeMap<MeterId, Used>,
        charges: &ChargesByCurrency,
        issued_at_ms: i64,
    ) -> Result<Vec<Document>, String> {
        self.by_terms(due, |terms| terms.statements(due, used, charges, issued_at_ms))
    }

    /// The statements of a period by what held at its end; where it cannot be rated so, by the first later version by
    /// which it can.
    fn by_terms(
        &self,
        due: &DuePeriod,
        rated: impl Fn(&Terms) -> Result<Vec<Document>, String>,
    ) -> Result<Vec<Document>, String> {
        let key = (due.tenant.clone(), due.period.start_ms);
        let Some((at_end, later)) = self.terms.get(&key).and_then(|terms| terms.split_first()) else {
            return Err("no version of the tenant is known".into());
        };
        let by = |terms: &Result<Terms, String>| rated(terms.as_ref().map_err(Clone::clone)?);
        // A later version of a sandbox would drop the use.
        let billed = later.iter().filter(|terms| terms.as_ref().is_ok_and(|terms| !terms.tenant.sandbox));
        let by_later = || billed.clone().find_map(|terms| by(terms).ok().filter(|found| !found.is_empty()));
        by(at_end).or_else(|why| by_later().ok_or(why))
    }

    /// The note that makes a statement, with its notes so far, the bill of all that is booked for its period by now;
    /// none where it is. A statement of what was charged alone is priced by what use of its period costs, `by_use`.
    fn note(
        &self,
        due: &DuePeriod,
        (statement, notes, by_use): (&Document, &[Document], Option<&Document>),
        issued_at_ms: i64,
    ) -> Result<Option<Document>, String> {
        let mut used = statement.used.clone();
        for (meter, late) in self.late_use(due, statement.period_start_ms) {
            let of_meter = used.entry(meter).or_default();
            *of_meter = late.added_to(*of_meter);
        }
        let last = notes.last().unwrap_or(statement);
        let charges = last.charges.with_refunds(&self.refunded(due));
        let by = by_use.unwrap_or(last);
        let note = statement.corrected(notes, by, &used, &charges).map_err(|error| error.to_string())?;
        let terms = self.terms_at_end(&(due.tenant.clone(), statement.period_start_ms));
        let unpriced = match terms.filter(|_| !by.is_of_charges()) {
            Some(terms) => terms.unpriced(&used, by),
            None => statement.unpriced.clone(),
        };
        Ok(note.map(|note| Document {
            number: 0,
            unpriced,
            used,
            charges,
            prices: by.prices.clone(),
            terms: by.terms.clone(),
            total: note.total,
            content: Content::CreditNote { corrects: statement.number, lines: note.lines },
            issued_at_ms,
            ..statement.clone()
        }))
    }

    /// What is booked by now for an earlier period. Where a meter's quota of it was not opened, nothing of it was used:
    /// all that the plan included was unused.
    fn late_use(&self, due: &DuePeriod, start_ms: i64) -> BTreeMap<MeterId, LateUse> {
        let key = (due.tenant.clone(), start_ms);
        let at_end = self.terms_at_end(&key);
        let parts = self.of_periods.get(&key).into_iter().flatten();
        let (own, parts): (Vec<_>, Vec<_>) = parts
            .filter(|part| part.booked_in.0 <= due.period.start_ms)
            .partition(|part| part.is_of_its_own());
        let own: HashMap<_, _> = own.into_iter().map(|part| (&part.meter, part)).collect();
        let mut late_use: BTreeMap<MeterId, (LateUse, Decimal)> = BTreeMap::new();
        for part in parts {
            let (sum, of_held) = late_use.entry(part.meter.clone()).or_default();
            let own = own.get(&part.meter);
            sum.consumed = sum.consumed.plus(Amount::from_decimal(part.consumed).unwrap_or_default());
            sum.adjusted += part.adjusted;
            // Of all holds together, and beyond what its statement says.
            *of_held += part.of_held;
            let (own_of_held, own_paid) =
                own.map_or_else(Default::default, |own| (own.of_held, own.paid_before()));
            sum.paid_before = paid_before(own_of_held + *of_held, part.charged) - own_paid;
            let included = match at_end {
                Some(terms) if !part.is_opened => terms.included(&part.meter),
                _ => Amount::ZERO,
            };
            sum.unused = unused_after(part, own.copied(), included);
        }
        late_use.into_iter().map(|(meter, (sum, _))| (meter, sum)).collect()
    }

    /// What priced a period as definitions held at its end, if that can be read.
    fn terms_at_end(&self, period: &TenantPeriod) -> Option<&Terms> {
        self.terms.get(period)?.as_slice().first()?.as_ref().ok()
    }

    fn refunded(&self, due: &DuePeriod) -> BTreeMap<GrantId, Money> {
        let refunds = self.refunds.get(&due.tenant).into_iter().flatten();
        refunds.map(|(grant, refund)| (*grant, refund.amount)).collect()
    }
}

/// What is unused of a closed period's quota once its statement has said what is corrected of its own: more use of that
/// has taken of it, and what less there was than overage is unused too. `not_opened` of it is unused in any case.
fn unused_after(part: &StoredCorrection, own: Option<&StoredCorrection>, not_opened: Amount) -> Amount {
    let burnt = own.map_or(Decimal::ZERO, StoredCorrection::adjusted_of_burnt);
    let more = (-burnt - part.overage).max(Decimal::ZERO);
    let unused = not_opened.decimal() + part.unused;
    Amount::from_decimal(unused - burnt.max(Decimal::ZERO) + more).unwrap_or_default()
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
