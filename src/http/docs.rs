//! `/openapi.json` and `/docs`: the contract, browsable without loading anything from elsewhere.

use std::sync::{Arc, LazyLock};

use actix_web::http::header;
use actix_web::{HttpResponse, Resource, get, guard, web};
use utoipa_swagger_ui::Config;

use super::openapi;
use super::problem::{Code, Problem};

/// Swagger UI sets styles on elements; apart from that, only what this service serves may run or load.
const DOCS_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// No validator: it would call a foreign server.
static SWAGGER: LazyLock<Arc<Config<'static>>> =
    LazyLock::new(|| Arc::new(Config::new(["/openapi.json"]).validator_url("none")));

/// The contract as OpenAPI 3.1.
#[utoipa::path(
    tag = "operator",
    responses((status = 200, description = "This document.", body = Object, content_type = "application/json"))
)]
#[get("/openapi.json")]
pub(super) async fn openapi_json() -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(openapi::TEXT.clone())
}

/// The page itself and its files.
pub(super) fn browse() -> Resource {
    web::resource(["/docs", "/docs/{file:.*}"]).guard(guard::Get()).to(file)
}

/// Redirects a browser from the address to the page.
pub(super) fn root() -> Resource {
    let lead =
        || async { HttpResponse::TemporaryRedirect().insert_header((header::LOCATION, "/docs/")).finish() };
    web::resource("/").guard(guard::Get()).to(lead)
}

async fn file(request: actix_web::HttpRequest) -> Result<HttpResponse, Problem> {
    let Some(name) = request.match_info().get("file") else {
        return Ok(HttpResponse::PermanentRedirect().insert_header((header::LOCATION, "/docs/")).finish());
    };
    let missing = || Problem::new(Code::NotFound, "There is no such page.");
    let file = utoipa_swagger_ui::serve(name, SWAGGER.clone()).map_err(|fault| {
        tracing::error!(%fault, "a page of the docs could not be read");
        Problem::new(Code::Internal, "The page could not be read.")
    })?;
    let file = file.ok_or_else(missing)?;
    let mut response = HttpResponse::Ok();
    response.content_type(file.content_type).insert_header((header::CONTENT_SECURITY_POLICY, DOCS_POLICY));
    if file.gzpipped {
        response.insert_header(header::ContentEncoding::Gzip);
    }
    Ok(response.body(file.bytes.into_owned()))
}
