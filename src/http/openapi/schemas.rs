//! What all schemas share: times, rows of lists, ids in the path.

use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{ArrayBuilder, SchemaType};
use utoipa::openapi::{Components, KnownFormat, Object, Ref, RefOr, Schema, SchemaFormat, Type};

/// Marks times, and lets lists refer to the schema of their rows.
pub(super) fn complete(components: &mut Components) {
    let rows: Vec<String> = components.schemas.keys().cloned().collect();
    for (name, schema) in &mut components.schemas {
        mark_times(schema);
        let RefOr::T(Schema::Object(object)) = schema else { continue };
        let row = name.strip_prefix("List_").filter(|row| rows.iter().any(|known| known == row));
        if let (Some(row), Some(data)) = (row, object.properties.get_mut("data")) {
            let items = ArrayBuilder::new().items(Ref::from_schema_name(row));
            *data = RefOr::T(Schema::Array(items.description(Some("The rows.")).build()));
        }
    }
}

/// The body of a call that names the object in its path: there `id` may be left out. What its answer shows may stay in
/// it, so that an object that was read can be put back.
pub(super) fn leave_id_to_the_path(operation: &mut Operation, components: &mut Components) {
    let answer = operation.responses.responses.get("200").and_then(|answer| match answer {
        RefOr::T(answer) => answer.content.values().find_map(|content| match content {
            RefOr::T(content) => object_of(content.schema.as_ref()?, components),
            RefOr::Ref(_) => None,
        }),
        RefOr::Ref(_) => None,
    });
    let shown = answer.map(|(_, object)| object.properties.clone()).unwrap_or_default();
    let Some(RefOr::T(body)) = &mut operation.request_body else { return };
    for content in body.content.values_mut() {
        let RefOr::T(content) = content else { continue };
        let found = content.schema.as_ref().and_then(|schema| object_of(schema, components));
        let Some((name, whole)) = found else { continue };
        let (mut whole, name) = (whole.clone(), format!("{}Body", name.trim_end_matches("Document")));
        whole.required.retain(|field| field != "id");
        for (field, property) in &shown {
            whole.properties.entry(field.clone()).or_insert_with(|| property.clone());
        }
        content.schema = Some(RefOr::Ref(Ref::from_schema_name(&name)));
        components.schemas.insert(name, RefOr::T(Schema::Object(whole)));
    }
}

/// The object that a schema refers to, with its name.
fn object_of<'a>(schema: &'a RefOr<Schema>, components: &'a Components) -> Option<(&'a str, &'a Object)> {
    let RefOr::Ref(reference) = schema else { return None };
    let name = reference.ref_location.rsplit('/').next().unwrap_or_default();
    match components.schemas.get(name) {
        Some(RefOr::T(Schema::Object(object))) => Some((name, object)),
        _ => None,
    }
}

fn mark_times(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else { return };
    match schema {
        Schema::Object(object) => {
            for (field, property) in &mut object.properties {
                if let RefOr::T(Schema::Object(property)) = property
                    && is_time(field)
                    && is_text(property)
                {
                    property.format = Some(SchemaFormat::KnownFormat(KnownFormat::DateTime));
                }
            }
        }
        Schema::AllOf(parts) => parts.items.iter_mut().for_each(mark_times),
        _ => {}
    }
}

/// All times have such names.
fn is_time(field: &str) -> bool {
    let ends = ["_at", "_start", "_end", "_due", "scheduled_for"];
    ends.iter().any(|end| field.ends_with(end))
        || matches!(field, "as_of" | "start" | "end" | "now" | "from" | "until")
}

fn is_text(property: &Object) -> bool {
    match &property.schema_type {
        SchemaType::Type(kind) => *kind == Type::String,
        SchemaType::Array(kinds) => kinds.contains(&Type::String),
        SchemaType::AnyValue => false,
    }
}
