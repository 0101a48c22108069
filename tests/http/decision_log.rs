//! What the log says of decisions.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::ratelimit::{CHECK, minute, of, with_limits};
use crate::support::app::*;
use crate::support::caller::Caller;
use crate::support::process::tollgate;
use crate::support::wait::wait_for;

/// An instance of the service in a process of its own, and the file that its log goes to.
struct Logging {
    child: Child,
    caller: Caller,
    log: tempfile::NamedTempFile,
}

impl Logging {
    async fn start(app: &TestApp, settings: &[(&str, &str)]) -> Self {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = tollgate(&["serve", "--roles", "http", "--listen", "127.0.0.1:0"]);
        command.envs(app.variables()).env("TOLLGATE__HTTP__OPS_LISTEN", "127.0.0.1:0");
        command.env("TOLLGATE__LOGS__FORMAT", "json").envs(settings.iter().copied());
        command.stdout(Stdio::piped()).stderr(File::create(log.path()).unwrap());
        let key = app.key().to_owned();
        tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let url = lines.find_map(|line| line.ok()?.strip_prefix("ready ").map(str::to_owned));
            let caller = Caller::of(&key, url.expect("it says ready"), Duration::from_secs(30));
            Self { child, caller, log }
        })
        .await
        .unwrap()
    }

    /// The log's lines with this message.
    fn lines(&self, message: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.log.path()).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["message"] == message).collect()
    }

    fn text(&self) -> String {
        fs::read_to_string(self.log.path()).unwrap()
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_logged_with_its_limits_and_no_more_than_a_hash_of_the_subject() {
    let app = spawn_app().await;
    app.with_day_of("5").await;
    let serving = Logging::start(&app, &[]).await;
    let body = pages("9").by("ada-lovelace");
    let refused = serving.caller.post(RESERVATIONS, body.clone()).await;
    assert_eq!(refused.status, 402, "{refused:?}");
    serving.caller.post(RESERVATIONS, body).await;
    let lines = wait_for("both refusals are logged", Duration::from_secs(10), async || {
        let lines = serving.lines("refused");
        (lines.len() == 2).then_some(lines)
    })
    .await;
    let line = &lines[0];
    assert_eq!(line["decision"], refused.body["decision_id"]);
    assert_eq!((&line["call"], &line["code"]), (&"reserve".into(), &"exceeds_plan".into()));
    assert_eq!((&line["tenant"], &line["refused_by"]), (&"acme".into(), &"day:consumed".into()), "{line}");
    assert!(line["subjects"].as_str().unwrap().starts_with("user:"), "{line}");
    assert_eq!(line["subjects"], lines[1]["subjects"]);
    assert!(!serving.text().contains("ada-lovelace"));
    assert!(serving.lines("admitted").is_empty());
    drop(serving);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_check_is_logged_and_counted_by_its_limit_and_a_look_is_neither() {
    let app = spawn_app().await;
    with_limits(&app, json!([minute("2")])).await;
    let serving = Logging::start(&app, &[]).await;
    let check = of("read").with("cost", "3").by("ada-lovelace");
    let refused = serving.caller.post(CHECK, check.clone()).await.expect(200);
    serving.caller.post(CHECK, check.clone().with("peek", true)).await.expect(200);
    let both = json!({ "checks": [of("read"), check], "atomic": true });
    let together = serving.caller.post(CHECK, both).await.expect(200);
    let lines = wait_for("the refusals are logged", Duration::from_secs(10), async || {
        let lines = serving.lines("refused");
        (lines.len() >= 2).then_some(lines)
    })
    .await;
    let decisions: Vec<_> = lines.iter().map(|line| &line["decision"]).collect();
    let second = &together.body["results"][1]["decision_id"];
    assert_eq!(decisions, [&refused.body["decision_id"], second], "one of two refused together refuses");
    let line = &lines[0];
    assert_eq!((&line["call"], &line["operation"]), (&"check".into(), &"read".into()), "{line}");
    assert_eq!((&line["code"], &line["refused_by"]), (&"exceeds_plan".into(), &"minute:consumed".into()));
    assert!(line["subjects"].as_str().unwrap().starts_with("user:"), "{line}");
    assert!(!serving.text().contains("ada-lovelace"));
    drop(serving);

    app.post(CHECK, of("read").with("cost", "2")).await.expect(200);
    app.post(CHECK, of("read").with("peek", true)).await.expect(200);
    app.post(CHECK, of("read")).await.expect(200);
    let metrics = app.client().get(format!("{}/metrics", app.ops_url())).send().await.unwrap();
    let line = concat!(
        "tollgate_limits_refused_total{kind=\"limit\",algorithm=\"fixed_window\",cause=\"consumed\",",
        "code=\"rate_limited\"} 1\n"
    );
    let metrics = metrics.text().await.unwrap();
    assert!(metrics.contains(line), "{metrics}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_of_the_allowed_checks_is_logged_with_the_admissions_and_a_look_is_not() {
    let app = spawn_app().await;
    with_limits(&app, json!([minute("5"), day_of("5")])).await;
    let serving = Logging::start(&app, &[("TOLLGATE__LOGS__ADMITTED_PERCENT", "100")]).await;
    let check = of("read").by("ada-lovelace");
    serving.caller.post(CHECK, check.clone()).await.expect(200);
    serving.caller.post(CHECK, check.clone().with("peek", true)).await.expect(200);
    let both = json!({ "checks": [check.clone(), check], "atomic": true });
    serving.caller.post(CHECK, both).await.expect(200);
    let submit = of("submit").with("attributes", json!({ "pages": 1 })).by("ada-lovelace");
    serving.caller.post(CHECK, submit.clone().with("peek", true)).await.expect(200);
    serving.caller.post(CHECK, submit.with("idempotency_key", "k")).await.expect(200);
    let lines = wait_for("they are logged", Duration::from_secs(10), async || {
        let lines = serving.lines("admitted");
        (lines.len() >= 4).then_some(lines)
    })
    .await;
    let calls: Vec<_> = lines.iter().map(|line| line["call"].as_str().unwrap()).collect();
    assert_eq!(calls, ["check", "check", "check", "usage"]);
    let line = &lines[0];
    assert_eq!((&line["tenant"], &line["operation"]), (&"acme".into(), &"read".into()), "{line}");
    assert!(line["subjects"].as_str().unwrap().starts_with("user:"), "{line}");
    assert!(!serving.text().contains("ada-lovelace"));
    drop(serving);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_allowed_checks_about_the_share_is_logged_that_is_asked_for() {
    let app = spawn_app().await;
    with_limits(&app, json!([minute("1000")])).await;
    let serving = Logging::start(&app, &[("TOLLGATE__LOGS__ADMITTED_PERCENT", "50")]).await;
    let sixteen = json!({ "checks": vec![of("read"); 16] });
    for _ in 0..25 {
        serving.caller.post(CHECK, sixteen.clone()).await.expect(200);
    }
    let last = serving.caller.post(CHECK, of("read").with("cost", 1001)).await.expect(200);
    assert_eq!(last.body["allowed"], json!(false), "{last:?}");
    wait_for("the last call is logged", Duration::from_secs(30), async || {
        (serving.lines("refused").len() == 1).then_some(())
    })
    .await;
    let admitted = serving.lines("admitted").len();
    // Each is drawn by itself: of 400, eight times the usual deviation from 200.
    assert!((120..=280).contains(&admitted), "{admitted} of 400");
    drop(serving);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_refusals_so_many_a_second_are_logged_and_the_next_line_counts_the_others() {
    let app = spawn_app().await;
    app.with_day_of("5").await;
    let settings =
        [("TOLLGATE__LOGS__REFUSALS_PER_SECOND", "1"), ("TOLLGATE__LOGS__ADMITTED_PERCENT", "100")];
    let serving = Logging::start(&app, &settings).await;
    serving.caller.post(RESERVATIONS, pages("1").by("ada")).await.expect(201);
    let mut refusals = 0;
    let counted = wait_for("a line counts those left out", Duration::from_secs(30), async || {
        serving.caller.post(RESERVATIONS, pages("9").by("ada")).await.expect(402);
        refusals += 1;
        let counts = serving.lines("refused");
        let left_out = |line: &Value| line["left_out"].as_u64().unwrap();
        let (logged, left_out) = (counts.len() as u64, counts.iter().map(left_out).sum::<u64>());
        (left_out > 0).then_some((logged, left_out))
    })
    .await;
    assert!(counted.0 + counted.1 <= refusals, "{counted:?} of {refusals}");
    assert_eq!(serving.lines("admitted").len(), 1);
    drop(serving);
    app.finish().await;
}
