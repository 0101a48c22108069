//! The same a second way, unit by unit, on random grants, uses and ends.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

const PERIOD: Window = Window { start_ms: 0, end_ms: 100 };

fn whole(units: Decimal) -> i64 {
    i64::try_from(units).unwrap()
}

fn base() -> BurnPlace {
    BurnPlace::of_included((PERIOD.start_ms, PERIOD.end_ms))
}

/// A grant, or what the plan includes.
struct One {
    place: BurnPlace,
    is_of_plan: bool,
    has_begun: bool,
    counts: bool,
    left: i64,
    burnt: i64,
    taken: i64,
}

enum Event {
    Begins(usize, i64),
    Ends(usize),
    Takes(usize, i64),
    Grows(usize, i64),
}

/// All of it, in burn order wherever one is looked for.
struct Plain {
    all: Vec<One>,
    consumed: i64,
    overage: i64,
}

impl Plain {
    /// The first in burn order, or the last, of those that count and of which this holds.
    fn find(&mut self, is_last: bool, holds: impl Fn(&One) -> bool) -> Option<&mut One> {
        let found = self.all.iter_mut().filter(|one| one.counts && holds(one));
        if is_last { found.max_by_key(|one| one.place) } else { found.min_by_key(|one| one.place) }
    }

    fn use_one(&mut self) {
        match self.find(false, |one| one.left > 0) {
            Some(one) => {
                one.left -= 1;
                one.burnt += 1;
            }
            None => self.overage += 1,
        }
    }

    fn give_one_back(&mut self) {
        if self.overage > 0 {
            self.overage -= 1;
        } else if let Some(one) = self.find(true, |one| one.burnt > 0) {
            one.left += 1;
            one.burnt -= 1;
        }
    }

    fn take_one(&mut self) {
        let is_paid = |one: &One| one.place.kind == GrantKind::Paid;
        let is_free = |one: &One| !one.is_of_plan && !is_paid(one);
        let kinds: [&dyn Fn(&One) -> bool; 3] = [&|one: &One| one.is_of_plan, &is_free, &is_paid];
        for is_its in kinds {
            if let Some(one) = self.find(true, |one| one.left > 0 && is_its(one)) {
                one.left -= 1;
                one.taken += 1;
                return;
            }
        }
    }

    fn go_to(&mut self, consumed: i64) {
        (self.consumed..consumed).for_each(|_| self.use_one());
        (consumed..self.consumed).for_each(|_| self.give_one_back());
        self.consumed = consumed;
    }

    /// More is there: what was used beyond all is used once more.
    fn add(&mut self, number: usize, units: i64) {
        self.all[number].left += units;
        let overage = std::mem::take(&mut self.overage);
        (0..overage).for_each(|_| self.use_one());
    }

    fn happens(&mut self, event: &Event) {
        match *event {
            Event::Begins(number, units) => {
                self.all[number].has_begun = true;
                self.all[number].counts = true;
                self.add(number, units);
            }
            Event::Ends(number) => self.all[number].counts = false,
            Event::Takes(number, units) => {
                self.all[number].has_begun = true;
                self.all[number].taken = -units;
                (0..units).for_each(|_| self.take_one());
            }
            Event::Grows(number, units) if self.all[number].counts => self.add(number, units),
            Event::Grows(..) => {}
        }
    }

    fn burnt(&self) -> BTreeMap<BurnPlace, Decimal> {
        let begun = self.all.iter().filter(|one| one.has_begun);
        begun.map(|one| (one.place, (one.burnt + one.taken).into())).collect()
    }

    fn free(&mut self, mut held: i64) -> i64 {
        self.all.sort_by_key(|one| one.place);
        let mut free = 0;
        for one in self.all.iter().filter(|one| one.counts) {
            let set = held.min(one.left);
            held -= set;
            if one.place.kind != GrantKind::Paid {
                free += one.left - set;
            }
        }
        free
    }
}

