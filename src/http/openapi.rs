//! The OpenAPI document: generated from the handlers, with what all calls share added from the route table.

pub(super) mod domain;
mod headers;
mod parameters;
mod schemas;

use std::sync::LazyLock;

use actix_web::App;
use actix_web::http::Method;
use actix_web::web::Bytes;
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, Content, Ref, RefOr, Required, Response, ResponseBuilder};
use utoipa_actix_web::AppExt;

use super::problem::{PROBLEM_JSON, ProblemDocument};
use super::routes::{self, Access, ROUTES, Route};

const KEY_SCHEME: &str = "key";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tollgate",
        description = "A quota gate and billing ledger: reserve units before expensive work, consume what was used, release the rest."
    ),
    tags(
        (name = "gate", description = "Before and after each job."),
        (name = "tenant", description = "What is left, how fast it goes, when it resets."),
        (name = "reports", description = "Figures over all tenants."),
        (name = "admin", description = "Policy, keys and the test clock."),
        (name = "operator", description = "Health, metrics and this document."),
    ),
    servers((url = "/", description = "The service that serves this document.")),
    components(schemas(ProblemDocument))
)]
struct Contract;

/// The contract as text, made once: every worker and every service of a process shows the same.
pub(super) static TEXT: LazyLock<Bytes> =
    LazyLock::new(|| serde_json::to_vec(&openapi()).unwrap_or_default().into());

/// The contract of the public listener: every call with its request, answers, headers, problems, roles and examples.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let app = App::new().into_utoipa_app().openapi(Contract::openapi());
    let mut document = app.configure(|config| routes::public(config)).split_for_parts().1;
    let components = document.components.get_or_insert_with(Components::new);
    components.add_security_scheme(KEY_SCHEME, SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    schemas::complete(components);
    for route in ROUTES {
        if let Some(operation) =
            document.paths.paths.get_mut(route.pattern).and_then(|item| operation(item, route))
        {
            complete(operation, route);
            parameters::complete(operation, route);
            if route.method == Method::PUT && route.pattern.ends_with("/{id}") {
                schemas::leave_id_to_the_path(operation, components);
            }
            headers::add(operation, route);
        }
    }
    document
}

fn operation<'a>(item: &'a mut PathItem, route: &Route) -> Option<&'a mut Operation> {
    match route.method.as_str() {
        "GET" => item.get.as_mut(),
        "POST" => item.post.as_mut(),
        "PUT" => item.put.as_mut(),
        _ => item.delete.as_mut(),
    }
}

fn complete(operation: &mut Operation, route: &Route) {
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        let may_be_left_out = BODY_MAY_BE_LEFT_OUT.iter().any(|end| route.pattern.ends_with(end));
        body.required = Some(if may_be_left_out { Required::False } else { Required::True });
    }
    for (status, description) in problems(operation, route) {
        operation
            .responses
            .responses
            .entry(status.to_owned())
            .or_insert_with(|| RefOr::T(problem(description)));
    }
    if route.access == Access::Open {
        operation.security = Some(Vec::new());
        return;
    }
    let scopes: [&str; 0] = [];
    operation.security = Some(vec![SecurityRequirement::new(KEY_SCHEME, scopes)]);
    let roles: Vec<&str> = route.access.roles().iter().map(|role| role.as_str()).collect();
    let roles = format!("Roles: {}.", roles.join(", "));
    operation.description = Some(match operation.description.take() {
        Some(text) if !text.is_empty() => format!("{text}\n\n{roles}"),
        _ => roles,
    });
}

/// How the paths of calls end whose body has no field that must be there.
const BODY_MAY_BE_LEFT_OUT: [&str; 10] = [
    "/consume",
    "/release",
    "/extend",
    "/approve",
    "/decline",
    "/replay",
    "/runs",
    "/rotate",
    "/void",
    "/accept-time",
];

/// Calls that may not find what they name, although neither their path nor their query names it: a test clock, and
/// tenants that were there when the call began.
const NAMES_OUTSIDE_PATH: [&str; 3] = ["/v1/admin/clock", "/v1/admin/grants", "/v1/adjustments"];

