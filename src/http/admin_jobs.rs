//! `/v1/admin/jobs`: the jobs, their last runs, and runs that are asked for.

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::{List, json};
use super::auth::Caller;
use super::body::OptionalJsonBody;
use super::list::Listing;
use super::problem::Problem;
use super::query::{Query, Time};
use super::state::State;
use crate::domain::instant::rfc3339;
use crate::operations::answers::{JobState, LastRun};
use crate::operations::requests::Manner;

/// A job: work that runs at its time.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
struct JobAnswer {
    /// Its name.
    #[schema(example = "retention")]
    name: String,
    /// When it is due next, by the service's time.
    next_due: String,
    /// Whether a run was asked for that has not ended yet.
    is_asked_for: bool,
    /// When a run that was no dry run last ended well; null if none did.
    succeeded_at: Option<String>,
    /// Its last run, also a dry one; null if there was none.
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
    /// Whether it was a dry run, which says what would be done and does nothing.
    dry_run: bool,
    /// How far it is, about every two seconds; null for a job that does not say so.
    progress: Option<ProgressAnswer>,
}

/// How far a run is.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
struct ProgressAnswer {
    /// How much is done, such as periods that are closed.
    done: i64,
    /// Of how much, as far as it is known.
    total: i64,
}

impl From<JobState> for JobAnswer {
    fn from(state: JobState) -> Self {
        Self {
            name: state.name,
            next_due: rfc3339(state.next_due_ms),
            is_asked_for: state.is_asked_for,
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
            dry_run: last.dry_run,
            progress: last.done.zip(last.total).map(|(done, total)| ProgressAnswer { done, total }),
        }
    }
}

/// List the jobs with their last runs, by name.
#[utoipa::path(
    tag = "admin",
    params(
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Every job that an instance has planned.", body = List<JobAnswer>))
)]
#[get("/v1/admin/jobs")]
pub(super) async fn list_jobs(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    query.finish()?;
    let jobs = state.read(state.operations.jobs.page(page)).await?;
    listing.answer(&state.cursor_key, jobs.map(JobAnswer::from))
}

/// How a run is to be made.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RunBody {
    /// The instant as of which to run, RFC 3339, not in the future; only for the jobs `close` and `statements`.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    at: Option<Time>,
    /// Whether to say only what would be done; only for jobs that change the books: `close`, `statements`, `grants`,
    /// `periods` and `upgrades`.
    #[serde(default, deserialize_with = "super::json::or_default")]
    dry_run: bool,
}

/// Run a job now, whatever its time.
///
/// An instance with the jobs role takes the run; the list of jobs says when it has ended, and with what.
#[utoipa::path(
    tag = "admin",
    params(("name" = String, Path, description = "The job's name.", example = "retention")),
    request_body(content = RunBody),
    responses((status = 202, description = "The job is due; how it stands.", body = JobAnswer))
)]
#[post("/v1/admin/jobs/{name}/runs")]
pub(super) async fn run_job(
    state: web::Data<State>,
    caller: Caller,
    name: web::Path<String>,
    body: OptionalJsonBody<RunBody>,
) -> Result<HttpResponse, Problem> {
    let RunBody { at, dry_run } = body.0;
    let manner = Manner { as_of_ms: at.map(|Time(at_ms)| at_ms), dry_run };
    let (operations, actor) = (state.operations.clone(), caller.actor().to_owned());
    let asked = Box::pin(async move { operations.jobs.ask_for(&name, manner, &actor).await });
    let job = state.mutate(asked).await??;
    json(HttpResponse::Accepted(), &JobAnswer::from(job))
}
