//! API keys: `tg_<id>_<secret>`, kept as keyed hashes, checked from memory, revoked everywhere within a second.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use moka::future::Cache;
use subtle::ConstantTimeEq;

use super::answers::{KeyAnswer, PageAnswer};
use super::present::instant;
use super::requests::{CreateKeyRequest, Page, Principal, Role};
use super::{Answer, OperationError, Operations};
use crate::ledger::{KeyPlace, Ledger, StoredKey};

const UNKNOWN_FOR: Duration = Duration::from_secs(1);
const UNKNOWN_MAX: u64 = 10_000;
const KEYS_PAGE: usize = 1000;

/// The keys of this instance's memory.
pub(super) struct Keys {
    hashing: [u8; 32],
    known: ArcSwap<HashMap<String, Arc<StoredKey>>>,
    unknown: Cache<String, ()>,
    refreshing: tokio::sync::Mutex<()>,
}

impl Keys {
    /// Loads all keys. `secret` is the installation's.
    pub(super) async fn load(ledger: &Ledger, secret: &[u8; 32]) -> Answer<Self> {
        let keys = Self {
            hashing: blake3::derive_key("tollgate api keys v1", secret),
            known: ArcSwap::default(),
            unknown: Cache::builder().max_capacity(UNKNOWN_MAX).time_to_live(UNKNOWN_FOR).build(),
            refreshing: tokio::sync::Mutex::default(),
        };
        keys.refresh(ledger).await?;
        Ok(keys)
    }

    /// Reads all keys again.
    pub(super) async fn refresh(&self, ledger: &Ledger) -> Answer<()> {
        // A reading begun before a revocation must not replace one begun after it.
        let _one_at_a_time = self.refreshing.lock().await;
        let mut all = HashMap::new();
        let mut after = None;
        loop {
            let rows = ledger.list_keys(after.as_ref(), KEYS_PAGE).await?;
            let Some(last) = rows.last() else { break };
            after = Some(KeyPlace { created_at_ms: last.created_at_ms, id: last.id.clone() });
            all.extend(rows.into_iter().map(|row| (row.id.clone(), Arc::new(row))));
        }
        self.known.store(Arc::new(all));
        self.unknown.invalidate_all();
        Ok(())
    }

    fn hash(&self, bearer: &str) -> [u8; 32] {
        *blake3::keyed_hash(&self.hashing, bearer.as_bytes()).as_bytes()
    }
}

/// The id inside a well-formed key.
fn id_of(bearer: &str) -> Option<&str> {
    let (id, secret) = bearer.strip_prefix("tg_")?.split_once('_')?;
    let plain =
        |part: &str| !part.is_empty() && part.len() <= 128 && part.bytes().all(|b| b.is_ascii_alphanumeric());
    (plain(id) && plain(secret)).then_some(id)
}

impl Operations {
    /// Who calls with this key. In memory; an unknown id asks the ledger once, then not for a second.
    pub async fn authenticate(&self, bearer: &str) -> Answer<Principal> {
        let id = id_of(bearer).ok_or(OperationError::Unauthenticated)?;
        let row = match self.known_key(id) {
            Some(row) => Some(row),
            None => Box::pin(self.ask_for_key(id)).await?,
        };
        self.check_key(bearer, row)
    }

    /// Who calls with this key, where it is good and in memory.
    pub fn recognise(&self, bearer: &str) -> Option<Principal> {
        self.check_key(bearer, self.known_key(id_of(bearer)?)).ok()
    }

    fn known_key(&self, id: &str) -> Option<Arc<StoredKey>> {
        self.keys.known.load().get(id).cloned()
    }

    fn check_key(&self, bearer: &str, row: Option<Arc<StoredKey>>) -> Answer<Principal> {
        let hash = self.keys.hash(bearer);
        // An unknown id compares against the hash itself turned around, so that both cases do equal work.
        let mut other = hash;
        other.reverse();
        let stored = row.as_ref().map_or(other.as_slice(), |row| row.hash.as_slice());
        let matches = bool::from(stored.ct_eq(hash.as_slice()));
        let now_ms = self.wall_clock.now_ms();
        match row {
            Some(row) if matches && is_valid(&row, now_ms) => principal(&row),
            _ => Err(OperationError::Unauthenticated),
        }
    }

