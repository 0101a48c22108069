//! The shapes of checks and of where a subject stands.

use serde::Serialize;
use utoipa::ToSchema;

use super::warnings::{conduct_warnings, limits_and_warnings, standing_warnings};
use super::{LimitAnswer, RefusedBy, SubjectAnswer, WarningAnswer, ack};
use crate::domain::ids::Subject;
use crate::domain::instant::rfc3339;
use crate::http::headers::{seconds_rounded_up, tightest};
use crate::operations::answers::{Checked, QuotaStatus, RefusalCode};

/// The answer to a check.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct CheckAnswer {
    /// Whether the work may be done; then it is counted.
    pub(in crate::http) allowed: bool,
    /// The capacity of the tightest limit of those that can refuse, or of the one that refuses longest; absent where
    /// there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
    /// What is left of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<String>,
    /// How often the same still fits under all limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_calls: Option<i64>,
    /// In how many seconds that limit has all of its capacity again.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_seconds: Option<i64>,
    /// Why it is refused, as the `code` of a problem. Absent where it is allowed, or where only another check of an
    /// atomic list is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    /// How long to wait before it is tried again; absent where it is allowed, or waiting does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) retry_after_seconds: Option<i64>,
    /// In how many ms the work may start, by the queues (`leaky_bucket`) before it. Absent where it may start at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_after_ms: Option<i64>,
    /// Names the decision.
    decision_id: String,
    /// Whether this is the answer to a repeated check of booked meters; absent where it is not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::http) replayed: bool,
    /// Whether it was decided while the gate was away: then nothing is counted.
    degraded: bool,
    /// Every limit checked.
    pub(in crate::http) limits: Vec<LimitAnswer>,
    /// What refuses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused_by: Vec<RefusedBy>,
    /// Near limits, limits that are exceeded and do not refuse, shadow limits that would have refused, and limits that
    /// remember refused calls; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<WarningAnswer>,
}

/// The answers to several checks.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct ChecksAnswer {
    /// Whether all of them are.
    pub(in crate::http) allowed: bool,
    /// In the order of the checks.
    pub(in crate::http) results: Vec<CheckAnswer>,
}

/// Where a subject stands.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct StatusAnswer {
    /// Whose.
    tenant: String,
    /// Who.
    subject: SubjectAnswer,
    /// `gate` or `ledger`: where the numbers were read.
    source: &'static str,
    /// When.
    as_of: String,
    /// The limits of the tenant and of the subject.
    pub(in crate::http) limits: Vec<LimitAnswer>,
    /// Limits that remember refused calls of the tenant or of the subject, or have banned it; absent where there are
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<WarningAnswer>,
}

impl From<&Checked> for CheckAnswer {
    fn from(checked: &Checked) -> Self {
        let (limits, mut warnings) = limits_and_warnings(&checked.limits);
        // Warnings are new only with what is newly counted.
        if checked.replayed || !checked.allowed {
            warnings.clear();
        }
        if !checked.allowed {
            warnings.extend(conduct_warnings(&checked.limits));
        }
        let refused_by: Vec<_> = checked.refused_by.iter().map(RefusedBy::from).collect();
        let longest = refused_by.iter().max_by_key(|one| one.retry_after_ms.unwrap_or(i64::MAX));
        let of_limits = checked.limits.iter().filter(|status| !status.counter.is_anomaly());
        let can_refuse = limits.iter().zip(of_limits).filter(|(_, status)| status.counter.kind.refuses());
        let shown = longest.map(|one| &one.limit).or_else(|| tightest(can_refuse.map(|(limit, _)| limit)));
        Self {
            allowed: checked.allowed,
            limit: shown.map(|limit| limit.capacity.clone()),
            remaining: shown.and_then(|limit| limit.remaining.clone()),
            remaining_calls: checked.remaining_calls,
            reset_seconds: shown.map(|limit| limit.header.reset_seconds.max(0)),
            code: checked.code.map(RefusalCode::as_str),
            retry_after_seconds: checked.retry_after_ms.map(seconds_rounded_up),
            start_after_ms: Some(checked.start_after_ms).filter(|delay_ms| *delay_ms > 0),
            decision_id: checked.decision_id.to_string(),
            replayed: checked.replayed,
            degraded: checked.degraded,
            limits,
            refused_by,
            warnings,
        }
    }
}

impl StatusAnswer {
    /// What was read of this subject; its quotas stand elsewhere.
    pub(in crate::http) fn of(subject: &Subject, status: &QuotaStatus) -> Self {
        let limits = status.limits.iter().filter(|limit| !limit.counter.is_quota());
        Self {
            tenant: status.tenant.to_string(),
            subject: SubjectAnswer::from(subject),
            source: ack(status.source),
            as_of: rfc3339(status.as_of_ms),
            limits: limits.map(LimitAnswer::from).collect(),
            warnings: standing_warnings(&status.limits).collect(),
        }
    }
}
