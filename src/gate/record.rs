//! `record`: takes over an admission that was granted while the gate was away, or work of a past time. No limit refuses
//! it.

use crate::domain::codec::{Undecodable, Write};
use crate::domain::ids::{OutboxId, ReservationId};
use crate::domain::parked::CounterLife;
use crate::domain::reservation::{Body, Correction, Record, ReservationState};

use super::Gate;
use super::call::Reply;
use super::counters::{Count, check_counters, pack_counters};
use super::error::GateError;
use super::reserve::{Cold, read_cold};
use super::scripts::Script;
use super::status::Status;

/// Whether the ledger is asked about an id that the gate does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdCheck {
    /// The ledger must be asked first.
    Ask,
    /// The ledger must be asked first for as long after a loss as keys of the tenant are.
    AskAfterLoss,
    /// The ledger was asked, after the tenant became warm in this epoch, and does not have the id.
    Asked,
}

/// One admission that the gate takes over.
#[derive(Debug)]
pub struct RecordCall<'a> {
    /// The reservation's id.
    pub id: ReservationId,
    /// What was admitted: reserved, or consumed at once. Its birth decides in which windows it counts.
    pub record: &'a Record,
    /// The lifetime of each counter of the body, in its order.
    pub lives: &'a [CounterLife],
    /// When it was taken (gate time, unix ms); none for the time of this call.
    pub taken_at_ms: Option<i64>,
    /// Whether the ledger is asked about the id before it is taken for new.
    pub id_check: IdCheck,
    /// The test clock's time in unix ms; none for Redis's own.
    pub now_ms: Option<i64>,
}

/// The result of taking an admission over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordOutcome {
    /// It is held or counted now, by this event.
    Done(OutboxId),
    /// It was held or counted before.
    Replayed,
    /// The id belongs to a call with another fingerprint, whose record this is.
    KeyReused(Box<Record>),
    /// A counter would be beyond the largest amount, or below zero.
    TooLarge,
    /// One of its windows has not begun by the script's clock.
    StaleWindow {
        /// The script's time (unix ms).
        now_ms: i64,
    },
    /// The ledger must restore this first.
    Cold(Cold),
    /// The ledger must be asked about the id, once it has booked up to `last_id`.
    AskLedger {
        /// The outbox's last id.
        last_id: OutboxId,
    },
}

const DEGRADED: u8 = 2;
const ASK: u8 = 4;
const ASKED: u8 = 8;
const CORRECTED: u8 = 16;
const TAKES_BACK: u8 = 32;

impl Gate {
    /// Holds or counts what no limit refuses. One round trip.
    pub async fn record(&self, call: &RecordCall<'_>) -> Result<RecordOutcome, GateError> {
        let malformed = |reason| GateError::Malformed { script: "record", reason };
        let body = &call.record.body;
        let Some(rest) = &body.rest else { return Err(malformed("the body is cut to a tombstone")) };
        if rest.counters.len() != call.lives.len() {
            return Err(malformed("the lives are not one for each of the body's counters"));
        }
        let counts: Vec<_> =
            rest.counters.iter().zip(call.lives).map(|(place, life)| Count::at(place, life)).collect();
        check_counters(&counts, rest.subjects.len(), call.record.units.len()).map_err(malformed)?;
        let partition = call.id.partition();
        let mut keys =
            vec![self.keys.meta(partition), self.keys.outbox(partition), self.keys.reservation(call.id)];
        keys.push(self.keys.tenant(partition, &body.tenant));
        keys.extend(rest.subjects.iter().map(|(_, hash)| self.keys.subject(partition, &body.tenant, *hash)));
        let mut arguments = self.mutating(partition, call.now_ms)?;
        arguments.push(call.id.as_bytes().to_vec());
        let mut packed = self.pack_record_call(call, rest.keyed);
        pack_counters(&counts, &[], &mut packed);
        arguments.push(packed);
        arguments.push(body.encode());
        let reply = self.run(partition, Script::Record, &keys, &arguments).await?;
        Ok(read_outcome(&reply, body)?)
    }

    /// Layout: `B flags  i8 taken_at (0: now)  i8 born_at  i8 expires_at  i8 latest_expiry  i8 tombstone  i8 due_bucket
    /// B lines  i8 each  B counters  i8 window_end each`, then the counters as [`pack_counters`] packs them.
    /// `flags`: 1 usage, 2 degraded, 4 ask the ledger first, 8 the ledger was asked, 16 a correction, 32 that takes
    /// back.
    fn pack_record_call(&self, call: &RecordCall<'_>, keyed: bool) -> Vec<u8> {
        let head = &call.record.head;
        let is_usage = head.state == ReservationState::Consumed;
        let options = &self.options;
        let mut out = Vec::with_capacity(64 + 8 * call.record.units.len() + 56 * call.lives.len());
        let id_check = match call.id_check {
            IdCheck::Ask => ASK,
            IdCheck::AskAfterLoss => 0,
            IdCheck::Asked => ASKED,
        };
        let degraded = if head.degraded { DEGRADED } else { 0 };
        let correction = match head.correction {
            None => 0,
            Some(Correction::More) => CORRECTED,
            Some(Correction::Less) => CORRECTED | TAKES_BACK,
        };
        out.put_byte(u8::from(is_usage) | degraded | id_check | correction);
        out.put_8(call.taken_at_ms.unwrap_or_default());
        out.put_8(head.born_at_ms);
        out.put_8(head.expires_at_ms);
        out.put_8(head.latest_expiry_ms);
        out.put_8(if keyed { options.tombstone_keyed_ms } else { options.tombstone_unkeyed_ms });
        out.put_8(options.due_bucket_ms);
        out.put_byte(u8::try_from(call.record.units.len()).unwrap_or(u8::MAX));
        for units in &call.record.units {
            out.put_8(if is_usage { units.consumed.get() } else { units.held.get() });
        }
        out.put_byte(u8::try_from(call.lives.len()).unwrap_or(u8::MAX));
        for life in call.lives {
            out.put_8(life.window_end_ms);
        }
        out
    }
}

fn read_outcome(reply: &Reply, body: &Body) -> Result<RecordOutcome, Undecodable> {
    Ok(match reply.status {
        Status::Done => RecordOutcome::Done(reply.id),
        Status::Replayed => RecordOutcome::Replayed,
        Status::KeyReused => {
            let first = reply.record(0)?;
            match body.fingerprint.repeats(&first.body.fingerprint) {
                true => RecordOutcome::Replayed,
                false => RecordOutcome::KeyReused(Box::new(first)),
            }
        }
        Status::TooLarge => RecordOutcome::TooLarge,
        Status::StaleWindow => RecordOutcome::StaleWindow { now_ms: reply.now_ms },
        Status::Cold => RecordOutcome::Cold(read_cold(reply, 0)?),
        Status::AskLedger => RecordOutcome::AskLedger { last_id: reply.id },
        _ => return Err(Undecodable("a status of record")),
    })
}
