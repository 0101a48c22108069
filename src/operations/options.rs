//! The options of the verbs, from the configuration.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::domain::amount::Amount;
use crate::domain::ids::{PlanId, TenantId};
use crate::domain::limit::Percent;
use crate::outbound::OutboundOptions;

/// The options of the verbs, from the configuration.
#[derive(Debug, Clone)]
pub struct OperationsOptions {
    /// The installation's secret; ids, subject hashes, key hashes and cursors derive from it.
    pub secret: [u8; 32],
    /// How many partitions the installation has.
    pub partitions: u16,
    /// How long `ack: ledger` waits.
    pub ack_timeout: Duration,
    /// How long a cold call waits for the ledger to catch up.
    pub restore_wait: Duration,
    /// How many parked calls may wait at once.
    pub parked_calls_max: u64,
    /// For how long the gate remembers keyed calls, in ms.
    pub keyed_memory_ms: i64,
    /// Whether meters with `without_limit = "config"` are denied to tenants without limit or quota.
    pub deny_without_limit: bool,
    /// The plan on which an unknown tenant is created at first use; none: unknown tenants are refused.
    pub unknown_tenant_plan: Option<PlanId>,
    /// With more events than this not booked yet, nothing new is admitted.
    pub backlog_events_max: u64,
    /// With more than this, holds are neither extended nor consumed in part.
    pub backlog_events_hard_max: u64,
    /// With more bytes than this in them, nothing new is admitted.
    pub backlog_bytes_max: u64,
    /// With more than this, holds are neither extended nor consumed in part.
    pub backlog_bytes_hard_max: u64,
    /// Whether calls are refused without the gate where what is consumed alone fills a window.
    pub prefilter: bool,
    /// How long booked events stay in the outbox, unless their bytes end that earlier.
    pub safety_tail: Duration,
    /// Adjustments by more than this need the approval of another person.
    pub approval_above: Amount,
    /// Which decisions are logged.
    pub decision_log: DecisionLogOptions,
    /// Which decisions are kept, to be explained.
    pub decisions: DecisionsOptions,
    /// Which receivers of webhooks may be called.
    pub webhooks: OutboundOptions,
}

/// Which decisions are kept, to be explained.
#[derive(Debug, Clone)]
pub struct DecisionsOptions {
    /// The share of the tenants whose decisions are all written to the ledger.
    pub sample: Percent,
    /// Tenants whose decisions are all written in any case.
    pub tenants: BTreeSet<TenantId>,
    /// The most refusals of the last hour that memory holds.
    pub refusals_max: usize,
}

/// Which decisions are logged.
#[derive(Debug, Clone, Copy)]
pub struct DecisionLogOptions {
    /// How many refusals a second; 0: none.
    pub refusals_per_second: u32,
    /// Which share of what is admitted.
    pub admitted: Percent,
}
