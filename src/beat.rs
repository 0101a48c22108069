//! Work that goes on until a stop: turn after turn, with a pause between them.

use std::time::Duration;

/// Works until `stop` resolves; what is under way then is given up.
pub async fn until(stop: impl Future<Output = ()>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        () = stop => {}
    }
}

/// Takes a turn, pauses for as long as it says, and takes the next, until `stop` resolves.
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

/// Takes a turn every `beat`, counted from the end of the last one, until `stop` resolves.
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
