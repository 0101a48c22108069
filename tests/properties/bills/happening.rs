//! What two tenants on one plan use, by chance: one the right amounts in time, the other others that are corrected.
//!
//! In these cases the two bills may differ. Nothing of them happens here:
//! - A price on overage where unused quota rolls over or overage is preserved: the allowance of the next period stays
//!   as it is (decisions 61 and 72). There everything is corrected before its period is closed, and of holds nothing.
//! - A price on overage where something is held at the end of a month: by what was used then, the close decides which
//!   period pays for the hold. There what that month used itself, and what stands in it, is corrected before its close.
//! - A price on overage and an event that comes late in a month at whose end something is held: it takes of the quota
//!   of that month, and the close decides by what is left which period pays for the hold.
//! - A price on overage and a carried hold of which too little was consumed: what it held beyond that has returned and
//!   lapsed, so what is added is overage beyond the quota where it stands (decision 118).

use jiff::{SignedDuration, Timestamp, ToSpan};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::support::app::Body;

/// In so many months something is used. What happens in the last one is corrected in the two after it.
const USED_MONTHS: usize = 4;
/// In so many months something happens.
const MONTHS: usize = USED_MONTHS + 2;
/// Events of work that was done earlier are refused.
const EVENTS_TAKEN_FOR: SignedDuration = SignedDuration::from_hours(35 * 24);
/// When something happens: minutes after the start of a month, or, below zero, before its end.
const IN_A_MONTH: [i64; 7] = [20, 120, 20 * 60, 108 * 60, 114 * 60, 468 * 60, -30];
/// Of these: within the grace of the month before.
const GRACE: usize = 0;
/// The month before is closed and billed.
const CLOSED: usize = 1;
/// What the month before held is consumed.
const CARRIED: usize = 2;
/// Something is used.
const USED: [usize; 3] = [3, 5, LAST];
/// The last half hour: something is held.
const LAST: usize = 6;
/// The first thing that happens at all.
const FIRST: Moment = Moment(CARRIED);

/// A moment at which something happens, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(usize);

impl Moment {
    /// All, up to the close of the last month.
    pub fn all() -> impl Iterator<Item = Self> {
        (FIRST.0..=MONTHS * IN_A_MONTH.len() + CLOSED).map(Self)
    }

    fn of(month: usize, place: usize) -> Self {
        Self(month * IN_A_MONTH.len() + place)
    }

    /// Whether months are closed and billed then.
    pub fn closes(self) -> bool {
        self.0 % IN_A_MONTH.len() == CLOSED
    }

    /// When it is.
    pub fn at(self) -> Timestamp {
        let first = |month: usize| {
            let month = i8::try_from(month).expect("a month of one year") + 1;
            jiff::civil::date(2026, month, 1).in_tz("UTC").expect("a day").timestamp()
        };
        let (month, minutes) = (self.0 / IN_A_MONTH.len(), IN_A_MONTH[self.0 % IN_A_MONTH.len()]);
        first(if minutes < 0 { month + 1 } else { month }).checked_add(minutes.minutes()).expect("an instant")
    }
}

/// What is corrected of a use.
#[derive(Debug, Clone)]
pub struct Correction {
    /// When it is made.
    pub at: Moment,
    /// How many tenths of a unit are added, or taken back.
    pub tenths: i64,
    /// Whether it comes as an event, and not as an adjustment.
    pub is_event: bool,
}

/// An amount, in tenths of a unit.
#[derive(Debug, Clone)]
pub struct Use {
    /// Of which meter.
    pub meter: &'static str,
    /// When it is used, or held.
    pub at: Moment,
    /// What is held for it until the next month.
    pub held: Option<i64>,
    /// How much that is in truth.
    pub right: i64,
    /// What is said first.
    pub wrong: i64,
    /// What makes it right.
    pub corrections: Vec<Correction>,
}

