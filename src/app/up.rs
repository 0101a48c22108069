//! `tollgate up`: a whole installation from nothing, on private servers under one directory.

use std::fs;
use std::path::Path;
use std::time::Duration;

use secrecy::ExposeSecret;

use super::demo::{DEMO_TENANT, write_demo_policy};
use super::installation::check_no_servers;
use super::options::{Role, UpOptions};
use super::running::App;
use super::serve::{StopSignals, stop_or_leave};
use crate::clock::Clock;
use crate::embedded::Embedded;
use crate::ledger::Ledger;
use crate::settings::{Settings, key_from_environment};
use crate::telemetry;

/// The file in which a running `up` says where it serves, for the other commands.
pub const SERVICE_FILE: &str = "service.json";

/// How long the servers may take to end in order: with the service's own stop, less than ten seconds. A server killed
/// after that loses nothing that it had made durable.
const SERVERS_PATIENCE: Duration = Duration::from_millis(2_500);

/// Starts private servers, migrates, writes the demo policy, and serves until SIGINT or SIGTERM. Prints the ready line,
/// the first admin key once, and a curl line that works when pasted.
///
/// Errors: a server is not installed or does not start, the directory is in use, a port is taken.
pub async fn up(options: UpOptions) -> anyhow::Result<()> {
    check_no_servers(options.config.as_deref())?;
    let data_dir = options.data_dir.clone();
    let embedded = tokio::task::spawn_blocking(move || Embedded::start(&data_dir)).await??;
    // A killed run leaves its announcement.
    withdraw(embedded.path());
    let outcome = serve_embedded(&options, &embedded).await;
    withdraw(embedded.path());
    tokio::task::spawn_blocking(move || embedded.stop_within(SERVERS_PATIENCE)).await??;
    outcome
}

async fn serve_embedded(options: &UpOptions, embedded: &Embedded) -> anyhow::Result<()> {
    let settings = settings_of(options, embedded)?;
    telemetry::start_logs(&settings.logs)?;
    tracing::info!(embedded = %embedded.path().display(), "installation");
    Ledger::migrate(settings.postgres.url.expose_secret()).await?;
    let clock = options.test_clock.map_or_else(Clock::system, |start| Clock::test(start.as_millisecond()));
    let app = App::start(&settings, clock, &[Role::Http, Role::Writer, Role::Jobs]).await?;
    let given = key_from_environment(&["TOLLGATE_ADMIN_KEY"]);
    let new_key = app.operations.keys.ensure_admin_key(given.as_ref().map(|key| key.expose_secret())).await?;
    let has_demo = !options.no_demo && write_demo_policy(&app.operations).await?;
    let mut signals = StopSignals::hear()?;
    announce(&app, embedded.path())?;
    welcome(&app, new_key.as_deref(), has_demo);
    signals.next().await;
    stop_or_leave(app, signals).await
}

/// The settings of a running or stopped embedded installation: as configured, with its private servers and secret.
pub(super) fn settings_of(options: &UpOptions, embedded: &Embedded) -> anyhow::Result<Settings> {
    let mut given = embedded.settings();
    given.push(("http.ops_listen".to_owned(), "127.0.0.1:0".to_owned()));
    given.extend(options.listen.map(|listen| ("http.listen".to_owned(), listen.to_string())));
    Ok(Settings::of_process(options.config.as_deref(), given)?)
}

fn announce(app: &App, data_dir: &Path) -> anyhow::Result<()> {
    let text = serde_json::json!({ "url": app.url(), "ops_url": app.ops_url() }).to_string();
    fs::write(data_dir.join(SERVICE_FILE), text)?;
    Ok(())
}

/// Removes the announcement, if there is one.
fn withdraw(data_dir: &Path) {
    let _ = fs::remove_file(data_dir.join(SERVICE_FILE));
}

fn welcome(app: &App, new_key: Option<&str>, has_demo: bool) {
    let url = app.url();
    println!("ready {url}");
    if let Some(key) = new_key {
        println!("admin key (shown once, keep it): {key}");
    }
    if has_demo {
        let key = new_key.unwrap_or("$TOLLGATE_ADMIN_KEY");
        println!("try it:");
        println!(
            "  curl -s {url}/v1/reservations -H \"Authorization: Bearer {key}\" -H 'Content-Type: application/json' \
             -d '{{\"tenant\":\"{DEMO_TENANT}\",\"subject\":\"user-42\",\"operation\":\"ocr.submit\",\"attributes\":{{\"pages\":3}}}}'"
        );
    }
    println!("browse: {url}/docs   metrics: {}/metrics", app.ops_url());
}
