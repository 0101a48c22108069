//! What callers ask of the gate: reserve, usage, consume, release, extend; and the expiry of holds.

mod admission;
mod call_metrics;
mod check;
mod check_answer;
mod check_booked;
mod check_global;
mod corrections;
mod decision_log;
mod events;
mod expire;
mod explained;
mod global;
mod light;
mod prefilter;
mod refusal;
mod repeat;
mod reserve;
mod reserve_answer;
mod resolve;
mod tombstone;

use std::sync::Arc;

pub use admission::{Admission, TimeAccepted};
pub use check::FailedCheck;

use decision_log::DecisionLog;
use prefilter::Prefilter;

use crate::operations::core::Core;
use crate::operations::decisions::Decisions;
use crate::operations::memory::Memory;
use crate::operations::options::OperationsOptions;
use crate::operations::outage::Outage;
use crate::operations::policy::PolicyVerbs;
use crate::operations::preparation::Preparation;
use crate::operations::violations::Violations;

/// The detail for a caller whose last try failed.
const KEPT_CHANGING: &str = "its state kept changing under this call; repeat it";

/// The calls about reservations.
pub struct Calls {
    core: Arc<Core>,
    policy: Arc<PolicyVerbs>,
    preparation: Arc<Preparation>,
    memory: Arc<Memory>,
    outage: Arc<Outage>,
    decisions: Arc<Decisions>,
    violations: Arc<Violations>,
    log: DecisionLog,
    prefilter: Prefilter,
    /// Whether anything new may be admitted now.
    pub admission: Admission,
}

impl Calls {
    /// Makes the calls, bounded as the configuration says.
    pub(super) fn new(
        core: Arc<Core>,
        policy: Arc<PolicyVerbs>,
        preparation: Arc<Preparation>,
        memory: Arc<Memory>,
        outage: Arc<Outage>,
        (decisions, violations): (Arc<Decisions>, Arc<Violations>),
        options: &OperationsOptions,
    ) -> Self {
        let admission = Admission::new(core.clone(), options);
        let log = DecisionLog::new(options.decision_log, &options.secret);
        let prefilter = Prefilter::new(options.prefilter);
        Self { core, policy, preparation, memory, outage, decisions, violations, log, prefilter, admission }
    }
}
