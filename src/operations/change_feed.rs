//! Keeps policy, keys and pushed loads of this instance fresh: by the ledger's notices at once, and by a slow poll.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use crate::beat::until;
use crate::domain::ids::TenantId;
use crate::ledger::{
    ADJUSTED_NOTICE, LOAD_NOTICE, Ledger, Notice, Noticed, TIME_ACCEPTED, erasure, estimates, key_filters,
    parked,
};
use crate::operations::Operations;
use crate::operations::error::Answer;

/// Notices that come together cause one reading ...
const GATHER_FOR: Duration = Duration::from_millis(10);
/// ... and a stream of them without a pause delays it no longer than this.
const GATHER_MAX: Duration = Duration::from_millis(100);

/// Applies changes of policy and keys until `stop` resolves. `url` is the ledger's, for a connection of its own.
/// `poll_every` is the interval of the poll. `connected` is notified once the first notices can arrive.
pub async fn follow_changes(
    operations: Arc<Operations>,
    url: String,
    poll_every: Duration,
    connected: oneshot::Sender<()>,
    stop: impl Future<Output = ()>,
) {
    let following = async {
        let mut connected = Some(connected);
        let mut notices = Ledger::listen(&url);
        let mut polls = tokio::time::interval(poll_every);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut seen_version, mut is_quiet) = (0, true);
        loop {
            tokio::select! {
                Some(first) = notices.next() => {
                    is_quiet = false;
                    let since = Instant::now();
                    let mut is_policy = operations.take_notice(first).await;
                    while since.elapsed() < GATHER_MAX
                        && let Ok(Some(more)) = tokio::time::timeout(GATHER_FOR, notices.next()).await
                    {
                        is_policy |= operations.take_notice(more).await;
                    }
                    if is_policy {
                        seen_version = operations.refresh_policy(seen_version).await;
                    }
                    // The first notice says that the connection is there. Nobody may be waiting for it any more.
                    if let Some(connected) = connected.take() {
                        let _ = connected.send(());
                    }
                }
                _ = polls.tick() => {
                    seen_version = operations.poll(seen_version, is_quiet).await;
                    is_quiet = true;
                }
            }
        }
    };
    until(stop, following).await;
}

impl Operations {
    /// Returns whether the policy may have changed.
    async fn take_notice(&self, noticed: Noticed) -> bool {
        match noticed {
            Noticed::Connected => {
                self.core.policy.forget_tenants();
                self.core.ledger.forget_subjects();
                self.core.unadjusted.forget_all();
                log_failure(self.keys.follow_from_the_start().await);
                self.load.follow().await;
                self.memory.key_filters.ring();
                self.estimates.ring();
                if let Err(error) = self.outage.reload_parked().await {
                    tracing::warn!(%error, "parked calls could not be looked up; a later look retries");
                }
            }
            Noticed::Changed(Notice { kind, id, version }) => match kind.as_str() {
                parked::NOTICE => {
                    if let Ok(tenant) = TenantId::parse(&id) {
                        self.outage.parking.note(self.core.gate.partition_of(&tenant), &tenant);
                    }
                    return false;
                }
                "key" => log_failure(self.keys.follow().await),
                key_filters::NOTICE => {
                    self.memory.key_filters.ring();
                    return false;
                }
                ADJUSTED_NOTICE => {
                    if let Ok(tenant) = TenantId::parse(&id) {
                        self.core.unadjusted.forget(&tenant).await;
                    }
                    return false;
                }
                erasure::NOTICE => {
                    self.core.ledger.forget_subjects();
                    return false;
                }
                LOAD_NOTICE => {
                    self.load.follow().await;
                    return false;
                }
                estimates::NOTICE => {
                    self.estimates.ring();
                    return false;
                }
                "job" => self.jobs.ring(),
                "tenant" => {
                    if let Ok(tenant) = TenantId::parse(&id) {
                        self.core.policy.tenant_changed(&tenant, version).await;
                    }
                }
                TIME_ACCEPTED => drop(self.core.gate.accept_time()),
                _ => {}
            },
        }
        true
    }

    async fn refresh_policy(&self, seen_version: u64) -> u64 {
        match self.core.policy.refresh().await {
            Ok(version) => {
                self.core.policy.show_version(version);
                version
            }
            Err(error) => {
                tracing::warn!(%error, "the policy could not be read again; the last one read stays in force");
                seen_version
            }
        }
    }

    /// Repairs the effect of a lost notice. Where none arrived since the last poll, any change counts as a change of
    /// everything.
    async fn poll(&self, seen_version: u64, is_quiet: bool) -> u64 {
        // A revoked key must not outlive a lost notice.
        log_failure(self.keys.follow().await);
        self.load.follow().await;
        let version = self.refresh_policy(seen_version).await;
        if is_quiet && version != seen_version {
            self.core.policy.forget_tenants();
        }
        version
    }
}

/// Logs that the keys' changes could not be read.
fn log_failure(followed: Answer<()>) {
    if let Err(error) = followed {
        tracing::warn!(%error, "changes of keys could not be read; the keys in memory stay in force");
    }
}
