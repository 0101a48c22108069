//! `tollgate report`: what the ledger has, over all tenants.

use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use rust_decimal::Decimal;
use serde::Deserialize;

use super::arguments::{AdjustmentsReport, GroupName, NamedReport, ReportCommand, UsageReport, word};
use super::client::{Client, encoded};
use super::connection::{Connection, Prefer};
use super::failure::{Exit, Failure};
use super::output::{self, Format, Table};

#[derive(Deserialize)]
struct UsageRow {
    start: Option<String>,
    tenant: Option<String>,
    plan: Option<String>,
    meter: String,
    operation: Option<String>,
    subject: Option<Subject>,
    consumed: String,
    count: i64,
    excess: String,
    late: String,
    corrections: String,
}

#[derive(Deserialize)]
struct Subject {
    kind: String,
    id: String,
}

/// Runs a `report` command.
pub(super) async fn run(
    command: ReportCommand,
    config: Option<&Path>,
    format: Format,
) -> Result<Exit, Failure> {
    let connect = match &command {
        ReportCommand::Usage(report) => &report.connect,
        ReportCommand::Adjustments(report) => &report.connect,
        ReportCommand::Revenue(report)
        | ReportCommand::Balances(report)
        | ReportCommand::Rollover(report)
        | ReportCommand::Top(report)
        | ReportCommand::Leaked(report)
        | ReportCommand::Reconciliation(report) => &report.connect,
    };
    let client = Client::new(&Connection::find(connect, config, Prefer::Admin)?, 1, Duration::from_secs(60))?;
    let table = match &command {
        ReportCommand::Usage(report) => table(report, &client.list(&path(report)).await?),
        ReportCommand::Adjustments(report) => adjustments(&client.list(&adjustments_path(report)).await?),
        ReportCommand::Revenue(report) => named(&client, "revenue", report).await?,
        ReportCommand::Balances(report) => named(&client, "balances", report).await?,
        ReportCommand::Rollover(report) => named(&client, "rollover", report).await?,
        ReportCommand::Top(report) => named(&client, "top", report).await?,
        ReportCommand::Leaked(report) => named(&client, "leaked", report).await?,
        ReportCommand::Reconciliation(report) => named(&client, "reconciliation", report).await?,
    };
    output::print(&table.render(format)?)?;
    Ok(Exit::Success)
}

/// An address with the filters that are given.
fn with_filters(address: &str, filters: impl IntoIterator<Item = (&'static str, Option<String>)>) -> String {
    let given = filters.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded(&value?))));
    format!("{address}?{}", given.collect::<Vec<_>>().join("&"))
}

#[derive(Deserialize)]
struct AdjustmentRow {
    id: String,
    tenant: String,
    /// None for money that is about none.
    meter: Option<String>,
    effect: String,
    amount: String,
    /// Of money.
    currency: Option<String>,
    happened_at: String,
    status: String,
    posted_at: String,
    posted_by: String,
    decided_by: Option<String>,
    reason: String,
    reference: String,
}

fn adjustments_path(report: &AdjustmentsReport) -> String {
    let filters = [
        ("from", report.from.map(|from| from.to_string())),
        ("to", report.to.map(|to| to.to_string())),
        ("tenant", report.tenant.as_ref().map(ToString::to_string)),
        ("status", report.status.clone()),
    ];
    with_filters("/v1/reports/adjustments", filters)
}

fn adjustments(rows: &[AdjustmentRow]) -> Table {
    let mut table = Table::new(&[
        "posted_at",
        "tenant",
        "meter",
        "effect",
        "=amount",
        "currency",
        "happened_at",
        "status",
        "posted_by",
        "decided_by",
        "reason",
        "reference",
        "id",
    ]);
    for row in rows {
        let if_any = |cell: &Option<String>| cell.clone().unwrap_or_default();
        table.row([
            row.posted_at.clone(),
            row.tenant.clone(),
            if_any(&row.meter),
            row.effect.clone(),
            row.amount.clone(),
            if_any(&row.currency),
            row.happened_at.clone(),
            row.status.clone(),
            row.posted_by.clone(),
            if_any(&row.decided_by),
            row.reason.clone(),
            row.reference.clone(),
            row.id.clone(),
        ]);
    }
    table
}

