//! Random carts: what a bill costs, counted a second way, and what may not change it.
//!
//! Short in every run of the tests; `make carts` tries a million. `TOLLGATE_CARTS_SEED` repeats a run.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rust_decimal::{Decimal, RoundingStrategy};
use tollgate::domain::amount::Amount;
use tollgate::domain::factor::Factor;
use tollgate::domain::ids::{MeterId, PriceId};
use tollgate::domain::money::{Currency, Money, PercentRate};
use tollgate::domain::movements::{Account, Accounts, gate, grants};
use tollgate::domain::period::Window;
use tollgate::domain::price::{Charge, ChargeOn, Price, Tier, Tiers, in_force};
use tollgate::domain::rating::{
    Bill, Cart, Charges, Discount, Line, Reduction, Tax, Terms, Used, bill, credit_note,
};

use crate::support::process::from_environment;

const PERIOD: Window = Window { start_ms: 0, end_ms: 1_000 };

fn amount(units: u32, scale: u32) -> Amount {
    Amount::from_decimal(Decimal::new(units.into(), scale)).unwrap()
}

/// Less than so many units with at most six decimals, as a meter may have, written with up to nine, as in the books.
fn some(random: &mut StdRng, most: i64) -> Amount {
    let decimals = if random.random_bool(0.5) { 0 } else { random.random_range(1..=6) };
    let (units, zeros) = (random.random_range(0..most * 10_i64.pow(decimals)), random.random_range(0..=3));
    Amount::from_decimal(Decimal::new(units * 10_i64.pow(zeros), decimals + zeros)).unwrap()
}

/// Less than a million, with at most twelve decimals.
fn rate(random: &mut StdRng) -> Factor {
    let (whole, decimals) = (random.random_range(0..=6), random.random_range(0..=12));
    let digits = Decimal::new(random.random_range(0..10_i64.pow(whole + decimals)), decimals);
    Factor::parse(&digits.normalize().to_string()).unwrap()
}

fn percent(random: &mut StdRng) -> PercentRate {
    Factor::parse(&Decimal::new(random.random_range(0..=10_000), 2).to_string()).unwrap().try_into().unwrap()
}

fn id(number: usize) -> PriceId {
    PriceId::parse(&format!("p{number}")).unwrap()
}

fn charge(random: &mut StdRng, currency: Currency) -> Charge {
    let tiers = |random: &mut StdRng| {
        let mut bounds: Vec<Amount> = (0..random.random_range(0..4)).map(|_| some(random, 300)).collect();
        bounds.sort_unstable();
        bounds.dedup();
        bounds.retain(|bound| !bound.is_zero());
        let bounded = bounds.into_iter().map(Some);
        let tiers = bounded.chain([None]).map(|up_to| Tier { up_to, unit: rate(random) });
        Tiers::try_from(tiers.collect::<Vec<_>>()).unwrap()
    };
    match random.random_range(0..5) {
        0 => Charge::PerUnit { unit: rate(random) },
        1 => Charge::Package { unit: rate(random), package_size: some(random, 50).max(amount(5, 1)) },
        2 => Charge::Graduated(tiers(random)),
        3 => Charge::Volume(tiers(random)),
        _ => Charge::Flat { flat: currency.money(random.random_range(0..100_000)) },
    }
}

/// What makes up a bill.
struct World {
    currency: Currency,
    prices: Vec<Price>,
    terms: Terms,
}

