//! Estimates: what is held for work of which nothing says how much it will use, from what finished work used.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::beat::until;
use crate::domain::amount::Decimals;
use crate::domain::estimate::{Accuracy, Estimate, EstimateSource, Sketch};
use crate::domain::ids::{MeterId, OperationId, TenantId};
use crate::domain::operation::Cost;
use crate::ledger::{LearnedCost, LearnedUse};
use crate::operations::core::Core;
use crate::operations::error::Answer;

/// How often new sketches are looked for without a notice of them.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// From how much of a tenant's resolved work a run learns at most: the latest.
const LATEST_WORK: usize = 10_000;

/// What is learned, in this instance's memory: no call asks the ledger for it.
pub struct Estimates {
    core: Arc<Core>,
    held: ArcSwap<Learned>,
    /// When the ledger wrote the latest of it (its clock, unix microseconds); 0 before the first.
    learned_at: AtomicI64,
    changed: Notify,
    reading: tokio::sync::Mutex<()>,
}

type Learned = HashMap<OperationId, HashMap<MeterId, OfCost>>;

/// What is learned of one cost.
#[derive(Default)]
struct OfCost {
    all: Sketch,
    tenants: HashMap<TenantId, OfTenant>,
}

struct OfTenant {
    sketch: Sketch,
    accuracy: Option<Accuracy>,
}

impl Estimates {
    /// Reads what is learned.
    pub(super) async fn load(core: Arc<Core>) -> Answer<Self> {
        let (held, learned_at, changed, reading) = Default::default();
        let estimates = Self { core, held, learned_at, changed, reading };
        estimates.read().await?;
        Ok(estimates)
    }

    /// What is held for a tenant's work of this operation on the cost's meter, which has these decimals.
    pub(super) fn estimate(
        &self,
        tenant: &TenantId,
        operation: &OperationId,
        cost: &Cost,
        decimals: Decimals,
    ) -> Estimate {
        let percentile = cost.percentile();
        let held = self.held.load();
        let of_cost = held.get(operation).and_then(|meters| meters.get(&cost.meter));
        let own = of_cost.and_then(|of_cost| of_cost.tenants.get(tenant));
        let candidates = [
            (EstimateSource::Tenant, own.map(|own| &own.sketch)),
            (EstimateSource::AllTenants, of_cost.map(|of_cost| &of_cost.all)),
        ];
        let learned = candidates.into_iter().find_map(|(source, sketch)| {
            let sketch = sketch?;
            Some((source, sketch.count(), sketch.covers(percentile)?))
        });
        let (source, count, units) = match learned {
            Some((source, count, units)) => (source, count, Some(units)),
            None => (EstimateSource::Maximum, 0, None),
        };
        Estimate {
            units: cost.estimated_units(units, decimals),
            percentile,
            source,
            count,
            accuracy: own.and_then(|own| own.accuracy),
        }
    }

    /// Learns from the work that was resolved since the last time, and has every instance read it. Returns how much
    /// work was counted.
    pub async fn learn(&self) -> Answer<u64> {
        let policy = self.core.policy.current();
        let operations = policy.definitions().operations.values();
        let costs: Vec<LearnedCost> = operations
            .flat_map(|operation| operation.costs.iter().map(move |cost| (operation, cost)))
            .filter(|(_, cost)| cost.estimate.is_some())
            .map(|(operation, cost)| (operation.id.clone(), cost.meter.clone()))
            .collect();
        Ok(self.core.ledger.learn_estimates(&costs, LATEST_WORK).await?)
    }

    /// When the latest of what is in memory was written (the ledger's clock, unix microseconds); none before the first.
    pub fn as_of(&self) -> Option<i64> {
        Some(self.learned_at.load(Ordering::Acquire)).filter(|at| *at > 0)
    }

    /// Has what is learned read soon, because some of it may be new.
    pub(super) fn ring(&self) {
        self.changed.notify_one();
    }

    /// Keeps what is in memory up to date until `stop` resolves.
    pub async fn follow(self: Arc<Self>, stop: impl Future<Output = ()>) {
        let following = async {
            loop {
                // Wakes at a notice, or after a while without one.
                let _ = tokio::time::timeout(LOOK_EVERY, self.changed.notified()).await;
                if let Err(error) = self.read().await {
                    tracing::warn!(%error, "what is learned could not be read; estimates stay as they are");
                }
            }
        };
        until(stop, following).await;
    }

    /// Reads all that is learned, if any of it is new.
    async fn read(&self) -> Answer<()> {
        let _one_at_a_time = self.reading.lock().await;
        let learned_at = self.core.ledger.estimates_learned_at().await?.unwrap_or_default();
        if learned_at == self.learned_at.load(Ordering::Acquire) {
            return Ok(());
        }
        let (mut learned, mut after) = (Learned::new(), None);
        loop {
            let (page, next) = self.core.ledger.learned_estimates(after).await?;
            page.into_iter().for_each(|use_| add(&mut learned, use_));
            if next.is_none() {
                break;
            }
            after = next;
        }
        self.held.store(Arc::new(learned));
        self.learned_at.store(learned_at, Ordering::Release);
        Ok(())
    }
}

fn add(learned: &mut Learned, LearnedUse { tenant, cost: (operation, meter), sketch, latest }: LearnedUse) {
    let of_cost = learned.entry(operation).or_default().entry(meter).or_default();
    match tenant {
        None => of_cost.all = sketch,
        Some(tenant) => {
            of_cost.tenants.insert(tenant, OfTenant { sketch, accuracy: latest.accuracy() });
        }
    }
}
