//! `/v1/batch`: up to a thousand gate calls in one, each standing alone.

use std::collections::HashMap;
use std::sync::Arc;

use actix_web::{HttpMessage, HttpRequest, HttpResponse, post, web};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::answer::GateAnswer;
use super::auth::Caller;
use super::bodies::{ConsumeBody, ExtendBody, ReleaseBody, ReserveBody, UsageBody};
use super::body::{BATCH_BYTES_MAX, JsonText};
use super::envelope::RequestId;
use super::json;
use super::problem::Problem;
use super::reservations::Call;
use super::state::State;
use crate::domain::ids::IdempotencyKey;
use crate::operations::{FieldError, OperationError};

/// Calls of one batch at most.
const ITEMS_MAX: usize = 1_000;

/// Reservations of one batch that are worked on at once.
const CONCURRENT_MAX: usize = 32;

/// What an item calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum BatchCall {
    Reserve,
    Consume,
    Release,
    Extend,
    Usage,
}

/// One call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct BatchItem {
    /// What to call.
    call: BatchCall,
    /// The reservation; for consume, release and extend.
    id: Option<String>,
    /// Required for every item.
    #[schema(value_type = Option<String>)]
    idempotency_key: Option<IdempotencyKey>,
    /// The body of the call as it would stand alone.
    #[schema(value_type = Option<Object>)]
    body: Option<serde_json::Map<String, Value>>,
}

/// One to a thousand calls.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct BatchBody {
    /// Items of one reservation run in order, others at once.
    #[schema(value_type = Vec<BatchItem>)]
    items: Vec<Value>,
}

/// What one call came to.
#[derive(Debug, Serialize, ToSchema)]
struct BatchResult {
    /// The status the call would have alone.
    status: u16,
    /// Its answer, or its problem document.
    #[schema(value_type = Object)]
    body: Value,
}

/// The answers, in the order of the items.
#[derive(Debug, Serialize, ToSchema)]
struct BatchAnswer {
    results: Vec<BatchResult>,
}

/// A status and a JSON text.
type Outcome = (u16, Vec<u8>);

/// Make up to a thousand gate calls in one.
///
/// Each item stands alone: the answer is 200 even where items fail. Items of one reservation run in order.
#[utoipa::path(
    tag = "gate",
    request_body(content = BatchBody, example = json!({ "items": [
        { "call": "reserve", "idempotency_key": "job-1", "body": { "tenant": "acme", "operation": "ocr.submit", "attributes": { "pages": 1 } } }
    ] })),
    responses((status = 200, description = "What each item came to.", body = BatchAnswer))
)]
#[post("/v1/batch")]
pub(super) async fn batch(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    text: JsonText<BATCH_BYTES_MAX>,
) -> Result<HttpResponse, Problem> {
    let BatchBody { items } = json::typed(&text.0)?;
    if items.is_empty() || items.len() > ITEMS_MAX {
        let message = format!("must be 1 to {ITEMS_MAX} items");
        return Err(Problem::fields(vec![FieldError::new("/items", message)]));
    }
    let request_id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    let call = Arc::new(Call::new(&state, caller));
    let outcomes = state.mutate(Box::pin(run(call, items, request_id))).await?;
    Ok(HttpResponse::Ok().content_type("application/json").body(join(&outcomes)))
}

async fn run(call: Arc<Call>, items: Vec<Value>, request_id: String) -> Vec<Outcome> {
    let count = items.len();
    let request_id: Arc<str> = request_id.into();
    let groups = in_order_of_reservation(items);
    let mut finished: Vec<(usize, Outcome)> = futures::stream::iter(groups)
        .map(|group| run_group(call.clone(), group, request_id.clone()))
        .buffer_unordered(CONCURRENT_MAX)
        .collect::<Vec<_>>()
        .await
        .concat();
    finished.sort_by_key(|(index, _)| *index);
    debug_assert_eq!(finished.len(), count);
    finished.into_iter().map(|(_, outcome)| outcome).collect()
}

type Parsed = (usize, Result<BatchItem, Problem>);

/// The items that must run one after another, group by group; pointers of broken items name their place.
fn in_order_of_reservation(items: Vec<Value>) -> Vec<Vec<Parsed>> {
    let mut groups: Vec<Vec<Parsed>> = Vec::new();
    let mut group_of: HashMap<String, usize> = HashMap::new();
    for (index, item) in items.into_iter().enumerate() {
        let item = json::typed_part::<BatchItem>(item);
        let name = item.as_ref().map_or_else(|_| format!("broken {index}"), |item| group_name(item, index));
        let group = *group_of.entry(name).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push((index, item));
    }
    groups
}

/// Items of one reservation share a name: its id, or the call, tenant and key from which the id derives.
fn group_name(item: &BatchItem, index: usize) -> String {
    match (item.call, &item.id, &item.idempotency_key) {
        (BatchCall::Reserve | BatchCall::Usage, _, Some(key)) => {
            let tenant = item.body.as_ref().and_then(|body| body.get("tenant")).and_then(Value::as_str);
            format!("{:?} {} {key}", item.call, tenant.unwrap_or_default())
        }
        (_, Some(id), _) => format!("id {}", id.to_ascii_lowercase()),
        _ => format!("alone {index}"),
    }
}

