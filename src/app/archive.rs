//! An operator's commands on months of entries: let them leave the books, and prove their files.

use std::path::{Path, PathBuf};

use chrono::NaiveDate;

use super::installation::Target;
use super::operator::{Reached, named};
use super::options::{CheckLine, MonthLine};
use crate::ledger::{DetachOptions, MonthOfEntries, VerifyOptions, check_archive, verify};

/// Which months leave, and where to.
#[derive(Debug, Clone)]
pub struct DetachMonths {
    /// Only months before this one, by its first day.
    pub before: NaiveDate,
    /// Where the files go.
    pub directory: PathBuf,
    /// Only say what would leave.
    pub dry_run: bool,
}

/// Verifies the books, then lets months leave them, the oldest first.
///
/// Errors: a check of the books found a fault, a file cannot be written, or the user of the connection does not own the
/// tables.
pub async fn detach(target: Target, months: DetachMonths) -> anyhow::Result<Vec<MonthLine>> {
    let reached = Reached::reach(target).await?.by_its_clock().await?;
    let done = detach_here(&reached, months).await;
    reached.leave().await?;
    Ok(done?.into_iter().map(line).collect())
}

async fn detach_here(reached: &Reached, months: DetachMonths) -> anyhow::Result<Vec<MonthOfEntries>> {
    let DetachMonths { before, directory, dry_run } = months;
    let app = &reached.app;
    if !dry_run {
        anyhow::ensure!(directory.is_dir(), "{} is no directory", directory.display());
        let books = verify(&app.ledger, VerifyOptions::default()).await?;
        let fault = books.checks.iter().flat_map(|check| &check.faults).next();
        if let Some(fault) = fault {
            anyhow::bail!(
                "the books have a fault, and nothing leaves them before it is explained: {}",
                named(fault)
            );
        }
    }
    let options = DetachOptions {
        before,
        kept_months: reached.settings.ledger.entries_kept_months,
        now_ms: app.operations.now_ms(),
        directory,
        dry_run,
    };
    Ok(app.ledger.detach_months(&options).await?)
}

fn line(month: MonthOfEntries) -> MonthLine {
    MonthLine {
        month: month.month.format("%Y-%m").to_string(),
        entries: month.entries,
        kept: month.kept,
        manifest: month.manifest.map(|path| path.display().to_string()),
        waits: month.waits,
    }
}

/// Proves the file of a month that has left, by its manifest.
///
/// Errors: a file cannot be read, or the ledger does not answer.
pub async fn verify_archive(target: Target, manifest: &Path) -> anyhow::Result<CheckLine> {
    let reached = Reached::reach(target).await?;
    let check = check_archive(&reached.app.ledger, manifest).await;
    reached.leave().await?;
    let check = check?;
    Ok(CheckLine {
        name: check.name.to_owned(),
        checked: check.checked,
        faults: check.faults.iter().map(named).collect(),
        skipped: None,
    })
}
