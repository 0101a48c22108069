use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::domain::adjustment::AdjustmentId;
use crate::domain::grant::GrantId;
use crate::domain::ids::TenantId;
use crate::domain::movements::Account;
use crate::domain::rating::{Charges, Line, MoneyAdjustment, NoteLine, SoldGrant};

fn amount(text: &str) -> Amount {
    Amount::parse(text).unwrap()
}

fn used(consumed: &str, overage: &str) -> BTreeMap<MeterId, Used> {
    let used = Used { consumed: amount(consumed), overage: amount(overage) };
    BTreeMap::from([(MeterId::parse("page").unwrap(), used)])
}

fn prices() -> Vec<Price> {
    let tiers = json!([{ "up_to": "100", "unit": "0.02" }, { "unit": "0.01" }]);
    let price = json!({
        "meter": "page", "currency": "EUR", "effective_from": "2026-01-01", "model": "graduated", "tiers": tiers
    });
    vec![serde_json::from_value(price).unwrap()]
}

fn tenant() -> TenantDefinition {
    let fields = json!({ "id": "acme", "prices": prices() });
    serde_json::from_value(fields).unwrap()
}

fn priced_by(own: &[Price], currency: Option<&str>) -> Result<Option<Priced>, StatementError> {
    let currency = currency.map(|code| Currency::parse(code).unwrap());
    let start = "2026-03-01".parse().unwrap();
    let tenant = TenantDefinition { prices: own.to_vec(), ..tenant() };
    let by = PricedBy { tenant: &tenant, plan: None, currency, start };
    Ok(price_period(by, &used("150", "0"), &BTreeMap::new())?.pop())
}

/// The statement of March, number 1.
fn statement(consumed: &str) -> Document {
    let tenant = tenant();
    let by = PricedBy { tenant: &tenant, plan: None, currency: None, start: "2026-03-01".parse().unwrap() };
    let used = used(consumed, "0");
    let priced = price_period(by, &used, &BTreeMap::new()).unwrap().pop().unwrap();
    Document {
        tenant: TenantId::parse("acme").unwrap(),
        number: 1,
        plan: None,
        period_start_ms: 1_772_323_200_000,
        period_end_ms: 1_775_001_600_000,
        zone: "UTC".to_owned(),
        start: by.start,
        currency: priced.bill.currency(),
        prices: priced.prices,
        terms: priced.terms,
        charges: priced.charges,
        used,
        unpriced: priced.unpriced,
        total: priced.bill.total(),
        content: Content::Statement { lines: priced.bill.lines().to_vec() },
        issued_at_ms: 1_775_005_200_000,
        books: Vec::new(),
    }
}

/// The note, with this number, that corrects a statement and its earlier notes to what was used.
fn note(number: u64, statement: &Document, earlier: &[Document], consumed: &str) -> Option<Document> {
    let used = used(consumed, "0");
    let note = statement.corrected(earlier, statement, &used, &statement.charges).unwrap()?;
    let content = Content::CreditNote { corrects: statement.number, lines: note.lines };
    Some(Document { number, used, total: note.total, content, ..statement.clone() })
}

fn totals(documents: &[&Document]) -> String {
    documents.iter().map(|document| document.total.decimal()).sum::<rust_decimal::Decimal>().to_string()
}

#[test]
fn a_statement_and_its_notes_add_up_to_the_bill_of_what_was_used_in_all() {
    let first = statement("90");
    assert_eq!(first.total.to_string(), "1.80");
    let second = note(2, &first, &[], "120").unwrap();
    assert_eq!((second.total.to_string(), second.corrects()), ("0.40".to_owned(), Some(1)));
    let third = note(3, &first, std::slice::from_ref(&second), "110").unwrap();
    assert_eq!(third.total.to_string(), "-0.10", "too much was billed");
    assert_eq!(totals(&[&first, &second, &third]), totals(&[&statement("110")]));
    assert_eq!(note(4, &first, &[second, third], "110"), None, "nothing is left to correct");
}

