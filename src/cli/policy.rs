//! `tollgate policy`: the policy of a running service as a file.
//!
//! The difference is worked out here by the pure core; what changes is then written object by object, each only if
//! nobody has changed it since it was read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::IF_MATCH;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::arguments::{Connect, PolicyCommand, PruneKind};
use super::client::{Client, encoded};
use super::connection::{Connection, Prefer};
use super::failure::{Exit, Failure};
use super::output::{self, Format, Table};
use super::prompt;
use crate::domain::field_error::{FieldError, read_json};
use crate::domain::policy::diff::{self, Action, Applied, Change, DefinitionKind};
use crate::domain::policy::document::{Definitions, PolicyFile, export};

const CORRECT: &str = "correct the file; nothing was changed";

/// Runs a `policy` command.
pub(super) async fn run(
    command: PolicyCommand,
    config: Option<&Path>,
    format: Format,
) -> Result<Exit, Failure> {
    match command {
        PolicyCommand::Export { connect } => {
            let stored = Stored::read(&client(&connect, config)?).await?;
            output::print(&export_text(&stored.definitions, format)?)?;
        }
        PolicyCommand::Diff { file, prune, connect } => {
            let file = File::read(&file)?;
            let applied = Stored::read(&client(&connect, config)?).await?.apply(file, &prune)?;
            output::print(&changes_text(&applied.changes, format)?)?;
        }
        PolicyCommand::Apply { file, prune, yes, connect } => {
            let file = File::read(&file)?;
            let client = client(&connect, config)?;
            let stored = Stored::read(&client).await?;
            let applied = stored.apply(file, &prune)?;
            output::print(&changes_text(&applied.changes, format)?)?;
            if !applied.changes.is_empty() {
                prompt::confirm(&format!("Apply these {} changes?", applied.changes.len()), yes)?;
                write(&client, &stored, &applied).await?;
            }
        }
    }
    Ok(Exit::Success)
}

fn client(connect: &Connect, config: Option<&Path>) -> Result<Client, Failure> {
    Client::new(&Connection::find(connect, config, Prefer::Admin)?, 1, Duration::from_secs(60))
}

/// The policy as the service has it.
struct Stored {
    definitions: Definitions,
    versions: BTreeMap<(DefinitionKind, String), u64>,
}

impl Stored {
    async fn read(client: &Client) -> Result<Self, Failure> {
        let mut versions = BTreeMap::new();
        let definitions = Definitions {
            meters: by_id(list(client, DefinitionKind::Meter, &mut versions).await?, |it| &it.id),
            operations: by_id(list(client, DefinitionKind::Operation, &mut versions).await?, |it| &it.id),
            limits: by_id(list(client, DefinitionKind::Limit, &mut versions).await?, |it| &it.id),
            plans: by_id(list(client, DefinitionKind::Plan, &mut versions).await?, |it| &it.id),
            tenants: by_id(list(client, DefinitionKind::Tenant, &mut versions).await?, |it| &it.id),
        };
        Ok(Self { definitions, versions })
    }

    fn apply(&self, file: File, prune: &[PruneKind]) -> Result<Applied, Failure> {
        let prune: BTreeSet<DefinitionKind> = prune.iter().map(|kind| kind.definition_kind()).collect();
        diff::apply(&self.definitions, file.policy, &prune)
            .map_err(|errors| file_failure(&file.path, &file.text, &errors))
    }
}

/// A policy file with its text, so that errors can name a line.
#[derive(Debug)]
struct File {
    path: PathBuf,
    text: String,
    policy: PolicyFile,
}

impl File {
    fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))?;
        match PolicyFile::from_toml(&text) {
            Ok(policy) => Ok(Self { path: path.to_owned(), text, policy }),
            Err(error) => Err(Failure::new(decoder_message(path, &text, &error)).remedy(CORRECT)),
        }
    }
}

