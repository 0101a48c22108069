use std::collections::BTreeMap;
use std::io::Cursor;

use actix_web::body::MessageBody;
use calamine::{Data, DataType, Reader, Xlsx};
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::*;
use crate::domain::amount::Amount;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::period::{Calendar, Window};
use crate::domain::price::{Price, in_force};
use crate::domain::rating::{Cart, Charges, Discount, Reduction, Terms, Used, bill};
use crate::http::cell::Cell;
use crate::operations::answers::{StatementDetails, StatementLine};

fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn price(changes: Value) -> Price {
    let mut price = json!({ "meter": "page", "currency": "EUR", "effective_from": "2026-01-01" });
    changes.as_object().unwrap().iter().for_each(|(field, value)| price[field] = value.clone());
    parsed(price)
}

/// A draft of March with a line of each model and kind, after so many pages.
pub(super) fn a_draft(pages: &str) -> StatementDetails {
    let prices = [
        price(json!({ "id": "a", "model": "per_unit", "unit": "0.015", "included": "1" })),
        price(json!({ "id": "b", "model": "package", "unit": "5", "package_size": "100" })),
        price(
            json!({ "id": "c", "model": "graduated", "tiers": [{ "up_to": "10", "unit": "0.02" }, { "unit": "0.01" }] }),
        ),
        price(json!({ "id": "d", "model": "flat", "flat": "19.9" })),
        price(json!({ "id": "e", "model": "per_unit", "unit": "0.001", "minimum": "2" })),
    ];
    let (currency, start) = (prices[0].currency, "2026-03-01".parse().unwrap());
    let used = Used { consumed: Amount::parse(pages).unwrap(), ..Used::default() };
    let used: BTreeMap<_, _> = [(MeterId::parse("page").unwrap(), used)].into();
    let early = Reduction::Percent(parsed(json!("10")));
    let terms = Terms {
        discounts: vec![Discount { id: parsed(json!("early")), reduction: early, from: None, until: None }],
        minimum_commitment: Some(currency.money(1_000_000)),
        taxes: vec![parsed(json!({ "code": "vat", "percent": "19" }))],
    };
    let prices = in_force(&[], &prices, currency, start);
    let bill =
        bill(&Cart { currency, prices, used: &used, terms: &terms, charges: &Charges::default() }).unwrap();
    StatementDetails {
        tenant: TenantId::parse("acme").unwrap(),
        plan: None,
        policy_version: Some(7),
        period: Window { start_ms: 1_772_323_200_000, end_ms: 1_775_001_600_000 },
        zone: "UTC".to_owned(),
        calendars: Calendar::default().into(),
        currency: Some(currency),
        lines: bill.lines().iter().cloned().map(StatementLine::Billed).collect(),
        total: Some(bill.total()),
        unpriced: vec![MeterId::parse("token").unwrap()],
        as_of_ms: 1_773_144_000_000,
        as_of_event: Some("1-9".parse().unwrap()),
        other_totals: Vec::new(),
        issued: None,
    }
}

fn total(draft: &StatementDetails) -> Decimal {
    draft.total.unwrap().decimal()
}

/// The cells of one column, from rows with this header.
fn column<'a>(header: &[&str], rows: &'a [Vec<Cell>], name: &str) -> Vec<&'a Cell> {
    let at = header.iter().position(|title| *title == name).unwrap();
    rows.iter().map(|row| &row[at]).collect()
}

fn texts(cells: &[&Cell]) -> Vec<String> {
    let text = |cell: &&Cell| match cell {
        Cell::Empty => String::new(),
        Cell::Text(text) | Cell::Number(text) => text.clone(),
    };
    cells.iter().map(text).collect()
}

fn sheet(bytes: &[u8], name: &str) -> Vec<Vec<Data>> {
    let mut book: Xlsx<_> = Xlsx::new(Cursor::new(bytes)).unwrap();
    book.worksheet_range(name).unwrap().rows().map(<[Data]>::to_vec).collect()
}

fn body(answer: HttpResponse) -> Vec<u8> {
    answer.into_body().try_into_bytes().unwrap().to_vec()
}

/// The number that stands in a cell, as a number or as a text.
fn number(cell: &Data) -> Decimal {
    let text = cell.get_string().map_or_else(|| cell.get_float().unwrap().to_string(), str::to_owned);
    text.parse().unwrap()
}

#[test]
fn the_lines_of_each_table_add_up_to_the_total() {
    // The last bill has more digits than a float holds.
    for pages in ["0", "57", "1234567.25", "999999999999999"] {
        let draft = a_draft(pages);
        let answer = StatementAnswer::from(&draft);
        let focus = focus::rows(&draft);
        let sum = |cells: Vec<&Cell>| {
            texts(&cells).iter().map(|text| text.parse::<Decimal>().unwrap()).sum::<Decimal>()
        };
        for cost in ["BilledCost", "EffectiveCost", "ContractedCost"] {
            assert_eq!(sum(column(&focus::COLUMNS, &focus, cost)), total(&draft), "{cost} after {pages}");
        }
        let rows = lines::rows(&answer);
        assert_eq!(sum(column(&lines::COLUMNS, &rows, "amount")), total(&draft), "{pages}");
        let book = body(xlsx::answer("acme", 0, &workbook::sheets(&answer)).unwrap());
        let rows = sheet(&book, "Lines");
        let at = lines::COLUMNS.iter().position(|title| *title == "amount").unwrap();
        assert_eq!(rows[1..].iter().map(|row| number(&row[at])).sum::<Decimal>(), total(&draft), "{pages}");
        let fields = sheet(&book, "Statement");
        let stated = fields.iter().find(|row| row[0] == Data::String("total".into())).unwrap();
        assert_eq!(number(&stated[1]), total(&draft), "{pages}");
    }
}

