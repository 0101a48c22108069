//! What carried holds are set against, amount by amount, and what becomes of the parts that return.

use std::collections::HashMap;

use diesel::QueryableByName;
use diesel::prelude::*;
use diesel::sql_types::{Array, Nullable, Numeric, SmallInt, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::carried_holds::Carried;
use super::columns::Milliseconds;
use super::continued_grants::{self, Continuing};
use super::prepared::sql_query;
use super::quotas::PeriodKey;
use super::rolled_amounts::{self, Arriving};
use super::rollovers::Left;
use super::schema::{cuts, held_parts};
use super::{LedgerError, grants, instant, number};
use crate::domain::amount::Amount;
use crate::domain::grant::{GrantId, GrantRollover};
use crate::domain::ids::{Epoch, MeterId, OutboxId, TenantId};
use crate::domain::movements::Movement;
use crate::domain::movements::close::return_carried;
use crate::domain::period::Window;
use crate::domain::rollover::{Fate, Part, RolledIn, RolloverTerms};

/// What a closed period left, as far as carried holds concern it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct CarriedLeft {
    /// Its amounts in burn order; none where there is no quota to go on to.
    pub(super) parts: Vec<Part>,
    /// What may roll over.
    pub(super) terms: RolloverTerms,
    /// What rolled over, as it stands in the next period.
    pub(super) rolls_as: Option<RolledIn>,
    /// What those of the holds are set against that had come into it already.
    pub(super) older: Vec<HeldPart>,
}

impl From<Left> for CarriedLeft {
    fn from(left: Left) -> Self {
        Self { parts: left.parts, terms: left.terms, rolls_as: Some(left.rolls_as), older: left.older }
    }
}

impl CarriedLeft {
    /// What all of the holds are set against: the older ones are used before the others.
    fn held(&self) -> impl Iterator<Item = HeldPart> + '_ {
        let new = self.parts.iter().map(|part| self.held_part(part));
        self.older.iter().copied().chain(new).filter(|part| !part.held.is_zero())
    }

    fn held_part(&self, part: &Part) -> HeldPart {
        let fate = match part.fate {
            Fate::Lapses => HeldFate::Lapses,
            Fate::Rolls => HeldFate::Rolls,
            Fate::GoesOn(rolled_in) => HeldFate::GoesOn(RolledIn {
                periods_left: rolled_in.periods_left.saturating_sub(1),
                ..rolled_in
            }),
            Fate::GrantGoesOn(id) => HeldFate::Grant(id),
            Fate::GrantRolls => self.rolls_as.map_or(HeldFate::Lapses, HeldFate::GoesOn),
        };
        HeldPart { held: part.held, fate, rollover: part.rollover, unused: part.unused }
    }

    /// What of the holds is set against what rolls over.
    pub(super) fn held_of_rolling(&self) -> Decimal {
        self.parts.iter().filter(|part| part.fate == Fate::Rolls).map(|part| part.held).sum()
    }

    /// What of them is set against what burns after the first amount that rolls over, and does not roll over itself.
    pub(super) fn held_after(&self) -> Decimal {
        let after = self.parts.iter().skip_while(|part| part.fate != Fate::Rolls);
        after.filter(|part| part.fate != Fate::Rolls).map(|part| part.held).sum()
    }
}

/// What becomes of a part of carried holds that returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldFate {
    /// It lapses.
    Lapses,
    /// It rolls over with the quota, as far as that may.
    Rolls,
    /// It goes on with an amount that came over before, or that a recurring grant leaves, as that stands in the next
    /// period.
    GoesOn(RolledIn),
    /// It goes on with a grant, unless that has ended before.
    Grant(GrantId),
}

impl HeldFate {
    fn word(self) -> &'static str {
        match self {
            Self::Lapses => "lapses",
            Self::Rolls => "rolls",
            Self::GoesOn(_) => "goes_on",
            Self::Grant(_) => "grant",
        }
    }
}

/// What of carried holds is set against one amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldPart {
    pub(super) held: Decimal,
    pub(super) fate: HeldFate,
    /// How much of the amount goes on, where that is a grant's.
    pub(super) rollover: GrantRollover,
    /// What else of the amount was unused at the last close.
    pub(super) unused: Decimal,
}

