//! By windows of the calendar: the local hour, day, week, month or billing period.
//!
//! Exact: at most the capacity in each window, and the ledger can restore what was counted. Around the turn of a
//! window, up to twice the capacity may be used within a short time. 32 bytes for each counter.

use super::cell::{Cell, Loaded, Moment};
use super::{Counting, Definition, Fields};
use crate::domain::amount::{Decimals, Units};
use crate::domain::codec::{Reader, Undecodable, Write};
use crate::domain::limit::Span;
use crate::domain::period::{Window, WindowKind, Windows};

/// The kind of window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Calendar {
    /// The kind.
    pub window: WindowKind,
}

/// The current window. A record has its end only where a line is `cap`; otherwise the start is in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// Start and end.
    pub window: Window,
}

impl Definition for Calendar {
    type Parameters = Parameters;
    const IS_RESTORABLE: bool = true;

    fn read(fields: &Fields) -> Result<Self, String> {
        fields.only("calendar", &["window"])?;
        let window = fields.window.ok_or("missing field `window`")?;
        Ok(Self { window })
    }

    fn write(&self, fields: &mut Fields) {
        fields.window = Some(self.window);
    }

    fn signature(&self) -> Vec<String> {
        vec!["calendar".into(), self.window.as_str().into()]
    }

    fn span(&self) -> Span {
        Span::Calendar(self.window)
    }

    fn parameters(&self, windows: &Windows, _: Decimals, _: Units) -> Parameters {
        Parameters { window: windows.get(self.window) }
    }
}

impl Counting for Parameters {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_8(self.window.start_ms);
        out.put_8(self.window.end_ms);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Undecodable> {
        Ok(Self { window: Window { start_ms: reader.i64()?, end_ms: reader.i64()? } })
    }

    fn window(&self) -> Option<Window> {
        Some(self.window)
    }

    fn has_windows(&self) -> bool {
        true
    }

    fn ends_at_ms(&self, _: i64, _: i64) -> i64 {
        self.window.end_ms
    }

    fn is_open(&self, loaded: &Loaded, now_ms: i64) -> bool {
        now_ms < self.window.end_ms && !loaded.is_later
    }

    fn load(&self, cell: Option<&Cell>, at: Moment) -> Loaded {
        let start_ms = self.window.start_ms;
        let current = cell.filter(|cell| cell.mark == start_ms).cloned();
        Loaded {
            is_current: current.is_some(),
            is_later: cell.is_some_and(|cell| cell.mark > start_ms),
            counted_at_ms: at.counted_at_ms(),
            cell: current.unwrap_or_else(|| Cell { mark: start_ms, ..Cell::default() }),
        }
    }
}
