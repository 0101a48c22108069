//! The differences between two policies, field by field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::document::Definitions;
use crate::domain::cost_defaults::CostDefaults;
use crate::domain::field_error::child;
use crate::domain::price::price_name;

/// The kind of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefinitionKind {
    /// A meter.
    Meter,
    /// An operation.
    Operation,
    /// The cost defaults.
    CostDefaults,
    /// A default limit.
    Limit,
    /// A plan.
    Plan,
    /// A tenant.
    Tenant,
}

impl DefinitionKind {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 6] =
        [Self::Meter, Self::Operation, Self::CostDefaults, Self::Limit, Self::Plan, Self::Tenant];

    /// The word for one of them in tables and notices.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Meter => "meter",
            Self::Operation => "operation",
            Self::CostDefaults => "cost_defaults",
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
            Self::CostDefaults => "cost_defaults",
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

/// The change of a definition, or of a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is new.
    Create,
    /// It changes.
    Change,
    /// It is deleted.
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

/// One field that changes, or one item of a list that is added or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldChange {
    /// The kind of change.
    pub action: Action,
    /// A pointer into the definition; items of a list are named by their id, not by their place.
    pub pointer: String,
    /// Its text before; none if it did not exist.
    pub before: Option<String>,
    /// Its text after; none if it no longer exists.
    pub after: Option<String>,
}

/// The change of one definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The kind of definition.
    pub kind: DefinitionKind,
    /// Its id.
    pub id: String,
    /// The kind of change.
    pub action: Action,
    /// For a change: its fields that change, in the order of the pointers.
    pub fields: Vec<FieldChange>,
}

/// A digest that only exactly these changes have: who has looked at them can ask for exactly them.
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

/// The changes from `before` to `after`: definitions in the order of [`DefinitionKind::ALL`], then by id.
pub fn changes(before: &Definitions, after: &Definitions) -> Vec<Change> {
    let mut found = compare(DefinitionKind::Meter, &before.meters, &after.meters);
    found.extend(compare(DefinitionKind::Operation, &before.operations, &after.operations));
    let (old, new) = (only(before.cost_defaults.as_ref()), only(after.cost_defaults.as_ref()));
    found.extend(compare(DefinitionKind::CostDefaults, &old, &new));
    found.extend(compare(DefinitionKind::Limit, &before.limits, &after.limits));
    found.extend(compare(DefinitionKind::Plan, &before.plans, &after.plans));
    found.extend(compare(DefinitionKind::Tenant, &before.tenants, &after.tenants));
    found
}

/// The cost defaults under their id.
pub(super) fn only(defaults: Option<&Arc<CostDefaults>>) -> BTreeMap<String, Arc<CostDefaults>> {
    defaults.map(|defaults| (CostDefaults::ID.to_owned(), defaults.clone())).into_iter().collect()
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
    // A new or deleted value is named as a whole.
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

/// The name of an item of a list: its id (a subject's with its kind before it), or the meter of a quota or cost; of a
/// price, all that tells its versions apart.
fn item_name(item: &Value) -> Option<String> {
    let field = |name: &str| item.get(name).and_then(Value::as_str);
    if let (Some(meter), Some(currency), Some(day)) =
        (field("meter"), field("currency"), field("effective_from"))
    {
        return Some(price_name(meter, field("id"), currency, day));
    }
    match (field("kind"), field("id"), field("meter")) {
        // A limit has a kind too, but also a meter: its id alone names it.
        (Some(kind), Some(id), None) => Some(format!("{kind}:{id}")),
        (_, Some(id), _) => Some(id.to_owned()),
        (_, None, meter) => meter.map(str::to_owned),
    }
}
