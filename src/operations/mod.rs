//! The verbs: what the product does, in groups. Callers and jobs call these and nothing below.
//!
//! A group is a folder and a struct with what the group needs. It uses the groups before it in this list, never those
//! after it: `progress`, `core`, `boundaries`, `decisions`, `violations`, `policy`, `keys`, `estimates`,
//! `preparation`, `memory`, `limit_bans`, `erasure`, `grants`, `plan_changes`, `upgrades`, `periods`, `statements`,
//! `outage`, `calls`, `adjustments`, `reconcile`, `reads`, `supplier_bills`, `webhooks`, `jobs`, `load`.

mod adjustments;
pub mod answers;
mod boundaries;
mod bounded_lines;
mod calls;
mod change_feed;
mod core;
mod damage;
mod decisions;
mod erasure;
mod error;
mod estimates;
mod grants;
mod instance;
mod jobs;
mod keys;
mod left_partitions;
mod limit_bans;
mod limit_status;
mod load;
mod load_level;
mod memory;
mod options;
mod outage;
mod periods;
mod plan_changes;
mod policy;
mod policy_store;
mod preparation;
mod progress;
mod reads;
mod reconcile;
pub mod requests;
mod run_progress;
mod statements;
mod supplier_bills;
mod unadjusted;
mod upgrades;
mod violations;
mod webhooks;

use std::sync::Arc;

pub use adjustments::Adjustments;
pub use bounded_lines::BoundedLines;
pub use calls::{Admission, Calls, FailedCheck, TimeAccepted};
pub use change_feed::follow_changes;
pub use damage::{Damage, Work};
pub use decisions::Decisions;
pub use erasure::Erasure;
pub use error::{Answer, FieldError, OperationError};
pub use estimates::Estimates;
pub use grants::GrantVerbs;
pub use jobs::Jobs;
pub use keys::{Keys, Recognised};
pub use limit_bans::{LimitBans, ListedBan};
pub use load::Load;
pub use memory::{
    AnchorCheck, FollowedGrants, KeyFilters, Losses, Memory, MemoryCheck, NextPeriods, RestoredHolds,
    watch_losses,
};
pub use options::{DecisionLogOptions, DecisionsOptions, OperationsOptions};
pub use outage::{ConflictChoice, ConflictView, Outage, SHARE_BEAT};
pub use periods::Periods;
pub use plan_changes::PlanChanges;
pub use policy::{Items, PolicyVerbs};
pub use progress::Positions;
pub use reads::{EntryExport, Health, Readiness, Reads, Snapshot};
pub use reconcile::{CheckpointTaken, GateCheck, Reconcile, TenantsPage};
pub use requests::INSTALLATION;
pub use run_progress::RunProgress;
pub use statements::Statements;
pub use supplier_bills::{BillUpload, FindingsExport, SupplierBills};
pub use upgrades::Upgrades;
pub use violations::Violations;
pub use webhooks::{Delivered, Webhooks};

use self::core::Core;
use crate::clock::Clock;
use crate::domain::ids::{Partition, ReservationIds};
use crate::gate::{BREAKER_FAILURES_MAX, Gate};
use crate::ledger::Ledger;
use crate::telemetry::Metrics;
use instance::Instance;
use load_level::{CurrentLoad, GateTimes};
use policy_store::PolicyStore;
use preparation::Preparation;
use progress::BookingProgress;
use unadjusted::Unadjusted;

