//! `tollgate policy`: the policy of a running service as a file.
//!
//! The service works out what a file changes, and changes exactly that at once, or nothing.

mod trial;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use toml::de::{DeTable, DeValue};

use super::arguments::{Connect, PolicyCommand};
use super::client::{Client, parse};
use super::connection::{Connection, Prefer};
use super::failure::{Exit, Failure};
use super::output::{self, Format, Table};
use super::problem;
use super::prompt;
use crate::domain::field_error::{FieldError, field_and_message, in_plain_words, read_json};
use crate::domain::objects::from_objects;
use crate::domain::policy::diff::{Action, Change, DefinitionKind};
use crate::domain::policy::document::{Definitions, PolicyFile, export};
use crate::domain::policy::edit::Prune;
use crate::domain::tenant::leave_out_dates;
use crate::http::AppliedPolicy;

const APPLY: &str = "/v1/admin/policy";
/// How long one answer about recorded decisions may take.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(600);
const CORRECT: &str = "correct the file; nothing was changed";

/// Runs a `policy` command.
pub(super) async fn run(
    command: PolicyCommand,
    config: Option<&Path>,
    format: Format,
) -> Result<Exit, Failure> {
    match command {
        PolicyCommand::Export { connect } => {
            let stored = stored(&client(&connect, config)?).await?;
            output::print(&export_text(&stored, format)?)?;
        }
        PolicyCommand::Diff { file, prune, connect } => {
            let file = File::read(&file)?;
            let found = file.ask(&client(&connect, config)?, &prune, None).await?;
            output::print(&changes_text(&found.changes, format)?)?;
            file.warn(&found.warnings);
        }
        PolicyCommand::Test { file, since, until, tenant, prune, connect } => {
            let file = File::read(&file)?;
            let connection = Connection::find(&connect, config, Prefer::Admin)?;
            let client = Client::new(&connection, 1, TRIAL_TIMEOUT)?;
            let asked = trial::Asked { since, until, tenants: &tenant, prune: &prune };
            let tried = trial::ask(&file, &client, &asked).await?;
            output::print(&trial::text(&tried, format)?)?;
            eprintln!("{}", trial::summary(&tried));
        }
        PolicyCommand::Apply { file, prune, yes, connect } => {
            let file = File::read(&file)?;
            let client = client(&connect, config)?;
            let found = file.ask(&client, &prune, None).await?;
            output::print(&changes_text(&found.changes, format)?)?;
            file.warn(&found.warnings);
            if !found.changes.is_empty() {
                prompt::confirm(&format!("Apply these {} changes?", found.changes.len()), yes)?;
                let applied = file.ask(&client, &prune, Some(&found.digest)).await?;
                eprintln!("{} changes applied as version {}", applied.changes.len(), applied.version);
            }
        }
    }
    Ok(Exit::Success)
}

fn client(connect: &Connect, config: Option<&Path>) -> Result<Client, Failure> {
    Client::new(&Connection::find(connect, config, Prefer::Admin)?, 1, Duration::from_secs(60))
}

/// The policy as the service has it.
async fn stored(client: &Client) -> Result<Definitions, Failure> {
    Ok(Definitions {
        meters: by_id(list(client, DefinitionKind::Meter).await?, |it| &it.id),
        operations: by_id(list(client, DefinitionKind::Operation).await?, |it| &it.id),
        cost_defaults: list(client, DefinitionKind::CostDefaults).await?.into_iter().next().map(Arc::new),
        limits: by_id(list(client, DefinitionKind::Limit).await?, |it| &it.id),
        plans: by_id(list(client, DefinitionKind::Plan).await?, |it| &it.id),
        tenants: by_id(list(client, DefinitionKind::Tenant).await?, |it| &it.id),
    })
}

/// A policy file with its text, so that errors can name a line.
#[derive(Debug)]
struct File {
    path: PathBuf,
    text: String,
    /// The file as written: fields left out stay out.
    policy: Value,
}

