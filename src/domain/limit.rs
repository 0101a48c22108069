//! A limit: at most this much of a meter, per window, for a scope.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use super::amount::Amount;
use super::ids::{LimitId, MeterId, OperationId, SubjectKind};
use super::instant::Instant;
use super::period::WindowKind;
use super::whole_number::whole_number;

/// Whose use a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(default = "tenant")]
pub enum Scope {
    /// The whole tenant's.
    #[default]
    Tenant,
    /// Each subject's of the limit's kind by itself.
    Subject,
}

/// How a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(default = "calendar")]
pub enum Algorithm {
    /// By windows of the calendar, in the tenant's zone.
    #[default]
    Calendar,
}

/// What a limit does when it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LimitKind, default = "hard")]
pub enum Kind {
    /// It refuses.
    #[default]
    Hard,
}

/// Whether a limit's count survives the loss of the gate's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LimitClass, default = "quota")]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Its name; with the tenant, the identity of its counter.
    pub id: LimitId,
    /// What is limited.
    pub meter: MeterId,
    /// Whose use counts.
    #[serde(default)]
    pub scope: Scope,
    /// Which sort of subject; given exactly when the scope is `subject`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_kind: Option<SubjectKind>,
    /// The operations whose use counts; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1)]
    pub operations: Option<Vec<OperationId>>,
    /// How it counts.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Over which stretch of time.
    pub window: WindowKind,
    /// How much of the meter fits in a window.
    pub capacity: Amount,
    /// What it does when it is reached.
    #[serde(default)]
    pub kind: Kind,
    /// Whether its count survives the loss of the gate's memory.
    #[serde(default)]
    pub class: Class,
    /// From which share of the capacity on answers carry a warning, in percent.
    #[serde(default = "default_near_percent")]
    pub near_percent: Percent,
    /// What becomes of work under it while the gate does not answer.
    #[serde(default)]
    pub on_gate_failure: OnGateFailure,
    /// The first instant at which it holds; absent: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Instant>,
    /// The first instant at which it no longer holds; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Instant>,
    /// What a refusal tells the caller besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 500)]
    pub message: Option<Arc<str>>,
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