#[test]
fn a_document_is_worked_out_again_from_what_it_says() {
    let first = statement("90");
    let second = note(2, &first, &[], "120").unwrap();
    assert!(first.recomputes(None, &[]).unwrap());
    assert!(second.recomputes(Some(&first), &[]).unwrap());
    assert!(!second.recomputes(None, &[]).unwrap(), "its statement is gone");
    let text = serde_json::to_string(&second).unwrap();
    assert_eq!(serde_json::from_str::<Document>(&text).unwrap(), second);
    let cheaper = text.replace("\"120\"", "\"119\"");
    let changed: Document = serde_json::from_str(&cheaper).unwrap();
    assert!(!changed.recomputes(Some(&first), &[]).unwrap());
    let mut dearer = first.clone();
    dearer.total = first.currency.money(181);
    assert!(!dearer.recomputes(None, &[]).unwrap());
}

/// What a tenant and its plan say after the usage, as `kind name amount`.
fn lines(tenant: serde_json::Value, plan: serde_json::Value, consumed: &str) -> Vec<String> {
    let tenant: TenantDefinition = serde_json::from_value(tenant).unwrap();
    let plan: PlanDefinition = serde_json::from_value(plan).unwrap();
    let start = "2026-03-01".parse().unwrap();
    let by = PricedBy { tenant: &tenant, plan: Some(&plan), currency: None, start };
    let priced = price_period(by, &used(consumed, "0"), &BTreeMap::new()).unwrap().pop().unwrap();
    let line = |line: &Line| match line {
        Line::Usage(line) => format!("usage {}", line.amount),
        Line::Discount { id, amount, .. } => format!("{id} {amount}"),
        Line::MinimumCommitment { amount, .. } => format!("commitment {amount}"),
        Line::Grant { quantity, amount, .. } => format!("grant of {quantity} {amount}"),
        Line::Adjustment { reason, amount, .. } => format!("{reason} {amount}"),
        Line::Tax { code, amount, .. } => format!("{code} {amount}"),
    };
    priced.bill.lines().iter().map(line).collect()
}

#[test]
fn a_tenants_terms_and_its_plans_are_on_the_bill_where_they_hold() {
    let plan = json!({
        "id": "plan", "prices": prices(),
        "discounts": [
            { "id": "early", "percent": "10" },
            { "id": "over", "percent": "50", "until": "2026-03-01" },
            { "id": "dollars", "amount": "1", "currency": "USD" },
        ],
        "minimum_commitments": [{ "amount": "5", "currency": "EUR" }, { "amount": "9", "currency": "USD" }],
    });
    let tenant = json!({
        "id": "acme",
        "discounts": [{ "id": "own", "amount": "0.25", "currency": "EUR" }],
        "taxes": [{ "code": "vat", "percent": "20", "until": "2026-03-01" }, { "code": "vat", "percent": "10", "from": "2026-03-01" }],
    });
    let expected = ["usage 2.50", "early -0.25", "own -0.25", "commitment 3.00", "vat 0.50"];
    assert_eq!(lines(tenant.clone(), plan.clone(), "150"), expected);
    let mut with_own = tenant;
    with_own["discounts"] = json!([{ "id": "early", "percent": "100" }]);
    with_own["minimum_commitments"] = json!([{ "amount": "4", "currency": "EUR" }]);
    let expected = ["usage 2.50", "early -2.50", "commitment 4.00", "vat 0.40"];
    assert_eq!(
        lines(with_own, plan, "150"),
        expected,
        "the tenant's own go before its plan's of the same name"
    );
}

#[test]
fn without_prices_in_force_a_discount_and_a_tax_are_no_lines_and_a_commitment_is_one() {
    let mut later = serde_json::to_value(prices()).unwrap();
    later[0]["effective_from"] = json!("2026-04-01");
    let tenant = |commitments: serde_json::Value| {
        json!({
            "id": "acme", "prices": later.clone(), "minimum_commitments": commitments,
            "discounts": [{ "id": "early", "percent": "10" }], "taxes": [{ "code": "vat", "percent": "10" }],
        })
    };
    let plan = json!({ "id": "plan" });
    assert!(lines(tenant(json!([])), plan.clone(), "1").is_empty());
    let committed = tenant(json!([{ "amount": "5", "currency": "EUR" }]));
    assert_eq!(lines(committed, plan, "1"), ["early 0.00", "commitment 5.00", "vat 0.50"]);
}

