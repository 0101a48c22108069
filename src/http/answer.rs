//! Answers of the gate's calls: a status, a JSON body and the headers that go with it.

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderValue;
use actix_web::{HttpResponse, HttpResponseBuilder};
use serde::Serialize;
use utoipa::ToSchema;

use super::headers::{self, HeaderOptions};
use super::problem::{Code, Problem};
use super::shapes::check::CheckAnswer;
use super::shapes::{LimitAnswer, ReservationAnswer, ReserveAnswer};
use crate::operations::answers::{Checked, Reservation, Reserved};

/// Most answers of gate calls fit into this.
const ANSWER_BYTES: usize = 1_024;

/// An answer of a gate call, for a single call or an item of a batch.
pub(super) struct GateAnswer {
    pub(super) status: StatusCode,
    /// JSON text.
    pub(super) body: Vec<u8>,
    limits: Vec<LimitAnswer>,
    replayed: bool,
    /// When to repeat the call.
    retry_after_seconds: Option<i64>,
}

impl GateAnswer {
    /// 201 for a new hold, 200 for a replay or a dry run.
    pub(super) fn of_reserve(reserved: Reserved) -> Result<Self, Problem> {
        let answer = ReserveAnswer::from(reserved);
        let created = answer.id.is_some() && !answer.replayed;
        let body = to_json(&answer)?;
        let (status, replayed, limits) = (created_or_ok(created), answer.replayed, answer.limits);
        Ok(Self { status, body, replayed, limits, retry_after_seconds: None })
    }

    /// 201 for usage recorded now, 200 for a replay.
    pub(super) fn of_usage(answer: Reservation) -> Result<Self, Problem> {
        let status = created_or_ok(!answer.replayed);
        Ok(Self { status, ..Self::of_reservation(answer)? })
    }

    /// 200.
    pub(super) fn of_reservation(found: Reservation) -> Result<Self, Problem> {
        let answer = ReservationAnswer::from(found);
        let body = to_json(&answer)?;
        let (status, replayed, limits) = (StatusCode::OK, answer.replayed, answer.limits);
        Ok(Self { status, body, replayed, limits, retry_after_seconds: None })
    }

    /// 200, whether it is allowed or not.
    pub(super) fn of_check(checked: &Checked) -> Result<Self, Problem> {
        let answer = CheckAnswer::from(checked);
        let (status, body) = (StatusCode::OK, to_json(&answer)?);
        let CheckAnswer { retry_after_seconds, replayed, limits, .. } = answer;
        Ok(Self { status, body, replayed, limits, retry_after_seconds })
    }

    /// As a response of its own.
    pub(super) fn into_response(self, options: HeaderOptions) -> HttpResponse {
        let mut response = HttpResponse::build(self.status).content_type("application/json").body(self.body);
        headers::write_limits(response.headers_mut(), &self.limits, options);
        if let Some(seconds) = self.retry_after_seconds {
            headers::write_retry_after(response.headers_mut(), seconds, options);
        }
        if self.replayed {
            response.headers_mut().insert(headers::IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
        }
        response
    }
}

fn created_or_ok(created: bool) -> StatusCode {
    if created { StatusCode::CREATED } else { StatusCode::OK }
}

/// The JSON text of an answer.
pub(super) fn to_json(answer: &impl Serialize) -> Result<Vec<u8>, Problem> {
    let mut text = Vec::with_capacity(ANSWER_BYTES);
    serde_json::to_writer(&mut text, answer).map_err(|fault| {
        tracing::error!(%fault, "an answer could not be written");
        Problem::new(Code::Internal, "The service failed to answer; the fault has been logged.")
    })?;
    Ok(text)
}

/// A JSON response.
pub(super) fn json(
    mut builder: HttpResponseBuilder,
    answer: &impl Serialize,
) -> Result<HttpResponse, Problem> {
    Ok(builder.content_type("application/json").body(to_json(answer)?))
}

/// A page of a list: newest first, unless the call says by what else it is sorted.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct List<T> {
    /// The rows.
    pub(super) data: Vec<T>,
    /// Send it as `cursor` with the same filters for the rows that follow; null on the last page.
    pub(super) next_cursor: Option<String>,
    /// Whether rows follow.
    pub(super) has_more: bool,
    /// When the numbers were read, where it matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) as_of: Option<String>,
}
