//! Items of tenants as resources: objects in a list of a tenant, each with its id.

use serde_json::{Map, Value};

use super::policy_change::Attempts;
use super::policy_draft::to_json;
use super::preconditions::take_version;
use super::{PolicyVerbs, TENANTS_MAX, fields_of};
use crate::domain::ids::{Subject, TenantId};
use crate::domain::policy::counter::Resets;
use crate::domain::policy::diff::DefinitionKind;
use crate::domain::tenant::leave_out_dates;
use crate::ledger::{Conflict, Expected, LedgerError, OwnList, PolicyAction, PolicyChange, PolicyWrite};
use crate::operations::answers::{Rows, StoredDefinition};
use crate::operations::error::{Answer, FieldError, OperationError};
use crate::operations::policy_store::stored_json;
use crate::operations::requests::{Page, Precondition};

/// A list of a tenant whose items are resources.
#[derive(Debug, Clone, Copy)]
pub struct Items {
    /// The tenant's field.
    field: &'static str,
    /// What one of them is called.
    item: &'static str,
}

/// Plans of subjects, which are no resources of their own.
const PLANS_OF_SUBJECTS: Items = Items { field: "subjects", item: "subject" };

impl PolicyVerbs {
    /// Creates or replaces an item: `body` has its fields and `tenant`.
    pub async fn put_item(
        &self,
        items: Items,
        id: &str,
        body: &[u8],
        precondition: Precondition,
        actor: &str,
    ) -> Answer<StoredDefinition> {
        let mut fields = fields_of(body)?;
        let tenant = items.take_tenant(&mut fields)?;
        let precondition = precondition.with_version(take_version(&mut fields)?)?;
        if fields.get("id").is_some_and(|given| given != id) {
            return Err(OperationError::field("/id", format!("must be {id}, as in the path, or left out")));
        }
        fields.insert("id".into(), id.into());
        let (created, version) = self
            .change_items(items, &tenant, actor, |list, version| {
                let place = list.iter().position(|each| each["id"] == id);
                precondition.check(place.map(|_| version))?;
                let value = Value::Object(fields.clone());
                match place {
                    Some(place) => list[place] = value,
                    None => list.push(value),
                }
                Ok(place.is_none())
            })
            .await
            .map_err(|error| match error {
                OperationError::NotFound(why) => OperationError::field("/tenant", why),
                other => items.unprefixed(other, id),
            })?;
        fields.insert("tenant".into(), tenant.to_string().into());
        Ok(StoredDefinition { definition: Value::Object(fields), version, created })
    }

    /// An item of a tenant, with the tenant's version.
    pub async fn get_item(&self, items: Items, tenant: &TenantId, id: &str) -> Answer<StoredDefinition> {
        let stored = self.get_policy(DefinitionKind::Tenant, tenant.as_str()).await?;
        let found = items.of(&stored.definition).into_iter().find(|each| each["id"] == id);
        let definition = found.ok_or_else(|| items.missing(id))?;
        Ok(StoredDefinition { definition, version: stored.version, created: false })
    }

    /// Deletes an item of a tenant.
    pub async fn delete_item(
        &self,
        items: Items,
        tenant: &TenantId,
        id: &str,
        precondition: Precondition,
        actor: &str,
    ) -> Answer<()> {
        let deleting = self.change_items(items, tenant, actor, |list, version| {
            let before = list.len();
            list.retain(|each| each["id"] != id);
            if list.len() == before {
                return Err(items.missing(id));
            }
            precondition.check(Some(version)).map(|()| false)
        });
        deleting.await.map(|_| ())
    }