fn plainly(included: i64, grants: &[Burnable], consumed: i64) -> Plain {
    let one = |place: BurnPlace, is_of_plan: bool| One {
        place,
        is_of_plan,
        has_begun: false,
        counts: false,
        left: 0,
        burnt: 0,
        taken: 0,
    };
    let mut all = vec![one(base(), true)];
    all.extend(grants.iter().map(|grant| one(grant.place, grant.is_of_plan)));
    let mut plain = Plain { all, consumed: 0, overage: 0 };
    plain.happens(&Event::Begins(0, included));
    let mut events = Vec::new();
    for (number, grant) in (1..).zip(grants) {
        let at = |cut: &Cut| (cut.place, cut.at_ms);
        let ends_before = |begin: &Cut| grant.ends.is_some_and(|end| at(&end) < at(begin));
        let grown: Decimal = grant.grows.iter().map(|(_, by)| by).sum();
        let units = whole(grant.amount - grown);
        if let Some(begin) = grant.begins.filter(|begin| !ends_before(begin)) {
            let (kind, event) = match units {
                0.. => (0, Event::Begins(number, units)),
                _ => (2, Event::Takes(number, -units)),
            };
            events.push(((at(&begin), kind, grant.place), Some(begin.consumed), event));
        }
        if let Some(end) = grant.ends {
            events.push(((at(&end), 1, grant.place), Some(end.consumed), Event::Ends(number)));
        }
        for (after, by) in &grant.grows {
            let grows = Event::Grows(number, whole(*by));
            events.push((((*after, i64::MAX), 3, grant.place), None, grows));
        }
    }
    events.sort_by_key(|(at, ..)| *at);
    for (_, consumed, event) in events {
        if let Some(consumed) = consumed {
            plain.go_to(whole(consumed));
        }
        plain.happens(&event);
    }
    plain.go_to(consumed);
    plain
}

fn a_cut() -> impl Strategy<Value = Cut> {
    let cut = |(sequence, at_ms, consumed): (u64, i64, i64)| Cut {
        place: OutboxId { epoch: Epoch(1), sequence },
        at_ms,
        consumed: consumed.into(),
    };
    (0_u64..6, 0_i64..3, 0_i64..60).prop_map(cut)
}

/// What of a grant is random: one that takes has neither grown nor an end.
fn a_grant() -> impl Strategy<Value = Burnable> {
    let at = (48_u8..52, 98_i64..103, any::<bool>(), 0_i64..3);
    let grows = vec((0_u64..6, 1_i64..8), 0..3);
    let amount = prop_oneof![4 => 0_i64..25, 1 => -20_i64..0];
    let cuts = (option::weighted(0.9, a_cut()), option::weighted(0.5, a_cut()));
    (at, amount, grows, any::<bool>(), cuts).prop_map(|(at, amount, grows, is_of_plan, (begins, ends))| {
        let (priority, expires_at_ms, is_paid, created_at_ms) = at;
        let kind = if is_paid { GrantKind::Paid } else { GrantKind::Promotional };
        let place = BurnPlace { created_at_ms, ..place("one", priority, expires_at_ms, kind) };
        let grown = |(sequence, by): (u64, i64)| (OutboxId { epoch: Epoch(1), sequence }, Decimal::from(by));
        let takes = amount < 0;
        let grows: Vec<(OutboxId, Decimal)> =
            if takes { Vec::new() } else { grows.into_iter().map(grown).collect() };
        let amount = Decimal::from(amount) + grows.iter().map(|(_, by)| by).sum::<Decimal>();
        Burnable {
            place,
            amount,
            grows,
            is_of_plan: is_of_plan && !takes,
            begins,
            ends: ends.filter(|_| !takes),
        }
    })
}

fn grants() -> impl Strategy<Value = Vec<Burnable>> {
    let with_id = |(number, grant): (usize, Burnable)| {
        let id = place(&format!("grant-{number}"), 50, 50, GrantKind::Paid).id;
        Burnable { place: BurnPlace { id, ..grant.place }, ..grant }
    };
    vec(a_grant(), 0..10).prop_map(move |grants| grants.into_iter().enumerate().map(with_id).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_burns_and_what_is_free_is_what_burns_unit_by_unit(
        included in 0_i64..20,
        grants in grants(),
        consumed in 0_i64..120,
        held in 0_i64..40,
    ) {
        let mut plain = plainly(included, &grants, consumed);
        let of_plan = (base(), included.into());
        prop_assert_eq!(burn(of_plan, &grants, consumed.into()), plain.burnt());
        let free = free(of_plan, &grants, consumed.into(), held.into());
        prop_assert_eq!(whole(free), plain.free(held));
    }

    #[test]
    fn one_fold_says_of_each_grant_what_had_burnt_at_its_end_by_what_was_known_there(
        included in 0_i64..20,
        grants in grants(),
    ) {
        let at_end = |grant: &Burnable| {
            let end = grant.ends?;
            let by_then: Vec<Burnable> = grants.iter().map(|other| other.clone().as_of(end)).collect();
            let burnt = plainly(included, &by_then, whole(end.consumed)).burnt();
            Some((grant.place, burnt.get(&grant.place).copied().unwrap_or_default()))
        };
        let expected: BTreeMap<BurnPlace, Decimal> = grants.iter().filter_map(at_end).collect();
        prop_assert_eq!(burnt_at_ends(PERIOD, included.into(), &grants), expected);
    }
}
