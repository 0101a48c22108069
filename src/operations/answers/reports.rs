//! What is read: quotas, usage, the books and their comparison with the gate, in pages.

use serde::Serialize;
use utoipa::ToSchema;

use super::{LimitAnswer, SubjectAnswer};

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
