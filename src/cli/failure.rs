//! Why a command ends, for people and for scripts.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::app::{AppError, InstallationError};
use crate::gate::{GateError, InspectError};
use crate::ledger::{Conflict, LedgerError};
use crate::operations::OperationError;
use crate::settings::SettingsError;

/// The exit codes; `--help` explains them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It is done.
    Success = 0,
    /// It could not be done.
    Failure = 1,
    /// It was not understood.
    Usage = 2,
    /// It was done, and the books are wrong or the totals differ.
    Differs = 3,
    /// The service or a server did not answer.
    Unreachable = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Differs => 3,
            Exit::Unreachable => 4,
        })
    }
}

/// Why a command could not be done and what helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The code the process ends with.
    pub exit: Exit,
    /// What went wrong.
    pub message: String,
    /// What to do next, if that is known.
    pub remedy: Option<String>,
}

impl Failure {
    /// A failure without a known remedy; exit code 1.
    pub fn new(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failure, message: message.into(), remedy: None }
    }

    /// The same failure with another exit code.
    pub fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// The same failure with what to do next.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n  next: {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let exit = if error.chain().any(is_no_answer) { Exit::Unreachable } else { Exit::Failure };
        let failure = Self::new(said_once(&error)).exit(exit);
        if let Some(installation) = error.downcast_ref::<InstallationError>() {
            let exit = if installation.is_contradiction() { Exit::Usage } else { exit };
            return failure.exit(exit).remedy(installation.remedy());
        }
        if let Some(remedy) = error.downcast_ref::<AppError>().and_then(AppError::remedy) {
            return failure.remedy(remedy);
        }
        if let Some(remedy) = error.downcast_ref::<InspectError>().and_then(InspectError::remedy) {
            return failure.remedy(remedy);
        }
        if matches!(error.downcast_ref(), Some(LedgerError::Conflict(Conflict::Missing { .. }))) {
            return failure.remedy("`tollgate quarantine list` shows those that wait");
        }
        match error.downcast_ref::<SettingsError>() {
            Some(settings) if settings.problems.iter().any(|problem| problem.key == "redis.url") => {
                failure.remedy(
                    "configure your servers, or name the --data-dir of a `tollgate up` where the command takes one",
                )
            }
            _ => failure,
        }
    }
}

/// Whether the service or a server did not answer.
fn is_no_answer(cause: &(dyn std::error::Error + 'static)) -> bool {
    let by_system = cause.downcast_ref::<io::Error>().is_some_and(|cause| {
        matches!(cause.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
    });
    let by_gate =
        matches!(cause.downcast_ref::<GateError>(), Some(GateError::Timeout | GateError::Unavailable(_)));
    let by_ledger = matches!(
        cause.downcast_ref::<LedgerError>(),
        Some(LedgerError::Unavailable(_) | LedgerError::Silent)
    );
    let by_either = matches!(
        cause.downcast_ref::<OperationError>(),
        Some(OperationError::GateUnavailable(_) | OperationError::LedgerUnavailable(_))
    );
    by_system || by_gate || by_ledger || by_either
}

/// The causes from the outermost on, without those that the previous one already names.
fn said_once(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if said.is_empty() {
            said = cause;
        } else if !said.ends_with(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_below_is_a_service_unreachable_above() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let failure = Failure::from(anyhow::Error::new(refused).context("the ledger does not answer"));
        assert_eq!(failure.exit, Exit::Unreachable);
        assert!(failure.message.starts_with("the ledger does not answer"), "{failure}");
        assert_eq!(Failure::from(anyhow::anyhow!("no")).exit, Exit::Failure);
    }

    #[test]
    fn a_server_that_does_not_answer_is_exit_4_and_said_once() {
        let at = |address: &str| address.to_owned();
        let refused = GateError::Unavailable("Connection refused".into());
        let gate = AppError::Gate { address: at("10.0.0.5:6379"), source: refused };
        let failure = Failure::from(anyhow::Error::new(gate));
        assert_eq!(failure.exit, Exit::Unreachable);
        assert_eq!(failure.message, "Redis at 10.0.0.5:6379: Redis is not available: Connection refused");
        assert!(failure.remedy.is_some_and(|remedy| remedy.contains("redis.url")));
        let ledger = |source| AppError::Ledger { address: at("10.0.0.6:5432/tollgate"), source };
        let away = ledger(LedgerError::Unavailable("error connecting to server".into()));
        assert_eq!(Failure::from(anyhow::Error::new(away)).exit, Exit::Unreachable);
        let refused = ledger(LedgerError::Refused("another secret".into()));
        assert_eq!(Failure::from(anyhow::Error::new(refused)).exit, Exit::Failure);
    }
}