#[test]
fn a_document_keeps_its_terms_and_an_older_one_has_none() {
    let mut taxed = statement("90");
    let text = serde_json::to_string(&taxed).unwrap();
    assert!(!text.contains("terms"), "documents of earlier versions keep their hash: {text}");
    taxed.terms.taxes = serde_json::from_value(json!([{ "code": "vat", "percent": "10" }])).unwrap();
    assert!(!taxed.recomputes(None, &[]).unwrap(), "the tax has no line");
    let note = note(2, &taxed, &[], "90").unwrap();
    assert_eq!(note.amounts(), [(Account::Tax, taxed.currency.money(18))]);
    let text = serde_json::to_string(&taxed).unwrap();
    assert_eq!(serde_json::from_str::<Document>(&text).unwrap(), taxed);
}

#[test]
fn the_hash_of_a_document_covers_those_before_it() {
    let [first, other] = ["a", "b"].map(|text| Document::hash(text, &[0; 32]));
    assert_ne!(first, other);
    assert_ne!(Document::hash("c", &first), Document::hash("c", &other));
}

#[test]
fn a_note_corrects_a_statement_and_no_note() {
    let first = statement("90");
    let second = note(2, &first, &[], "120").unwrap();
    assert_eq!(
        second.corrected(&[], &second, &used("1", "0"), &Charges::default()),
        Err(StatementError::NoStatement)
    );
}

#[rstest::rstest]
#[case::what_was_unused_is_no_overage("10", "4", "14", "0")]
#[case::what_goes_beyond_it_is("10", "2", "14", "2")]
#[case::all_of_it_where_nothing_was_unused("10", "0", "14", "4")]
fn late_use_is_added_to_the_period_in_which_it_belongs(
    #[case] before: &str,
    #[case] unused: &str,
    #[case] consumed: &str,
    #[case] overage: &str,
) {
    let late = LateUse { consumed: amount("4"), unused: amount(unused), ..LateUse::default() };
    let was = Used { consumed: amount(before), overage: Amount::ZERO };
    assert_eq!(late.added_to(was), Used { consumed: amount(consumed), overage: amount(overage) });
}

#[rstest::rstest]
#[case::less_was_overage_first("10", "4", "-3", "7", "1")]
#[case::and_then_within_the_quota("10", "4", "-6", "4", "0")]
#[case::more_was_unused_first("10", "0", "5", "15", "3")]
#[case::it_makes_up_for_what_came_late("10", "0", "-8", "6", "0")]
fn what_is_adjusted_counts_in_the_period_that_it_corrects(
    #[case] before: &str,
    #[case] overage: &str,
    #[case] adjusted: &str,
    #[case] consumed_then: &str,
    #[case] overage_then: &str,
) {
    let unused = if overage == "0" { amount("2") } else { Amount::ZERO };
    let consumed = if adjusted == "-8" { amount("4") } else { Amount::ZERO };
    let late = LateUse { consumed, adjusted: adjusted.parse().unwrap(), unused, ..LateUse::default() };
    let was = Used { consumed: amount(before), overage: amount(overage) };
    let is = Used { consumed: amount(consumed_then), overage: amount(overage_then) };
    assert_eq!(late.added_to(was), is);
    assert_eq!(
        LateUse { consumed: Amount::ZERO, ..late }.taken_from(was),
        was,
        "its own period has none of it"
    );
}

