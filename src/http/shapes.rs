//! The shapes of the gate's answers: the verbs' results as the API writes them.

pub(super) mod check;
pub(super) mod decision;
mod estimates;
mod grants;
mod notices;
mod quota;
mod reconciliations;
mod reports;
mod statements;
mod violations;
mod warnings;

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::headers::seconds_rounded_up;
use crate::domain::amount::{Amount, Decimals, Units};
use crate::domain::ids::Subject;
use crate::domain::instant::rfc3339;
use crate::domain::limit::Class;
use crate::domain::reservation::{BodyDetails, LineRule, LineUnits, Record, ReservationState};
use crate::operations::answers::{Cause, LimitStatus, RefusedLimit, Reservation, Reserved, ReservedLine};
use crate::operations::requests::Ack;
use estimates::EstimateAnswer;
use warnings::limits_and_warnings;

pub(super) use estimates::EstimateRow;
pub(super) use notices::NoticeRow;
pub(super) use quota::QuotaAnswer;
pub(super) use reconciliations::{FindingRow, ReconciledBill};
pub(super) use reports::{
    BalanceRow, EntryRow, ReconciliationRow, RevenueRow, RolloverRow, TopRow, UsageRow,
};
#[cfg(test)]
pub(super) use reports::{DifferenceAnswer, FiguresAnswer};
pub(super) use statements::{StatementAnswer, StatementLineAnswer, StatementRow, TierAnswer};
pub(super) use violations::{HashedSubject, ViolationRow};
pub(super) use warnings::conduct_warnings;

/// A limit as an answer shows it.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(super) struct LimitAnswer {
    /// The limit's id; a plan's included quota is called `quota:<meter>`.
    pub(super) id: String,
    /// What it counts; absent for a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meter: Option<String>,
    /// A budget: each meter that it counts, with how much one of it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meters: Option<BTreeMap<String, String>>,
    /// `tenant`, `subject`, or `global` for one that counts all tenants.
    pub(super) scope: &'static str,
    /// The subject it counts for, if the scope is `subject`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<SubjectAnswer>,
    /// Whether other subjects may be counted as this one: anonymous subjects share slots.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) shared: bool,
    /// How it counts, such as `calendar`.
    pub(super) algorithm: &'static str,
    /// A window of the calendar: `hour`, `day`, `week`, `month` or `period`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) window: Option<&'static str>,
    /// The length of a window that no calendar cuts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) window_seconds: Option<u32>,
    /// A bucket that refills: how much comes back in each `per_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refill: Option<String>,
    /// A bucket that drains: how much does in each `per_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) drain: Option<String>,
    /// Buckets: in how many seconds so much comes back, or drains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) per_seconds: Option<u32>,
    /// At most this much in the window, or in the bucket.
    pub(super) capacity: String,
    /// By how much the load has scaled `capacity`: `0.75` or `0.5`. Absent while it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) load_factor: Option<&'static str>,
    /// Used up; of a bucket, taken and not yet refilled, with what running work holds. Like `reserved` and `remaining`,
    /// a limit that counts all tenants shows it to keys that are bound to no tenant only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) consumed: Option<String>,
    /// Held by running work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reserved: Option<String>,
    /// What is left, at least 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remaining: Option<String>,
    /// When the window ends, or the bucket is full or empty again (RFC 3339, UTC).
    pub(super) resets_at: String,
    /// `hard`.
    pub(super) kind: &'static str,
    /// `quota` or `rate`.
    pub(super) class: &'static str,
    /// Which level's definition won: `emergency`, `subject`, `tenant`, `plan` or `default`.
    pub(super) level: &'static str,
    /// For the response headers only: the window's length and time to its end.
    #[serde(skip)]
    pub(super) header: LimitHeader,
}

/// What the `RateLimit` headers need of a limit: whole units, rounded down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LimitHeader {
    /// Capacity in whole units.
    pub(super) quota: i64,
    /// Remaining in whole units.
    pub(super) remaining: i64,
    /// Length of the current window in seconds.
    pub(super) window_seconds: i64,
    /// Seconds to the window's end, rounded up.
    pub(super) reset_seconds: i64,
}

/// A subject by kind and id.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(super) struct SubjectAnswer {
    /// `user`, `api_key`, …
    pub(super) kind: String,
    /// Its id.
    pub(super) id: String,
}

