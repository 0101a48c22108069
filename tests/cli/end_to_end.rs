//! The command line against the real service: figures to the unit, policy there and back, keys.

use serde_json::{Value, json};

use super::{example, tollgate};
use crate::support::app::*;

/// Runs a command against `app` with its admin key, off the test's own threads.
async fn against(app: &TestApp, words: &[&str]) -> (i32, String, String) {
    let mut command = tollgate(words);
    command.args(["--url", app.url()]).env("TOLLGATE_ADMIN_KEY", app.key());
    tokio::task::spawn_blocking(move || super::run(&mut command)).await.unwrap()
}

async fn replay(app: &TestApp, options: &[&str]) -> Value {
    let path = example("trace.csv");
    let words = [&["replay", path.to_str().unwrap(), "--output", "json"], options].concat();
    let (code, out, error) = against(app, &words).await;
    assert_eq!(code, 0, "{out}{error}");
    serde_json::from_str(&out).unwrap()
}

fn job_count(tables: &Value, name: &str) -> u64 {
    let rows = tables["jobs"].as_array().unwrap();
    rows.iter().find(|row| row["jobs"] == name).unwrap()["value"].as_u64().unwrap()
}

fn column(tables: &Value, name: &str) -> Vec<String> {
    tables["meters"].as_array().unwrap().iter().map(|row| row[name].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_trace_is_in_the_ledger_to_the_unit_and_only_once() {
    let app = spawn_app().await;
    let first = replay(&app, &[]).await;
    assert_eq!(job_count(&first, "accepted"), 200);
    assert_eq!(column(&first, "ledger"), ["200", "504386", "72930"]);
    for options in [&["--batch", "20"][..], &["--ack", "ledger"]] {
        let again = replay(&app, options).await;
        assert_eq!(job_count(&again, "done before"), 200, "{options:?}");
        assert_eq!(column(&again, "ledger"), ["200", "504386", "72930"], "{options:?}");
    }
    let (code, report, error) =
        against(&app, &["report", "usage", "--group-by", "meter", "--output", "csv"]).await;
    assert_eq!(code, 0, "{error}");
    assert!(report.contains("llm.output_token,,,,72930,"), "{report}");
    assert!(report.starts_with("start,tenant,plan,meter,") && report.contains(",as_of\n"), "{report}");
    let top = ["report", "top", "--meter", "llm.output_token", "--output", "json"];
    let (code, report, error) = against(&app, &top).await;
    assert_eq!(code, 0, "{error}");
    let rows: Value = serde_json::from_str(&report).unwrap();
    let tokens = |row: &Value| row["consumed"].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(rows.as_array().unwrap().iter().map(tokens).sum::<u64>(), 72_930, "{report}");
    assert_eq!((&rows[0]["rank"], &rows[0]["meter"]), (&json!(1), &json!("llm.output_token")), "{report}");
    for name in ["entries", "revenue", "balances", "rollover", "leaked", "reconciliation"] {
        let (code, report, error) = against(&app, &["report", name]).await;
        assert_eq!(code, 0, "{name}: {error}");
        assert!(report.starts_with(|first: char| first.is_ascii_lowercase()), "its columns first: {report}");
    }
    let entries = ["report", "entries", "--meter", "llm.request", "--output", "csv"];
    let (code, report, error) = against(&app, &entries).await;
    assert_eq!(code, 0, "{error}");
    let consumed = report.lines().filter(|line| line.contains(",reserved,consumed,1,")).count();
    assert_eq!((consumed, report.contains('\r')), (200, false), "{report}");
    let usage = ["report", "usage", "--tenant", "nobody"];
    let (code, _, error) = against(&app, &usage).await;
    assert_eq!(code, 1, "{error}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_file_guards_a_subject_that_is_like_a_formula() {
    let app = spawn_app().await;
    app.without_limits().await;
    let used = pages("3").with("subjects", json!({ "user": "+49171" })).with("ack", "ledger");
    app.post_keyed(USAGE, "k", used).await.expect(201);
    for name in ["usage", "top"] {
        let words = match name {
            "usage" => vec!["report", name, "--group-by", "subject"],
            _ => vec!["report", name, "--meter", "page", "--by", "subject"],
        };
        let (code, csv, error) = against(&app, &[&words[..], &["--output", "csv"]].concat()).await;
        assert!(code == 0 && csv.contains(",user,'+49171,"), "{csv}{error}");
        let (_, json, _) = against(&app, &[&words[..], &["--output", "json"]].concat()).await;
        let rows: Value = serde_json::from_str(&json).unwrap();
        let row = &rows[0];
        let expected = json!([row["meter"], "user", "+49171", "3", 1, null]);
        let of = |field: &str| row[field].clone();
        let found =
            json!(["page", of("subject_kind"), of("subject"), of("consumed"), of("count"), row.get("plan")]);
        assert_eq!(found, expected, "{json}");
        assert!(row["as_of"].as_str().unwrap().ends_with('Z'), "{json}");
        let (_, table, _) = against(&app, &words).await;
        assert!(table.contains("+49171") && !table.contains('\''), "{table}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_excess_over_a_small_estimate_is_flagged_in_the_ledger_exactly() {
    let app = spawn_app().await;
    let tables = replay(&app, &["--estimate", "16"]).await;
    let rows = tollgate::cli::Trace::open(&example("trace.csv")).unwrap().map(Result::unwrap);
    let overrun: u64 = rows.map(|row| row.output_tokens.saturating_sub(16)).sum();
    assert_eq!(column(&tables, "excess"), ["0".to_owned(), "0".to_owned(), overrun.to_string()]);
    assert_eq!(column(&tables, "ledger_excess"), column(&tables, "excess"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_plan_with_a_limit_only_the_accepted_jobs_are_in_the_ledger() {
    let app = spawn_app().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let policy = r#"
        [[meters]]
        id = "llm.request"
        unit = "request"
        [[plans]]
        id = "ten-a-month"
        limits = [{ id = "requests", meter = "llm.request", algorithm = "calendar", window = "month", capacity = "10" }]
    "#;
    std::fs::write(&path, policy).unwrap();
    let (code, _, error) = against(&app, &["policy", "apply", path.to_str().unwrap(), "--yes"]).await;
    assert_eq!(code, 0, "{error}");
    let tables = replay(&app, &["--plan", "ten-a-month", "--tenants", "4"]).await;
    assert_eq!((job_count(&tables, "accepted"), job_count(&tables, "refused")), (40, 160));
    assert_eq!(column(&tables, "ledger")[0], "40");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_policy_applied_again_is_an_empty_difference() {
    let app = spawn_app().await;
    let path = example("policy.toml");
    let (code, _, error) = against(&app, &["policy", "apply", path.to_str().unwrap(), "--yes"]).await;
    assert_eq!(code, 0, "{error}");
    let (_, exported, _) = against(&app, &["policy", "export"]).await;
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("exported.toml");
    std::fs::write(&copy, exported).unwrap();
    let (code, difference, error) = against(&app, &["policy", "diff", copy.to_str().unwrap()]).await;
    assert_eq!((code, difference.as_str()), (0, "no difference\n"), "{error}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_exported_while_another_currency_and_zone_of_a_tenant_are_to_come() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    app.with_plan(json!([]), json!([quota_of("50")])).await;
    app.define("tenants/acme", json!({ "plan": "plan", "currency": "EUR" })).await;
    app.use_pages("a", 1).await.expect(201);
    app.drained().await;
    let changed = json!({ "plan": "plan", "currency": "USD", "time_zone": "Asia/Tokyo" });
    let shown = app.define("tenants/acme", changed).await.body;
    assert!(shown["currencies"].is_array() && shown["calendars"].is_array(), "{shown}");
    let (code, exported, error) = against(&app, &["policy", "export"]).await;
    assert_eq!(code, 0, "{error}");
    assert!(exported.contains("\"USD\"") && exported.contains("\"Asia/Tokyo\""), "{exported}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn applying_a_file_that_names_one_tenant_deletes_none() {
    let app = spawn_app().await;
    let path = example("policy.toml");
    against(&app, &["policy", "apply", path.to_str().unwrap(), "--yes"]).await;
    let directory = tempfile::tempdir().unwrap();
    let one = directory.path().join("one.toml");
    std::fs::write(&one, "[[tenants]]\nid = \"acme\"\nplan = \"premium\"\n").unwrap();
    let (code, out, error) =
        against(&app, &["policy", "apply", one.to_str().unwrap(), "--yes", "--output", "csv"]).await;
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("change,tenant,acme,/plan,free,premium"), "{out}");
    let (_, exported, _) = against(&app, &["policy", "export"]).await;
    assert!(exported.contains("\"beta\"") && exported.contains("\"migration\""), "{exported}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_by_address_alone_is_applied_and_named_with_its_line_as_a_warning() {
    let app = spawn_app().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let policy = "[[meters]]\nid = \"page\"\nunit = \"page\"\n\n[[limits]]\nid = \"address\"\nmeter = \"page\"\n\
        scope = \"subject\"\nsubject_kind = \"ip\"\nwindow = \"day\"\ncapacity = \"5\"\n";
    std::fs::write(&path, policy).unwrap();
    let path = path.to_str().unwrap();
    for words in [vec!["policy", "diff", path], vec!["policy", "apply", path, "--yes"]] {
        let (code, out, error) = against(&app, &words).await;
        assert_eq!(code, 0, "{error}");
        let expected = "policy.toml:9 /limits/0/subject_kind: tells callers apart by their IP address alone";
        let warnings: Vec<_> = error.lines().filter(|line| line.starts_with("warning: ")).collect();
        assert!(matches!(warnings[..], [only] if only.contains(expected)), "{error}");
        assert!(!out.contains("warning"), "{out}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_in_a_file_without_some_of_its_limits_removes_none_unless_they_are_pruned() {
    let app = spawn_app().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let limit =
        |id: &str| format!("{{ id = \"{id}\", meter = \"page\", window = \"day\", capacity = \"5\" }}");
    let file = |ids: &[&str]| {
        let limits: Vec<String> = ids.iter().map(|id| limit(id)).collect();
        let text = format!(
            "[[meters]]\nid = \"page\"\nunit = \"page\"\n\n[[plans]]\nid = \"free\"\nlimits = [{}]\n",
            limits.join(", ")
        );
        std::fs::write(&path, text).unwrap();
    };
    let path = path.to_str().unwrap();
    file(&["a", "b", "c", "d"]);
    let (code, _, error) = against(&app, &["policy", "apply", path, "--yes"]).await;
    assert_eq!(code, 0, "{error}");
    file(&["a"]);
    for command in [vec!["policy", "diff", path], vec!["policy", "apply", path, "--yes"]] {
        let (code, _, error) = against(&app, &command).await;
        assert_eq!(code, 1, "{error}");
        for gone in ["b", "c", "d"] {
            let expected = format!("policy.toml:7 /plans/0/limits: would remove `{gone}`");
            assert!(error.contains(&expected), "{error}");
        }
        assert!(error.contains("--prune"), "{error}");
    }
    let prune = ["policy", "apply", path, "--yes", "--prune", "limits", "--output", "csv"];
    let (code, out, error) = against(&app, &prune).await;
    assert_eq!(code, 0, "{error}");
    for gone in ["b", "c", "d"] {
        assert!(out.contains(&format!("delete,plan,free,/limits/{gone},")), "{out}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_a_forbidden_change_is_refused_with_its_line_and_keeps_nothing() {
    let app = spawn_app().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let good = "[[meters]]\nid = \"page\"\nunit = \"page\"\nwithout_limit = \"unlimited\"\n[[tenants]]\nid = \"acme\"\n";
    std::fs::write(&path, good).unwrap();
    let words = ["policy", "apply", path.to_str().unwrap(), "--yes"];
    assert_eq!(against(&app, &words).await.0, 0);
    let usage = pages("1").with("ack", "ledger");
    app.post_keyed(USAGE, "k", usage).await.expect(201);
    let forbidden =
        "[[meters]]\nid = \"new\"\nunit = \"page\"\n\n[[meters]]\nid = \"page\"\nunit = \"sheet\"\n";
    std::fs::write(&path, forbidden).unwrap();
    for words in [&["policy", "diff", words[2]][..], &words] {
        let (code, _, error) = against(&app, words).await;
        assert_eq!(code, 1, "{error}");
        assert!(error.contains("policy.toml:7 /meters/1/unit: is fixed"), "{error}");
    }
    assert_eq!(app.get("/v1/admin/meters/new").await.status, 404, "half of a file is nothing");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_shown_once_listed_without_its_secret_and_stops_when_revoked() {
    let app = spawn_app().await;
    let words = ["key", "create", "--name", "worker", "--role", "service", "--output", "json"];
    let (code, out, error) = against(&app, &words).await;
    assert_eq!(code, 0, "{error}");
    let made: Value = serde_json::from_str(&out).unwrap();
    let (id, key) = (made[0]["id"].as_str().unwrap(), made[0]["key"].as_str().unwrap());
    let (_, list, _) = against(&app, &["key", "list", "--output", "csv"]).await;
    assert!(list.contains(id) && !list.contains(key), "{list}");
    let (code, _, error) = against(&app, &["key", "revoke", id, "--yes"]).await;
    assert_eq!(code, 0, "{error}");
    // Every instance knows within a second; each try takes a while by itself.
    for _ in 0..100 {
        let (code, _, error) = against(&app, &["key", "list", "--key", key]).await;
        if error.contains("401") {
            assert_eq!(code, 1, "{error}");
            app.finish().await;
            return;
        }
    }
    panic!("the revoked key still works");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_tried_on_what_is_recorded_and_shown_by_limit_tenant_and_hour() {
    let app = an_app().with("decisions.sample_percent", 0).with("decisions.tenants", "acme").start().await;
    app.with_day_of("20").await;
    for number in 0..3 {
        app.use_pages(&format!("use-{number}"), 4).await.expect(201);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let write = |capacity: &str| {
        let limit =
            format!("{{ id = \"day\", meter = \"page\", window = \"day\", capacity = \"{capacity}\" }}");
        std::fs::write(&path, format!("[[plans]]\nid = \"plan\"\nlimits = [{limit}]\n")).unwrap();
    };
    let words = ["policy", "test", path.to_str().unwrap(), "--since", "24h"];
    write("5");
    let (code, table, summary) = against(&app, &words).await;
    assert_eq!(code, 0, "{summary}");
    assert!(
        table.starts_with("limit  tenant  hour                  refused  admitted then  first decision\n")
    );
    assert!(table.contains("\nday    acme    "), "{table}");
    assert!(summary.contains("2 refused under the file (2 of them admitted then), 0 then"), "{summary}");
    let with_tenants = [&words[..], &["--tenant", "acme", "--tenant", "other", "--output", "json"]].concat();
    let (_, rows, summary) = against(&app, &with_tenants).await;
    let rows: Value = serde_json::from_str(&rows).unwrap();
    assert_eq!(serde_json::json!([rows[0]["refused"], rows[0]["admitted_then"]]), serde_json::json!([2, 2]));
    assert!(summary.contains("nothing is recorded: other"), "{summary}");
    write("12");
    assert_eq!(against(&app, &words).await.1, "nobody would have been refused\n");
    write("-1");
    let (code, _, error) = against(&app, &words).await;
    assert!(code != 0 && error.contains("policy.toml:3 /plans/0/limits/0/capacity"), "{error}");
    app.finish().await;
}
