//! `reserve`: the only admission. Holds amounts, or counts usage after the fact under the same limits.

use crate::domain::amount::Units;
use crate::domain::codec::{Reader, Undecodable, Write};
use crate::domain::counter::Counter;
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, Subject, TenantId};
use crate::domain::limit::Kind;
use crate::domain::punishment::Conduct;
use crate::domain::reservation::{
    Body, COUNTERS_MAX, CounterRef, LINES_MAX, LineUnits, Record, ReservationState, SUBJECTS_MAX, SubjectHash,
};

use super::call::Reply;
use super::cells::{Standing, fit, is_plain};
use super::conduct::readings_with_conduct;
use super::counters::{Count, check_counters, pack_counters};
use super::error::GateError;
use super::scripts::Script;
use super::status::Status;
use super::together::{Company, Packed};
use super::work::GuardedWork;
use super::{Gate, GateOptions};

/// How a reserve treats a request that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveMode {
    /// All lines fit all their limits, or nothing moves.
    AllOrNothing,
    /// Line by line, in order: each gets what fits after the lines before it.
    BestEffort,
    /// Decides as all or nothing and writes nothing.
    DryRun,
    /// As a dry run, but the wait is for a part that would be enough.
    DryBestEffort,
    /// Writes an already consumed record: usage after the fact, refused like a reserve.
    Usage,
    /// Decides as a usage and writes nothing.
    DryUsage,
}

impl ReserveMode {
    /// The mode that decides as this one and writes nothing.
    pub fn dry(self) -> Self {
        match self {
            Self::AllOrNothing | Self::DryRun => Self::DryRun,
            Self::BestEffort | Self::DryBestEffort => Self::DryBestEffort,
            Self::Usage | Self::DryUsage => Self::DryUsage,
        }
    }

    /// Whether a part of what is asked for is enough.
    pub fn is_best_effort(self) -> bool {
        matches!(self, Self::BestEffort | Self::DryBestEffort)
    }
}

/// One reserve, usage or dry run.
#[derive(Debug)]
pub struct ReserveCall<'a> {
    /// The reservation's id.
    pub id: ReservationId,
    /// The tenant's partition.
    pub partition: Partition,
    /// Its tenant.
    pub tenant: &'a TenantId,
    /// The subjects named, in the order of the body; a counter's scope index n means the n-th.
    pub subjects: Vec<(Subject, SubjectHash)>,
    /// How to treat a request that does not fit.
    pub mode: ReserveMode,
    /// The amount asked for in each line.
    pub amounts: Vec<Units>,
    /// All fixed data. Its counters are those of `counters`, in the same order.
    pub body: &'a Body,
    /// The counters to measure and move.
    pub counters: &'a [Counter],
    /// How long the hold lasts, in ms.
    pub ttl_ms: i64,
    /// The longest total life to which `extend` may prolong it, in ms.
    pub max_life_ms: i64,
    /// The span in which all windows of the call are current: start inclusive, end exclusive, unix ms.
    pub valid: (i64, i64),
    /// When the last window of a subject's counter or of a light one ends (unix ms); 0 where there is none.
    pub subject_windows_end_ms: i64,
    /// Whether the ledger may have the call's key from before the gate's memory.
    pub may_be_known: bool,
    /// Whether the ledger was asked and does not have the call's key.
    pub ledger_asked: bool,
    /// The submission of which the same one again is a duplicate, where its operation guards it.
    pub work: Option<&'a GuardedWork>,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// The figures of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterReading {
    /// Units consumed in the window.
    pub consumed: Units,
    /// Units held in the window.
    pub reserved: Units,
    /// How many more units fit; negative when the counter is over its capacity. None where the script does not get the
    /// capacity (a limit's, when resolving).
    pub room: Option<i64>,
    /// When what it counts is forgotten (unix ms), where the script can say.
    pub resets_at_ms: Option<i64>,
    /// When one of its holds ends (unix ms), the earliest known.
    pub next_hold_ends_at_ms: Option<i64>,
    /// Whether the window is the counter's current one and its figures are known.
    pub current: bool,
    /// Whether the call was not counted here, by a shadow limit that would have refused it.
    pub would_refuse: bool,
    /// What its limit remembers of whom it counts, where that has a punishment.
    pub conduct: Conduct,
}