impl File {
    fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))?;
        let wrong = |error: FieldError| Failure::new(decoder_message(path, &text, &error)).remedy(CORRECT);
        PolicyFile::from_toml(&text).map_err(wrong)?;
        let policy = toml::from_str(&text).map_err(|error| wrong(FieldError::new("", error.message())))?;
        Ok(Self { path: path.to_owned(), text, policy })
    }

    /// Asks what the file changes or, with the digest of an answer, has exactly that changed.
    async fn ask(
        &self,
        client: &Client,
        prune: &[Prune],
        agreed: Option<&str>,
    ) -> Result<AppliedPolicy, Failure> {
        let mut body = json!({ "policy": self.policy, "prune": prune, "dry_run": agreed.is_none() });
        if let Some(digest) = agreed {
            body["expected_digest"] = digest.into();
        }
        let reply = client.reply(Method::POST, APPLY, None, Some(body.to_string())).await?;
        match reply.status {
            200 => parse(APPLY, &reply.body),
            422 => Err(self.refused(&problem::field_errors(&reply.body))),
            status => Err(problem::failure(&format!("POST {APPLY}"), status, &reply.body)),
        }
    }

    /// An error or warning with its line.
    fn describe(&self, error: &FieldError) -> String {
        let pointer = error.pointer.strip_prefix("/policy").unwrap_or(&error.pointer);
        let line = line_of(&self.text, pointer).map_or_else(String::new, |line| format!(":{line}"));
        let field = if pointer.is_empty() { String::new() } else { format!(" {pointer}") };
        format!("{}{line}{field}: {}", self.path.display(), error.message)
    }

    fn warn(&self, warnings: &[FieldError]) {
        warnings.iter().for_each(|warning| eprintln!("warning: {}", self.describe(warning)));
    }

    /// Each error with its line.
    fn refused(&self, errors: &[FieldError]) -> Failure {
        let lines: Vec<String> = errors.iter().map(|error| self.describe(error)).collect();
        let prunes = errors.iter().any(|error| error.message.contains("or prune "));
        Failure::new(lines.join("\n  ")).remedy(if prunes {
            "complete the file, or pass --prune with what may go; nothing was changed"
        } else {
            CORRECT
        })
    }
}

/// The decoder knows the line; the policy check knows the field.
fn decoder_message(path: &Path, text: &str, error: &FieldError) -> String {
    let read = toml::Deserializer::parse(text).and_then(from_objects::<PolicyFile, _>);
    let Err(decoder) = read else { return error.to_string() };
    let before = decoder.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let field = if error.pointer.is_empty() { String::new() } else { format!(" {}", error.pointer) };
    let (_, message) = field_and_message(decoder.message());
    format!("{}:{line}{field}: {}", path.display(), in_plain_words(message))
}

async fn list<T: DeserializeOwned>(client: &Client, kind: DefinitionKind) -> Result<Vec<T>, Failure> {
    let path = format!("/v1/admin/{}", kind.list_name());
    let objects: Vec<Value> = client.list(&path).await?;
    let read = |mut object: Value| {
        as_defined(&mut object);
        let id = object.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        read_json(&object).map_err(|error| {
            Failure::new(format!(
                "{path}: the {kind} `{id}` is not what this command line understands: {error}"
            ))
            .remedy("use the command line of the same version as the service")
        })
    };
    objects.into_iter().map(read).collect()
}

/// Takes off an object as it is shown what its definition has not.
pub(super) fn as_defined(shown: &mut Value) {
    if let Some(fields) = shown.as_object_mut() {
        fields.remove("version");
        leave_out_dates(fields);
    }
}

fn by_id<Id: Ord + Clone, T>(items: Vec<T>, id: impl Fn(&T) -> &Id) -> BTreeMap<Id, Arc<T>> {
    items.into_iter().map(|item| (id(&item).clone(), Arc::new(item))).collect()
}

/// The line of a pointer's field, or of the nearest enclosing field in the file.
fn line_of(text: &str, pointer: &str) -> Option<usize> {
    let root = DeValue::Table(DeTable::parse(text).ok()?.into_inner());
    let (mut here, mut found) = (&root, None);
    for step in pointer.strip_prefix('/')?.split('/') {
        let step = step.replace("~1", "/").replace("~0", "~");
        let (start, inner) = match here {
            DeValue::Table(fields) => {
                let Some((name, value)) = fields.iter().find(|(name, _)| name.get_ref() == &step) else {
                    break;
                };
                (name.span().start, value)
            }
            DeValue::Array(items) => {
                let Some(value) = step.parse().ok().and_then(|index: usize| items.get(index)) else {
                    break;
                };
                (value.span().start, value)
            }
            _ => break,
        };
        found = Some(start);
        here = inner.get_ref();
    }
    Some(text.get(..found?)?.matches('\n').count() + 1)
}

