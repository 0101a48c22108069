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
use super::{LedgerError, instant, number};
use crate::domain::amount::Amount;
use crate::domain::grant::GrantId;
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
        let new = self.parts.iter().map(|part| HeldPart { held: part.held, fate: HeldFate::of(part.fate) });
        self.older.iter().copied().chain(new).filter(|part| !part.held.is_zero())
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
    /// It goes on with an amount that came over before, as that stands in the next period.
    GoesOn(RolledIn),
    /// It goes on with a grant, unless that has ended before.
    Grant(GrantId),
}

impl HeldFate {
    fn of(fate: Fate) -> Self {
        match fate {
            Fate::Lapses => Self::Lapses,
            Fate::Rolls => Self::Rolls,
            Fate::GoesOn(rolled_in) => {
                Self::GoesOn(RolledIn { periods_left: rolled_in.periods_left.saturating_sub(1), ..rolled_in })
            }
            Fate::GrantGoesOn(id) => Self::Grant(id),
        }
    }

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
}

impl HeldPart {
    /// The grant that it is of, if it is of one, and how much.
    pub(super) fn of_grant(&self) -> Option<(GrantId, Decimal)> {
        match self.fate {
            HeldFate::Grant(id) => Some((id, self.held)),
            _ => None,
        }
    }

