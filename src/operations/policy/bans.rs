//! Bans as resources: objects nested in a tenant, each with its id.

use serde_json::Value;

use super::PolicyVerbs;
use super::items::Items;
use crate::domain::ids::{BanId, TenantId};
use crate::ledger::OwnList;
use crate::operations::answers::{Rows, StoredDefinition};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::{Page, Precondition};

pub(super) const BANS: Items = Items { field: "bans", item: "ban" };

impl PolicyVerbs {
    /// Places or replaces a ban: `body` has its fields and `tenant`.
    pub async fn put_ban(
        &self,
        id: &str,
        body: &[u8],
        precondition: Precondition,
        actor: &str,
    ) -> Answer<StoredDefinition> {
        BanId::parse(id).map_err(|error| OperationError::field("/id", error.to_string()))?;
        self.put_item(BANS, id, body, precondition, actor).await
    }

    /// A ban of a tenant, with the tenant's version.
    pub async fn get_ban(&self, tenant: &TenantId, id: &str) -> Answer<StoredDefinition> {
        self.get_item(BANS, tenant, id).await
    }

    /// Lifts a ban of a tenant.
    pub async fn delete_ban(
        &self,
        tenant: &TenantId,
        id: &str,
        precondition: Precondition,
        actor: &str,
    ) -> Answer<()> {
        self.delete_item(BANS, tenant, id, precondition, actor).await
    }

    /// A page of the bans that admins have placed, of one tenant, or of all, by tenant and id.
    pub(in crate::operations) async fn list_bans(
        &self,
        tenant: Option<&TenantId>,
        page: Page,
    ) -> Answer<Rows<Value>> {
        self.list_items((BANS, OwnList::Bans), tenant, page, |_| true).await
    }
}
