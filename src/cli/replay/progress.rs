//! Showing how far a replay is: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// How far a replay is. Shared by its workers.
#[derive(Debug)]
pub(super) struct Progress {
    started: Instant,
    total: u64,
    done: AtomicU64,
    moved_ms: AtomicU64,
}

impl Progress {
    pub(super) fn new(total: u64) -> Self {
        Self { started: Instant::now(), total, done: AtomicU64::new(0), moved_ms: AtomicU64::new(0) }
    }

    /// Notes that the service answered something, and how many jobs ended with it.
    pub(super) fn moved(&self, ended: u64) {
        self.done.fetch_add(ended, Ordering::Relaxed);
        self.moved_ms.fetch_max(self.now_ms(), Ordering::Relaxed);
    }

    /// How many jobs there are.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// How many jobs have ended.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// How long the replay has run.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// How long nothing has moved, counted from `since` at the earliest.
    pub(super) fn stalled(&self, since: Instant) -> Duration {
        let moved = self.started + Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
        moved.max(since).elapsed()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Shows it on a terminal until dropped.
    pub(super) async fn show(&self) {
        if !std::io::stderr().is_terminal() {
            return std::future::pending().await;
        }
        let bar = ProgressBar::new(self.total).with_finish(ProgressFinish::AndClear);
        if let Ok(style) =
            ProgressStyle::with_template("{bar:30} {human_pos} of {human_len} jobs, {per_sec}, {eta} left")
        {
            bar.set_style(style);
        }
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        loop {
            tick.tick().await;
            bar.set_position(self.done());
        }
    }
}
