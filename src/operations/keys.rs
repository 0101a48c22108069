//! API keys: `tg_<id>_<secret>`, kept as keyed hashes, checked from memory, revoked everywhere within a second.

use subtle::ConstantTimeEq;

use super::answers::{KeyAnswer, PageAnswer};
use super::key_memory::KeyMemory;
use super::present::instant;
use super::requests::{CreateKeyRequest, Page, Principal, Role};
use super::{Answer, OperationError, Operations};
use crate::ledger::{Ledger, StoredKey};

/// The installation's keys, and how they are hashed.
pub(super) struct Keys {
    hashing: [u8; 32],
    pub(super) memory: KeyMemory,
}

impl Keys {
    /// Loads all keys. `secret` is the installation's.
    pub(super) async fn load(ledger: &Ledger, secret: &[u8; 32]) -> Answer<Self> {
        let hashing = blake3::derive_key("tollgate api keys v1", secret);
        Ok(Self { hashing, memory: KeyMemory::load(ledger).await? })
    }

    fn hash(&self, bearer: &str) -> [u8; 32] {
        *blake3::keyed_hash(&self.hashing, bearer.as_bytes()).as_bytes()
    }
}

/// What this instance's memory says of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recognised {
    /// It is good.
    Good(Principal),
    /// It does not work.
    Bad,
    /// Its id is not known here: only the ledger can say.
    Unknown,
}

/// The id inside a well-formed key.
fn id_of(bearer: &str) -> Option<&str> {
    let (id, secret) = bearer.strip_prefix("tg_")?.split_once('_')?;
    let plain =
        |part: &str| !part.is_empty() && part.len() <= 128 && part.bytes().all(|b| b.is_ascii_alphanumeric());
    (plain(id) && plain(secret)).then_some(id)
}

impl Operations {
    /// What is known here of the key that somebody calls with. Asks nobody.
    pub fn recognise(&self, bearer: &str) -> Recognised {
        let Some(id) = id_of(bearer) else { return Recognised::Bad };
        match self.keys.memory.find(id) {
            Some(row) => self.check_key(bearer, &row).map_or(Recognised::Bad, Recognised::Good),
            None if self.keys.memory.is_known_to_be_missing(id) => Recognised::Bad,
            None => Recognised::Unknown,
        }
    }

    /// Who calls with a key that is not known here: another instance may just have made it.
    pub async fn authenticate(&self, bearer: &str) -> Answer<Principal> {
        let id = id_of(bearer).ok_or(OperationError::Unauthenticated)?;
        let row = self.keys.memory.look_for(&self.ledger, id).await?;
        self.check_key(bearer, row.as_deref().ok_or(OperationError::Unauthenticated)?)
    }

    fn check_key(&self, bearer: &str, row: &StoredKey) -> Answer<Principal> {
        let matches = bool::from(self.keys.hash(bearer).ct_eq(row.hash.as_slice()));
        if matches && is_valid(row, self.wall_clock.now_ms()) {
            principal(row)
        } else {
            Err(OperationError::Unauthenticated)
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
        self.keys.memory.follow(&self.ledger).await?;
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
                if self.keys.memory.find(id).is_none() {
                    match self.store_key(id.to_owned(), text, request, "installation").await {
                        Ok(_) | Err(OperationError::InUse(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(None)
            }
            None if self.keys.memory.any(|row| row.role == "admin" && is_valid(row, now_ms)) => Ok(None),
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
        self.keys.memory.follow(&self.ledger).await?;
        Ok(row)
    }

    /// All keys, newest first, without their secrets.
    pub async fn list_keys(&self, page: Page) -> Answer<PageAnswer<KeyAnswer>> {
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let mut rows = self.ledger.list_keys(page.after.as_deref(), limit.saturating_add(1)).await?;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| has_more).map(|row| row.id.clone());
        Ok(PageAnswer { data: rows.iter().map(key_answer).collect(), next, as_of: None })
    }

    /// Revokes a key everywhere within a second; revoking it again changes nothing.
    pub async fn revoke_key(&self, id: &str, actor: &Principal) -> Answer<KeyAnswer> {
        let row = self.ledger.revoke_key(id, self.wall_clock.now_ms(), &actor.key_id).await?;
        self.keys.memory.follow(&self.ledger).await?;
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
