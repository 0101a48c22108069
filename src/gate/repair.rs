//! `repair` and `undo`: they correct counters and records where the ledger has better figures.

use uuid::Uuid;

use crate::domain::codec::Undecodable;
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, TenantId};
use crate::domain::reservation::{CounterField, Record};

use super::Gate;
use super::error::GateError;
use super::restore::Holder;
use super::scripts::Script;
use super::status::Status;

/// What one counter lacks, according to one checkpoint.
#[derive(Debug)]
pub struct RepairCall<'a> {
    /// The checkpoint.
    pub checkpoint: Uuid,
    /// Its place; it must be of the epoch in force.
    pub place: OutboxId,
    /// The tenant's partition.
    pub partition: Partition,
    /// The counter's tenant.
    pub tenant: &'a TenantId,
    /// Its state hash.
    pub holder: Holder,
    /// Its field.
    pub field: CounterField,
    /// Its window's start and end (unix ms).
    pub window_ms: (i64, i64),
    /// What to add to consumed and to reserved.
    pub delta: (i64, i64),
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// The result of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairOutcome {
    /// The counter is repaired.
    Done,
    /// This checkpoint had repaired it before.
    DoneBefore,
    /// It was repaired or restored after the checkpoint was taken.
    RepairedSince,
    /// Its window has ended or moved on.
    WindowMoved,
    /// Its hash is cold.
    Cold,
    /// It would be negative, or above the largest amount.
    OutOfBounds,
    /// The epoch of the checkpoint is over.
    EpochOver,
}

/// A repeat: an operation that was booked already and came again as a new event.
#[derive(Debug)]
pub struct UndoCall<'a> {
    /// Its reservation.
    pub id: ReservationId,
    /// The place of the repeated reserve or usage; it must be of the epoch in force.
    pub place: OutboxId,
    /// The record of that event.
    pub again: &'a Record,
    /// The record as the ledger has it.
    pub booked: &'a Record,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// The result of an undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoOutcome {
    /// The units are given back; carries the outbox's last id.
    Done(OutboxId),
    /// That life of the reservation is not there, or goes on in the books; carries the outbox's last id.
    Kept(OutboxId),
    /// A hash that counts it waits for the ledger: to be asked again once that is restored.
    Waits,
    /// The epoch of the event is over, and everything that it moved is gone.
    EpochOver,
}

impl Gate {
    /// Adds to one counter what a checkpoint found missing in it. One round trip.
    pub async fn repair(&self, call: &RepairCall<'_>) -> Result<RepairOutcome, GateError> {
        if self.is_over(call.partition, call.place.epoch)? {
            return Ok(RepairOutcome::EpochOver);
        }
        let state = match call.holder {
            Holder::Tenant => self.keys.tenant(call.partition, call.tenant),
            Holder::Subject(hash) => self.keys.subject(call.partition, call.tenant, hash),
        };
        let keys = [self.keys.meta(call.partition), self.keys.outbox(call.partition), state];
        let mut arguments = self.mutating_in(call.place.epoch, call.now_ms);
        arguments.push(call.checkpoint.as_bytes().to_vec());
        arguments.push(call.place.sequence.to_string().into_bytes());
        arguments.push(call.field.0.to_vec());
        let numbers = [call.window_ms.0, call.window_ms.1, call.delta.0, call.delta.1];
        arguments.extend(numbers.map(|number| number.to_string().into_bytes()));
        let reply = self.run(call.partition, Script::Repair, &keys, &arguments).await?;
        Ok(match reply.status {
            Status::Done => RepairOutcome::Done,
            Status::Replayed => RepairOutcome::DoneBefore,
            Status::Kept => RepairOutcome::RepairedSince,
            Status::StaleWindow => RepairOutcome::WindowMoved,
            Status::Cold => RepairOutcome::Cold,
            Status::TooLarge => RepairOutcome::OutOfBounds,
            _ => return Err(Undecodable("a status of repair").into()),
        })
    }

    /// Gives back what a repeat of a booked operation moved. One round trip.
    pub async fn undo(&self, call: &UndoCall<'_>) -> Result<UndoOutcome, GateError> {
        let (partition, epoch) = (call.id.partition(), call.place.epoch);
        if self.is_over(partition, epoch)? {
            return Ok(UndoOutcome::EpochOver);
        }
        let keys = [self.keys.meta(partition), self.keys.outbox(partition), self.keys.reservation(call.id)];
        let mut arguments = self.mutating_in(epoch, call.now_ms);
        arguments.push(call.again.in_epoch(epoch).encode());
        arguments.push(call.place.sequence.to_string().into_bytes());
        arguments.push(call.booked.restored_in(epoch).encode());
        arguments.push(self.options.due_bucket_ms.to_string().into_bytes());
        arguments.extend(self.tombstone_arguments());
        let reply = self.run(partition, Script::Undo, &keys, &arguments).await?;
        match reply.status {
            Status::Done => Ok(UndoOutcome::Done(reply.id)),
            Status::Kept => Ok(UndoOutcome::Kept(reply.id)),
            Status::Cold => Ok(UndoOutcome::Waits),
            _ => Err(Undecodable("a status of undo").into()),
        }
    }

    /// Whether an epoch is over; a later one than this instance expects is an alarm.
    fn is_over(&self, partition: Partition, epoch: Epoch) -> Result<bool, GateError> {
        let expected = self.epoch(partition).ok_or(GateError::NoEpoch(partition))?;
        if epoch > expected {
            let reason = format!("epoch {} is in force, {} was expected", epoch.0, expected.0);
            return Err(GateError::Alarm { partition, reason });
        }
        Ok(epoch < expected)
    }
}
