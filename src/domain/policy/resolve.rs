//! The counters of one request: those of its limits and quotas.

use serde::{Deserialize, Serialize};

use crate::domain::counter::Counter;
use crate::domain::load::LoadLevel;

/// The most counters that one request may touch.
pub const COUNTERS_MAX: usize = 32;

/// Where a limit's capacity comes from; the first level with one wins.
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

/// Puts the counters of limits that ask for it under this level of the load.
pub fn put_under(counters: &mut [Counter], load: LoadLevel) {
    if load != LoadLevel::Full {
        let scaled = |counter: &&mut Counter| counter.limit().is_some_and(|limit| limit.load_scaled);
        counters.iter_mut().filter(scaled).for_each(|counter| counter.load = load);
    }
}

/// The counters of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// Its limits, line by line, the tenant's before the subjects'; then its quotas, line by line.
    pub counters: Vec<Counter>,
    /// The lines that no limit and no quota counts: their meters' `without_limit` decides.
    pub without: Vec<usize>,
}

impl Resolved {
    /// The same at this level of the load: limits that ask for it have less capacity for new work.
    pub fn under(mut self, load: LoadLevel) -> Self {
        put_under(&mut self.counters, load);
        self
    }

    /// The counters of limits.
    pub fn limits(&self) -> impl Iterator<Item = &Counter> {
        self.counters.iter().filter(|counter| !counter.is_quota())
    }

    /// The counters of quotas.
    pub fn quotas(&self) -> impl Iterator<Item = &Counter> {
        self.counters.iter().filter(|counter| counter.is_quota())
    }
}

/// A request falls under more counters than one decision may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("falls under {0} limits and quotas; at most 32 can be decided at once: name fewer lines or subjects")]
pub struct TooManyCounters(pub usize);
