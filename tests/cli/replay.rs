//! What a replay counts when calls are lost, refused, repeated, or the ledger differs.

use serde_json::Value;
use tollgate::cli::{Row, Trace, TraceFacts, job_key, tenant_number};

use super::service::{Fate, Manners, start};
use super::{example, run, tollgate};

fn replay(url: &str, options: &[&str]) -> (i32, Value, String) {
    let path = example("trace.csv");
    let mut command =
        tollgate(&["replay", path.to_str().unwrap(), "--output", "json", "--url", url, "--key", "tg_k_s"]);
    let (code, out, error) = run(command.args(options));
    (code, serde_json::from_str(&out).unwrap_or_default(), error)
}

fn value(tables: &Value, name: &str) -> u64 {
    let rows = tables["jobs"].as_array().unwrap();
    rows.iter().find(|row| row["jobs"] == name).unwrap()["value"].as_u64().unwrap()
}

/// Accepted, ledger, excess of each meter.
fn meters(tables: &Value) -> Vec<[&str; 3]> {
    let rows = tables["meters"].as_array().unwrap();
    rows.iter().map(|row| ["accepted", "ledger", "excess"].map(|name| row[name].as_str().unwrap())).collect()
}

const WHOLE_TRACE: [[&str; 3]; 3] = [["200", "200", "0"], ["504386", "504386", "0"], ["72930", "72930", "0"]];

/// Calls are lost before and after they were carried out, and the service is busy now and then.
fn rough(number: u64) -> Fate {
    match number % 12 {
        3 => Fate::LostAfter,
        6 => Fate::Busy,
        9 => Fate::LostBefore,
        _ => Fate::Answered,
    }
}

#[test]
fn lost_answers_and_outages_count_nothing_twice() {
    for batch in ["1", "7"] {
        let url = start(Manners { fate: rough, ..Manners::default() });
        let (code, tables, error) = replay(&url, &["--batch", batch]);
        assert_eq!(code, 0, "{error}");
        assert_eq!((value(&tables, "accepted"), value(&tables, "failed")), (200, 0));
        assert_eq!(meters(&tables), WHOLE_TRACE);
        assert_ne!(value(&tables, "calls repeated"), 0);
    }
}

#[test]
fn a_repeated_run_changes_nothing_and_counts_the_same() {
    let url = start(Manners::default());
    let (_, first, _) = replay(&url, &[]);
    assert_eq!((value(&first, "accepted"), value(&first, "done before")), (200, 0));
    let (code, second, error) = replay(&url, &["--batch", "50"]);
    assert_eq!(code, 0, "{error}");
    assert_eq!((value(&second, "accepted"), value(&second, "done before")), (200, 200));
    assert_eq!(meters(&second), WHOLE_TRACE);
}

#[test]
fn another_run_by_name_is_counted_apart() {
    let url = start(Manners::default());
    replay(&url, &[]);
    let (code, tables, error) = replay(&url, &["--run", "second"]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(value(&tables, "done before"), 0);
    assert_eq!(meters(&tables), WHOLE_TRACE);
}

#[test]
fn refused_jobs_are_counted_and_only_accepted_ones_are_summed() {
    let url = start(Manners { refused_tenant: "replay-002", ..Manners::default() });
    let (code, tables, error) = replay(&url, &["--tenants", "2"]);
    assert_eq!(code, 0, "{error}");
    let facts = TraceFacts::survey(&example("trace.csv")).unwrap();
    let admitted: Vec<Row> = Trace::open(&example("trace.csv"))
        .unwrap()
        .map(Result::unwrap)
        .filter(|row| tenant_number(&facts.hash, row.number, 2) == 1)
        .collect();
    let (count, tokens) =
        (u64::try_from(admitted.len()).unwrap(), admitted.iter().map(|row| row.output_tokens).sum::<u64>());
    assert_eq!(value(&tables, "accepted"), count);
    assert_eq!(value(&tables, "refused"), 200 - count);
    assert_eq!(meters(&tables)[2][..2], [tokens.to_string(), tokens.to_string()]);
}

#[test]
fn the_excess_over_a_small_estimate_is_the_overrun_exactly() {
    let url = start(Manners::default());
    let (code, tables, error) = replay(&url, &["--estimate", "16"]);
    assert_eq!(code, 0, "{error}");
    let rows = Trace::open(&example("trace.csv")).unwrap().map(Result::unwrap);
    let overrun: u64 = rows.map(|row| row.output_tokens.saturating_sub(16)).sum();
    assert_eq!(meters(&tables)[2], ["72930", "72930", overrun.to_string().as_str()]);
}

#[test]
fn a_ledger_that_differs_is_exit_3_and_named() {
    let url = start(Manners { loses_units: true, ..Manners::default() });
    let (code, tables, error) = replay(&url, &["--ledger-wait-seconds", "0"]);
    assert_eq!(code, 3, "{error}");
    assert!(error.contains("the ledger's figures differ"), "{error}");
    let equal: Vec<&Value> =
        tables["meters"].as_array().unwrap().iter().map(|row| &row["ledger_equals_accepted"]).collect();
    assert!(equal.contains(&&Value::from("NO")), "{tables}");
}

#[test]
fn a_service_that_is_gone_for_good_ends_the_replay_with_exit_4_and_how_to_go_on() {
    let url = start(Manners {
        fate: |number| if number > 60 { Fate::LostBefore } else { Fate::Answered },
        ..Manners::default()
    });
    let (code, _, error) = replay(&url, &["--give-up-seconds", "1", "--concurrency", "4"]);
    assert_eq!(code, 4, "{error}");
    assert!(error.contains("of 200 jobs had ended"), "{error}");
    assert!(error.contains("run the same command again"), "{error}");
}

#[test]
fn keys_follow_the_content_and_the_run_and_not_the_name_of_the_file() {
    let facts = TraceFacts::survey(&example("trace.csv")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy.csv");
    std::fs::copy(example("trace.csv"), &copy).unwrap();
    let same = TraceFacts::survey(&copy).unwrap();
    assert_eq!(job_key(&facts.hash, "a", 7), job_key(&same.hash, "a", 7));
    assert_ne!(job_key(&facts.hash, "a", 7), job_key(&facts.hash, "b", 7));
    assert_ne!(job_key(&facts.hash, "a", 7), job_key(&facts.hash, "a", 8));
}
