//! `consume`, `release` and `extend`: the changes of a reservation.

use crate::domain::amount::{Amount, UNITS_MAX};
use crate::domain::codec::{Reader, Undecodable, Write};
use crate::domain::ids::{Epoch, MeterId, OutboxId, ReservationId, Subject, TenantId};
use crate::domain::rejection::Rejection;
use crate::domain::reservation::{CounterRef, Head, LineUnits, Record, SubjectHash};

use super::Gate;
use super::call::Reply;
use super::cells::resolved_readings;
use super::error::GateError;
use super::reserve::CounterReading;
use super::scripts::Script;
use super::status::Status;

pub use crate::domain::resolution::Totals;

/// One consume.
#[derive(Debug)]
pub struct ConsumeCall<'a> {
    /// Its reservation.
    pub id: ReservationId,
    /// The tenant that the caller's key is bound to; another tenant's reservation does not exist for it.
    pub bound: Option<&'a TenantId>,
    /// The totals.
    pub totals: Totals,
    /// Whether it resolves the reservation.
    pub is_final: bool,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// One release.
#[derive(Debug)]
pub struct ReleaseCall<'a> {
    /// Its reservation.
    pub id: ReservationId,
    /// The tenant that the caller's key is bound to.
    pub bound: Option<&'a TenantId>,
    /// What was used after all; lines not named keep what is consumed so far.
    pub incurred: Totals,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// One extend.
#[derive(Debug)]
pub struct ExtendCall<'a> {
    /// Its reservation.
    pub id: ReservationId,
    /// The tenant that the caller's key is bound to.
    pub bound: Option<&'a TenantId>,
    /// The new expiry is now + this, if that is later, but at most the latest one allowed. In ms.
    pub ttl_ms: i64,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// What is cold of a record's tenant, subjects and counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdRecord {
    /// The epoch in force; a restore is valid only in it.
    pub epoch: Epoch,
    /// The outbox's last id: the ledger must have booked up to it before it is asked.
    pub last_id: OutboxId,
    /// The record's tenant.
    pub tenant: TenantId,
    /// Whether the tenant's own hash is cold.
    pub tenant_cold: bool,
    /// The cold subjects.
    pub subjects: Vec<(Subject, SubjectHash)>,
    /// Counters of the record whose quota capacity is unknown; a `cap` line needs it.
    pub counters: Vec<CounterRef>,
}

/// The result of a consume, release or extend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolveOutcome {
    /// Done.
    Done {
        /// The record afterwards, with its whole body.
        record: Record,
        /// Per line, held and consumed before.
        previous: Vec<LineUnits>,
        /// The event's place in the outbox.
        event: OutboxId,
        /// The record's counters afterwards; one whose window has moved on is not current.
        readings: Vec<(CounterRef, CounterReading)>,
        /// The script's time (unix ms).
        now_ms: i64,
    },
    /// The same call was done before, or changes nothing.
    Replayed {
        /// The record as it is.
        record: Record,
        /// The record's counters; empty for a tombstone, which no longer names them.
        readings: Vec<(CounterRef, CounterReading)>,
        /// The script's time (unix ms).
        now_ms: i64,
    },
    /// There is no such reservation in this epoch, or it is not the bound tenant's.
    Unknown {
        /// The outbox's last id: the ledger must have booked up to it before it is asked.
        last_id: OutboxId,
    },
    /// The call is rejected.
    Rejected {
        /// Why.
        rejection: Rejection,
        /// The record as it is.
        record: Record,
    },
    /// The ledger must restore this first.
    Cold(ColdRecord),
}

/// Whether a call was parked, and by which clock its time is.
#[derive(Debug, Clone, Copy)]
enum Parked {
    No,
    ByRedisClock,
    ByTestClock,
}

impl Parked {
    fn by(test_clock: bool) -> Self {
        if test_clock { Self::ByTestClock } else { Self::ByRedisClock }
    }

    fn argument(self) -> Vec<u8> {
        match self {
            Self::No => b"0".to_vec(),
            Self::ByRedisClock => b"1".to_vec(),
            Self::ByTestClock => b"2".to_vec(),
        }
    }
}

impl Gate {
    /// Records totals; final ones resolve the reservation. One round trip.
    pub async fn consume(&self, call: &ConsumeCall<'_>) -> Result<ResolveOutcome, GateError> {
        let arguments = self.consume_arguments(call, Parked::No)?;
        self.resolve(call.id, consume_script(call), &arguments).await
    }

    /// Returns what is held, and charges what was incurred. One round trip.
    pub async fn release(&self, call: &ReleaseCall<'_>) -> Result<ResolveOutcome, GateError> {
        let arguments = self.release_arguments(call, Parked::No)?;
        self.resolve(call.id, Script::Release, &arguments).await
    }

