//! By how much sooner than usual a subject's calls come: a call is refused while they come much closer together than
//! they used to. The `anomaly` of a limit, counted for each subject and operation; no limit names it as its algorithm.
//!
//! It learns from the intervals between admitted calls. Only closer ones are remarkable. What is refused teaches
//! nothing, and nothing is given back. Short memory: a subject that has not called for a day is a new one, and so is
//! each after a loss of the gate's memory. 64 bytes for each subject and operation.
//!
//! The cell's mark is the last admitted call; consumed is 1 where that was an anomaly. Its own numbers: how many
//! intervals it has learned, the mean of the last ten or so, the usual mean, and the usual variance. Means are in
//! thousandths of a millisecond, the variance in hundredths of a square millisecond: all of it stays below 9·10^15.

use super::cell::{Cell, Loaded, Moment};
use super::{Counting, Definition, Fields, LineHold};
use crate::domain::amount::{Decimals, UNITS_MAX, Units};
use crate::domain::anomaly::Anomaly as Rule;
use crate::domain::codec::{Reader, Undecodable, Write};
use crate::domain::limit::Span;
use crate::domain::period::Windows;

/// After how long without a call a subject is forgotten.
const MEMORY_SECONDS: u32 = 86_400;
/// The same, for answers.
pub const SPAN: Span = Span::Seconds(MEMORY_SECONDS);
const MEMORY_MS: i64 = MEMORY_SECONDS as i64 * 1_000;
/// The longest interval: a longer one is a pause, and counts as so long.
const PAUSE_MS: i64 = 3_600_000;
/// How many intervals the short mean follows, and the usual one.
const SHORT: i64 = 10;
const LONG: i64 = 100;
/// Up to how many intervals are counted.
const SAMPLES_MAX: i64 = 1_000;
/// A deviation is at least so long, in thousandths of a millisecond.
const DEVIATION_MIN: i64 = 1_000;
/// How many deviations beyond the usual mean a long interval counts at most.
const LONGER_MAX: i64 = 3;

/// The rule of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Anomaly(pub Rule);

/// The same in whole numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// How many intervals are learned before one is judged.
    pub min_samples: i64,
    /// From how many thousandths of a deviation on a call is an anomaly.
    pub marks_from: i64,
    /// From how many on it is refused; 0: never.
    pub refuses_from: i64,
}

impl Definition for Anomaly {
    type Parameters = Parameters;
    const IS_RESTORABLE: bool = false;
    const IS_OF_LIMITS: bool = false;

    fn read(_: &Fields) -> Result<Self, String> {
        Err("the algorithm `anomaly` belongs to no limit by itself: give the limit `anomaly`".into())
    }

    fn write(&self, _: &mut Fields) {}

    fn signature(&self) -> Vec<String> {
        vec!["anomaly".into()]
    }

    fn span(&self) -> Span {
        SPAN
    }

    fn parameters(&self, _: &Windows, _: Decimals, _: Units) -> Parameters {
        self.in_numbers()
    }
}

impl Anomaly {
    /// The parameters by which it counts; they are the same at any time.
    pub fn in_numbers(&self) -> Parameters {
        Parameters {
            min_samples: self.0.min_samples.get(),
            marks_from: self.0.monitor_z.thousandths(),
            refuses_from: self.0.refuses_from().unwrap_or_default(),
        }
    }
}

/// What a cell knows about a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Usual {
    samples: i64,
    short: i64,
    mean: i64,
    variance: i64,
}

/// What a call is, and what is known after it if it is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Judged {
    is_anomaly: bool,
    is_refused: bool,
    usual: Usual,
}

