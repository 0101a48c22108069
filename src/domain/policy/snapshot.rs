//! The policy in every instance's memory: immutable, replaced as a whole.

use std::sync::Arc;

use super::counter::Generations;
use super::document::Definitions;
use super::globals::Globals;
use crate::domain::cost_defaults::CostDefaults;
use crate::domain::endpoint::{EndpointPath, Endpoints, HttpMethod};
use crate::domain::field_error::FieldError;
use crate::domain::ids::{MeterId, OperationId, PlanId};
use crate::domain::meter::Meter;
use crate::domain::operation::{Attributes, CostedLine, Operation};
use crate::domain::plan::PlanDefinition;

/// Meters, operations, default limits and plans at one version. Tenants are resolved one by one, at their first use.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The version of the policy, raised by every change.
    pub version: u64,
    /// The definitions, without tenants.
    pub(super) definitions: Definitions,
    /// The installation's table of generations.
    pub(super) generations: Generations,
    globals: Globals,
    endpoints: Endpoints,
}

impl Policy {
    /// A snapshot of validated definitions; their tenants are left out.
    pub fn new(version: u64, mut definitions: Definitions, generations: Generations) -> Self {
        definitions.tenants.clear();
        let usable = definitions.operations.values().filter(|operation| !operation.archived);
        let patterns = usable
            .flat_map(|operation| operation.endpoints.iter().map(move |pattern| (pattern, &operation.id)));
        let endpoints = Endpoints::new(patterns);
        let globals = Globals::new(&definitions, &generations);
        Self { version, definitions, generations, globals, endpoints }
    }

    /// Whether everything but the version is the same.
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        self.definitions == other.definitions && self.generations == other.generations
    }

    /// The meter of this id, archived or not.
    pub fn meter(&self, id: &MeterId) -> Option<&Arc<Meter>> {
        self.definitions.meters.get(id)
    }

    /// The operation of this id, archived or not.
    pub fn operation(&self, id: &OperationId) -> Option<&Arc<Operation>> {
        self.definitions.operations.get(id)
    }

    /// The operation that a call of an endpoint is; none where no pattern matches. An archived one matches nothing.
    pub fn operation_of(&self, method: &HttpMethod, path: &EndpointPath) -> Option<&OperationId> {
        self.endpoints.find(method, path)
    }

    /// What a check costs for which no operation is found.
    pub fn cost_defaults(&self) -> Option<&CostDefaults> {
        self.definitions.cost_defaults.as_deref()
    }

    /// The plan of this id, archived or not.
    pub fn plan(&self, id: &PlanId) -> Option<&Arc<PlanDefinition>> {
        self.definitions.plans.get(id)
    }

    /// The limits that count all tenants together.
    pub fn globals(&self) -> &Globals {
        &self.globals
    }

    /// The installation's table of generations.
    pub fn generations(&self) -> &Generations {
        &self.generations
    }

    /// The definitions, without tenants.
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// The cost of a piece of work, a line for each meter. It is new work, so an unknown or archived operation or meter
    /// is an error.
    pub fn cost(
        &self,
        id: &OperationId,
        attributes: &Attributes,
    ) -> Result<Vec<CostedLine>, Vec<FieldError>> {
        let refused = |message: String| Err(vec![FieldError::new("/operation", message)]);
        match self.operation(id) {
            None => refused(format!("no operation `{id}`")),
            Some(operation) if operation.archived => refused(format!("the operation `{id}` is archived")),
            Some(operation) => operation.cost(attributes, |meter| self.definitions.decimals(meter), None),
        }
    }
}