/// What is cold and must be restored from the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cold {
    /// The epoch in force; a restore is valid only in it.
    pub epoch: Epoch,
    /// The outbox's last id: the ledger must have booked up to it before it is asked.
    pub last_id: OutboxId,
    /// Whether the tenant's hash is not of this epoch.
    pub tenant: bool,
    /// Subject hashes that are not of this epoch, by number (1 is the first subject).
    pub holders: Vec<u8>,
    /// Counters of warm hashes whose use or quota capacity is unknown, by index.
    pub counters: Vec<usize>,
    /// Whether these counters are known, and only the exact capacity of their quotas is not.
    pub only_bounds: bool,
}

/// The result of a reserve.
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
        /// How long the work has to wait for the queues before it, in ms.
        start_after_ms: i64,
    },
    /// A dry run that would have been admitted.
    Allowed {
        /// Per line, what would be held.
        granted: Vec<Units>,
        /// The script's time (unix ms).
        now_ms: i64,
        /// The counters as they are, in the order of the counters.
        readings: Vec<CounterReading>,
        /// How long the work would have to wait for the queues before it, in ms.
        start_after_ms: i64,
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
    /// Limits, quotas or bans do not allow it. No counter was written; a limit with a punishment has counted it.
    Refused {
        /// The script's time (unix ms).
        now_ms: i64,
        /// The counters as they are, in the order of the counters.
        readings: Vec<CounterReading>,
        /// All counters that refuse, each with the shortest wait in ms that can help; none where no wait helps.
        refusing: Vec<(usize, Option<i64>)>,
        /// What a best effort would have granted in each line.
        granted_by_line: Vec<Units>,
    },
    /// The id belongs to a call with another fingerprint.
    KeyReused {
        /// Its record as it is now.
        record: Record,
    },
    /// The same work was submitted a short time ago, and was not given up.
    Duplicate {
        /// The first submission's reservation.
        first: ReservationId,
    },
    /// The windows were computed for another time; compute them for this one.
    StaleWindow {
        /// The script's time (unix ms).
        now_ms: i64,
    },
    /// The ledger must restore this first.
    Cold(Cold),
    /// The call may be a retry from before a loss, or from before the gate's memory: ask the ledger, then call with
    /// `ledger_asked`.
    AskLedger {
        /// The outbox's last id: the ledger must have booked up to it before it is asked.
        last_id: OutboxId,
    },
}

const KEYED: u8 = 1;
const LEDGER_ASKED: u8 = 2;
const MAY_BE_KNOWN: u8 = 4;
const PLAIN: u8 = 8;

impl Gate {
    /// Holds the call's amounts, counts them as usage, or says why not. One round trip.
    pub async fn reserve(&self, call: &ReserveCall<'_>) -> Result<ReserveOutcome, GateError> {
        check_call(call)?;
        let partition = call.partition;
        let epoch = self.epoch(partition).ok_or(GateError::NoEpoch(partition))?;
        if call.id.is_light() {
            return self.hold(call, epoch).await;
        }
        let company = Company { partition, epoch, now_ms: call.now_ms, script: Script::Reserve };
        if call.is_plain()
            && Gate::has_company()
            && let Some(reply) = Box::pin(self.run_together(company, self.pack(call, epoch))).await?
        {
            return Ok(read_outcome(&reply, call)?);
        }
        let (mut keys, mut arguments) = self.alone(company, self.pack(call, epoch));
        if let Some(work) = call.work {
            keys.push(self.keys.work(partition, call.tenant, work.hash));
            arguments.push(work.packed());
        }
        let reply = self.run(partition, Script::Reserve, &keys, &arguments).await?;
        Ok(read_outcome(&reply, call)?)
    }