/// The problems a call can answer with, by its parameters and the servers it needs.
fn problems(operation: &Operation, route: &Route) -> Vec<(&'static str, &'static str)> {
    if route.access == Access::Open {
        return Vec::new();
    }
    let mut problems = vec![
        ("400", "`invalid_request`, `idempotency_key_required`: malformed."),
        ("401", "`unauthenticated`: no key, or one that does not work."),
        ("403", "`forbidden`: not this key's role or tenant."),
        ("429", "`rate_limited`: too many keys that do not work."),
        ("503", "`gate_unavailable`, `ledger_unavailable`, `overloaded`: repeat the call."),
    ];
    if operation.request_body.is_some() {
        problems.extend([
            ("408", "`request_timeout`: the body came too slowly."),
            ("413", "`payload_too_large`."),
            match route.pattern {
                "/v1/reconciliations" => ("415", "`unsupported_media_type`: not CSV."),
                _ => ("415", "`unsupported_media_type`: not plain JSON."),
            },
            ("422", "`validation_failed`, `amount_decreased`, `idempotency_key_reused`: names the fields."),
        ]);
    }
    let takes = |name: &str| {
        let mut parameters = operation.parameters.iter().flatten();
        parameters.any(|parameter| matches!(parameter, RefOr::T(parameter) if parameter.name == name))
    };
    let may_not_find = route.pattern.contains('{')
        || NAMES_OUTSIDE_PATH.contains(&route.pattern)
        || route.method == Method::GET && takes("tenant");
    if may_not_find {
        problems.push(("404", "`not_found`."));
    }
    if route.destroys || route.pattern == "/v1/admin/policy" {
        problems.retain(|(status, _)| *status != "429");
        problems.push((
            "429",
            "`rate_limited`: too many keys that do not work, or too many calls of this key that destroy something.",
        ));
    }
    // Each event has a problem of its own.
    if route.access == Access::Gate && route.pattern != "/v1/events" {
        problems.retain(|(status, _)| *status != "429" && *status != "503");
        problems.extend([
            ("402", "`exceeds_plan`, `balance_exhausted`: only a plan or a grant helps."),
            (
                "429",
                "`banned`, `quota_exceeded`, `rate_limited`: waiting helps, as long as `Retry-After` says.",
            ),
            ("503", "`gate_unavailable`, `ledger_timeout`, `overloaded`: repeat the call with the same key."),
        ]);
        if matches!(route.pattern, "/v1/reservations" | "/v1/usage") {
            problems.push(("409", "`duplicate_submission`: carries the first reservation."));
        }
        if route.pattern.contains("{id}") {
            problems.push(("409", "`already_resolved`: carries the reservation."));
            problems.push(("410", "`reservation_expired`: carries the reservation."));
        }
    }
    if route.access == Access::Admin && route.pattern.contains("{id}") {
        problems.push(("409", "`in_use`: something refers to it, or it is in the books."));
    }
    if route.pattern == "/v1/admin/policy" {
        problems.push(("409", "`in_use`: an approved upgrade request names a plan that the file archives."));
    }
    if takes("If-Match") {
        problems.push(("412", "`precondition_failed`: it has another version."));
    }
    problems
}

fn problem(description: &str) -> Response {
    let schema = RefOr::Ref(Ref::from_schema_name("Problem"));
    ResponseBuilder::new().description(description).content(PROBLEM_JSON, Content::new(Some(schema))).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Run with `UPDATE_OPENAPI=1` to write the committed document again.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a switch of the test itself")]
    fn the_committed_document_is_the_generated_one() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json");
        let generated = openapi().to_pretty_json().unwrap() + "\n";
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(&path, &generated).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == generated,
            "docs/openapi.json is stale: run the tests once with UPDATE_OPENAPI=1"
        );
    }

    #[test]
    fn every_call_has_a_name_of_its_own_a_key_and_problems() {
        let document = serde_json::to_value(openapi()).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        let mut names = std::collections::HashSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, call) in item.as_object().unwrap() {
                let name = call["operationId"].as_str().unwrap();
                assert!(names.insert(name.to_owned()), "{name} comes twice");
                if path.starts_with("/v1/") {
                    assert_eq!(call["security"][0]["key"], serde_json::json!([]), "{method} {path}");
                    assert!(call["responses"]["401"].is_object(), "{method} {path}");
                    assert!(
                        call["description"].as_str().unwrap().contains("Roles: admin"),
                        "{method} {path}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_client_learns_of_headers_times_pages_and_where_to_call_and_of_one_port_only() {
        let document = serde_json::to_value(openapi()).unwrap();
        assert_eq!(document["servers"][0]["url"], "/");
        assert!(document["paths"]["/metrics"].is_null(), "that is on the operator's port");
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, call) in item.as_object().unwrap() {
                for (status, answer) in call["responses"].as_object().unwrap() {
                    let headers = &answer["headers"];
                    assert!(headers["X-Request-Id"].is_object(), "{method} {path} {status}");
                    let waits = path.starts_with("/v1/") && matches!(status.as_str(), "429" | "503");
                    assert_eq!(headers["Retry-After"].is_object(), waits, "{method} {path} {status}");
                }
                for parameter in call["parameters"].as_array().into_iter().flatten() {
                    if parameter["name"] == "limit" {
                        let schema = &parameter["schema"];
                        assert_eq!((&schema["minimum"], &schema["maximum"]), (&1.into(), &1_000.into()));
                    }
                    assert!(parameter["schema"]["type"].is_string(), "{method} {path}: {parameter}");
                }
            }
        }
        let reserve = &document["paths"]["/v1/reservations"]["post"]["responses"];
        for header in ["RateLimit", "RateLimit-Policy", "Idempotency-Replayed"] {
            assert!(reserve["200"]["headers"][header].is_object(), "{header}");
        }
        assert!(
            document["paths"]["/v1/admin/plans/{id}"]["put"]["responses"]["200"]["headers"]["ETag"]
                .is_object()
        );
        let schemas = &document["components"]["schemas"];
        for (schema, field) in
            [("ReserveAnswer", "expires_at"), ("QuotaAnswer", "as_of"), ("PeriodAnswer", "start")]
        {
            assert_eq!(schemas[schema]["properties"][field]["format"], "date-time", "{schema}.{field}");
        }
        assert_eq!(
            schemas["List_EntryRow"]["properties"]["data"]["items"]["$ref"],
            "#/components/schemas/EntryRow"
        );
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = serde_json::to_value(openapi()).unwrap();
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }
}
