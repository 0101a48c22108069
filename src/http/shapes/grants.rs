//! The shape of what is left of a grant.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::grant::end_of;
use crate::domain::instant::rfc3339;
use crate::operations::answers::GrantLeft;

/// What is left of a grant.
#[derive(Debug, Clone, Serialize, ToSchema, PartialEq, Eq)]
pub(in crate::http) struct GrantLeftAnswer {
    /// Its id.
    #[schema(format = Uuid)]
    pub(in crate::http) id: String,
    /// What is unburnt of it.
    pub(in crate::http) remaining: String,
    /// Until when it counts; null where it has no end.
    pub(in crate::http) expires_at: Option<String>,
    /// Which grants burn first: 0 (first) to 100.
    pub(in crate::http) priority: u8,
}

impl From<&GrantLeft> for GrantLeftAnswer {
    fn from(left: &GrantLeft) -> Self {
        Self {
            id: left.id.to_string(),
            remaining: left.remaining.normalize().to_string(),
            expires_at: end_of(left.expires_at_ms).map(rfc3339),
            priority: left.priority.get(),
        }
    }
}