impl World {
    /// With so many prices, of which the first is one of pages.
    fn random(random: &mut StdRng, prices: std::ops::Range<usize>) -> Self {
        let currency = Currency::parse(["EUR", "JPY", "KWD"][random.random_range(0..3)]).unwrap();
        let prices = (0..random.random_range(prices)).map(|number| {
            let charge = charge(random, currency);
            let is_flat = matches!(charge, Charge::Flat { .. });
            let has_minimum = !is_flat && random.random_bool(0.2);
            Price {
                meter: MeterId::parse(["page", "token"][random.random_range(0..2.min(number + 1))]).unwrap(),
                id: Some(id(number)),
                currency,
                charge_on: if !is_flat && random.random_bool(0.3) {
                    ChargeOn::Overage
                } else {
                    ChargeOn::Consumed
                },
                included: if !is_flat && random.random_bool(0.3) { some(random, 100) } else { Amount::ZERO },
                charge,
                minimum: has_minimum.then(|| currency.money(random.random_range(0..5_000))),
                effective_from: "2026-01-01".parse().unwrap(),
            }
        });
        let prices = prices.collect();
        let discounts = (0..random.random_range(0..3)).map(|number| {
            let fixed = random.random_bool(0.5);
            let reduction = match fixed {
                true => Reduction::Fixed { currency, amount: currency.money(random.random_range(0..20_000)) },
                false => Reduction::Percent(percent(random)),
            };
            Discount { id: id(number), reduction, from: None, until: None }
        });
        let discounts = discounts.collect();
        let minimum_commitment =
            random.random_bool(0.3).then(|| currency.money(random.random_range(0..100_000)));
        let taxes = (0..random.random_range(0..3)).map(|number| Tax {
            code: id(number),
            percent: percent(random),
            from: None,
            until: None,
        });
        let taxes = taxes.collect();
        Self { currency, prices, terms: Terms { discounts, minimum_commitment, taxes } }
    }

    fn bill(&self, used: &BTreeMap<MeterId, Used>) -> Bill {
        let start = "2026-02-01".parse().unwrap();
        let prices = in_force(&[], &self.prices, self.currency, start);
        bill(&Cart {
            currency: self.currency,
            prices,
            used,
            terms: &self.terms,
            charges: &Charges::default(),
        })
        .unwrap()
    }

    /// The amounts of the bill's lines, counted piece by piece by the library's decimals.
    fn expected(&self, used: &BTreeMap<MeterId, Used>) -> Vec<Decimal> {
        let places = self.currency.decimals().into();
        let round =
            |exact: Decimal| exact.round_dp_with_strategy(places, RoundingStrategy::MidpointNearestEven);
        let mut prices: Vec<&Price> = self.prices.iter().collect();
        prices.sort_by_key(|price| price.key());
        let mut amounts: Vec<Decimal> = prices.into_iter().map(|price| round(counted(price, used))).collect();
        let mut owed: Decimal = amounts.iter().sum();
        for discount in &self.terms.discounts {
            let less = match discount.reduction {
                Reduction::Percent(percent) => round(owed * percent.rate().decimal() / Decimal::ONE_HUNDRED),
                Reduction::Fixed { amount, .. } => amount.decimal().min(owed),
            };
            amounts.push(-less);
            owed -= less;
        }
        if let Some(missing) =
            self.terms.minimum_commitment.map(|least| least.decimal() - owed).filter(|d| *d > Decimal::ZERO)
        {
            amounts.push(missing);
            owed += missing;
        }
        let tax = |tax: &Tax| round(owed * tax.percent.rate().decimal() / Decimal::ONE_HUNDRED);
        amounts.extend(self.terms.taxes.iter().map(tax));
        amounts
    }
}

/// One price. Units are cut at each whole one and at the end of each tier, and each piece costs what its tier says.
fn counted(price: &Price, used: &BTreeMap<MeterId, Used>) -> Decimal {
    let used = used.get(&price.meter).copied().unwrap_or_default();
    let used = if price.charge_on == ChargeOn::Overage { used.overage } else { used.consumed };
    let units = (used.decimal() - price.included.decimal()).max(Decimal::ZERO);
    let tier_of = |tiers: &Tiers, end: Decimal| {
        let found = tiers.iter().find(|tier| tier.up_to.is_none_or(|up_to| end <= up_to.decimal()));
        found.unwrap().unit.decimal()
    };
    let pieces = |tiers: &Tiers| {
        let bounds = tiers.iter().filter_map(|tier| tier.up_to).map(Amount::decimal);
        let whole = (1..400).map(Decimal::from);
        let mut ends: Vec<_> = bounds.chain(whole).filter(|end| *end < units).chain([units]).collect();
        ends.sort_unstable();
        let starts = [Decimal::ZERO].into_iter().chain(ends.clone());
        starts.zip(ends).map(|(start, end)| (end - start) * tier_of(tiers, end)).sum()
    };
    let exact = match &price.charge {
        Charge::PerUnit { unit } => pieces(&vec![Tier { up_to: None, unit: *unit }].try_into().unwrap()),
        Charge::Package { unit, package_size } => {
            let (mut packages, mut held) = (Decimal::ZERO, Decimal::ZERO);
            while held < units {
                held += package_size.decimal();
                packages += unit.decimal();
            }
            packages
        }
        Charge::Graduated(tiers) => pieces(tiers),
        Charge::Volume(tiers) if !units.is_zero() => units * tier_of(tiers, units),
        Charge::Volume(_) => Decimal::ZERO,
        Charge::Flat { flat } => flat.decimal(),
    };
    exact.max(price.minimum.map_or(Decimal::ZERO, Money::decimal))
}

