//! The audit log: who changed what, in the transaction that changed it.

use diesel::sql_query;
use diesel::sql_types::{Jsonb, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde_json::Value;

use super::LedgerError;

/// Notes a change; `object` is its kind and id.
pub(crate) async fn note(
    connection: &mut AsyncPgConnection,
    actor: &str,
    action: &str,
    object: &str,
    detail: Value,
) -> Result<(), LedgerError> {
    sql_query("INSERT INTO audit_log (actor, action, object, detail) VALUES ($1, $2, $3, $4)")
        .bind::<Text, _>(actor)
        .bind::<Text, _>(action)
        .bind::<Text, _>(object)
        .bind::<Jsonb, _>(detail)
        .execute(connection)
        .await?;
    Ok(())
}
