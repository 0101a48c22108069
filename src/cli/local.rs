//! The operator's commands: each calls one function of [`crate::app`] and prints what it answered.

use std::path::PathBuf;

use super::arguments::{ConfigCommand, Place, QuarantineCommand, RoleName, Serve, Up, Verify};
use super::failure::{Exit, Failure};
use super::output::{self, Format, Table};
use super::prompt;
use crate::app::{self, CheckLine, QuarantineAction, Target};
use crate::settings::{Effect, Settings, SettingsError};

/// `tollgate up`.
pub(super) async fn up(up: Up, config: Option<PathBuf>) -> Result<Exit, Failure> {
    let Up { data_dir, listen, test_clock, no_demo } = up;
    app::up(app::UpOptions { data_dir, listen, test_clock, config, no_demo }).await?;
    Ok(Exit::Success)
}

/// `tollgate serve`.
pub(super) async fn serve(serve: Serve, config: Option<PathBuf>) -> Result<Exit, Failure> {
    let roles = serve.roles.iter().map(|role| match role {
        RoleName::Http => app::Role::Http,
        RoleName::Writer => app::Role::Writer,
        RoleName::Jobs => app::Role::Jobs,
    });
    let options = app::ServeOptions {
        config,
        roles: roles.collect(),
        listen: serve.listen,
        test_clock: serve.test_clock,
    };
    app::serve(options).await?;
    Ok(Exit::Success)
}

/// `tollgate migrate`.
pub(super) async fn migrate(config: Option<PathBuf>, format: Format) -> Result<Exit, Failure> {
    let migrated = app::migrate(config).await?;
    if let Some(warning) = migrated.warning() {
        eprintln!("warning: {warning}\n  next: {}", migrated.remedy());
    }
    let applied = migrated.applied;
    if applied.is_empty() && format == Format::Table {
        output::print("the schema is up to date\n")?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(&["applied"]);
    applied.into_iter().for_each(|name| table.row([name]));
    output::print(&table.render(format)?)?;
    Ok(Exit::Success)
}

/// `tollgate config …`.
pub(super) fn config(
    command: ConfigCommand,
    config: Option<PathBuf>,
    format: Format,
) -> Result<Exit, Failure> {
    let ConfigCommand::Check = command;
    match (app::config_check(config), format) {
        (Ok(settings), Format::Table) => output::print(&format!("{}\n", settings.render().trim_end()))?,
        (Ok(settings), format) => output::print(&effects(&settings).render(format)?)?,
        (Err(error), format) => {
            if let (Some(error), Format::Json | Format::Csv) = (error.downcast_ref::<SettingsError>(), format)
            {
                output::print(&problems(error).render(format)?)?;
            }
            return Err(error.into());
        }
    }
    Ok(Exit::Success)
}

fn effects(settings: &Settings) -> Table {
    let mut table = Table::new(&["key", "~value", "source"]);
    for Effect { key, value, source } in settings.effects() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        table.row([key, text, source]);
    }
    table
}

fn problems(error: &SettingsError) -> Table {
    let mut table = Table::new(&["key", "message", "?file", "?line"]);
    for problem in &error.problems {
        let line = problem.line.map(|line| line.to_string());
        let optional = |text: &Option<String>| text.clone().unwrap_or_default();
        table.row([
            problem.key.clone(),
            problem.message.clone(),
            optional(&problem.file),
            line.unwrap_or_default(),
        ]);
    }
    table
}

/// `tollgate status`.
pub(super) async fn status(place: Place, config: Option<PathBuf>, format: Format) -> Result<Exit, Failure> {
    let mut table = Table::new(&["name", "~value"]);
    app::status(target(place, config)?).await?.into_iter().for_each(|(name, value)| table.row([name, value]));
    output::print(&table.render(format)?)?;
    Ok(Exit::Success)
}

/// `tollgate doctor`.
pub(super) async fn doctor(
    calls_per_second: Option<u32>,
    place: Place,
    config: Option<PathBuf>,
    format: Format,
) -> Result<Exit, Failure> {
    let findings = app::doctor(target(place, config)?, calls_per_second).await?;
    let is_safe = findings.iter().all(|finding| finding.verdict != app::Verdict::Danger);
    let mut table = Table::new(&["name", "~value", "result", "advice"]);
    for finding in findings {
        table.row([finding.name, finding.found, finding.verdict.as_str().to_owned(), finding.advice]);
    }
    output::print(&table.render(format)?)?;
    Ok(if is_safe { Exit::Success } else { Exit::Differs })
}

