//! `reserve`: the only admission. Holds amounts, or counts usage after the fact under the same limits.

use crate::domain::amount::Units;
use crate::domain::codec::{Reader, Undecodable, Write};
use crate::domain::counter::Counter;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, Subject, TenantId};
use crate::domain::reservation::{
    Body, COUNTERS_MAX, CounterRef, LINES_MAX, Record, SUBJECTS_MAX, SubjectHash,
};

use super::call::Reply;
use super::counters::{Count, check_counters, pack_counters};
use super::error::GateError;
use super::scripts::Script;
use super::status::Status;
use super::{Gate, GateOptions};

/// How a reserve treats what does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveMode {
    /// All lines pass all their limits, or nothing moves.
    AllOrNothing,
    /// Lines in order, each gets what fits after the lines before it.
    BestEffort,
    /// Decides and writes nothing.
    DryRun,
    /// Writes an already consumed record: usage after the fact, refused like a reserve.
    Usage,
}

/// One reserve, usage or dry run.
#[derive(Debug)]
pub struct ReserveCall<'a> {
    /// The reservation's id.
    pub id: ReservationId,
    /// The tenant's partition.
    pub partition: Partition,
    /// Whose units.
    pub tenant: &'a TenantId,
    /// The subjects named, in the order of the body; scope index n of a counter is the n-th.
    pub subjects: Vec<(Subject, SubjectHash)>,
    /// How to treat what does not fit.
    pub mode: ReserveMode,
    /// Per line of the body, what is asked for.
    pub amounts: Vec<Units>,
    /// All fixed data. Its places are those of `counters`, in the same order.
    pub body: &'a Body,
    /// The counters to measure and move.
    pub counters: &'a [Counter],
    /// How long the hold lasts, in ms.
    pub ttl_ms: i64,
    /// How long `extend` may keep it in all, in ms.
    pub max_life_ms: i64,
    /// The span in which all windows of the call are current: start inclusive, end exclusive, unix ms.
    pub valid: (i64, i64),
    /// When the last window of a subject's counter ends (unix ms); 0 where none is asked about.
    pub subject_windows_end_ms: i64,
    /// The ledger may know the call's key from before the gate's memory.
    pub may_be_known: bool,
    /// The ledger was asked and does not know the call's key.
    pub ledger_asked: bool,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// How a counter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterReading {
    /// Units consumed in the window.
    pub consumed: Units,
    /// Units held in the window.
    pub reserved: Units,
    /// How many more units fit, below 0 where less than nothing; none where the script is not told the capacity (a limit's,
    /// when resolving).
    pub room: Option<i64>,
    /// When what is counted is forgotten (unix ms), where the script knows it.
    pub resets_at_ms: Option<i64>,
    /// When one of the holds in it ends (unix ms), the earliest known.
    pub next_hold_ends_at_ms: Option<i64>,
    /// Whether the window is the counter's current one and its figures are known.
    pub current: bool,
}

/// What the gate does not know, and must be told by the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cold {
    /// The epoch in force; what the ledger tells is meant for it alone.
    pub epoch: Epoch,
    /// The outbox's last id: the ledger must have booked up to it before it is asked.
    pub last_id: OutboxId,
    /// The tenant's hash is not of this epoch.
    pub tenant: bool,
    /// Subject hashes that are not of this epoch, by number (1 is the first subject).
    pub holders: Vec<u8>,
    /// Counters of warm hashes whose use or quota capacity is unknown, by index.
    pub counters: Vec<usize>,
}

