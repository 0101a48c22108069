//! The watch over the gate, with a short beat of its own, in every instance whatever its roles.

use std::sync::Arc;
use std::time::Duration;

use crate::beat::turns;
use crate::clock::Clock;
use crate::gate::BreakerState;
use crate::operations::Operations;

const BEAT: Duration = Duration::from_millis(200);
/// The pause before the second look that closes the breaker, so that calls need not wait for the next beat.
const AGAIN: Duration = Duration::from_millis(10);

/// Looks at the gate beat by beat until `stop` resolves: closes the breaker, checks the clock, measures the backlog. A
/// look at a frozen node takes a response timeout, and the next look follows at once.
pub async fn watch_gate(operations: Arc<Operations>, stop: impl Future<Output = ()>) {
    let look = || async {
        let began = Clock::monotonic();
        let state = operations.calls.admission.watch_gate().await;
        let beat = if state == BreakerState::HalfOpen { AGAIN } else { BEAT };
        beat.saturating_sub(began.elapsed())
    };
    turns(stop, look).await;
}
