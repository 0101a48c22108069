//! What the verbs answer: the shapes of the API, ready to be serialised.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::requests::Role;
use crate::domain::policy::diff::Change;

/// A limit as an answer shows it.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct LimitAnswer {
    /// The limit's id; a plan's included quota is called `quota:<meter>`.
    pub id: String,
    /// What it counts.
    pub meter: String,
    /// `tenant` or `subject`.
    pub scope: String,
    /// The subject it counts for, where the scope is `subject`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<SubjectAnswer>,
    /// `calendar`.
    pub algorithm: String,
    /// `hour`, `day`, `week`, `month` or `period`.
    pub window: String,
    /// At most this much in the window.
    pub capacity: String,
    /// Used up.
    pub consumed: String,
    /// Held by running work.
    pub reserved: String,
    /// What is left, at least 0.
    pub remaining: String,
    /// When the window ends (RFC 3339, UTC).
    pub resets_at: String,
    /// `hard`.
    pub kind: String,
    /// `quota` or `rate`.
    pub class: String,
    /// Which level's definition won: `emergency`, `subject`, `tenant`, `plan` or `default`.
    pub level: String,
    /// For the response headers only: the window's length and time to its end.
    #[serde(skip)]
    pub header: LimitHeader,
}

/// What the `RateLimit` headers need of a limit: whole units, rounded down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitHeader {
    /// Capacity in whole units.
    pub quota: i64,
    /// Remaining in whole units.
    pub remaining: i64,
    /// Length of the current window in seconds.
    pub window_seconds: i64,
    /// Seconds to the window's end, rounded up.
    pub reset_seconds: i64,
}

/// A subject by kind and id.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct SubjectAnswer {
    /// `user`, `api_key`, …
    pub kind: String,
    /// Its id.
    pub id: String,
}

/// Something worth knowing that changes nothing.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct WarningAnswer {
    /// `near_limit`, `excess`, `late`.
    pub code: String,
    /// The limit it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// In words.
    pub detail: String,
}

/// A line of a reserve.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct ReservedLineAnswer {
    /// The meter.
    pub meter: String,
    /// What is held.
    pub amount: String,
    /// Best effort: what was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<String>,
}

/// The answer to a reserve.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ReserveAnswer {
    /// Absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `reserved`; on a replay whatever it is now. Absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Dry run only: whether it would have been admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<bool>,
    /// Whose units.
    pub tenant: String,
    /// The subjects named, by kind.
    pub subjects: BTreeMap<String, String>,
    /// The operation, where one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// What is held, by meter.
    pub lines: Vec<ReservedLineAnswer>,
    /// When it was made. Absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// When the hold ends. Absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Whether this is the answer to a repeated call.
    pub replayed: bool,
    /// Whether it was decided while the gate was away.
    pub degraded: bool,
    /// Names the decision; a repeat names the first one.
    pub decision_id: String,
    /// Every limit checked.
    pub limits: Vec<LimitAnswer>,
    /// Dry run only: what would refuse.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused_by: Vec<RefusedBy>,
    /// Near limits and the like.
    pub warnings: Vec<WarningAnswer>,
}

/// A line of a consume, release or usage.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct ConsumedLineAnswer {
    /// The meter.
    pub meter: String,
    /// What was held at the reserve.
    pub reserved: String,
    /// The total consumed.
    pub consumed: String,
    /// What of the hold was given back.
    pub returned: String,
    /// What was consumed above the hold.
    pub excess: String,
    /// What a `cap` kept uncharged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncharged: Option<String>,
}

/// A reservation as `GET`, consume, release, extend and usage answer it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ReservationAnswer {
    /// The reservation.
    pub id: String,
    /// Whose units.
    pub tenant: String,
    /// `reserved`, `consumed`, `released` or `expired`.
    pub status: String,
    /// Whether it is resolved for good.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// Consumed after it had expired.
    pub late: bool,
    /// Whether this is the answer to a repeated call.
    pub replayed: bool,
    /// Whether it was taken while the gate was away.
    pub degraded: bool,
    /// `gate` or `ledger`: who has it for certain.
    pub ack: String,
    /// Names the decision that changed it last; a repeat and every read say the same.
    pub decision_id: String,
    /// By meter.
    pub lines: Vec<ConsumedLineAnswer>,
    /// When it was made.
    pub created_at: String,
    /// When it was consumed, released or expired, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<String>,
    /// When the hold ends or ended.
    pub expires_at: String,
    /// The limits it moved whose window is still current.
    pub limits: Vec<LimitAnswer>,
    /// Excess, lateness, near limits.
    pub warnings: Vec<WarningAnswer>,
    /// The operation, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The subjects named, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subjects: Option<BTreeMap<String, String>>,
    /// The caller's metadata, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<serde_json::Value>,
}

