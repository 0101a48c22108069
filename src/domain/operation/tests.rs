use super::*;
use proptest::prelude::*;
use serde_json::json;

fn operation(value: serde_json::Value) -> Operation {
    crate::domain::field_error::read_json(&value).unwrap()
}

fn attributes(value: serde_json::Value) -> Attributes {
    serde_json::from_value(value).unwrap()
}

fn decimals_of(meter: &MeterId) -> Option<Decimals> {
    match meter.as_str() {
        "page" => Decimals::new(0),
        "credit" => Decimals::new(2),
        _ => None,
    }
}

fn ocr() -> Operation {
    operation(json!({ "id": "ocr.submit", "costs": [
        { "meter": "page", "weights": { "pages": "1" }, "factors": { "handwriting": "2", "tier": { "fast": "1.5" } },
          "min": "1", "max": "10000", "round": "up" }
    ] }))
}

fn units(operation: &Operation, given: serde_json::Value) -> Result<Vec<(String, i64)>, Vec<FieldError>> {
    let lines = operation.cost(&attributes(given), decimals_of, None)?;
    Ok(lines.into_iter().map(|line| (line.meter.to_string(), line.units.get())).collect())
}

fn pages(given: serde_json::Value) -> i64 {
    units(&ocr(), given).unwrap()[0].1
}

fn error(operation: &Operation, given: serde_json::Value) -> (String, String) {
    let errors = units(operation, given).unwrap_err();
    (errors[0].pointer.clone(), errors[0].message.clone())
}

#[test]
fn a_cost_is_the_weighted_sum_times_the_factors_rounded_and_clamped() {
    assert_eq!(pages(json!({ "pages": 3 })), 3);
    assert_eq!(pages(json!({ "pages": 3, "handwriting": true })), 6);
    assert_eq!(pages(json!({ "pages": "3", "handwriting": false })), 3);
    assert_eq!(pages(json!({ "pages": 3, "tier": "fast" })), 5, "4.5 is rounded up");
    assert_eq!(pages(json!({ "pages": "2.5", "handwriting": true, "tier": "fast" })), 8);
    assert_eq!(pages(json!({ "pages": 20_000 })), 10_000);
    assert_eq!(pages(json!({})), 1, "missing attributes count zero; the least is one");
    assert_eq!(pages(json!({ "pages": null, "handwriting": null, "tier": null })), 1);
}

