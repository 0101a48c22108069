//! Reads counters from the cells that a plain path answers: the bytes that it wrote, or those that refused.

use crate::domain::amount::Units;
use crate::domain::codec::{Reader, Undecodable};
use crate::domain::counter::{Counter, need};
use crate::domain::punishment::Conduct;
use crate::domain::reservation::CounterRef;

use super::call::Reply;
use super::reserve::CounterReading;

/// The wait for the next hold to end where that time is not known, in ms.
const UNKNOWN_WAIT_MS: i64 = 1000;

/// A calendar's cell, as it counts in one window.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    consumed: i64,
    reserved: i64,
    next_end_ms: i64,
}

impl Cell {
    /// A cell of another window counts nothing yet.
    fn decode(bytes: &[u8], window_start_ms: i64) -> Result<Self, Undecodable> {
        let mut reader = Reader::new(bytes);
        let mark = reader.i64()?;
        let cell = Self { consumed: reader.i64()?, reserved: reader.i64()?, next_end_ms: reader.i64()? };
        Ok(if mark == window_start_ms { cell } else { Self::default() })
    }

    fn room(&self, capacity: i64) -> i64 {
        capacity - self.consumed - self.reserved
    }

    fn reading(&self, capacity: Option<i64>, now_ms: i64) -> Result<CounterReading, Undecodable> {
        Ok(CounterReading {
            consumed: Units::new(self.consumed).ok_or(Undecodable("units"))?,
            reserved: Units::new(self.reserved).ok_or(Undecodable("units"))?,
            room: capacity.map(|capacity| self.room(capacity)),
            resets_at_ms: None,
            next_hold_ends_at_ms: Some(self.next_end_ms).filter(|&end_ms| end_ms > now_ms),
            current: true,
            would_refuse: false,
            conduct: Conduct::default(),
        })
    }
}

/// One counter of a reserve, with its figures.
pub(super) struct Standing<'a> {
    lines: &'a [(u8, i64)],
    capacity: i64,
    window_end_ms: i64,
    cell: Cell,
}

impl<'a> Standing<'a> {
    /// Reads all counters from the values at this place of the answer: all cells, then the capacities of the quotas.
    pub(super) fn of_all(
        reply: &Reply,
        at: usize,
        counters: &'a [Counter],
    ) -> Result<Vec<Self>, Undecodable> {
        let mut capacity_at = at + counters.len();
        let read = |(cell_at, counter): (usize, &'a Counter)| {
            let window = counter.window().ok_or(Undecodable("a cell of the calendar"))?;
            let capacity = if counter.is_quota() {
                capacity_at += 1;
                reply.integer(capacity_at - 1)?
            } else {
                counter.refuses_above().get()
            };
            let cell = Cell::decode(reply.bytes(cell_at)?, window.start_ms)?;
            Ok(Self { lines: &counter.lines, capacity, window_end_ms: window.end_ms, cell })
        };
        (at..).zip(counters).map(read).collect()
    }

    /// The counter's figures for an answer.
    pub(super) fn reading(&self, now_ms: i64) -> Result<CounterReading, Undecodable> {
        let reading = self.cell.reading(Some(self.capacity), now_ms)?;
        Ok(CounterReading { resets_at_ms: Some(self.window_end_ms), ..reading })
    }

    /// The shortest wait for the amounts that can help, in ms; none where no wait helps. Where only holds leave no
    /// room, the end of the next one is the earliest that can help.
    pub(super) fn wait_ms(&self, amounts: &[Units], now_ms: i64) -> Option<i64> {
        let need = need(self.lines, amounts);
        let to_end_ms = (self.window_end_ms - now_ms).max(0);
        if need > self.capacity {
            return None;
        }
        if need > self.capacity - self.cell.consumed {
            return Some(to_end_ms);
        }
        let until_next_ms = self.cell.next_end_ms - now_ms;
        Some(if until_next_ms > 0 { until_next_ms } else { UNKNOWN_WAIT_MS }.min(to_end_ms))
    }
}

/// What each line, in order, would get of what its counters have left after the lines before it.
pub(super) fn fit(amounts: &[Units], standings: &[Standing<'_>]) -> Vec<Units> {
    let mut rooms: Vec<i64> =
        standings.iter().map(|standing| standing.cell.room(standing.capacity)).collect();
    let mut granted = Vec::with_capacity(amounts.len());
    for (line, asked) in amounts.iter().enumerate() {
        let weight_of = |standing: &Standing<'_>| {
            let counted = standing.lines.iter().find(|(of_line, _)| usize::from(*of_line) == line);
            counted.map(|(_, weight)| *weight)
        };
        let weights: Vec<_> = standings.iter().map(weight_of).collect();
        let fitting =
            weights.iter().zip(&rooms).filter_map(|(weight, room)| Some(room.div_euclid((*weight)?)));
        let units = fitting.fold(asked.get(), i64::min).max(0);
        for (weight, room) in weights.iter().zip(&mut rooms) {
            *room -= weight.unwrap_or_default() * units;
        }
        granted.push(Units::new(units).unwrap_or_default());
    }
    granted
}

/// Reads a record's counters from the values at this place: all cells, '' where the counter's window has moved on, then
/// for each quota its number and its capacity.
pub(super) fn resolved_readings(
    reply: &Reply,
    at: usize,
    counters: &[CounterRef],
) -> Result<Vec<CounterReading>, Undecodable> {
    let mut capacities = vec![None; counters.len()];
    let mut capacity_at = at + counters.len();
    while capacity_at < reply.len() {
        let number =
            usize::try_from(reply.integer(capacity_at)?).map_err(|_| Undecodable("a counter's number"))?;
        let capacity = capacities.get_mut(number).ok_or(Undecodable("a counter's number"))?;
        *capacity = Some(reply.integer(capacity_at + 1)?);
        capacity_at += 2;
    }
    let read = |((cell_at, counter), capacity): ((usize, &CounterRef), Option<i64>)| {
        let window = counter.parameters.window().ok_or(Undecodable("a cell of the calendar"))?;
        let bytes = reply.bytes(cell_at)?;
        let cell = if bytes.is_empty() { Cell::default() } else { Cell::decode(bytes, window.start_ms)? };
        Ok(CounterReading { current: !bytes.is_empty(), ..cell.reading(capacity, reply.now_ms)? })
    };
    (at..).zip(counters).zip(capacities).map(read).collect()
}