/// A report as the service writes it into a file: its columns are the table's.
async fn named(client: &Client, name: &str, report: &NamedReport) -> Result<Table, Failure> {
    let filters = [
        ("format", Some("csv".to_owned())),
        ("from", report.from.map(|from| from.to_string())),
        ("to", report.to.map(|to| to.to_string())),
        ("tenant", report.tenant.as_ref().map(ToString::to_string)),
        ("meter", report.meter.as_ref().map(ToString::to_string)),
        ("at", report.at.map(|at| at.to_string())),
        ("by", report.by.clone()),
        ("group_by", report.group_by.clone()),
    ];
    let path = with_filters(&format!("/v1/reports/{name}"), filters);
    let file = client.call(Method::GET, &path, None, None).await?;
    from_file(&path, &file)
}

/// Columns with nothing but numbers hold amounts.
fn from_file(path: &str, file: &[u8]) -> Result<Table, Failure> {
    let damaged = |error: csv::Error| Failure::new(format!("{path}: the answer is no table: {error}"));
    let mut reader = csv::Reader::from_reader(file);
    let header = reader.headers().map_err(damaged)?.clone();
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().map_err(damaged)?;
    let is_amount = |at: usize| {
        let mut cells = rows.iter().filter_map(|row| row.get(at)).filter(|cell| !cell.is_empty()).peekable();
        cells.peek().is_some() && cells.all(|cell| cell.parse::<Decimal>().is_ok())
    };
    let columns: Vec<String> = header
        .iter()
        .enumerate()
        .map(|(at, name)| if is_amount(at) { format!("={name}") } else { name.to_owned() })
        .collect();
    let mut table = Table::new(&columns);
    rows.iter().for_each(|row| table.row(row));
    Ok(table)
}

fn path(report: &UsageReport) -> String {
    let groups: Vec<String> = report.group_by.iter().map(|group| word(*group)).collect();
    let filters = [
        ("group_by", Some(groups.join(","))),
        ("from", report.from.map(|from| from.to_string())),
        ("to", report.to.map(|to| to.to_string())),
        ("granularity", report.granularity.map(word)),
        ("zone", report.zone.clone()),
        ("meter", report.meter.as_ref().map(ToString::to_string)),
    ];
    with_filters("/v1/reports/usage", filters)
}

fn table(report: &UsageReport, rows: &[UsageRow]) -> Table {
    let groups = [GroupName::Tenant, GroupName::Plan, GroupName::Operation, GroupName::Subject];
    let split: Vec<GroupName> = groups.into_iter().filter(|group| report.group_by.contains(group)).collect();
    let mut columns = Vec::new();
    if report.granularity.is_some() {
        columns.push("start");
    }
    columns.push("meter");
    columns.extend(split.iter().map(|group| match group {
        GroupName::Tenant => "tenant",
        GroupName::Plan => "plan",
        GroupName::Operation => "operation",
        GroupName::Subject => "subject",
        GroupName::Meter => "meter",
    }));
    columns.extend(["=consumed", ">count", "=excess", "=late", "=corrections"]);
    let mut table = Table::new(&columns);
    for row in rows {
        let mut cells = Vec::new();
        if report.granularity.is_some() {
            cells.push(row.start.clone().unwrap_or_default());
        }
        cells.push(row.meter.clone());
        cells.extend(split.iter().map(|group| row.group(*group)));
        cells.extend(
            [&row.consumed, &row.count.to_string(), &row.excess, &row.late, &row.corrections]
                .map(Clone::clone),
        );
        table.row(cells);
    }
    table
}

impl UsageRow {
    fn group(&self, group: GroupName) -> String {
        match group {
            GroupName::Meter => Some(self.meter.clone()),
            GroupName::Tenant => self.tenant.clone(),
            GroupName::Plan => self.plan.clone(),
            GroupName::Operation => self.operation.clone(),
            GroupName::Subject => {
                self.subject.as_ref().map(|subject| format!("{}/{}", subject.kind, subject.id))
            }
        }
        .unwrap_or_default()
    }
}
