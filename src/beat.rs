//! Loops of work that run until a stop: turn after turn, with a pause between them.

use std::time::Duration;

/// Runs `work` until `stop` resolves, and drops it then.
pub async fn until(stop: impl Future<Output = ()>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        () = stop => {}
    }
}

/// Takes turns until `stop` resolves; each turn returns the pause before the next.
pub async fn turns<T: Future<Output = Duration>>(
    stop: impl Future<Output = ()>,
    mut turn: impl FnMut() -> T,
) {
    let turning = async {
        loop {
            let pause = turn().await;
            tokio::time::sleep(pause).await;
        }
    };
    until(stop, turning).await;
}

/// Takes turns until `stop` resolves, with a pause of `beat` after each.
pub async fn every<T: Future<Output = ()>>(
    beat: Duration,
    stop: impl Future<Output = ()>,
    mut turn: impl FnMut() -> T,
) {
    let turning = async {
        loop {
            turn().await;
            tokio::time::sleep(beat).await;
        }
    };
    until(stop, turning).await;
}