    async fn ask_for_key(&self, id: &str) -> Answer<Option<Arc<StoredKey>>> {
        if self.keys.unknown.contains_key(id) {
            return Ok(None);
        }
        match self.ledger.find_key(id).await {
            Ok(Some(row)) => {
                self.keys.refresh(&self.ledger).await?;
                Ok(Some(Arc::new(row)))
            }
            Ok(None) => {
                self.keys.unknown.insert(id.to_owned(), ()).await;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a key; its text is in this answer only.
    pub async fn create_key(&self, request: CreateKeyRequest, actor: &Principal) -> Answer<KeyAnswer> {
        if let Some(tenant) = &request.tenant {
            self.policy.tenant(tenant).await?;
        }
        if request.role == Role::Tenant && request.tenant.is_none() {
            return Err(OperationError::field("/tenant", "a tenant key is bound to a tenant"));
        }
        if request.role == Role::Admin && request.tenant.is_some() {
            return Err(OperationError::field("/tenant", "an admin key is not bound to a tenant"));
        }
        if request.expires_at_ms.is_some_and(|at| at <= self.wall_clock.now_ms()) {
            return Err(OperationError::field("/expires_at", "must be in the future"));
        }
        let id = random_hex(6);
        let text = format!("tg_{id}_{}", random_hex(32));
        let row = self.store_key(id, &text, request, &actor.key_id).await?;
        Ok(KeyAnswer { key: Some(text), ..key_answer(&row) })
    }

    /// Makes the installation's first admin key, or takes the one given, unless an admin key exists already.
    /// Returns the key's text when it is new.
    pub async fn ensure_admin_key(&self, given: Option<&str>) -> Answer<Option<String>> {
        let now_ms = self.wall_clock.now_ms();
        self.keys.refresh(&self.ledger).await?;
        let known = self.keys.known.load_full();
        let request = CreateKeyRequest {
            name: "first admin".into(),
            role: Role::Admin,
            tenant: None,
            expires_at_ms: None,
        };
        match given {
            Some(text) => {
                let id = id_of(text).ok_or_else(|| {
                    OperationError::Malformed(
                        "TOLLGATE_ADMIN_KEY must look like tg_<id>_<secret>, letters and digits".into(),
                    )
                })?;
                if text.len() < 40 {
                    return Err(OperationError::Malformed(
                        "TOLLGATE_ADMIN_KEY is too short to be a secret: use at least 40 characters".into(),
                    ));
                }
                if !known.contains_key(id) {
                    match self.store_key(id.to_owned(), text, request, "installation").await {
                        Ok(_) | Err(OperationError::InUse(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(None)
            }
            None if known.values().any(|row| row.role == "admin" && is_valid(row, now_ms)) => Ok(None),
            None => {
                let id = random_hex(6);
                let text = format!("tg_{id}_{}", random_hex(32));
                self.store_key(id, &text, request, "installation").await?;
                Ok(Some(text))
            }
        }
    }

    async fn store_key(
        &self,
        id: String,
        text: &str,
        request: CreateKeyRequest,
        actor: &str,
    ) -> Answer<StoredKey> {
        let row = StoredKey {
            id,
            name: request.name,
            role: role_name(request.role).into(),
            tenant: request.tenant,
            hash: self.keys.hash(text),
            created_at_ms: self.wall_clock.now_ms(),
            expires_at_ms: request.expires_at_ms,
            revoked_at_ms: None,
        };
        self.ledger.insert_key(row.clone(), actor).await?;
        self.keys.refresh(&self.ledger).await?;
        Ok(row)
    }

    /// All keys, newest first, without their secrets.
    pub async fn list_keys(&self, page: Page) -> Answer<PageAnswer<KeyAnswer>> {
        let mut rows: Vec<_> = self.keys.known.load().values().cloned().collect();
        rows.sort_by(|a, b| (b.created_at_ms, &b.id).cmp(&(a.created_at_ms, &a.id)));
        let start = match &page.after {
            None => 0,
            Some(after) => rows.iter().position(|row| row.id == *after).map_or(rows.len(), |at| at + 1),
        };
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let data: Vec<_> = rows.iter().skip(start).take(limit).map(|row| key_answer(row)).collect();
        let next = (start + data.len() < rows.len()).then(|| data.last().map(|key| key.id.clone())).flatten();
        Ok(PageAnswer { data, next, as_of: None })
    }

    /// Revokes a key everywhere within a second; revoking it again changes nothing.
    pub async fn revoke_key(&self, id: &str, actor: &Principal) -> Answer<KeyAnswer> {
        let row = self.ledger.revoke_key(id, self.wall_clock.now_ms(), &actor.key_id).await?;
        self.keys.refresh(&self.ledger).await?;
        Ok(key_answer(&row))
    }
}

fn is_valid(row: &StoredKey, now_ms: i64) -> bool {
    row.revoked_at_ms.is_none() && row.expires_at_ms.is_none_or(|at| now_ms < at)
}

fn principal(row: &StoredKey) -> Answer<Principal> {
    Ok(Principal { key_id: row.id.clone(), role: role_of(&row.role)?, tenant: row.tenant.clone() })
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Admin => "admin",
        Role::Finance => "finance",
        Role::Service => "service",
        Role::Tenant => "tenant",
    }
}

fn role_of(name: &str) -> Answer<Role> {
    match name {
        "admin" => Ok(Role::Admin),
        "finance" => Ok(Role::Finance),
        "service" => Ok(Role::Service),
        "tenant" => Ok(Role::Tenant),
        other => Err(OperationError::Internal(format!("a stored key has the role {other}"))),
    }
}

fn key_answer(row: &StoredKey) -> KeyAnswer {
    KeyAnswer {
        id: row.id.clone(),
        name: row.name.clone(),
        role: role_of(&row.role).unwrap_or(Role::Tenant),
        tenant: row.tenant.as_ref().map(ToString::to_string),
        created_at: instant(row.created_at_ms),
        expires_at: row.expires_at_ms.map(instant),
        revoked_at: row.revoked_at_ms.map(instant),
        key: None,
    }
}

fn random_hex(bytes: usize) -> String {
    (0..bytes).map(|_| format!("{:02x}", rand::random::<u8>())).collect()
}
