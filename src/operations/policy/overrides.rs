//! Overrides as resources: objects nested in a tenant, each with its id.

use serde_json::Value;

use super::PolicyVerbs;
use super::items::Items;
use crate::domain::ids::{OverrideId, TenantId};
use crate::ledger::OwnList;
use crate::operations::answers::{Rows, StoredDefinition};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::{OverridesRequest, Precondition};

pub(super) const OVERRIDES: Items = Items { field: "overrides", item: "override" };

impl PolicyVerbs {
    /// Creates or replaces an override: `body` has its fields and `tenant`.
    pub async fn put_override(
        &self,
        id: &str,
        body: &[u8],
        precondition: Precondition,
        actor: &str,
    ) -> Answer<StoredDefinition> {
        OverrideId::parse(id).map_err(|error| OperationError::field("/id", error.to_string()))?;
        self.put_item(OVERRIDES, id, body, precondition, actor).await
    }

    /// An override of a tenant, with the tenant's version.
    pub async fn get_override(&self, tenant: &TenantId, id: &str) -> Answer<StoredDefinition> {
        self.get_item(OVERRIDES, tenant, id).await
    }

    /// Deletes an override of a tenant.
    pub async fn delete_override(
        &self,
        tenant: &TenantId,
        id: &str,
        precondition: Precondition,
        actor: &str,
    ) -> Answer<()> {
        self.delete_item(OVERRIDES, tenant, id, precondition, actor).await
    }

    /// A page of the overrides of one tenant, or of all, by tenant and id.
    pub async fn list_overrides(&self, request: OverridesRequest) -> Answer<Rows<Value>> {
        let OverridesRequest { tenant, limit, page } = request;
        let wanted = |each: &Value| limit.as_ref().is_none_or(|limit| each["limit"] == limit.as_str());
        let list = (OVERRIDES, OwnList::Overrides(limit.as_ref()));
        self.list_items(list, tenant.as_ref(), page, wanted).await
    }
}
