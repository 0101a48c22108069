//! The verbs: what the product does, each in a file of its own. http and jobs call these and nothing below.

pub mod answers;
mod error;
pub mod requests;

pub use error::{FieldError, OperationError};

use answers::*;
use requests::*;

use crate::domain::ids::{ReservationId, TenantId};

/// What every verb answers.
pub type Answer<T> = Result<T, OperationError>;

/// All verbs over one gate and one ledger. Cheap to share behind an `Arc`.
pub struct Operations {}

#[allow(unused_variables, missing_docs, reason = "signatures first")]
impl Operations {
    pub async fn reserve(&self, request: ReserveRequest) -> Answer<ReserveAnswer> {
        Err(OperationError::Overloaded)
    }
    pub async fn record_usage(&self, request: ReserveRequest, ack: Ack) -> Answer<ReservationAnswer> {
        Err(OperationError::Overloaded)
    }
    pub async fn consume(&self, request: ConsumeRequest) -> Answer<ReservationAnswer> {
        Err(OperationError::Overloaded)
    }
    pub async fn release(&self, request: ReleaseRequest) -> Answer<ReservationAnswer> {
        Err(OperationError::Overloaded)
    }
    pub async fn extend(&self, request: ExtendRequest) -> Answer<ReservationAnswer> {
        Err(OperationError::Overloaded)
    }
    pub async fn read_reservation(
        &self,
        id: ReservationId,
        bound: Option<TenantId>,
    ) -> Answer<ReservationAnswer> {
        Err(OperationError::Overloaded)
    }
    /// A reservation id from outside: one this installation did not make is NotFound without a look-up.
    pub fn parse_reservation_id(&self, text: &str) -> Answer<ReservationId> {
        Err(OperationError::NotFound("there is no such reservation".into()))
    }
    pub async fn read_quota(&self, request: QuotaRequest) -> Answer<QuotaAnswer> {
        Err(OperationError::Overloaded)
    }
    pub async fn list_usage(&self, request: UsageRequest) -> Answer<PageAnswer<UsageRow>> {
        Err(OperationError::Overloaded)
    }
    pub async fn list_entries(&self, request: EntriesRequest) -> Answer<PageAnswer<EntryRow>> {
        Err(OperationError::Overloaded)
    }
    pub async fn list_reservations(
        &self,
        request: ReservationsRequest,
    ) -> Answer<PageAnswer<ReservationAnswer>> {
        Err(OperationError::Overloaded)
    }
    /// Create or replace; `body` is the raw JSON of the PUT; `actor` for the audit log.
    pub async fn put_policy(
        &self,
        kind: PolicyKind,
        id: &str,
        body: &[u8],
        if_match: Option<u64>,
        actor: &Principal,
    ) -> Answer<PolicyAnswer> {
        Err(OperationError::Overloaded)
    }
    pub async fn get_policy(&self, kind: PolicyKind, id: &str) -> Answer<PolicyAnswer> {
        Err(OperationError::Overloaded)
    }
    pub async fn delete_policy(
        &self,
        kind: PolicyKind,
        id: &str,
        if_match: Option<u64>,
        actor: &Principal,
    ) -> Answer<()> {
        Err(OperationError::Overloaded)
    }
    pub async fn list_policy(&self, kind: PolicyKind, page: Page) -> Answer<PageAnswer<serde_json::Value>> {
        Err(OperationError::Overloaded)
    }
    /// Overrides are the nested objects of tenants seen as resources: body = the override's fields plus `tenant`.
    pub async fn put_override(&self, id: &str, body: &[u8], actor: &Principal) -> Answer<PolicyAnswer> {
        Err(OperationError::Overloaded)
    }
    pub async fn delete_override(&self, tenant: &TenantId, id: &str, actor: &Principal) -> Answer<()> {
        Err(OperationError::Overloaded)
    }
    pub async fn list_overrides(&self, request: OverridesRequest) -> Answer<PageAnswer<serde_json::Value>> {
        Err(OperationError::Overloaded)
    }
    pub async fn create_key(&self, request: CreateKeyRequest, actor: &Principal) -> Answer<KeyAnswer> {
        Err(OperationError::Overloaded)
    }
    pub async fn list_keys(&self, page: Page) -> Answer<PageAnswer<KeyAnswer>> {
        Err(OperationError::Overloaded)
    }
    pub async fn revoke_key(&self, id: &str, actor: &Principal) -> Answer<KeyAnswer> {
        Err(OperationError::Overloaded)
    }
    /// The whole text behind `Bearer `. In memory; an unknown key asks the ledger once.
    pub async fn authenticate(&self, bearer: &str) -> Answer<Principal> {
        Err(OperationError::Unauthenticated)
    }
    /// Test clock only (NotFound otherwise). Forwards only.
    pub async fn set_clock(&self, now_ms: i64) -> Answer<i64> {
        Err(OperationError::Overloaded)
    }
    /// Whether policy and epochs are loaded and each dependency answers: (name, ok, detail).
    pub async fn readiness(&self) -> Vec<(&'static str, bool, String)> {
        Vec::new()
    }
    /// OpenMetrics text.
    pub fn metrics_text(&self) -> String {
        String::new()
    }
    /// The key under which http signs list cursors.
    pub fn cursor_key(&self) -> [u8; 32] {
        [0; 32]
    }
    /// Service time, unix ms.
    pub fn now_ms(&self) -> i64 {
        0
    }
}
