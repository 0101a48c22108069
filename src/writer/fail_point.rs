//! Named places where a test may make the writer stop as if it had been killed.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// After or before which step the writer stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailPoint {
    /// The outboxes are read, nothing is written.
    AfterRead,
    /// The rows are written, the transaction is open.
    BeforeCommit,
    /// The transaction is committed, nothing is published.
    AfterCommit,
    /// The positions are published to the gate, nothing is trimmed.
    AfterPublish,
    /// Everything is done.
    AfterTrim,
}

/// The place set to fail, if any. Tests set it; release builds never look.
#[derive(Debug, Default)]
pub struct FailPoints {
    set: AtomicU8,
    met: AtomicBool,
}

/// The writer reached the place where a test stops it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Killed;

impl FailPoints {
    /// Makes the writer stop at `point`.
    pub fn set(&self, point: FailPoint) {
        self.set.store(number(point), Ordering::SeqCst);
    }

    /// Whether the writer has stopped at the place set.
    pub fn is_met(&self) -> bool {
        self.met.load(Ordering::SeqCst)
    }

    /// Stops here if a test has set this place.
    pub(crate) fn check(&self, point: FailPoint) -> Result<(), Killed> {
        let is_set = cfg!(debug_assertions) && self.set.load(Ordering::SeqCst) == number(point);
        if !is_set {
            return Ok(());
        }
        self.met.store(true, Ordering::SeqCst);
        Err(Killed)
    }
}

fn number(point: FailPoint) -> u8 {
    match point {
        FailPoint::AfterRead => 1,
        FailPoint::BeforeCommit => 2,
        FailPoint::AfterCommit => 3,
        FailPoint::AfterPublish => 4,
        FailPoint::AfterTrim => 5,
    }
}
