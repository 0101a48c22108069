//! The audit log: who changed what, in the transaction that changed it.

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde_json::Value;

use super::LedgerError;
use super::schema::audit_log;

/// Notes a change; `object` is its kind and id.
pub(crate) async fn note(
    connection: &mut AsyncPgConnection,
    actor: &str,
    action: &str,
    object: &str,
    detail: Value,
) -> Result<(), LedgerError> {
    let values = (
        audit_log::actor.eq(actor),
        audit_log::action.eq(action),
        audit_log::object.eq(object),
        audit_log::detail.eq(detail),
    );
    diesel::insert_into(audit_log::table).values(values).execute(connection).await?;
    Ok(())
}
