//! Policy as resources: meters, operations, default limits, plans and tenants, created, replaced, read and deleted.

mod bans;
mod calendars;
mod in_use;
mod items;
mod overrides;
mod plans;
mod policy_change;
mod policy_draft;
mod preconditions;
mod prices;
mod trials;

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::domain::cost_defaults::CostDefaults;
use crate::domain::field_error::read_json;
use crate::domain::ids::{PlanId, TenantId};
use crate::domain::policy::diff::{DefinitionKind, digest};
use crate::domain::policy::document::PolicyFile;
use crate::domain::policy::edit::Edit;
use crate::domain::policy::warnings::warnings;
use crate::domain::tenant::{CALENDARS, CURRENCIES};
use crate::ledger::{StoredObject, TenantCursor};
use crate::operations::answers::{PolicyChanges, Rows, StoredDefinition};
use crate::operations::core::Core;
use crate::operations::decisions::Decisions;
use crate::operations::error::{Answer, FieldError, OperationError};
use crate::operations::options::OperationsOptions;
use crate::operations::policy_store::TenantEntry;
use crate::operations::requests::INSTALLATION;
use crate::operations::requests::{ApplyRequest, Page, Precondition};
pub use items::Items;
use policy_change::{Target, Terms};
use policy_draft::{Settled, internal};
use preconditions::take_version;

/// Tenants read at once for a list of what they have.
const TENANTS_MAX: usize = 100;

/// The verbs of policy: objects and files of them are created, replaced, read and deleted.
pub struct PolicyVerbs {
    core: Arc<Core>,
    /// The plan on which an unknown tenant is created at first use; none: unknown tenants are refused.
    unknown_tenant_plan: Option<PlanId>,
    decisions: Arc<Decisions>,
    /// Whether meters with `without_limit = "config"` are denied to tenants without limit or quota.
    denies_without_limit: bool,
}

impl PolicyVerbs {
    /// Creates unknown tenants on the plan of the options, if there is one.
    pub(super) fn new(core: Arc<Core>, decisions: Arc<Decisions>, options: &OperationsOptions) -> Self {
        Self {
            core,
            unknown_tenant_plan: options.unknown_tenant_plan.clone(),
            decisions,
            denies_without_limit: options.deny_without_limit,
        }
    }

    /// Creates or replaces an object. `body` is the JSON of its definition; its `id` must be `id` or left out. Every
    /// instance applies it within a second.
    pub async fn put_policy(
        &self,
        kind: DefinitionKind,
        id: &str,
        body: &[u8],
        precondition: Precondition,
        actor: &str,
    ) -> Answer<StoredDefinition> {
        let mut fields = fields_of(body)?;
        let precondition = precondition.with_version(take_version(&mut fields)?)?;
        if kind == DefinitionKind::Tenant {
            self.take_dates(id, &mut fields).await?;
        }
        let edit = Edit::put(document(kind, id, fields)?);
        let terms = Terms { target: Some(Target { kind, id, precondition }), ..Terms::default() };
        let changed = self.change_policy(edit, terms, actor).await?;
        let definition = changed.settled.definitions.json(kind, id).ok_or_else(|| missing(kind, id))?;
        let mut definition = definition.map_err(internal)?;
        let settled = &changed.settled;
        if let (DefinitionKind::Tenant, Some(calendars), Some(currencies)) =
            (kind, settled.calendars.get(id), settled.currencies.get(id))
        {
            definition = self.with_dates(definition, calendars, currencies);
        }
        let written = changed.written.iter().flat_map(|written| &written.objects);
        let now =
            written.filter(|object| object.kind == kind && object.id == id).map(|object| object.version);
        let version = now.chain(changed.version_before).next().unwrap_or_default();
        let created = changed.version_before.is_none();
        Ok(StoredDefinition { definition, version, created })
    }

