//! Problem documents (RFC 9457): the one place that knows which fault has which status and code.

use std::fmt;
use std::num::NonZero;
use std::sync::LazyLock;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::{HttpResponse, ResponseError};
use serde::Serialize;
use utoipa::ToSchema;

use super::headers::{self, HeaderOptions};
use super::shapes::{LimitAnswer, RefusedBy, ReservationAnswer, WarningAnswer, conduct_warnings};
use crate::domain::rejection::Rejection;
use crate::operations::answers::{Refusal, RefusalCode, Reservation};
use crate::operations::{BoundedLines, FieldError, OperationError};

/// The media type of every error.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// While a server is away, every call fails: so many of them a second are logged.
const FAILED_CALLS_PER_SECOND: NonZero<u32> = NonZero::new(10).unwrap();
static UNDECIDED: LazyLock<BoundedLines> = LazyLock::new(|| BoundedLines::new(FAILED_CALLS_PER_SECOND));
static UNREAD: LazyLock<BoundedLines> = LazyLock::new(|| BoundedLines::new(FAILED_CALLS_PER_SECOND));

/// How long a caller should wait before a call that failed for a passing reason.
const PASSING_FAULT_RETRY_MS: i64 = 1_000;

/// Every code a caller can meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    InvalidRequest,
    IdempotencyKeyRequired,
    Unauthenticated,
    ExceedsPlan,
    BalanceExhausted,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    AlreadyResolved,
    DuplicateSubmission,
    InUse,
    ReservationExpired,
    PreconditionFailed,
    PayloadTooLarge,
    UnsupportedMediaType,
    ValidationFailed,
    AmountDecreased,
    IdempotencyKeyReused,
    Banned,
    QuotaExceeded,
    RateLimited,
    Internal,
    GateUnavailable,
    LedgerUnavailable,
    LedgerTimeout,
    Overloaded,
}

impl Code {
    /// Status, code and title.
    fn row(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::InvalidRequest => (400, "invalid_request", "The request is malformed"),
            Self::IdempotencyKeyRequired => {
                (400, "idempotency_key_required", "An idempotency key is required")
            }
            Self::Unauthenticated => (401, "unauthenticated", "A valid key is required"),
            Self::ExceedsPlan => (402, "exceeds_plan", "The plan does not allow this"),
            Self::BalanceExhausted => (402, "balance_exhausted", "The balance is spent"),
            Self::Forbidden => (403, "forbidden", "The key may not do this"),
            Self::NotFound => (404, "not_found", "There is no such thing"),
            Self::MethodNotAllowed => (405, "method_not_allowed", "The method is not served here"),
            Self::RequestTimeout => (408, "request_timeout", "The request came too slowly"),
            Self::AlreadyResolved => (409, "already_resolved", "The reservation is already resolved"),
            Self::DuplicateSubmission => {
                (409, "duplicate_submission", "The same work was submitted just now")
            }
            Self::InUse => (409, "in_use", "The object is in use"),
            Self::ReservationExpired => (410, "reservation_expired", "The reservation has expired"),
            Self::PreconditionFailed => (412, "precondition_failed", "The object has another version"),
            Self::PayloadTooLarge => (413, "payload_too_large", "The body is too large"),
            Self::UnsupportedMediaType => {
                (415, "unsupported_media_type", "The body is not of a type that is read here")
            }
            Self::ValidationFailed => (422, "validation_failed", "The request is not valid"),
            Self::AmountDecreased => (422, "amount_decreased", "Totals never decrease"),
            Self::IdempotencyKeyReused => {
                (422, "idempotency_key_reused", "The key was used for another request")
            }
            Self::Banned => (429, "banned", "The caller is banned"),
            Self::QuotaExceeded => (429, "quota_exceeded", "A quota is exceeded"),
            Self::RateLimited => (429, "rate_limited", "Too many calls"),
            Self::Internal => (500, "internal", "The service failed"),
            Self::GateUnavailable => (503, "gate_unavailable", "The gate cannot decide now"),
            Self::LedgerUnavailable => (503, "ledger_unavailable", "The ledger cannot be read now"),
            Self::LedgerTimeout => (503, "ledger_timeout", "The ledger has not confirmed in time"),
            Self::Overloaded => (503, "overloaded", "The service is overloaded"),
        }
    }

    /// The HTTP status.
    pub(super) fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().0).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// A problem document as callers read it.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemDocument {
    /// A stable name of the kind of problem, `/problems/<code>`.
    #[serde(rename = "type")]
    #[schema(example = "/problems/quota_exceeded")]
    kind: String,
    /// The kind of problem in words; the same for every occurrence.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// The kind of problem as one stable word.
    #[schema(example = "quota_exceeded")]
    code: &'static str,
    /// This occurrence in words, and what to do.
    detail: String,
    /// Names the request in logs; also in `X-Request-Id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    /// Names the decision in logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision_id: Option<String>,
    /// Which fields are wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldError>,
    /// How long to wait, rounded up to seconds; absent if waiting does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<i64>,
    /// How long to wait in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<i64>,
    /// Every limit that refuses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused_by: Vec<RefusedBy>,
    /// Limits that remember refused calls, and ban or are about to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<WarningAnswer>,
    /// 409 and 410: the reservation as it is. `idempotency_key_reused`, `duplicate_submission`: the first request's.
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<Box<ReservationAnswer>>,
    /// `ledger_timeout`: what has been done already, `gate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<&'static str>,
    #[serde(skip)]
    limits: Vec<LimitAnswer>,
    #[serde(skip)]
    allow: Option<String>,
}

