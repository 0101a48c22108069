//! Which reports can be asked for, and how they are cut and filtered.

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;

use super::Connect;
use super::values::instant;
use crate::domain::ids::{MeterId, TenantId};

/// `report …`.
#[derive(Debug, Subcommand)]
pub enum ReportCommand {
    /// What all tenants used, as the ledger has it.
    Usage(UsageReport),
    /// Corrections that finance has posted, newest first.
    Adjustments(AdjustmentsReport),
    /// Entries of the books, of each tenant the newest first.
    Entries(EntriesReport),
    /// What statements and credit notes say is owed, by currency (--group-by period,tenant,plan,meter).
    Revenue(RevenueReport),
    /// What stood in the accounts at an instant (--at), of units and of money.
    Balances(BalancesReport),
    /// What became of closed periods, the last to end first.
    Rollover(PlainReport),
    /// Who used most of a meter (--by tenant, subject, operation or plan).
    Top(TopReport),
    /// Holds that expired, the last first.
    Leaked(PlainReport),
    /// Comparisons of the gate with the books, newest first.
    Reconciliation(ReconciliationReport),
}

/// From when until when.
#[derive(Debug, Args)]
pub struct Span {
    /// From this instant (RFC 3339), inclusive.
    #[arg(long, value_parser = instant)]
    pub from: Option<Timestamp>,
    /// To this instant (RFC 3339), exclusive.
    #[arg(long, value_parser = instant)]
    pub to: Option<Timestamp>,
}

/// Options of `report entries`.
#[derive(Debug, Args)]
pub struct EntriesReport {
    /// Whose, of what and when.
    #[command(flatten)]
    pub of: PlainReport,
    /// Only of this reservation; needs --tenant.
    #[arg(long, requires = "tenant")]
    pub reservation: Option<String>,
    /// `usage`, `grant`, `period` or `correction`.
    #[arg(long)]
    pub class: Option<String>,
}

/// Options of the reports on entries, rollover and leaked holds.
#[derive(Debug, Args)]
pub struct PlainReport {
    /// Which time.
    #[command(flatten)]
    pub span: Span,
    /// Only this tenant's.
    #[arg(long)]
    pub tenant: Option<TenantId>,
    /// Only this meter.
    #[arg(long)]
    pub meter: Option<MeterId>,
    /// Which service.
    #[command(flatten)]
    pub connect: Connect,
}

/// Options of `report revenue`.
#[derive(Debug, Args)]
pub struct RevenueReport {
    /// Which periods, by their start.
    #[command(flatten)]
    pub span: Span,
    /// Only this tenant's.
    #[arg(long)]
    pub tenant: Option<TenantId>,
    /// What rows are split by: `period`, `tenant`, `plan`, `meter`.
    #[arg(long, value_name = "GROUPS")]
    pub group_by: Option<String>,
    /// Which service.
    #[command(flatten)]
    pub connect: Connect,
}

/// Options of `report balances`.
#[derive(Debug, Args)]
pub struct BalancesReport {
    /// As of this instant (RFC 3339); absent: now.
    #[arg(long, value_parser = instant)]
    pub at: Option<Timestamp>,
    /// Only this tenant's.
    #[arg(long)]
    pub tenant: Option<TenantId>,
    /// Only this meter; `money:EUR` for money in this currency.
    #[arg(long)]
    pub meter: Option<MeterId>,
    /// Which service.
    #[command(flatten)]
    pub connect: Connect,
}

/// Options of `report top`.
#[derive(Debug, Args)]
pub struct TopReport {
    /// The meter: amounts of different meters cannot be compared.
    #[arg(long)]
    pub meter: MeterId,
    /// Who is ranked; absent: tenants.
    #[arg(long, value_name = "WHO")]
    pub by: Option<String>,
    /// Which time.
    #[command(flatten)]
    pub span: Span,
    /// Only this tenant's.
    #[arg(long)]
    pub tenant: Option<TenantId>,
    /// Which service.
    #[command(flatten)]
    pub connect: Connect,
}

/// Options of `report reconciliation`.
#[derive(Debug, Args)]
pub struct ReconciliationReport {
    /// When they were judged.
    #[command(flatten)]
    pub span: Span,
    /// Only this tenant's.
    #[arg(long)]
    pub tenant: Option<TenantId>,
    /// `clean`, `drift`, `repaired` or `refused`.
    #[arg(long)]
    pub state: Option<String>,
    /// Which service.
    #[command(flatten)]
    pub connect: Connect,
}

/// Options of `report adjustments`.
#[derive(Debug, Args)]
pub struct AdjustmentsReport {
    /// When they were posted.
    #[command(flatten)]
    pub span: Span,
    /// Only this tenant's.
    #[arg(long)]
    pub tenant: Option<TenantId>,
    /// Only of this meter.
    #[arg(long)]
    pub meter: Option<MeterId>,
    /// `usage`, `allowance` or `money`.
    #[arg(long)]
    pub effect: Option<String>,
    /// `pending`, `approved`, `booked` or `declined`.
    #[arg(long)]
    pub status: Option<String>,
    /// Which service.
    #[command(flatten)]
    pub connect: Connect,
}

/// Options of `report usage`.
#[derive(Debug, Args)]
pub struct UsageReport {
    /// Only this tenant's.
    #[arg(long)]
    pub tenant: Option<TenantId>,
    /// Which time; absent: from the start of the month until now.
    #[command(flatten)]
    pub span: Span,
    /// A row for each hour, day or month; absent: one for the whole time.
    #[arg(long, value_enum)]
    pub granularity: Option<GranularityName>,
    /// What rows are split by.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "meter,tenant")]
    pub group_by: Vec<GroupName>,
    /// The zone of days and months; absent: UTC.
    #[arg(long)]
    pub zone: Option<String>,
    /// Only this meter.
    #[arg(long)]
    pub meter: Option<MeterId>,
    /// Which service.
    #[command(flatten)]
    pub connect: Connect,
}

/// How usage is cut in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GranularityName {
    /// By hour.
    Hour,
    /// By day.
    Day,
    /// By month.
    Month,
}

/// What usage is split by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GroupName {
    /// By meter.
    Meter,
    /// By tenant.
    Tenant,
    /// By plan.
    Plan,
    /// By named subject.
    Subject,
    /// By operation.
    Operation,
}