fn random_use(random: &mut StdRng) -> BTreeMap<MeterId, Used> {
    let meters =
        ["page", "token", "other"].into_iter().filter(|_| random.random_bool(0.8)).collect::<Vec<_>>();
    let used = meters.into_iter().map(|meter| {
        let (one, other) = (some(random, 400), some(random, 400));
        let used = Used { consumed: one.max(other), overage: one.min(other) };
        (MeterId::parse(meter).unwrap(), used)
    });
    used.collect()
}

fn sum(bill: &Bill) -> Decimal {
    bill.lines().iter().map(|line| line.amount().decimal()).sum()
}

#[test]
fn in_any_cart_lines_add_up_to_the_total_and_are_what_a_second_count_finds() {
    let carts = from_environment("TOLLGATE_CARTS").unwrap_or(20_000);
    let seed = from_environment("TOLLGATE_CARTS_SEED").unwrap_or_else(|| rand::rng().next_u64() >> 1);
    eprintln!("TOLLGATE_CARTS_SEED={seed}, {carts} carts");
    let random = &mut StdRng::seed_from_u64(seed);
    for cart in 0..carts {
        let (world, used, corrected) = (World::random(random, 0..5), random_use(random), random_use(random));
        let billed = world.bill(&used);
        let amounts: Vec<Decimal> = billed.lines().iter().map(|line| line.amount().decimal()).collect();
        assert_eq!(amounts, world.expected(&used), "cart {cart} of seed {seed}");
        assert_eq!(billed.total().decimal(), sum(&billed), "cart {cart} of seed {seed}");
        // Every amount has the currency's decimals: none is finer, none is written shorter.
        let scale = u32::from(world.currency.decimals());
        assert!(amounts.iter().all(|amount| amount.scale() == scale), "cart {cart} of seed {seed}");
        // Bill and notes are the right bill, also after a second correction.
        let (right, again) = (world.bill(&corrected), world.bill(&random_use(random)));
        let first = credit_note(&billed, &[], &right).unwrap();
        let second = credit_note(&billed, std::slice::from_ref(&first), &again).unwrap();
        let noted = first.total.decimal() + second.total.decimal();
        assert_eq!(
            billed.total().decimal() + first.total.decimal(),
            sum(&right),
            "cart {cart} of seed {seed}"
        );
        assert_eq!(billed.total().decimal() + noted, sum(&again), "cart {cart} of seed {seed}");
    }
}

/// The accounts of a meter after these uses, with holds for some of them, in this order.
fn booked(quota: Amount, uses: &[(Amount, bool)]) -> Accounts {
    let mut accounts = Accounts::default();
    grants::grant(PERIOD, quota).iter().for_each(|movement| movement.apply(&mut accounts));
    for (consumed, held) in uses {
        let movements = match held {
            true => [gate::reserve(PERIOD, *consumed), gate::change(PERIOD, *consumed, *consumed)].concat(),
            false => gate::usage(PERIOD, *consumed),
        };
        movements.iter().for_each(|movement| movement.apply(&mut accounts));
    }
    accounts
}

