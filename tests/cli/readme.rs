//! The README: its commands and programs do what it says.

use std::fs;
use std::path::Path;
use std::process::Command;

use rstest::rstest;

use super::run;
use crate::support::app::*;
use crate::support::process::tollgate;
use crate::support::wait::wait_for;
use service::Tollgate;

#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::disallowed_methods,
    reason = "a whole program, as its readers have it"
)]
#[path = "../../docs/examples/service.rs"]
#[rustfmt::skip]
mod service;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_readme_shows_the_programs_that_are_tried_here() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for (name, language) in [("service.py", "python"), ("service.rs", "rust")] {
        let program = fs::read_to_string(super::example(name)).unwrap();
        assert!(readme.contains(&format!("```{language}\n{program}```")), "{name} differs");
    }
}

/// An instance with the demo's operation, tenant and user.
async fn with_demo() -> TestApp {
    let app = an_app().at_ms(1_800_000_000_000).start().await;
    app.with_plan(serde_json::json!([]), serde_json::json!([])).await;
    let meter = serde_json::json!({ "unit": "page", "without_limit": "unlimited", "on_late": "reject" });
    app.define("meters/ocr.page", meter).await;
    let cost = serde_json::json!({ "meter": "ocr.page", "weights": { "pages": "1" } });
    app.define("operations/ocr.submit", serde_json::json!({ "costs": [cost] })).await;
    let day = serde_json::json!({ "id": "day", "meter": "ocr.page", "window": "day", "capacity": "8" });
    app.define("plans/plan", serde_json::json!({ "limits": [day] })).await;
    app
}

/// What the books say was consumed.
async fn booked(app: &TestApp) -> String {
    app.drained().await;
    let usage = app.get("/v1/tenants/acme/usage").await.expect(200);
    usage.text("/data/0/consumed").to_owned()
}

fn the_service(app: &TestApp) -> Tollgate {
    let http = http_client(std::time::Duration::from_secs(10));
    Tollgate { http, url: app.url().to_owned(), key: app.key().to_owned() }
}

/// Waits until the tenant's only hold is said to have expired.
async fn the_hold_has_ended(app: &TestApp) {
    wait_for("the hold has ended", std::time::Duration::from_secs(20), async || {
        app.drained().await;
        let listed = app.get("/v1/tenants/acme/reservations").await.expect(200);
        (listed.text("/data/0/status") == "expired").then_some(())
    })
    .await;
}

