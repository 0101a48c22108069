//! Estimates: what is held where nothing says how much work will use.

use serde::Serialize;
use utoipa::ToSchema;

use super::amount;
use crate::domain::amount::Decimals;
use crate::domain::estimate::{Accuracy, Estimate};
use crate::operations::answers::ListedEstimate;

/// What an estimate is made of.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct EstimateAnswer {
    /// The share of work that it covers.
    pub(in crate::http) percentile: String,
    /// `tenant`: learned from what finished work of this tenant used; `all_tenants`: from that of all, as this one has
    /// none; `max`: the most that the cost allows, as nobody has any.
    pub(in crate::http) source: &'static str,
    /// From how much finished work it is learned; what is long ago counts less, and is forgotten.
    pub(in crate::http) count: u64,
    /// How far off the latest estimates of this tenant were; absent while none of its estimated work has finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) latest: Option<AccuracyAnswer>,
}

/// How far off the latest estimates of a tenant were.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct AccuracyAnswer {
    /// Of how much finished work whose holds were estimates: the latest hundred at most.
    pub(in crate::http) count: usize,
    /// How much of it used more than was held.
    pub(in crate::http) exceeded: usize,
    /// What was held and not used, of all together.
    pub(in crate::http) unused: String,
    /// What was used beyond the holds, of all together.
    pub(in crate::http) excess: String,
    /// Half of the work used at most so much of its hold, in percent, rounded down.
    pub(in crate::http) median_used_percent: i64,
    /// Nine tenths of the work used at most so much of its hold, in percent, rounded down.
    pub(in crate::http) p90_used_percent: i64,
}

/// What a reserve of an operation holds on one meter where nothing says how much its work is.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct EstimateRow {
    /// The operation.
    pub(in crate::http) operation: String,
    /// The meter.
    pub(in crate::http) meter: String,
    /// What would be held.
    pub(in crate::http) amount: String,
    /// What that is made of.
    #[serde(flatten)]
    pub(in crate::http) estimate: EstimateAnswer,
}

impl EstimateAnswer {
    /// The estimate of a meter with these decimals.
    pub(super) fn of(estimate: Estimate, decimals: Decimals) -> Self {
        Self {
            percentile: estimate.percentile.to_string(),
            source: estimate.source.as_str(),
            count: estimate.count,
            latest: estimate.accuracy.map(|accuracy| AccuracyAnswer::of(accuracy, decimals)),
        }
    }
}

impl AccuracyAnswer {
    fn of(accuracy: Accuracy, decimals: Decimals) -> Self {
        Self {
            count: accuracy.count,
            exceeded: accuracy.exceeded,
            unused: amount(accuracy.unused, decimals),
            excess: amount(accuracy.excess, decimals),
            median_used_percent: accuracy.median_percent,
            p90_used_percent: accuracy.high_percent,
        }
    }
}

impl From<ListedEstimate> for EstimateRow {
    fn from(listed: ListedEstimate) -> Self {
        Self {
            operation: listed.operation.to_string(),
            meter: listed.meter.to_string(),
            amount: amount(listed.estimate.units, listed.decimals),
            estimate: EstimateAnswer::of(listed.estimate, listed.decimals),
        }
    }
}
