//! What the counters of a trial have counted.

use std::collections::HashMap;

use crate::domain::algorithms::cell::{Cell, Loaded, Moment};
use crate::domain::algorithms::{LineHold, Parameters};
use crate::domain::amount::{UNITS_MAX, Units};
use crate::domain::counter::{Counter, need};
use crate::domain::reservation::{CounterField, LineUnits};

/// How many counters there may be before those that are over are dropped.
const COUNTERS_KEPT: usize = 10_000;

/// A counter: its scope, empty for the tenant, and its field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) scope: String,
    pub(super) field: CounterField,
}

/// A counter that an admission moved.
#[derive(Debug)]
pub(super) struct Moved {
    pub(super) place: Place,
    pub(super) parameters: Parameters,
    lines: Vec<(u8, i64)>,
}

impl Moved {
    pub(super) fn of(counter: &Counter, place: Place) -> Self {
        Self { place, parameters: counter.parameters, lines: counter.lines.clone() }
    }

    /// What a reservation of these lines holds of it while it is open.
    pub(super) fn held(&self, lines: &[LineUnits]) -> i64 {
        let hold = |&(line, weight): &(u8, i64)| {
            let line = lines.get(usize::from(line))?;
            Some(LineHold { weight, held: line.held.get(), consumed: line.consumed.get() })
        };
        let holds: Vec<_> = self.lines.iter().filter_map(hold).collect();
        self.parameters.held(&holds)
    }

    /// What these lines have consumed of it.
    pub(super) fn consumed(&self, lines: &[LineUnits]) -> i64 {
        let consumed: Vec<Units> = lines.iter().map(|line| line.consumed).collect();
        need(&self.lines, &consumed)
    }
}

#[derive(Debug)]
struct Kept {
    cell: Cell,
    /// When all that it counts has left it, unless something is held (unix ms).
    until_ms: i64,
}

/// Cells by counter. One that is over reads as unused, so it can be dropped.
#[derive(Debug, Default)]
pub(super) struct Counters {
    kept: HashMap<Place, Kept>,
    /// How many there may be before those that are over are looked for.
    most: usize,
}

impl Counters {
    pub(super) fn has(&self, place: &Place) -> bool {
        self.kept.contains_key(place)
    }

    pub(super) fn load_for_new_work(&self, place: &Place, parameters: &Parameters, now_ms: i64) -> Loaded {
        parameters.load(self.cell(place), Moment::new_work(now_ms))
    }

    pub(super) fn load_work_of(
        &self,
        place: &Place,
        parameters: &Parameters,
        born_at_ms: i64,
        now_ms: i64,
    ) -> Loaded {
        parameters.load(self.cell(place), Moment::work_of(born_at_ms, now_ms))
    }

    fn cell(&self, place: &Place) -> Option<&Cell> {
        self.kept.get(place).map(|kept| &kept.cell)
    }

    /// Stores what new work has moved; it has left the counter at `until_ms`.
    pub(super) fn store(&mut self, place: Place, cell: Cell, until_ms: i64, now_ms: i64) {
        let before_ms = self.kept.get(&place).map_or(i64::MIN, |kept| kept.until_ms);
        self.kept.insert(place, Kept { cell, until_ms: until_ms.max(before_ms) });
        if self.kept.len() > self.most.max(COUNTERS_KEPT) {
            self.kept.retain(|_, kept| kept.until_ms > now_ms || kept.cell.reserved > 0);
            self.most = 2 * self.kept.len();
        }
    }

    /// Stores what a change of earlier work has moved.
    pub(super) fn change(&mut self, place: &Place, cell: Cell) {
        if let Some(kept) = self.kept.get_mut(place) {
            kept.cell = cell;
        }
    }
}

/// How much of new work fits. A full log has no room; entries of one instant count as one.
pub(super) fn room(parameters: &Parameters, loaded: &Loaded, capacity: i64) -> i64 {
    let room = parameters.room_for_new_work(loaded, capacity);
    let is_full = match parameters {
        Parameters::SlidingLog(log) => capacity < UNITS_MAX && log.entries(&loaded.cell) >= log.entries_max,
        _ => false,
    };
    if is_full { room.min(0) } else { room }
}