/// Something worth knowing that changes nothing.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(super) struct WarningAnswer {
    /// `near_limit`, `over_limit`, `shadow_refused`, `anomaly`, `violations`, `banned`, `excess`, `late`.
    pub(super) code: &'static str,
    /// The limit it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<String>,
    /// In words.
    pub(super) detail: String,
}

/// A line of a reserve.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(super) struct ReservedLineAnswer {
    /// The meter.
    pub(super) meter: String,
    /// What is held.
    pub(super) amount: String,
    /// Best effort: what was asked for. Absent in a repeat of an operation: it may cost something else by now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) requested: Option<String>,
    /// Where what was asked for is an estimate: what it is made of. Absent in a repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) estimate: Option<EstimateAnswer>,
}

/// The answer to a reserve.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ReserveAnswer {
    /// Absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// `reserved`; on a replay the status as it is now. Absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ReservationState>)]
    pub(super) status: Option<&'static str>,
    /// Dry run only: whether it would have been admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allowed: Option<bool>,
    /// Whose units.
    pub(super) tenant: String,
    /// The subjects named, by kind.
    pub(super) subjects: BTreeMap<String, String>,
    /// The operation, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) operation: Option<String>,
    /// What is held, by meter.
    pub(super) lines: Vec<ReservedLineAnswer>,
    /// Whether a line is an estimate, because nothing said how much the work is; absent where none is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) estimated: bool,
    /// When it was made. Absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created_at: Option<String>,
    /// When the hold ends. Absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<String>,
    /// How many ms after `created_at` the work may start, by the queues (`leaky_bucket`) before it; a repeat says the
    /// same. Absent where it may start at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start_after_ms: Option<i64>,
    /// Whether this is the answer to a repeated call.
    pub(super) replayed: bool,
    /// Whether it was decided while the gate was away.
    pub(super) degraded: bool,
    /// Names the decision; a repeat names the first one.
    pub(super) decision_id: String,
    /// Every limit checked.
    pub(super) limits: Vec<LimitAnswer>,
    /// Dry run only: why it would be refused, as the `code` of a problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<&'static str>,
    /// Dry run only: what would refuse.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) refused_by: Vec<RefusedBy>,
    /// Near limits and the like.
    pub(super) warnings: Vec<WarningAnswer>,
}

/// A line of a consume, release or usage.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(super) struct ConsumedLineAnswer {
    /// The meter.
    pub(super) meter: String,
    /// What was held at the reserve.
    pub(super) reserved: String,
    /// The total consumed.
    pub(super) consumed: String,
    /// What of the hold was given back.
    pub(super) returned: String,
    /// What was consumed above the hold.
    pub(super) excess: String,
    /// What a `cap` kept uncharged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uncharged: Option<String>,
}

/// A reservation as `GET`, consume, release, extend and usage answer it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ReservationAnswer {
    /// The reservation.
    pub(super) id: String,
    /// Whose units.
    pub(super) tenant: String,
    /// `reserved`, `consumed`, `released` or `expired`.
    #[schema(value_type = ReservationState)]
    pub(super) status: &'static str,
    /// Whether it is resolved for good.
    #[serde(rename = "final")]
    pub(super) is_final: bool,
    /// Consumed after it had expired.
    pub(super) late: bool,
    /// Whether this is the answer to a repeated call.
    pub(super) replayed: bool,
    /// Whether it was taken while the gate was away.
    pub(super) degraded: bool,
    /// `gate` or `ledger`: who has it for certain.
    #[schema(value_type = Ack)]
    pub(super) ack: &'static str,
    /// Names the decision that changed it last; a repeat and every read say the same.
    pub(super) decision_id: String,
    /// By meter.
    pub(super) lines: Vec<ConsumedLineAnswer>,
    /// When it was made.
    pub(super) created_at: String,
    /// When it was consumed, released or expired, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resolved_at: Option<String>,
    /// When the hold ends or ended.
    pub(super) expires_at: String,
    /// The limits it moved whose window is still current.
    pub(super) limits: Vec<LimitAnswer>,
    /// Excess, lateness, near limits.
    pub(super) warnings: Vec<WarningAnswer>,
    /// The operation, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) operation: Option<String>,
    /// The subjects named, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subjects: Option<BTreeMap<String, String>>,
    /// The caller's metadata, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(super) metadata: Option<serde_json::Value>,
}

