//! The bodies of checks.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::checks::{check_attributes, check_text, checked_subjects};
use crate::domain::amount::Amount;
use crate::domain::endpoint::{EndpointPath, HttpMethod};
use crate::domain::ids::{IdempotencyKey, OperationId, SubjectId, SubjectKind, TenantId};
use crate::http::json::{self, Object};
use crate::http::problem::Problem;
use crate::operations::FieldError;
use crate::operations::requests::CheckRequest;

/// The attribute that `tier` stands for.
const TIER: &str = "tier";

/// What is about to be done, and for whom: it is counted if it is allowed.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CheckBody)]
pub(in crate::http) struct CheckBody {
    /// Whose limits; a key bound to a tenant may leave it out.
    #[schema(value_type = Option<TenantId>)]
    pub(in crate::http) tenant: Option<TenantId>,
    /// Short for `subjects` with the kind `user`.
    #[schema(value_type = Option<SubjectId>)]
    subject: Option<SubjectId>,
    /// Who acts, by kind: at most four.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    subjects: Option<BTreeMap<SubjectKind, SubjectId>>,
    /// Which endpoint is called: its path without a query. It finds the operation, with `method`, where none is named.
    #[schema(value_type = Option<EndpointPath>)]
    endpoint: Option<EndpointPath>,
    /// By which method.
    #[schema(value_type = Option<HttpMethod>)]
    method: Option<HttpMethod>,
    /// The operation to be costed.
    #[schema(value_type = Option<OperationId>)]
    operation: Option<OperationId>,
    /// What the operation's cost rule needs: integers, decimal strings, booleans, texts.
    #[schema(value_type = Option<Object>)]
    attributes: Option<Map<String, Value>>,
    /// Short for the attribute `tier`, by which an operation's cost may depend on a text.
    #[schema(example = "fast")]
    tier: Option<String>,
    /// How much it costs, instead of what the operation's rule says; for an operation of one meter.
    #[schema(value_type = Option<Amount>)]
    cost: Option<Amount>,
    /// Only say what would happen: nothing is counted.
    #[serde(default, deserialize_with = "json::or_default")]
    #[schema(value_type = Option<bool>)]
    peek: bool,
    /// Required where the meters are booked: the check is recorded as a usage. It has no effect elsewhere.
    #[schema(value_type = Option<IdempotencyKey>)]
    pub(in crate::http) idempotency_key: Option<IdempotencyKey>,
}

/// Several checks, decided one after the other.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChecksBody)]
pub(in crate::http) struct ChecksBody {
    /// One to a hundred; each is all of it or nothing by itself.
    #[schema(value_type = Vec<CheckBody>, min_items = 1, max_items = 100)]
    pub(in crate::http) checks: Vec<Object<CheckBody>>,
    /// All of them or none: for at most 16 checks of one tenant, of meters that are not booked.
    #[serde(default, deserialize_with = "json::or_default")]
    #[schema(value_type = Option<bool>)]
    pub(in crate::http) atomic: bool,
}

impl CheckBody {
    /// The check for `tenant` under `key`; names every wrong field.
    pub(in crate::http) fn into_request(
        self,
        tenant: Option<TenantId>,
        key: Option<IdempotencyKey>,
    ) -> Result<CheckRequest, Problem> {
        let mut faults = Vec::new();
        let subjects = checked_subjects(self.subject, self.subjects, &mut faults);
        let mut attributes = self.attributes.unwrap_or_default();
        check_attributes(&attributes, &mut faults);
        check_text(self.tier.as_deref(), "/tier", &mut faults);
        if let Some(tier) = self.tier
            && attributes.insert(TIER.to_owned(), Value::String(tier)).is_some()
        {
            faults.push(FieldError::new("/tier", "is named among the attributes too; leave one of them out"));
        }
        let Some(tenant) = tenant else {
            faults.push(FieldError::new("/tenant", "is required, as the key is not bound to a tenant"));
            return Err(Problem::fields(faults));
        };
        if !faults.is_empty() {
            return Err(Problem::fields(faults));
        }
        let (operation, method, endpoint) = (self.operation, self.method, self.endpoint);
        let (cost, peeks) = (self.cost, self.peek);
        let sees_all_tenants = false;
        Ok(CheckRequest {
            tenant,
            subjects,
            operation,
            method,
            endpoint,
            attributes,
            cost,
            peeks,
            key,
            sees_all_tenants,
        })
    }

    /// Where a fault of the check is in what was sent.
    pub(in crate::http) fn sent(&self) -> CheckSent {
        let names = [
            (self.operation.is_some(), "/operation"),
            (self.endpoint.is_some(), "/endpoint"),
            (self.method.is_some(), "/method"),
        ];
        let named_by = names.into_iter().find(|(is_sent, _)| *is_sent);
        CheckSent {
            has_tier: self.tier.is_some(),
            named_by: named_by.map_or("/operation", |(_, pointer)| pointer),
        }
    }
}

/// How a check was named.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct CheckSent {
    has_tier: bool,
    /// The field that says what is done.
    named_by: &'static str,
}

impl CheckSent {
    /// The problem, with the names of the fields that were sent.
    pub(in crate::http) fn name(self, problem: Problem) -> Problem {
        problem.map_pointers(|pointer| match pointer {
            "/attributes/tier" if self.has_tier => Some("/tier".to_owned()),
            "/lines/0/amount" => Some("/cost".to_owned()),
            "/operation" | "/lines" | "/lines/0/meter" => Some(self.named_by.to_owned()),
            _ => None,
        })
    }
}
