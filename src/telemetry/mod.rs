//! Log lines and metrics. Neither ever contains a secret, and no metric names a tenant or a subject.

mod booking;
mod handles;
pub mod labels;
mod metrics;
mod text_format;

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{IsTerminal, stderr},
    panic,
};

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

pub use self::metrics::Metrics;
use crate::settings::{LogFormat, LogSettings};

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `logs.level` is not a filter.
    #[error("logs.level: {0}: give a level such as info, or info,tollgate::gate=debug")]
    Level(#[from] tracing_subscriber::filter::ParseError),
    /// Logging was set up before in this process.
    #[error("logging is already set up in this process: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Sends log lines to standard error, in UTC, and panics among them. Once a process.
///
/// # Errors
/// `logs.level` cannot be understood, or logging was set up before.
pub fn start_logs(settings: &LogSettings) -> Result<(), TelemetryError> {
    let filter = EnvFilter::builder().parse(&settings.level)?;
    let registry = tracing_subscriber::registry().with(filter);
    if is_pretty(settings.format, stderr().is_terminal()) {
        registry.with(fmt::layer().with_writer(stderr).compact()).try_init()?;
    } else {
        // JSON escapes line ends, so that no text from outside can forge a line.
        registry.with(fmt::layer().with_writer(stderr).json().flatten_event(true)).try_init()?;
    }
    log_panics();
    Ok(())
}

/// `auto` is pretty for people and JSON for everything else.
fn is_pretty(format: LogFormat, terminal: bool) -> bool {
    match format {
        LogFormat::Auto => terminal,
        LogFormat::Pretty => true,
        LogFormat::Json => false,
    }
}

/// Logs a panic of any thread or task, with its place and, if RUST_BACKTRACE asks for it, a backtrace.
fn log_panics() {
    panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let backtrace = Backtrace::capture();
        let way = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        tracing::error!(
            text = text.unwrap_or("no text"),
            place,
            backtrace = way,
            thread = std::thread::current().name(),
            "panic"
        );
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_pretty_on_a_terminal_only_unless_told() {
        for (format, terminal, pretty) in [
            (LogFormat::Auto, true, true),
            (LogFormat::Auto, false, false),
            (LogFormat::Pretty, false, true),
            (LogFormat::Json, true, false),
        ] {
            assert_eq!(is_pretty(format, terminal), pretty, "{format:?}, terminal: {terminal}");
        }
    }
}
