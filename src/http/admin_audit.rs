//! `/v1/admin/audit`: who changed what.

use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::answer::List;
use super::list::Listing;
use super::problem::Problem;
use super::query::Query;
use super::state::State;
use crate::domain::instant::rfc3339;
use crate::operations::answers::AuditRecord;
use crate::operations::requests::{AuditFilter, AuditRequest};

/// What kinds of objects the log names.
pub(super) const KINDS: [&str; 20] = [
    "adjustment",
    "ban",
    "books",
    "cost_defaults",
    "destructive_call",
    "gate/time",
    "grant",
    "job",
    "key",
    "limit",
    "load",
    "meter",
    "operation",
    "parked",
    "plan",
    "quarantine",
    "tenant",
    "upgrade_request",
    "webhook",
    "webhook_delivery",
];

/// What is done to them.
pub(super) const ACTIONS: [&str; 17] = [
    "accept", "approve", "create", "decline", "delete", "discard", "erase", "put", "rebuild", "refuse",
    "replay", "resolve", "retry", "revoke", "rotate", "run", "void",
];

/// A change in the audit log.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
struct AuditRow {
    /// Its place in the log: later changes have higher numbers.
    number: i64,
    /// When it was made, by the database's clock.
    at: String,
    /// Who made it: the id of a key, or the operator's command.
    actor: String,
    /// `put`, `delete`, `create`, `revoke`, `accept`, `approve`, `decline`, `discard`, `erase`, `rebuild`, `replay`,
    /// `resolve`, `retry`, `rotate`, `run` or `void`; `refuse`: what was called for was not done.
    #[schema(example = "put")]
    action: String,
    /// What kind of object was changed.
    #[schema(example = "limit")]
    object_kind: String,
    /// Which one; null if there is only one of its kind.
    #[schema(example = "ocr-day")]
    object_id: Option<String>,
    /// The version that a change of policy made; null for other changes.
    version: Option<i64>,
    /// The definition before a change of policy; null if there was none.
    before: Option<Value>,
    /// The definition after a change of policy; null of a deletion.
    after: Option<Value>,
    /// Further facts, such as a reason.
    #[schema(value_type = Object)]
    detail: Value,
}

impl From<AuditRecord> for AuditRow {
    fn from(record: AuditRecord) -> Self {
        let number = |number| i64::try_from(number).unwrap_or(i64::MAX);
        Self {
            number: number(record.number),
            at: rfc3339(record.at_ms),
            actor: record.actor,
            action: record.action,
            object_kind: record.kind,
            object_id: record.id,
            version: record.version.map(number),
            before: record.before,
            after: record.after,
            detail: record.detail,
        }
    }
}

/// List who changed what: policy, tenants, keys, and decisions of operators.
#[utoipa::path(
    tag = "admin",
    params(
        ("object_kind" = Option<String>, Query, description = "Only objects of this kind."),
        ("object_id" = Option<String>, Query, description = "Only the object with this id; goes with `object_kind`."),
        ("actor" = Option<String>, Query, description = "Only changes by this key or command."),
        ("action" = Option<String>, Query, description = "Only such changes."),
        ("from" = Option<String>, Query, description = "RFC 3339, inclusive."),
        ("to" = Option<String>, Query, description = "RFC 3339, exclusive."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Changes, newest first.", body = List<AuditRow>))
)]
#[get("/v1/admin/audit")]
pub(super) async fn list_audit(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    let (from_ms, to_ms) = query.span_ms()?;
    let filter = AuditFilter {
        kind: known(&mut query, "object_kind", &KINDS)?,
        id: name(&mut query, "object_id")?,
        actor: name(&mut query, "actor")?,
        action: known(&mut query, "action", &ACTIONS)?,
        from_ms,
        to_ms,
    };
    query.finish()?;
    if filter.id.is_some() && filter.kind.is_none() {
        return Err(Problem::parameter("object_id", "goes with `object_kind`"));
    }
    let rows = state.read(state.operations.reads.list_audit(AuditRequest { filter, page })).await?;
    listing.answer(&state.cursor_key, rows.map(AuditRow::from))
}

fn known(query: &mut Query, name: &str, words: &[&'static str]) -> Result<Option<String>, Problem> {
    let words: Vec<_> = words.iter().map(|word| (*word, *word)).collect();
    Ok(query.word(name, &words)?.map(str::to_owned))
}

/// An id, as long as ids may be.
fn name(query: &mut Query, name: &str) -> Result<Option<String>, Problem> {
    let text = query.text(name);
    match text {
        Some(text) if text.is_empty() || text.chars().count() > 128 => {
            Err(Problem::parameter(name, "must have 1 to 128 characters"))
        }
        text => Ok(text),
    }
}