/// A limit that refuses.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct RefusedBy {
    /// The limit and where it stands.
    #[serde(flatten)]
    pub limit: LimitAnswer,
    /// `consumed`: used up; `reserved`: only held by running work.
    pub cause: String,
    /// What the request needs under this limit.
    pub needed: String,
    /// How much is missing.
    pub shortfall: String,
    /// How long to wait; absent where waiting does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<i64>,
    /// When a hold in this window ends, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hold_ends_at: Option<String>,
    /// In words.
    pub message: String,
}

/// A refusal: an answer, not an error.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// `exceeds_plan` and `balance_exhausted` (402) before `quota_exceeded` and `rate_limited` (429).
    pub code: RefusalCode,
    /// In words.
    pub detail: String,
    /// The longest wait; absent where waiting does not help.
    pub retry_after_ms: Option<i64>,
    /// Names this decision in logs.
    pub decision_id: String,
    /// Every limit that refuses.
    pub refused_by: Vec<RefusedBy>,
    /// Every limit checked, for the headers.
    pub limits: Vec<LimitAnswer>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalCode {
    /// The amount is above a capacity itself, or the plan has no room for the meter at all: only a plan helps.
    ExceedsPlan,
    /// Only a grant helps.
    BalanceExhausted,
    /// Waiting helps (class quota).
    QuotaExceeded,
    /// Waiting helps (class rate).
    RateLimited,
}

impl RefusalCode {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ExceedsPlan => "exceeds_plan",
            Self::BalanceExhausted => "balance_exhausted",
            Self::QuotaExceeded => "quota_exceeded",
            Self::RateLimited => "rate_limited",
        }
    }
}

/// A quota of one meter.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct QuotaLineAnswer {
    /// The meter.
    pub meter: String,
    /// `hard`.
    pub mode: String,
    /// The plan's included amount for the period.
    pub included: String,
    /// What was granted in the period, the included amount among it.
    pub granted: String,
    /// Carried in from the period before.
    pub rolled_in: String,
    /// Corrections of the allowance.
    pub adjusted: String,
    /// Used up.
    pub consumed: String,
    /// Held by running work.
    pub reserved: String,
    /// Carried from an earlier period's holds.
    pub carried: String,
    /// Used beyond the allowance.
    pub overage: String,
    /// How far below zero the quota may go.
    pub overdraft: String,
    /// What is left, at least 0.
    pub remaining: String,
    /// When the period ends.
    pub resets_at: String,
}

/// A billing period.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct PeriodAnswer {
    /// From this instant.
    pub start: String,
    /// To this instant, exclusive.
    pub end: String,
    /// The tenant's zone.
    pub time_zone: String,
}

/// The answer to `GET /v1/tenants/{t}/quota`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct QuotaAnswer {
    /// Whose.
    pub tenant: String,
    /// The current billing period.
    pub period: PeriodAnswer,
    /// `gate` or `ledger`: where the numbers were read.
    pub source: String,
    /// When.
    pub as_of: String,
    /// One per meter with a quota.
    pub quotas: Vec<QuotaLineAnswer>,
    /// Every limit of the tenant (and the subject asked for).
    pub limits: Vec<LimitAnswer>,
}

/// A row of usage.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct UsageRow {
    /// Start of the hour, day or month; absent without granularity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Whose, where grouped by tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The plan, where grouped by plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The meter.
    pub meter: String,
    /// The operation, where grouped by operation; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The subject, where grouped by subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<SubjectAnswer>,
    /// Used up.
    pub consumed: String,
    /// How many operations consumed it.
    pub count: i64,
    /// What of it was above holds.
    pub excess: String,
    /// What of it came after expiry.
    pub late: String,
    /// Corrections of closed periods.
    pub corrections: String,
}

