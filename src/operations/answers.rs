//! What the verbs answer: amounts in units, instants in unix milliseconds. Callers decide how to write them.

mod adjustment;
mod estimate;
mod quota;
mod refusal;
mod statement;
mod upgrade;
mod webhook;

use uuid::Uuid;

use crate::domain::amount::{Amount, Decimals, Units};
use crate::domain::estimate::Estimate;
use crate::domain::field_error::FieldError;
use crate::domain::ids::{MeterId, OperationId, ReservationId, Subject, TenantId};
use crate::domain::policy::diff::Change;
use crate::domain::reservation::{Record, ReservationState};
use crate::operations::requests::{Ack, Page, Role};

pub use crate::gate::{LimitBan, PlacedBan};
pub use crate::ledger::PushedLoad;
pub use crate::ledger::{
    AuditRecord, BalanceAsOf, ClosedPeriod, GrantLeft, JobState, LastRun, ListedStatement,
    MinuteOfViolations, QuotaNotice, Ranked, Reconciliation, Revenue, StoredBill, StoredDelivery,
    StoredEntry, StoredGrant, StoredWebhook, UsageFigures,
};
pub use crate::operations::limit_status::LimitStatus;
pub use adjustment::AdjustmentDetails;
pub use estimate::ListedEstimate;
pub use quota::{QuotaParts, QuotaStatus};
pub use refusal::{Cause, Refusal, RefusalCode, RefusedLimit};
pub use statement::{IssuedAs, StatementDetails, StatementLine};
pub use upgrade::UpgradeDetails;
pub use webhook::WebhookDetails;

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It is recorded.
    Now,
    /// It was recorded before.
    Before,
}

/// The result of a reserve.
#[derive(Debug, Clone)]
pub struct Reserved {
    /// The reservation; none of a dry run.
    pub hold: Option<Hold>,
    /// How long after it was made its work may start at the earliest, in ms.
    pub start_after_ms: i64,
    /// Dry run only: whether it would have been admitted.
    pub allowed: Option<bool>,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its subjects.
    pub subjects: Vec<Subject>,
    /// The operation, where one was named.
    pub operation: Option<OperationId>,
    /// What is held, by meter.
    pub lines: Vec<ReservedLine>,
    /// Whether this is the answer to a repeated call.
    pub replayed: bool,
    /// Whether it was decided while the gate was away.
    pub degraded: bool,
    /// The id of the decision; a repeat has the first one's.
    pub decision_id: Uuid,
    /// The version of the policy by which it was decided; 0 for a repeat.
    pub policy_version: u64,
    /// Every limit checked.
    pub limits: Vec<LimitStatus>,
    /// Dry run only: what would refuse.
    pub refused_by: Vec<RefusedLimit>,
    /// Dry run only: why it would be refused.
    pub code: Option<RefusalCode>,
    /// Dry run only: how long to wait; none where it would be admitted, or waiting does not help.
    pub retry_after_ms: Option<i64>,
}

/// A reservation that was made.
#[derive(Debug, Clone, Copy)]
pub struct Hold {
    /// The reservation.
    pub id: ReservationId,
    /// Its state; on a replay the current one.
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
    /// The amount held.
    pub amount: Amount,
    /// Best effort: the amount asked for.
    pub requested: Option<Amount>,
    /// The meter's decimals.
    pub decimals: Decimals,
    /// Whether the amount asked for was an estimate.
    pub estimated: bool,
    /// What that was made of; none in a repeat, for which nothing is estimated.
    pub estimate: Option<Box<Estimate>>,
}

impl ReservedLine {
    /// What was asked for.
    pub(super) fn asked(&self) -> AskedLine {
        let amount = self.requested.unwrap_or(self.amount);
        let units = amount.floor_units(self.decimals);
        let (meter, decimals, estimated) = (self.meter.clone(), self.decimals, self.estimated);
        AskedLine { meter, units, decimals, estimated }
    }
}

/// A line that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedLine {
    /// The meter.
    pub meter: MeterId,
    /// How many units.
    pub units: Units,
    /// The meter's decimals.
    pub decimals: Decimals,
    /// Whether the amount is an estimate.
    pub estimated: bool,
}

/// A reservation after a call, or as it was read.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// The reservation.
    pub id: ReservationId,
    /// Its record.
    pub record: Record,
    /// Whether this is the answer to a repeated call.
    pub replayed: bool,
    /// Whether the gate is away, so that this is what the ledger has.
    pub degraded: bool,
    /// Which engine has it for certain.
    pub ack: Ack,
    /// The limits it moved whose window is still current.
    pub limits: Vec<LimitStatus>,
    /// When it was resolved, where that is known (unix ms).
    pub resolved_at_ms: Option<i64>,
}

impl Reservation {
    /// A reservation with only its record.
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

    /// The id of the decision that changed it last; a repeat has the same.
    pub fn decision_id(&self) -> Uuid {
        decision_of(self.id, self.record.head.step)
    }
}