/// A decoder knows the very line; the pure core knows the field.
fn decoder_message(path: &Path, text: &str, error: &FieldError) -> String {
    let Err(decoder) = toml::from_str::<PolicyFile>(text) else { return error.to_string() };
    let before = decoder.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let field = if error.pointer.is_empty() { String::new() } else { format!(" {}", error.pointer) };
    format!("{}:{line}{field}: {}", path.display(), decoder.message())
}

impl PruneKind {
    fn definition_kind(self) -> DefinitionKind {
        match self {
            Self::Meters => DefinitionKind::Meter,
            Self::Operations => DefinitionKind::Operation,
            Self::Limits => DefinitionKind::Limit,
            Self::Plans => DefinitionKind::Plan,
        }
    }
}

async fn list<T: DeserializeOwned>(
    client: &Client,
    kind: DefinitionKind,
    versions: &mut BTreeMap<(DefinitionKind, String), u64>,
) -> Result<Vec<T>, Failure> {
    let path = format!("/v1/admin/{}", kind.list_name());
    let objects: Vec<Value> = client.list(&path).await?;
    let read = |mut object: Value| {
        let mut read_only = |field: &str| object.as_object_mut().and_then(|fields| fields.remove(field));
        let version = read_only("version");
        // What is still to come follows from what was asked for last.
        read_only("calendars");
        let id = object.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(version) = version.as_ref().and_then(Value::as_u64) {
            versions.insert((kind, id.clone()), version);
        }
        read_json(&object).map_err(|error| {
            Failure::new(format!(
                "{path}: the {kind} `{id}` is not what this command line understands: {error}"
            ))
            .remedy("use the command line of the same version as the service")
        })
    };
    objects.into_iter().map(read).collect()
}

fn by_id<Id: Ord + Clone, T>(items: Vec<T>, id: impl Fn(&T) -> &Id) -> BTreeMap<Id, Arc<T>> {
    items.into_iter().map(|item| (id(&item).clone(), Arc::new(item))).collect()
}

fn file_failure(path: &Path, text: &str, errors: &[FieldError]) -> Failure {
    let describe = |error: &FieldError| {
        let line = line_of(text, &error.pointer).map_or_else(String::new, |line| format!(":{line}"));
        let field = if error.pointer.is_empty() { String::new() } else { format!(" {}", error.pointer) };
        format!("{}{line}{field}: {}", path.display(), error.message)
    };
    let lines: Vec<String> = errors.iter().map(describe).collect();
    Failure::new(lines.join("\n  ")).remedy(CORRECT)
}

/// The line on which the item that a pointer leads into begins: the n-th `[[list]]` of the file.
fn line_of(text: &str, pointer: &str) -> Option<usize> {
    let mut steps = pointer.strip_prefix('/')?.split('/');
    let heading = format!("[[{}]]", steps.next()?);
    let index: usize = steps.next()?.parse().ok()?;
    let headings =
        text.lines().enumerate().filter(|(_, line)| line.split('#').next().map(str::trim) == Some(&heading));
    headings.map(|(number, _)| number + 1).nth(index)
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
        let action = match change.action {
            Action::Create => "create",
            Action::Change => "change",
            Action::Delete => "delete",
        };
        let head = [action.to_owned(), change.kind.to_string(), change.id.clone()];
        // A new or deleted definition is shown by its name: the file, or `policy export`, has its fields.
        if change.action != Action::Change {
            table.row(head.iter().cloned().chain(["", "", ""].map(str::to_owned)));
            continue;
        }
        for field in &change.fields {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            let cells = [field.pointer.clone(), text(&field.before), text(&field.after)];
            table.row(head.iter().cloned().chain(cells));
        }
    }
    table.render(format)
}

