//! By the time since the last call: one call is admitted in each length of time, however much it asks for. An
//! operation's `min_interval_seconds`; no limit names it.
//!
//! Exact to the millisecond. Nothing is given back: a call that was released was a call. Short memory: after a loss of
//! the gate's memory the next call is admitted. 32 bytes for each subject.
//!
//! The cell's mark is the last admitted call; consumed is 1 until the length has passed.

use super::cell::{Cell, Loaded, Moment};
use super::{Counting, Definition, Fields, LineHold};
use crate::domain::amount::{Decimals, UNITS_MAX, Units};
use crate::domain::codec::{Reader, Undecodable, Write};
use crate::domain::guard::GuardSeconds;
use crate::domain::limit::Span;
use crate::domain::period::Windows;

/// The least time between two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interval {
    /// How long.
    pub length: GuardSeconds,
}

/// The same in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// How long, in ms.
    pub length_ms: i64,
}

impl Definition for Interval {
    type Parameters = Parameters;
    const IS_RESTORABLE: bool = false;
    const IS_OF_LIMITS: bool = false;

    fn read(_: &Fields) -> Result<Self, String> {
        Err("the algorithm `interval` belongs to no limit: give an operation `min_interval_seconds`".into())
    }

    fn write(&self, _: &mut Fields) {}

    fn signature(&self) -> Vec<String> {
        vec!["interval".into()]
    }

    fn span(&self) -> Span {
        Span::Seconds(self.length.get())
    }

    fn parameters(&self, _: &Windows, _: Decimals, _: Units) -> Parameters {
        Parameters { length_ms: self.length.ms() }
    }
}

impl Counting for Parameters {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_8(self.length_ms);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Undecodable> {
        let length_ms = reader.i64()?;
        if length_ms < 1 {
            return Err(Undecodable("the length of an interval"));
        }
        Ok(Self { length_ms })
    }

    fn need(&self, units: i64, _: bool) -> i64 {
        units.signum()
    }

    fn most(&self, room: i64) -> i64 {
        if room > 0 { i64::MAX } else { 0 }
    }

    fn held(&self, lines: &[LineHold]) -> i64 {
        let is_held = |line: &LineHold| line.held > line.consumed;
        i64::from(lines.iter().any(is_held))
    }

    fn ends_at_ms(&self, at_ms: i64, _: i64) -> i64 {
        at_ms.saturating_add(self.length_ms)
    }

    fn load(&self, cell: Option<&Cell>, at: Moment) -> Loaded {
        let now_ms = at.now_ms;
        // A clock that went back further than the length tells nothing of the last call.
        let lasts = |cell: &&Cell| (now_ms - cell.mark).abs() < self.length_ms;
        let current = cell.filter(|cell| at.admits() && lasts(cell));
        Loaded {
            is_current: current.is_some(),
            is_later: false,
            counted_at_ms: at.counted_at_ms(),
            cell: current.cloned().unwrap_or_else(|| Cell { mark: now_ms, ..Cell::default() }),
        }
    }

    fn is_open(&self, _: &Loaded, _: i64) -> bool {
        false
    }

    fn room(&self, consumed: i64, _: i64, capacity: i64) -> i64 {
        if consumed > 0 && capacity < UNITS_MAX { 0 } else { capacity }
    }

    fn hold(&self, loaded: &mut Loaded, units: i64, _: i64) {
        self.charge(loaded, units);
    }

    fn charge(&self, loaded: &mut Loaded, units: i64) {
        if units > 0 {
            loaded.cell = Cell { mark: loaded.counted_at_ms, consumed: 1, ..Cell::default() };
        }
    }

    fn settle(&self, _: &mut Loaded, _: i64) {}

    fn give_back(&self, _: &mut Loaded, _: i64) {}
}
