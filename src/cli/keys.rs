//! `tollgate key`: API keys of a running service.

use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::arguments::{Connect, KeyCommand};
use super::client::{Client, encoded, parse};
use super::connection::{Connection, Prefer};
use super::failure::{Exit, Failure};
use super::output::{self, Format, Table};
use super::problem;
use super::prompt;

const KEYS: &str = "/v1/admin/keys";

#[derive(Deserialize)]
struct Key {
    id: String,
    name: String,
    role: String,
    tenant: Option<String>,
    created_at: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
    key: Option<String>,
}

/// Runs a `key` command.
pub(super) async fn run(command: KeyCommand, config: Option<&Path>, format: Format) -> Result<Exit, Failure> {
    let keys = match command {
        KeyCommand::Create { name, role, tenant, expires_at, connect } => {
            let body =
                json!({ "name": name, "role": role.as_str(), "tenant": tenant, "expires_at": expires_at });
            vec![make(&client(&connect, config)?, KEYS, body.to_string()).await?]
        }
        KeyCommand::Rotate { id, overlap_seconds, expires_at, connect } => {
            let body = json!({ "overlap_seconds": overlap_seconds, "expires_at": expires_at });
            let path = format!("{KEYS}/{}/rotate", encoded(&id));
            vec![make(&client(&connect, config)?, &path, body.to_string()).await?]
        }
        KeyCommand::List { connect } => client(&connect, config)?.list(KEYS).await?,
        KeyCommand::Revoke { id, yes, connect } => {
            let client = client(&connect, config)?;
            prompt::confirm(&format!("The key {id} will never work again. Revoke it?"), yes)?;
            return revoke(&client, &id, format).await;
        }
    };
    output::print(&table(&keys).render(format)?)?;
    Ok(Exit::Success)
}

fn client(connect: &Connect, config: Option<&Path>) -> Result<Client, Failure> {
    Client::new(&Connection::find(connect, config, Prefer::Admin)?, 1, Duration::from_secs(30))
}

/// One attempt only: a repeated one would make a second key.
async fn make(client: &Client, path: &str, body: String) -> Result<Key, Failure> {
    let reply = client
        .attempt(Method::POST, path, None, Some(body))
        .await
        .map_err(|unanswered| client.unreachable(&unanswered))?;
    match reply.status {
        201 => parse(path, &reply.body),
        status => Err(problem::failure("the key was not made", status, &reply.body)),
    }
}

async fn revoke(client: &Client, id: &str, format: Format) -> Result<Exit, Failure> {
    client.call(Method::DELETE, &format!("{KEYS}/{}", encoded(id)), None, None).await?;
    let text = match format {
        Format::Table => format!("key {id} is revoked\n"),
        Format::Json | Format::Csv => {
            let mut table = Table::new(&["id", "status"]);
            table.row([id, "revoked"].map(str::to_owned));
            table.render(format)?
        }
    };
    output::print(&text)?;
    Ok(Exit::Success)
}

fn table(keys: &[Key]) -> Table {
    let shows_secret = keys.iter().any(|key| key.key.is_some());
    let mut columns = vec!["id", "name", "role", "tenant", "created at", "expires at", "revoked at"];
    if shows_secret {
        columns.push("key");
    }
    let mut table = Table::new(&columns);
    for key in keys {
        let optional = |text: &Option<String>| text.clone().unwrap_or_default();
        let mut row = vec![
            key.id.clone(),
            key.name.clone(),
            key.role.clone(),
            optional(&key.tenant),
            key.created_at.clone(),
            optional(&key.expires_at),
            optional(&key.revoked_at),
        ];
        if shows_secret {
            row.push(optional(&key.key));
        }
        table.row(row);
    }
    table
}
