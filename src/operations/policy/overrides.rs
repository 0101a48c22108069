//! The list of overrides, which are items of tenants.

use serde_json::Value;

use super::PolicyVerbs;
use super::items::Items;
use crate::ledger::OwnList;
use crate::operations::answers::Rows;
use crate::operations::error::Answer;
use crate::operations::requests::OverridesRequest;

impl PolicyVerbs {
    /// A page of the overrides of one tenant, or of all, by tenant and id.
    pub async fn list_overrides(&self, request: OverridesRequest) -> Answer<Rows<Value>> {
        let OverridesRequest { tenant, limit, page } = request;
        let wanted = |each: &Value| limit.as_ref().is_none_or(|limit| each["limit"] == limit.as_str());
        let list = (Items::OVERRIDES, OwnList::Overrides(limit.as_ref()));
        self.list_items(list, tenant.as_ref(), page, wanted).await
    }
}
