//! `/v1/admin/webhooks`: who receives notices of quotas, and what became of the deliveries.

use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::{List, json};
use super::auth::Caller;
use super::body::{EmptyBody, JsonBody, OptionalJsonBody};
use super::list::Listing;
use super::problem::{Code, Problem};
use super::query::Query;
use super::state::State;
use crate::domain::ids::TenantId;
use crate::domain::instant::rfc3339;
use crate::domain::webhook::{DeliveryId, DeliveryState, WebhookEvent, WebhookId, WebhookUrl};
use crate::operations::FieldError;
use crate::operations::answers::{StoredDelivery, WebhookDetails};
use crate::operations::requests::{CreateWebhookRequest, DeliveriesRequest};

const STATES: &[(&str, DeliveryState)] = &[
    ("waiting", DeliveryState::Waiting),
    ("delivered", DeliveryState::Delivered),
    ("failed", DeliveryState::Failed),
];

/// A webhook to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct WebhookBody {
    /// Where the receiver is: https and public addresses, unless `webhooks.allowed_networks` contains them.
    #[schema(max_length = 2048, example = "https://example.com/hooks/tollgate")]
    url: String,
    /// What it is notified about, each once: `quota.threshold`, `quota.forecast`, `quota.resolved`.
    #[schema(min_items = 1, max_items = 3, example = json!(["quota.threshold", "quota.forecast"]))]
    events: Vec<String>,
    /// Only notices of this tenant; of all if absent.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "acme")]
    tenant: Option<TenantId>,
}

impl WebhookBody {
    fn into_request(self) -> Result<CreateWebhookRequest, Problem> {
        let (mut events, mut faults) = (Vec::new(), Vec::new());
        if self.events.is_empty() {
            faults.push(FieldError::new("/events", "must name at least one event"));
        }
        for (index, word) in self.events.iter().enumerate() {
            let message = match WebhookEvent::from_word(word) {
                Some(event) if !events.contains(&event) => {
                    events.push(event);
                    continue;
                }
                Some(_) => "comes twice".to_owned(),
                None => format!("must be one of {}", WebhookEvent::ALL.map(WebhookEvent::as_str).join(", ")),
            };
            faults.push(FieldError::new(format!("/events/{index}"), message));
        }
        match WebhookUrl::parse(&self.url) {
            Ok(url) if faults.is_empty() => Ok(CreateWebhookRequest { url, events, tenant: self.tenant }),
            Ok(_) => Err(Problem::fields(faults)),
            Err(message) => {
                faults.push(FieldError::new("/url", message));
                Err(Problem::fields(faults))
            }
        }
    }
}

/// A webhook.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
struct WebhookAnswer {
    /// Its id.
    #[schema(format = Uuid)]
    id: String,
    /// Where the receiver is.
    url: String,
    /// What it is notified about.
    events: Vec<&'static str>,
    /// Only notices of this tenant; null for all.
    tenant: Option<String>,
    /// When it was made.
    created_at: String,
    /// The key by which it was made.
    created_by: String,
    /// What its deliveries are signed with: shown once, when it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")]
    secret: Option<String>,
}

impl From<WebhookDetails> for WebhookAnswer {
    fn from(details: WebhookDetails) -> Self {
        let WebhookDetails { stored, secret } = details;
        Self {
            id: stored.id.to_string(),
            url: stored.url.as_str().to_owned(),
            events: stored.events.into_iter().map(WebhookEvent::as_str).collect(),
            tenant: stored.tenant.map(|tenant| tenant.to_string()),
            created_at: rfc3339(stored.created_at_ms),
            created_by: stored.created_by,
            secret,
        }
    }
}

/// A delivery: one notice to one webhook.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
struct DeliveryRow {
    /// Its id: the header `webhook-id` of each attempt.
    #[schema(format = Uuid)]
    id: String,
    /// `quota.threshold`, `quota.forecast` or `quota.resolved`.
    event: &'static str,
    /// Whose quota.
    tenant: String,
    /// Of which meter.
    meter: String,
    /// The start of its period.
    period_start: String,
    /// The threshold; absent for a forecast.
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<i16>,
    /// `waiting`, `delivered`, or `failed` after a day of attempts.
    status: &'static str,
    /// How often it was sent since it was made or last replayed.
    attempts: u32,
    /// When it was made.
    created_at: String,
    /// When it was last sent; null before.
    last_attempt_at: Option<String>,
    /// The status that the receiver answered then; null where it gave no answer.
    last_status: Option<u16>,
    /// Why it was not accepted then; null if it was.
    last_error: Option<String>,
    /// When it is sent next, at the earliest; null once it is delivered or failed.
    next_attempt_at: Option<String>,
}

impl From<StoredDelivery> for DeliveryRow {
    fn from(stored: StoredDelivery) -> Self {
        Self {
            id: stored.id.to_string(),
            event: stored.event.as_str(),
            tenant: stored.tenant.to_string(),
            meter: stored.meter.to_string(),
            period_start: rfc3339(stored.period_start_ms),
            percent: (stored.percent > 0).then_some(stored.percent),
            status: stored.state.as_str(),
            attempts: stored.attempts,
            created_at: rfc3339(stored.created_at_ms),
            last_attempt_at: stored.last_attempt_at_ms.map(rfc3339),
            last_status: stored.last_status,
            last_error: stored.last_error,
            next_attempt_at: stored.next_attempt_at_ms.map(rfc3339),
        }
    }
}

