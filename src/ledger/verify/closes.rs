//! Folds again what closed periods had left, and compares it with what their closes made of it: what lapsed, rolled
//! over, went on and was held, and what had burnt of the grants that were sold.

use std::collections::{BTreeMap, HashMap};

use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Numeric, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::part::Part;
use super::{Check, Fault};
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::instant::rfc3339;
use crate::domain::period::Window;
use crate::domain::rollover::{self, Fate, RolloverTerms};
use crate::ledger::columns::Milliseconds;
use crate::ledger::held_parts::HeldPart;
use crate::ledger::prepared::sql_query;
use crate::ledger::quotas::PeriodKey;
use crate::ledger::rollovers::{self, Candidate, Left};
use crate::ledger::{LedgerError, carried_holds, instant, number};

/// Of how many tenants periods are looked for at once: what a page leaves is read again for the next.
const TENANTS: usize = 50;
/// How many periods are folded at once.
const PAGE: usize = 500;

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Timestamptz)]
    period_end: Milliseconds,
    #[diesel(sql_type = Numeric)]
    lapsed: Decimal,
    #[diesel(sql_type = Numeric)]
    rolled: Decimal,
    #[diesel(sql_type = Numeric)]
    added: Decimal,
    #[diesel(sql_type = Numeric)]
    rolled_in: Decimal,
    #[diesel(sql_type = Numeric)]
    included: Decimal,
    #[diesel(sql_type = Numeric)]
    max_rollover: Decimal,
    #[diesel(sql_type = Numeric)]
    min_rollover: Decimal,
    #[diesel(sql_type = Bool)]
    reroll: bool,
    #[diesel(sql_type = Numeric)]
    consumed: Decimal,
    /// What was open of the holds that had been carried into it.
    #[diesel(sql_type = Numeric)]
    reserved_of_carried: Decimal,
    /// What went over of open holds; none where some of them are charged to the next period.
    #[diesel(sql_type = Nullable<Numeric>)]
    held: Option<Decimal>,
    /// When the next period ends; none where none was open.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    next_end: Option<Milliseconds>,
}

/// What came over into a period: of each grant that goes on, and under none of all else.
type CameOver = HashMap<PeriodKey, BTreeMap<Option<uuid::Uuid>, Decimal>>;

/// Every close of these tenants' quotas has made of what was unused what its terms and grants say.
pub(super) async fn check(connection: &mut AsyncPgConnection, part: &Part) -> Result<Check, LedgerError> {
    let mut check = Check::of("closes follow from what was burnt");
    for tenants in part.tenants.chunks(TENANTS) {
        let mut after: Option<PeriodKey> = None;
        loop {
            let rows = page(connection, tenants, after.as_ref()).await?;
            let Some(last) = rows.last() else { break };
            after = Some(last.key());
            compare(connection, &rows, &mut check).await?;
        }
    }
    Ok(check)
}

/// The closed periods of these tenants after this one, at most [`PAGE`].
async fn page(
    connection: &mut AsyncPgConnection,
    tenants: &[String],
    after: Option<&PeriodKey>,
) -> Result<Vec<Row>, LedgerError> {
    let after_start = after.map(|(.., start_ms)| instant::from_ms(*start_ms)).transpose()?;
    let page = sql_query(include_str!("../sql/closed_quotas.sql"))
        .bind::<Array<Text>, _>(tenants)
        .bind::<Nullable<Text>, _>(after.map(|(tenant, ..)| tenant))
        .bind::<Nullable<Text>, _>(after.map(|(_, meter, _)| meter))
        .bind::<Nullable<Timestamptz>, _>(after_start)
        .bind::<BigInt, _>(number::limit(PAGE));
    Ok(page.load(connection).await?)
}

async fn compare(
    connection: &mut AsyncPgConnection,
    rows: &[Row],
    check: &mut Check,
) -> Result<(), LedgerError> {
    let open = rows.iter().map(|row| (row.key(), row.reserved_of_carried));
    let open = open.filter(|(_, open)| *open > Decimal::ZERO).collect();
    let mut older = carried_holds::still_set(connection, &open).await?;
    let candidate = |row: &Row| row.candidate(older.remove(&row.key()).unwrap_or_default());
    let candidates: Vec<Candidate> = rows.iter().map(candidate).collect();
    let quotas = rollovers::closing(connection, &candidates).await?;
    let came_over = came_over(connection, rows).await?;
    let sales = sales(connection, rows).await?;
    for ((row, candidate), quota) in rows.iter().zip(&candidates).zip(quotas) {
        check.checked += 1;
        let left = candidate.left(quota.parts(), row.next().map(|next| (next, Decimal::ZERO)));
        let older = candidate.older.iter().map(|part| part.held).sum();
        let mut differences = row.differences(&left, older);
        let key = (row.tenant.clone(), row.meter.clone(), row.period_end.0);
        let came = came_over.get(&key).cloned().unwrap_or_default();
        differences.extend(differing(&candidate.came_over(&left), &came));
        differences.extend(burns_that_differ(&left, sales.get(&row.key()).map_or(&[], Vec::as_slice)));
        if !differences.is_empty() {
            let start = rfc3339(row.period_start.0);
            let what = format!("close of {} {} {start}", row.tenant, row.meter);
            check.fault(Fault::new(what, differences.join("; ")));
        }
    }
    Ok(())
}

impl Row {
    fn key(&self) -> PeriodKey {
        (self.tenant.clone(), self.meter.clone(), self.period_start.0)
    }

