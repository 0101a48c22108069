//! One call of a script: its keys and arguments, then its answer.

use std::time::Instant;

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use crate::domain::amount::Units;
use crate::domain::codec::{Reader, Undecodable};
use crate::domain::ids::{Epoch, OutboxId, Partition};
use crate::domain::punishment::Conduct;
use crate::domain::reservation::Record;

use super::Gate;
use super::error::GateError;
use super::guard::Heard;
use super::reserve::CounterReading;
use super::scripts::Script;
use super::status::Status;
use super::time_check::Measurement;

/// A script's answer after its first four values.
pub(super) struct Reply {
    /// The decision.
    pub(super) status: Status,
    /// The script's time (unix ms).
    pub(super) now_ms: i64,
    /// The event's place, or the outbox's last id.
    pub(super) id: OutboxId,
    /// The epoch that the call named, which is in force.
    pub(super) epoch: Epoch,
    rest: Vec<Value>,
}

/// The room that a script answers when it does not know the capacity.
const UNKNOWN_ROOM: i64 = -9_007_199_254_740_992;

impl Reply {
    /// Reads an answer. Also returns Redis's own time in it (unix ms).
    pub(super) fn read(value: Value, epoch: Epoch) -> Result<(Self, i64), GateError> {
        let mut values = match value {
            Value::Array(values) => values,
            Value::BulkString(packed) => return Ok(Self::read_packed(&packed, epoch)?),
            _ => return Err(Undecodable("a script's answer").into()),
        };
        if values.len() < 4 {
            return Err(Undecodable("a script's answer").into());
        }
        let rest = values.split_off(4);
        let status = Status::from_code(integer(&values[0])?).ok_or(Undecodable("a status"))?;
        let id = match text(&values[3])? {
            "" => OutboxId::default(),
            id => id.parse().map_err(|_| Undecodable("an outbox id"))?,
        };
        Ok((Self { status, now_ms: integer(&values[2])?, id, epoch, rest }, integer(&values[1])?))
    }

    /// Reads the answer of a check's plain path, which is one text: `B whether it refuses  i8 Redis's time  i8 time`
    /// and a cell. It is done, and its own value is that byte and the cell.
    fn read_packed(packed: &[u8], epoch: Epoch) -> Result<(Self, i64), Undecodable> {
        let mut reader = Reader::new(packed);
        let (refuses, redis_ms, now_ms) = (reader.u8()?, reader.i64()?, reader.i64()?);
        let rest = vec![Value::BulkString([&[refuses], reader.rest()].concat())];
        Ok((Self { status: Status::Done, now_ms, id: OutboxId::default(), epoch, rest }, redis_ms))
    }

    /// The status's own values.
    pub(super) fn into_values(self) -> Vec<Value> {
        self.rest
    }

    /// The answers to several calls that were sent as one: after their number, so many values for each of them where
    /// that is what was decided, otherwise the same for all. Each reads as the answer to one call.
    pub(super) fn apart(self, calls: usize, values_each: usize) -> Vec<Self> {
        let Self { status, now_ms, id, epoch, rest } = self;
        let one = |rest| Self { status, now_ms, id, epoch, rest };
        if status != Status::Done {
            return (0..calls).map(|_| one(rest.clone())).collect();
        }
        let each = rest.get(1..).unwrap_or_default().chunks_exact(values_each);
        each.map(|values| one([&[Value::Int(1)], values].concat())).collect()
    }

    /// How many values of its own the status has.
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    /// The bytes at this place of the status's own values.
    pub(super) fn bytes(&self, at: usize) -> Result<&[u8], Undecodable> {
        match self.rest.get(at) {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            _ => Err(Undecodable("a script's answer")),
        }
    }

    /// The whole number at this place.
    pub(super) fn integer(&self, at: usize) -> Result<i64, Undecodable> {
        self.rest.get(at).ok_or(Undecodable("a script's answer")).and_then(integer)
    }

    /// The text at this place.
    pub(super) fn text(&self, at: usize) -> Result<&str, Undecodable> {
        self.rest.get(at).ok_or(Undecodable("a script's answer")).and_then(text)
    }

