//! What a tenant has left, as it is read.

use std::collections::BTreeMap;

use rust_decimal::Decimal;

use crate::domain::amount::Units;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::period::Window;
use crate::operations::answers::{GrantLeft, LimitStatus};
use crate::operations::requests::Ack;

/// The quota that a tenant has left.
#[derive(Debug, Clone)]
pub struct QuotaStatus {
    /// Its tenant.
    pub tenant: TenantId,
    /// The current billing period.
    pub period: Window,
    /// The tenant's zone.
    pub zone: String,
    /// Which engine the figures are from.
    pub source: Ack,
    /// When they were read (unix ms).
    pub as_of_ms: i64,
    /// Its quotas and limits, and the limits of the subject asked for.
    pub limits: Vec<LimitStatus>,
    /// Parts of the quotas' capacities that the ledger tells apart, by meter.
    pub parts: BTreeMap<MeterId, QuotaParts>,
    /// What is left of the grants that count now, by meter; none where the ledger does not answer. A meter that is
    /// missing has too many of them.
    pub grants: Option<BTreeMap<MeterId, Vec<GrantLeft>>>,
}

/// What a quota's capacity has beside what was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaParts {
    /// What is from the period before.
    pub rolled_in: Units,
    /// How far below zero it may go.
    pub overdraft: Units,
    /// What is held of holds that the period before has left open.
    pub carried: Units,
    /// What was consumed of it that the gate does not count: facts that came after their period was closed.
    pub consumed_beside_gate: Units,
    /// What finance corrects of closed periods and carried holds and is booked in this one, below zero where less was
    /// used.
    pub adjusted: Decimal,
}
