//! API keys: `tg_<id>_<secret>`, stored as keyed hashes, checked from memory, revoked everywhere within a second.

mod key_memory;

use std::sync::Arc;

use subtle::ConstantTimeEq;

use crate::ledger::{NextKey, StoredKey};
use crate::operations::answers::{KeyDetails, Rows};
use crate::operations::core::Core;
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::{CreateKeyRequest, INSTALLATION, Page, Principal, Role, RotateKeyRequest};
use key_memory::KeyMemory;

/// The installation's keys, and how they are hashed.
pub struct Keys {
    core: Arc<Core>,
    hashing: [u8; 32],
    memory: KeyMemory,
}

impl Keys {
    /// Loads all keys. `secret` is the installation's.
    pub(super) async fn load(core: Arc<Core>, secret: &[u8; 32]) -> Answer<Self> {
        let hashing = blake3::derive_key("tollgate api keys v1", secret);
        let memory = KeyMemory::load(core.ledger.clone()).await?;
        Ok(Self { core, hashing, memory })
    }

    /// Reads what changed since the last reading.
    pub(super) async fn follow(&self) -> Answer<()> {
        self.memory.follow().await
    }

    /// Reads every key again.
    pub(super) async fn follow_from_the_start(&self) -> Answer<()> {
        self.memory.follow_from_the_start().await
    }

    fn hash(&self, bearer: &str) -> [u8; 32] {
        *blake3::keyed_hash(&self.hashing, bearer.as_bytes()).as_bytes()
    }
}

/// What this instance's memory says about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recognised {
    /// It is good.
    Good(Principal),
    /// It is not valid.
    Bad,
    /// Its id is not in memory: only the ledger can decide.
    Unknown,
}

/// The id inside a well-formed key.
fn id_of(bearer: &str) -> Option<&str> {
    let (id, secret) = bearer.strip_prefix("tg_")?.split_once('_')?;
    let plain =
        |part: &str| !part.is_empty() && part.len() <= 128 && part.bytes().all(|b| b.is_ascii_alphanumeric());
    (plain(id) && plain(secret)).then_some(id)
}

impl Keys {
    /// Checks a caller's key from memory alone.
    pub fn recognise(&self, bearer: &str) -> Recognised {
        let Some(id) = id_of(bearer) else { return Recognised::Bad };
        match self.memory.find(id) {
            Some(row) => match self.check_key(bearer, &row) {
                Some(Ok(principal)) => Recognised::Good(principal),
                _ => Recognised::Bad,
            },
            None if self.memory.is_known_to_be_missing(id) => Recognised::Bad,
            None => Recognised::Unknown,
        }
    }

    /// Checks a key that is not in memory by the ledger: another instance may just have created it.
    pub async fn authenticate(&self, bearer: &str) -> Answer<Option<Principal>> {
        let Some(id) = id_of(bearer) else { return Ok(None) };
        let row = self.memory.look_for(id).await?;
        row.and_then(|row| self.check_key(bearer, &row)).transpose()
    }

    /// The caller with the key of this row, if the key is valid.
    fn check_key(&self, bearer: &str, row: &StoredKey) -> Option<Answer<Principal>> {
        let matches = bool::from(self.hash(bearer).ct_eq(row.hash.as_slice()));
        (matches && is_valid(row, self.core.wall_clock.now_ms())).then(|| principal(row))
    }

    /// Creates a key; only this answer has its text.
    pub async fn create_key(&self, request: CreateKeyRequest, actor: &str) -> Answer<KeyDetails> {
        if request.role == Role::Tenant && request.tenant.is_none() {
            return Err(OperationError::field("/tenant", "is required for this role"));
        }
        if request.role == Role::Admin && request.tenant.is_some() {
            return Err(OperationError::field(
                "/tenant",
                "must be left out: an administrator serves all tenants",
            ));
        }
        if request.expires_at_ms.is_some_and(|at| at <= self.core.wall_clock.now_ms()) {
            return Err(OperationError::field("/expires_at", "must be in the future"));
        }
        if let Some(tenant) = &request.tenant {
            self.core.policy.tenant(tenant).await?;
        }
        let id = random_hex(6);
        let text = format!("tg_{id}_{}", random_hex(32));
        let row = self.store_key(id, &text, request, actor).await?;
        Ok(KeyDetails { key: Some(text), ..details(row) })
    }

