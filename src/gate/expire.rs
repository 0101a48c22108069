//! `expire`: the sweep that returns what holds have outlived.

use crate::domain::codec::Undecodable;
use crate::domain::ids::Partition;

use super::Gate;
use super::error::GateError;
use super::scripts::Script;

/// How many empty buckets one call passes at most, so that the days of a downtime never hold the server up.
const EMPTY_BUCKETS_MAX: u32 = 2_000;
/// The most due entries of one call.
pub const BATCH_MAX: u32 = 500;

/// What one call of the sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpireReport {
    /// Reservations that expired.
    pub expired: u32,
    /// Due entries that had resolved, moved or belong to another epoch.
    pub skipped: u32,
    /// Due entries without a record.
    pub missing: u32,
    /// Holds of a cold tenant or subject, moved to a later bucket.
    pub postponed: u32,
    /// Holds whose counters hold less than they should, left alone and moved to a later bucket: a defect, to be alarmed.
    pub inconsistent: u32,
    /// Whether more is due now.
    pub more: bool,
    /// The last due bucket finished.
    pub swept: i64,
}

impl Gate {
    /// Sweeps at most `batch` due entries of a partition (bounded by [`BATCH_MAX`]). `now_ms` is the test clock's; none for Redis's own.
    pub async fn expire(
        &self,
        partition: Partition,
        now_ms: Option<i64>,
        batch: u32,
    ) -> Result<ExpireReport, GateError> {
        let mut arguments = self.mutating(partition, now_ms)?;
        arguments.push(self.options.due_bucket_ms.to_string().into_bytes());
        arguments.push(batch.clamp(1, BATCH_MAX).to_string().into_bytes());
        arguments.push(EMPTY_BUCKETS_MAX.to_string().into_bytes());
        arguments.extend(self.tombstone_arguments());
        let keys = [self.keys.meta(partition), self.keys.outbox(partition)];
        let reply = self.run(partition, Script::Expire, &keys, &arguments).await?;
        let count = |at| u32::try_from(reply.integer(at)?).map_err(|_| Undecodable("a count"));
        Ok(ExpireReport {
            expired: count(0)?,
            skipped: count(1)?,
            missing: count(2)?,
            postponed: count(3)?,
            inconsistent: count(4)?,
            more: reply.integer(5)? == 1,
            swept: reply.integer(6)?,
        })
    }
}
