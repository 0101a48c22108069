//! `tollgate serve`, `migrate` and `config check`: against configured servers.

use std::path::PathBuf;

use secrecy::ExposeSecret;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::installation::{Servers, say_installation};
use super::options::ServeOptions;
use super::running::{App, AppError};
use crate::clock::Clock;
use crate::ledger::{Ledger, Migrated};
use crate::settings::{Environment, Settings, key_from_environment};
use crate::telemetry;

/// Runs an instance against the configured servers until SIGINT or SIGTERM. `TOLLGATE_ADMIN_KEY` becomes an admin key
/// unless there is one with its id.
///
/// Errors: settings, servers that are missing or unsafe, a schema that is not migrated, a port that is taken.
pub async fn serve(options: ServeOptions) -> anyhow::Result<()> {
    let settings = load(options.config, options.listen)?;
    telemetry::start_logs(&settings.logs)?;
    let servers = Servers::of(&settings);
    tracing::info!(redis = servers.redis, postgres = servers.postgres, "installation");
    if options.test_clock.is_some() && settings.environment != Environment::Sandbox {
        anyhow::bail!("--test-clock is refused: set environment = \"sandbox\" in the configuration first");
    }
    let clock = options.test_clock.map_or_else(Clock::system, |start| Clock::test(start.as_millisecond()));
    let app = App::start(&settings, clock, &options.roles).await?;
    // The first key of an installation cannot be made through the API.
    if let Some(given) = key_from_environment(&["TOLLGATE_ADMIN_KEY"]) {
        app.operations.keys.ensure_admin_key(Some(given.expose_secret())).await?;
    }
    let mut signals = StopSignals::hear()?;
    let url = if app.url().is_empty() { app.ops_url() } else { app.url() };
    println!("ready {url}");
    signals.next().await;
    stop_or_leave(app, signals).await
}

/// Stops in order; a second signal leaves at once, which loses nothing that was acknowledged.
pub(super) async fn stop_or_leave(app: App, mut signals: StopSignals) -> anyhow::Result<()> {
    tokio::select! {
        () = app.stop() => {}
        () = signals.next() => {}
    }
    Ok(())
}

/// Brings the ledger's schema up to date, and gives the service's roles their rights.
pub async fn migrate(config: Option<PathBuf>) -> anyhow::Result<Migrated> {
    let settings = load(config, None)?;
    say_installation(Servers::of(&settings));
    let migrated = Ledger::migrate(settings.postgres.url.expose_secret()).await;
    migrated.map_err(|source| AppError::ledger(&settings, source).into())
}

/// The effective configuration, or why it cannot be used.
pub fn config_check(config: Option<PathBuf>) -> anyhow::Result<Settings> {
    let settings = load(config, None)?;
    say_installation(Servers::of(&settings));
    Ok(settings)
}

/// The settings of this process.
pub(super) fn load(
    config: Option<PathBuf>,
    listen: Option<std::net::SocketAddr>,
) -> anyhow::Result<Settings> {
    let listen = listen.map(|listen| ("http.listen".to_owned(), listen.to_string()));
    Ok(Settings::of_process(config.as_deref(), listen.into_iter().collect())?)
}

/// SIGINT and SIGTERM, caught from construction on: one that comes before the wait begins is not lost, and does not end
/// the process out of order.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    pub(super) fn hear() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Resolves at the next signal.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        tracing::info!("asked to stop: finishing calls under way");
    }
}