    /// The same of a light reservation, whose record and counters the gate alone keeps.
    async fn hold(&self, call: &ReserveCall<'_>, epoch: Epoch) -> Result<ReserveOutcome, GateError> {
        if call.counters.iter().any(Counter::is_quota) {
            return Err(GateError::Malformed { script: "hold", reason: "a quota is no light counter" });
        }
        let (partition, tenant) = (call.partition, call.tenant);
        let (meta, holds) = (self.keys.meta(partition), self.keys.holds(partition));
        let mut keys = vec![meta, holds, self.keys.reservation(call.id)];
        keys.push(self.keys.light(partition, tenant, None));
        keys.extend(call.subjects.iter().map(|(_, hash)| self.keys.light(partition, tenant, Some(*hash))));
        let mut arguments = self.mutating_in(epoch, call.now_ms);
        arguments.extend(self.reserve_arguments(call, epoch));
        if let Some(work) = call.work {
            keys.push(self.keys.work(partition, tenant, work.hash));
            arguments.push(work.packed());
        }
        let reply = self.run(partition, Script::Hold, &keys, &arguments).await?;
        Ok(read_outcome(&reply, call)?)
    }

    /// Keys and arguments of a reserve that is sent alone.
    fn alone(&self, company: Company, packed: Packed) -> (Vec<String>, Vec<Vec<u8>>) {
        let Company { partition, epoch, now_ms, .. } = company;
        let mut keys = vec![self.keys.meta(partition), self.keys.outbox(partition)];
        keys.extend(packed.keys);
        let mut arguments = self.mutating_in(epoch, now_ms);
        arguments.extend(packed.arguments);
        (keys, arguments)
    }

    fn pack(&self, call: &ReserveCall<'_>, epoch: Epoch) -> Packed {
        let (partition, due_bucket) = (call.partition, self.due_bucket(call));
        let mut keys = vec![self.keys.reservation(call.id), self.keys.due(partition, due_bucket)];
        keys.push(self.keys.tenant(partition, call.tenant));
        keys.extend(call.subjects.iter().map(|(_, hash)| self.keys.subject(partition, call.tenant, *hash)));
        Packed { keys, arguments: self.reserve_arguments(call, epoch) }
    }

    /// Front, call, lines and body.
    fn reserve_arguments(&self, call: &ReserveCall<'_>, epoch: Epoch) -> Vec<Vec<u8>> {
        let (front, lines_and_body) = call.body.encode_new(call.state(), epoch, &call.lines());
        let front = [&call.id.as_bytes()[..], &[0], &front].concat();
        vec![front, pack_call(call, self.due_bucket(call), &self.options), lines_and_body]
    }

    /// The due bucket of the hold's end, unless the call takes longer than expected.
    fn due_bucket(&self, call: &ReserveCall<'_>) -> i64 {
        let now_ms = call.now_ms.unwrap_or_else(|| self.redis_time_ms());
        let (expires_at_ms, width_ms) = (now_ms.saturating_add(call.life_ms()), self.options.due_bucket_ms);
        expires_at_ms.saturating_add(width_ms - 1).div_euclid(width_ms)
    }
}