/// A comparison of the gate with the ledger.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct ReconciliationRow {
    /// The checkpoint that was compared.
    pub id: String,
    /// Whose counters.
    pub tenant: String,
    /// When the gate told its counters (gate time).
    pub taken_at: String,
    /// When the ledger compared them.
    pub judged_at: String,
    /// `clean`, `drift` (waits for repair), `repaired` or `refused` (not decided, or not to be repaired: see `detail`).
    pub state: String,
    /// How many counters were compared.
    pub counters: i64,
    /// Those that differ.
    pub differences: Vec<DifferenceAnswer>,
    /// Events of the tenant in quarantine then: they may explain a difference.
    pub quarantined: i64,
    /// Gaps in the tenant's outbox in that epoch: lost events may explain a difference.
    pub gaps: i64,
    /// What is to be said besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A counter that differs between gate and ledger.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct DifferenceAnswer {
    /// The limit, or `quota:` and the meter.
    pub limit: String,
    /// Whose use it counts, where it is one subject's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<SubjectAnswer>,
    /// The meter.
    pub meter: String,
    /// Start of its window.
    pub window_start: String,
    /// End of its window.
    pub window_end: String,
    /// What the gate counted.
    pub gate: FiguresAnswer,
    /// What the books said as of the same event.
    pub ledger: FiguresAnswer,
}

/// Two figures of a counter.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct FiguresAnswer {
    /// Used up.
    pub consumed: String,
    /// Held.
    pub reserved: String,
}

/// An entry of the books.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct EntryRow {
    /// The reservation or other operation that made it.
    pub operation_id: String,
    /// The ordinal of that operation's change.
    pub step: i64,
    /// The meter.
    pub meter: String,
    /// Start of the period it belongs to.
    pub period_start: String,
    /// The account credited.
    pub credit: String,
    /// The account debited.
    pub debit: String,
    /// How much moved.
    pub amount: String,
    /// `usage`, `grant`, `period` or `correction`.
    pub class: String,
    /// `excess`, `late`, `carried`, `degraded`.
    pub flags: Vec<String>,
    /// When it happened.
    pub happened_at: String,
    /// When it was booked.
    pub booked_at: String,
}

/// A page of a list, newest first.
#[derive(Debug, Clone, Serialize)]
pub struct PageAnswer<T> {
    /// The rows.
    pub data: Vec<T>,
    /// The position after the last row: http signs it into `next_cursor`.
    pub next: Option<String>,
    /// When the numbers were read (RFC 3339), where it matters.
    pub as_of: Option<String>,
}

/// A policy object as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyAnswer {
    /// Its definition, with the same fields as PUT.
    pub definition: serde_json::Value,
    /// Its version: the `ETag`, and a `version` field in the body.
    pub version: u64,
    /// Whether a PUT created it.
    pub created: bool,
}

/// A key, without its secret.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct KeyAnswer {
    /// The key's id.
    pub id: String,
    /// For people.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The tenant it is bound to.
    pub tenant: Option<String>,
    /// When it was made.
    pub created_at: String,
    /// When it stops working.
    pub expires_at: Option<String>,
    /// When it was revoked.
    pub revoked_at: Option<String>,
    /// The whole key: shown once, when it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A job: what time does by itself.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct JobAnswer {
    /// Its name.
    #[schema(example = "retention")]
    pub name: String,
    /// When it is due next, by the service's time.
    pub next_due: String,
    /// When a run last ended well; null where none did.
    pub succeeded_at: Option<String>,
    /// Its last run; null where there was none.
    pub last_run: Option<JobRunAnswer>,
}

/// A run of a job.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct JobRunAnswer {
    /// The time for which it ran, by the service's time.
    pub scheduled_for: String,
    /// Which instance ran it.
    pub owner: String,
    /// When it began, or was taken over.
    pub started_at: String,
    /// When it ended; null while it runs.
    pub finished_at: Option<String>,
    /// Whether it ended well; null while it runs.
    pub succeeded: Option<bool>,
    /// What it came to, in words; null while it runs.
    pub outcome: Option<String>,
}

/// What applying a policy file has changed, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedPolicy {
    /// The version of the policy now.
    pub version: u64,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// What names these changes and no others: sent as `expected_digest`, exactly they are made.
    pub digest: String,
    /// What changes; what stays as it is, is left out.
    pub changes: Vec<Change>,
}
