//! What one request falls under: its limits and quotas, each with its window, capacity and counter.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::domain::amount::{Decimals, Units};
use crate::domain::field_error::FieldError;
use crate::domain::ids::MeterId;
use crate::domain::limit::Limit;
use crate::domain::period::Window;
use crate::domain::reservation::CounterField;

/// The most counters that one request may touch.
pub const COUNTERS_MAX: usize = 32;

/// Where a limit's capacity comes from; the first that has one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// An emergency override.
    Emergency,
    /// The subject's own override or plan.
    Subject,
    /// The tenant's override or limit.
    Tenant,
    /// The tenant's plan.
    Plan,
    /// The installation's default.
    Default,
}

impl Level {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Emergency => "emergency",
            Self::Subject => "subject",
            Self::Tenant => "tenant",
            Self::Plan => "plan",
            Self::Default => "default",
        }
    }
}

/// A limit that a request falls under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedLimit {
    /// The definition that won: id, meter, scope, window kind, class, kind, near_percent, message.
    /// Its `capacity` is the definition's own; what counts is [`Self::capacity`].
    pub limit: Arc<Limit>,
    /// The index of the request's line that it counts.
    pub line: usize,
    /// The index of the request's subject whose use it counts; none for the whole tenant's.
    pub subject: Option<usize>,
    /// The window it counts in now.
    pub window: Window,
    /// How much fits in the window, overrides included.
    pub capacity: Units,
    /// The meter's decimals.
    pub decimals: Decimals,
    /// Where the capacity comes from.
    pub level: Level,
    /// The counter's field in the tenant's, or the subject's, hash.
    pub field: CounterField,
    /// When the counter was created, in unix milliseconds.
    pub since_ms: i64,
}

/// A quota that a request falls under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedQuota {
    /// What is allowed.
    pub meter: MeterId,
    /// The index of the request's line that it counts.
    pub line: usize,
    /// What the plan includes in each period.
    pub included: Units,
    /// The meter's decimals.
    pub decimals: Decimals,
    /// The billing period now.
    pub window: Window,
    /// The counter's field in the tenant's hash.
    pub field: CounterField,
    /// When the counter was created, in unix milliseconds.
    pub since_ms: i64,
}

/// Everything that a request falls under.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// Its limits: line by line, the tenant's before the subjects'.
    pub limits: Vec<ResolvedLimit>,
    /// Its quotas, line by line.
    pub quotas: Vec<ResolvedQuota>,
    /// The lines that no limit and no quota counts: what they get is the meter's `without_limit`.
    pub without: Vec<usize>,
}

/// A request falls under more counters than one decision may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("falls under {0} limits and quotas; at most 32 can be decided at once: name fewer lines or subjects")]
pub struct TooManyCounters(pub usize);

/// The lines that name a meter which an earlier line named: an error each, at `/lines/…/meter`.
pub fn repeated_meters<'a>(meters: impl IntoIterator<Item = &'a MeterId>) -> Vec<FieldError> {
    let mut seen = Vec::new();
    let mut errors = Vec::new();
    for (index, meter) in meters.into_iter().enumerate() {
        if seen.contains(&meter) {
            let message = format!("`{meter}` stands in an earlier line too; one line per meter");
            errors.push(FieldError::new(format!("/lines/{index}/meter"), message));
        }
        seen.push(meter);
    }
    errors
}
