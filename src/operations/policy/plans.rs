//! The plan of a tenant, changed by itself.

use serde_json::Value;

use super::policy_change::{Attempts, Target, Terms};
use super::{PolicyVerbs, document, missing};
use crate::domain::ids::{PlanId, TenantId};
use crate::domain::policy::diff::DefinitionKind;
use crate::domain::policy::edit::Edit;
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::Precondition;

impl PolicyVerbs {
    /// Puts a tenant on a plan, or only finds out whether that may be done. Everything else of it stays, but for
    /// `plan_from`, which is about the change to the plan that it had: the caller says what its quotas do.
    ///
    /// Errors: all that is wrong with the tenant on this plan.
    pub(in crate::operations) async fn set_plan(
        &self,
        tenant: &TenantId,
        plan: &PlanId,
        dry_run: bool,
        actor: &str,
    ) -> Answer<()> {
        let (kind, id) = (DefinitionKind::Tenant, tenant.as_str());
        let mut attempts = Attempts::new();
        loop {
            let stored = self.core.ledger.read_tenant_definition(tenant).await?;
            let stored = stored.ok_or_else(|| missing(kind, id))?;
            let Value::Object(mut fields) = stored.definition else { return Err(missing(kind, id)) };
            if fields.get("plan").is_some_and(|before| before == plan.as_str()) {
                return Ok(());
            }
            fields.insert("plan".to_owned(), plan.as_str().into());
            // It would take from the open period what an approval leaves it.
            fields.remove("plan_from");
            let edit = Edit::put(document(kind, id, fields)?);
            let precondition = Precondition::Version(stored.version);
            let terms =
                Terms { target: Some(Target { kind, id, precondition }), dry_run, ..Terms::default() };
            match self.change_policy(edit, terms, actor).await {
                Ok(_) => return Ok(()),
                Err(OperationError::PreconditionFailed { .. }) => attempts.again().await?,
                Err(error) => return Err(error),
            }
        }
    }
}