impl ReserveCall<'_> {
    /// Reads the answer to this call, asked in this epoch.
    pub fn read(&self, answer: redis::Value, epoch: Epoch) -> Result<ReserveOutcome, GateError> {
        Ok(read_outcome(&Reply::read(answer, epoch)?.0, self)?)
    }

    fn is_usage(&self) -> bool {
        matches!(self.mode, ReserveMode::Usage | ReserveMode::DryUsage)
    }

    /// The reservation's state if it is admitted.
    fn state(&self) -> ReservationState {
        if self.is_usage() { ReservationState::Consumed } else { ReservationState::Reserved }
    }

    /// The lines, if all of it is granted.
    fn lines(&self) -> Vec<LineUnits> {
        let line = |units: &Units| match self.mode {
            ReserveMode::Usage | ReserveMode::DryUsage => LineUnits::new(Units::ZERO, *units),
            _ => LineUnits::new(*units, Units::ZERO),
        };
        self.amounts.iter().map(line).collect()
    }

    /// How long the hold lasts at first; a usage holds nothing.
    fn life_ms(&self) -> i64 {
        if self.is_usage() { 0 } else { self.ttl_ms.min(self.max_life_ms) }
    }

    /// Whether the script's plain path may decide it: all or nothing, its work is not guarded, and every counter counts
    /// by an algorithm that the path knows, stands in a state hash and is none of a shadow limit or one with a
    /// punishment.
    fn is_plain(&self) -> bool {
        matches!(self.mode, ReserveMode::AllOrNothing | ReserveMode::Usage)
            && self.work.is_none()
            && self.counters.iter().all(|counter| {
                is_plain(&counter.parameters)
                    && counter.kind != Kind::Shadow
                    && counter.punishment().is_none()
                    && !counter.is_light
            })
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
    let counts: Vec<_> = call.counters.iter().map(Count::of).collect();
    check_counters(&counts, call.subjects.len(), call.amounts.len())
        .map_err(|reason| GateError::Malformed { script: "reserve", reason })
}

/// Layout: `B flags  B mode  B lines  i8 life  i8 longest life  i8 valid_from  i8 valid_until  i8 subject_windows_end
/// i8 tombstone  i8 width of a due bucket  i8 expected due bucket`, then the counters as [`pack_counters`] packs them.
fn pack_call(call: &ReserveCall<'_>, due_bucket: i64, options: &GateOptions) -> Vec<u8> {
    let keyed = call.body.rest.as_ref().is_some_and(|rest| rest.keyed);
    let counts: Vec<_> = call.counters.iter().map(Count::of).collect();
    let mut out = Vec::with_capacity(80 + 56 * counts.len());
    let flags = [
        (keyed, KEYED),
        (call.ledger_asked, LEDGER_ASKED),
        (call.may_be_known, MAY_BE_KNOWN),
        (call.is_plain(), PLAIN),
    ];
    out.put_byte(flags.iter().map(|(is_set, flag)| if *is_set { *flag } else { 0 }).sum());
    out.put_byte(match call.mode {
        ReserveMode::AllOrNothing => 0,
        ReserveMode::BestEffort => 1,
        ReserveMode::DryRun => 2,
        ReserveMode::Usage => 3,
        ReserveMode::DryBestEffort => 4,
        ReserveMode::DryUsage => 5,
    });
    out.put_byte(u8::try_from(call.amounts.len()).unwrap_or(u8::MAX));
    out.put_8(call.life_ms());
    out.put_8(if call.is_usage() { 0 } else { call.max_life_ms });
    out.put_8(call.valid.0);
    out.put_8(call.valid.1);
    out.put_8(call.subject_windows_end_ms);
    out.put_8(if keyed { options.tombstone_keyed_ms } else { options.tombstone_unkeyed_ms });
    out.put_8(options.due_bucket_ms);
    out.put_8(due_bucket);
    pack_counters(&counts, &call.amounts, &mut out);
    out
}