/// A limit that refuses.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(super) struct RefusedBy {
    /// The limit with its current figures.
    #[serde(flatten)]
    pub(super) limit: LimitAnswer,
    /// `consumed`: used up; `reserved`: only held by running work; `banned`: the limit has placed a ban.
    #[schema(value_type = Cause)]
    pub(super) cause: &'static str,
    /// What the request needs under this limit.
    pub(super) needed: String,
    /// How much is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shortfall: Option<String>,
    /// How long to wait; absent if waiting does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_after_ms: Option<i64>,
    /// When a hold in this window ends, if one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_hold_ends_at: Option<String>,
    /// In words.
    pub(super) message: String,
}

/// Units as the API writes them.
fn amount(units: Units, decimals: Decimals) -> String {
    units.to_amount(decimals).to_string()
}

fn ack(who: Ack) -> &'static str {
    match who {
        Ack::Gate => "gate",
        Ack::Ledger => "ledger",
    }
}

fn by_kind<'a>(subjects: impl IntoIterator<Item = &'a Subject>) -> BTreeMap<String, String> {
    subjects.into_iter().map(|subject| (subject.kind.to_string(), subject.id.to_string())).collect()
}

impl From<&Subject> for SubjectAnswer {
    fn from(subject: &Subject) -> Self {
        Self { kind: subject.kind.to_string(), id: subject.id.to_string() }
    }
}

impl From<&LimitStatus> for LimitAnswer {
    fn from(status: &LimitStatus) -> Self {
        let counter = &status.counter;
        let write = |units| amount(units, counter.decimals);
        let shown = |units| (!status.is_hidden).then(|| write(units));
        let span = counter.span();
        let whole = 10_i64.pow(u32::from(counter.decimals.count()));
        let meters = counter.budget().map(|meters| {
            meters.iter().map(|(meter, weight)| (meter.to_string(), weight.to_string())).collect()
        });
        Self {
            id: counter.name(),
            meter: meters.is_none().then(|| counter.meter.to_string()),
            meters,
            scope: match status.subject {
                Some(_) => "subject",
                None if counter.is_global() => "global",
                None => "tenant",
            },
            subject: status.subject.as_ref().map(SubjectAnswer::from),
            shared: status.subject.as_ref().is_some_and(|subject| subject.kind.shares_slots()),
            algorithm: counter.algorithm(),
            window: span.word(),
            window_seconds: span.seconds(),
            refill: span.refill().map(|refill| refill.to_string()),
            drain: span.drain().map(|drain| drain.to_string()),
            per_seconds: span.per_seconds(),
            capacity: write(status.capacity),
            load_factor: counter.load.word(),
            consumed: shown(status.consumed),
            reserved: shown(status.reserved),
            remaining: shown(status.remaining),
            resets_at: rfc3339(status.resets_at_ms),
            kind: counter.kind.as_str(),
            class: if counter.class == Class::Rate { "rate" } else { "quota" },
            level: counter.level().as_str(),
            header: LimitHeader {
                quota: status.capacity.get() / whole,
                remaining: status.remaining.get() / whole,
                window_seconds: status.window_seconds(),
                reset_seconds: seconds_rounded_up(status.resets_at_ms - status.as_of_ms),
            },
        }
    }
}

impl From<&RefusedLimit> for RefusedBy {
    fn from(refused: &RefusedLimit) -> Self {
        let write = |units| amount(units, refused.limit.counter.decimals);
        Self {
            limit: LimitAnswer::from(&refused.limit),
            cause: refused.cause.as_str(),
            needed: write(refused.needed),
            shortfall: (!refused.limit.is_hidden).then(|| write(refused.shortfall)),
            retry_after_ms: refused.retry_after_ms,
            next_hold_ends_at: refused.limit.next_hold_ends_at_ms.map(rfc3339),
            message: refused.message.clone(),
        }
    }
}

impl From<ReservedLine> for ReservedLineAnswer {
    fn from(line: ReservedLine) -> Self {
        Self {
            meter: line.meter.to_string(),
            amount: line.amount.to_string(),
            requested: line.requested.as_ref().map(Amount::to_string),
            estimate: line.estimate.map(|estimate| EstimateAnswer::of(*estimate, line.decimals)),
        }
    }
}

