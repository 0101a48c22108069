//! Changes of the policy: each is computed on what was read and written only if that is still current; otherwise it is
//! retried.

use std::collections::BTreeSet;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use super::PolicyVerbs;
use super::policy_draft::{Draft, Settled};
use crate::domain::field_error::FieldError;
use crate::domain::ids::{PlanId, TenantId};
use crate::domain::instant::rfc3339;
use crate::domain::policy::Policy;
use crate::domain::policy::diff::DefinitionKind;
use crate::domain::policy::document::Definitions;
use crate::domain::policy::edit::Edit;
use crate::ledger::{Conflict, LedgerError, PolicyWritten, StoredUpgrade, TenantCursor};
use crate::operations::error::{Answer, OperationError};
use crate::operations::policy_store::{add_object, generations};
use crate::operations::requests::Precondition;
use crate::telemetry::labels::Alarm;

const TENANTS_PAGE: usize = 1_000;
/// How many tenants are computed before other tasks get the thread.
const TENANTS_AT_ONCE: usize = 200;

/// Backoff between tries of a change that concurrent changes disturb; about five seconds in all.
pub(in crate::operations) struct Attempts(ExponentialBackoff);

impl Attempts {
    pub(in crate::operations) fn new() -> Self {
        let waits = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(5))
            .with_max_delay(Duration::from_millis(500))
            .with_max_times(16)
            .with_jitter();
        Self(waits.build())
    }

    /// Waits before the next try. Errors: this was the last.
    pub(in crate::operations) async fn again(&mut self) -> Answer<()> {
        let wait = self.0.next().ok_or(OperationError::Overloaded)?;
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

/// The one definition that a change is about, and what must hold for it.
pub(in crate::operations) struct Target<'a> {
    pub(in crate::operations) kind: DefinitionKind,
    pub(in crate::operations) id: &'a str,
    pub(super) precondition: Precondition,
}

/// The conditions of a change.
#[derive(Default)]
pub(in crate::operations) struct Terms<'a> {
    /// The one definition that it is about.
    pub(super) target: Option<Target<'a>>,
    /// Only computes the change.
    pub(in crate::operations) dry_run: bool,
    /// The digest of the changes that were agreed to.
    pub(in crate::operations) agreed: Option<String>,
}

/// A change that was made, or that had nothing to change.
pub(in crate::operations) struct Changed {
    /// What was written; none where nothing had to change.
    pub(in crate::operations) written: Option<PolicyWritten>,
    /// The version of the target before.
    pub(super) version_before: Option<u64>,
    /// The version of the policy before.
    pub(in crate::operations) base: u64,
    pub(in crate::operations) settled: Settled,
}

impl PolicyVerbs {
    /// Makes a change, with retries while others change what it was prepared on.
    pub(super) async fn change_policy(&self, edit: Edit, terms: Terms<'_>, actor: &str) -> Answer<Changed> {
        // Two changes that read all tenants would only disturb each other.
        let _turn = if edit.is_of_tenants_only() || terms.dry_run {
            None
        } else {
            Some(self.core.policy.turn().await)
        };
        let mut attempts = Attempts::new();
        loop {
            let mut draft = self.draft(&edit, actor).await?;
            let version_before = check_target(&draft, &edit, terms.target.as_ref())?;
            self.refuse(&draft).await?;
            if terms.dry_run || !draft.changes_anything() {
                let (base, settled) = (draft.base(), draft.settled());
                let base = base.version;
                return Ok(Changed { written: None, version_before, base, settled });
            }
            terms.agreed.iter().for_each(|digest| draft.agree_to(digest.clone()));
            let (base, with_tenants) = (draft.base(), draft.concerns_all_tenants());
            match self.core.ledger.change_policy(base, with_tenants, move |since| draft.finish(since)).await {
                Ok(done) => {
                    let (written, settled) = done?;
                    let base = base.version;
                    self.after_change(base, &written, &settled).await?;
                    return Ok(Changed { written: Some(written), version_before, base, settled });
                }
                Err(LedgerError::Conflict(Conflict::PolicyMoved { .. } | Conflict::Version { .. })) => {
                    self.core.policy.refresh().await?;
                }
                // Something was used for the first time meanwhile: the next try reports it.
                Err(LedgerError::Busy(_) | LedgerError::Conflict(Conflict::InUse { .. })) => {}
                Err(error) => return Err(error.into()),
            }
            attempts.again().await?;
        }
    }

