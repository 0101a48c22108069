//! What callers ask for, already parsed: the verbs take nothing else.

mod adjustments;
mod estimates;
mod keys;
mod policy;
mod reports;
mod upgrades;
mod webhooks;

mod bans;

use std::collections::BTreeSet;

use crate::domain::amount::Amount;
use crate::domain::endpoint::{EndpointPath, HttpMethod};
use crate::domain::grant::GrantTerms;
use crate::domain::ids::{IdempotencyKey, LimitId, MeterId, OperationId, ReservationId, Subject, TenantId};
use crate::domain::lines::WorkLines;
use crate::domain::meter::HoldSeconds;
use crate::domain::money::Currency;
use crate::domain::period::{WindowKind, Zone};
use crate::domain::policy::document::PolicyFile;
use crate::domain::policy::edit::Prune;
use crate::domain::reservation::ReservationState;
use crate::domain::resolution::Totals;
use crate::domain::supplier_bill::{BillId, BillTerms, Outcome};
use crate::domain::usage::{Consumer, Granularity, GroupBy};

pub use crate::ledger::{
    AuditFilter, BalanceFilter, ClosedFilter, EntryFilter, ExpiredFilter, Manner, NoticeFilter,
    ReconciliationFilter, RevenueFilter,
};
pub use adjustments::{AdjustmentFilter, AdjustmentsRequest};
pub use bans::{BansRequest, PlacedBy, ViolationsRequest};
pub use estimates::EstimatesRequest;
pub use keys::{CreateKeyRequest, RotateKeyRequest};
pub use policy::{OverridesRequest, PriceOwner, PricesRequest};
pub use reports::{BalancesRequest, RevenueRequest, RolloverRequest};
pub use upgrades::{UpgradeFilter, UpgradesRequest};
pub use webhooks::{CreateWebhookRequest, DeliveriesRequest};

/// What is to be done: a named operation with its attributes, or amounts of meters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Costs are computed from the operation's rule.
    Operation {
        /// The operation.
        operation: OperationId,
        /// The attributes that the rule needs: numbers (as integers or decimal strings), booleans, texts.
        attributes: serde_json::Map<String, serde_json::Value>,
    },
    /// Amounts as given, optionally under an operation's name.
    Lines {
        /// Meter and amount.
        lines: WorkLines,
        /// The operation they belong to, for limits and reports.
        operation: Option<OperationId>,
    },
}

impl Work {
    /// The operation it names, if any.
    pub fn operation(&self) -> Option<&OperationId> {
        match self {
            Self::Operation { operation, .. } => Some(operation),
            Self::Lines { operation, .. } => operation.as_ref(),
        }
    }
}

/// How much of a reserve must fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// All lines or nothing.
    #[default]
    AllOrNothing,
    /// As much as fits, line by line.
    BestEffort,
}

/// A reserve and, without ttl and dry run, a usage.
#[derive(Debug, Clone)]
pub struct ReserveRequest {
    /// Its tenant.
    pub tenant: TenantId,
    /// Up to four subjects, each kind once.
    pub subjects: Vec<Subject>,
    /// What is to be done.
    pub work: Work,
    /// How long the hold lives; absent: the shortest default of the meters.
    pub ttl: Option<HoldSeconds>,
    /// How much must fit.
    pub mode: Mode,
    /// Only answers what would happen.
    pub dry_run: bool,
    /// The caller's own hash of the payload; part of the fingerprint.
    pub payload_fingerprint: Option<String>,
    /// At most 50 keys and 8 KB.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Makes the call repeatable.
    pub key: Option<IdempotencyKey>,
    /// When the work was done (unix ms), where the caller says; only of an event.
    pub happened_at_ms: Option<i64>,
    /// Whether the caller may see what all tenants use together.
    pub sees_all_tenants: bool,
}

/// A check: work that is counted at once, or only asked about.
#[derive(Debug, Clone)]
pub struct CheckRequest {
    /// Whose limits.
    pub tenant: TenantId,
    /// Up to four subjects, each kind once.
    pub subjects: Vec<Subject>,
    /// What is to be done.
    pub operation: Option<OperationId>,
    /// By which method an endpoint is called, where no operation is named.
    pub method: Option<HttpMethod>,
    /// Which endpoint.
    pub endpoint: Option<EndpointPath>,
    /// What the operation's rule needs.
    pub attributes: serde_json::Map<String, serde_json::Value>,
    /// How much it costs, instead of what the rule says.
    pub cost: Option<Amount>,
    /// Only say what would happen.
    pub peeks: bool,
    /// Makes a check of booked meters repeatable; it is needed there, and has no effect elsewhere.
    pub key: Option<IdempotencyKey>,
    /// Whether the caller may see what all tenants use together.
    pub sees_all_tenants: bool,
}

