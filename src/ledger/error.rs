//! What can go wrong at the ledger, and which errors a retry can cure.

use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind, Error};

use crate::domain::ids::TenantId;

/// What the server says of a statement that took longer than it may.
pub(crate) const STATEMENT_TIMEOUT: &str = "statement timeout";

/// Why the ledger did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LedgerError {
    /// Postgres does not answer, answers too late, or ended the connection. The work may have been done all the same.
    #[error("the ledger does not answer: {0}")]
    Unavailable(String),
    /// Postgres answers on no connection. A retry at once would only wait as long again.
    #[error("the ledger does not answer: Postgres has been silent for seconds")]
    Silent,
    /// Another transaction was in the way; a retry helps.
    #[error("the ledger was busy with the same rows: {0}")]
    Busy(String),
    /// The entries have no partition for a month of the batch. It is created and the batch retried.
    #[error("the entries have no partition for an instant of this batch")]
    MonthMissing,
    /// The stored state is not the one that the caller expected.
    #[error("{0}")]
    Conflict(Conflict),
    /// The ledger refuses, and a retry does not help; the sentence says what to do.
    #[error("{0}")]
    Refused(String),
    /// A stored value cannot be decoded.
    #[error("the ledger holds something unreadable: {0}")]
    Damaged(String),
    /// The database refuses for a reason that the ledger does not expect.
    #[error("the database refused: {0}")]
    Database(String),
}

/// How the stored state differs from the one that the caller expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// The object has another version (none when `found` is empty).
    #[error("{kind} {id} is not at the version it was expected at: read it again and repeat the change")]
    Version {
        /// Its kind.
        kind: &'static str,
        /// Its id.
        id: String,
        /// The version it has, if it exists.
        found: Option<u64>,
    },
    /// Something other than a tenant was changed while the change was being prepared, or the ledger was set back.
    #[error("the policy has moved on to version {found}: read it again and repeat the change")]
    PolicyMoved {
        /// The version that it has.
        found: u64,
    },
    /// There is nothing with this id.
    #[error("there is no {kind} {id}")]
    Missing {
        /// Its kind.
        kind: &'static str,
        /// Its id.
        id: String,
    },
    /// Something was booked on it or refers to it, so it can only be archived.
    #[error("{kind} {id} is in use: archive it instead")]
    InUse {
        /// Its kind.
        kind: &'static str,
        /// Its id.
        id: String,
    },
    /// It exists already.
    #[error("{kind} {id} exists already")]
    Exists {
        /// Its kind.
        kind: &'static str,
        /// Its id.
        id: String,
    },
    /// So many events, calls and holds under a name wait to be booked, decided or resolved.
    #[error(
        "{0} events, calls or holds under this name wait to be booked, decided or resolved: repeat it once they are"
    )]
    NameWaits(u64),
    /// The tenant has another version than the one by which something was prepared.
    #[error("tenant {tenant} has changed meanwhile: repeat the call")]
    TenantMoved {
        /// Which tenant.
        tenant: TenantId,
        /// The version that it has.
        found: u64,
    },
    /// Another writer moved the partition's cursor first.
    #[error("another writer has booked partition {0} meanwhile")]
    CursorMoved(u16),
}

impl LedgerError {
    /// Whether a retry of the same call may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Silent | Self::Busy(_) | Self::MonthMissing)
    }

    /// Whether a statement took longer than it may.
    pub(crate) fn is_statement_timeout(&self) -> bool {
        matches!(self, Self::Unavailable(why) if why.contains(STATEMENT_TIMEOUT))
    }
}

impl From<Error> for LedgerError {
    fn from(error: Error) -> Self {
        match error {
            Error::DatabaseError(kind, information) => from_database(kind, information.as_ref()),
            Error::BrokenTransactionManager | Error::AlreadyInTransaction | Error::NotInTransaction => {
                Self::Unavailable("the connection was left in the middle of a transaction".into())
            }
            Error::DeserializationError(why) => Self::Damaged(why.to_string()),
            other => Self::Database(other.to_string()),
        }
    }
}

impl From<tokio_postgres::Error> for LedgerError {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            // The connection was ended, or the server is about to stop.
            None => Self::Unavailable(error.to_string()),
            Some(refused) if refused.code().code().starts_with("57") => {
                Self::Unavailable(refused.to_string())
            }
            Some(refused) => Self::Database(refused.to_string()),
        }
    }
}

