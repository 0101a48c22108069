//! By windows of the calendar: the local hour, day, week, month or billing period.
//!
//! Exact: at most the capacity in each window, and the ledger can tell what was counted. Around the turn of a window
//! up to twice the capacity may be used within a short time. 32 bytes a counter.

use super::cell::{Cell, Loaded};
use super::{Counting, Definition, Fields};
use crate::domain::codec::{Reader, Undecodable, Write};
use crate::domain::limit::Span;
use crate::domain::period::{Window, WindowKind, Windows};

/// Over which window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Calendar {
    /// Its kind.
    pub window: WindowKind,
}

/// The window of now. A record says its end only where a line is `cap`; elsewhere the start stands there.
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

    fn parameters(&self, windows: &Windows) -> Parameters {
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

    fn ends_at_ms(&self, _: i64) -> i64 {
        self.window.end_ms
    }

    fn is_open(&self, loaded: &Loaded, now_ms: i64) -> bool {
        now_ms < self.window.end_ms && !loaded.is_later
    }

    fn load(&self, cell: Option<Cell>, _: i64, _: bool) -> Loaded {
        let start_ms = self.window.start_ms;
        let empty = Cell { mark: start_ms, ..Cell::default() };
        match cell {
            Some(cell) if cell.mark == start_ms => Loaded { cell, is_current: true, is_later: false },
            Some(cell) => Loaded { cell: empty, is_current: false, is_later: cell.mark > start_ms },
            None => Loaded { cell: empty, is_current: false, is_later: false },
        }
    }
}
