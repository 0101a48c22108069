//! `/livez`, `/readyz` and, for operators, `/metrics`.

use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::answer::json;
use super::problem::Problem;
use super::query::Query;
use super::state::State;

/// What `/metrics` answers with.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Without these nothing can be decided; without others the service goes on, degraded.
const NEEDED: &[&str] = &["gate"];

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
    /// Whether it answers.
    ok: bool,
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
        (status = 503, description = "`down`.", body = Health),
    )
)]
#[get("/readyz")]
pub(super) async fn readyz(state: web::Data<State>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let mut query = Query::of(&request)?;
    let verbose = query.word("verbose", &[("", true), ("true", true), ("false", false)])?.unwrap_or(false);
    query.finish()?;
    let checks = state.operations.readiness().await;
    for (name, _, detail) in checks.iter().filter(|(_, ok, _)| !ok) {
        tracing::warn!(name, detail, "not ready");
    }
    let checks: Vec<Check> = checks.into_iter().map(|(name, ok, _)| Check { name, ok }).collect();
    let status = readiness(&checks);
    let builder =
        if status == Readiness::Down { HttpResponse::ServiceUnavailable() } else { HttpResponse::Ok() };
    json(builder, &Health { status, checks: verbose.then_some(checks) })
}

fn readiness(checks: &[Check]) -> Readiness {
    let failed = || checks.iter().filter(|check| !check.ok);
    if checks.is_empty()
        || failed().any(|check| NEEDED.contains(&check.name))
        || failed().count() == checks.len()
    {
        Readiness::Down
    } else if failed().count() > 0 {
        Readiness::Degraded
    } else {
        Readiness::Ok
    }
}

/// The metrics, in OpenMetrics text.
#[utoipa::path(
    tag = "operator",
    responses((status = 200, description = "On the operator's listener only.", body = String, content_type = "application/openmetrics-text"))
)]
#[get("/metrics")]
pub(super) async fn metrics(state: web::Data<State>) -> HttpResponse {
    HttpResponse::Ok().content_type(OPEN_METRICS).body(state.operations.metrics_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_gate_is_down_and_a_missing_ledger_degraded() {
        let check = |name, ok| Check { name, ok };
        assert_eq!(readiness(&[check("gate", true), check("ledger", true)]), Readiness::Ok);
        assert_eq!(readiness(&[check("gate", true), check("ledger", false)]), Readiness::Degraded);
        assert_eq!(readiness(&[check("gate", false), check("ledger", true)]), Readiness::Down);
        assert_eq!(readiness(&[check("gate", false), check("ledger", false)]), Readiness::Down);
        assert_eq!(readiness(&[]), Readiness::Down);
    }
}