impl HeldPart {
    /// What is set against an amount that is no grant's.
    pub(super) fn of(held: Decimal, fate: HeldFate) -> Self {
        Self { held, fate, rollover: GrantRollover::default(), unused: Decimal::ZERO }
    }

    /// The grant that it is of, if it is of one, and how much.
    pub(super) fn of_grant(&self) -> Option<(GrantId, Decimal)> {
        match self.fate {
            HeldFate::Grant(id) => Some((id, self.held)),
            _ => None,
        }
    }

    /// What more of it is available where it had returned up to `was`, and returns up to `is`; `before` of other parts
    /// of the same amount returned before it.
    fn more(&self, before: Decimal, was: Decimal, is: Decimal) -> Decimal {
        let kept = |returned| self.rollover.kept(self.unused + before + returned);
        kept(is) - kept(was)
    }

    /// It once its period is closed as well, which leaves these parts: of what went on for one more period only the
    /// grants that go on again are still there.
    pub(super) fn after(self, left: &[Part]) -> Self {
        let goes_on = |id| left.iter().find(|part| part.fate == Fate::GrantGoesOn(id));
        let grant = match self.fate {
            HeldFate::Grant(id) => goes_on(id),
            _ => None,
        };
        match grant {
            Some(part) => Self { unused: part.unused, ..self },
            None => Self { fate: HeldFate::Lapses, ..self },
        }
    }
}

/// The carried holds of a period, and what of them has returned.
#[derive(Debug, Clone)]
pub(super) struct ReturningHolds {
    /// What is charged to the new period.
    pub(super) charged: Decimal,
    /// What the rest is set against, in burn order.
    pub(super) parts: Vec<HeldPart>,
    /// What else of what rolls over was unused.
    pub(super) unused: Decimal,
    /// How much of it may go on.
    pub(super) terms: RolloverTerms,
    /// What rolled over, as it stands in the new period.
    pub(super) rolls_as: Option<RolledIn>,
    /// What has returned by now.
    pub(super) returned: Decimal,
    /// What is available again, with what, and where it returned.
    pub(super) kept: Vec<(OutboxId, HeldPart)>,
    /// Where those of the grants have ended that have.
    pub(super) ended: HashMap<GrantId, OutboxId>,
}

impl ReturningHolds {
    /// What returns next: first what is charged to the new period, then what was set against its amounts, the one that
    /// burns last first. It is available again as far as its amount would have gone on, had it been unused at the
    /// close; with a grant if that counted at this place of the outbox.
    pub(super) fn take(&mut self, period: Window, place: OutboxId, amount: Amount) -> Vec<Movement> {
        let zero = Decimal::ZERO;
        let owed = (self.charged - self.returned).max(zero);
        let (from, to) = (self.returned - self.charged, self.returned + amount.decimal() - self.charged);
        self.returned += amount.decimal();
        let (mut rolled, mut kept) = (zero, zero);
        let mut of_grants: HashMap<GrantId, Decimal> = HashMap::new();
        for (part, was, is) in self.reached(from, to) {
            let more = match part.fate {
                HeldFate::Lapses => zero,
                HeldFate::Grant(id) if self.ended.get(&id).is_some_and(|end| *end <= place) => zero,
                HeldFate::Rolls => {
                    let before = self.unused + rolled;
                    self.terms.kept(before + is) - self.terms.kept(before + was)
                }
                HeldFate::GoesOn(_) => part.more(zero, was, is),
                HeldFate::Grant(id) => {
                    let before = of_grants.entry(id).or_default();
                    let more = part.more(*before, was, is);
                    *before += part.held.min(is);
                    more
                }
            };
            if part.fate == HeldFate::Rolls {
                rolled += part.held.min(is);
            }
            kept += more;
            self.kept.push((place, HeldPart { held: more, ..part }));
        }
        let rolls = |unused: Amount| if unused.is_zero() { Amount::ZERO } else { positive(kept) };
        return_carried(period, amount, positive(owed), Amount::ZERO, rolls)
    }

    /// Each part, the one that burns last first, with how much of it has returned once so much of all parts has.
    fn reached(&self, from: Decimal, to: Decimal) -> Vec<(HeldPart, Decimal, Decimal)> {
        let mut passed = Decimal::ZERO;
        let reached = |part: &HeldPart| {
            let within =
                |returned: Decimal| (returned - passed).clamp(Decimal::ZERO, part.held.max(Decimal::ZERO));
            let (was, is) = (within(from), within(to));
            passed += part.held;
            (*part, was, is)
        };
        self.parts.iter().rev().map(reached).collect()
    }