/// Recognises a rule by its constraint and a missing month by its table. Diesel does not hand on the SQLSTATE, so other
/// errors are recognised by the server's words (C locale).
fn from_database(
    kind: DatabaseErrorKind,
    information: &(dyn DatabaseErrorInformation + Send + Sync),
) -> LedgerError {
    let message = information.message();
    match kind {
        DatabaseErrorKind::SerializationFailure => LedgerError::Busy(message.into()),
        DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection => {
            LedgerError::Unavailable(message.into())
        }
        DatabaseErrorKind::CheckViolation
            if information.constraint_name().is_none() && information.table_name() == Some("entries") =>
        {
            LedgerError::MonthMissing
        }
        DatabaseErrorKind::ReadOnlyTransaction => {
            LedgerError::Unavailable("this server only reads: it is not the primary".into())
        }
        _ => match (information.constraint_name(), failure_class(message)) {
            (Some(constraint), _) => LedgerError::Refused(sentence(constraint, message)),
            (None, FailureClass::Busy) => LedgerError::Busy(message.into()),
            (None, FailureClass::Gone) => LedgerError::Unavailable(message.into()),
            (None, FailureClass::Other) if message.starts_with("time zone") => {
                LedgerError::Refused(message.into())
            }
            (None, FailureClass::Other) => LedgerError::Database(message.into()),
        },
    }
}

enum FailureClass {
    Busy,
    Gone,
    Other,
}

fn failure_class(message: &str) -> FailureClass {
    const BUSY: [&str; 3] = ["deadlock detected", "could not serialize access", "lock timeout"];
    const GONE: [&str; 9] = [
        "terminating connection",
        STATEMENT_TIMEOUT,
        "user request",
        "the database system is",
        "too many clients",
        "remaining connection slots",
        "idle-in-transaction timeout",
        "No space left on device",
        "could not extend file",
    ];
    if BUSY.iter().any(|text| message.contains(text)) {
        FailureClass::Busy
    } else if GONE.iter().any(|text| message.contains(text)) {
        FailureClass::Gone
    } else {
        FailureClass::Other
    }
}

/// Constraints are named after the fact that they hold (`entry_amount_is_positive_and_bounded`); this says it as a
/// sentence.
fn sentence(constraint: &str, message: &str) -> String {
    format!("the ledger keeps the rule \"{}\": {message}", constraint.replace('_', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message, a table, a constraint.
    struct Information(&'static str, Option<&'static str>, Option<&'static str>);

    impl DatabaseErrorInformation for Information {
        fn message(&self) -> &str {
            self.0
        }
        fn details(&self) -> Option<&str> {
            None
        }
        fn hint(&self) -> Option<&str> {
            None
        }
        fn table_name(&self) -> Option<&str> {
            self.1
        }
        fn column_name(&self) -> Option<&str> {
            None
        }
        fn constraint_name(&self) -> Option<&str> {
            self.2
        }
        fn statement_position(&self) -> Option<i32> {
            None
        }
    }

    #[rstest::rstest]
    #[case(DatabaseErrorKind::Unknown, "deadlock detected", None, None, true)]
    #[case(DatabaseErrorKind::SerializationFailure, "could not serialize access", None, None, true)]
    #[case(
        DatabaseErrorKind::Unknown,
        "terminating connection due to administrator command",
        None,
        None,
        true
    )]
    #[case(DatabaseErrorKind::Unknown, "canceling statement due to statement timeout", None, None, true)]
    #[case(DatabaseErrorKind::Unknown, "the database system is starting up", None, None, true)]
    #[case(DatabaseErrorKind::UnableToSendCommand, "connection closed", None, None, true)]
    #[case(DatabaseErrorKind::CheckViolation, "in whichever words", Some("entries"), None, true)]
    #[case(
        DatabaseErrorKind::UniqueViolation,
        "duplicate key value",
        Some("entries"),
        Some("entries_pkey"),
        false
    )]
    #[case(
        DatabaseErrorKind::CheckViolation,
        "violates check",
        Some("entries"),
        Some("entry_amount_is_positive"),
        false
    )]
    #[case(
        DatabaseErrorKind::CheckViolation,
        "violates check",
        Some("batches"),
        Some("batch_has_rows"),
        false
    )]
    #[case(DatabaseErrorKind::Unknown, "syntax error", None, None, false)]
    fn only_what_may_pass_by_itself_is_transient(
        #[case] kind: DatabaseErrorKind,
        #[case] message: &'static str,
        #[case] table: Option<&'static str>,
        #[case] constraint: Option<&'static str>,
        #[case] transient: bool,
    ) {
        let error =
            LedgerError::from(Error::DatabaseError(kind, Box::new(Information(message, table, constraint))));
        assert_eq!(error.is_transient(), transient, "{error:?}");
    }

    #[test]
    fn a_constraint_is_told_as_a_sentence() {
        let information = Box::new(Information("violates check constraint", None, Some("batch_has_rows")));
        let error = LedgerError::from(Error::DatabaseError(DatabaseErrorKind::CheckViolation, information));
        assert!(error.to_string().contains("batch has rows"), "{error}");
    }
}
