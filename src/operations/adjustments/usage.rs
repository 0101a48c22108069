//! Adjustments of usage: of an open period the gate is corrected, of a closed one the ledger, and of holds that were
//! carried on.

use super::{Adjustments, meter_of};
use crate::domain::adjustment::{AdjustmentId, AdjustmentTerms};
use crate::domain::instant::rfc3339;
use crate::domain::period::WindowKind;
use crate::ledger::{CorrectedPeriod, StoredAdjustment, Unbookable};
use crate::operations::error::{Answer, OperationError};
use crate::operations::policy_store::TenantEntry;

/// A period that closes within this time takes no correction at the gate any more: the ledger books it once it is
/// closed.
const CLOSES_WITHIN_MS: i64 = 60_000;

impl Adjustments {
    /// The period that an adjustment corrects, and the operation by which the gate does.
    pub(super) fn corrected(
        &self,
        entry: &TenantEntry,
        id: AdjustmentId,
        terms: &AdjustmentTerms,
    ) -> Answer<CorrectedPeriod> {
        let at = |kind| entry.calendars.window(kind, terms.happened_at_ms);
        Ok(CorrectedPeriod {
            period: at(WindowKind::Period),
            hour_start_ms: at(WindowKind::Hour).start_ms,
            gate_now_ms: self.core.gate_now_ms(),
            operation: self.calls.correction_of(id, &terms.tenant)?.uuid(),
        })
    }

    /// Has the gate correct an open period, or the ledger, where the period was closed meanwhile. Returns whether it is
    /// booked.
    pub(super) async fn correct(&self, stored: &StoredAdjustment) -> Answer<bool> {
        let (terms, now_ms) = (&stored.terms, self.core.clock.now_ms());
        let entry = self.core.policy.tenant(&terms.tenant).await?;
        let corrected = self.corrected(&entry, stored.id, terms)?;
        let closed_at_ms = corrected.period.end_ms.saturating_add(self.core.ledger.close_grace_ms());
        let done = if corrected.gate_now_ms >= closed_at_ms {
            self.core.progress.settled_epoch(entry.partition).await?;
            let booked = self.core.ledger.book_closed_adjustment(stored.id, corrected, now_ms).await?;
            self.core.unadjusted.forget(&terms.tenant).await;
            booked.map_err(|why| unbookable(&why))
        } else if corrected.gate_now_ms >= closed_at_ms.saturating_sub(CLOSES_WITHIN_MS) {
            Ok(false)
        } else {
            self.correct_at_gate(&entry, stored).await.map(|()| true)
        };
        match done {
            Ok(true) if corrected.gate_now_ms < closed_at_ms => {
                self.core.ledger.note_adjusted(stored.id, Some(terms.amount), now_ms).await?;
                if terms.amount.is_negative() {
                    self.unwind(&entry, terms).await;
                }
            }
            // What cannot be taken back now never can, unless another run has had it done.
            Err(OperationError::Invalid(_)) => {
                self.catch_up(entry.partition).await?;
                if !self.core.ledger.is_correction_known(corrected.operation).await? {
                    self.core.ledger.note_adjusted(stored.id, None, now_ms).await?;
                }
            }
            _ => {}
        }
        done
    }
}

impl Adjustments {
    /// Has the gate correct an open period. What is taken back may leave more unburnt of grants that have ended: the
    /// gate has the bound without it before, and keeps that until it is booked.
    async fn correct_at_gate(&self, entry: &TenantEntry, stored: &StoredAdjustment) -> Answer<()> {
        let meter = meter_of(&stored.terms)?;
        if stored.terms.amount.is_negative() {
            self.memory.send_capacity(entry, meter, 0).await?;
        }
        self.calls.correct(stored.id, &stored.terms, meter).await
    }

    /// Books what grants that have ended leave by what was taken back, and sends the exact capacity. What cannot be
    /// done now is done by the job.
    async fn unwind(&self, entry: &TenantEntry, terms: &AdjustmentTerms) {
        let done = async {
            self.memory.settle_grants(Some(&terms.tenant)).await?;
            self.memory.send_capacity(entry, meter_of(terms)?, 0).await
        };
        if let Err(error) = done.await {
            tracing::warn!(tenant = %terms.tenant, %error, "what was taken back is settled later");
        }
    }
}

/// Why an adjustment cannot be booked, for who posted it.
pub(super) fn unbookable(why: &Unbookable) -> OperationError {
    match why {
        Unbookable::NoTenant => OperationError::field("/tenant", "there is no such tenant any more"),
        Unbookable::NotUsedThen(used) => OperationError::field(
            "/amount",
            format!(
                "takes back more than the {used} that were used in that hour: date the rest when it was used, and name \
                 in `corrects` the reservation of what was held in an earlier period"
            ),
        ),
        Unbookable::BelowZero(used) => OperationError::field(
            "/amount",
            format!(
                "takes back more than the {used} that were used in that period: name in `corrects` the reservation of \
                 what was held in it and consumed later"
            ),
        ),
        Unbookable::NotConsumedOfHold(left, start_ms) => OperationError::field(
            "/amount",
            format!(
                "takes back more than the {left} that were consumed of that reservation in the period from {}: date \
                 the rest in the period in which it was consumed, and leave out `corrects` for what came late",
                rfc3339(*start_ms)
            ),
        ),
    }
}