async fn run_group(call: Arc<Call>, group: Vec<Parsed>, request_id: Arc<str>) -> Vec<(usize, Outcome)> {
    let mut outcomes = Vec::with_capacity(group.len());
    for (index, item) in group {
        let answer = match item {
            Ok(item) => run_item(&call, item).await,
            Err(problem) => Err(problem),
        };
        let outcome = match answer {
            Ok(answer) => (answer.status.as_u16(), answer.body),
            Err(problem) => (problem.status().as_u16(), problem.to_json(&request_id)),
        };
        outcomes.push((index, outcome));
    }
    outcomes
}

async fn run_item(call: &Call, item: BatchItem) -> Result<GateAnswer, Problem> {
    let Some(key) = item.idempotency_key else { return Err(OperationError::KeyRequired.into()) };
    let body = Value::Object(item.body.unwrap_or_default());
    let answer = match (item.call, item.id) {
        (BatchCall::Reserve, None) => reserve(call, key, body).await,
        (BatchCall::Usage, None) => record_usage(call, key, body).await,
        (BatchCall::Reserve | BatchCall::Usage, Some(_)) => {
            return Err(wrong_id("belongs to consume, release and extend only"));
        }
        (_, None) => return Err(wrong_id("is required for this call")),
        (BatchCall::Consume, Some(id)) => consume(call, &id, body).await,
        (BatchCall::Release, Some(id)) => release(call, &id, body).await,
        (BatchCall::Extend, Some(id)) => extend(call, &id, body).await,
    };
    answer.map_err(|problem| problem.map_pointers(|pointer| Some(format!("/body{pointer}"))))
}

async fn reserve(call: &Call, key: IdempotencyKey, body: Value) -> Result<GateAnswer, Problem> {
    let body: ReserveBody = json::typed_part(body)?;
    agree(&key, body.idempotency_key.as_ref())?;
    call.reserve(body, Some(key)).await
}

async fn record_usage(call: &Call, key: IdempotencyKey, body: Value) -> Result<GateAnswer, Problem> {
    let body: UsageBody = json::typed_part(body)?;
    agree(&key, body.idempotency_key().as_ref())?;
    call.record_usage(body, Some(key)).await
}

async fn consume(call: &Call, id: &str, body: Value) -> Result<GateAnswer, Problem> {
    call.consume(id, json::typed_part::<ConsumeBody>(body)?).await
}

async fn release(call: &Call, id: &str, body: Value) -> Result<GateAnswer, Problem> {
    call.release(id, json::typed_part::<ReleaseBody>(body)?).await
}

async fn extend(call: &Call, id: &str, body: Value) -> Result<GateAnswer, Problem> {
    call.extend(id, json::typed_part::<ExtendBody>(body)?).await
}

fn agree(key: &IdempotencyKey, in_body: Option<&IdempotencyKey>) -> Result<(), Problem> {
    match in_body {
        Some(other) if other != key => {
            Err(Problem::invalid("The item's idempotency_key and that of its body differ; send one of them."))
        }
        _ => Ok(()),
    }
}

fn wrong_id(message: &str) -> Problem {
    Problem::fields(vec![FieldError::new("/id", message)])
}

/// The answer around texts that are JSON already.
fn join(outcomes: &[Outcome]) -> Vec<u8> {
    let mut text = b"{\"results\":[".to_vec();
    for (index, (status, body)) in outcomes.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        text.extend_from_slice(format!("{comma}{{\"status\":{status},\"body\":").as_bytes());
        text.extend_from_slice(body);
        text.push(b'}');
    }
    text.extend_from_slice(b"]}");
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn places(items: Value) -> Vec<Vec<usize>> {
        let Value::Array(items) = items else { panic!("an array") };
        in_order_of_reservation(items)
            .into_iter()
            .map(|group| group.into_iter().map(|(index, _)| index).collect())
            .collect()
    }

    #[test]
    fn items_of_one_reservation_keep_their_order() {
        let groups = places(json!([
            { "call": "consume", "id": "A", "idempotency_key": "1", "body": {} },
            { "call": "reserve", "idempotency_key": "k", "body": { "tenant": "t" } },
            { "call": "release", "id": "a", "idempotency_key": "2", "body": {} },
            { "call": "reserve", "idempotency_key": "k", "body": { "tenant": "u" } },
            { "call": "reserve", "idempotency_key": "k", "body": { "tenant": "t" } },
            { "call": "usage", "idempotency_key": "k", "body": { "tenant": "t" } },
            { "call": "check" }
        ]));
        assert_eq!(groups, [vec![0, 2], vec![1, 4], vec![3], vec![5], vec![6]]);
    }

    #[test]
    fn a_call_that_is_not_served_is_refused_as_unknown() {
        for item in [
            json!({ "call": "check", "idempotency_key": "k" }),
            json!({ "call": "reserve", "x": 1 }),
            json!([]),
        ] {
            let problem = json::typed_part::<BatchItem>(item).unwrap_err();
            assert_eq!(problem.code(), "validation_failed");
        }
    }

    #[test]
    fn answers_are_joined_in_order() {
        let text = join(&[(201, b"{\"a\":1}".to_vec()), (422, b"{}".to_vec())]);
        let value: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            value,
            json!({ "results": [{ "status": 201, "body": { "a": 1 } }, { "status": 422, "body": {} }] })
        );
    }
}