/// `tollgate inspect`.
pub(super) async fn inspect(
    key: &str,
    place: Place,
    config: Option<PathBuf>,
    format: Format,
) -> Result<Exit, Failure> {
    let mut table = Table::new(&["name", "value"]);
    app::inspect(target(place, config)?, key)
        .await?
        .into_iter()
        .for_each(|(name, value)| table.row([name, value]));
    output::print(&table.render(format)?)?;
    Ok(Exit::Success)
}

/// `tollgate verify`.
pub(super) async fn verify(verify: Verify, config: Option<PathBuf>, format: Format) -> Result<Exit, Failure> {
    let place = target(verify.place, config)?;
    if verify.write {
        let question =
            "Balances and hourly usage that differ from the entries will be replaced. Replace them?";
        prompt::confirm(question, verify.yes)?;
    }
    let report = match &verify.archive {
        Some(manifest) => app::VerifyReport {
            checks: vec![app::verify_archive(place, manifest).await?],
            warnings: Vec::new(),
            notes: Vec::new(),
        },
        None => app::verify(place, verify.rebuild, verify.write).await?,
    };
    output::print(&check_table(&report.checks, format).render(format)?)?;
    if format == Format::Table {
        let faults = report.checks.iter().flat_map(|check| &check.faults);
        let faults = faults.map(|fault| format!("fault: {fault}\n"));
        let warnings = report.warnings.iter().map(|warning| format!("warning: {warning}\n"));
        let notes = report.notes.iter().map(|note| format!("note: {note}\n"));
        output::print(&faults.chain(warnings).chain(notes).collect::<String>())?;
    }
    let is_clean = report.checks.iter().all(|check| check.faults.is_empty());
    Ok(if is_clean { Exit::Success } else { Exit::Differs })
}

/// The table for people has each check's first fault, and all are named below it; scripts find them all in their row.
fn check_table(checks: &[CheckLine], format: Format) -> Table {
    let mut table = Table::new(&["check", ">checked", ">faults", "result"]);
    for check in checks {
        let result = match (&check.skipped, check.faults.as_slice()) {
            (Some(why), []) => format!("skipped: {why}"),
            (_, []) => "ok".to_owned(),
            (_, [first, rest @ ..]) if format == Format::Table && !rest.is_empty() => {
                format!("{first} (and {} more)", rest.len())
            }
            (_, faults) => faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        };
        table.row([
            check.name.to_string(),
            check.checked.to_string(),
            check.faults.len().to_string(),
            result,
        ]);
    }
    table
}

/// `tollgate quarantine …`.
pub(super) async fn quarantine(
    command: QuarantineCommand,
    config: Option<PathBuf>,
    format: Format,
) -> Result<Exit, Failure> {
    let (place, action) = match command {
        QuarantineCommand::List(place) => (place, QuarantineAction::List),
        QuarantineCommand::Retry { id, place } => {
            (place, QuarantineAction::Retry { partition: id.partition, event: id.event })
        }
        QuarantineCommand::Discard { id, reason, yes, place } => {
            let unbilled =
                app::unbilled(target(place.clone(), config.clone())?, id.partition, id.event).await?;
            eprintln!("{unbilled}");
            prompt::confirm("This event will never be booked. Discard it?", yes)?;
            (place, QuarantineAction::Discard { partition: id.partition, event: id.event, reason })
        }
    };
    let mut table = Table::new(&["id", "reservation", "status", "reason"]);
    for line in app::quarantine(target(place, config)?, action).await? {
        let id = format!("{}:{}", line.partition, line.event);
        table.row([id, line.reservation.unwrap_or_default(), line.status, line.reason]);
    }
    output::print(&table.render(format)?)?;
    Ok(Exit::Success)
}

pub(super) fn target(place: Place, config: Option<PathBuf>) -> Result<Target, Failure> {
    Ok(Target::choose(place.data_dir, config)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_line_that_says_how_it_ended() {
        let check = |name: &str, faults: &[&str], skipped: Option<&str>| CheckLine {
            name: name.into(),
            checked: 12,
            faults: faults.iter().map(|fault| (*fault).into()).collect(),
            skipped: skipped.map(Into::into),
        };
        let checks = [
            check("entries", &[], None),
            check("balances", &["acme/ocr.page: consumed is 3, entries say 2", "b"], None),
            check("gate against ledger", &[], Some("the writer is behind")),
        ];
        let text = check_table(&checks, Format::Table).render(Format::Table).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[2].ends_with("ok"), "{text}");
        assert!(lines[3].ends_with("acme/ocr.page: consumed is 3, entries say 2 (and 1 more)"), "{text}");
        assert!(lines[4].ends_with("skipped: the writer is behind"), "{text}");
    }
}
