//! What all schemas and parameters have in common, said once: times, pages, rows of lists.

use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::schema::{ArrayBuilder, SchemaType};
use utoipa::openapi::{
    Components, KnownFormat, Object, ObjectBuilder, Ref, RefOr, Schema, SchemaFormat, Type,
};

/// What a page's `limit` may be.
const PAGE: (usize, usize, usize) = (1, 1_000, 100);

/// Marks times, and lets lists refer to the schema of their rows.
pub(super) fn complete(components: &mut Components) {
    let rows: Vec<String> = components.schemas.keys().cloned().collect();
    for (name, schema) in &mut components.schemas {
        let RefOr::T(Schema::Object(object)) = schema else { continue };
        for (field, property) in &mut object.properties {
            if let RefOr::T(Schema::Object(property)) = property
                && is_time(field)
                && is_text(property)
            {
                property.format = Some(SchemaFormat::KnownFormat(KnownFormat::DateTime));
            }
        }
        let row = name.strip_prefix("List_").filter(|row| rows.iter().any(|known| known == row));
        if let (Some(row), Some(data)) = (row, object.properties.get_mut("data")) {
            let items = ArrayBuilder::new().items(Ref::from_schema_name(row));
            *data = RefOr::T(Schema::Array(items.description(Some("The rows.")).build()));
        }
    }
}

/// Parameters are never null: one that is not sent is left out.
pub(super) fn complete_parameters(operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        let Some(RefOr::T(Schema::Object(schema))) = &mut parameter.schema else { continue };
        if let SchemaType::Array(types) = &schema.schema_type
            && let Some(own) = types.iter().find(|kind| **kind != Type::Null)
        {
            schema.schema_type = SchemaType::Type(own.clone());
        }
        if parameter.parameter_in != ParameterIn::Query {
            continue;
        }
        match parameter.name.as_str() {
            "limit" => *schema = page(),
            "from" | "to" => schema.format = Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)),
            _ => {}
        }
    }
}

fn page() -> Object {
    let (least, most, usual) = PAGE;
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(least))
        .maximum(Some(most))
        .default(Some(usual.into()))
        .build()
}

/// Times stand under such names only.
fn is_time(field: &str) -> bool {
    field.ends_with("_at") || matches!(field, "as_of" | "start" | "end" | "now" | "from" | "until")
}

fn is_text(property: &Object) -> bool {
    match &property.schema_type {
        SchemaType::Type(kind) => *kind == Type::String,
        SchemaType::Array(kinds) => kinds.contains(&Type::String),
        SchemaType::AnyValue => false,
    }
}
