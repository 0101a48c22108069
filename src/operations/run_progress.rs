//! How far a run of a job is.

use std::sync::atomic::{AtomicU64, Ordering};

/// How far a run of a job is.
#[derive(Debug, Default)]
pub struct RunProgress {
    done: AtomicU64,
    total: AtomicU64,
}

impl RunProgress {
    /// There is so much left to do.
    pub fn set_left(&self, left: u64) {
        self.total.store(self.done.load(Ordering::Relaxed).saturating_add(left), Ordering::Relaxed);
    }

    /// So much more is done.
    pub fn add(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    /// How much is done, of how much; none where it is not known how much there is to do.
    pub fn now(&self) -> Option<(u64, u64)> {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        (total > 0).then_some((done, total.max(done)))
    }
}
