//! Tests of the policy as a whole; small worlds made of JSON, and random ones.

mod counters;
mod documents;
mod prices;
mod resolution;
mod warnings;
mod worlds;

use serde_json::{Value, json};

use super::counter::{Generations, Resets, generations_after};
use super::document::{Definitions, PolicyFile};
use super::edit::{Checks, Edit, Prune};
use super::resolve::Resolved;
use super::snapshot::Policy;
use super::tenant_policy::TenantPolicy;
use crate::domain::field_error::{FieldError, read_json};
use crate::domain::ids::{MeterId, OperationId, Subject, SubjectId, SubjectKind, TenantId};
use crate::domain::period::Calendar;

/// 2026-07-15T12:30:00Z
const NOW_MS: i64 = 1_784_118_600_000;

fn file(value: Value) -> PolicyFile {
    read_json(&value).unwrap()
}

/// The definitions once a file has been applied.
fn apply(current: &Definitions, value: Value, prune: &[Prune]) -> Result<Definitions, Vec<FieldError>> {
    let edit = Edit::apply(file(value), prune.iter().copied().collect())?;
    let after = edit.after(current);
    let errors = Checks::new(&edit, current, &after).all();
    if errors.is_empty() { Ok(after) } else { Err(errors) }
}

fn defined(value: Value) -> Definitions {
    apply(&Definitions::default(), value, &[]).unwrap()
}

fn policy(definitions: &Definitions) -> Policy {
    let empty = Definitions::default();
    let rows = generations_after(&empty, definitions, &Generations::default(), 1);
    Policy::new(1, definitions.clone(), rows.into_iter().collect())
}

fn tenant_policy(definitions: &Definitions, tenant: &str) -> TenantPolicy {
    let tenant = &definitions.tenants[&TenantId::parse(tenant).unwrap()];
    TenantPolicy::new(&policy(definitions), tenant, &Resets::default()).unwrap()
}

fn meter(id: &str) -> MeterId {
    MeterId::parse(id).unwrap()
}

fn subject(kind: &str, id: &str) -> Subject {
    Subject { kind: SubjectKind::parse(kind).unwrap(), id: SubjectId::parse(id).unwrap() }
}

fn resolve(
    definitions: &Definitions,
    meters: &[&str],
    subjects: &[Subject],
    operation: Option<&str>,
) -> Resolved {
    let tenant = tenant_policy(definitions, "acme");
    let meters: Vec<MeterId> = meters.iter().map(|id| meter(id)).collect();
    let operation = operation.map(|id| OperationId::parse(id).unwrap());
    let windows = calendar(definitions).windows(NOW_MS);
    tenant.resolve(&meters, subjects, operation.as_ref(), NOW_MS, &windows).unwrap()
}

/// The calendar of `acme`.
fn calendar(definitions: &Definitions) -> Calendar {
    definitions.tenants[&TenantId::parse("acme").unwrap()].calendar()
}

/// A small installation: two meters, an operation, default limits, two plans and a tenant.
fn demo() -> Value {
    json!({
        "meters": [{ "id": "page", "unit": "page" }, { "id": "token", "unit": "token", "decimals": 2 }],
        "operations": [{ "id": "ocr", "costs": [{ "meter": "page", "weights": { "pages": "1" } }] }],
        "limits": [
            { "id": "user-hour", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "hour", "capacity": "20" },
            { "id": "ocr-week", "meter": "page", "operations": ["ocr"], "window": "week", "capacity": 900 },
        ],
        "plans": [
            { "id": "free", "limits": [{ "id": "page-day", "meter": "page", "window": "day", "capacity": "100" }],
              "quotas": [{ "meter": "page", "included": "1000" }] },
            { "id": "premium", "limits": [
                { "id": "page-day", "meter": "page", "window": "day", "capacity": "500" },
                { "id": "user-hour", "meter": "page", "scope": "subject", "subject_kind": "user", "window": "hour", "capacity": "200" },
            ] },
        ],
        "tenants": [{ "id": "acme", "plan": "free", "time_zone": "Europe/Berlin", "anchor_day": 15 }],
    })
}
