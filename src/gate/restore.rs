//! Restores from the ledger: `adopt`, `restore` and its kin, `capacity`, `publish`.

use crate::domain::amount::Units;
use crate::domain::codec::{Undecodable, Write};
use crate::domain::holds::NewCounter;
use crate::domain::ids::{Epoch, OperationId, OutboxId, Partition, ReservationId, TenantId};
use crate::domain::reservation::{CounterField, Record, ReservationState, SubjectHash};

use super::Gate;
use super::call::{Reply, time_argument};
use super::error::GateError;
use super::known_subjects::KnownSubjects;
use super::scripts::Script;
use super::status::Status;

/// The most records of one page.
pub const PAGE_RECORDS_MAX: usize = 500;

/// How much longer than necessary the filter of a tenant's subjects is kept.
const KEPT_LONGER_MS: i64 = 3_600_000;

/// The most parts of a quota's capacity.
pub const CAPACITY_PARTS_MAX: usize = 16;

/// The most tenants whose capacities are set in one call.
pub const CAPACITIES_MAX: usize = 32;

/// A counter's absolute figures as of the snapshot.
///
/// Pass one for every counter asked for, even if it is zero, **and one for every counter of the open records of the
/// hash** that counts by the calendar (class rate: consumed as known or zero, reserved the sum of what is still held).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RestoredCounter {
    /// Its field.
    pub field: CounterField,
    /// Its window's start (unix ms).
    pub window_start_ms: i64,
    /// Units consumed in the window.
    pub consumed: Units,
    /// Units held in the window.
    pub reserved: Units,
    /// The expiry of one live hold in it (unix ms), if known.
    pub next_hold_ends_at_ms: Option<i64>,
}

/// A quota's capacity as the gate stores it: absolute, with a version, valid up to the next boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaCapacity {
    /// The quota's counter field; the capacity has the field `q` + this name.
    pub field: CounterField,
    /// A lower or equal version than the stored one is ignored.
    pub version: u64,
    /// From which instant (unix ms, ascending) which capacity holds; 1 to 16 parts.
    pub parts: Vec<(i64, Units)>,
    /// The stretches (from and until, unix ms) whose parts are only bounds: of what does not fit, the ledger is asked
    /// first.
    pub bounds_ms: Vec<(i64, i64)>,
    /// After this instant (unix ms) the quota is cold.
    pub until_ms: i64,
}

/// The contents of a warm hash at its restore.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WarmState {
    /// Until this instant (unix ms), keyed calls with an unknown id ask the ledger; 0 for never.
    pub ask_until_ms: i64,
    /// The last event that is in these figures (subject hash only). A suspended subject that waits for later events
    /// rejects them.
    pub as_of: OutboxId,
    /// Counters as of the snapshot.
    pub counters: Vec<RestoredCounter>,
    /// Counters of class rate or of no policy in force, in which only open holds count.
    pub held_only: Vec<RestoredCounter>,
    /// Those of `counters` that were created inside their window.
    pub new_counters: Vec<NewCounter>,
    /// Quota capacities (tenant hash only).
    pub capacities: Vec<QuotaCapacity>,
    /// The subjects that had use or holds (tenant hash only).
    pub subjects: KnownSubjects,
    /// When its windows and holds have ended (unix ms; subject hash only): it is kept for an hour longer.
    pub needed_until_ms: i64,
}

/// One page of a tenant's restore. All pages of a snapshot are written in order; only the last makes the tenant warm.
#[derive(Debug)]
pub struct RestorePage<'a> {
    /// The tenant's partition.
    pub partition: Partition,
    /// The epoch in which the ledger had caught up: in another one the page is an alarm.
    pub epoch: Epoch,
    /// The tenant.
    pub tenant: &'a TenantId,
    /// The last event that is in the snapshot. A suspended tenant that waits for later events rejects it.
    pub as_of: OutboxId,
    /// Open reservations, at most [`PAGE_RECORDS_MAX`]; they get the page's epoch.
    pub records: &'a [(ReservationId, Record)],
    /// The counters; only on the last page.
    pub last: Option<WarmState>,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// The result of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreOutcome {
    /// Written.
    Done,
    /// It is warm in this epoch already (another restore was first), or nothing is new: nothing was written.
    AlreadyWarm,
    /// Single counters or a capacity cannot be added to a cold hash: nothing was written.
    StillCold,
}