    /// Computes the change on what is stored. Where only tenants change, everything else is taken from this instance's
    /// memory, and the write fails unless that is up to date.
    pub(super) async fn draft(&self, edit: &Edit, actor: &str) -> Answer<Draft> {
        let now_ms = self.core.clock.now_ms();
        let actor = actor.to_owned();
        let mut draft = if edit.is_of_tenants_only() {
            Draft::new(edit.clone(), actor, self.core.policy.as_of_now(), &[], now_ms)
        } else {
            let stored = self.core.ledger.read_policy().await?;
            let mut definitions = Definitions::default();
            for object in &stored.objects {
                add_object(&mut definitions, object.kind, &object.definition)?;
            }
            let policy = Policy::new(stored.versions.version, definitions, generations(stored.generations)?);
            Draft::new(edit.clone(), actor, (stored.versions, policy), &stored.objects, now_ms)
        };
        if draft.concerns_all_tenants() {
            self.keep_all_tenants(&mut draft).await?;
        } else {
            let named: Vec<TenantId> = edit.tenants().into_iter().collect();
            self.core.ledger.read_tenants(named).await?.into_iter().for_each(|stored| draft.keep(stored));
        }
        for tenant in draft.with_other_periods() {
            if !self.may_have_booked(&tenant).await? {
                draft.note_unbooked(tenant);
            }
        }
        draft.raise_generations();
        for some in draft.tenants().chunks(TENANTS_AT_ONCE) {
            draft.work_out(some)?;
            tokio::task::yield_now().await;
        }
        for tenant in draft.with_price_gaps().collect::<Vec<_>>() {
            // One that has booked refuses the change, whatever the others have.
            if self.may_have_booked(&tenant).await? {
                break;
            }
            draft.note_unbooked(tenant);
        }
        Ok(draft)
    }

    async fn keep_all_tenants(&self, draft: &mut Draft) -> Answer<()> {
        let mut place = None;
        loop {
            let page = self.core.ledger.list_tenants(place.as_ref(), TENANTS_PAGE).await?;
            let is_last = page.len() < TENANTS_PAGE;
            place =
                page.last().map(|row| TenantCursor { created_at_us: row.created_at_us, id: row.id.clone() });
            page.into_iter().for_each(|stored| draft.keep(stored));
            if is_last {
                return Ok(());
            }
        }
    }

    /// Names everything that is wrong with the change. It looks into the books too, once they have all that was
    /// admitted by now.
    pub(super) async fn refuse(&self, draft: &Draft) -> Answer<()> {
        let mut errors = draft.errors();
        for (meter, wrong) in draft.meters_that_must_be_unused() {
            if self.is_meter_used(&meter).await? {
                errors.extend(wrong);
            }
        }
        for tenant in draft.deleted_tenants() {
            if self.has_booked(&tenant).await? {
                errors.push(FieldError::new("", "is in the books; set `archived` instead of deleting it"));
            }
        }
        for pruned in draft.pruned_prices() {
            let is_its = match &pruned.tenant {
                Some(tenant) => self.has_booked(tenant).await?,
                None => true,
            };
            if is_its && self.is_meter_used(&pruned.meter).await? {
                errors.push(pruned.error);
            }
        }
        if !errors.is_empty() {
            return Err(OperationError::Invalid(errors));
        }
        for plan in draft.withdrawn_plans() {
            if let Some(request) = self.core.ledger.upgrade_to_come(&plan).await? {
                return Err(OperationError::InUse(awaited(&plan, &request)));
            }
        }
        Ok(())
    }

    /// The instance that made a change applies it before it answers.
    async fn after_change(&self, base: u64, written: &PolicyWritten, settled: &Settled) -> Answer<()> {
        for (tenant, why) in &settled.unresolved {
            tracing::error!(%tenant, why, "a change of policy skipped a tenant that cannot be resolved");
            self.core.metrics.alarm(Alarm::Policy);
        }
        self.after_write(base, written).await
    }

    /// Applies what this instance has written of the policy.
    pub(super) async fn after_write(&self, base: u64, written: &PolicyWritten) -> Answer<()> {
        let mut kinds = BTreeSet::new();
        for object in &written.objects {
            kinds.insert(object.kind);
            if let (DefinitionKind::Tenant, Ok(tenant)) = (object.kind, TenantId::parse(&object.id)) {
                self.core.policy.tenant_changed(&tenant, object.version).await;
            }
        }
        let is_of_tenants_only = kinds.iter().all(|kind| *kind == DefinitionKind::Tenant);
        let version = if is_of_tenants_only {
            self.core.policy.only_tenants_changed(base, written.version)
        } else {
            self.core.policy.refresh().await?
        };
        self.core.policy.show_version(version);
        Ok(())
    }
}

/// Why a plan cannot be archived or deleted that an approved request names.
fn awaited(plan: &PlanId, request: &StoredUpgrade) -> String {
    let StoredUpgrade { id, terms, effective_at_ms, .. } = request;
    let from = effective_at_ms.map(rfc3339).unwrap_or_default();
    format!(
        "the plan {plan} is in use: {} gets it from {from} on by the approved upgrade request {id}; archive it after that",
        terms.tenant
    )
}

/// The target's version, if it exists. Errors: it is not the expected one, or there is nothing to delete.
fn check_target(draft: &Draft, edit: &Edit, target: Option<&Target<'_>>) -> Answer<Option<u64>> {
    let Some(Target { kind, id, precondition }) = target else { return Ok(None) };
    let version = draft.version(*kind, id);
    if version.is_none() && edit.deletes(*kind, id) {
        return Err(OperationError::NotFound(format!("there is no {kind} {id}")));
    }
    precondition.check(version).map(|()| version)
}
