//! `/v1/reconciliations`: the books compared with what a supplier charged.

mod attempts;
mod large;

use std::fmt::Write as _;
use std::time::Duration;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use super::corrections::follow;
use super::events::{outcomes, send_batch};
use crate::ledger::as_owner;
use crate::support::app::*;
use crate::support::wait::wait_for;

const BILLS: &str = "/v1/reconciliations";
const NOW: &str = "2026-03-20T12:00:00Z";
/// The day whose bills are compared.
const SPAN: &str = "meter=page&from=2026-03-10T00:00:00Z&to=2026-03-11T00:00:00Z";
const BY_JOB: &str = "supplier=scan%20gmbh&reference_column=job&reference_metadata=job&amount_column=pages";
const BY_TIME: &str = "supplier=scan%20gmbh&time_column=at&amount_column=pages&tolerance_seconds=300";

/// A use of so many pages by a tenant at a time of the day, with this job in its metadata.
#[derive(Clone)]
struct Used<'a>(&'a str, &'a str, u32, &'a str);

/// A service with tenants `acme` and `other`, and these uses in the books.
async fn with_uses(uses: &[Used<'_>]) -> TestApp {
    let app = an_app().at(NOW).without_jobs().start().await;
    app.without_limits().await;
    app.define("tenants/other", json!({ "plan": "plan" })).await;
    let event = |(number, Used(tenant, time, amount, job)): (usize, &Used<'_>)| {
        let mut data = pages(amount).of(*tenant);
        if !job.is_empty() {
            data = data.with("metadata", json!({ "job": job, "note": "scan" }));
        }
        json!({ "specversion": "1.0", "id": format!("{number}"), "source": "/ocr", "type": "tollgate.usage",
            "time": format!("2026-03-{time}Z"), "data": data })
    };
    let events: Vec<Value> = uses.iter().enumerate().map(event).collect();
    for batch in events.chunks(500) {
        let answer = send_batch(&app, batch).await;
        assert!(outcomes(&answer).iter().all(|(status, _)| *status == "accepted"), "{answer:?}");
    }
    app.drained().await;
    app
}

async fn send_as(caller: &Caller, query: &str, key: &str, bill: impl Into<reqwest::Body>) -> Answered {
    let request = caller.request(Method::POST, &format!("{BILLS}?{query}"));
    let request = request.header("content-type", "text/csv; charset=utf-8").header("idempotency-key", key);
    caller.send(request.body(bill)).await
}

/// Compares a bill, and waits for the end.
async fn compare(app: &TestApp, query: &str, key: &str, bill: impl Into<reqwest::Body>) -> Answered {
    let sent = send_as(app, query, key, bill).await;
    assert!([200, 201, 202].contains(&sent.status), "{sent:?}");
    ended(app, sent.text("/id")).await
}

async fn ended(app: &TestApp, id: &str) -> Answered {
    wait_for("the bill is compared", Duration::from_secs(600), async || {
        let found = app.get(&format!("{BILLS}/{id}")).await.expect(200);
        ["done", "failed"].contains(&found.text("/status")).then_some(found)
    })
    .await
}

/// How many findings there are of each outcome: matched, different, missing here, missing there.
fn counts(compared: &Answered) -> [u64; 4] {
    assert_eq!(compared.text("/status"), "done", "{compared:?}");
    ["matched", "different", "missing_here", "missing_there"]
        .map(|outcome| compared.body["summary"][outcome]["findings"].as_u64().unwrap())
}

/// The findings, as `outcome tenant reference here there`.
async fn findings(app: &TestApp, compared: &Answered, query: &str) -> Vec<String> {
    let path = format!("{BILLS}/{}/results?{query}", compared.text("/id"));
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = app.get(&format!("{path}{cursor}")).await.expect(200);
        for row in page.body["data"].as_array().unwrap() {
            let text = |field: &str| row[field].as_str().unwrap_or("-").to_owned();
            let words = ["outcome", "tenant", "reference", "amount_here", "amount_there"].map(text);
            found.push(words.join(" "));
        }
        let Some(next) = page.body["next_cursor"].as_str() else { return found };
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test]
async fn a_bill_is_matched_by_what_the_metadata_says_and_every_planted_difference_is_found() {
    let jobs: Vec<String> = (0..300).map(|number| format!("job-{number}")).collect();
    let mut uses: Vec<_> =
        (5..300).map(|number| Used("acme", "10T09:00:00", 1 + number % 7, &jobs[number as usize])).collect();
    uses.extend([Used("acme", "10T10:00:00", 2, "split"), Used("acme", "10T10:00:01", 3, "split")]);
    let app = with_uses(&uses).await;
    let mut bill = "date,job,pages\n".to_owned();
    for (number, job) in jobs.iter().enumerate() {
        let amount = 1 + number % 7;
        match number {
            // Only there: 0 to 4. Only here: 10 to 12. Charged for more: 20 to 25. In two rows: 30.
            10..=12 => {}
            20..=25 => writeln!(bill, "x,{job},{}", amount + 1).unwrap(),
            30 => write!(bill, "x,{job},{}\nx,{job},1\n", amount - 1).unwrap(),
            _ => writeln!(bill, "x,{job},{amount}.000").unwrap(),
        }
    }
    bill.push_str("x,split,5\n");
    let query = format!("{SPAN}&{BY_JOB}&tenant=acme");
    let compared = compare(&app, &query, "march", bill.clone()).await;
    assert_eq!(counts(&compared), [287, 6, 5, 3], "{compared:?}");
    assert_eq!(compared.body["rows_read"], 299);
    assert_eq!(compared.text("/matched_by"), "metadata.job");
    let matched = &compared.body["summary"]["matched"];
    assert_eq!((&matched["uses"], &matched["rows"]), (&json!(288), &json!(288)), "{matched}");
    let missing = findings(&app, &compared, "outcome=missing_there&limit=2").await;
    assert_eq!(
        missing,
        ["missing_there acme job-10 4 0", "missing_there acme job-11 5 0", "missing_there acme job-12 6 0"]
    );
    let different = findings(&app, &compared, "outcome=different").await;
    let expected: Vec<_> =
        (20..26).map(|it| format!("different acme job-{it} {} {}", 1 + it % 7, 2 + it % 7)).collect();
    assert_eq!(different, expected);
    assert_eq!(findings(&app, &compared, "limit=77").await.len(), 301);
    let split =
        app.get(&format!("{BILLS}/{}/results?outcome=matched&limit=1000", compared.text("/id"))).await;
    let split = split.body["data"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["reference"] == "split")
        .unwrap()
        .clone();
    assert_eq!(
        (&split["uses"], &split["rows"], &split["lines"]),
        (&json!(2), &json!(1), &json!([300])),
        "{split}"
    );
    assert_eq!(split["reservations"].as_array().unwrap().len(), 2);
    let dry = compare(&app, &format!("{query}&dry_run=true"), "dry", bill).await;
    assert_eq!(dry.body["summary"], compared.body["summary"]);
    assert_eq!(findings(&app, &dry, "limit=5").await, Vec::<String>::new());
    app.finish().await;
}

#[tokio::test]
async fn a_bill_without_references_is_matched_by_amount_and_time() {
    let uses = [
        Used("acme", "10T09:00:00", 3, ""),
        Used("acme", "10T09:00:30", 3, ""),
        Used("acme", "10T11:00:00", 4, ""),
        Used("acme", "10T12:00:00", 5, ""),
        Used("acme", "10T14:00:00", 6, ""),
        Used("acme", "10T14:00:10", 7, ""),
        Used("acme", "09T23:59:00", 11, ""),
        Used("acme", "10T00:01:00", 11, ""),
        Used("acme", "11T00:01:00", 8, ""),
        Used("acme", "11T00:02:00", 9, ""),
    ];
    let app = with_uses(&uses).await;
    let bill = "at,pages\n2026-03-10T09:02:00Z,3\n2026-03-10T09:01:00Z,3\n2026-03-10T11:01:00Z,5\n\
        2026-03-10T14:01:00Z,13\n2026-03-10T16:00:00Z,1\n2026-03-10T00:01:30Z,11\n2026-03-10T23:58:00Z,8\n";
    let compared = compare(&app, &format!("{SPAN}&{BY_TIME}&tenant=acme"), "by time", bill).await;
    let expected = [
        "different acme - 4 5",
        "matched acme - 3 3",
        "matched acme - 3 3",
        "matched acme - 11 11",
        "matched acme - 8 8",
        "matched acme - 13 13",
        "missing_here - - 0 1",
        "missing_there acme - 5 0",
    ];
    assert_eq!(findings(&app, &compared, "limit=100").await, expected);
    let exact = format!("{SPAN}&{BY_TIME}&tenant=acme&tolerance_amount=1");
    let near = compare(&app, &exact, "near", bill).await;
    assert_eq!(counts(&near), [6, 0, 1, 1], "{near:?}");
    app.finish().await;
}

#[tokio::test]
async fn rows_of_uses_around_the_span_leave_every_use_in_it_its_own() {
    let used = |tenant, (time, amount)| Used(tenant, time, amount, "");
    let day = [
        ("09T23:57:00", 5),
        ("10T00:04:00", 5),
        ("09T23:58:00", 7),
        ("10T00:02:00", 7),
        ("10T23:58:00", 9),
        ("11T00:04:00", 9),
    ];
    let uses: Vec<_> =
        ["acme", "other"].iter().flat_map(|tenant| day.map(|use_of| used(*tenant, use_of))).collect();
    let app = with_uses(&uses).await;
    let mut bill = "at,pages,who\n".to_owned();
    for row in ["10T00:01:00Z,5", "10T00:04:00Z,5", "10T00:01:00Z,7", "10T23:58:00Z,9", "11T00:01:00Z,9"] {
        write!(bill, "2026-03-{row},acme\n2026-03-{row},other\n").unwrap();
    }
    let compared = compare(&app, &format!("{SPAN}&{BY_TIME}&tenant_column=who"), "edges", bill).await;
    assert_eq!(counts(&compared), [10, 0, 0, 0], "{compared:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_finance_corrects_is_no_use_on_a_bill() {
    let app = with_uses(&[Used("acme", "10T09:00:00", 7, "a")]).await;
    let less = json!({
        "tenant": "acme", "meter": "page", "effect": "usage", "amount": "-2", "happened_at": "2026-03-10T09:00:00Z",
        "reason": "counted wrongly"
    });
    app.post_keyed("/v1/adjustments", "less", less).await.expect(201);
    follow(&app).await;
    let compared = compare(&app, &format!("{SPAN}&{BY_JOB}&tenant=acme"), "bill", "job,pages\na,7\n").await;
    assert_eq!(counts(&compared), [1, 0, 0, 0], "{compared:?}");
    app.finish().await;
}

#[tokio::test]
async fn what_another_tenant_used_is_never_matched() {
    let uses = [
        Used("acme", "10T09:00:00", 3, "a"),
        Used("other", "10T09:00:00", 3, "a"),
        Used("other", "10T10:00:00", 5, "b"),
    ];
    let app = with_uses(&uses).await;
    let bill = "at,job,pages\n2026-03-10T09:00:00Z,a,3\n2026-03-10T10:00:00Z,b,5\n";
    for (key, how) in [("job", BY_JOB), ("time", BY_TIME)] {
        let compared = compare(&app, &format!("{SPAN}&{how}&tenant=acme"), key, bill).await;
        assert_eq!(counts(&compared), [1, 0, 1, 0], "{key}: {compared:?}");
        let found = findings(&app, &compared, "limit=100").await;
        assert!(found.iter().all(|finding| !finding.contains("other")), "{found:?}");
    }
    let named = "at,job,pages,who\n2026-03-10T09:00:00Z,a,3,acme\n2026-03-10T09:00:00Z,a,3,other\n2026-03-10T10:00:00Z,b,5,acme\n";
    for (key, how) in [("jobs of all", BY_JOB), ("times of all", BY_TIME)] {
        let compared = compare(&app, &format!("{SPAN}&{how}&tenant_column=who"), key, named).await;
        assert_eq!(counts(&compared), [2, 0, 1, 1], "{key}: {compared:?}");
        let missing = findings(&app, &compared, "outcome=missing_there").await;
        assert!(missing[0].starts_with("missing_there other"), "{missing:?}");
    }
    for how in [BY_JOB, BY_TIME] {
        let refused = send_as(&app, &format!("{SPAN}&{how}"), "all", bill).await;
        refused.is_problem(400, "invalid_request");
        assert_eq!(refused.pointers(), ["/tenant"]);
    }
    app.finish().await;
}

#[tokio::test]
async fn a_bill_may_name_reservations_and_is_for_what_they_consumed_in_all() {
    let app = an_app().at("2026-03-10T09:00:00Z").without_jobs().start().await;
    app.without_limits().await;
    let (whole, part, released) = (app.hold(10).await, app.hold(10).await, app.hold(10).await);
    app.consume(&whole, "12").await.expect(200);
    app.resolve(&part, "consume", json!({ "amount": "4", "final": false })).await.expect(200);
    app.consume(&part, "7").await.expect(200);
    app.release(&released).await.expect(200);
    app.drained().await;
    let upper = whole.to_uppercase();
    let bill = format!("job;pages\r\n{upper};12\r\n{part};7\r\n{released};0\r\nelse;0.5\r\n");
    let query = format!("{SPAN}&supplier=s&reference_column=job&amount_column=pages&delimiter=semicolon");
    let compared = compare(&app, &query, "ids", bill).await;
    let mut expected = [
        format!("matched acme {whole} 12 12"),
        format!("matched acme {part} 7 7"),
        format!("matched - {released} 0 0"),
        "missing_here - else 0 0.5".to_owned(),
    ];
    expected.sort();
    let mut found = findings(&app, &compared, "limit=100").await;
    found.sort();
    assert_eq!(found, expected);
    app.finish().await;
}

#[tokio::test]
async fn a_use_that_goes_on_behind_the_span_is_whole_and_in_the_span_in_which_it_ended() {
    let app = an_app().at("2026-03-10T23:59:40Z").without_jobs().start().await;
    app.without_limits().await;
    let (first, last) = (app.hold(10).await, app.hold(10).await);
    app.consume(&first, "12").await.expect(200);
    app.resolve(&last, "consume", json!({ "amount": "4", "final": false })).await.expect(200);
    app.move_clock("2026-03-11T00:00:10Z").await;
    app.consume(&last, "7").await.expect(200);
    app.drained().await;
    let how = "supplier=s&reference_column=job&amount_column=pages";
    let of_next_day = SPAN.replace("-11T", "-12T").replace("-10T", "-11T");
    for (span, used, amount) in [(SPAN, &first, 12), (of_next_day.as_str(), &last, 7)] {
        let compared =
            compare(&app, &format!("{span}&{how}"), used, format!("job,pages\n{used},{amount}\n")).await;
        assert_eq!(counts(&compared), [1, 0, 0, 0], "{compared:?}");
    }
    app.finish().await;
}

#[rstest]
#[case::no_rows("", &["/rows/1"])]
#[case::another_title("job,sheets\na,1\n", &["/amount_column"])]
#[case::bad_rows("job,pages\na,1\nb,=1+1\n\"c,d\",\nd,1,2\n", &["/rows/3/pages", "/rows/4/pages", "/rows/5"])]
#[tokio::test]
async fn a_bill_that_cannot_be_read_is_refused_as_a_whole(#[case] bill: &str, #[case] named: &[&str]) {
    let app = with_uses(&[]).await;
    let query = format!("{SPAN}&{BY_JOB}&tenant=acme");
    let refused = send_as(&app, &query, "bad", bill.to_owned()).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!(refused.pointers(), named);
    let listed = app.get(BILLS).await.expect(200);
    assert_eq!(listed.text("/data/0/status"), "failed", "{listed:?}");
    assert!(!listed.text("/data/0/failure").is_empty(), "{listed:?}");
    let results = format!("{BILLS}/{}/results?limit=9", listed.text("/data/0/id"));
    app.get(&results).await.is_problem(404, "not_found");
    let again = compare(&app, &query, "bad", "job,pages\na,1\n").await;
    assert_eq!(counts(&again), [0, 0, 1, 0], "under the same key, since nothing came of the first");
    app.finish().await;
}

#[tokio::test]
async fn a_bill_in_another_encoding_fails_at_once_and_can_be_sent_again() {
    let app = with_uses(&[Used("acme", "10T09:00:00", 3, "a")]).await;
    let (query, bill) = (format!("{SPAN}&{BY_JOB}&tenant=acme"), "job,pages\na,3\n");
    let wide: Vec<u8> = bill.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let refused = send_as(&app, &query, "wide", wide).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!(refused.pointers(), ["/rows/1"]);
    let listed = app.get(BILLS).await.expect(200);
    assert_eq!(listed.text("/data/0/status"), "failed", "{listed:?}");
    assert!(listed.text("/data/0/failure").contains("the title of column 1 has a zero byte"), "{listed:?}");
    assert_eq!(counts(&compare(&app, &query, "wide", bill).await), [1, 0, 0, 0]);
    app.finish().await;
}

#[tokio::test]
async fn only_the_first_bad_rows_are_named() {
    let app = with_uses(&[]).await;
    let bill = format!("job,pages\n{}", "a,none\n".repeat(10_000));
    let refused = send_as(&app, &format!("{SPAN}&{BY_JOB}&tenant=acme"), "bad", bill).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!(refused.pointers().len(), 20);
    let mut endless = b"job,pages\n\"a,1\n".to_vec();
    endless.extend(b"b,1\n".repeat(500_000));
    let refused = send_as(&app, &format!("{SPAN}&{BY_JOB}&tenant=acme"), "endless", endless).await;
    refused.is_problem(422, "validation_failed");
    assert_eq!(refused.pointers(), ["/rows/2"]);
    app.finish().await;
}

#[tokio::test]
async fn a_file_of_findings_has_every_row_and_no_formula() {
    let app = with_uses(&[Used("acme", "10T09:00:00", 3, "=HYPERLINK(1)")]).await;
    let mut bill = "\u{feff}job,pages\r\n\"=HYPERLINK(1)\",\"3\"\r\n".to_owned();
    (0..2_500).for_each(|number| writeln!(bill, "\"a \"\"{number}\"\", b\",{number}.5\r").unwrap());
    let compared = compare(&app, &format!("{SPAN}&{BY_JOB}&tenant=acme"), "file", bill).await;
    assert_eq!(counts(&compared), [1, 0, 2_500, 0]);
    let path = format!("{BILLS}/{}/results?format=csv", compared.text("/id"));
    let file = app.get(&path).await.expect(200);
    assert_eq!(file.header("content-disposition"), "attachment; filename=\"reconciliation.csv\"");
    let mut reader = csv::ReaderBuilder::new().from_reader(file.body.as_str().unwrap().as_bytes());
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2_501);
    let matched = rows.iter().find(|row| &row[0] == "matched").unwrap();
    assert_eq!((&matched[2], &matched[3], &matched[5]), ("'=HYPERLINK(1)", "3", "0"), "{matched:?}");
    assert!(rows.iter().any(|row| &row[2] == "a \"2499\", b" && &row[5] == "2499.5" && &row[11] == "2502"));
    let only = app.get(&format!("{path}&outcome=matched")).await.expect(200);
    assert_eq!(only.body.as_str().unwrap().lines().count(), 2);
    app.finish().await;
}

#[tokio::test]
async fn a_comparison_that_has_not_ended_or_has_failed_has_no_findings_and_says_so() {
    let app = with_uses(&[Used("acme", "10T09:00:00", 3, "a")]).await;
    let done = compare(&app, &format!("{SPAN}&{BY_JOB}&tenant=acme"), "march", "job,pages\na,4\n").await;
    let results = format!("{BILLS}/{}/results", done.text("/id"));
    let ways = ["", "?format=csv", "?format=xlsx"];
    for (state, status, code) in
        [("loading", 409, "in_use"), ("matching", 409, "in_use"), ("failed", 404, "not_found")]
    {
        let set = format!(
            "UPDATE supplier_bills SET state = '{state}', failure = 'it broke off', \
             alive_until = clock_timestamp() + interval '1 hour'"
        );
        as_owner(&app.database, &set).await.unwrap();
        for way in ways {
            app.get(&format!("{results}{way}")).await.is_problem(status, code);
        }
    }
    let failed = app.get(&results).await;
    assert!(failed.text("/detail").contains("it broke off"), "{failed:?}");
    as_owner(&app.database, "UPDATE supplier_bills SET state = 'done'").await.unwrap();
    assert_eq!(findings(&app, &done, "limit=9").await, ["different acme a 3 4"]);
    for way in ways {
        assert_eq!(app.request(Method::GET, &format!("{results}{way}")).send().await.unwrap().status(), 200);
    }
    app.finish().await;
}

#[tokio::test]
async fn a_repeat_with_the_same_file_is_a_replay_and_with_another_one_is_refused() {
    let app = with_uses(&[Used("acme", "10T09:00:00", 3, "a")]).await;
    let query = format!("{SPAN}&{BY_JOB}&tenant=acme");
    let first = compare(&app, &query, "march", "job,pages\na,3\n").await;
    let again = send_as(&app, &query, "march", "job,pages\na,3\n").await.expect(200);
    assert_eq!((again.text("/id"), again.header("idempotency-replayed")), (first.text("/id"), "true"));
    assert_eq!(again.body["summary"], first.body["summary"]);
    send_as(&app, &query, "march", "job,pages\na,4\n").await.is_problem(422, "idempotency_key_reused");
    let other = format!("{query}&tolerance_amount=1");
    send_as(&app, &other, "march", "job,pages\na,3\n").await.is_problem(422, "idempotency_key_reused");
    assert_eq!(app.get(BILLS).await.body["data"].as_array().unwrap().len(), 1);
    app.finish().await;
}

#[tokio::test]
async fn a_repeat_is_a_replay_also_when_its_tenant_is_there_no_more() {
    let app = with_uses(&[Used("acme", "10T09:00:00", 3, "a")]).await;
    let query = format!("{SPAN}&{BY_JOB}&tenant=other");
    let first = compare(&app, &query, "march", "job,pages\na,3\n").await;
    app.delete("/v1/admin/tenants/other").await.expect(204);
    let again = send_as(&app, &query, "march", "job,pages\na,3\n").await.expect(200);
    assert_eq!((again.text("/id"), again.header("idempotency-replayed")), (first.text("/id"), "true"));
    assert_eq!(again.body["summary"], first.body["summary"]);
    let new = send_as(&app, &query, "april", "job,pages\na,3\n").await;
    new.is_problem(422, "validation_failed");
    assert_eq!(new.pointers(), ["/tenant"]);
    app.finish().await;
}

#[rstest]
#[case("meter=page&to=2026-03-11T00:00:00Z", "/from")]
#[case("meter=page&from=2026-03-11T00:00:00Z&to=2026-03-11T00:00:00Z", "/to")]
#[case("from=2026-03-10T00:00:00Z&to=2026-03-11T00:00:00Z", "/meter")]
#[case(&format!("{SPAN}&colour=red"), "/colour")]
#[case(&format!("{SPAN}&tolerance_percent=101"), "/tolerance_percent")]
#[case(&format!("{SPAN}&tolerance_amount=-1"), "/tolerance_amount")]
#[case(&format!("{SPAN}&tolerance_seconds=86401"), "/tolerance_seconds")]
#[case(&format!("{SPAN}&delimiter=pipe"), "/delimiter")]
#[case(&format!("{SPAN}&dry_run=yes"), "/dry_run")]
#[case(&format!("{SPAN}&tenant_column=who"), "/tenant_column")]
#[tokio::test]
async fn a_parameter_that_makes_no_sense_is_named(#[case] parameters: &str, #[case] named: &str) {
    let app = with_uses(&[]).await;
    let refused = send_as(&app, &format!("{BY_JOB}&tenant=acme&{parameters}"), "key", "job,pages\n").await;
    refused.is_problem(400, "invalid_request");
    assert_eq!(refused.pointers(), [named]);
    app.finish().await;
}

#[tokio::test]
async fn only_admins_and_finance_compare_bills_and_what_is_unknown_is_said() {
    let app = with_uses(&[]).await;
    let (query, bill) = (format!("{SPAN}&{BY_JOB}&tenant=acme"), "job,pages\na,1\n");
    for (role, tenant) in [("service", None), ("finance", Some("acme")), ("tenant", Some("acme"))] {
        let caller = app.make_key(role, tenant).await;
        send_as(&caller, &query, role, bill).await.is_problem(403, "forbidden");
        caller.get(BILLS).await.is_problem(403, "forbidden");
    }
    let finance = app.make_key("finance", None).await;
    send_as(&finance, &query, "finance", bill).await.expect(201);
    finance.get(BILLS).await.expect(200);
    let unknown = |text: &str| format!("{}&{BY_JOB}&{text}", SPAN.replace("meter=page&", ""));
    let refused = send_as(&app, &unknown("meter=page&tenant=nobody"), "tenant", bill).await;
    assert_eq!((refused.status, refused.pointers()), (422, vec!["/tenant"]));
    let refused = send_as(&app, &unknown("meter=sheet&tenant=acme"), "meter", bill).await;
    assert_eq!((refused.status, refused.pointers()), (422, vec!["/meter"]));
    app.post(&format!("{BILLS}?{query}"), json!({})).await.is_problem(415, "unsupported_media_type");
    let request = app.request(Method::POST, &format!("{BILLS}?{query}")).header("content-type", "text/csv");
    app.send(request.body(bill)).await.is_problem(400, "idempotency_key_required");
    for path in ["00000000-0000-0000-0000-000000000000", "x", "x/results"] {
        app.get(&format!("{BILLS}/{path}")).await.is_problem(404, "not_found");
    }
    app.finish().await;
}
