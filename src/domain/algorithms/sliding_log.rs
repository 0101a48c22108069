//! By a list of all that was admitted: a window that slides from millisecond to millisecond.
//!
//! Exact: never more than the capacity in any stretch of its length, and never stricter. It costs an entry for each
//! reservation (`entries_max` of them; a full log refuses), in a key of its own: 65 bytes each, and above 127 entries
//! about 160. Short memory: after a loss of the gate's memory it is empty.
//!
//! The transition keeps the entries as own numbers, `at  held  consumed` each, those of one instant as one. How many
//! entries there may be is checked by the script alone.

use super::cell::{Cell, Loaded, Moment};
use super::{Counting, Definition, EntriesMax, Fields, SpanSeconds};
use crate::domain::amount::{Decimals, Units};
use crate::domain::codec::{Reader, Undecodable, Write};
use crate::domain::limit::Span;
use crate::domain::period::Windows;

/// How long its window is, and how many reservations it lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    /// Its length.
    pub window_seconds: SpanSeconds,
    /// The most entries; none: as many as the capacity has whole units, and at most [`EntriesMax::DEFAULT`].
    pub entries_max: Option<EntriesMax>,
}

/// The same in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// Its length in ms.
    pub length_ms: i64,
    /// The most entries.
    pub entries_max: i64,
}

impl Definition for SlidingLog {
    type Parameters = Parameters;
    const IS_RESTORABLE: bool = false;

    fn read(fields: &Fields) -> Result<Self, String> {
        fields.only("sliding_log", &["window_seconds", "entries_max"])?;
        let window_seconds = fields.window_seconds.ok_or("missing field `window_seconds`")?;
        Ok(Self { window_seconds, entries_max: fields.entries_max })
    }

    fn write(&self, fields: &mut Fields) {
        fields.window_seconds = Some(self.window_seconds);
        fields.entries_max = self.entries_max;
    }

    fn signature(&self) -> Vec<String> {
        vec!["sliding_log".into(), self.window_seconds.get().to_string()]
    }

    fn span(&self) -> Span {
        Span::Seconds(self.window_seconds.get())
    }

    fn parameters(&self, _: &Windows, decimals: Decimals, capacity: Units) -> Parameters {
        let whole_units = capacity.get() / 10_i64.pow(u32::from(decimals.count()));
        let default = whole_units.clamp(1, i64::from(EntriesMax::DEFAULT));
        let entries_max = self.entries_max.map_or(default, |most| i64::from(most.get()));
        Parameters { length_ms: self.window_seconds.ms(), entries_max }
    }
}

impl Parameters {
    /// How many entries count something; those of one instant are one.
    pub fn entries(&self, cell: &Cell) -> i64 {
        let counts = |entry: &&[i64]| entry[1] + entry[2] > 0;
        i64::try_from(entries(cell).filter(counts).count()).unwrap_or(i64::MAX)
    }
}

impl Counting for Parameters {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_8(self.length_ms);
        out.put_8(self.entries_max);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Undecodable> {
        let read = Self { length_ms: reader.i64()?, entries_max: reader.i64()? };
        if read.length_ms < 1 {
            return Err(Undecodable("the length of a window"));
        }
        Ok(read)
    }

    fn ends_at_ms(&self, at_ms: i64, _: i64) -> i64 {
        at_ms.saturating_add(self.length_ms)
    }

    fn load(&self, cell: Option<&Cell>, at: Moment) -> Loaded {
        let counted_at_ms = at.counted_at_ms();
        // A clock that went back by more than the window is long had leapt ahead.
        let stands = |cell: &&Cell| {
            let newest_ms = entries(cell).last().map_or(i64::MIN, |entry| entry[0]);
            !at.admits() || newest_ms < at.now_ms + self.length_ms
        };
        let mut cell = cell.filter(stands).cloned().unwrap_or_default();
        let has_slid_out = |entry: &&[i64]| entry[0] <= at.now_ms - self.length_ms;
        cell.own = entries(&cell).filter(|entry| !has_slid_out(entry)).flatten().copied().collect();
        let is_current = entries(&cell).any(|entry| entry[0] == counted_at_ms);
        if at.admits() && !is_current {
            let place = entries(&cell).take_while(|entry| entry[0] < counted_at_ms).count() * ENTRY;
            cell.own.splice(place..place, [counted_at_ms, 0, 0]);
        }
        sum(&mut cell);
        Loaded { cell, counted_at_ms, is_current, is_later: false }
    }

