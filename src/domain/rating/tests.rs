use serde_json::{Value, json};

use super::*;
use crate::domain::movements::{close, gate, grants};
use crate::domain::period::Window;
use crate::domain::price::{Price, in_force};

fn price(fields: Value) -> Price {
    let mut price = json!({ "meter": "page", "currency": "EUR", "effective_from": "2026-01-01" });
    fields.as_object().unwrap().iter().for_each(|(name, value)| price[name] = value.clone());
    serde_json::from_value(price).unwrap()
}

fn amount(text: &str) -> Amount {
    Amount::parse(text).unwrap()
}

fn id(text: &str) -> PriceId {
    PriceId::parse(text).unwrap()
}

fn percent(text: &str) -> PercentRate {
    serde_json::from_value(json!(text)).unwrap()
}

fn used(consumed: &str, overage: &str) -> BTreeMap<MeterId, Used> {
    let used = Used { consumed: amount(consumed), overage: amount(overage) };
    [(MeterId::parse("page").unwrap(), used)].into()
}

fn bill_of(prices: &[Price], used: &BTreeMap<MeterId, Used>, terms: &Terms) -> Result<Bill, RatingError> {
    let (currency, start) = (prices[0].currency, "2026-02-01".parse().unwrap());
    bill(&Cart {
        currency,
        prices: in_force(&[], prices, currency, start),
        used,
        terms,
        charges: &Charges::default(),
    })
}

fn line(fields: &Value, consumed: &str) -> UsageLine {
    let prices = [price(fields.clone())];
    let billed = bill_of(&prices, &used(consumed, "0"), &Terms::default()).unwrap();
    match &billed.lines()[0] {
        Line::Usage(line) => line.clone(),
        other => panic!("{other:?}"),
    }
}

/// The golden tables: quantities and what they cost.
fn costs(fields: Value, table: &[(&str, &str)]) {
    for (consumed, expected) in table {
        assert_eq!(line(&fields, consumed).amount.to_string(), *expected, "{consumed} under {fields}");
    }
}

#[test]
fn per_unit() {
    let fields = json!({ "model": "per_unit", "unit": "0.015" });
    // 1 costs a cent and a half, 3 four and a half: a half goes to the even cent.
    costs(
        fields,
        &[("0", "0.00"), ("1", "0.02"), ("3", "0.04"), ("5", "0.08"), ("1000", "15.00"), ("0.5", "0.01")],
    );
}

#[test]
fn per_unit_with_an_included_amount_and_a_minimum() {
    let fields = json!({ "model": "per_unit", "unit": "0.5", "included": "10", "minimum": "2" });
    costs(
        fields.clone(),
        &[("0", "2.00"), ("10", "2.00"), ("11", "2.00"), ("14", "2.00"), ("14.02", "2.01"), ("20", "5.00")],
    );
    let (raised, not) = (line(&fields, "11"), line(&fields, "14"));
    assert_eq!(raised.minimum.unwrap().to_string(), "2.00");
    assert_eq!(not.minimum, None, "what costs the minimum by itself is not raised");
    assert_eq!((raised.charged, raised.included), (amount("1"), amount("10")));
    assert_eq!(line(&fields, "3").charged, Amount::ZERO);
}

#[test]
fn package() {
    let fields = json!({ "model": "package", "unit": "5", "package_size": "100", "included": "50" });
    costs(
        fields.clone(),
        &[
            ("0", "0.00"),
            ("50", "0.00"),
            ("50.000001", "5.00"),
            ("51", "5.00"),
            ("150", "5.00"),
            ("151", "10.00"),
            ("250", "10.00"),
        ],
    );
    assert_eq!(line(&fields, "151").packages, Some(amount("2")));
    let of_fractions = json!({ "model": "package", "unit": "0.0025", "package_size": "0.5" });
    costs(of_fractions, &[("0.5", "0.00"), ("0.6", "0.00"), ("1", "0.00"), ("1.1", "0.01"), ("1.5", "0.01")]);
}

