//! The shape of a decision that is explained.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::decision::{DecidedLimit, DecidedLine, DecidedSubject, Decision};
use crate::domain::instant::rfc3339;

/// A decision, and what led to it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct DecisionAnswer {
    /// The decision.
    id: String,
    /// When it was made.
    at: String,
    /// Whose units were asked for.
    tenant: String,
    /// `reserve`, `usage`, `check`, `consume`, `release`, `extend` or `event`: the call. A check of booked meters is a
    /// usage.
    call: &'static str,
    /// The operation, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    /// `admitted` or `refused`.
    outcome: &'static str,
    /// Why it was refused, as its answer said: `rate_limited`, `quota_exceeded`, `banned`, `exceeds_plan` or
    /// `balance_exhausted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// Whether it was only asked: nothing was counted.
    dry_run: bool,
    /// Whether it was decided while the gate was away.
    degraded: bool,
    /// The version of the policy by which it was decided.
    policy_version: u64,
    /// Its subjects, as keyed hashes.
    subjects: Vec<DecidedSubjectAnswer>,
    /// The reservation that it made or changed; absent of a refusal, a dry run and a check.
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<String>,
    /// What was asked for; of a consume or release, what is used up so far.
    lines: Vec<DecidedLineAnswer>,
    /// Every limit that was consulted. A refusal without any: an admin has banned the tenant or a subject (`banned`),
    /// or no limit or quota of the tenant covers a meter, and such meters are denied. One in which none refused: it was
    /// refused together with other checks.
    limits: Vec<DecidedLimitAnswer>,
}

/// A subject of a decision.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct DecidedSubjectAnswer {
    /// Its kind.
    kind: String,
    /// A keyed hash: the same for one subject of the tenant in every decision.
    hash: String,
}

/// A line of a decision.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct DecidedLineAnswer {
    /// The meter.
    meter: String,
    /// What was asked for.
    amount: String,
    /// What was granted, where less than that would do.
    #[serde(skip_serializing_if = "Option::is_none")]
    granted: Option<String>,
}

/// What a limit had to say.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct DecidedLimitAnswer {
    /// The limit.
    id: String,
    /// The level that won: `emergency`, `subject`, `tenant`, `plan` or `default`.
    level: &'static str,
    /// Its meter.
    meter: String,
    /// The kind of the subject that it counts; absent where it counts the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject_kind: Option<String>,
    /// What it does when it is reached: `hard` refuses.
    kind: &'static str,
    /// How it counts.
    algorithm: String,
    /// Its capacity.
    capacity: String,
    /// What was used up; with this call's use, if it was admitted. Absent, as `reserved`, of a limit that counts all
    /// tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    consumed: Option<String>,
    /// What running work held; with this call's hold, if it was admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved: Option<String>,
    /// What the call needed of it.
    need: String,
    /// Whether it refused.
    refused: bool,
    /// Why it had no room: `consumed`, `reserved`, `interval`, `anomaly`, or `banned` where it had placed a ban. Absent
    /// where it did not refuse.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    /// How long to wait; absent where it did not refuse, or waiting does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<i64>,
}

impl From<&Decision> for DecisionAnswer {
    fn from(decision: &Decision) -> Self {
        Self {
            id: decision.id.to_string(),
            at: rfc3339(decision.at_ms),
            tenant: decision.tenant.to_string(),
            call: decision.call.as_str(),
            operation: decision.operation.as_ref().map(ToString::to_string),
            outcome: if decision.is_admitted { "admitted" } else { "refused" },
            code: decision.code.clone(),
            dry_run: decision.is_dry_run,
            degraded: decision.is_degraded,
            policy_version: decision.policy_version,
            reservation: decision.reservation.map(|made| made.id.to_string()),
            subjects: decision.subjects.iter().map(DecidedSubjectAnswer::from).collect(),
            lines: decision.lines.iter().map(DecidedLineAnswer::from).collect(),
            limits: decision.limits.iter().map(DecidedLimitAnswer::from).collect(),
        }
    }
}

impl From<&DecidedSubject> for DecidedSubjectAnswer {
    fn from(subject: &DecidedSubject) -> Self {
        Self { kind: subject.kind.clone(), hash: subject.hash.clone() }
    }
}

impl From<&DecidedLine> for DecidedLineAnswer {
    fn from(line: &DecidedLine) -> Self {
        Self {
            meter: line.meter.to_string(),
            amount: line.amount.to_string(),
            granted: line.granted.map(|amount| amount.to_string()),
        }
    }
}

impl From<&DecidedLimit> for DecidedLimitAnswer {
    fn from(limit: &DecidedLimit) -> Self {
        Self {
            id: limit.id.clone(),
            level: limit.level.as_str(),
            meter: limit.meter.to_string(),
            subject_kind: limit.subject_kind.clone(),
            kind: limit.kind.as_str(),
            algorithm: limit.algorithm.clone(),
            capacity: limit.capacity.to_string(),
            consumed: limit.consumed.map(|amount| amount.to_string()),
            reserved: limit.reserved.map(|amount| amount.to_string()),
            need: limit.need.to_string(),
            refused: limit.refused,
            cause: limit.cause.clone(),
            wait_ms: limit.wait_ms,
        }
    }
}
