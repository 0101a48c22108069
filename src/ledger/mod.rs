//! Engine 2: Postgres. It keeps what happened, for ever: entries, balances, reservations, cursors, and the policy.
//!
//! [`Ledger`] is a cheap handle to a pool. Each file holds the queries of one table or concern. Every change runs in
//! one transaction in a task of its own, and every wait is bounded ([`LedgerOptions`]).
//! Instants are unix milliseconds in the interface and `timestamptz` in the tables.

mod active_subjects;
mod adjustments;
mod advances;
mod at_work;
pub(crate) mod audit;
pub mod balances;
mod balances_as_of;
pub(crate) mod billing;
mod booked;
mod burnables;
pub mod calendars;
pub(crate) mod capacities;
pub(crate) mod carried_holds;
pub mod chain;
mod charges;
mod closed;
mod closed_periods;
mod closures;
#[allow(unreachable_pub, reason = "rows that are public name them in traits of Diesel's")]
mod columns;
mod connection;
mod continued_grants;
pub(crate) mod corrections;
mod currencies;
pub mod cursors;
pub(crate) mod cuts;
pub(crate) mod cuts_to_make;
mod damages;
pub mod decisions;
mod deliveries;
mod destructive_calls;
mod due;
pub mod entries;
pub mod epochs;
pub mod erasure;
mod error;
pub mod estimates;
mod expired_holds;
mod exports;
mod followed_periods;
mod functions;
pub mod gaps;
mod gate_time;
mod grant_sales;
pub mod grants;
mod grants_left;
mod held_parts;
mod installation;
mod instant;
mod issue;
pub mod jobs;
mod joins;
pub(crate) mod journal;
pub mod key_filters;
pub mod keys;
pub mod lease;
pub mod leases;
mod loads;
pub mod losses;
pub mod migrations;
pub mod months;
mod next_periods;
pub mod notices;
mod number;
pub mod open_holds;
pub(crate) mod open_periods;
mod open_tenants;
mod openings;
pub mod parked;
mod parked_conflicts;
mod parking;
mod passed;
mod period_terms;
mod period_use;
mod plan_changes;
pub mod policy;
mod policy_write;
mod prepared;
pub mod quarantine;
mod query;
mod quota_changes;
mod quota_notices;
pub mod quotas;
pub mod reconciliations;
mod recurring;
pub mod repeats;
mod reservation_list;
pub mod reservations;
mod retention;
mod revenue;
mod rolled_amounts;
mod rollovers;
#[allow(missing_docs, unreachable_pub, reason = "diesel print-schema writes it")]
mod schema;
mod server_facts;
mod silence;
pub mod snapshot;
mod statements;
pub mod subjects;
mod supplier_bills;
mod top;
pub(crate) mod unwindings;
mod upgrades;
pub mod usage;
mod verify;
mod violations;
mod webhooks;

use std::sync::Arc;

