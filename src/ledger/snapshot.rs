//! What the gate has to be told about a tenant that it does not know: one snapshot of its books.

use super::{Ledger, LedgerError, QuotaCapacity};
use crate::domain::amount::{Decimals, Units};
use crate::domain::ids::{MeterId, OperationId, OutboxId, Partition, ReservationId, Subject, TenantId};
use crate::domain::reservation::Record;

/// A counter whose figure is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterAsk {
    /// What it counts: the meters with their decimals and weights.
    pub meters: Vec<(MeterId, Decimals, i64)>,
    /// The subject it counts for; none for the whole tenant.
    pub subject: Option<Subject>,
    /// The operations it counts; none for all.
    pub operations: Option<Vec<OperationId>>,
    /// Its window's start (unix ms).
    pub window_start_ms: i64,
    /// Its window's end (unix ms).
    pub window_end_ms: i64,
}

/// What is asked about a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestoreAsk {
    /// Counters, by window.
    pub counters: Vec<CounterAsk>,
    /// Quotas: the meter, its decimals and the period's start (unix ms).
    pub quotas: Vec<(MeterId, Decimals, i64)>,
    /// Whether the open reservations are wanted.
    pub with_open: bool,
    /// The last keyed call is looked for from this instant on (unix ms).
    pub keyed_since_ms: i64,
}

/// What the books say about one quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaState {
    /// Its capacity; none when its period has not been opened.
    pub capacity: Option<QuotaCapacity>,
    /// What is consumed of it.
    pub consumed: Units,
}

/// What the books say about a tenant, as of one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSnapshot {
    /// The last event of its partition that is in these figures.
    pub cursor: OutboxId,
    /// Its open reservations.
    pub open: Vec<(ReservationId, Record)>,
    /// Consumed units per counter asked for, in order, each in units of the counter (weights applied).
    pub counters: Vec<Units>,
    /// Per quota asked for, in order.
    pub quotas: Vec<QuotaState>,
    /// When its last keyed operation since the instant asked for was made (unix ms).
    pub latest_keyed_born_at_ms: Option<i64>,
}

impl Ledger {
    /// Reads what the gate needs to know about a tenant, in one snapshot.
    pub async fn read_tenant(
        &self,
        partition: Partition,
        tenant: &TenantId,
        ask: &RestoreAsk,
    ) -> Result<TenantSnapshot, LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
