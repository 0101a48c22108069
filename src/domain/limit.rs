//! A limit: at most this much of a meter, per window, for a scope.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::algorithms::concurrency::Counts;
use super::algorithms::{Algorithm, AlgorithmName, EntriesMax, Fields, SpanSeconds, SubWindows};
use super::amount::{Amount, Decimals};
use super::anomaly::Anomaly;
use super::factor::Factor;
use super::field_error::about;
use super::ids::{LimitId, MeterId, OperationId, Subject, SubjectKind, TenantId};
use super::instant::Instant;
use super::limited::Limited;
use super::on_gate_failure::OnGateFailure;
pub use super::percent::Percent;
use super::period::WindowKind;
use super::punishment::Punishment;
use super::rollout::is_rolled_out;

/// The scope of a limit: whose use it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The whole tenant.
    #[default]
    Tenant,
    /// Each subject of the limit's kind by itself.
    Subject,
    /// All tenants together, by one counter.
    Global,
}

/// The stretch of time over which a limit counts, for answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// A window of the calendar.
    Calendar(WindowKind),
    /// A window of this many seconds.
    Seconds(u32),
    /// No window: this amount comes back in each of these spans.
    Refill {
        /// The amount.
        refill: Amount,
        /// The seconds of a span.
        per_seconds: u32,
    },
    /// No window: so much drains in each so many seconds.
    Drain {
        /// How much.
        drain: Amount,
        /// How many seconds.
        per_seconds: u32,
    },
    /// No time: so much at once.
    AtOnce,
}

impl Span {
    /// The calendar's word for it, if it has one.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Calendar(kind) => Some(kind.as_str()),
            _ => None,
        }
    }

    /// The length of a window that no calendar cuts.
    pub fn seconds(self) -> Option<u32> {
        match self {
            Self::Seconds(seconds) => Some(seconds),
            _ => None,
        }
    }

    /// What comes back in each `per_seconds`.
    pub fn refill(self) -> Option<Amount> {
        match self {
            Self::Refill { refill, .. } => Some(refill),
            _ => None,
        }
    }

    /// What drains in each `per_seconds`.
    pub fn drain(self) -> Option<Amount> {
        match self {
            Self::Drain { drain, .. } => Some(drain),
            _ => None,
        }
    }

    /// In how many seconds so much comes back or drains, where no window ends.
    pub fn per_seconds(self) -> Option<u32> {
        match self {
            Self::Refill { per_seconds, .. } | Self::Drain { per_seconds, .. } => Some(per_seconds),
            _ => None,
        }
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Calendar(kind) => write!(f, "in this {}", kind.as_str()),
            Self::Seconds(seconds) => write!(f, "in this window of {seconds} s"),
            Self::Refill { refill, per_seconds } => {
                write!(f, "in this bucket, which refills by {refill} every {per_seconds} s")
            }
            Self::Drain { drain, per_seconds } => {
                write!(f, "in this queue, which drains by {drain} every {per_seconds} s")
            }
            Self::AtOnce => f.write_str("at once"),
        }
    }
}

/// What a limit does when it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It refuses.
    #[default]
    Hard,
    /// It counts, refuses nothing and warns.
    Soft,
    /// It counts as if it were hard, without what it would have refused, and warns of that; it refuses nothing.
    Shadow,
    /// It is not asked, and counts nothing.
    Off,
}

impl Kind {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::Soft => "soft",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }

    /// Whether work is refused when it is reached.
    pub fn refuses(self) -> bool {
        self == Self::Hard
    }

    /// Whether nothing is counted that does not fit.
    pub fn is_bounded(self) -> bool {
        matches!(self, Self::Hard | Self::Shadow)
    }
}

/// Whether a limit's count survives the loss of the gate's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Restored from the ledger and reconciled with it.
    #[default]
    Quota,
    /// Kept in the gate's memory alone; after a loss it starts again at zero.
    Rate,
}

