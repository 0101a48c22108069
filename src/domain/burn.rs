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

/// How much of each grant of a period that has an end cut had burnt there. What comes after its end changes nothing of
/// it, so that one fold answers for all.
pub fn burnt_at_ends(period: Window, included: Decimal, grants: &[Burnable]) -> BTreeMap<BurnPlace, Decimal> {
    let base = (BurnPlace::of_included((period.start_ms, period.end_ms)), included);
    let Burning { burnt, taken, .. } = up_to_last_cut(base, grants);
    let of = |amounts: &BTreeMap<BurnPlace, Decimal>, place: BurnPlace| {
        amounts.get(&place).copied().unwrap_or_default()
    };
    let ended = grants.iter().filter(|grant| grant.ends.is_some());
    ended.map(|grant| (grant.place, of(&burnt, grant.place) + of(&taken, grant.place))).collect()
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
    for (place, left) in fold(included, grants, consumed).left {
        let set = held.min(left);
        held -= set;
        if place.kind != GrantKind::Paid {
            free += left - set;
        }
    }
    free
}

fn fold(included: (BurnPlace, Decimal), grants: &[Burnable], consumed: Decimal) -> Burning {
    let mut burning = up_to_last_cut(included, grants);
    burning.advance(consumed);
    burning
}

fn up_to_last_cut(included: (BurnPlace, Decimal), grants: &[Burnable]) -> Burning {
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
            ChangeKind::Ends => burning.end(of),
            ChangeKind::Takes => burning.take(of, amount),
            ChangeKind::Grows => burning.grow(of, amount),
        }
    }
    burning
}

/// Each change looks only at grants that it changes: a tenant may have very many.
#[derive(Default)]
struct Burning {
    /// The grants that count.
    active: BTreeSet<BurnPlace>,
    /// What is left of those of which something is.
    left: BTreeMap<BurnPlace, Decimal>,
    /// Those that count and of which something has burnt.
    used: BTreeSet<BurnPlace>,
    /// What has burnt of each, also of those that have ended.
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
        self.active.insert(place);
        self.left.insert(place, amount);
        self.used.remove(&place);
        self.burnt.insert(place, Decimal::ZERO);
        self.burn_overage();
    }

    fn end(&mut self, place: BurnPlace) {
        self.active.remove(&place);
        self.left.remove(&place);
        self.used.remove(&place);
    }

    fn grow(&mut self, place: BurnPlace, by: Decimal) {
        if self.active.contains(&place) {
            *self.left.entry(place).or_default() += by;
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
        let (of_plan, others): (Vec<_>, Vec<_>) = self.left.keys().rev().partition(is_of_plan);
        let is_paid = |place: &&BurnPlace| place.kind == GrantKind::Paid;
        let (paid, free): (Vec<_>, Vec<_>) = others.into_iter().partition(is_paid);
        let order: Vec<BurnPlace> = of_plan.into_iter().chain(free).chain(paid).copied().collect();
        for place in order {
            if amount.is_zero() {
                return;
            }
            let left = self.left.entry(place).or_default();
            let part = amount.min(*left);
            *left -= part;
            amount -= part;
            *self.taken.entry(place).or_default() += part;
        }
    }

    fn burn(&mut self, mut amount: Decimal) {
        while !amount.is_zero() {
            let Some(mut first) = self.left.first_entry() else { break };
            let (place, part) = (*first.key(), amount.min(*first.get()));
            *first.get_mut() -= part;
            if first.get().is_zero() {
                first.remove();
            }
            amount -= part;
            if !part.is_zero() {
                *self.burnt.entry(place).or_default() += part;
                self.used.insert(place);
            }
        }
        self.overage += amount;
    }

    /// Gives back against the burn order.
    fn unburn(&mut self, mut amount: Decimal) {
        let of_overage = amount.min(self.overage);
        self.overage -= of_overage;
        amount -= of_overage;
        while !amount.is_zero() {
            let Some(place) = self.used.last().copied() else { return };
            let burnt = self.burnt.entry(place).or_default();
            let part = amount.min(*burnt);
            *burnt -= part;
            if burnt.is_zero() {
                self.used.remove(&place);
            }
            *self.left.entry(place).or_default() += part;
            amount -= part;
        }
    }
}

#[cfg(test)]
mod tests;
