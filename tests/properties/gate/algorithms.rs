//! The algorithms that the suite is run for: a row each.

use tollgate::domain::algorithms::Parameters;

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
    vec![Row { name: "calendar", turning: calendar, lasting: calendar }]
}
