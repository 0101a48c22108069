//! Which installation a command speaks of: never another one than the person at the keyboard means.

use std::path::Path;
use std::process::Command;

use super::{deserted_url, run, tollgate};
use crate::support::app::*;
use crate::support::process::Up;

const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef";

/// An address where nobody listens, as `address:port`.
fn deserted() -> String {
    deserted_url().trim_start_matches("http://").to_owned()
}

/// Names servers by variables, as a user's shell may.
fn configured<'a>(command: &'a mut Command, redis: &str, postgres: &str) -> &'a mut Command {
    command
        .env("TOLLGATE__REDIS__URL", format!("redis://:hush@{redis}/"))
        .env("TOLLGATE__POSTGRES__URL", format!("postgresql://tollgate:hush@{postgres}/books"))
        .env("TOLLGATE__INSTALLATION__SECRET", SECRET)
}

/// A directory that looks like that of a stopped `tollgate up`.
fn with_stopped_installation() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join(".tollgate");
    std::fs::create_dir(&data_dir).unwrap();
    std::fs::write(data_dir.join("secret"), format!("{SECRET}0123456789abcdef\n")).unwrap();
    directory
}

fn files_of(data_dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(data_dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn configured_servers_are_used_and_not_the_embedded_directory_beside_them() {
    let (redis, postgres) = (deserted(), deserted());
    for words in [&["verify"][..], &["verify", "--rebuild"], &["status"], &["quarantine", "list"]] {
        let beside = with_stopped_installation();
        let mut command = tollgate(words);
        let (code, out, error) = run(configured(&mut command, &redis, &postgres).current_dir(&beside));
        assert_eq!((code, out.as_str()), (4, ""), "{words:?}: {error}");
        let said = format!("installation: Redis at {redis}, Postgres at {postgres}/books\n");
        assert!(error.starts_with(&said), "{words:?}: {error}");
        assert!(!error.contains("hush"), "{error}");
        assert_eq!(files_of(&beside.path().join(".tollgate")), ["secret"], "{words:?}");
    }
}

#[test]
fn naming_an_embedded_directory_and_servers_too_is_refused() {
    let beside = with_stopped_installation();
    let file = beside.path().join("servers.toml");
    std::fs::write(&file, "[redis]\nurl = \"redis://127.0.0.1:1/\"\n").unwrap();
    let file = file.to_str().unwrap();
    for words in [
        &["verify", "--data-dir", ".tollgate"][..],
        &["status", "--data-dir", ".tollgate"],
        &["quarantine", "list", "--data-dir", ".tollgate"],
        &["policy", "export", "--data-dir", ".tollgate"],
        &["up", "--data-dir", ".tollgate"],
        &["up"],
    ] {
        let mut command = tollgate(words);
        let (code, _, error) = run(configured(&mut command, &deserted(), &deserted()).current_dir(&beside));
        assert_eq!(code, 2, "{words:?}: {error}");
        assert!(error.contains("redis.url (from TOLLGATE__REDIS__URL)"), "{words:?}: {error}");
        assert!(error.contains("next: "), "{words:?}: {error}");
    }
    for words in [
        &["verify", "--data-dir", ".tollgate", "--config", file][..],
        &["policy", "export", "--data-dir", ".tollgate", "--config", file],
        &["policy", "export", "--data-dir", ".tollgate", "--url", "http://127.0.0.1:1"],
        &["policy", "export", "--config", file, "--url", "http://127.0.0.1:1"],
        &["up", "--config", file],
    ] {
        let (code, _, error) = run(tollgate(words).current_dir(&beside));
        assert_eq!(code, 2, "{words:?}: {error}");
    }
    assert_eq!(files_of(&beside.path().join(".tollgate")), ["secret"]);
}

#[test]
fn a_wrong_data_directory_is_named_and_nothing_is_made_in_it() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("empty")).unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    for words in
        [&["verify"][..], &["status"], &["quarantine", "list"], &["policy", "export"], &["key", "list"]]
    {
        for wrong in ["nowhere", "empty", "file"] {
            let mut command = tollgate(words);
            let command = command.args(["--data-dir", wrong]).env("TOLLGATE_ADMIN_KEY", "tg_k_s");
            let (code, out, error) = run(command.current_dir(&directory));
            assert_eq!((code, out.as_str()), (1, ""), "{words:?} {wrong}: {error}");
            assert!(error.contains(&format!("`{wrong}`")), "{words:?} {wrong}: {error}");
            assert!(error.contains("next: name the --data-dir of a `tollgate up`"), "{words:?}: {error}");
        }
    }
    assert_eq!(files_of(directory.path()), ["empty", "file"]);
    assert!(files_of(&directory.path().join("empty")).is_empty());
}

