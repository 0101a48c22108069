//! The demo policy of `tollgate up`: something to reserve at once. It books nothing by itself.

use crate::domain::policy::diff::DefinitionKind;
use crate::domain::policy::document::PolicyFile;
use crate::operations::requests::{Precondition, Principal, Role};
use crate::operations::{Answer, OperationError, Operations};

const DEMO: &str = include_str!("../../config/demo-policy.toml");

/// The tenant that the demo policy makes and the printed curl line uses.
pub(super) const DEMO_TENANT: &str = "acme";

/// Writes the demo policy unless any meter exists already: a policy that somebody made is never touched.
pub(super) async fn write_demo_policy(operations: &Operations) -> Answer<bool> {
    let one = crate::operations::requests::Page { limit: 1, after: None };
    if !operations.list_policy(DefinitionKind::Meter, one).await?.data.is_empty() {
        return Ok(false);
    }
    let file = PolicyFile::from_toml(DEMO).map_err(|error| OperationError::Internal(error.to_string()))?;
    for (kind, id, body) in objects(&file)? {
        let actor = Principal { key_id: "installation".into(), role: Role::Admin, tenant: None };
        operations.put_policy(kind, &id, body.to_string().as_bytes(), Precondition::Nothing, &actor).await?;
    }
    Ok(true)
}

type Object = (DefinitionKind, String, serde_json::Value);

fn objects(file: &PolicyFile) -> Answer<Vec<Object>> {
    let value = serde_json::to_value(file).map_err(|error| OperationError::Internal(error.to_string()))?;
    let all = DefinitionKind::ALL.into_iter().flat_map(|kind| {
        let items = value[kind.list_name()].as_array().cloned().unwrap_or_default();
        items.into_iter().map(move |item| (kind, item["id"].as_str().unwrap_or_default().to_owned(), item))
    });
    Ok(all.collect())
}
