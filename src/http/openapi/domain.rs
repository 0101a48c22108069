//! The schemas of domain types, by name, from `domain.json`: the domain itself knows nothing of schemas.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use utoipa::openapi::schema::{Object, ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::domain::algorithms::AlgorithmName;
use crate::domain::amount::Amount;
use crate::domain::ban::Ban;
use crate::domain::cost_defaults::CostDefaults;
use crate::domain::endpoint::{EndpointPath, HttpMethod};
use crate::domain::field_error::FieldError;
use crate::domain::ids::{
    BanId, IdempotencyKey, LimitId, LoadName, MeterId, OperationId, OverrideId, PlanId, SubjectId,
    SubjectKind, TenantId,
};
use crate::domain::instant::Instant;
use crate::domain::limit::Limit;
use crate::domain::load::LoadFactor;
use crate::domain::meter::Meter;
use crate::domain::operation::Operation;
use crate::domain::plan::PlanDocument;
use crate::domain::policy::diff::Change;
use crate::domain::policy::document::PolicyFile;
use crate::domain::policy::edit::Prune;
use crate::domain::price::Price;
use crate::domain::reservation::ReservationState;
use crate::domain::signed_amount::SignedAmount;
use crate::domain::tenant::{Override, TenantDocument};
use crate::operations::answers::Cause;
use crate::operations::requests::{Ack, Mode, Role};

type Schemas = Vec<(String, RefOr<Schema>)>;

static SCHEMAS: LazyLock<BTreeMap<String, RefOr<Schema>>> = LazyLock::new(|| {
    let mut schemas: BTreeMap<_, _> = serde_json::from_str(include_str!("domain.json")).unwrap_or_default();
    if let Some(RefOr::T(Schema::Object(algorithm))) = schemas.get_mut("Algorithm") {
        let of_limits = AlgorithmName::ALL.iter().filter(|name| name.is_of_limits());
        algorithm.enum_values = Some(of_limits.map(|name| name.as_str().into()).collect());
    }
    schemas
});

fn schema_of(name: &str) -> RefOr<Schema> {
    SCHEMAS.get(name).cloned().unwrap_or_else(|| Object::default().into())
}

macro_rules! schemas {
    ($($type:ty: $name:literal;)*) => {
        $(
            impl PartialSchema for $type {
                fn schema() -> RefOr<Schema> {
                    schema_of($name)
                }
            }

            impl ToSchema for $type {
                fn name() -> Cow<'static, str> {
                    $name.into()
                }

                fn schemas(schemas: &mut Schemas) {
                    schemas.extend(SCHEMAS.clone());
                }
            }
        )*
    };
}

schemas! {
    Ack: "Ack";
    Amount: "Amount";
    Cause: "Cause";
    Change: "PolicyChange";
    CostDefaults: "CostDefaults";
    EndpointPath: "EndpointPath";
    FieldError: "FieldError";
    HttpMethod: "HttpMethod";
    IdempotencyKey: "IdempotencyKey";
    Instant: "Instant";
    Limit: "Limit";
    LimitId: "LimitId";
    Meter: "Meter";
    MeterId: "MeterId";
    Mode: "Mode";
    Operation: "Operation";
    OperationId: "OperationId";
    Ban: "Ban";
    BanId: "BanId";
    LoadFactor: "LoadFactor";
    LoadName: "LoadName";
    Override: "Override";
    OverrideId: "OverrideId";
    PlanDocument: "PlanDocument";
    PlanId: "PlanId";
    PolicyFile: "PolicyFile";
    Price: "Price";
    Prune: "Prune";
    ReservationState: "ReservationState";
    Role: "Role";
    SignedAmount: "SignedAmount";
    StoredPlan: "StoredPlan";
    StoredTenant: "StoredTenant";
    SubjectId: "SubjectId";
    SubjectKind: "SubjectKind";
    TenantDocument: "TenantDocument";
    TenantId: "TenantId";
}

/// A plan as an answer shows it.
pub(in crate::http) struct StoredPlan;