fn tiers() -> Value {
    json!([
        { "up_to": "1000", "unit": "0.02" },
        { "up_to": "5000", "unit": "0.015" },
        { "unit": "0.01" },
    ])
}

#[test]
fn graduated() {
    let fields = json!({ "model": "graduated", "tiers": tiers() });
    costs(
        fields.clone(),
        &[
            ("0", "0.00"),
            ("1", "0.02"),
            ("999", "19.98"),
            ("1000", "20.00"),
            ("1001", "20.02"),
            ("1002", "20.03"),
            ("5000", "80.00"),
            ("5001", "80.01"),
            ("12000", "150.00"),
        ],
    );
    let parts = line(&fields, "5001").tiers;
    let shown: Vec<_> = parts
        .iter()
        .map(|part| {
            let up_to = part.up_to.map_or("-".into(), |up_to| up_to.to_string());
            format!("{} to {up_to} at {} = {}", part.quantity, part.unit, part.amount)
        })
        .collect();
    assert_eq!(shown, ["1000 to 1000 at 0.02 = 20", "4000 to 5000 at 0.015 = 60", "1 to - at 0.01 = 0.01"]);
    assert_eq!(line(&fields, "1000").tiers.len(), 1, "the bound belongs to its tier");
    assert!(line(&fields, "0").tiers.is_empty());
}

#[test]
fn graduated_tiers_count_from_behind_the_included_amount() {
    let fields = json!({ "model": "graduated", "tiers": tiers(), "included": "100" });
    costs(fields, &[("100", "0.00"), ("101", "0.02"), ("1100", "20.00"), ("1102", "20.03")]);
}

#[test]
fn a_line_is_rounded_once_and_not_tier_by_tier() {
    let tiers =
        json!([{ "up_to": "1", "unit": "0.004" }, { "up_to": "2", "unit": "0.004" }, { "unit": "0.004" }]);
    let fields = json!({ "model": "graduated", "tiers": tiers });
    costs(fields, &[("1", "0.00"), ("2", "0.01"), ("3", "0.01"), ("4", "0.02")]);
}

#[test]
fn volume() {
    let fields = json!({ "model": "volume", "tiers": tiers() });
    costs(
        fields.clone(),
        &[
            ("0", "0.00"),
            ("1", "0.02"),
            ("1000", "20.00"),
            ("1001", "15.02"),
            ("5000", "75.00"),
            ("5001", "50.01"),
        ],
    );
    let line = line(&fields, "1001");
    assert_eq!((line.unit.unwrap().to_string(), line.tiers.len()), ("0.015".into(), 1));
}

#[test]
fn flat() {
    let fields = json!({ "model": "flat", "flat": "19.9" });
    costs(fields, &[("0", "19.90"), ("1000000", "19.90")]);
}

#[test]
fn currencies_without_decimals_and_with_three() {
    let yen = json!({ "model": "per_unit", "unit": "0.5", "currency": "JPY" });
    costs(yen, &[("1", "0"), ("2", "1"), ("3", "2"), ("5", "2"), ("7", "4"), ("1001", "500")]);
    let dinar = json!({ "model": "per_unit", "unit": "0.0005", "currency": "KWD" });
    costs(dinar, &[("1", "0.000"), ("2", "0.001"), ("3", "0.002"), ("5", "0.002"), ("1001", "0.500")]);
    let flat = json!({ "model": "flat", "flat": "1.25", "currency": "KWD" });
    costs(flat, &[("0", "1.250")]);
}

#[test]
fn overage_is_charged_apart_from_what_is_consumed() {
    let base = price(json!({ "id": "base", "model": "flat", "flat": "10" }));
    let beyond = price(json!({ "model": "per_unit", "unit": "0.1", "charge_on": "overage" }));
    let billed = bill_of(&[base, beyond], &used("1200", "200"), &Terms::default()).unwrap();
    let amounts: Vec<_> = billed.lines().iter().map(|line| line.amount().to_string()).collect();
    assert_eq!((amounts, billed.total().to_string()), (vec!["20.00".into(), "10.00".into()], "30.00".into()));
}

