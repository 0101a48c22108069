//! By a bucket that refills steadily: bursts up to its capacity, and no more than the refill in the long run.
//!
//! Exact to the millisecond: in any stretch of time, at most the capacity and what refills in it. Units that return
//! unused count as if they had never been taken. A return may be too strict by less than a unit, and by more only where
//! more than eight low points would have to be remembered. Short memory: after a loss of the gate's memory it is full.
//! 64 to 176 bytes for each counter.
//!
//! `consumed` is the level: units taken and not yet refilled, holds included. `reserved` are the open holds, which are
//! shown and not added. Own numbers: `since  fraction`, then up to eight times `at  low`: the lowest level from each
//! instant on.

use super::bucket::{self, Drain};
use super::cell::{Cell, Loaded, Moment};
use super::{Counting, Definition, Fields, SpanSeconds};
use crate::domain::amount::{Amount, Decimals, Units};
use crate::domain::codec::{Reader, Undecodable};
use crate::domain::field_error::FieldError;
use crate::domain::limit::Span;
use crate::domain::period::Windows;

/// How many low points are remembered.
const LOWS_MAX: usize = 8;

/// The refill. The bucket's size is the limit's capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    /// The amount that comes back.
    pub refill: Amount,
    /// The seconds in which it does.
    pub per_seconds: SpanSeconds,
}

/// The same in the meter's smallest units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// How fast its level sinks.
    pub refill: Drain,
}

impl Definition for TokenBucket {
    type Parameters = Parameters;
    const IS_RESTORABLE: bool = false;

    fn read(fields: &Fields) -> Result<Self, String> {
        fields.only("token_bucket", &["refill", "per_seconds"])?;
        let refill = fields.refill.ok_or("missing field `refill`")?;
        let per_seconds = fields.per_seconds.ok_or("missing field `per_seconds`")?;
        Ok(Self { refill, per_seconds })
    }

    fn write(&self, fields: &mut Fields) {
        fields.refill = Some(self.refill);
        fields.per_seconds = Some(self.per_seconds);
    }

    /// With another refill the counter goes on with the same level, as with another capacity.
    fn signature(&self) -> Vec<String> {
        vec!["token_bucket".into(), self.per_seconds.get().to_string()]
    }

    fn span(&self) -> Span {
        Span::Refill { refill: self.refill, per_seconds: self.per_seconds.get() }
    }

    fn errors(&self, capacity: Amount, decimals: Decimals) -> Vec<FieldError> {
        bucket::errors("refill", self.refill, self.per_seconds, capacity, decimals)
    }

    fn capacity_max(&self, decimals: Decimals) -> i64 {
        Drain::of(self.refill, self.per_seconds, decimals).capacity_max()
    }

    fn parameters(&self, _: &Windows, decimals: Decimals, _: Units) -> Parameters {
        Parameters { refill: Drain::of(self.refill, self.per_seconds, decimals) }
    }
}

impl Counting for Parameters {
    fn encode(&self, out: &mut Vec<u8>) {
        self.refill.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Undecodable> {
        Ok(Self { refill: Drain::decode(reader)? })
    }

    fn ends_at_ms(&self, at_ms: i64, capacity: i64) -> i64 {
        at_ms.saturating_add(self.refill.wait_ms(capacity, 0))
    }

    fn load(&self, cell: Option<&Cell>, at: Moment) -> Loaded {
        let counted_at_ms = at.counted_at_ms();
        // A cell that is further ahead than its level takes to drain was written by a clock that had leapt: it is
        // dropped.
        let stands = |cell: &&Cell| {
            let full_ms = self.refill.wait_ms(cell.consumed, Own::read(cell).fraction);
            !at.admits() || at.now_ms >= cell.mark - full_ms
        };
        let stored = cell.filter(stands);
        let mut cell = stored.cloned().unwrap_or_else(|| Cell { mark: counted_at_ms, ..Cell::default() });
        let mut own = Own::read(&cell);
        own.since_ms = match stored {
            Some(_) if at.admits() => own.since_ms.min(counted_at_ms),
            Some(_) => own.since_ms,
            None => counted_at_ms,
        };
        let touched_at_ms = cell.mark.max(at.now_ms);
        (cell.consumed, own.fraction) =
            self.refill.after(cell.consumed, own.fraction, touched_at_ms - cell.mark);
        cell.mark = touched_at_ms;
        own.note_low(touched_at_ms, cell.consumed);
        let is_current = stored.is_some() && counted_at_ms >= own.since_ms;
        own.write(&mut cell);
        Loaded { cell, counted_at_ms, is_current, is_later: false }
    }

    fn is_open(&self, loaded: &Loaded, _: i64) -> bool {
        loaded.is_current
    }

    fn room(&self, consumed: i64, _: i64, capacity: i64) -> i64 {
        capacity - consumed
    }

    fn hold(&self, loaded: &mut Loaded, units: i64, ends_at_ms: i64) {
        loaded.cell.consumed += units;
        loaded.cell.hold(units, ends_at_ms);
    }

    fn settle(&self, loaded: &mut Loaded, units: i64) {
        loaded.cell.let_go(units);
    }

    /// Counts as if only what was consumed had been taken: units that the bucket refilled meanwhile in any case do not
    /// come back twice.
    fn give_back(&self, loaded: &mut Loaded, units: i64) {
        let cell = &mut loaded.cell;
        let mut own = Own::read(cell);
        cell.let_go(units);
        let since = |low: &&mut Low| low.at_ms > loaded.counted_at_ms;
        let lowest = own.lows.iter_mut().filter(since).map(|low| low.level).min();
        let now = own.whole(cell.consumed);
        let returned = units.min(now).min(lowest.unwrap_or(now));
        cell.consumed -= returned;
        own.lows.iter_mut().filter(since).for_each(|low| low.level -= returned);
        own.write(cell);
    }
}

/// The lowest level from an instant on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Low {
    at_ms: i64,
    level: i64,
}

/// A bucket's own numbers.
struct Own {
    /// The first work in it.
    since_ms: i64,
    /// The part of a unit that has drained, in parts of `per_ms`.
    fraction: i64,
    lows: Vec<Low>,
}

impl Own {
    fn read(cell: &Cell) -> Self {
        let (front, lows) = cell.own.split_at(cell.own.len().min(2));
        let number = |at: usize| front.get(at).copied().unwrap_or_default();
        let low = |pair: &[i64]| Low { at_ms: pair[0], level: pair[1] };
        Self { since_ms: number(0), fraction: number(1), lows: lows.chunks_exact(2).map(low).collect() }
    }

    fn write(self, cell: &mut Cell) {
        let lows = self.lows.iter().flat_map(|low| [low.at_ms, low.level]);
        cell.own = [self.since_ms, self.fraction].into_iter().chain(lows).collect();
    }

    /// The whole units of a level.
    fn whole(&self, level: i64) -> i64 {
        level - i64::from(self.fraction > 0)
    }

    fn note_low(&mut self, at_ms: i64, level: i64) {
        let level = self.whole(level);
        while self.lows.last().is_some_and(|low| low.level >= level) {
            self.lows.pop();
        }
        self.lows.push(Low { at_ms, level });
        if self.lows.len() > LOWS_MAX {
            let oldest = self.lows.remove(0);
            self.lows[0].level = self.lows[0].level.min(oldest.level);
        }
    }
}
