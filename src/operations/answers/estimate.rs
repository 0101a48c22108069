//! Estimates of a tenant, as they are listed.

use crate::domain::amount::Decimals;
use crate::domain::estimate::Estimate;
use crate::domain::ids::{MeterId, OperationId};

/// What a reserve would hold of an operation on one meter where nothing says how much its work is.
#[derive(Debug, Clone)]
pub struct ListedEstimate {
    /// The operation.
    pub operation: OperationId,
    /// The meter.
    pub meter: MeterId,
    /// Its decimals.
    pub decimals: Decimals,
    /// The estimate.
    pub estimate: Estimate,
}
