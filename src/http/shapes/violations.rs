//! Violations of limits.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::instant::rfc3339;
use crate::operations::answers::MinuteOfViolations;

/// A subject without its name.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct HashedSubject {
    /// `user`, `api_key`, …
    pub(in crate::http) kind: String,
    /// The keyed hash by which the gate names it; of anonymous subjects that of their slot.
    pub(in crate::http) hash: String,
}

/// Refused calls of whom a limit counts, in one minute.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct ViolationRow {
    /// The minute's start.
    minute: String,
    /// Of which tenant.
    tenant: String,
    /// Of which limit.
    limit: String,
    /// Whom it counts; absent: the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<HashedSubject>,
    /// Refused calls that it has counted.
    violations: u64,
    /// How many of them have placed a ban.
    bans: u64,
    /// Calls that were refused because of such a ban.
    under_ban: u64,
}

impl From<MinuteOfViolations> for ViolationRow {
    fn from(minute: MinuteOfViolations) -> Self {
        Self {
            minute: rfc3339(minute.minute_ms),
            tenant: minute.tenant.to_string(),
            limit: minute.limit.to_string(),
            subject: minute.subject.map(|(kind, hash)| HashedSubject { kind, hash }),
            violations: minute.violations,
            bans: minute.bans,
            under_ban: minute.under_ban,
        }
    }
}
