//! The algorithms that the suite is run for: a row each.

use tollgate::domain::algorithms::{Parameters, fixed_window};

use crate::gate::world::{WINDOW, in_window};

/// A way of counting.
pub(super) struct Row {
    /// What it is called when it fails.
    pub(super) name: &'static str,
    /// So that windows turn while a sequence runs, where the algorithm lets them.
    pub(super) turning: Parameters,
    /// So that none turns within a minute.
    pub(super) lasting: Parameters,
}

/// All of them.
pub(super) fn rows() -> Vec<Row> {
    let calendar = in_window(WINDOW.0, WINDOW.1);
    let fixed = |length_ms, aligned| Parameters::FixedWindow(fixed_window::Parameters { length_ms, aligned });
    vec![
        Row { name: "calendar", turning: calendar, lasting: calendar },
        Row { name: "fixed_window", turning: fixed(20_000, false), lasting: fixed(3_600_000, false) },
        Row { name: "fixed_window, aligned", turning: fixed(20_000, true), lasting: fixed(3_600_000, true) },
    ]
}
