//! The policy as every instance keeps it in memory: immutable, replaced as a whole.

use std::sync::Arc;

use super::counter::Generations;
use super::document::Definitions;
use crate::domain::amount::Units;
use crate::domain::field_error::FieldError;
use crate::domain::ids::{MeterId, OperationId, PlanId};
use crate::domain::meter::Meter;
use crate::domain::operation::{Attributes, Operation};
use crate::domain::plan::PlanDefinition;

/// Meters, operations, default limits and plans at one version. Tenants are resolved one by one, as they come.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The version of the policy, raised by every change.
    pub version: u64,
    /// What is defined, without tenants.
    pub(super) definitions: Definitions,
    /// The installation's table of generations.
    pub(super) generations: Generations,
}

impl Policy {
    /// A snapshot of validated definitions; their tenants are left out.
    pub fn new(version: u64, mut definitions: Definitions, generations: Generations) -> Self {
        definitions.tenants.clear();
        Self { version, definitions, generations }
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

    /// The plan of this id, archived or not.
    pub fn plan(&self, id: &PlanId) -> Option<&Arc<PlanDefinition>> {
        self.definitions.plans.get(id)
    }

    /// The installation's table of generations.
    pub fn generations(&self) -> &Generations {
        &self.generations
    }

    /// What is defined, without tenants.
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// What a piece of work costs, a line per meter. New work: an unknown or archived operation or meter is an error.
    pub fn cost(
        &self,
        id: &OperationId,
        attributes: &Attributes,
    ) -> Result<Vec<(MeterId, Units)>, Vec<FieldError>> {
        let refused = |message: String| Err(vec![FieldError::new("/operation", message)]);
        match self.operation(id) {
            None => refused(format!("no operation `{id}`")),
            Some(operation) if operation.archived => refused(format!("the operation `{id}` is archived")),
            Some(operation) => operation.cost(attributes, |meter| self.definitions.decimals(meter)),
        }
    }
}
