//! The proof of the books: recomputes everything from the entries and names every difference.
//!
//! The books are compared in parts, each as of one instant, so that traffic goes on. The database computes sums and
//! rows are streamed, so that memory stays bounded. The gate's counters are compared elsewhere.

mod burns;
mod chains;
mod closes;
mod figures;
mod openings;
mod part;
mod rebuild;
mod reservations;
mod sales;
mod statements;

use diesel::QueryableByName;
use diesel::sql_types::Text;
use diesel_async::{AnsiTransactionManager, AsyncPgConnection, TransactionManager};

pub use self::rebuild::{Rebuilt, rebuild};

use self::part::Part;
use super::{Ledger, LedgerError};

/// What to verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Whether to rebuild the derived tables into shadows first and compare those, row by row.
    pub rebuild: bool,
    /// About how many bytes of entries to read as of one instant; at least those of one partition are.
    pub snapshot_bytes: u64,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self { rebuild: false, snapshot_bytes: 256 << 20 }
    }
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
    pub(super) fn new(what: impl Into<String>, detail: impl Into<String>) -> Self {
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
    /// What is remarkable, but not wrong: open quarantine, gaps.
    pub warnings: Vec<Fault>,
    /// Why the check was not done.
    pub skipped: Option<String>,
}

impl Check {
    pub(super) fn of(name: &'static str) -> Self {
        Self { name, checked: 0, faults: Vec::new(), warnings: Vec::new(), skipped: None }
    }

    /// Adds a fault, unless the most that are named are reached.
    pub(super) fn fault(&mut self, fault: Fault) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        }
    }
}

/// The most faults one check names.
pub(super) const FAULTS_MAX: usize = 100;

/// The result of verifying.
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

    /// Adds the results of another part of the books.
    fn add(&mut self, checks: Vec<Check>) {
        if self.checks.is_empty() {
            self.checks = checks;
            return;
        }
        for (all, more) in self.checks.iter_mut().zip(checks) {
            all.checked += more.checked;
            more.faults.into_iter().for_each(|fault| all.fault(fault));
        }
    }
}

/// Proves the books of `ledger`, or names what is wrong. Writes only temporary tables of its own session.
///
/// Errors: the ledger does not answer. A wrong answer is a fault, not an error.
pub async fn verify(ledger: &Ledger, options: VerifyOptions) -> Result<VerifyReport, LedgerError> {
    let mut connection = ledger.connection().await?;
    begin(&mut connection).await?;
    let found = overview(ledger, &mut connection, options).await;
    end(&mut connection).await?;
    let (parts, warnings) = found?;
    let mut report = VerifyReport::default();
    for part in parts {
        begin(&mut connection).await?;
        let checks = run(ledger, &mut connection, &part, options).await;
        end(&mut connection).await?;
        report.add(checks?);
    }
    if let Some(last) = report.checks.last_mut() {
        last.warnings = warnings;
    }
    Ok(report)
}

/// Begins a transaction that sees one instant. Large ledgers take longer than a service call may. The lock, taken
/// before the instant, keeps a month from being detached meanwhile.
async fn begin(connection: &mut AsyncPgConnection) -> Result<(), LedgerError> {
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL statement_timeout = 0; \
                 SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL work_mem = '64MB'; \
                 LOCK TABLE entries IN ACCESS SHARE MODE";
    Ok(AnsiTransactionManager::begin_transaction_sql(connection, begin).await?)
}

async fn end(connection: &mut AsyncPgConnection) -> Result<(), LedgerError> {
    Ok(AnsiTransactionManager::rollback_transaction(connection).await?)
}

async fn overview(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    options: VerifyOptions,
) -> Result<(Vec<Part>, Vec<Fault>), LedgerError> {
    let parts = part::read(ledger, connection, options.snapshot_bytes).await?;
    Ok((parts, figures::warnings(connection).await?))
}

async fn run(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    part: &Part,
    options: VerifyOptions,
) -> Result<Vec<Check>, LedgerError> {
    let mut checks = figures::check(connection, part, options.rebuild).await?;
    checks.push(reservations::check(connection, part).await?);
    checks.push(statements::check(connection, part).await?);
    checks.push(burns::check(connection, part).await?);
    checks.push(closes::check(connection, part).await?);
    checks.push(sales::check(connection, part).await?);
    let opened = openings::of_part(connection, part).await?;
    let (intact, kept) = chains::check(ledger, connection, part, &opened).await?;
    checks.push(intact);
    checks.push(openings::check(connection, part, &opened, &kept).await?);
    checks.push(figures::check_positions(connection, part).await?);
    Ok(checks)
}
