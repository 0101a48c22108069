//! The contents of the outboxes: how much waits to be booked, and how old the oldest booked event is.

use redis::{Pipeline, Value};

use super::Gate;
use super::call::{integer, text};
use super::error::GateError;
use super::outbox::read_entries;
use super::watch::OutboxState;
use crate::domain::codec::Undecodable;
use crate::domain::event::gate_time_ms;
use crate::domain::ids::{OutboxId, Partition};

/// How many waiting events are read to estimate the size of all.
const SAMPLES: u64 = 32;
/// Into how many stretches an outbox taken over from another writer is divided.
const STRETCHES: u64 = 8;

/// The events that wait to be booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// The gate time of the oldest event (unix ms).
    pub oldest_ms: Option<i64>,
    /// The mean size in bytes of the events that were read; none when no event waits.
    pub event_bytes: Option<u64>,
}

/// A stretch of booked events that are still in an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxStretch {
    /// Its last event.
    pub last: OutboxId,
    /// How much older its last event is than the newest booked one, in ms.
    pub age_ms: i64,
    /// The size of its events in bytes, estimated from its last one.
    pub bytes: u64,
}

/// Where the booked events of an outbox begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailStart {
    /// Nothing was ever dropped.
    Whole,
    /// Events before this gate time (unix ms) were dropped.
    At(i64),
}

impl Gate {
    /// Reads the oldest waiting event of each of these outboxes, and a sample of the others to estimate their size.
    pub async fn waiting(&self, standings: &[OutboxState]) -> Result<Waiting, GateError> {
        let waiting: Vec<_> = standings.iter().filter(|standing| standing.waiting() > 0).collect();
        if waiting.is_empty() {
            return Ok(Waiting::default());
        }
        let mut pipeline = Pipeline::new();
        for standing in &waiting {
            let command = pipeline.cmd("XRANGE").arg(self.keys.outbox(standing.partition));
            command.arg(format!("({}", standing.booked)).arg(&["+", "COUNT", "1"]);
        }
        let samples = sampled(&waiting, rand::random());
        for (partition, place) in &samples {
            let command = pipeline.cmd("XRANGE").arg(self.keys.outbox(*partition));
            command.arg(place.to_string()).arg(&["+", "COUNT", "1"]);
        }
        let mut answers = self.send_watching(&pipeline, waiting.len() + samples.len()).await?.into_iter();
        let mut found = Waiting::default();
        for answer in answers.by_ref().take(waiting.len()) {
            let at_ms = read_entries(answer)?.first().and_then(|(_, event)| gate_time_ms(event));
            found.oldest_ms = found.oldest_ms.into_iter().chain(at_ms).min();
        }
        let (mut bytes, mut events) = (0, 0_u64);
        for answer in answers {
            if let Some((_, event)) = read_entries(answer)?.first() {
                bytes += size(event);
                events += 1;
            }
        }
        found.event_bytes = bytes.checked_div(events);
        Ok(found)
    }

    /// The events of each of these outboxes up to the given place, of that place's epoch, in a few stretches, oldest
    /// first.
    pub async fn booked_stretches(
        &self,
        up_to: &[(Partition, OutboxId)],
    ) -> Result<Vec<(Partition, Vec<OutboxStretch>)>, GateError> {
        let mut firsts = Pipeline::with_capacity(up_to.len());
        for (partition, place) in up_to {
            let command = firsts.cmd("XRANGE").arg(self.keys.outbox(*partition));
            command.arg(format!("{}-0", place.epoch.0)).arg(place.to_string()).arg("COUNT").arg(1);
        }
        let answers = self.send_watching(&firsts, up_to.len()).await?;
        let mut stretches = Vec::new();
        for ((partition, place), answer) in up_to.iter().zip(answers) {
            // An outbox that cannot be read has no tail that could be trimmed.
            let first = read_entries(answer).ok().and_then(|entries| Some(entries.first()?.0));
            stretches.push((*partition, first.map_or_else(Vec::new, |first| evenly(first, *place))));
        }
        let count = stretches.iter().map(|(_, ends)| ends.len()).sum();
        let mut ends = Pipeline::with_capacity(count);
        for (partition, places) in &stretches {
            for (place, _) in places {
                let command = ends.cmd("XRANGE").arg(self.keys.outbox(*partition));
                command.arg(place.to_string()).arg("+").arg("COUNT").arg(1);
            }
        }
        let mut answers =
            if count == 0 { Vec::new() } else { self.send_watching(&ends, count).await? }.into_iter();
        let mut found = Vec::with_capacity(stretches.len());
        for (partition, places) in stretches {
            let mut read = Vec::with_capacity(places.len());
            for (last, events) in places {
                let entries = read_entries(answers.next().unwrap_or(Value::Nil))?;
                let event = entries.first().map(|(_, event)| event.as_slice()).unwrap_or_default();
                read.push((last, gate_time_ms(event), size(event).saturating_mul(events)));
            }
            let newest_ms = read.iter().filter_map(|(_, at_ms, _)| *at_ms).max();
            let age_ms = |at_ms: Option<i64>| newest_ms.zip(at_ms).map_or(0, |(newest, at)| newest - at);
            let stretch = |(last, at_ms, bytes)| OutboxStretch { last, age_ms: age_ms(at_ms), bytes };
            found.push((partition, read.into_iter().map(stretch).collect()));
        }
        Ok(found)
    }