/// A state hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The tenant's own.
    Tenant,
    /// A subject's.
    Subject(SubjectHash),
}

/// The result of restoring one open reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldOutcome {
    /// It is held again.
    Done,
    /// The gate had it.
    Known,
    /// The tenant is cold: its restore will restore the reservation too.
    TenantCold,
    /// These state hashes of subjects must be restored first: their numbers, from 1.
    SubjectsCold(Vec<u8>),
}

impl Gate {
    /// Raises the partition's epoch in Redis to the one that the ledger issued. Returns the one in force, and expects
    /// it from now on.
    /// By its own clock, no script writes before `floor_ms` (unix ms); 0: no period is closed.
    pub async fn adopt(
        &self,
        partition: Partition,
        epoch: Epoch,
        floor_ms: i64,
        now_ms: Option<i64>,
    ) -> Result<Epoch, GateError> {
        let not_after = self.redis_time_ms() + self.timeout_ms;
        let arguments = [
            epoch.0.to_string().into_bytes(),
            not_after.to_string().into_bytes(),
            time_argument(now_ms),
            self.options.due_bucket_ms.to_string().into_bytes(),
            floor_ms.to_string().into_bytes(),
        ];
        let reply = self.run_adopt(partition, &[self.keys.meta(partition)], &arguments).await?;
        let adopted = Epoch(u64::try_from(reply.integer(0)?).map_err(|_| Undecodable("an epoch"))?);
        self.set_epoch(partition, adopted);
        Ok(adopted)
    }

    /// Writes one page of a cold tenant's restore; the last one makes it warm. A suspended tenant only gets what it
    /// lacks.
    pub async fn restore_page(&self, page: &RestorePage<'_>) -> Result<RestoreOutcome, GateError> {
        let RestorePage { partition, epoch, records, now_ms, .. } = *page;
        let last = page.last.as_ref();
        let malformed = |reason| GateError::Malformed { script: "restore", reason };
        if records.len() > PAGE_RECORDS_MAX {
            return Err(malformed("more than 500 records in a page"));
        }
        if records.iter().any(|(id, record)| !is_open(record) || id.partition() != partition) {
            return Err(malformed("a page carries open reservations of the partition only"));
        }
        let (known, known_until_ms) = match last.map(|warm| &warm.subjects) {
            None | Some(KnownSubjects::Nobody) => (Vec::new(), 0),
            Some(KnownSubjects::Everybody) => (b"?".to_vec(), 0),
            Some(KnownSubjects::Some { filter, until_ms }) => (filter.as_bytes().to_vec(), *until_ms),
        };
        let mut arguments = self.mutating_in(epoch, now_ms);
        arguments.push(self.options.due_bucket_ms.to_string().into_bytes());
        arguments.push(if last.is_some() { b"1".to_vec() } else { b"0".to_vec() });
        arguments.push(last.map_or(0, |warm| warm.ask_until_ms).to_string().into_bytes());
        arguments.push(records.len().to_string().into_bytes());
        arguments.push(last.iter().flat_map(|warm| &warm.new_counters).flat_map(pack_new_counter).collect());
        arguments.push(booked_in(epoch, page.as_of).to_string().into_bytes());
        arguments.push(known);
        arguments.push(known_until_ms.saturating_add(KEPT_LONGER_MS).to_string().into_bytes());
        for (id, record) in records {
            arguments.push(id.to_hex().into_bytes());
            arguments.push(record.restored_in(epoch).encode());
        }
        if let Some(warm) = last {
            arguments.extend(warm.counters.iter().flat_map(pack_counter));
            for capacity in &warm.capacities {
                arguments.extend(pack_capacity(capacity)?);
            }
            arguments.extend(warm.held_only.iter().flat_map(pack_counter));
        }
        self.tell(partition, Script::Restore, vec![self.keys.tenant(partition, page.tenant)], &arguments)
            .await
    }