#[test]
fn a_charge_of_focus_has_a_unit_price_only_where_its_cost_is_the_product() {
    let rows = focus::rows(&a_draft("57"));
    let found = |name: &str| texts(&column(&focus::COLUMNS, &rows, name));
    let categories = ["Usage", "Usage", "Usage", "Purchase", "Usage", "Credit", "Adjustment", "Tax"];
    assert_eq!(found("ChargeCategory"), categories);
    assert_eq!(found("PricingQuantity"), ["56", "1", "57", "1", "57", "", "", ""]);
    assert_eq!(found("PricingUnit"), ["page", "100 page", "page", "period", "page", "", "", ""]);
    assert_eq!(found("ConsumedQuantity"), ["57", "57", "57", "", "57", "", "", ""]);
    // Tiers have no single price, and the minimum of the last price is no product.
    assert_eq!(found("ContractedUnitPrice"), ["0.015", "5", "", "19.9", "", "", "", ""]);
    assert_eq!(found("x_UnitPrice"), ["0.015", "5", "", "19.9", "0.001", "", "", ""]);
    let of_one = focus::rows(&a_draft("2"));
    let rounded = texts(&column(&focus::COLUMNS, &of_one, "ContractedUnitPrice"));
    assert_eq!(rounded[0], "", "a cent and a half is no cost in cents");
}

#[test]
fn names_are_texts_in_every_table_whatever_they_look_like() {
    let mut draft = StatementAnswer::from(&a_draft("57"));
    let name = "=HYPERLINK(1)";
    draft.tenant = name.to_owned();
    draft.lines[0].meter = Some(name.to_owned());
    let file =
        String::from_utf8(body(csv::answer("x", &lines::COLUMNS, &lines::rows(&draft)).unwrap())).unwrap();
    assert_eq!(file.matches(name).count(), file.matches("'=HYPERLINK(1)").count(), "{file}");
    let book = body(xlsx::answer("x", 0, &workbook::sheets(&draft)).unwrap());
    let rows = sheet(&book, "Lines");
    assert_eq!((&rows[1][0], &rows[1][6]), (&Data::String(name.into()), &Data::String(name.into())));
    for name in [
        "BillingAccountId",
        "ChargeDescription",
        "PricingUnit",
        "ConsumedUnit",
        "SkuId",
        "SkuMeter",
        "SkuPriceId",
    ] {
        let rows = focus::rows(&a_draft("57"));
        let cells = column(&focus::COLUMNS, &rows, name);
        assert!(
            cells.iter().all(|cell| !matches!(cell, Cell::Number(_))),
            "{name} may hold a name: {cells:?}"
        );
    }
}

#[test]
fn a_workbook_names_every_meter_without_a_price_however_many_they_are() {
    let mut draft = StatementAnswer::from(&a_draft("57"));
    draft.unpriced = (0..1_000).map(|number| format!("{number:064}")).collect();
    let book = body(xlsx::answer("x", 0, &workbook::sheets(&draft)).unwrap());
    let rows = sheet(&book, "Statement");
    let named: Vec<_> = rows.iter().filter(|row| row[0] == Data::String("unpriced".into())).collect();
    assert_eq!(named.len(), 1_000);
    assert_eq!(named[999][1], Data::String(draft.unpriced[999].clone()));
    let table = lines::rows(&StatementAnswer::from(&a_draft("57")));
    assert_eq!(texts(&column(&lines::COLUMNS, &table, "unpriced"))[0], "token");
}

#[test]
fn a_page_shows_every_line_and_tier_and_the_total() {
    let draft = a_draft("57");
    let answer = StatementAnswer::from(&draft);
    let page = page::page(&draft, &answer).unwrap();
    assert_eq!(page.matches("<tr class=\"line\">").count(), answer.lines.len());
    let tiers: usize = answer.lines.iter().map(|line| line.tiers.len()).sum();
    assert_eq!(page.matches("<tr class=\"tier\">").count(), tiers);
    assert!(tiers == 2 && page.contains("<td>up to 10</td>") && page.contains("<td>above</td>"), "{page}");
    for line in &answer.lines {
        assert!(page.contains(&format!("<td class=\"figure\">{}</td>", line.amount)), "{line:?} in {page}");
    }
    let total = format!(
        "<tr class=\"total\"><td>Total</td><td></td><td></td>\n      <td class=\"figure\">{} EUR</td>",
        total(&draft)
    );
    assert!(page.contains(&total), "{page}");
    for words in
        ["Use of page (a)", "5 for 100", "raised to the minimum of 2.00", "10 %", "Tax vat", ": token."]
    {
        assert!(page.contains(words), "{words} in {page}");
    }
}

#[test]
fn no_name_becomes_markup_on_a_page() {
    let draft = a_draft("57");
    let mut answer = StatementAnswer::from(&draft);
    let name = "<script>alert(1)</script>&\"'";
    answer.tenant = name.to_owned();
    answer.plan = Some(name.to_owned());
    answer.unpriced = vec![name.to_owned(), name.to_owned()];
    answer.period.time_zone = name.to_owned();
    let page = page::page(&draft, &answer).unwrap();
    assert!(!page.contains("<script") && !page.contains("alert(1)</"), "{page}");
    assert_eq!(page.matches("&#60;script&#62;").count(), 6, "{page}");
}
