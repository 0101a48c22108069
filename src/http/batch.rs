//! `/v1/batch`: up to a thousand independent gate calls in one.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use actix_web::{HttpMessage, HttpRequest, HttpResponse, post, web};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::answer::GateAnswer;
use super::auth::Caller;
use super::batch_item::{BatchItem, Item, in_body};
use super::body::{BATCH_BYTES_MAX, JsonText};
use super::envelope::RequestId;
use super::json;
use super::problem::Problem;
use super::reservations::Call;
use super::state::State;
use crate::operations::{Calls, FieldError};

/// The most calls of one batch.
const ITEMS_MAX: usize = 1_000;

/// How many reservations of one batch run at once.
const CONCURRENT_MAX: usize = 32;

/// One to a thousand calls.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct BatchBody<'a> {
    /// Items of one reservation run in order, others at once.
    #[serde(borrow)]
    #[schema(value_type = Vec<BatchItem>, min_items = 1, max_items = 1_000)]
    items: Vec<&'a RawValue>,
}

/// The outcome of one call.
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
/// Items are independent: the answer is 200 even if items fail. Items of one reservation run in order.
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
    let call = Arc::new(Call::new(&state, caller));
    let items = items.into_iter().map(Item::read);
    let groups = in_order_of_reservation(items, |item| item.reservation(&call));
    let request_id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    let work = Calls::together(run(call, groups, request_id.into()));
    let outcomes = state.mutate(Box::pin(work)).await?;
    Ok(HttpResponse::Ok().content_type("application/json").body(join(&outcomes)))
}

/// Items with their indexes in the batch.
type Group = Vec<(usize, Result<Item, Problem>)>;

/// Groups the items that must run one after another, because `reservation` is the same. An item without one is a group
/// of its own.
fn in_order_of_reservation<R: Eq + Hash>(
    items: impl Iterator<Item = Result<Item, Problem>>,
    reservation: impl Fn(&Item) -> Option<R>,
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut group_of: HashMap<R, usize> = HashMap::new();
    for (index, item) in items.enumerate() {
        let new = groups.len();
        let reservation = item.as_ref().ok().and_then(&reservation);
        let group = reservation.map_or(new, |reservation| *group_of.entry(reservation).or_insert(new));
        match groups.get_mut(group) {
            Some(group) => group.push((index, item)),
            None => groups.push(vec![(index, item)]),
        }
    }
    groups
}

async fn run(call: Arc<Call>, groups: Vec<Group>, request_id: Arc<str>) -> Vec<Outcome> {
    let finished: Vec<Vec<(usize, Outcome)>> = futures::stream::iter(groups)
        // Boxed: a call's future is large, and would be copied at each move.
        .map(|group| Box::pin(run_group(call.clone(), group, request_id.clone())))
        .buffer_unordered(CONCURRENT_MAX)
        .collect()
        .await;
    let mut finished: Vec<(usize, Outcome)> = finished.into_iter().flatten().collect();
    finished.sort_by_key(|(index, _)| *index);
    finished.into_iter().map(|(_, outcome)| outcome).collect()
}

async fn run_group(call: Arc<Call>, group: Group, request_id: Arc<str>) -> Vec<(usize, Outcome)> {
    let mut outcomes = Vec::with_capacity(group.len());
    for (index, item) in group {
        let answer = match item {
            Ok(item) => run_item(&call, item).await.map_err(in_body),
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

async fn run_item(call: &Call, item: Item) -> Result<GateAnswer, Problem> {
    match item {
        Item::Reserve(key, body) => call.reserve(*body, Some(key)).await,
        Item::Check(key, body) => call.check(*body, Some(key)).await,
        Item::Usage(key, body) => call.record_usage(*body, Some(key)).await,
        Item::Consume(id, body) => call.consume(&id, body).await,
        Item::Release(id, body) => call.release(&id, body).await,
        Item::Extend(id, body) => call.extend(&id, body).await,
    }
}

/// Joins outcomes, which are JSON texts already, into the answer.
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
        let text = items.to_string();
        let items: Vec<&RawValue> = serde_json::from_str(&text).unwrap();
        let named = |item: &Item| match item {
            Item::Consume(id, _) | Item::Release(id, _) => Some(id.to_ascii_lowercase()),
            Item::Reserve(key, body) => Some(format!("{key} {:?}", body.tenant)),
            _ => None,
        };
        in_order_of_reservation(items.into_iter().map(Item::read), named)
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
            { "call": "price" }
        ]));
        assert_eq!(groups, [vec![0, 2], vec![1, 4], vec![3], vec![5], vec![6]]);
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