    /// Restores one subject of a warm tenant. Counters that a script has moved since the tenant's restore stay.
    pub async fn restore_subject(
        &self,
        partition: Partition,
        epoch: Epoch,
        tenant: &TenantId,
        subject: SubjectHash,
        warm: WarmState,
        now_ms: Option<i64>,
    ) -> Result<RestoreOutcome, GateError> {
        let mut arguments = self.mutating_in(epoch, now_ms);
        arguments.push(warm.needed_until_ms.to_string().into_bytes());
        arguments.push(warm.new_counters.iter().flat_map(pack_new_counter).collect());
        arguments.push(booked_in(epoch, warm.as_of).to_string().into_bytes());
        arguments.extend(warm.counters.iter().chain(&warm.held_only).flat_map(pack_counter));
        let keys = vec![self.keys.subject(partition, tenant, subject), self.keys.tenant(partition, tenant)];
        self.tell(partition, Script::RestoreSubject, keys, &arguments).await
    }

    /// Suspends a warm tenant, or one of its subjects, until the ledger restores it again. Returns the outbox's last
    /// id: nothing of it moves after that. None where the tenant is cold.
    pub async fn suspend(
        &self,
        partition: Partition,
        epoch: Epoch,
        tenant: &TenantId,
        subject: Option<SubjectHash>,
        now_ms: Option<i64>,
    ) -> Result<Option<OutboxId>, GateError> {
        let mut keys =
            vec![self.keys.meta(partition), self.keys.outbox(partition), self.keys.tenant(partition, tenant)];
        keys.extend(subject.map(|subject| self.keys.subject(partition, tenant, subject)));
        let reply = self.run(partition, Script::Suspend, &keys, &self.mutating_in(epoch, now_ms)).await?;
        match reply.status {
            Status::Done => Ok(Some(reply.id)),
            Status::Cold => Ok(None),
            _ => Err(Undecodable("a status of suspend").into()),
        }
    }

    /// Restores single counters and capacities of a warm tenant; those it has already stay.
    pub async fn restore_counters(
        &self,
        partition: Partition,
        epoch: Epoch,
        tenant: &TenantId,
        warm: &WarmState,
        now_ms: Option<i64>,
    ) -> Result<RestoreOutcome, GateError> {
        for capacity in &warm.capacities {
            if self.tell_capacity(partition, epoch, tenant, capacity, now_ms).await?
                == RestoreOutcome::StillCold
            {
                return Ok(RestoreOutcome::StillCold);
            }
        }
        if warm.counters.is_empty() {
            return Ok(RestoreOutcome::Done);
        }
        let mut arguments = self.mutating_in(epoch, now_ms);
        arguments.extend(warm.counters.iter().flat_map(pack_counter));
        self.tell(partition, Script::RestoreCounters, vec![self.keys.tenant(partition, tenant)], &arguments)
            .await
    }

    /// Restores one resolved reservation; it is remembered as long as any tombstone.
    pub async fn restore_record(
        &self,
        id: ReservationId,
        epoch: Epoch,
        record: &Record,
        now_ms: Option<i64>,
    ) -> Result<RestoreOutcome, GateError> {
        let partition = id.partition();
        if is_open(record) {
            let reason = "an open reservation comes back with its tenant only";
            return Err(GateError::Malformed { script: "restore_record", reason });
        }
        let keyed = record.body.rest.as_ref().is_none_or(|rest| rest.keyed);
        let mut kept = record.restored_in(epoch);
        if kept.head.state != ReservationState::Expired {
            kept.body.rest = None;
        }
        let [keyed_ms, unkeyed_ms] = self.tombstone_arguments();
        let mut arguments = self.mutating_in(epoch, now_ms);
        arguments.push(kept.encode());
        arguments.push(if keyed { keyed_ms } else { unkeyed_ms });
        self.tell(partition, Script::RestoreRecord, vec![self.keys.reservation(id)], &arguments).await
    }