impl Parameters {
    /// Judges a call so long after the last one.
    fn judge(&self, usual: Usual, interval_ms: i64) -> Judged {
        let Usual { mut mean, mut variance, .. } = usual;
        let samples = (usual.samples + 1).min(SAMPLES_MAX);
        let deviation = (100 * variance.isqrt()).max(mean.div_euclid(10)).max(DEVIATION_MIN);
        let is_known = usual.samples >= self.min_samples;
        // A pause neither makes a subject unknown, nor hides the burst after it.
        let longest = if is_known { mean + LONGER_MAX * deviation } else { i64::MAX };
        let interval = (interval_ms.clamp(0, PAUSE_MS) * 1_000).min(longest);
        // Calls that were only watched may have made the short mean so short that it takes many to lengthen it.
        let has_waited = interval >= mean;
        let short = usual.short + (interval - usual.short).div_euclid(samples.min(SHORT));
        let is_sooner = |thousandths: i64| is_known && (mean - short) * 1_000 >= thousandths * deviation;
        let is_anomaly = is_sooner(self.marks_from);
        let is_refused = self.refuses_from > 0 && !has_waited && is_sooner(self.refuses_from);
        if !is_anomaly {
            // A short interval counts as one deviation at most: otherwise the deviation grows faster than calls come
            // closer, and none is ever remarkable.
            let counted = if is_known { interval.max(mean - deviation) } else { interval };
            let (gain, before) = (samples.min(LONG), counted - mean);
            mean += before.div_euclid(gain);
            let square = before.div_euclid(100) * (counted - mean).div_euclid(100);
            variance += (square - variance).div_euclid(gain);
        }
        Judged { is_anomaly, is_refused, usual: Usual { samples, short, mean, variance } }
    }

    /// Judges new work by a loaded cell. The first call of a subject is no anomaly and teaches nothing.
    fn of_new_work(&self, loaded: &Loaded) -> Judged {
        let Loaded { cell, counted_at_ms, .. } = loaded;
        match cell.own[..] {
            [samples, short, mean, variance] => {
                self.judge(Usual { samples, short, mean, variance }, counted_at_ms - cell.mark)
            }
            _ => Judged::default(),
        }
    }
}

impl Counting for Parameters {
    fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.min_samples, self.marks_from, self.refuses_from] {
            out.put_8(number);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Undecodable> {
        let [min_samples, marks_from, refuses_from] = [reader.i64()?, reader.i64()?, reader.i64()?];
        if min_samples < 1 || marks_from < 1 || refuses_from < 0 {
            return Err(Undecodable("the bounds of an anomaly"));
        }
        Ok(Self { min_samples, marks_from, refuses_from })
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
        at_ms.saturating_add(MEMORY_MS)
    }

    fn load(&self, cell: Option<&Cell>, at: Moment) -> Loaded {
        let now_ms = at.now_ms;
        let current = cell.filter(|cell| at.admits() && now_ms < cell.mark + MEMORY_MS);
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

    /// Its figures alone refuse nothing.
    fn room(&self, _: i64, _: i64, capacity: i64) -> i64 {
        capacity
    }

    fn room_for_new_work(&self, loaded: &Loaded, capacity: i64) -> i64 {
        if capacity < UNITS_MAX && self.of_new_work(loaded).is_refused { 0 } else { capacity }
    }

    fn hold(&self, loaded: &mut Loaded, units: i64, _: i64) {
        self.charge(loaded, units);
    }

    fn charge(&self, loaded: &mut Loaded, units: i64) {
        if units > 0 {
            let Judged { is_anomaly, usual, .. } = self.of_new_work(loaded);
            loaded.cell = Cell {
                // By a clock that went back, calls come at once until it is where it was.
                mark: loaded.cell.mark.max(loaded.counted_at_ms),
                consumed: i64::from(is_anomaly),
                own: vec![usual.samples, usual.short, usual.mean, usual.variance],
                ..Cell::default()
            };
        }
    }

    fn settle(&self, _: &mut Loaded, _: i64) {}

    fn give_back(&self, _: &mut Loaded, _: i64) {}
}

#[cfg(test)]
mod tests;
