//! Every fault of the verbs, as callers see it.

use rstest::rstest;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::domain::algorithms::{Parameters, calendar};
use crate::domain::amount::{Decimals, Units};
use crate::domain::counter::{Counter, Source};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{Epoch, MeterId, ReservationId, TenantId};
use crate::domain::limit::{Class, Kind};
use crate::domain::load::LoadLevel;
use crate::domain::period::Window;
use crate::domain::plan::QuotaMode;
use crate::domain::punishment::Conduct;
use crate::domain::reservation::{Body, CounterField, Head, Record, ReservationState};
use crate::operations::answers::LimitStatus;
use crate::operations::answers::{Cause, RefusedLimit};
use crate::operations::requests::Ack;

fn reservation() -> Box<Reservation> {
    let head = Head {
        state: ReservationState::Consumed,
        late: false,
        degraded: false,
        step: 2,
        epoch: Epoch(1),
        expires_at_ms: 60_000,
        born_at_ms: 0,
        latest_expiry_ms: 60_000,
        last_sequence: 7,
        start_after_ms: 0,
        unmoved: 0,
        correction: None,
    };
    let tenant = TenantId::parse("acme").unwrap();
    let body = Body { fingerprint: Fingerprint([0; 16]), tenant, lines: Vec::new(), rest: None };
    Box::new(Reservation {
        id: ReservationId::from_bytes([1; 16]),
        record: Record { head, units: Vec::new(), body },
        replayed: false,
        degraded: false,
        ack: Ack::Gate,
        limits: Vec::new(),
        resolved_at_ms: None,
    })
}

fn rejected(rejection: Rejection) -> OperationError {
    OperationError::Rejected(rejection, reservation())
}

/// A quota of 1000 that is used up for 412 seconds more.
fn limit() -> LimitStatus {
    let window = Window { start_ms: 0, end_ms: 86_400_000 };
    let capacity = Units::new(1000).unwrap();
    LimitStatus {
        counter: Counter {
            scope_index: 0,
            is_light: false,
            field: CounterField::default(),
            kind: Kind::Hard,
            class: Class::Quota,
            lines: vec![(0, 1)],
            capacity,
            load: LoadLevel::Full,
            parameters: Parameters::Calendar(calendar::Parameters { window }),
            since_ms: 0,
            meter: MeterId::parse("ocr.page").unwrap(),
            decimals: Decimals::default(),
            budgeted: None,
            source: Source::Quota(QuotaMode::default()),
        },
        subject: None,
        capacity,
        consumed: capacity,
        reserved: Units::ZERO,
        remaining: Units::ZERO,
        resets_at_ms: window.end_ms,
        next_hold_ends_at_ms: None,
        as_of_ms: window.end_ms - 411_220,
        is_exceeded: false,
        would_refuse: false,
        is_hidden: false,
        conduct: Conduct::default(),
    }
}

fn refusal(code: RefusalCode, retry_after_ms: Option<i64>) -> OperationError {
    let six = Units::new(6).unwrap();
    let refused_by = vec![RefusedLimit {
        limit: limit(),
        cause: Cause::Consumed,
        needed: six,
        shortfall: six,
        retry_after_ms,
        message: "The day is used up.".into(),
    }];
    OperationError::Refused(Box::new(Refusal {
        code,
        detail: "refused".into(),
        retry_after_ms,
        decision_id: Uuid::nil(),
        asked: Vec::new(),
        policy_version: 1,
        refused_by,
        limits: vec![limit()],
    }))
}

fn document(problem: &Problem) -> Value {
    serde_json::from_slice(&problem.to_json("req-1")).unwrap()
}