    /// Restores one open reservation that a warm tenant does not have. `restored` are the numbers of the state hashes
    /// that were restored since the ledger had the reservation: they contain its units already. `afresh` are the
    /// numbers of its counters that no ledger restores: where one is missing, it begins with this hold.
    pub async fn restore_hold(
        &self,
        id: ReservationId,
        epoch: Epoch,
        record: &Record,
        restored: &[u8],
        afresh: &[u8],
        now_ms: Option<i64>,
    ) -> Result<HoldOutcome, GateError> {
        let partition = id.partition();
        if !is_open(record) || record.body.rest.is_none() {
            let reason = "a hold is restored whole and open";
            return Err(GateError::Malformed { script: "restore_hold", reason });
        }
        let mut arguments = self.mutating_in(epoch, now_ms);
        arguments.push(record.restored_in(epoch).encode());
        arguments.push(self.options.due_bucket_ms.to_string().into_bytes());
        arguments.push(restored.to_vec());
        arguments.push(afresh.to_vec());
        let keys = [self.keys.meta(partition), self.keys.outbox(partition), self.keys.reservation(id)];
        let reply: Reply = self.run(partition, Script::RestoreHold, &keys, &arguments).await?;
        match reply.status {
            Status::Done => Ok(HoldOutcome::Done),
            Status::Kept => Ok(HoldOutcome::Known),
            Status::Cold if reply.integer(0)? == 1 => Ok(HoldOutcome::TenantCold),
            Status::Cold => Ok(HoldOutcome::SubjectsCold(reply.bytes(1)?.to_vec())),
            _ => Err(Undecodable("a status of restore_hold").into()),
        }
    }

    /// Sets a quota's capacity on a warm tenant, unless the stored version is as high.
    pub async fn set_capacity(
        &self,
        partition: Partition,
        tenant: &TenantId,
        capacity: &QuotaCapacity,
        now_ms: Option<i64>,
    ) -> Result<RestoreOutcome, GateError> {
        let epoch = self.epoch(partition).ok_or(GateError::NoEpoch(partition))?;
        self.tell_capacity(partition, epoch, tenant, capacity, now_ms).await
    }

    async fn tell_capacity(
        &self,
        partition: Partition,
        epoch: Epoch,
        tenant: &TenantId,
        capacity: &QuotaCapacity,
        now_ms: Option<i64>,
    ) -> Result<RestoreOutcome, GateError> {
        let outcomes = self.tell_capacities(partition, epoch, &[(tenant, capacity)], now_ms).await?;
        Ok(outcomes.first().copied().ok_or(Undecodable("statuses of capacity"))?)
    }

    /// [`Self::set_capacity`] of several tenants of a partition in one call, at most [`CAPACITIES_MAX`]. Returns an
    /// outcome for each, in their order.
    ///
    /// Errors: also where one of them cannot be written; some of the others then may be.
    pub async fn set_capacities(
        &self,
        partition: Partition,
        capacities: &[(&TenantId, &QuotaCapacity)],
        now_ms: Option<i64>,
    ) -> Result<Vec<RestoreOutcome>, GateError> {
        let epoch = self.epoch(partition).ok_or(GateError::NoEpoch(partition))?;
        self.tell_capacities(partition, epoch, capacities, now_ms).await
    }

    async fn tell_capacities(
        &self,
        partition: Partition,
        epoch: Epoch,
        capacities: &[(&TenantId, &QuotaCapacity)],
        now_ms: Option<i64>,
    ) -> Result<Vec<RestoreOutcome>, GateError> {
        if capacities.len() > CAPACITIES_MAX {
            let reason = "more than 32 capacities in a call";
            return Err(GateError::Malformed { script: "capacity", reason });
        }
        let mut keys = vec![self.keys.meta(partition), self.keys.outbox(partition)];
        keys.extend(capacities.iter().map(|(tenant, _)| self.keys.tenant(partition, tenant)));
        let mut arguments = self.mutating_in(epoch, now_ms);
        for (_, capacity) in capacities {
            arguments.extend(pack_capacity(capacity)?);
        }
        let reply: Reply = self.run(partition, Script::Capacity, &keys, &arguments).await?;
        let statuses = reply.bytes(0)?;
        if statuses.len() != capacities.len() {
            return Err(Undecodable("statuses of capacity").into());
        }
        let status = |byte: &u8| Status::from_code(i64::from(*byte)).ok_or(Undecodable("a status"));
        statuses.iter().map(|byte| Ok(outcome(status(byte)?)?)).collect()
    }

    /// Publishes the partition's cursor, up to which the ledger has booked; it only rises.
    pub async fn publish(&self, partition: Partition, position: OutboxId) -> Result<(), GateError> {
        let arguments = [
            self.epoch_argument(partition)?,
            Vec::new(),
            position.epoch.0.to_string().into_bytes(),
            position.sequence.to_string().into_bytes(),
        ];
        self.run(partition, Script::Publish, &[self.keys.meta(partition)], &arguments).await?;
        self.note_cursor(partition, position);
        Ok(())
    }

