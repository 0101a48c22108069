//! Boundaries in the outbox: everything that the gate did before an instant is booked.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::domain::ids::{OutboxId, Partition};
use crate::operations::core::Core;
use crate::operations::error::Answer;

/// How often an instant is tried to be passed while calls are being parked, and how soon again.
const PASS_TRIES: usize = 40;
const TRY_AGAIN: Duration = Duration::from_millis(25);

/// The boundaries of one run of a job: by partition, up to which instant (unix ms) and where.
pub(super) struct Boundaries<'a> {
    core: &'a Core,
    passed: Mutex<BTreeMap<Partition, (i64, OutboxId)>>,
}

impl<'a> Boundaries<'a> {
    /// None yet.
    pub(super) fn new(core: &'a Core) -> Self {
        Self { core, passed: Mutex::default() }
    }

    /// Appends a boundary that says that the instant is passed, unless this run has one, and waits until it is
    /// booked. Returns its place; none where the gate's clock is before the instant.
    pub(super) async fn pass(&self, partition: Partition, instant_ms: i64) -> Answer<Option<OutboxId>> {
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner).get(&partition).copied();
        if let Some((_, place)) = passed.filter(|(passed_ms, _)| *passed_ms >= instant_ms) {
            return Ok(Some(place));
        }
        let Some(place) = self.core.append_boundary(partition, instant_ms).await? else { return Ok(None) };
        self.core.progress.catch_up(partition, place).await?;
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed.insert(partition, (instant_ms, place));
        Ok(Some(place))
    }

    /// [`Self::pass`], after which no call is parked any more as one from before the instant, so that what closes then
    /// stays closed. None also where calls are being parked all the time: a later run passes it.
    pub(super) async fn pass_to_close(
        &self,
        partition: Partition,
        instant_ms: i64,
    ) -> Answer<Option<OutboxId>> {
        let Some(place) = self.pass(partition, instant_ms).await? else { return Ok(None) };
        for _ in 0..PASS_TRIES {
            if self.core.ledger.pass_instant(partition, instant_ms).await? {
                return Ok(Some(place));
            }
            tokio::time::sleep(TRY_AGAIN).await;
        }
        Ok(None)
    }
}
