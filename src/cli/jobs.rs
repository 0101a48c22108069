//! `tollgate job`: the jobs of a running service.

use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::arguments::{Connect, JobCommand};
use super::client::{Client, encoded};
use super::connection::{Connection, Prefer};
use super::failure::{Exit, Failure};
use super::output::{self, Format, Table};

const JOBS: &str = "/v1/admin/jobs";
/// How often the service is asked whether a run has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Deserialize)]
struct Job {
    name: String,
    next_due: String,
    is_asked_for: bool,
    last_run: Option<Run>,
}

#[derive(Deserialize)]
struct Run {
    started_at: String,
    finished_at: Option<String>,
    succeeded: Option<bool>,
    outcome: Option<String>,
    dry_run: bool,
    progress: Option<Progress>,
}

#[derive(Deserialize)]
struct Progress {
    done: u64,
    total: u64,
}

impl Job {
    fn result(&self) -> &'static str {
        match self.last_run.as_ref().map(|run| (run.succeeded, run.dry_run)) {
            None => "never ran",
            Some((None, false)) => "running",
            Some((None, true)) => "running dry",
            Some((Some(true), false)) => "succeeded",
            Some((Some(true), true)) => "succeeded dry",
            Some((Some(false), _)) => "failed",
        }
    }
}

/// Runs a `job` command.
pub(super) async fn run(command: JobCommand, config: Option<&Path>, format: Format) -> Result<Exit, Failure> {
    let (jobs, exit) = match command {
        JobCommand::List { connect } => (list(&client(&connect, config)?).await?, Exit::Success),
        JobCommand::Run { name, at, dry_run, wait_seconds, connect } => {
            let client = client(&connect, config)?;
            let body = json!({ "at": at.map(|at| at.to_string()), "dry_run": dry_run });
            let path = format!("{JOBS}/{}/runs", encoded(&name));
            client.call(Method::POST, &path, None, Some(body.to_string())).await?;
            let job = ended(&client, &name, Duration::from_secs(wait_seconds)).await?;
            let succeeded = job.last_run.as_ref().and_then(|run| run.succeeded) == Some(true);
            (vec![job], if succeeded { Exit::Success } else { Exit::Failure })
        }
    };
    output::print(&table(&jobs).render(format)?)?;
    Ok(exit)
}

fn client(connect: &Connect, config: Option<&Path>) -> Result<Client, Failure> {
    Client::new(&Connection::find(connect, config, Prefer::Admin)?, 1, Duration::from_secs(30))
}

async fn list(client: &Client) -> Result<Vec<Job>, Failure> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Job>,
    }
    Ok(client.get::<List>(JOBS).await?.data)
}

/// Waits until a run that began after it was asked for has ended, and shows on a terminal how far it is.
async fn ended(client: &Client, name: &str, patience: Duration) -> Result<Job, Failure> {
    let begun = Instant::now();
    let bar = ProgressBar::new(0).with_finish(ProgressFinish::AndClear);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {human_pos} of {human_len}, {eta} left") {
        bar.set_style(style);
    }
    loop {
        let found = list(client).await?.into_iter().find(|job| job.name == name);
        let job = found.ok_or_else(|| Failure::new(format!("the job {name} is no longer planned")))?;
        if !job.is_asked_for {
            return Ok(job);
        }
        let under_way = job.last_run.as_ref().filter(|run| run.finished_at.is_none());
        if let Some(Progress { done, total }) = under_way.and_then(|run| run.progress.as_ref()) {
            bar.set_length(*total);
            bar.set_position(*done);
        }
        if begun.elapsed() >= patience {
            let seconds = patience.as_secs();
            return Err(Failure::new(format!("the job {name} has not ended within {seconds} s")).remedy(
                "see that an instance with the jobs role runs; `tollgate job list` shows the outcome",
            ));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn table(jobs: &[Job]) -> Table {
    let mut table = Table::new(&["job", "next due", "last run", "started at", "finished at", "outcome"]);
    for job in jobs {
        let of = |part: fn(&Run) -> Option<&String>| {
            job.last_run.as_ref().and_then(part).cloned().unwrap_or_default()
        };
        table.row(vec![
            job.name.clone(),
            job.next_due.clone(),
            job.result().to_owned(),
            of(|run| Some(&run.started_at)),
            of(|run| run.finished_at.as_ref()),
            of(|run| run.outcome.as_ref()),
        ]);
    }
    table
}