    /// The units packed at this place.
    pub(super) fn units(&self, at: usize) -> Result<Vec<Units>, Undecodable> {
        let mut reader = Reader::new(self.bytes(at)?);
        let mut units = Vec::new();
        while !reader.rest().is_empty() {
            units.push(Units::new(reader.i64()?).ok_or(Undecodable("units"))?);
        }
        Ok(units)
    }

    /// The counter readings packed at this place.
    pub(super) fn readings(&self, at: usize) -> Result<Vec<CounterReading>, Undecodable> {
        let mut reader = Reader::new(self.bytes(at)?);
        let mut readings = Vec::new();
        while !reader.rest().is_empty() {
            readings.push(CounterReading {
                consumed: Units::new(reader.i64()?).ok_or(Undecodable("units"))?,
                reserved: Units::new(reader.i64()?).ok_or(Undecodable("units"))?,
                room: Some(reader.i64()?).filter(|&room| room != UNKNOWN_ROOM),
                resets_at_ms: Some(reader.i64()?).filter(|&at_ms| at_ms > 0),
                next_hold_ends_at_ms: Some(reader.i64()?).filter(|&at_ms| at_ms > self.now_ms),
                current: reader.u8()? == 1,
                would_refuse: false,
                conduct: Conduct::default(),
            });
        }
        Ok(readings)
    }

    /// The record packed at this place.
    pub(super) fn record(&self, at: usize) -> Result<Record, Undecodable> {
        Record::decode(self.bytes(at)?)
    }

    /// Small numbers, one a byte, at this place.
    pub(super) fn indexes(&self, at: usize) -> Result<Vec<usize>, Undecodable> {
        Ok(self.bytes(at)?.iter().map(|&byte| usize::from(byte)).collect())
    }
}

/// A whole number, also one that a script answered as text.
pub(super) fn integer(value: &Value) -> Result<i64, Undecodable> {
    match value {
        Value::Int(number) => Ok(*number),
        other => text(other)?.parse().map_err(|_| Undecodable("a number")),
    }
}

/// A text.
pub(super) fn text(value: &Value) -> Result<&str, Undecodable> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).map_err(|_| Undecodable("a text")),
        Value::SimpleString(text) => Ok(text),
        Value::Okay => Ok("OK"),
        _ => Err(Undecodable("a text")),
    }
}

/// A time argument; empty means Redis's own time.
pub(super) fn time_argument(now_ms: Option<i64>) -> Vec<u8> {
    now_ms.map(|now| now.to_string().into_bytes()).unwrap_or_default()
}

impl Gate {
    /// The first three arguments of every mutating script: expected epoch, the instant at which this call stops
    /// waiting, the time.
    pub(super) fn mutating(
        &self,
        partition: Partition,
        now_ms: Option<i64>,
    ) -> Result<Vec<Vec<u8>>, GateError> {
        let epoch = self.epoch(partition).ok_or(GateError::NoEpoch(partition))?;
        Ok(self.mutating_in(epoch, now_ms))
    }

    /// The same for a call that is valid in one epoch only: in another one it is an alarm.
    pub(super) fn mutating_in(&self, epoch: Epoch, now_ms: Option<i64>) -> Vec<Vec<u8>> {
        let not_after = self.redis_time_ms() + self.timeout_ms;
        let numbers = [epoch.0.to_string().into_bytes(), not_after.to_string().into_bytes()];
        numbers.into_iter().chain([time_argument(now_ms)]).collect()
    }

    /// The expected epoch as an argument.
    pub(super) fn epoch_argument(&self, partition: Partition) -> Result<Vec<u8>, GateError> {
        let epoch = self.epoch(partition).ok_or(GateError::NoEpoch(partition))?;
        Ok(epoch.0.to_string().into_bytes())
    }

