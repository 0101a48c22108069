//! `tollgate parked …`: calls taken while the gate was away that it will never take.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Subcommand, ValueEnum};

use super::arguments::Place;
use super::failure::{Exit, Failure};
use super::local::target;
use super::output::{self, Format, Table};
use super::prompt;
use crate::app::{self, ParkedAction};
use crate::operations::ConflictChoice;

/// `parked …`.
#[derive(Debug, Subcommand)]
pub enum ParkedCommand {
    /// Show the calls in conflict: what each said, and what of that the books do not have.
    List(Place),
    /// Settle one, once and for all.
    Resolve {
        /// Its number, as the list shows it.
        number: i64,
        /// How to settle it.
        #[arg(long = "as", value_enum)]
        choice: Choice,
        /// Why, for the audit log.
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        reason: String,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        /// Which installation.
        #[command(flatten)]
        place: Place,
    },
}

/// How a conflict is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// Books nothing of it.
    Drop,
    /// Books what it said was used and is not booked, as usage now.
    Usage,
    /// Gives a consume or release to the gate once more.
    Retry,
}

impl Choice {
    fn parts(self) -> (ConflictChoice, &'static str) {
        match self {
            Self::Drop => (ConflictChoice::Drop, "Nothing of this call will ever be booked. Drop it?"),
            Self::Usage => (
                ConflictChoice::Usage,
                "The part of this call that is not booked becomes usage now. Book it?",
            ),
            Self::Retry => (ConflictChoice::Retry, "The gate gets this call once more. Try it again?"),
        }
    }
}

pub(super) async fn run(
    command: ParkedCommand,
    config: Option<PathBuf>,
    format: Format,
) -> Result<Exit, Failure> {
    let (place, action) = match command {
        ParkedCommand::List(place) => (place, ParkedAction::List),
        ParkedCommand::Resolve { number, choice, reason, yes, place } => {
            let (choice, question) = choice.parts();
            prompt::confirm(question, yes)?;
            (place, ParkedAction::Resolve { number, choice, reason })
        }
    };
    let report = app::parked(target(place, config)?, action).await?;
    for booked in report.booked {
        eprintln!("booked as usage: {booked}");
    }
    let mut table =
        Table::new(&["number", "tenant", "reservation", "call", "taken at", "said", "not booked", "reason"]);
    for line in report.conflicts {
        table.row([
            line.number.to_string(),
            line.tenant,
            line.reservation,
            line.call,
            line.taken_at,
            line.said,
            line.missing,
            line.reason,
        ]);
    }
    output::print(&table.render(format)?)?;
    Ok(Exit::Success)
}
