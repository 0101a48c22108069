//! The proof of the books: everything recomputed from the entries, and every difference named.
//!
//! All figures are compared as of one instant, so that traffic may flow; sums are made by the database and rows are
//! streamed, so that memory stays bounded. The gate's counters are compared elsewhere.

mod chains;
mod figures;
mod reservations;

use diesel::QueryableByName;
use diesel::sql_types::Text;
use diesel_async::{AnsiTransactionManager, AsyncPgConnection, TransactionManager};

use super::{Ledger, LedgerError};

/// What to verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerifyOptions {
    /// Whether to rebuild the derived tables into shadows first and compare those, row by row.
    pub rebuild: bool,
}

/// One difference found.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct Fault {
    /// Which thing is wrong: a tenant, meter and period, a reservation, an entry, a batch.
    #[diesel(sql_type = Text)]
    pub what: String,
    /// How.
    #[diesel(sql_type = Text)]
    pub detail: String,
}

impl Fault {
    fn new(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { what: what.into(), detail: detail.into() }
    }
}

/// One check and what it found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// How many things.
    pub checked: u64,
    /// What is wrong; at most a hundred are named.
    pub faults: Vec<Fault>,
    /// Remarkable, but not wrong: open quarantine, gaps.
    pub warnings: Vec<Fault>,
    /// Why it was not done.
    pub skipped: Option<String>,
}

impl Check {
    fn of(name: &'static str) -> Self {
        Self { name, checked: 0, faults: Vec::new(), warnings: Vec::new(), skipped: None }
    }

    /// Names a fault, unless enough are named.
    fn fault(&mut self, fault: Fault) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        }
    }
}

/// The most faults one check names.
pub(super) const FAULTS_MAX: usize = 100;

/// What verifying came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyReport {
    /// Every check, in order.
    pub checks: Vec<Check>,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.checks.iter().all(|check| check.faults.is_empty())
    }
}

/// Proves the books of `ledger`, or names what is wrong. Writes nothing but shadows of its own session.
///
/// Errors: the ledger does not answer. What it answers wrongly is a fault, not an error.
pub async fn verify(ledger: &Ledger, options: VerifyOptions) -> Result<VerifyReport, LedgerError> {
    let mut connection = ledger.connection().await?;
    // Large ledgers take longer than any service call may.
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL statement_timeout = 0; \
                 SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL work_mem = '64MB'";
    AnsiTransactionManager::begin_transaction_sql(&mut *connection, begin).await?;
    let checks = run(ledger, &mut connection, options).await;
    AnsiTransactionManager::rollback_transaction(&mut *connection).await?;
    Ok(VerifyReport { checks: checks? })
}

async fn run(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    options: VerifyOptions,
) -> Result<Vec<Check>, LedgerError> {
    let mut checks = figures::check(connection, options.rebuild).await?;
    checks.push(reservations::check(connection).await?);
    checks.push(chains::check(ledger, connection).await?);
    checks.push(figures::check_positions(connection).await?);
    Ok(checks)
}
