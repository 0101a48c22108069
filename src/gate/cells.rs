//! Reads counters from the cells that a plain path answers: the bytes that it wrote, or those that refused.

use crate::domain::algorithms::Parameters;
use crate::domain::algorithms::cell::{Cell, Moment};
use crate::domain::amount::Units;
use crate::domain::codec::Undecodable;
use crate::domain::counter::{Counter, need};
use crate::domain::punishment::Conduct;
use crate::domain::reservation::{CounterRef, Record};

use super::call::Reply;
use super::reserve::CounterReading;

/// The wait for the next hold to end where that time is not known, in ms.
const UNKNOWN_WAIT_MS: i64 = 1000;

/// Whether the plain paths of `reserve` and `consume` know the cells of these parameters.
pub(super) fn is_plain(parameters: &Parameters) -> bool {
    matches!(parameters, Parameters::Calendar(_) | Parameters::FixedWindow(_) | Parameters::SlidingCounter(_))
}

/// A counter's cell as it counts some work, and when that is forgotten.
#[derive(Debug, Clone)]
struct Counted {
    parameters: Parameters,
    cell: Cell,
    resets_at_ms: i64,
}

impl Counted {
    /// A cell that has moved on counts nothing of the work; nor does one of no bytes.
    fn decode(bytes: &[u8], parameters: Parameters, at: Moment) -> Result<Self, Undecodable> {
        let stored = if bytes.is_empty() { None } else { Some(Cell::decode(bytes)?) };
        let cell = parameters.load(stored.as_ref(), at).cell;
        let resets_at_ms = match parameters {
            Parameters::Calendar(calendar) => calendar.window.end_ms,
            Parameters::FixedWindow(fixed) => fixed.end_of(cell.mark),
            Parameters::SlidingCounter(sliding) => sliding.resets_at_ms(&cell, at.now_ms),
            _ => return Err(Undecodable("a cell of a plain path")),
        };
        Ok(Self { parameters, cell, resets_at_ms })
    }

    fn room(&self, capacity: i64) -> i64 {
        capacity - self.cell.consumed - self.cell.reserved
    }

    fn reading(&self, capacity: Option<i64>, now_ms: i64) -> Result<CounterReading, Undecodable> {
        Ok(CounterReading {
            consumed: Units::new(self.cell.consumed).ok_or(Undecodable("units"))?,
            reserved: Units::new(self.cell.reserved).ok_or(Undecodable("units"))?,
            room: capacity.map(|capacity| self.room(capacity)),
            resets_at_ms: Some(self.resets_at_ms),
            next_hold_ends_at_ms: Some(self.cell.next_end).filter(|&end_ms| end_ms > now_ms),
            current: true,
            would_refuse: false,
            conduct: Conduct::default(),
        })
    }

    /// The shortest wait for so many units that can help, in ms; none where no wait helps. Where only holds leave no
    /// room, the end of the next one is the earliest that can help.
    fn wait_ms(&self, need: i64, capacity: i64, now_ms: i64) -> Option<i64> {
        if need > capacity {
            return None;
        }
        let known_end_ms = Some(self.cell.next_end).filter(|&end_ms| end_ms > now_ms);
        let hold_ends_at_ms = known_end_ms.unwrap_or(now_ms + UNKNOWN_WAIT_MS);
        if let Parameters::SlidingCounter(sliding) = self.parameters {
            return Some(sliding.wait_ms(&self.cell, need, capacity, hold_ends_at_ms, now_ms));
        }
        let to_end_ms = (self.resets_at_ms - now_ms).max(0);
        let must_reset = need > capacity - self.cell.consumed;
        Some(if must_reset { to_end_ms } else { to_end_ms.min(hold_ends_at_ms - now_ms) })
    }
}

/// One counter of a reserve, with its figures.
pub(super) struct Standing<'a> {
    lines: &'a [(u8, i64)],
    capacity: i64,
    counted: Counted,
}

impl<'a> Standing<'a> {
    /// Reads all counters from the values at this place of the answer: all cells, then the capacities of the quotas.
    pub(super) fn of_all(
        reply: &Reply,
        at: usize,
        counters: &'a [Counter],
    ) -> Result<Vec<Self>, Undecodable> {
        let mut capacity_at = at + counters.len();
        let moment = Moment::new_work(reply.now_ms);
        let read = |(cell_at, counter): (usize, &'a Counter)| {
            let capacity = if counter.is_quota() {
                capacity_at += 1;
                reply.integer(capacity_at - 1)?
            } else {
                counter.refuses_above().get()
            };
            let counted = Counted::decode(reply.bytes(cell_at)?, counter.parameters, moment)?;
            Ok(Self { lines: &counter.lines, capacity, counted })
        };
        (at..).zip(counters).map(read).collect()
    }

    /// The counter's figures for an answer.
    pub(super) fn reading(&self, now_ms: i64) -> Result<CounterReading, Undecodable> {
        self.counted.reading(Some(self.capacity), now_ms)
    }

    /// The shortest wait for the amounts that can help, in ms; none where no wait helps.
    pub(super) fn wait_ms(&self, amounts: &[Units], now_ms: i64) -> Option<i64> {
        self.counted.wait_ms(need(self.lines, amounts), self.capacity, now_ms)
    }
}

/// What each line, in order, would get of what its counters have left after the lines before it.
pub(super) fn fit(amounts: &[Units], standings: &[Standing<'_>]) -> Vec<Units> {
    let mut rooms: Vec<i64> =
        standings.iter().map(|standing| standing.counted.room(standing.capacity)).collect();
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
    record: &Record,
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
    let moment = Moment::work_of(record.head.born_at_ms, reply.now_ms);
    // A record that counts by the calendar alone does not say when its windows end.
    let says_ends = counters.iter().any(|counter| counter.parameters.window().is_none());
    let read = |((cell_at, counter), capacity): ((usize, &CounterRef), Option<i64>)| {
        let bytes = reply.bytes(cell_at)?;
        let reading = Counted::decode(bytes, counter.parameters, moment)?.reading(capacity, reply.now_ms)?;
        let resets_at_ms = reading.resets_at_ms.filter(|_| says_ends);
        Ok(CounterReading { current: !bytes.is_empty(), resets_at_ms, ..reading })
    };
    (at..).zip(counters).zip(capacities).map(read).collect()
}