/// At most `capacity` of a meter per window. The same fields as a default, in a plan and of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "LimitFields", into = "LimitFields")]
pub struct Limit {
    /// Its name; with the tenant, the identity of its counter.
    pub id: LimitId,
    /// What is limited.
    pub limited: Limited,
    /// Whose use counts.
    pub scope: Scope,
    /// Which sort of subject; given exactly when the scope is `subject`.
    pub subject_kind: Option<SubjectKind>,
    /// The operations whose use counts; absent: all.
    pub operations: Option<Vec<OperationId>>,
    /// How it counts.
    pub algorithm: Algorithm,
    /// How much of the meter fits.
    pub capacity: Amount,
    /// What it does when it is reached.
    pub kind: Kind,
    /// Whether its count survives the loss of the gate's memory.
    pub class: Class,
    /// To how many of its tenants or subjects it applies, in percent.
    pub rollout_percent: Percent,
    /// Whether its capacity shrinks while the installation is busy.
    pub load_scaled: bool,
    /// From which share of the capacity on answers carry a warning, in percent.
    pub near_percent: Percent,
    /// What becomes of work under it while the gate does not answer.
    pub on_gate_failure: OnGateFailure,
    /// How much of it each instance admits while the gate does not answer, where that is `emergency`.
    pub emergency_capacity: Option<Amount>,
    /// What it does to those whom it refuses again and again; absent: nothing.
    pub punishment: Option<Punishment>,
    /// What it does to a subject that suddenly calls much more often; absent: nothing.
    pub anomaly: Option<Anomaly>,
    /// The first instant at which it holds; absent: always.
    pub from: Option<Instant>,
    /// The first instant at which it no longer holds; absent: never.
    pub until: Option<Instant>,
    /// An extra sentence for refusals.
    pub message: Option<Arc<str>>,
}

/// At most `capacity` of a meter per window. The same fields as a default, in a plan and of a tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "Limit")]
pub(super) struct LimitFields {
    /// Its name; with the tenant, the identity of its counter.
    id: LimitId,
    /// What is limited; this or `meters`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meter: Option<MeterId>,
    /// A budget: the meters that are limited together, each with how much one of it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meters: Option<BTreeMap<MeterId, Factor>>,
    /// A budget: how many decimals its amounts have, 0 to 6; absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    decimals: Option<Decimals>,
    /// Whose use counts.
    #[serde(default)]
    scope: Scope,
    /// Which sort of subject; given exactly when the scope is `subject`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject_kind: Option<SubjectKind>,
    /// The operations whose use counts; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operations: Option<Vec<OperationId>>,
    /// How it counts.
    #[serde(default)]
    algorithm: AlgorithmName,
    /// `calendar`: over which window of the tenant's calendar, or of UTC where all tenants are counted. It is needed
    /// there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<WindowKind>,
    /// Algorithms with a window of their own: its length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window_seconds: Option<SpanSeconds>,
    /// Algorithms with a window of their own: whether windows begin at multiples of their length since 1970, and not
    /// with the first use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aligned: Option<bool>,
    /// `sliding_counter`: in how many steps its window slides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sub_windows: Option<SubWindows>,
    /// `token_bucket`: how much comes back in each `per_seconds`. Its size is `capacity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refill: Option<Amount>,
    /// Buckets: in how many seconds so much comes back, or drains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    per_seconds: Option<SpanSeconds>,
    /// `concurrency`: what is counted of each reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    counts: Option<Counts>,
    /// `leaky_bucket`: how much drains in each `per_seconds`. The length of its queue is `capacity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    drain: Option<Amount>,
    /// `leaky_bucket`: the longest that work may have to wait before it may start; absent: as long as the queue is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_wait_seconds: Option<SpanSeconds>,
    /// `sliding_log`: the most entries; a full log refuses. Absent: as many as the capacity has whole units, at most
    /// 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entries_max: Option<EntriesMax>,
    /// How much of the meter fits in a window, or in a bucket.
    capacity: Amount,
    /// What it does when it is reached.
    #[serde(default)]
    kind: Kind,
    /// Whether its count survives the loss of the gate's memory. Absent: `quota` for `calendar`, `rate` for the others,
    /// for budgets and for what counts all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<Class>,
    /// To how many of its tenants or subjects it applies, in percent: always the same ones.
    #[serde(default = "everybody", skip_serializing_if = "is_everybody")]
    rollout_percent: Percent,
    /// Whether its capacity shrinks while the installation is busy: to three quarters, then to a half.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    load_scaled: bool,
    /// From which share of the capacity on answers carry a warning, in percent.
    #[serde(default = "default_near_percent")]
    near_percent: Percent,
    /// What becomes of work under it while the gate does not answer.
    #[serde(default)]
    on_gate_failure: OnGateFailure,
    /// `emergency`: how much of it each instance admits while the gate does not answer. It is needed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    emergency_capacity: Option<Amount>,
    /// What it does to those whom it refuses again and again; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    punishment: Option<Punishment>,
    /// What it does to a subject that suddenly calls much more often than it used to; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    anomaly: Option<Anomaly>,
    /// The first instant at which it holds; absent: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<Instant>,
    /// The first instant at which it no longer holds; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Instant>,
    /// An extra sentence for refusals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Arc<str>>,
}

