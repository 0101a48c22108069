//! What makes one policy of another, field by field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::document::Definitions;
use crate::domain::field_error::child;

/// What sort of thing a definition defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// What happens to a definition, or to a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is new.
    Create,
    /// It becomes another.
    Change,
    /// It goes.
    Delete,
}

impl Action {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Delete => "delete",
        }
    }
}

/// One field that becomes another, or one item of a list that comes or goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldChange {
    /// What happens.
    pub action: Action,
    /// A pointer into the definition; items of a list are named by their id rather than by their place.
    pub pointer: String,
    /// Its text before; none if it was not there.
    pub before: Option<String>,
    /// Its text after; none if it is not there any more.
    pub after: Option<String>,
}

/// What happens to one definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What sort of definition.
    pub kind: DefinitionKind,
    /// Its id.
    pub id: String,
    /// What happens.
    pub action: Action,
    /// Of one that changes: what in it does, in order of the pointers.
    pub fields: Vec<FieldChange>,
}

/// What names these changes and no others, as text: whoever has looked at them can ask for exactly them.
pub fn digest(changes: &[Change]) -> String {
    let mut hasher = blake3::Hasher::new();
    for change in changes {
        for text in [change.kind.as_str(), &change.id, change.action.as_str()] {
            hasher.update(text.as_bytes()).update(&[0]);
        }
        for field in &change.fields {
            for text in [Some(&field.pointer), field.before.as_ref(), field.after.as_ref()] {
                hasher.update(&[u8::from(text.is_some())]);
                hasher.update(text.map_or(&[], |text| text.as_bytes())).update(&[0]);
            }
        }
        hasher.update(&[2]);
    }
    hasher.finalize().to_hex()[..32].to_owned()
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
    let mut found = Vec::new();
    // What is new or gone is named as a whole.
    if let (Some(Ok(before)), Some(Ok(after))) =
        (before.map(serde_json::to_value), after.map(serde_json::to_value))
    {
        compare_values("", Some(&before), Some(&after), &mut found);
    }
    found
}

fn compare_values(
    pointer: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    found: &mut Vec<FieldChange>,
) {
    if before == after {
        return;
    }
    if let (Some(before), Some(after)) = (before.and_then(parts), after.and_then(parts)) {
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            let inner = child(pointer, name);
            compare_values(&inner, before.get(name).copied(), after.get(name).copied(), found);
        }
        return;
    }
    let action = match (before, after) {
        (None, _) => Action::Create,
        (_, None) => Action::Delete,
        _ => Action::Change,
    };
    let (before, after) = (before.map(text), after.map(text));
    found.push(FieldChange { action, pointer: pointer.to_owned(), before, after });
}

/// The parts of a value by name: the fields of a table, the items of a list whose items have names.
fn parts(value: &Value) -> Option<BTreeMap<String, &Value>> {
    match value {
        Value::Object(fields) => Some(fields.iter().map(|(name, value)| (name.clone(), value)).collect()),
        Value::Array(items) => items.iter().map(|item| Some((item_name(item)?, item))).collect(),
        _ => None,
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
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
