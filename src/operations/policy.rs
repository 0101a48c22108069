//! Policy as resources: meters, operations, default limits, plans and tenants, created, replaced, read and deleted.

use std::sync::Arc;

use serde_json::Value;

use super::answers::{PageAnswer, PolicyAnswer};
use super::policy_store::{TenantEntry, add_object, stored_json};
use super::requests::{Page, PolicyKind, Principal};
use super::{Answer, FieldError, OperationError, Operations};
use crate::domain::field_error::read_json;
use crate::domain::ids::{LimitId, MeterId, OperationId, PlanId, TenantId};
use crate::domain::policy::counter::{GenerationRow, Resets, generations_after};
use crate::domain::policy::diff::errors_after;
use crate::domain::policy::document::{Definitions, PolicyFile};
use crate::domain::policy::resets::{TenantBefore, tenant_resets_after};
use crate::domain::policy::{Policy, counter};
use crate::domain::tenant::TenantDefinition;
use crate::ledger::{
    Expected, Generation, LedgerError, ObjectKind, PolicyAction, PolicyChange, PolicyWrite, PolicyWritten,
    StoredTenant, TenantPlace,
};

/// How often a change is prepared again because the policy moved meanwhile.
const ATTEMPTS_MAX: usize = 10;
const TENANTS_PAGE: usize = 1000;

/// What is stored before a change: everything but tenants, and the tenants the change concerns.
struct Before {
    policy: Policy,
    generations: counter::Generations,
    definitions: Definitions,
    tenants: Vec<StoredTenant>,
}