fn read_outcome(reply: &Reply, call: &ReserveCall<'_>) -> Result<ReserveOutcome, Undecodable> {
    let now_ms = reply.now_ms;
    Ok(match reply.status {
        Status::Done => {
            let (granted, readings, start_after_ms) = if reply.bytes(1)?.is_empty() {
                (call.amounts.clone(), readings(&Standing::of_all(reply, 3, call.counters)?, now_ms)?, 0)
            } else {
                (reply.units(1)?, readings_with_conduct(reply, 2, 4, 5)?, reply.integer(3)?)
            };
            let (expires_at_ms, event) = (reply.integer(0)?, reply.id);
            ReserveOutcome::Admitted { granted, expires_at_ms, event, now_ms, readings, start_after_ms }
        }
        Status::Allowed => {
            let (granted, readings) = (reply.units(0)?, readings_with_conduct(reply, 1, 3, 4)?);
            ReserveOutcome::Allowed { granted, readings, now_ms, start_after_ms: reply.integer(2)? }
        }
        // The script compares bytes, but a default that is named in one call and left out in the other is the same
        // request.
        Status::Replayed | Status::KeyReused => {
            let (record, readings) = (reply.record(0)?, reply.readings(1)?);
            if reply.status == Status::Replayed || call.body.fingerprint.repeats(&record.body.fingerprint) {
                ReserveOutcome::Replayed { record, readings, now_ms }
            } else {
                ReserveOutcome::KeyReused { record }
            }
        }
        Status::Refused if reply.bytes(0)?.is_empty() => {
            let standings = Standing::of_all(reply, 3, call.counters)?;
            let wait = |index: usize| {
                let standing = standings.get(index).ok_or(Undecodable("a counter's number"))?;
                Ok((index, standing.wait_ms(&call.amounts, now_ms)))
            };
            ReserveOutcome::Refused {
                now_ms,
                readings: readings(&standings, now_ms)?,
                refusing: reply.indexes(2)?.into_iter().map(wait).collect::<Result<_, _>>()?,
                granted_by_line: fit(&call.amounts, &standings),
            }
        }
        Status::Refused => ReserveOutcome::Refused {
            granted_by_line: reply.units(0)?,
            readings: readings_with_conduct(reply, 1, 4, 5)?,
            refusing: read_refusing(reply, 2)?,
            now_ms,
        },
        Status::StaleWindow => ReserveOutcome::StaleWindow { now_ms },
        Status::Cold => ReserveOutcome::Cold(read_cold(reply, 0)?),
        Status::Duplicate => {
            let first =
                std::str::from_utf8(reply.bytes(0)?).ok().and_then(|hex| u128::from_str_radix(hex, 16).ok());
            let first = first.ok_or(Undecodable("a reservation's id"))?;
            ReserveOutcome::Duplicate { first: ReservationId::from_bytes(first.to_be_bytes()) }
        }
        Status::AskLedger => ReserveOutcome::AskLedger { last_id: reply.id },
        _ => return Err(Undecodable("a status of reserve")),
    })
}

fn readings(standings: &[Standing<'_>], now_ms: i64) -> Result<Vec<CounterReading>, Undecodable> {
    standings.iter().map(|standing| standing.reading(now_ms)).collect()
}

/// Reads the counters at one value of the answer; another says which of them did not count the call.
pub(super) fn readings_in_shadow(
    reply: &Reply,
    at: usize,
    shadows_at: usize,
) -> Result<Vec<CounterReading>, Undecodable> {
    let mut readings = reply.readings(at)?;
    for index in reply.indexes(shadows_at)? {
        readings.get_mut(index).ok_or(Undecodable("a counter's number"))?.would_refuse = true;
    }
    Ok(readings)
}

/// Reads which counters refuse, and for how long, from two values of the answer.
pub(super) fn read_refusing(reply: &Reply, at: usize) -> Result<Vec<(usize, Option<i64>)>, Undecodable> {
    let mut waits = Reader::new(reply.bytes(at + 1)?);
    let wait = |index: usize| Ok((index, Some(waits.i64()?).filter(|wait_ms| *wait_ms >= 0)));
    reply.indexes(at)?.into_iter().map(wait).collect()
}

/// Reads what is cold from three values of the answer.
pub(super) fn read_cold(reply: &Reply, at: usize) -> Result<Cold, Undecodable> {
    Ok(Cold {
        epoch: reply.epoch,
        last_id: reply.id,
        tenant: reply.integer(at)? == 1,
        holders: reply.bytes(at + 1)?.to_vec(),
        counters: reply.indexes(at + 2)?,
        only_bounds: reply.integer(at)? == 2,
    })
}
