use super::*;
use crate::domain::policy::diff::{Action, changes};
use crate::domain::policy::document::export;

fn price(changes: Value) -> Value {
    let mut price = json!({
        "meter": "page", "model": "per_unit", "unit": "0.02", "currency": "EUR", "effective_from": "2026-01-01",
    });
    changes.as_object().unwrap().iter().for_each(|(field, value)| price[field] = value.clone());
    price
}

/// The small world with these prices of the plan `free`, on which `acme` is.
fn with_prices(prices: Value) -> Value {
    let mut world = demo();
    world["plans"][0]["prices"] = prices;
    world
}

fn wrong(world: Value) -> Vec<(String, String)> {
    let errors = apply(&Definitions::default(), world, &[]).unwrap_err();
    errors.into_iter().map(|error| (error.pointer, error.message)).collect()
}

fn pointers(world: Value) -> Vec<String> {
    wrong(world).into_iter().map(|(pointer, _)| pointer).collect()
}

#[test]
fn a_price_names_every_fault() {
    let faults = |changes: Value| pointers(with_prices(json!([price(changes)])));
    assert_eq!(faults(json!({ "meter": "none" })), ["/plans/0/prices/0/meter"]);
    assert_eq!(
        faults(json!({ "included": "0.5" })),
        ["/plans/0/prices/0/included"],
        "the meter has no decimals"
    );
    let package = json!({ "model": "package", "package_size": "2.5", "included": "9000000000000001" });
    assert_eq!(faults(package), ["/plans/0/prices/0/included", "/plans/0/prices/0/package_size"]);
    let tiers = json!([{ "up_to": "1", "unit": "1" }, { "up_to": "1.5", "unit": "1" }, { "unit": "1" }]);
    let graduated = json!({ "model": "graduated", "unit": null, "tiers": tiers });
    assert_eq!(faults(graduated), ["/plans/0/prices/0/tiers/1/up_to"]);
    let read = |price: Value| read_json::<PolicyFile>(&with_prices(json!([price]))).unwrap_err();
    let error = read(price(json!({ "model": "graduated", "unit": null, "tiers": [] })));
    assert_eq!(error.pointer, "/plans/0/prices/0/tiers");
    let error = read(price(json!({ "flat": "1" })));
    assert_eq!(error.pointer, "/plans/0/prices/0/flat");
    assert!(error.message.contains("`flat`"), "{error}");
    assert_eq!(read(price(json!({ "currency": "XXX" }))).pointer, "/plans/0/prices/0/currency");
}

#[test]
fn discounts_commitments_and_taxes_name_every_fault() {
    let faults = |list: &str, items: Value| {
        let mut world = demo();
        world["tenants"][0][list] = items;
        pointers_if_any(world)
    };
    let dated =
        |from: &str, until: &str| json!({ "code": "vat", "percent": "19", "from": from, "until": until });
    let successors = json!([dated("2026-01-01", "2026-07-01"), dated("2026-07-01", "2027-01-01")]);
    assert_eq!(faults("taxes", successors), [""; 0]);
    let both = json!([dated("2026-01-01", "2026-07-02"), dated("2026-07-01", "2027-01-01")]);
    assert_eq!(faults("taxes", both), ["/tenants/0/taxes/1/code"]);
    assert_eq!(faults("taxes", json!([dated("2026-07-01", "2026-07-01")])), ["/tenants/0/taxes/0/until"]);
    let of = |currency: &str| json!({ "amount": "1", "currency": currency });
    assert_eq!(faults("minimum_commitments", json!([of("EUR"), of("USD")])), [""; 0]);
    assert_eq!(
        faults("minimum_commitments", json!([of("EUR"), of("EUR")])),
        ["/tenants/0/minimum_commitments/1/currency"]
    );
    let discounts: Vec<Value> = (0..101).map(|n| json!({ "id": format!("d{n}"), "percent": "1" })).collect();
    assert_eq!(faults("discounts", json!(discounts)), ["/tenants/0/discounts"]);
    let twice = json!([{ "id": "d", "percent": "1" }, { "id": "d", "amount": "1", "currency": "EUR" }]);
    assert_eq!(faults("discounts", twice), ["/tenants/0/discounts/1/id"]);
}

