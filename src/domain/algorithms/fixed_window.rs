//! By windows of one length, which begin with the first use or at multiples of the length since 1970.
//!
//! Exact: at most the capacity in each window. Around the turn of a window, up to twice the capacity may be used within
//! a short time. Short memory: after a loss of the gate's memory it starts at zero. 32 bytes for each counter.
//!
//! The cell's mark is the first use in its window: work since then is in the cell, even if memory was lost within an
//! aligned window.

use super::cell::{Cell, Loaded, Moment};
use super::{Counting, Definition, Fields, SpanSeconds};
use crate::domain::amount::{Decimals, Units};
use crate::domain::codec::{Reader, Undecodable, Write};
use crate::domain::limit::Span;
use crate::domain::period::Windows;

/// The length of its windows, and where they begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    /// Their length.
    pub window_seconds: SpanSeconds,
    /// Whether they begin at multiples of their length since 1970, and not with the first use.
    pub aligned: bool,
}

/// The same in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// Their length in ms.
    pub length_ms: i64,
    /// Whether they begin at multiples of their length since 1970.
    pub aligned: bool,
}

impl Definition for FixedWindow {
    type Parameters = Parameters;
    const IS_RESTORABLE: bool = false;

    fn read(fields: &Fields) -> Result<Self, String> {
        fields.only("fixed_window", &["window_seconds", "aligned"])?;
        let window_seconds = fields.window_seconds.ok_or("missing field `window_seconds`")?;
        Ok(Self { window_seconds, aligned: fields.aligned.unwrap_or_default() })
    }

    fn write(&self, fields: &mut Fields) {
        fields.window_seconds = Some(self.window_seconds);
        fields.aligned = Some(self.aligned);
    }

    fn signature(&self) -> Vec<String> {
        let start = if self.aligned { "aligned" } else { "first use" };
        vec!["fixed_window".into(), self.window_seconds.get().to_string(), start.into()]
    }

    fn span(&self) -> Span {
        Span::Seconds(self.window_seconds.get())
    }

    fn parameters(&self, _: &Windows, _: Decimals, _: Units) -> Parameters {
        Parameters { length_ms: self.window_seconds.ms(), aligned: self.aligned }
    }
}

impl Counting for Parameters {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_8(self.length_ms);
        out.put_byte(u8::from(self.aligned));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Undecodable> {
        let length_ms = reader.i64()?;
        if length_ms < 1 {
            return Err(Undecodable("the length of a window"));
        }
        Ok(Self { length_ms, aligned: reader.u8()? == 1 })
    }

    fn has_windows(&self) -> bool {
        true
    }

    fn ends_at_ms(&self, at_ms: i64, _: i64) -> i64 {
        at_ms.saturating_add(self.length_ms)
    }

    fn is_open(&self, loaded: &Loaded, now_ms: i64) -> bool {
        loaded.is_current && now_ms < self.end_of(loaded.cell.mark)
    }

    fn load(&self, cell: Option<&Cell>, at: Moment) -> Loaded {
        let counted_at_ms = at.counted_at_ms();
        let has_begun = |cell: &Cell| {
            counted_at_ms >= cell.mark || (at.admits() && counted_at_ms >= cell.mark - self.length_ms)
        };
        let goes_on = |cell: &&Cell| has_begun(cell) && counted_at_ms < self.end_of(cell.mark);
        let current = cell.filter(goes_on).cloned();
        Loaded {
            is_current: current.is_some(),
            is_later: false,
            counted_at_ms,
            cell: current.unwrap_or_else(|| Cell { mark: counted_at_ms, ..Cell::default() }),
        }
    }
}

impl Parameters {
    /// When the window ends whose first use is at `mark` (unix ms).
    pub fn end_of(&self, mark: i64) -> i64 {
        let into_window_ms = if self.aligned { mark.rem_euclid(self.length_ms) } else { 0 };
        mark - into_window_ms + self.length_ms
    }
}
