//! By a window that slides in steps: it counts the last sub-windows and the current one.
//!
//! Never more than the capacity in any stretch of the window's length, wherever that begins. It may be too strict by up
//! to one sub-window, because units leave only with their whole sub-window. Short memory: after a loss of the gate's
//! memory it is empty. 40 bytes for each counter, and 16 for each sub-window and one more.
//!
//! The mark is the newest slot's number; `consumed` and `reserved` are the sums of all slots. Own numbers: `since`,
//! then `consumed  reserved` for each slot, at the slot's number modulo their count.

use super::cell::{Cell, Loaded, Moment};
use super::{Counting, Definition, Fields, SpanSeconds, SubWindows};
use crate::domain::amount::{Amount, Decimals, Units};
use crate::domain::codec::{Reader, Undecodable, Write};
use crate::domain::field_error::FieldError;
use crate::domain::limit::Span;
use crate::domain::period::Windows;

/// The length of its window, and its number of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingCounter {
    /// Its length.
    pub window_seconds: SpanSeconds,
    /// The number of steps.
    pub sub_windows: SubWindows,
}

/// The same in milliseconds and slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// The length of a sub-window in ms.
    pub slot_ms: i64,
    /// The number of slots: one more than the window has.
    pub slot_count: u8,
}

impl Definition for SlidingCounter {
    type Parameters = Parameters;
    const IS_RESTORABLE: bool = false;

    fn read(fields: &Fields) -> Result<Self, String> {
        fields.only("sliding_counter", &["window_seconds", "sub_windows"])?;
        let window_seconds = fields.window_seconds.ok_or("missing field `window_seconds`")?;
        Ok(Self { window_seconds, sub_windows: fields.sub_windows.unwrap_or_default() })
    }

    fn write(&self, fields: &mut Fields) {
        fields.window_seconds = Some(self.window_seconds);
        fields.sub_windows = Some(self.sub_windows);
    }

    fn signature(&self) -> Vec<String> {
        let (seconds, steps) = (self.window_seconds.get(), self.sub_windows.get());
        vec!["sliding_counter".into(), seconds.to_string(), steps.to_string()]
    }

    fn span(&self) -> Span {
        Span::Seconds(self.window_seconds.get())
    }

    fn errors(&self, _: Amount, _: Decimals) -> Vec<FieldError> {
        let is_whole = self.window_seconds.ms() % i64::from(self.sub_windows.get()) == 0;
        let wrong = "must divide the window into whole milliseconds";
        if is_whole { Vec::new() } else { vec![FieldError::new("/sub_windows", wrong)] }
    }

    fn parameters(&self, _: &Windows, _: Decimals, _: Units) -> Parameters {
        let sub_windows = self.sub_windows.get();
        Parameters { slot_ms: self.window_seconds.ms() / i64::from(sub_windows), slot_count: sub_windows + 1 }
    }
}

impl Counting for Parameters {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_8(self.slot_ms);
        out.put_byte(self.slot_count);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Undecodable> {
        let read = Self { slot_ms: reader.i64()?, slot_count: reader.u8()? };
        if read.slot_ms < 1 || read.slot_count == 0 {
            return Err(Undecodable("the slots of a sliding counter"));
        }
        Ok(read)
    }

    fn ends_at_ms(&self, at_ms: i64, _: i64) -> i64 {
        at_ms.saturating_add(self.slot_ms * i64::from(self.slot_count))
    }

    fn load(&self, cell: Option<&Cell>, at: Moment) -> Loaded {
        let counted_at_ms = at.counted_at_ms();
        let (slot, slot_count) = (self.number(counted_at_ms), i64::from(self.slot_count));
        // A cell that is further ahead than all its slots was written by a clock that had leapt: it is dropped.
        let length = 1 + 2 * usize::from(self.slot_count);
        let stands = |cell: &&Cell| !at.admits() || slot > cell.mark - slot_count;
        let stored = cell.filter(stands).filter(|cell| cell.own.len() == length);
        let newest = self.number(at.now_ms);
        let Some(stored) = stored else {
            let mut own = vec![0; length];
            own[0] = counted_at_ms;
            let cell = Cell { mark: newest, own, ..Cell::default() };
            return Loaded { cell, counted_at_ms, is_current: false, is_later: false };
        };
        let mut cell = stored.clone();
        cell.mark = newest.max(stored.mark);
        for number in stored.mark + 1..=cell.mark.min(stored.mark + slot_count) {
            self.slot(&mut cell, number).fill(0);
        }
        if at.admits() {
            cell.own[0] = cell.own[0].min(counted_at_ms);
        }
        sum(&mut cell);
        let is_current = counted_at_ms >= cell.own[0] && slot > cell.mark - slot_count;
        Loaded { cell, counted_at_ms, is_current, is_later: false }
    }

    fn is_open(&self, loaded: &Loaded, _: i64) -> bool {
        loaded.is_current
    }

    fn hold(&self, loaded: &mut Loaded, units: i64, ends_at_ms: i64) {
        loaded.cell.hold(units, ends_at_ms);
        self.slot_of(loaded)[1] += units;
    }

    fn charge(&self, loaded: &mut Loaded, units: i64) {
        self.slot_of(loaded)[0] += units;
        sum(&mut loaded.cell);
    }

    fn settle(&self, loaded: &mut Loaded, units: i64) {
        self.slot_of(loaded)[0] += units;
        self.give_back(loaded, units);
    }