/// All verbs over one gate and one ledger. Cheap to share behind an `Arc`.
pub struct Operations {
    core: Arc<Core>,
    cursor_key: [u8; 32],
    /// Reserve, usage, consume, release, extend, expiry.
    pub calls: Arc<Calls>,
    /// What decisions are explained by.
    pub decisions: Arc<Decisions>,
    /// Refused calls that limits with a punishment have counted.
    pub violations: Arc<Violations>,
    /// Bans that limits have placed.
    pub limit_bans: LimitBans,
    /// Erasure of subjects' names.
    pub erasure: Erasure,
    /// Policy as resources.
    pub policy: Arc<PolicyVerbs>,
    /// API keys.
    pub keys: Keys,
    /// What is held of work whose size nobody knows yet.
    pub estimates: Arc<Estimates>,
    /// The gate's memory: its check, restores, losses.
    pub memory: Arc<Memory>,
    /// Grants.
    pub grants: GrantVerbs,
    /// Corrections that finance posts.
    pub adjustments: Adjustments,
    /// Changes of plan that quotas follow.
    pub plan_changes: Arc<PlanChanges>,
    /// Requests for other plans.
    pub upgrades: Upgrades,
    /// The close of periods.
    pub periods: Periods,
    /// The issue of statements.
    pub statements: Statements,
    /// Work while the gate is away.
    pub outage: Arc<Outage>,
    /// The comparison of the gate with the books.
    pub reconcile: Reconcile,
    /// Reads.
    pub reads: Reads,
    /// The comparison of the books with suppliers' bills.
    pub supplier_bills: SupplierBills,
    /// Who receives notices, and their delivery.
    pub webhooks: Webhooks,
    /// Readiness.
    pub health: Health,
    /// Jobs.
    pub jobs: Jobs,
    /// How busy the installation is.
    pub load: Load,
    /// Damaged items that were skipped.
    pub damage: Arc<Damage>,
}

impl Operations {
    /// Loads policy and keys, looks at the node's clock and backlog, checks its memory and loads the scripts. With
    /// `waits_for_gate` it starts without one that does not answer.
    ///
    /// Errors: the ledger does not answer, what is stored cannot be read by this version, or the gate cannot be used by
    /// one that does not wait for it.
    pub async fn start(
        gate: Arc<Gate>,
        ledger: Ledger,
        clock: Clock,
        metrics: Arc<Metrics>,
        positions: Arc<Positions>,
        options: OperationsOptions,
        waits_for_gate: bool,
    ) -> Answer<Self> {
        let policy =
            PolicyStore::load(ledger.clone(), options.partitions, clock.clone(), metrics.clone()).await?;
        let (instance, wall_clock) = (Instance::default(), Clock::system());
        let (gate_of, ledger_of, clock_of) = (gate.clone(), ledger.clone(), wall_clock.clone());
        let progress = BookingProgress::new(gate_of, ledger_of, clock_of, positions, &options);
        let damage = Arc::new(Damage::new(ledger.clone(), metrics.clone()));
        let (load, gate_times) = (CurrentLoad::default(), GateTimes::within(gate.response_timeout()));
        let core = Arc::new(Core {
            gate,
            ledger,
            clock,
            wall_clock,
            metrics,
            policy,
            progress,
            instance,
            damage,
            load,
            gate_times,
            unadjusted: Unadjusted::default(),
        });
        let keys = Keys::load(core.clone(), &options.secret).await?;
        let estimates = Arc::new(Estimates::load(core.clone()).await?);
        let operations = Self::over(core, keys, estimates, options);
        // First of all: nothing may happen by an untrusted clock.
        operations.calls.admission.watch_gate().await;
        match operations.memory.check.verify_node().await {
            Err(OperationError::GateUnavailable(why)) if waits_for_gate => {
                operations.start_without_gate(&why).await?
            }
            checked => checked?,
        }
        operations.outage.reload_parked().await?;
        Ok(operations)
    }

    /// While the gate is away, a new instance does what others do. Its breaker opens first, so that no call waits for a
    /// gate that has never answered.
    async fn start_without_gate(&self, why: &str) -> Answer<()> {
        tracing::error!(
            why,
            "starts without the gate: until it answers, limits say what happens to work under them"
        );
        self.memory.check.begin_unchecked().await?;
        for _ in 0..BREAKER_FAILURES_MAX {
            self.calls.admission.watch_gate().await;
        }
        Ok(())
    }

