//! Boundaries in the outbox: everything that the gate did before an instant is booked.

use std::collections::BTreeMap;

use crate::domain::ids::{OutboxId, Partition};
use crate::operations::core::Core;
use crate::operations::error::Answer;

/// The boundaries of one run of a job: by partition, up to which instant (unix ms) and where.
pub(super) struct Boundaries<'a> {
    core: &'a Core,
    passed: BTreeMap<Partition, (i64, OutboxId)>,
}

impl<'a> Boundaries<'a> {
    /// None yet.
    pub(super) fn new(core: &'a Core) -> Self {
        Self { core, passed: BTreeMap::new() }
    }

    /// Appends a boundary that says that the instant is passed, unless this run has one, and waits until it is
    /// booked. Returns its place; none where the gate's clock is before the instant.
    pub(super) async fn pass(&mut self, partition: Partition, instant_ms: i64) -> Answer<Option<OutboxId>> {
        if let Some((passed_ms, place)) = self.passed.get(&partition)
            && *passed_ms >= instant_ms
        {
            return Ok(Some(*place));
        }
        let now_ms = self.core.script_now();
        let Some(place) = self.core.gate.append_boundary(partition, instant_ms, now_ms).await? else {
            return Ok(None);
        };
        self.core.progress.catch_up(partition, place).await?;
        self.passed.insert(partition, (instant_ms, place));
        Ok(Some(place))
    }
}
