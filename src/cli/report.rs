//! `tollgate report`: what the ledger has, over all tenants.

use std::path::Path;
use std::time::Duration;

use rust_decimal::Decimal;
use serde::Deserialize;

use super::arguments::{
    AdjustmentsReport, BalancesReport, GroupName, PlainReport, ReconciliationReport, ReportCommand,
    RevenueReport, Span, TopReport, UsageReport, word,
};
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
        ReportCommand::Revenue(report) => &report.connect,
        ReportCommand::Balances(report) => &report.connect,
        ReportCommand::Top(report) => &report.connect,
        ReportCommand::Reconciliation(report) => &report.connect,
        ReportCommand::Entries(report) | ReportCommand::Rollover(report) | ReportCommand::Leaked(report) => {
            &report.connect
        }
    };
    let client = Client::new(&Connection::find(connect, config, Prefer::Admin)?, 1, Duration::from_secs(60))?;
    let (name, filters) = match &command {
        ReportCommand::Usage(report) => {
            let table = table(report, &client.list(&path(report)).await?);
            return printed(&table, format);
        }
        ReportCommand::Adjustments(report) => {
            let table = adjustments(&client.list(&adjustments_path(report)).await?);
            return printed(&table, format);
        }
        ReportCommand::Entries(report) => ("entries", plain(report)),
        ReportCommand::Revenue(report) => ("revenue", revenue(report)),
        ReportCommand::Balances(report) => ("balances", balances(report)),
        ReportCommand::Rollover(report) => ("rollover", plain(report)),
        ReportCommand::Top(report) => ("top", top(report)),
        ReportCommand::Leaked(report) => ("leaked", plain(report)),
        ReportCommand::Reconciliation(report) => ("reconciliation", reconciliation(report)),
    };
    file(&client, name, filters, format).await
}

fn printed(table: &Table, format: Format) -> Result<Exit, Failure> {
    output::print(&table.render(format)?)?;
    Ok(Exit::Success)
}

/// A name of a parameter, and its value if it is given.
type Filter = (&'static str, Option<String>);

/// An address with the filters that are given.
fn with_filters(address: &str, filters: impl IntoIterator<Item = Filter>) -> String {
    let given = filters.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded(&value?))));
    format!("{address}?{}", given.collect::<Vec<_>>().join("&"))
}

fn text(value: Option<&impl ToString>) -> Option<String> {
    value.map(ToString::to_string)
}

fn span(span: &Span) -> [Filter; 2] {
    [("from", text(span.from.as_ref())), ("to", text(span.to.as_ref()))]
}

fn plain(report: &PlainReport) -> Vec<Filter> {
    let whose = [("tenant", text(report.tenant.as_ref())), ("meter", text(report.meter.as_ref()))];
    span(&report.span).into_iter().chain(whose).collect()
}

fn revenue(report: &RevenueReport) -> Vec<Filter> {
    let whose = [("tenant", text(report.tenant.as_ref())), ("group_by", report.group_by.clone())];
    span(&report.span).into_iter().chain(whose).collect()
}

fn balances(report: &BalancesReport) -> Vec<Filter> {
    vec![
        ("at", text(report.at.as_ref())),
        ("tenant", text(report.tenant.as_ref())),
        ("meter", text(report.meter.as_ref())),
    ]
}

fn top(report: &TopReport) -> Vec<Filter> {
    let who = [
        ("meter", text(Some(&report.meter))),
        ("by", report.by.clone()),
        ("tenant", text(report.tenant.as_ref())),
    ];
    who.into_iter().chain(span(&report.span)).collect()
}

fn reconciliation(report: &ReconciliationReport) -> Vec<Filter> {
    vec![("tenant", text(report.tenant.as_ref())), ("state", report.state.clone())]
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

/// Prints a report as the service writes it into a file: its columns are the table's. As CSV it is printed as it comes,
/// so that it may have any size.
async fn file(client: &Client, name: &str, filters: Vec<Filter>, format: Format) -> Result<Exit, Failure> {
    let filters = filters.into_iter().chain([("format", Some("csv".to_owned()))]);
    let path = with_filters(&format!("/v1/reports/{name}"), filters);
    if format == Format::Csv {
        let mut quoted = false;
        client.download(&path, |part| output::print_bytes(&with_plain_ends(part, &mut quoted))).await?;
        return Ok(Exit::Success);
    }
    let mut file = Vec::new();
    let keep = |part: &[u8]| {
        file.extend_from_slice(part);
        Ok(())
    };
    client.download(&path, keep).await?;
    printed(&from_file(&path, &file)?, format)
}

/// A part of a file whose lines end as those of every other command. `quoted` goes on from part to part.
fn with_plain_ends(part: &[u8], quoted: &mut bool) -> Vec<u8> {
    let is_kept = |byte: &u8| {
        *quoted ^= *byte == b'"';
        *quoted || *byte != b'\r'
    };
    part.iter().copied().filter(is_kept).collect()
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
        ("tenant", text(report.tenant.as_ref())),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_parts_keeps_what_is_quoted_and_ends_its_lines_plainly() {
        let (file, mut quoted) = (b"a,b\r\n\"x\r\ny\"\"\r\",1\r\n", false);
        let parts: Vec<u8> = file.chunks(2).flat_map(|part| with_plain_ends(part, &mut quoted)).collect();
        assert_eq!(String::from_utf8(parts).unwrap(), "a,b\n\"x\r\ny\"\"\r\",1\n");
    }
}
