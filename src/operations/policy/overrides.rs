//! Overrides as resources: objects nested in a tenant, each with its id.

use serde_json::{Map, Value};

use super::PolicyVerbs;
use super::policy_change::Attempts;
use crate::domain::ids::{OverrideId, TenantId};
use crate::domain::policy::diff::DefinitionKind;
use crate::operations::answers::{Rows, StoredDefinition};
use crate::operations::error::{Answer, FieldError, OperationError};
use crate::operations::requests::{OverridesRequest, Precondition};

impl PolicyVerbs {
    /// Creates or replaces an override: `body` has its fields and `tenant`.
    pub async fn put_override(&self, id: &str, body: &[u8], actor: &str) -> Answer<StoredDefinition> {
        OverrideId::parse(id).map_err(|error| OperationError::field("/id", error.to_string()))?;
        let mut fields = fields_of(body)?;
        let tenant = take_tenant(&mut fields)?;
        if fields.get("id").is_some_and(|given| given != id) {
            return Err(OperationError::field("/id", format!("must be {id}, as in the path, or left out")));
        }
        fields.insert("id".into(), id.into());
        let (created, version) = self
            .change_overrides(&tenant, actor, |overrides| {
                let place = overrides.iter().position(|each| each["id"] == id);
                let value = Value::Object(fields.clone());
                match place {
                    Some(place) => overrides[place] = value,
                    None => overrides.push(value),
                }
                Ok(place.is_none())
            })
            .await
            .map_err(|error| match error {
                OperationError::NotFound(why) => OperationError::field("/tenant", why),
                other => unprefixed(other, id),
            })?;
        fields.insert("tenant".into(), tenant.to_string().into());
        Ok(StoredDefinition { definition: Value::Object(fields), version, created })
    }

    /// An override of a tenant, with the tenant's version.
    pub async fn get_override(&self, tenant: &TenantId, id: &str) -> Answer<StoredDefinition> {
        let stored = self.get_policy(DefinitionKind::Tenant, tenant.as_str()).await?;
        let overrides = stored.definition["overrides"].as_array().into_iter().flatten();
        let found = overrides.filter(|each| each["id"] == id).find_map(Value::as_object);
        let mut fields = found.cloned().ok_or_else(|| missing(id))?;
        fields.insert("tenant".into(), tenant.to_string().into());
        Ok(StoredDefinition { definition: Value::Object(fields), version: stored.version, created: false })
    }

    /// Deletes an override of a tenant.
    pub async fn delete_override(&self, tenant: &TenantId, id: &str, actor: &str) -> Answer<()> {
        let deleting = self.change_overrides(tenant, actor, |overrides| {
            let before = overrides.len();
            overrides.retain(|each| each["id"] != id);
            if overrides.len() == before { Err(missing(id)) } else { Ok(false) }
        });
        deleting.await.map(|_| ())
    }

    /// The overrides of one tenant, or of the tenants of a page, by tenant and id.
    pub async fn list_overrides(&self, request: OverridesRequest) -> Answer<Rows<Value>> {
        let (tenants, next) = match &request.tenant {
            Some(tenant) => {
                (vec![self.get_policy(DefinitionKind::Tenant, tenant.as_str()).await?.definition], None)
            }
            None => {
                let page = self.list_policy(DefinitionKind::Tenant, request.page.clone()).await?;
                (page.data, page.next)
            }
        };
        let wanted =
            |each: &Value| request.limit.as_ref().is_none_or(|limit| each["limit"] == limit.as_str());
        let of_tenant = |tenant: Value| {
            let id = tenant["id"].clone();
            let overrides = tenant["overrides"].as_array().cloned().unwrap_or_default();
            overrides
                .into_iter()
                .filter(wanted)
                .map(move |mut each| {
                    each["tenant"] = id.clone();
                    each
                })
                .collect::<Vec<_>>()
        };
        Ok(Rows { data: tenants.into_iter().flat_map(of_tenant).collect(), next, as_of_ms: None })
    }

    /// Changes a tenant's list of overrides against the version at which it was read, with retries when that has
    /// changed meanwhile.
    async fn change_overrides(
        &self,
        tenant: &TenantId,
        actor: &str,
        change: impl Fn(&mut Vec<Value>) -> Answer<bool>,
    ) -> Answer<(bool, u64)> {
        let mut attempts = Attempts::new();
        loop {
            let stored = self.get_policy(DefinitionKind::Tenant, tenant.as_str()).await?;
            let mut definition = stored.definition;
            // Only shown, not stored: the calendars still to come follow from the last definition.
            definition.as_object_mut().and_then(|fields| fields.remove("calendars"));
            let mut overrides = definition["overrides"].as_array().cloned().unwrap_or_default();
            let created = change(&mut overrides)?;
            definition["overrides"] = Value::Array(overrides);
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

fn missing(id: &str) -> OperationError {
    OperationError::NotFound(format!("there is no override {id}"))
}

fn fields_of(body: &[u8]) -> Answer<Map<String, Value>> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(OperationError::field("", "must be a JSON object")),
        Err(error) => Err(OperationError::Malformed(error.to_string())),
    }
}

fn take_tenant(fields: &mut Map<String, Value>) -> Answer<TenantId> {
    match fields.remove("tenant") {
        Some(Value::String(text)) => {
            TenantId::parse(&text).map_err(|e| OperationError::field("/tenant", e.to_string()))
        }
        _ => Err(OperationError::field("/tenant", "must name the tenant the override is for")),
    }
}

/// Errors point into the override, not into its tenant.
fn unprefixed(error: OperationError, id: &str) -> OperationError {
    let OperationError::Invalid(errors) = error else { return error };
    let inner = |error: FieldError| {
        let rest = error.pointer.strip_prefix("/overrides/").and_then(|rest| rest.split_once('/'));
        match rest {
            Some((_, field)) => FieldError::new(format!("/{field}"), error.message),
            None => FieldError::new(error.pointer, format!("{id}: {}", error.message)),
        }
    };
    OperationError::Invalid(errors.into_iter().map(inner).collect())
}