/// The only hold that is open.
async fn open_hold(app: &TestApp) -> String {
    app.drained().await;
    let listed = app.get("/v1/tenants/acme/reservations?status=reserved").await.expect(200);
    listed.text("/data/0/id").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_in_rust_pays_for_what_was_done_and_does_what_failed_again() {
    let app = with_demo().await;
    let tollgate = the_service(&app);
    let read = async |_page: u32| Ok(());
    assert_eq!(tollgate.read_document("first", 3, read).await.unwrap(), "read 3 pages");
    assert_eq!(tollgate.read_document("first", 3, read).await.unwrap(), "done before");
    let torn = async |page: u32| if page == 1 { Err("torn".into()) } else { Ok(()) };
    assert_eq!(tollgate.read_document("second", 2, torn).await.unwrap_err().to_string(), "torn");
    assert_eq!(tollgate.read_document("second", 2, read).await.unwrap(), "read 2 pages");
    assert_eq!(tollgate.read_document("second", 2, read).await.unwrap(), "done before");
    let refused = tollgate.read_document("third", 9, read).await.unwrap();
    assert!(refused.starts_with("refused: "), "{refused}");
    assert_eq!(booked(&app).await, "6");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_service_died_is_done_when_it_is_repeated() {
    let app = with_demo().await;
    let tollgate = the_service(&app);
    let (reading, reads) = tokio::sync::oneshot::channel();
    let reading = std::sync::Mutex::new(Some(reading));
    let dies = async |_page: u32| {
        reading.lock().unwrap().take().map(|reading| reading.send(()));
        std::future::pending().await
    };
    tokio::select! {
        answer = tollgate.read_document("job", 3, dies) => panic!("{answer:?}"),
        reads = reads => reads.unwrap(),
    }
    app.move_clock("2027-01-15T09:00:00Z").await;
    the_hold_has_ended(&app).await;
    let read = async |_page: u32| Ok(());
    assert_eq!(tollgate.read_document("job", 3, read).await.unwrap(), "read 3 pages");
    assert_eq!(tollgate.read_document("job", 3, read).await.unwrap(), "done before");
    assert_eq!(booked(&app).await, "3");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_took_longer_than_its_hold_may_is_recorded_as_usage() {
    let app = with_demo().await;
    let tollgate = the_service(&app);
    let slow = async |page: u32| {
        if page == 0 {
            app.move_clock("2027-01-15T09:00:00Z").await;
            the_hold_has_ended(&app).await;
        }
        Ok(())
    };
    assert_eq!(tollgate.read_document("slow", 3, slow).await.unwrap(), "read 3 pages");
    assert_eq!(booked(&app).await, "3");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_told_that_its_work_could_not_be_paid() {
    let app = with_demo().await;
    let tollgate = the_service(&app);
    let released = async |_page: u32| {
        let path = format!("/v1/reservations/{}/release", open_hold(&app).await);
        app.post(&path, serde_json::json!({})).await.expect(200);
        Ok(())
    };
    let error = tollgate.read_document("job", 1, released).await.unwrap_err().to_string();
    assert!(error.contains("released"), "{error}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_in_python_does_the_same() {
    let app = with_demo().await;
    let mut python = Command::new("python3");
    python.arg(super::example("service.py")).env_clear();
    python.env("TOLLGATE_URL", app.url()).env("TOLLGATE_ADMIN_KEY", app.key());
    python.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    if python.output().is_err() {
        app.leave_unbalanced("python3 is not installed: its program was not tried");
        return;
    }
    let (code, out, error) = tokio::task::spawn_blocking(move || run(&mut python)).await.unwrap();
    assert_eq!((code, out.as_str()), (0, "done before\n"), "{error}");
    assert_eq!(booked(&app).await, "3");
    app.finish().await;
}

#[test]
fn what_the_readme_does_with_a_hold_it_does_before_it_is_consumed() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let uses: Vec<&str> =
        readme.lines().filter(|line| line.contains("$ID/") || line.starts_with("ID=")).collect();
    let told: Vec<bool> = uses.iter().map(|line| line.starts_with("ID=")).collect();
    assert!(told[0], "{uses:?}");
    for pair in uses.windows(2) {
        assert!(
            !pair[0].contains("/consume") || pair[1].starts_with("ID="),
            "its hold has ended: {}",
            pair[1]
        );
    }
}

#[rstest]
#[case::one_of_a_distribution("1.63.0", false)]
#[case::the_oldest_that_builds(concat!(env!("CARGO_PKG_RUST_VERSION"), ".0"), true)]
#[case::a_nightly_one("1.99.0-nightly", true)]
#[case::the_next_major_version("2.0.0", true)]
fn a_rust_that_is_too_old_is_named_before_anything_is_built(#[case] version: &str, #[case] is_taken: bool) {
    // Everything is there but for a Rust that is new enough, so nothing is installed.
    let script = "for name in redis-server initdb cc cargo rustc; do \
        printf '#!/bin/sh\\necho rustc %s\\n' \"$2\" > \"$1/$name\"; chmod 755 \"$1/$name\"; done; \
        PATH=\"$1:$PATH\" sh deploy/install-servers.sh";
    let programs = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(programs.path()).arg(version).current_dir(root());
    shell.env_clear().env("PATH", "/usr/bin:/bin");
    let (code, _, error) = run(&mut shell);
    let wanted =
        format!("Please install Rust {} or newer; this is {version}", env!("CARGO_PKG_RUST_VERSION"));
    assert_eq!((code == 0, error.contains(&wanted)), (is_taken, !is_taken), "{error}");
}

/// Pastes the block of the README that serves at this port, with another one, into a shell. Returns its output, and the
/// directory in which it ran.
fn pasted(port: u32) -> (String, tempfile::TempDir) {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let served = format!("127.0.0.1:{port}");
    let script = blocks.into_iter().find(|block| block.contains(&served)).expect("the block").to_owned();
    // No port that the system hands out, which another test could get before this one listens.
    let free = 10_000 + std::process::id() % 3_000 + 3_000 * (port % 2);
    let program = tollgate(&[]).get_program().to_str().unwrap().to_owned();
    let script = script.replace(&port.to_string(), &free.to_string());
    let script = script.replace("target/release/tollgate", &program);
    let (bare, directory) = (tollgate(&[]), tempfile::tempdir().unwrap());
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).env_clear().current_dir(directory.path());
    shell.envs(bare.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (code, out, error) = run(&mut shell);
    assert_eq!(code, 0, "{out}{error}");
    (out, directory)
}

#[test]
fn the_month_in_the_readme_works_when_it_is_pasted_whole() {
    let (out, _) = pasted(8081);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{out}");
    assert!(lines[1].contains("\"remaining\":\"9850\""), "{out}");
    assert!(lines[3].contains("\"remaining\":\"10000\""), "{out}");
}

#[test]
fn the_bill_in_the_readme_is_corrected_and_proven_when_it_is_pasted_whole() {
    let (out, directory) = pasted(8082);
    for told in ["\"total\":\"2.25\"", "\"status\":\"booked\"", "\"corrects\":1", "\"total\":\"0.15\""] {
        assert!(out.contains(told), "{told} in {out}");
    }
    let page = fs::read_to_string(directory.path().join("statement.html")).unwrap();
    assert!(page.contains("<h1>Statement 1<") && page.contains(">2.25 EUR<"), "{page}");
    assert!(fs::read(directory.path().join("statement.xlsx")).unwrap().starts_with(b"PK"));
    let proven = out.lines().filter(|line| line.ends_with("  ok")).count();
    assert!(proven > 15 && out.contains("statements add up"), "{out}");
}
