//! Readiness: whether this instance can do its work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::gate::BreakerState;
use crate::operations::core::Core;
use crate::operations::memory::Memory;

/// The longest that readiness waits for Postgres: a load balancer does not wait long for its answer.
const LEDGER_PATIENCE: Duration = Duration::from_millis(500);

/// One thing that this instance depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// Its name.
    pub name: &'static str,
    /// Whether it is as it should be.
    pub ok: bool,
    /// Whether calls must not be sent here while it fails.
    pub needed: bool,
    /// Its state, in a sentence without addresses.
    pub detail: &'static str,
}

impl Readiness {
    fn of(name: &'static str, ok: bool, well: &'static str, ill: &'static str) -> Self {
        Self { name, ok, needed: false, detail: if ok { well } else { ill } }
    }

    fn needed(name: &'static str, ok: bool, well: &'static str, ill: &'static str) -> Self {
        Self { needed: true, ..Self::of(name, ok, well, ill) }
    }
}

/// What readiness looks at.
pub struct Health {
    core: Arc<Core>,
    memory: Arc<Memory>,
    stopping: AtomicBool,
}

impl Health {
    /// Readiness of this instance.
    pub(in crate::operations) fn new(core: Arc<Core>, memory: Arc<Memory>) -> Self {
        Self { core, memory, stopping: AtomicBool::new(false) }
    }

    /// From now on readiness says that no calls should be sent here.
    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Each thing that this instance depends on, from memory: only Postgres is asked, and not for long.
    pub async fn readiness(&self) -> Vec<Readiness> {
        let running = !self.stopping.load(Ordering::Acquire);
        let ledger = self.ledger_readiness().await;
        let has_epochs =
            self.core.gate.partitions().all(|partition| self.core.gate.epoch(partition).is_some());
        vec![
            Readiness::needed("running", running, "It runs.", "It is stopping."),
            Readiness::needed(
                "epochs",
                has_epochs,
                "Policy and epochs were loaded from the ledger.",
                "The ledger has not named all epochs yet.",
            ),
            self.gate_readiness(ledger.ok),
            Readiness::of(
                "clock",
                self.core.gate.knows_time(self.core.wall_clock.now_ms()),
                "The gate's time is trusted.",
                "Redis's clock has stepped or differs from the host's, or the host's from Postgres's where Redis has not answered yet, or the host was suspended; nothing is admitted until they agree or an admin accepts Redis's.",
            ),
            ledger,
        ]
    }

    /// While the ledger answers, calls are taken without the gate too, so no balancer may send them elsewhere.
    fn gate_readiness(&self, ledger_ok: bool) -> Readiness {
        let answers = self.core.gate.breaker_state() == BreakerState::Closed;
        let (takes_writes, in_doubt) = (self.core.gate.takes_writes(), self.memory.check.is_in_doubt());
        let ok = answers && takes_writes && !in_doubt;
        let ill = match ledger_ok {
            _ if answers && takes_writes => {
                "Redis answers, but its memory could not be checked or it is not safe to use: look at the log. Limits' failure policies decide, and calls are parked."
            }
            _ if answers => {
                "Redis answers but takes no writes: look at its memory, its disk and its role. Limits' failure policies decide, and calls are parked."
            }
            true => {
                "Redis does not answer; limits' failure policies decide, and calls are parked until it does."
            }
            false => "Redis does not answer, nor does Postgres; no call can be taken.",
        };
        Readiness { needed: !ledger_ok, ..Readiness::of("gate", ok, "Redis answers and takes writes.", ill) }
    }

    async fn ledger_readiness(&self) -> Readiness {
        let ok = match tokio::time::timeout(LEDGER_PATIENCE, self.core.ledger.policy_version()).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the ledger does not answer readiness");
                false
            }
            Err(_) => false,
        };
        Readiness::of("ledger", ok, "Postgres answers.", "Postgres does not answer in time.")
    }
}
