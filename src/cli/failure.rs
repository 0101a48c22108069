//! Why a command ends, for people and for scripts.

use std::fmt;
use std::io;
use std::process::ExitCode;

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
    /// What to do next, where that is known.
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
        let is_unreachable =
            error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|cause| {
                matches!(cause.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
            });
        let exit = if is_unreachable { Exit::Unreachable } else { Exit::Failure };
        Self::new(format!("{error:#}")).exit(exit)
    }
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
}
