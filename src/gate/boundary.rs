//! `boundary`: an event of the outbox at which the writer cuts.

use super::Gate;
use super::error::GateError;
use super::scripts::Script;
use super::status::Status;
use crate::domain::codec::Undecodable;
use crate::domain::ids::{OutboxId, Partition};

impl Gate {
    /// Appends a boundary to the partition's outbox, unless the gate's clock is before `instant_ms` (unix ms; 0 for no
    /// instant). From then on no script writes at a time before the instant. Returns its place, if it was appended.
    pub async fn append_boundary(
        &self,
        partition: Partition,
        instant_ms: i64,
        now_ms: Option<i64>,
    ) -> Result<Option<OutboxId>, GateError> {
        let keys = [self.keys.meta(partition), self.keys.outbox(partition)];
        let mut arguments = self.mutating(partition, now_ms)?;
        arguments.push(instant_ms.to_string().into_bytes());
        let reply = self.run(partition, Script::Boundary, &keys, &arguments).await?;
        match reply.status {
            Status::Done => Ok(Some(reply.id)),
            Status::Kept => Ok(None),
            _ => Err(Undecodable("a status of boundary").into()),
        }
    }
}
