//! API keys: only keyed hashes are stored.

use chrono::{DateTime, Utc};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::Record;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use serde_json::json;

use super::columns::{Hash, Milliseconds, MillisecondsIfAny, Unsigned};
use super::functions::coalesce;
use super::schema::api_keys;
use super::{BEGIN, Conflict, Ledger, LedgerError, audit, instant, notices, number};
use crate::domain::ids::TenantId;
use crate::domain::instant::rfc3339;

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

/// What is new of a key that takes the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextKey {
    /// Its public id.
    pub id: String,
    /// The keyed hash of its secret.
    pub hash: [u8; 32],
    /// When it is made (unix ms).
    pub created_at_ms: i64,
    /// When it stops working (unix ms).
    pub expires_at_ms: Option<i64>,
}

impl Ledger {
    /// Stores a new key and notifies every instance.
    ///
    /// Errors: [`super::Conflict::Exists`] when there is a key with this id.
    pub async fn insert_key(&self, key: StoredKey, actor: &str) -> Result<(), LedgerError> {
        let actor = actor.to_owned();
        self.transact(BEGIN, move |connection| async move { insert(connection, &key, &actor).await }.boxed())
            .await
    }

    /// Stores `next` with the name, the role and the tenant of the key `id`, which works no longer than until
    /// `until_ms` (unix ms) from now on; and notifies every instance. Returns the new key.
    ///
    /// Errors: [`super::Conflict::Missing`] when there is no such key that works when the new one is made;
    /// [`super::Conflict::Exists`] when there is one with the new id.
    pub async fn rotate_key(
        &self,
        id: &str,
        next: NextKey,
        until_ms: i64,
        actor: &str,
    ) -> Result<StoredKey, LedgerError> {
        let now = instant::from_ms(next.created_at_ms)?;
        let (id, actor) = (id.to_owned(), actor.to_owned());
        self.transact(BEGIN, move |connection| {
            async move {
                let works = api_keys::expires_at.is_null().or(api_keys::expires_at.assume_not_null().gt(now));
                let found = api_keys::table.find(&id).filter(api_keys::revoked_at.is_null()).filter(works);
                let found = found.select(StoredKey::as_select()).for_update().first(connection).await;
                let Some(old) = found.optional()? else {
                    return Err(LedgerError::Conflict(Conflict::Missing { kind: "working key", id }));
                };
                let ends_ms = old.expires_at_ms.map_or(until_ms, |at_ms| at_ms.min(until_ms));
                let ends_at = instant::from_ms(ends_ms)?;
                let end = diesel::update(api_keys::table.find(&id)).set(api_keys::expires_at.eq(ends_at));
                end.execute(connection).await?;
                let detail = json!({ "new_key": next.id, "works_until": rfc3339(ends_ms) });
                audit::note(connection, &actor, "rotate", &format!("key {id}"), detail).await?;
                notices::tell(connection, "key", &id, 0).await?;
                let NextKey { id, hash, created_at_ms, expires_at_ms } = next;
                let key = StoredKey { id, hash, created_at_ms, expires_at_ms, ..old };
                insert(connection, &key, &actor).await?;
                Ok(key)
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

async fn insert(connection: &mut AsyncPgConnection, key: &StoredKey, actor: &str) -> Result<(), LedgerError> {
    let values = (
        api_keys::id.eq(&key.id),
        api_keys::name.eq(&key.name),
        api_keys::role.eq(&key.role),
        api_keys::tenant.eq(key.tenant.as_ref()),
        api_keys::hash.eq(&key.hash),
        api_keys::created_at.eq(instant::from_ms(key.created_at_ms)?),
        api_keys::expires_at.eq(key.expires_at_ms.map(instant::from_ms).transpose()?),
        api_keys::revoked_at.eq(key.revoked_at_ms.map(instant::from_ms).transpose()?),
    );
    let insert = diesel::insert_into(api_keys::table).values(values).on_conflict_do_nothing();
    if insert.execute(connection).await? == 0 {
        return Err(LedgerError::Conflict(Conflict::Exists { kind: "key", id: key.id.clone() }));
    }
    let detail = json!({ "role": key.role, "tenant": key.tenant });
    audit::note(connection, actor, "create", &format!("key {}", key.id), detail).await?;
    notices::tell(connection, "key", &key.id, 0).await
}