#[test]
fn a_stopped_embedded_service_is_not_looked_for_elsewhere() {
    let beside = with_stopped_installation();
    std::fs::write(beside.path().join(".tollgate/service.json"), r#"{"url":"http://127.0.0.1:1"}"#).unwrap();
    for words in [&["policy", "export"][..], &["key", "list", "--data-dir", ".tollgate"]] {
        let (code, _, error) = run(tollgate(words).env("TOLLGATE_ADMIN_KEY", "tg_k_s").current_dir(&beside));
        assert_eq!(code, 4, "{error}");
        assert!(error.contains("no service runs in `.tollgate`"), "{error}");
        assert!(error.contains("next: start it with `tollgate up --data-dir .tollgate`"), "{error}");
    }
}

#[test]
fn a_service_is_called_where_the_configuration_lets_it_listen() {
    let beside = with_stopped_installation();
    let address = deserted();
    let mut command = tollgate(&["key", "list"]);
    configured(&mut command, &deserted(), &deserted())
        .env("TOLLGATE__HTTP__LISTEN", &address)
        .env("TOLLGATE_ADMIN_KEY", "tg_k_s");
    let (code, _, error) = run(command.current_dir(&beside));
    assert_eq!(code, 4, "{error}");
    assert!(error.starts_with(&format!("installation: the service at http://{address}\n")), "{error}");
}

/// What makes the command see the servers of a test's instance.
fn of_app(command: &mut Command, variables: &[(String, String)]) -> (i32, String, String) {
    run(command.envs(variables.iter().map(|(name, value)| (name, value))))
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_running_embedded_service_each_installation_is_reached_as_it_is_named() {
    let app = spawn_app().await;
    app.define("meters/only-there", serde_json::json!({ "unit": "page" })).await;
    let (variables, url, key) = (app.variables(), app.url().to_owned(), app.key().to_owned());
    tokio::task::spawn_blocking(move || {
        let beside = tempfile::tempdir().unwrap();
        let data_dir = beside.path().join(".tollgate");
        let up = Up::start(&data_dir, &[]);
        let data_dir = data_dir.canonicalize().unwrap();
        let here = |words: &[&str]| {
            let mut command = tollgate(words);
            command.current_dir(&beside);
            command
        };
        let embedded = format!("installation: the embedded one in {}\n", data_dir.display());
        for words in [&["verify"][..], &["status"], &["quarantine", "list"]] {
            let (code, _, error) = run(&mut here(words));
            assert_eq!((code, error.as_str()), (0, embedded.as_str()), "{words:?}");
            let (code, _, error) = of_app(&mut here(words), &variables);
            assert_eq!(code, 0, "{words:?}: {error}");
            assert!(error.starts_with("installation: Redis at "), "{words:?}: {error}");
        }
        let export = ["policy", "export"];
        let (code, policy, error) = run(here(&export).env("TOLLGATE_ADMIN_KEY", Up::KEY));
        assert_eq!(code, 0, "{error}");
        assert!(policy.contains("ocr.page") && !policy.contains("only-there"), "{policy}");
        assert_eq!(
            error,
            format!("installation: the service at {} (embedded in {})\n", up.url, data_dir.display())
        );
        let (code, policy, error) = run(here(&export).args(["--url", &url]).env("TOLLGATE_ADMIN_KEY", &key));
        assert_eq!((code, error), (0, format!("installation: the service at {url}\n")));
        assert!(policy.contains("only-there") && !policy.contains("ocr.page"), "{policy}");
        let listen = url.trim_start_matches("http://");
        let mut configured = here(&export);
        configured.env("TOLLGATE_ADMIN_KEY", &key);
        let mut variables = variables;
        variables.push(("TOLLGATE__HTTP__LISTEN".into(), listen.into()));
        let (code, policy, error) = of_app(&mut configured, &variables);
        assert_eq!(code, 0, "{error}");
        assert!(policy.contains("only-there"), "{policy}");
    })
    .await
    .unwrap();
    app.finish().await;
}

#[test]
fn a_configuration_file_beside_an_embedded_directory_is_read_for_all_but_the_servers() {
    let directory = tempfile::tempdir().unwrap();
    let (data_dir, file) = (directory.path().join("data"), directory.path().join("mine.toml"));
    std::fs::write(&file, "[gate]\npartitions = 8\n").unwrap();
    let (data_dir, file) = (data_dir.to_str().unwrap(), file.to_str().unwrap());
    let mut up = Up::start(data_dir.as_ref(), &["--config", file]);
    for words in [&["status", "--output", "json"][..], &["verify"]] {
        let (code, out, error) = run(tollgate(words).args(["--data-dir", data_dir, "--config", file]));
        assert_eq!(code, 0, "{words:?}: {error}");
        let row = "{\"name\":\"partitions\",\"value\":8}";
        assert!(words[0] == "verify" || out.replace([' ', '\n'], "").contains(row), "{out}");
    }
    let words = ["--config", file, "policy", "export", "--data-dir", data_dir];
    let (code, _, error) = run(&mut tollgate(&words));
    assert_eq!(code, 2, "a service is asked, which has its configuration: {error}");
    up.ask_to_end();
    assert!(up.child.wait().unwrap().success());
}
