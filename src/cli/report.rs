//! `tollgate report`: what the ledger has, over all tenants.

use std::path::Path;
use std::time::Duration;

use rust_decimal::Decimal;

use super::arguments::{
    AdjustmentsReport, BalancesReport, EntriesReport, PlainReport, ReconciliationReport, ReportCommand,
    RevenueReport, Span, TopReport, UsageReport, word,
};
use super::client::{Client, encoded};
use super::connection::{Connection, Prefer};
use super::failure::{Exit, Failure};
use super::output::{self, Format, Table};
use crate::http::from_text;

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
        ReportCommand::Entries(report) => &report.of.connect,
        ReportCommand::Rollover(report) | ReportCommand::Leaked(report) => &report.connect,
    };
    let client = Client::new(&Connection::find(connect, config, Prefer::Admin)?, 1, Duration::from_secs(60))?;
    let (name, filters) = match &command {
        ReportCommand::Usage(report) => ("usage", usage(report)),
        ReportCommand::Adjustments(report) => ("adjustments", adjustments(report)),
        ReportCommand::Entries(report) => ("entries", entries(report)),
        ReportCommand::Revenue(report) => ("revenue", revenue(report)),
        ReportCommand::Balances(report) => ("balances", balances(report)),
        ReportCommand::Rollover(report) => ("rollover", plain(report)),
        ReportCommand::Top(report) => ("top", top(report)),
        ReportCommand::Leaked(report) => ("leaked", plain(report)),
        ReportCommand::Reconciliation(report) => ("reconciliation", reconciliation(report)),
    };
    file(&client, name, filters, format).await
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

fn entries(report: &EntriesReport) -> Vec<Filter> {
    let which = [("reservation", report.reservation.clone()), ("class", report.class.clone())];
    plain(&report.of).into_iter().chain(which).collect()
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
    let which = [("tenant", text(report.tenant.as_ref())), ("state", report.state.clone())];
    span(&report.span).into_iter().chain(which).collect()
}

fn adjustments(report: &AdjustmentsReport) -> Vec<Filter> {
    let which = [
        ("tenant", text(report.tenant.as_ref())),
        ("meter", text(report.meter.as_ref())),
        ("effect", report.effect.clone()),
        ("status", report.status.clone()),
    ];
    span(&report.span).into_iter().chain(which).collect()
}

fn usage(report: &UsageReport) -> Vec<Filter> {
    let groups: Vec<String> = report.group_by.iter().map(|group| word(*group)).collect();
    let how = [
        ("group_by", Some(groups.join(","))),
        ("granularity", report.granularity.map(word)),
        ("zone", report.zone.clone()),
        ("tenant", text(report.tenant.as_ref())),
        ("meter", text(report.meter.as_ref())),
    ];
    span(&report.span).into_iter().chain(how).collect()
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
    output::print(&from_file(&path, &file)?.render(format)?)?;
    Ok(Exit::Success)
}

/// A part of a file whose lines end as those of every other command. `quoted` goes on from part to part.
fn with_plain_ends(part: &[u8], quoted: &mut bool) -> Vec<u8> {
    let is_kept = |byte: &u8| {
        *quoted ^= *byte == b'"';
        *quoted || *byte != b'\r'
    };
    part.iter().copied().filter(is_kept).collect()
}

/// Columns that count, in whatever report they are.
const COUNTS: [&str; 11] = [
    "rank",
    "count",
    "documents",
    "step",
    "chain",
    "batch",
    "statement",
    "counters",
    "quarantined",
    "parked",
    "gaps",
];

/// A file as a table. Columns in which no row has anything are left out, such as those of groups that were not asked
/// for. Those with nothing but numbers hold amounts, unless they count. Texts are without what guards a spreadsheet.
fn from_file(path: &str, file: &[u8]) -> Result<Table, Failure> {
    let damaged = |error: csv::Error| Failure::new(format!("{path}: the answer is no table: {error}"));
    let mut reader = csv::Reader::from_reader(file);
    let header = reader.headers().map_err(damaged)?.clone();
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().map_err(damaged)?;
    let cells = |at: usize| rows.iter().filter_map(move |row| row.get(at)).filter(|cell| !cell.is_empty());
    let shown: Vec<usize> =
        (0..header.len()).filter(|at| rows.is_empty() || cells(*at).next().is_some()).collect();
    let columns = shown.iter().filter_map(|at| Some((*at, header.get(*at)?))).map(|(at, name)| match name {
        name if COUNTS.contains(&name) => format!(">{name}"),
        name if !rows.is_empty() && cells(at).all(|cell| cell.parse::<Decimal>().is_ok()) => {
            format!("={name}")
        }
        name => name.to_owned(),
    });
    let mut table = Table::new(&columns.collect::<Vec<_>>());
    rows.iter().for_each(|row| table.row(shown.iter().filter_map(|at| row.get(*at)).map(from_text)));
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::as_text;

    #[test]
    fn a_file_in_parts_keeps_what_is_quoted_and_ends_its_lines_plainly() {
        let (file, mut quoted) = (b"a,b\r\n\"x\r\ny\"\"\r\",1\r\n", false);
        let parts: Vec<u8> = file.chunks(2).flat_map(|part| with_plain_ends(part, &mut quoted)).collect();
        assert_eq!(String::from_utf8(parts).unwrap(), "a,b\n\"x\r\ny\"\"\r\",1\n");
    }
    #[test]
    fn a_table_has_the_texts_themselves_and_only_a_file_guards_those_that_are_like_formulas() {
        let texts = ["=HYPERLINK(1)", "+49171", "'=1", "''  @x", "'", "'quoted'", "acme"];
        let mut file = b"plan,subject,consumed,count\r\n".to_vec();
        texts.iter().for_each(|text| file.extend(format!(",{},-2,3\r\n", as_text(text)).bytes()));
        let shown = from_file("usage", &file).unwrap().render(Format::Json).unwrap();
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let expected = texts.map(|text| serde_json::json!({ "subject": text, "consumed": "-2", "count": 3 }));
        assert_eq!(shown, serde_json::json!(expected));
    }
}