/// A problem with the headers and fields to send.
#[derive(Debug, Clone)]
pub(super) struct Problem(Box<ProblemDocument>);

/// How many errors a problem names.
const ERRORS_MAX: usize = 1_000;

/// How many characters of a pointer or message an answer repeats: both may quote what the caller sent.
const QUOTED_MAX: usize = 1_000;

fn shortened(error: FieldError) -> FieldError {
    let FieldError { pointer, message } = error;
    FieldError { pointer: cut(pointer), message: cut(message) }
}

/// The beginning of a text that is too long to be repeated.
pub(super) fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(QUOTED_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

impl Problem {
    /// A problem of this kind; `detail` says what happened and what to do.
    pub(super) fn new(code: Code, detail: impl Into<String>) -> Self {
        let (status, word, title) = code.row();
        Self(Box::new(ProblemDocument {
            kind: format!("/problems/{word}"),
            title,
            status,
            code: word,
            detail: cut(detail.into()),
            request_id: None,
            decision_id: None,
            errors: Vec::new(),
            retry_after_seconds: None,
            retry_after_ms: None,
            refused_by: Vec::new(),
            warnings: Vec::new(),
            reservation: None,
            applied: None,
            limits: Vec::new(),
            allow: None,
        }))
    }

    /// Malformed: 400.
    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, detail)
    }

    /// Well-formed and wrong: 422, naming every wrong field.
    pub(super) fn fields(errors: Vec<FieldError>) -> Self {
        let errors: Vec<_> = errors.into_iter().take(ERRORS_MAX).map(shortened).collect();
        let detail = errors.first().map_or_else(
            || "The request is not valid.".to_owned(),
            |first| format!("{}: {}", named(&first.pointer), first.message),
        );
        let mut problem = Self::new(Code::ValidationFailed, detail);
        problem.0.errors = errors;
        problem
    }

    /// A wrong query parameter: 400, naming it.
    pub(super) fn parameter(name: &str, message: impl fmt::Display) -> Self {
        let mut problem = Self::invalid(format!("query parameter `{name}`: {message}"));
        problem.0.errors = vec![FieldError::new(format!("/{name}"), message.to_string())];
        problem
    }

    /// No key, or one that does not work.
    pub(super) fn unauthenticated() -> Self {
        Self::new(Code::Unauthenticated, "the key is missing, wrong, expired or revoked")
    }

    /// A call that is not repeatable without an idempotency key.
    pub(super) fn key_required() -> Self {
        let detail = "this call needs an Idempotency-Key header or an idempotency_key field";
        Self::new(Code::IdempotencyKeyRequired, detail)
    }

    /// Another tenant, existing or not: always the same words.
    pub(super) fn other_tenant() -> Self {
        Self::new(Code::Forbidden, "This key may not act for that tenant.")
    }

    /// With the wait that would help.
    pub(super) fn retry_after_ms(mut self, wait_ms: i64) -> Self {
        let wait_ms = wait_ms.max(0);
        self.0.retry_after_ms = Some(wait_ms);
        self.0.retry_after_seconds = Some(headers::seconds_rounded_up(wait_ms));
        self
    }

    /// 405: with the methods that are served.
    pub(super) fn allow(mut self, methods: String) -> Self {
        self.0.allow = Some(methods);
        self
    }

    /// Why a reservation is not changed. A total is named by its meter, as the verbs have it.
    fn rejected(rejection: &Rejection, found: Reservation, detail: String) -> Self {
        let total = |line: &usize| {
            let rule = found.record.body.lines.get(*line);
            rule.map_or_else(|| "/lines".to_owned(), |rule| format!("/lines/{}/amount", rule.meter))
        };
        match rejection {
            Rejection::AlreadyResolved => Self::with_reservation(Code::AlreadyResolved, detail, found),
            Rejection::Expired => Self::with_reservation(Code::ReservationExpired, detail, found),
            Rejection::AmountNeedsOneLine => Self::fields(vec![FieldError::new("/amount", detail)]),
            Rejection::MeterNotReserved(meter) => {
                Self::fields(vec![FieldError::new(format!("/lines/{meter}/meter"), detail)])
            }
            Rejection::TooPrecise(line) | Rejection::TooLarge(line) | Rejection::ExcessRejected(line) => {
                Self::fields(vec![FieldError::new(total(line), detail)])
            }
            Rejection::AmountDecreased(line) => {
                let error = FieldError::new(total(line), detail.clone());
                let mut problem = Self::new(Code::AmountDecreased, detail);
                problem.0.errors = vec![shortened(error)];
                problem
            }
        }
    }

    /// With changed field pointers: a verb names the fields of its request, and the caller sent another shape.
    pub(super) fn map_pointers(mut self, change: impl Fn(&str) -> Option<String>) -> Self {
        for error in &mut self.0.errors {
            if let Some(pointer) = change(&error.pointer) {
                if let Some(rest) =
                    self.0.detail.strip_prefix(&error.pointer).filter(|_| !error.pointer.is_empty())
                {
                    self.0.detail = format!("{}{rest}", named(&pointer));
                }
                error.pointer = pointer;
            }
        }
        self
    }

    /// With more advice at the end of the detail.
    pub(super) fn advise(mut self, advice: &str) -> Self {
        self.0.detail = format!("{}. {advice}", self.0.detail.trim_end_matches('.'));
        self
    }

    /// The status.
    pub(super) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The code.
    pub(super) fn code(&self) -> &'static str {
        self.0.code
    }

    /// The document, naming the request it belongs to.
    pub(super) fn to_json(&self, request_id: &str) -> Vec<u8> {
        let mut document = self.0.clone();
        document.request_id = Some(request_id.to_owned());
        serde_json::to_vec(&document).unwrap_or_default()
    }

    /// The headers that go with it.
    pub(super) fn write_headers(&self, headers: &mut HeaderMap, options: HeaderOptions) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        headers::write_limits(headers, &self.0.limits, options);
        if let Some(seconds) = self.0.retry_after_seconds {
            headers::write_retry_after(headers, seconds, options);
        }
        if self.0.status == 401 {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        insert_text(headers, header::ALLOW, self.0.allow.as_deref());
    }

    fn refused(refusal: Refusal) -> Self {
        let code = match refusal.code {
            RefusalCode::ExceedsPlan => Code::ExceedsPlan,
            RefusalCode::BalanceExhausted => Code::BalanceExhausted,
            RefusalCode::Banned => Code::Banned,
            RefusalCode::QuotaExceeded => Code::QuotaExceeded,
            RefusalCode::RateLimited => Code::RateLimited,
        };
        let mut problem = Self::new(code, refusal.detail);
        if let Some(wait_ms) =
            refusal.retry_after_ms.filter(|_| code.status() == StatusCode::TOO_MANY_REQUESTS)
        {
            problem = problem.retry_after_ms(wait_ms);
        }
        problem.0.decision_id = Some(refusal.decision_id.to_string());
        problem.0.refused_by = refusal.refused_by.iter().map(RefusedBy::from).collect();
        problem.0.warnings = conduct_warnings(&refusal.limits).collect();
        let in_headers = refusal.limits.iter().filter(|status| !status.counter.is_anomaly());
        problem.0.limits = in_headers.map(LimitAnswer::from).collect();
        problem
    }

    fn with_reservation(code: Code, detail: String, found: Reservation) -> Self {
        let reservation = ReservationAnswer::from(found);
        let mut problem = Self::new(code, detail);
        problem.0.decision_id = Some(reservation.decision_id.clone());
        problem.0.reservation = Some(Box::new(reservation));
        problem
    }

    fn passing(code: Code, detail: &str) -> Self {
        Self::new(code, detail).retry_after_ms(PASSING_FAULT_RETRY_MS)
    }
}