    /// Makes a key with the name, the role and the tenant of another one, which stops working once the overlap has
    /// passed, or earlier if it was to. Only this answer has the new key's text.
    pub async fn rotate_key(&self, id: &str, request: RotateKeyRequest, actor: &str) -> Answer<KeyDetails> {
        let now_ms = self.core.wall_clock.now_ms();
        if request.expires_at_ms.is_some_and(|at| at <= now_ms) {
            return Err(OperationError::field("/expires_at", "must be in the future"));
        }
        let overlap_ms = i64::try_from(request.overlap.as_millis()).unwrap_or(i64::MAX);
        let next_id = random_hex(6);
        let text = format!("tg_{next_id}_{}", random_hex(32));
        let next = NextKey {
            id: next_id,
            hash: self.hash(&text),
            created_at_ms: now_ms,
            expires_at_ms: request.expires_at_ms,
        };
        let row = self.core.ledger.rotate_key(id, next, now_ms.saturating_add(overlap_ms), actor).await?;
        self.make_known().await;
        Ok(KeyDetails { key: Some(text), ..details(row) })
    }

    /// Reads a key that has just been stored, so that it works here at once. A failure is only logged: a later look
    /// reads it, and only this call's answer can show the key's text.
    async fn make_known(&self) {
        if let Err(error) = self.memory.follow().await {
            tracing::warn!(%error, "a new key is not known to this instance until it can read the ledger again");
        }
    }

    /// Creates the installation's first admin key, or stores the one given, unless an admin key exists already. Returns
    /// the key's text when it is new.
    pub async fn ensure_admin_key(&self, given: Option<&str>) -> Answer<Option<String>> {
        let now_ms = self.core.wall_clock.now_ms();
        self.memory.follow().await?;
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
                if self.memory.find(id).is_none() {
                    match self.store_key(id.to_owned(), text, request, INSTALLATION).await {
                        Ok(_) | Err(OperationError::InUse(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(None)
            }
            None if self.memory.any(|row| row.role == "admin" && is_valid(row, now_ms)) => Ok(None),
            None => {
                let id = random_hex(6);
                let text = format!("tg_{id}_{}", random_hex(32));
                self.store_key(id, &text, request, INSTALLATION).await?;
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
            role: request.role.as_str().into(),
            tenant: request.tenant,
            hash: self.hash(text),
            created_at_ms: self.core.wall_clock.now_ms(),
            expires_at_ms: request.expires_at_ms,
            revoked_at_ms: None,
        };
        self.core.ledger.insert_key(row.clone(), actor).await?;
        self.make_known().await;
        Ok(row)
    }

    /// All keys, newest first, without their secrets.
    pub async fn list_keys(&self, page: Page) -> Answer<Rows<KeyDetails>> {
        let limit = page.rows_max();
        let rows = self.core.ledger.list_keys(page.after.as_deref(), limit + 1).await?;
        Ok(Rows::page(rows, limit, |row| row.id.clone()).map(details))
    }

    /// Revokes a key everywhere within a second; revoking it again changes nothing.
    pub async fn revoke_key(&self, id: &str, actor: &str) -> Answer<KeyDetails> {
        let row = self.core.ledger.revoke_key(id, self.core.wall_clock.now_ms(), actor).await?;
        self.memory.follow().await?;
        Ok(details(row))
    }

    /// Counts one more call of a key that destroys something. Returns how long (ms) it has to wait if that is more than
    /// `calls_max` in its minute, over all instances. The audit log has the first of each minute that has to.
    pub async fn count_destructive(&self, id: &str, calls_max: u32, asked: &str) -> Answer<Option<i64>> {
        Ok(self.core.ledger.count_destructive_call(id, calls_max, asked).await?)
    }
}

fn is_valid(row: &StoredKey, now_ms: i64) -> bool {
    row.revoked_at_ms.is_none() && row.expires_at_ms.is_none_or(|at| now_ms < at)
}

fn principal(row: &StoredKey) -> Answer<Principal> {
    Ok(Principal { key_id: row.id.clone(), role: role_of(&row.role)?, tenant: row.tenant.clone() })
}

fn role_of(name: &str) -> Answer<Role> {
    let found = Role::ALL.into_iter().find(|role| role.as_str() == name);
    found.ok_or_else(|| OperationError::Internal(format!("a stored key has the role {name}")))
}

fn details(row: StoredKey) -> KeyDetails {
    KeyDetails {
        role: role_of(&row.role).unwrap_or(Role::Tenant),
        id: row.id,
        name: row.name,
        tenant: row.tenant,
        created_at_ms: row.created_at_ms,
        expires_at_ms: row.expires_at_ms,
        revoked_at_ms: row.revoked_at_ms,
        key: None,
    }
}

fn random_hex(bytes: usize) -> String {
    (0..bytes).map(|_| format!("{:02x}", rand::random::<u8>())).collect()
}
