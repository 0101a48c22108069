//! What the verbs answer: amounts in units, instants in unix milliseconds. How they are written is the callers' matter.

use uuid::Uuid;

use crate::domain::amount::{Amount, Units};
use crate::domain::ids::{MeterId, OperationId, ReservationId, Subject, TenantId};
use crate::domain::period::Window;
use crate::domain::policy::diff::Change;
use crate::domain::reservation::{Record, ReservationState};
use crate::operations::requests::{Ack, Role};

pub use crate::ledger::{AuditRecord, JobState, LastRun, Reconciliation, StoredEntry, UsageFigures};
pub use crate::operations::limit_status::LimitStatus;

/// What became of a reserve.
#[derive(Debug, Clone)]
pub struct Reserved {
    /// The reservation; none of a dry run.
    pub hold: Option<Hold>,
    /// Dry run only: whether it would have been admitted.
    pub allowed: Option<bool>,
    /// Whose units.
    pub tenant: TenantId,
    /// In whose name.
    pub subjects: Vec<Subject>,
    /// The operation, where one was named.
    pub operation: Option<OperationId>,
    /// What is held, by meter.
    pub lines: Vec<ReservedLine>,
    /// Whether this is the answer to a repeated call.
    pub replayed: bool,
    /// Whether it was decided while the gate was away.
    pub degraded: bool,
    /// Names the decision; a repeat names the first one.
    pub decision_id: Uuid,
    /// Every limit checked.
    pub limits: Vec<LimitStatus>,
    /// Dry run only: what would refuse.
    pub refused_by: Vec<RefusedLimit>,
}

/// A reservation that was made.
#[derive(Debug, Clone, Copy)]
pub struct Hold {
    /// The reservation.
    pub id: ReservationId,
    /// Its state; on a replay the one of now.
    pub state: ReservationState,
    /// When it was made (unix ms).
    pub created_at_ms: i64,
    /// When the hold ends (unix ms).
    pub expires_at_ms: i64,
}

/// A line of a reserve.
#[derive(Debug, Clone)]
pub struct ReservedLine {
    /// The meter.
    pub meter: MeterId,
    /// What is held.
    pub amount: Amount,
    /// Best effort: what was asked for.
    pub requested: Option<Amount>,
}

/// A reservation after a call, or as it was read.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// The reservation.
    pub id: ReservationId,
    /// How it stands.
    pub record: Record,
    /// Whether this is the answer to a repeated call.
    pub replayed: bool,
    /// Whether the gate is away, so that this is what the ledger knows.
    pub degraded: bool,
    /// Who has it for certain.
    pub ack: Ack,
    /// The limits it moved whose window is still current.
    pub limits: Vec<LimitStatus>,
    /// When it was resolved, where that is known (unix ms).
    pub resolved_at_ms: Option<i64>,
}

impl Reservation {
    /// One of which nothing else is known.
    pub(super) fn new(id: ReservationId, record: Record) -> Self {
        let (replayed, degraded, ack, limits) = (false, false, Ack::Gate, Vec::new());
        Self { id, record, replayed, degraded, ack, limits, resolved_at_ms: None }
    }

    /// Whether it is resolved for good.
    pub fn is_final(&self) -> bool {
        match self.record.head.state {
            ReservationState::Reserved => false,
            ReservationState::Expired => !self.record.head.late,
            ReservationState::Consumed | ReservationState::Released => true,
        }
    }

    /// Names the decision that changed it last; whoever asks again is told the same.
    pub fn decision_id(&self) -> Uuid {
        decision_of(self.id, self.record.head.step)
    }
}

/// The name of the decision that was a reservation's change of this step.
pub(super) fn decision_of(id: ReservationId, step: u32) -> Uuid {
    let mut hasher = blake3::Hasher::new();
    hasher.update(id.as_bytes());
    hasher.update(&step.to_le_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    uuid::Builder::from_custom_bytes(short).into_uuid()
}

/// What stands in the way under a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// What is used up.
    Consumed,
    /// What is only held by running work.
    Reserved,
}

/// A limit that refuses.
#[derive(Debug, Clone)]
pub struct RefusedLimit {
    /// The limit and where it stands.
    pub limit: LimitStatus,
    /// What stands in the way.
    pub cause: Cause,
    /// What the request needs under this limit.
    pub needed: Units,
    /// How much is missing.
    pub shortfall: Units,
    /// How long to wait; none where waiting does not help.
    pub retry_after_ms: Option<i64>,
    /// In words.
    pub message: String,
}

/// A refusal: an answer, not an error.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// Why, by the first of the reasons in order of precedence.
    pub code: RefusalCode,
    /// In words.
    pub detail: String,
    /// The longest wait; none where waiting does not help.
    pub retry_after_ms: Option<i64>,
    /// Names this decision in logs.
    pub decision_id: Uuid,
    /// Every limit that refuses.
    pub refused_by: Vec<RefusedLimit>,
    /// Every limit checked.
    pub limits: Vec<LimitStatus>,
}

/// Why a request is refused, in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalCode {
    /// The amount is above a capacity itself, or the plan has no room for the meter at all: only a plan helps.
    ExceedsPlan,
    /// Only a grant helps.
    BalanceExhausted,
    /// Waiting helps (class quota).
    QuotaExceeded,
    /// Waiting helps (class rate).
    RateLimited,
}

/// What a tenant has left.
#[derive(Debug, Clone)]
pub struct QuotaStatus {
    /// Whose.
    pub tenant: TenantId,
    /// The current billing period.
    pub period: Window,
    /// The tenant's zone.
    pub zone: String,
    /// Who told the figures.
    pub source: Ack,
    /// When (unix ms).
    pub as_of_ms: i64,
    /// Its quotas and limits, and the limits of the subject asked for.
    pub limits: Vec<LimitStatus>,
}

/// A page of a list, newest first.
#[derive(Debug, Clone)]
pub struct Rows<T> {
    /// The rows.
    pub data: Vec<T>,
    /// The position after the last row; none on the last page.
    pub next: Option<String>,
    /// When the numbers were read (unix ms), where it matters.
    pub as_of_ms: Option<i64>,
}

impl<T> Rows<T> {
    /// The first `limit` of `data`, of which one more was read to see whether rows follow.
    pub(super) fn page(mut data: Vec<T>, limit: usize, place: impl Fn(&T) -> String) -> Self {
        let has_more = data.len() > limit;
        data.truncate(limit);
        Self { next: data.last().filter(|_| has_more).map(place), data, as_of_ms: None }
    }

    /// The same page with its rows as others.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> Rows<U> {
        let data = self.data.into_iter().map(change).collect();
        Rows { data, next: self.next, as_of_ms: self.as_of_ms }
    }
}

/// A policy object as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDefinition {
    /// Its definition, with the same fields as when it was put.
    pub definition: serde_json::Value,
    /// Its version.
    pub version: u64,
    /// Whether this call created it.
    pub created: bool,
}

/// What applying a policy file has changed, or would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyChanges {
    /// The version of the policy now.
    pub version: u64,
    /// What names these changes and no others.
    pub digest: String,
    /// What changes; what stays as it is, is left out.
    pub changes: Vec<Change>,
}

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyDetails {
    /// The key's id.
    pub id: String,
    /// For people.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The tenant it is bound to.
    pub tenant: Option<TenantId>,
    /// When it was made (unix ms).
    pub created_at_ms: i64,
    /// When it stops working (unix ms).
    pub expires_at_ms: Option<i64>,
    /// When it was revoked (unix ms).
    pub revoked_at_ms: Option<i64>,
    /// The whole key: told once, when it is made.
    pub key: Option<String>,
}
