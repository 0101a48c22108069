//! Lists as files: usage, entries and reconciliations as CSV and as workbooks.

use std::io::Cursor;

use calamine::{Data, Reader, Xlsx};
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use tollgate::operations::Reads;
use tollgate::operations::requests::{Page, ReconciliationFilter, ReconciliationsRequest};

use super::with_policy;
use crate::ledger::as_owner;
use crate::support::app::*;

/// A subject that a spreadsheet could take for a formula.
const FORMULA: &str = "=HYPERLINK(1)";

const BY_SUBJECT: &str = "/v1/reports/usage?group_by=tenant,subject";

/// A service with booked use by two subjects.
async fn with_usage() -> TestApp {
    let app = with_policy().await;
    for (subject, amount) in [(FORMULA, "2"), ("ada", "3")] {
        let body = pages(amount).with("subjects", json!({ "user": subject }));
        app.post_keyed(USAGE, subject, body).await.expect(201);
    }
    app.drained().await;
    app
}

/// A file's table, its header first.
async fn csv(app: &TestApp, path: &str, file: &str) -> Vec<Vec<String>> {
    let answer = app.get(path).await.expect(200);
    assert!(answer.header("content-type").starts_with("text/csv"), "{answer:?}");
    assert_eq!(answer.header("content-disposition"), format!("attachment; filename=\"{file}.csv\""));
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).from_reader(answer.body.as_str().unwrap().as_bytes());
    reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect()
}

async fn workbook(app: &TestApp, path: &str, file: &str) -> Vec<Vec<Data>> {
    let answer = app.request(Method::GET, path).send().await.unwrap();
    let disposition = answer.headers()["content-disposition"].to_str().unwrap();
    assert_eq!(disposition, format!("attachment; filename=\"{file}.xlsx\""));
    let mut book: Xlsx<_> = Xlsx::new(Cursor::new(answer.bytes().await.unwrap())).unwrap();
    let formulas = book.worksheet_formula("Rows").unwrap();
    assert!(formulas.used_cells().all(|(_, _, formula)| formula.is_empty()), "{formulas:?}");
    book.worksheet_range("Rows").unwrap().rows().map(<[Data]>::to_vec).collect()
}

fn column(table: &[Vec<String>], name: &str) -> Vec<String> {
    let at = table[0].iter().position(|title| title == name).unwrap();
    table[1..].iter().map(|row| row[at].clone()).collect()
}

