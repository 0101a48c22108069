//! Refetch: restores one reservation that the gate does not know and the ledger does.

use super::restore::starting_afresh;
use super::restore_subjects::{Asks, ColdSubject};
use super::{Memory, Tries};
use crate::clock::Clock;
use crate::domain::ids::{Epoch, OutboxId, ReservationId, TenantId};
use crate::domain::reservation::{Record, ReservationState};
use crate::gate::HoldOutcome;
use crate::ledger::{ReservationRow, Unbooked};
use crate::operations::error::{Answer, OperationError};
use crate::telemetry::labels::{Asked, Restored};

/// In how many epochs, one after the other, a reservation is restored before its caller is sent away.
const EPOCHS_MAX: u32 = 4;
/// How often an open one is restored, each time after what was found cold.
const TELLS_MAX: u32 = 4;

/// An admission that is not booked.
pub(in crate::operations) struct Recalled {
    pub(in crate::operations) record: Record,
    /// Whether it is parked: it waits in the ledger for the gate.
    pub(in crate::operations) is_parked: bool,
}

impl Memory {
    /// Handles a keyed call that the gate does not know and the ledger may: its tenant had keyed calls before a loss,
    /// or the key is older than the gate's memory. If the ledger has the reservation, it is restored to the gate; an
    /// unbooked admission is returned. An instance without all filters first waits for the books, which may not have
    /// what the gate forgot yet.
    pub(super) async fn recall(&self, id: ReservationId, last_id: OutboxId) -> Answer<Option<Recalled>> {
        if !self.key_filters.knows_old_keys() {
            self.core.progress.catch_up(id.partition(), last_id).await?;
        }
        if let Some(row) = self.core.ledger.reservation(id).await? {
            self.core.metrics.key_asked(Asked::Known);
            self.bring_back(row).await?;
            return Ok(None);
        }
        match self.core.ledger.unbooked_admission(id).await? {
            Unbooked::No => {
                self.core.metrics.key_asked(Asked::New);
                Ok(None)
            }
            Unbooked::Quarantined(record) => {
                self.core.metrics.key_asked(Asked::Known);
                Ok(Some(Recalled { record: *record, is_parked: false }))
            }
            Unbooked::Parked(record) => {
                self.core.metrics.key_asked(Asked::Known);
                Ok(Some(Recalled { record: *record, is_parked: true }))
            }
            Unbooked::Unreadable => Err(OperationError::InQuarantine("what this key was used for")),
        }
    }

    /// The ledger's row of a reservation; a row of another tenant counts as unknown.
    pub(in crate::operations) async fn row_of(
        &self,
        id: ReservationId,
        bound: Option<&TenantId>,
    ) -> Answer<ReservationRow> {
        let row = self.core.ledger.reservation(id).await?;
        let row = row.filter(|row| bound.is_none_or(|bound| *bound == row.tenant));
        row.ok_or_else(OperationError::no_such_reservation)
    }

    /// Restores one reservation from the ledger: a resolved one alone, an open one with its tenant.
    pub(in crate::operations) async fn bring_back(&self, row: ReservationRow) -> Answer<()> {
        let (id, partition) = (row.id, row.id.partition());
        // Success means that it is restored. Otherwise the caller would take the reservation for unknown and admit its
        // work twice.
        let mut tries = Tries::of(EPOCHS_MAX, "it loses its memory again and again; repeat the call");
        loop {
            let epoch = self.core.progress.settled_epoch(partition).await?;
            // Read again: an epoch may have begun since, and the end of the previous one been booked.
            let Some(row) = self.core.ledger.reservation(id).await? else { return Ok(()) };
            let told = self.tell_reservation(&row, epoch).await;
            if !self.is_over(partition, epoch) {
                return told;
            }
            tries.again()?;
        }
    }

    async fn tell_reservation(&self, row: &ReservationRow, epoch: Epoch) -> Answer<()> {
        if row.record.head.state == ReservationState::Reserved {
            return self.tell_open(row, epoch).await;
        }
        let started = Clock::monotonic();
        self.core.gate.restore_record(row.id, epoch, &row.record, self.core.script_now()).await?;
        self.core.metrics.restored(Restored::Reservation, started.elapsed());
        Ok(())
    }

    /// Restores an open reservation: with its tenant where that is cold, otherwise alone. A warm tenant can lack it
    /// when the event that resolved it was discarded, or when the event that made it was booked after the tenant's
    /// restore.
    async fn tell_open(&self, row: &ReservationRow, epoch: Epoch) -> Answer<()> {
        let entry = self.core.policy.tenant(&row.tenant).await?;
        let afresh = starting_afresh(&entry, &row.record, self.core.gate_now_ms());
        let mut told = Vec::new();
        let mut tries = Tries::of(TELLS_MAX, "its state kept changing under a restore; repeat the call");
        loop {
            // An event in quarantine may have resolved it: restored as open, it would be done twice.
            if row.quarantined && self.is_warm(row).await? {
                return Err(OperationError::InQuarantine("an event of this reservation"));
            }
            match self
                .core
                .gate
                .restore_hold(row.id, epoch, &row.record, &told, &afresh, self.core.script_now())
                .await?
            {
                HoldOutcome::Known => return Ok(()),
                HoldOutcome::Done => {
                    tracing::warn!(reservation = %row.id, tenant = %row.tenant, "a hold was restored alone: it is open in the books and the gate did not know it");
                    return Ok(());
                }
                HoldOutcome::TenantCold => {
                    let turn = self.take_restore_turn(&row.tenant, None).await?;
                    if turn.waited {
                        return Ok(());
                    }
                    return self.restore_tenant(&entry, epoch, self.core.gate_now_ms()).await;
                }
                HoldOutcome::SubjectsCold(holders) => {
                    let subjects = row.record.body.rest.iter().flat_map(|rest| &rest.subjects);
                    for ((subject, hash), holder) in subjects.zip(1_u8..) {
                        if holders.contains(&holder) {
                            let cold =
                                ColdSubject { epoch, last_id: OutboxId::default(), subject, hash: *hash };
                            self.restore_subject(&entry, &cold, self.core.gate_now_ms(), Asks::Count).await?;
                            told.push(holder);
                        }
                    }
                }
            }
            tries.again()?;
        }
    }

    async fn is_warm(&self, row: &ReservationRow) -> Answer<bool> {
        let warm = self.core.gate.are_warm(&[(row.id.partition(), &row.tenant, None)]).await?;
        Ok(warm.into_iter().all(|warm| warm))
    }
}