/// The id of the decision that made a reservation's change of this step.
pub(super) fn decision_of(id: ReservationId, step: u32) -> Uuid {
    let mut hasher = blake3::Hasher::new();
    hasher.update(id.as_bytes());
    hasher.update(&step.to_le_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    uuid::Builder::from_custom_bytes(short).into_uuid()
}

/// What became of a check.
#[derive(Debug, Clone)]
pub struct Checked {
    /// Whether the work may be done.
    pub allowed: bool,
    /// How often the same still fits; none where no limit counts it.
    pub remaining_calls: Option<i64>,
    /// How long to wait before it is tried again; none where it is allowed, or waiting does not help.
    pub retry_after_ms: Option<i64>,
    /// How long after the decision the work may start at the earliest, in ms.
    pub start_after_ms: i64,
    /// The id of this decision.
    pub decision_id: Uuid,
    /// Whether this is the answer to a repeated check of booked meters.
    pub replayed: bool,
    /// Whether it was decided while the gate was away.
    pub degraded: bool,
    /// Every limit checked.
    pub limits: Vec<LimitStatus>,
    /// Every limit that refuses.
    pub refused_by: Vec<RefusedLimit>,
    /// Why it is refused; none where it is allowed, or only because of another that was asked together with it.
    pub code: Option<RefusalCode>,
}

/// A page of a list: newest first, unless its verb says by what else it is sorted.
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
    /// The first `limit` rows of `data`. One row more was read to see whether others follow.
    pub(super) fn page(mut data: Vec<T>, limit: usize, place: impl Fn(&T) -> String) -> Self {
        let has_more = data.len() > limit;
        data.truncate(limit);
        Self { next: data.last().filter(|_| has_more).map(place), data, as_of_ms: None }
    }

    /// A page of a short list that was read whole, by `place`, a name.
    pub(super) fn part(mut whole: Vec<T>, page: &Page, place: impl Fn(&T) -> String) -> Self {
        whole.retain(|row| page.after.as_ref().is_none_or(|after| place(row) > *after));
        whole.sort_by_key(&place);
        Self::page(whole, page.rows_max(), place)
    }

    /// The same page, read at this instant (unix ms).
    pub(super) fn read_at(self, as_of_ms: i64) -> Self {
        Self { as_of_ms: Some(as_of_ms), ..self }
    }

    /// The same page with each row converted.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> Rows<U> {
        let data = self.data.into_iter().map(change).collect();
        Rows { data, next: self.next, as_of_ms: self.as_of_ms }
    }
}

/// A comparison with a supplier's bill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BillDetails {
    /// As it is stored.
    pub stored: StoredBill,
    /// Whether this answers a repeated call.
    pub replayed: bool,
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

/// The changes that applying a policy file has made, or would make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyChanges {
    /// The version of the policy now.
    pub version: u64,
    /// A digest that only exactly these changes have.
    pub digest: String,
    /// The changes; what stays as it is, is left out.
    pub changes: Vec<Change>,
    /// What the file says that is allowed and seldom right.
    pub warnings: Vec<FieldError>,
}

/// What a policy file would have refused of what is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialResult {
    /// From when decisions were tried (unix ms).
    pub since_ms: i64,
    /// Until when (unix ms, exclusive).
    pub until_ms: i64,
    /// How many decisions, and how they turned out.
    pub counts: TrialCounts,
    /// What was refused, by tenant, limit and hour.
    pub rows: Vec<TrialRow>,
    /// Those of the tenants asked for that are not sampled.
    pub unsampled: Vec<TenantId>,
    /// The last tenant tried, where there may be more.
    pub next: Option<TenantId>,
}

/// How many decisions were tried, and how they turned out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrialCounts {
    /// Tenants.
    pub tenants: u64,
    /// Decisions about reserves, usages and checks.
    pub decisions: u64,
    /// Those that were refused when they were recorded.
    pub refused_then: u64,
    /// Those that the file refuses.
    pub refused: u64,
    /// Those of them that were admitted then.
    pub newly_refused: u64,
    /// Those that the file admits and that were refused then.
    pub newly_admitted: u64,
    /// Those that the file cannot decide.
    pub undecidable: u64,
}

/// What one limit refuses of one tenant in one hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialRow {
    /// The limit's id, or the quota's or interval's name.
    pub limit: String,
    /// The tenant.
    pub tenant: TenantId,
    /// When the hour begins (unix ms, UTC).
    pub hour_ms: i64,
    /// How many decisions.
    pub refused: u64,
    /// How many of them were admitted then.
    pub admitted_then: u64,
    /// The first of them.
    pub first: Uuid,
}

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyDetails {
    /// The key's id.
    pub id: String,
    /// A name for people.
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
    /// The whole key, shown once, when it is created.
    pub key: Option<String>,
}

/// A grant as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantDetails {
    /// As it is stored.
    pub stored: StoredGrant,
    /// Where it is in its life.
    pub state: GrantState,
    /// Whether this is the answer to a repeated call.
    pub replayed: bool,
}

/// Where a grant is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantState {
    /// It begins later.
    Scheduled,
    /// It counts.
    Active,
    /// It is voided; what is unburnt of it is not booked yet.
    Ending,
    /// It is voided.
    Voided,
    /// It has ended.
    Expired,
}

impl GrantState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Active => "active",
            Self::Ending => "ending",
            Self::Voided => "voided",
            Self::Expired => "expired",
        }
    }
}
