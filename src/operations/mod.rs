//! The verbs: what the product does, each in a file of its own. Callers and jobs call these and nothing below.

pub mod answers;
mod calls;
mod change_feed;
mod error;
mod instance;
mod key_memory;
mod keys;
mod memory;
mod next_period;
mod outage;
mod policy;
mod reads;
mod reconcile;
pub mod requests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::Notify;

use calls::acknowledge::Questions;
use instance::Instance;

pub use calls::acknowledge::Positions;
pub use calls::admission::TimeAccepted;
pub use change_feed::follow_changes;
pub use error::{FieldError, OperationError};
pub use keys::Recognised;
pub use memory::anchors::AnchorCheck;
pub use memory::losses::watch_losses;
pub use memory::restore_open::RestoredHolds;
pub use next_period::NextPeriods;
pub use outage::conflicts::{ConflictChoice, ConflictView};
pub use reads::health::Readiness;
pub use reconcile::checkpoint::{CheckpointTaken, TenantsPage};
pub use reconcile::damage::Work;
pub use reconcile::verify::GateCheck;

use crate::clock::Clock;
use crate::domain::ids::{PlanId, ReservationId, ReservationIds};
use crate::gate::{Gate, GateError};
use crate::ledger::Ledger;
use crate::telemetry::Metrics;
use calls::admission::Backlog;
use keys::Keys;
use memory::key_filters::KeyFilters;
use memory::losses::AcknowledgedEvents;
use memory::memory_check::MemoryCheck;
use memory::restore_turns::RestoreTurns;
use outage::parking::Parking;
use policy::policy_store::PolicyStore;
use reconcile::damage::PassedOver;

/// What every verb answers.
pub type Answer<T> = Result<T, OperationError>;

/// Who acts where nobody called.
pub const INSTALLATION: &str = "installation";

/// What the verbs need to know of the configuration.
#[derive(Debug, Clone)]
pub struct OperationsOptions {
    /// The installation's secret; ids, subject hashes, key hashes and cursors derive from it.
    pub secret: [u8; 32],
    /// How many partitions the installation has.
    pub partitions: u16,
    /// How long `ack: ledger` waits.
    pub ack_timeout: Duration,
    /// How long a cold call waits for the ledger to catch up.
    pub restore_wait: Duration,
    /// How many parked calls may wait at once.
    pub parked_calls_max: u64,
    /// For how long the gate remembers keyed calls, in ms.
    pub keyed_memory_ms: i64,
    /// Whether meters with `without_limit = "config"` are denied to tenants without limit or quota.
    pub deny_without_limit: bool,
    /// The plan on which an unknown tenant is created at first use; none: it is refused.
    pub unknown_tenant_plan: Option<PlanId>,
    /// With so many events not booked yet, nothing new is admitted.
    pub backlog_events_max: u64,
    /// With so many, holds are neither extended nor consumed in part.
    pub backlog_events_hard_max: u64,
    /// With so many bytes of them, nothing new is admitted.
    pub backlog_bytes_max: u64,
    /// With so many, holds are neither extended nor consumed in part.
    pub backlog_bytes_hard_max: u64,
    /// How long booked events stay in the outbox, where their bytes do not end that earlier.
    pub safety_tail: Duration,
}

/// All verbs over one gate and one ledger. Cheap to share behind an `Arc`.
pub struct Operations {
    gate: Arc<Gate>,
    ledger: Ledger,
    policy: PolicyStore,
    keys: Keys,
    ids: ReservationIds,
    clock: Clock,
    wall_clock: Clock,
    metrics: Arc<Metrics>,
    options: OperationsOptions,
    instance: Instance,
    positions: Arc<Positions>,
    questions: Questions,
    trust: MemoryCheck,
    restores: RestoreTurns,
    compared: reconcile::compared::Compared,
    backlog: Backlog,
    stopping: AtomicBool,
    remembered: AcknowledgedEvents,
    jobs_bell: Notify,
    parking: Parking,
    passed_over: PassedOver,
    key_filters: KeyFilters,
}

