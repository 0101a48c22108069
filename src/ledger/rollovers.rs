//! Rollover: what of closing periods goes on to the next ones, which are opened if need be.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::QueryableByName;
use diesel::sql_types::{Array, Numeric, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::burnables::{self, BookedGrant};
use super::columns::Milliseconds;
use super::continued_grants::{self, Continuing};
use super::held_parts::HeldPart;
use super::prepared::sql_query;
use super::quotas::{self, Opening, PeriodKey, QuotaPeriod};
use super::rolled_amounts::{self, Arriving};
use super::{LedgerError, billing, capacities, corrections, instant, open_periods};
use crate::domain::amount::Amount;
use crate::domain::ids::{MeterId, Partition, TenantId};
use crate::domain::period::Window;
use crate::domain::rollover::{ClosingGrant, ClosingQuota, Fate, Part, RolledIn, RolloverTerms, rolling};

/// A period that is about to be closed, and of which something may go on.
pub(super) struct Candidate {
    pub(super) tenant: TenantId,
    pub(super) meter: MeterId,
    pub(super) period: Window,
    /// The period after it by policy, to be opened unless it is open; none where the tenant has no such quota any
    /// more.
    pub(super) next: Option<QuotaPeriod>,
    pub(super) included: Decimal,
    pub(super) terms: RolloverTerms,
    /// For how many periods what rolls over counts, and when the last of them ends (unix ms) as far as that is known.
    pub(super) rollover_periods: (u8, Option<i64>),
    pub(super) rolled_in: Decimal,
    pub(super) consumed: Decimal,
    pub(super) available: Decimal,
    /// Whether holds are open in it: they go on in any case.
    pub(super) has_holds: bool,
    /// Whether something of it goes on whatever its terms say now.
    pub(super) keeps: bool,
    /// Whether a recurring grant lasts beyond it: the next period gets that again.
    pub(super) recurs: bool,
    /// What was used beyond it and the next period pays for, as far as it can.
    pub(super) preserved: Decimal,
    /// What those of its open holds are set against that had come into it.
    pub(super) older: Vec<HeldPart>,
}

/// What a closing period leaves.
pub(super) struct Left {
    /// How much goes on; zero where nothing does.
    pub(super) rolled: Amount,
    /// How much more than that the next period is granted.
    pub(super) added: Amount,
    /// The period that takes it; none where none is open in the books.
    pub(super) next: Option<Window>,
    /// What is unused of each of its amounts, and what of open holds is set against it.
    pub(super) parts: Vec<Part>,
    /// What may go on; nothing where no period takes it.
    pub(super) terms: RolloverTerms,
    /// What rolls over, as it stands in the next period.
    pub(super) rolls_as: RolledIn,
    /// How much of the overage the next period pays for: at most what it includes and is granted by the close.
    pub(super) repaid: Decimal,
    /// What the open holds are set against that had come into it.
    pub(super) older: Vec<HeldPart>,
}

/// What each of these periods leaves, by tenant, meter and start; each tenant's meter is named once, and the tenants
/// are locked. Raises the versions of the capacities into which something goes. Nothing goes on where there is no next
/// period that is open: the tenant has lost the quota, or that period is closed already.
///
/// Opens the next period of each quota that may roll over, also where nothing does now, of each that has open holds,
/// and of each that gets a recurring grant again. A period in which nothing is used would otherwise be open, and roll
/// over or sell what recurs, only if a job ran in time.
pub(super) async fn prepare(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    mut candidates: Vec<Candidate>,
    now_ms: i64,
) -> Result<HashMap<PeriodKey, Left>, LedgerError> {
    leave_out_late(connection, &mut candidates).await?;
    candidates.retain(Candidate::opens_next);
    if candidates.is_empty() {
        return Ok(HashMap::new());
    }
    let openings: Vec<_> = candidates.iter().filter_map(|candidate| candidate.opening(partition)).collect();
    quotas::open_all(connection, partition, &openings).await?.check()?;
    candidates.retain(Candidate::leaves_some);
    let next = next_periods(connection, &candidates).await?;
    let quotas = closing(connection, &candidates).await?;
    let (mut left, mut raised) = (HashMap::new(), Vec::new());
    let (mut arriving, mut continuing) = (Vec::new(), Vec::new());
    for (candidate, quota) in candidates.iter().zip(quotas) {
        let next = next.get(&(candidate.tenant.clone(), candidate.meter.clone())).copied();
        let of_it = candidate.left(quota.parts(), next);
        arriving.extend(candidate.arriving(&of_it));
        continuing.extend(candidate.continuing(&of_it));
        if !of_it.rolled.is_zero() || !of_it.added.is_zero() || candidate.goes_on_anyway() {
            raised.push((&candidate.tenant, &candidate.meter));
        }
        left.insert((candidate.tenant.clone(), candidate.meter.clone(), candidate.period.start_ms), of_it);
    }
    rolled_amounts::add(connection, &arriving).await?;
    continued_grants::add(connection, &continuing).await?;
    capacities::raise_all_versions(connection, &raised, now_ms).await?;
    Ok(left)
}

impl Candidate {
    fn opens_next(&self) -> bool {
        self.terms.max > Decimal::ZERO || self.recurs || self.goes_on_anyway()
    }

    fn leaves_some(&self) -> bool {
        let unused = self.available > Decimal::ZERO || self.terms.min > Decimal::ZERO;
        self.goes_on_anyway() || (unused && self.terms.max > Decimal::ZERO)
    }

    fn goes_on_anyway(&self) -> bool {
        self.has_holds || self.keeps || self.preserved > Decimal::ZERO
    }

    fn opening(&self, partition: Partition) -> Option<Opening> {
        let next = self.next.as_ref().filter(|next| next.period_ms.0 == self.period.end_ms)?;
        Some(Opening::of(partition, &self.tenant, &self.meter, next))
    }

    /// What it leaves to the next period, which includes this much.
    pub(super) fn left(&self, mut parts: Vec<Part>, next: Option<(Window, Decimal)>) -> Left {
        let (terms, included) = match next {
            Some((_, included)) => (self.terms, included),
            None => (RolloverTerms::default(), Decimal::ZERO),
        };
        if next.is_none() {
            parts.iter_mut().for_each(|part| part.fate = Fate::Lapses);
        }
        let unused = rolling(&parts);
        let kept = terms.kept(unused);
        let (mut rolled, mut all) = (unused.min(kept), kept);
        for part in &parts {
            rolled += part.goes_on().min(part.unused);
            all += part.goes_on();
        }
        let added = all - rolled;
        let next = next.map(|(period, _)| period);
        let (periods, ends_at_ms) = self.rollover_periods;
        let ends_at_ms = ends_at_ms.or(next.map(|next| next.end_ms)).unwrap_or(self.period.end_ms);
        Left {
            rolled: Amount::from_decimal(rolled).unwrap_or(Amount::ZERO),
            added: Amount::from_decimal(added).unwrap_or(Amount::ZERO),
            next,
            older: self.older.iter().map(|part| part.after(&parts)).collect(),
            parts,
            terms,
            rolls_as: RolledIn { amount: kept, ends_at_ms, periods_left: periods.saturating_sub(1) },
            repaid: self.preserved.min(included + added),
        }
    }

    /// What comes over into the next period, amount by amount.
    fn arriving(&self, left: &Left) -> Vec<Arriving> {
        let Some(next) = left.next else { return Vec::new() };
        let arriving = |rolled_in: RolledIn, rolled: Decimal| Arriving {
            tenant: self.tenant.clone(),
            meter: self.meter.clone(),
            start_ms: next.start_ms,
            rolled_in,
            rolled,
            returned_at: None,
        };
        let goes_on = left.parts.iter().filter_map(|part| match part.fate {
            Fate::GoesOn(rolled_in) => Some(arriving(
                RolledIn {
                    amount: part.unused,
                    periods_left: rolled_in.periods_left.saturating_sub(1),
                    ..rolled_in
                },
                part.unused,
            )),
            _ => None,
        });
        let of_grants = left.parts.iter().filter(|part| part.fate == Fate::GrantRolls).map(|part| {
            let amount = part.goes_on();
            arriving(RolledIn { amount, ..left.rolls_as }, amount.min(part.unused))
        });
        let new = arriving(left.rolls_as, left.rolls_as.amount.min(rolling(&left.parts)));
        goes_on.chain(of_grants).chain([new]).filter(|one| !one.rolled_in.amount.is_zero()).collect()
    }

    /// What was unused of all that comes over into the next period: of each grant that goes on, and under none of all
    /// else.
    pub(super) fn came_over(&self, left: &Left) -> BTreeMap<Option<uuid::Uuid>, Decimal> {
        let mut came = BTreeMap::new();
        for one in self.arriving(left) {
            *came.entry(None).or_default() += one.rolled;
        }
        came.extend(self.continuing(left).into_iter().map(|one| (Some(one.grant.uuid()), one.rolled)));
        came
    }

    /// What goes on into the next period, grant by grant. One of which only open holds have left something has a row
    /// too, to which is added what returns of them.
    fn continuing(&self, left: &Left) -> Vec<Continuing> {
        let Some(next) = left.next else { return Vec::new() };
        let continuing = |part: &Part| match part.fate {
            Fate::GrantGoesOn(grant) => Some(Continuing {
                tenant: self.tenant.clone(),
                meter: self.meter.clone(),
                start_ms: next.start_ms,
                grant,
                amount: part.goes_on(),
                rolled: part.goes_on().min(part.unused),
                returned_at: None,
            }),
            _ => None,
        };
        left.parts.iter().filter_map(continuing).collect()
    }
}

/// Takes from the overage that next periods pay for what came late for earlier periods that are billed, since the notes
/// to their statements bill it, and what was taken back of holds that were carried into these periods.
async fn leave_out_late(
    connection: &mut AsyncPgConnection,
    candidates: &mut [Candidate],
) -> Result<(), LedgerError> {
    let key = |candidate: &Candidate| (candidate.tenant.clone(), candidate.period.start_ms);
    let preserves = |candidate: &&Candidate| candidate.preserved > Decimal::ZERO;
    let periods: BTreeSet<_> = candidates.iter().filter(preserves).map(key).collect();
    let late = corrections::booked_in(connection, &periods).await?;
    if late.is_empty() {
        return Ok(());
    }
    let calendars = open_periods::calendars(connection, late.keys().map(|(tenant, _)| tenant)).await?;
    for candidate in candidates {
        let Some(parts) = late.get(&key(&*candidate)) else { continue };
        let begun_at_ms = match calendars.get(&candidate.tenant) {
            Some(calendars) => billing::begun_at_ms(connection, candidate.tenant.as_str(), calendars).await?,
            None => None,
        };
        let begun_at_ms = begun_at_ms.unwrap_or(candidate.period.start_ms);
        let is_billed = |part: &&corrections::StoredCorrection| {
            part.meter == candidate.meter && part.period_start.0 >= begun_at_ms
        };
        let billed: Decimal = parts.iter().filter(is_billed).map(|part| part.consumed).sum();
        let is_own = |part: &&corrections::StoredCorrection| {
            part.meter == candidate.meter && part.is_of_its_own() && part.adjusted_of_burnt() < Decimal::ZERO
        };
        let own: Decimal = parts.iter().filter(is_own).map(|part| part.adjusted_of_burnt()).sum();
        candidate.preserved = (candidate.preserved - billed + own).max(Decimal::ZERO);
    }
    Ok(())
}

/// The quotas of these periods with their grants, in the same order.
pub(super) async fn closing(
    connection: &mut AsyncPgConnection,
    candidates: &[Candidate],
) -> Result<Vec<ClosingQuota>, LedgerError> {
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let periods: Vec<_> =
        candidates.iter().map(|candidate| (&candidate.tenant, &candidate.meter, candidate.period)).collect();
    let mut grants = burnables::read_booked(connection, &periods).await?;
    let rolled: Vec<_> = candidates
        .iter()
        .map(|candidate| (&candidate.tenant, &candidate.meter, candidate.period, candidate.rolled_in))
        .collect();
    let mut rolled = rolled_amounts::read(connection, &rolled).await?;
    let quota = |candidate: &Candidate| {
        let key = (candidate.tenant.clone(), candidate.meter.clone(), candidate.period.start_ms);
        let grants = grants.remove(&key).unwrap_or_default();
        ClosingQuota {
            period: candidate.period,
            included: candidate.included,
            terms: candidate.terms,
            rolled_in: rolled.remove(&key).unwrap_or_default(),
            grants: grants.into_iter().map(closing_grant).collect(),
            consumed: candidate.consumed,
            available: candidate.available,
            held_before: candidate.older.iter().filter_map(HeldPart::of_grant).collect(),
        }
    };
    Ok(candidates.iter().map(quota).collect())
}

fn closing_grant(booked: BookedGrant) -> ClosingGrant {
    let BookedGrant { burnable, fate, rollover, .. } = booked;
    ClosingGrant { burnable, fate, rollover }
}

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
    included: Decimal,
}

/// The periods after these, where they are open in the books, and what they include.
async fn next_periods(
    connection: &mut AsyncPgConnection,
    candidates: &[Candidate],
) -> Result<HashMap<(TenantId, MeterId), (Window, Decimal)>, LedgerError> {
    let starts = candidates.iter().map(|candidate| candidate.period.end_ms);
    let find = sql_query(include_str!("sql/next_open_periods.sql"))
        .bind::<Array<Text>, _>(candidates.iter().map(|candidate| &candidate.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(candidates.iter().map(|candidate| &candidate.meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(starts)?);
    let rows: Vec<Row> = find.load(connection).await?;
    let next = |row: Row| {
        let period = Window { start_ms: row.period_start.0, end_ms: row.period_end.0 };
        ((row.tenant, row.meter), (period, row.included))
    };
    Ok(rows.into_iter().map(next).collect())
}
