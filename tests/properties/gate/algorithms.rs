//! The algorithms that the suite is run for: a row each.

use tollgate::domain::algorithms::bucket::Drain;
use tollgate::domain::algorithms::{Parameters, fixed_window, sliding_counter, token_bucket};

use crate::gate::world::{WINDOW, in_window};

/// A way of counting.
pub(crate) struct Row {
    /// What it is called when it fails.
    pub(crate) name: &'static str,
    /// So that windows turn while a sequence runs, where the algorithm lets them.
    pub(crate) turning: Parameters,
    /// So that none turns within a minute.
    pub(crate) lasting: Parameters,
}

/// All of them.
pub(crate) fn rows() -> Vec<Row> {
    let calendar = in_window(WINDOW.0, WINDOW.1);
    let rest = uncut(20_000).into_iter().zip(uncut(3_600_000));
    let row = |((name, turning), (_, lasting))| Row { name, turning, lasting };
    let calendar = Row { name: "calendar", turning: calendar, lasting: calendar };
    std::iter::once(calendar).chain(rest.map(row)).collect()
}

/// Those that no calendar cuts, over so long.
pub(super) fn uncut(length_ms: i64) -> Vec<(&'static str, Parameters)> {
    let fixed = |aligned| Parameters::FixedWindow(fixed_window::Parameters { length_ms, aligned });
    let sliding = |sub_windows: u8| {
        let slot_ms = length_ms / i64::from(sub_windows);
        Parameters::SlidingCounter(sliding_counter::Parameters { slot_ms, slot_count: sub_windows + 1 })
    };
    let refill = Drain { units: 7, per_ms: length_ms };
    vec![
        ("fixed_window", fixed(false)),
        ("fixed_window, aligned", fixed(true)),
        ("sliding_counter of 2", sliding(2)),
        ("sliding_counter of 10", sliding(10)),
        ("token_bucket", Parameters::TokenBucket(token_bucket::Parameters { refill })),
    ]
}
