//! What a policy file would change, field by field, and the definitions once it has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::document::{Definitions, PolicyFile};
use super::validate::{Validator, repeated};
use crate::domain::field_error::{FieldError, child};

/// What sort of thing a definition defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DefinitionKind {
    /// A meter.
    Meter,
    /// An operation.
    Operation,
    /// A default limit.
    Limit,
    /// A plan.
    Plan,
    /// A tenant.
    Tenant,
}

impl DefinitionKind {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 5] = [Self::Meter, Self::Operation, Self::Limit, Self::Plan, Self::Tenant];

    /// The name of the list of them in a policy file.
    pub fn list_name(self) -> &'static str {
        match self {
            Self::Meter => "meters",
            Self::Operation => "operations",
            Self::Limit => "limits",
            Self::Plan => "plans",
            Self::Tenant => "tenants",
        }
    }
}

impl fmt::Display for DefinitionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.list_name().trim_end_matches('s'))
    }
}

/// What happens to a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is new.
    Create,
    /// It becomes another.
    Change,
    /// It goes.
    Delete,
}

/// One field that becomes another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// A pointer into the definition; items of a list are named by their id rather than by their place.
    pub pointer: String,
    /// Its text before; none if it was not there.
    pub before: Option<String>,
    /// Its text after; none if it is not there any more.
    pub after: Option<String>,
}

/// What happens to one definition, with every field that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What sort of definition.
    pub kind: DefinitionKind,
    /// Its id.
    pub id: String,
    /// What happens.
    pub action: Action,
    /// The fields that change, in order of their pointers.
    pub fields: Vec<FieldChange>,
}

/// A policy file worked out against what is stored: ready to be shown, then stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// All definitions afterwards.
    pub definitions: Definitions,
    /// What changes; what stays as it is, is left out.
    pub changes: Vec<Change>,
}

