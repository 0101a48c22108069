//! API keys: only keyed hashes are stored.

use chrono::{DateTime, Utc};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::Record;
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use serde_json::json;

use super::columns::{Hash, Milliseconds, MillisecondsIfAny, Unsigned};
use super::functions::coalesce;
use super::schema::api_keys;
use super::{BEGIN, Conflict, Ledger, LedgerError, audit, instant, notices, number};
use crate::domain::ids::TenantId;

/// A key as stored.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = api_keys, check_for_backend(Pg))]
pub struct StoredKey {
    /// Its public id.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// What it may do.
    pub role: String,
    /// The tenant it is bound to.
    pub tenant: Option<TenantId>,
    /// The keyed hash of its secret.
    #[diesel(deserialize_as = Hash)]
    pub hash: [u8; 32],
    /// When it was made (unix ms).
    #[diesel(column_name = created_at, deserialize_as = Milliseconds)]
    pub created_at_ms: i64,
    /// When it stops working (unix ms).
    #[diesel(column_name = expires_at, deserialize_as = MillisecondsIfAny)]
    pub expires_at_ms: Option<i64>,
    /// When it was revoked (unix ms).
    #[diesel(column_name = revoked_at, deserialize_as = MillisecondsIfAny)]
    pub revoked_at_ms: Option<i64>,
}

impl Ledger {
    /// Stores a new key and notifies every instance.
    ///
    /// Errors: [`super::Conflict::Exists`] when there is a key with this id.
    pub async fn insert_key(&self, key: StoredKey, actor: &str) -> Result<(), LedgerError> {
        let created_at = instant::from_ms(key.created_at_ms)?;
        let expires_at = key.expires_at_ms.map(instant::from_ms).transpose()?;
        let revoked_at = key.revoked_at_ms.map(instant::from_ms).transpose()?;
        let actor = actor.to_owned();
        self.transact(BEGIN, move |connection| {
            async move {
                let values = (
                    api_keys::id.eq(&key.id),
                    api_keys::name.eq(&key.name),
                    api_keys::role.eq(&key.role),
                    api_keys::tenant.eq(key.tenant.as_ref()),
                    api_keys::hash.eq(&key.hash),
                    api_keys::created_at.eq(created_at),
                    api_keys::expires_at.eq(expires_at),
                    api_keys::revoked_at.eq(revoked_at),
                );
                let insert = diesel::insert_into(api_keys::table).values(values).on_conflict_do_nothing();
                let inserted = insert.execute(connection).await?;
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

    /// The keys that were created or changed after the change numbered `change`, in the order of their last changes,
    /// each with that number; at most `limit`.
    pub async fn keys_changed_after(
        &self,
        change: u64,
        limit: usize,
    ) -> Result<Vec<(u64, StoredKey)>, LedgerError> {
        let query = || {
            api_keys::table
                .select((api_keys::change, StoredKey::as_select()))
                .filter(api_keys::change.gt(number::signed(change)))
                .order(api_keys::change)
                .limit(number::limit(limit))
        };
        let changed: Vec<(Unsigned, StoredKey)> = self.load(query).await?;
        Ok(changed.into_iter().map(|(change, key)| (change.0, key)).collect())
    }

    /// Keys, newest first, at most `limit`, from after the one with the id `after`.
    pub async fn list_keys(&self, after: Option<&str>, limit: usize) -> Result<Vec<StoredKey>, LedgerError> {
        let place = (api_keys::created_at, api_keys::id);
        let after: Option<(DateTime<Utc>, String)> = match after {
            Some(id) => match self.first(|| api_keys::table.find(id).select(place)).await? {
                Some(found) => Some(found),
                None => return Ok(Vec::new()),
            },
            None => None,
        };
        let query = || {
            let newest = api_keys::table.select(StoredKey::as_select()).limit(number::limit(limit));
            let newest = newest.order((api_keys::created_at.desc(), api_keys::id.desc())).into_boxed();
            match &after {
                Some((at, id)) => newest.filter(place.into_sql::<Record<_>>().lt((*at, id))),
                None => newest,
            }
        };
        self.load(query).await
    }

    /// Revokes a key as of `at_ms` (unix ms) and notifies every instance; a revoked one stays as it is.
    ///
    /// Errors: [`super::Conflict::Missing`] when there is none.
    pub async fn revoke_key(&self, id: &str, at_ms: i64, actor: &str) -> Result<StoredKey, LedgerError> {
        let at = instant::from_ms(at_ms)?;
        let (id, actor) = (id.to_owned(), actor.to_owned());
        self.transact(BEGIN, move |connection| {
            async move {
                let revoked_at = coalesce(api_keys::revoked_at, at);
                let revoke = diesel::update(api_keys::table.find(&id))
                    .set(api_keys::revoked_at.eq(revoked_at.nullable()));
                let revoked =
                    revoke.returning(StoredKey::as_returning()).get_result(connection).await.optional()?;
                let Some(key) = revoked else {
                    return Err(LedgerError::Conflict(Conflict::Missing { kind: "key", id }));
                };
                audit::note(connection, &actor, "revoke", &format!("key {id}"), json!({})).await?;
                notices::tell(connection, "key", &id, 0).await?;
                Ok(key)
            }
            .boxed()
        })
        .await
    }
}
