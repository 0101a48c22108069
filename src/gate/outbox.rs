//! Reads and trims the outboxes for the writer, on connections of its own.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::{Pipeline, Value};

use crate::domain::codec::Undecodable;
use crate::domain::event::EVENT_FIELD;
use crate::domain::ids::{Epoch, OutboxId, Partition};

use super::Gate;
use super::call::{integer, text};
use super::connections::plain_error;
use super::error::GateError;

/// Where to read an outbox from.
pub type OutboxFrom = (Partition, OutboxId);

/// Events of one outbox, each with its place.
pub type OutboxBatch = (Partition, Vec<(OutboxId, Vec<u8>)>);

impl Gate {
    /// Reads at most `count` events of each outbox from its place on, **inclusively**, in one pipeline. One that cannot
    /// be read is left out: it does not keep the others from being booked.
    pub async fn read_outbox(
        &self,
        from: &[OutboxFrom],
        count: usize,
    ) -> Result<Vec<OutboxBatch>, GateError> {
        if from.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::with_capacity(from.len());
        for (partition, place) in from {
            let command = pipeline.cmd("XRANGE").arg(self.keys.outbox(*partition));
            command.arg(place.to_string()).arg("+").arg("COUNT").arg(count);
        }
        let answers = self.send_for_writer(&pipeline, from.len()).await?;
        let entries = |((partition, _), answer): (&OutboxFrom, Value)| {
            let answer = answer.extract_error().map_err(|error| plain_error(&error));
            match answer.and_then(|answer| Ok(read_entries(answer)?)) {
                Err(GateError::Undecodable(_)) => None,
                events => Some(events.map(|events| (*partition, events))),
            }
        };
        from.iter().zip(answers).filter_map(entries).collect()
    }

    /// The epoch in each partition's memory, in one pipeline; none where the memory is missing.
    pub async fn adopted_epochs(
        &self,
        partitions: &[Partition],
    ) -> Result<Vec<(Partition, Option<Epoch>)>, GateError> {
        let mut pipeline = Pipeline::with_capacity(partitions.len());
        for partition in partitions {
            pipeline.cmd("HGET").arg(self.keys.meta(*partition)).arg("epoch");
        }
        let answers = self.send_for_writer(&pipeline, partitions.len()).await?;
        let epoch = |(partition, answer): (&Partition, Value)| {
            let answer = answer.extract_error().map_err(|error| plain_error(&error))?;
            let number = if answer == Value::Nil { None } else { u64::try_from(integer(&answer)?).ok() };
            Ok((*partition, number.map(Epoch)))
        };
        partitions.iter().zip(answers).map(epoch).collect()
    }

    async fn send_for_writer(&self, pipeline: &Pipeline, count: usize) -> Result<Vec<Value>, GateError> {
        let patience = self.patience() + self.options.connect_timeout;
        tokio::time::timeout(patience, self.outbox_link.send_all(pipeline, count))
            .await
            .map_err(|_| GateError::Timeout)?
            .map_err(|error| plain_error(&error))
    }

    /// Waits, at most `timeout`, until one of the outboxes has an event after its place. Returns those that have one.
    pub async fn wait_outbox(
        &self,
        after: &[OutboxFrom],
        timeout: Duration,
    ) -> Result<Vec<Partition>, GateError> {
        if after.is_empty() {
            tokio::time::sleep(timeout).await;
            return Ok(Vec::new());
        }
        let mut command = redis::cmd("XREAD");
        let block_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        command.arg("COUNT").arg(1).arg("BLOCK").arg(block_ms).arg("STREAMS");
        for (partition, _) in after {
            command.arg(self.keys.outbox(*partition));
        }
        for (_, place) in after {
            command.arg(place.to_string());
        }
        let patience = timeout + self.patience() + self.options.connect_timeout;
        let Ok(answer) = tokio::time::timeout(patience, self.bell_link.send(&command)).await else {
            self.bell_link.abandon();
            return Err(GateError::Timeout);
        };
        let names = read_names(answer.map_err(|error| plain_error(&error))?)?;
        let has_news = |(partition, _): &&OutboxFrom| names.contains(&self.keys.outbox(*partition));
        Ok(after.iter().filter(has_news).map(|(partition, _)| *partition).collect())
    }

    /// Drops the events before this place. The caller keeps the last booked one and its safety tail. Returns how many
    /// were dropped.
    pub async fn trim_outbox(&self, partition: Partition, below: OutboxId) -> Result<u64, GateError> {
        let key = self.keys.outbox(partition);
        let dropped = self.plain(redis::cmd("XTRIM").arg(key).arg("MINID").arg(below.to_string())).await?;
        Ok(u64::try_from(integer(&dropped)?).unwrap_or_default())
    }

    /// How many events the outbox holds.
    pub async fn outbox_length(&self, partition: Partition) -> Result<u64, GateError> {
        let length = self.plain(redis::cmd("XLEN").arg(self.keys.outbox(partition))).await?;
        Ok(u64::try_from(integer(&length)?).unwrap_or_default())
    }
}

/// The streams named in an answer of XREAD.
fn read_names(answer: Value) -> Result<BTreeSet<String>, Undecodable> {
    let streams = match answer {
        Value::Nil => Vec::new(),
        Value::Array(streams) => streams,
        _ => return Err(Undecodable("outboxes with news")),
    };
    let name = |stream: Value| match stream {
        Value::Array(parts) => Ok(text(parts.first().ok_or(Undecodable("an outbox with news"))?)?.to_owned()),
        _ => Err(Undecodable("an outbox with news")),
    };
    streams.into_iter().map(name).collect()
}

/// Reads an answer of XRANGE.
pub(super) fn read_entries(answer: Value) -> Result<Vec<(OutboxId, Vec<u8>)>, Undecodable> {
    let Value::Array(entries) = answer else { return Err(Undecodable("an outbox")) };
    entries.into_iter().map(read_entry).collect()
}

/// An entry that is not one event is read as empty bytes: the writer then quarantines it.
fn read_entry(entry: Value) -> Result<(OutboxId, Vec<u8>), Undecodable> {
    let Value::Array(parts) = entry else { return Err(Undecodable("an outbox entry")) };
    let mut parts = parts.into_iter();
    let id = parts.next().ok_or(Undecodable("an outbox entry"))?;
    let id = text(&id)?.parse().map_err(|_| Undecodable("an outbox id"))?;
    let event = match parts.next() {
        Some(Value::Array(fields)) => {
            let mut fields = fields.into_iter();
            match (fields.next(), fields.next(), fields.next()) {
                (Some(name), Some(Value::BulkString(event)), None) if text(&name) == Ok(EVENT_FIELD) => event,
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    };
    Ok((id, event))
}