#[test]
fn overage_is_the_same_before_and_after_it_is_settled() {
    let period = Window { start_ms: 0, end_ms: 1_000 };
    let mut accounts = Accounts::default();
    let granted = grants::grant(period, amount("50"));
    granted
        .iter()
        .chain(&gate::usage(period, amount("80")))
        .for_each(|movement| movement.apply(&mut accounts));
    let used = Used { consumed: amount("80"), overage: amount("30") };
    assert_eq!(Used::of(&accounts).unwrap(), used);
    let available = accounts[Account::Available.index()];
    close::settle_overage(period, available).iter().for_each(|movement| movement.apply(&mut accounts));
    assert_eq!(accounts[Account::Available.index()], Decimal::ZERO);
    assert_eq!(Used::of(&accounts).unwrap(), used);
}

#[test]
fn what_was_not_used_and_has_no_price_has_no_line() {
    let other = BTreeMap::from([(
        MeterId::parse("token").unwrap(),
        Used { consumed: amount("5"), overage: Amount::ZERO },
    )]);
    let billed =
        bill_of(&[price(json!({ "model": "per_unit", "unit": "1" }))], &other, &Terms::default()).unwrap();
    assert_eq!(
        (billed.lines().len(), billed.total().to_string()),
        (1, "0.00".into()),
        "a price alone makes a line"
    );
    let terms = Terms::default();
    let currency = Currency::parse("JPY").unwrap();
    let empty =
        bill(&Cart { currency, prices: vec![], used: &other, terms: &terms, charges: &Charges::default() })
            .unwrap();
    assert_eq!((empty.lines().len(), empty.total().to_string()), (0, "0".into()));
}

fn terms() -> Terms {
    let euro = Currency::parse("EUR").unwrap();
    let discount = |name: &str, reduction| Discount { id: id(name), reduction, from: None, until: None };
    Terms {
        discounts: vec![
            discount("tenth", Reduction::Percent(percent("10"))),
            discount("voucher", Reduction::Fixed { currency: euro, amount: euro.money(500) }),
        ],
        minimum_commitment: Some(euro.money(5_000)),
        taxes: vec![
            Tax { code: id("vat"), percent: percent("19"), from: None, until: None },
            Tax { code: id("city"), percent: percent("0.5"), from: None, until: None },
        ],
    }
}

fn shown(bill: &Bill) -> Vec<String> {
    let name = |key| match key {
        LineKey::Usage { meter, .. } => meter.to_string(),
        LineKey::Discount { id } => id.to_string(),
        LineKey::MinimumCommitment => "commitment".into(),
        LineKey::Grant { meter, .. } => format!("grant of {meter}"),
        LineKey::Adjustment { .. } => "adjustment".into(),
        LineKey::Tax { code } => code.to_string(),
    };
    bill.lines().iter().map(|line| format!("{} {}", name(line.key()), line.amount())).collect()
}

#[test]
fn discounts_a_commitment_and_taxes_follow_the_usage_in_this_order() {
    let prices = [price(json!({ "model": "per_unit", "unit": "0.01" }))];
    let of = |consumed| bill_of(&prices, &used(consumed, "0"), &terms()).unwrap();
    let small = of("1005");
    // A tenth of 10.05 is 1.005, and its half goes to the even cent.
    let expected =
        ["page 10.05", "tenth -1.00", "voucher -5.00", "commitment 45.95", "vat 9.50", "city 0.25"];
    assert_eq!(
        (shown(&small), small.total().to_string()),
        (expected.map(String::from).into(), "59.75".into())
    );
    let large = of("10000");
    let expected = ["page 100.00", "tenth -10.00", "voucher -5.00", "vat 16.15", "city 0.42"];
    assert_eq!(
        (shown(&large), large.total().to_string()),
        (expected.map(String::from).into(), "101.57".into())
    );
    let nothing = of("0");
    let expected = ["page 0.00", "tenth 0.00", "voucher 0.00", "commitment 50.00", "vat 9.50", "city 0.25"];
    assert_eq!(shown(&nothing), expected, "a discount takes no more than there is");
}

