//! The schemas of what policy files and calls are made of, where the type alone does not say what it takes.

use serde_json::json;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, KnownFormat, Object, ObjectBuilder, OneOfBuilder, Schema,
    SchemaFormat, SchemaType, Type,
};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::amount::{Amount, Decimals};
use super::ids::{
    IdempotencyKey, LimitId, MeterId, OperationId, OverrideId, PlanId, SubjectId, SubjectKind, TenantId,
};
use super::instant::Instant;
use super::limit::{Limit, OnGateFailure, Percent};
use super::meter::Meter;
use super::operation::{Factor, Operation};
use super::period::{AnchorDay, Zone};
use super::plan::PlanDefinition;
use super::rate::Rate;
use super::reservation::ReservationState;
use super::tenant::{Override, TenantDefinition};

/// The largest JSON integer that every reader reads exactly.
const INTEGER_MAX: i64 = (1 << 53) - 1;
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}$";
const SUBJECT: &str = "^[ -z|~]{1,128}$";
const KEY: &str = "^[ -~]{1,255}$";
const DECIMAL: &str = "^[0-9]{1,16}(\\.[0-9]{1,12})?$";

fn text(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(description))
}

fn whole(description: &str, least: i64, most: i64) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .description(Some(description))
        .minimum(Some(least))
        .maximum(Some(most))
}

/// A string of plain digits, or a JSON integer.
fn decimal(description: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Integer]))
        .description(Some(description))
        .pattern(Some(DECIMAL))
        .minimum(Some(0))
        .maximum(Some(INTEGER_MAX))
}

macro_rules! schemas {
    ($($type:ty: $schema:expr;)*) => {
        $(
            impl PartialSchema for $type {
                fn schema() -> RefOr<Schema> {
                    $schema.into()
                }
            }

            impl ToSchema for $type {}
        )*
    };
}

schemas! {
    TenantId: text("The id of a tenant.").pattern(Some(NAME)).examples([json!("acme")]);
    MeterId: text("The id of a meter.").pattern(Some(NAME)).examples([json!("ocr.page")]);
    OperationId: text("The id of an operation.").pattern(Some(NAME)).examples([json!("ocr.submit")]);
    PlanId: text("The id of a plan.").pattern(Some(NAME)).examples([json!("free")]);
    LimitId: text("The id of a limit.").pattern(Some(NAME)).examples([json!("ocr-day")]);
    OverrideId: text("The id of an override.").pattern(Some(NAME)).examples([json!("migration")]);
    SubjectKind: text("What sort of subject.").pattern(Some(NAME)).examples([json!("user")]);
    SubjectId: text("Which subject.").pattern(Some(SUBJECT)).examples([json!("user-42")]);
    IdempotencyKey: text("The caller's name for one piece of work: printable characters.")
        .min_length(Some(1))
        .max_length(Some(255))
        .pattern(Some(KEY))
        .examples([json!("job-8812")]);
    ReservationState: text("Where a reservation stands.")
        .enum_values(Some(["reserved", "consumed", "released", "expired"]));
    Amount: decimal("An exact amount of a meter's units, zero or more: a string of plain digits, or a JSON integer. At most \
                     9000000000000000 of the meter's smallest units, and no more decimals than the meter has.")
        .examples([json!("1000")]);
    Rate: decimal("An exact factor or weight, zero or more: a string of plain digits, or a JSON integer.")
        .examples([json!("1.5")]);
    Instant: text("A time as RFC 3339 has it, not finer than a millisecond.")
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
        .examples([json!("2027-01-01T00:00:00Z")]);
    Zone: text("An IANA time zone.").examples([json!("Europe/Berlin")]);
    AnchorDay: whole("A day of the month; in shorter months the last one.", 1, 31);
    Percent: whole("A whole percentage.", 0, 100).default(Some(json!(80)));
    Decimals: whole("How many decimals amounts have.", 0, 6).default(Some(json!(0)));
    OnGateFailure: text("What becomes of work under a limit while the gate does not answer: `deny` refuses it until the gate \
                         answers, `allow` admits it without measuring and counts it later.")
        .enum_values(Some(["deny", "allow"]))
        .default(Some(json!("deny")));
}

impl PartialSchema for Factor {
    fn schema() -> RefOr<Schema> {
        let rate = || RefOr::Ref(Ref::from_schema_name(Rate::name()));
        let by_text: Object = ObjectBuilder::new()
            .schema_type(Type::Object)
            .description(Some("The factor for each text that the attribute may have."))
            .additional_properties(Some(AdditionalProperties::RefOr(rate())))
            .build();
        OneOfBuilder::new()
            .description(Some("What a cost is multiplied by: a rate that applies when the attribute is true, or a table from texts."))
            .item(rate())
            .item(by_text)
            .into()
    }
}

impl ToSchema for Factor {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((Rate::name().into_owned(), Rate::schema()));
    }
}

macro_rules! with_one_more {
    ($($(#[$doc:meta])* $name:ident: $of:ty, $field:literal: $property:expr;)*) => {
        $(
            $(#[$doc])*
            pub struct $name;

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    with_property(<$of>::schema(), $field, $property)
                }
            }

            impl ToSchema for $name {
                fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                    schemas.push((TenantId::name().into_owned(), TenantId::schema()));
                    <$of>::schemas(schemas);
                }
            }
        )*
    };
}

with_one_more! {
    /// A meter as an answer shows it.
    StoredMeter: Meter, "version": version();
    /// An operation as an answer shows it.
    StoredOperation: Operation, "version": version();
    /// A default limit as an answer shows it.
    StoredLimit: Limit, "version": version();
    /// A plan as an answer shows it.
    StoredPlan: PlanDefinition, "version": version();
    /// An override with the tenant that it belongs to.
    TenantOverride: Override, "tenant": RefOr::Ref(Ref::from_schema_name(TenantId::name()));
    /// An override as an answer shows it.
    StoredOverride: TenantOverride, "version": version();
}

/// A tenant as an answer shows it.
pub struct StoredTenant;

impl PartialSchema for StoredTenant {
    fn schema() -> RefOr<Schema> {
        let mut schema = with_property(TenantDefinition::schema(), "version", version());
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.properties.insert("calendars".to_owned(), calendars());
        }
        schema
    }
}

impl ToSchema for StoredTenant {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((Instant::name().into_owned(), Instant::schema()));
        TenantDefinition::schemas(schemas);
    }
}

fn calendars() -> RefOr<Schema> {
    let reference = |name: std::borrow::Cow<'static, str>| RefOr::<Schema>::Ref(Ref::from_schema_name(name));
    let calendar = ObjectBuilder::new()
        .schema_type(Type::Object)
        .property("from", reference(Instant::name()))
        .property("time_zone", reference(<Zone as ToSchema>::name()))
        .property("anchor_day", reference(AnchorDay::name()));
    let description =
        "While a change of zone or anchor day is still to come: what holds now, and what from when.";
    ArrayBuilder::new().items(calendar).description(Some(description)).into()
}

fn version() -> RefOr<Schema> {
    whole("Rises with every change of it; also the `ETag`.", 1, INTEGER_MAX).into()
}

/// The schema of an object with one field more, which is always there.
fn with_property(schema: RefOr<Schema>, name: &str, property: RefOr<Schema>) -> RefOr<Schema> {
    match schema {
        RefOr::T(Schema::Object(mut object)) => {
            object.properties.insert(name.to_owned(), property);
            object.required.push(name.to_owned());
            RefOr::T(Schema::Object(object))
        }
        other => other,
    }
}
