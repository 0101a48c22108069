//! Which grants consumption burns: in burn order, and by segments.
//!
//! A segment ends wherever the set of active grants changes. Within one, its total consumption decides; it begins by
//! burning the overage so far from its active grants, so that unburnt units and overage never stand side by side.

use std::collections::{BTreeMap, BTreeSet};

use rust_decimal::Decimal;

use super::grant::{GrantId, GrantKind, Priority};
use super::ids::{Epoch, OutboxId};
use super::period::Window;

/// The place of a grant in the burn order: the smaller one burns first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BurnPlace {
    /// Its priority.
    pub priority: Priority,
    /// When it ends (unix ms).
    pub expires_at_ms: i64,
    /// Promotional before paid.
    pub kind: GrantKind,
    /// From when on it counts (unix ms).
    pub effective_at_ms: i64,
    /// When it was made (unix ms).
    pub created_at_ms: i64,
    /// Its id; none for what the plan includes.
    pub id: Option<GrantId>,
}

impl BurnPlace {
    /// The place of what the plan includes: a promotional grant of the whole period.
    pub fn of_included((start_ms, end_ms): (i64, i64)) -> Self {
        Self {
            priority: Priority::default(),
            expires_at_ms: end_ms,
            kind: GrantKind::Promotional,
            effective_at_ms: start_ms,
            created_at_ms: start_ms,
            id: None,
        }
    }

    /// The place of what the period before had left over: like what the plan includes, and right after it.
    pub fn of_rolled_in(period: Window) -> Self {
        let included = Self::of_included((period.start_ms, period.end_ms));
        Self { created_at_ms: included.created_at_ms.saturating_add(1), ..included }
    }
}

/// A place of the outbox, and what was consumed of the quota by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The event before which it was made.
    pub place: OutboxId,
    /// The instant for which it was made (unix ms): cuts at one place are in the order of these.
    pub at_ms: i64,
    /// What was consumed in the period.
    pub consumed: Decimal,
}

impl Cut {
    /// The start of a period, when nothing was consumed.
    pub const START: Self =
        Self { place: OutboxId { epoch: Epoch(0), sequence: 0 }, at_ms: 0, consumed: Decimal::ZERO };

    /// Its place among the cuts of a quota.
    fn moment(&self) -> (OutboxId, i64) {
        (self.place, self.at_ms)
    }
}

/// An amount that can burn, and between which cuts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Burnable {
    /// Its place in the burn order.
    pub place: BurnPlace,
    /// How much, with all that it has grown by; below zero what a lowered plan took where it begins: it burns nothing.
    pub amount: Decimal,
    /// What of it came after its begin, and after which cut: it burns from the segment on that begins there.
    pub grows: Vec<(OutboxId, Decimal)>,
    /// Whether a plan gives it, which was raised inside the period: a plan that is lowered takes it back first.
    pub is_of_plan: bool,
    /// Where it begins; none while no cut was made.
    pub begins: Option<Cut>,
    /// Where it ends; none while it counts.
    pub ends: Option<Cut>,
}

impl Burnable {
    /// What the period before had left over. It burns from the period's start on, whenever its close has booked it, so
    /// that nothing depends on when that was.
    pub fn of_rolled_in(period: Window, amount: Decimal) -> Self {
        let place = BurnPlace::of_rolled_in(period);
        Self { place, amount, grows: Vec::new(), is_of_plan: false, begins: Some(Cut::START), ends: None }
    }

    /// It as it was at this cut.
    pub fn as_of(mut self, cut: Cut) -> Self {
        let by_then = |other: &Cut| other.moment() <= cut.moment();
        let (grown, later): (Vec<_>, Vec<_>) =
            self.grows.into_iter().partition(|(after, _)| *after < cut.place);
        self.amount -= later.into_iter().map(|(_, by)| by).sum::<Decimal>();
        self.grows = grown;
        self.begins = self.begins.filter(by_then);
        self.ends = self.ends.filter(by_then);
        self
    }