    /// Takes off a tenant's fields those that no definition has and that an answer shows.
    ///
    /// Errors: one of them is not as it is shown now, so that it was meant to be changed.
    async fn take_dates(&self, id: &str, fields: &mut Map<String, Value>) -> Answer<()> {
        if [CALENDARS, CURRENCIES].iter().all(|field| !fields.contains_key(*field)) {
            return Ok(());
        }
        let shown = match self.get_policy(DefinitionKind::Tenant, id).await {
            Ok(stored) => stored.definition,
            Err(OperationError::NotFound(_)) => Value::Null,
            Err(error) => return Err(error),
        };
        for field in [CALENDARS, CURRENCIES] {
            if fields.remove(field).is_some_and(|given| given != shown[field]) {
                let message = "is not set: it follows from time_zone, anchor_day and currency; leave it out";
                return Err(OperationError::field(format!("/{field}"), message));
            }
        }
        Ok(())
    }

    /// An object as it is stored.
    pub async fn get_policy(&self, kind: DefinitionKind, id: &str) -> Answer<StoredDefinition> {
        let found = if kind == DefinitionKind::Tenant {
            let tenant = TenantId::parse(id).map_err(|_| missing(kind, id))?;
            self.core
                .ledger
                .read_tenant_definition(&tenant)
                .await?
                .map(|stored| (self.shown(&stored), stored.version))
        } else {
            let stored = self.core.ledger.read_policy().await?;
            let objects = stored.objects.into_iter();
            objects
                .filter(|object| object.kind == kind && object.id == id)
                .map(|object| (object.definition, object.version))
                .next()
        };
        let (definition, version) = found.ok_or_else(|| missing(kind, id))?;
        Ok(StoredDefinition { definition, version, created: false })
    }

    /// Deletes an object, unless something refers to it or is booked on it.
    pub async fn delete_policy(
        &self,
        kind: DefinitionKind,
        id: &str,
        precondition: Precondition,
        actor: &str,
    ) -> Answer<()> {
        let terms = Terms { target: Some(Target { kind, id, precondition }), ..Terms::default() };
        let deleting = self.change_policy(Edit::delete(kind, id), terms, actor);
        deleting.await.map(drop).map_err(|error| match error {
            OperationError::Invalid(errors) => OperationError::InUse(why_it_stays(kind, id, &errors)),
            other => other,
        })
    }

    /// Makes all the changes of a file under one version, all or none, or says what they would be.
    ///
    /// Errors: everything that is wrong with it, with pointers into the file.
    pub async fn apply_policy(&self, request: ApplyRequest, actor: &str) -> Answer<PolicyChanges> {
        let ApplyRequest { policy, prune, dry_run, expected_digest } = request;
        let edit = Edit::apply(policy.clone(), prune).map_err(OperationError::Invalid)?;
        let terms = Terms { target: None, dry_run, agreed: expected_digest };
        let changed = self.change_policy(edit, terms, actor).await?;
        let Settled { changes, definitions, .. } = changed.settled;
        let version = changed.written.map_or(changed.base, |written| written.version);
        let warnings = warnings(&policy, &definitions);
        Ok(PolicyChanges { version, digest: digest(&changes), changes, warnings })
    }

    /// A page of objects with their versions, newest first.
    pub async fn list_policy(&self, kind: DefinitionKind, page: Page) -> Answer<Rows<Value>> {
        if kind == DefinitionKind::Tenant {
            return self.list_tenants(page).await;
        }
        let stored = self.core.ledger.read_policy().await?;
        let mut objects: Vec<_> = stored.objects.into_iter().filter(|object| object.kind == kind).collect();
        let after = page.after.as_deref().map(object_place).transpose()?;
        let place =
            |object: &StoredObject| Reverse((object.created_at.timestamp_micros(), object.id.clone()));
        objects.retain(|object| after.as_ref().is_none_or(|after| place(object) > *after));
        objects.sort_by_key(place);
        let written =
            |object: &StoredObject| format!("{}:{}", object.created_at.timestamp_micros(), object.id);
        let shown = Rows::page(objects, page.rows_max(), written);
        Ok(shown.map(|object| with_version(object.definition, object.version)))
    }

    async fn list_tenants(&self, page: Page) -> Answer<Rows<Value>> {
        let after = page.after.as_deref().map(tenant_place).transpose()?;
        let limit = page.rows_max();
        let rows = self.core.ledger.list_tenants(after.as_ref(), limit + 1).await?;
        let page = Rows::page(rows, limit, |row| format!("{}:{}", row.created_at_us, row.id));
        Ok(page.map(|row| with_version(self.shown(&row), row.version)))
    }

