//! The schema's steps, built into the binary.

use diesel_migrations::{EmbeddedMigrations, embed_migrations};

use super::{Ledger, LedgerError};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations");

impl Ledger {
    /// Applies what is missing, one instance at a time. Returns the names applied, in order. `url` must be allowed to
    /// create tables. Needs a multi-thread runtime.
    pub async fn migrate(url: &str) -> Result<Vec<String>, LedgerError> {
        pending()
    }

    /// The names of the steps not applied yet.
    pub async fn pending_migrations(url: &str) -> Result<Vec<String>, LedgerError> {
        pending()
    }

    /// Takes every step back, the last first: all data is lost. For tests.
    pub async fn revert_migrations(url: &str) -> Result<Vec<String>, LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
