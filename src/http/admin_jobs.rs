//! `/v1/admin/jobs`: the jobs and their last runs.

use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::answer::{List, json};
use super::problem::Problem;
use super::query::Query;
use super::state::State;
use crate::domain::instant::rfc3339;
use crate::operations::answers::{JobState, LastRun};

/// A job: work that runs at its time.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
struct JobAnswer {
    /// Its name.
    #[schema(example = "retention")]
    name: String,
    /// When it is due next, by the service's time.
    next_due: String,
    /// When a run last ended well; null if none did.
    succeeded_at: Option<String>,
    /// Its last run; null if there was none.
    last_run: Option<JobRunAnswer>,
}

/// A run of a job.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
struct JobRunAnswer {
    /// The time for which it ran, by the service's time.
    scheduled_for: String,
    /// Which instance ran it.
    owner: String,
    /// When it began, or was taken over.
    started_at: String,
    /// When it ended; null while it runs.
    finished_at: Option<String>,
    /// Whether it ended well; null while it runs.
    succeeded: Option<bool>,
    /// The outcome in words; null while it runs.
    outcome: Option<String>,
}

impl From<JobState> for JobAnswer {
    fn from(state: JobState) -> Self {
        Self {
            name: state.name,
            next_due: rfc3339(state.next_due_ms),
            succeeded_at: state.succeeded_at_ms.map(rfc3339),
            last_run: state.last.map(JobRunAnswer::from),
        }
    }
}

impl From<LastRun> for JobRunAnswer {
    fn from(last: LastRun) -> Self {
        Self {
            scheduled_for: rfc3339(last.scheduled_for_ms),
            owner: last.owner,
            started_at: rfc3339(last.started_at_ms),
            finished_at: last.finished_at_ms.map(rfc3339),
            succeeded: last.succeeded,
            outcome: last.outcome,
        }
    }
}

/// List the jobs with their last runs, by name.
#[utoipa::path(
    tag = "admin",
    responses((status = 200, description = "Every job that an instance has planned.", body = List<JobAnswer>))
)]
#[get("/v1/admin/jobs")]
pub(super) async fn list_jobs(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    Query::of(&request)?.finish()?;
    let jobs = state.read(state.operations.reads.list_jobs()).await?;
    let data: Vec<_> = jobs.into_iter().map(JobAnswer::from).collect();
    json(HttpResponse::Ok(), &List { data, next_cursor: None, has_more: false, as_of: None })
}
