//! Changes of the policy: in one transaction, with history, audit and notices.

use diesel::sql_types::{BigInt, Bool, Jsonb, Nullable, SmallInt, Text};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use serde_json::{Value, json};

use super::policy::{has_reservations, is_meter_booked};
use super::{
    BEGIN, Conflict, Expected, Generation, Ledger, LedgerError, ObjectKind, PolicyAction, PolicyChange,
    PolicyWrite, PolicyWritten, WrittenObject, audit, notices, number,
};
use crate::domain::ids::Partition;

impl Ledger {
    /// Makes the changes in one transaction, with history, generations, audit and a notice for each.
    ///
    /// Errors: [`LedgerError::Conflict`] when a version is not the expected one or a deletion meets something booked.
    pub async fn put_objects(&self, write: PolicyWrite) -> Result<PolicyWritten, LedgerError> {
        let partitions = self.partitions().await?;
        self.transact(BEGIN, move |connection| {
            async move { put(connection, write, partitions).await }.boxed()
        })
        .await
    }
}

#[derive(QueryableByName)]
struct VersionRow {
    #[diesel(sql_type = Nullable<BigInt>)]
    version: Option<i64>,
}

async fn put(
    connection: &mut AsyncPgConnection,
    write: PolicyWrite,
    partitions: u16,
) -> Result<PolicyWritten, LedgerError> {
    let policy_version = next_version(connection, write.based_on).await?;
    let mut written =
        PolicyWritten { version: policy_version, objects: Vec::with_capacity(write.changes.len()) };
    for change in &write.changes {
        let object = make(connection, change, policy_version, partitions).await?;
        let action = if matches!(change.action, PolicyAction::Delete) { "delete" } else { "put" };
        let name = format!("{} {}", change.kind.as_str(), change.id);
        audit::note(connection, &write.actor, action, &name, json!({ "version": object.version })).await?;
        notices::tell(connection, change.kind.as_str(), &change.id, object.version).await?;
        written.objects.push(object);
    }
    for generation in &write.generations {
        raise(connection, generation).await?;
    }
    Ok(written)
}

/// Locks the policy against every other change until the transaction ends.
async fn next_version(connection: &mut AsyncPgConnection, based_on: Option<u64>) -> Result<u64, LedgerError> {
    let query = "UPDATE policy_version SET version = version + 1 RETURNING version";
    let row: VersionRow = sql_query(query).get_result(connection).await?;
    let next = number::unsigned(row.version.unwrap_or_default())?;
    let found = next.saturating_sub(1);
    if based_on.is_some_and(|based_on| based_on != found) {
        return Err(LedgerError::Conflict(Conflict::PolicyMoved { found }));
    }
    Ok(next)
}

async fn make(
    connection: &mut AsyncPgConnection,
    change: &PolicyChange,
    policy_version: u64,
    partitions: u16,
) -> Result<WrittenObject, LedgerError> {
    let found = current(connection, change).await?;
    check(change, found)?;
    let version = next_object_version(connection, change).await?;
    let definition = match &change.action {
        PolicyAction::Put { definition, archived, counter_resets } => {
            if change.kind == ObjectKind::Tenant {
                put_tenant(
                    connection,
                    change,
                    version,
                    definition,
                    *archived,
                    counter_resets.as_ref(),
                    partitions,
                )
                .await?;
            } else {
                put_object(connection, change, version, definition, *archived).await?;
            }
            Some(definition.clone())
        }
        PolicyAction::Delete => {
            delete(connection, change).await?;
            None
        }
    };
    sql_query("INSERT INTO policy_history (kind, id, version, policy_version, definition) VALUES ($1, $2, $3, $4, $5)")
        .bind::<Text, _>(change.kind.as_str())
        .bind::<Text, _>(&change.id)
        .bind::<BigInt, _>(number::signed(version))
        .bind::<BigInt, _>(number::signed(policy_version))
        .bind::<Nullable<Jsonb>, _>(definition)
        .execute(connection)
        .await?;
    Ok(WrittenObject { kind: change.kind, id: change.id.clone(), version, created: found.is_none() })
}

async fn current(
    connection: &mut AsyncPgConnection,
    change: &PolicyChange,
) -> Result<Option<u64>, LedgerError> {
    let query = match change.kind {
        ObjectKind::Tenant => "SELECT max(version) AS version FROM tenants WHERE id = $1 AND $2 = 'tenant'",
        _ => "SELECT max(version) AS version FROM policy_objects WHERE id = $1 AND kind = $2",
    };
    let row: VersionRow = sql_query(query)
        .bind::<Text, _>(&change.id)
        .bind::<Text, _>(change.kind.as_str())
        .get_result(connection)
        .await?;
    row.version.map(number::unsigned).transpose()
}

