//! The demo policy of `tollgate up`: something to reserve at once. It books nothing by itself.

use crate::domain::policy::diff::DefinitionKind;
use crate::domain::policy::document::PolicyFile;
use crate::operations::requests::ApplyRequest;
use crate::operations::{Answer, INSTALLATION, OperationError, Operations};

const DEMO: &str = include_str!("../../config/demo-policy.toml");

/// The tenant that the demo policy makes and the printed curl line uses.
pub(super) const DEMO_TENANT: &str = "acme";

/// Writes the demo policy unless a meter exists: a policy that somebody made is never touched.
pub(super) async fn write_demo_policy(operations: &Operations) -> Answer<bool> {
    let one = crate::operations::requests::Page { limit: 1, after: None };
    if !operations.policy.list_policy(DefinitionKind::Meter, one).await?.data.is_empty() {
        return Ok(false);
    }
    let policy = PolicyFile::from_toml(DEMO).map_err(|error| OperationError::Internal(error.to_string()))?;
    operations.policy.apply_policy(ApplyRequest { policy, ..ApplyRequest::default() }, INSTALLATION).await?;
    Ok(true)
}
