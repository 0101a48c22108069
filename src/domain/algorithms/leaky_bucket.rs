//! By a queue that drains steadily: what is admitted starts at a steady rate, however it comes.
//!
//! Exact to the millisecond: each answer says after how long the work may start, so that in any stretch of time no more
//! starts than drains in it, but for one call. Nothing comes back: a slot that is given up passes unused, as returning
//! it in the middle of the queue would double what starts then. Short memory: after a loss of the gate's memory it is
//! empty. 48 bytes a counter.
//!
//! `consumed` is the level: units put in that have not drained yet; `reserved` are the open holds, which are shown and
//! not added. Own numbers: `since  fraction`.

use super::bucket::{self, Drain};
use super::cell::{Cell, Loaded, Moment};
use super::{Counting, Definition, Fields, SpanSeconds};
use crate::domain::amount::{Amount, Decimals, UNITS_MAX, Units};
use crate::domain::codec::{Reader, Undecodable, Write};
use crate::domain::field_error::FieldError;
use crate::domain::limit::Span;
use crate::domain::period::Windows;

/// How fast it drains. The length of its queue is the limit's capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeakyBucket {
    /// How much drains.
    pub drain: Amount,
    /// In each so many seconds.
    pub per_seconds: SpanSeconds,
    /// The longest that work may have to wait; none: as long as the queue is.
    pub max_wait_seconds: Option<SpanSeconds>,
}

/// The same in the meter's smallest units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// How fast its level sinks.
    pub drain: Drain,
    /// The longest that work may have to wait, in ms.
    pub max_wait_ms: i64,
}

impl Definition for LeakyBucket {
    type Parameters = Parameters;
    const IS_RESTORABLE: bool = false;

    fn read(fields: &Fields) -> Result<Self, String> {
        fields.only("leaky_bucket", &["drain", "per_seconds", "max_wait_seconds"])?;
        let drain = fields.drain.ok_or("missing field `drain`")?;
        let per_seconds = fields.per_seconds.ok_or("missing field `per_seconds`")?;
        Ok(Self { drain, per_seconds, max_wait_seconds: fields.max_wait_seconds })
    }

    fn write(&self, fields: &mut Fields) {
        fields.drain = Some(self.drain);
        fields.per_seconds = Some(self.per_seconds);
        fields.max_wait_seconds = self.max_wait_seconds;
    }

    /// Another drain or wait goes on with the same level, as another capacity does.
    fn signature(&self) -> Vec<String> {
        vec!["leaky_bucket".into(), self.per_seconds.get().to_string()]
    }

    fn span(&self) -> Span {
        Span::Drain { drain: self.drain, per_seconds: self.per_seconds.get() }
    }

    fn errors(&self, capacity: Amount, decimals: Decimals) -> Vec<FieldError> {
        bucket::errors("drain", self.drain, self.per_seconds, capacity, decimals)
    }

    fn capacity_max(&self, decimals: Decimals) -> i64 {
        Drain::of(self.drain, self.per_seconds, decimals).capacity_max()
    }

    fn parameters(&self, _: &Windows, decimals: Decimals, _: Units) -> Parameters {
        let drain = Drain::of(self.drain, self.per_seconds, decimals);
        Parameters { drain, max_wait_ms: self.max_wait_seconds.map_or(UNITS_MAX, SpanSeconds::ms) }
    }
}

