//! What callers ask of the gate: reserve, usage, consume, release, extend, and what ends a hold by itself.

mod admission;
mod call_metrics;
mod expire;
mod refusal;
mod repeat;
mod reserve;
mod reserve_answer;
mod resolve;
mod tombstone;

use std::sync::Arc;

pub use admission::{Admission, TimeAccepted};

use crate::operations::core::Core;
use crate::operations::memory::Memory;
use crate::operations::options::OperationsOptions;
use crate::operations::outage::Outage;
use crate::operations::policy::PolicyVerbs;
use crate::operations::preparation::Preparation;

/// What a caller is told whose last try was in vain.
const KEPT_CHANGING: &str = "its state kept changing under this call; repeat it";

/// The calls about reservations.
pub struct Calls {
    core: Arc<Core>,
    policy: Arc<PolicyVerbs>,
    preparation: Arc<Preparation>,
    memory: Arc<Memory>,
    outage: Arc<Outage>,
    /// Whether anything new may be admitted now.
    pub admission: Admission,
}

impl Calls {
    /// Bounded as the configuration says.
    pub(super) fn new(
        core: Arc<Core>,
        policy: Arc<PolicyVerbs>,
        preparation: Arc<Preparation>,
        memory: Arc<Memory>,
        outage: Arc<Outage>,
        options: &OperationsOptions,
    ) -> Self {
        let admission = Admission::new(core.clone(), options);
        Self { core, policy, preparation, memory, outage, admission }
    }
}
