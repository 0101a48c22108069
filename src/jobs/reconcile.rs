//! Reconciliation: takes a checkpoint of every warm tenant in turn, repairs drifts, and undoes repeats.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::beat::{turns, until};
use crate::domain::ids::TenantId;
use crate::ledger::Ledger;
use crate::ledger::lease::Lease;
use crate::operations::{Answer, OperationError, Operations, Work};
use crate::telemetry::labels::Judged;

const LEASE: &str = "jobs/reconcile";
const REPAIR_BEAT: Duration = Duration::from_secs(1);
const UNDO_BEAT: Duration = Duration::from_secs(5);
/// The longest pause between two tenants, so that a stop or a lost lease is noticed soon.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How fast the round over the tenants goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReconcileOptions {
    /// The time in which each tenant is compared once.
    pub interval: Duration,
    /// The shortest pause between two tenants.
    pub pause_min: Duration,
}

/// Takes a checkpoint of each warm tenant, round after round, until `stop` resolves. The round has a lease, which only
/// saves work: an extra checkpoint does no harm.
pub async fn reconcile_tenants(
    operations: Arc<Operations>,
    ledger: Ledger,
    options: ReconcileOptions,
    stop: impl Future<Output = ()>,
) {
    let owner = format!("reconcile/{:032x}", rand::random::<u128>());
    let lease = Lease::new(ledger, LEASE, owner, options.interval);
    let look_again = (options.interval / 10).clamp(Duration::from_millis(100), Duration::from_secs(10));
    let reconciling = async {
        let mut reconciler = Reconciler { operations, lease: &lease, options, tenants: 0 };
        // A random pause, so that instances that start together do not begin together.
        tokio::time::sleep(look_again * rand::random_range(0..100) / 100).await;
        loop {
            let began = Instant::now();
            match lease.take().await {
                Ok(true) => {
                    reconciler.round().await;
                    tokio::time::sleep_until(began + options.interval).await;
                }
                Ok(false) => tokio::time::sleep(look_again).await,
                Err(error) => {
                    tracing::debug!(%error, "reconciliation waits for the ledger");
                    tokio::time::sleep(look_again).await;
                }
            }
        }
    };
    until(stop, reconciling).await;
    lease.give_back().await;
}

struct Reconciler<'a> {
    operations: Arc<Operations>,
    lease: &'a Lease,
    options: ReconcileOptions,
    /// How many tenants were warm in the last round: this round is spread over as many.
    tenants: u32,
}

impl Reconciler<'_> {
    async fn round(&mut self) {
        match self.go_round().await {
            Ok(tenants) => self.tenants = tenants,
            Err(error) => tracing::debug!(%error, "a round of reconciliation ended early"),
        }
    }

    /// Passes over a tenant that cannot be compared; the round ends only when a server is away.
    async fn pass_over(&self, tenant: &TenantId, error: OperationError) -> Answer<()> {
        if error.is_server_away() {
            return Err(error);
        }
        self.operations.metrics().checkpoint_judged(Judged::Failed);
        self.operations.damage.pass_over(Work::Comparison, &format!("tenant {tenant}"), &error).await;
        Ok(())
    }

    async fn go_round(&self) -> Answer<u32> {
        let spread = self.options.interval * 4 / 5 / self.tenants.max(1);
        let pause = spread.min(PAUSE_MAX).max(self.options.pause_min);
        let (mut tenants, mut after, mut renewed) = (0_u32, None, Instant::now());
        loop {
            let page = self.operations.reconcile.warm_tenants(after.as_ref()).await?;
            for tenant in &page.warm {
                if renewed.elapsed() > self.options.interval / 3 {
                    if !self.lease.take().await? {
                        return Ok(tenants);
                    }
                    renewed = Instant::now();
                }
                if let Err(error) = self.operations.reconcile.take_checkpoints(tenant).await {
                    self.pass_over(tenant, error).await?;
                }
                tenants = tenants.saturating_add(1);
                tokio::time::sleep(pause).await;
            }
            after = page.next;
            if after.is_none() {
                return Ok(tenants);
            }
        }
    }
}

/// Repairs the drifts that the writers find, until `stop` resolves. Any number of instances may do so: each drift is
/// claimed by one, and a counter accepts a checkpoint's delta once.
pub async fn repair_drifts(operations: Arc<Operations>, stop: impl Future<Output = ()>) {
    let repair = || async {
        match operations.reconcile.repair_drifts().await {
            Ok(0) => REPAIR_BEAT,
            Ok(_) => Duration::ZERO,
            Err(error) => {
                tracing::warn!(%error, "drifts could not be repaired yet");
                REPAIR_BEAT
            }
        }
    };
    turns(stop, repair).await;
}

/// Undoes repeats at the gate when `wake` rings, and now and then, until `stop` resolves.
pub async fn undo_repeats(operations: Arc<Operations>, wake: Arc<Notify>, stop: impl Future<Output = ()>) {
    let undo = || async {
        match operations.reconcile.undo_repeats().await {
            Ok(0) => {
                // The next turn looks for repeats, woken or not.
                let _ = tokio::time::timeout(UNDO_BEAT, wake.notified()).await;
                Duration::ZERO
            }
            Ok(_) => Duration::ZERO,
            Err(error) => {
                tracing::warn!(%error, "operations that came again could not be taken back yet");
                REPAIR_BEAT
            }
        }
    };
    turns(stop, undo).await;
}
