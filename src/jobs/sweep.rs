//! The expiry sweep: its own short beat, because a hold must return within a second or two of its expiry.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::domain::ids::Partition;
use crate::ledger::Ledger;
use crate::operations::{Answer, Operations};

const BEAT: Duration = Duration::from_millis(250);
const AFTER_FAILURE: Duration = Duration::from_secs(1);
const LEASE: &str = "sweep";
const LEASE_DURATION: Duration = Duration::from_secs(2);
const RENEW_EVERY: Duration = Duration::from_millis(600);
/// A ledger that takes longer to say whose turn it is counts as away.
const LEASE_PATIENCE: Duration = Duration::from_millis(600);

/// Sweeps all partitions, beat by beat, until `stop` resolves. Instances take turns by a lease, so that it is done once;
/// while the ledger cannot tell whose turn it is, each sweeps: a reservation expires in one script, however many try.
pub async fn sweep_due(operations: Arc<Operations>, ledger: Ledger, stop: impl Future<Output = ()>) {
    let owner = format!("sweep/{}", uuid::Uuid::now_v7());
    let ours = AtomicBool::new(true);
    tokio::select! {
        () = keep_lease(&ledger, &owner, &ours) => {}
        () = sweep_beat_by_beat(&operations, &ours) => {}
        () = stop => {}
    }
    if let Err(error) = ledger.give_back_leases(&owner).await {
        tracing::debug!(%error, "the sweep's lease was not given back; it ends by itself");
    }
}

async fn keep_lease(ledger: &Ledger, owner: &str, ours: &AtomicBool) {
    let names = [LEASE.to_owned()];
    loop {
        let taking = ledger.take_leases(&names, owner, LEASE_DURATION);
        let others =
            matches!(tokio::time::timeout(LEASE_PATIENCE, taking).await, Ok(Ok(held)) if held.is_empty());
        ours.store(!others, Ordering::Release);
        tokio::time::sleep(RENEW_EVERY).await;
    }
}

async fn sweep_beat_by_beat(operations: &Operations, ours: &AtomicBool) {
    loop {
        let swept = if ours.load(Ordering::Acquire) { sweep_all(operations).await } else { Ok(()) };
        // A faulty gate is not pressed.
        let pause = match swept {
            Ok(()) => BEAT,
            Err(error) => {
                tracing::debug!(%error, "the sweep could not go on");
                AFTER_FAILURE
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// One round over all partitions, and over what leaps of the sweep left behind. A partition that fails keeps no other from it.
async fn sweep_all(operations: &Operations) -> Answer<()> {
    let (mut leaps, mut failed) = (Vec::new(), None);
    for partition in Partition::all(operations.partitions()) {
        match sweep(operations, partition).await {
            Ok(leap) => leaps.extend(leap.map(|leap| (partition, leap))),
            Err(error) => failed = Some(error),
        }
    }
    let behind = operations.expire_behind(&leaps).await;
    failed.map_or(behind, Err)
}

/// Expires all that is due in a partition; answers the leap behind which there is more.
async fn sweep(operations: &Operations, partition: Partition) -> Answer<Option<i64>> {
    loop {
        let report = operations.expire_due(partition).await?;
        if !report.more {
            return Ok(report.leap);
        }
    }
}
