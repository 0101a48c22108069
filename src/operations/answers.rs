//! What the verbs answer: the shapes of the API, ready to be serialised.

mod administration;
mod reports;

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::requests::Ack;
use crate::domain::reservation::ReservationState;

pub use administration::{AppliedPolicy, JobAnswer, JobRunAnswer, KeyAnswer, PolicyAnswer};
pub use reports::{
    DifferenceAnswer, EntryRow, FiguresAnswer, PageAnswer, PeriodAnswer, QuotaAnswer, QuotaLineAnswer,
    ReconciliationRow, UsageRow,
};

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
    /// How it counts, such as `calendar`.
    pub algorithm: String,
    /// A window of the calendar: `hour`, `day`, `week`, `month` or `period`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// The length of a window that no calendar cuts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<u32>,
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
    #[schema(value_type = Option<ReservationState>)]
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
    #[schema(value_type = ReservationState)]
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
    #[schema(value_type = Ack)]
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

/// What stands in the way under a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// What is used up.
    Consumed,
    /// What is only held by running work.
    Reserved,
}

/// A limit that refuses.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct RefusedBy {
    /// The limit and where it stands.
    #[serde(flatten)]
    pub limit: LimitAnswer,
    /// `consumed`: used up; `reserved`: only held by running work.
    pub cause: Cause,
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