impl Use {
    /// When it is known to be used.
    pub fn used_at(&self) -> Moment {
        match self.held {
            Some(_) => Moment::of(self.at.0 / IN_A_MONTH.len() + 1, CARRIED),
            None => self.at,
        }
    }
}

/// Two tenants.
#[derive(Debug)]
pub struct Pair {
    /// Their plan.
    pub plan: Value,
    /// What else a tenant has.
    pub taxes: Value,
    /// The currency that they pay in.
    pub currency: &'static str,
    /// What they use.
    pub uses: Vec<Use>,
}

/// What decides how a meter's use may be corrected.
#[derive(Clone, Copy)]
struct Terms {
    /// Whether only what is beyond a quota has a price.
    is_of_overage: bool,
    /// Whether the next period gets, or pays for, something of one.
    goes_on: bool,
    /// In which months something is held at the end.
    holds: [bool; USED_MONTHS],
}

impl Terms {
    /// Whether what a month itself used, and what stands in it, is corrected before its close only.
    fn is_fixed(&self, month: usize) -> bool {
        self.is_of_overage && self.holds_in(month)
    }

    fn holds_in(&self, month: usize) -> bool {
        self.holds.get(month).is_some_and(|holds| *holds)
    }

    /// Until when use of a month is corrected.
    fn last(&self, month: usize) -> Moment {
        match self.is_of_overage && self.goes_on || self.is_fixed(month) {
            true => Moment::of(month + 1, GRACE),
            false => Moment::of(month + 2, LAST),
        }
    }

    /// Whether an event for a month may come at a moment.
    fn takes_event(&self, month: usize, at: Moment) -> bool {
        let (of, place) = (at.0 / IN_A_MONTH.len(), at.0 % IN_A_MONTH.len());
        let booked_in = if place == GRACE { of - 1 } else { of };
        !self.is_of_overage || booked_in <= month || !self.holds_in(booked_in)
    }
}

impl Pair {
    /// The pair of this seed.
    pub fn of(seed: u64) -> Self {
        let random = &mut StdRng::seed_from_u64(seed);
        let (rolls_over, preserves) = (random.random_bool(0.3), random.random_bool(0.3));
        let holds: [bool; USED_MONTHS] = std::array::from_fn(|_| random.random_bool(0.4));
        let terms = Terms { is_of_overage: random.random_bool(0.6), goes_on: rolls_over || preserves, holds };
        let quota =
            json!({ "meter": "page", "included": "50", "mode": "soft", "preserve_overage": preserves });
        let quota = quota.with("max_rollover", if rolls_over { "20" } else { "0" });
        let (currency, decimals) = [("JPY", 0), ("EUR", 2), ("KWD", 3)][random.random_range(0..3)];
        let mut page = price(random, "page", currency, decimals);
        if terms.is_of_overage {
            page["charge_on"] = json!("overage");
        }
        let base =
            json!({ "meter": "page", "id": "base", "model": "flat", "flat": "7", "currency": currency });
        let prices = [page, price(random, "token", currency, decimals), base]
            .map(|price| price.with("effective_from", "2026-01-01"));
        let mut plan = json!({ "quotas": [quota], "prices": prices });
        if random.random_bool(0.5) {
            let fixed = json!({ "id": "fixed", "amount": "9", "currency": currency });
            plan["discounts"] = json!([{ "id": "percent", "percent": "12.5" }, fixed]);
        }
        if random.random_bool(0.3) {
            plan["minimum_commitments"] = json!([{ "amount": "20", "currency": currency }]);
        }
        let taxes = match random.random_bool(0.5) {
            true => json!([{ "code": "vat", "percent": "19" }]),
            false => json!([]),
        };
        let uses = (0..USED_MONTHS).flat_map(|month| uses(random, month, &terms)).collect();
        Self { plan, taxes, currency, uses }
    }
}