    /// What it changes, each at its place.
    fn changes(&self) -> impl Iterator<Item = Change> + '_ {
        let grown: Decimal = self.grows.iter().map(|(_, by)| *by).sum();
        let takes = self.amount < Decimal::ZERO;
        let change = move |at, kind, amount, consumed| Change { at, kind, of: self.place, amount, consumed };
        // One that had ended before never counts: the clock was set back in between.
        let counts = |begin: &Cut| self.ends.is_none_or(|end| begin.moment() <= end.moment());
        let begins = self.begins.filter(counts).map(|cut| {
            let kind = if takes { ChangeKind::Takes } else { ChangeKind::Begins };
            change(cut.moment(), kind, (self.amount - grown).abs(), Some(cut.consumed))
        });
        // What came after a cut came after every cut at its place.
        let grows = self
            .grows
            .iter()
            .map(move |(after, by)| change((*after, i64::MAX), ChangeKind::Grows, *by, None));
        let ends =
            self.ends.map(|cut| change(cut.moment(), ChangeKind::Ends, Decimal::ZERO, Some(cut.consumed)));
        begins.into_iter().chain(grows).chain(ends)
    }
}

/// A change of what can burn.
struct Change {
    /// Where in the outbox, and for which instant (unix ms).
    at: (OutboxId, i64),
    kind: ChangeKind,
    of: BurnPlace,
    amount: Decimal,
    /// What was consumed there, where a segment ends.
    consumed: Option<Decimal>,
}

/// Kinds of changes, in their order at one instant of one place: what a plan takes it takes of what has begun by then
/// and not ended, and what grows came after all that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ChangeKind {
    Begins,
    Ends,
    Takes,
    Grows,
}

/// How much of each grant that has begun is burnt once this much is `consumed`: `included` from the period's start on,
/// the others between their cuts. What a lowered plan took of it counts as burnt.
pub fn burn(
    included: (BurnPlace, Decimal),
    grants: &[Burnable],
    consumed: Decimal,
) -> BTreeMap<BurnPlace, Decimal> {
    let Burning { mut burnt, taken, .. } = fold(included, grants, consumed);
    for (place, amount) in taken {
        *burnt.entry(place).or_default() += amount;
    }
    burnt
}

/// How much of one of the grants of a period had burnt at the cut where it ends; none while it has no such cut.
pub fn burnt_at_end(
    period: Window,
    included: Decimal,
    grants: &[Burnable],
    place: BurnPlace,
) -> Option<Decimal> {
    let end = grants.iter().find(|grant| grant.place == place)?.ends?;
    let by_then: Vec<_> = grants.iter().map(|grant| grant.clone().as_of(end)).collect();
    let base = (BurnPlace::of_included((period.start_ms, period.end_ms)), included);
    Some(burn(base, &by_then, end.consumed).remove(&place).unwrap_or_default())
}

/// How much is available, once this much is `consumed`, of what nobody has paid for. What is `held` is set against all
/// that is unburnt, in burn order.
pub fn free(
    included: (BurnPlace, Decimal),
    grants: &[Burnable],
    consumed: Decimal,
    held: Decimal,
) -> Decimal {
    let (mut free, mut held) = (Decimal::ZERO, held.max(Decimal::ZERO));
    for (place, left) in fold(included, grants, consumed).active {
        let set = held.min(left);
        held -= set;
        if place.kind != GrantKind::Paid {
            free += left - set;
        }
    }
    free
}

fn fold(included: (BurnPlace, Decimal), grants: &[Burnable], consumed: Decimal) -> Burning {
    let mut changes: Vec<Change> = grants.iter().flat_map(Burnable::changes).collect();
    changes.sort_by_key(|change| (change.at, change.kind, change.of));
    let mut burning = Burning::default();
    burning.of_plan.insert(included.0);
    burning.of_plan.extend(grants.iter().filter(|grant| grant.is_of_plan).map(|grant| grant.place));
    burning.begin(included.0, included.1);
    for Change { kind, of, amount, consumed, .. } in changes {
        if let Some(consumed) = consumed {
            burning.advance(consumed);
        }
        match kind {
            ChangeKind::Begins => burning.begin(of, amount),
            ChangeKind::Ends => {
                burning.active.remove(&of);
            }
            ChangeKind::Takes => burning.take(of, amount),
            ChangeKind::Grows => burning.grow(of, amount),
        }
    }
    burning.advance(consumed);
    burning
}

#[derive(Default)]
struct Burning {
    /// What is left of each grant that counts.
    active: BTreeMap<BurnPlace, Decimal>,
    burnt: BTreeMap<BurnPlace, Decimal>,
    /// What lowered plans have taken of each.
    taken: BTreeMap<BurnPlace, Decimal>,
    /// What plans include, or have raised it by.
    of_plan: BTreeSet<BurnPlace>,
    consumed: Decimal,
    /// What was consumed beyond all grants.
    overage: Decimal,
}