    fn over(core: Arc<Core>, keys: Keys, estimates: Arc<Estimates>, options: OperationsOptions) -> Self {
        let ids = ReservationIds::new(&options.secret);
        let denies = options.deny_without_limit;
        let preparation = Preparation::new(core.clone(), estimates.clone(), ids.clone(), denies);
        let preparation = Arc::new(preparation);
        let decisions = Arc::new(Decisions::new(core.clone(), &options));
        let violations = Arc::new(Violations::new(core.clone()));
        let policy = Arc::new(PolicyVerbs::new(core.clone(), decisions.clone(), &options));
        let memory = Arc::new(Memory::new(core.clone(), options.keyed_memory_ms));
        let plan_changes = Arc::new(PlanChanges::new(core.clone(), memory.clone()));
        let parked_max = options.parked_calls_max;
        let outage = Arc::new(Outage::new(core.clone(), preparation.clone(), memory.clone(), parked_max));
        let calls = Arc::new(Calls::new(
            core.clone(),
            policy.clone(),
            preparation,
            memory.clone(),
            outage.clone(),
            (decisions.clone(), violations.clone()),
            &options,
        ));
        Self {
            decisions,
            violations,
            limit_bans: LimitBans::new(core.clone(), policy.clone(), memory.clone()),
            erasure: Erasure::new(core.clone(), policy.clone(), memory.clone()),
            reconcile: Reconcile::new(core.clone(), memory.clone()),
            reads: Reads::new(core.clone(), estimates.clone(), memory.clone(), outage.clone(), ids),
            grants: GrantVerbs::new(core.clone(), memory.clone()),
            adjustments: Adjustments::new(
                core.clone(),
                memory.clone(),
                calls.clone(),
                options.approval_above,
            ),
            calls,
            upgrades: Upgrades::new(core.clone(), policy.clone(), plan_changes.clone()),
            plan_changes,
            periods: Periods::new(core.clone(), memory.clone()),
            statements: Statements::new(core.clone()),
            supplier_bills: SupplierBills::new(core.clone()),
            webhooks: Webhooks::new(core.clone(), options.webhooks, &options.secret),
            health: Health::new(core.clone(), memory.clone()),
            jobs: Jobs::new(core.clone()),
            load: Load::new(core.clone()),
            damage: core.damage.clone(),
            cursor_key: blake3::derive_key("tollgate list cursors v1", &options.secret),
            keys,
            estimates,
            policy,
            memory,
            outage,
            core,
        }
    }

    /// All partitions of the installation.
    pub fn partitions(&self) -> impl Iterator<Item = Partition> + use<> {
        self.core.gate.partitions()
    }

    /// Service time, unix ms: that of the test clock, if there is one.
    pub fn now_ms(&self) -> i64 {
        self.core.clock.now_ms()
    }

    /// Moves the test clock forwards to `now_ms` (unix ms) and returns its time.
    pub async fn set_clock(&self, now_ms: i64) -> Answer<i64> {
        let clock = &self.core.clock;
        if !clock.is_test() {
            return Err(OperationError::NotFound("this service runs on the system's clock".into()));
        }
        clock.advance_to(now_ms).map_err(|error| OperationError::field("/now", error.to_string()))?;
        Ok(clock.now_ms())
    }

    /// The key under which the positions of lists are signed.
    pub fn cursor_key(&self) -> [u8; 32] {
        self.cursor_key
    }

    /// All metrics as OpenMetrics text.
    pub fn metrics_text(&self) -> String {
        self.calls.admission.show_gate();
        // Writing into a string cannot fail.
        self.core.metrics.encode().unwrap_or_default()
    }

    /// All metrics in the older Prometheus text format.
    pub fn metrics_text_older(&self) -> String {
        self.calls.admission.show_gate();
        // Writing into a string cannot fail.
        self.core.metrics.encode_older().unwrap_or_default()
    }

    /// The metrics, for the rooms above that observe.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.core.metrics
    }
}

#[cfg(test)]
mod tests {
    use super::requests::{ConsumeRequest, ReserveRequest};
    use super::*;

    fn future_bytes<A, F: Future>(_: impl Fn(&'static Calls, A) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn what_a_call_seldom_needs_does_not_swell_what_every_call_moves() {
        let reserve = future_bytes(|calls, request: ReserveRequest| calls.reserve(request));
        let consume = future_bytes(|calls, request: ConsumeRequest| calls.consume(request));
        assert!(reserve <= 6_800 && consume <= 5_200, "reserve {reserve}, consume {consume}");
    }
}
