//! What parameters may be: by their name, and by the call where a name takes other words in another call.

use utoipa::PartialSchema;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{KnownFormat, ObjectBuilder, RefOr, Schema, SchemaFormat, Type};

use super::super::routes::Route;
use super::super::{admin_audit, reports, tenants};
use crate::domain::cost_defaults::CostDefaults;
use crate::domain::ids::{
    LimitId, LoadName, MeterId, OperationId, OverrideId, PlanId, SubjectId, SubjectKind, TenantId,
};
use crate::domain::instant::Instant;
use crate::domain::reservation::ReservationState;
use crate::domain::supplier_bill::{Outcome, TOLERANCE_SECONDS_MAX};
use crate::domain::webhook::DeliveryState;

/// Bare, or quoted with `"` and `\` escaped.
const KEY: &str = r#"^([!#-~][ -~]{0,254}|"([ !#-\[\]-~]|\\["\\]){1,255}")$"#;
const ETAG: &str = r#"^(\*|"[0-9]{1,19}")$"#;
const AMOUNT: &str = r"^[0-9]{1,16}(\.[0-9]{1,12})?$";
const CURSOR: &str = "^[A-Za-z0-9_-]{1,2048}$";
/// As an admin names it, or a limit, whose names have a `~`.
const BAN_ID: &str = "^[A-Za-z0-9][A-Za-z0-9_.:~-]{0,159}$";
const KEY_ID: &str = "^[A-Za-z0-9]{1,128}$";

/// Says of every parameter of the call what it may be.
pub(super) fn complete(operation: &mut Operation, route: &Route) {
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter
            && let Some(schema) = schema(&parameter.name, route.pattern)
        {
            parameter.schema = Some(schema);
        }
    }
}

fn schema(name: &str, pattern: &str) -> Option<RefOr<Schema>> {
    Some(match name {
        "id" => return id(pattern),
        "tenant" => TenantId::schema(),
        "plan" => PlanId::schema(),
        "meter" => MeterId::schema(),
        "limit_id" => LimitId::schema(),
        "subject" => SubjectId::schema(),
        "kind" => SubjectKind::schema(),
        "from" | "to" | "at" => Instant::schema(),
        "status" if pattern.ends_with("/notices") => text().enum_values(Some(["raised", "resolved"])).into(),
        "status" if pattern.ends_with("/upgrade-requests") => {
            text().enum_values(Some(["pending", "approved", "declined"])).into()
        }
        "status" if pattern.ends_with("/deliveries") => {
            text().enum_values(Some(DeliveryState::ALL.map(DeliveryState::as_str))).into()
        }
        "status" if pattern.ends_with("/adjustments") => {
            text().enum_values(Some(["pending", "approved", "booked", "declined"])).into()
        }
        "status" => ReservationState::schema(),
        "effect" => text().enum_values(Some(["usage", "allowance", "money"])).into(),
        "class" => text().enum_values(Some(["usage", "grant", "period", "correction"])).into(),
        "reservation" | "delivery" => uuid(),
        "number" => {
            let number = ObjectBuilder::new().schema_type(Type::Integer);
            number.minimum(Some(1)).maximum(Some(i64::MAX)).into()
        }
        "limit" => page(),
        "cursor" => text().pattern(Some(CURSOR)).into(),
        "state" => text().enum_values(Some(["clean", "drift", "repaired", "refused"])).into(),
        "format" if pattern.contains("/statements/") => {
            text().enum_values(Some(["json", "csv", "xlsx", "focus", "html"])).into()
        }
        "format" => text().enum_values(Some(["json", "csv", "xlsx"])).into(),
        "period" => text().enum_values(Some(["open", "closing"])).into(),
        "currency" => text().pattern(Some("^[A-Z]{3}$")).into(),
        "span" => text().enum_values(Some(["today", "month"])).into(),
        "granularity" => text().enum_values(Some(["hour", "day", "month"])).into(),
        "group_by" if pattern.ends_with("/revenue") => some_of(reports::REVENUE_GROUPS),
        "group_by" if pattern.starts_with("/v1/tenants/") => some_of(tenants::GROUPS),
        "group_by" => some_of(reports::GROUPS),
        "placed_by" => text().enum_values(Some(["admin", "limit"])).into(),
        "by" => text().enum_values(Some(["tenant", "subject", "operation", "plan"])).into(),
        "supplier" | "amount_column" | "reference_column" | "time_column" | "tenant_column"
        | "reference_metadata" => text().min_length(Some(1)).max_length(Some(128)).into(),
        "delimiter" => text().enum_values(Some(["comma", "semicolon", "tab"])).into(),
        "tolerance_amount" | "tolerance_percent" => text().pattern(Some(AMOUNT)).into(),
        "tolerance_seconds" => {
            let seconds = ObjectBuilder::new().schema_type(Type::Integer);
            seconds.minimum(Some(0)).maximum(Some(TOLERANCE_SECONDS_MAX)).into()
        }
        "dry_run" => text().enum_values(Some(["true", "false"])).into(),
        "outcome" => text().enum_values(Some(Outcome::ALL.map(Outcome::as_str))).into(),
        "zone" => text().min_length(Some(1)).max_length(Some(64)).into(),
        "object_kind" => text().enum_values(Some(admin_audit::KINDS)).into(),
        "action" => text().enum_values(Some(admin_audit::ACTIONS)).into(),
        "name" if pattern.contains("/load/") => LoadName::schema(),
        "name" => text().min_length(Some(1)).max_length(Some(64)).into(),
        "object_id" | "actor" => text().min_length(Some(1)).max_length(Some(128)).into(),
        "verbose" => text().enum_values(Some(["", "true", "false"])).into(),
        "Idempotency-Key" => text().min_length(Some(1)).pattern(Some(KEY)).into(),
        "If-Match" => text().pattern(Some(ETAG)).into(),
        "If-None-Match" => text().enum_values(Some(["*"])).into(),
        _ => return None,
    })
}

/// What the path of a call names.
fn id(pattern: &str) -> Option<RefOr<Schema>> {
    let (kind, _) = pattern.trim_start_matches("/v1/").trim_start_matches("admin/").split_once('/')?;
    Some(match kind {
        "reservations" | "reconciliations" | "grants" | "decisions" | "upgrade-requests" | "webhooks"
        | "adjustments" => uuid(),
        "tenants" => TenantId::schema(),
        "meters" => MeterId::schema(),
        "operations" => OperationId::schema(),
        "cost_defaults" => text().enum_values(Some([CostDefaults::ID])).into(),
        "plans" => PlanId::schema(),
        "limits" => LimitId::schema(),
        "bans" => text().pattern(Some(BAN_ID)).into(),
        "overrides" => OverrideId::schema(),
        "keys" => text().pattern(Some(KEY_ID)).into(),
        _ => return None,
    })
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// At least one of the words, separated by commas.
fn some_of<T>(words: &[(&str, T)]) -> RefOr<Schema> {
    let others = words.len().saturating_sub(1);
    let any = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join("|");
    text().pattern(Some(format!("^({any})(,({any})){{0,{others}}}$"))).into()
}

fn uuid() -> RefOr<Schema> {
    text().format(Some(SchemaFormat::KnownFormat(KnownFormat::Uuid))).into()
}

fn page() -> RefOr<Schema> {
    let page = ObjectBuilder::new().schema_type(Type::Integer);
    page.minimum(Some(1)).maximum(Some(1_000)).default(Some(100.into())).into()
}
