//! A policy as a whole: all stored definitions, and the file that writes some of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::diff::DefinitionKind;
use crate::domain::amount::Decimals;
use crate::domain::cost_defaults::CostDefaults;
use crate::domain::field_error::{FieldError, read_toml};
use crate::domain::ids::{LimitId, MeterId, OperationId, PlanId, TenantId};
use crate::domain::limit::Limit;
use crate::domain::meter::Meter;
use crate::domain::operation::Operation;
use crate::domain::plan::{PlanDefinition, PlanDocument};
use crate::domain::tenant::{TenantDefinition, TenantDocument};

/// All stored definitions, by id. In an instance's snapshot the tenants may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Definitions {
    /// What is counted.
    pub meters: BTreeMap<MeterId, Arc<Meter>>,
    /// What work costs.
    pub operations: BTreeMap<OperationId, Arc<Operation>>,
    /// What a check costs for which no operation is found.
    pub cost_defaults: Option<Arc<CostDefaults>>,
    /// The default limits.
    pub limits: BTreeMap<LimitId, Arc<Limit>>,
    /// The plans.
    pub plans: BTreeMap<PlanId, Arc<PlanDefinition>>,
    /// The tenants.
    pub tenants: BTreeMap<TenantId, Arc<TenantDefinition>>,
}

impl Definitions {
    /// The decimals of a meter, if there is one of this id.
    pub fn decimals(&self, meter: &MeterId) -> Option<Decimals> {
        self.meters.get(meter).map(|meter| meter.decimals)
    }

    /// Removes a definition.
    pub fn remove(&mut self, kind: DefinitionKind, id: &str) {
        match kind {
            DefinitionKind::Meter => drop(self.meters.remove(id)),
            DefinitionKind::Operation => drop(self.operations.remove(id)),
            DefinitionKind::CostDefaults => self.cost_defaults = None,
            DefinitionKind::Limit => drop(self.limits.remove(id)),
            DefinitionKind::Plan => drop(self.plans.remove(id)),
            DefinitionKind::Tenant => drop(self.tenants.remove(id)),
        }
    }

    /// A definition as JSON, if there is one of this id.
    pub fn json(&self, kind: DefinitionKind, id: &str) -> Option<serde_json::Result<Value>> {
        match kind {
            DefinitionKind::Meter => self.meters.get(id).map(serde_json::to_value),
            DefinitionKind::Operation => self.operations.get(id).map(serde_json::to_value),
            DefinitionKind::CostDefaults => self.cost_defaults.as_ref().map(serde_json::to_value),
            DefinitionKind::Limit => self.limits.get(id).map(serde_json::to_value),
            DefinitionKind::Plan => self.plans.get(id).map(serde_json::to_value),
            DefinitionKind::Tenant => self.tenants.get(id).map(serde_json::to_value),
        }
    }
}

/// A policy file: definitions to create or change. Definitions that it does not name stay as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFile {
    /// What is counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<Meter>,
    /// What work costs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<Operation>,
    /// What a check costs for which no operation is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_defaults: Option<Arc<CostDefaults>>,
    /// The default limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Arc<Limit>>,
    /// The plans.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<PlanDocument>,
    /// The tenants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantDocument>,
}

impl PolicyFile {
    /// Reads a TOML text; the error points at the field that is wrong.
    pub fn from_toml(text: &str) -> Result<Self, FieldError> {
        read_toml(text)
    }

    /// The TOML text of the file.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string_pretty(self)
    }

    /// Applies the file to `current`: creates and changes definitions, deletes none.
    pub fn merge_into(self, mut current: Definitions) -> Definitions {
        current.meters.extend(self.meters.into_iter().map(|meter| (meter.id.clone(), Arc::new(meter))));
        let operations = self.operations.into_iter();
        current.operations.extend(operations.map(|operation| (operation.id.clone(), Arc::new(operation))));
        current.cost_defaults = self.cost_defaults.or(current.cost_defaults);
        current.limits.extend(self.limits.into_iter().map(|limit| (limit.id.clone(), limit)));
        for document in self.plans {
            let stored = current.plans.get(&document.id).cloned();
            let plan = document.merge(stored.as_deref());
            current.plans.insert(plan.id.clone(), Arc::new(plan));
        }
        for document in self.tenants {
            let stored = current.tenants.get(&document.id).cloned();
            let tenant = document.merge(stored.as_deref());
            current.tenants.insert(tenant.id.clone(), Arc::new(tenant));
        }
        current
    }
}

/// The file that makes exactly these definitions, sorted by id, so that equal policies give equal texts.
pub fn export(definitions: &Definitions) -> PolicyFile {
    PolicyFile {
        meters: definitions.meters.values().map(|meter| meter.as_ref().clone()).collect(),
        operations: definitions.operations.values().map(|operation| operation.as_ref().clone()).collect(),
        cost_defaults: definitions.cost_defaults.clone(),
        limits: definitions.limits.values().cloned().collect(),
        plans: definitions.plans.values().map(|plan| plan.as_ref().clone().into()).collect(),
        tenants: definitions.tenants.values().map(|tenant| tenant.as_ref().clone().into()).collect(),
    }
}