/// What a reserve came to.
#[allow(clippy::large_enum_variant, reason = "made once a call and taken apart at once")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReserveOutcome {
    /// Held (or, as usage, consumed).
    Admitted {
        /// Per line, what is held.
        granted: Vec<Units>,
        /// When the hold ends (unix ms).
        expires_at_ms: i64,
        /// The event's place in the outbox.
        event: OutboxId,
        /// The script's time (unix ms).
        now_ms: i64,
        /// The counters afterwards, in the order of the counters.
        readings: Vec<CounterReading>,
    },
    /// A dry run that would have been admitted.
    Allowed {
        /// Per line, what would be held.
        granted: Vec<Units>,
        /// The script's time (unix ms).
        now_ms: i64,
        /// The counters as they are, in the order of the counters.
        readings: Vec<CounterReading>,
    },
    /// The same call was admitted before.
    Replayed {
        /// The record as it is now.
        record: Record,
        /// The counters as they are now, in the order of the counters.
        readings: Vec<CounterReading>,
        /// The script's time (unix ms).
        now_ms: i64,
    },
    /// Limits or quotas do not allow it; nothing was written.
    Refused {
        /// The script's time (unix ms).
        now_ms: i64,
        /// The counters as they are, in the order of the counters.
        readings: Vec<CounterReading>,
        /// Which counters refuse, all of them, and how long each has to be waited for, at least, in ms; none for ever.
        refusing: Vec<(usize, Option<i64>)>,
        /// Per line, what a best effort would have been granted.
        granted_by_line: Vec<Units>,
    },
    /// The id belongs to a call with another meaning.
    KeyReused {
        /// Its record as it is now.
        record: Record,
    },
    /// The windows were computed for another time; compute them for this one.
    StaleWindow {
        /// The script's time (unix ms).
        now_ms: i64,
    },
    /// The ledger must tell the gate first.
    Cold(Cold),
    /// The call may be a retry from before a loss, or before the gate's memory: ask the ledger, then call with `ledger_asked`.
    AskLedger {
        /// The outbox's last id: the ledger must have booked up to it before it is asked.
        last_id: OutboxId,
    },
}

const KEYED: u8 = 1;
const LEDGER_ASKED: u8 = 2;
const MAY_BE_KNOWN: u8 = 4;

impl Gate {
    /// Holds the call's amounts, counts them as usage, or says why not. One round trip.
    pub async fn reserve(&self, call: &ReserveCall<'_>) -> Result<ReserveOutcome, GateError> {
        check_call(call)?;
        let partition = call.partition;
        let mut keys =
            vec![self.keys.meta(partition), self.keys.outbox(partition), self.keys.reservation(call.id)];
        keys.push(self.keys.tenant(partition, call.tenant));
        keys.extend(call.subjects.iter().map(|(_, hash)| self.keys.subject(partition, call.tenant, *hash)));
        let mut arguments = self.mutating(partition, call.now_ms)?;
        arguments.push(call.id.as_bytes().to_vec());
        arguments.push(pack_call(call, &self.options));
        arguments.push(call.body.encode());
        let reply = self.run(partition, Script::Reserve, &keys, &arguments).await?;
        Ok(read_outcome(&reply, call.body.fingerprint)?)
    }
}

fn check_call(call: &ReserveCall<'_>) -> Result<(), GateError> {
    let malformed = |reason| Err(GateError::Malformed { script: "reserve", reason });
    let Some(rest) = &call.body.rest else { return malformed("the body is cut to a tombstone") };
    if call.id.partition() != call.partition {
        return malformed("the id is of another partition");
    }
    if !(1..=LINES_MAX).contains(&call.amounts.len()) || call.amounts.len() != call.body.lines.len() {
        return malformed("the amounts are not one for each of the body's 1 to 8 lines");
    }
    if call.subjects.len() > SUBJECTS_MAX || call.subjects != rest.subjects {
        return malformed("the subjects are not the body's");
    }
    let is_named = |(counter, place): (&Counter, &CounterRef)| counter.is_at(place);
    let are_named =
        call.counters.len() == rest.counters.len() && call.counters.iter().zip(&rest.counters).all(is_named);
    if call.counters.len() > COUNTERS_MAX || !are_named {
        return malformed("the counters are not the body's");
    }
    check_counters(call.counters.iter().map(Count::of), call.subjects.len(), call.amounts.len())
        .map_err(|reason| GateError::Malformed { script: "reserve", reason })
}