/// When a consume or usage counts as acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ack {
    /// Once the gate has it.
    #[default]
    Gate,
    /// Once the ledger has booked it.
    Ledger,
}

/// The total that a consume says was used so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Used {
    /// `{}`, `amount` or `lines`.
    Totals(Totals),
    /// `attributes`: costed again by the operation's rule.
    Attributes(serde_json::Map<String, serde_json::Value>),
}

/// A consume.
#[derive(Debug, Clone)]
pub struct ConsumeRequest {
    /// Its reservation.
    pub id: ReservationId,
    /// The key's tenant, if it is bound to one: a reservation of another tenant does not exist for it.
    pub bound: Option<TenantId>,
    /// Totals so far.
    pub used: Used,
    /// Whether this resolves the reservation.
    pub is_final: bool,
    /// When it counts as acknowledged.
    pub ack: Ack,
}

/// A release.
#[derive(Debug, Clone)]
pub struct ReleaseRequest {
    /// Its reservation.
    pub id: ReservationId,
    /// The key's tenant, if it is bound to one.
    pub bound: Option<TenantId>,
    /// What was used before the work was given up; `Totals::Default` means that nothing was named.
    pub incurred: Totals,
    /// Why, for the log.
    pub reason: Option<String>,
}

/// An extend.
#[derive(Debug, Clone)]
pub struct ExtendRequest {
    /// Its reservation.
    pub id: ReservationId,
    /// The key's tenant, if it is bound to one.
    pub bound: Option<TenantId>,
    /// The new life from now; absent: a minute.
    pub ttl: Option<HoldSeconds>,
}

/// The actor of what nobody called.
pub const INSTALLATION: &str = "installation";

/// Which page of a list, newest first.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// 1 to [`Page::ROWS_MAX`].
    pub limit: u32,
    /// The position after which the page starts, from an earlier page.
    pub after: Option<String>,
}

impl Page {
    /// The most rows of any page: those of a file.
    pub const ROWS_MAX: u32 = 10_000;

    /// How many rows it has at most.
    pub(super) fn rows_max(&self) -> usize {
        usize::try_from(self.limit.clamp(1, Self::ROWS_MAX)).unwrap_or(1)
    }
}

/// Usage, of one tenant or of all.
#[derive(Debug, Clone)]
pub struct UsageRequest {
    /// Where `from_ms` is none, the current window from whose start on; none: the period, or the month for all tenants.
    pub span: Option<WindowKind>,
    /// One tenant, or all of them.
    pub tenant: Option<TenantId>,
    /// From this instant (unix ms), inclusive; absent: the start of the tenant's current period, or of the current UTC
    /// month.
    pub from_ms: Option<i64>,
    /// To this instant (unix ms), exclusive; absent: now.
    pub to_ms: Option<i64>,
    /// Absent: one row per group.
    pub granularity: Option<Granularity>,
    /// The groups that get rows of their own.
    pub group_by: Vec<GroupBy>,
    /// The zone of days and months over all tenants; absent: UTC. A single tenant's own zone is always used.
    pub zone: Option<Zone>,
    /// Only this meter.
    pub meter: Option<MeterId>,
    /// Which page.
    pub page: Page,
}

/// Who used the most of a meter.
#[derive(Debug, Clone)]
pub struct TopRequest {
    /// One tenant's, or among all of them.
    pub tenant: Option<TenantId>,
    /// The meter.
    pub meter: MeterId,
    /// Who is ranked.
    pub by: Consumer,
    /// From this instant (unix ms), inclusive; absent as in [`UsageRequest`].
    pub from_ms: Option<i64>,
    /// To this instant (unix ms), exclusive; absent: now.
    pub to_ms: Option<i64>,
    /// Which page.
    pub page: Page,
}

/// The results of comparing the gate with the books.
#[derive(Debug, Clone)]
pub struct ReconciliationsRequest {
    /// Which of them.
    pub filter: ReconciliationFilter,
    /// Which page.
    pub page: Page,
}

/// Entries of one tenant, or of all.
#[derive(Debug, Clone)]
pub struct EntriesRequest {
    /// One tenant, or all of them from the last name to the first.
    pub tenant: Option<TenantId>,
    /// Which of its entries; of a reservation only with its tenant.
    pub filter: EntryFilter,
    /// Which page.
    pub page: Page,
}

/// Holds that expired and were never consumed.
#[derive(Debug, Clone)]
pub struct LeakedRequest {
    /// Which of them, and when they expired.
    pub filter: ExpiredFilter,
    /// Which page.
    pub page: Page,
}