#[rstest]
#[case(OperationError::field("/a", "m"), 422, "validation_failed")]
#[case(OperationError::Malformed("m".into()), 400, "invalid_request")]
#[case(OperationError::NotFound("m".into()), 404, "not_found")]
#[case(OperationError::KeyReused(reservation()), 422, "idempotency_key_reused")]
#[case(OperationError::Duplicate(reservation().id, Some(reservation())), 409, "duplicate_submission")]
#[case(OperationError::Duplicate(reservation().id, None), 409, "duplicate_submission")]
#[case(rejected(Rejection::AlreadyResolved), 409, "already_resolved")]
#[case(rejected(Rejection::Expired), 410, "reservation_expired")]
#[case(rejected(Rejection::AmountDecreased(0)), 422, "amount_decreased")]
#[case(rejected(Rejection::AmountNeedsOneLine), 422, "validation_failed")]
#[case(rejected(Rejection::ExcessRejected(0)), 422, "validation_failed")]
#[case(OperationError::InUse("m".into()), 409, "in_use")]
#[case(OperationError::PreconditionFailed { current: 3 }, 412, "precondition_failed")]
#[case(refusal(RefusalCode::ExceedsPlan, None), 402, "exceeds_plan")]
#[case(refusal(RefusalCode::BalanceExhausted, None), 402, "balance_exhausted")]
#[case(refusal(RefusalCode::Banned, Some(1_000)), 429, "banned")]
#[case(refusal(RefusalCode::QuotaExceeded, Some(411_220)), 429, "quota_exceeded")]
#[case(refusal(RefusalCode::RateLimited, Some(1)), 429, "rate_limited")]
#[case(OperationError::GateUnavailable("m".into()), 503, "gate_unavailable")]
#[case(OperationError::InQuarantine("m"), 503, "gate_unavailable")]
#[case(OperationError::LedgerUnavailable("m".into()), 503, "ledger_unavailable")]
#[case(OperationError::Overloaded, 503, "overloaded")]
#[case(OperationError::LedgerTimeout, 503, "ledger_timeout")]
#[case(OperationError::Internal("m".into()), 500, "internal")]
fn each_fault_has_one_status_and_code(
    #[case] error: OperationError,
    #[case] status: u16,
    #[case] code: &str,
) {
    let problem = Problem::from(error);
    let document = document(&problem);
    assert_eq!((problem.status().as_u16(), problem.code()), (status, code));
    assert_eq!(document["status"], status);
    assert_eq!(document["code"], code);
    assert_eq!(document["type"], format!("/problems/{code}"));
    assert_eq!(document["request_id"], "req-1");
    assert!(
        !document["title"].as_str().unwrap().is_empty() && !document["detail"].as_str().unwrap().is_empty()
    );
}

#[test]
fn a_refusal_explains_itself_in_body_and_headers() {
    let problem = Problem::from(refusal(RefusalCode::QuotaExceeded, Some(411_220)));
    let document = document(&problem);
    assert_eq!(document["retry_after_seconds"], 412);
    assert_eq!(document["retry_after_ms"], 411_220);
    assert_eq!(document["decision_id"], Uuid::nil().to_string());
    assert_eq!(document["refused_by"][0]["id"], "quota:ocr.page");
    assert_eq!(document["refused_by"][0]["cause"], "consumed");
    let mut headers = HeaderMap::new();
    problem.write_headers(&mut headers, HeaderOptions::default());
    assert_eq!(headers.get("retry-after").unwrap(), "412");
    assert_eq!(headers.get("ratelimit").unwrap(), "\"quota:ocr.page\";r=0;t=412");
    assert_eq!(headers.get("content-type").unwrap(), PROBLEM_JSON);
}

#[test]
fn where_waiting_does_not_help_no_wait_is_named() {
    let problem = Problem::from(refusal(RefusalCode::ExceedsPlan, Some(5)));
    let mut headers = HeaderMap::new();
    problem.write_headers(&mut headers, HeaderOptions::default());
    assert!(headers.get("retry-after").is_none());
    assert_eq!(document(&problem).get("retry_after_seconds"), None);
}

#[test]
fn a_conflict_carries_the_reservation_and_a_ledger_timeout_what_was_applied() {
    let found = reservation();
    let conflict =
        document(&Problem::from(OperationError::Rejected(Rejection::AlreadyResolved, found.clone())));
    assert_eq!(conflict["reservation"]["id"], found.id.to_string());
    assert_eq!(conflict["decision_id"], found.decision_id().to_string());
    assert_eq!(conflict["detail"], "the reservation is already consumed");
    let timeout = document(&Problem::from(OperationError::LedgerTimeout));
    assert_eq!(timeout["applied"], "gate");
    assert_eq!(timeout["retry_after_seconds"], 1);
}

#[test]
fn faults_of_ours_keep_their_causes_to_the_logs() {
    for error in [
        OperationError::Internal("SELECT secret".into()),
        OperationError::GateUnavailable("secret socket".into()),
        OperationError::LedgerUnavailable("secret host".into()),
    ] {
        assert!(!document(&Problem::from(error)).to_string().contains("secret"));
    }
}

#[test]
fn wrong_fields_are_all_named() {
    let errors = vec![FieldError::new("/a", "one"), FieldError::new("", "two")];
    let document = document(&Problem::from(OperationError::Invalid(errors)));
    assert_eq!(
        document["errors"],
        json!([{ "pointer": "/a", "message": "one" }, { "pointer": "", "message": "two" }])
    );
    assert_eq!(document["detail"], "/a: one");
}

#[test]
fn pointers_follow_the_shape_that_was_sent() {
    let errors = vec![FieldError::new("/lines/0/amount", "m"), FieldError::new("/tenant", "m")];
    let problem = Problem::from(OperationError::Invalid(errors))
        .map_pointers(|pointer| pointer.strip_prefix("/lines/0").map(str::to_owned));
    let document = document(&problem);
    assert_eq!(document["errors"][0]["pointer"], "/amount");
    assert_eq!(document["errors"][1]["pointer"], "/tenant");
    assert_eq!(document["detail"], "/amount: m");
}