/// Layout: `B mode  B flags  i8 ttl  i8 max_life  i8 valid_from  i8 valid_until  i8 subject_windows_end  i8 tombstone  i8 due_bucket
/// B lines  i8 each`,
/// then the counters as [`pack_counters`] has them.
fn pack_call(call: &ReserveCall<'_>, options: &GateOptions) -> Vec<u8> {
    let keyed = call.body.rest.as_ref().is_some_and(|rest| rest.keyed);
    let mut out = Vec::with_capacity(64 + 8 * call.amounts.len() + 48 * call.counters.len());
    out.put_byte(match call.mode {
        ReserveMode::AllOrNothing => 0,
        ReserveMode::BestEffort => 1,
        ReserveMode::DryRun => 2,
        ReserveMode::Usage => 3,
    });
    let flags = [(keyed, KEYED), (call.ledger_asked, LEDGER_ASKED), (call.may_be_known, MAY_BE_KNOWN)];
    out.put_byte(flags.iter().map(|(is_set, flag)| if *is_set { *flag } else { 0 }).sum());
    out.put_8(call.ttl_ms);
    out.put_8(call.max_life_ms);
    out.put_8(call.valid.0);
    out.put_8(call.valid.1);
    out.put_8(call.subject_windows_end_ms);
    out.put_8(if keyed { options.tombstone_keyed_ms } else { options.tombstone_unkeyed_ms });
    out.put_8(options.due_bucket_ms);
    out.put_byte(u8::try_from(call.amounts.len()).unwrap_or(u8::MAX));
    for amount in &call.amounts {
        out.put_8(amount.get());
    }
    pack_counters(call.counters.iter().map(Count::of), &mut out);
    out
}

fn read_outcome(reply: &Reply, fingerprint: Fingerprint) -> Result<ReserveOutcome, Undecodable> {
    let now_ms = reply.now_ms;
    Ok(match reply.status {
        Status::Done => ReserveOutcome::Admitted {
            expires_at_ms: reply.integer(0)?,
            granted: reply.units(1)?,
            readings: reply.readings(2)?,
            event: reply.id,
            now_ms,
        },
        Status::Allowed => {
            ReserveOutcome::Allowed { granted: reply.units(0)?, readings: reply.readings(1)?, now_ms }
        }
        // The script compares bytes: a default that is named once and left out once is the same meaning all the same.
        Status::Replayed | Status::KeyReused => {
            let (record, readings) = (reply.record(0)?, reply.readings(1)?);
            if reply.status == Status::Replayed || fingerprint.repeats(&record.body.fingerprint) {
                ReserveOutcome::Replayed { record, readings, now_ms }
            } else {
                ReserveOutcome::KeyReused { record }
            }
        }
        Status::Refused => ReserveOutcome::Refused {
            granted_by_line: reply.units(0)?,
            readings: reply.readings(1)?,
            refusing: read_refusing(reply, 2)?,
            now_ms,
        },
        Status::StaleWindow => ReserveOutcome::StaleWindow { now_ms },
        Status::Cold => ReserveOutcome::Cold(read_cold(reply, 0)?),
        Status::AskLedger => ReserveOutcome::AskLedger { last_id: reply.id },
        _ => return Err(Undecodable("a status of reserve")),
    })
}

/// Which counters refuse, and for how long, from two values of the answer.
fn read_refusing(reply: &Reply, at: usize) -> Result<Vec<(usize, Option<i64>)>, Undecodable> {
    let mut waits = Reader::new(reply.bytes(at + 1)?);
    let wait = |index: usize| Ok((index, Some(waits.i64()?).filter(|wait_ms| *wait_ms >= 0)));
    reply.indexes(at)?.into_iter().map(wait).collect()
}

/// What is cold, from three values of the answer.
pub(super) fn read_cold(reply: &Reply, at: usize) -> Result<Cold, Undecodable> {
    Ok(Cold {
        epoch: reply.epoch,
        last_id: reply.id,
        tenant: reply.integer(at)? == 1,
        holders: reply.bytes(at + 1)?.to_vec(),
        counters: reply.indexes(at + 2)?,
    })
}
