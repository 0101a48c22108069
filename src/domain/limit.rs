//! A limit: at most this much of a meter, per window, for a scope.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use super::algorithms::{Algorithm, AlgorithmName, Fields, SpanSeconds, SubWindows};
use super::amount::Amount;
use super::ids::{LimitId, MeterId, OperationId, SubjectKind};
use super::instant::Instant;
use super::period::WindowKind;
use super::whole_number::whole_number;

/// Whose use a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The whole tenant's.
    #[default]
    Tenant,
    /// Each subject's of the limit's kind by itself.
    Subject,
}

/// Over which stretch of time a limit counts, as answers show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// A window of the calendar.
    Calendar(WindowKind),
    /// A window of so many seconds.
    Seconds(u32),
    /// No window: so much comes back in each so many seconds.
    Refill {
        /// How much.
        refill: Amount,
        /// How many seconds.
        per_seconds: u32,
    },
}

impl Span {
    /// The calendar's word for it, if it has one.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Calendar(kind) => Some(kind.as_str()),
            Self::Seconds(_) | Self::Refill { .. } => None,
        }
    }

    /// The length of a window that no calendar cuts.
    pub fn seconds(self) -> Option<u32> {
        match self {
            Self::Seconds(seconds) => Some(seconds),
            Self::Calendar(_) | Self::Refill { .. } => None,
        }
    }

    /// What comes back, and in each how many seconds, where no window ends.
    pub fn refill(self) -> Option<(Amount, u32)> {
        match self {
            Self::Refill { refill, per_seconds } => Some((refill, per_seconds)),
            Self::Calendar(_) | Self::Seconds(_) => None,
        }
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Calendar(kind) => f.write_str(kind.as_str()),
            Self::Seconds(seconds) => write!(f, "window of {seconds} s"),
            Self::Refill { refill, per_seconds } => {
                write!(f, "bucket, which refills by {refill} every {per_seconds} s")
            }
        }
    }
}

/// What a limit does when it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It refuses.
    #[default]
    Hard,
}

/// Whether a limit's count survives the loss of the gate's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Restored from the ledger and reconciled with it.
    #[default]
    Quota,
    /// Short memory, may start fresh.
    Rate,
}

/// What becomes of work under a limit while the gate does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum OnGateFailure {
    /// It is refused until the gate answers.
    #[default]
    Deny,
    /// It is admitted without being measured, and counted once the gate answers.
    Allow,
}

impl From<OnGateFailure> for &'static str {
    fn from(policy: OnGateFailure) -> &'static str {
        match policy {
            OnGateFailure::Deny => "deny",
            OnGateFailure::Allow => "allow",
        }
    }
}

impl TryFrom<String> for OnGateFailure {
    type Error = String;
    fn try_from(word: String) -> Result<Self, String> {
        match word.as_str() {
            "deny" => Ok(Self::Deny),
            "allow" => Ok(Self::Allow),
            "local" | "emergency" => {
                Err(format!("`{word}` is not served by this version yet; give `deny` or `allow`"))
            }
            _ => Err("must be `deny` or `allow`".into()),
        }
    }
}

/// A whole percentage, 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "u8")]
pub struct Percent(u8);

impl Percent {
    /// The percentage, if it is 0 to 100.
    pub fn new(percent: u8) -> Option<Self> {
        (percent <= 100).then_some(Self(percent))
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        whole_number(deserializer, 0..=100).map(Self)
    }
}

impl From<Percent> for u8 {
    fn from(percent: Percent) -> u8 {
        percent.0
    }
}

/// At most `capacity` of a meter per window. The same fields as a default, in a plan and of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "LimitFields", into = "LimitFields")]
pub struct Limit {
    /// Its name; with the tenant, the identity of its counter.
    pub id: LimitId,
    /// What is limited.
    pub meter: MeterId,
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
    /// From which share of the capacity on answers carry a warning, in percent.
    pub near_percent: Percent,
    /// What becomes of work under it while the gate does not answer.
    pub on_gate_failure: OnGateFailure,
    /// The first instant at which it holds; absent: always.
    pub from: Option<Instant>,
    /// The first instant at which it no longer holds; absent: never.
    pub until: Option<Instant>,
    /// What a refusal tells the caller besides.
    pub message: Option<Arc<str>>,
}

/// At most `capacity` of a meter per window. The same fields as a default, in a plan and of a tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "Limit")]
pub(super) struct LimitFields {
    /// Its name; with the tenant, the identity of its counter.
    id: LimitId,
    /// What is limited.
    meter: MeterId,
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
    /// `calendar`: over which window of the tenant's calendar. It is needed there.
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
    /// Buckets: in how many seconds so much comes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    per_seconds: Option<SpanSeconds>,
    /// How much of the meter fits in a window, or in a bucket.
    capacity: Amount,
    /// What it does when it is reached.
    #[serde(default)]
    kind: Kind,
    /// Whether its count survives the loss of the gate's memory. Absent: `quota` for `calendar`, `rate` for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<Class>,
    /// From which share of the capacity on answers carry a warning, in percent.
    #[serde(default = "default_near_percent")]
    near_percent: Percent,
    /// What becomes of work under it while the gate does not answer.
    #[serde(default)]
    on_gate_failure: OnGateFailure,
    /// The first instant at which it holds; absent: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<Instant>,
    /// The first instant at which it no longer holds; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Instant>,
    /// What a refusal tells the caller besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Arc<str>>,
}

impl TryFrom<LimitFields> for Limit {
    type Error = String;
    fn try_from(fields: LimitFields) -> Result<Self, String> {
        let LimitFields { window, window_seconds, aligned, sub_windows, refill, per_seconds, .. } = fields;
        let of_algorithm = Fields { window, window_seconds, aligned, sub_windows, refill, per_seconds };
        let algorithm = Algorithm::read(fields.algorithm, &of_algorithm)?;
        let default_class = if algorithm.is_restorable() { Class::Quota } else { Class::Rate };
        Ok(Self {
            id: fields.id,
            meter: fields.meter,
            scope: fields.scope,
            subject_kind: fields.subject_kind,
            operations: fields.operations,
            algorithm,
            capacity: fields.capacity,
            kind: fields.kind,
            class: fields.class.unwrap_or(default_class),
            near_percent: fields.near_percent,
            on_gate_failure: fields.on_gate_failure,
            from: fields.from,
            until: fields.until,
            message: fields.message,
        })
    }
}

impl From<Limit> for LimitFields {
    fn from(limit: Limit) -> Self {
        let Fields { window, window_seconds, aligned, sub_windows, refill, per_seconds } =
            limit.algorithm.fields();
        Self {
            id: limit.id,
            meter: limit.meter,
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
            capacity: limit.capacity,
            kind: limit.kind,
            class: Some(limit.class),
            near_percent: limit.near_percent,
            on_gate_failure: limit.on_gate_failure,
            from: limit.from,
            until: limit.until,
            message: limit.message,
        }
    }
}

fn default_near_percent() -> Percent {
    Percent(80)
}

impl Limit {
    /// Whether it holds at `at_ms`.
    pub fn is_active(&self, at_ms: i64) -> bool {
        self.from.is_none_or(|from| from.ms() <= at_ms) && self.until.is_none_or(|until| at_ms < until.ms())
    }

    /// Whether it counts work of `operation` (none: work given by lines).
    pub fn counts(&self, operation: Option<&OperationId>) -> bool {
        match &self.operations {
            None => true,
            Some(operations) => operation.is_some_and(|operation| operations.contains(operation)),
        }
    }
}