/// Make a webhook: notices that are raised or resolved from now on are delivered to it. Its secret is shown once.
#[utoipa::path(
    tag = "admin",
    request_body(content = WebhookBody, example = json!({
        "url": "https://example.com/hooks/tollgate", "events": ["quota.threshold", "quota.forecast"], "tenant": "acme"
    })),
    responses((status = 201, description = "The webhook, with its secret.", body = WebhookAnswer))
)]
#[post("/v1/admin/webhooks")]
pub(super) async fn create_webhook(
    state: web::Data<State>,
    caller: Caller,
    body: JsonBody<WebhookBody>,
) -> Result<HttpResponse, Problem> {
    let asked = body.0.into_request()?;
    let operations = state.operations.clone();
    let made = state
        .mutate(Box::pin(async move { operations.webhooks.create(asked, caller.actor()).await }))
        .await??;
    json(HttpResponse::Created(), &WebhookAnswer::from(made))
}

/// List webhooks without their secrets, newest first.
#[utoipa::path(
    tag = "admin",
    params(
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Webhooks.", body = List<WebhookAnswer>))
)]
#[get("/v1/admin/webhooks")]
pub(super) async fn list_webhooks(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    query.finish()?;
    let rows = state.read(state.operations.webhooks.list(page)).await?;
    listing.answer(&state.cursor_key, rows.map(WebhookAnswer::from))
}

/// Read a webhook, without its secret.
#[utoipa::path(
    tag = "admin",
    params(("id" = String, Path, description = "The webhook.")),
    responses((status = 200, description = "The webhook.", body = WebhookAnswer))
)]
#[get("/v1/admin/webhooks/{id}")]
pub(super) async fn get_webhook(
    state: web::Data<State>,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    Query::of(&request)?.finish()?;
    let webhook = state.read(state.operations.webhooks.get(webhook_id(&id)?)).await?;
    json(HttpResponse::Ok(), &WebhookAnswer::from(webhook))
}

/// Delete a webhook with its deliveries: nothing more is sent to it, except what is on its way.
#[utoipa::path(
    tag = "admin",
    params(("id" = String, Path, description = "The webhook.")),
    responses((status = 204, description = "Deleted."))
)]
#[delete("/v1/admin/webhooks/{id}")]
pub(super) async fn delete_webhook(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    Query::of(&request)?.finish()?;
    let id = webhook_id(&id)?;
    let operations = state.operations.clone();
    state.mutate(Box::pin(async move { operations.webhooks.delete(id, caller.actor()).await })).await??;
    Ok(HttpResponse::NoContent().finish())
}

/// List the deliveries of a webhook, newest first.
#[utoipa::path(
    tag = "admin",
    params(
        ("id" = String, Path, description = "The webhook."),
        ("status" = Option<String>, Query, description = "`waiting`, `delivered` or `failed`."),
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 1000; 100 if absent."),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before."),
    ),
    responses((status = 200, description = "Deliveries.", body = List<DeliveryRow>))
)]
#[get("/v1/admin/webhooks/{id}/deliveries")]
pub(super) async fn list_deliveries(
    state: web::Data<State>,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    let webhook = webhook_id(&id)?;
    let mut query = Query::of(&request)?;
    let (listing, page) = Listing::begin(&request, &mut query, &state.cursor_key, "")?;
    let in_state = query.word("status", STATES)?;
    query.finish()?;
    let asked = DeliveriesRequest { webhook, state: in_state, page };
    let rows = state.read(state.operations.webhooks.list_deliveries(asked)).await?;
    listing.answer(&state.cursor_key, rows.map(DeliveryRow::from))
}

/// Send a delivery again, under the same id, with the next run of the job `webhooks`; its day begins again.
#[utoipa::path(
    tag = "admin",
    params(
        ("id" = String, Path, description = "The webhook."),
        ("delivery" = String, Path, description = "The delivery."),
    ),
    request_body(content = EmptyBody),
    responses((status = 200, description = "It waits.", body = DeliveryRow))
)]
#[post("/v1/admin/webhooks/{id}/deliveries/{delivery}/replay")]
pub(super) async fn replay_delivery(
    state: web::Data<State>,
    caller: Caller,
    path: web::Path<(String, String)>,
    body: OptionalJsonBody<EmptyBody>,
) -> Result<HttpResponse, Problem> {
    let (id, OptionalJsonBody(EmptyBody {})) = (webhook_id(&path.0)?, body);
    let no_such = |_| Problem::new(Code::NotFound, "There is no such delivery.");
    let delivery: DeliveryId = path.1.parse().map_err(no_such)?;
    let operations = state.operations.clone();
    let replaying = async move { operations.webhooks.replay(id, delivery, caller.actor()).await };
    json(HttpResponse::Ok(), &DeliveryRow::from(state.mutate(Box::pin(replaying)).await??))
}

fn webhook_id(text: &str) -> Result<WebhookId, Problem> {
    text.parse().map_err(|_| Problem::new(Code::NotFound, "There is no such webhook."))
}
