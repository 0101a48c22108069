//! `/v1/admin/keys`: make, list, rotate and revoke keys.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::{List, json};
use super::auth::Caller;
use super::body::{JsonBody, OptionalJsonBody};
use super::list::Listing;
use super::problem::{Code, Problem};
use super::query::{Query, Time};
use super::state::State;
use crate::domain::ids::TenantId;
use crate::domain::instant::rfc3339;
use crate::operations::FieldError;
use crate::operations::answers::KeyDetails;
use crate::operations::requests::{CreateKeyRequest, Role, RotateKeyRequest};

const NAME_CHARACTERS_MAX: usize = 128;
/// How long a rotated key goes on working unless the call says otherwise, and the longest it may say.
const OVERLAP_SECONDS: u32 = 86_400;
const OVERLAP_SECONDS_MAX: u32 = 31_536_000;

/// A key to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreateKeyBody {
    /// For people: 1 to 128 characters.
    #[schema(example = "ocr workers")]
    name: String,
    /// What it may do.
    role: Role,
    /// The tenant it is bound to: required for the role `tenant`, refused for `admin`.
    #[schema(value_type = Option<String>, example = "acme")]
    tenant: Option<TenantId>,
    /// When it stops working (RFC 3339); never if absent.
    #[schema(value_type = Option<String>, format = DateTime, example = "2027-01-01T00:00:00Z")]
    expires_at: Option<Time>,
}

impl CreateKeyBody {
    fn into_request(self) -> Result<CreateKeyRequest, Problem> {
        let mut faults = Vec::new();
        let length = self.name.chars().count();
        if !(1..=NAME_CHARACTERS_MAX).contains(&length) || self.name.chars().any(char::is_control) {
            let message = format!("must be 1 to {NAME_CHARACTERS_MAX} characters without control characters");
            faults.push(FieldError::new("/name", message));
        }
        if !faults.is_empty() {
            return Err(Problem::fields(faults));
        }
        let expires_at_ms = self.expires_at.map(|Time(at_ms)| at_ms);
        Ok(CreateKeyRequest { name: self.name, role: self.role, tenant: self.tenant, expires_at_ms })
    }
}

/// How a key is rotated.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RotateKeyBody {
    /// How long the old key goes on working, in seconds: 0 to 31536000; a day if absent.
    #[schema(minimum = 0, maximum = 31_536_000)]
    overlap_seconds: Option<u32>,
    /// When the new key stops working (RFC 3339); never if absent.
    #[schema(value_type = Option<String>, format = DateTime, example = "2027-01-01T00:00:00Z")]
    expires_at: Option<Time>,
}

impl RotateKeyBody {
    fn into_request(self) -> Result<RotateKeyRequest, Problem> {
        let overlap_seconds = self.overlap_seconds.unwrap_or(OVERLAP_SECONDS);
        if overlap_seconds > OVERLAP_SECONDS_MAX {
            let message = format!("must be 0 to {OVERLAP_SECONDS_MAX}");
            return Err(Problem::fields(vec![FieldError::new("/overlap_seconds", message)]));
        }
        Ok(RotateKeyRequest {
            overlap: Duration::from_secs(overlap_seconds.into()),
            expires_at_ms: self.expires_at.map(|Time(at_ms)| at_ms),
        })
    }
}

/// A key, without its secret.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
struct KeyAnswer {
    /// The key's id.
    id: String,
    /// For people.
    name: String,
    /// What it may do.
    role: Role,
    /// The tenant it is bound to.
    tenant: Option<String>,
    /// When it was made.
    created_at: String,
    /// When it stops working.
    expires_at: Option<String>,
    /// When it was revoked.
    revoked_at: Option<String>,
    /// The whole key: shown once, when it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl From<KeyDetails> for KeyAnswer {
    fn from(details: KeyDetails) -> Self {
        Self {
            id: details.id,
            name: details.name,
            role: details.role,
            tenant: details.tenant.map(|tenant| tenant.to_string()),
            created_at: rfc3339(details.created_at_ms),
            expires_at: details.expires_at_ms.map(rfc3339),
            revoked_at: details.revoked_at_ms.map(rfc3339),
            key: details.key,
        }
    }
}

/// List keys without their secrets, newest first.
#[utoipa::path(
    tag = "admin",
    params(
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Keys.", body = List<KeyAnswer>))
)]
#[get("/v1/admin/keys")]
pub(super) async fn list_keys(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    query.finish()?;
    let rows = state.read(state.operations.keys.list_keys(page)).await?;
    listing.answer(&state.cursor_key, rows.map(KeyAnswer::from))
}

