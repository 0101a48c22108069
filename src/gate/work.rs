//! The guard against the same work twice: a key for each submission that names what it sends.

use super::Gate;
use crate::domain::codec::Write;
use crate::domain::guard::GuardSeconds;
use crate::domain::ids::{OperationId, ReservationId, TenantId};
use crate::domain::reservation::SubjectHash;

/// The name of a submission in keys: a keyed hash of operation, subjects and payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkHash(pub [u8; 16]);

impl WorkHash {
    /// The hash as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// A submission, and how long the same one again is its duplicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardedWork {
    /// Which one.
    pub hash: WorkHash,
    /// How long.
    pub within: GuardSeconds,
    /// A reservation of it that the ledger knows to be given up, where the gate has forgotten what became of it.
    pub given_up: Option<ReservationId>,
}

impl GuardedWork {
    /// Layout: `i8 how long in ms`, then the digits of the reservation that was given up.
    pub(super) fn packed(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_8(self.within.ms());
        out.extend(self.given_up.iter().flat_map(|id| id.to_hex().into_bytes()));
        out
    }
}

impl Gate {
    /// The guard of a submission of this payload, by all of these subjects, or by the tenant where there are none.
    pub fn guarded_work<'a>(
        &self,
        tenant: &TenantId,
        operation: &OperationId,
        subjects: impl Iterator<Item = &'a SubjectHash>,
        payload: &str,
        within: GuardSeconds,
    ) -> GuardedWork {
        let mut subjects: Vec<_> = subjects.map(SubjectHash::as_str).collect();
        subjects.sort_unstable();
        let mut parts = vec!["work", tenant.as_str(), operation.as_str()];
        parts.extend(subjects);
        parts.push(payload);
        GuardedWork { hash: self.keys.work_hash(&parts), within, given_up: None }
    }
}