/// What a tenant's period would cost.
#[derive(Debug, Clone)]
pub struct DraftRequest {
    /// Whose.
    pub tenant: TenantId,
    /// In which currency; none for the tenant's own.
    pub currency: Option<Currency>,
    /// Which period.
    pub period: DraftPeriod,
}

/// The period of a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftPeriod {
    /// The open one.
    Open,
    /// The first that has ended and is not billed.
    Closing,
}

/// A tenant's issued statements and credit notes.
#[derive(Debug, Clone)]
pub struct StatementsRequest {
    /// Whose.
    pub tenant: TenantId,
    /// Only the notes to the statement of this number.
    pub corrects: Option<u64>,
    /// Which page.
    pub page: Page,
}

/// Notices of a tenant's quotas.
#[derive(Debug, Clone)]
pub struct NoticesRequest {
    /// Which of them.
    pub filter: NoticeFilter,
    /// Which page.
    pub page: Page,
}

/// Changes in the audit log.
#[derive(Debug, Clone)]
pub struct AuditRequest {
    /// Which changes.
    pub filter: AuditFilter,
    /// Which page.
    pub page: Page,
}

/// Reservations of a tenant.
#[derive(Debug, Clone)]
pub struct ReservationsRequest {
    /// Its tenant.
    pub tenant: TenantId,
    /// Only those in this state.
    pub state: Option<ReservationState>,
    /// Only those that name this subject.
    pub subject: Option<Subject>,
    /// Only those with a line of this meter.
    pub meter: Option<MeterId>,
    /// Only those that count under this limit, as it is now.
    pub counted_by: Option<LimitId>,
    /// Which page.
    pub page: Page,
}

/// The quota that a tenant has left.
#[derive(Debug, Clone)]
pub struct QuotaRequest {
    /// Its tenant.
    pub tenant: TenantId,
    /// Also the limits of this subject.
    pub subject: Option<Subject>,
}

/// A policy file to apply.
#[derive(Debug, Clone, Default)]
pub struct ApplyRequest {
    /// What is created and replaced.
    pub policy: PolicyFile,
    /// The kinds whose objects are deleted where the file does not name them.
    pub prune: BTreeSet<Prune>,
    /// Only answers what would change.
    pub dry_run: bool,
    /// Makes only the changes of this digest.
    pub expected_digest: Option<String>,
}

/// A policy file to try on what is recorded.
#[derive(Debug, Clone)]
pub struct TrialRequest {
    /// The file.
    pub policy: PolicyFile,
    /// What it takes away where it does not name it.
    pub prune: BTreeSet<Prune>,
    /// From when decisions are tried (unix ms).
    pub since_ms: i64,
    /// Until when (unix ms, exclusive).
    pub until_ms: i64,
    /// Only these tenants; none: all that have decisions.
    pub tenants: BTreeSet<TenantId>,
    /// Only tenants after this one.
    pub after: Option<TenantId>,
}

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Admin,
    /// Every read; grants, adjustments and comparisons with suppliers' bills.
    Finance,
    /// Gate calls and reads, of its tenant or, unbound, of all.
    Service,
    /// Reads of its own tenant, and its upgrade requests.
    Tenant,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Finance, Self::Service, Self::Tenant];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Finance => "finance",
            Self::Service => "service",
            Self::Tenant => "tenant",
        }
    }
}

/// The caller that a valid key identifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The key's id (not a secret).
    pub key_id: String,
    /// What it may do.
    pub role: Role,
    /// The only tenant it may touch, if it is bound.
    pub tenant: Option<TenantId>,
}

/// What must hold of an object before it is changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing: it is created or changed in any case.
    #[default]
    Nothing,
    /// It has this version.
    Version(u64),
    /// It exists, in any version.
    Present,
    /// It does not exist yet.
    Absent,
}

/// A grant to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRequest {
    /// The caller's name for it: the same one is the same grant.
    pub key: IdempotencyKey,
    /// What is granted.
    pub terms: GrantTerms,
}

/// Which grants to list.
#[derive(Debug, Clone)]
pub struct GrantsRequest {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// Which page.
    pub page: Page,
}

/// A supplier's bill to be compared with the books. Its file follows.
#[derive(Debug, Clone)]
pub struct BillRequest {
    /// Makes the call repeatable.
    pub key: IdempotencyKey,
    /// What is compared, and how.
    pub terms: BillTerms,
}

/// Findings of one comparison with a bill.
#[derive(Debug, Clone)]
pub struct FindingsRequest {
    /// Of which.
    pub id: BillId,
    /// Only with this outcome.
    pub outcome: Option<Outcome>,
    /// Which page.
    pub page: Page,
}