impl TryFrom<LimitFields> for Limit {
    type Error = String;
    fn try_from(fields: LimitFields) -> Result<Self, String> {
        let LimitFields { window, window_seconds, aligned, sub_windows, .. } = fields;
        let LimitFields { refill, per_seconds, counts, drain, max_wait_seconds, entries_max, .. } = fields;
        let of_algorithm = Fields {
            window,
            window_seconds,
            aligned,
            sub_windows,
            refill,
            per_seconds,
            counts,
            drain,
            max_wait_seconds,
            entries_max,
        };
        let algorithm = Algorithm::read(fields.algorithm, &of_algorithm)?;
        let limited = limited(fields.meter, fields.meters, fields.decimals)?;
        // A budget without a class keeps the one that it always had: with another, its counter would begin again.
        let is_quota = algorithm.is_restorable() && !limited.is_budget() && fields.scope != Scope::Global;
        let default_class = if is_quota { Class::Quota } else { Class::Rate };
        Ok(Self {
            id: fields.id,
            limited,
            scope: fields.scope,
            subject_kind: fields.subject_kind,
            operations: fields.operations,
            algorithm,
            capacity: fields.capacity,
            kind: fields.kind,
            class: fields.class.unwrap_or(default_class),
            rollout_percent: fields.rollout_percent,
            load_scaled: fields.load_scaled,
            near_percent: fields.near_percent,
            on_gate_failure: fields.on_gate_failure,
            emergency_capacity: fields.emergency_capacity,
            punishment: fields.punishment,
            anomaly: fields.anomaly,
            from: fields.from,
            until: fields.until,
            message: fields.message,
        })
    }
}

impl From<Limit> for LimitFields {
    fn from(limit: Limit) -> Self {
        let of_algorithm = limit.algorithm.fields();
        let Fields { window, window_seconds, aligned, sub_windows, refill, .. } = of_algorithm;
        let Fields { per_seconds, counts, drain, max_wait_seconds, entries_max, .. } = of_algorithm;
        let (meter, meters, decimals) = match limit.limited {
            Limited::Meter(meter) => (Some(meter), None, None),
            Limited::Budget { meters, decimals } => (None, Some(meters), Some(decimals)),
        };
        Self {
            id: limit.id,
            meter,
            meters,
            decimals,
            scope: limit.scope,
            subject_kind: limit.subject_kind,
            operations: limit.operations,
            algorithm: limit.algorithm.name(),
            window,
            window_seconds,
            aligned,
            sub_windows,
            refill,
            per_seconds,
            counts,
            drain,
            max_wait_seconds,
            entries_max,
            capacity: limit.capacity,
            kind: limit.kind,
            class: Some(limit.class),
            rollout_percent: limit.rollout_percent,
            load_scaled: limit.load_scaled,
            near_percent: limit.near_percent,
            on_gate_failure: limit.on_gate_failure,
            emergency_capacity: limit.emergency_capacity,
            punishment: limit.punishment,
            anomaly: limit.anomaly,
            from: limit.from,
            until: limit.until,
            message: limit.message,
        }
    }
}

fn limited(
    meter: Option<MeterId>,
    meters: Option<BTreeMap<MeterId, Factor>>,
    decimals: Option<Decimals>,
) -> Result<Limited, String> {
    match (meter, meters) {
        (Some(_), None) if decimals.is_some() => Err(about("decimals", "belongs to `meters`")),
        (Some(meter), None) => Ok(Limited::Meter(meter)),
        (None, Some(meters)) if meters.is_empty() => Err(about("meters", "must name a meter")),
        (None, Some(meters)) => Ok(Limited::Budget { meters, decimals: decimals.unwrap_or_default() }),
        _ => Err(about("meter", "give `meter` or `meters`, one of the two")),
    }
}

fn default_near_percent() -> Percent {
    Percent(80)
}

fn everybody() -> Percent {
    Percent(100)
}

/// Left out, so that versions that do not know the field read limits that apply to all.
fn is_everybody(percent: &Percent) -> bool {
    *percent == everybody()
}

impl Limit {
    /// Whether one counter of it counts all tenants.
    pub fn is_global(&self) -> bool {
        self.scope == Scope::Global
    }

    /// Whether it holds at `at_ms`.
    pub fn is_active(&self, at_ms: i64) -> bool {
        self.from.is_none_or(|from| from.ms() <= at_ms) && self.until.is_none_or(|until| at_ms < until.ms())
    }

    /// Whether it applies to the tenant as a whole, or to one of its subjects.
    pub fn applies_to(&self, tenant: &TenantId, subject: Option<&Subject>) -> bool {
        is_rolled_out(self.rollout_percent, &self.id, tenant, subject)
    }

    /// Whether it counts work of `operation` (none: work given by lines).
    pub fn counts(&self, operation: Option<&OperationId>) -> bool {
        match &self.operations {
            None => true,
            Some(operations) => operation.is_some_and(|operation| operations.contains(operation)),
        }
    }
}
