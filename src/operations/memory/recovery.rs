//! Recovery: what a call asks for that the gate did not decide, and how often it is tried.

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

/// How often a call is tried at most.
const CALL_TRIES: u32 = 8;
/// So long after its first try failed nothing is tried again: nobody waits longer for an answer.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The tries that something has at the gate. After the last its caller is told why to repeat it.
pub(in crate::operations) struct Tries {
    left: u32,
    until: Option<Instant>,
    why: &'static str,
}

impl Tries {
    /// At most so many.
    pub(in crate::operations) fn of(most: u32, why: &'static str) -> Self {
        Self { left: most, until: None, why }
    }

    /// As many as a call has.
    pub(in crate::operations) fn of_call(why: &'static str) -> Self {
        Self::of(CALL_TRIES, why)
    }

    /// Ends a try that came to nothing.
    ///
    /// Errors: it was the last.
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

/// Does what a call at the gate asks for before it is tried again.
pub(in crate::operations) struct Recovery<'a> {
    memory: &'a Memory,
    tries: Tries,
}

impl Memory {
    /// For one call; `why` is what its caller is told after its last try.
    pub(in crate::operations) fn recovery(&self, why: &'static str) -> Recovery<'_> {
        Recovery { memory: self, tries: Tries::of_call(why) }
    }
}

impl Recovery<'_> {
    /// The call itself did what was asked for: it takes other windows, or knows more.
    ///
    /// Errors: this was its last try.
    pub(in crate::operations) fn again(&mut self) -> Answer<()> {
        self.tries.again()
    }

    /// Restores what a reserve counts in.
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

    /// Restores what an admission counts in that was given while the gate was away.
    pub(in crate::operations) async fn restore_admission(
        &mut self,
        entry: &TenantEntry,
        cold: &Cold,
        record: &Record,
    ) -> Answer<()> {
        Box::pin(self.memory.restore_cold_admission(entry, cold, record)).await?;
        self.again()
    }

    /// Restores what a reservation counts in.
    pub(in crate::operations) async fn restore_record(&mut self, cold: &ColdRecord) -> Answer<()> {
        Box::pin(self.memory.restore_cold_record(cold)).await?;
        self.again()
    }

    /// Asks the ledger for the reservation of a key; what is not booked and known all the same decides the call.
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

    /// Checks the node after an alarm. Says why where the gate is away: then only the call knows what to do.
    ///
    /// Errors: the memory cannot be checked, this was the last try, or the failure is one that no try mends.
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
