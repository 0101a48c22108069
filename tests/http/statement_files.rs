//! The draft as a file: a workbook, FOCUS.

use std::io::Cursor;

use calamine::{Data, DataType, Reader, Xlsx};
use reqwest::Method;
use serde_json::{Value, json};

use super::statements::{DRAFT, draft, price, priced};
use crate::jobs::statements::{in_march, run, statement};
use crate::support::app::*;
use crate::support::process::not_tried;
use crate::support::services::directory;

/// A service whose tenant used 2000 pages under two prices of them.
async fn with_two_lines() -> TestApp {
    let tiers = json!([{ "up_to": "1000", "unit": "0.02" }, { "unit": "0.015" }]);
    let app = priced(json!([
        price(json!({ "id": "base", "model": "flat", "flat": "19.9" })),
        price(json!({ "id": "pages", "model": "graduated", "included": "500", "tiers": tiers })),
    ]))
    .await;
    app.use_pages("a", 2_000).await.expect(201);
    app
}

fn rows(bytes: &[u8], sheet: &str) -> Vec<Vec<Data>> {
    let mut book: Xlsx<_> = Xlsx::new(Cursor::new(bytes)).unwrap();
    book.worksheet_range(sheet).unwrap().rows().map(<[Data]>::to_vec).collect()
}

/// The fields of a statement's workbook, by name.
pub async fn fields_of_workbook(caller: &Caller, path: &str) -> Vec<[String; 2]> {
    let file = caller.request(Method::GET, &format!("{path}?format=xlsx")).send().await.unwrap();
    let fields = rows(&file.bytes().await.unwrap(), "Statement");
    fields.iter().map(|row| [row[0].to_string(), row[1].to_string()]).collect()
}

#[tokio::test]
async fn a_draft_is_also_a_workbook() {
    let app = with_two_lines().await;
    let statement = draft(&app).await;
    let file = app.request(Method::GET, &format!("{DRAFT}?format=xlsx")).send().await.unwrap();
    let header = |name: &str| file.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet");
    assert_eq!(header("content-disposition"), "attachment; filename=\"acme-draft.xlsx\"");
    let bytes = file.bytes().await.unwrap();
    let fields = rows(&bytes, "Statement");
    let field =
        |name: &str| fields.iter().find(|row| row[0] == Data::String(name.into())).unwrap()[1].clone();
    assert_eq!(field("total"), Data::Float(47.4));
    assert_eq!(field("status"), Data::String("draft".into()));
    assert_eq!(field("period_start"), Data::String("2026-03-01T00:00:00Z".into()));
    assert_eq!(field("as_of_event"), Data::String(statement["as_of_event"].as_str().unwrap().into()));
    let table = app.get(&format!("{DRAFT}?format=csv")).await.expect(200);
    let lines = rows(&bytes, "Lines");
    let titles: Vec<_> = lines[0].iter().map(|title| title.get_string().unwrap()).collect();
    assert_eq!(titles.join(","), table.body.as_str().unwrap().split("\r\n").next().unwrap());
    let column = |name: &str| {
        let at = titles.iter().position(|title| *title == name).unwrap();
        lines[1..].iter().map(|row| row[at].clone()).collect::<Vec<_>>()
    };
    assert_eq!(column("amount"), [Data::Float(19.9), Data::Float(27.5)]);
    assert_eq!(column("quantity"), [Data::Float(2000.0), Data::Float(2000.0)]);
    assert_eq!(column("tiers")[1], Data::String("1000 x 0.02; 500 x 0.015".into()));
    app.finish().await;
}

#[tokio::test]
async fn a_draft_is_also_shaped_as_focus() {
    let app = with_two_lines().await;
    let statement = draft(&app).await;
    let table = app.get(&format!("{DRAFT}?format=focus")).await.expect(200);
    assert!(table.header("content-type").starts_with("text/csv"), "{table:?}");
    assert_eq!(table.header("content-disposition"), "attachment; filename=\"acme-draft-focus.csv\"");
    let lines: Vec<&str> = table.body.as_str().unwrap().split("\r\n").collect();
    let (version, event) = (&statement["policy_version"], statement["as_of_event"].as_str().unwrap());
    let as_of = lines[1].rsplit(',').nth(4).unwrap();
    let (start, end) = ("2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z");
    let expected = [
        "BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart,ChargePeriodEnd,\
         ChargeCategory,ChargeClass,ChargeDescription,ChargeFrequency,BilledCost,EffectiveCost,ContractedCost,\
         ContractedUnitPrice,PricingCategory,PricingQuantity,PricingUnit,ConsumedQuantity,ConsumedUnit,SkuId,SkuMeter,\
         SkuPriceId,x_PriceModel,x_UnitPrice,x_StatementStatus,x_PlanId,x_PolicyVersion,x_AsOf,x_AsOfEvent,\
         x_StatementNumber,x_CorrectsStatement,InvoiceId"
            .to_owned(),
        format!(
            "acme,EUR,{start},{end},{start},{end},Purchase,,Flat price of page (base),Recurring,19.90,19.90,19.90,19.9,\
             Standard,1,period,,,page/base,page,page/base/2026-01-01,flat,19.9,draft,plan,{version},{as_of},{event},,,"
        ),
        format!(
            "acme,EUR,{start},{end},{start},{end},Usage,,Use of page (pages),Usage-Based,27.50,27.50,27.50,,Standard,\
             1500,page,2000,page,page/pages,page,page/pages/2026-01-01,graduated,,draft,plan,{version},{as_of},{event},,,"
        ),
        String::new(),
    ];
    assert_eq!(lines, expected);
    assert_eq!(statement["total"], "47.40");
    app.finish().await;
}