/// Make a key; it is shown once.
#[utoipa::path(
    tag = "admin",
    request_body(content = CreateKeyBody, example = json!({ "name": "ocr workers", "role": "service", "tenant": "acme" })),
    responses((status = 201, description = "The key, shown once.", body = KeyAnswer))
)]
#[post("/v1/admin/keys")]
pub(super) async fn create_key(
    state: web::Data<State>,
    caller: Caller,
    body: JsonBody<CreateKeyBody>,
) -> Result<HttpResponse, Problem> {
    let asked = body.0.into_request()?;
    let operations = state.operations.clone();
    let made = state
        .mutate(Box::pin(async move { operations.keys.create_key(asked, caller.actor()).await }))
        .await??;
    json(HttpResponse::Created(), &KeyAnswer::from(made))
}

/// Make a key in the place of another one, which goes on working for a while; the new one is shown once.
#[utoipa::path(
    tag = "admin",
    params(("id" = String, Path, description = "The old key's id.")),
    request_body(content = RotateKeyBody, example = json!({ "overlap_seconds": 3600 })),
    responses((status = 201, description = "The new key, shown once.", body = KeyAnswer))
)]
#[post("/v1/admin/keys/{id}/rotate")]
pub(super) async fn rotate_key(
    state: web::Data<State>,
    caller: Caller,
    id: web::Path<String>,
    body: OptionalJsonBody<RotateKeyBody>,
) -> Result<HttpResponse, Problem> {
    check_id(&id)?;
    let asked = body.0.into_request()?;
    let operations = state.operations.clone();
    let made = state
        .mutate(Box::pin(async move { operations.keys.rotate_key(&id, asked, caller.actor()).await }))
        .await??;
    json(HttpResponse::Created(), &KeyAnswer::from(made))
}

fn check_id(id: &str) -> Result<(), Problem> {
    let is_possible = id.len() <= NAME_CHARACTERS_MAX && id.bytes().all(|b| b.is_ascii_graphic());
    if is_possible { Ok(()) } else { Err(Problem::new(Code::NotFound, "There is no such key.")) }
}

/// Revoke a key everywhere, within a second.
#[utoipa::path(
    tag = "admin",
    params(("id" = String, Path, description = "The key's id.")),
    responses((status = 204, description = "Revoked."))
)]
#[delete("/v1/admin/keys/{id}")]
pub(super) async fn revoke_key(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    Query::of(&request)?.finish()?;
    check_id(&id)?;
    let operations = state.operations.clone();
    state.mutate(Box::pin(async move { operations.keys.revoke_key(&id, caller.actor()).await })).await??;
    Ok(HttpResponse::NoContent().finish())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::http::json as strict;

    #[rstest]
    #[case(r#"{}"#, Some(86_400))]
    #[case(r#"{"overlap_seconds":0,"expires_at":"2027-01-01T00:00:00Z"}"#, Some(0))]
    #[case(r#"{"overlap_seconds":31536000}"#, Some(31_536_000))]
    #[case(r#"{"overlap_seconds":31536001}"#, None)]
    #[case(r#"{"overlap_seconds":-1}"#, None)]
    #[case(r#"{"name":"n"}"#, None)]
    fn the_overlap_of_a_rotation_is_bounded(#[case] text: &str, #[case] seconds: Option<u64>) {
        let read = strict::typed::<RotateKeyBody>(text).and_then(RotateKeyBody::into_request);
        assert_eq!(read.ok().map(|request| request.overlap.as_secs()), seconds, "{text}");
    }

    #[rstest]
    #[case(r#"{"name":"n","role":"service"}"#, true)]
    #[case(r#"{"name":"n","role":"tenant","tenant":"acme","expires_at":"2027-01-01T00:00:00Z"}"#, true)]
    #[case(r#"{"name":"n","role":"admin","tenant":null,"expires_at":null}"#, true)]
    #[case(r#"{"name":"","role":"admin"}"#, false)]
    #[case(r#"{"name":"a\nb","role":"admin"}"#, false)]
    #[case(r#"{"name":"n","role":"root"}"#, false)]
    #[case(r#"{"name":"n"}"#, false)]
    #[case(r#"{"name":"n","role":"finance","expires_at":"soon"}"#, false)]
    fn a_key_body_is_checked(#[case] text: &str, #[case] sound: bool) {
        let read = strict::typed::<CreateKeyBody>(text).and_then(CreateKeyBody::into_request);
        assert_eq!(read.is_ok(), sound, "{text}");
    }
}