    /// The tenant. An unknown one is created where the configuration names a plan for such tenants.
    pub(in crate::operations) async fn tenant_or_new(&self, id: &TenantId) -> Answer<Arc<TenantEntry>> {
        match (self.core.policy.find_tenant(id).await?, &self.unknown_tenant_plan) {
            (Some(entry), _) => return Ok(entry),
            (None, Some(plan)) => Box::pin(self.create_on(id, plan)).await?,
            (None, None) => {}
        }
        self.core.policy.tenant(id).await
    }

    async fn create_on(&self, id: &TenantId, plan: &PlanId) -> Answer<()> {
        let body = serde_json::json!({ "id": id, "plan": plan });
        let body = body.to_string();
        let made = self.put_policy(
            DefinitionKind::Tenant,
            id.as_str(),
            body.as_bytes(),
            Precondition::Absent,
            INSTALLATION,
        );
        match made.await {
            // Somebody else created it meanwhile.
            Ok(_) | Err(OperationError::PreconditionFailed { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn fields_of(body: &[u8]) -> Answer<Map<String, Value>> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(OperationError::field("", "must be a JSON object")),
        Err(error) => Err(OperationError::Malformed(error.to_string())),
    }
}

fn document(kind: DefinitionKind, id: &str, mut fields: Map<String, Value>) -> Answer<PolicyFile> {
    match fields.get("id") {
        None => {
            fields.insert("id".into(), Value::String(id.into()));
        }
        Some(Value::String(given)) if given == id => {}
        Some(_) => {
            return Err(OperationError::field("/id", format!("must be {id}, as in the path, or left out")));
        }
    }
    let (value, prefix) = if kind == DefinitionKind::CostDefaults {
        if id != CostDefaults::ID {
            return Err(OperationError::field("/id", "must be default: there is only one"));
        }
        fields.remove("id");
        (Value::Object(fields), format!("/{}", kind.list_name()))
    } else {
        (Value::Array(vec![Value::Object(fields)]), format!("/{}/0", kind.list_name()))
    };
    let file = serde_json::json!({ kind.list_name(): value });
    read_json(&file).map_err(|error| {
        let pointer = error.pointer.strip_prefix(&prefix).unwrap_or(&error.pointer).to_owned();
        OperationError::Invalid(vec![FieldError::new(pointer, error.message)])
    })
}

fn with_version(mut definition: Value, version: u64) -> Value {
    if let Some(fields) = definition.as_object_mut() {
        fields.insert("version".into(), version.into());
    }
    definition
}

/// Why an object cannot be deleted: it is in the books, or others refer to it.
fn why_it_stays(kind: DefinitionKind, id: &str, errors: &[FieldError]) -> String {
    let own = format!("/{}/{id}", kind.list_name());
    let is_of_itself = |error: &&FieldError| error.pointer.is_empty() || error.pointer == own;
    if let Some(error) = errors.iter().find(is_of_itself) {
        return format!("the {kind} {id} {}", error.message);
    }
    let [first, others @ ..] = errors else { return format!("the {kind} {id} is in use") };
    let others = match others.len() {
        0 => String::new(),
        1 => " and in 1 more place".to_owned(),
        many => format!(" and in {many} more places"),
    };
    format!("the {kind} {id} is in use: it is named in {}{others}; change that first", first.pointer)
}

fn missing(kind: DefinitionKind, id: &str) -> OperationError {
    OperationError::NotFound(format!("there is no {kind} {id}"))
}

/// A place in a list of objects: when the last one before it was made (unix µs), and its id.
fn object_place(text: &str) -> Answer<Reverse<(i64, String)>> {
    let read = || {
        let (at, id) = text.split_once(':')?;
        Some(Reverse((at.parse().ok()?, id.to_owned())))
    };
    read().ok_or_else(OperationError::bad_cursor)
}

fn tenant_place(text: &str) -> Answer<TenantCursor> {
    let Reverse((created_at_us, id)) = object_place(text)?;
    Ok(TenantCursor { created_at_us, id: TenantId::parse(&id).map_err(|_| OperationError::bad_cursor())? })
}