#[test]
fn attributes_are_refused_by_name() {
    let cases = [
        (json!({ "sides": 1 }), "/attributes/sides", "no attribute"),
        (json!({ "pages": true }), "/attributes/pages", "decimal number"),
        (json!({ "pages": "NaN" }), "/attributes/pages", "plain digits"),
        (json!({ "pages": "-1" }), "/attributes/pages", "negative"),
        (json!({ "pages": "99999999999999999999" }), "/attributes/pages", "largest"),
        (json!({ "handwriting": 1 }), "/attributes/handwriting", "true or false"),
        (json!({ "tier": "slow" }), "/attributes/tier", "fast"),
        (json!({ "tier": 1 }), "/attributes/tier", "text"),
    ];
    for (given, pointer, message) in cases {
        let found = error(&ocr(), given.clone());
        assert!(found.0 == pointer && found.1.contains(message), "{given} {found:?}");
    }
    for bad in
        [json!({ "pages": 1.5 }), json!({ "pages": -1 }), json!({ "pages": [1] }), json!({ "pages": {} })]
    {
        assert!(serde_json::from_value::<Attributes>(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn a_zero_line_is_dropped_and_all_zero_is_an_error() {
    let both = operation(json!({ "id": "job", "costs": [
        { "meter": "page", "weights": { "pages": "1" } }, { "meter": "credit", "weights": { "seconds": "0.001" } },
    ] }));
    assert_eq!(units(&both, json!({ "pages": 0, "seconds": 11 })).unwrap(), [("credit".to_owned(), 2)]);
    assert_eq!(error(&both, json!({ "pages": 0 })).0, "/attributes");
    let nowhere = operation(json!({ "id": "job", "costs": [{ "meter": "nowhere", "base": "1" }] }));
    assert_eq!(error(&nowhere, json!({})).0, "/operation");
}

#[test]
fn what_cannot_be_counted_exactly_is_an_error_and_never_rounded() {
    let fine = operation(json!({ "id": "job", "costs": [
        { "meter": "page", "weights": { "n": "0.333333333333" }, "factors": { "a": "0.333333333333", "b": "0.333333333333" } },
    ] }));
    assert_eq!(error(&fine, json!({ "n": 1, "a": true, "b": true })).0, "/attributes");
    let large =
        operation(json!({ "id": "job", "costs": [{ "meter": "page", "weights": { "n": "1000000" } }] }));
    assert_eq!(error(&large, json!({ "n": 9_007_199_254_740_991_u64 })).0, "/attributes");
    let capped = operation(
        json!({ "id": "job", "costs": [{ "meter": "page", "weights": { "n": "1000000" }, "max": "5" }] }),
    );
    assert_eq!(units(&capped, json!({ "n": 9_007_199_254_740_991_u64 })).unwrap()[0].1, 5);
}

#[test]
fn a_wrong_operation_names_every_fault() {
    let pointers = |costs: serde_json::Value| -> Vec<String> {
        let errors = operation(json!({ "id": "job", "costs": costs })).errors(decimals_of);
        errors.into_iter().map(|error| error.pointer).collect()
    };
    assert_eq!(pointers(json!([])), ["/costs"]);
    assert_eq!(pointers(json!([{ "meter": "nowhere", "base": 1 }])), ["/costs/0/meter"]);
    assert_eq!(
        pointers(json!([{ "meter": "page", "base": 1 }, { "meter": "page", "base": 1 }])),
        ["/costs/1/meter"]
    );
    assert_eq!(pointers(json!([{ "meter": "page", "base": 1, "min": "3", "max": "2" }])), ["/costs/0/min"]);
    assert_eq!(pointers(json!([{ "meter": "page", "base": 1, "min": "0.5" }])), ["/costs/0/min"]);
    assert_eq!(pointers(json!([{ "meter": "page" }])), ["/costs/0"]);
    assert_eq!(
        pointers(json!([{ "meter": "page", "base": 1, "factors": { "tier": {} } }])),
        ["/costs/0/factors/tier"]
    );
    assert_eq!(
        pointers(json!([{ "meter": "page", "weights": { "n": 1 }, "factors": { "n": 2 } }])),
        ["/costs"]
    );
    assert_eq!(
        pointers(json!([{ "meter": "page", "weights": { "n": 1 } }, { "meter": "credit", "base": 1 }])),
        [""; 0]
    );
}

fn learned() -> Operation {
    operation(json!({ "id": "chat", "costs": [
        { "meter": "page", "weights": { "tokens": "1" }, "factors": { "fast": "2" }, "min": "4", "max": "50",
          "estimate": "learned" },
        { "meter": "credit", "base": "0.5" }
    ] }))
}

/// Lines of the learned operation where `learned` pages are, and whether each is an estimate.
fn estimated(learned_units: Option<i64>, given: serde_json::Value) -> Vec<(i64, bool)> {
    let estimate = |cost: &Cost, decimals| Estimate {
        units: cost.estimated_units(learned_units.and_then(Units::new), decimals),
        percentile: cost.percentile(),
        source: crate::domain::estimate::EstimateSource::Tenant,
        count: 1,
        accuracy: None,
    };
    let lines = learned().cost(&attributes(given), decimals_of, Some(&estimate)).unwrap();
    lines.into_iter().map(|line| (line.units.get(), line.estimate.is_some())).collect()
}

#[test]
fn what_no_attribute_bounds_is_estimated_within_the_bounds_of_the_cost() {
    let credit = (50, false);
    assert_eq!(estimated(Some(20), json!({})), [(20, true), credit]);
    assert_eq!(estimated(Some(20), json!({ "fast": true, "tokens": null })), [(20, true), credit]);
    assert_eq!(estimated(Some(1), json!({})), [(4, true), credit]);
    assert_eq!(estimated(Some(700), json!({})), [(50, true), credit]);
    assert_eq!(estimated(None, json!({})), [(50, true), credit], "nothing learned holds the most");
    assert_eq!(estimated(Some(20), json!({ "tokens": 7, "fast": true })), [(14, false), credit]);
    assert_eq!(estimated(Some(20), json!({ "tokens": 0 })), [(4, false), credit]);
    let no_least =
        operation(json!({ "id": "a", "costs": [{ "meter": "page", "max": "5", "estimate": "learned" }] }));
    let units = |learned| no_least.costs[0].estimated_units(Units::new(learned), Decimals::default()).get();
    assert_eq!(units(0), 1, "a meter that is not held could not be consumed");
    assert_eq!(no_least.errors(decimals_of), []);
}

#[test]
fn what_was_used_is_never_an_estimate() {
    let (pointer, message) = error(&learned(), json!({ "fast": true }));
    assert_eq!(pointer, "/attributes");
    assert!(message.contains("tokens") && message.contains("`lines`"), "{message}");
    assert_eq!(units(&learned(), json!({ "tokens": 9 })).unwrap()[0].1, 9);
    assert_eq!(error(&learned(), json!({ "fast": 3 })).0, "/attributes/fast");
}

#[test]
fn an_estimate_needs_a_maximum_and_its_percentile_needs_an_estimate() {
    let pointers = |cost: serde_json::Value| -> Vec<String> {
        let errors = operation(json!({ "id": "chat", "costs": [cost] })).errors(decimals_of);
        errors.into_iter().map(|error| error.pointer).collect()
    };
    assert_eq!(pointers(json!({ "meter": "page", "estimate": "learned" })), ["/costs/0/max"]);
    let percentile = json!({ "meter": "page", "base": "1", "max": "5", "estimate_percentile": "0.5" });
    assert_eq!(pointers(percentile), ["/costs/0/estimate_percentile"]);
    for (field, wrong) in [("estimate", json!("guessed")), ("estimate_percentile", json!("1.5"))] {
        let mut cost = json!({ "meter": "page", "max": "5", "estimate": "learned" });
        cost[field] = wrong;
        let read: Result<Operation, _> =
            crate::domain::field_error::read_json(&json!({ "id": "chat", "costs": [cost] }));
        assert_eq!(read.unwrap_err().pointer, format!("/costs/0/{field}"));
    }
}

#[test]
fn an_operation_refuses_what_it_does_not_serve() {
    let read = |text: &str| serde_json::from_str::<Operation>(text).map_err(|e| e.to_string());
    assert!(read(r#"{"id":"a","costs":[],"estimate":"learned"}"#).unwrap_err().contains("estimate"));
    assert!(read(r#"{"id":"a","costs":[{"meter":"page","base":1.5}]}"#).is_err());
    assert!(read(r#"{"id":"a","costs":[{"meter":"page","round":"sideways"}]}"#).is_err());
    let twice = r#"{"id":"a","costs":[{"meter":"page","weights":{"n":1,"n":2}}]}"#;
    assert!(read(twice).unwrap_err().contains("twice"));
    let twice = r#"{"id":"a","costs":[{"meter":"page","factors":{"n":{"a":"1","a":"2"}}}]}"#;
    assert!(read(twice).unwrap_err().contains("twice"));
}

/// A fraction of whole numbers: slow, and too simple to be wrong.
#[derive(Clone, Copy)]
struct Fraction(i128, i128);

impl Fraction {
    fn of(mantissa: i64, scale: u32) -> Self {
        Self(i128::from(mantissa), 10_i128.pow(scale))
    }
    fn plus(self, other: Self) -> Self {
        Self(self.0 * other.1 + other.0 * self.1, self.1 * other.1)
    }
    fn times(self, other: Self) -> Self {
        Self(self.0 * other.0, self.1 * other.1)
    }
    fn rounded(self, rounding: Rounding) -> i128 {
        let (floor, twice_rest) = (self.0 / self.1, self.0 % self.1 * 2);
        match rounding {
            Rounding::Down => floor,
            Rounding::Up => floor + i128::from(twice_rest > 0),
            Rounding::HalfUp => floor + i128::from(twice_rest >= self.1),
            Rounding::HalfEven if twice_rest == self.1 => floor + floor % 2,
            Rounding::HalfEven => floor + i128::from(twice_rest > self.1),
        }
    }
}

fn text(mantissa: i64, scale: u32) -> String {
    Decimal::new(mantissa, scale).to_string()
}

proptest! {
    #[test]
    fn costs_agree_with_fractions(
        base in (0_i64..10_000, 0_u32..3),
        weight in (0_i64..10_000, 0_u32..3),
        value in (0_i64..1_000_000, 0_u32..3),
        factors in proptest::collection::vec((0_i64..1000, 0_u32..3, any::<bool>()), 0..3),
        min in 0_i64..100,
        span in 0_i64..100_000_000,
        rounding in proptest::sample::select(vec![Rounding::Up, Rounding::Down, Rounding::HalfUp, Rounding::HalfEven]),
    ) {
        let names = ["a", "b", "c"];
        let given_factors: serde_json::Map<_, _> =
            factors.iter().zip(names).map(|(f, name)| (name.to_owned(), json!(text(f.0, f.1)))).collect();
        let job = operation(json!({ "id": "job", "costs": [{
            "meter": "credit", "base": text(base.0, base.1), "weights": { "n": text(weight.0, weight.1) },
            "factors": given_factors, "min": text(min, 2), "max": text(min + span, 2), "round": rounding,
        }] }));
        let mut given = json!({ "n": text(value.0, value.1) });
        let mut total = Fraction::of(base.0, base.1)
            .plus(Fraction::of(weight.0, weight.1).times(Fraction::of(value.0, value.1)));
        for (factor, name) in factors.iter().zip(names) {
            given[name] = json!(factor.2);
            if factor.2 {
                total = total.times(Fraction::of(factor.0, factor.1));
            }
        }
        let cents = total.times(Fraction::of(100, 0)).rounded(rounding);
        let expected = cents.clamp(i128::from(min), i128::from(min + span));
        match units(&job, given) {
            Ok(lines) => prop_assert_eq!(i128::from(lines[0].1), expected),
            Err(_) => prop_assert_eq!(expected, 0),
        }
    }

    #[test]
    fn no_attributes_panic(
        values in proptest::collection::btree_map("pages|handwriting|tier|x", prop_oneof![
            any::<bool>().prop_map(AttributeValue::Bool),
            ".{0,30}".prop_map(AttributeValue::Text),
            "[0-9]{1,20}(\\.[0-9]{1,13})?".prop_map(AttributeValue::Text),
            any::<u64>().prop_map(|n| AttributeValue::Number(Amount::from_integer(n))),
            Just(AttributeValue::Absent),
        ], 0..4),
    ) {
        if let Ok(lines) = ocr().cost(&values, decimals_of, None) {
            prop_assert!(lines.iter().all(|line| (1..=10_000).contains(&line.units.get())));
        }
    }

    #[test]
    fn no_document_panics(text in ".{0,200}") {
        let _ = serde_json::from_str::<Operation>(&text);
        let _ = crate::domain::field_error::read_toml::<Operation>(&text);
    }
}