    /// What so much as is still `open` of the holds is set against, in burn order. What has returned was set against
    /// the parts that burn last, so what was consumed is of those that burn first.
    pub(super) fn still_set(&self, open: Decimal) -> Vec<HeldPart> {
        let from = self.returned - self.charged;
        let still = |(part, was, is): (HeldPart, Decimal, Decimal)| HeldPart { held: is - was, ..part };
        self.reached(from, from + open).into_iter().rev().map(still).collect()
    }

    /// What has come to amounts of the period that starts at `start_ms` (unix ms).
    fn arrived(&self, (tenant, meter, start_ms): &PeriodKey) -> Vec<Arriving> {
        let rolled_in = |part: &HeldPart| match part.fate {
            HeldFate::GoesOn(rolled_in) => Some(rolled_in),
            HeldFate::Rolls => self.rolls_as,
            HeldFate::Lapses | HeldFate::Grant(_) => None,
        };
        let arriving = |(place, part): &(OutboxId, HeldPart)| {
            let arriving = Arriving {
                tenant: tenant.clone(),
                meter: meter.clone(),
                start_ms: *start_ms,
                rolled_in: RolledIn { amount: part.held, ..rolled_in(part)? },
                rolled: Decimal::ZERO,
                returned_at: Some(*place),
            };
            (!part.held.is_zero()).then_some(arriving)
        };
        self.kept.iter().filter_map(arriving).collect()
    }

    /// What has come to grants that go on in that period.
    fn continued(&self, (tenant, meter, start_ms): &PeriodKey) -> Vec<Continuing> {
        let continuing = |(place, part): &(OutboxId, HeldPart)| {
            let HeldFate::Grant(grant) = part.fate else { return None };
            let (tenant, meter, returned_at) = (tenant.clone(), meter.clone(), Some(*place));
            let one = Continuing {
                tenant,
                meter,
                start_ms: *start_ms,
                grant,
                amount: part.held,
                rolled: Decimal::ZERO,
                returned_at,
            };
            (!part.held.is_zero()).then_some(one)
        };
        self.kept.iter().filter_map(continuing).collect()
    }
}

fn positive(amount: Decimal) -> Amount {
    Amount::from_decimal(amount).unwrap_or(Amount::ZERO)
}

/// Notes what the holds of closes are set against.
pub(super) async fn note(connection: &mut AsyncPgConnection, carried: &[Carried]) -> Result<(), LedgerError> {
    let mut rows = Vec::new();
    for carried in carried {
        for (place, HeldPart { held, fate, rollover, unused }) in (0_i32..).zip(carried.left.held()) {
            let (goes_on, grant) = match fate {
                HeldFate::GoesOn(rolled_in) => (Some(rolled_in), None),
                HeldFate::Grant(id) => (None, Some(id.uuid())),
                HeldFate::Lapses | HeldFate::Rolls => (None, None),
            };
            rows.push((
                held_parts::tenant.eq(&carried.tenant),
                held_parts::meter.eq(&carried.meter),
                held_parts::period_start.eq(instant::from_ms(carried.start_ms)?),
                held_parts::place.eq(place),
                held_parts::held.eq(held),
                held_parts::fate.eq(fate.word()),
                held_parts::ends_at.eq(goes_on.map(|one| instant::from_ms(one.ends_at_ms)).transpose()?),
                held_parts::periods_left.eq(goes_on.map(|one| i16::from(one.periods_left))),
                held_parts::grant_id.eq(grant),
                held_parts::max_rollover.eq(rollover.max.map(Amount::decimal)),
                held_parts::min_rollover.eq(rollover.min.decimal()),
                held_parts::unused.eq(unused),
            ));
        }
    }
    if !rows.is_empty() {
        diesel::insert_into(held_parts::table).values(rows).execute(connection).await?;
    }
    Ok(())
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Numeric)]
    held: Decimal,
    #[diesel(sql_type = Text)]
    fate: String,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    ends_at: Option<Milliseconds>,
    #[diesel(sql_type = Nullable<SmallInt>)]
    periods_left: Option<i16>,
    #[diesel(sql_type = Nullable<Uuid>)]
    grant_id: Option<uuid::Uuid>,
    #[diesel(sql_type = Nullable<Numeric>)]
    max_rollover: Option<Decimal>,
    #[diesel(sql_type = Numeric)]
    min_rollover: Decimal,
    #[diesel(sql_type = Numeric)]
    unused: Decimal,
}

