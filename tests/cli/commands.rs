//! Exit codes and sentences of the commands, without a service.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::{deserted_url, example, run, tollgate};

#[test]
fn a_service_that_does_not_answer_is_exit_4_with_a_clear_sentence() {
    let url = deserted_url();
    let trace = example("trace.csv");
    for command in [
        vec!["policy", "export"],
        vec!["key", "list"],
        vec!["report", "usage"],
        vec!["report", "adjustments"],
        vec!["report", "revenue", "--group-by", "period"],
        vec!["replay", trace.to_str().unwrap(), "--give-up-seconds", "0"],
    ] {
        let (code, out, error) = run(tollgate(&command).args(["--url", &url, "--key", "tg_k_s"]));
        assert_eq!(code, 4, "{command:?}: {error}");
        assert!(error.contains(&format!("the service at {url} does not answer")), "{error}");
        assert!(error.contains("next: "), "{error}");
        assert_eq!(out, "");
    }
}

#[test]
fn a_file_that_is_broken_off_is_said_not_to_be_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let service = std::thread::spawn(move || {
        let (mut caller, _) = listener.accept().unwrap();
        assert!(caller.read(&mut [0; 4096]).unwrap() > 0);
        caller.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\ntenant,meter\r\n").unwrap();
    });
    let report = ["report", "usage", "--output", "csv", "--url", &url, "--key", "tg_k_s"];
    let (code, out, error) = run(&mut tollgate(&report));
    service.join().unwrap();
    assert_eq!((code, out.as_str()), (4, "tenant,meter\n"), "{error}");
    assert!(error.contains(&format!("the service at {url} has not sent the whole file")), "{error}");
    assert!(error.contains("next: what was printed is not whole"), "{error}");
}

#[test]
fn a_missing_key_is_a_usage_error_that_says_where_to_put_it() {
    let (code, _, error) = run(&mut tollgate(&["key", "list", "--url", &deserted_url()]));
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("TOLLGATE_KEY"), "{error}");
}

#[test]
fn a_key_that_no_header_can_carry_is_refused_without_showing_it() {
    let (code, _, error) =
        run(&mut tollgate(&["key", "list", "--url", &deserted_url(), "--key", "se\ncret"]));
    assert_eq!(code, 2, "{error}");
    assert!(!error.contains("cret"), "{error}");
}

#[test]
fn a_wrong_row_of_a_trace_is_named_before_anything_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bad.csv");
    std::fs::write(
        &path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,1\n2023-11-16 18:17:04,x,1\n",
    )
    .unwrap();
    let (code, _, error) =
        run(tollgate(&["replay", path.to_str().unwrap()]).args(["--url", &deserted_url(), "--key", "k"]));
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("bad.csv line 3: ContextTokens is `x`"), "{error}");
}

#[test]
fn a_wrong_policy_file_is_named_with_line_and_field_before_anything_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    for (text, expected) in [
        (None, "policy.toml cannot be read"),
        (Some("[[meters]]\nid = \"a\"\nunit = \"page\"\ncolour = 1\n"), "policy.toml:4 /meters/0"),
        (Some("[[meters]\n"), "policy.toml"),
        (
            Some("[[meters]]\nid = \"a\"\nunit = \"page\"\nttl_seconds = -1\n"),
            "policy.toml:4 /meters/0/ttl_seconds: invalid value: integer `-1`, expected a whole number",
        ),
        (
            Some("[[operations]]\nid = \"a\"\ncosts = [[\"page\", \"1\"]]\n"),
            "policy.toml:3 /operations/0/costs/0: invalid type: sequence, expected an object",
        ),
    ] {
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let (code, _, error) = run(tollgate(&["policy", "diff", path.to_str().unwrap()]).args([
            "--url",
            &deserted_url(),
            "--key",
            "k",
        ]));
        assert_eq!(code, 1, "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn help_documents_the_exit_codes_and_completion_knows_the_commands() {
    let (code, out, _) = run(&mut tollgate(&["--help"]));
    assert_eq!(code, 0);
    assert!(out.contains("Exit codes:") && out.contains("4  the service"), "{out}");
    let (code, out, _) = run(&mut tollgate(&["completion", "bash"]));
    assert_eq!(code, 0);
    assert!(out.contains("quarantine") && out.contains("--give-up-seconds"));
}

#[test]
fn an_invalid_time_is_refused_with_the_expected_format() {
    for words in [
        ["report", "usage", "--from", "2026-01-01"],
        ["report", "usage", "--to", "yesterday"],
        ["up", "--no-demo", "--test-clock", "2026-01-01 00:00"],
    ] {
        let (code, _, error) = run(&mut tollgate(&words));
        assert_eq!(code, 2, "{words:?}: {error}");
        assert!(
            error.contains("must be an RFC 3339 time such as 2027-01-01T00:00:00Z"),
            "{words:?}: {error}"
        );
    }
}

#[test]
fn what_is_not_served_is_a_usage_error() {
    for words in [
        vec!["redrain"],
        vec!["doctor", "--calls-per-second", "0"],
        vec!["replay"],
        vec!["policy", "apply", "x", "--prune", "tenants"],
        vec!["up", "--fast"],
        vec!["report", "revenue", "--meter", "page"],
        vec!["report", "rollover", "--by", "tenant"],
        vec!["report", "reconciliation", "--at", "2026-01-01T00:00:00Z"],
        vec!["report", "balances", "--to", "2026-01-01T00:00:00Z"],
        vec!["report", "top"],
    ] {
        let (code, _, error) = run(&mut tollgate(&words));
        assert_eq!(code, 2, "{words:?}: {error}");
    }
}
