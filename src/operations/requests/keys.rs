//! Keys that are made.

use std::time::Duration;

use super::Role;
use crate::domain::ids::TenantId;

/// A key to be created.
#[derive(Debug, Clone)]
pub struct CreateKeyRequest {
    /// A name for people.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The tenant it is bound to.
    pub tenant: Option<TenantId>,
    /// When it stops working (unix ms).
    pub expires_at_ms: Option<i64>,
}

/// A key to be put in the place of another one.
#[derive(Debug, Clone, Copy)]
pub struct RotateKeyRequest {
    /// How long the other one goes on working.
    pub overlap: Duration,
    /// When the new one stops working (unix ms).
    pub expires_at_ms: Option<i64>,
}