impl Operations {
    /// Creates or replaces an object. `body` is the JSON of its definition; its `id` may be left out and must else be
    /// `id`. `if_match` is the version it must have. Live on every instance within a second.
    pub async fn put_policy(
        &self,
        kind: PolicyKind,
        id: &str,
        body: &[u8],
        if_match: Option<u64>,
        actor: &Principal,
    ) -> Answer<PolicyAnswer> {
        let document = document(kind, id, body)?;
        for _ in 0..ATTEMPTS_MAX {
            let before = self.read_before(kind, id, document.kind_of_reach()).await?;
            let after = document.file.clone().merge_into(before.definitions.clone());
            if let Some(answer) = unchanged(kind, id, if_match, &before, &after)? {
                return Ok(answer);
            }
            self.check(kind, id, &before, &after).await?;
            let change = self.change(kind, id, if_match, &before, &after, actor)?;
            match self.ledger.put_objects(change).await {
                Ok(written) => {
                    self.after_change(kind, &written).await?;
                    let object = written
                        .objects
                        .iter()
                        .find(|object| object.kind == object_kind(kind) && object.id == id);
                    let (version, created) =
                        object.map_or((written.version, false), |object| (object.version, object.created));
                    return Ok(PolicyAnswer { definition: definition(kind, id, &after)?, version, created });
                }
                Err(
                    LedgerError::Conflict(crate::ledger::Conflict::PolicyMoved { .. }) | LedgerError::Busy(_),
                ) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(OperationError::Overloaded)
    }

    /// An object as it is stored.
    pub async fn get_policy(&self, kind: PolicyKind, id: &str) -> Answer<PolicyAnswer> {
        let found = if kind == PolicyKind::Tenants {
            let tenant = TenantId::parse(id).map_err(|_| missing(kind, id))?;
            self.ledger
                .read_tenant_definition(&tenant)
                .await?
                .map(|stored| (stored.definition, stored.version))
        } else {
            let stored = self.ledger.read_policy().await?;
            let objects = stored.objects.into_iter();
            objects
                .filter(|object| object.kind == object_kind(kind) && object.id == id)
                .map(|object| (object.definition, object.version))
                .next()
        };
        let (definition, version) = found.ok_or_else(|| missing(kind, id))?;
        Ok(PolicyAnswer { definition, version, created: false })
    }

    /// Deletes an object that nothing refers to and nothing is booked on.
    pub async fn delete_policy(
        &self,
        kind: PolicyKind,
        id: &str,
        if_match: Option<u64>,
        actor: &Principal,
    ) -> Answer<()> {
        let stored = self.get_policy(kind, id).await?;
        if if_match.is_some_and(|version| version != stored.version) {
            return Err(OperationError::PreconditionFailed { current: stored.version });
        }
        for _ in 0..ATTEMPTS_MAX {
            let reach = if kind == PolicyKind::Tenants { Reach::One } else { Reach::All };
            let before = self.read_before(kind, id, reach).await?;
            let mut after = before.definitions.clone();
            remove(&mut after, kind, id);
            let broken = errors_after(&before.definitions, &after);
            if let Some(error) = broken.first() {
                return Err(OperationError::InUse(format!(
                    "{id} is in use: {}: {}",
                    error.pointer, error.message
                )));
            }
            let change = PolicyWrite {
                changes: vec![PolicyChange {
                    kind: object_kind(kind),
                    id: id.to_owned(),
                    expected: Expected::Version(stored.version),
                    action: PolicyAction::Delete,
                }],
                generations: Vec::new(),
                based_on: (kind != PolicyKind::Tenants).then_some(before.policy.version),
                actor: actor.key_id.clone(),
            };
            match self.ledger.put_objects(change).await {
                Ok(written) => return self.after_change(kind, &written).await,
                Err(
                    LedgerError::Conflict(crate::ledger::Conflict::PolicyMoved { .. }) | LedgerError::Busy(_),
                ) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(OperationError::Overloaded)
    }

    /// A page of objects with their versions: tenants newest first, the other kinds by id.
    pub async fn list_policy(&self, kind: PolicyKind, page: Page) -> Answer<PageAnswer<Value>> {
        if kind == PolicyKind::Tenants {
            return self.list_tenants(page).await;
        }
        let stored = self.ledger.read_policy().await?;
        let mut objects: Vec<_> =
            stored.objects.into_iter().filter(|object| object.kind == object_kind(kind)).collect();
        objects.sort_by(|a, b| a.id.cmp(&b.id));
        let after = page.after.unwrap_or_default();
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let rest: Vec<_> = objects.into_iter().filter(|object| object.id > after).collect();
        let has_more = rest.len() > limit;
        let shown: Vec<_> = rest.into_iter().take(limit).collect();
        let next = has_more.then(|| shown.last().map(|object| object.id.clone())).flatten();
        let data = shown.into_iter().map(|object| with_version(object.definition, object.version)).collect();
        Ok(PageAnswer { data, next, as_of: None })
    }

    async fn list_tenants(&self, page: Page) -> Answer<PageAnswer<Value>> {
        let after = page.after.as_deref().map(tenant_place).transpose()?;
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let mut rows = self.ledger.list_tenants(after.as_ref(), limit.saturating_add(1)).await?;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| has_more).map(|row| format!("{}:{}", row.created_at_us, row.id));
        let data = rows.into_iter().map(|row| with_version(row.definition, row.version)).collect();
        Ok(PageAnswer { data, next, as_of: None })
    }

    /// The tenant; one that nobody has made is created where the configuration names a plan for such tenants.
    pub(super) async fn tenant_or_new(&self, id: &TenantId) -> Answer<Arc<TenantEntry>> {
        match (self.policy.find_tenant(id).await?, &self.options.unknown_tenant_plan) {
            (Some(entry), _) => return Ok(entry),
            (None, Some(plan)) => Box::pin(self.create_on(id, plan)).await?,
            (None, None) => {}
        }
        self.policy.tenant(id).await
    }

    async fn create_on(&self, id: &TenantId, plan: &PlanId) -> Answer<()> {
        let body = serde_json::json!({ "id": id, "plan": plan });
        let actor =
            Principal { key_id: "installation".into(), role: super::requests::Role::Admin, tenant: None };
        self.put_policy(PolicyKind::Tenants, id.as_str(), body.to_string().as_bytes(), None, &actor).await?;
        Ok(())
    }

    async fn read_before(&self, kind: PolicyKind, id: &str, reach: Reach) -> Answer<Before> {
        let stored = self.ledger.read_policy().await?;
        let mut definitions = Definitions::default();
        for object in &stored.objects {
            add_object(&mut definitions, object.kind, &object.definition)?;
        }
        let generations = generations(stored.generations)?;
        let policy = Policy::new(stored.version, definitions.clone(), generations.clone());
        let mut tenants = Vec::new();
        match (reach, kind) {
            (Reach::One, PolicyKind::Tenants) => {
                if let Ok(tenant) = TenantId::parse(id) {
                    tenants.extend(self.ledger.read_tenant_definition(&tenant).await?);
                }
            }
            (Reach::One, _) => {}
            (Reach::All, _) => tenants = self.all_tenants().await?,
        }
        for tenant in &tenants {
            add_object(&mut definitions, ObjectKind::Tenant, &tenant.definition)?;
        }
        Ok(Before { policy, generations, definitions, tenants })
    }

    async fn all_tenants(&self) -> Answer<Vec<StoredTenant>> {
        let mut all: Vec<StoredTenant> = Vec::new();
        loop {
            let after =
                all.last().map(|row| TenantPlace { created_at_us: row.created_at_us, id: row.id.clone() });
            let page = self.ledger.list_tenants(after.as_ref(), TENANTS_PAGE).await?;
            let is_last = page.len() < TENANTS_PAGE;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    async fn check(&self, kind: PolicyKind, id: &str, before: &Before, after: &Definitions) -> Answer<()> {
        let prefix = format!("/{}/{id}", list_name(kind));
        let (own, other): (Vec<_>, Vec<_>) = errors_after(&before.definitions, after)
            .into_iter()
            .partition(|error| error.pointer.starts_with(&prefix));
        let mut errors: Vec<_> = own
            .into_iter()
            .map(|error| FieldError::new(error.pointer.trim_start_matches(&prefix).to_owned(), error.message))
            .collect();
        errors.extend(other);
        if !errors.is_empty() {
            return Err(OperationError::Invalid(errors));
        }
        if let (PolicyKind::Meters, Ok(meter)) = (kind, MeterId::parse(id))
            && let (Some(old), Some(new)) = (before.definitions.meters.get(&meter), after.meters.get(&meter))
        {
            let fixed = old.change_needs_unused(new);
            if !fixed.is_empty() && self.ledger.is_meter_booked(&meter).await? {
                return Err(OperationError::Invalid(fixed));
            }
        }
        Ok(())
    }

    fn change(
        &self,
        kind: PolicyKind,
        id: &str,
        if_match: Option<u64>,
        before: &Before,
        after: &Definitions,
        actor: &Principal,
    ) -> Answer<PolicyWrite> {
        let now_ms = self.clock.now_ms();
        let fresh = generations_after(&before.definitions, after, &before.generations, now_ms);
        let mut generations_then = before.generations.clone();
        generations_then.extend(fresh.iter().cloned());
        let policy_then = Policy::new(before.policy.version, after.clone(), generations_then);
        let mut changes = Vec::new();
        let mut put_target = kind != PolicyKind::Tenants;
        for tenant in &before.tenants {
            let (Some(old), Some(new)) =
                (before.definitions.tenants.get(&tenant.id), after.tenants.get(&tenant.id))
            else {
                continue;
            };
            let resets: Resets = stored_json(&tenant.counter_resets)?;
            let was = TenantBefore { policy: &before.policy, tenant: old, resets: &resets };
            let then = tenant_resets_after(was, &policy_then, new, now_ms)
                .map_err(|dangling| OperationError::Internal(dangling.to_string()))?;
            if old != new || then != resets {
                changes.push(put_tenant(new, Some(&then), if_match.filter(|_| kind == PolicyKind::Tenants))?);
            }
        }
        if kind == PolicyKind::Tenants && before.tenants.is_empty() {
            put_target = false;
            let tenant = TenantId::parse(id).map_err(|_| missing(kind, id))?;
            if let Some(new) = after.tenants.get(&tenant) {
                changes.push(put_tenant(new, None, if_match)?);
            }
        }
        if put_target {
            let definition = definition(kind, id, after)?;
            let archived = definition.get("archived").and_then(Value::as_bool).unwrap_or(false);
            let expected = if_match.map_or(Expected::Any, Expected::Version);
            let action = PolicyAction::Put { definition, archived, counter_resets: None };
            changes.insert(0, PolicyChange { kind: object_kind(kind), id: id.to_owned(), expected, action });
        }
        Ok(PolicyWrite {
            changes,
            generations: fresh.into_iter().map(generation_row).collect(),
            based_on: (kind != PolicyKind::Tenants).then_some(before.policy.version),
            actor: actor.key_id.clone(),
        })
    }

    /// The instance that made a change sees it before it answers.
    async fn after_change(&self, kind: PolicyKind, written: &PolicyWritten) -> Answer<()> {
        if kind == PolicyKind::Tenants {
            for object in written.objects.iter().filter(|object| object.kind == ObjectKind::Tenant) {
                if let Ok(tenant) = TenantId::parse(&object.id) {
                    self.policy.tenant_changed(&tenant, object.version).await;
                }
            }
        } else {
            self.policy.forget_tenants();
        }
        let version = self.policy.refresh().await?;
        self.policy_version_seen(version);
        Ok(())
    }
}

/// Which tenants a change concerns.
#[derive(Clone, Copy)]
enum Reach {
    /// The one it names, if it names one.
    One,
    /// All of them: their counters or references may be touched.
    All,
}

struct Document {
    file: PolicyFile,
    kind: PolicyKind,
}

impl Document {
    /// A meter or an operation has no counters; a limit's or plan's shape may concern every tenant.
    fn kind_of_reach(&self) -> Reach {
        match self.kind {
            PolicyKind::Meters | PolicyKind::Operations | PolicyKind::Tenants => Reach::One,
            PolicyKind::Limits | PolicyKind::Plans => Reach::All,
        }
    }
}

fn document(kind: PolicyKind, id: &str, body: &[u8]) -> Answer<Document> {
    let mut value: Value =
        serde_json::from_slice(body).map_err(|error| OperationError::Malformed(error.to_string()))?;
    let Some(fields) = value.as_object_mut() else {
        return Err(OperationError::field("", "must be a JSON object"));
    };
    match fields.get("id") {
        None => {
            fields.insert("id".into(), Value::String(id.into()));
        }
        Some(Value::String(given)) if given == id => {}
        Some(_) => {
            return Err(OperationError::field("/id", format!("must be {id}, as in the path, or left out")));
        }
    }
    let file = serde_json::json!({ list_name(kind): [value] });
    let prefix = format!("/{}/0", list_name(kind));
    let file = read_json(&file).map_err(|error| {
        let pointer = error.pointer.strip_prefix(&prefix).unwrap_or(&error.pointer).to_owned();
        OperationError::Invalid(vec![FieldError::new(pointer, error.message)])
    })?;
    Ok(Document { file, kind })
}

/// A PUT that says what is stored already changes nothing, whatever the version: an apply of an export is empty.
fn unchanged(
    kind: PolicyKind,
    id: &str,
    if_match: Option<u64>,
    before: &Before,
    after: &Definitions,
) -> Answer<Option<PolicyAnswer>> {
    if kind != PolicyKind::Tenants || *after != before.definitions {
        return Ok(None);
    }
    let Some(stored) = before.tenants.iter().find(|tenant| tenant.id.as_str() == id) else { return Ok(None) };
    if if_match.is_some_and(|version| version != stored.version) {
        return Err(OperationError::PreconditionFailed { current: stored.version });
    }
    Ok(Some(PolicyAnswer {
        definition: definition(kind, id, after)?,
        version: stored.version,
        created: false,
    }))
}

fn put_tenant(
    tenant: &Arc<TenantDefinition>,
    resets: Option<&Resets>,
    if_match: Option<u64>,
) -> Answer<PolicyChange> {
    Ok(PolicyChange {
        kind: ObjectKind::Tenant,
        id: tenant.id.to_string(),
        expected: if_match.map_or(Expected::Any, Expected::Version),
        action: PolicyAction::Put {
            definition: to_json(tenant)?,
            archived: tenant.archived,
            counter_resets: resets.map(to_json).transpose()?,
        },
    })
}

fn definition(kind: PolicyKind, id: &str, definitions: &Definitions) -> Answer<Value> {
    let found = match kind {
        PolicyKind::Meters => MeterId::parse(id).ok().and_then(|id| definitions.meters.get(&id)).map(to_json),
        PolicyKind::Operations => {
            OperationId::parse(id).ok().and_then(|id| definitions.operations.get(&id)).map(to_json)
        }
        PolicyKind::Limits => LimitId::parse(id).ok().and_then(|id| definitions.limits.get(&id)).map(to_json),
        PolicyKind::Plans => PlanId::parse(id).ok().and_then(|id| definitions.plans.get(&id)).map(to_json),
        PolicyKind::Tenants => {
            TenantId::parse(id).ok().and_then(|id| definitions.tenants.get(&id)).map(to_json)
        }
    };
    found.unwrap_or_else(|| Err(missing(kind, id)))
}

fn remove(definitions: &mut Definitions, kind: PolicyKind, id: &str) {
    match kind {
        PolicyKind::Meters => definitions.meters.retain(|key, _| key.as_str() != id),
        PolicyKind::Operations => definitions.operations.retain(|key, _| key.as_str() != id),
        PolicyKind::Limits => definitions.limits.retain(|key, _| key.as_str() != id),
        PolicyKind::Plans => definitions.plans.retain(|key, _| key.as_str() != id),
        PolicyKind::Tenants => definitions.tenants.retain(|key, _| key.as_str() != id),
    }
}

fn to_json<T: serde::Serialize + ?Sized>(value: &T) -> Answer<Value> {
    serde_json::to_value(value).map_err(|error| OperationError::Internal(error.to_string()))
}

fn with_version(mut definition: Value, version: u64) -> Value {
    if let Some(fields) = definition.as_object_mut() {
        fields.insert("version".into(), version.into());
    }
    definition
}

fn missing(kind: PolicyKind, id: &str) -> OperationError {
    OperationError::NotFound(format!("there is no {} {id}", object_kind(kind).as_str()))
}

fn object_kind(kind: PolicyKind) -> ObjectKind {
    match kind {
        PolicyKind::Meters => ObjectKind::Meter,
        PolicyKind::Operations => ObjectKind::Operation,
        PolicyKind::Limits => ObjectKind::Limit,
        PolicyKind::Plans => ObjectKind::Plan,
        PolicyKind::Tenants => ObjectKind::Tenant,
    }
}

fn list_name(kind: PolicyKind) -> &'static str {
    match kind {
        PolicyKind::Meters => "meters",
        PolicyKind::Operations => "operations",
        PolicyKind::Limits => "limits",
        PolicyKind::Plans => "plans",
        PolicyKind::Tenants => "tenants",
    }
}

fn tenant_place(text: &str) -> Answer<TenantPlace> {
    let bad = || OperationError::Malformed("the cursor does not read".into());
    let (at, id) = text.split_once(':').ok_or_else(bad)?;
    Ok(TenantPlace {
        created_at_us: at.parse().map_err(|_| bad())?,
        id: TenantId::parse(id).map_err(|_| bad())?,
    })
}

/// The stored table of generations as the domain reads it.
pub(super) fn generations(rows: Vec<Generation>) -> Answer<counter::Generations> {
    let read = |row: Generation| -> Result<GenerationRow, String> {
        Ok(GenerationRow {
            counter: counter::CounterName::try_from(row.limit_id).map_err(|error| error.to_string())?,
            shape: row.shape.parse().map_err(|error: counter::InvalidShape| error.to_string())?,
            generation: counter::Generation {
                number: u32::try_from(row.generation).map_err(|error| error.to_string())?,
                since_ms: row.since_ms,
            },
        })
    };
    rows.into_iter().map(read).collect::<Result<_, _>>().map_err(OperationError::Internal)
}

fn generation_row(row: GenerationRow) -> Generation {
    Generation {
        limit_id: row.counter.into(),
        shape: row.shape.to_string(),
        generation: row.generation.number.into(),
        since_ms: row.generation.since_ms,
    }
}
