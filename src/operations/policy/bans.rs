//! The list of bans, which are items of tenants.

use serde_json::Value;

use super::PolicyVerbs;
use super::items::Items;
use crate::domain::ids::TenantId;
use crate::ledger::OwnList;
use crate::operations::answers::Rows;
use crate::operations::error::Answer;
use crate::operations::requests::Page;

impl PolicyVerbs {
    /// A page of the bans that admins have placed, of one tenant, or of all, by tenant and id.
    pub(in crate::operations) async fn list_bans(
        &self,
        tenant: Option<&TenantId>,
        page: Page,
    ) -> Answer<Rows<Value>> {
        self.list_items((Items::BANS, OwnList::Bans), tenant, page, |_| true).await
    }
}