fn price(random: &mut StdRng, meter: &str, currency: &str, decimals: u32) -> Value {
    let unit = |random: &mut StdRng| {
        rust_decimal::Decimal::new(random.random_range(1..4_000), decimals + 2).to_string()
    };
    let price = json!({ "meter": meter, "currency": currency });
    let price = match random.random_range(0..3) {
        0 => price.with("model", "per_unit").with("unit", unit(random)),
        1 => price.with("model", "package").with("package_size", "3.5").with("unit", unit(random)),
        _ => {
            let tiers = json!([{ "up_to": "20.5", "unit": unit(random) }, { "unit": unit(random) }]);
            price.with("model", "graduated").with("tiers", tiers)
        }
    };
    let price = if random.random_bool(0.3) { price.with("included", "5") } else { price };
    if random.random_bool(0.3) { price.with("minimum", "3") } else { price }
}

/// What is used of a month.
fn uses(random: &mut StdRng, month: usize, terms: &Terms) -> Vec<Use> {
    // Some months are idle.
    let is_idle = random.random_bool(0.1);
    let mut uses = Vec::new();
    for (place, meter) in USED.into_iter().flat_map(|place| [(place, "page"), (place, "token")]) {
        let mut amount = |often: f64| match !is_idle && random.random_bool(often) {
            true => random.random_range(1..320),
            false => 0,
        };
        let (right, wrong) = (amount(0.7), amount(0.6));
        let mut used =
            Use { meter, at: Moment::of(month, place), held: None, right, wrong, corrections: Vec::new() };
        // Nothing of tokens is included, so all of them are beyond the quota, which no close changes.
        let terms = Terms { is_of_overage: terms.is_of_overage && meter == "page", ..*terms };
        used.corrections = corrections(random, &used, terms.last(month));
        used.corrections.retain(|one| one.tenths != 0);
        for one in &mut used.corrections {
            let is_recent = one.at.at() < used.at.at().checked_add(EVENTS_TAKEN_FOR).expect("an instant");
            one.is_event &= one.tenths > 0 && is_recent && terms.takes_event(month, one.at);
        }
        uses.push(used);
    }
    uses.extend(terms.holds[month].then(|| hold(random, month, terms)));
    uses
}

/// What is held at the end of a month and consumed in the next one.
fn hold(random: &mut StdRng, month: usize, terms: &Terms) -> Use {
    let held = random.random_range(1..250);
    let (right, said) = (random.random_range(0..=held + 60), random.random_range(0..=held + 60));
    let wrong = if terms.is_of_overage { said.max(right.min(held)) } else { said };
    let used = Use {
        meter: "page",
        at: Moment::of(month, LAST),
        held: Some(held),
        right,
        wrong,
        corrections: Vec::new(),
    };
    if terms.is_of_overage && (terms.goes_on || terms.is_fixed(month + 1)) {
        return Use { wrong: right, ..used };
    }
    let mut corrections = corrections(random, &used, Moment::of(month + 2, LAST));
    corrections.retain(|one| one.tenths != 0);
    corrections.iter_mut().for_each(|one| one.is_event = false);
    Use { corrections, ..used }
}

/// Some corrections of a use until a moment, which make it right.
fn corrections(random: &mut StdRng, used: &Use, last: Moment) -> Vec<Correction> {
    let first = used.used_at().0 + 1;
    let in_the_grace = (used.at.0 / IN_A_MONTH.len() + 1) * IN_A_MONTH.len() + GRACE;
    let number = if used.right == used.wrong { 0 } else { random.random_range(1..4) };
    let mut moments: Vec<_> = (0..number)
        .map(|_| match random.random_range(0..4) {
            0 => first,
            1 => in_the_grace.max(first),
            _ => random.random_range(first..=last.0),
        })
        .collect();
    moments.sort_unstable();
    let (mut known, mut corrections) = (used.wrong, Vec::new());
    for (left, at) in (0..moments.len()).rev().zip(moments) {
        let next = if left == 0 { used.right } else { random.random_range(0..320) };
        corrections.push(Correction {
            at: Moment(at),
            tenths: next - known,
            is_event: random.random_bool(0.5),
        });
        known = next;
    }
    corrections
}