fn check(change: &PolicyChange, found: Option<u64>) -> Result<(), LedgerError> {
    let (kind, id) = (change.kind.as_str(), change.id.clone());
    let as_expected = match change.expected {
        Expected::Any => true,
        Expected::Absent => found.is_none(),
        Expected::Version(version) => found == Some(version),
    };
    if !as_expected {
        return Err(LedgerError::Conflict(Conflict::Version { kind, id, found }));
    }
    if found.is_none() && matches!(change.action, PolicyAction::Delete) {
        return Err(LedgerError::Conflict(Conflict::Missing { kind, id }));
    }
    Ok(())
}

/// Goes on rising over a deletion, so that a version never names two definitions.
async fn next_object_version(
    connection: &mut AsyncPgConnection,
    change: &PolicyChange,
) -> Result<u64, LedgerError> {
    let row: VersionRow =
        sql_query("SELECT max(version) AS version FROM policy_history WHERE kind = $1 AND id = $2")
            .bind::<Text, _>(change.kind.as_str())
            .bind::<Text, _>(&change.id)
            .get_result(connection)
            .await?;
    Ok(number::unsigned(row.version.unwrap_or_default())? + 1)
}

async fn put_object(
    connection: &mut AsyncPgConnection,
    change: &PolicyChange,
    version: u64,
    definition: &Value,
    archived: bool,
) -> Result<(), LedgerError> {
    sql_query(
        "INSERT INTO policy_objects (kind, id, version, definition, archived) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (kind, id) DO UPDATE SET version = excluded.version, definition = excluded.definition, \
             archived = excluded.archived, updated_at = now()",
    )
    .bind::<Text, _>(change.kind.as_str())
    .bind::<Text, _>(&change.id)
    .bind::<BigInt, _>(number::signed(version))
    .bind::<Jsonb, _>(definition)
    .bind::<Bool, _>(archived)
    .execute(connection)
    .await?;
    Ok(())
}

async fn put_tenant(
    connection: &mut AsyncPgConnection,
    change: &PolicyChange,
    version: u64,
    definition: &Value,
    archived: bool,
    counter_resets: Option<&Value>,
    partitions: u16,
) -> Result<(), LedgerError> {
    let tenant = number::tenant(&change.id)?;
    sql_query(
        "INSERT INTO tenants AS t (id, partition, version, definition, archived, counter_resets) \
         VALUES ($1, $2, $3, $4, $5, coalesce($6, '[]')) \
         ON CONFLICT (id) DO UPDATE SET version = excluded.version, definition = excluded.definition, \
             archived = excluded.archived, counter_resets = coalesce($6, t.counter_resets), updated_at = now()",
    )
    .bind::<Text, _>(&change.id)
    .bind::<SmallInt, _>(number::of_partition(Partition::of(&tenant, partitions)))
    .bind::<BigInt, _>(number::signed(version))
    .bind::<Jsonb, _>(definition)
    .bind::<Bool, _>(archived)
    .bind::<Nullable<Jsonb>, _>(counter_resets)
    .execute(connection)
    .await?;
    Ok(())
}

async fn delete(connection: &mut AsyncPgConnection, change: &PolicyChange) -> Result<(), LedgerError> {
    let in_use = match change.kind {
        ObjectKind::Meter => is_meter_booked(connection, &change.id).await?,
        ObjectKind::Tenant => has_reservations(connection, &change.id).await?,
        _ => false,
    };
    if in_use {
        return Err(LedgerError::Conflict(Conflict::InUse {
            kind: change.kind.as_str(),
            id: change.id.clone(),
        }));
    }
    let query = match change.kind {
        ObjectKind::Tenant => "DELETE FROM tenants WHERE id = $1 AND $2 = 'tenant'",
        _ => "DELETE FROM policy_objects WHERE id = $1 AND kind = $2",
    };
    sql_query(query)
        .bind::<Text, _>(&change.id)
        .bind::<Text, _>(change.kind.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// A generation only rises.
async fn raise(connection: &mut AsyncPgConnection, generation: &Generation) -> Result<(), LedgerError> {
    sql_query(
        "INSERT INTO counter_generations AS g (limit_id, shape, generation, since_ms) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (limit_id, shape) DO UPDATE SET generation = excluded.generation, since_ms = excluded.since_ms \
         WHERE excluded.generation > g.generation",
    )
    .bind::<Text, _>(&generation.limit_id)
    .bind::<Text, _>(&generation.shape)
    .bind::<BigInt, _>(number::signed(generation.generation))
    .bind::<BigInt, _>(generation.since_ms)
    .execute(connection)
    .await?;
    Ok(())
}
