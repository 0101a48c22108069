//! The watch over the gate: its own short beat, in every instance whatever its roles.

use std::sync::Arc;
use std::time::Duration;

use crate::beat::turns;
use crate::clock::Clock;
use crate::gate::BreakerState;
use crate::operations::Operations;

const BEAT: Duration = Duration::from_millis(200);
/// A node that has answered once is asked again at once, so that calls need not wait for the next beat.
const AGAIN: Duration = Duration::from_millis(10);

/// Looks at the gate beat by beat until `stop` resolves: closes the breaker, checks the clock, counts the backlog. A look
/// at a node that is frozen takes a response timeout, and the next follows it.
pub async fn watch_gate(operations: Arc<Operations>, stop: impl Future<Output = ()>) {
    let look = || async {
        let began = Clock::monotonic();
        let state = operations.watch_gate().await;
        let beat = if state == BreakerState::HalfOpen { AGAIN } else { BEAT };
        beat.saturating_sub(began.elapsed())
    };
    turns(stop, look).await;
}