    /// Calls a script once. An alarm, a late arrival and an outbox that has lost events are errors; everything else is
    /// the script's decision.
    pub(super) async fn run(
        &self,
        partition: Partition,
        script: Script,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<Reply, GateError> {
        let alarm = |reason: String| GateError::Alarm { partition, reason };
        let Some(digests) = self.digests.load_full() else {
            // Before the first check: a node that does not answer cannot be checked.
            self.guard.check()?;
            return Err(alarm("no scripts are loaded".into()));
        };
        let mut command = redis::cmd("EVALSHA");
        command.arg(digests.of(script));
        self.send(partition, script, command, keys, arguments).await
    }

    /// Runs `adopt` from its text, before the scripts are loaded: nothing else can then run on memory that is not
    /// trusted yet.
    pub(super) async fn run_adopt(
        &self,
        partition: Partition,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<Reply, GateError> {
        let mut command = redis::cmd("EVAL");
        command.arg(Script::Adopt.text("")?);
        self.send(partition, Script::Adopt, command, keys, arguments).await
    }

    async fn send(
        &self,
        partition: Partition,
        script: Script,
        mut command: redis::Cmd,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<Reply, GateError> {
        let alarm = |reason: String| GateError::Alarm { partition, reason };
        command.arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        for argument in arguments {
            command.arg(argument.as_slice());
        }
        let known = self.highest_known(partition);
        let _place = self.guard.enter(script)?;
        let (began, before_ms) = (Instant::now(), self.elapsed_ms());
        let answer = tokio::time::timeout(self.patience(), self.links.pick().send(&command)).await;
        self.guard.heard(began, &Heard::of(&answer));
        let value = answer
            .map_err(|_| GateError::Timeout)?
            .map_err(|error| script_error(partition, script, &error))?;
        let (reply, redis_ms) = Reply::read(value, asked_epoch(arguments))?;
        // Doubt is noted first: afterwards `not_after` no longer shows a step.
        self.guard.time_answered(Measurement { redis_ms, before_ms, after_ms: self.elapsed_ms() });
        self.note_redis_time(redis_ms);
        match reply.status {
            Status::Alarm => Err(alarm(match reply.text(0)? {
                "" => "its memory is missing".into(),
                found => format!("it is of epoch {found}"),
            })),
            Status::TooLate => Err(GateError::TooLate),
            Status::TooEarly => {
                Err(GateError::Unavailable("its clock is before the end of a closed period".into()))
            }
            _ => {
                self.check_memory(partition, script, &reply, known)?;
                Ok(reply)
            }
        }
    }

    /// An id below the highest known proves that the outbox has lost events, even if the server and its scripts are the
    /// same.
    pub(super) fn check_memory(
        &self,
        partition: Partition,
        script: Script,
        reply: &Reply,
        known: OutboxId,
    ) -> Result<(), GateError> {
        let is_event = script.appends() && reply.status == Status::Done && reply.id != OutboxId::default();
        let is_last = matches!(reply.status, Status::Unknown | Status::Cold | Status::AskLedger)
            || matches!(script, Script::Peek | Script::PeekRecord);
        let of_this_epoch = Some(known.epoch) == self.epoch(partition);
        let forgotten =
            (is_event && reply.id <= known) || (is_last && script_reads_last(script) && reply.id < known);
        if of_this_epoch && forgotten {
            let reason = format!("its outbox is at {} and was at {known}", reply.id);
            return Err(GateError::Alarm { partition, reason });
        }
        if is_event {
            self.note_cursor(partition, reply.id);
        }
        Ok(())
    }
}

/// The epoch that a call names: every script's first argument.
fn asked_epoch(arguments: &[Vec<u8>]) -> Epoch {
    let text = arguments.first().and_then(|argument| std::str::from_utf8(argument).ok());
    Epoch(text.and_then(|text| text.parse().ok()).unwrap_or_default())
}

/// Whether the script answers the outbox's last id when something is unknown to it.
fn script_reads_last(script: Script) -> bool {
    !matches!(script, Script::RestoreCounters | Script::Capacity | Script::Expire)
}

/// The gate's error for a fault of a script call.
fn script_error(partition: Partition, script: Script, error: &RedisError) -> GateError {
    let unavailable = || GateError::Unavailable(error.to_string());
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::NoScript) => {
            GateError::Alarm { partition, reason: "the node does not know the scripts".into() }
        }
        ErrorKind::Server(ServerErrorKind::ResponseError) => {
            GateError::Script { script: script.name(), message: error.to_string() }
        }
        ErrorKind::Server(_) => unavailable(),
        ErrorKind::Extension => match error.code() {
            Some("OOM" | "MISCONF" | "BUSY" | "NOREPLICAS" | "UNKILLABLE") => unavailable(),
            _ => GateError::Script { script: script.name(), message: error.to_string() },
        },
        _ if error.is_timeout() => GateError::Timeout,
        _ => unavailable(),
    }
}