/// Creates and changes in the order of dependence, then deletes in the opposite order.
async fn write(client: &Client, stored: &Stored, applied: &Applied) -> Result<(), Failure> {
    let (deletions, writes): (Vec<&Change>, Vec<&Change>) =
        applied.changes.iter().partition(|change| change.action == Action::Delete);
    let mut done = 0;
    for (change, method) in writes
        .into_iter()
        .map(|it| (it, Method::PUT))
        .chain(deletions.into_iter().rev().map(|it| (it, Method::DELETE)))
    {
        let body = definition(&applied.definitions, change)?;
        let path = format!("/v1/admin/{}/{}", change.kind.list_name(), encoded(&change.id));
        let version =
            stored.versions.get(&(change.kind, change.id.clone())).map(|version| format!("\"{version}\""));
        let header = version.as_deref().map(|version| (IF_MATCH, version));
        client.call(method, &path, header, body).await.map_err(|failure| Failure {
            message: format!("{} (after {done} of {} changes)", failure.message, applied.changes.len()),
            ..failure
        })?;
        done += 1;
    }
    eprintln!("{done} changes applied");
    Ok(())
}

/// The whole definition as it is to be, as JSON; none for a deletion.
fn definition(definitions: &Definitions, change: &Change) -> Result<Option<String>, Failure> {
    fn find<Id: Ord + std::borrow::Borrow<str>, T: Serialize>(
        map: &BTreeMap<Id, Arc<T>>,
        id: &str,
    ) -> Option<serde_json::Result<String>> {
        map.get(id).map(|definition| serde_json::to_string(definition.as_ref()))
    }
    let found = match change.kind {
        DefinitionKind::Meter => find(&definitions.meters, &change.id),
        DefinitionKind::Operation => find(&definitions.operations, &change.id),
        DefinitionKind::Limit => find(&definitions.limits, &change.id),
        DefinitionKind::Plan => find(&definitions.plans, &change.id),
        DefinitionKind::Tenant => find(&definitions.tenants, &change.id),
    };
    found.transpose().map_err(|error| Failure::new(format!("{} {}: {error}", change.kind, change.id)))
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

    fn stored(text: &str) -> Stored {
        let definitions = PolicyFile::from_toml(text).unwrap().merge_into(Definitions::default());
        Stored { definitions, versions: BTreeMap::new() }
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn what_was_exported_changes_nothing_when_applied() {
        let stored = stored(FILE);
        let exported = file(&export_text(&stored.definitions, Format::Table).unwrap());
        assert_eq!(stored.apply(File::read(exported.path()).unwrap(), &[]).unwrap().changes, []);
    }

    #[test]
    fn a_file_naming_one_tenant_deletes_none() {
        let stored = stored(&format!("{FILE}[[tenants]]\nid = \"beta\"\n"));
        let one = file("[[tenants]]\nid = \"acme\"\nplan = \"free\"\ntime_zone = \"Europe/Berlin\"\n");
        let applied = stored.apply(File::read(one.path()).unwrap(), &[]).unwrap();
        assert_eq!(applied.definitions.tenants.len(), 2);
        let text = changes_text(&applied.changes, Format::Csv).unwrap();
        assert_eq!(
            text,
            "action,kind,id,field,before,after\nchange,tenant,acme,/time_zone,UTC,Europe/Berlin\n"
        );
    }

    #[test]
    fn errors_name_the_file_the_line_and_the_field() {
        let wrong = file(&FILE.replace("capacity = \"10\"", "capacity = \"-1\""));
        let message = File::read(wrong.path()).unwrap_err().message;
        assert!(message.contains(":8 /plans/0/limits/0/capacity: must not be negative"), "{message}");
        let dangling = file(&FILE.replace("plan = \"free\"", "plan = \"gold\""));
        let message = stored("").apply(File::read(dangling.path()).unwrap(), &[]).unwrap_err().message;
        assert!(message.contains(":10 /tenants/0/plan"), "{message}");
    }

    #[test]
    fn definitions_are_sent_whole() {
        let stored = stored(FILE);
        let change = Change {
            kind: DefinitionKind::Tenant,
            id: "acme".into(),
            action: Action::Change,
            fields: vec![],
        };
        let body = definition(&stored.definitions, &change).unwrap().unwrap();
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&body["id"], &body["overrides"]), (&"acme".into(), &serde_json::json!([])));
    }
}