#[rstest::rstest]
#[case::it_was_no_overage("-5", "-5", "5", "3")]
#[case::but_what_burnt_there_was("-5", "-3", "5", "1")]
#[case::more_of_it_is_none_either("4", "4", "14", "3")]
fn what_the_period_before_had_paid_for_changes_no_overage(
    #[case] adjusted: &str,
    #[case] paid_before: &str,
    #[case] consumed: &str,
    #[case] overage: &str,
) {
    let [adjusted, paid_before] = [adjusted, paid_before].map(|text| text.parse().unwrap());
    let late = LateUse { adjusted, paid_before, ..LateUse::default() };
    let was = Used { consumed: amount("10"), overage: amount("3") };
    assert_eq!(late.added_to(was), Used { consumed: amount(consumed), overage: amount(overage) });
}

#[test]
fn late_use_is_taken_from_the_period_in_which_it_is_booked() {
    let late = LateUse { consumed: amount("4"), ..LateUse::default() };
    let was = Used { consumed: amount("10"), overage: amount("3") };
    assert_eq!(late.taken_from(was), Used { consumed: amount("6"), overage: Amount::ZERO });
}

#[test]
fn without_prices_there_is_no_currency_and_with_several_one_must_be_chosen() {
    assert_eq!(priced_by(&[], None), Ok(None));
    let mut several = prices();
    several.push(Price { currency: Currency::parse("JPY").unwrap(), ..several[0].clone() });
    assert!(matches!(priced_by(&several, None), Err(StatementError::Currencies(_))));
    let chosen = priced_by(&several, Some("EUR")).unwrap().unwrap();
    assert_eq!(chosen.bill.total().to_string(), "2.50");
    assert!(matches!(chosen.bill.lines(), [Line::Usage(_)]));
    let priced = statement("90");
    let changes = priced.corrected(&[], &priced, &used("91", "0"), &Charges::default()).unwrap().unwrap();
    assert!(matches!(changes.lines.as_slice(), [NoteLine { .. }]));
}

fn sold(quantity: &str, minor_units: i64) -> SoldGrant {
    let key = crate::domain::ids::IdempotencyKey::parse("k").unwrap();
    SoldGrant {
        grant: GrantId::of(&TenantId::parse("acme").unwrap(), &key),
        meter: MeterId::parse("page").unwrap(),
        quantity: amount(quantity),
        price: Currency::parse("EUR").unwrap().money(minor_units),
        refunded: None,
    }
}

/// A credit of five, and a grant of three for ten.
fn charges() -> Charges {
    let id = AdjustmentId::of(
        &TenantId::parse("acme").unwrap(),
        &crate::domain::ids::IdempotencyKey::parse("k").unwrap(),
    );
    let amount = Currency::parse("EUR").unwrap().money(-500);
    let reason = "goodwill".to_owned();
    let credit = MoneyAdjustment { id, meter: None, reason, amount, happened_at_ms: None, corrects: None };
    Charges { grants: vec![sold("3", 1_000)], adjustments: vec![credit] }
}

fn charged(tenant: serde_json::Value, charges: &[(&str, Charges)]) -> Vec<Priced> {
    let tenant: TenantDefinition = serde_json::from_value(tenant).unwrap();
    let by = PricedBy { tenant: &tenant, plan: None, currency: None, start: "2026-03-01".parse().unwrap() };
    let charges = charges.iter().map(|(code, charges)| (Currency::parse(code).unwrap(), charges.clone()));
    price_period(by, &used("150", "0"), &charges.collect()).unwrap()
}

#[test]
fn charges_come_before_the_taxes_and_are_neither_discounted_nor_count_towards_a_commitment() {
    let tenant = json!({
        "id": "acme", "prices": prices(), "discounts": [{ "id": "early", "percent": "10" }],
        "minimum_commitments": [{ "amount": "5", "currency": "EUR" }], "taxes": [{ "code": "vat", "percent": "10" }],
    });
    let bills = charged(tenant, &[("EUR", charges())]);
    let amounts: Vec<_> = bills[0].bill.lines().iter().map(|line| line.amount().to_string()).collect();
    assert_eq!(amounts, ["2.50", "-0.25", "2.75", "10.00", "-5.00", "1.00"]);
    assert_eq!((bills.len(), bills[0].bill.total().to_string()), (1, "11.00".to_owned()));
}