    fn next(&self) -> Option<Window> {
        let next = |end: &Milliseconds| Window { start_ms: self.period_end.0, end_ms: end.0 };
        self.next_end.as_ref().map(next)
    }

    /// The period as its close found it: what was available lapsed or rolled over.
    fn candidate(&self, older: Vec<HeldPart>) -> Candidate {
        Candidate {
            tenant: self.tenant.clone(),
            meter: self.meter.clone(),
            period: Window { start_ms: self.period_start.0, end_ms: self.period_end.0 },
            next: None,
            included: self.included,
            terms: RolloverTerms { max: self.max_rollover, min: self.min_rollover, reroll: self.reroll },
            rollover_periods: (1, None),
            rolled_in: self.rolled_in,
            consumed: self.consumed,
            available: self.lapsed + self.rolled,
            has_holds: false,
            keeps: false,
            recurs: false,
            preserved: Decimal::ZERO,
            older,
        }
    }

    /// `older` is what of the holds that had been carried into it is set against what was before it.
    fn differences(&self, left: &Left, older: Decimal) -> Vec<String> {
        let of_parts =
            |amount: fn(&rollover::Part) -> Decimal| -> Decimal { left.parts.iter().map(amount).sum() };
        let rolled = left.rolled.decimal();
        let held = of_parts(|part| part.held) + older;
        let figures = [
            ("rolled over", self.rolled, rolled),
            ("lapsed", self.lapsed, of_parts(|part| part.unused) - rolled),
            ("were granted to the next period", self.added, left.added.decimal()),
            ("were held", self.held.unwrap_or(held), held),
        ];
        let differing = figures.into_iter().filter(|(_, is, follows)| is != follows);
        differing
            .map(|(what, is, follows)| {
                format!("{} {what}, by its cuts {}", is.normalize(), follows.normalize())
            })
            .collect()
    }
}

/// What came over otherwise than it follows.
fn differing(
    follows: &BTreeMap<Option<uuid::Uuid>, Decimal>,
    came: &BTreeMap<Option<uuid::Uuid>, Decimal>,
) -> Vec<String> {
    let all = follows.keys().chain(came.keys().filter(|of| !follows.contains_key(*of)));
    let of = |amounts: &BTreeMap<Option<uuid::Uuid>, Decimal>, of: &Option<uuid::Uuid>| {
        amounts.get(of).copied().unwrap_or_default().normalize()
    };
    let differing = all.filter(|one| of(follows, one) != of(came, one));
    differing
        .map(|one| {
            let named = one.map_or("all else".to_owned(), |id| format!("grant {id}"));
            format!("{} of {named} came over, by its cuts {}", of(came, one), of(follows, one))
        })
        .collect()
}

#[derive(QueryableByName)]
struct CameRow {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Nullable<Uuid>)]
    grant_id: Option<uuid::Uuid>,
    #[diesel(sql_type = Numeric)]
    rolled: Decimal,
}

async fn came_over(connection: &mut AsyncPgConnection, rows: &[Row]) -> Result<CameOver, LedgerError> {
    let came: Vec<CameRow> = sql_query(include_str!("../sql/came_over.sql"))
        .bind::<Array<Text>, _>(rows.iter().map(|row| &row.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(rows.iter().map(|row| &row.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(rows.iter().map(|row| row.period_end.0))?)
        .load(connection)
        .await?;
    let mut found = CameOver::new();
    for row in came {
        let key = (row.tenant, row.meter, row.period_start.0);
        found.entry(key).or_default().insert(row.grant_id, row.rolled);
    }
    Ok(found)
}

/// A sold grant in a period, and what is booked as burnt of it by then.
#[derive(QueryableByName)]
struct Sale {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Uuid)]
    grant_id: uuid::Uuid,
    #[diesel(sql_type = Numeric)]
    amount: Decimal,
    #[diesel(sql_type = Numeric)]
    burnt: Decimal,
}

async fn sales(
    connection: &mut AsyncPgConnection,
    rows: &[Row],
) -> Result<HashMap<PeriodKey, Vec<Sale>>, LedgerError> {
    let sales: Vec<Sale> = sql_query(include_str!("../sql/burnt_by_closes.sql"))
        .bind::<Array<Text>, _>(rows.iter().map(|row| &row.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(rows.iter().map(|row| &row.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(rows.iter().map(|row| row.period_start.0))?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(rows.iter().map(|row| row.period_end.0))?)
        .load(connection)
        .await?;
    let mut found: HashMap<PeriodKey, Vec<Sale>> = HashMap::new();
    for sale in sales {
        let key = (sale.tenant.clone(), sale.meter.clone(), sale.period_start.0);
        found.entry(key).or_default().push(sale);
    }
    Ok(found)
}

/// The burns of sold grants that differ. One that has ended inside the period is folded elsewhere.
fn burns_that_differ(left: &Left, sales: &[Sale]) -> Vec<String> {
    let parts: HashMap<uuid::Uuid, &rollover::Part> =
        left.parts.iter().filter_map(|part| Some((part.grant?.uuid(), part))).collect();
    let differing = |sale: &Sale| {
        let part = parts.get(&sale.grant_id)?;
        let unburnt = if matches!(part.fate, Fate::GrantGoesOn(_)) { part.left() } else { part.unused };
        let burnt = (sale.amount - unburnt).normalize();
        let booked = sale.burnt.normalize();
        (burnt != booked)
            .then(|| format!("{booked} of grant {} have burnt, by its cuts {burnt}", sale.grant_id))
    };
    sales.iter().filter_map(differing).collect()
}