#[test]
fn original_and_notes_add_up_to_the_right_bill_line_by_line() {
    let prices = [price(json!({ "model": "graduated", "tiers": tiers() }))];
    let of = |consumed| bill_of(&prices, &used(consumed, "0"), &terms()).unwrap();
    let original = of("6000");
    let first = credit_note(&original, &[], &of("5500")).unwrap();
    let second = credit_note(&original, std::slice::from_ref(&first), &of("700")).unwrap();
    let third = credit_note(&original, &[first.clone(), second.clone()], &of("700")).unwrap();
    assert_eq!(
        (third.lines.len(), third.total.to_string()),
        (0, "0.00".into()),
        "nothing is left to correct"
    );
    let right = of("700");
    for line in original.lines().iter().chain(right.lines()) {
        let of_bill = |bill: &Bill| {
            let found = bill.lines().iter().filter(|other| other.key() == line.key());
            found.map(|line| line.amount().minor_units()).sum::<i64>()
        };
        let of_notes = [&first, &second].into_iter().flat_map(|note| &note.lines);
        let of_notes = of_notes.filter(|other| other.key == line.key()).map(|line| line.amount.minor_units());
        assert_eq!(of_bill(&original) + of_notes.sum::<i64>(), of_bill(&right), "{:?}", line.key());
    }
    let totals = [original.total(), first.total, second.total].map(Money::minor_units);
    assert_eq!(totals.iter().sum::<i64>(), right.total().minor_units());
    // The corrected bill has a line that the original has not: the commitment, which is the note's last but for taxes.
    assert!(second.lines.iter().any(|line| line.key == LineKey::MinimumCommitment && line.billed.is_zero()));
}

#[test]
fn bills_in_two_currencies_do_not_correct_each_other() {
    let of = |code: &str| Bill::of(Currency::parse(code).unwrap(), Vec::new()).unwrap();
    assert!(matches!(credit_note(&of("EUR"), &[], &of("USD")), Err(RatingError::OtherCurrency(..))));
}

#[test]
fn what_is_too_large_is_an_error_that_names_it() {
    let too_large = |fields: Value, consumed: &str| {
        let error = bill_of(&[price(fields)], &used(consumed, "0"), &Terms::default()).unwrap_err();
        assert_eq!(error, RatingError::TooLarge("page".into()), "{consumed}");
    };
    let most = "9000000000000000";
    let dear = "9999999999999999.999999999999";
    too_large(json!({ "model": "per_unit", "unit": dear }), most);
    too_large(json!({ "model": "per_unit", "unit": "11" }), most);
    too_large(json!({ "model": "package", "unit": dear, "package_size": "0.000001" }), most);
    too_large(json!({ "model": "package", "unit": "0", "package_size": "0.000001" }), most);
    too_large(
        json!({ "model": "graduated", "tiers": [{ "up_to": "1", "unit": dear }, { "unit": dear }] }),
        most,
    );
    too_large(json!({ "model": "volume", "tiers": [{ "unit": "11" }] }), most);
    let sum = [
        price(json!({ "model": "flat", "flat": "90000000000000" })),
        price(json!({ "id": "b", "model": "per_unit", "unit": "10.24" })),
    ];
    let error = bill_of(&sum, &used(most, "0"), &Terms::default()).unwrap_err();
    assert_eq!(error, RatingError::TooLarge("the sum".into()));
    let error = bill_of(
        &[price(json!({ "model": "per_unit", "unit": "1" }))],
        &used("0.0000001", "0"),
        &Terms::default(),
    );
    assert!(matches!(error, Err(RatingError::TooPrecise(_))));
}

#[test]
fn a_line_reads_as_it_was_written() {
    let prices = [
        price(json!({ "model": "graduated", "tiers": tiers(), "minimum": "100" })),
        price(json!({ "id": "b", "model": "package", "unit": "5", "package_size": "100" })),
    ];
    for line in bill_of(&prices, &used("1500.5", "0"), &terms()).unwrap().lines() {
        let written = serde_json::to_string(line).unwrap();
        assert_eq!(&serde_json::from_str::<Line>(&written).unwrap(), line, "{written}");
    }
}
