//! `checkpoint`: appends the figures of a tenant's counters to the outbox. Also says which tenants are warm.

use redis::{Pipeline, Value};
use uuid::Uuid;

use crate::domain::checkpoint::{CHECKPOINT_COUNTERS_MAX, CHECKPOINT_SUBJECTS_MAX};
use crate::domain::codec::{Reader, Undecodable};
use crate::domain::counter::Counter;
use crate::domain::ids::{OutboxId, Partition, TenantId};
use crate::domain::reservation::SubjectHash;

use super::Gate;
use super::connections::plain_error;
use super::counters::{Count, check_counters, pack_counters};
use super::error::GateError;
use super::scripts::Script;
use super::status::Status;

/// A checkpoint to take.
#[derive(Debug)]
pub struct CheckpointCall<'a> {
    /// Its id.
    pub id: Uuid,
    /// The tenant's partition.
    pub partition: Partition,
    /// Its tenant.
    pub tenant: &'a TenantId,
    /// The subjects' hashes; a counter's scope index n means the n-th.
    pub subjects: &'a [SubjectHash],
    /// The counters, in the order of the description; lines and capacities are not used.
    pub counters: &'a [Counter],
    /// The span in which all windows are current: start inclusive, end exclusive, unix ms.
    pub valid: (i64, i64),
    /// The description of the counters for the writer, packed.
    pub description: Vec<u8>,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// The result of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointOutcome {
    /// It is in the outbox, at this place.
    Told(OutboxId),
    /// The gate knows none of the counters: nothing was written.
    NothingKnown,
    /// The tenant is cold: nothing was written.
    Cold,
    /// The windows were computed for another time; compute them for this one.
    StaleWindow {
        /// The script's time (unix ms).
        now_ms: i64,
    },
}

impl Gate {
    /// Appends the figures of these counters. One round trip.
    pub async fn checkpoint(&self, call: &CheckpointCall<'_>) -> Result<CheckpointOutcome, GateError> {
        let malformed = |reason| GateError::Malformed { script: "checkpoint", reason };
        if call.counters.len() > CHECKPOINT_COUNTERS_MAX || call.subjects.len() > CHECKPOINT_SUBJECTS_MAX {
            return Err(malformed("more than 255 counters or 64 subjects"));
        }
        let counts: Vec<_> =
            call.counters.iter().map(|counter| Count::read(counter).without_capacity()).collect();
        check_counters(&counts, call.subjects.len(), usize::from(u8::MAX)).map_err(malformed)?;
        let partition = call.partition;
        let mut keys = vec![self.keys.meta(partition), self.keys.outbox(partition)];
        keys.push(self.keys.tenant(partition, call.tenant));
        keys.extend(call.subjects.iter().map(|hash| self.keys.subject(partition, call.tenant, *hash)));
        let mut arguments = self.mutating(partition, call.now_ms)?;
        let mut packed = Vec::with_capacity(1 + 48 * call.counters.len());
        pack_counters(&counts, &[], &mut packed);
        arguments.extend([call.id.as_bytes().to_vec(), packed]);
        arguments.extend([call.valid.0, call.valid.1].map(|ms| ms.to_string().into_bytes()));
        arguments.push(call.description.clone());
        let reply = self.run(partition, Script::Checkpoint, &keys, &arguments).await?;
        match reply.status {
            Status::Done => Ok(CheckpointOutcome::Told(reply.id)),
            Status::Kept => Ok(CheckpointOutcome::NothingKnown),
            Status::Cold => Ok(CheckpointOutcome::Cold),
            Status::StaleWindow => Ok(CheckpointOutcome::StaleWindow { now_ms: reply.now_ms }),
            _ => Err(Undecodable("a status of checkpoint").into()),
        }
    }

    /// Which of these tenants are warm, in one pipeline. Only a hint for jobs that look for work: scripts decide for
    /// themselves. A tenant whose state cannot be decoded counts as warm, so that a job meets the damage and reports
    /// it.
    pub async fn warm_tenants(&self, tenants: &[TenantId]) -> Result<Vec<bool>, GateError> {
        if tenants.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::with_capacity(tenants.len());
        for tenant in tenants {
            pipeline.cmd("HGET").arg(self.keys.tenant(self.partition_of(tenant), tenant)).arg("h");
        }
        let patience = self.patience() + self.options.connect_timeout;
        let answers = tokio::time::timeout(patience, self.links.pick().send_all(&pipeline, tenants.len()))
            .await
            .map_err(|_| GateError::Timeout)?
            .map_err(|error| plain_error(&error))?;
        let is_warm = |(tenant, header): (&TenantId, &Value)| match header {
            Value::BulkString(bytes) => {
                let epoch = self.epoch(self.partition_of(tenant));
                epoch.is_some_and(|epoch| Reader::new(bytes).u64() == Ok(epoch.0))
            }
            Value::ServerError(_) => true,
            _ => false,
        };
        Ok(tenants.iter().zip(&answers).map(is_warm).collect())
    }
}
