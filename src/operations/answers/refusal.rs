//! Why a request is refused, and by which limits.

use uuid::Uuid;

use super::AskedLine;
use crate::domain::amount::Units;
use crate::domain::decision::BANNED;
use crate::operations::limit_status::LimitStatus;

/// Why a limit has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// What is used up.
    Consumed,
    /// What is only held by running work.
    Reserved,
    /// The last call, which was too short a time ago.
    Interval,
    /// The last calls, which came much sooner than they used to.
    Anomaly,
    /// A ban that the limit has placed.
    Banned,
}

impl Cause {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Consumed => "consumed",
            Self::Reserved => "reserved",
            Self::Interval => "interval",
            Self::Anomaly => "anomaly",
            Self::Banned => "banned",
        }
    }
}

/// A limit that refuses the request.
#[derive(Debug, Clone)]
pub struct RefusedLimit {
    /// The limit and its figures.
    pub limit: LimitStatus,
    /// Why it has no room.
    pub cause: Cause,
    /// What the request needs under this limit.
    pub needed: Units,
    /// How much is missing.
    pub shortfall: Units,
    /// How long to wait; none where waiting does not help.
    pub retry_after_ms: Option<i64>,
    /// A sentence.
    pub message: String,
}

/// A refusal: an answer, not an error.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The first of its reasons, in order of precedence.
    pub code: RefusalCode,
    /// A sentence.
    pub detail: String,
    /// The longest wait; none where waiting does not help.
    pub retry_after_ms: Option<i64>,
    /// The id of this decision.
    pub decision_id: Uuid,
    /// What was asked for.
    pub asked: Vec<AskedLine>,
    /// The version of the policy by which it was decided.
    pub policy_version: u64,
    /// Every limit that refuses.
    pub refused_by: Vec<RefusedLimit>,
    /// Every limit checked.
    pub limits: Vec<LimitStatus>,
}

/// Why a request is refused, in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalCode {
    /// Only a grant helps.
    BalanceExhausted,
    /// The amount is larger than a whole capacity, or the plan has no room for the meter at all: only another plan
    /// helps.
    ExceedsPlan,
    /// An admin or a limit has banned the tenant or a subject of the call.
    Banned,
    /// Waiting helps (class quota).
    QuotaExceeded,
    /// Waiting helps (class rate).
    RateLimited,
}

impl RefusalCode {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ExceedsPlan => "exceeds_plan",
            Self::BalanceExhausted => "balance_exhausted",
            Self::Banned => BANNED,
            Self::QuotaExceeded => "quota_exceeded",
            Self::RateLimited => "rate_limited",
        }
    }
}
