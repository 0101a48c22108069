//! `/livez`, `/readyz` and, for operators, `/metrics`.

use actix_web::http::header::{self, HeaderMap};
use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::answer::json;
use super::problem::{Problem, ProblemDocument};
use super::query::Query;
use super::state::State;
use crate::operations;

/// The media type of `/metrics` for clients that ask for OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of `/metrics` for all others.
const OLDER_METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether the service can work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Readiness {
    /// Everything answers.
    Ok,
    /// Something is away; calls go on as policy says.
    Degraded,
    /// Send no calls here.
    Down,
}

/// One thing the service depends on.
#[derive(Debug, Serialize, ToSchema)]
struct Check {
    /// Which.
    name: &'static str,
    /// Whether it is as it should be.
    ok: bool,
    /// How it is, in a sentence.
    detail: &'static str,
}

/// How the service is.
#[derive(Debug, Serialize, ToSchema)]
struct Health {
    /// In a word.
    status: Readiness,
    /// With `?verbose`: each dependency.
    #[serde(skip_serializing_if = "Option::is_none")]
    checks: Option<Vec<Check>>,
}

/// Whether the process lives: always 200.
#[utoipa::path(tag = "operator", responses((status = 200, description = "It lives.", body = Health)))]
#[get("/livez")]
pub(super) async fn livez() -> Result<HttpResponse, Problem> {
    json(HttpResponse::Ok(), &Health { status: Readiness::Ok, checks: None })
}

/// Whether calls should be sent here.
#[utoipa::path(
    tag = "operator",
    params(("verbose" = Option<String>, Query, description = "Name each dependency.", allow_reserved)),
    responses(
        (status = 200, description = "`ok` or `degraded`.", body = Health),
        (status = 400, description = "`invalid_request`: a parameter that is not served.", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 503, description = "`down`: send no calls here.", body = Health),
    )
)]
#[get("/readyz")]
pub(super) async fn readyz(state: web::Data<State>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let verbose = query.word("verbose", &[("true", true), ("false", false), ("", true)])?.unwrap_or(false);
    query.finish()?;
    let checks = state.operations.health.readiness().await;
    for check in checks.iter().filter(|check| !check.ok) {
        tracing::warn!(name = check.name, detail = check.detail, "not ready");
    }
    let status = readiness(&checks);
    let said = |check: operations::Readiness| Check { name: check.name, ok: check.ok, detail: check.detail };
    let checks: Vec<Check> = checks.into_iter().map(said).collect();
    let builder =
        if status == Readiness::Down { HttpResponse::ServiceUnavailable() } else { HttpResponse::Ok() };
    json(builder, &Health { status, checks: verbose.then_some(checks) })
}

fn readiness(checks: &[operations::Readiness]) -> Readiness {
    let failed = || checks.iter().filter(|check| !check.ok);
    if checks.is_empty() || failed().any(|check| check.needed) {
        Readiness::Down
    } else if failed().count() > 0 {
        Readiness::Degraded
    } else {
        Readiness::Ok
    }
}

/// The metrics: OpenMetrics text if `Accept` names it and does not prefer plain text, otherwise the older format.
#[utoipa::path(
    tag = "operator",
    responses((status = 200, description = "On the operator's listener only.", body = String, content_type = "text/plain"))
)]
#[get("/metrics")]
pub(super) async fn metrics(state: web::Data<State>, request: HttpRequest) -> HttpResponse {
    let operations = &state.operations;
    if accepts_open_metrics(request.headers()) {
        HttpResponse::Ok().content_type(OPEN_METRICS).body(operations.metrics_text())
    } else {
        HttpResponse::Ok().content_type(OLDER_METRICS).body(operations.metrics_text_older())
    }
}

/// Whether `Accept` names OpenMetrics and does not prefer plain text.
fn accepts_open_metrics(headers: &HeaderMap) -> bool {
    let text = weight(headers, &["text/plain", "text/*", "*/*"]).unwrap_or(0.0);
    weight(headers, &["application/openmetrics-text"]).is_some_and(|own| own > 0.0 && own >= text)
}

/// The weight that `Accept` gives the first of these media ranges that it names.
fn weight(headers: &HeaderMap, media: &[&str]) -> Option<f32> {
    media.iter().find_map(|media| {
        let lines = headers.get_all(header::ACCEPT).filter_map(|line| line.to_str().ok());
        lines.flat_map(|line| line.split(',')).find_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(media));
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
            is_named.then(|| weight.unwrap_or(1.0))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_decides_and_a_missing_ledger_only_degrades() {
        let check = |ok, needed| operations::Readiness { name: "it", ok, needed, detail: "" };
        assert_eq!(readiness(&[check(true, true), check(true, false)]), Readiness::Ok);
        assert_eq!(readiness(&[check(true, true), check(false, false)]), Readiness::Degraded);
        assert_eq!(readiness(&[check(false, true), check(true, false)]), Readiness::Down);
        assert_eq!(readiness(&[check(false, true), check(false, false)]), Readiness::Down);
        assert_eq!(readiness(&[]), Readiness::Down);
    }

    #[test]
    fn open_metrics_is_for_those_who_name_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        for (accept, expected) in [
            (prometheus, true),
            ("text/plain", false),
            ("*/*", false),
            ("application/openmetrics-text; q=0, text/plain", false),
            ("application/openmetrics-text;q=0.1, text/plain;q=0.9", false),
            ("application/openmetrics-text;q=0.1, */*", false),
            ("application/openmetrics-text, */*", true),
            ("application/openmetrics-text;q=0.5, text/plain;q=0, */*;q=0.9", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, header::HeaderValue::from_static(accept));
            assert_eq!(accepts_open_metrics(&headers), expected, "{accept}");
        }
        assert!(!accepts_open_metrics(&HeaderMap::new()));
    }
}
