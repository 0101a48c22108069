//! How periods are closed, and what a close has done or would do.

use std::collections::BTreeMap;
use std::time::Duration;

use diesel_async::AsyncPgConnection;
use rust_decimal::Decimal;

use super::LedgerError;
use super::closures::{ClosingPeriod, Standing, held_before};
use super::rollovers;
use crate::domain::ids::{MeterId, OutboxId};
use crate::domain::period::Window;

/// How periods are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closing {
    /// What has to be booked of the partition before.
    pub after: OutboxId,
    /// How long after its end a period counts as open.
    pub grace: Duration,
    /// Whether to say only what would be booked.
    pub dry_run: bool,
    /// The service's time (unix ms): periods that have not ended by then are in the gate.
    pub now_ms: i64,
}

/// What a close has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Closed {
    /// Periods that are closed now.
    pub closed: u64,
    /// Periods that wait: for calls, grants or the period before.
    pub waiting: u64,
    /// Periods of tenants that cannot be closed.
    pub failed: u64,
    /// Of a dry run: periods that wait for the one before alone.
    pub later: u64,
    /// Of a dry run: what would become of the units of those that would be closed.
    pub units: BTreeMap<MeterId, ClosedUnits>,
}

/// What becomes of the units of closed periods of a meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClosedUnits {
    /// They go on to the next periods.
    pub rolled: Decimal,
    /// They lapse.
    pub lapsed: Decimal,
    /// They were used beyond the quotas.
    pub overage: Decimal,
}

impl Closed {
    /// Adds what another part has done.
    pub fn add(&mut self, other: Self) {
        self.closed += other.closed;
        self.waiting += other.waiting;
        self.failed += other.failed;
        self.later += other.later;
        for (meter, units) in other.units {
            self.units.entry(meter).or_default().add(units);
        }
    }
}

impl ClosedUnits {
    fn add(&mut self, other: Self) {
        self.rolled += other.rolled;
        self.lapsed += other.lapsed;
        self.overage += other.overage;
    }
}

/// What would become of the units of these periods, by meter.
pub(super) async fn units(
    connection: &mut AsyncPgConnection,
    periods: &[ClosingPeriod],
    ready: &[Standing],
) -> Result<BTreeMap<MeterId, ClosedUnits>, LedgerError> {
    let mut older = held_before(connection, ready).await?;
    let candidate = |row: &Standing| row.candidate(periods, older.remove(&row.key()).unwrap_or_default());
    let candidates: Vec<_> = ready.iter().map(candidate).collect();
    let quotas = rollovers::closing(connection, &candidates).await?;
    let mut units: BTreeMap<MeterId, ClosedUnits> = BTreeMap::new();
    for ((row, candidate), quota) in ready.iter().zip(&candidates).zip(quotas) {
        let next = candidate.next.as_ref().map(|next| {
            let (start_ms, end_ms) = next.period_ms;
            (Window { start_ms, end_ms }, Decimal::ZERO)
        });
        let rolled = candidate.left(quota.parts(), next).rolled.decimal();
        let lapsed = row.unused() - rolled;
        units.entry(candidate.meter.clone()).or_default().add(ClosedUnits {
            rolled,
            lapsed,
            overage: row.overage(),
        });
    }
    Ok(units)
}