#[test]
fn a_file_takes_a_discount_away_only_where_it_is_pruned() {
    let mut world = demo();
    world["plans"][0]["discounts"] = json!([{ "id": "early", "percent": "10" }]);
    let current = apply(&Definitions::default(), world.clone(), &[]).unwrap();
    world["plans"][0]["discounts"] = json!([]);
    let errors = apply(&current, world.clone(), &[]).unwrap_err();
    assert_eq!(errors[0].pointer, "/plans/0/discounts");
    assert!(errors[0].message.contains("prune discounts"), "{}", errors[0].message);
    assert!(apply(&current, world, &[Prune::Discounts]).is_ok());
}

#[test]
fn two_versions_of_a_price_take_effect_on_two_days() {
    let later = price(json!({ "effective_from": "2026-02-01" }));
    let base = price(json!({ "id": "base" }));
    let dollars = price(json!({ "currency": "USD" }));
    let mut world = with_prices(json!([price(json!({})), later, base, dollars]));
    world["tenants"][0]["currency"] = json!("EUR");
    assert_eq!(pointers_if_any(world.clone()), Vec::<String>::new());
    world["plans"][0]["prices"].as_array_mut().unwrap().push(price(json!({ "unit": "0.05" })));
    assert_eq!(pointers_if_any(world), ["/plans/0/prices/4/effective_from"]);
}

fn pointers_if_any(world: Value) -> Vec<String> {
    match apply(&Definitions::default(), world, &[]) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.into_iter().map(|error| error.pointer).collect(),
    }
}

#[test]
fn a_tenant_pays_in_one_currency_in_which_everything_has_a_price() {
    let dollars = price(json!({ "currency": "USD" }));
    let token = price(json!({ "meter": "token" }));
    let of = |prices: Value, currency: Value| {
        let mut world = with_prices(prices);
        if !currency.is_null() {
            world["tenants"][0]["currency"] = currency;
        }
        wrong_if_any(world)
    };
    assert_eq!(of(json!([price(json!({}))]), Value::Null), None, "there is one currency alone");
    assert_eq!(of(json!([price(json!({})), dollars]), json!("USD")), None);
    let message = of(json!([price(json!({})), dollars]), Value::Null).unwrap();
    assert_eq!(message, "must be given: its prices are in EUR, USD");
    let message = of(json!([price(json!({})), dollars, token]), json!("USD")).unwrap();
    assert_eq!(message, "`token` has prices, and none in USD: write one, or pay in EUR");
    let mut own = with_prices(json!([price(json!({}))]));
    own["tenants"][0]["currency"] = json!("USD");
    own["tenants"][0]["prices"] = json!([dollars]);
    assert_eq!(wrong_if_any(own), None, "a price of its own is one");
}

/// The message at the currency of the one tenant, where that is all that is wrong.
fn wrong_if_any(world: Value) -> Option<String> {
    let errors = apply(&Definitions::default(), world, &[]).err()?;
    let [error] = errors.as_slice() else { panic!("{errors:?}") };
    assert_eq!(error.pointer, "/tenants/0/currency");
    Some(error.message.clone())
}

