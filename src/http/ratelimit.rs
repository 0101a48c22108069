//! `/v1/ratelimit`: whether something may be done now, without a reservation, and where a subject stands.

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use serde::de::IgnoredAny;
use utoipa::ToSchema;

use super::answer::{GateAnswer, json};
use super::auth::Caller;
use super::bodies::check::{CheckBody, ChecksBody};
use super::body::{BATCH_BYTES_MAX, BODY_BYTES_MAX, JsonText, too_large};
use super::headers;
use super::idempotency;
use super::json::{self as text, Object};
use super::problem::Problem;
use super::query::Query;
use super::reservations::Call;
use super::shapes::check::{CheckAnswer, ChecksAnswer, StatusAnswer};
use super::state::State;
use crate::domain::ids::{IdempotencyKey, Subject, SubjectId, SubjectKind};
use crate::operations::answers::Checked;
use crate::operations::requests::QuotaRequest;
use crate::operations::{FailedCheck, FieldError};

/// The most checks of one call.
const CHECKS_MAX: usize = 100;

/// One check, or several.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code, clippy::large_enum_variant, reason = "describes what is read by hand")]
enum CheckOrChecks {
    One(CheckBody),
    Several(ChecksBody),
}

/// What became of one check, or of several.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code, clippy::large_enum_variant, reason = "describes what is written by hand")]
enum CheckedOrAll {
    One(CheckAnswer),
    Several(ChecksAnswer),
}

impl Call {
    /// Counts work, if it is allowed.
    pub(super) async fn check(
        &self,
        body: CheckBody,
        key: Option<IdempotencyKey>,
    ) -> Result<GateAnswer, Problem> {
        let tenant = self.caller.tenant(body.tenant.clone())?;
        let sent = body.sent();
        let mut request = body.into_request(tenant, key)?;
        request.sees_all_tenants = self.caller.bound().is_none();
        let checked = Box::pin(self.operations.calls.check(vec![request], false)).await;
        let checked = checked.map_err(|(_, error)| sent.name(error.into()))?;
        checked.first().map_or_else(|| Err(Problem::invalid("There is no check.")), GateAnswer::of_check)
    }

    async fn check_all(&self, body: ChecksBody) -> Result<Vec<Checked>, Problem> {
        let count = body.checks.len();
        if !(1..=CHECKS_MAX).contains(&count) {
            let message = format!("must be 1 to {CHECKS_MAX} checks");
            return Err(Problem::fields(vec![FieldError::new("/checks", message)]));
        }
        let (mut requests, mut sent) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (index, Object(one)) in body.checks.into_iter().enumerate() {
            sent.push(one.sent());
            let key = one.idempotency_key.clone();
            let mut request = self
                .caller
                .tenant(one.tenant.clone())
                .and_then(|tenant| one.into_request(tenant, key))
                .map_err(|problem| at(index, problem))?;
            request.sees_all_tenants = self.caller.bound().is_none();
            requests.push(request);
        }
        let failed =
            |(index, error): FailedCheck| match index.and_then(|index| Some((index, sent.get(index)?))) {
                Some((index, sent)) => at(index, sent.name(error.into())),
                None => error.into(),
            };
        Box::pin(self.operations.calls.check(requests, body.atomic)).await.map_err(failed)
    }
}

/// The problem of this one of several checks.
fn at(index: usize, problem: Problem) -> Problem {
    problem.map_pointers(|pointer| Some(format!("/checks/{index}{pointer}")))
}

/// Whether the text of an object names several checks.
fn has_checks(body: &str) -> bool {
    body.contains("\"checks\"")
        && serde_json::from_str::<BTreeMap<String, IgnoredAny>>(body)
            .is_ok_and(|fields| fields.contains_key("checks"))
}

/// Ask whether something may be done now, and count it if it may.
///
/// Meters with `booked = false` are counted by the gate alone: nothing is held, nothing is booked, and a check that is
/// sent twice counts twice. On booked meters a check is a usage and needs an `idempotency_key`. The answer is 200
/// whether it is allowed or not. With `checks` several are decided, one after the other, or with `atomic` all or none.
#[utoipa::path(
    tag = "gate",
    params(("Idempotency-Key" = Option<String>, Header, description = "For one check of booked meters: required, here or as `idempotency_key` in the body.")),
    request_body(content = CheckOrChecks, example = json!({
        "tenant": "acme", "subjects": { "user": "user-42", "ip": "192.0.2.7" }, "operation": "api.read"
    })),
    responses((status = 200, description = "Whether it is allowed.", body = CheckedOrAll))
)]
#[post("/v1/ratelimit/check")]
pub(super) async fn check(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    body: JsonText<BATCH_BYTES_MAX>,
) -> Result<HttpResponse, Problem> {
    let call = Call::new(&state, caller);
    if has_checks(&body.0) {
        if idempotency::key_of(request.headers(), None)?.is_some() {
            return Err(Problem::invalid(
                "The Idempotency-Key header is for one check; of several, each has its own idempotency_key.",
            ));
        }
        let body: ChecksBody = text::typed(&body.0)?;
        let checked = state.mutate(Box::pin(async move { call.check_all(body).await })).await??;
        let results: Vec<_> = checked.iter().map(CheckAnswer::from).collect();
        let allowed = results.iter().all(|result| result.allowed);
        return json(HttpResponse::Ok(), &ChecksAnswer { allowed, results });
    }
    if body.0.len() > BODY_BYTES_MAX {
        return Err(too_large(BODY_BYTES_MAX));
    }
    let body: CheckBody = text::typed(&body.0)?;
    let key = idempotency::key_of(request.headers(), body.idempotency_key.clone())?;
    let answer = state.mutate(Box::pin(async move { call.check(body, key).await })).await??;
    Ok(answer.into_response(state.options.headers))
}

/// Read where a subject stands under its limits and its tenant's. Nothing is counted, and nothing is left behind.
#[utoipa::path(
    tag = "gate",
    params(
        ("subject" = String, Path, description = "The subject."),
        ("tenant" = Option<String>, Query, description = "Whose; a key bound to a tenant may leave it out."),
        ("kind" = Option<String>, Query, description = "The kind of the subject; `user` if absent."),
    ),
    responses((status = 200, description = "The limits as they stand.", body = StatusAnswer))
)]
#[get("/v1/ratelimit/status/{subject}")]
pub(super) async fn read_status(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    subject: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let tenant = caller.tenant(query.parsed("tenant")?)?;
    let kind = query.parsed::<SubjectKind>("kind")?;
    query.finish()?;
    let Some(tenant) = tenant else {
        return Err(Problem::parameter("tenant", "is required, as the key is not bound to a tenant"));
    };
    let id = SubjectId::parse(&subject).map_err(|error| Problem::parameter("subject", error))?;
    let subject = Subject { kind: kind.unwrap_or_else(SubjectKind::user), id };
    let asked = QuotaRequest { tenant, subject: Some(subject.clone()) };
    let status = state.read(state.operations.reads.read_quota(asked)).await?;
    let answer = StatusAnswer::of(&subject, &status);
    let mut response = json(HttpResponse::Ok(), &answer)?;
    headers::write_limits(response.headers_mut(), &answer.limits, state.options.headers);
    Ok(response)
}