pub use adjustments::{
    ADJUSTED_NOTICE, AdjustmentCursor, AdjustmentFilter, AdjustmentGrant, BookedAs, CorrectedPeriod, Decided,
    Lowered, NewAdjustment, Posted, StoredAdjustment, Unbookable, Verdict,
};
pub use audit::{AuditFilter, AuditRecord};
pub use balances::MeterBalance;
pub use balances_as_of::{BalanceAsOf, BalanceCursor, BalanceFilter, BalanceSpan};
pub use billing::{DuePage, DuePeriod, DuePlace};
pub use booked::{AwaitedEvent, Booked};
pub use calendars::CalendarChange;
pub use closed::{Closed, ClosedUnits, Closing};
pub use closed_periods::{ClosedCursor, ClosedFilter, ClosedPeriod};
pub use closures::{ClosingPeriod, EndedPeriod};
pub(crate) use connection::{BEGIN, BEGIN_BOOKING, BEGIN_LOOK_UP, BEGIN_SNAPSHOT, begin_aside, end_aside};
pub use connection::{LedgerOptions, address_of};
pub use currencies::CurrencyChange;
pub use cursors::{AbandonedTail, Cursor};
pub use cuts::Voided;
pub use damages::Damage;
pub use deliveries::{Attempted, ClaimedDelivery, DeliveryCursor, DeliveryFilter, StoredDelivery};
pub use entries::{EntryCursor, EntryFilter, StoredEntry};
pub use epochs::PartitionRow;
pub(crate) use error::STATEMENT_TIMEOUT;
pub use error::{Conflict, LedgerError};
pub use estimates::{LearnedCost, LearnedPlace, LearnedUse};
pub use expired_holds::{ExpiredCursor, ExpiredFilter};
pub use exports::{BookedBy, EntryPlace};
pub use followed_periods::FollowedPeriods;
pub use gaps::Gap;
pub use gate_time::TIME_ACCEPTED;
pub use grant_sales::SoldIn;
pub use grants::{GrantCursor, Granted, NewGrant, StoredGrant};
pub use grants_left::GrantLeft;
pub use issue::{Issued, Issuing, StatementsToCome};
pub use jobs::{JobRun, JobState, LastRun, Manner};
pub use key_filters::{FilterCursor, FilterList, Mergeable, Unbooked};
pub use keys::{NextKey, StoredKey};
pub use loads::{LOAD_NOTICE, LOADS_MAX, PushedLoad};
pub use losses::{Loss, LostUnits};
pub use migrations::Migrated;
pub use next_periods::{EndingPeriod, NextPeriod, OpenedAhead};
pub use notices::{Notice, Noticed, Notices};
pub use open_holds::TornHold;
pub use open_tenants::{OpenTenant, OverdueHold};
pub use openings::{DetachOptions, MonthOfEntries, check_archive};
pub use parked::{KnownReservation, NewParked, ParkedCounts, ParkedRow, ParkedState};
pub use parked_conflicts::{ConflictedReservation, ParkedConflict, Settlement, Settling};
pub use parking::NotParked;
pub use period_use::PeriodUse;
pub use plan_changes::{NewPlan, PlanChange};
pub use policy::{
    Expected, Generation, OwnList, PolicyAction, PolicyChange, PolicyVersions, PolicyWrite, PolicyWritten,
    SharedChange, StoredObject, StoredPolicy, StoredTenant, TenantCursor, TenantSince, WrittenObject,
};
pub use quarantine::{QuarantineStatus, Quarantined};
pub use quota_changes::{ClaimedChange, QuotaChange, WantedChange};
pub use quota_notices::{NoticeChanges, NoticeCursor, NoticeFilter, QuotaNotice};
pub(crate) use quotas::PeriodKey;
pub use quotas::{OpenedPeriod, QuotaCapacity, QuotaPeriod};
pub use reconciliations::{Reconciliation, ReconciliationCursor, ReconciliationFilter};
pub use recurring::RepeatsEnded;
pub use repeats::RepeatToUndo;
pub use reservation_list::{ListedReservation, ReservationCursor, ReservationFilter};
pub use reservations::ReservationRow;
pub use revenue::{Revenue, RevenueCursor, RevenueFilter};
pub use server_facts::ServerFacts;
pub use snapshot::{CounterAsk, QuotaState, RestoreAsk, TenantSnapshot};
pub use statements::{IssuedStatement, ListedStatement};
pub use supplier_bills::{BillBegun, BillCursor, BillSession, MatchCursor, NewBill, StoredBill};
pub use top::{Ranked, TopCursor, TopQuery};
pub use upgrades::{Deciding, Requested, StoredUpgrade, UpgradeCursor, UpgradeFilter};
pub use usage::{UsageCursor, UsageFigures, UsagePage, UsageQuery};
pub use verify::{Check, Fault, Rebuilt, VerifyOptions, VerifyReport, rebuild, verify};
pub use violations::{MinuteOfViolations, ViolationCursor, ViolationFilter};
pub use webhooks::{StoredWebhook, UnreadWebhook, WebhookCursor};

/// The ledger: a handle that is cheap to clone and share.
#[derive(Clone)]
pub struct Ledger {
    shared: Arc<connection::Shared>,
    pool: connection::Connections,
}
