//! `tollgate inspect`: every key that the gate writes, as text.

use serde_json::{Value, json};

use crate::support::app::*;

/// The command's exit code, standard output and standard error.
async fn inspect(app: &TestApp, words: &[&str]) -> (i32, String, String) {
    let mut command = super::tollgate(&[&["inspect"][..], words].concat());
    command.envs(app.variables());
    tokio::task::spawn_blocking(move || super::run(&mut command)).await.unwrap()
}

fn commands(app: &TestApp) -> redis::Connection {
    redis::Client::open(app.redis.url()).unwrap().get_connection().unwrap()
}

/// The only key that ends in this.
fn key(app: &TestApp, pattern: &str) -> String {
    let keys: Vec<String> = redis::cmd("KEYS").arg(pattern).query(&mut commands(app)).unwrap();
    assert_eq!(keys.len(), 1, "{pattern}: {keys:?}");
    keys[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_of_the_gate_is_printed_as_text() {
    let app = an_app().at("2026-03-10T12:00:00Z").start().await;
    let of_users = json!({ "id": "user", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "day", "capacity": "50" });
    let log = json!({ "id": "log", "meter": "page", "algorithm": "sliding_log", "window_seconds": 3600, "capacity": "50" });
    app.with_plan(json!([day_of("100"), of_users, log]), json!([quota_of("1000")])).await;
    let held = app.held(pages(7).by("ada").lasting(3600)).await;
    let done = app.hold(3).await;
    app.consume(&done, "2").await.expect(200);
    let costs = json!([{ "meter": "token", "base": "1" }]);
    app.define("operations/scan", json!({ "costs": costs, "duplicate_within_seconds": 600 })).await;
    let guarded =
        app.held(json!({ "tenant": "acme", "operation": "scan", "payload_fingerprint": "a" })).await;
    app.define("meters/call", json!({ "unit": "call", "booked": false, "without_limit": "unlimited" })).await;
    let light =
        app.held(json!({ "tenant": "acme", "meter": "call", "amount": "4", "ttl_seconds": 3600 })).await;
    let hex = |id: &str| id.replace('-', "");
    let (first, light_hex) = (hex(&guarded), hex(&light));
    let partition = key(&app, "tg1:*:state:acme").split_once("state:").unwrap().0.to_owned();
    let expected = [
        (format!("{partition}meta"), vec!["epoch", "swept", "floor"]),
        (format!("{partition}outbox"), vec!["reserve of", "consume, final of", "consumed 2", &held]),
        (
            format!("{partition}rsv:{}", hex(&held)),
            vec!["reserved", "page: held 7, consumed 0", "user ada ="],
        ),
        (
            format!("{partition}rsv:{}", hex(&done)),
            vec!["consumed", "page: held 3, consumed 2", "tombstone", "expires in, ms"],
        ),
        (format!("{partition}held:{light_hex}"), vec!["reserved", "call: held 4, consumed 0"]),
        (format!("{partition}holds"), vec!["reservations", &light_hex, "until 17731"]),
        (
            format!("{partition}state:acme"),
            vec!["restored at", "consumed 2, reserved 7", "capacity 1000 from"],
        ),
        (
            key(&app, "tg1:*:log:acme:*"),
            vec!["consumed 2, reserved 7, epoch", "consumed 0, reserved 7, made at"],
        ),
        (key(&app, "tg1:*:work:acme:*"), vec!["made at", &first]),
        (key(&app, "tg1:*:state:acme:=*"), vec!["made by", "consumed 0, reserved 7"]),
    ];
    for (key, parts) in expected {
        let (code, out, error) = inspect(&app, &[&key]).await;
        assert_eq!(code, 0, "{key}: {error}");
        for part in parts {
            assert!(out.contains(part), "{key} lacks {part}:\n{out}");
        }
    }
    let lists: Vec<String> = redis::cmd("KEYS").arg("tg1:*:due:*").query(&mut commands(&app)).unwrap();
    let mut listed = String::new();
    for list in &lists {
        listed += &inspect(&app, &[list]).await.1;
    }
    assert!(listed.contains(&hex(&held)), "{listed}");
    let (code, out, error) = inspect(&app, &[&format!("{partition}meta"), "--output", "json"]).await;
    assert_eq!(code, 0, "{error}");
    let rows: Value = serde_json::from_str(&out).unwrap();
    assert!(
        rows.as_array().unwrap().iter().any(|row| row == &json!({ "name": "floor", "value": "0" })),
        "{out}"
    );
    app.release(&held).await.expect(200);
    app.release(&light).await.expect(200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_missing_or_damaged_key_is_reported_and_nothing_is_written() {
    let app = spawn_app().await;
    app.without_limits().await;
    app.hold(1).await;
    let state = key(&app, "tg1:*:state:acme");
    let gone = state.replace("state:acme", "due:7");
    let damaged = state.replace("state:acme", "due:8");
    redis::cmd("SET").arg(&damaged).arg("no list").exec(&mut commands(&app)).unwrap();
    for (key, says, next) in [
        ("sessions:7", "`sessions:7` is no key of this installation", "name a key that begins with tg1:"),
        (&gone, "there is nothing under", "ask the ledger"),
        (&damaged, "it is a string and should be a list", "docs/OPERATIONS.md"),
    ] {
        let (code, out, error) = inspect(&app, &[key]).await;
        assert_eq!((code, out.as_str()), (1, ""), "{key}: {error}");
        assert!(error.contains(says) && error.contains("next: ") && error.contains(next), "{key}: {error}");
    }
    let field = "damaged-";
    redis::cmd("HSET").arg(&state).arg(field).arg("short").exec(&mut commands(&app)).unwrap();
    let (code, out, error) = inspect(&app, &[&state]).await;
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("cannot be decoded: too short"), "{out}");
    redis::cmd("HDEL").arg(&state).arg(field).exec(&mut commands(&app)).unwrap();
    redis::cmd("DEL").arg(&damaged).exec(&mut commands(&app)).unwrap();
    app.finish().await;
}