    /// From when on each outbox still has every event.
    pub async fn tail_starts(&self) -> Result<Vec<(Partition, TailStart)>, GateError> {
        let partitions: Vec<_> = self.partitions().collect();
        let mut pipeline = Pipeline::with_capacity(partitions.len());
        for partition in &partitions {
            pipeline.cmd("XINFO").arg("STREAM").arg(self.keys.outbox(*partition));
        }
        let answers = self.send_watching(&pipeline, partitions.len()).await?;
        let start = |(partition, answer): (Partition, Value)| Ok((partition, read_tail_start(answer)?));
        partitions.into_iter().zip(answers).map(start).collect()
    }
}

/// Evenly spread places among all waiting events, starting at a random one.
fn sampled(waiting: &[&OutboxState], random: u64) -> Vec<(Partition, OutboxId)> {
    let total: u64 = waiting.iter().map(|standing| standing.waiting()).sum();
    let samples = total.min(SAMPLES);
    let step = total / samples.max(1);
    let mut places = Vec::new();
    let mut skipped = 0;
    let mut next = random % step.max(1);
    for standing in waiting {
        let here = standing.waiting();
        while next < skipped + here {
            let sequence = standing.last.sequence.saturating_sub(here - 1 - (next - skipped));
            places.push((standing.partition, OutboxId { epoch: standing.last.epoch, sequence }));
            next += step.max(1);
        }
        skipped += here;
    }
    places
}

/// Divides the events of one epoch from `first` to `last` into stretches: the last event of each, and how many it has.
fn evenly(first: OutboxId, last: OutboxId) -> Vec<(OutboxId, u64)> {
    let events = last.sequence.saturating_sub(first.sequence).saturating_add(1);
    let stretches = events.min(STRETCHES);
    let end = |stretch: u64| events / stretches * stretch + (events % stretches).min(stretch);
    let stretch = |number: u64| {
        let sequence = first.sequence + end(number + 1) - 1;
        (OutboxId { epoch: last.epoch, sequence }, end(number + 1) - end(number))
    };
    (0..stretches).map(stretch).collect()
}

/// Reads an answer of XINFO STREAM; an outbox without events has lost none.
fn read_tail_start(answer: Value) -> Result<TailStart, Undecodable> {
    let Value::Array(fields) = answer else { return Ok(TailStart::Whole) };
    let field = |name: &str| {
        let mut pairs = fields.chunks_exact(2);
        let found = pairs.find(|pair| pair.first().is_some_and(|key| text(key) == Ok(name)));
        found.and_then(|pair| pair.last()).ok_or(Undecodable("an outbox's facts"))
    };
    if integer(field("length")?)? == integer(field("entries-added")?)? {
        return Ok(TailStart::Whole);
    }
    let first = read_entries(Value::Array(vec![field("first-entry")?.clone()]))?;
    Ok(first.first().and_then(|(_, event)| gate_time_ms(event)).map_or(TailStart::Whole, TailStart::At))
}

fn size(event: &[u8]) -> u64 {
    u64::try_from(event.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(partition: u16, booked: &str, last: &str) -> OutboxState {
        let (booked, last) = (booked.parse().unwrap(), last.parse().unwrap());
        OutboxState { partition: Partition::new(partition).unwrap(), booked, last }
    }

    #[test]
    fn samples_stand_among_the_waiting_events_in_proportion_to_how_many_wait() {
        let all = [standing(0, "3-9", "3-10"), standing(1, "3-99", "3-9999"), standing(2, "2-7", "4-4")];
        let waiting: Vec<_> = all.iter().collect();
        for random in [0, 1, 17, u64::MAX] {
            let places = sampled(&waiting, random);
            assert!((31..=34).contains(&places.len()), "{places:?}");
            for (partition, place) in places {
                let of = all[usize::from(partition.number())];
                assert!(place > of.booked && place <= of.last, "{partition} {place}");
            }
        }
        let few = [standing(0, "3-9", "3-12")];
        let places = sampled(&few.iter().collect::<Vec<_>>(), 5);
        let ids: Vec<_> = places.iter().map(|(_, place)| place.to_string()).collect();
        assert_eq!(ids, ["3-10", "3-11", "3-12"]);
    }

    #[test]
    fn stretches_cover_every_event_once() {
        for (first, last) in [("1-0", "1-0"), ("1-5", "1-11"), ("2-100", "2-1003")] {
            let (first, last) = (first.parse::<OutboxId>().unwrap(), last.parse::<OutboxId>().unwrap());
            let stretches = evenly(first, last);
            assert_eq!(stretches.last().map(|(end, _)| *end), Some(last));
            let events: u64 = stretches.iter().map(|(_, events)| events).sum();
            assert_eq!(events, last.sequence - first.sequence + 1);
            assert!(stretches.windows(2).all(|pair| pair[0].0 < pair[1].0), "{stretches:?}");
        }
    }
}
