//! The expiry sweep. It has a short beat of its own, because a hold must return within a second or two of its expiry.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::beat::{every, turns};
use crate::domain::ids::Partition;
use crate::ledger::Ledger;
use crate::ledger::lease::Lease;
use crate::operations::{Answer, Operations};

const BEAT: Duration = Duration::from_millis(250);
const AFTER_FAILURE: Duration = Duration::from_secs(1);
const LEASE: &str = "sweep";
const LEASE_DURATION: Duration = Duration::from_secs(2);
const RENEW_EVERY: Duration = Duration::from_millis(600);
/// A ledger that takes longer to grant or refuse the lease counts as away.
const LEASE_PATIENCE: Duration = Duration::from_millis(600);

/// Sweeps all partitions, beat by beat, until `stop` resolves. A lease lets one instance sweep at a time. While the
/// ledger is away every instance sweeps, which is safe: a reservation expires in one script, however many try.
pub async fn sweep_due(operations: Arc<Operations>, ledger: Ledger, stop: impl Future<Output = ()>) {
    let lease = Lease::new(ledger, LEASE, format!("sweep/{}", uuid::Uuid::now_v7()), LEASE_DURATION);
    let ours = AtomicBool::new(true);
    let keep = || async {
        let taken = tokio::time::timeout(LEASE_PATIENCE, lease.take()).await;
        ours.store(!matches!(taken, Ok(Ok(false))), Ordering::Release);
    };
    let sweep = || async {
        let swept = if ours.load(Ordering::Acquire) { sweep_all(&operations).await } else { Ok(()) };
        // A gate that fails gets a longer pause.
        swept.map_or_else(
            |error| {
                tracing::debug!(%error, "the sweep could not go on");
                AFTER_FAILURE
            },
            |()| BEAT,
        )
    };
    turns(every(RENEW_EVERY, stop, keep), sweep).await;
    lease.give_back().await;
}

/// Sweeps all partitions once, and the due lists that leaps of the sweep passed over. A partition that fails does not
/// stop the others.
async fn sweep_all(operations: &Operations) -> Answer<()> {
    let (mut leaps, mut failed) = (Vec::new(), None);
    for partition in operations.partitions() {
        match sweep(operations, partition).await {
            Ok(leap) => leaps.extend(leap.map(|leap| (partition, leap))),
            Err(error) => failed = Some(error),
        }
    }
    let behind = operations.calls.expire_behind(&leaps).await;
    failed.map_or(behind, Err)
}

/// Expires all that is due in a partition. Returns the bucket to which the sweep leapt, if earlier due lists are left.
async fn sweep(operations: &Operations, partition: Partition) -> Answer<Option<i64>> {
    loop {
        let report = operations.calls.expire_due(partition).await?;
        if !report.more {
            return Ok(report.leap);
        }
    }
}
