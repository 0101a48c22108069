//! `/v1/reports/entries`: the entries of all tenants, in pages and as a file of any length.

use serde_json::{Value, json};

use super::with_policy;
use crate::support::app::*;

const ENTRIES: &str = "/v1/reports/entries";

/// More than an export reads at once.
const MANY: usize = 1_100;

/// A service with many entries of `bulk`, and one each of tenants before and behind it.
async fn with_many() -> TestApp {
    let app = with_policy().await;
    let limit = json!({ "id": "much", "meter": "page", "algorithm": "calendar", "window": "day", "capacity": "9999" });
    app.define("plans/free", json!({ "id": "free", "limits": [limit] })).await.expect(201);
    app.define("tenants/bulk", json!({ "id": "bulk", "plan": "free" })).await.expect(201);
    for tenant in ["acme", "other"] {
        app.post_keyed(USAGE, "one", pages(3).of(tenant)).await.expect(201);
    }
    let item = |number: usize| json!({ "call": "usage", "idempotency_key": format!("k{number}"), "body": pages(1).of("bulk") });
    for numbers in [0..MANY / 2, MANY / 2..MANY] {
        let items: Vec<Value> = numbers.map(item).collect();
        let answer = app.post("/v1/batch", json!({ "items": items })).await.expect(200);
        let results = answer.body["results"].as_array().unwrap();
        assert!(results.iter().all(|result| result["status"] == 201), "{}", results[0]);
    }
    app.drained().await;
    app
}

/// The table of an answer, its header first.
fn table(answer: &Answered) -> Vec<Vec<String>> {
    let text = answer.body.as_str().unwrap();
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect()
}

/// The rows of all pages.
async fn listed(app: &TestApp, query: &str) -> Vec<Value> {
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = app.get(&format!("{ENTRIES}?{query}{cursor}")).await.expect(200).body;
        rows.extend(page["data"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next_cursor"].as_str() else { return rows };
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test]
async fn a_file_of_entries_has_every_row_of_all_pages() {
    let app = with_many().await;
    let answer = app.get(&format!("{ENTRIES}?format=csv")).await.expect(200);
    assert_eq!(answer.header("content-disposition"), "attachment; filename=\"entries.csv\"");
    let table = table(&answer);
    let titles = "tenant,operation_id,step,meter,period_start,credit,debit,amount,class,flags,happened_at,booked_at,\
        operation,chain,batch,as_of";
    assert_eq!(table[0].join(","), titles);
    let rows = &table[1..];
    assert_eq!(rows.len(), MANY + 2);
    let pages = listed(&app, "limit=400").await;
    let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
    let expected: Vec<_> = pages.iter().map(|row| [text(row, "tenant"), text(row, "operation_id")]).collect();
    let found: Vec<_> = rows.iter().map(|row| [row[0].clone(), row[1].clone()]).collect();
    assert_eq!(found, expected);
    let tenants: Vec<_> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!((tenants[0], tenants[1], tenants[MANY], tenants[MANY + 1]), ("other", "bulk", "bulk", "acme"));
    assert!(rows.iter().all(|row| row[15] == rows[0][15] && row[15].ends_with('Z')), "of one instant");
    app.finish().await;
}

#[tokio::test]
async fn entries_of_all_tenants_are_filtered() {
    let app = with_many().await;
    assert_eq!(listed(&app, "tenant=other").await.len(), 1);
    assert_eq!(listed(&app, "meter=page&limit=1000").await.len(), MANY + 2);
    assert_eq!(listed(&app, "to=2000-01-01T00:00:00Z").await.len(), 0);
    assert_eq!(listed(&app, "tenant=other&class=usage").await.len(), 1);
    assert_eq!(listed(&app, "class=grant").await.len(), 0);
    let id = listed(&app, "tenant=other").await[0]["operation_id"].as_str().unwrap().to_owned();
    let held = app.get(&format!("{ENTRIES}?reservation={id}")).await;
    held.is_problem(400, "invalid_request");
    assert_eq!(held.pointers(), ["/reservation"], "it needs its tenant");
    assert_eq!(listed(&app, &format!("tenant=other&reservation={id}")).await.len(), 1);
    assert_eq!(listed(&app, &format!("tenant=acme&reservation={id}")).await.len(), 0);
    let nothing = app.get(&format!("{ENTRIES}?format=csv&from=2999-01-01T00:00:00Z")).await.expect(200);
    assert_eq!(table(&nothing).len(), 1, "a file without rows has its header");
    for (query, named) in [
        ("format=pdf", "/format"),
        ("format=csv&limit=1", "/limit"),
        ("meter=no meter", "/meter"),
        ("class=all", "/class"),
    ] {
        let answer = app.get(&format!("{ENTRIES}?{query}")).await;
        answer.is_problem(400, "invalid_request");
        assert_eq!(answer.pointers(), [named]);
    }
    app.get(&format!("{ENTRIES}?reservation=1")).await.is_problem(400, "invalid_request");
    for format in ["json", "csv"] {
        app.get(&format!("{ENTRIES}?tenant=unknown&format={format}")).await.is_problem(404, "not_found");
    }
    app.finish().await;
}

#[tokio::test]
async fn a_bound_finance_key_exports_its_own_tenant() {
    let app = with_many().await;
    let bound = app.make_key("finance", Some("other")).await;
    let answer = bound.get(&format!("{ENTRIES}?format=csv")).await.expect(200);
    let rows = table(&answer);
    assert_eq!((rows.len(), rows[1][0].as_str()), (2, "other"));
    bound.get(&format!("{ENTRIES}?tenant=bulk&format=csv")).await.is_problem(403, "forbidden");
    let service = app.make_key("service", None).await;
    service.get(ENTRIES).await.is_problem(403, "forbidden");
    let own = bound.get("/v1/tenants/other/entries?format=csv").await.expect(200);
    assert_eq!(table(&own)[1][1], rows[1][1], "the same entry");
    app.finish().await;
}