    async fn tell(
        &self,
        partition: Partition,
        script: Script,
        hashes: Vec<String>,
        arguments: &[Vec<u8>],
    ) -> Result<RestoreOutcome, GateError> {
        let mut keys = vec![self.keys.meta(partition), self.keys.outbox(partition)];
        keys.extend(hashes);
        let reply: Reply = self.run(partition, script, &keys, arguments).await?;
        Ok(outcome(reply.status)?)
    }
}

fn outcome(status: Status) -> Result<RestoreOutcome, Undecodable> {
    match status {
        Status::Done => Ok(RestoreOutcome::Done),
        Status::Warm | Status::Kept => Ok(RestoreOutcome::AlreadyWarm),
        Status::Cold => Ok(RestoreOutcome::StillCold),
        _ => Err(Undecodable("a status of a restore")),
    }
}

fn is_open(record: &Record) -> bool {
    record.head.state == ReservationState::Reserved
}

/// Name and value of a counter's field: `i8 window_start  i8 consumed  i8 reserved  i8 next_end`.
fn pack_counter(counter: &RestoredCounter) -> [Vec<u8>; 2] {
    let mut value = Vec::with_capacity(32);
    value.put_8(counter.window_start_ms);
    value.put_8(counter.consumed.get());
    value.put_8(counter.reserved.get());
    value.put_8(counter.next_hold_ends_at_ms.unwrap_or_default());
    [counter.field.0.to_vec(), value]
}

/// The sequence of this event in an epoch; -1 where the event is of another.
fn booked_in(epoch: Epoch, as_of: OutboxId) -> i64 {
    if as_of.epoch == epoch { i64::try_from(as_of.sequence).unwrap_or(i64::MAX) } else { -1 }
}

/// `I4 length`, then `c8 field  i8 window start  i8 window end  Bc0 meter  I2 operations` and `Bc0 id` for each. A
/// budget's has its first meter there, and then for each of its meters `Bc0 meter  i8 factor`.
fn pack_new_counter(counter: &NewCounter) -> Vec<u8> {
    let operations = counter.operations.as_deref().unwrap_or_default();
    let mut packed = Vec::with_capacity(64);
    packed.extend_from_slice(&counter.field.0);
    packed.put_8(counter.window_ms.0);
    packed.put_8(counter.window_ms.1);
    packed.put_text(counter.meters.first().map_or("", |first| first.meter.as_str()));
    packed.put_2(u16::try_from(operations.len()).unwrap_or(u16::MAX));
    operations.iter().map(OperationId::as_str).for_each(|id| packed.put_text(id));
    if !counter.counts_units() {
        for counted in &counter.meters {
            packed.put_text(counted.meter.as_str());
            packed.put_8(counted.factor);
        }
    }
    let mut out = Vec::with_capacity(packed.len() + 4);
    out.put_4(u32::try_from(packed.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(&packed);
    out
}

/// Name and value of a capacity's field: `i8 version  B parts`, per part `i8 from  i8 amount`, then `i8 until`. The
/// amount of a part that is only a bound is -1 less the amount.
fn pack_capacity(capacity: &QuotaCapacity) -> Result<[Vec<u8>; 2], GateError> {
    let malformed = |reason| GateError::Malformed { script: "capacity", reason };
    if !(1..=CAPACITY_PARTS_MAX).contains(&capacity.parts.len())
        || !capacity.parts.is_sorted_by_key(|part| part.0)
    {
        return Err(malformed("a capacity has 1 to 16 parts in ascending order"));
    }
    let mut name = b"q".to_vec();
    name.extend_from_slice(&capacity.field.0);
    let mut value = Vec::with_capacity(17 + 16 * capacity.parts.len());
    value.put_8(i64::try_from(capacity.version).map_err(|_| malformed("a version beyond 2^63"))?);
    value.put_byte(u8::try_from(capacity.parts.len()).unwrap_or(u8::MAX));
    for (from_ms, amount) in &capacity.parts {
        value.put_8(*from_ms);
        let is_bound = capacity.bounds_ms.iter().any(|(start, end)| (*start..*end).contains(from_ms));
        value.put_8(if is_bound { -1 - amount.get() } else { amount.get() });
    }
    value.put_8(capacity.until_ms);
    Ok([name, value])
}

#[cfg(test)]
mod tests;