/// A field in a sentence.
fn named(pointer: &str) -> &str {
    if pointer.is_empty() { "the body" } else { pointer }
}

fn insert_text(headers: &mut HeaderMap, name: HeaderName, text: Option<&str>) {
    if let Some(value) = text.and_then(|text| HeaderValue::from_str(text).ok()) {
        headers.insert(name, value);
    }
}

impl From<OperationError> for Problem {
    fn from(error: OperationError) -> Self {
        let detail = error.to_string();
        match error {
            OperationError::Invalid(errors) => Self::fields(errors),
            OperationError::Malformed(_) => Self::invalid(detail),
            OperationError::KeyRequired => Self::key_required(),
            OperationError::NotFound(_) => Self::new(Code::NotFound, detail),
            OperationError::KeyReused(first) => {
                Self::with_reservation(Code::IdempotencyKeyReused, detail, *first)
            }
            OperationError::Duplicate(_, Some(first)) => {
                Self::with_reservation(Code::DuplicateSubmission, detail, *first)
            }
            OperationError::Duplicate(_, None) => Self::new(Code::DuplicateSubmission, detail),
            OperationError::SamePerson => Self::new(Code::Forbidden, detail),
            OperationError::GrantKeyReused(_)
            | OperationError::AdjustmentKeyReused(_)
            | OperationError::UpgradeKeyReused(_)
            | OperationError::BillKeyReused(_) => Self::new(Code::IdempotencyKeyReused, detail),
            OperationError::TooLarge(_) => Self::new(Code::PayloadTooLarge, detail),
            OperationError::GrantEnded(_)
            | OperationError::UpgradeDecided(_)
            | OperationError::AdjustmentDecided(_) => Self::new(Code::AlreadyResolved, detail),
            OperationError::Rejected(rejection, found) => Self::rejected(&rejection, *found, detail),
            OperationError::InUse(_) => Self::new(Code::InUse, detail),
            OperationError::PreconditionFailed { current } => Self::new(
                Code::PreconditionFailed,
                format!(
                    "the object has version {current}, which is not what If-Match, If-None-Match or `version` asks for"
                ),
            ),
            OperationError::DifferenceMoved => Self::new(Code::PreconditionFailed, detail),
            OperationError::Refused(refusal) => Self::refused(*refusal),
            OperationError::GateUnavailable(cause) => {
                if let Some(left_out) = UNDECIDED.next() {
                    tracing::warn!(%cause, left_out, "the gate could not decide");
                }
                Self::passing(Code::GateUnavailable, "The gate cannot decide right now; repeat the call.")
            }
            OperationError::InQuarantine(_) => Self::passing(Code::GateUnavailable, &detail),
            OperationError::LedgerUnavailable(cause) => {
                if let Some(left_out) = UNREAD.next() {
                    tracing::warn!(%cause, left_out, "the ledger could not be read");
                }
                Self::passing(
                    Code::LedgerUnavailable,
                    "The ledger cannot be read right now; repeat the call.",
                )
            }
            OperationError::Overloaded => Self::passing(Code::Overloaded, &detail),
            OperationError::LedgerTimeout => {
                let mut problem = Self::passing(Code::LedgerTimeout, &detail);
                problem.0.applied = Some("gate");
                problem
            }
            cause @ (OperationError::ForeignMemory
            | OperationError::DamagedMemory(_)
            | OperationError::Internal(_)) => {
                tracing::error!(%cause, "the service failed to answer");
                Self::new(Code::Internal, "The service failed to answer; the fault has been logged.")
            }
        }
    }
}

/// What actix itself refuses (a path it cannot decode, a broken body) as a problem of the same shape.
impl From<&actix_web::Error> for Problem {
    fn from(error: &actix_web::Error) -> Self {
        if let Some(problem) = error.as_error::<Problem>() {
            return problem.clone();
        }
        match error.as_response_error().status_code() {
            StatusCode::NOT_FOUND => Self::new(Code::NotFound, "There is no such path."),
            StatusCode::PAYLOAD_TOO_LARGE => Self::new(Code::PayloadTooLarge, "The body is too large."),
            StatusCode::REQUEST_TIMEOUT => Self::new(Code::RequestTimeout, "The request came too slowly."),
            status if status.is_client_error() => Self::invalid("The request could not be read."),
            _ => {
                tracing::error!(%error, "internal fault");
                Self::new(Code::Internal, "The service failed to answer; the fault has been logged.")
            }
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.detail)
    }
}

/// The envelope writes the body, because it knows the request's id.
impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.status()
    }

    fn error_response(&self) -> HttpResponse {
        HttpResponse::new(self.status())
    }
}

#[cfg(test)]
mod tests;
