//! The policy as stored: objects by kind and id, every version of them, and the counters' generations.

use serde_json::Value;

use super::{Ledger, LedgerError};
use crate::domain::ids::{OperationId, TenantId};

/// Which kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// What is counted.
    Meter,
    /// Named pieces of work.
    Operation,
    /// Default limits.
    Limit,
    /// Bundles of limits and quota.
    Plan,
    /// Customer accounts.
    Tenant,
}

impl ObjectKind {
    /// The word of tables and notices.
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
        [Self::Meter, Self::Operation, Self::Limit, Self::Plan, Self::Tenant]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// A stored object of the policy that is not a tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredObject {
    /// Which kind.
    pub kind: ObjectKind,
    /// Its id.
    pub id: String,
    /// Rises with every change of it.
    pub version: u64,
    /// Its definition, with the fields of the policy file.
    pub definition: Value,
    /// Whether it is archived.
    pub archived: bool,
}

/// A stored tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredTenant {
    /// Its id.
    pub id: TenantId,
    /// Rises with every change of it.
    pub version: u64,
    /// Its definition, with the fields of the policy file.
    pub definition: Value,
    /// Which of its counters began anew, and when.
    pub counter_resets: Value,
    /// Whether it is archived.
    pub archived: bool,
    /// When it was made (unix µs): its place in lists.
    pub created_at_us: i64,
}

/// A counter's generation: bumped when a limit takes on a shape that was not defined before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// The limit's id.
    pub limit_id: String,
    /// The shape, as a hash in text.
    pub shape: String,
    /// From 1.
    pub generation: u64,
    /// From when it counts (unix ms).
    pub since_ms: i64,
}

/// Everything but the tenants, as of one instant.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StoredPolicy {
    /// Rises with every change of anything, tenants too.
    pub version: u64,
    /// All objects that are not tenants, by kind and id.
    pub objects: Vec<StoredObject>,
    /// All generations.
    pub generations: Vec<Generation>,
}

/// Which version of an object a change expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Whatever there is, or nothing.
    Any,
    /// Nothing.
    Absent,
    /// This one.
    Version(u64),
}

/// What a change does.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicyAction {
    /// Creates or replaces.
    Put {
        /// The whole definition.
        definition: Value,
        /// Whether it is archived.
        archived: bool,
        /// Tenants only: which of its counters began anew. None leaves them as they are.
        counter_resets: Option<Value>,
    },
    /// Deletes. Refused for a meter with balances and a tenant with reservations.
    Delete,
}

/// A change of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyChange {
    /// Which kind.
    pub kind: ObjectKind,
    /// Its id.
    pub id: String,
    /// The version it must have.
    pub expected: Expected,
    /// What to do.
    pub action: PolicyAction,
}

/// Changes that are made together or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyWrite {
    /// In order.
    pub changes: Vec<PolicyChange>,
    /// Generations that the changes begin or raise.
    pub generations: Vec<Generation>,
    /// The policy version the changes were prepared on, when it must still be that.
    pub based_on: Option<u64>,
    /// Who asks, for the audit log.
    pub actor: String,
}

/// An object after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenObject {
    /// Which kind.
    pub kind: ObjectKind,
    /// Its id.
    pub id: String,
    /// Its new version.
    pub version: u64,
    /// Whether the change created it.
    pub created: bool,
}

/// What a write of the policy came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyWritten {
    /// The policy's new version.
    pub version: u64,
    /// The objects changed, in order.
    pub objects: Vec<WrittenObject>,
}

/// A place in the list of tenants, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantPlace {
    /// When the tenant was made (unix µs).
    pub created_at_us: i64,
    /// Which one.
    pub id: TenantId,
}

impl Ledger {
    /// Everything but the tenants, as of one instant.
    pub async fn read_policy(&self) -> Result<StoredPolicy, LedgerError> {
        pending()
    }

    /// The policy's version.
    pub async fn policy_version(&self) -> Result<u64, LedgerError> {
        pending()
    }

    /// One tenant as stored.
    pub async fn read_tenant_definition(
        &self,
        tenant: &TenantId,
    ) -> Result<Option<StoredTenant>, LedgerError> {
        pending()
    }

    /// Tenants, newest first, at most `limit`, from behind `after`.
    pub async fn list_tenants(
        &self,
        after: Option<&TenantPlace>,
        limit: usize,
    ) -> Result<Vec<StoredTenant>, LedgerError> {
        pending()
    }

    /// Makes the changes in one transaction, with history, generations, audit and a notice for each.
    ///
    /// Errors: [`LedgerError::Conflict`] when a version is not the expected one or a deletion meets something booked.
    pub async fn put_objects(&self, write: PolicyWrite) -> Result<PolicyWritten, LedgerError> {
        pending()
    }

    /// An operation's definition as it stood at a version of the policy.
    pub async fn operation_at_version(
        &self,
        operation: &OperationId,
        policy_version: u64,
    ) -> Result<Option<Value>, LedgerError> {
        pending()
    }

    /// Whether anything was booked on the meter, so that its unit and decimals are fixed.
    pub async fn is_meter_booked(&self, meter: &crate::domain::ids::MeterId) -> Result<bool, LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