#[test]
fn absent_prices_and_an_absent_currency_are_left_and_an_empty_list_empties() {
    let mut world = with_prices(json!([price(json!({}))]));
    world["tenants"][0]["prices"] = json!([price(json!({ "unit": "0.01" }))]);
    world["tenants"][0]["currency"] = json!("EUR");
    let current = defined(world);
    let after = |value: Value| Edit::put(file(value)).after(&current);
    let left = after(json!({ "plans": [{ "id": "free" }], "tenants": [{ "id": "acme" }] }));
    let (plan, tenant) = (left.plans.values().next().unwrap(), left.tenants.values().next().unwrap());
    assert_eq!((plan.prices.len(), tenant.prices.len()), (1, 1));
    assert_eq!(tenant.currency.unwrap().code(), "EUR");
    let emptied = after(
        json!({ "plans": [{ "id": "free", "prices": [] }], "tenants": [{ "id": "acme", "prices": [] }] }),
    );
    let (plan, tenant) = (emptied.plans.values().next().unwrap(), emptied.tenants.values().next().unwrap());
    assert_eq!((plan.prices.len(), tenant.prices.len()), (0, 0));
}

#[test]
fn prices_are_exported_as_they_were_written() {
    let tiers = json!([{ "up_to": "1000", "unit": "0.02" }, { "unit": "0.01" }]);
    let mut world = with_prices(json!([
        price(json!({ "model": "graduated", "unit": null, "tiers": tiers, "minimum": "5" })),
        price(json!({ "id": "base", "model": "flat", "unit": null, "flat": "19.9" })),
    ]));
    world["tenants"][0]["currency"] = json!("EUR");
    world["tenants"][0]["prices"] = json!([price(json!({ "charge_on": "overage", "included": "10" }))]);
    let current = defined(world);
    let text = export(&current).to_toml().unwrap();
    let again = PolicyFile::from_toml(&text).unwrap().merge_into(Definitions::default());
    assert_eq!(again, current, "{text}");
    assert_eq!(changes(&current, &again), []);
}

#[test]
fn a_diff_tells_versions_of_a_price_apart() {
    let later = json!({ "effective_from": "2026-02-01" });
    let current = defined(with_prices(json!([price(json!({})), price(later.clone())])));
    let mut changed = price(later);
    changed["unit"] = json!("0.03");
    let file = json!({ "plans": [{ "id": "free", "prices": [changed, price(json!({ "id": "base" }))] }] });
    let changed = changes(&current, &apply(&current, file, &[Prune::Prices]).unwrap());
    let fields: Vec<_> =
        changed[0].fields.iter().map(|field| (field.action, field.pointer.as_str())).collect();
    assert_eq!(
        fields,
        [
            (Action::Delete, "/prices/page EUR 2026-01-01"),
            (Action::Change, "/prices/page EUR 2026-02-01/unit"),
            (Action::Create, "/prices/page base EUR 2026-01-01"),
        ]
    );
}

#[test]
fn a_file_takes_no_price_out_unless_told_to() {
    let mut world = with_prices(json!([price(json!({}))]));
    world["tenants"][0]["prices"] = json!([price(json!({}))]);
    let current = defined(world);
    let fewer = json!({
        "plans": [{ "id": "free", "prices": [] }],
        "tenants": [{ "id": "acme", "plan": "free", "prices": [] }],
    });
    let errors = apply(&current, fewer.clone(), &[]).unwrap_err();
    let said: Vec<_> = errors.iter().map(|error| (error.pointer.as_str(), error.message.as_str())).collect();
    let message = "would remove `page EUR 2026-01-01`: write it too, or prune prices";
    assert_eq!(said, [("/plans/0/prices", message), ("/tenants/0/prices", message)]);
    assert!(apply(&current, fewer, &[Prune::Prices]).is_ok());
}

#[test]
fn a_definition_without_prices_is_stored_as_versions_without_them_read_it() {
    let current = defined(demo());
    let stored = serde_json::to_value(current.plans.values().next().unwrap()).unwrap();
    assert!(stored.get("prices").is_none(), "{stored}");
    let stored = serde_json::to_value(current.tenants.values().next().unwrap()).unwrap();
    assert!(stored.get("prices").is_none() && stored.get("currency").is_none(), "{stored}");
}