fn export_text(definitions: &Definitions, format: Format) -> Result<String, Failure> {
    let file = export(definitions);
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(format!("the policy cannot be written: {error}"));
    match format {
        Format::Table => file.to_toml().map_err(|error| failed(&error)),
        Format::Json => output::pretty(&serde_json::to_value(&file).map_err(|error| failed(&error))?),
        Format::Csv => Err(Failure::new("a policy is not a table")
            .exit(Exit::Usage)
            .remedy("leave --output out for the file that `policy apply` takes, or pass --output json")),
    }
}

fn changes_text(changes: &[Change], format: Format) -> Result<String, Failure> {
    if changes.is_empty() && format == Format::Table {
        return Ok("no difference\n".to_owned());
    }
    let mut table = Table::new(&["action", "kind", "id", "field", "before", "after"]);
    for change in changes {
        let row = |action: Action, rest: [String; 3]| {
            [action.as_str().to_owned(), change.kind.to_string(), change.id.clone()].into_iter().chain(rest)
        };
        // A new or deleted definition is shown by its name: the file, or `policy export`, has its fields.
        if change.action != Action::Change {
            table.row(row(change.action, Default::default()));
            continue;
        }
        for field in &change.fields {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            table.row(row(field.action, [field.pointer.clone(), text(&field.before), text(&field.after)]));
        }
    }
    table.render(format)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
[[meters]]
id = "ocr.page"
unit = "page"

[[plans]]            # the first
id = "free"
limits = [{ id = "day", meter = "ocr.page", algorithm = "calendar", window = "day", capacity = "10" }]

[[tenants]]
id = "acme"
plan = "free"
"#;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn what_is_sent_is_what_the_file_says_and_no_more() {
        let one = file("[[tenants]]\nid = \"acme\"\nplan = \"free\"\n");
        let sent = File::read(one.path()).unwrap().policy;
        assert_eq!(sent, serde_json::json!({ "tenants": [{ "id": "acme", "plan": "free" }] }));
    }

    #[test]
    fn errors_name_the_file_the_line_and_the_field() {
        let wrong = file(&FILE.replace("capacity = \"10\"", "capacity = \"-1\""));
        let message = File::read(wrong.path()).unwrap_err().message;
        assert!(message.contains(":8 /plans/0/limits/0/capacity: must not be negative"), "{message}");
    }

    #[test]
    fn a_pointer_leads_to_the_line_of_its_field_or_of_what_is_around_it() {
        for (pointer, line) in [
            ("/meters/0/unit", Some(4)),
            ("/plans/0/limits/0/capacity", Some(8)),
            ("/plans/0/limits/3", Some(8)),
            ("/tenants/0/plan", Some(12)),
            ("/tenants/acme/plan", Some(10)),
            ("/operations/ocr", None),
        ] {
            assert_eq!(line_of(FILE, pointer), line, "{pointer}");
        }
    }

    #[test]
    fn a_removal_is_shown_as_such() {
        let field = |action, pointer: &str, before: Option<&str>, after: Option<&str>| {
            let (before, after) = (before.map(str::to_owned), after.map(str::to_owned));
            crate::domain::policy::diff::FieldChange { action, pointer: pointer.into(), before, after }
        };
        let change =
            |action, id: &str, fields| Change { kind: DefinitionKind::Plan, id: id.into(), action, fields };
        let changes = [
            change(
                Action::Change,
                "free",
                vec![
                    field(Action::Change, "/limits/day/capacity", Some("10"), Some("20")),
                    field(Action::Delete, "/limits/hour", Some("5"), None),
                ],
            ),
            change(Action::Delete, "old", vec![]),
        ];
        assert_eq!(
            changes_text(&changes, Format::Csv).unwrap(),
            "action,kind,id,field,before,after\nchange,plan,free,/limits/day/capacity,10,20\n\
             delete,plan,free,/limits/hour,5,\ndelete,plan,old,,,\n"
        );
    }
}