    fn give_back(&self, loaded: &mut Loaded, units: i64) {
        let slot = self.slot_of(loaded);
        slot[1] -= units.min(slot[1]);
        sum(&mut loaded.cell);
    }
}

impl Parameters {
    /// The number of the slot of an instant.
    fn number(&self, at_ms: i64) -> i64 {
        at_ms.div_euclid(self.slot_ms)
    }

    /// The slot of this number: consumed and held.
    fn slot<'a>(&self, cell: &'a mut Cell, number: i64) -> &'a mut [i64] {
        let at = usize::try_from(number.rem_euclid(i64::from(self.slot_count))).unwrap_or_default();
        &mut cell.own[1 + 2 * at..3 + 2 * at]
    }

    /// What the slot of this number counts: consumed and held.
    fn counts(&self, cell: &Cell, number: i64) -> (i64, i64) {
        let at = usize::try_from(number.rem_euclid(i64::from(self.slot_count))).unwrap_or_default();
        let figure = |place: usize| cell.own.get(place).copied().unwrap_or_default();
        (figure(1 + 2 * at), figure(2 + 2 * at))
    }

    /// When so many units of a cell have slid out, of what is consumed or of everything: at the latest when all of it
    /// has (unix ms).
    fn slid_out_ms(&self, cell: &Cell, mut units: i64, counts_holds: bool, now_ms: i64) -> i64 {
        let mut number = cell.mark - i64::from(self.slot_count);
        while units > 0 && number < cell.mark {
            number += 1;
            let (consumed, held) = self.counts(cell, number);
            units -= consumed + if counts_holds { held } else { 0 };
        }
        ((number + i64::from(self.slot_count)) * self.slot_ms).max(now_ms)
    }

    /// When the last unit of a cell has slid out (unix ms).
    pub fn resets_at_ms(&self, cell: &Cell, now_ms: i64) -> i64 {
        self.slid_out_ms(cell, cell.consumed + cell.reserved, true, now_ms)
    }

    /// How long until so many units may fit into a cell, in ms, where its next hold is over at `hold_ends_at_ms`: where
    /// holds leave no room, that may help before they slide out.
    pub fn wait_ms(&self, cell: &Cell, need: i64, capacity: i64, hold_ends_at_ms: i64, now_ms: i64) -> i64 {
        let beyond = need - capacity + cell.consumed;
        let without_holds_ms = self.slid_out_ms(cell, beyond, false, now_ms);
        let with_holds_ms = self.slid_out_ms(cell, beyond + cell.reserved, true, now_ms);
        with_holds_ms.min(without_holds_ms.max(hold_ends_at_ms)) - now_ms
    }

    /// The slot of the work that the cell was read for.
    fn slot_of<'a>(&self, loaded: &'a mut Loaded) -> &'a mut [i64] {
        self.slot(&mut loaded.cell, self.number(loaded.counted_at_ms))
    }
}

/// Computes the sums of a cell's slots.
fn sum(cell: &mut Cell) {
    let slots = || cell.own.get(1..).unwrap_or_default().chunks_exact(2);
    cell.consumed = slots().map(|slot| slot[0]).sum();
    cell.reserved = slots().map(|slot| slot[1]).sum();
    if cell.reserved == 0 {
        cell.next_end = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAPACITY: i64 = 20;

    /// What was admitted: when, and how much of it counts.
    type Admitted = Vec<(i64, i64)>;

    /// The most that was admitted in any stretch of this length.
    fn most_in_any(length_ms: i64, admitted: &Admitted) -> i64 {
        let within = |from_ms: i64| {
            let all =
                admitted.iter().filter(move |(at_ms, _)| (from_ms..from_ms + length_ms).contains(at_ms));
            all.map(|(_, units)| units).sum::<i64>()
        };
        admitted.iter().map(|(at_ms, _)| within(*at_ms)).max().unwrap_or_default()
    }

    proptest! {
        #[test]
        fn never_more_than_the_capacity_in_any_window(
            sub_windows in 2..8_u8, slot_ms in 1..40_i64,
            calls in proptest::collection::vec((0..60_i64, 1..9_i64, proptest::option::of(0..100_i64)), 5..80),
        ) {
            let parameters = Parameters { slot_ms, slot_count: sub_windows + 1 };
            let (mut now_ms, mut cell, mut admitted) = (1_700_000_000_000, None, Admitted::new());
            for (after_ms, units, returns) in calls {
                now_ms += after_ms;
                let mut loaded = parameters.load(cell.as_ref(), Moment::new_work(now_ms));
                if units <= parameters.room(loaded.cell.consumed, loaded.cell.reserved, CAPACITY) {
                    parameters.hold(&mut loaded, units, now_ms + 1_000);
                    admitted.push((now_ms, units));
                    cell = Some(loaded.cell);
                }
                if let (Some(percent), Some((born_at_ms, held))) = (returns, admitted.first_mut()) {
                    let mut loaded = parameters.load(cell.as_ref(), Moment::work_of(*born_at_ms, now_ms));
                    if loaded.is_current && *held > 0 {
                        let used = *held * percent / 100;
                        parameters.settle(&mut loaded, used);
                        parameters.give_back(&mut loaded, *held - used);
                        *held = used;
                        cell = Some(loaded.cell);
                    }
                    admitted.rotate_left(1);
                }
                prop_assert!(most_in_any(slot_ms * i64::from(sub_windows), &admitted) <= CAPACITY);
            }
        }
    }
}
