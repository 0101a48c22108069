//! What every group of verbs works with: the two engines, the clocks, policy in memory, how far the books are.

use std::sync::Arc;

use crate::clock::Clock;
use crate::gate::{Gate, GateError};
use crate::ledger::Ledger;
use crate::operations::damage::Damage;
use crate::operations::instance::Instance;
use crate::operations::policy_store::PolicyStore;
use crate::operations::progress::BookingProgress;
use crate::telemetry::Metrics;
use crate::telemetry::labels::Script;

/// The two engines and what goes with them.
pub(super) struct Core {
    pub(super) gate: Arc<Gate>,
    pub(super) ledger: Ledger,
    /// The service's time: the test clock's where there is one.
    pub(super) clock: Clock,
    /// The host's time, also under a test clock.
    pub(super) wall_clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) policy: PolicyStore,
    pub(super) progress: BookingProgress,
    pub(super) instance: Instance,
    pub(super) damage: Arc<Damage>,
}

impl Core {
    /// What scripts are told of the time: the test clock's, or nothing, and they ask Redis.
    pub(super) fn script_now(&self) -> Option<i64> {
        self.clock.is_test().then(|| self.clock.now_ms())
    }

    /// The scripts' time: by a host's clock that lags it, a window that has just turned would be restored as the one
    /// before, and what is booked in the new one would read as nothing used.
    pub(super) fn gate_now_ms(&self) -> i64 {
        self.script_now().unwrap_or_else(|| self.gate.redis_time_ms())
    }

    /// Runs one script call and notes how long it took.
    pub(super) async fn timed<T>(
        &self,
        script: Script,
        call: impl Future<Output = Result<T, GateError>>,
    ) -> Result<T, GateError> {
        let started = Clock::monotonic();
        let result = call.await;
        self.metrics.gate_call(script, started.elapsed());
        result
    }
}