impl Counting for Parameters {
    fn encode(&self, out: &mut Vec<u8>) {
        self.drain.encode(out);
        out.put_8(self.max_wait_ms);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Undecodable> {
        Ok(Self { drain: Drain::decode(reader)?, max_wait_ms: reader.i64()? })
    }

    fn ends_at_ms(&self, at_ms: i64, capacity: i64) -> i64 {
        at_ms.saturating_add(self.drain.wait_ms(capacity, 0))
    }

    fn load(&self, cell: Option<&Cell>, at: Moment) -> Loaded {
        let counted_at_ms = at.counted_at_ms();
        // A clock that went back by more than the level takes to drain had leapt ahead.
        let stands = |cell: &&Cell| {
            !at.admits() || at.now_ms >= cell.mark - self.drain.wait_ms(cell.consumed, fraction_of(cell))
        };
        let Some(stored) = cell.filter(stands) else {
            let cell = Cell { mark: counted_at_ms, own: vec![counted_at_ms, 0], ..Cell::default() };
            return Loaded { cell, counted_at_ms, is_current: false, is_later: false };
        };
        let mut since_ms = stored.own.first().copied().unwrap_or_default();
        if at.admits() {
            since_ms = since_ms.min(counted_at_ms);
        }
        let mut cell = stored.clone();
        cell.mark = stored.mark.max(at.now_ms);
        let (level, fraction) =
            self.drain.after(stored.consumed, fraction_of(stored), cell.mark - stored.mark);
        cell.consumed = level;
        cell.own = vec![since_ms, fraction];
        Loaded { cell, counted_at_ms, is_current: counted_at_ms >= since_ms, is_later: false }
    }

    fn is_open(&self, loaded: &Loaded, _: i64) -> bool {
        loaded.is_current
    }

    fn room(&self, consumed: i64, _: i64, capacity: i64) -> i64 {
        capacity - consumed
    }

    fn room_for_new_work(&self, loaded: &Loaded, capacity: i64) -> i64 {
        let left = capacity - loaded.cell.consumed;
        // What refuses nothing has the largest amount in place of its capacity.
        let is_late = capacity < UNITS_MAX && self.delay_ms(loaded) > self.max_wait_ms;
        if is_late { left.min(0) } else { left }
    }

    fn delay_ms(&self, loaded: &Loaded) -> i64 {
        let cell = &loaded.cell;
        match cell.consumed {
            0 => 0,
            level => cell.mark - loaded.counted_at_ms + self.drain.wait_ms(level, fraction_of(cell)),
        }
    }

    fn hold(&self, loaded: &mut Loaded, units: i64, ends_at_ms: i64) {
        loaded.cell.consumed += units;
        loaded.cell.hold(units, ends_at_ms);
    }

    fn settle(&self, loaded: &mut Loaded, units: i64) {
        loaded.cell.let_go(units);
    }
}

/// What of a unit has drained, in parts of `per_ms`.
fn fraction_of(cell: &Cell) -> i64 {
    cell.own.get(1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAPACITY: i64 = 20;

    proptest! {
        #[test]
        fn what_starts_when_it_is_told_to_never_exceeds_the_rate(
            units in 1..9_i64, per_ms in prop_oneof![Just(7), Just(1000)],
            max_wait_ms in prop_oneof![Just(UNITS_MAX), 0..3_000_i64],
            calls in proptest::collection::vec((0..400_i64, 1..9_i64, any::<bool>()), 5..60),
        ) {
            let parameters = Parameters { drain: Drain { units, per_ms }, max_wait_ms };
            let (mut now_ms, mut cell) = (1_700_000_000_000, None);
            // When the last work may start, and how much of it there is: the next may start when that has drained.
            let mut before: Option<(i64, i64)> = None;
            for (after_ms, amount, is_returned) in calls {
                now_ms += after_ms;
                let mut loaded = parameters.load(cell.as_ref(), Moment::new_work(now_ms));
                if amount > parameters.room_for_new_work(&loaded, CAPACITY) {
                    continue;
                }
                let delay_ms = parameters.delay_ms(&loaded);
                prop_assert!(delay_ms <= max_wait_ms);
                let starts_ms = now_ms + delay_ms;
                if let Some((started_ms, started)) = before {
                    prop_assert!((starts_ms - started_ms + 1) * units > (started - 1) * per_ms);
                }
                before = Some((starts_ms, amount));
                parameters.hold(&mut loaded, amount, now_ms + 10);
                if is_returned {
                    parameters.give_back(&mut loaded, amount);
                }
                prop_assert!(loaded.cell.consumed <= CAPACITY);
                cell = Some(loaded.cell);
            }
        }
    }

    #[test]
    fn work_waits_for_what_stands_before_it_to_the_millisecond() {
        let parameters = Parameters { drain: Drain { units: 2, per_ms: 1_000 }, max_wait_ms: UNITS_MAX };
        let at = |cell: &Cell, now_ms| parameters.load(Some(cell), Moment::new_work(now_ms));
        let mut first = parameters.load(None, Moment::new_work(5_000));
        assert_eq!(parameters.delay_ms(&first), 0);
        parameters.hold(&mut first, 3, 9_000);
        assert_eq!(parameters.delay_ms(&at(&first.cell, 5_000)), 1_500);
        assert_eq!(parameters.delay_ms(&at(&first.cell, 5_001)), 1_499);
        assert_eq!(
            parameters.delay_ms(&at(&first.cell, 4_999)),
            1_501,
            "nothing drains while the clock is behind"
        );
        assert_eq!(parameters.delay_ms(&at(&first.cell, 6_500)), 0);
    }
}
