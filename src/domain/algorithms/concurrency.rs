//! By what runs at once: it counts what open reservations hold, each until it ends, by its units or as one.
//!
//! The cell's mark is since when it counts: holds from before it were lost with the cell that had them, and give
//! nothing back. A restore, which writes all open holds, has the mark 0.
//!
//! Exact: never more than the capacity at once. A partial consume frees nothing, and consumed units do not count. After
//! a loss of the gate's memory, the holds of open reservations are restored. 32 bytes for each counter.

use serde::{Deserialize, Serialize};

use super::cell::{Cell, Loaded, Moment};
use super::{Counting, Definition, Fields, LineHold};
use crate::domain::amount::{Amount, Decimals, Units};
use crate::domain::codec::{Reader, Undecodable, Write};
use crate::domain::field_error::FieldError;
use crate::domain::limit::Span;
use crate::domain::period::Windows;

/// What each reservation counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counts {
    /// The units of the meter that it holds.
    #[default]
    Units,
    /// One, however much it holds.
    Reservations,
}

/// What runs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Concurrency {
    /// What each reservation counts as.
    pub counts: Counts,
}

/// The same in the meter's smallest units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// What each reservation counts as; 0: the units that it holds.
    pub each: i64,
}

impl Definition for Concurrency {
    type Parameters = Parameters;
    const IS_RESTORABLE: bool = false;

    fn read(fields: &Fields) -> Result<Self, String> {
        fields.only("concurrency", &["counts"])?;
        Ok(Self { counts: fields.counts.unwrap_or_default() })
    }

    fn write(&self, fields: &mut Fields) {
        fields.counts = Some(self.counts);
    }

    fn signature(&self) -> Vec<String> {
        let counts = match self.counts {
            Counts::Units => "units",
            Counts::Reservations => "reservations",
        };
        vec!["concurrency".into(), counts.into()]
    }

    fn span(&self) -> Span {
        Span::AtOnce
    }

    fn errors(&self, capacity: Amount, _: Decimals) -> Vec<FieldError> {
        let is_whole = capacity.to_units(Decimals::default()).is_ok();
        match self.counts {
            Counts::Reservations if !is_whole => {
                vec![FieldError::new("/capacity", "must be a whole number where `counts` is `reservations`")]
            }
            _ => Vec::new(),
        }
    }

    fn parameters(&self, _: &Windows, decimals: Decimals, _: Units) -> Parameters {
        let one = || 10_i64.pow(u32::from(decimals.count()));
        Parameters { each: if self.counts == Counts::Reservations { one() } else { 0 } }
    }
}

impl Counting for Parameters {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_8(self.each);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Undecodable> {
        Ok(Self { each: reader.i64()? })
    }

    fn holds_survive(&self) -> bool {
        true
    }

    fn ends_at_ms(&self, at_ms: i64, _: i64) -> i64 {
        at_ms
    }

    fn load(&self, cell: Option<&Cell>, at: Moment) -> Loaded {
        let counted_at_ms = at.counted_at_ms();
        let begins = |cell: &Cell| if at.admits() { cell.mark.min(counted_at_ms) } else { cell.mark };
        let current = cell.filter(|cell| counted_at_ms >= begins(cell));
        let empty = || Cell { mark: counted_at_ms, ..Cell::default() };
        Loaded {
            cell: current.map_or_else(empty, |cell| Cell { mark: begins(cell), ..cell.clone() }),
            counted_at_ms,
            is_current: current.is_some(),
            is_later: false,
        }
    }

    fn is_open(&self, _: &Loaded, _: i64) -> bool {
        false
    }

    fn need(&self, units: i64, is_usage: bool) -> i64 {
        match (is_usage, units > 0 && self.each > 0) {
            (true, _) => 0,
            (false, true) => self.each,
            (false, false) => units,
        }
    }

    fn most(&self, room: i64) -> i64 {
        match self.each {
            0 => room,
            each if room >= each => i64::MAX,
            _ => 0,
        }
    }

    fn held(&self, lines: &[LineHold]) -> i64 {
        let units = lines.iter().map(|line| line.weight.saturating_mul(line.held)).sum();
        if units > 0 && self.each > 0 { self.each } else { units }
    }

    fn charge(&self, _: &mut Loaded, _: i64) {}

    fn settle(&self, loaded: &mut Loaded, units: i64) {
        loaded.cell.let_go(units);
    }
}