impl Burning {
    /// Goes on to where this much is consumed.
    fn advance(&mut self, consumed: Decimal) {
        let more = consumed - self.consumed;
        self.consumed = consumed;
        if more >= Decimal::ZERO { self.burn(more) } else { self.unburn(-more) }
    }

    fn begin(&mut self, place: BurnPlace, amount: Decimal) {
        self.active.insert(place, amount);
        self.burnt.insert(place, Decimal::ZERO);
        self.burn_overage();
    }

    fn grow(&mut self, place: BurnPlace, by: Decimal) {
        if let Some(left) = self.active.get_mut(&place) {
            *left += by;
            self.burn_overage();
        }
    }

    fn burn_overage(&mut self) {
        let overage = std::mem::take(&mut self.overage);
        self.burn(overage);
    }

    /// A lowered plan takes what plans gave, then the rest, each against the burn order; what was paid for goes last.
    fn take(&mut self, by: BurnPlace, mut amount: Decimal) {
        self.taken.insert(by, -amount);
        let is_of_plan = |place: &&BurnPlace| self.of_plan.contains(place);
        let (of_plan, others): (Vec<_>, Vec<_>) = self.active.keys().rev().partition(is_of_plan);
        let is_paid = |place: &&BurnPlace| place.kind == GrantKind::Paid;
        let (paid, free): (Vec<_>, Vec<_>) = others.into_iter().partition(is_paid);
        let order: Vec<BurnPlace> = of_plan.into_iter().chain(free).chain(paid).copied().collect();
        for place in order {
            let left = self.active.entry(place).or_default();
            let part = amount.min(*left);
            *left -= part;
            amount -= part;
            *self.taken.entry(place).or_default() += part;
        }
    }

    fn burn(&mut self, mut amount: Decimal) {
        for (place, left) in &mut self.active {
            let part = amount.min(*left);
            *left -= part;
            amount -= part;
            *self.burnt.entry(*place).or_default() += part;
        }
        self.overage += amount;
    }