/// A tenant as an answer shows it.
pub(in crate::http) struct StoredTenant;

macro_rules! with_one_more {
    ($($(#[$doc:meta])* $name:ident: $of:ty, $field:literal: $property:expr;)*) => {
        $(
            $(#[$doc])*
            pub(in crate::http) struct $name;

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    with_property(<$of>::schema(), $field, $property)
                }
            }

            impl ToSchema for $name {
                fn schemas(schemas: &mut Schemas) {
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
    /// The cost defaults as an answer shows them.
    StoredCostDefaults: CostDefaults, "version": version();
    /// A default limit as an answer shows it.
    StoredLimit: Limit, "version": version();
    /// A ban with the tenant that it belongs to.
    TenantBan: Ban, "tenant": RefOr::Ref(Ref::from_schema_name(TenantId::name()));
    /// A ban as an answer shows it.
    StoredBan: TenantBan, "version": version();
    /// An override with the tenant that it belongs to.
    TenantOverride: Override, "tenant": RefOr::Ref(Ref::from_schema_name(TenantId::name()));
    /// An override as an answer shows it.
    StoredOverride: TenantOverride, "version": version();
    /// A price with the plan that it belongs to, if it does.
    PriceOfPlan: Price, "plan": or_null(&PlanId::name());
    /// A price with its owner: the plan or the tenant that it belongs to.
    OwnedPrice: PriceOfPlan, "tenant": or_null(&TenantId::name());
}

/// What this schema says, or null.
fn or_null(name: &str) -> RefOr<Schema> {
    let null = ObjectBuilder::new().schema_type(Type::Null);
    OneOfBuilder::new().item(Ref::from_schema_name(name)).item(null).into()
}

fn version() -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .description(Some("Rises with every change of it; also the `ETag`."))
        .minimum(Some(1_i64))
        .maximum(Some((1_i64 << 53) - 1))
        .into()
}

/// The schema of an object with one field more, which is always there.
fn with_property(mut schema: RefOr<Schema>, name: &str, property: RefOr<Schema>) -> RefOr<Schema> {
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        object.properties.insert(name.to_owned(), property);
        object.required.push(name.to_owned());
    }
    schema
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    /// The fields that are read: an unknown one is refused by naming all that are known.
    fn fields<T: DeserializeOwned>() -> BTreeSet<String> {
        let Err(error) = serde_json::from_value::<T>(json!({ "?": 0 })) else { panic!("takes any field") };
        error.to_string().split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    fn properties<T: ToSchema>() -> BTreeSet<String> {
        let RefOr::T(Schema::Object(object)) = T::schema() else { panic!("{} is no object", T::name()) };
        object.properties.into_keys().collect()
    }

    #[test]
    fn documents_have_in_their_schemas_the_fields_that_are_read() {
        assert_eq!(properties::<Limit>(), fields::<Limit>());
        assert_eq!(properties::<Meter>(), fields::<Meter>());
        assert_eq!(properties::<Operation>(), fields::<Operation>());
        assert_eq!(properties::<CostDefaults>(), fields::<CostDefaults>());
        assert_eq!(properties::<Ban>(), fields::<Ban>());
        assert_eq!(properties::<Override>(), fields::<Override>());
        assert_eq!(properties::<PlanDocument>(), fields::<PlanDocument>());
        assert_eq!(properties::<PolicyFile>(), fields::<PolicyFile>());
        assert_eq!(properties::<Price>(), fields::<Price>());
        assert_eq!(properties::<TenantDocument>(), fields::<TenantDocument>());
    }

    /// The words of a schema, and whether each is read.
    fn is_read<T: ToSchema + DeserializeOwned>() -> bool {
        let words = serde_json::to_value(T::schema()).unwrap()["enum"].clone();
        words.as_array().unwrap().iter().all(|word| serde_json::from_value::<T>(word.clone()).is_ok())
    }

    #[test]
    fn the_words_of_schemas_are_read() {
        assert!(is_read::<Ack>() && is_read::<Mode>() && is_read::<Prune>() && is_read::<Role>());
    }
}