#[test]
fn what_is_charged_in_another_currency_is_a_bill_of_its_own_with_the_taxes() {
    let taxes = json!([{ "code": "vat", "percent": "10" }]);
    let euros = charged(json!({ "id": "acme", "taxes": taxes }), &[("EUR", charges())]);
    let totals = |bills: &[Priced]| {
        let total = |priced: &Priced| format!("{} {}", priced.bill.currency(), priced.bill.total());
        bills.iter().map(total).collect::<Vec<_>>()
    };
    assert_eq!(totals(&euros), ["EUR 5.50"], "nothing else has a price");
    let dollars = Charges { grants: Vec::new(), ..charges() };
    let both = charged(json!({ "id": "acme", "prices": prices(), "taxes": taxes }), &[("USD", dollars)]);
    assert_eq!(totals(&both), ["EUR 2.75", "USD -5.50"]);
}

#[test]
fn a_note_gives_back_what_was_not_burnt_of_a_voided_grant_with_its_tax() {
    let tenant = json!({ "id": "acme", "prices": prices(), "taxes": [{ "code": "vat", "percent": "10" }] });
    let charges = Charges { grants: vec![sold("3", 1_000)], adjustments: Vec::new() };
    let Priced { bill, terms, charges, .. } = charged(tenant, &[("EUR", charges)]).remove(0);
    let content = Content::Statement { lines: bill.lines().to_vec() };
    let first = Document { terms, charges, content, total: bill.total(), ..statement("150") };
    assert!(first.recomputes(None, &[]).unwrap());
    assert_eq!(first.grants().len(), 1);
    let refunds = BTreeMap::from([(first.grants()[0], first.currency.money(667))]);
    let charges = first.charges.with_refunds(&refunds);
    let note = first.corrected(&[], &first, &first.used, &charges).unwrap().unwrap();
    let amounts: Vec<_> = note.lines.iter().map(|line| line.amount.to_string()).collect();
    assert_eq!((amounts, note.total.to_string()), (vec!["-6.67".into(), "-0.67".into()], "-7.34".to_owned()));
    let content = Content::CreditNote { corrects: 1, lines: note.lines };
    let second = Document { number: 2, charges, total: note.total, content, ..first.clone() };
    assert!(second.recomputes(Some(&first), &[]).unwrap());
    // Its entries are those of the tax: the sale and what is given back are booked with the grant.
    assert_eq!(second.amounts(), [(Account::Tax, first.currency.money(-67))]);
    let text = serde_json::to_string(&second).unwrap();
    assert_eq!(serde_json::from_str::<Document>(&text).unwrap(), second);
    let later = Document { number: 3, ..note_of(&first, &second) };
    assert!(later.grants().is_empty(), "nothing is given back twice");
}

#[test]
fn a_document_from_before_adjustments_had_dates_reads_back_to_its_own_text_and_recomputes() {
    let Priced { bill, terms, charges, .. } =
        charged(json!({ "id": "acme" }), &[("EUR", charges())]).remove(0);
    let content = Content::Statement { lines: bill.lines().to_vec() };
    let first =
        Document { terms, charges, content, prices: Vec::new(), total: bill.total(), ..statement("0") };
    let text = serde_json::to_string(&first).unwrap();
    assert!(
        text.contains("goodwill") && !text.contains("happened_at") && !text.contains("corrects"),
        "{text}"
    );
    assert!(!text.contains("books"), "nor had they heads of the books: {text}");
    let read: Document = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert!(read.recomputes(None, &[]).unwrap());
}

/// The note to ten more pages, which leaves what was given back before as it is.
fn note_of(first: &Document, before: &Document) -> Document {
    let used = used("100", "0");
    let note = first.corrected(std::slice::from_ref(before), first, &used, &before.charges).unwrap().unwrap();
    let content = Content::CreditNote { corrects: 1, lines: note.lines };
    Document { used, total: note.total, content, ..before.clone() }
}