    /// Gives back against the burn order.
    fn unburn(&mut self, mut amount: Decimal) {
        let part = amount.min(self.overage);
        self.overage -= part;
        amount -= part;
        for (place, left) in self.active.iter_mut().rev() {
            let burnt = self.burnt.entry(*place).or_default();
            let part = amount.min(*burnt);
            *burnt -= part;
            *left += part;
            amount -= part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::grant::NO_END_MS;
    use crate::domain::ids::{IdempotencyKey, TenantId};

    fn place(key: &str, priority: u8, expires_at_ms: i64, kind: GrantKind) -> BurnPlace {
        let id = GrantId::of(&TenantId::parse("acme").unwrap(), &IdempotencyKey::parse(key).unwrap());
        BurnPlace {
            priority: Priority::new(priority).unwrap(),
            expires_at_ms,
            kind,
            effective_at_ms: 10,
            created_at_ms: 10,
            id: Some(id),
        }
    }

    fn cut(sequence: u64, consumed: i64) -> Option<Cut> {
        let place = OutboxId { epoch: Epoch(1), sequence };
        Some(Cut { place, at_ms: 10, consumed: consumed.into() })
    }

    fn grant(key: &str, amount: i64, begins: Option<Cut>, ends: Option<Cut>) -> Burnable {
        let place = place(key, 50, 50, GrantKind::Promotional);
        Burnable { place, amount: amount.into(), grows: Vec::new(), is_of_plan: false, begins, ends }
    }

    /// What is burnt of the included amount, then of each grant, as whole units.
    fn burnt(included: i64, grants: &[Burnable], consumed: i64) -> Vec<i64> {
        let base = BurnPlace::of_included((0, 100));
        let all = burn((base, included.into()), grants, consumed.into());
        let of = |place: &BurnPlace| {
            all.get(place).map_or(-1, |units| i64::try_from(units.trunc().mantissa()).unwrap())
        };
        std::iter::once(of(&base)).chain(grants.iter().map(|grant| of(&grant.place))).collect()
    }

    #[test]
    fn the_order_is_priority_then_end_then_promotional_then_dates() {
        let base = BurnPlace::of_included((0, 100));
        let order = [
            place("first", 1, 100, GrantKind::Paid),
            place("sooner", 50, 99, GrantKind::Paid),
            base,
            place("later", 50, 100, GrantKind::Promotional),
            place("paid", 50, 100, GrantKind::Paid),
            place("last", 51, 20, GrantKind::Promotional),
        ];
        assert!(order.is_sorted(), "{order:?}");
    }

    #[test]
    fn what_is_alike_otherwise_burns_by_its_making_then_by_its_id_and_what_has_no_end_burns_last() {
        let dated = place("dated", 50, NO_END_MS - 1, GrantKind::Paid);
        let endless = place("endless", 50, NO_END_MS, GrantKind::Promotional);
        assert!(BurnPlace::of_included((0, 100)) < dated && dated < endless);
        let higher = place("higher", 51, 1, GrantKind::Promotional);
        assert!(endless < higher, "an end counts within a priority");
        let made = |key: &str, effective_at_ms: i64, created_at_ms: i64| BurnPlace {
            effective_at_ms,
            created_at_ms,
            ..place(key, 50, 50, GrantKind::Paid)
        };
        assert!(made("a", 10, 11) > made("b", 10, 10) && made("b", 10, 11) > made("a", 10, 10));
        assert!(made("a", 9, 11) < made("b", 10, 10), "from when on it counts comes first");
        let (one, other) = (made("one", 10, 10), made("other", 10, 10));
        assert_eq!(one.cmp(&other), one.id.cmp(&other.id));
        assert_ne!(one.id, other.id);
        let both = |first: BurnPlace, second: BurnPlace| {
            let of = |place| Burnable { place, ..grant("a", 10, cut(1, 0), None) };
            burnt(0, &[of(first), of(second)], 4)
        };
        let expected = if one.id < other.id { [0, 4, 0] } else { [0, 0, 4] };
        assert_eq!(both(one, other), expected);
        assert_eq!(both(endless, dated), [0, 0, 4]);
        assert_eq!(both(made("a", 10, 11), made("b", 10, 10)), [0, 0, 4]);
    }

    #[test]
    fn what_ends_sooner_burns_first_and_the_rest_stays_unburnt() {
        assert_eq!(burnt(50, &[grant("a", 10, cut(1, 0), None)], 4), [0, 4]);
        assert_eq!(burnt(50, &[grant("a", 10, cut(1, 0), None)], 14), [4, 10]);
        assert_eq!(burnt(50, &[grant("a", 10, cut(1, 5), None)], 14), [5, 9], "only from its cut on");
        assert_eq!(burnt(50, &[grant("a", 10, cut(1, 0), cut(2, 4))], 14), [10, 4], "only up to its end");
        assert_eq!(burnt(50, &[grant("a", 10, None, None)], 14), [14, -1], "it has no cut yet");
    }

    #[test]
    fn a_segment_begins_by_burning_the_overage_so_far() {
        assert_eq!(burnt(5, &[grant("a", 10, cut(1, 8), None)], 8), [5, 3]);
        let later = [grant("a", 10, cut(1, 20), None), grant("b", 10, cut(2, 20), cut(2, 20))];
        assert_eq!(burnt(5, &later, 20), [5, 10, 5], "the overage goes on to the next");
    }

    #[test]
    fn what_comes_later_changes_nothing_of_the_segments_before() {
        let at = |sequence| OutboxId { epoch: Epoch(1), sequence };
        let whole = grant("a", 10, cut(1, 0), None);
        let grown = Burnable { grows: vec![(at(4), 4.into()), (at(7), 2.into())], ..whole };
        let last = Burnable {
            place: place("last", 60, 100, GrantKind::Paid),
            ..grant("last", 10, cut(2, 0), cut(4, 7))
        };
        let both = [grown.clone(), last.clone()];
        assert_eq!(burnt(0, &both, 7), [0, 4, 3], "four were there when three of the other had burnt");
        assert_eq!(burnt(0, &both, 9), [0, 6, 3]);
        let cut_at = |sequence| cut(sequence, 0).unwrap();
        let as_of = |sequence| grown.clone().as_of(cut_at(sequence));
        assert_eq!([4, 5, 7, 8].map(|place| as_of(place).amount), [4, 8, 8, 10].map(Decimal::from));
        assert_eq!(as_of(0).begins, None);
        let free = |sequence| {
            let base = (BurnPlace::of_included((0, 100)), 0.into());
            free(base, &both.clone().map(|one| one.as_of(cut_at(sequence))), 7.into(), 0.into())
        };
        assert_eq!([4, 5, 8].map(free), [0, 4, 6].map(Decimal::from));
        let beyond = [grown, Burnable { ends: cut(4, 20), ..last }];
        assert_eq!(burnt(0, &beyond, 20), [0, 10, 10], "what was used beyond all burns it as it comes");
    }

    #[test]
    fn cuts_before_one_event_are_in_the_order_of_their_instants() {
        let at = |at_ms| cut(2, 8).map(|cut| Cut { at_ms, ..cut });
        let of = |key: &str, priority, begins| Burnable {
            place: place(key, priority, 100, GrantKind::Promotional),
            ..grant(key, 5, begins, None)
        };
        let both = |first, second| burnt(5, &[of("first", 1, first), of("second", 2, second)], 8);
        assert_eq!(both(at(20), at(20)), [5, 3, 0], "the burn order, where both begin at once");
        assert_eq!(both(at(20), at(10)), [5, 0, 3], "what began earlier has burnt the overage by then");
        let (later, lowered) = (of("later", 1, at(20)), at(15).unwrap());
        assert_eq!(later.clone().as_of(lowered).begins, None);
        assert_eq!(later.clone().as_of(at(20).unwrap()).begins, at(20));
        let ended = Burnable { ends: at(10), ..of("ended", 1, cut(1, 0)) };
        assert_eq!(
            burnt_at_end(Window { start_ms: 0, end_ms: 100 }, 5.into(), &[ended.clone(), later], ended.place),
            Some(5.into())
        );
    }

    #[test]
    fn what_has_ended_before_it_begins_never_counts() {
        let (begins, ends) = (cut(3, 2), cut(2, 1));
        assert_eq!(burnt(20, &[grant("a", 10, begins, ends)], 9), [9, -1], "the clock was set back");
        let at = |at_ms| cut(2, 1).map(|cut| Cut { at_ms, ..cut });
        assert_eq!(
            burnt(20, &[grant("a", 10, at(20), at(10))], 9),
            [9, -1],
            "two clocks, and no event between"
        );
        assert_eq!(burnt(20, &[grant("a", 10, cut(1, 0), ends)], 9), [8, 1]);
    }

    #[test]
    fn once_use_is_taken_back_below_a_cut_the_grant_has_burnt_first_on_either_side_of_it() {
        let grants = [grant("a", 10, cut(1, 0), None)];
        let mut ended = grants.clone();
        ended[0].ends = cut(2, 30);
        assert_eq!(burnt(50, &ended, 25), [15, 10]);
        assert_eq!(burnt(50, &[Burnable { begins: cut(1, 60), ..grants[0].clone() }], 55), [45, 10]);
    }

    #[test]
    fn a_lowered_plan_takes_what_plans_gave_first_and_the_last_of_it_first() {
        let raised = Burnable { is_of_plan: true, ..grant("raise", 30, cut(1, 0), None) };
        let given =
            Burnable { place: place("z", 60, 100, GrantKind::Paid), ..grant("z", 10, cut(1, 0), None) };
        let lowered = |by: i64, at: i64| Burnable {
            place: place("low", 50, 100, GrantKind::Promotional),
            ..grant("low", -by, cut(2, at), None)
        };
        let all = |by, at| [raised.clone(), given.clone(), lowered(by, at)];
        assert_eq!(
            burnt(50, &all(40, 0), 0),
            [40, 0, 0, -40],
            "the raise burns first, so what it includes goes first"
        );
        assert_eq!(burnt(50, &all(40, 45), 45), [50, 30, 5, -40], "then what nobody's plan gave");
        assert_eq!(burnt(50, &all(70, 0), 5), [50, 25, 0, -70], "what was taken burns no more");
        assert_eq!(burnt(50, &all(30, 60), 10), [20, 10, 10, -30], "what was taken stays taken");
    }

    #[test]
    fn free_is_what_is_available_and_nobody_paid_for_and_holds_are_set_against_what_burns_first() {
        let paid = |priority| Burnable {
            place: place("paid", priority, 100, GrantKind::Paid),
            ..grant("paid", 30, cut(1, 0), None)
        };
        let left = |grant: &Burnable, consumed: i64, held: i64| {
            let base = (BurnPlace::of_included((0, 100)), 50.into());
            i64::try_from(free(base, std::slice::from_ref(grant), consumed.into(), held.into())).unwrap()
        };
        let (first, last) = (paid(1), paid(60));
        assert_eq!([left(&first, 0, 0), left(&last, 0, 0)], [50, 50], "what was paid for is not free");
        assert_eq!([left(&first, 20, 0), left(&last, 20, 0)], [50, 30]);
        assert_eq!([left(&first, 20, 15), left(&last, 20, 15)], [45, 15]);
        assert_eq!([left(&first, 20, 70), left(&last, 20, 70)], [0, 0]);
        assert_eq!([left(&first, 90, 0), left(&last, 90, 0)], [0, 0], "never less than nothing");
    }
}
