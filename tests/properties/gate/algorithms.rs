//! The algorithms that the suite is run for: a row each.

use tollgate::domain::algorithms::bucket::Drain;
use tollgate::domain::algorithms::{
    Parameters, anomaly, concurrency, fixed_window, interval, leaky_bucket, sliding_counter, sliding_log,
    token_bucket,
};
use tollgate::domain::amount::UNITS_MAX;

use crate::gate::world::{WINDOW, in_window};

/// A way of counting.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// What it is called when it fails.
    pub(crate) name: &'static str,
    /// So that windows turn while a sequence runs, where the algorithm lets them.
    pub(crate) turning: Parameters,
    /// So that none turns within a minute.
    pub(crate) lasting: Parameters,
}

impl Row {
    /// Whether what is held and not used makes room again.
    pub(super) fn gives_back(&self) -> bool {
        !matches!(self.lasting, Parameters::LeakyBucket(_))
    }

    /// Whether what is used stays counted, and so cuts and refuses what comes later.
    pub(super) fn counts_use(&self) -> bool {
        !matches!(self.lasting, Parameters::Concurrency(_) | Parameters::Interval(_))
    }
}

/// Several of them at once: at most so many counters on one request, each of whatever algorithm.
pub(super) const MIXED_MAX: usize = 16;

/// Those that count units.
pub(crate) fn rows() -> Vec<Row> {
    let calendar = in_window(WINDOW.0, WINDOW.1);
    let rest = uncut(20_000).into_iter().zip(uncut(3_600_000));
    let row = |((name, turning), (_, lasting))| Row { name, turning, lasting };
    let calendar = Row { name: "calendar", turning: calendar, lasting: calendar };
    std::iter::once(calendar).chain(rest.map(row)).collect()
}

/// All of them: also the one that counts calls, of which it admits one at a time.
pub(crate) fn all_rows() -> Vec<Row> {
    rows().into_iter().chain([interval()]).collect()
}

/// The least time between calls.
pub(crate) fn interval() -> Row {
    let lasting = |length_ms| Parameters::Interval(interval::Parameters { length_ms });
    Row { name: "interval", turning: lasting(2_000), lasting: lasting(60_000) }
}

/// How often a subject calls, judged early and strictly.
pub(crate) fn anomaly() -> Row {
    let bounds =
        Parameters::Anomaly(anomaly::Parameters { min_samples: 2, marks_from: 100, refuses_from: 200 });
    Row { name: "anomaly", turning: bounds, lasting: bounds }
}

/// Those that count no reservations, so that checks may fall under them.
pub(crate) fn checked_rows() -> impl Iterator<Item = Row> {
    rows().into_iter().filter(|row| !matches!(row.turning, Parameters::Concurrency(_)))
}

/// Those that no calendar cuts, over so long.
pub(super) fn uncut(length_ms: i64) -> Vec<(&'static str, Parameters)> {
    let fixed = |aligned| Parameters::FixedWindow(fixed_window::Parameters { length_ms, aligned });
    let sliding = |sub_windows: u8| {
        let slot_ms = length_ms / i64::from(sub_windows);
        Parameters::SlidingCounter(sliding_counter::Parameters { slot_ms, slot_count: sub_windows + 1 })
    };
    let log = Parameters::SlidingLog(sliding_log::Parameters { length_ms, entries_max: 10_000 });
    let refill = Drain { units: 7, per_ms: length_ms };
    let leaky =
        |max_wait_ms| Parameters::LeakyBucket(leaky_bucket::Parameters { drain: refill, max_wait_ms });
    let at_once = |each| Parameters::Concurrency(concurrency::Parameters { each });
    vec![
        ("concurrency of units", at_once(0)),
        ("concurrency of reservations", at_once(10)),
        ("fixed_window", fixed(false)),
        ("fixed_window, aligned", fixed(true)),
        ("leaky_bucket", leaky(UNITS_MAX)),
        (
            "leaky_bucket with a longest wait",
            leaky(if length_ms > 60_000 { UNITS_MAX } else { 5 * length_ms }),
        ),
        ("sliding_counter of 2", sliding(2)),
        ("sliding_counter of 10", sliding(10)),
        ("sliding_log", log),
        ("token_bucket", Parameters::TokenBucket(token_bucket::Parameters { refill })),
    ]
}
