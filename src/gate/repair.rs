//! `repair` and `undo`: what the ledger knows better than a counter or a record does.

use uuid::Uuid;

use crate::domain::codec::Undecodable;
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, TenantId};
use crate::domain::reservation::{CounterField, Record};

use super::Gate;
use super::error::GateError;
use super::restore::{Holder, with_epoch};
use super::scripts::Script;
use super::status::Status;

/// What one counter lacks, by one checkpoint.
#[derive(Debug)]
pub struct RepairCall<'a> {
    /// The checkpoint.
    pub checkpoint: Uuid,
    /// Its place; it must be of the epoch in force.
    pub place: OutboxId,
    /// The tenant's partition.
    pub partition: Partition,
    /// Whose counter.
    pub tenant: &'a TenantId,
    /// Which hash.
    pub holder: Holder,
    /// Which field.
    pub field: CounterField,
    /// Its window's start and end (unix ms).
    pub window_ms: (i64, i64),
    /// What to add to consumed and to reserved.
    pub delta: (i64, i64),
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// What a repair came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairOutcome {
    /// The counter has what it lacked.
    Done,
    /// This checkpoint had repaired it before.
    DoneBefore,
    /// It was repaired, or told by the ledger, after the checkpoint was taken.
    RepairedSince,
    /// Its window has ended or moved on.
    WindowMoved,
    /// Its hash is cold.
    Cold,
    /// It would have less than nothing, or more than the largest amount.
    OutOfBounds,
    /// The epoch of the checkpoint is over.
    EpochOver,
}

/// An operation that the ledger knew already and that came again as a new event.
#[derive(Debug)]
pub struct UndoCall<'a> {
    /// Which reservation.
    pub id: ReservationId,
    /// The place of the reserve or usage that came again; it must be of the epoch in force.
    pub place: OutboxId,
    /// The record of that event.
    pub again: &'a Record,
    /// The record as the ledger has it.
    pub booked: &'a Record,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// What an undo came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoOutcome {
    /// The units are given back; the outbox had come so far.
    Done(OutboxId),
    /// That life of the reservation is not there (any more), or goes on in the books; the outbox had come so far.
    Kept(OutboxId),
    /// The epoch of the event is over, and with it all that it moved.
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

    /// Gives back what an operation moved that the ledger knew already. One round trip.
    pub async fn undo(&self, call: &UndoCall<'_>) -> Result<UndoOutcome, GateError> {
        let (partition, epoch) = (call.id.partition(), call.place.epoch);
        if self.is_over(partition, epoch)? {
            return Ok(UndoOutcome::EpochOver);
        }
        let keys = [self.keys.meta(partition), self.keys.outbox(partition), self.keys.reservation(call.id)];
        let mut arguments = self.mutating_in(epoch, call.now_ms);
        arguments.push(with_epoch(call.again, epoch).encode());
        arguments.push(call.place.sequence.to_string().into_bytes());
        arguments.push(with_epoch(call.booked, epoch).encode());
        arguments.push(self.options.due_bucket_ms.to_string().into_bytes());
        arguments.extend(self.tombstone_arguments());
        let reply = self.run(partition, Script::Undo, &keys, &arguments).await?;
        match reply.status {
            Status::Done => Ok(UndoOutcome::Done(reply.id)),
            Status::Kept => Ok(UndoOutcome::Kept(reply.id)),
            _ => Err(Undecodable("a status of undo").into()),
        }
    }

    /// Whether an epoch is over; one that this instance does not expect yet is an alarm.
    fn is_over(&self, partition: Partition, epoch: Epoch) -> Result<bool, GateError> {
        let expected = self.epoch(partition).ok_or(GateError::NoEpoch(partition))?;
        if epoch > expected {
            let reason = format!("epoch {} is in force, {} was expected", epoch.0, expected.0);
            return Err(GateError::Alarm { partition, reason });
        }
        Ok(epoch < expected)
    }
}