    /// A page of the items of one tenant, or of all, each with its tenant, by tenant and id; those that are `wanted`,
    /// which `list` has too.
    pub(super) async fn list_items(
        &self,
        (items, list): (Items, OwnList<'_>),
        tenant: Option<&TenantId>,
        page: Page,
        wanted: impl Fn(&Value) -> bool,
    ) -> Answer<Rows<Value>> {
        let limit = page.rows_max();
        let after = page.after.as_deref().map(place).transpose()?;
        let shown = |tenant: &Value, after: Option<&str>| {
            let mut own = items.of(tenant);
            own.retain(|item| wanted(item) && after.is_none_or(|after| id_of(item) > after));
            own.sort_by(|one, other| id_of(one).cmp(id_of(other)));
            own
        };
        // The page before may have ended among the items of a tenant. The order of tenants is the database's.
        let (mut last, within) = after.unzip();
        let mut found = match (tenant, &last) {
            (Some(tenant), _) => {
                let stored = self.get_policy(DefinitionKind::Tenant, tenant.as_str()).await?;
                shown(&stored.definition, within.as_deref())
            }
            (None, Some(of)) => {
                let tenant = TenantId::parse(of).map_err(|_| OperationError::bad_cursor())?;
                let stored = self.core.ledger.read_tenant_definition(&tenant).await?;
                stored.map_or_else(Vec::new, |stored| shown(&stored.definition, within.as_deref()))
            }
            (None, None) => Vec::new(),
        };
        while tenant.is_none() && found.len() <= limit {
            let read = self.core.ledger.tenants_with_own(list, last.as_deref(), TENANTS_MAX).await?;
            let Some(tenant) = read.last() else { break };
            last = tenant["id"].as_str().map(str::to_owned);
            found.extend(read.iter().flat_map(|tenant| shown(tenant, None)));
        }
        Ok(Rows::page(found, limit, |item| serde_json::to_string(&place_of(item)).unwrap_or_default()))
    }

    /// Deletes what a tenant has about this subject: its bans, overrides and plan, and when its own counters began.
    pub(in crate::operations) async fn delete_items_of(
        &self,
        tenant: &TenantId,
        subject: &Subject,
        actor: &str,
    ) -> Answer<()> {
        for items in [Items::BANS, Items::OVERRIDES, PLANS_OF_SUBJECTS] {
            let names = |item: &Value| {
                let named = if items.field == PLANS_OF_SUBJECTS.field { item } else { &item["subject"] };
                named["kind"] == subject.kind.as_str() && named["id"] == subject.id.as_str()
            };
            let stored = self.get_policy(DefinitionKind::Tenant, tenant.as_str()).await?;
            if items.of(&stored.definition).iter().any(names) {
                let without = |list: &mut Vec<Value>, _| {
                    list.retain(|item| !names(item));
                    Ok(false)
                };
                self.change_items(items, tenant, actor, without).await?;
            }
        }
        self.drop_resets_of(tenant, subject, actor).await
    }

    /// Drops when counters of its own began: nothing counts by that once its items are deleted.
    async fn drop_resets_of(&self, tenant: &TenantId, subject: &Subject, actor: &str) -> Answer<()> {
        let mut attempts = Attempts::new();
        loop {
            let (base, _) = self.core.policy.as_of_now();
            let stored = self.core.ledger.read_tenants(vec![tenant.clone()]).await?.pop();
            let stored = stored.ok_or_else(|| no_such_tenant(tenant))?;
            let mut resets: Resets = stored_json(&stored.counter_resets)?;
            if !resets.drop_subject(subject) {
                return Ok(());
            }
            let change = PolicyChange {
                kind: DefinitionKind::Tenant,
                id: tenant.to_string(),
                expected: Expected::Version(stored.version),
                action: PolicyAction::Put {
                    definition: stored.definition,
                    archived: stored.archived,
                    counter_resets: Some(to_json(&resets)?),
                },
            };
            let write = PolicyWrite {
                changes: vec![change],
                unused_meters: Vec::new(),
                generations: Vec::new(),
                calendars: Vec::new(),
                currencies: Vec::new(),
                plans: Vec::new(),
                actor: actor.to_owned(),
                at_ms: self.core.clock.now_ms(),
            };
            let finish = move |_| Ok::<_, OperationError>((write, ()));
            match self.core.ledger.change_policy(base, false, finish).await {
                Ok(done) => return self.after_write(base.version, &done?.0).await,
                Err(LedgerError::Conflict(Conflict::PolicyMoved { .. } | Conflict::Version { .. })) => {
                    self.core.policy.refresh().await?;
                }
                Err(error) => return Err(error.into()),
            }
            attempts.again().await?;
        }
    }

    /// Changes a list of a tenant against the version at which it was read, with retries when that has changed
    /// meanwhile. `change` is given the list and that version.
    async fn change_items(
        &self,
        items: Items,
        tenant: &TenantId,
        actor: &str,
        change: impl Fn(&mut Vec<Value>, u64) -> Answer<bool>,
    ) -> Answer<(bool, u64)> {
        let mut attempts = Attempts::new();
        loop {
            let stored = self.get_policy(DefinitionKind::Tenant, tenant.as_str()).await?;
            let mut definition = stored.definition;
            if let Some(fields) = definition.as_object_mut() {
                leave_out_dates(fields);
            }
            let mut list = definition[items.field].as_array().cloned().unwrap_or_default();
            let created = change(&mut list, stored.version)?;
            definition[items.field] = Value::Array(list);
            let body = definition.to_string();
            match self
                .put_policy(
                    DefinitionKind::Tenant,
                    tenant.as_str(),
                    body.as_bytes(),
                    Precondition::Version(stored.version),
                    actor,
                )
                .await
            {
                Ok(answer) => return Ok((created, answer.version)),
                Err(OperationError::PreconditionFailed { .. }) => attempts.again().await?,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Items {
    /// Changes of limits for the tenant or one of its subjects.
    pub const OVERRIDES: Self = Self { field: "overrides", item: "override" };
    /// Bans of the tenant or of its subjects that admins have placed.
    pub const BANS: Self = Self { field: "bans", item: "ban" };

    /// Those of a tenant's definition, each with the tenant.
    fn of(self, tenant: &Value) -> Vec<Value> {
        let mut items = tenant[self.field].as_array().cloned().unwrap_or_default();
        for item in &mut items {
            item["tenant"] = tenant["id"].clone();
        }
        items
    }

    fn missing(self, id: &str) -> OperationError {
        OperationError::NotFound(format!("there is no {} {id}", self.item))
    }

    fn take_tenant(self, fields: &mut Map<String, Value>) -> Answer<TenantId> {
        match fields.remove("tenant") {
            Some(Value::String(text)) => {
                TenantId::parse(&text).map_err(|error| OperationError::field("/tenant", error.to_string()))
            }
            _ => {
                let message = format!("must name the tenant the {} is for", self.item);
                Err(OperationError::field("/tenant", message))
            }
        }
    }

    /// Errors point into the item, not into its tenant.
    fn unprefixed(self, error: OperationError, id: &str) -> OperationError {
        let OperationError::Invalid(errors) = error else { return error };
        let list = format!("/{}/", self.field);
        let inner = |error: FieldError| {
            let rest = error.pointer.strip_prefix(list.as_str()).and_then(|rest| rest.split_once('/'));
            match rest {
                Some((_, field)) => FieldError::new(format!("/{field}"), error.message),
                None => FieldError::new(error.pointer, format!("{id}: {}", error.message)),
            }
        };
        OperationError::Invalid(errors.into_iter().map(inner).collect())
    }
}

/// A place in a list of items: the tenant and the item.
type Place = (String, String);

fn id_of(item: &Value) -> &str {
    item["id"].as_str().unwrap_or_default()
}

fn place_of(item: &Value) -> Place {
    (item["tenant"].as_str().unwrap_or_default().to_owned(), id_of(item).to_owned())
}

fn place(text: &str) -> Answer<Place> {
    serde_json::from_str(text).map_err(|_| OperationError::bad_cursor())
}

fn no_such_tenant(tenant: &TenantId) -> OperationError {
    OperationError::NotFound(format!("there is no tenant {tenant}"))
}
