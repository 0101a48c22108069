//! API keys: only keyed hashes are stored.

use super::{Ledger, LedgerError};
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

/// A place in the list of keys, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPlace {
    /// When the key was made (unix ms).
    pub created_at_ms: i64,
    /// Which one.
    pub id: String,
}

impl Ledger {
    /// Stores a new key and tells every instance.
    ///
    /// Errors: [`super::Conflict::Exists`] when there is a key with this id.
    pub async fn insert_key(&self, key: StoredKey, actor: &str) -> Result<(), LedgerError> {
        pending()
    }

    /// A key by its public id, revoked and expired ones too.
    pub async fn find_key(&self, id: &str) -> Result<Option<StoredKey>, LedgerError> {
        pending()
    }

    /// Keys, newest first, at most `limit`, from behind `after`.
    pub async fn list_keys(
        &self,
        after: Option<&KeyPlace>,
        limit: usize,
    ) -> Result<Vec<StoredKey>, LedgerError> {
        pending()
    }

    /// Revokes a key as of `at_ms` (unix ms) and tells every instance; a revoked one stays as it is.
    ///
    /// Errors: [`super::Conflict::Missing`] when there is none.
    pub async fn revoke_key(&self, id: &str, at_ms: i64, actor: &str) -> Result<StoredKey, LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
