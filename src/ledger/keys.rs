//! API keys: only keyed hashes are stored.

use chrono::{DateTime, Utc};
use diesel::sql_types::{BigInt, Binary, Nullable, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use serde_json::json;

use super::{BEGIN, Conflict, Ledger, LedgerError, audit, instant, notices, number};
use crate::domain::ids::TenantId;

/// A key as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// Its public id.
    pub id: String,
    /// For people.
    pub name: String,
    /// What it may do.
    pub role: String,
    /// The tenant it is bound to.
    pub tenant: Option<TenantId>,
    /// The keyed hash of its secret.
    pub hash: [u8; 32],
    /// When it was made (unix ms).
    pub created_at_ms: i64,
    /// When it stops working (unix ms).
    pub expires_at_ms: Option<i64>,
    /// When it was revoked (unix ms).
    pub revoked_at_ms: Option<i64>,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    id: String,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
    role: String,
    #[diesel(sql_type = Nullable<Text>)]
    tenant: Option<String>,
    #[diesel(sql_type = Binary)]
    hash: Vec<u8>,
    #[diesel(sql_type = Timestamptz)]
    created_at: DateTime<Utc>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    expires_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    revoked_at: Option<DateTime<Utc>>,
}

impl Row {
    fn read(self) -> Result<StoredKey, LedgerError> {
        Ok(StoredKey {
            id: self.id,
            name: self.name,
            role: self.role,
            tenant: self.tenant.as_deref().map(number::tenant).transpose()?,
            hash: number::hash(self.hash)?,
            created_at_ms: self.created_at.timestamp_millis(),
            expires_at_ms: self.expires_at.map(|at| at.timestamp_millis()),
            revoked_at_ms: self.revoked_at.map(|at| at.timestamp_millis()),
        })
    }
}

#[derive(QueryableByName)]
struct ChangedRow {
    #[diesel(sql_type = BigInt)]
    change: i64,
    #[diesel(embed)]
    row: Row,
}

const COLUMNS: &str = "id, name, role, tenant, hash, created_at, expires_at, revoked_at";

/// Asked each second by every instance: an index leads to what is new.
pub const KEYS_CHANGED_AFTER: &str = "SELECT id, name, role, tenant, hash, created_at, expires_at, revoked_at, change \
                                      FROM api_keys WHERE change > $1 ORDER BY change LIMIT $2";

impl Ledger {
    /// Stores a new key and tells every instance.
    ///
    /// Errors: [`super::Conflict::Exists`] when there is a key with this id.
    pub async fn insert_key(&self, key: StoredKey, actor: &str) -> Result<(), LedgerError> {
        let created_at = instant::from_ms(key.created_at_ms)?;
        let expires_at = key.expires_at_ms.map(instant::from_ms).transpose()?;
        let revoked_at = key.revoked_at_ms.map(instant::from_ms).transpose()?;
        let actor = actor.to_owned();
        self.transact(BEGIN, move |connection| {
            async move {
                let inserted = sql_query(format!(
                    "INSERT INTO api_keys ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING"
                ))
                .bind::<Text, _>(&key.id)
                .bind::<Text, _>(&key.name)
                .bind::<Text, _>(&key.role)
                .bind::<Nullable<Text>, _>(key.tenant.as_ref().map(TenantId::as_str))
                .bind::<Binary, _>(key.hash.as_slice())
                .bind::<Timestamptz, _>(created_at)
                .bind::<Nullable<Timestamptz>, _>(expires_at)
                .bind::<Nullable<Timestamptz>, _>(revoked_at)
                .execute(connection)
                .await?;
                if inserted == 0 {
                    return Err(LedgerError::Conflict(Conflict::Exists { kind: "key", id: key.id }));
                }
                let detail = json!({ "role": key.role, "tenant": key.tenant });
                audit::note(connection, &actor, "create", &format!("key {}", key.id), detail).await?;
                notices::tell(connection, "key", &key.id, 0).await
            }
            .boxed()
        })
        .await
    }

    /// The keys that were made or changed after `change`, in the order of their last changes, each with its number; at most
    /// `limit`.
    pub async fn keys_changed_after(
        &self,
        change: u64,
        limit: usize,
    ) -> Result<Vec<(u64, StoredKey)>, LedgerError> {
        let rows = self
            .read(|connection| {
                let query = sql_query(KEYS_CHANGED_AFTER)
                    .bind::<BigInt, _>(number::signed(change))
                    .bind::<BigInt, _>(number::limit(limit));
                async move { Ok(query.load::<ChangedRow>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().map(|found| Ok((number::unsigned(found.change)?, found.row.read()?))).collect()
    }

    /// Keys, newest first, at most `limit`, from after the one with the id `after`.
    pub async fn list_keys(&self, after: Option<&str>, limit: usize) -> Result<Vec<StoredKey>, LedgerError> {
        let rows = self
            .read(|connection| {
                let query = sql_query(format!(
                    "SELECT {COLUMNS} FROM api_keys \
                     WHERE $1 IS NULL OR (created_at, id) < (SELECT created_at, id FROM api_keys WHERE id = $1) \
                     ORDER BY created_at DESC, id DESC LIMIT $2"
                ))
                .bind::<Nullable<Text>, _>(after.map(str::to_owned))
                .bind::<BigInt, _>(number::limit(limit));
                async move { Ok(query.load::<Row>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().map(Row::read).collect()
    }

    /// Revokes a key as of `at_ms` (unix ms) and tells every instance; a revoked one stays as it is.
    ///
    /// Errors: [`super::Conflict::Missing`] when there is none.
    pub async fn revoke_key(&self, id: &str, at_ms: i64, actor: &str) -> Result<StoredKey, LedgerError> {
        let at = instant::from_ms(at_ms)?;
        let (id, actor) = (id.to_owned(), actor.to_owned());
        self.transact(BEGIN, move |connection| {
            async move {
                let rows: Vec<Row> = sql_query(format!(
                    "UPDATE api_keys SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1 RETURNING {COLUMNS}"
                ))
                .bind::<Text, _>(&id)
                .bind::<Timestamptz, _>(at)
                .load(connection)
                .await?;
                let Some(row) = rows.into_iter().next() else {
                    return Err(LedgerError::Conflict(Conflict::Missing { kind: "key", id }));
                };
                audit::note(connection, &actor, "revoke", &format!("key {id}"), json!({})).await?;
                notices::tell(connection, "key", &id, 0).await?;
                row.read()
            }
            .boxed()
        })
        .await
    }
}