fn fields(answer: &Value, pointer: &str) -> Vec<String> {
    let rows = answer["data"].as_array().unwrap().iter();
    rows.map(|row| row.pointer(pointer).unwrap().as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_report_of_usage_is_a_file_with_the_rows_of_its_pages() {
    let app = with_usage().await;
    let pages = app.get(BY_SUBJECT).await.expect(200).body;
    let table = csv(&app, &format!("{BY_SUBJECT}&format=csv"), "usage").await;
    let titles =
        "start,tenant,plan,meter,operation,subject_kind,subject,consumed,count,excess,late,corrections,as_of";
    assert_eq!(table[0].join(","), titles);
    assert_eq!(table.len(), 3, "{table:?}");
    for (name, pointer) in [("tenant", "/tenant"), ("meter", "/meter"), ("consumed", "/consumed")] {
        assert_eq!(column(&table, name), fields(&pages, pointer), "{name}");
    }
    let subjects: Vec<_> =
        fields(&pages, "/subject/id").iter().map(|id| id.replace(FORMULA, "'=HYPERLINK(1)")).collect();
    assert!(subjects.contains(&"'=HYPERLINK(1)".to_owned()), "{pages}");
    assert_eq!(
        column(&table, "subject"),
        subjects,
        "a text that looks like a formula begins with an apostrophe"
    );
    assert!(column(&table, "as_of").iter().all(|as_of| as_of.ends_with('Z')), "{table:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_report_is_a_workbook_with_the_same_cells_and_no_formula() {
    let app = with_usage().await;
    let table = csv(&app, &format!("{BY_SUBJECT}&format=csv"), "usage").await;
    let book = workbook(&app, &format!("{BY_SUBJECT}&format=xlsx"), "usage").await;
    assert_eq!(book.len(), table.len());
    for (row, cells) in table.iter().zip(&book) {
        for (name, (text, cell)) in table[0].iter().zip(row.iter().zip(cells)) {
            match cell {
                Data::Empty => assert_eq!(text, "", "{name}"),
                Data::Float(number) => assert_eq!(text, &number.to_string(), "{name}"),
                // The second file was read later.
                Data::String(_) if name == "as_of" => {}
                Data::String(found) => assert_eq!(text.trim_start_matches('\''), found, "{name}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
    assert!(book.iter().flatten().any(|cell| *cell == Data::String(FORMULA.into())), "{book:?}");
    app.finish().await;
}

#[tokio::test]
async fn a_tenants_entries_and_usage_are_files_too() {
    let app = with_usage().await;
    let entries = app.get("/v1/tenants/acme/entries").await.expect(200).body;
    let table = csv(&app, "/v1/tenants/acme/entries?format=csv", "entries").await;
    for name in ["operation_id", "meter", "credit", "debit", "amount", "happened_at", "booked_at"] {
        assert_eq!(column(&table, name), fields(&entries, &format!("/{name}")), "{name}");
    }
    let book = workbook(&app, "/v1/tenants/acme/entries?format=xlsx", "entries").await;
    assert_eq!(book.len(), table.len());
    let usage = csv(&app, "/v1/tenants/acme/usage?format=csv", "usage").await;
    assert_eq!(column(&usage, "consumed"), ["5"]);
    let reconciliation = csv(&app, "/v1/reports/reconciliation?format=csv", "reconciliation").await;
    assert_eq!(reconciliation[0][..2], ["id", "tenant"]);
    app.finish().await;
}

#[tokio::test]
async fn a_bound_finance_key_gets_a_file_of_its_own_tenant() {
    let app = with_usage().await;
    app.post_keyed(USAGE, "other", pages("7").of("other")).await.expect(201);
    app.drained().await;
    let path = "/v1/reports/usage?group_by=tenant&format=csv";
    assert_eq!(csv(&app, path, "usage").await.len(), 3);
    let bound = app.make_key("finance", Some("acme")).await;
    let answer = bound.get(path).await.expect(200);
    let text = answer.body.as_str().unwrap();
    assert!(text.contains(",acme,") && !text.contains("other"), "{text}");
    app.finish().await;
}

#[rstest]
#[case("format=csv&limit=5", "/limit")]
#[case("format=xlsx&cursor=AAAA", "/cursor")]
#[case("format=html", "/format")]
#[case("format=focus", "/format")]
#[case("format=", "/format")]
#[case("format=CSV", "/format")]
#[tokio::test]
async fn a_file_has_no_pages_and_a_list_no_other_formats(#[case] query: &str, #[case] named: &str) {
    let app = with_policy().await;
    for path in ["reports/usage", "reports/reconciliation", "tenants/acme/usage", "tenants/acme/entries"] {
        let answer = app.get(&format!("/v1/{path}?{query}")).await;
        answer.is_problem(400, "invalid_request");
        assert_eq!(answer.pointers(), [named], "{path}");
    }
    app.finish().await;
}

#[rstest]
#[case::balances("/v1/reports/balances", "balances", 1)]
#[case::entries("/v1/reports/entries", "entries", 2)]
#[case::top("/v1/reports/top?meter=page", "top", 1)]
#[case::leaked("/v1/reports/leaked", "leaked", 0)]
#[case::rollover("/v1/reports/rollover", "rollover", 0)]
#[case::revenue("/v1/reports/revenue", "revenue", 0)]
#[case::reconciliation("/v1/reports/reconciliation", "reconciliation", 0)]
#[case::adjustments("/v1/reports/adjustments", "adjustments", 0)]
#[tokio::test]
async fn a_report_as_a_workbook_has_the_columns_and_rows_of_the_same_as_csv(
    #[case] path: &str,
    #[case] file: &str,
    #[case] least: usize,
) {
    let app = with_usage().await;
    let joint = if path.contains('?') { '&' } else { '?' };
    let table = csv(&app, &format!("{path}{joint}format=csv"), file).await;
    let book = workbook(&app, &format!("{path}{joint}format=xlsx"), file).await;
    let titles: Vec<String> = book[0].iter().map(ToString::to_string).collect();
    assert_eq!((titles, book.len()), (table[0].clone(), table.len()));
    assert!(book.len() > least, "{book:?}");
    // The second file was read later: nothing but what is booked stays the same.
    for (row, cells) in table.iter().zip(&book).skip(1).filter(|_| least > 0) {
        let cells: Vec<String> = cells.iter().map(ToString::to_string).collect();
        let before_as_of = row.len() - 1;
        assert_eq!(row[..before_as_of], cells[..before_as_of], "{:?}", table[0]);
    }
    app.finish().await;
}

/// Comparisons without a difference, more than are read at once: so many that the first page of a file has not all.
const COMPARISONS: &str = "INSERT INTO reconciliations (tenant, checkpoint_id, partition, epoch, sequence, taken_at, \
        judged_at, counters, quarantined, gaps, state) \
    SELECT 'acme', gen_random_uuid(), 0, 1, i, now(), now() - i * interval '1 s', 1, 0, 0, 'repaired' \
    FROM generate_series(1, 10050) i";

#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_all_rows_as_of_one_instant_however_many_they_are() {
    let app = with_policy().await;
    as_owner(&app.database, COMPARISONS).await.unwrap();
    const REPAIRED: &str = "/v1/reports/reconciliation?state=repaired";
    let table = csv(&app, &format!("{REPAIRED}&format=csv"), "reconciliation").await;
    assert_eq!(table.len(), 10_051);
    let mut ids = column(&table, "id");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 10_050, "each comparison once");
    let mut instants = column(&table, "as_of");
    instants.dedup();
    assert_eq!(instants.len(), 1);
    let book = workbook(&app, &format!("{REPAIRED}&format=xlsx"), "reconciliation").await;
    assert_eq!(book.len(), table.len());
    let judged = column(&table, "judged_at");
    let (from, to) = (&judged[9], &judged[4]);
    let of_a_span = csv(&app, &format!("{REPAIRED}&format=csv&from={from}&to={to}"), "reconciliation").await;
    assert_eq!(column(&of_a_span, "judged_at"), judged[5..10], "from {from}, before {to}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_while_a_file_is_read_is_not_in_it_and_a_lost_connection_ends_it() {
    let app = with_policy().await;
    as_owner(&app.database, COMPARISONS).await.unwrap();
    let asked = ReconciliationsRequest {
        filter: ReconciliationFilter::default(),
        page: Page { limit: 10_000, after: None },
    };
    let reads = &app.app().operations.reads;
    let snapshot = reads.snapshot().await.unwrap();
    let count =
        async |reads: &Reads| reads.list_reconciliations(asked.clone()).await.map(|rows| rows.data.len());
    as_owner(&app.database, "DELETE FROM reconciliations").await.unwrap();
    assert_eq!(count(reads).await.unwrap(), 0);
    assert_eq!(count(&snapshot.reads().unwrap()).await.unwrap(), 10_000);
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
        WHERE datname = current_database() AND state = 'idle in transaction'";
    as_owner(&app.database, end).await.unwrap();
    for _ in 0..3 {
        assert!(count(&snapshot.reads().unwrap()).await.is_err(), "it is never of another instant");
    }
    app.finish().await;
}

#[rstest]
#[case("/v1/reports/usage")]
#[case("/v1/reports/entries")]
#[case("/v1/reports/top?meter=page")]
#[case("/v1/reports/leaked")]
#[case("/v1/reports/rollover")]
#[case("/v1/reports/balances")]
#[case("/v1/reports/revenue")]
#[case("/v1/reports/reconciliation")]
#[case("/v1/reports/adjustments")]
#[tokio::test]
async fn a_report_says_as_of_when_it_is(#[case] path: &str) {
    let app = spawn_app().await;
    app.without_limits().await;
    let body = app.get(path).await.expect(200).body;
    assert!(body["as_of"].as_str().is_some_and(|as_of| as_of.ends_with('Z')), "{body}");
    app.finish().await;
}
