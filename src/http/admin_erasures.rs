//! `/v1/admin/tenants/{id}/erasures`: erases the names of subjects.

use actix_web::{HttpRequest, HttpResponse, post, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::json;
use super::auth::Caller;
use super::body::JsonBody;
use super::problem::{Code, Problem};
use super::query::Query;
use super::state::State;
use crate::domain::ids::{Subject, SubjectId, SubjectKind, TenantId};

/// Whose name to erase.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ErasureBody {
    /// What sort of subject.
    #[schema(example = "user")]
    kind: SubjectKind,
    /// Its name.
    #[schema(example = "user-42")]
    id: SubjectId,
}

/// What stands in the place of the name.
#[derive(Debug, Serialize, ToSchema)]
struct ErasureAnswer {
    /// Whose subject.
    tenant: String,
    /// What sort of subject.
    kind: String,
    /// What the subject is called in the books from now on; null where they do not know the name.
    #[schema(example = "erased-17")]
    pseudonym: Option<String>,
}

/// Erase a subject's name; the books keep what it used, under a number.
///
/// Deletes its bans, overrides and plan, waits until what it has done is booked, erases the name in the ledger, and
/// drops its counters at the gate. A later call under the same name is a new subject's. The name is in the body because
/// addresses are logged. It may be repeated; 409 `in_use` while the subject holds something, or events or parked calls
/// under the name wait: a ban keeps it from beginning more.
#[utoipa::path(
    tag = "admin",
    params(("id" = String, Path, description = "The tenant.")),
    request_body(content = ErasureBody),
    responses((status = 200, description = "The name is erased.", body = ErasureAnswer))
)]
#[post("/v1/admin/tenants/{id}/erasures")]
pub(super) async fn erase_subject(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
    body: JsonBody<ErasureBody>,
) -> Result<HttpResponse, Problem> {
    Query::of(&request)?.finish()?;
    let tenant =
        TenantId::parse(&id).map_err(|_| Problem::new(Code::NotFound, "There is no such tenant."))?;
    let ErasureBody { kind, id } = body.0;
    let (operations, whose, subject) =
        (state.operations.clone(), tenant.clone(), Subject { kind: kind.clone(), id });
    let erased = state
        .mutate(Box::pin(async move { operations.erasure.erase(&whose, subject, caller.actor()).await }))
        .await??;
    let answer = ErasureAnswer {
        tenant: tenant.to_string(),
        kind: kind.to_string(),
        pseudonym: erased.map(|pseudonym| pseudonym.to_string()),
    };
    json(HttpResponse::Ok(), &answer)
}
