//! Recovery: what a call at the gate needs before it is tried again, and how often it is tried.

use std::time::{Duration, Instant};

use super::Memory;
use super::refetch::Recalled;
use crate::clock::Clock;
use crate::domain::ids::{OutboxId, ReservationId, Subject};
use crate::domain::policy::Resolved;
use crate::domain::reservation::{Record, SubjectHash};
use crate::gate::{Cold, ColdRecord, GateError};
use crate::operations::error::{Answer, OperationError};
use crate::operations::policy_store::TenantEntry;

/// The most tries of a call.
const CALL_TRIES: u32 = 8;
/// No try starts later than this after the first one failed: no caller waits longer for an answer.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Counts the tries of some work at the gate. After the last, the caller gets an error that asks to repeat the call.
pub(in crate::operations) struct Tries {
    left: u32,
    until: Option<Instant>,
    why: &'static str,
}

impl Tries {
    /// At most this many tries.
    pub(in crate::operations) fn of(most: u32, why: &'static str) -> Self {
        Self { left: most, until: None, why }
    }

    /// As many tries as a call has.
    pub(in crate::operations) fn of_call(why: &'static str) -> Self {
        Self::of(CALL_TRIES, why)
    }

    /// Ends a try without a result.
    ///
    /// Errors: this was the last try.
    pub(in crate::operations) fn again(&mut self) -> Answer<()> {
        self.again_at(Clock::monotonic())
    }

    fn again_at(&mut self, now: Instant) -> Answer<()> {
        let until = *self.until.get_or_insert(now + TIME_MAX);
        self.left = self.left.saturating_sub(1);
        if self.left == 0 || now >= until {
            return Err(OperationError::GateUnavailable(self.why.into()));
        }
        Ok(())
    }
}

/// Does what a call at the gate needs before it is tried again.
pub(in crate::operations) struct Recovery<'a> {
    memory: &'a Memory,
    tries: Tries,
}

impl Memory {
    /// The recovery of one call; `why` is the caller's error after the last try.
    pub(in crate::operations) fn recovery(&self, why: &'static str) -> Recovery<'_> {
        Recovery { memory: self, tries: Tries::of_call(why) }
    }
}

impl Recovery<'_> {
    /// Counts a try after the call itself has done what was needed: it uses other windows, or knows more.
    ///
    /// Errors: this was its last try.
    pub(in crate::operations) fn again(&mut self) -> Answer<()> {
        self.tries.again()
    }

    /// Restores the counters of a reserve.
    pub(in crate::operations) async fn restore(
        &mut self,
        entry: &TenantEntry,
        cold: &Cold,
        resolved: &Resolved,
        subjects: &[(Subject, SubjectHash)],
        at_ms: i64,
    ) -> Answer<()> {
        Box::pin(self.memory.restore_cold(entry, cold, resolved, subjects, at_ms)).await?;
        self.again()
    }

    /// Restores the counters of an admission that was granted while the gate was away.
    pub(in crate::operations) async fn restore_admission(
        &mut self,
        entry: &TenantEntry,
        cold: &Cold,
        record: &Record,
    ) -> Answer<()> {
        Box::pin(self.memory.restore_cold_admission(entry, cold, record)).await?;
        self.again()
    }

    /// Restores the counters of a reservation.
    pub(in crate::operations) async fn restore_record(&mut self, cold: &ColdRecord) -> Answer<()> {
        Box::pin(self.memory.restore_cold_record(cold)).await?;
        self.again()
    }

    /// Asks the ledger for the reservation of a key; an admission that waits unbooked decides the call.
    pub(in crate::operations) async fn ask_ledger(
        &mut self,
        id: ReservationId,
        last_id: OutboxId,
    ) -> Answer<Option<Recalled>> {
        let known = Box::pin(self.memory.recall(id, last_id)).await?;
        if known.is_none() {
            self.again()?;
        }
        Ok(known)
    }

    /// Checks the node after an alarm. Returns why the gate is away, if it is: then only the call knows what to do.
    ///
    /// Errors: this was the last try, or a retry cannot help.
    pub(in crate::operations) async fn after_failure(
        &mut self,
        error: GateError,
    ) -> Answer<Option<GateError>> {
        let away = self.memory.check.after_failure(error).await?;
        if away.is_none() {
            self.again()?;
        }
        Ok(away)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_three_tries_is_tried_again_twice() {
        let mut tries = Tries::of(3, "repeat it");
        assert!(tries.again().is_ok() && tries.again().is_ok());
        let last = tries.again().unwrap_err();
        assert!(matches!(last, OperationError::GateUnavailable(why) if why == "repeat it"));
    }

    #[test]
    fn nothing_is_tried_again_once_its_time_is_over() {
        let (mut tries, first) = (Tries::of_call("repeat it"), Clock::monotonic());
        assert!(tries.again_at(first).is_ok());
        assert!(tries.again_at(first + TIME_MAX - Duration::from_millis(1)).is_ok());
        assert!(tries.again_at(first + TIME_MAX).is_err());
    }
}