impl Operations {
    /// Loads policy and keys, looks at the node's clock and backlog, checks its memory and loads the scripts.
    ///
    /// Errors: the gate or the ledger does not answer, or what is stored cannot be read by this version.
    pub async fn start(
        gate: Arc<Gate>,
        ledger: Ledger,
        clock: Clock,
        metrics: Arc<Metrics>,
        positions: Arc<Positions>,
        options: OperationsOptions,
    ) -> Answer<Self> {
        let policy =
            PolicyStore::load(ledger.clone(), options.partitions, clock.clone(), metrics.clone()).await?;
        let remembered = AcknowledgedEvents::new(options.partitions);
        let keys = Keys::load(&ledger, &options.secret).await?;
        let operations = Self {
            gate,
            ledger,
            policy,
            keys,
            ids: ReservationIds::new(&options.secret),
            clock,
            wall_clock: Clock::system(),
            metrics,
            options,
            instance: Instance::default(),
            positions,
            questions: Questions::default(),
            trust: MemoryCheck::default(),
            restores: RestoreTurns::default(),
            compared: reconcile::compared::Compared::default(),
            backlog: Backlog::default(),
            stopping: AtomicBool::new(false),
            remembered,
            jobs_bell: Notify::new(),
            parking: Parking::default(),
            passed_over: PassedOver::default(),
            key_filters: KeyFilters::default(),
        };
        // First of all: nothing may be done by a clock that is not trusted.
        operations.watch_gate().await;
        operations.verify_node().await?;
        operations.reload_parked().await?;
        Ok(operations)
    }

    /// A reservation id from outside; one that this installation did not make is not found, without a look-up.
    pub fn parse_reservation_id(&self, text: &str) -> Answer<ReservationId> {
        self.ids.parse(text).map_err(|_| calls::resolve::not_found())
    }

    /// Service time, unix ms: the test clock's where there is one.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Lets whoever waits for the jobs' bell look at what is due.
    pub fn ring_jobs(&self) {
        self.jobs_bell.notify_one();
    }

    /// Resolves when the jobs' bell has rung since the last time.
    pub async fn jobs_rung(&self) {
        self.jobs_bell.notified().await;
    }

    /// Moves the test clock forwards to `now_ms` (unix ms) and returns where it stands.
    pub async fn set_clock(&self, now_ms: i64) -> Answer<i64> {
        if !self.clock.is_test() {
            return Err(OperationError::NotFound("this service runs on the system's clock".into()));
        }
        self.clock.advance_to(now_ms).map_err(|error| OperationError::field("/now", error.to_string()))?;
        Ok(self.clock.now_ms())
    }

    /// The key under which the positions of lists are signed.
    pub fn cursor_key(&self) -> [u8; 32] {
        blake3::derive_key("tollgate list cursors v1", &self.options.secret)
    }

    /// All metrics as OpenMetrics text.
    pub fn metrics_text(&self) -> String {
        self.show_gate();
        // Writing into a string cannot fail.
        self.metrics.encode().unwrap_or_default()
    }

    /// All metrics in the older Prometheus text format.
    pub fn metrics_text_older(&self) -> String {
        self.show_gate();
        // Writing into a string cannot fail.
        self.metrics.encode_older().unwrap_or_default()
    }

    /// The metrics, for those above that observe.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The time from which a memory without a sweep is swept: the earlier of both clocks while Redis's is not trusted, as
    /// holds behind it would else return late.
    fn sweep_start(&self) -> Option<i64> {
        let earlier = || self.gate.redis_time_ms().min(self.wall_clock.now_ms());
        self.script_now().or_else(|| (!self.gate.trusts_time()).then(earlier))
    }

    /// What scripts are told of the time: the test clock's, or nothing, and they ask Redis.
    fn script_now(&self) -> Option<i64> {
        self.clock.is_test().then(|| self.clock.now_ms())
    }
}

impl From<GateError> for OperationError {
    fn from(error: GateError) -> Self {
        if matches!(error, GateError::Overloaded) {
            Self::Overloaded
        } else if error.is_transient() {
            Self::GateUnavailable(error.to_string())
        } else {
            Self::Internal(error.to_string())
        }
    }
}

impl From<crate::ledger::LedgerError> for OperationError {
    fn from(error: crate::ledger::LedgerError) -> Self {
        use crate::ledger::{Conflict, LedgerError};
        match error {
            error if error.is_transient() => Self::LedgerUnavailable(error.to_string()),
            LedgerError::Conflict(Conflict::Version { found, .. }) => {
                Self::PreconditionFailed { current: found.unwrap_or_default() }
            }
            LedgerError::Conflict(Conflict::Missing { kind, id }) => {
                Self::NotFound(format!("there is no {kind} {id}"))
            }
            LedgerError::Conflict(conflict @ (Conflict::InUse { .. } | Conflict::Exists { .. })) => {
                Self::InUse(conflict.to_string())
            }
            other => Self::Internal(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::requests::{ConsumeRequest, ReserveRequest};
    use super::*;

    fn future_bytes<A, F: Future>(_: impl Fn(&'static Operations, A) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn what_a_call_seldom_needs_does_not_swell_what_every_call_moves() {
        let reserve = future_bytes(|operations, request: ReserveRequest| operations.reserve(request));
        let consume = future_bytes(|operations, request: ConsumeRequest| operations.consume(request));
        assert!(reserve <= 6_000 && consume <= 5_000, "reserve {reserve}, consume {consume}");
    }
}
