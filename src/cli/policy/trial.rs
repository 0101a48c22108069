//! `tollgate policy test`: whom a file would have refused.

use jiff::Timestamp;
use reqwest::Method;
use serde_json::json;

use super::File;
use crate::cli::client::{Client, parse};
use crate::cli::failure::Failure;
use crate::cli::output::{Format, Table};
use crate::cli::problem;
use crate::domain::ids::TenantId;
use crate::domain::policy::edit::Prune;
use crate::http::{TriedPolicy, TriedRow};

const TEST: &str = "/v1/admin/policy/test";

/// What is tried.
pub(super) struct Asked<'a> {
    pub(super) since: Timestamp,
    pub(super) until: Option<Timestamp>,
    pub(super) tenants: &'a [TenantId],
    pub(super) prune: &'a [Prune],
}

/// Asks the service, page by page.
pub(super) async fn ask(file: &File, client: &Client, asked: &Asked<'_>) -> Result<TriedPolicy, Failure> {
    let mut body = json!({
        "policy": file.policy, "prune": asked.prune, "since": asked.since.to_string(), "tenants": asked.tenants,
    });
    if let Some(until) = asked.until {
        body["until"] = until.to_string().into();
    }
    let mut all: Option<TriedPolicy> = None;
    loop {
        let reply = client.reply(Method::POST, TEST, None, Some(body.to_string())).await?;
        let page: TriedPolicy = match reply.status {
            200 => parse(TEST, &reply.body)?,
            422 => return Err(file.refused(&problem::field_errors(&reply.body))),
            status => return Err(problem::failure(&format!("POST {TEST}"), status, &reply.body)),
        };
        // All pages end where the first one does.
        body["until"] = page.until.clone().into();
        let next = page.next_tenant.clone();
        match &mut all {
            None => all = Some(page),
            Some(all) => add(all, page),
        }
        match (next, all) {
            (None, Some(all)) => return Ok(all),
            (next, so_far) => {
                body["after"] = next.into();
                all = so_far;
            }
        }
    }
}

fn add(all: &mut TriedPolicy, page: TriedPolicy) {
    all.tenants += page.tenants;
    all.decisions += page.decisions;
    all.refused_then += page.refused_then;
    all.refused += page.refused;
    all.newly_refused += page.newly_refused;
    all.newly_admitted += page.newly_admitted;
    all.undecidable += page.undecidable;
    all.data.extend(page.data);
}

/// A row for each limit, tenant and hour.
pub(super) fn text(tried: &TriedPolicy, format: Format) -> Result<String, Failure> {
    if tried.data.is_empty() && format == Format::Table {
        return Ok("nobody would have been refused\n".to_owned());
    }
    let columns = ["limit", "tenant", "hour", ">refused", ">admitted then", "first decision"];
    let mut table = Table::new(&columns);
    for TriedRow { limit, tenant, hour, refused, admitted_then, first_decision } in &tried.data {
        let (refused, admitted_then) = (refused.to_string(), admitted_then.to_string());
        table.row([limit, tenant, hour, &refused, &admitted_then, first_decision]);
    }
    table.render(format)
}

/// How much was tried and how it turned out, in sentences.
pub(super) fn summary(tried: &TriedPolicy) -> String {
    let TriedPolicy { tenants, decisions, refused_then, refused, newly_refused, newly_admitted, .. } = tried;
    let mut lines = vec![
        format!(
            "{decisions} decisions of {tenants} sampled tenants from {} to {}:",
            tried.since, tried.until
        ),
        format!(
            "{refused} refused under the file ({newly_refused} of them admitted then), {refused_then} then"
        ),
        format!("{newly_admitted} admitted under the file that were refused then"),
    ];
    if tried.undecidable > 0 {
        lines.push(format!("{} that the file cannot decide", tried.undecidable));
    }
    if !tried.not_sampled.is_empty() {
        lines.push(format!("not sampled, so nothing is recorded: {}", tried.not_sampled.join(", ")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(data: Vec<TriedRow>) -> TriedPolicy {
        TriedPolicy {
            since: "2026-03-10T00:00:00Z".into(),
            until: "2026-03-11T00:00:00Z".into(),
            tenants: 1,
            decisions: 20,
            refused_then: 2,
            refused: 12,
            newly_refused: 11,
            newly_admitted: 1,
            undecidable: 0,
            data,
            not_sampled: vec!["zoo".into()],
            has_more: false,
            next_tenant: None,
        }
    }

    fn row(limit: &str, refused: u64) -> TriedRow {
        TriedRow {
            limit: limit.into(),
            tenant: "acme".into(),
            hour: "2026-03-10T07:00:00Z".into(),
            refused,
            admitted_then: 1,
            first_decision: "0198".into(),
        }
    }

    #[test]
    fn the_table_lines_up_whatever_the_names() {
        let text = text(&tried(vec![row("day", 9), row("every-second-tuesday", 12)]), Format::Table).unwrap();
        let columns = |line: &str| [line.find("acme"), line.find("2026-"), line.find("0198")];
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(columns(lines[2]), columns(lines[3]), "{text}");
        assert!(columns(lines[2]).iter().all(Option::is_some), "{text}");
    }

    #[test]
    fn nobody_refused_is_said_in_words_and_scripts_get_no_rows() {
        assert_eq!(text(&tried(vec![]), Format::Table).unwrap(), "nobody would have been refused\n");
        assert_eq!(text(&tried(vec![]), Format::Json).unwrap().trim(), "[]");
    }

    #[test]
    fn the_summary_names_tenants_of_whom_nothing_is_recorded() {
        let summary = summary(&tried(vec![]));
        assert!(summary.ends_with("not sampled, so nothing is recorded: zoo"), "{summary}");
        assert!(
            summary.contains("12 refused under the file (11 of them admitted then), 2 then"),
            "{summary}"
        );
    }
}
