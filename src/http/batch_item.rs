//! One item of a batch. All items are parsed before any runs.

use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::bodies::check::CheckBody;
use super::bodies::{ConsumeBody, ExtendBody, ReleaseBody, ReserveBody, UsageBody};
use super::json;
use super::problem::Problem;
use super::reservations::Call;
use crate::domain::ids::{IdempotencyKey, ReservationId, TenantId};
use crate::operations::FieldError;

/// What an item calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum BatchCall {
    Reserve,
    Consume,
    Release,
    Extend,
    Usage,
    Check,
}

/// One call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchItem<'a> {
    /// What to call.
    call: BatchCall,
    /// The reservation; for consume, release and extend.
    id: Option<String>,
    /// Required for every item.
    #[schema(value_type = Option<IdempotencyKey>)]
    idempotency_key: Option<IdempotencyKey>,
    /// The body of the call, as for a single call.
    #[serde(borrow)]
    #[schema(value_type = Option<Object>)]
    body: Option<&'a RawValue>,
}

/// A valid item.
#[derive(Debug)]
pub(super) enum Item {
    Reserve(IdempotencyKey, Box<ReserveBody>),
    Usage(IdempotencyKey, Box<UsageBody>),
    Check(IdempotencyKey, Box<CheckBody>),
    Consume(String, ConsumeBody),
    Release(String, ReleaseBody),
    Extend(String, ExtendBody),
}

impl Item {
    /// Parses a well-formed JSON text; pointers of errors start at the item.
    pub(super) fn read(text: &RawValue) -> Result<Self, Problem> {
        let item: BatchItem = json::typed(text.get())?;
        let Some(key) = item.idempotency_key else { return Err(Problem::key_required()) };
        let body = item.body.map_or("{}", RawValue::get);
        match (item.call, item.id) {
            (BatchCall::Reserve, None) => {
                let body: Box<ReserveBody> = read_body(body)?;
                agree(&key, body.idempotency_key.as_ref())?;
                Ok(Self::Reserve(key, body))
            }
            (BatchCall::Usage, None) => {
                let body: Box<UsageBody> = read_body(body)?;
                agree(&key, body.idempotency_key().as_ref())?;
                Ok(Self::Usage(key, body))
            }
            (BatchCall::Check, None) => {
                let body: Box<CheckBody> = read_body(body)?;
                agree(&key, body.idempotency_key.as_ref())?;
                Ok(Self::Check(key, body))
            }
            (BatchCall::Reserve | BatchCall::Usage | BatchCall::Check, Some(_)) => {
                Err(wrong_id("belongs to consume, release and extend only"))
            }
            (_, None) => Err(wrong_id("is required for this call")),
            (BatchCall::Consume, Some(id)) => Ok(Self::Consume(id, read_body(body)?)),
            (BatchCall::Release, Some(id)) => Ok(Self::Release(id, read_body(body)?)),
            (BatchCall::Extend, Some(id)) => Ok(Self::Extend(id, read_body(body)?)),
        }
    }

    /// Which reservation it concerns, however it is named; none where the item will be refused. Items of one run in
    /// order.
    pub(super) fn reservation(&self, call: &Call) -> Option<ReservationId> {
        let calls = &call.operations.calls;
        let of = |tenant: Option<&TenantId>| call.caller.tenant(tenant.cloned()).ok().flatten();
        match self {
            Self::Reserve(key, body) => Some(calls.common_id_of_reserve(&of(body.tenant.as_ref())?, key)),
            Self::Usage(key, body) => Some(calls.common_id_of_usage(&of(body.tenant())?, key)),
            Self::Check(key, body) => Some(calls.common_id_of_usage(&of(body.tenant.as_ref())?, key)),
            Self::Consume(id, _) | Self::Release(id, _) | Self::Extend(id, _) => calls.common_id(id).ok(),
        }
    }
}

/// Makes the pointers of a body's errors start at the item.
pub(super) fn in_body(problem: Problem) -> Problem {
    problem.map_pointers(|pointer| Some(format!("/body{pointer}")))
}

fn read_body<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, Problem> {
    json::typed(text).map_err(in_body)
}

fn agree(key: &IdempotencyKey, again: Option<&IdempotencyKey>) -> Result<(), Problem> {
    match again {
        Some(other) if other != key => {
            Err(Problem::invalid("The item's idempotency_key and that of its body differ; send one of them."))
        }
        _ => Ok(()),
    }
}

fn wrong_id(message: &str) -> Problem {
    Problem::fields(vec![FieldError::new("/id", message)])
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    #[test]
    fn a_call_that_is_not_served_is_refused_as_unknown() {
        for item in [
            json!({ "call": "price", "idempotency_key": "k" }),
            json!({ "call": "reserve", "x": 1 }),
            json!([]),
        ] {
            let problem = Item::read(&to_raw_value(&item).unwrap()).unwrap_err();
            assert_eq!(problem.code(), "validation_failed");
        }
    }

    #[test]
    fn what_is_wrong_in_a_body_is_named_from_the_item_on() {
        for (body, pointer) in
            [(json!({ "tenant": 7 }), "/body/tenant"), (json!([]), "/body"), (json!("text"), "/body")]
        {
            let item = json!({ "call": "reserve", "idempotency_key": "k", "body": body });
            let problem = Item::read(&to_raw_value(&item).unwrap()).unwrap_err();
            let document: serde_json::Value = serde_json::from_slice(&problem.to_json("r")).unwrap();
            assert_eq!(document["errors"][0]["pointer"], pointer);
        }
        let item = json!({ "call": "reserve", "idempotency_key": "k", "body": null });
        assert!(Item::read(&to_raw_value(&item).unwrap()).is_ok(), "as one without");
    }
}