impl Row {
    fn part(&self) -> Result<HeldPart, LedgerError> {
        let what = || format!("what holds of {} {} are set against", self.tenant, self.meter);
        let damaged = || LedgerError::Damaged(what());
        let rolled_in = self.ends_at.as_ref().map(|ends_at| RolledIn {
            amount: Decimal::ZERO,
            ends_at_ms: ends_at.0,
            periods_left: self.periods_left.and_then(|left| u8::try_from(left).ok()).unwrap_or_default(),
        });
        let fate = match (self.fate.as_str(), rolled_in, self.grant_id) {
            ("lapses", ..) => HeldFate::Lapses,
            ("rolls", ..) => HeldFate::Rolls,
            ("goes_on", Some(rolled_in), _) => HeldFate::GoesOn(rolled_in),
            ("grant", _, Some(id)) => HeldFate::Grant(GrantId::from_uuid(id)),
            _ => return Err(damaged()),
        };
        let rollover = grants::rollover(self.max_rollover, self.min_rollover).ok_or_else(damaged)?;
        Ok(HeldPart { held: self.held, fate, rollover, unused: self.unused })
    }
}

/// What the holds are set against that the closes of these periods have carried, in burn order.
pub(super) async fn read(
    connection: &mut AsyncPgConnection,
    closed: impl Iterator<Item = PeriodKey>,
) -> Result<HashMap<PeriodKey, Vec<HeldPart>>, LedgerError> {
    let keys: Vec<PeriodKey> = closed.collect();
    let find = sql_query(include_str!("sql/held_parts.sql"))
        .bind::<Array<Text>, _>(keys.iter().map(|(tenant, ..)| tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(keys.iter().map(|(_, meter, _)| meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(keys.iter().map(|(.., start_ms)| *start_ms))?);
    let rows: Vec<Row> = find.load(connection).await?;
    let mut found: HashMap<PeriodKey, Vec<HeldPart>> = HashMap::new();
    for row in rows {
        let part = row.part()?;
        found.entry((row.tenant, row.meter, row.period_start.0)).or_default().push(part);
    }
    Ok(found)
}

/// Where those of these grants have ended that have.
pub(super) async fn ends(
    connection: &mut AsyncPgConnection,
    parts: &HashMap<PeriodKey, Vec<HeldPart>>,
) -> Result<HashMap<GrantId, OutboxId>, LedgerError> {
    let of_grant = |part: &HeldPart| match part.fate {
        HeldFate::Grant(id) => Some(id.uuid()),
        _ => None,
    };
    let ids: Vec<uuid::Uuid> = parts.values().flatten().filter_map(of_grant).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<(uuid::Uuid, i64, i64)> = cuts::table
        .filter(cuts::tenant.eq_any(parts.keys().map(|(tenant, ..)| tenant)))
        .filter(cuts::grant_id.eq_any(ids))
        .filter(cuts::is_end)
        .select((cuts::grant_id, cuts::epoch, cuts::sequence))
        .load(connection)
        .await?;
    let end = |(id, epoch, sequence)| {
        let place =
            OutboxId { epoch: Epoch(number::unsigned(epoch)?), sequence: number::unsigned(sequence)? };
        Ok::<_, LedgerError>((GrantId::from_uuid(id), place))
    };
    rows.into_iter().map(end).collect()
}

/// Adds what is available again to the amounts with which it goes on, so that it burns and goes on with them.
pub(super) async fn give_back(
    connection: &mut AsyncPgConnection,
    holds: &HashMap<PeriodKey, ReturningHolds>,
) -> Result<(), LedgerError> {
    let arrived: Vec<Arriving> = holds.iter().flat_map(|(key, holds)| holds.arrived(key)).collect();
    rolled_amounts::add(connection, &arrived).await?;
    let continued: Vec<Continuing> = holds.iter().flat_map(|(key, holds)| holds.continued(key)).collect();
    continued_grants::add(connection, &continued).await
}

#[cfg(test)]
mod tests;