    /// It once its period is closed as well, which leaves these parts: of what went on for one more period only the
    /// grants that go on again are still there.
    pub(super) fn after(self, left: &[Part]) -> Self {
        let goes_on = |id| left.iter().any(|part| part.fate == Fate::GrantGoesOn(id));
        match self.fate {
            HeldFate::Grant(id) if goes_on(id) => self,
            _ => Self { fate: HeldFate::Lapses, ..self },
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
        for (part, was, is) in self.reached(from, to) {
            let more = match part.fate {
                HeldFate::Lapses => zero,
                HeldFate::Grant(id) if self.ended.get(&id).is_some_and(|end| *end <= place) => zero,
                HeldFate::Rolls => {
                    let before = self.unused + rolled;
                    self.terms.kept(before + is) - self.terms.kept(before + was)
                }
                HeldFate::GoesOn(_) | HeldFate::Grant(_) => is - was,
            };
            if part.fate == HeldFate::Rolls {
                rolled += part.held.min(is);
            }
            kept += more;
            self.kept.push((place, HeldPart { held: more, fate: part.fate }));
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
            let one =
                Continuing { tenant, meter, start_ms: *start_ms, grant, amount: part.held, returned_at };
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
        for (place, HeldPart { held, fate }) in (0_i32..).zip(carried.left.held()) {
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
}

impl Row {
    fn part(&self) -> Result<HeldPart, LedgerError> {
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
            _ => {
                return Err(LedgerError::Damaged(format!(
                    "what holds of {} {} are set against",
                    self.tenant, self.meter
                )));
            }
        };
        Ok(HeldPart { held: self.held, fate })
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
mod tests {
    use super::*;
    use crate::domain::movements::{Account, Accounts};

    const PERIOD: Window = Window { start_ms: 0, end_ms: 1_000 };

    fn part(held: i64, fate: HeldFate) -> HeldPart {
        HeldPart { held: held.into(), fate }
    }

    /// Ten are charged, then these parts; four more of what rolls over were unused.
    fn holds(min: i64, max: i64, parts: Vec<HeldPart>) -> ReturningHolds {
        ReturningHolds {
            charged: 10.into(),
            parts,
            unused: 4.into(),
            terms: RolloverTerms { max: max.into(), min: min.into(), reroll: false },
            rolls_as: None,
            returned: Decimal::ZERO,
            kept: Vec::new(),
            ended: HashMap::new(),
        }
    }

    fn at(sequence: u64) -> OutboxId {
        OutboxId { epoch: Epoch(1), sequence }
    }

    /// Five were set against what came over, fifteen against the included amount, and the rest against a grant.
    fn plain(max_rollover: i64) -> ReturningHolds {
        holds(0, max_rollover, vec![part(15, HeldFate::Rolls), part(5, HeldFate::Lapses)])
    }

    /// What is available again and what lapses, part by part.
    fn returns(mut holds: ReturningHolds, parts: &[u64]) -> Vec<(i64, i64)> {
        let take = |part: &u64| {
            let mut accounts = Accounts::default();
            let movements = holds.take(PERIOD, at(1), Amount::from_integer(*part));
            movements.iter().for_each(|movement| movement.apply(&mut accounts));
            let of = |account: Account| i64::try_from(accounts[account.index()]).unwrap();
            assert_eq!(-of(Account::Reserved), i64::try_from(*part).unwrap());
            (of(Account::Available), of(Account::Lapsed))
        };
        parts.iter().map(take).collect()
    }

    #[rstest::rstest]
    #[case::what_is_charged_first(100, &[6, 4], &[(6, 0), (4, 0)])]
    #[case::then_what_burns_last_and_lapses(100, &[13, 2], &[(10, 3), (0, 2)])]
    #[case::then_the_included_amount_which_goes_on(100, &[15, 15], &[(10, 5), (15, 0)])]
    #[case::as_far_as_it_may_beside_what_was_unused(12, &[15, 5, 10], &[(10, 5), (5, 0), (3, 7)])]
    #[case::then_what_burns_first_and_lapses(100, &[30, 10], &[(25, 5), (0, 10)])]
    #[case::nothing_goes_on(0, &[40], &[(10, 30)])]
    #[case::all_at_once(12, &[40], &[(18, 22)])]
    fn what_returns_of_carried_holds(
        #[case] max_rollover: i64,
        #[case] parts: &[u64],
        #[case] expected: &[(i64, i64)],
    ) {
        assert_eq!(returns(plain(max_rollover), parts), expected);
    }

    #[test]
    fn what_returns_goes_on_with_the_amount_that_it_was_set_against() {
        let older = RolledIn { amount: Decimal::ZERO, ends_at_ms: 5_000, periods_left: 2 };
        let parts =
            vec![part(6, HeldFate::Rolls), part(4, HeldFate::Rolls), part(3, HeldFate::GoesOn(older))];
        let of = |min| holds(min, 12, parts.clone());
        assert_eq!(
            returns(of(0), &[10, 2, 1, 4, 6]),
            [(10, 0), (2, 0), (1, 0), (4, 0), (4, 2)],
            "twelve roll over at most"
        );
        let least = [(10, 0), (3, 0), (0, 4), (4, 2)];
        assert_eq!(
            returns(of(8), &[10, 3, 4, 6]),
            least,
            "four of what was unused were granted at the close"
        );
        let mut all = of(0);
        all.take(PERIOD, at(1), Amount::from_integer(23));
        let kept: Decimal = all.kept.iter().map(|(_, part)| part.held).sum();
        assert_eq!(kept, Decimal::from(11));
        assert!(all.kept.contains(&(at(1), part(3, HeldFate::GoesOn(older)))), "{:?}", all.kept);
    }

    #[test]
    fn what_returns_of_a_grant_is_its_own_until_it_has_ended_and_lapses_then() {
        let grant = GrantId::from_uuid(uuid::Uuid::from_u128(7));
        let mut holds = holds(0, 0, vec![part(5, HeldFate::Grant(grant)), part(5, HeldFate::Lapses)]);
        holds.charged = Decimal::ZERO;
        holds.ended = HashMap::from([(grant, at(8))]);
        let mut take = |sequence, amount: u64| {
            let mut accounts = Accounts::default();
            let movements = holds.take(PERIOD, at(sequence), Amount::from_integer(amount));
            movements.iter().for_each(|movement| movement.apply(&mut accounts));
            [Account::Available, Account::Lapsed].map(|account| accounts[account.index()])
        };
        assert_eq!(take(7, 8), [3, 5].map(Decimal::from), "what burns last returns first");
        assert_eq!(take(8, 2), [0, 2].map(Decimal::from), "the grant has ended");
        let key = (TenantId::parse("acme").unwrap(), MeterId::parse("page").unwrap(), 0);
        let continued = holds.continued(&key);
        let came = continued.iter().map(|one| (one.grant, one.amount, one.returned_at)).collect::<Vec<_>>();
        assert_eq!(came, [(grant, Decimal::from(3), Some(at(7)))]);
    }

    #[rstest::rstest]
    #[case::nothing_has_returned(0, 40, [5, 5, 20])]
    #[case::what_is_charged_has_returned(10, 30, [5, 5, 20])]
    #[case::what_burns_last_has_returned(32, 8, [5, 3, 0])]
    #[case::some_returned_and_some_was_consumed(12, 20, [0, 2, 18])]
    #[case::all_but_what_is_charged_was_consumed(0, 10, [0, 0, 0])]
    #[case::nothing_is_open(7, 0, [0, 0, 0])]
    fn what_is_open_is_set_against_what_neither_returned_nor_was_consumed(
        #[case] returned: i64,
        #[case] open: i64,
        #[case] expected: [i64; 3],
    ) {
        let grant = HeldFate::Grant(GrantId::from_uuid(uuid::Uuid::from_u128(7)));
        let parts = vec![part(5, HeldFate::Rolls), part(5, grant), part(20, HeldFate::Lapses)];
        let holds = ReturningHolds { returned: returned.into(), ..holds(0, 0, parts) };
        let still = holds.still_set(open.into());
        assert_eq!(still.iter().map(|part| part.held).collect::<Vec<_>>(), expected.map(Decimal::from));
        assert_eq!(still[1].fate, grant);
    }
}
