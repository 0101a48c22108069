//! Decisions that can be explained afterwards: those of sampled tenants, whole, and the refusals of the last hour.
//!
//! An admission of a tenant that is not sampled leaves nothing behind, so it costs nothing here.

mod decided;
mod refusals;
mod sampling;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

pub(super) use self::decided::Decided;

use self::decided::SubjectNames;
use self::refusals::Refusals;
use self::sampling::Sampling;
use crate::domain::decision::{DecidedSubject, Decision};
use crate::domain::ids::{Subject, TenantId};
use crate::operations::core::Core;
use crate::operations::error::{Answer, OperationError};
use crate::operations::options::OperationsOptions;

/// The most decisions that wait to be written.
const UNWRITTEN_MAX: usize = 10_000;

/// What is kept of decisions.
pub struct Decisions {
    core: Arc<Core>,
    sampling: Sampling,
    names: SubjectNames,
    /// How many decisions were kept before.
    kept: AtomicU64,
    refusals: Mutex<Refusals>,
    waiting: Mutex<Waiting>,
    /// Held while some are written.
    turn: tokio::sync::Mutex<()>,
}

/// Decisions of sampled tenants that are not known to be stored.
#[derive(Default)]
struct Waiting {
    unwritten: Vec<Arc<Decision>>,
    /// Those that are being written: the same ones again, until it is known that they are stored.
    writing: Arc<[Arc<Decision>]>,
}

impl Waiting {
    fn find(&self, id: Uuid) -> Option<Arc<Decision>> {
        self.unwritten.iter().chain(self.writing.iter()).find(|decision| decision.id == id).cloned()
    }

    /// What is to be written now.
    fn take(&mut self) -> Arc<[Arc<Decision>]> {
        if self.writing.is_empty() {
            self.writing = std::mem::take(&mut self.unwritten).into();
        }
        self.writing.clone()
    }
}

impl Decisions {
    /// Keeps what the configuration says.
    pub(super) fn new(core: Arc<Core>, options: &OperationsOptions) -> Self {
        Self {
            names: SubjectNames::new(core.gate.clone(), &options.secret),
            core,
            sampling: Sampling::new(&options.decisions, &options.secret),
            kept: AtomicU64::new(0),
            refusals: Mutex::new(Refusals::new(options.decisions.refusals_max)),
            waiting: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Whether an admission of this tenant is kept. Refusals always are.
    pub(super) fn samples(&self, tenant: &TenantId) -> bool {
        self.sampling.has(tenant)
    }

    /// What a subject is called in what is kept.
    pub(super) fn name(&self, tenant: &TenantId, subject: &Subject) -> DecidedSubject {
        self.names.name(tenant, subject)
    }

    /// Keeps a decision: a refusal in memory, and either kind in the ledger where the tenant is sampled.
    pub(super) fn keep(&self, decided: Decided<'_>) {
        let is_sampled = self.samples(decided.tenant);
        let number = self.kept.fetch_add(1, Ordering::Relaxed);
        let decision = Arc::new(decided.decision(self.core.gate_now_ms(), number, &self.names));
        if !decision.is_admitted {
            locked(&self.refusals).add(decision.clone());
        }
        if is_sampled {
            let mut waiting = locked(&self.waiting);
            if waiting.unwritten.len() < UNWRITTEN_MAX {
                waiting.unwritten.push(decision);
            } else {
                drop(waiting);
                self.core.metrics.decisions_dropped(1);
            }
        }
    }

    /// The decision with this id; for a bound caller only one of its tenant.
    ///
    /// Errors: there is none, it is another tenant's, or nothing is kept of it; the ledger does not answer.
    pub async fn explain(&self, id: Uuid, bound: Option<&TenantId>) -> Answer<Arc<Decision>> {
        let refused = locked(&self.refusals).get(id, self.core.gate_now_ms());
        let known = refused.or_else(|| locked(&self.waiting).find(id));
        let found = match known {
            Some(known) => Some(known),
            None => self.core.ledger.decision(id).await?.map(Arc::new),
        };
        let none = "nothing is kept of this decision: there are those of sampled tenants, for a week, and the \
            refusals of the last hour";
        found
            .filter(|decision| bound.is_none_or(|bound| *bound == decision.tenant))
            .ok_or_else(|| OperationError::NotFound(none.to_owned()))
    }

    /// Writes to the ledger what waits. What it does not take now is written with the next call, unless it refuses it.
    pub async fn write(&self) {
        let _turn = self.turn.lock().await;
        let writing = locked(&self.waiting).take();
        if writing.is_empty() {
            return;
        }
        let count = u64::try_from(writing.len()).unwrap_or(u64::MAX);
        match self.core.ledger.copy_decisions(&writing).await {
            Ok(()) => self.core.metrics.decisions_kept(count),
            Err(error) if error.is_transient() => {
                tracing::debug!(%error, "decisions wait to be written");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, count, "decisions could not be written and are dropped");
                self.core.metrics.decisions_dropped(count);
            }
        }
        // Only now: who does not find one here finds it in the ledger.
        locked(&self.waiting).writing = Arc::default();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
