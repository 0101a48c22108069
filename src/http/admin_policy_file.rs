//! `/v1/admin/policy`: a whole policy file, applied at once or not at all.

use std::collections::BTreeSet;

use actix_web::{HttpResponse, post, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::json;
use super::auth::{self, Caller};
use super::body::{JsonText, POLICY_BYTES_MAX};
use super::json;
use super::problem::Problem;
use super::state::State;
use crate::domain::objects::from_objects;
use crate::domain::policy::diff::Change;
use crate::domain::policy::document::PolicyFile;
use crate::domain::policy::edit::Prune;
use crate::operations::answers::PolicyChanges;
use crate::operations::requests::ApplyRequest;
use crate::operations::{FieldError, OperationError};

/// Where the file is in the body.
const FILE: &str = "/policy";

/// A policy file to apply.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "policy": { "plans": [{ "id": "free", "limits": [
        { "id": "ocr-day", "meter": "ocr.page", "algorithm": "calendar", "window": "day", "capacity": "1000" }] }] },
    "prune": ["limits"], "dry_run": true
}))]
pub(super) struct ApplyBody {
    /// What is created and replaced. A list given here (`limits` of a plan) must name all its stored items, unless
    /// `prune` lets others go; an absent list is left as it is.
    #[serde(deserialize_with = "from_objects")]
    policy: PolicyFile,
    /// What is deleted if the file does not name it. Tenants never are.
    #[serde(default, deserialize_with = "super::json::or_default")]
    #[schema(value_type = Vec<Prune>)]
    prune: BTreeSet<Prune>,
    /// Say what would change, and change nothing.
    #[serde(default, deserialize_with = "super::json::or_default")]
    #[schema(default = false)]
    dry_run: bool,
    /// The `digest` of an answer: exactly the changes that it named are made, or none (412).
    #[serde(default)]
    expected_digest: Option<String>,
}

/// What applying a policy file has changed, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedPolicy {
    /// The version of the policy now.
    pub version: u64,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// What names these changes and no others: sent as `expected_digest`, exactly they are made.
    pub digest: String,
    /// What changes; what stays as it is, is left out.
    pub changes: Vec<Change>,
    /// What the file says that is allowed and seldom right: a limit that tells callers apart by their IP address alone.
    #[serde(default)]
    #[schema(required = true)]
    pub warnings: Vec<FieldError>,
}

/// Apply a policy file: all of it under one version, or nothing. Everything that is wrong is named at once.
#[utoipa::path(
    tag = "admin",
    request_body = ApplyBody,
    responses(
        (status = 200, description = "What has changed, or with `dry_run` would.", body = AppliedPolicy),
        (status = 412, description = "`precondition_failed`: the changes would be others than those of `expected_digest`.",
         body = super::problem::ProblemDocument, content_type = "application/problem+json"),
    )
)]
#[post("/v1/admin/policy")]
pub(super) async fn apply_policy(
    state: web::Data<State>,
    caller: Caller,
    body: JsonText<POLICY_BYTES_MAX>,
) -> Result<HttpResponse, Problem> {
    let body: ApplyBody = json::typed(&body.0)?;
    let ApplyBody { policy, prune, dry_run, expected_digest } = body;
    if !prune.is_empty() && !dry_run {
        auth::count_destructive(&state, &caller.0, "POST /v1/admin/policy with `prune`").await?;
    }
    let request = ApplyRequest { policy, prune, dry_run, expected_digest };
    let operations = state.operations.clone();
    let applied = state
        .mutate(Box::pin(async move {
            let applied = operations.policy.apply_policy(request, caller.actor()).await;
            if applied.is_ok() && !dry_run {
                operations.plan_changes.follow_now(None).await;
            }
            applied
        }))
        .await?;
    let PolicyChanges { version, digest, changes, warnings } = applied.map_err(in_policy)?;
    let warnings = warnings.into_iter().map(|warning| warning.under(FILE)).collect();
    json(HttpResponse::Ok(), &AppliedPolicy { version, dry_run, digest, changes, warnings })
}

/// Errors point into the body, of which the file is a part.
pub(super) fn in_policy(error: OperationError) -> Problem {
    Problem::from(match error {
        OperationError::Invalid(errors) => {
            OperationError::Invalid(errors.into_iter().map(|error| error.under(FILE)).collect())
        }
        other => other,
    })
}
