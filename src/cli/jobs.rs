//! `tollgate job`: the jobs of a running service.

use std::path::Path;
use std::time::{Duration, Instant};

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
}

impl Job {
    fn result(&self) -> &'static str {
        match self.last_run.as_ref().map(|run| run.succeeded) {
            None => "never ran",
            Some(None) => "running",
            Some(Some(true)) => "succeeded",
            Some(Some(false)) => "failed",
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

/// Waits until a run that began after it was asked for has ended.
async fn ended(client: &Client, name: &str, patience: Duration) -> Result<Job, Failure> {
    let begun = Instant::now();
    loop {
        let found = list(client).await?.into_iter().find(|job| job.name == name);
        let job = found.ok_or_else(|| Failure::new(format!("the job {name} is no longer planned")))?;
        if !job.is_asked_for {
            return Ok(job);
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
