//! What every group of verbs works with: the two engines, the clocks, policy in memory, booking progress.

use std::sync::Arc;

use crate::clock::Clock;
use crate::domain::ids::{OutboxId, Partition};
use crate::gate::{Gate, GateError};
use crate::ledger::Ledger;
use crate::operations::damage::Damage;
use crate::operations::error::{Answer, OperationError};
use crate::operations::instance::Instance;
use crate::operations::load_level::{CurrentLoad, GateTimes};
use crate::operations::policy_store::PolicyStore;
use crate::operations::progress::BookingProgress;
use crate::operations::unadjusted::Unadjusted;
use crate::telemetry::Metrics;
use crate::telemetry::labels::{Fault, Script};

/// The two engines and what belongs to them.
pub(super) struct Core {
    pub(super) gate: Arc<Gate>,
    pub(super) ledger: Ledger,
    /// The service's time: that of the test clock, if there is one.
    pub(super) clock: Clock,
    /// The host's time, even with a test clock.
    pub(super) wall_clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) policy: PolicyStore,
    pub(super) progress: BookingProgress,
    pub(super) instance: Instance,
    pub(super) damage: Arc<Damage>,
    pub(super) load: CurrentLoad,
    pub(super) gate_times: GateTimes,
    pub(super) unadjusted: Unadjusted,
}

impl Core {
    /// The time that scripts get: the test clock's; with none they ask Redis.
    pub(super) fn script_now(&self) -> Option<i64> {
        self.clock.is_test().then(|| self.clock.now_ms())
    }

    /// The scripts' time. By a lagging host's clock, a window that has just turned would be restored as the previous
    /// one, and what is booked in the new one would count as nothing used.
    pub(super) fn gate_now_ms(&self) -> i64 {
        self.script_now().unwrap_or_else(|| self.gate.redis_time_ms())
    }

    /// The same for what stays in the books for good: a period closed by a wrong time is never opened again.
    ///
    /// Errors: Redis's clock is not trusted.
    pub(super) fn trusted_now_ms(&self) -> Answer<i64> {
        let now_ms = self.gate_now_ms();
        if self.gate.trusts_time() {
            return Ok(now_ms);
        }
        Err(OperationError::GateUnavailable("its clock is not trusted; nothing is booked by it".into()))
    }

    /// Appends a boundary that says that the instant (unix ms) is passed. Returns its place; none where the gate's
    /// clock is before the instant. Errors also where that clock is not trusted.
    pub(super) async fn append_boundary(
        &self,
        partition: Partition,
        instant_ms: i64,
    ) -> Answer<Option<OutboxId>> {
        self.trusted_now_ms()?;
        Ok(self.gate.append_boundary(partition, instant_ms, self.script_now()).await?)
    }

    /// Runs one script call and measures its time.
    pub(super) async fn timed<T>(
        &self,
        script: Script,
        call: impl Future<Output = Result<T, GateError>>,
    ) -> Result<T, GateError> {
        let started = Clock::monotonic();
        let result = call.await;
        let took = started.elapsed();
        self.metrics.gate_call(script, took);
        if let Err(error) = &result {
            self.metrics.gate_failed(script, fault_of(error));
        }
        self.gate_times.note(took);
        result
    }
}

/// The metrics' word for why a script has decided nothing.
fn fault_of(error: &GateError) -> Fault {
    match error {
        GateError::Alarm { .. } => Fault::Alarm,
        GateError::Timeout => Fault::Timeout,
        GateError::TooLate => Fault::TooLate,
        GateError::Unavailable(_) | GateError::Settings(_) => Fault::Unavailable,
        GateError::BreakerOpen => Fault::BreakerOpen,
        GateError::Overloaded => Fault::Overloaded,
        GateError::NoEpoch(_) => Fault::NoEpoch,
        GateError::UnsafeServer(_) => Fault::UnsafeServer,
        GateError::Malformed { .. } => Fault::Malformed,
        GateError::Script { .. } => Fault::Script,
        GateError::Undecodable(_) => Fault::Undecodable,
    }
}
