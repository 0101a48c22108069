//! How busy the installation is: measured here, and pushed by admins. Limits that ask for it have less capacity then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::clock::Clock;
use crate::domain::ids::LoadName;
use crate::domain::load::{LoadFactor, LoadSeconds, LoadSteps, MeasuredLoad};
use crate::ledger::{LOADS_MAX, PushedLoad};
use crate::operations::answers::Rows;
use crate::operations::core::Core;
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::Page;

/// The load of this installation as this instance knows it.
pub struct Load {
    core: Arc<Core>,
    began: Instant,
    following: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    measured: MeasuredLoad,
    /// What is pushed, each with its end by [`Load::now_ms`].
    pushed: Vec<(LoadFactor, i64)>,
    steps: LoadSteps,
}

impl Load {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            began: Clock::monotonic(),
            following: tokio::sync::Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// Pushes the load of a part of the installation for so long; every instance has it within a second.
    ///
    /// Errors: too many others hold.
    pub async fn push(
        &self,
        name: LoadName,
        factor: LoadFactor,
        ttl: LoadSeconds,
        actor: &str,
    ) -> Answer<PushedLoad> {
        let pushed = self.core.ledger.push_load(name, factor, ttl, actor).await?;
        let too_many = || {
            let message = format!("the loads of {LOADS_MAX} other names hold: let one of them end first");
            OperationError::field("/name", message)
        };
        let pushed = pushed.ok_or_else(too_many)?;
        self.follow().await;
        Ok(pushed)
    }

    /// A page of the pushed loads that hold now, by name.
    pub async fn page(&self, page: Page) -> Answer<Rows<PushedLoad>> {
        let loads = self.core.ledger.pushed_loads().await?;
        Ok(Rows::part(loads, &page, |load| load.name.to_string()))
    }

    /// Reads what is pushed. Where the ledger does not answer, what is known holds until its end.
    pub(super) async fn follow(&self) {
        // One after the other, so that an older reading never replaces a newer one.
        let _turn = self.following.lock().await;
        match self.core.ledger.pushed_loads().await {
            Ok(loads) => {
                let now_ms = self.now_ms();
                let end_ms = |load: &PushedLoad| {
                    now_ms.saturating_add(i64::try_from(load.lasts.as_millis()).unwrap_or(i64::MAX))
                };
                let mut known = self.known();
                known.pushed = loads.iter().map(|load| (load.factor, end_ms(load))).collect();
                self.settle(&mut known, now_ms);
            }
            Err(error) => tracing::warn!(%error, "pushed loads could not be read; those known hold"),
        }
    }

    /// Takes a measurement: the load of the processors, if it is known, beside what the gate tells.
    pub fn measure(&self, processors: Option<LoadFactor>) {
        let (waiting, waiting_max) = self.core.gate.waiting_calls();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let queue = LoadFactor::of(number(waiting), number(waiting_max));
        let gate = self.core.gate_times.take_slowest();
        let now_ms = self.now_ms();
        let mut known = self.known();
        known.measured.take(now_ms, processors.unwrap_or_default().max(queue).max(gate));
        self.settle(&mut known, now_ms);
    }

    /// Lets time pass where nothing is measured: pushed loads end, and capacities grow again.
    pub fn pass(&self) {
        let now_ms = self.now_ms();
        self.settle(&mut self.known(), now_ms);
    }

    fn settle(&self, known: &mut Known, now_ms: i64) {
        known.pushed.retain(|(_, ends_at_ms)| now_ms < *ends_at_ms);
        let pushed = known.pushed.iter().map(|(factor, _)| *factor).max().unwrap_or_default();
        let factor = known.measured.average().max(pushed);
        let before = known.steps.level();
        let level = known.steps.take(factor, now_ms);
        if level != before {
            let scaled = level.word().unwrap_or("1");
            let message = format!("limits that follow the load have {scaled} of their capacity");
            match self.is_followed() {
                true => tracing::warn!(load = %factor, %pushed, "{message}"),
                false => tracing::debug!(load = %factor, %pushed, "{message}"),
            }
        }
        self.core.load.set(level);
        self.core.metrics.load(factor, level);
    }

    /// Whether a default limit or one of a plan follows the load.
    fn is_followed(&self) -> bool {
        let policy = self.core.policy.current();
        let definitions = policy.definitions();
        let of_plans = definitions.plans.values().flat_map(|plan| &plan.limits);
        definitions.limits.values().chain(of_plans).any(|limit| limit.load_scaled)
    }

    /// Real time, also under a test clock: load is about the machine.
    fn now_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