    fn is_open(&self, loaded: &Loaded, _: i64) -> bool {
        loaded.is_current
    }

    fn hold(&self, loaded: &mut Loaded, units: i64, ends_at_ms: i64) {
        loaded.cell.hold(units, ends_at_ms);
        change(loaded, units, 0);
    }

    fn charge(&self, loaded: &mut Loaded, units: i64) {
        change(loaded, 0, units);
    }

    fn settle(&self, loaded: &mut Loaded, units: i64) {
        change(loaded, -units, units);
    }

    fn give_back(&self, loaded: &mut Loaded, units: i64) {
        change(loaded, -units, 0);
    }
}

/// How many own numbers make up an entry.
const ENTRY: usize = 3;

fn entries(cell: &Cell) -> impl Iterator<Item = &[i64]> {
    cell.own.chunks_exact(ENTRY)
}

/// Adds to what the entry of the work holds and has consumed.
fn change(loaded: &mut Loaded, held: i64, consumed: i64) {
    let of_work = |entry: &&mut [i64]| entry[0] == loaded.counted_at_ms;
    if let Some(entry) = loaded.cell.own.chunks_exact_mut(ENTRY).find(of_work) {
        entry[1] += held;
        entry[2] += consumed;
    }
    sum(&mut loaded.cell);
}

/// Works out the sums of a cell's entries.
fn sum(cell: &mut Cell) {
    cell.reserved = entries(cell).map(|entry| entry[1]).sum();
    cell.consumed = entries(cell).map(|entry| entry[2]).sum();
    if cell.reserved == 0 {
        cell.next_end = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAPACITY: i64 = 20;

    proptest! {
        #[test]
        fn it_admits_what_fits_beside_all_that_was_admitted_within_its_length_and_nothing_else(
            length_ms in 1..200_i64,
            calls in proptest::collection::vec((0..60_i64, 1..9_i64, proptest::option::of(0..100_i64)), 5..80),
        ) {
            let parameters = Parameters { length_ms, entries_max: 1_000 };
            let (mut now_ms, mut cell) = (1_700_000_000_000, None);
            // All that was admitted: when, and how much of it counts.
            let mut admitted: Vec<(i64, i64)> = Vec::new();
            for (after_ms, units, returns) in calls {
                now_ms += after_ms;
                let mut loaded = parameters.load(cell.as_ref(), Moment::new_work(now_ms));
                let within = |(at_ms, _): &&(i64, i64)| *at_ms > now_ms - length_ms;
                let counted: i64 = admitted.iter().filter(within).map(|(_, units)| units).sum();
                let fits = units <= parameters.room_for_new_work(&loaded, CAPACITY);
                prop_assert_eq!(fits, counted + units <= CAPACITY);
                if fits {
                    parameters.hold(&mut loaded, units, now_ms + 1_000);
                    admitted.push((now_ms, units));
                    cell = Some(loaded.cell);
                }
                if let (Some(percent), Some((born_at_ms, held))) = (returns, admitted.first_mut()) {
                    let mut loaded = parameters.load(cell.as_ref(), Moment::work_of(*born_at_ms, now_ms));
                    prop_assert_eq!(loaded.is_current, *born_at_ms > now_ms - length_ms);
                    if loaded.is_current && *held > 0 {
                        let used = *held * percent / 100;
                        parameters.settle(&mut loaded, used);
                        parameters.give_back(&mut loaded, *held - used);
                        *held = used;
                        cell = Some(loaded.cell);
                    }
                    admitted.rotate_left(1);
                }
            }
        }
    }
}
