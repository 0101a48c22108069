//! Hourly usage: derived from entries, moved with them, the source of every report.

use rust_decimal::Decimal;

use super::{Ledger, LedgerError};
use crate::domain::ids::{MeterId, Subject, TenantId};

/// How finely to cut time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// The tenant's local hours.
    Hour,
    /// Days of a zone.
    Day,
    /// Months of a zone, from the 1st.
    Month,
}

/// What to tell apart; the meter always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupBy {
    /// By tenant.
    Tenant,
    /// By the tenant's present plan.
    Plan,
    /// By operation.
    Operation,
    /// By subject: only what was done in a subject's name.
    Subject,
}

/// Which usage to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuery {
    /// Whose; none for all tenants.
    pub tenant: Option<TenantId>,
    /// Only this meter.
    pub meter: Option<MeterId>,
    /// Only this subject (needs a tenant).
    pub subject: Option<Subject>,
    /// From the hours that start at or after this instant (unix ms).
    pub from_ms: i64,
    /// To the hours that start before it (unix ms).
    pub to_ms: i64,
    /// How finely; none for one figure over all the time.
    pub granularity: Option<Granularity>,
    /// The IANA zone of days and months.
    pub zone: String,
    /// What to tell apart.
    pub group_by: Vec<GroupBy>,
    /// From behind this place.
    pub after: Option<UsagePlace>,
    /// At most so many.
    pub limit: usize,
}

/// A place in a list of usage: newest first, then by the groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsagePlace {
    /// The start (unix ms); 0 without granularity.
    pub start_ms: i64,
    /// The group's texts, joined as the ledger orders them.
    pub group: String,
}

/// A figure of usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageFigures {
    /// Its place in the list.
    pub place: UsagePlace,
    /// The start of its hour, day or month (unix ms).
    pub start_ms: Option<i64>,
    /// Whose, where told apart.
    pub tenant: Option<TenantId>,
    /// Which plan, where told apart.
    pub plan: Option<String>,
    /// What was counted.
    pub meter: MeterId,
    /// By which operation, where told apart; empty for none.
    pub operation: Option<String>,
    /// In whose name, where told apart.
    pub subject: Option<Subject>,
    /// How much.
    pub consumed: Decimal,
    /// How many operations consumed.
    pub count: u64,
    /// How much of it was above holds.
    pub excess: Decimal,
    /// How much of it came after expiry.
    pub late: Decimal,
}

/// A page of usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsagePage {
    /// The figures.
    pub rows: Vec<UsageFigures>,
    /// When they were read (the database's clock, unix ms).
    pub as_of_ms: i64,
}

impl Ledger {
    /// Usage by hour, day or month and by the groups asked for, newest first.
    ///
    /// Errors: [`LedgerError::Refused`] for a zone that the database does not know.
    pub async fn usage(&self, query: &UsageQuery) -> Result<UsagePage, LedgerError> {
        pending()
    }
}

fn pending<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("not written yet".into()))
}