    /// A parked consume, at the time at which it was taken, by Redis's or by a test clock. One round trip.
    pub async fn consume_parked(
        &self,
        call: &ConsumeCall<'_>,
        by_test_clock: bool,
    ) -> Result<ResolveOutcome, GateError> {
        let arguments = self.consume_arguments(call, Parked::by(by_test_clock))?;
        self.resolve(call.id, consume_script(call), &arguments).await
    }

    /// A parked release, at the time at which it was taken, by Redis's or by a test clock. One round trip.
    pub async fn release_parked(
        &self,
        call: &ReleaseCall<'_>,
        by_test_clock: bool,
    ) -> Result<ResolveOutcome, GateError> {
        let arguments = self.release_arguments(call, Parked::by(by_test_clock))?;
        self.resolve(call.id, Script::Release, &arguments).await
    }

    fn consume_arguments(&self, call: &ConsumeCall<'_>, parked: Parked) -> Result<Vec<Vec<u8>>, GateError> {
        let mut arguments = self.resolving(call.id, call.bound, call.now_ms)?;
        arguments.push(pack_totals(&call.totals)?);
        arguments.extend(self.tombstone_arguments());
        arguments.push(flag(call.is_final));
        arguments.push(parked.argument());
        Ok(arguments)
    }

    fn release_arguments(&self, call: &ReleaseCall<'_>, parked: Parked) -> Result<Vec<Vec<u8>>, GateError> {
        let mut arguments = self.resolving(call.id, call.bound, call.now_ms)?;
        arguments.push(pack_totals(&call.incurred)?);
        arguments.extend(self.tombstone_arguments());
        arguments.push(parked.argument());
        Ok(arguments)
    }

    /// Moves the expiry. One round trip.
    pub async fn extend(&self, call: &ExtendCall<'_>) -> Result<ResolveOutcome, GateError> {
        let mut arguments = self.resolving(call.id, call.bound, call.now_ms)?;
        arguments.push(call.ttl_ms.to_string().into_bytes());
        arguments.push(self.options.due_bucket_ms.to_string().into_bytes());
        self.resolve(call.id, Script::Extend, &arguments).await
    }

    fn resolving(
        &self,
        id: ReservationId,
        bound: Option<&TenantId>,
        now_ms: Option<i64>,
    ) -> Result<Vec<Vec<u8>>, GateError> {
        let mut arguments = self.mutating(id.partition(), now_ms)?;
        arguments.push(id.as_bytes().to_vec());
        arguments.push(bound.map_or_else(Vec::new, |tenant| tenant.as_str().as_bytes().to_vec()));
        Ok(arguments)
    }

    /// How long tombstones of keyed and of unkeyed calls are kept.
    pub(super) fn tombstone_arguments(&self) -> [Vec<u8>; 2] {
        [self.options.tombstone_keyed_ms, self.options.tombstone_unkeyed_ms]
            .map(|ms| ms.to_string().into_bytes())
    }

    async fn resolve(
        &self,
        id: ReservationId,
        script: Script,
        arguments: &[Vec<u8>],
    ) -> Result<ResolveOutcome, GateError> {
        let partition = id.partition();
        let mut keys =
            vec![self.keys.meta(partition), self.keys.outbox(partition), self.keys.reservation(id)];
        if id.is_light() {
            keys.push(self.keys.holds(partition));
        }
        let reply = self.run(partition, script, &keys, arguments).await?;
        Ok(read_outcome(&reply)?)
    }
}

impl ResolveOutcome {
    /// Reads an answer, asked in this epoch.
    pub fn read(answer: redis::Value, epoch: Epoch) -> Result<Self, GateError> {
        Ok(read_outcome(&Reply::read(answer, epoch)?.0)?)
    }
}

fn flag(is_set: bool) -> Vec<u8> {
    if is_set { b"1".to_vec() } else { b"0".to_vec() }
}

fn consume_script(call: &ConsumeCall<'_>) -> Script {
    if call.is_final { Script::ConsumeFinal } else { Script::ConsumePart }
}

