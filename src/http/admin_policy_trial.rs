//! `/v1/admin/policy/test`: what a policy file would have refused of what is recorded.

use std::collections::BTreeSet;

use actix_web::{HttpResponse, post, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::admin_policy_file::in_policy;
use super::answer::json;
use super::auth::Caller;
use super::body::{JsonText, POLICY_BYTES_MAX};
use super::json;
use super::problem::Problem;
use super::state::State;
use crate::domain::ids::TenantId;
use crate::domain::instant::{Instant, rfc3339};
use crate::domain::objects::from_objects;
use crate::domain::policy::document::PolicyFile;
use crate::domain::policy::edit::Prune;
use crate::operations::OperationError;
use crate::operations::answers::{TrialResult, TrialRow};
use crate::operations::requests::TrialRequest;

/// A policy file to try on the recorded decisions of sampled tenants.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "policy": { "plans": [{ "id": "free", "limits": [
        { "id": "ocr-day", "meter": "ocr.page", "algorithm": "calendar", "window": "day", "capacity": "800" }] }] },
    "since": "2026-11-22T00:00:00Z", "tenants": ["acme"]
}))]
pub(super) struct TrialBody {
    /// As for applying it.
    #[serde(deserialize_with = "from_objects")]
    policy: PolicyFile,
    /// As for applying it.
    #[serde(default, deserialize_with = "super::json::or_default")]
    #[schema(value_type = Vec<Prune>)]
    prune: BTreeSet<Prune>,
    /// From when decisions are tried.
    #[schema(value_type = String, format = DateTime)]
    since: Instant,
    /// Until when, exclusive; absent: until now.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    until: Option<Instant>,
    /// Only these tenants; absent: all of which decisions are recorded.
    #[serde(default, deserialize_with = "super::json::or_default")]
    #[schema(value_type = Vec<String>)]
    tenants: BTreeSet<TenantId>,
    /// The `next_tenant` of the answer before.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    after: Option<TenantId>,
}

/// What a policy file would have refused of what is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TriedPolicy {
    /// From when decisions were tried.
    pub since: String,
    /// Until when, exclusive.
    pub until: String,
    /// How many tenants were tried.
    pub tenants: u64,
    /// How many decisions about reserves, usages and checks were tried; dry runs are none.
    pub decisions: u64,
    /// How many of them were refused when they were recorded.
    pub refused_then: u64,
    /// How many of them the file refuses.
    pub refused: u64,
    /// How many of those were admitted then.
    pub newly_refused: u64,
    /// How many the file admits that were refused then.
    pub newly_admitted: u64,
    /// How many the file cannot decide, as it lacks a meter, or too many limits apply.
    pub undecidable: u64,
    /// What it refuses, by tenant, limit and hour. A decision that several limits refuse is in the row of each.
    pub data: Vec<TriedRow>,
    /// Tenants that were asked for and are not sampled: nothing is recorded of them.
    pub not_sampled: Vec<String>,
    /// Whether there may be more: ask again with `after`.
    pub has_more: bool,
    /// The last tenant that was tried, if there may be more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_tenant: Option<String>,
}

/// What one limit refuses of one tenant in one hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TriedRow {
    /// The limit; `quota:` and the meter, `interval:` and the operation, or `without_limit:` and the meter.
    pub limit: String,
    /// The tenant.
    pub tenant: String,
    /// When the hour begins, in UTC.
    pub hour: String,
    /// How many decisions.
    pub refused: u64,
    /// How many of them were admitted then.
    pub admitted_then: u64,
    /// The first of them.
    pub first_decision: String,
}

impl From<TrialResult> for TriedPolicy {
    fn from(tried: TrialResult) -> Self {
        let counts = tried.counts;
        Self {
            since: rfc3339(tried.since_ms),
            until: rfc3339(tried.until_ms),
            tenants: counts.tenants,
            decisions: counts.decisions,
            refused_then: counts.refused_then,
            refused: counts.refused,
            newly_refused: counts.newly_refused,
            newly_admitted: counts.newly_admitted,
            undecidable: counts.undecidable,
            data: tried.rows.into_iter().map(TriedRow::from).collect(),
            not_sampled: tried.unsampled.iter().map(TenantId::to_string).collect(),
            has_more: tried.next.is_some(),
            next_tenant: tried.next.map(|tenant| tenant.to_string()),
        }
    }
}

impl From<TrialRow> for TriedRow {
    fn from(row: TrialRow) -> Self {
        Self {
            limit: row.limit,
            tenant: row.tenant.to_string(),
            hour: rfc3339(row.hour_ms),
            refused: row.refused,
            admitted_then: row.admitted_then,
            first_decision: row.first.to_string(),
        }
    }
}

/// Try a policy file on the recorded decisions of sampled tenants: whom would it have refused? Nothing is changed.
#[utoipa::path(
    tag = "admin",
    request_body = TrialBody,
    responses((status = 200, description = "What it would have refused.", body = TriedPolicy))
)]
#[post("/v1/admin/policy/test")]
pub(super) async fn try_policy(
    state: web::Data<State>,
    _: Caller,
    body: JsonText<POLICY_BYTES_MAX>,
) -> Result<HttpResponse, Problem> {
    let body: TrialBody = json::typed(&body.0)?;
    // What was decided in this millisecond counts too.
    let now_ms = state.operations.now_ms().saturating_add(1);
    let (since_ms, until_ms) = (body.since.ms(), body.until.map_or(now_ms, Instant::ms));
    if since_ms >= until_ms {
        return Err(OperationError::field("/since", "must be before the end").into());
    }
    let request = TrialRequest {
        policy: body.policy,
        prune: body.prune,
        since_ms,
        until_ms,
        tenants: body.tenants,
        after: body.after,
    };
    let tried = Box::pin(state.operations.policy.try_policy(request)).await.map_err(in_policy)?;
    json(HttpResponse::Ok(), &TriedPolicy::from(tried))
}