#[tokio::test]
async fn a_draft_is_also_a_page_that_loads_and_runs_nothing() {
    let app = with_two_lines().await;
    draft(&app).await;
    let page = app.get(&format!("{DRAFT}?format=html")).await.expect(200);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none';") && policy.ends_with("sandbox"), "{policy}");
    let text = page.body.as_str().unwrap();
    for words in ["<dd>acme</dd>", "Flat price of page (base)", "charged: 1500, included: 500", ">47.40 EUR<"]
    {
        assert!(text.contains(words), "{words} in {text}");
    }
    for loaded in ["<script", "src=", "href=", "url(", "@import"] {
        assert!(!text.contains(loaded), "{loaded} in {text}");
    }
    print(text);
    app.finish().await;
}

/// Prints a page where a Chromium is installed: what comes out is a PDF of A4 paper.
fn print(page: &str) {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
    let Some(browser) = names.into_iter().find(|name| is_installed(name)) else {
        return not_tried("a statement printed by Chromium");
    };
    let place = directory();
    let [file, pdf, profile] =
        ["statement.html", "statement.pdf", "profile"].map(|name| place.path().join(name));
    std::fs::write(&file, page).unwrap();
    let printed = std::process::Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--print-to-pdf={}", pdf.display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let bytes = std::fs::read(&pdf).unwrap_or_else(|error| panic!("{error}: {printed:?}"));
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.starts_with("%PDF-"), "{printed:?}");
    // A4 is 595 by 842 points.
    assert!(text.contains("/MediaBox [0 0 59"), "not on A4");
}

fn is_installed(program: &str) -> bool {
    std::process::Command::new(program).arg("--version").output().is_ok_and(|said| said.status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_names_the_heads_of_the_books_in_each_file_that_people_keep() {
    let app = in_march(json!([price(json!({ "model": "flat", "flat": "10" }))])).await;
    app.use_pages("a", 7).await.expect(201);
    app.move_clock("2026-05-02T12:00:00Z").await;
    run(&app).await;
    let chains = "SELECT chain, number, encode(hash, 'hex') AS hash FROM batches ORDER BY chain, number";
    let batches = crate::ledger::rows(&app.database, chains).await;
    // The first statement's entries are a batch of the second chain.
    let books = statement(&app, 2).await["books"].clone();
    let words = |head: &Value| {
        [&head["chain"], &head["number"], &head["hash"]].map(|part| part.to_string().replace('"', ""))
    };
    let heads: Vec<_> = books.as_array().unwrap().iter().map(words).collect();
    assert!(
        heads.len() == 2 && heads.iter().all(|head| batches.contains(&head.join(" "))),
        "{books} {batches:?}"
    );
    let path = "/v1/tenants/acme/statements/2?format=";
    let page = app.get(&format!("{path}html")).await.expect(200).body.to_string();
    let table = app.get(&format!("{path}csv")).await.expect(200).body.to_string();
    let file = app.request(Method::GET, &format!("{path}xlsx")).send().await.unwrap().bytes().await.unwrap();
    let fields = rows(&file, "Statement");
    for [chain, number, hash] in heads {
        let named = format!("chain {chain}, batch {number}: {hash}");
        assert!(page.contains(&format!("Books up to {named}.")) && table.contains(&named), "{page} {table}");
        assert!(fields.iter().any(|row| row[1] == Data::String(named.clone())), "{named} in {fields:?}");
    }
    app.finish().await;
}

#[tokio::test]
async fn files_without_prices_have_no_lines() {
    let app = priced(json!([])).await;
    let table = app.get(&format!("{DRAFT}?format=focus")).await.expect(200);
    assert_eq!(table.body.as_str().unwrap().split("\r\n").count(), 2, "a header and its end: {table:?}");
    let file = app.request(Method::GET, &format!("{DRAFT}?format=xlsx")).send().await.unwrap();
    let bytes = file.bytes().await.unwrap();
    assert_eq!(rows(&bytes, "Lines").len(), 1);
    assert_eq!(
        rows(&bytes, "Statement").iter().filter(|row| row[1] == Data::Float(0.0)).count(),
        1,
        "the total"
    );
    app.finish().await;
}

/// The first guard against formulas: no name begins like one.
#[tokio::test]
async fn no_tenant_or_meter_is_named_like_a_formula_or_a_tag() {
    let app = priced(json!([])).await;
    for name in ["=HYPERLINK(1)", "<script>"] {
        let name: String = url_encoded(name);
        for path in ["tenants", "meters"] {
            let answer = app.put(&format!("/v1/admin/{path}/{name}"), json!({})).await;
            assert!((400..500).contains(&answer.status), "{answer:?}");
        }
    }
    app.finish().await;
}

fn url_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