#[test]
fn the_order_and_the_cut_of_events_never_change_a_bill() {
    let seed = rand::rng().next_u64();
    println!("seed {seed}");
    let (random, mut bills_of_use) = (&mut StdRng::seed_from_u64(seed), 0);
    for _ in 0..300 {
        let world = World::random(random, 1..5);
        let quota = some(random, 300);
        let mut uses: Vec<(Amount, bool)> = (0..random.random_range(0..20))
            .map(|_| (some(random, 30), random.random_bool(0.5)))
            .filter(|(consumed, _)| !consumed.is_zero())
            .collect();
        let bill_of = |uses: &[(Amount, bool)]| {
            let used = Used::of(&booked(quota, uses)).unwrap();
            world.bill(&BTreeMap::from([(MeterId::parse("page").unwrap(), used)]))
        };
        let first = bill_of(&uses);
        bills_of_use += usize::from(first.total() != bill_of(&[]).total());
        uses.shuffle(random);
        assert_eq!(bill_of(&uses), first);
        let cut: Vec<_> = uses
            .iter()
            .flat_map(|(consumed, held)| {
                let part = some(random, 30).min(*consumed);
                [(part, *held), (consumed.saturating_sub(part), !*held)]
            })
            .collect();
        assert_eq!(bill_of(&cut), first);
    }
    assert!(bills_of_use > 150, "only {bills_of_use} bills of 300 say what was used");
}

#[test]
fn what_is_only_held_is_neither_consumed_nor_beyond_the_quota() {
    let mut accounts = booked(amount(10, 0), &[(amount(9, 0), true)]);
    gate::reserve(PERIOD, amount(5, 0)).iter().for_each(|movement| movement.apply(&mut accounts));
    assert_eq!(accounts[Account::Available.index()], Decimal::from(-4));
    assert_eq!(Used::of(&accounts).unwrap(), Used { consumed: amount(9, 0), overage: Amount::ZERO });
    gate::change(PERIOD, amount(5, 0), amount(3, 0))
        .iter()
        .for_each(|movement| movement.apply(&mut accounts));
    assert_eq!(Used::of(&accounts).unwrap(), Used { consumed: amount(12, 0), overage: amount(2, 0) });
}

/// A row of the worked examples: a price in TOML, what was used, what it costs.
fn example(row: &str) -> Option<(Price, &str, &str)> {
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let [_, fields, used, cost, ..] = cells.as_slice() else { return None };
    let fields = fields.strip_prefix("`{")?.strip_suffix("}`")?;
    let currency = if fields.contains("currency") { "" } else { "currency = \"EUR\"," };
    let text =
        format!("price = {{ meter = \"page\", effective_from = \"2026-01-01\", {currency} {fields} }}");
    let mut read: BTreeMap<String, Price> = toml::from_str(&text).unwrap();
    Some((read.remove("price")?, used, cost))
}

#[test]
fn the_worked_examples_of_the_document_are_right() {
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/BILLING.md")).unwrap();
    let mut models = std::collections::BTreeSet::new();
    for (price, used, cost) in document.lines().filter_map(example) {
        let used = Used { consumed: Amount::parse(used).unwrap(), overage: Amount::ZERO };
        let (currency, model) = (price.currency, price.model());
        let world = World { currency, prices: vec![price], terms: Terms::default() };
        let billed = world.bill(&BTreeMap::from([(MeterId::parse("page").unwrap(), used)]));
        assert_eq!(format!("{} {currency}", billed.total()), cost, "{used:?} by {model:?}");
        models.insert(model);
    }
    assert_eq!(models.len(), 5, "each model has an example");
}

#[test]
fn a_line_of_a_million_euros_a_unit_is_exact() {
    let currency = Currency::parse("EUR").unwrap();
    let price = Price {
        meter: MeterId::parse("page").unwrap(),
        id: None,
        currency,
        charge_on: ChargeOn::Consumed,
        included: Amount::ZERO,
        charge: Charge::PerUnit { unit: Factor::parse("1000000.000000000001").unwrap() },
        minimum: None,
        effective_from: "2026-01-01".parse().unwrap(),
    };
    let world = World { currency, prices: vec![price], terms: Terms::default() };
    let used = Used { consumed: Amount::parse("5000000000").unwrap(), overage: Amount::ZERO };
    let billed = world.bill(&BTreeMap::from([(MeterId::parse("page").unwrap(), used)]));
    // Five thousandths more are half a cent, which goes to the even cent below.
    assert_eq!(billed.total().to_string(), "5000000000000000.00");
    assert!(matches!(billed.lines(), [Line::Usage(_)]));
}
