//! Waiting for a condition instead of for a while.

use std::{
    thread,
    time::{Duration, Instant},
};

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Checks `condition` until it gives a value; panics with `description` when `patience` has passed.
pub async fn wait_for<T>(
    description: &str,
    patience: Duration,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(started.elapsed() < patience, "waited {patience:?} in vain: {description}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// As [`wait_for`], for tests that block.
pub fn wait_blocking_for<T>(
    description: &str,
    patience: Duration,
    mut condition: impl FnMut() -> Option<T>,
) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(started.elapsed() < patience, "waited {patience:?} in vain: {description}");
        thread::sleep(LOOK_AGAIN);
    }
}
