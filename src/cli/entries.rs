//! `tollgate entries …`: months of entries that leave the books.

use std::path::PathBuf;

use chrono::NaiveDate;
use clap::Subcommand;

use super::arguments::Place;
use super::failure::{Exit, Failure};
use super::local::target;
use super::output::{self, Format, Table};
use super::prompt;
use crate::app::{self, DetachMonths};

/// `entries …`.
#[derive(Debug, Subcommand)]
pub enum EntriesCommand {
    /// Export and detach the months that are older than `ledger.entries_kept_months`.
    Detach {
        /// Only months before this one, such as 2016-01.
        #[arg(long, value_name = "MONTH", value_parser = month)]
        before: NaiveDate,
        /// An existing directory for the files: of each month its entries and a manifest.
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
        /// Only show which months would leave.
        #[arg(long)]
        dry_run: bool,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        /// Which installation.
        #[command(flatten)]
        place: Place,
    },
}

fn month(text: &str) -> Result<NaiveDate, String> {
    NaiveDate::parse_from_str(&format!("{text}-01"), "%Y-%m-%d")
        .map_err(|_| "is no month, such as 2016-01".into())
}

/// Runs the command.
pub(super) async fn run(
    command: EntriesCommand,
    config: Option<PathBuf>,
    format: Format,
) -> Result<Exit, Failure> {
    let EntriesCommand::Detach { before, to, dry_run, yes, place } = command;
    if !dry_run {
        prompt::confirm("Entries that leave are then in the files only. Detach them?", yes)?;
    }
    let months = DetachMonths { before, directory: to, dry_run };
    let mut table = Table::new(&["month", ">entries", ">kept", "result"]);
    for month in app::detach(target(place, config)?, months).await? {
        let result = match (month.waits, month.manifest) {
            (Some(why), _) => format!("waits: {why}"),
            (None, Some(manifest)) => manifest,
            (None, None) => "would leave".to_owned(),
        };
        table.row([month.month, month.entries.to_string(), month.kept.to_string(), result]);
    }
    output::print(&table.render(format)?)?;
    Ok(Exit::Success)
}