impl From<Reserved> for ReserveAnswer {
    fn from(reserved: Reserved) -> Self {
        let hold = reserved.hold;
        let (limits, mut warnings) = limits_and_warnings(&reserved.limits);
        // Warnings are new only with a new hold.
        if reserved.replayed || reserved.allowed == Some(false) {
            warnings.clear();
        }
        Self {
            id: hold.map(|hold| hold.id.to_string()),
            status: hold.map(|hold| hold.state.as_str()),
            allowed: reserved.allowed,
            tenant: reserved.tenant.to_string(),
            subjects: by_kind(&reserved.subjects),
            operation: reserved.operation.as_ref().map(ToString::to_string),
            estimated: reserved.lines.iter().any(|line| line.estimated),
            lines: reserved.lines.into_iter().map(ReservedLineAnswer::from).collect(),
            created_at: hold.map(|hold| rfc3339(hold.created_at_ms)),
            expires_at: hold.map(|hold| rfc3339(hold.expires_at_ms)),
            start_after_ms: Some(reserved.start_after_ms).filter(|delay_ms| *delay_ms > 0),
            replayed: reserved.replayed,
            degraded: reserved.degraded,
            decision_id: reserved.decision_id.to_string(),
            limits,
            code: reserved.code.map(|code| code.as_str()),
            refused_by: reserved.refused_by.iter().map(RefusedBy::from).collect(),
            warnings,
        }
    }
}

impl From<Reservation> for ReservationAnswer {
    fn from(found: Reservation) -> Self {
        let record = &found.record;
        let Record { head, body, .. } = record;
        let rest = body.rest.as_ref();
        let (limits, mut warnings) = limits_and_warnings(&found.limits);
        warnings.extend(flags(record));
        Self {
            id: found.id.to_string(),
            tenant: body.tenant.to_string(),
            status: head.state.as_str(),
            is_final: found.is_final(),
            late: head.late,
            replayed: found.replayed,
            degraded: found.degraded || head.degraded,
            ack: ack(found.ack),
            decision_id: found.decision_id().to_string(),
            lines: lines(record).map(|(line, units)| consumed_line(record, line, units)).collect(),
            created_at: rfc3339(head.born_at_ms),
            resolved_at: found.resolved_at_ms.map(rfc3339),
            expires_at: rfc3339(head.expires_at_ms),
            limits,
            warnings,
            operation: rest.and_then(|rest| rest.operation.as_ref()).map(ToString::to_string),
            subjects: rest.map(|rest| by_kind(rest.subjects.iter().map(|(subject, _)| subject))),
            metadata: rest.and_then(metadata),
        }
    }
}

fn metadata(rest: &BodyDetails) -> Option<serde_json::Value> {
    if rest.metadata.is_empty() { None } else { serde_json::from_str(&rest.metadata).ok() }
}

fn lines(record: &Record) -> impl Iterator<Item = (&LineRule, &LineUnits)> {
    record.body.lines.iter().zip(&record.units)
}

fn consumed_line(record: &Record, line: &LineRule, units: &LineUnits) -> ConsumedLineAnswer {
    let write = |units| amount(units, line.decimals);
    let is_resolved = record.head.state != ReservationState::Reserved;
    // Usage holds nothing, so it has no excess.
    let is_usage = units.held == Units::ZERO && !record.head.late && record.head.step == 1;
    ConsumedLineAnswer {
        meter: line.meter.to_string(),
        reserved: write(units.held),
        consumed: write(units.consumed),
        returned: write(if is_resolved { units.outstanding() } else { Units::ZERO }),
        excess: write(if is_usage { Units::ZERO } else { units.excess() }),
        uncharged: (units.uncharged > Units::ZERO).then(|| write(units.uncharged)),
    }
}

fn flags(record: &Record) -> impl Iterator<Item = WarningAnswer> {
    let late = record.head.late.then(|| {
        let expired_at = rfc3339(record.head.expires_at_ms);
        let detail = format!("the reservation had expired at {expired_at}; what was used is charged once");
        WarningAnswer { code: "late", limit: None, detail }
    });
    let excess = |(line, units): (&LineRule, &LineUnits)| {
        let write = |units| amount(units, line.decimals);
        let (excess, held) = (units.excess(), units.held);
        (held > Units::ZERO && excess > Units::ZERO).then(|| WarningAnswer {
            code: "excess",
            limit: None,
            detail: format!(
                "{} of {} were consumed above the hold of {}",
                write(excess),
                line.meter,
                write(held)
            ),
        })
    };
    late.into_iter().chain(lines(record).filter_map(excess))
}