/// Works out what `file` does to `current`; of the kinds in `prune`, what the file does not name is deleted.
///
/// Everything afterwards is checked. Errors point into the file (`/plans/0/limits/2/capacity`) or, for a definition
/// that the file does not name, at its id (`/plans/free/limits/2/meter`).
pub fn apply(
    current: &Definitions,
    file: PolicyFile,
    prune: &BTreeSet<DefinitionKind>,
) -> Result<Applied, Vec<FieldError>> {
    let mut errors = repeated_ids(&file);
    if prune.contains(&DefinitionKind::Tenant) {
        errors.push(FieldError::new("/tenants", "tenants are never pruned; archive or delete one by its id"));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let places = Places::of(&file);
    let mut after = file.merge_into(current.clone());
    places.prune(&mut after, prune);
    let errors = definition_errors(current, &after, &places);
    if !errors.is_empty() {
        return Err(errors);
    }
    let changes = changes(current, &after);
    Ok(Applied { definitions: after, changes })
}

/// What `file` changes in `current`, without checking it.
pub fn diff(current: &Definitions, file: PolicyFile) -> Vec<Change> {
    changes(current, &file.merge_into(current.clone()))
}

/// Everything wrong with `after` as a whole, as if each definition were written by its id.
///
/// To see whether something can be deleted: remove it, and ask what is wrong then.
pub fn errors_after(before: &Definitions, after: &Definitions) -> Vec<FieldError> {
    definition_errors(before, after, &Places::default())
}

fn repeated_ids(file: &PolicyFile) -> Vec<FieldError> {
    let mut errors = repeated("/meters", "/id", file.meters.iter().map(|meter| &meter.id));
    errors.extend(repeated("/operations", "/id", file.operations.iter().map(|operation| &operation.id)));
    errors.extend(repeated("/limits", "/id", file.limits.iter().map(|limit| &limit.id)));
    errors.extend(repeated("/plans", "/id", file.plans.iter().map(|plan| &plan.id)));
    errors.extend(repeated("/tenants", "/id", file.tenants.iter().map(|tenant| &tenant.id)));
    errors
}

/// Where in the file each definition stands.
#[derive(Default)]
struct Places(BTreeMap<(DefinitionKind, String), usize>);

impl Places {
    fn of(file: &PolicyFile) -> Self {
        let mut places = BTreeMap::new();
        let mut note = |kind: DefinitionKind, ids: Vec<String>| {
            for (index, id) in ids.into_iter().enumerate() {
                places.entry((kind, id)).or_insert(index);
            }
        };
        note(DefinitionKind::Meter, file.meters.iter().map(|meter| meter.id.to_string()).collect());
        note(DefinitionKind::Operation, file.operations.iter().map(|each| each.id.to_string()).collect());
        note(DefinitionKind::Limit, file.limits.iter().map(|limit| limit.id.to_string()).collect());
        note(DefinitionKind::Plan, file.plans.iter().map(|plan| plan.id.to_string()).collect());
        note(DefinitionKind::Tenant, file.tenants.iter().map(|tenant| tenant.id.to_string()).collect());
        Self(places)
    }

    fn names(&self, kind: DefinitionKind, id: &str) -> bool {
        self.0.contains_key(&(kind, id.to_owned()))
    }

    fn pointer(&self, kind: DefinitionKind, id: &str) -> String {
        let place = self.0.get(&(kind, id.to_owned())).map_or_else(|| id.to_owned(), usize::to_string);
        format!("/{}/{place}", kind.list_name())
    }

    fn prune(&self, definitions: &mut Definitions, kinds: &BTreeSet<DefinitionKind>) {
        let keeps = |kind: DefinitionKind, id: &str| !kinds.contains(&kind) || self.names(kind, id);
        definitions.meters.retain(|id, _| keeps(DefinitionKind::Meter, id.as_str()));
        definitions.operations.retain(|id, _| keeps(DefinitionKind::Operation, id.as_str()));
        definitions.limits.retain(|id, _| keeps(DefinitionKind::Limit, id.as_str()));
        definitions.plans.retain(|id, _| keeps(DefinitionKind::Plan, id.as_str()));
    }
}

fn definition_errors(before: &Definitions, after: &Definitions, places: &Places) -> Vec<FieldError> {
    let validator = Validator::new(after);
    let mut errors = Vec::new();
    let mut report = |kind: DefinitionKind, id: &str, found: Vec<FieldError>| {
        let at = |error: FieldError| error.under(&places.pointer(kind, id));
        errors.extend(found.into_iter().map(at));
    };
    for (id, meter) in &after.meters {
        report(DefinitionKind::Meter, id.as_str(), validator.meter(meter));
    }
    for (id, operation) in &after.operations {
        report(DefinitionKind::Operation, id.as_str(), validator.operation(operation));
    }
    for (id, limit) in &after.limits {
        report(DefinitionKind::Limit, id.as_str(), validator.limit(limit));
    }
    for (id, plan) in &after.plans {
        report(DefinitionKind::Plan, id.as_str(), validator.plan(plan));
    }
    for (id, tenant) in &after.tenants {
        let was = before.tenants.get(id).map(Arc::as_ref);
        report(DefinitionKind::Tenant, id.as_str(), validator.tenant(tenant, was));
    }
    errors
}

/// What makes `after` of `before`: definitions in the order of [`DefinitionKind::ALL`], then by id.
pub fn changes(before: &Definitions, after: &Definitions) -> Vec<Change> {
    let mut found = compare(DefinitionKind::Meter, &before.meters, &after.meters);
    found.extend(compare(DefinitionKind::Operation, &before.operations, &after.operations));
    found.extend(compare(DefinitionKind::Limit, &before.limits, &after.limits));
    found.extend(compare(DefinitionKind::Plan, &before.plans, &after.plans));
    found.extend(compare(DefinitionKind::Tenant, &before.tenants, &after.tenants));
    found
}

fn compare<Id: Ord + fmt::Display, T: Serialize + PartialEq>(
    kind: DefinitionKind,
    before: &BTreeMap<Id, Arc<T>>,
    after: &BTreeMap<Id, Arc<T>>,
) -> Vec<Change> {
    let ids: BTreeSet<&Id> = before.keys().chain(after.keys()).collect();
    let change = |id: &Id| {
        let (old, new) = (before.get(id), after.get(id));
        if old == new {
            return None;
        }
        let action = match (old, new) {
            (None, _) => Action::Create,
            (_, None) => Action::Delete,
            _ => Action::Change,
        };
        let fields = field_changes(old.map(Arc::as_ref), new.map(Arc::as_ref));
        let is_empty = action == Action::Change && fields.is_empty();
        (!is_empty).then(|| Change { kind, id: id.to_string(), action, fields })
    };
    ids.into_iter().filter_map(change).collect()
}

fn field_changes<T: Serialize>(before: Option<&T>, after: Option<&T>) -> Vec<FieldChange> {
    let (before, after) = (texts(before), texts(after));
    let pointers: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed = pointers.into_iter().filter(|pointer| before.get(*pointer) != after.get(*pointer));
    changed
        .map(|pointer| FieldChange {
            pointer: pointer.clone(),
            before: before.get(pointer).cloned(),
            after: after.get(pointer).cloned(),
        })
        .collect()
}

/// Every leaf of a definition by its pointer, as text.
fn texts<T: Serialize>(definition: Option<&T>) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    if let Some(Ok(value)) = definition.map(serde_json::to_value) {
        collect(&value, "", &mut texts);
    }
    texts
}

fn collect(value: &Value, pointer: &str, texts: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| collect(value, &child(pointer, name), texts));
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let name = item_name(item).unwrap_or_else(|| index.to_string());
                collect(item, &child(pointer, &name), texts);
            }
        }
        Value::String(text) => {
            texts.insert(pointer.to_owned(), text.clone());
        }
        other => {
            texts.insert(pointer.to_owned(), other.to_string());
        }
    }
}

/// What names an item of a list: its id (a subject's after its kind), or the meter of a quota or cost.
fn item_name(item: &Value) -> Option<String> {
    let field = |name: &str| item.get(name).and_then(Value::as_str);
    match (field("kind"), field("id"), field("meter")) {
        // A limit has a kind too, but a meter besides: its id alone names it.
        (Some(kind), Some(id), None) => Some(format!("{kind}:{id}")),
        (_, Some(id), _) => Some(id.to_owned()),
        (_, None, meter) => meter.map(str::to_owned),
    }
}
