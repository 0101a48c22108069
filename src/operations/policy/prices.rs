//! Prices as one list: all versions, those of plans and those that tenants have of their own.

use std::cmp::Reverse;

use serde_json::Value;

use super::{PolicyVerbs, TENANTS_MAX};
use crate::domain::ids::TenantId;
use crate::domain::policy::diff::DefinitionKind;
use crate::operations::answers::Rows;
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::{PriceOwner, PricesRequest};

/// A place in the list: whether a tenant is the owner, the owner, then meter, id, currency and first day of the price.
type Place = (bool, String, String, Option<String>, String, Reverse<String>);

impl PolicyVerbs {
    /// Prices in all their versions: of plans by their ids, then of tenants by theirs. An owner's are by meter, id and
    /// currency, the newest version first.
    pub async fn list_prices(&self, request: PricesRequest) -> Answer<Rows<Value>> {
        let limit = request.page.rows_max();
        let after = request.page.after.as_deref().map(place).transpose()?;
        let mut found = match &request.owner {
            Some(PriceOwner::Plan(plan)) => {
                let plan = self.get_policy(DefinitionKind::Plan, plan.as_str()).await?;
                prices_of(false, &plan.definition)
            }
            Some(PriceOwner::Tenant(tenant)) => {
                let tenant = self.get_policy(DefinitionKind::Tenant, tenant.as_str()).await?;
                prices_of(true, &tenant.definition)
            }
            None => self.prices_after(after.as_ref()).await?,
        };
        let is_shown = |(at, price): &(Place, Value)| {
            after.as_ref().is_none_or(|after| at > after)
                && request.meter.as_ref().is_none_or(|meter| price["meter"] == meter.as_str())
        };
        found.retain(is_shown);
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        if request.owner.is_none() {
            let mut last = after.filter(|(of_tenant, ..)| *of_tenant).map(|(_, tenant, ..)| tenant);
            while found.len() <= limit {
                let meter = request.meter.as_ref();
                let tenants =
                    self.core.ledger.tenants_with_prices(last.as_deref(), meter, TENANTS_MAX).await?;
                let Some(read) = tenants.last() else { break };
                last = read["id"].as_str().map(str::to_owned);
                for tenant in &tenants {
                    let mut own = prices_of(true, tenant);
                    own.retain(|(_, price)| meter.is_none_or(|meter| price["meter"] == meter.as_str()));
                    own.sort_by(|(one, _), (other, _)| one.cmp(other));
                    found.extend(own);
                }
            }
        }
        let page = Rows::page(found, limit, |(at, _)| serde_json::to_string(at).unwrap_or_default());
        Ok(page.map(|(_, price)| price))
    }

    /// Those of all plans or, where the page before has ended with a tenant's, those of that tenant.
    async fn prices_after(&self, after: Option<&Place>) -> Answer<Vec<(Place, Value)>> {
        if let Some((true, tenant, ..)) = after {
            let tenant = TenantId::parse(tenant).map_err(|_| OperationError::bad_cursor())?;
            let stored = self.core.ledger.read_tenant_definition(&tenant).await?;
            return Ok(stored.map_or_else(Vec::new, |stored| prices_of(true, &stored.definition)));
        }
        let stored = self.core.ledger.read_policy().await?;
        let plans = stored.objects.iter().filter(|object| object.kind == DefinitionKind::Plan);
        Ok(plans.flat_map(|plan| prices_of(false, &plan.definition)).collect())
    }
}

/// The prices of a definition, each with its owner and its place.
fn prices_of(of_tenant: bool, definition: &Value) -> Vec<(Place, Value)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let owner = text(&definition["id"]).unwrap_or_default();
    let with_owner = |price: &Value| {
        let mut price = price.clone();
        let field = |name: &str| text(&price[name]).unwrap_or_default();
        let newest_first = Reverse(field("effective_from"));
        let at =
            (of_tenant, owner.clone(), field("meter"), text(&price["id"]), field("currency"), newest_first);
        let named = |is_it: bool| if is_it { definition["id"].clone() } else { Value::Null };
        (price["plan"], price["tenant"]) = (named(!of_tenant), named(of_tenant));
        (at, price)
    };
    definition["prices"].as_array().into_iter().flatten().map(with_owner).collect()
}

fn place(text: &str) -> Answer<Place> {
    serde_json::from_str(text).map_err(|_| OperationError::bad_cursor())
}