/// Layout: `B count`, then per total `Bc0 meter ('' = the single line)  i8 mantissa  B scale`.
fn pack_totals(totals: &Totals) -> Result<Vec<u8>, GateError> {
    let named: Vec<(&str, Amount)> = match totals {
        Totals::Default => Vec::new(),
        Totals::Single(amount) => vec![("", *amount)],
        Totals::ByMeter(amounts) => amounts.iter().map(|(meter, amount)| (meter.as_str(), *amount)).collect(),
    };
    let too_many = GateError::Malformed { script: "consume", reason: "more than 255 totals" };
    let mut out = Vec::with_capacity(1 + 32 * named.len());
    out.put_byte(u8::try_from(named.len()).map_err(|_| too_many)?);
    for (meter, amount) in named {
        // An amount that no meter can hold is sent as one unit more than the largest amount, and the script rejects it.
        let (mantissa, scale) = amount.mantissa_and_scale().unwrap_or((UNITS_MAX + 1, 0));
        out.put_text(meter);
        out.put_8(mantissa);
        out.put_byte(scale);
    }
    Ok(out)
}

fn read_outcome(reply: &Reply) -> Result<ResolveOutcome, Undecodable> {
    let record = || reply.record(0);
    Ok(match reply.status {
        Status::Done => {
            // The stored record may be a tombstone; the record before has the whole body, which never changes.
            let before = record()?;
            let (head, units) = Head::decode(&mut Reader::new(reply.bytes(1)?))?;
            let record = Record { head, units, body: before.body };
            ResolveOutcome::Done {
                previous: before.units,
                event: reply.id,
                readings: read_places(&record, reply, 2)?,
                record,
                now_ms: reply.now_ms,
            }
        }
        Status::Replayed => {
            let record = record()?;
            let readings = read_places(&record, reply, 1)?;
            ResolveOutcome::Replayed { record, readings, now_ms: reply.now_ms }
        }
        Status::Unknown => ResolveOutcome::Unknown { last_id: reply.id },
        Status::Cold => ResolveOutcome::Cold(read_cold_record(reply)?),
        _ => ResolveOutcome::Rejected { rejection: read_rejection(reply)?, record: record()? },
    })
}

fn read_rejection(reply: &Reply) -> Result<Rejection, Undecodable> {
    let line = || reply.integer(1).map(|line| usize::try_from(line).unwrap_or_default());
    Ok(match reply.status {
        Status::AlreadyResolved => Rejection::AlreadyResolved,
        Status::Expired => Rejection::Expired,
        Status::AmountNeedsOneLine => Rejection::AmountNeedsOneLine,
        Status::MeterNotReserved => {
            let meter = MeterId::parse(reply.text(2)?).map_err(|_| Undecodable("a meter"))?;
            Rejection::MeterNotReserved(meter)
        }
        Status::TooPrecise => Rejection::TooPrecise(line()?),
        Status::TooLarge => Rejection::TooLarge(line()?),
        Status::AmountDecreased => Rejection::AmountDecreased(line()?),
        Status::ExcessRejected => Rejection::ExcessRejected(line()?),
        _ => return Err(Undecodable("a status of consume, release or extend")),
    })
}

fn read_places(
    record: &Record,
    reply: &Reply,
    at: usize,
) -> Result<Vec<(CounterRef, CounterReading)>, Undecodable> {
    let Some(rest) = &record.body.rest else { return Ok(Vec::new()) };
    let readings = if reply.bytes(at)?.is_empty() {
        resolved_readings(reply, at + 1, record, &rest.counters)?
    } else {
        reply.readings(at)?
    };
    Ok(rest.counters.iter().cloned().zip(readings).collect())
}

fn read_cold_record(reply: &Reply) -> Result<ColdRecord, Undecodable> {
    let record = reply.record(0)?;
    let rest = record.body.rest.as_ref();
    let subject = |number: &u8| rest?.subjects.get(usize::from(number.checked_sub(1)?)).cloned();
    let counter = |index: usize| rest?.counters.get(index).cloned();
    Ok(ColdRecord {
        epoch: reply.epoch,
        last_id: reply.id,
        tenant_cold: reply.integer(1)? == 1,
        subjects: reply.bytes(2)?.iter().filter_map(subject).collect(),
        counters: reply.indexes(3)?.into_iter().filter_map(counter).collect(),
        tenant: record.body.tenant,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_have_the_precedence_of_the_statuses_that_scripts_answer() {
        let meter = MeterId::parse("page").unwrap();
        let both = [
            (Status::AlreadyResolved, Rejection::AlreadyResolved),
            (Status::Expired, Rejection::Expired),
            (Status::AmountNeedsOneLine, Rejection::AmountNeedsOneLine),
            (Status::MeterNotReserved, Rejection::MeterNotReserved(meter)),
            (Status::TooPrecise, Rejection::TooPrecise(0)),
            (Status::TooLarge, Rejection::TooLarge(0)),
            (Status::AmountDecreased, Rejection::AmountDecreased(0)),
            (Status::ExcessRejected, Rejection::ExcessRejected(0)),
        ];
        assert!(both.is_sorted_by(|a, b| a.0 < b.0 && a.1.precedes(&b.1)));
    }
}
