//! Erasing a subject's name, everywhere but in what ends by itself.

use std::sync::Arc;

use crate::domain::ids::{Subject, SubjectId, TenantId};
use crate::domain::reservation::SubjectHash;
use crate::ledger::{Conflict, LedgerError, erasure};
use crate::operations::core::Core;
use crate::operations::error::{Answer, OperationError};
use crate::operations::limit_bans::LimitBans;
use crate::operations::memory::Memory;
use crate::operations::policy::PolicyVerbs;
use crate::operations::policy_store::TenantEntry;

/// The detail for a caller whose last try failed.
const KEPT_CHANGING: &str = "the gate's memory kept changing under this call; repeat it";

/// Erases names of subjects.
pub struct Erasure {
    core: Arc<Core>,
    policy: Arc<PolicyVerbs>,
    memory: Arc<Memory>,
    limit_bans: LimitBans,
}

impl Erasure {
    pub(super) fn new(core: Arc<Core>, policy: Arc<PolicyVerbs>, memory: Arc<Memory>) -> Self {
        let limit_bans = LimitBans::new(core.clone(), policy.clone(), memory.clone());
        Self { core, policy, memory, limit_bans }
    }

    /// Erases a subject's name: what the policy says of it, then the name in the ledger once all is booked, then what
    /// the gate counts of it. Returns the name that stands in its place in the books. May be repeated.
    ///
    /// Errors: something under this name waits to be booked, decided or resolved.
    pub async fn erase(&self, tenant: &TenantId, subject: Subject, actor: &str) -> Answer<Option<SubjectId>> {
        let entry = self.core.policy.named_tenant(tenant).await?;
        if subject.kind.shares_slots() {
            return Err(OperationError::field(
                "/kind",
                "subjects of this kind share slots and have no name of their own",
            ));
        }
        let hash_of = |subject: &Subject| self.core.gate.subject_hash(tenant, subject);
        let hash = hash_of(&subject);
        let whose = erasure::Erasure { partition: entry.partition, tenant: tenant.clone(), subject, hash };
        self.settle(&entry).await?;
        // Before the policy: a call that is refused must not lift a ban.
        self.core.ledger.may_erase(&whose).await.map_err(in_use)?;
        self.holds_nothing(&entry, &whose.subject).await?;
        self.policy.delete_items_of(tenant, &whose.subject, actor).await?;
        self.settle(&entry).await?;
        let erased = self.core.ledger.erase_subject(&whose, &hash_of, actor).await.map_err(in_use)?;
        self.forget(&entry, &whose.subject, hash, actor).await?;
        Ok(erased)
    }

    /// Waits until what the gate has admitted is booked, so that nothing is booked under the name afterwards.
    async fn settle(&self, entry: &TenantEntry) -> Answer<()> {
        let mut recovery = self.memory.recovery(KEPT_CHANGING);
        loop {
            match self.core.gate.last_event(entry.partition).await {
                Ok(last_id) => {
                    return self.core.progress.catch_up(entry.partition, last_id.unwrap_or_default()).await;
                }
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        return Err(away.into());
                    }
                }
            }
        }
    }

    /// Errors: light reservations of the subject hold something, which the ledger does not know.
    async fn holds_nothing(&self, entry: &TenantEntry, subject: &Subject) -> Answer<()> {
        let (partition, tenant) = (entry.partition, &entry.definition.id);
        let mut recovery = self.memory.recovery(KEPT_CHANGING);
        loop {
            match self.core.gate.light_holds_of(partition, tenant, subject).await {
                Ok(0) => return Ok(()),
                Ok(holds) => {
                    let waiting = u64::try_from(holds).unwrap_or(u64::MAX);
                    return Err(OperationError::InUse(Conflict::NameWaits(waiting).to_string()));
                }
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        return Err(away.into());
                    }
                }
            }
        }
    }

    async fn forget(
        &self,
        entry: &TenantEntry,
        subject: &Subject,
        hash: SubjectHash,
        actor: &str,
    ) -> Answer<()> {
        let tenant = &entry.definition.id;
        for ban in self.limit_bans.of_subject(tenant, hash).await? {
            match self.limit_bans.lift(tenant, &ban, actor).await {
                // It has ended meanwhile.
                Ok(()) | Err(OperationError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let mut recovery = self.memory.recovery(KEPT_CHANGING);
        loop {
            match self.core.gate.forget_subject(entry.partition, tenant, (subject, hash)).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    if let Some(away) = recovery.after_failure(error).await? {
                        return Err(away.into());
                    }
                }
            }
        }
    }
}

fn in_use(error: LedgerError) -> OperationError {
    match error {
        LedgerError::Conflict(conflict @ Conflict::NameWaits(_)) => {
            OperationError::InUse(conflict.to_string())
        }
        error => error.into(),
    }
}
