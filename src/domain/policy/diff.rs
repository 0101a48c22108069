//! What a policy file would change, field by field, and the definitions once it has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::document::{Definitions, PolicyFile};
use super::edit::{Checks, Edit};
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

    /// The word for one of them, as tables and notices have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Meter => "meter",
            Self::Operation => "operation",
            Self::Limit => "limit",
            Self::Plan => "plan",
            Self::Tenant => "tenant",
        }
    }

    /// The kind with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

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
        f.write_str(self.as_str())
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
/// Everything afterwards is checked: errors are those of [`Checks`].
pub fn apply(
    current: &Definitions,
    file: PolicyFile,
    prune: &BTreeSet<DefinitionKind>,
) -> Result<Applied, Vec<FieldError>> {
    let edit = Edit::apply(file, prune)?;
    let after = edit.after(current);
    let errors = Checks::new(&edit, current, &after).all();
    if !errors.is_empty() {
        return Err(errors);
    }
    let changes = changes(current, &after);
    Ok(Applied { definitions: after, changes })
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
