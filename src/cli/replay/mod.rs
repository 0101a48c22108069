//! `tollgate replay`: drives a running service with a recorded trace of model calls.
//!
//! Each row is one job: it reserves one request, its input tokens and an estimate of its output tokens, and consumes
//! what the trace says was used. A job's key derives from the file's content, its row and the run's name, so that a
//! repeated or resumed run changes nothing twice. At the end it prints the ledger's figures beside the trace's.

mod answer;
mod caller;
mod drive;
mod job;
mod ledger;
mod pace;
mod progress;
mod setup;
mod summary;
mod tally;
mod trace;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::arguments::Connect;
use super::client::Client;
use super::connection::{Connection, Prefer};
use super::failure::{Exit, Failure};
use super::output::{self, Format, Section};
use crate::domain::ids::PlanId;

pub use job::{job_key, tenant_number};
pub use trace::{Row, Trace, TraceFacts};

use caller::Target;
use drive::Drive;
use job::JobShape;
use pace::Speed;

/// How long one call may take before it counts as lost and is repeated.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Options of `replay`.
#[derive(Debug, Clone, Args)]
pub struct ReplayArguments {
    /// The trace: columns TIMESTAMP,ContextTokens,GeneratedTokens.
    pub file: PathBuf,
    /// Over how many tenants the rows are spread: replay-001 and so on.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=999))]
    pub tenants: u16,
    /// The run's name: the same name changes nothing twice, another one is a new run.
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = run_name)]
    pub run: String,
    /// The output tokens held for each job.
    #[arg(long, value_name = "TOKENS", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub estimate: u64,
    /// Put the tenants on this plan first (needs an admin key); absent: tenants that exist stay as they are.
    #[arg(long, value_name = "ID")]
    pub plan: Option<PlanId>,
    /// `real`: as recorded; `max`: as fast as the service answers; a number: so many times faster than recorded.
    #[arg(long, default_value = "max", value_parser = Speed::parse)]
    pub speed: Speed,
    /// How many jobs (or batches of them) run at once.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub concurrency: u16,
    /// How many jobs go into one call; above 1 they are sent by `POST /v1/batch`.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub batch: u16,
    /// When a consume counts as done: once the gate has it, or once the ledger has booked it.
    #[arg(long, value_enum, default_value = "gate")]
    pub ack: AckName,
    /// Give up when nothing has moved for so long.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub give_up_seconds: u64,
    /// How long to wait for the ledger to catch up at the end.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub ledger_wait_seconds: u64,
    /// Which service.
    #[command(flatten)]
    pub connect: Connect,
}

/// Who must have a consume before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AckName {
    /// The gate.
    Gate,
    /// The ledger.
    Ledger,
}

/// Runs `replay`. Exit code 3 when the ledger's figures differ from the sums of the answers, 1 when jobs failed.
pub(super) async fn run(
    arguments: ReplayArguments,
    config: Option<&Path>,
    format: Format,
) -> Result<Exit, Failure> {
    let facts = survey(arguments.file.clone()).await?;
    let connection = Connection::find(&arguments.connect, config, Prefer::Service)?;
    let client = Client::new(&connection, ledger::READS_AT_ONCE, CALL_TIMEOUT)?;
    let target = Target::new(&connection, CALL_TIMEOUT)?;
    setup::prepare(&client, arguments.tenants, arguments.plan.as_ref()).await?;

    let shape = Arc::new(JobShape::new(&arguments, &facts));
    let done = Drive::new(&arguments, target, shape.clone(), &facts).run().await?;
    let wait = Duration::from_secs(arguments.ledger_wait_seconds);
    let booked = ledger::caught_up(&client, &shape, &done.tally, wait).await?;

    let sections: Vec<Section> = summary::sections(&facts, &done, &booked);
    output::print(&Section::render(&sections, format)?)?;
    if booked != done.tally.units {
        eprintln!(
            "error: the ledger's figures differ from what the service answered\n  next: `tollgate verify` and \
             `tollgate status` say whether the writer is behind or something was lost"
        );
        return Ok(Exit::Differs);
    }
    match done.tally.failed() {
        0 => Ok(Exit::Success),
        failed => Err(Failure::new(format!("{failed} jobs failed; the last table says why"))
            .remedy("a job that failed is tried again by the same command; one with another meaning needs another --run")),
    }
}

async fn survey(path: PathBuf) -> Result<TraceFacts, Failure> {
    tokio::task::spawn_blocking(move || TraceFacts::survey(&path))
        .await
        .map_err(|error| Failure::new(format!("the trace could not be read: {error}")))?
}

fn run_name(text: &str) -> Result<String, String> {
    let is_name = (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    is_name
        .then(|| text.to_owned())
        .ok_or_else(|| "must be 1 to 64 letters, digits, `-`, `_` or `.`".to_owned())
}
