//! What an operator is answered: policy, keys and jobs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::policy::diff::Change;
use crate::operations::requests::Role;

/// A policy object as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyAnswer {
    /// Its definition, with the same fields as PUT.
    pub definition: serde_json::Value,
    /// Its version: the `ETag`, and a `version` field in the body.
    pub version: u64,
    /// Whether a PUT created it.
    pub created: bool,
}

/// A key, without its secret.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct KeyAnswer {
    /// The key's id.
    pub id: String,
    /// For people.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The tenant it is bound to.
    pub tenant: Option<String>,
    /// When it was made.
    pub created_at: String,
    /// When it stops working.
    pub expires_at: Option<String>,
    /// When it was revoked.
    pub revoked_at: Option<String>,
    /// The whole key: shown once, when it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A job: what time does by itself.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct JobAnswer {
    /// Its name.
    #[schema(example = "retention")]
    pub name: String,
    /// When it is due next, by the service's time.
    pub next_due: String,
    /// When a run last ended well; null where none did.
    pub succeeded_at: Option<String>,
    /// Its last run; null where there was none.
    pub last_run: Option<JobRunAnswer>,
}

/// A run of a job.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub struct JobRunAnswer {
    /// The time for which it ran, by the service's time.
    pub scheduled_for: String,
    /// Which instance ran it.
    pub owner: String,
    /// When it began, or was taken over.
    pub started_at: String,
    /// When it ended; null while it runs.
    pub finished_at: Option<String>,
    /// Whether it ended well; null while it runs.
    pub succeeded: Option<bool>,
    /// What it came to, in words; null while it runs.
    pub outcome: Option<String>,
}

/// What applying a policy file has changed, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedPolicy {
    /// The version of the policy now.
    pub version: u64,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// What names these changes and no others: sent as `expected_digest`, exactly they are made.
    pub digest: String,
    /// What changes; what stays as it is, is left out.
    pub changes: Vec<Change>,
}
